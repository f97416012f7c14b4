"""Criteria: enumeration of all label sets, naive loops written from the definitions, and what they estimate."""

import math
import time
from itertools import product

import numpy as np
import pytest

from onepos import metrics
from onepos.criteria import (
    CRITERIA,
    aligned_likelihood,
    assume_negative,
    likelihood,
    log_probability,
    micro_auc,
    pooled_precision,
    pu_risk,
    recall_at,
)
from onepos.protocol import draw_single_positive


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def random_case(seed, n=20, c=6, spread=2.0):
    rng = np.random.default_rng(seed)
    logits = spread * rng.normal(size=(n, c)) - 1
    observed = np.zeros((n, c), np.uint8)
    observed[np.arange(n), rng.integers(c, size=n)] = 1
    return observed, logits


def enumerated(g):
    """P(γ = j | x) of every j, summed over all 2^c label sets."""
    probability = [sigmoid(x) for x in g]
    drawn, none = np.zeros(len(g)), 0.0
    for labels in product((0, 1), repeat=len(g)):
        chance = math.prod(p if y else 1 - p for p, y in zip(probability, labels, strict=True))
        if sum(labels) == 0:
            none = chance
        else:
            drawn += chance * np.array(labels) / sum(labels)
    return drawn / (1 - none)


def by_number_of_labels(g, j):
    """log P(γ = j | x) from the distribution of the number of other labels, built up label by label."""
    distribution = np.array([1.0])
    for k, x in enumerate(g):
        if k != j:
            p = sigmoid(x)
            distribution = np.append(distribution * (1 - p), 0) + np.insert(distribution * p, 0, 0)
    expected = sum(chance / (1 + count) for count, chance in enumerate(distribution))
    log_none = -sum(np.logaddexp(0, x) for x in g)
    return math.log(expected) - np.logaddexp(0, -g[j]) - math.log(-math.expm1(log_none))


def every_label(logits):
    n, c = logits.shape
    rows, labels = np.divmod(np.arange(n * c), c)
    return np.exp(log_probability(logits, rows, labels)).reshape(n, c)


@pytest.mark.parametrize("c", range(1, 9))
@pytest.mark.parametrize("spread", [0.1, 2.0, 10.0])
def test_likelihood_equals_enumeration(c, spread):
    observed, logits = random_case(c, n=6, c=c, spread=spread)
    expected = np.array([enumerated(g) for g in logits])
    assert every_label(logits) == pytest.approx(expected, rel=1e-10)
    assert likelihood(observed, logits) == pytest.approx(np.log(expected[observed == 1]).mean(), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("level", [-9.0, -4.0, -2.5, 0.0, 3.0, 30.0])
@pytest.mark.parametrize("c", [30, 100, 983])
def test_likelihood_of_many_labels(c, level):
    _, logits = random_case(0, n=2, c=c)
    logits += level
    for row in range(2):
        found = log_probability(logits, np.full(3, row), np.array([0, 1, c - 1]))
        assert found == pytest.approx([by_number_of_labels(logits[row], j) for j in (0, 1, c - 1)], rel=1e-9)


@pytest.mark.parametrize("level", [-2000.0, -300.0, -41.0, -39.0, 0.0, 39.0, 2000.0])
def test_the_probabilities_of_a_row_sum_to_one_at_any_level(level):
    _, logits = random_case(1, n=5, c=200)
    assert every_label(logits + level).sum(1) == pytest.approx(np.ones(5), rel=1e-9)


def test_rare_labels_are_drawn_as_by_a_softmax():
    observed, logits = random_case(2)
    softmax = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = np.log(softmax[observed == 1]).mean()
    assert likelihood(observed, logits - 60) == pytest.approx(expected, rel=1e-12)
    assert likelihood(observed, logits - 20) == pytest.approx(expected, rel=1e-6)
    assert likelihood(observed, logits) != pytest.approx(expected, rel=1e-3)


def test_the_true_model_has_the_highest_likelihood():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(4000, 5)) - 1
    Y = (rng.random(truth.shape) < 1 / (1 + np.exp(-truth))).astype(np.uint8)
    observed = draw_single_positive(Y, 0)
    best = likelihood(observed, truth)
    for other in (0.7 * truth, 1.4 * truth, truth + np.array([1, 0, 0, 0, 0]), truth + rng.normal(size=truth.shape)):
        assert likelihood(observed, other) < best


