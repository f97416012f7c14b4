"""The best test score that any configuration reached: a bound on what a better choice could have given."""

from __future__ import annotations

import math
from statistics import fmean

from onepos.bench.results import StudyResults, score_of
from onepos.metrics import METRICS


def best_in_hindsight(results: StudyResults, dataset: str, method: str, metric: str) -> float:
    """The mean over the trials of the best test score of any configuration: a bound, not a result."""
    better = max if METRICS[metric].greater_is_better else min
    best: dict[int, float] = {}
    for run, result in results.finished:
        score = score_of(result, metric)
        if (run.dataset, run.method) == (dataset, method) and not result["diverged"] and not math.isnan(score):
            best[run.trial] = better(score, best.get(run.trial, score))
    return fmean(best.values()) if best else math.nan
