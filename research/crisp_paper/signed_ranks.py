"""Wilcoxon's signed-rank test as the paper uses it, and exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from onepos.bench.statistics import FloatArray, Outcome

# Means are compared to this many decimals, as in `onepos.bench.statistics`.
_DIGITS = 12


@dataclass(frozen=True)
class SignedRanks:
    """Wilcoxon's test of a first method against a second, both over the same data sets."""

    n_win: int  # data sets on which the first is better, as `n_loss` for the second; the test leaves out ties
    n_tie: int
    n_loss: int
    rank_sum: float  # W⁺ − W⁻, above zero where the first is better
    p_exact: float  # two-sided, from all 2ⁿ signs of the ranks that were found, tied ones included; n without the ties
    p_paper: float  # two-sided, as the paper has it, see `signed_ranks`
    missing: tuple[int, ...]  # positions of the data sets on which one of them has no result

    def outcome(self, p: float, alpha: float = 0.05) -> Outcome:
        """The first method's, going by one of the two p-values; what is not significant, or not known, is a tie."""
        if not p < alpha:
            return "tie"
        return "win" if self.rank_sum > 0 else "loss"


def signed_ranks(first: npt.ArrayLike, second: npt.ArrayLike, *, greater_is_better: bool) -> SignedRanks:
    """Compare two methods by their means on several data sets.

    **As the paper uses it**: one pair per data set, the means over the trials; two-sided; equal means are dropped; the
    exact distribution where there were none to drop, the normal approximation without continuity correction where there
    were (what SciPy chose by itself at the time). From its printed means this gives 49 of the 60 printed p-values; see
    `crisp_paper.paper.find_faults` for the others. The approximation is too small for so few data sets: five wins
    and a tie give 0.0431, while of the 2⁵ signs 2 are as extreme, 0.0625.

    Each has one mean per data set, NaN where there is none.

    Example:
        >>> test = signed_ranks([0.9, 0.8, 0.7, 0.6, 0.5], [0.8, 0.6, 0.4, 0.2, 0.5], greater_is_better=True)
        >>> test.n_win, test.n_tie, test.p_exact, test.outcome(test.p_exact)
        (4, 1, 0.125, 'tie')
    """
    ours, theirs = (np.asarray(means, np.float64) for means in (first, second))
    if ours.shape != theirs.shape:
        raise ValueError(
            f"first and second must hold one mean per data set; they hold {len(ours)} and {len(theirs)}. "
            "Fill in NaN where a method has no result."
        )
    better = np.round(ours - theirs if greater_is_better else theirs - ours, _DIGITS)
    known = better[np.isfinite(better)]
    moved = known[known != 0]
    ranks: FloatArray = stats.rankdata(np.abs(moved))
    signed = float(np.sum(np.sign(moved) * ranks))
    n_tie = len(known) - len(moved)
    p_exact = _exact_p(ranks, signed) if len(known) else math.nan
    return SignedRanks(
        n_win=int(np.sum(moved > 0)),
        n_tie=n_tie,
        n_loss=int(np.sum(moved < 0)),
        rank_sum=signed,
        p_exact=p_exact,
        p_paper=_normal_p(ranks, signed) if n_tie else p_exact,
        missing=tuple(np.flatnonzero(~np.isfinite(better)).tolist()),
    )


def _exact_p(ranks: FloatArray, signed: float) -> float:
    """Share of the 2ⁿ ways to sign the ranks whose sum is at least as far from zero."""
    doubled = np.rint(2 * ranks).astype(np.int64)  # whole numbers even where tied ranks are halves
    chance = np.ones(1)  # of W⁺, counted in halves
    for rank in doubled:
        chance = (np.pad(chance, (0, rank)) + np.pad(chance, (rank, 0))) / 2
    distance = np.abs(2 * np.arange(len(chance)) - doubled.sum())
    return min(1.0, float(chance[distance >= abs(round(2 * signed))].sum()))


def _normal_p(ranks: FloatArray, signed: float) -> float:
    """The same from the normal distribution; the variance is that of tied ranks where there are ties."""
    return float(2 * stats.norm.sf(abs(signed) / math.sqrt(np.sum(ranks**2)))) if len(ranks) else 1.0