def test_the_prior_tells_the_level():
    rng = np.random.default_rng(1)
    truth = 0.3 * rng.normal(size=(5000, 4)) - 1
    Y = (rng.random(truth.shape) < 1 / (1 + np.exp(-truth))).astype(np.uint8)
    observed, prior = draw_single_positive(Y, 0), Y.mean(0)
    some = Y.any(1)
    plain, aligned = ([f(observed[some], truth[some] + shift, prior) for shift in (-2, 0, 2)]
                      for f in (likelihood, aligned_likelihood))  # fmt: skip
    assert max(plain) - min(plain) < 0.01
    assert aligned[1] > max(aligned[0], aligned[2]) + 0.5


def naive_aligned(observed, logits, prior):
    total = likelihood(observed, logits)
    for j, pi in enumerate(prior):
        mean = sum(sigmoid(g) for g in logits[:, j]) / len(logits)
        if not math.isnan(pi):
            total -= (pi * math.log(pi / mean) if pi else 0) + (1 - pi) * math.log((1 - pi) / (1 - mean))
    return total


def naive_pu_risk(observed, logits, prior):
    total = 0.0
    for j in range(logits.shape[1]):
        column, seen = logits[:, j], observed[:, j] == 1
        pi = seen.mean() if math.isnan(prior[j]) else max(prior[j], seen.mean())
        loss_as_negative = np.log1p(np.exp(column))
        if not seen.any():
            total += loss_as_negative.mean()
            continue
        loss_as_positive = np.log1p(np.exp(-column))
        total += pi * loss_as_positive[seen].mean()
        total += max(0.0, loss_as_negative.mean() - pi * loss_as_negative[seen].mean())
    return total


def naive_recall(observed, logits, k):
    """Over the orders that break ties: a jitter below any difference."""
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(2000):
        order = np.lexsort((rng.random(logits.shape), -logits), axis=1)
        shares.append(np.take_along_axis(observed, order, 1)[:, :k].sum(1).mean())
    return np.mean(shares)


PRIOR = np.array([0.3, np.nan, 0.9, 0.0, 0.05, 0.5])


@pytest.mark.parametrize("seed", range(5))
def test_equal_to_the_naive_loops(seed):
    observed, logits = random_case(seed)
    assert aligned_likelihood(observed, logits, PRIOR) == pytest.approx(naive_aligned(observed, logits, PRIOR))
    assert pu_risk(observed, logits, PRIOR) == pytest.approx(naive_pu_risk(observed, logits, PRIOR))


def test_the_risk_is_cut_at_zero():
    observed = np.array([[1, 0], [0, 1], [0, 1], [0, 1]], np.uint8)
    logits = np.array([[5.0, 0.0], [-5.0, 0.0], [-5.0, 0.0], [-5.0, 0.0]])
    prior = [0.9, np.nan]
    first = 0.9 * math.log1p(math.exp(-5))  # the mean over all rows, about 1.3, is less than 0.9 · 5
    assert pu_risk(observed, logits, prior) == pytest.approx(first + math.log(2))


@pytest.mark.parametrize("k", [1, 3, 5])
def test_recall_is_the_mean_over_the_orders_of_ties(k):
    observed, logits = random_case(3, n=30)
    logits = np.round(logits / 2)
    assert CRITERIA[f"recall_at_{k}"].function(observed, logits, None) == pytest.approx(
        naive_recall(observed, logits, k), abs=0.01
    )
    assert recall_at(observed, np.zeros_like(logits), k=k) == pytest.approx(k / 6)


def test_without_priors_the_risk_assumes_negatives():
    observed, logits = random_case(4)
    expected = np.where(observed == 1, np.log1p(np.exp(-logits)), np.log1p(np.exp(logits))).sum(1).mean()
    assert assume_negative(observed, logits) == pytest.approx(expected)
    assert pu_risk(observed, logits, None) == pytest.approx(expected)
    assert pu_risk(observed, logits, np.full(6, np.nan)) == pytest.approx(expected)
    assert pu_risk(observed, logits, np.full(6, 0.6)) != pytest.approx(expected, rel=0.01)
    assert aligned_likelihood(observed, logits, np.full(6, np.nan)) == likelihood(observed, logits)


