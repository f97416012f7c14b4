"""Stacked runs end where each would end by itself, whatever differs between them."""

import copy
import dataclasses
import sys
from functools import partial

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import nn

import onepos.bench.stacking
import onepos.bench.tracing
import onepos.training.loop
from onepos.bench.stacking import can_stack, train_many
from onepos.methods import AN, METHODS
from onepos.methods.base import Method
from onepos.protocol import draw_single_positive, train_val_test_split
from onepos.training.backbones import make_backbone
from onepos.training.loop import Diverged, History, Trained, predict_logits, train
from onepos.training.plan import Plan
from onepos.training.samples import as_samples, fit_scaling, join_samples
from onepos.training.task import Learner, Task, Validation

pytestmark = pytest.mark.usefixtures("short_cross_fit")

# Also with memory that the loss itself fills.
METHODS = {
    **METHODS,
    "crisp": partial(METHODS["crisp"], warmup=2),  # the trainings below are short
    "crisp, running scores": partial(METHODS["crisp-as-published"], scores="running"),
}
STACKABLE = [name for name in METHODS if METHODS[name]().stacking.possible]


def make(name, cardinality=1.9):
    method = METHODS[name]()
    return method.set_params(cardinality=float(cardinality)) if "cardinality" in method.privileged else method


def toy_tasks(toy, name="an", n=4, network="mlp", **plan):
    """Runs that differ in rows, draw, seed, weights, learning rate, decay and number of epochs."""
    X, Y, _ = toy
    tasks = []
    for k in range(n):
        rows = np.random.default_rng(k).permutation(60)
        train_rows, val_rows = rows[:45], rows[45:]
        torch.manual_seed(k)
        learner = Learner(make_backbone(network, 8, 4, (6,)), make(name))
        own = {"epochs": 5 + k % 2, "lr": 1e-3 * (1 + k % 3), "weight_decay": 0.1 * (k % 2), "seed": k} | plan
        tasks.append(
            Task(
                learner,
                as_samples(X[train_rows]),
                draw_single_positive(Y[train_rows], k),
                8 if network == "linear" else 6,
                Plan(batch_size=16, device="cpu", **own),
                Validation(as_samples(X[val_rows]), Y[val_rows], True),
            )
        )
    return tasks


def alone(tasks):
    """The same tasks, one by one, on copies."""
    tasks = [dataclasses.replace(task, learner=copy.deepcopy(task.learner)) for task in tasks]
    return tasks, [train(task).history for task in tasks]


def stacked(tasks, **options):
    """Their histories after a training as one."""
    return [trained.history for trained in train_many(tasks, **options)]


