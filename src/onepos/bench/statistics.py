"""What the scores of many runs say: spread, paired tests, ranks, and the share of a distance closed.

Scores come as data set → method → one score per trial; a single number is one trial, as a printed mean is. The trials
of a data set are paired by position, since trial k has the same split and draw for every method. NaN, or a name that is
not there, is a result that is missing: it is left out, never guessed, and every answer names what it left out.

References:
    Demšar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 2006 (all but the t-test).
    Nadeau and Bengio, Inference for the Generalization Error, Machine Learning 2003 (the t-test over random splits).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, compress
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]
Trials = npt.ArrayLike
Scores = Mapping[str, Mapping[str, Trials]]
Outcome = Literal["win", "tie", "loss"]

# Scores are compared to this many decimals: the last bits of a float must not break a tie.
DIGITS = 12


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation of n trials with a result; NaN without a trial, or a second for the deviation.

    The deviation divides by n − 1. The paper does not say whether it divides by n − 1 or n, and its one-errors, the
    only cells coarse enough to tell, fit both; by n, five trials give 11 % less.
    """

    mean: float
    std: float
    n: int


@dataclass(frozen=True)
class Friedman:
    """Whether the methods differ at all, and which of them do."""

    datasets: tuple[str, ...]  # those on which any method has a result
    # Method → mean rank over them, best first; 1 is best, equal scores share their mean rank.
    mean_ranks: dict[str, float]
    chi_square: float  # Friedman's statistic, corrected for ties
    p_chi_square: float  # from the χ² distribution with k − 1 degrees of freedom
    f: float  # the form of Iman and Davenport, less conservative with few data sets; infinite where all data sets agree
    p_f: float  # from the F distribution with k − 1 and (k − 1)(N − 1) degrees of freedom
    critical_difference: float  # Nemenyi's; mean ranks at least so far apart differ significantly
    # The bars of a critical-difference diagram: each the longest row of methods, best first, of which no two differ
    # significantly.
    groups: tuple[tuple[str, ...], ...]
    left_out: dict[str, tuple[str, ...]]  # method without a full set of results → the data sets it lacks


@dataclass(frozen=True)
class Record:
    """Data sets on which one method wins, ties, loses against another, a win or loss being significant.

    Left out are those with fewer than two trials that both have, where nothing can be tested.
    """

    win: int
    tie: int
    loss: int
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class ShareClosed:
    """How much of the way from the floor to the oracle each method goes, on one data set."""

    gap: Summary  # what the oracle is better by, over the trials it shares with the floor
    p_gap: float  # of a paired t-test of the gap
    # Method → 0 at the floor, 1 at the oracle, below 0 for worse than the floor; NaN for all where the gap is not clear
    # of noise, since a share of noise means nothing.
    shares: dict[str, float]
    left_out: tuple[str, ...]  # methods without a trial that the floor has too


def summarise(trials: Trials) -> Summary:
    """Mean, standard deviation and number of the trials with a result.

    Example:
        >>> summarise([0.5, 1.5, 2.5, float("nan")])
        Summary(mean=1.5, std=1.0, n=3)
    """
    values = _as_array(trials)
    values = values[np.isfinite(values)]
    n = len(values)
    return Summary(float(values.mean()) if n else math.nan, float(values.std(ddof=1)) if n > 1 else math.nan, n)


def mean_scores(scores: Scores) -> dict[str, FloatArray]:
    """Method → its mean on every data set, in the order of `scores`; NaN where it has no result.

    Example:
        >>> mean_scores({"scene": {"a": [0.25, 0.75], "b": 0.5}, "yeast": {"a": 1.0}})
        {'a': array([0.5, 1. ]), 'b': array([0.5, nan])}
    """
    return {
        name: np.array([summarise(methods.get(name, math.nan)).mean for methods in scores.values()])
        for name in _methods(scores)
    }


