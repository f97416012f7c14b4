"""Models of the folds: a stack of networks against one by one, trees by a loop, and no row judges itself."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression

from onepos.methods import fold_models
from onepos.methods.base import Watch
from onepos.methods.crossfit import DEFAULTS
from onepos.methods.fold_models import (
    NetworkSettings,
    TreeSettings,
    _Best,
    _start,
    make_folds,
    predict_by_networks,
    predict_by_trees,
)


def clusters(n=180, c=3, seed=0):
    """Rows around c centres, and the number of the centre as the observed label."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, c, n)
    return torch.tensor(rng.normal(size=(n, 6)) + 2 * np.eye(c, 6)[label]), label


def one_hot(label, c=3):
    return torch.eye(c, dtype=torch.float64)[torch.as_tensor(label)]


def settings(hidden=0, grid=((0.03, 0.0),), **changes):
    """Some epochs that no patience ends."""
    fixed = {"batch_size": 16, "patient_epochs": 99, "most_epochs": 4, "most_steps": 0, "dropout": 0.0}
    return NetworkSettings(hidden, grid, **(fixed | changes))


@pytest.mark.parametrize("n", [5, 23, 60])
def test_folds_are_parts_of_about_one_size(n):
    folds = make_folds(n, 5, 0)
    assert sorted(torch.cat(folds).tolist()) == list(range(n))
    assert {len(fold) for fold in folds} <= {n // 5, n // 5 + 1}
    assert torch.equal(torch.cat(folds), torch.cat(make_folds(n, 5, 0)))
    assert n == 5 or not torch.equal(torch.cat(folds), torch.cat(make_folds(n, 5, 1)))


# networks


def train_alone(rows, target, seen, unseen, start, rate, decay, plan):
    """One network by plain torch: the predictions of its best epoch on the rows it has not seen."""
    layers = [tensor.clone().requires_grad_() for tensor in start]
    optimiser = torch.optim.Adam(layers, lr=rate, weight_decay=decay)

    def forward(x):
        if len(layers) > 2:
            x = F.relu(x @ layers[0] + layers[1])
        return torch.log_softmax(x @ layers[-2] + layers[-1], 1)

    best, kept = math.inf, None
    for _ in range(plan.most_epochs):
        for index in torch.split(seen, plan.batch_size):
            optimiser.zero_grad()
            loss = -sum((forward(rows[i : i + 1])[0] * target[i]).sum() for i in index.tolist()) / len(index)
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            logs = forward(rows[unseen])
        cost = -sum((logs[k] * target[i]).sum().item() for k, i in enumerate(unseen.tolist()))
        cost /= max(1.0, target[unseen].sum().item())
        if cost < best - 1e-4:
            best, kept = cost, logs.exp()
    return kept


@pytest.mark.parametrize("n", [40, 42], ids=["equal folds", "unequal folds"])
@pytest.mark.parametrize("hidden", [0, 7])
@pytest.mark.parametrize("rate", [0.03, 0.3], ids=["the last epoch is the best", "an earlier one is"])
def test_a_stack_gives_what_networks_trained_one_by_one_give(n, hidden, rate, monkeypatch):
    """Rows in a fixed order; one row without an observed label and one with two among them."""
    rows, label = clusters(n)
    target = one_hot(label if rate < 0.1 else np.random.default_rng(0).permutation(label))
    target[3], target[4] = 0, torch.tensor([0.5, 0.0, 0.5])
    plan, folds = settings(hidden, ((rate, 1e-2),)), make_folds(n, 5, 0)
    monkeypatch.setattr(torch, "randperm", torch.arange)
    starts = []

    def start(*arguments):
        starts.append([tensor.clone() for tensor in _start(*arguments)])
        return [tensor.clone() for tensor in starts[-1]]

    monkeypatch.setattr(fold_models, "_start", start)
    predicted = predict_by_networks(rows, target, folds, plan, 0, Watch())
    largest = max(map(len, folds))
    first, *_ = of_folds = starts[-5:]
    for k, fold in enumerate(folds):
        seen = torch.cat([each for m, each in enumerate(folds) if m != k])[: n - largest]
        alone = train_alone(rows, target, seen, fold, [*first[:-1], of_folds[k][-1]], rate, 1e-2, plan)
        torch.testing.assert_close(predicted[fold], alone, atol=1e-9, rtol=0)


@pytest.mark.parametrize("best", [0, 1, 2])
def test_every_row_is_judged_once_by_a_network_that_has_not_seen_it(best, monkeypatch):
    """The setting that does best on the first fold is that of all."""
    asked = []

    def fake(rows, target, pairs, settings_of, plan, watch):
        asked.append((pairs, list(settings_of)))
        cost = torch.tensor([0.0 if setting == grid[best] else 1.0 for setting in settings_of])
        return _Best(cost, torch.stack([torch.full((len(unseen), 2), float(k)) for k, (_, unseen) in enumerate(pairs)]))

    monkeypatch.setattr(fold_models, "_train", fake)
    grid, folds = ((0.1, 0.0), (0.2, 0.0), (0.2, 1e-3)), make_folds(23, 5, 0)
    predicted = predict_by_networks(
        torch.zeros(23, 1), torch.zeros(23, 2), folds, settings(grid=grid, choose_rows=12), 0, Watch()
    )
    (tried, settings_tried), (final, settings_of) = asked
    assert settings_tried == list(grid)
    assert settings_of == [grid[best]] * 5
    for seen, unseen in tried:
        assert set(unseen.tolist()) <= set(folds[0].tolist())
        assert not set(seen.tolist()) & set(folds[0].tolist())
        assert (len(seen), len(unseen)) == (12, 3)
    for k, (seen, unseen) in enumerate(final):
        assert set(unseen.tolist()) == set(folds[k].tolist())
        assert not set(seen.tolist()) & set(unseen.tolist())
        assert len(set(seen.tolist())) == 18
        assert (predicted[folds[k]] == k).all()


@pytest.mark.parametrize("hidden", [0, 7])
def test_labels_of_a_fold_do_not_reach_its_own_predictions_by_networks(hidden):
    """But for the choice of the best epoch: here there is one. The predictions of other folds change."""
    rows, label = clusters(60)
    folds = make_folds(60, 5, 0)
    other = label.copy()
    other[folds[2].numpy()] = (other[folds[2].numpy()] + 1) % 3
    once = settings(hidden, most_epochs=1, dropout=0.5)
    before, after = (predict_by_networks(rows, one_hot(y), folds, once, 0, Watch()) for y in (label, other))
    assert torch.equal(before[folds[2]], after[folds[2]])
    for k in (0, 1, 3, 4):
        assert (before[folds[k]] - after[folds[k]]).abs().amax(1).min() > 0


def test_linear_is_a_softmax_regression():
    """Against scikit-learn's on the same folds, with its best penalty: the held-out cross-entropy is as low."""
    rows, label = clusters(400)
    folds = make_folds(400, 5, 0)
    ours = predict_by_networks(rows.float(), one_hot(label).float(), folds, DEFAULTS.linear, 0, Watch())
    theirs = []
    for strength in (0.001, 0.01, 0.1, 1.0):
        chance = np.zeros((400, 3))
        for fold in folds:
            rest = np.setdiff1d(np.arange(400), fold)
            chance[fold] = LogisticRegression(C=strength).fit(rows[rest], label[rest]).predict_proba(rows[fold])
        theirs.append(-np.log(chance[range(400), label]).mean())
    assert abs(-np.log(ours.numpy()[range(400), label]).mean() - min(theirs)) < 0.03


def test_layered_sees_what_no_line_parts():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    rows, label = torch.tensor(X, dtype=torch.float32), (X[:, 0] * X[:, 1] > 0).astype(int)
    target, folds = one_hot(label, 2).float(), make_folds(600, 5, 0)
    flat, bent = (
        predict_by_networks(rows, target, folds, settings(hidden, ((1e-2, 0.0),), most_epochs=30), 0, Watch())
        for hidden in (0, 64)
    )
    cost_flat, cost_bent = (-each.log()[range(600), label].mean().item() for each in (flat, bent))
    assert cost_flat > 0.65
    assert cost_bent < 0.4


@pytest.mark.parametrize("hidden", [0, 7])
def test_networks_start_at_the_frequencies(hidden):
    target = torch.eye(3)[torch.tensor([0, 0, 0, 1])]
    start = fold_models._forward([tensor[None] for tensor in _start(5, target, hidden)], torch.randn(1, 2, 5))
    np.testing.assert_allclose(torch.softmax(start[0], 1), np.array([[3.5, 1.5, 0.5]] * 2) / 5.5, rtol=1e-5)


def test_training_ends_when_no_network_gets_better(monkeypatch):
    """After `patient_epochs` and `patient_steps`, whichever is longer; the best epoch is kept, not the last."""
    rows, label = clusters(40)
    noise, folds, told = one_hot(np.random.default_rng(1).permutation(label)), make_folds(40, 5, 0), []
    watch = Watch(tell=lambda what, done, total: told.append((done, total)))
    plan = settings(0, ((0.3, 0.0),), patient_epochs=3, patient_steps=0, most_epochs=500)
    assert predict_by_networks(rows, noise, folds, plan, 0, watch) is not None
    assert len(told) < 300
    assert told[-1] == (500, 500)


class TestTimeLimit:
    @pytest.fixture
    def clock(self, monkeypatch):
        """Every look at the clock takes a second."""
        ticks = itertools.count()
        monkeypatch.setattr("onepos.methods.base.time.perf_counter", lambda: float(next(ticks)))

    @pytest.mark.parametrize("hidden", [0, 7])
    def test_none_if_it_was_over_before(self, hidden, clock):
        rows, label = clusters(40)
        folds = make_folds(40, 5, 0)
        assert predict_by_networks(rows, one_hot(label), folds, settings(hidden), 0, Watch(deadline=0.0)) is None
        assert predict_by_trees(rows, one_hot(label), folds, TreeSettings(2), 0, Watch(deadline=0.0)) is None

    def test_the_best_epoch_so_far_if_it_is_over_within(self, clock):
        """Of a training that would take days."""
        rows, label = clusters(40)
        folds, long = make_folds(40, 5, 0), settings(most_epochs=10**6)
        predicted = predict_by_networks(rows, one_hot(label), folds, long, 0, Watch(deadline=60.0))
        np.testing.assert_allclose(predicted.sum(1), 1)
        frequency = one_hot(label).mean(0)
        assert (predicted - frequency).abs().max() > 0.05

    def test_trees_of_some_folds_are_no_use(self, clock):
        rows, label = clusters(40)
        watch = Watch(deadline=3.0)
        assert predict_by_trees(rows, one_hot(label), make_folds(40, 5, 0), TreeSettings(2), 0, watch) is None


# trees


def test_trees_by_a_loop():
    """A row with several observed labels is in the sample once for each, one with none is only predicted."""
    rows, label = clusters(60)
    target = one_hot(label)
    target[3], target[4], target[5] = 0, torch.tensor([0.5, 0.0, 0.5]), torch.full((3,), 1 / 3)
    folds = make_folds(60, 5, 0)
    predicted = predict_by_trees(rows, target, folds, TreeSettings(7, min_rows=3), 11, Watch())
    for k, fold in enumerate(folds):
        X, y, weight = [], [], []
        for i in range(60):
            for j in range(3):
                if i not in fold.tolist() and target[i, j] > 0:
                    X.append(rows[i].tolist())
                    y.append(j)
                    weight.append(target[i, j].item())
        forest = ExtraTreesClassifier(7, min_samples_leaf=3, random_state=11 + k).fit(X, y, weight)
        np.testing.assert_allclose(predicted[fold], forest.predict_proba(rows[fold]), atol=1e-6)


def test_labels_of_a_fold_do_not_reach_its_own_predictions_by_trees():
    rows, label = clusters(60)
    folds = make_folds(60, 5, 0)
    other = label.copy()
    other[folds[2].numpy()] = (other[folds[2].numpy()] + 1) % 3
    before, after = (predict_by_trees(rows, one_hot(y), folds, TreeSettings(5), 0, Watch()) for y in (label, other))
    assert torch.equal(before[folds[2]], after[folds[2]])
    assert not torch.equal(before[folds[0]], after[folds[0]])


def test_a_label_that_only_one_fold_has_is_impossible_there():
    rows, label = clusters(60)
    folds = make_folds(60, 5, 0)
    target = torch.cat([one_hot(label), torch.zeros(60, 1)], 1)
    target[folds[1]] = torch.eye(4, dtype=torch.float64)[3]
    predicted = predict_by_trees(rows, target, folds, TreeSettings(5), 0, Watch())
    assert (predicted[folds[1], 3] == 0).all()
    assert (predicted[folds[0], 3] > 0).any()
    np.testing.assert_allclose(predicted.sum(1), 1, atol=1e-6)


def test_no_trees_of_many_labels_and_samples_of_many_rows(monkeypatch):
    rows, label = clusters(60)
    folds, asked = make_folds(60, 5, 0), []

    class Watched(ExtraTreesClassifier):
        def fit(self, X, y, sample_weight=None):
            asked.append((self.bootstrap, self.max_samples))
            return super().fit(X, y, sample_weight)

    monkeypatch.setattr(fold_models, "ExtraTreesClassifier", Watched)
    assert predict_by_trees(rows, one_hot(label), folds, TreeSettings(2, most_labels=2), 0, Watch()) is None
    assert asked == []
    assert predict_by_trees(rows, one_hot(label), folds, TreeSettings(2, most_entries=60), 0, Watch()) is not None
    assert asked == [(True, 20)] * 5
    predict_by_trees(rows, one_hot(label), folds, TreeSettings(2, most_entries=3 * 48), 0, Watch())
    assert asked[5:] == [(False, None)] * 5


def test_no_trees_without_a_label_to_learn():
    """All rows with an observed label lie in one fold."""
    rows, _ = clusters(60)
    folds, target = make_folds(60, 5, 0), torch.zeros(60, 3)
    target[folds[0], 1] = 1
    assert predict_by_trees(rows, target, folds, TreeSettings(2), 0, Watch()) is None
