"""The laws of style: every entry of METHODS obeys them the moment it is in the table."""

import copy
import dataclasses
import inspect
import pickle
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.base import clone
from torch import nn

from onepos.methods import METHODS
from onepos.methods.base import Batch, Mixing, TrainView
from onepos.training.loop import train
from onepos.training.plan import Plan
from onepos.training.samples import DenseRows
from onepos.training.task import Learner, Task, Validation

pytestmark = pytest.mark.usefixtures("short_cross_fit")

# Also with memory that the loss itself fills.
METHODS = {
    **METHODS,
    "crisp": partial(METHODS["crisp"], warmup=2),  # the trainings below are short
    "crisp, running scores": partial(METHODS["crisp-as-published"], scores="running"),
}
ALL = sorted(METHODS)

# The laws look at a method's own loss from the fourth epoch on, and have few rows.
SMALL = {"plc": {"warmup": 3, "queue": 48}}


def make(name, **parameters):
    """A method of the table; one that must be told the number of labels per row is told 1.9."""
    method = METHODS[name](**(SMALL.get(name, {}) | parameters))
    return method.set_params(cardinality=1.9) if "cardinality" in method.privileged else method


class TwoViews(DenseRows):
    """Rows, and if asked for a second view of them: all numbers a fifth smaller."""

    def batches(self, order, batch_size, n_views):
        for index in torch.split(order, batch_size):
            yield index, self.look(index, n_views)

    def look(self, index, n_views):
        return tuple(self.rows(index) * (1 - 0.2 * view) for view in range(max(1, n_views)))

    def to(self, device):
        return TwoViews(self.data.to(device))


class Maps(nn.Module):
    """Rows (B, d) as maps (B, d, 2, 2): each place shows them in its own strength."""

    def __init__(self):
        super().__init__()
        self.register_buffer("strength", torch.tensor([[1.5, 1.0], [0.5, -0.5]]))

    def forward(self, rows):
        return rows[:, :, None, None] * self.strength


def as_samples(X):
    return TwoViews(torch.tensor(X, dtype=torch.float32))


def learner_of(method):
    """Backbone and method: the rows themselves, or maps of them for a method that wants maps."""
    return Learner(Maps() if method.maps else nn.Identity(), method)


@pytest.fixture
def without_noise(monkeypatch):
    """Every random draw gives its mean, for laws that hold up to noise."""
    monkeypatch.setattr(torch, "randn", lambda *size, **options: torch.zeros(*size, **options))
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    monkeypatch.setattr(torch, "_standard_gamma", lambda shape: shape)
    attend = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda q, k, v, dropout_p: attend(q, k, v))
    monkeypatch.setattr(F, "dropout", lambda x, *_: x)
    monkeypatch.setattr(Mixing, "draw", lambda n_rows, device: Mixing(torch.arange(n_rows), torch.ones(n_rows)))


def run(
    name, X, observed, Y=None, *, epochs=6, seed=0, checkpoint=None, on_epoch=None, device="cpu", known_negative=None
):
    """Train through the loop alone: (learner, history)."""
    learner = learner_of(make(name))
    validation = None if Y is None else Validation(as_samples(X), Y, True)
    plan = Plan(epochs=epochs, batch_size=16, lr=0.01, device=device, seed=seed)
    task = Task(learner, as_samples(X), observed, X.shape[1], plan, validation, known_negative=known_negative)
    return learner, train(task, checkpoint=checkpoint, on_epoch=on_epoch).history


def set_up(name, X, observed, Y):
    """A method ready for its first batch after the warm-up, and one batch of everything."""
    learner, _ = run(name, X, observed, Y, epochs=4)
    learner.method.epoch = 4
    index = torch.arange(len(X))
    views = as_samples(X).look(index, learner.method.views)
    return learner, views, torch.tensor(observed, dtype=torch.float32), index


def same(first, second):
    first, second = first.state_dict(), second.state_dict()
    assert first.keys() == second.keys()
    return all(torch.equal(first[key].nan_to_num(-1), second[key].nan_to_num(-1)) for key in first)