def friedman(scores: Scores, *, greater_is_better: bool, alpha: float = 0.05) -> Friedman:
    """Rank the methods on every data set by their means and test whether the ranks differ.

    Only methods with a result on every data set can be ranked against each other; the others are left out whole, rather
    than the data sets they lack, so that one failed run does not cost everybody a data set. Leave the oracle out of
    `scores` where it is not a competitor: every further method widens the critical difference, whose level is `alpha`.
    """
    means = mean_scores(scores)
    is_held = np.array([any(not math.isnan(mean[k]) for mean in means.values()) for k in range(len(scores))], bool)
    held = tuple(compress(scores, is_held))
    lacks = {name: tuple(compress(held, np.isnan(mean[is_held]))) for name, mean in means.items()}
    names = [name for name, missing in lacks.items() if not missing]
    if len(names) < 2 or len(held) < 2:
        raise ValueError(
            f"a test of ranks needs two methods with results on two data sets at least; {len(names)} of {len(lacks)} "
            f"methods have results on all {len(held)} data sets. Leave out data sets or finish the runs."
        )
    table = np.round(np.stack([means[name][is_held] for name in names], axis=1), DIGITS)  # (N, k)
    ranks: FloatArray = stats.rankdata(-table if greater_is_better else table, axis=1)
    n, k = ranks.shape
    chi_square, f = _friedman_statistics(ranks)
    mean_ranks = dict(sorted(zip(names, ranks.mean(0).tolist(), strict=True), key=lambda item: item[1]))
    distance = critical_difference(k, n, alpha)
    return Friedman(
        datasets=held,
        mean_ranks=mean_ranks,
        chi_square=chi_square,
        p_chi_square=float(stats.chi2.sf(chi_square, k - 1)),
        f=f,
        p_f=float(stats.f.sf(f, k - 1, (k - 1) * (n - 1))),
        critical_difference=distance,
        groups=find_groups(mean_ranks, distance),
        left_out={name: missing for name, missing in lacks.items() if missing},
    )


