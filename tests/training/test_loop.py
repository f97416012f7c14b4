"""The loop: what it promises beyond the laws of the contract."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onepos.bench.stacking import Task, train_many
from onepos.methods import AN, CRISP
from onepos.methods.base import Method
from onepos.methods.heads import LinearHead
from onepos.methods.losses import assume_negative
from onepos.metrics import average_precision
from onepos.training.loop import Learner, Network, Plan, Validation, predict_logits, train
from onepos.training.runtime import Direct, choose_device, open_runtime, seeded
from onepos.training.samples import as_samples


def go(method, toy, plan, **options):
    X, _, observed = toy
    learner = Learner(nn.Identity(), method)
    return learner, train(learner, as_samples(X), observed, X.shape[1], plan, **options)


def plan(**changes):
    return Plan(**({"epochs": 5, "batch_size": 16, "lr": 0.01, "device": "cpu"} | changes))


def test_head_starts_at_the_observed_frequencies(toy):
    learner, _ = go(AN(), toy, plan(lr=0.0, epochs=1))
    share = (toy[2].sum(0) + 0.5) / 61
    np.testing.assert_allclose(learner.method.head.bias.detach(), np.log(share / (1 - share)), rtol=1e-5)
    zero, _ = go(AN(), toy, plan(lr=0.0, epochs=1, bias_init="zero"))
    assert (zero.method.head.bias == 0).all()
    torch.testing.assert_close(zero.method.head.weight * 0.1, learner.method.head.weight)
    with pytest.raises(ValueError, match="bias_init must be 'frequency' or 'zero'; got 'one'"):
        go(AN(), toy, plan(bias_init="one"))


def test_a_label_nobody_observed_starts_low_but_finite(toy):
    X, Y, observed = toy
    observed = observed.copy()
    observed[:, 1] = 0
    learner, _ = go(AN(), (X, Y, observed), plan(lr=0.0, epochs=1))
    assert learner.method.head.bias.argmin() == 1
    assert torch.isfinite(learner.method.head.bias).all()


class TestAdvisers:
    """Models beside the network that never change: here they say what the first four features of a row are."""

    @pytest.fixture
    def asked(self):
        return []

    @pytest.fixture
    def advised(self, asked):
        class Head(LinearHead):
            def forward(self, features, advice=None):
                return super().forward(features) + (0 if advice is None else 10 * advice)

        class First(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("weight", torch.eye(8, 4))

            def forward(self, rows):
                return rows @ self.weight

            def about(self, rows):
                asked.append(len(rows))
                return self(rows) + 1 if len(rows) == 60 else self(rows)

        class Advised(AN):
            def make_head(self, n_features, n_labels):
                return Head(n_features, n_labels)

            def make_advisers(self, train):
                assert torch.equal(train.observed.sum(1), torch.ones(60)), "after setup, with all rows in view"
                return First()

        return Advised()

    def test_logits_are_those_of_both(self, advised, toy):
        learner, _ = go(advised, toy, plan())
        rows = torch.tensor(toy[0][:7], dtype=torch.float32)
        expected = nn.functional.linear(rows, advised.head.weight, advised.head.bias) + 10 * rows[:, :4]
        torch.testing.assert_close(learner.logits(rows), expected)
        torch.testing.assert_close(predict_logits(learner, as_samples(toy[0][:7])), expected)
        network = Network(learner.backbone, advised.head, learner.advisers)
        torch.testing.assert_close(network(rows), expected)
        of_training_rows = predict_logits(learner, as_samples(toy[0]))[:7]
        torch.testing.assert_close(of_training_rows, expected + 10)  # by `about`, which knows them

    def test_the_epoch_is_chosen_with_them(self, advised, toy):
        X, Y, observed = toy
        held_out = Validation(as_samples(X[:40]), Y[:40], True)
        learner, history = go(advised, toy, plan(), validation=held_out)
        best = average_precision(Y[:40], predict_logits(learner, as_samples(X[:40])).double().numpy())
        assert history.validation[history.best_epoch] == pytest.approx(best)
        alone = Learner(nn.Identity(), AN())
        assert train(alone, as_samples(X), observed, 8, plan(), validation=held_out).validation != history.validation

    def test_they_are_no_part_of_what_a_training_changes(self, advised, toy, tmp_path):
        kept = []

        def look(epoch, history):
            kept.append(torch.load(tmp_path / "file", weights_only=True)["content"]["learner"])

        learner, _ = go(advised, toy, plan(epochs=2), checkpoint=tmp_path / "file", on_epoch=look)
        assert "advisers.weight" in learner.state_dict()
        assert not any("advisers" in name for name in kept[0])
        assert not any("advisers" in name for name, _ in learner.moving_buffers())
        before = learner.method.head.weight.detach().clone()
        learner.restore(kept[0])
        assert not torch.equal(learner.method.head.weight, before)

    def test_a_stack_asks_once_about_each_set_and_gives_what_each_gives_alone(self, advised, toy, asked):
        X, Y, observed = toy
        samples, held_out = as_samples(X), Validation(as_samples(X[:40]), Y[:40], True)
        tasks = [
            Task(Learner(nn.Identity(), copy.deepcopy(advised)), samples, observed, 8, plan(lr=lr), held_out)
            for lr in (0.01, 0.02)
        ]
        histories = train_many(tasks)
        assert asked.count(40) == 2  # each of the two has advisers of its own here; 5 epochs ask for no more
        for task, history in zip(tasks, histories, strict=True):
            learner, alone = go(copy.deepcopy(advised), toy, task.plan, validation=held_out)
            np.testing.assert_allclose(history.validation, alone.validation, rtol=1e-6)
            torch.testing.assert_close(task.learner.method.head.weight, learner.method.head.weight)


def test_best_epoch_is_kept(toy):
    X, Y, observed = toy
    snapshots = {}

    def remember(epoch, history):
        snapshots[epoch] = learner.method.head.weight.detach().clone()

    learner = Learner(nn.Identity(), AN())
    validation = Validation(as_samples(X), Y, True)
    history = train(
        learner, as_samples(X), observed, 8, plan(epochs=12, lr=0.3), validation=validation, on_epoch=remember
    )
    assert history.best_epoch == int(np.argmax(history.validation)) < 11
    assert torch.equal(learner.method.head.weight, snapshots[history.best_epoch])


def test_selection_by_a_metric_where_lower_is_better(toy):
    X, Y, _ = toy
    validation = Validation(as_samples(X), Y, True)
    _, history = go(AN(), toy, plan(epochs=12, lr=0.3, select="hamming_loss"), validation=validation)
    assert history.best_epoch == int(np.argmin(history.validation))


def test_warm_up_epochs_are_not_kept(toy):
    X, Y, _ = toy
    validation = Validation(as_samples(X), Y, True)
    _, history = go(CRISP(warmup=4), toy, plan(epochs=6), validation=validation)
    assert history.best_epoch >= 4
    _, history = go(CRISP(warmup=9), toy, plan(epochs=6), validation=validation)
    assert history.best_epoch == 5, "nothing but warm-up: the last epoch"


def test_history_holds_the_priors_of_each_epoch(toy):
    _, history = go(CRISP(warmup=2), toy, plan(epochs=4))
    assert [entry[0] is None for entry in history.prior] == [True, False, False, False]
    assert history.best_epoch == 3
    assert len(history.loss) == len(history.seconds) == 4
    assert go(AN(), toy, plan())[1].prior == []


def test_history_holds_the_mean_score_of_each_label(toy, monkeypatch):
    X, Y, _ = toy
    held_out = Validation(as_samples(X[:20]), Y[:20], True)
    learner, history = go(AN(), toy, plan(lr=0.0, epochs=3), validation=held_out)
    naive = [
        np.mean([1 / (1 + np.exp(-float(g))) for g in column]) for column in predict_logits(learner, held_out.samples).T
    ]
    np.testing.assert_allclose(history.mean_score, [naive] * 3, rtol=1e-5)
    assert go(AN(), toy, plan())[1].mean_score == [], "without validation rows there is nothing to tell"
    monkeypatch.setattr("onepos.training.loop.LISTED_LABELS", Y.shape[1] - 1)
    assert go(AN(), toy, plan(), validation=held_out)[1].mean_score == []


def test_history_holds_the_time_of_the_methods_turn(toy, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("onepos.training.loop.time.perf_counter", lambda: clock[0])

    class Slow(AN):
        def loss(self, features, batch):
            clock[0] += 1
            return super().loss(features, batch)

        def end_epoch(self, train):
            clock[0] += 0.25 * (self.epoch + 1)

    _, history = go(Slow(), toy, plan(epochs=3, batch_size=30))
    assert history.closing_seconds == [0.25, 0.5, 0.75]
    assert history.seconds == [2.25, 2.5, 2.75]


def test_weight_decay_spares_biases_and_what_a_method_adds(toy):
    from onepos.training.loop import _optimizer

    learner, _ = go(AN(), toy, plan())
    learner.method.memory = nn.Parameter(torch.zeros(60, 4))
    groups = _optimizer(learner, plan(weight_decay=0.1)).param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    head = learner.method.head
    assert [decay[id(p)] for p in (head.weight, head.bias, learner.method.memory)] == [0.1, 0.0, 0.0]


class Memory(Method):
    """Counts how often each row was seen and remembers its first score; a parameter of its own learns faster."""

    seen: Tensor

    def setup(self, train):
        self.register_buffer("seen", torch.zeros(train.n_samples, 1))
        self.extra = nn.Parameter(torch.zeros(train.n_labels))
        assert train.features().shape == (60, 8)
        some = torch.tensor([0, 7, 59])
        assert torch.equal(train.features(some), train.features()[some])
        assert train.inputs().shape == (60, 8)
        assert ((train.scores() > 0) & (train.scores() < 1)).all()
        self.n = train.n_samples

    def loss(self, features, batch):
        loss = assume_negative(self(features[0]) + self.extra, batch.observed)
        return loss, {"seen": self.seen[batch.index] + 1}

    def lr_factor(self, name):
        return 10.0 if name == "extra" else 1.0


def test_memory_is_scattered_by_index_once_per_epoch(toy):
    learner, _ = go(Memory(), toy, plan(epochs=3, batch_size=7))
    assert (learner.method.seen == 3).all()


def test_learning_rate_factor(toy):
    """Adam's first step is the learning rate itself, whatever the gradient."""
    learner, _ = go(Memory(), toy, plan(epochs=1, batch_size=60))
    torch.testing.assert_close(learner.method.extra.abs(), torch.full((4,), 0.1))


