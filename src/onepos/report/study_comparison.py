"""One metric of a study compared: scores, ranks, tests and shares, ready to be put into tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from onepos.bench.statistics import (
    FloatArray,
    Friedman,
    Record,
    ShareClosed,
    Summary,
    friedman,
    share_closed,
    summarise,
    win_tie_loss,
)
from onepos.metrics import METRICS
from onepos.report.study_tables import StudyResults, compare, printed_value

# Means are compared to this many decimals, as in `onepos.bench.statistics`.
_DIGITS = 12


@dataclass(frozen=True)
class MetricComparison:
    """All that is said of one metric; built by `compare_methods`.

    Attributes:
        metric: A key of METRICS.
        results: Of the study.
        scores: Data set → method → trials.
        ranks: Data set → method → its rank by the mean, 1 for the best; the oracle and what has no result left out.
        friedman: None where fewer than two methods have results on two data sets.
        shares: Data set → share of the distance from floor to oracle.
        records: (method, other) → wins, ties, losses; the oracle left out.
    """

    metric: str
    results: StudyResults
    scores: Mapping[str, Mapping[str, FloatArray]]
    ranks: Mapping[str, Mapping[str, float]]
    friedman: Friedman | None
    shares: Mapping[str, ShareClosed]
    records: Mapping[tuple[str, str], Record]

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
        """The metric's title with an arrow for the direction that is better."""
        return f"{METRICS[self.metric].title} {'↑' if self.greater_is_better else '↓'}"


def compare_methods(results: StudyResults, metric: str) -> MetricComparison:
    """Scores, ranks and tests of one metric."""
    study, scores, greater = results.study, results.scores(metric), METRICS[metric].greater_is_better
    contest = {dataset: {name: row[name] for name in results.competitors} for dataset, row in scores.items()}
    return MetricComparison(
        metric,
        results,
        scores,
        {dataset: rank_methods(row, greater_is_better=greater) for dataset, row in contest.items()},
        _friedman(contest, greater_is_better=greater),
        {
            dataset: share_closed(
                row, study.floor, study.oracle, greater_is_better=greater, test_to_train=results.shared_rows
            )
            for dataset, row in scores.items()
        },
        win_tie_loss(contest, greater_is_better=greater, test_to_train=results.shared_rows),
    )


def rank_methods(trials: Mapping[str, FloatArray], *, greater_is_better: bool) -> dict[str, float]:
    """The rank of each method by its mean, 1 for the best; equals share their mean rank.

    Example:
        >>> rank_methods({"a": [0.5, 0.7], "b": [0.6], "c": [0.1], "d": [float("nan")]}, greater_is_better=True)
        {'a': 1.5, 'b': 1.5, 'c': 3.0}
    """
    means = {name: round(summarise(values).mean, _DIGITS) for name, values in trials.items() if summarise(values).n}
    ranks = stats.rankdata([-mean if greater_is_better else mean for mean in means.values()])
    return dict(zip(means, map(float, ranks), strict=True))


def verdict_of(comparison: MetricComparison, dataset: str, method: str, ours: Summary) -> str:
    """As `compare` has it; "" where there is nothing to compare."""
    printed = printed_value(comparison.metric, dataset, method)
    if printed is None or not ours.n:
        return ""
    return compare(ours, printed, greater_is_better=comparison.greater_is_better)


def share_of(closed: ShareClosed, name: str) -> float:
    """A method's share of the distance closed; NaN where there is none."""
    return closed.shares.get(name, math.nan)


def known_mean(values: Sequence[float]) -> float:
    """Mean of the values that are known; NaN without any."""
    known = [value for value in values if math.isfinite(value)]
    return float(np.mean(known)) if known else math.nan


def _friedman(contest: Mapping[str, Mapping[str, FloatArray]], *, greater_is_better: bool) -> Friedman | None:
    try:
        return friedman(contest, greater_is_better=greater_is_better)
    except ValueError:  # too few methods or data sets have results, so far
        return None
