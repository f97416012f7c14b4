"""Held-out probabilities of the observed label: their mixture by a loop, and that no row has a say about itself."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from onepos.methods import crossfit
from onepos.methods.base import Shared, Watch
from onepos.methods.crossfit import (
    CrossFitSettings,
    _frequency,
    _mix,
    _standardize,
    _vote,
    cross_fit,
    held_out_probabilities,
)
from onepos.methods.fold_models import (
    NetworkSettings,
    TreeSettings,
    make_folds,
    predict_by_networks,
    predict_by_trees,
)

SHORT = CrossFitSettings(
    linear=NetworkSettings(0, ((0.05, 0.0),), most_epochs=12, most_steps=12),
    layered=NetworkSettings(16, ((0.02, 0.0),), most_epochs=12, most_steps=12),
    trees=TreeSettings(n_trees=8),
)
"""A few long steps of narrow models, where it does not matter what they learn."""


def clusters(n=180, c=3, seed=0):
    """Rows around c centres, and the number of the centre as the observed label."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, c, n)
    return rng.normal(size=(n, 6)) + 2 * np.eye(c, 6)[label], label


def held_out(X, y, seed=0, settings=SHORT):
    return held_out_probabilities(X, y, random_state=seed, settings=settings)


def test_data_frames_are_taken():
    rows, label = clusters()
    frames = pd.DataFrame(rows, columns=list("abcdef")), pd.get_dummies(pd.Series(label))
    torch.testing.assert_close(held_out(*frames).probability, held_out(rows, label).probability)


def test_labels_may_be_words_and_missing():
    rows, label = clusters()
    words = np.array(["ant", "bee", "cat"], object)[label]
    torch.testing.assert_close(held_out(rows, words).probability, held_out(rows, label).probability)
    words[:5] = None
    assert held_out(rows, words).probability.shape == (180, 3)


def test_noise_can_not_be_predicted():
    """Labels drawn without regard to the rows: whoever saw them would beat their entropy."""
    rng = np.random.default_rng(0)
    label = rng.choice(4, 300, p=[0.4, 0.3, 0.2, 0.1])
    fit = held_out_probabilities(rng.normal(size=(300, 20)), label, random_state=0)
    share = np.bincount(label) / 300
    assert fit.cross_entropy > -(share * np.log(share)).sum() - 0.01


def test_signal_is_found():
    X, label = clusters()
    fit = held_out(X, label)
    assert fit.cross_entropy < 0.7
    assert (fit.probability.argmax(1).numpy() == label).mean() > 0.75
    np.testing.assert_allclose(fit.probability.sum(1), 1, atol=1e-5)
    assert set(fit.weight) == {"linear", "layered", "trees", "vote", "frequency"}
    assert math.isclose(sum(fit.weight.values()), 1, abs_tol=1e-9)
    assert fit.weight["frequency"] < 0.2
    np.testing.assert_allclose(fit.peak, [max(row) for row in fit.probability.tolist()])


@pytest.mark.parametrize("with_trees", [True, False])
def test_equals_its_formula(with_trees):
    """Models, the vote where features stand beside roots of their mixture, the frequency; then the mixture."""
    X, label = clusters(60)
    settings = SHORT if with_trees else dataclasses.replace(SHORT, trees=None)
    fit = held_out(X, label, settings=settings)
    rows, target, folds = _standardize(crossfit._as_rows(X)), torch.eye(3)[label], make_folds(60, 5, 0)
    predictions = {
        "linear": predict_by_networks(rows, target, folds, SHORT.linear, 0, Watch()),
        "layered": predict_by_networks(rows, target, folds, SHORT.layered, 0, Watch()),
        "frequency": torch.tensor([[np.delete(label == j, i).mean() for j in range(3)] for i in range(60)]).float(),
    }
    if with_trees:
        predictions["trees"] = predict_by_trees(rows, target, folds, SHORT.trees, 0, Watch())
    first, _, _ = _mix(predictions, target)
    space = [[*(x / np.linalg.norm(x)), *np.sqrt(s)] for x, s in zip(rows.numpy(), first.numpy(), strict=True)]
    predictions["vote"] = torch.tensor(naive_vote(np.array(space), target.numpy(), 60, 20.0)).float()
    assert predictions.keys() == fit.weight.keys()
    expected = sum(fit.weight[name] * predictions[name] for name in predictions)
    np.testing.assert_allclose(fit.probability, expected, atol=1e-5)
    chances = expected[torch.arange(60), torch.tensor(label)].numpy()
    np.testing.assert_allclose(fit.cross_entropy, -np.log(chances).mean(), atol=1e-4)