def assert_same(tasks, histories, expected_tasks, expected, atol=1e-4):
    for task, history, other, of_other in zip(tasks, histories, expected_tasks, expected, strict=True):
        assert history.best_epoch == of_other.best_epoch
        np.testing.assert_allclose(history.loss, of_other.loss, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(history.validation, of_other.validation, atol=atol)
        np.testing.assert_allclose(history.mean_score, of_other.mean_score, atol=1e-3)
        assert len(history.seconds) == len(of_other.seconds)
        assert len(history.closing_seconds) == len(of_other.closing_seconds)
        for ours, theirs in zip(history.prior, of_other.prior, strict=True):
            np.testing.assert_allclose(np.array(ours, float), np.array(theirs, float), atol=atol)
        rows = other.validation.samples if other.validation else other.samples
        scores = torch.sigmoid(predict_logits(task.learner, rows))
        torch.testing.assert_close(scores, torch.sigmoid(predict_logits(other.learner, rows)), atol=atol, rtol=0)


@pytest.mark.parametrize("name", STACKABLE)
def test_equals_one_by_one(name, toy):
    tasks = toy_tasks(toy, name)
    expected = alone(tasks)
    histories = stacked(tasks)
    assert_same(tasks, histories, *expected, atol=1e-5)
    for task, other in zip(tasks, expected[0], strict=True):
        state, other_state = task.learner.state_dict(), other.learner.state_dict()
        assert state.keys() == other_state.keys()
        for key, value in other_state.items():
            torch.testing.assert_close(state[key], value, atol=1e-5, rtol=1e-4, equal_nan=True)
            assert state[key].is_contiguous()


@pytest.mark.parametrize("name", STACKABLE)
def test_traced_equals_one_by_one(name, toy, monkeypatch):
    """The loss as a list of kernels, also where it changes with the epoch, and in a shorter last batch."""
    count_traces(monkeypatch, worth=1)
    tasks = toy_tasks(toy, name, epochs=6)
    expected = alone(tasks)
    assert_same(tasks, stacked(tasks), *expected, atol=1e-5)


def count_traces(monkeypatch, worth):
    """A list that grows with each trace; one is made where so many steps are ahead."""
    import torch.fx.experimental.proxy_tensor as tracing

    traces, make_fx = [], tracing.make_fx
    monkeypatch.setattr(tracing, "make_fx", lambda function: traces.append(function) or make_fx(function))
    monkeypatch.setattr(onepos.bench.tracing, "_WORTH_A_TRACE", worth)
    monkeypatch.setattr(onepos.bench.tracing, "_WORTH_THE_FIRST", worth)
    return traces


@pytest.mark.parametrize(("name", "n_traces"), [("an", 1), ("crisp-as-published", 2), ("gr", 5)])
def test_traced_once_in_each_phase(name, n_traces, toy, monkeypatch):
    """AN does not ask for the epoch, CRISP has a warm-up, and to GR every epoch is another."""
    traces = count_traces(monkeypatch, worth=3)  # 45 rows in batches of 16 are three steps
    train_many(toy_tasks(toy, name, epochs=5))
    assert len(traces) == n_traces


@pytest.mark.parametrize(
    ("name", "worth", "n_traces"),
    [("an", 15, 1), ("an", 16, 0), ("crisp-as-published", 7, 1), ("crisp-as-published", 10, 0), ("gr", 4, 0)],
)
def test_traced_only_where_it_pays(name, worth, n_traces, toy, monkeypatch):
    """Fifteen steps in all, of which CRISP's warm-up takes nine; GR's loss is the same for three."""
    traces = count_traces(monkeypatch, worth)
    train_many(toy_tasks(toy, name, epochs=5))
    assert len(traces) == n_traces


def test_the_first_trace_of_a_process_must_pay_for_what_it_imports(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    first = onepos.bench.tracing._steps_worth_a_trace()
    monkeypatch.setitem(sys.modules, "torch._dynamo", object())
    assert first > onepos.bench.tracing._steps_worth_a_trace()


@pytest.mark.parametrize("name", STACKABLE)
@pytest.mark.parametrize("data", ["yeast", "corel5k"])
def test_equals_one_by_one_on_real_data(data, name, real_data):
    """Eight runs with their own split, draw, seed and learning rate. (Of Corel5k 600 rows, to be quick.)"""
    dataset = real_data(data)
    dataset = dataset.take(np.arange(600)) if data == "corel5k" else dataset
    tasks, test_sets = [], []
    for seed in range(8):
        parts = train_val_test_split(dataset.Y, seed)
        rows, val, test = (dataset.take(part) for part in parts)
        scaling = fit_scaling(rows.X)
        torch.manual_seed(seed)
        learner = Learner(
            make_backbone("mlp", dataset.n_features, dataset.n_labels, (64,)), make(name, dataset.cardinality)
        )
        plan = Plan(epochs=5, batch_size=32, lr=2e-4 * (1 + seed % 4), device="cpu", seed=seed)
        observed = rows.Y if "full labels" in learner.method.requires else draw_single_positive(rows.Y, seed)
        validation = Validation(as_samples(val.X, scaling), val.Y, True)
        tasks.append(Task(learner, as_samples(rows.X, scaling), observed, 64, plan, validation))
        test_sets.append(as_samples(test.X, scaling))
    others, expected = alone(tasks)
    histories = stacked(tasks)
    for task, other, history, of_other, rows in zip(tasks, others, histories, expected, test_sets, strict=True):
        assert history.best_epoch == of_other.best_epoch
        np.testing.assert_allclose(history.loss, of_other.loss, rtol=1e-4)
        scores, of_other_scores = (torch.sigmoid(predict_logits(t.learner, rows)) for t in (task, other))
        torch.testing.assert_close(scores, of_other_scores, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "backbone",
    [
        nn.Identity(),
        nn.Sequential(
            nn.Linear(8, 5, bias=False), nn.Tanh(), nn.Sequential(nn.Linear(5, 7), nn.GELU()), nn.Linear(7, 3)
        ),
        nn.Sequential(nn.Tanh(), nn.Linear(8, 3)),
        nn.Sequential(nn.ReLU(), nn.Linear(8, 5), nn.Tanh(), nn.ReLU(), nn.Linear(5, 3), nn.ReLU(), nn.ReLU()),
    ],
    ids=["none", "nested", "activation first", "rectified"],
)
@pytest.mark.parametrize("name", ["an", "role", "mime"])
def test_networks(name, backbone, toy):
    width = backbone(torch.zeros(1, 8)).shape[1]
    tasks = [
        dataclasses.replace(task, learner=Learner(copy.deepcopy(backbone), task.learner.method), n_features=width)
        for task in toy_tasks(toy, name)
    ]
    assert all(can_stack(task) for task in tasks)
    expected = alone(tasks)
    assert_same(tasks, stacked(tasks), *expected, atol=1e-5)


def test_a_head_that_is_no_linear_layer(toy):
    class Deep(AN):
        def make_head(self, n_features, n_labels):
            return nn.Sequential(nn.Linear(n_features, 5), nn.Tanh(), nn.Linear(5, n_labels))

        def end_epoch(self, train):
            self.class_prior = train.scores().mean(0)

        def setup(self, train):
            self.register_buffer("class_prior", torch.zeros(train.n_labels))

    tasks = [dataclasses.replace(t, learner=Learner(t.learner.backbone, Deep())) for t in toy_tasks(toy)]
    expected = alone(tasks)
    assert_same(tasks, stacked(tasks), *expected, atol=1e-5)


def test_negligible_gradients_are_zero_and_others_as_they_are():
    weights = {"backbone.weight": torch.ones(2, 3, 4)}
    gradients = {"backbone.weight": torch.ones(2, 3, 4)}
    layers = onepos.bench.stacking._Layers(Learner(nn.Linear(3, 4, bias=False), make_with_head(nn.Identity())))
    layers.bind(weights, gradients)
    layers.forward(torch.ones(2, 1, 3))
    layers.backward(torch.tensor([1e-40, -1e-21, 1e-19, torch.nan]).expand(2, 1, 4))
    expected = torch.tensor([0, 0, 1e-19, torch.nan]).expand(2, 3, 4)
    torch.testing.assert_close(gradients["backbone.weight"], expected, rtol=1e-6, atol=0, equal_nan=True)


def make_with_head(head):
    method = AN()
    method.head = head
    return method


def test_sparse_rows_of_several_trials(toy):
    """Each trial has its own scaling, hence its own place of zero."""
    X = toy[0]
    tasks = toy_tasks(toy)
    for k, task in enumerate(tasks):
        trial = scipy.sparse.csr_matrix(np.where(np.abs(X) > 0.5 + 0.1 * (k // 2), X, 0))[:45]
        samples = as_samples(trial, fit_scaling(trial))
        tasks[k] = dataclasses.replace(task, samples=tasks[k - 1].samples if k % 2 else samples, validation=None)
    expected = alone(tasks)
    assert_same(tasks, stacked(tasks), *expected, atol=1e-5)


def test_joined_sparse_rows_are_those_of_the_parts():
    rng = np.random.default_rng(0)
    parts = [scipy.sparse.random(7, 5, 0.4, format="csr", rng=rng) for _ in range(3)]
    samples = [as_samples(part, fit_scaling(part)) for part in parts]
    index = torch.tensor([0, 6, 7, 13, 20, 14, 2])
    separate = torch.cat([one.rows(torch.arange(7)) for one in samples])
    assert torch.equal(join_samples(samples).rows(index), separate[index])


@pytest.mark.parametrize("parameter", [("em", "alpha"), ("crisp", "lam"), ("mime", "beta"), ("an-ls", "smoothing")])
def test_float_parameters_differ_within_a_stack(parameter, toy, monkeypatch):
    name, key = parameter
    tasks = toy_tasks(toy, name)
    for k, task in enumerate(tasks):
        task.learner.method.set_params(**{key: 0.1 + 0.1 * k})
    expected = alone(tasks)
    assert stack_sizes(monkeypatch, tasks) == [4]
    assert_same(tasks, stacked(tasks), *expected, atol=1e-5)
    assert [task.learner.method.get_params()[key] for task in tasks] == [0.1 + 0.1 * k for k in range(4)]


def stack_sizes(monkeypatch, tasks, **arguments):
    """How the tasks are put together; nothing is trained."""
    sizes = []

    class Spy:
        def __init__(self, tasks, checkpoints):
            self.n = len(tasks)

        def train(self):
            sizes.append(self.n)
            return [Trained(History(), None, None)] * self.n

    with monkeypatch.context() as patch:
        patch.setattr(onepos.bench.stacking, "_Stack", Spy)
        patch.setattr(
            onepos.bench.stacking, "_train_alone", lambda *_: sizes.append(1) or Trained(History(), None, None)
        )
        train_many(tasks, **arguments)
    return sizes


def test_what_differs_in_shape_is_not_stacked(toy, monkeypatch):
    tasks = toy_tasks(toy, n=6)
    tasks[1] = dataclasses.replace(tasks[1], plan=dataclasses.replace(tasks[1].plan, batch_size=8))
    tasks[2] = dataclasses.replace(tasks[2], learner=Learner(tasks[2].learner.backbone, make("em")))
    tasks[3] = dataclasses.replace(tasks[3], learner=Learner(nn.Sequential(nn.Linear(8, 6), nn.Tanh()), make("an")))
    tasks[4] = dataclasses.replace(tasks[4], samples=as_samples(np.ones((44, 8))), observed=tasks[4].observed[:44])
    assert sorted(stack_sizes(monkeypatch, tasks)) == [1, 1, 1, 1, 2]
    expected = alone(tasks)
    assert_same(tasks, stacked(tasks), *expected)


def test_the_backbones_own_learning_rate_is_kept_in_a_stack(toy, monkeypatch):
    tasks = toy_tasks(toy, backbone_lr=0.1)
    tasks[1] = dataclasses.replace(tasks[1], plan=dataclasses.replace(tasks[1].plan, backbone_lr=1.0))
    expected = alone(tasks)
    assert stack_sizes(monkeypatch, tasks) == [4]
    assert_same(tasks, stacked(tasks), *expected, atol=1e-5)


PLANS = {"precision": {"precision": "bf16"}, "frozen epochs": {"frozen_epochs": 2}, "compiled": {"compile": True}}


@pytest.mark.parametrize("reason", ["method", "network", "shared layer", "frozen layer", *PLANS])
def test_what_can_not_be_stacked_is_trained_by_itself(reason, toy, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    tasks = toy_tasks(toy, "smile" if reason == "method" else "an", **PLANS.get(reason, {}))
    layer = nn.Linear(8, 8)
    shared = nn.Sequential(layer, layer, nn.Linear(8, 6))
    networks = {"network": nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6)), "shared layer": shared}
    for task in tasks:
        task.learner.backbone = copy.deepcopy(networks.get(reason, task.learner.backbone))
        if reason == "frozen layer":
            task.learner.backbone[0].weight.requires_grad_(False)
    assert stack_sizes(monkeypatch, tasks) == [1, 1, 1, 1]
    expected = alone(tasks)
    assert_same(tasks, stacked(tasks), *expected, atol=0)


def test_structural_parameters_must_agree(toy, monkeypatch):
    tasks = toy_tasks(toy, "ll-r")
    tasks[0].learner.method.set_params(delta_rel=5.0)
    assert sorted(stack_sizes(monkeypatch, tasks)) == [1, 3]


def test_stack_size(toy, monkeypatch):
    tasks = toy_tasks(toy, n=7)
    assert stack_sizes(monkeypatch, tasks) == [7]
    assert stack_sizes(monkeypatch, tasks, stack_size=3) == [3, 2, 2], "of like size"
    need = onepos.bench.stacking.bytes_per_run(tasks[0])
    monkeypatch.setattr(onepos.bench.stacking, "free_memory", lambda device: 2 * 4 * need)
    assert stack_sizes(monkeypatch, tasks) == [4, 3], "half of the free memory holds four"
    monkeypatch.setattr(onepos.bench.stacking, "free_memory", lambda device: 0)
    assert stack_sizes(monkeypatch, tasks) == [1] * 7


def test_memory_of_a_run_counts_what_its_method_remembers(toy):
    an, role = (onepos.bench.stacking.bytes_per_run(toy_tasks(toy, name)[0]) for name in ("an", "role"))
    assert role - an == 6 * 45 * 4 * 4, "45 × 4 label estimates of four bytes, with gradient, moments and copies"


@pytest.mark.parametrize("name", ["an", "crisp", "mime"])
def test_a_run_that_diverges_leaves_the_others_undisturbed(name, toy):
    tasks = toy_tasks(toy, name)
    broken = as_samples(np.full((45, 8), 1e38))
    tasks[1] = dataclasses.replace(tasks[1], samples=broken, plan=dataclasses.replace(tasks[1].plan, lr=1e10))
    others = [tasks[k] for k in (0, 2, 3)]
    expected = alone(others)
    with pytest.raises(Diverged) as error:
        alone(tasks[1:2])
    histories = stacked(tasks)
    assert_same(others, [histories[k] for k in (0, 2, 3)], *expected, atol=1e-5)
    assert not np.isfinite(histories[1].loss[-1])
    assert len(histories[1].loss) == len(error.value.history.loss) < tasks[1].plan.epochs


def test_a_run_that_diverges_late_keeps_its_best_epoch(toy):
    class Late(AN):
        def loss(self, features, batch):
            return super().loss(features, batch) * (float("nan") if self.epoch >= 2 else 1.0)

    tasks = [dataclasses.replace(t, learner=Learner(t.learner.backbone, Late())) for t in toy_tasks(toy, n=2)]
    for together in (True, False):
        own = [dataclasses.replace(task, learner=copy.deepcopy(task.learner)) for task in tasks]
        for history, task in zip(stacked(own, stack_size=None if together else 1), own, strict=True):
            assert len(history.loss) == 3
            assert history.best_epoch in (0, 1)
            assert len(history.validation) == len(history.seconds) - (1 if together else 0) == 2
            assert all(parameter.isfinite().all() for parameter in task.learner.parameters())


@pytest.mark.parametrize("name", STACKABLE)
def test_resumed_equals_uninterrupted(name, toy, tmp_path, monkeypatch):
    tasks = toy_tasks(toy, name)
    straight, stopped = ([dataclasses.replace(t, learner=copy.deepcopy(t.learner)) for t in tasks] for _ in range(2))
    expected = stacked(straight)
    saved, save = [], onepos.bench.stacking.save_checkpoint

    def save_twice(*arguments):
        if len(saved) == 2:
            raise KeyboardInterrupt
        saved.append(save(*arguments))

    with monkeypatch.context() as patch:
        patch.setattr(onepos.bench.stacking, "save_checkpoint", save_twice)
        with pytest.raises(KeyboardInterrupt):
            train_many(stopped, checkpoints=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    histories = stacked(tasks, checkpoints=tmp_path)
    assert not list(tmp_path.iterdir())
    assert [len(h.loss) for h in histories] == [5, 6, 5, 6]
    for task, other, history, of_other in zip(tasks, straight, histories, expected, strict=True):
        assert (history.loss, history.validation, history.prior) == (of_other.loss, of_other.validation, of_other.prior)
        assert history.mean_score == of_other.mean_score
        for key, value in other.learner.state_dict().items():
            torch.testing.assert_close(task.learner.state_dict()[key], value, atol=0, rtol=0, equal_nan=True)


def test_alone_resumes_too(toy, tmp_path, monkeypatch):
    """What is not stacked has its checkpoint in the same folder."""
    tasks = toy_tasks(toy, "smile", n=2)
    expected = alone(tasks)
    saved, save = [], onepos.training.loop.save_checkpoint

    def save_twice(*arguments):
        if len(saved) == 2:
            raise KeyboardInterrupt
        saved.append(save(*arguments))

    stopped = [dataclasses.replace(task, learner=copy.deepcopy(task.learner)) for task in tasks]
    with monkeypatch.context() as patch:
        patch.setattr(onepos.training.loop, "save_checkpoint", save_twice)
        with pytest.raises(KeyboardInterrupt):
            train_many(stopped, checkpoints=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    epochs = []
    monkeypatch.setattr(type(tasks[0].learner.method), "end_epoch", lambda self, train: epochs.append(self.epoch))
    assert_same(tasks, stacked(tasks, checkpoints=tmp_path), *expected, atol=0)
    assert epochs == [2, 3, 4, 0, 1, 2, 3, 4, 5], "the first goes on where it was"
    assert not list(tmp_path.iterdir())


def test_wrong_tasks(toy):
    task = toy_tasks(toy)[0]
    with pytest.raises(ValueError, match=r"samples and labels must have as many rows; got 45 and 44\."):
        dataclasses.replace(task, observed=task.observed[:44])
    with pytest.raises(ValueError, match=r"stack_size must be at least 1; got 0\. Leave it out to fit the memory\."):
        train_many([task], stack_size=0)


def test_without_validation_rows_the_last_epoch_is_kept(toy):
    tasks = [dataclasses.replace(task, validation=None) for task in toy_tasks(toy, "crisp")]
    expected = alone(tasks)
    histories = stacked(tasks)
    assert_same(tasks, histories, *expected, atol=1e-5)
    assert [history.best_epoch for history in histories] == [4, 5, 4, 5]


def test_runs_with_and_without_validation_rows_of_different_length(toy):
    tasks = toy_tasks(toy)
    tasks[0] = dataclasses.replace(tasks[0], validation=None)
    X, Y, _ = toy
    tasks[1] = dataclasses.replace(tasks[1], validation=Validation(as_samples(X[:9]), Y[:9], True))
    expected = alone(tasks)
    assert_same(tasks, stacked(tasks), *expected, atol=1e-5)


def test_a_learner_in_two_tasks(toy):
    task = toy_tasks(toy)[0]
    with pytest.raises(ValueError, match=r"each task must have a learner of its own; one is in two tasks\. Copy it"):
        train_many([task, dataclasses.replace(task, plan=Plan())])


def test_a_buffer_that_comes_late(toy):
    class Late(AN):
        def end_epoch(self, train):
            self.register_buffer("late", torch.zeros(1))

    tasks = [dataclasses.replace(t, learner=Learner(t.learner.backbone, Late())) for t in toy_tasks(toy)]
    with pytest.raises(ValueError, match=r"method\.late must be a buffer made in setup; it is new after end_epoch\."):
        train_many(tasks)


def test_chance_within_the_loss_is_refused(toy):
    """A method that draws numbers in its loss must say that it can not be stacked."""

    class Dice(Method):
        def loss(self, features, batch):
            return self(features[0]).mean() * torch.rand(())

    tasks = [dataclasses.replace(t, learner=Learner(t.learner.backbone, Dice())) for t in toy_tasks(toy)]
    with pytest.raises(RuntimeError, match="random"):
        train_many(tasks)