def test_divergence_is_reported(toy):
    _X, _, _observed = toy

    class Explodes(AN):
        def loss(self, features, batch):
            return super().loss(features, batch) * float("nan")

    with pytest.raises(
        FloatingPointError, match=r"the loss must stay finite; it was nan in epoch 0\. Lower lr \(0\.01\)"
    ):
        go(Explodes(), toy, plan())


def test_checkpoint_is_refused_by_another_training(toy, tmp_path):
    file = tmp_path / "checkpoint"

    def stop(epoch, _):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(AN(), toy, plan(), checkpoint=file, on_epoch=stop)
    with pytest.raises(ValueError, match="must be a checkpoint of this training; it belongs to other data"):
        go(AN(), toy, plan(lr=0.1), checkpoint=file)
    with pytest.raises(ValueError, match="must be a checkpoint of this training"):
        go(AN(), (toy[0] + 1, toy[1], toy[2]), plan(), checkpoint=file)
    with pytest.raises(ValueError, match="must be a checkpoint of this training"):
        go(CRISP(), toy, plan(), checkpoint=file)
    with pytest.raises(ValueError, match="must be a checkpoint of this training"):
        go(AN(), toy, plan(), checkpoint=file, validation=Validation(as_samples(toy[0]), toy[1], True))
    with pytest.raises(ValueError, match="must be a checkpoint of this training"):
        train(Learner(nn.Tanh(), AN()), as_samples(toy[0]), toy[2], 8, plan(), checkpoint=file)
    with pytest.raises(ValueError, match="must be a checkpoint of this training"):
        go(AN(), toy, plan(epochs=9), checkpoint=file)  # schedules may depend on the length
    go(AN(), toy, plan(), checkpoint=file)