@pytest.mark.parametrize("name", ALL)
class TestLaws:
    def test_1_loss_is_a_finite_scalar_and_reaches_the_head(self, name, toy):
        X, Y, observed = toy
        learner, *batch = set_up(name, X, observed, Y)
        for epoch in (0, 4):
            learner.method.epoch = epoch
            learner.zero_grad()
            loss, _ = learner(*batch)
            assert loss.shape == ()
            assert torch.isfinite(loss)
            loss.backward()
            assert sum(p.grad.abs().sum() for p in learner.method.head.parameters() if p.grad is not None) > 0

    def test_2_training_lowers_it(self, name, toy, without_noise):
        X, Y, observed = toy
        _, history = run(name, X, observed, Y, epochs=12)
        phase = history.loss[3:]  # each method's own loss, after a warm-up
        assert phase[-1] < phase[0]

    def test_3_one_seed_one_result(self, name, toy):
        X, Y, observed = toy
        first, _ = run(name, X, observed, Y)
        again, _ = run(name, X, observed, Y)
        other, _ = run(name, X, observed, Y, seed=1)
        assert same(first, again)
        assert not same(first, other)

    def test_4_stop_and_resume_equals_no_stop(self, name, toy, tmp_path):
        X, Y, observed = toy
        straight, history = run(name, X, observed, Y, epochs=6)

        def stop(epoch, _):
            if epoch == 2:
                raise KeyboardInterrupt

        file = tmp_path / "checkpoint"
        with pytest.raises(KeyboardInterrupt):
            run(name, X, observed, Y, epochs=6, checkpoint=file, on_epoch=stop)
        epochs = []
        resumed, history_2 = run(
            name, X, observed, Y, epochs=6, checkpoint=file, on_epoch=lambda epoch, _: epochs.append(epoch)
        )
        assert epochs == [3, 4, 5]
        assert same(straight, resumed)
        assert (history.loss, history.validation, history.prior) == (
            history_2.loss,
            history_2.validation,
            history_2.prior,
        )
        assert file.exists(), "it stays until the result is kept"

    def test_5_inputs_are_unchanged_and_so_is_the_global_generator(self, name, toy):
        X, Y, observed = toy
        kept = copy.deepcopy(toy)
        before, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        run(name, X, observed, Y)
        assert torch.equal(before, torch.get_rng_state())
        assert (np.random.get_state()[1] == before_numpy).all()  # noqa: NPY002
        for array, original in zip(toy, kept, strict=True):
            np.testing.assert_array_equal(array, original)

    def test_6_order_of_the_batch_does_not_matter(self, name, toy, without_noise):
        X, Y, observed = toy
        learner, views, seen, index = set_up(name, X, observed, Y)
        order = torch.randperm(len(index), generator=torch.Generator().manual_seed(0))
        first, _ = learner(views, seen, index)
        second, _ = learner(tuple(view[order] for view in views), seen[order], index[order])
        torch.testing.assert_close(first, second)

    def test_7_permuted_labels_permute_the_outcome(self, name, toy, without_noise):
        X, Y, observed = toy
        order = [2, 0, 3, 1]
        first, _ = run(name, X, observed, Y, epochs=5)

        learner = learner_of(_Permuted.of(make(name), order))
        plan = Plan(epochs=5, batch_size=16, lr=0.01, device="cpu", seed=0)
        held_out = Validation(as_samples(X), Y[:, order], True)
        train(Task(learner, as_samples(X), observed[:, order], X.shape[1], plan, held_out))
        rows = torch.tensor(X, dtype=torch.float32)
        torch.testing.assert_close(first.logits(rows)[:, order], learner.logits(rows), atol=1e-4, rtol=1e-3)

    def test_8_state_is_all_in_state_dict(self, name, toy, tmp_path):
        X, Y, observed = toy
        learner, _ = run(name, X, observed, Y)
        torch.save(learner.state_dict(), tmp_path / "state")
        torch.load(tmp_path / "state", weights_only=True)
        loose = [
            key
            for module in learner.modules()
            for key, value in vars(module).items()
            if isinstance(value, torch.Tensor) or (isinstance(value, np.ndarray) and value.size > 1)
        ]
        assert loose == []

    def test_9_parameters_round_trip(self, name):
        method = METHODS[name]()
        for twin in (clone(method), pickle.loads(pickle.dumps(method)), copy.deepcopy(method)):
            assert twin.get_params() == method.get_params()
            assert type(twin) is type(method)
        assert not list(method.parameters()), "__init__ only stores"

    @pytest.mark.parametrize("case", ["batch of one", "never observed", "two labels", "tied scores"])
    def test_10_odd_cases_stay_finite(self, name, toy, case):
        X, Y, observed = toy
        if case == "batch of one":
            X, Y, observed = X[:49], Y[:49], observed[:49]  # batches of 16, 16, 16, 1
        elif case == "never observed":
            observed = observed.copy()
            observed[:, 3] = 0
        elif case == "two labels":
            Y, observed = Y[:, :2], np.eye(2, dtype=np.uint8)[np.arange(60) % 2]
        else:
            X = np.ones_like(X)
        learner, history = run(name, X, observed, Y)
        assert np.isfinite(history.loss).all()
        assert torch.isfinite(learner.logits(torch.tensor(X, dtype=torch.float32))).all()

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    def test_11_moves_to_another_device(self, name, toy):
        X, Y, observed = toy
        learner, history = run(name, X, observed, Y, device="cuda")
        assert np.isfinite(history.loss).all()
        assert {tensor.device.type for tensor in learner.state_dict().values()} == {"cuda"}

    def test_12_is_described(self, name):
        kind = type(METHODS[name]())
        assert "References" in inspect.getmodule(kind).__doc__
        for parameter in inspect.signature(kind.__init__).parameters:
            assert parameter == "self" or f"        {parameter}:" in kind.__doc__, f"{kind.__name__}: {parameter}"

    def test_13_loss_is_pure(self, name, toy, without_noise):
        """The same twice, and it leaves parameters and buffers as they were."""
        X, Y, observed = toy
        learner, *batch = set_up(name, X, observed, Y)
        before = copy.deepcopy(learner)
        first, second = learner(*batch)[0], learner(*batch)[0]
        assert torch.equal(first, second)
        assert same(before, learner)

    def test_14_loss_changes_with_the_phase_alone(self, name, toy, without_noise):
        """In epochs of one phase it is the same function; so a stack may keep its trace."""
        X, Y, observed = toy
        learner, *batch = set_up(name, X, observed, Y)
        losses = {}
        for learner.method.epoch in range(8):
            losses.setdefault(learner.method.stacking.phase(learner.method), []).append(learner(*batch)[0].item())
        for phase, values in losses.items():
            assert len(set(values)) == 1, f"phase {phase}"

    def test_15_features_go_through_the_entry_alone(self, name, toy, without_noise):
        """What it makes of them can be handed over in their place; so a stack may hold it among its own layers."""
        X, Y, observed = toy
        learner, views, *batch = set_up(name, X, observed, Y)
        method = learner.method
        entry = method.get_submodule(method.stacking.entry)
        if not isinstance(entry, nn.Linear):
            return
        features = [learner.backbone(view) for view in views]
        expected = method.loss(features, Batch(views, *batch)), method(features[0])
        method.set_submodule(method.stacking.entry, nn.Identity())
        entered = [entry(one) for one in features]
        for got, want in zip((method.loss(entered, Batch(views, *batch)), method(entered[0])), expected, strict=True):
            got, want = (one[0] if isinstance(one, tuple) else one for one in (got, want))
            torch.testing.assert_close(got, want)

    def test_16_a_known_negative_counts_or_makes_no_difference(self, name, toy):
        """Of label 0, half of the rows where it would be found are known not to have it: they get lower scores."""
        X, Y, observed = toy
        no = np.zeros_like(observed)
        rows = np.flatnonzero((Y[:, 0] == 1) & (observed[:, 0] == 0))
        no[rows, 0] = 1
        plain, _ = run(name, X, observed, Y, epochs=12)
        told, _ = run(name, X, observed, Y, epochs=12, known_negative=no)
        if not told.method.uses_negatives:
            assert same(plain, told)
            return
        with torch.no_grad():
            before, after = (torch.sigmoid(each.logits(torch.tensor(X[rows]).float()))[:, 0] for each in (plain, told))
        # Some take what is unknown for absent anyway; MIME until a score is high.
        assert after.mean() < before.mean() or (name in ("an", "full", "mime") and same(plain, told))


