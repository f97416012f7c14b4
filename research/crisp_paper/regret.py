"""What it costs to choose configurations without full labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from onepos.bench.results import Chosen, Finished, StudyResults, choose, primary_metric, score_of
from onepos.bench.statistics import summarise
from onepos.bench.study import Selection
from onepos.metrics import METRICS
from onepos.report.tables import Cell, Table, mean_and_std, plain

# Data set, method and trial → percentage points lost.
_Regrets = Mapping[tuple[str, str, int], float]


def regret_tables(results: StudyResults) -> list[Table]:
    """What choosing configurations without full labels costs in test scores, per criterion and data set."""
    names = list(dict.fromkeys(name for _, result in results.finished for name in result.get("criteria") or ()))
    if not names:
        return []
    finished = [each for each in results.finished if each[0].method != results.study.oracle]
    best = choose(results.study, finished, Selection(results.study.selection.metric, "full"))
    choices = {name: choose(results.study, finished, Selection(name, "single-positive")) for name in names}
    targets = dict.fromkeys((primary_metric(results.study), "map"))
    return [_regret_table(results, target, best, choices, finished) for target in targets]


def _regret_table(
    results: StudyResults, metric: str, best: Chosen, choices: Mapping[str, Chosen], finished: Sequence[Finished]
) -> Table:
    """Criteria by mean regret, least first; below them what a configuration at random costs."""
    regrets = {name: _regrets(best, chosen, metric) for name, chosen in choices.items()}
    regrets = dict(sorted(regrets.items(), key=lambda each: _overall(each[1])))
    least = {dataset: _least(regrets, dataset) for dataset in (*results.study.datasets, "")}
    rows = []
    for name, row in (regrets | {"at random": _random_regrets(best, finished, metric)}).items():
        cells = []
        for dataset in (*results.study.datasets, ""):
            summary = summarise(_pick(row, dataset))
            is_best = name in regrets and summary.n > 0 and plain(summary.mean, 2) == plain(least[dataset], 2)
            cells.append(Cell(mean_and_std(summary, 2), is_best=is_best))
        rows.append([Cell(name), *cells])
    title = METRICS[metric].words
    about = (
        f"How much worse the test {title} is, in percentage points, when the configuration is chosen by a criterion "
        "that uses one label per validation row, instead of by full labels: mean ± standard deviation over methods and "
        "trials, the oracle left out. Below zero the criterion chose better. The last row is the mean over all "
        "configurations. The epoch within each run was kept by the rule of the study."
    )
    name = f"regret-{metric.replace('_', '-')}"
    return Table(name, f"Regret in {title}", ["Criterion", *results.study.datasets, "All"], rows, about)


def _regrets(best: Chosen, chosen: Chosen, metric: str) -> dict[tuple[str, str, int], float]:
    return {key: _loss(best[key][1], chosen[key][1], metric) for key in best if key in chosen}


def _random_regrets(best: Chosen, finished: Iterable[Finished], metric: str) -> dict[tuple[str, str, int], float]:
    """Mean regret over all configurations that did not diverge."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for run, result in finished:
        key = (run.dataset, run.method, run.trial)
        if key in best and not result["diverged"]:
            found.setdefault(key, []).append(_loss(best[key][1], result, metric))
    known = {key: [value for value in values if math.isfinite(value)] for key, values in found.items()}
    return {key: float(np.mean(values)) for key, values in known.items() if values}


def _loss(best: Mapping[str, Any], other: Mapping[str, Any], metric: str) -> float:
    """By how much `best` is better on the test rows, in percentage points; NaN where a number is missing."""
    difference = score_of(best, metric) - score_of(other, metric)
    return 100 * difference if METRICS[metric].greater_is_better else -100 * difference


def _pick(regrets: _Regrets, dataset: str) -> list[float]:
    """Those of a data set, or all."""
    return [value for key, value in regrets.items() if dataset in (key[0], "")]


def _overall(regrets: _Regrets) -> float:
    summary = summarise(_pick(regrets, ""))
    return summary.mean if summary.n else math.inf


def _least(regrets: Mapping[str, _Regrets], dataset: str) -> float:
    means = [summarise(_pick(row, dataset)) for row in regrets.values()]
    return min((summary.mean for summary in means if summary.n), default=math.nan)