@pytest.mark.parametrize("content", [b"", b"rubbish", b"PK\x03\x04 cut off"])
def test_damaged_checkpoint_is_refused(toy, tmp_path, content):
    file = tmp_path / "checkpoint"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"must be a checkpoint of onepos; it can not be read\. Delete it"):
        go(AN(), toy, plan(), checkpoint=file)
    assert file.read_bytes() == content


def test_a_checkpoint_that_can_not_be_written_leaves_the_old_one(toy, tmp_path, monkeypatch):
    """As on a full disk: the write fails, the file of the epoch before is whole and resumes."""
    import os

    file = tmp_path / "checkpoint"
    straight, _ = go(AN(), toy, plan())
    real, calls = os.fsync, []

    def full_disk(descriptor):
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        go(AN(), toy, plan(), checkpoint=file)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"], "nothing half-written is left"
    resumed, history = go(AN(), toy, plan(), checkpoint=file)
    assert torch.equal(straight.method.head.weight, resumed.method.head.weight)
    assert len(history.loss) == 5


@pytest.mark.parametrize("n_rows", [1, 4096, 4097])
def test_a_pass_keeps_the_order_and_the_mode(n_rows):
    learner = Learner(nn.Sequential(nn.Linear(1, 1), nn.Dropout(0.5)), AN())
    learner.method.head = nn.Identity()
    rows = torch.arange(n_rows, dtype=torch.float32)[:, None]
    logits = predict_logits(learner, as_samples(rows.numpy()))
    torch.testing.assert_close(logits, learner.backbone[0](rows).detach())
    assert learner.training


def test_runtime():
    assert choose_device("cpu").type == "cpu"
    assert isinstance(open_runtime("cpu", "32"), Direct)
    with pytest.raises(ValueError, match="precision must be '32' or 'bf16'; got '16'"):
        open_runtime("cpu", "16")
    state = torch.get_rng_state()
    with seeded(0, 0, torch.device("cpu")):
        first = torch.rand(3)
    with seeded(0, 1, torch.device("cpu")):
        assert not torch.equal(first, torch.rand(3))
    assert torch.equal(state, torch.get_rng_state())


def test_bf16_through_fabric_comes_close(toy):
    """Half precision runs through Fabric also on a CPU; logits reach the loss in full precision."""
    X, _, observed = toy
    results = []
    for precision in ("32", "bf16"):
        torch.manual_seed(0)
        learner = Learner(nn.Sequential(nn.Linear(8, 16), nn.ReLU()), CRISP(warmup=2))
        train(learner, as_samples(X), observed, 16, plan(precision=precision))
        results.append(predict_logits(learner, as_samples(X)))
    assert results[1].dtype == torch.float32
    assert not torch.equal(*results)
    torch.testing.assert_close(*results, atol=0.1, rtol=0.1)
