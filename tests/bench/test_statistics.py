"""Statistics: against full enumeration, scipy, published tables and plain re-statements."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from onepos.bench.statistics import (
    critical_difference,
    find_groups,
    friedman,
    mean_scores,
    share_closed,
    summarise,
    win_tie_loss,
)

NAN = math.nan


def test_summary_skips_what_is_missing():
    summary = summarise([1.0, NAN, 2.0, 6.0])
    assert summary.mean == 3.0
    assert summary.std == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert summary.n == 3
    assert math.isnan(summarise([0.5]).std)
    assert summarise(0.5).mean == 0.5
    assert summarise([NAN]).n == 0
    assert math.isnan(summarise([]).mean)


def test_means_by_method():
    means = mean_scores({"one": {"b": [1.0, NAN], "a": [2.0, 4.0]}, "two": {"c": 5.0, "a": [NAN]}})
    assert list(means) == ["b", "a", "c"]
    np.testing.assert_array_equal(means["b"], [1, NAN])
    np.testing.assert_array_equal(means["a"], [3, NAN])
    np.testing.assert_array_equal(means["c"], [NAN, 5])


def test_the_last_bits_make_no_order():
    close = {"one": {"a": [0.1 + 0.2] * 2, "b": [0.3] * 2}, "two": {"a": [0.1 + 0.2] * 2, "b": [0.3] * 2}}
    assert friedman(close, greater_is_better=True).mean_ranks == {"a": 1.5, "b": 1.5}
    assert win_tie_loss(close, greater_is_better=True)["a", "b"].tie == 2


def as_scores(table):
    """Data set → method → one trial, from an (N, k) table."""
    return {f"data{i}": {f"method{j}": value for j, value in enumerate(row)} for i, row in enumerate(table)}


@pytest.mark.parametrize("seed", range(5))
def test_friedman_is_scipys(seed):
    table = np.random.default_rng(seed).integers(0, 5, size=(7, 4)).astype(float)  # with ties
    result = friedman(as_scores(table), greater_is_better=False)
    expected = stats.friedmanchisquare(*table.T)
    assert result.chi_square == pytest.approx(expected.statistic)
    assert result.p_chi_square == pytest.approx(expected.pvalue)
    ranks = stats.rankdata(table, axis=1)
    assert {name: pytest.approx(rank) for name, rank in result.mean_ranks.items()} == {
        f"method{j}": rank for j, rank in enumerate(ranks.mean(0))
    }
    assert all(a <= b for a, b in pairwise(result.mean_ranks.values()))


@pytest.mark.parametrize("seed", range(3))
def test_iman_davenport_is_the_analysis_of_variance_of_the_ranks(seed):
    table = np.random.default_rng(seed).integers(0, 6, size=(6, 5)).astype(float)
    n, k = table.shape
    ranks = stats.rankdata(-table, axis=1)
    between = n * ((ranks.mean(0) - ranks.mean()) ** 2).sum()
    within = ((ranks - ranks.mean(0) - ranks.mean(1, keepdims=True) + ranks.mean()) ** 2).sum()
    expected = (between / (k - 1)) / (within / ((n - 1) * (k - 1)))
    result = friedman(as_scores(table), greater_is_better=True)
    assert result.f == pytest.approx(expected)
    assert result.p_f == pytest.approx(stats.f.sf(expected, k - 1, (k - 1) * (n - 1)))


def test_friedman_at_its_ends():
    same = friedman(as_scores(np.ones((4, 3))), greater_is_better=True)
    assert (same.chi_square, same.p_chi_square, same.f, same.p_f) == (0, 1, 0, 1)
    assert same.groups == (("method0", "method1", "method2"),)
    agreed = friedman(as_scores([[3, 2, 1]] * 5), greater_is_better=True)
    assert agreed.chi_square == pytest.approx(10)
    assert (agreed.f, agreed.p_f) == (math.inf, 0)
    assert agreed.mean_ranks == {"method0": 1, "method1": 2, "method2": 3}


def test_friedman_ranks_means_over_trials():
    scores = {"one": {"a": [0.1, 0.9, NAN], "b": [0.4, 0.4, 0.4]}, "two": {"a": [0.5], "b": [0.6]}}
    assert friedman(scores, greater_is_better=True).mean_ranks == {"a": 1.5, "b": 1.5}


def test_friedman_says_whom_it_leaves_out():
    scores = {
        "one": {"a": 1.0, "b": 2.0, "c": 3.0},
        "two": {"a": 1.0, "b": 2.0, "c": NAN},
        "three": {"a": [1.0, NAN], "b": 2.0, "d": 9.0},
        "nobody": {"a": NAN, "b": [], "e": NAN},
    }
    result = friedman(scores, greater_is_better=False)
    assert result.mean_ranks == {"a": 1.0, "b": 2.0}
    assert result.datasets == ("one", "two", "three")
    assert result.left_out == {"c": ("two", "three"), "d": ("one", "two"), "e": ("one", "two", "three")}
    with pytest.raises(ValueError, match="2 of 3 methods have results on all 1 data sets"):
        friedman({"one": {"a": 1.0, "b": 2.0}, "nobody": {"c": NAN}}, greater_is_better=False)


@pytest.mark.parametrize(
    ("alpha", "published"),
    [
        (0.05, [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]),
        (0.10, [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920]),
    ],
)
def test_critical_values_are_demsars(alpha, published):
    """Table 5 of Demšar (2006), q for 2 to 10 methods."""
    for k, q in enumerate(published, start=2):
        assert critical_difference(k, 14, alpha) == pytest.approx(q * math.sqrt(k * (k + 1) / (6 * 14)), abs=6e-4)


@pytest.mark.parametrize("seed", range(8))
def test_groups_are_the_longest_rows_within_the_distance(seed):
    rng = np.random.default_rng(seed)
    ranks = dict(zip("abcdefgh", rng.uniform(1, 8, size=8), strict=True))
    distance = rng.uniform(0.2, 4)
    order = sorted(ranks, key=ranks.get)
    rows = [
        tuple(order[i:j]) for i in range(8) for j in range(i + 2, 9) if ranks[order[j - 1]] - ranks[order[i]] < distance
    ]
    expected = [row for row in rows if not any(set(row) < set(other) for other in rows)]
    assert list(find_groups(ranks, distance)) == expected


def test_a_difference_of_just_the_distance_is_significant():
    assert find_groups({"a": 1.0, "b": 2.0}, 1.0) == ()
    assert find_groups({"a": 1.0, "b": 2.0}, 1.01) == (("a", "b"),)


def test_wins_are_significant_paired_t_tests():
    rng = np.random.default_rng(0)
    scores = {f"data{i}": {name: rng.normal(0.1 * i * j, 0.1, 5) for j, name in enumerate("abc")} for i in range(6)}
    records = win_tie_loss(scores, greater_is_better=True)
    assert len(records) == 6
    for (first, second), record in records.items():
        tests = [stats.ttest_rel(trials[first], trials[second]) for trials in scores.values()]
        assert record.win == sum(t.pvalue < 0.05 and t.statistic > 0 for t in tests)
        assert record.loss == sum(t.pvalue < 0.05 and t.statistic < 0 for t in tests)
        assert record.win + record.tie + record.loss == 6
    assert records["c", "a"].win > records["c", "b"].win > 0
    turned = win_tie_loss(scores, greater_is_better=False)
    assert turned["a", "c"] == records["c", "a"]


def test_trials_on_new_splits_weigh_less():
    differences = np.array([0.02, 0.03, 0.01, 0.04, 0.00])
    scores = {"one": {"a": 0.5 + differences, "b": np.full(5, 0.5)}}
    spread = math.sqrt(sum((d - 0.02) ** 2 for d in differences) / 4)
    for ratio, expected in ((0.0, "win"), (0.125, "tie")):
        t = 0.02 / (spread * math.sqrt(1 / 5 + ratio))
        p = 2 * stats.t.sf(t, 4)
        for shift, won in ((1e-6, 1), (-1e-6, 0)):
            record = win_tie_loss(scores, greater_is_better=True, alpha=p + shift, test_to_train=ratio)["a", "b"]
            assert record.win == won
        record = win_tie_loss(scores, greater_is_better=True, test_to_train=ratio)["a", "b"]
        assert record.win == (expected == "win")


def test_ties_gaps_and_constant_differences():
    scores = {
        "equal": {"a": [0.1, 0.2], "b": [0.1, 0.2]},
        "always": {"a": [0.3, 0.2 + 0.1], "b": [0.2, 0.2]},
        "gap": {"a": [0.1, NAN, 0.3], "b": [NAN, 0.1, 0.3]},
        "absent": {"a": [0.1, 0.2]},
        "short": {"a": [0.9, 0.5, 0.1], "b": [0.1, 0.1]},
    }
    record = win_tie_loss(scores, greater_is_better=True)["a", "b"]
    assert (record.win, record.tie, record.loss) == (1, 2, 0)  # "short": 0.8 and 0.4 apart, p = 0.2
    assert record.left_out == ("gap", "absent")


def test_share_of_the_distance():
    floor, oracle = np.array([0.50, 0.52, 0.54]), np.array([0.70, 0.73, 0.73])
    trials = {"floor": floor, "mine": floor + 0.15, "worse": floor - 0.02, "oracle": oracle}
    closed = share_closed(trials, "floor", "oracle", greater_is_better=True)
    assert closed.gap.mean == pytest.approx(0.2)
    assert closed.gap.n == 3
    assert closed.p_gap == pytest.approx(stats.ttest_rel(floor, oracle).pvalue)
    assert closed.shares == pytest.approx({"floor": 0, "mine": 0.75, "worse": -0.1, "oracle": 1})
    losses = {name: 1 - values for name, values in trials.items()}
    turned = share_closed(losses, "floor", "oracle", greater_is_better=False)
    assert turned.shares == pytest.approx(closed.shares)
    assert turned.gap.mean == pytest.approx(0.2)


@pytest.mark.parametrize(
    "oracle", [[0.6, 0.4, 0.55], [0.4, 0.41, 0.42], [0.5, 0.5, 0.5]], ids=["noise", "worse", "equal"]
)
def test_no_share_of_noise(oracle):
    trials = {"floor": [0.5, 0.5, 0.5], "mine": [0.6, 0.6, 0.6], "oracle": oracle}
    closed = share_closed(trials, "floor", "oracle", greater_is_better=True)
    assert all(math.isnan(share) for share in closed.shares.values())
    assert (closed.p_gap == 1) == (oracle == [0.5, 0.5, 0.5])
    assert closed.left_out == ()


def test_the_correction_reaches_the_gap():
    trials = {"floor": np.zeros(5), "oracle": [0.02, 0.03, 0.01, 0.04, 0.00]}
    assert share_closed(trials, "floor", "oracle", greater_is_better=True).shares["oracle"] == 1
    corrected = share_closed(trials, "floor", "oracle", greater_is_better=True, test_to_train=0.125)
    assert math.isnan(corrected.shares["oracle"])
    assert corrected.p_gap == pytest.approx(2 * stats.t.sf(0.02 / math.sqrt(0.00025 * (1 / 5 + 1 / 8)), 4))


def test_share_with_missing_trials():
    trials = {
        "floor": [0.5, 0.6, 0.5, NAN],
        "oracle": [0.7, 0.81, 0.69, 0.7],
        "some": [NAN, 0.7],
        "never": [NAN, NAN, NAN, 0.7],
    }
    closed = share_closed(trials, "floor", "oracle", greater_is_better=True)
    assert closed.gap.n == 3
    assert closed.shares["some"] == pytest.approx(0.1 / 0.2)
    assert closed.left_out == ("never",)
    without = share_closed({"some": [0.5, 0.6]}, "floor", "oracle", greater_is_better=True)
    assert (without.gap.n, without.shares, without.left_out) == (0, {}, ("some",))
