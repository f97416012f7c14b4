"""Wilcoxon's test against counts of signs, SciPy and the paper's printed p-values."""

import math
from itertools import product

import numpy as np
import pytest
from crisp_paper.signed_ranks import signed_ranks
from scipy import stats

NAN = math.nan


def enumerated_p(differences):
    """Sign the ranks in all 2ⁿ ways and count those as far from zero as the one found."""
    moved = [d for d in differences if d != 0]
    size = [abs(d) for d in moved]
    rank = [sum(other < s for other in size) + (sum(other == s for other in size) + 1) / 2 for s in size]
    found = abs(sum(math.copysign(r, d) for r, d in zip(rank, moved, strict=True)))
    sums = [
        abs(sum(sign * r for sign, r in zip(signs, rank, strict=True))) for signs in product((-1, 1), repeat=len(rank))
    ]
    return sum(s >= found for s in sums) / len(sums)


@pytest.mark.parametrize("seed", range(12))
def test_exact_p_is_a_count_of_signs(seed):
    rng = np.random.default_rng(seed)
    differences = rng.integers(-4, 6, size=rng.integers(1, 11)).astype(float)  # many ties, some zeros
    test = signed_ranks(differences, np.zeros(len(differences)), greater_is_better=True)
    assert test.p_exact == pytest.approx(enumerated_p(differences), abs=1e-12)
    assert (test.n_win, test.n_tie, test.n_loss) == tuple(int(sum(np.sign(differences) == s)) for s in (1, 0, -1))


@pytest.mark.parametrize("n", [3, 8, 40])
def test_exact_p_without_ties_is_scipys(n):
    first, second = np.random.default_rng(n).normal(size=(2, n))
    expected = stats.wilcoxon(first, second, method="exact").pvalue
    assert signed_ranks(first, second, greater_is_better=True).p_exact == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("differences", "paper", "exact"),
    [
        ([1, 2, 3, 4, 5, 6], 0.0313, 2 / 64),
        ([0, 1, 2, 3, 4, 5], 0.0431, 2 / 32),
        ([0, 0, 1, 2, 3, 4], 0.0679, 2 / 16),
        ([0, -1, 2, 3, 4, 5], 0.0796, 4 / 32),
        ([-1.5, 1.5, 3, 4, 5, 6], 0.0938, 6 / 64),
    ],
)
def test_the_papers_p_values(differences, paper, exact):
    """The five values that its table prints, but for 0.625; -1.5 and 1.5 share a rank, as two means there do."""
    test = signed_ranks(differences, np.zeros(6), greater_is_better=True)
    assert test.p_exact == pytest.approx(exact)
    assert test.p_paper == pytest.approx(paper, abs=6e-5)
    assert test.outcome(test.p_paper) == ("win" if paper < 0.05 else "tie")


def test_dropped_ties_call_for_the_normal_approximation():
    differences = np.array([0, 0, 3, -1, 1, 1, 7, 7, -2.0])
    expected = stats.wilcoxon(differences, zero_method="wilcox", correction=False, method="approx").pvalue
    assert signed_ranks(differences, 0 * differences, greater_is_better=True).p_paper == pytest.approx(expected)


def test_direction_turns_the_outcome():
    low, high = np.arange(6.0), 2 * np.arange(6.0) + 1
    up, down = (signed_ranks(high, low, greater_is_better=greater) for greater in (True, False))
    assert (up.outcome(up.p_exact), down.outcome(down.p_exact)) == ("win", "loss")
    assert up.rank_sum == -down.rank_sum == 21
    assert up.outcome(up.p_exact, alpha=0.01) == "tie"


def test_missing_means_are_left_out_and_named():
    with_gap = signed_ranks([3.0, NAN, 2.0, 1.0], [1.0, 1.0, NAN, 2.0], greater_is_better=True)
    assert with_gap.missing == (1, 2)
    assert with_gap.p_exact == signed_ranks([3.0, 1.0], [1.0, 2.0], greater_is_better=True).p_exact
    nothing = signed_ranks([NAN], [1.0], greater_is_better=True)
    assert math.isnan(nothing.p_exact)
    assert nothing.outcome(nothing.p_exact) == "tie"
    equal = signed_ranks([1.0], [1.0], greater_is_better=True)
    assert (equal.p_exact, equal.p_paper) == (1, 1)


def test_the_last_bits_make_no_order():
    first, second = [0.749, 0.795, 0.9], [0.534, 0.58, 0.8]  # 0.215 twice, but for the last bits
    assert first[0] - second[0] != first[1] - second[1]
    assert signed_ranks(first, second, greater_is_better=True).rank_sum == 6
    mixed = signed_ranks([0.749, 0.58], [0.534, 0.795], greater_is_better=True)
    assert mixed.rank_sum == 0


def test_pairs_must_pair():
    with pytest.raises(ValueError, match="must hold one mean per data set; they hold 2 and 3"):
        signed_ranks([1, 2], [1, 2, 3], greater_is_better=True)


def test_five_trials_never_convince_wilcoxon():
    assert signed_ranks(np.arange(1, 6), np.zeros(5), greater_is_better=True).p_exact == 0.0625