def test_metrics_of_the_known_label():
    observed = [[0, 1, 0, 0], [1, 0, 0, 0]]
    logits = [[3.0, 2.0, 2.0, 1.0], [9.0, 1.0, 1.0, 1.0]]
    assert CRITERIA["average_precision"].function(observed, logits, None) == pytest.approx((1 / 3 + 1) / 2)
    assert CRITERIA["ranking_loss"].function(observed, logits, None) == pytest.approx((2 / 3 + 0) / 2)
    assert CRITERIA["map"].function(observed, logits, None) == 1


def naive_pooled_precision(observed, logits):
    """Rank by rank; tied labels stand at each of their places alike."""
    n, c = logits.shape
    share = np.zeros(c)
    for y, g in zip(observed, logits, strict=True):
        for j in np.flatnonzero(y):
            places = [k for k in range(c) if (g > g[j]).sum() <= k < (g >= g[j]).sum()]
            share[places] += 1 / len(places) / y.sum() / n
    return sum(share[k] * share[: k + 1].sum() / (k + 1) for k in range(c))


def naive_micro_auc(observed, logits):
    wins = []
    for i, j in np.argwhere(observed == 1):
        others = logits[observed == 0]
        wins.append(np.mean([(logits[i, j] > x) + (logits[i, j] == x) / 2 for x in others]))
    return np.mean(wins)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_pooled_criteria_equal_the_naive_loops(seed, tied):
    observed, logits = random_case(seed)
    logits = np.round(logits / 2) if tied else logits
    assert pooled_precision(observed, logits) == pytest.approx(naive_pooled_precision(observed, logits))
    assert micro_auc(observed, logits) == pytest.approx(naive_micro_auc(observed, logits))
    observed[0, :3] = 1  # several of one row
    assert pooled_precision(observed, logits) == pytest.approx(naive_pooled_precision(observed, logits))


def test_pooled_precision_is_average_precision_where_rows_have_equal_labels():
    """Each row holds the same number of labels at the same ranks: nothing is lost by pooling."""
    rng = np.random.default_rng(0)
    places = np.array([0, 1, 4])
    logits = rng.normal(size=(50, 7))
    Y = np.zeros((50, 7), np.uint8)
    np.put_along_axis(Y, np.argsort(-logits, 1)[:, places], 1, 1)
    every_draw = np.vstack([Y * (np.cumsum(Y, 1) == k) for k in (1, 2, 3)])
    found = 3 * pooled_precision(every_draw, np.tile(logits, (3, 1)))
    assert found == pytest.approx(metrics.average_precision(Y, logits))


@pytest.mark.parametrize("name", ["pooled_precision", "micro_auc", "average_precision", "ranking_loss", "map"])
def test_only_the_order_counts(name):
    function = CRITERIA[name].function
    observed, logits = random_case(12)
    assert function(observed, np.exp(logits) * 3 - 5, None) == pytest.approx(function(observed, logits, None))


def test_what_recall_and_rank_are_in_expectation():
    """Over the draw: recall of all labels of a row, and its ranking loss of all pairs."""
    rng = np.random.default_rng(5)
    Y = (rng.random((40, 7)) < 0.4).astype(np.uint8)
    Y[np.arange(40), rng.integers(7, size=40)] = 1
    logits = rng.normal(size=Y.shape) + Y
    each = [(y, np.eye(7, dtype=np.uint8)[y == 1], np.tile(g, (y.sum(), 1))) for y, g in zip(Y, logits, strict=True)]
    top = np.argsort(-logits, 1)[:, :3]
    assert np.mean([recall_at(drawn, g, k=3) for _, drawn, g in each]) == pytest.approx(
        (np.take_along_axis(Y, top, 1).sum(1) / Y.sum(1)).mean()
    )
    for y, drawn, g in each:
        if y.sum() < 7:
            pairs = metrics.ranking_loss([y], g[:1]) * (7 - y.sum())  # wrong ones, per label of the row
            assert CRITERIA["ranking_loss"].function(drawn, g, None) * 6 == pytest.approx(pairs + (y.sum() - 1) / 2)