def critical_difference(n_methods: int, n_datasets: int, alpha: float = 0.05) -> float:
    """Nemenyi's critical difference of two mean ranks, q_α·√(k(k+1) / 6N), q_α of the studentised range over √2.

    Example:
        >>> round(critical_difference(10, 6), 2)
        5.53
    """
    q = float(stats.studentized_range.ppf(1 - alpha, n_methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(n_methods * (n_methods + 1) / (6 * n_datasets))


def find_groups(mean_ranks: Mapping[str, float], distance: float) -> tuple[tuple[str, ...], ...]:
    """The longest rows of methods whose mean ranks all lie less than `distance` apart; a row of one is none.

    Example:
        >>> find_groups({"a": 1.0, "b": 1.5, "c": 2.5, "d": 5.0}, 1.25)
        (('a', 'b'), ('b', 'c'))
    """
    order = sorted(mean_ranks, key=mean_ranks.__getitem__)
    rank = np.array([mean_ranks[name] for name in order])
    groups, reached = [], 0
    for start in range(len(order)):
        stop = int(np.sum(rank - rank[start] < distance))
        if stop > max(reached, start + 1):  # else the group before holds it
            groups.append(tuple(order[start:stop]))
            reached = stop
    return tuple(groups)


def win_tie_loss(
    scores: Scores, *, greater_is_better: bool, alpha: float = 0.05, test_to_train: float = 0.0
) -> dict[tuple[str, str], Record]:
    """How often each method wins, ties, loses against each other, one count per data set.

    A win is a paired t-test over the trials of the data set that rejects at `alpha`, two-sided; all else is a tie. Not
    Wilcoxon's test: with five trials its exact p-value is never below 0.0625, so everything would tie. The level holds
    for one comparison; where methods do not differ, a share `alpha` of many is won or lost by chance.

    `test_to_train` is test rows over training rows, where every trial is a new random split. Such trials share most of
    their rows and vary too little, which Nadeau and Bengio correct for: the variance of the mean is taken as
    s²·(1/n + n_test/n_train). Zero for trials on one fixed split, which then say nothing about other splits.

    Returns:
        (method, other) → the method's record; (other, method) holds its mirror image.
    """
    records: dict[tuple[str, str], Record] = {}
    for first, second in combinations(_methods(scores), 2):
        better = {dataset: _paired(methods, first, second, greater_is_better) for dataset, methods in scores.items()}
        left_out = tuple(dataset for dataset, trials in better.items() if len(trials) < 2)
        outcomes = [_outcome(trials, alpha, test_to_train) for trials in better.values() if len(trials) > 1]
        win, tie, loss = (outcomes.count(outcome) for outcome in ("win", "tie", "loss"))
        records[first, second] = Record(win, tie, loss, left_out)
        records[second, first] = Record(loss, tie, win, left_out)
    return records


def share_closed(
    trials: Mapping[str, Trials],
    floor: str,
    oracle: str,
    *,
    greater_is_better: bool,
    alpha: float = 0.05,
    test_to_train: float = 0.0,
) -> ShareClosed:
    """The share (score − floor) / (oracle − floor) of every method on one data set.

    Above and below the line stand means over the trials that the two have in common. The gap is clear of noise where
    the oracle is better by a paired t-test, as in `win_tie_loss`. `trials` holds floor and oracle too.

    Example:
        >>> losses = {"low": [0.5, 0.52, 0.51], "mid": [0.4, 0.42, 0.41], "high": [0.3, 0.32, 0.32]}
        >>> closed = share_closed(losses, "low", "high", greater_is_better=False)
        >>> {name: round(share, 2) for name, share in closed.shares.items()}
        {'low': 0.0, 'mid': 0.51, 'high': 1.0}
    """
    above = {name: _paired(trials, name, floor, greater_is_better) for name in trials}
    gaps = _paired(trials, oracle, floor, greater_is_better)
    is_clear = _outcome(gaps, alpha, test_to_train) == "win"
    shares = {
        name: float(np.mean(ours) / np.mean(gaps)) if is_clear else math.nan
        for name, ours in above.items()
        if len(ours)
    }
    left_out = tuple(name for name in trials if name not in shares)
    return ShareClosed(summarise(gaps), _paired_t(gaps, test_to_train), shares, left_out)


def _as_array(values: npt.ArrayLike) -> FloatArray:
    return np.atleast_1d(np.asarray(values, np.float64))


def _methods(scores: Scores) -> list[str]:
    """Every method there is, in the order in which they come."""
    return list(dict.fromkeys(name for methods in scores.values() for name in methods))


def _paired(trials: Mapping[str, Trials], first: str, second: str, greater_is_better: bool) -> FloatArray:
    """By how much the first method is better in each of the trials that both have."""
    ours, theirs = (_as_array(trials.get(name, ())) for name in (first, second))
    n = min(len(ours), len(theirs))
    common = np.isfinite(ours[:n]) & np.isfinite(theirs[:n])
    ours, theirs = ours[:n][common], theirs[:n][common]
    return ours - theirs if greater_is_better else theirs - ours


def _outcome(better: FloatArray, alpha: float, test_to_train: float) -> Outcome:
    if not _paired_t(better, test_to_train) < alpha:
        return "tie"
    return "win" if better.mean() > 0 else "loss"


def _paired_t(differences: FloatArray, test_to_train: float) -> float:
    """Two-sided p-value of the corrected resampled t-test; NaN for fewer than two trials."""
    values = np.round(differences, DIGITS)
    n = len(values)
    if n < 2:
        return math.nan
    if np.ptp(values) == 0:
        return 1.0 if values[0] == 0 else 0.0
    error = values.std(ddof=1) * math.sqrt(1 / n + test_to_train)
    return float(2 * stats.t.sf(abs(values.mean()) / error, n - 1))


def _friedman_statistics(ranks: FloatArray) -> tuple[float, float]:
    """Friedman's χ², and the F of Iman and Davenport, from (N, k) ranks."""
    n, k = ranks.shape
    between = n * np.sum((ranks.mean(0) - (k + 1) / 2) ** 2)
    total = np.sum((ranks - (k + 1) / 2) ** 2)  # falls short of N·k(k²−1)/12 where ranks are tied
    if total == 0:
        return 0.0, 0.0
    chi_square = float(n * (k - 1) * between / total)
    rest = n * (k - 1) - chi_square
    return chi_square, (n - 1) * chi_square / rest if rest > 1e-9 else math.inf