# the vote


def naive_vote(X, target, k, temperature, voters=None):
    vote = np.zeros(target.shape)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    voters = range(len(X)) if voters is None else voters
    for i in range(len(X)):
        others = [(unit[i] @ unit[j], j) for j in voters if j != i and target[j].any()]
        near = sorted(others, reverse=True)[:k]
        total = sum(math.exp(temperature * cosine) for cosine, _ in near)
        for cosine, j in near:
            vote[i] += math.exp(temperature * cosine) / total * target[j]
    return vote


@pytest.fixture
def voting():
    """25 rows; one is not labelled: it gets votes and has none; one has two labels of half a vote each."""
    rng = np.random.default_rng(1)
    X, target = rng.normal(size=(25, 4)), np.eye(3)[rng.integers(0, 3, 25)]
    target[7], target[8] = 0, [0.5, 0, 0.5]
    return X, target, CrossFitSettings(n_neighbours=5, temperature=7.0)


def vote_of(X, target, settings, seed=0):
    return _vote(torch.tensor(X), torch.tensor(target), settings, seed, None, Watch())


def test_vote_equals_a_loop(voting, monkeypatch):
    X, target, settings = voting
    monkeypatch.setattr(crossfit, "_BLOCK", 60)  # several blocks
    np.testing.assert_allclose(vote_of(X, target, settings), naive_vote(X, target, 5, 7.0), atol=1e-12)


def test_of_many_rows_a_random_sample_votes(voting):
    X, target, settings = voting
    few = dataclasses.replace(settings, most_voters=10)
    labelled = [i for i in range(25) if i != 7]
    order = torch.randperm(24, generator=torch.Generator().manual_seed(3))[:10]
    voters = sorted(labelled[k] for k in order.tolist())
    np.testing.assert_allclose(vote_of(X, target, few, 3), naive_vote(X, target, 5, 7.0, voters), atol=1e-12)
    assert not torch.allclose(vote_of(X, target, few, 3), vote_of(X, target, few, 4))


@pytest.mark.parametrize("most_voters", [99, 10])
def test_a_row_has_no_vote_about_itself(voting, most_voters):
    X, target, settings = voting
    settings = dataclasses.replace(settings, most_voters=most_voters)
    before = vote_of(X, target, settings)
    for i in range(25):
        other = target.copy()
        other[i] = np.roll(target[i], 1)
        after = vote_of(X, other, settings)
        assert torch.equal(before[i], after[i])
        assert most_voters == 10 or i == 7 or not torch.equal(before, after)


@pytest.mark.parametrize("n_labelled", [1, 2])
def test_a_vote_of_hardly_any_rows(n_labelled):
    X, target = np.random.default_rng(0).normal(size=(6, 4)), np.zeros((6, 2))
    target[:n_labelled, 1] = 1
    vote = vote_of(X, target, CrossFitSettings())
    np.testing.assert_allclose(vote[n_labelled:], [[0, 1]] * (6 - n_labelled))
    np.testing.assert_allclose(vote[0], [0, 1] if n_labelled == 2 else [0, 0])


def test_frequency_is_that_of_the_other_rows():
    target = torch.eye(3)[torch.tensor([0, 0, 1, 2])]
    target[3] = 0
    expected = [[1 / 2, 1 / 2, 0], [1 / 2, 1 / 2, 0], [1, 0, 0], [2 / 3, 1 / 3, 0]]
    np.testing.assert_allclose(_frequency(target), expected, rtol=1e-6)


# the mixture


def test_mixture_maximises_the_likelihood():
    rng = np.random.default_rng(2)
    parts = {name: torch.tensor(rng.dirichlet(np.ones(4), 50)) for name in "abc"}
    target = torch.eye(4, dtype=torch.float64)[rng.integers(0, 4, 50)]
    mixture, weight, cross_entropy = _mix(parts, target)
    likelihood = np.stack([(part * target).sum(1) for part in parts.values()], 1)
    grid = [(a, b, 1 - a - b) for a in np.linspace(0, 1, 41) for b in np.linspace(0, 1, 41) if a + b <= 1]
    best = min(-np.log(likelihood @ np.array(each)).mean() for each in grid)
    assert cross_entropy <= best + 1e-3
    np.testing.assert_allclose(mixture, sum(weight[name] * part for name, part in parts.items()), atol=1e-9)
    np.testing.assert_allclose(cross_entropy, -(mixture * target).sum(1).log().mean(), atol=1e-9)


