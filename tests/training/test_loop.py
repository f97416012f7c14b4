"""The loop: what it promises beyond the laws of the contract."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onepos.bench.stacking import can_stack, train_many
from onepos.methods import AN, CRISP, CRISPPlus
from onepos.methods.base import Method, Shared, Watch, drop
from onepos.methods.losses import assume_negative
from onepos.metrics import average_precision
from onepos.training.loop import find_length, predict_logits, train
from onepos.training.outcome import predict_rows
from onepos.training.plan import Plan
from onepos.training.runtime import Runtime, choose_device, open_runtime, seeded
from onepos.training.samples import as_samples
from onepos.training.task import Learner, Task, Validation, usual_epochs


def go(method, toy, plan, **options):
    X, _, observed = toy
    learner = Learner(nn.Identity(), method)
    task = Task(learner, as_samples(X), observed, X.shape[1], plan, options.pop("validation", None))
    return learner, train(task, **options).history


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


class Summing(nn.Module):
    """What `finish` of the method below hands over: backbone and head, and the first four features on top."""

    def __init__(self, backbone, head):
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, rows):
        return self.head(self.backbone(rows)) + 10 * rows[:, :4]


class TestFinish:
    @pytest.fixture
    def finishing(self):
        class Finishing(AN):
            def finish(self, train):
                assert train.observed.shape == (60, 4)
                assert train.n_epochs == 5
                return Summing(train.backbone, self.head)

        return Finishing()

    def test_a_method_may_hand_over_the_network_that_predicts(self, finishing, toy):
        X, _, observed = toy
        task = Task(Learner(nn.Identity(), finishing), as_samples(X), observed, 8, plan())
        network = train(task).network
        assert not network.training
        rows = torch.tensor(X[:7], dtype=torch.float32)
        torch.testing.assert_close(network(rows), task.learner.logits(rows) + 10 * rows[:, :4])
        torch.testing.assert_close(predict_rows(network, as_samples(X[:7])), network(rows))

    def test_by_default_it_is_backbone_and_head(self, toy):
        X, _, observed = toy
        task = Task(Learner(nn.Tanh(), AN()), as_samples(X), observed, 8, plan())
        network = train(task).network
        assert list(network) == [task.learner.backbone, task.learner.method.head]

    def test_it_is_made_from_the_best_epoch(self, finishing, toy):
        X, Y, observed = toy
        held_out = Validation(as_samples(X[:40]), Y[:40], True)
        task = Task(Learner(nn.Identity(), finishing), as_samples(X), observed, 8, plan(lr=0.3), held_out)
        history, network, _ = train(task)
        own = network(torch.tensor(X[:40], dtype=torch.float32)) - 10 * torch.tensor(X[:40, :4], dtype=torch.float32)
        best = average_precision(Y[:40], own.detach().double().numpy())
        assert history.validation[history.best_epoch] == pytest.approx(best)

    def test_a_stack_gives_what_each_gives_alone(self, finishing, toy):
        X, _, observed = toy
        samples = as_samples(X)
        tasks = [
            Task(Learner(nn.Identity(), copy.deepcopy(finishing)), samples, observed, 8, plan(lr=lr))
            for lr in (0.01, 0.02)
        ]
        for task, stacked in zip(tasks, train_many(tasks), strict=True):
            alone = train(Task(Learner(nn.Identity(), copy.deepcopy(finishing)), samples, observed, 8, task.plan))
            torch.testing.assert_close(predict_rows(stacked.network, samples), predict_rows(alone.network, samples))


def test_results_that_follow_from_the_rows_are_made_once_for_all_who_share_them(toy):
    X, _, observed = toy
    made = []

    class Preparing(AN):
        def setup(self, train):
            assert train.shared.once(("sum", train.seed), lambda: made.append(train.seed) or len(made)) == 1

    shared, samples = Shared(), as_samples(X)
    for lr in (0.01, 0.02):
        train(Task(Learner(nn.Identity(), Preparing()), samples, observed, 8, plan(lr=lr, seed=3), shared=shared))
    assert made == [3]


def test_best_epoch_is_kept(toy):
    X, Y, observed = toy
    snapshots = {}

    def remember(epoch, history):
        snapshots[epoch] = learner.method.head.weight.detach().clone()

    learner = Learner(nn.Identity(), AN())
    validation = Validation(as_samples(X), Y, True)
    task = Task(learner, as_samples(X), observed, 8, plan(epochs=12, lr=0.3), validation)
    history = train(task, on_epoch=remember).history
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
    _, history = go(CRISP.as_published(warmup=2), toy, plan(epochs=4))
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
        train(Task(Learner(nn.Tanh(), AN()), as_samples(toy[0]), toy[2], 8, plan()), checkpoint=file)
    with pytest.raises(ValueError, match="must be a checkpoint of this training"):
        go(AN(), toy, plan(epochs=9), checkpoint=file)  # schedules may depend on the length
    go(AN(), toy, plan(), checkpoint=file)


@pytest.mark.parametrize("content", [b"", b"rubbish", b"PK\x03\x04 cut off"])
def test_damaged_checkpoint_is_refused(toy, tmp_path, content):
    file = tmp_path / "checkpoint"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"must be a checkpoint of onepos; it can not be read or is damaged\. Delete"):
        go(AN(), toy, plan(), checkpoint=file)
    assert file.read_bytes() == content


@pytest.mark.parametrize("place", [0.02, 0.3, 0.5, 0.9, 0.999])
def test_one_flipped_bit_in_a_checkpoint_is_noticed(place, toy, tmp_path):
    """torch reads such a file without a word, and the training would end in other weights."""
    file = tmp_path / "checkpoint"
    go(AN(), toy, plan(), checkpoint=file)
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 4
    file.write_bytes(content)
    with pytest.raises(ValueError, match="must be a checkpoint of onepos; it can not be read or is damaged"):
        go(AN(), toy, plan(), checkpoint=file)


def test_a_checkpoint_stays_until_the_result_is_kept(toy, tmp_path):
    """A second run finds the training finished, and makes no step."""
    file, epochs = tmp_path / "checkpoint", []
    first, _ = go(AN(), toy, plan(), checkpoint=file)
    assert file.exists()
    second, history = go(AN(), toy, plan(), checkpoint=file, on_epoch=lambda epoch, _: epochs.append(epoch))
    assert epochs == []
    assert history.best_epoch == plan().epochs - 1
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name])


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
    assert open_runtime("cpu", "32") == Runtime(torch.device("cpu"), half=False)
    with open_runtime("cpu", "bf16").autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="precision must be '32' or 'bf16'; got '16'"):
        open_runtime("cpu", "16")
    state = torch.get_rng_state()
    with seeded(0, 0, torch.device("cpu")):
        first = torch.rand(3)
    with seeded(0, 1, torch.device("cpu")):
        assert not torch.equal(first, torch.rand(3))
    assert torch.equal(state, torch.get_rng_state())


def test_bf16_comes_close(toy):
    """Half precision runs also on a CPU; logits reach the loss in full precision."""
    X, _, observed = toy
    results = []
    for precision in ("32", "bf16"):
        torch.manual_seed(0)
        learner = Learner(nn.Sequential(nn.Linear(8, 16), nn.ReLU()), CRISP(warmup=2))
        train(Task(learner, as_samples(X), observed, 16, plan(precision=precision)))
        results.append(predict_logits(learner, as_samples(X)))
    assert results[1].dtype == torch.float32
    assert not torch.equal(*results)
    torch.testing.assert_close(*results, atol=0.1, rtol=0.1)


class Pushed(Method):
    """One parameter under a constant gradient, which Adam moves by the learning rate in every step."""

    def setup(self, train):
        self.place = nn.Parameter(torch.zeros(()))

    def loss(self, features, batch):
        return self.place + 0 * self(features[0]).sum()

    def lr_at(self, progress):
        return 1 - progress


class TestSchedule:
    def test_it_reaches_every_step(self, toy):
        """Four batches of fifteen rows in each of three epochs; the factor follows from the rows seen before."""
        learner, _ = go(Pushed(), toy, plan(epochs=3, batch_size=15))
        expected = -sum(0.01 * (1 - (epoch + rows / 60) / 3) for epoch in range(3) for rows in (0, 15, 30, 45))
        assert learner.method.place.item() == pytest.approx(expected, rel=1e-5)

    def test_by_default_there_is_none(self, toy):
        class Steady(Pushed):
            lr_at = Method.lr_at

        learner, _ = go(Steady(), toy, plan(epochs=3, batch_size=15))
        assert learner.method.place.item() == pytest.approx(-0.12, rel=1e-5)

    def test_the_rates_of_the_groups_are_left_as_they_were(self, toy, monkeypatch):
        from onepos.training import loop

        class Grouped(Pushed):
            def lr_factor(self, name):
                return 5.0 if name == "place" else 1.0

        made, make = [], loop._optimizer

        def spy(*arguments):
            made.append(make(*arguments))
            return made[-1]

        monkeypatch.setattr(loop, "_optimizer", spy)
        learner, _ = go(Grouped(), toy, plan(epochs=2, batch_size=60))
        assert sorted({group["lr"] for group in made[0].param_groups}) == [0.01, 0.05]
        assert learner.method.place.item() == pytest.approx(-0.05 * (1 + 0.5), rel=1e-5)

    def test_a_training_that_was_stopped_goes_on_with_it(self, toy, tmp_path):
        straight, _ = go(Pushed(), toy, plan())

        def stop(epoch, _):
            if epoch == 1:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            go(Pushed(), toy, plan(), checkpoint=tmp_path / "c", on_epoch=stop)
        resumed, _ = go(Pushed(), toy, plan(), checkpoint=tmp_path / "c")
        assert torch.equal(straight.method.place, resumed.method.place)

    def test_it_is_that_of_the_plan_also_where_the_training_ends_before(self, toy):
        X, _, observed = toy
        learner = Learner(nn.Identity(), Pushed())
        history = train(Task(learner, as_samples(X), observed, 8, plan(batch_size=60)), stop_after=2).history
        assert len(history.loss) == 2
        assert learner.method.place.item() == pytest.approx(-0.01 * (1 + 0.8), rel=1e-5)

    def test_such_runs_are_not_stacked(self, toy):
        X, _, observed = toy
        samples = as_samples(X)

        class Mixed(AN):
            mixes_rows = True

        class Dropped(AN):
            drops_features = 0.5

        for method, possible in ((AN(), True), (Pushed(), False), (Mixed(), False), (Dropped(), False)):
            assert can_stack(Task(Learner(nn.Identity(), method), samples, observed, 8, plan())) == possible


class Mixed(Method):
    """Notes what it was given."""

    mixes_rows = True

    def setup(self, train):
        self.noted = []

    def loss(self, features, batch):
        self.noted.append((features[0].detach().clone(), batch))
        return assume_negative(self(features[0]), batch.mix(batch.observed))


class TestMixtures:
    def test_rows_and_targets_by_a_loop(self, toy):
        X, _, observed = toy
        learner, _ = go(Mixed(), toy, plan(epochs=2, batch_size=25))
        rows, labels = torch.tensor(X, dtype=torch.float32), torch.tensor(observed).float()
        assert [len(batch.index) for _, batch in learner.method.noted] == [25, 25, 10] * 2
        for features, batch in learner.method.noted:
            assert torch.equal(batch.observed, labels[batch.index]), "labels are as observed"
            assert torch.equal(batch.views[0], features)
            assert sorted(batch.mixing.partner.tolist()) == list(range(len(batch.index)))
            targets = batch.mix(batch.observed)
            for k, i in enumerate(batch.index.tolist()):
                share, other = batch.mixing.share[k].item(), int(batch.index[batch.mixing.partner[k]])
                torch.testing.assert_close(features[k], share * rows[i] + (1 - share) * rows[other])
                torch.testing.assert_close(targets[k], share * labels[i] + (1 - share) * labels[other])

    def test_every_step_has_its_own(self, toy):
        learner, _ = go(Mixed(), toy, plan(epochs=2, batch_size=30))
        shares = [batch.mixing.share for _, batch in learner.method.noted]
        assert len({tuple(share.tolist()) for share in shares}) == 4

    def test_the_seed_decides(self, toy):
        first, again, other = (go(Mixed(), toy, plan(seed=seed))[0].method.head.weight for seed in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_may_be_decided_in_setup(self, toy):
        class Later(Mixed):
            mixes_rows = False

            def setup(self, train):
                super().setup(train)
                self.mixes_rows = True

        learner, _ = go(Later(), toy, plan(epochs=1))
        assert all(batch.mixing is not None for _, batch in learner.method.noted)

    def test_rows_are_not_mixed_by_default(self, toy):
        class Plain(Mixed):
            mixes_rows = False

        learner, _ = go(Plain(), toy, plan(epochs=1))
        for features, batch in learner.method.noted:
            assert batch.mixing is None
            torch.testing.assert_close(features, torch.tensor(toy[0], dtype=torch.float32)[batch.index])


@pytest.mark.parametrize("what", ["drops_inputs", "drops_features"])  # the backbone is the identity
def test_values_are_dropped_in_training_alone(what, toy):
    class Dropped(Mixed):
        mixes_rows = False

    setattr(Dropped, what, 0.25)
    learner, _ = go(Dropped(), toy, plan(epochs=20, batch_size=60))
    rows = torch.tensor(toy[0], dtype=torch.float32)
    shares = []
    for features, batch in learner.method.noted:
        kept = features != 0
        torch.testing.assert_close(features, torch.where(kept, rows[batch.index] / 0.75, 0.0))
        shares.append(kept.float().mean().item())
    assert abs(np.mean(shares) - 0.75) < 4 * np.sqrt(0.75 * 0.25 / (20 * 60 * 8))
    torch.testing.assert_close(predict_logits(learner, as_samples(toy[0])), learner.method(rows).detach())


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_values_are_dropped_independently_and_keep_their_mean(share):
    torch.manual_seed(0)
    n, real = 200_000, round(256 * share) / 256
    dropped = drop(torch.ones(n), share)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], torch.full((int(kept.sum()),), 1 / (1 - real)))
    assert abs(kept.float().mean() - (1 - real)) < 4 * np.sqrt(real * (1 - real) / n)
    for lag in (1, 7, 8):  # eight values share a random number
        both = (kept[lag:] & kept[:-lag]).float().mean()
        assert abs(both - (1 - real) ** 2) < 0.005
    assert drop(dropped, 0.0) is dropped


@pytest.mark.parametrize(
    ("method", "n_rows", "epochs"),
    [(CRISPPlus(), 60, 40), (CRISPPlus(), 5000, 32), (CRISPPlus(), 9000, 20), (AN(), 60, 20)],
)
def test_more_epochs_than_usual_only_of_few_rows_and_without_overfitting(method, n_rows, epochs):
    observed = np.eye(4, dtype=np.uint8)[np.arange(n_rows) % 4]
    samples = as_samples(np.zeros((n_rows, 2)))
    assert usual_epochs(Task(Learner(nn.Identity(), method), samples, observed, 2, plan(batch_size=32))) == epochs


class TestLength:
    """`find_length`: a training on four fifths of the rows, judged by the others."""

    def test_it_is_a_training_with_validation_rows(self, toy, monkeypatch):
        from onepos.training import loop

        X, _, observed = toy
        asked, real = [], loop.train
        monkeypatch.setattr(loop, "train", lambda task, **options: asked.append(task) or real(task, **options))
        task = Task(Learner(nn.Identity(), AN()), as_samples(X), observed, 8, plan())
        history = find_length(task)
        (probe,) = asked
        assert (len(probe.samples), len(probe.validation.samples)) == (48, 12)
        assert not probe.validation.full
        found = torch.cat([probe.samples.data, probe.validation.samples.data])
        labels = np.concatenate([probe.observed, probe.validation.Y])
        place = [int((torch.tensor(X, dtype=torch.float32) == row).all(1).nonzero()) for row in found]
        assert sorted(place) == list(range(60))
        np.testing.assert_array_equal(labels, observed[place])
        assert probe.shared is not task.shared
        assert len(history.validation) == 5
        assert history.best_epoch == int(np.argmax(history.validation))
        assert not hasattr(task.learner.method, "head"), "the task itself is not touched"

    def test_the_held_out_rows_follow_from_the_seed(self, toy):
        X, _, observed = toy
        first, again, other = (
            find_length(Task(Learner(nn.Identity(), AN()), as_samples(X), observed, 8, plan(seed=seed))).validation
            for seed in (0, 0, 1)
        )
        assert first == again != other

    def test_rows_without_a_label_stay_in_the_training(self, toy):
        X, _, observed = toy
        few = observed.copy()
        few[50:] = 0
        assert find_length(Task(Learner(nn.Identity(), AN()), as_samples(X), few, 8, plan())) is not None
        few[49:] = 0
        assert find_length(Task(Learner(nn.Identity(), AN()), as_samples(X), few, 8, plan())) is None

    def test_sparse_rows(self, toy):
        import scipy.sparse as sp

        X, _, observed = toy
        X = X * (X > 0)
        dense, sparse = (
            find_length(Task(Learner(nn.Identity(), AN()), as_samples(form(X)), observed, 8, plan())).validation
            for form in (np.asarray, sp.csr_array)
        )
        np.testing.assert_allclose(dense, sparse, atol=1e-6)


def test_the_time_ends_an_epoch_within(toy, monkeypatch):
    """The clock ticks at every look, once per batch at least: no batch comes after the one in which time is up."""

    class Counting(AN):
        n_batches = 0

        def loss(self, features, batch):
            type(self).n_batches += 1
            return super().loss(features, batch)

    cut_short = 0
    for deadline in range(1, 40, 3):
        ticks, Counting.n_batches = itertools.count(), 0
        monkeypatch.setattr("onepos.methods.base.time.perf_counter", lambda ticks=ticks: float(next(ticks)))
        _, history = go(Counting(), toy, plan(epochs=50, batch_size=10), watch=Watch(deadline=deadline + 0.5))
        assert 1 <= Counting.n_batches <= deadline + 1
        assert len(history.loss) == -(-Counting.n_batches // 6)
        assert history.best_epoch == len(history.loss) - 1
        cut_short += Counting.n_batches % 6 > 0
    assert cut_short > 5
