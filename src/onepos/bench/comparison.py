"""Results compared: the methods of a study by one metric, and two studies with each other.

    by_metric = compare_methods(read_results("results/fair"), "ranking_loss")
    by_study = compare_studies(read_results("results/before"), read_results("results/after"))

Of two studies, A and B, every score is compared that both have: per data set and method those of the runs that each
study chooses by its own rule. Trials are paired where both studies had the same split, single positives and seed of
the weights.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from onepos.bench.results import StudyResults
from onepos.bench.statistics import (
    DIGITS,
    FloatArray,
    Friedman,
    Outcome,
    Record,
    ShareClosed,
    Summary,
    friedman,
    share_closed,
    summarise,
    win_tie_loss,
)
from onepos.bench.study import Study
from onepos.metrics import METRICS
from onepos.validation import without_nan

SHOWN = ("ranking_loss", "average_precision", "coverage", "hamming_loss", "one_error", "map", "macro_f1")
"""The metrics that reports show: five within rows, then two within labels, where a method may lose what it gains."""

ALPHA = 0.05
"""Level at which two studies differ significantly."""

Seeds = tuple[int, int, int]


@dataclass(frozen=True)
class MetricComparison:
    """The methods of a study compared by one metric; built by `compare_methods`."""

    metric: str  # a key of METRICS
    results: StudyResults
    scores: Mapping[str, Mapping[str, FloatArray]]  # data set → method → trials
    # Data set → method → its rank by the mean, 1 for the best; the oracle and what has no result left out.
    ranks: Mapping[str, Mapping[str, float]]
    friedman: Friedman | None  # None where fewer than two methods have results on two data sets
    shares: Mapping[str, ShareClosed]  # data set → share of the distance from floor to oracle
    records: Mapping[tuple[str, str], Record]  # (method, other) → wins, ties, losses; the oracle left out

    @property
    def greater_is_better(self) -> bool:
        """Which way is up."""
        return METRICS[self.metric].greater_is_better

    @property
    def mean_ranks(self) -> Mapping[str, float]:
        """Over the data sets, of methods with results on all of them; with one set the ranks themselves.

        Empty where no two methods can be compared.
        """
        if self.friedman:
            return self.friedman.mean_ranks
        only = next(iter(self.ranks.values())) if len(self.ranks) == 1 else {}
        return only if len(only) > 1 else {}

    @property
    def title(self) -> str:
        """That of the metric, with an arrow."""
        return metric_title(self.metric)


def compare_methods(results: StudyResults, metric: str) -> MetricComparison:
    """Scores, ranks and tests of one metric."""
    study, scores = results.study, results.scores(metric)
    contest = {dataset: {name: row[name] for name in results.competitors} for dataset, row in scores.items()}
    greater, shared = METRICS[metric].greater_is_better, results.shared_rows
    try:
        tested = friedman(contest, greater_is_better=greater)
    except ValueError:  # too few methods or data sets have results, so far
        tested = None
    ranks = {dataset: rank_methods(row, greater_is_better=greater) for dataset, row in contest.items()}
    shares = {
        dataset: share_closed(row, study.floor, study.oracle, greater_is_better=greater, test_to_train=shared)
        for dataset, row in scores.items()
    }
    records = win_tie_loss(contest, greater_is_better=greater, test_to_train=shared)
    return MetricComparison(metric, results, scores, ranks, tested, shares, records)


def rank_methods(trials: Mapping[str, FloatArray], *, greater_is_better: bool) -> dict[str, float]:
    """The rank of each method by its mean, 1 for the best; equals share their mean rank.

    Example:
        >>> rank_methods({"a": [0.5, 0.7], "b": [0.6], "c": [0.1], "d": [float("nan")]}, greater_is_better=True)
        {'a': 1.5, 'b': 1.5, 'c': 3.0}
    """
    means = {name: round(summarise(values).mean, DIGITS) for name, values in trials.items() if summarise(values).n}
    ranks = stats.rankdata([-mean if greater_is_better else mean for mean in means.values()])
    return dict(zip(means, map(float, ranks), strict=True))


def metric_title(metric: str) -> str:
    """The metric's title with an arrow for the direction that is better."""
    return f"{METRICS[metric].title} {'↑' if METRICS[metric].greater_is_better else '↓'}"


def share_of(closed: ShareClosed, name: str) -> float:
    """A method's share of the distance closed; NaN where there is none."""
    return closed.shares.get(name, math.nan)


def known_mean(values: Sequence[float]) -> float:
    """Mean of the values that are known; NaN without any."""
    known = [value for value in values if math.isfinite(value)]
    return float(np.mean(known)) if known else math.nan


@dataclass(frozen=True)
class Difference:
    """A score of a method on a data set in two studies."""

    dataset: str
    method: str
    metric: str  # a key of METRICS
    first: Summary  # A's trials that are compared
    second: Summary  # B's
    n_pairs: int  # how many of them are paired; 0 where they are compared as two samples
    p: float  # two-sided; NaN where fewer than two trials leave nothing to test

    @property
    def change(self) -> float:
        """B's mean less A's."""
        return self.second.mean - self.first.mean

    @property
    def outcome(self) -> Outcome:
        """B's: better ("win") or worse ("loss") at 0.05; all else is a tie."""
        if not self.p < ALPHA:
            return "tie"
        return "win" if (self.change > 0) == METRICS[self.metric].greater_is_better else "loss"