@pytest.mark.parametrize("name", ["likelihood", "aligned_likelihood", "recall_at_1", "recall_at_3"])
def test_several_known_labels_count_like_draws_and_the_row_weighs_one(name):
    function = CRITERIA[name].function
    _, logits = random_case(6, n=2)
    one, several = [0, 0, 1, 0, 0, 0], [1, 1, 0, 0, 1, 0]
    drawn = [[one, np.eye(6, dtype=int)[j].tolist()] for j in (0, 1, 4)]
    expected = np.mean([function(observed, logits, None) for observed in drawn])
    assert function([one, several], logits, None) == pytest.approx(expected)


@pytest.mark.parametrize("name", CRITERIA)
def test_rows_without_a_known_label(name):
    function = CRITERIA[name].function
    observed, logits = random_case(7)
    with_more = np.vstack([observed, np.zeros((3, 6), np.uint8)]), np.vstack([logits, np.full((3, 6), -2.0)])
    same = function(*with_more, None) == pytest.approx(function(observed, logits, None))
    assert same != (name in ("pu_risk", "assume_negative", "micro_auc", "map"))


@pytest.mark.parametrize("name", CRITERIA)
def test_nothing_to_average(name):
    function = CRITERIA[name].function
    assert math.isnan(function(np.zeros((0, 3)), np.zeros((0, 3)), [0.1, 0.2, 0.3]))
    nothing_known = function(np.zeros((4, 3)), np.zeros((4, 3)), None)
    assert math.isnan(nothing_known) or nothing_known == pytest.approx(3 * math.log(2))


@pytest.mark.parametrize("name", CRITERIA)
def test_the_better_model_is_preferred(name):
    criterion = CRITERIA[name]
    rng = np.random.default_rng(8)
    truth = 2 * rng.normal(size=(800, 8)) - 2
    Y = (rng.random(truth.shape) < 1 / (1 + np.exp(-truth))).astype(np.uint8)
    observed, noise = draw_single_positive(Y, 0), 3 * rng.normal(size=truth.shape)
    good, bad = (criterion.function(observed, logits, Y.mean(0)) for logits in (truth, truth + noise))
    assert (good > bad) == criterion.greater_is_better


@pytest.mark.parametrize("name", CRITERIA)
def test_order_of_rows_and_labels_does_not_matter(name):
    function = CRITERIA[name].function
    observed, logits = random_case(9)
    rng = np.random.default_rng(0)
    rows, columns = rng.permutation(20), rng.permutation(6)
    permuted = function(observed[rows][:, columns], logits[rows][:, columns], PRIOR[columns])
    assert permuted == pytest.approx(function(observed, logits, PRIOR), rel=1e-12)


def test_blocks_do_not_show(monkeypatch):
    observed, logits = random_case(10, n=50)
    observed[::4] = 0
    observed[1] = 1
    whole = [criterion.function(observed, logits, PRIOR) for criterion in CRITERIA.values()]
    monkeypatch.setattr("onepos.criteria._BLOCK", 20)
    assert [criterion.function(observed, logits, PRIOR) for criterion in CRITERIA.values()] == pytest.approx(whole)


def test_fast_at_the_size_of_delicious():
    observed, logits = random_case(11, n=1300, c=983)
    began = time.perf_counter()
    likelihood(observed, logits)
    assert time.perf_counter() - began < 2


@pytest.mark.parametrize(
    ("observed", "logits", "prior", "text"),
    [
        ([[1, 0]], [[1.0, 2.0, 3.0]], None, r"one shape \(n, c\); theirs are \(1, 2\) and \(1, 3\)"),
        ([[1, 0]], [[1.0, np.nan]], None, "logits must be finite; row 0, column 1 holds NaN"),
        ([[2, 0]], [[1.0, 0.0]], None, "observed must hold only 0 and 1; row 0, column 0 holds 2"),
        ([[1, 0]], [[1.0, 0.0]], [0.5], r"each of the 2 labels; its shape is \(1,\)"),
        ([[1, 0]], [[1.0, 0.0]], [0.5, 1.5], "between 0 and 1; that of label 1 is 1.5"),
    ],
)
def test_wrong_input(observed, logits, prior, text):
    with pytest.raises(ValueError, match=text):
        aligned_likelihood(observed, logits, prior)