class _Permuted:
    """Makes a method start from the same weights and the same memory with its labels in another order."""

    @staticmethod
    def of(method, order):
        make_head, setup, inverse = method.make_head, method.setup, np.argsort(order).tolist()

        def permute(module, skip=lambda name, kept: False):
            with torch.no_grad():
                for name, kept in [*module.named_parameters(), *module.named_buffers()]:
                    if not skip(name, kept):
                        for axis in [axis for axis, size in enumerate(kept.shape) if size == len(order)]:
                            kept.copy_(kept.index_select(axis, torch.tensor(order)).clone())

        def make_permuted(n_features, n_labels):
            head = make_head(n_features, n_labels)
            permute(head)
            return head

        def set_up_permuted(train):
            prior = train.validation_prior
            prior = None if prior is None else prior[inverse]
            made = {f"head.{name}": kept.clone() for name, kept in method.head.named_parameters()}
            setup(dataclasses.replace(train, observed=train.observed[:, inverse], validation_prior=prior))
            permute(method, skip=lambda name, kept: name in made and torch.equal(made[name], kept))

        object.__setattr__(method, "make_head", make_permuted)
        object.__setattr__(method, "setup", set_up_permuted)
        return method


def test_batch_carries_no_true_labels():
    assert {field for field in Batch.__dataclass_fields__} == {"views", "observed", "index", "mixing", "known_negative"}
    assert not any("true" in field.lower() or field == "Y" for field in TrainView.__dataclass_fields__)