def test_rows_of_a_mixture_sum_to_one():
    """Also where a prediction is missing for a row, and where all are."""
    first, second = [[0.9, 0.1]] * 4 + [[0.0, 0.0]] * 2, [[0.4, 0.6]] * 4 + [[0.3, 0.7], [0.0, 0.0]]
    target = [[1.0, 0.0]] * 4 + [[0.0, 1.0], [0.0, 0.0]]
    mixture, weight, _ = _mix({"a": torch.tensor(first), "b": torch.tensor(second)}, torch.tensor(target))
    assert 0.1 < weight["a"] < 0.9
    expected = 0.9 * weight["a"] + 0.4 * weight["b"]
    np.testing.assert_allclose(mixture[:4], [[expected, 1 - expected]] * 4, rtol=1e-6)
    np.testing.assert_allclose(mixture[4:], [[0.3, 0.7], [0.5, 0.5]], rtol=1e-6)


# limited time, and parts that are kept


def test_without_any_time_the_frequencies_are_left():
    X, label = clusters(60)
    rows, observed = torch.tensor(X, dtype=torch.float32), torch.eye(3)[label]
    fit = cross_fit(rows, observed, 0, SHORT, watch=Watch(deadline=-math.inf))
    assert fit.weight == {"frequency": 1.0}
    torch.testing.assert_close(fit.probability, _frequency(observed))
    np.testing.assert_allclose(fit.probability.sum(1), 1, rtol=1e-6)
    assert math.isfinite(fit.cross_entropy)


@pytest.mark.parametrize("missing", ["predict_by_networks", "predict_by_trees", "_vote"])
def test_what_is_not_ready_is_left_out(missing, monkeypatch):
    X, label = clusters(60)
    monkeypatch.setattr(crossfit, missing, lambda *arguments: None)
    fit = held_out(X, label)
    gone = {"predict_by_networks": {"linear", "layered"}, "predict_by_trees": {"trees"}, "_vote": {"vote"}}[missing]
    assert set(fit.weight) == {"linear", "layered", "trees", "vote", "frequency"} - gone
    np.testing.assert_allclose(fit.probability.sum(1), 1, atol=1e-5)
    assert fit.cross_entropy < 0.9


def test_each_model_gets_half_of_the_time_that_is_left(monkeypatch):
    monkeypatch.setattr("onepos.methods.base.time.perf_counter", lambda: 0.0)
    deadlines = []

    def ask(*arguments):
        deadlines.append(arguments[-1].deadline)

    for name in ("predict_by_networks", "predict_by_trees", "_vote"):
        monkeypatch.setattr(crossfit, name, ask)
    X, label = clusters(60)
    cross_fit(torch.tensor(X), torch.eye(3)[label], 0, SHORT, watch=Watch(deadline=16.0))
    assert deadlines == [8.0, 8.0, 8.0, 16.0]


def test_progress_is_told():
    told = []
    X, label = clusters(60)
    watch = Watch(tell=lambda *report: told.append(report))
    cross_fit(torch.tensor(X).float(), torch.eye(3)[label], 0, SHORT, watch=watch)
    names = list(dict.fromkeys(what for what, _, _ in told))
    networks = [f"{kind} models{step}" for kind in ("linear", "layered") for step in (", settings", "")]
    assert names == [f"preparing, {part}" for part in (*networks, "trees", "neighbours")]
    for name in names:
        *_, (_, done, total) = (report for report in told if report[0] == name)
        assert done == total, name


def test_predictions_are_kept_one_by_one(monkeypatch):
    class Drawer(dict):
        save = dict.__setitem__

        def load(self, name, shape):
            assert shape == (60, 3)
            return self.get(name)

    X, label = clusters(60)
    rows, observed, shared = torch.tensor(X, dtype=torch.float32), torch.eye(3)[label], Shared()
    shared.disk = Drawer()
    first = cross_fit(rows, observed, 0, SHORT, shared=shared)
    assert sorted(shared.disk) == ["layered", "linear", "trees", "vote"]

    def refuse(*arguments):
        raise AssertionError("it was made before")

    for name in ("predict_by_networks", "predict_by_trees", "_vote"):
        monkeypatch.setattr(crossfit, name, refuse)
    again = cross_fit(rows, observed, 0, SHORT, shared=shared)
    assert torch.equal(first.probability, again.probability)
    assert first.weight == again.weight