@dataclass(frozen=True)
class Comparison:
    """All that two studies have in common, and what they have not."""

    first: StudyResults  # A
    second: StudyResults  # B
    metrics: tuple[str, ...]  # those compared
    differences: tuple[Difference, ...]  # by metric, data set and method, in the order of A
    only_first: tuple[tuple[str, str], ...]  # (data set, method) of which only A has results
    only_second: tuple[tuple[str, str], ...]  # the same of B

    @property
    def changed(self) -> tuple[str, ...]:
        """The fields in which the studies differ, but for their names."""
        names = [each.name for each in dataclasses.fields(Study) if each.name != "name"]
        return tuple(name for name in names if getattr(self.first.study, name) != getattr(self.second.study, name))

    def count(self, outcome: Outcome, metric: str | None = None, dataset: str | None = None) -> int:
        """How many of the differences have an outcome; of one metric or data set, where named."""
        return sum(
            each.outcome == outcome and metric in (None, each.metric) and dataset in (None, each.dataset)
            for each in self.differences
        )

    def to_json(self) -> dict[str, Any]:
        """The comparison in the types of JSON; null for what is not known."""
        return {
            "studies": [
                {"name": side.study.name, "done": len(side.finished), "runs": len(side.runs)}
                for side in (self.first, self.second)
            ],
            "changed": list(self.changed),
            "counts": {
                metric: {kind: self.count(kind, metric) for kind in ("win", "tie", "loss")} for metric in self.metrics
            },
            "differences": [
                without_nan(dataclasses.asdict(each) | {"change": each.change, "outcome": each.outcome})
                for each in self.differences
            ],
            "only_first": [list(pair) for pair in self.only_first],
            "only_second": [list(pair) for pair in self.only_second],
        }


def compare_studies(
    first: StudyResults, second: StudyResults, metrics: Sequence[str] = SHOWN, *, names: tuple[str, str] = ("A", "B")
) -> Comparison:
    """Compare every data set × method × metric that both studies have results of.

    Trials are paired where every trial of one study has a partner in the other: then the corrected paired t-test of
    `onepos.bench.statistics` decides. Otherwise the two are samples of their own, and Welch's t-test does, with the
    same correction where trials have splits of their own.
    An error calls the two by `names`.
    """
    sides = first, second
    pairs = [[(dataset, name) for dataset in side.study.datasets for name in side.study.methods] for side in sides]
    chosen = [{(dataset, method) for dataset, method, _ in side.chosen} for side in sides]
    ours, theirs = ([pair for pair in all_pairs if pair in has] for all_pairs, has in zip(pairs, chosen, strict=True))
    common = [pair for pair in ours if pair in theirs]
    if not common:
        raise ValueError(
            f"{names[0]} and {names[1]} must both have results of one method on one data set; the first has "
            f"{list_pairs(ours)}, the second {list_pairs(theirs)}. Run the same data sets and methods in both."
        )
    differences = []
    for metric in metrics:
        scores = [side.scores(metric) for side in sides]
        for dataset, method in common:
            before, after = (
                _by_seeds(side, table[dataset][method], dataset, method)
                for side, table in zip(sides, scores, strict=True)
            )
            if before and after:
                tested = _test(before, after, first.shared_rows, second.shared_rows)
                differences.append(Difference(dataset, method, metric, *tested))
    only_first = tuple(pair for pair in ours if pair not in theirs)
    only_second = tuple(pair for pair in theirs if pair not in ours)
    return Comparison(first, second, tuple(metrics), tuple(differences), only_first, only_second)


def _by_seeds(side: StudyResults, trials: FloatArray, dataset: str, method: str) -> dict[Seeds, float]:
    """The trials with a score, by what they met."""
    runs = {trial: side.chosen[dataset, method, trial][0] for trial in np.flatnonzero(np.isfinite(trials)).tolist()}
    return {(run.split_seed, run.draw_seed, run.seed): float(trials[trial]) for trial, run in runs.items()}


def _test(
    first: Mapping[Seeds, float], second: Mapping[Seeds, float], first_correction: float, second_correction: float
) -> tuple[Summary, Summary, int, float]:
    """The trials compared, how many are paired, and the p-value."""
    common = [seeds for seeds in first if seeds in second]
    # Studies with new and with fixed splits share their first trial: such a pair is a chance, not a design.
    if len(common) == min(len(first), len(second)):
        ours, theirs = ([side[seeds] for seeds in common] for side in (first, second))
        # What lies between two methods is tested there; here it lies between two studies.
        trials = {"A": ours, "B": theirs}
        correction = max(first_correction, second_correction)
        p = share_closed(trials, "A", "B", greater_is_better=True, test_to_train=correction).p_gap
        return summarise(ours), summarise(theirs), len(common), p
    before, after = (summarise(list(side.values())) for side in (first, second))
    return before, after, 0, _welch(before, after, first_correction, second_correction)


def _welch(first: Summary, second: Summary, first_correction: float, second_correction: float) -> float:
    """Two-sided p-value of Welch's t-test, the variance of a mean taken as s²·(1/n + correction)."""
    if min(first.n, second.n) < 2:
        return math.nan
    sides = ((first, first_correction), (second, second_correction))
    errors = [side.std**2 * (1 / side.n + correction) for side, correction in sides]
    if sum(errors) == 0:
        return 1.0 if first.mean == second.mean else 0.0
    freedom = sum(errors) ** 2 / sum(e**2 / (side.n - 1) for e, side in zip(errors, (first, second), strict=True))
    return float(2 * stats.t.sf(abs(first.mean - second.mean) / math.sqrt(sum(errors)), freedom))


def list_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Methods by data set, in one line; data sets with the same methods together."""
    methods: dict[str, list[str]] = {}
    for dataset, method in pairs:
        methods.setdefault(dataset, []).append(method)
    datasets: dict[str, list[str]] = {}
    for dataset, names in methods.items():
        datasets.setdefault(", ".join(names), []).append(dataset)
    return "; ".join(f"{names} on {', '.join(where)}" for names, where in datasets.items()) or "none"