# rows and labels


def test_seeds_decide_and_global_generators_rest():
    X, label = clusters(40)
    torch.manual_seed(5)
    before, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, other = held_out(X, label), held_out(X, label, seed=1)
    assert torch.equal(first.probability, held_out(X, label).probability)
    assert not torch.equal(first.probability, other.probability)
    assert torch.equal(before, torch.get_rng_state())
    assert (np.random.get_state()[1] == before_numpy).all()  # noqa: NPY002


def test_form_and_scale_of_the_rows_do_not_matter():
    """Trees choose thresholds at random within the range of a feature: rounding moves rows that lie near one."""
    rng = np.random.default_rng(3)
    X = rng.poisson(0.3, (90, 8)).astype(np.float64)
    X[:, 7] = 0.1  # constant, and not a binary fraction
    label = rng.integers(0, 3, 90)
    settings = dataclasses.replace(SHORT, trees=None)
    dense = held_out(X, label, settings=settings).probability
    for other in (sp.csr_array(X), torch.tensor(X), X * np.arange(1, 9) + 7):
        np.testing.assert_allclose(held_out(other, label, settings=settings).probability, dense, atol=5e-3)


def test_rows_are_standardized_and_cut():
    """A feature that is rare does not outweigh the rest; a constant one, whatever its rounding errors, is 0."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(3, 2, 1000), np.arange(1000) == 5, np.full(1000, 0.1)])
    rows = _standardize(torch.tensor(X, dtype=torch.float32)).numpy()
    for k, column in enumerate(X.T):
        mean = sum(column) / 1000
        deviation = math.sqrt(sum((x - mean) ** 2 for x in column) / 1000)
        expected = [0.0 if k == 2 else min(5.0, max(-5.0, (x - mean) / deviation)) for x in column]
        np.testing.assert_allclose(rows[:, k], expected, atol=1e-4)
    assert rows[5, 1] == 5


def test_rows_without_or_with_several_labels():
    X, label = clusters()
    observed = np.eye(3, dtype=np.uint8)[label]
    observed[:60] = 0
    observed[60:80] = 1
    fit = held_out(torch.tensor(X), torch.tensor(observed))
    assert torch.isfinite(fit.probability).all()
    np.testing.assert_allclose(fit.probability.sum(1), 1, atol=1e-5)
    assert (fit.probability[:60].argmax(1).numpy() == label[:60]).mean() > 0.65, "unlabelled rows are judged"


def test_a_label_nobody_observed_is_all_but_impossible():
    X, label = clusters()
    fit = held_out(X, np.eye(4)[label])
    assert fit.probability[:, 3].min() >= 0
    assert fit.probability[:, 3].max() < 0.02


def test_inputs_are_left_alone():
    X, label = clusters(60)
    rows, observed = torch.tensor(X, dtype=torch.float32), torch.eye(3)[label]
    kept = rows.clone(), observed.clone()
    held_out(rows, observed)
    assert torch.equal(rows, kept[0])
    assert torch.equal(observed, kept[1])


@pytest.mark.parametrize(
    ("X", "observed", "sentence"),
    [
        (np.ones((4, 3)), [0, 1, 0, 1], "X must have at least 5 rows; got 4"),
        (np.ones(5), [0, 1, 0, 1, 0], r"X must be a matrix, one row per sample; got shape \(5,\)"),
        (np.ones((6, 3)), np.eye(5), "X and y must have the same number of rows; X has 6, y has 5"),
        (np.ones((6, 3)), np.zeros((6, 2)), "y must hold at least one positive label; it holds none"),
    ],
)
def test_bad_input_gets_a_sentence(X, observed, sentence):
    with pytest.raises(ValueError, match=sentence):
        held_out(X, np.asarray(observed))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_runs_on_cuda():
    X, label = clusters()
    there = held_out(torch.tensor(X).cuda(), torch.tensor(label).cuda(), settings=CrossFitSettings())
    assert there.probability.device.type == "cuda"
    here = held_out(X, label, settings=CrossFitSettings())
    assert abs(there.cross_entropy - here.cross_entropy) < 0.03  # dropout draws other numbers on a GPU
    assert (there.probability.cpu().argmax(1) == here.probability.argmax(1)).float().mean() > 0.9
