"""The tabular numbers printed in the paper, one by one, and what a study makes of each.

A number is found by its metric, data set and method.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from crisp_paper.paper import (
    ROUNDING,
    PaperCell,
    find_faults,
    find_impossible,
    paper_datasets,
    paper_tables,
    paper_value,
)
from onepos.bench.results import StudyResults
from onepos.bench.statistics import Summary, summarise
from onepos.bench.study import Run
from onepos.datasets import DATASETS
from onepos.metrics import METRICS
from onepos.report.tables import mean_and_std

Key = tuple[str, str, str]

VERDICTS = ("reproduced", "better", "worse")
NOT_COMPARABLE = "not comparable"

# Our name for the paper's text followed word by word; the paper calls it CRISP.
_WORD_BY_WORD = "crisp-as-published"


@dataclass(frozen=True)
class Printed:
    """A printed number, in the units of METRICS.

    Attributes:
        metric: Its metric.
        dataset: Its data set.
        method: Its method.
        value: Mean and standard deviation.
        doubt: Why it can not be right, or is in doubt; "" for no reason.
        is_impossible: Whether it contradicts another printed number.
    """

    metric: str
    dataset: str
    method: str
    value: PaperCell
    doubt: str
    is_impossible: bool = False

    @property
    def key(self) -> Key:
        """Metric, data set, method."""
        return self.metric, self.dataset, self.method

    @property
    def sign(self) -> int:
        """A difference times this is positive where it is better."""
        return 1 if METRICS[self.metric].greater_is_better else -1


@cache
def printed_cells() -> tuple[Printed, ...]:
    """All of them, in the order printed: by table, method and data set."""
    doubts = {(fault.metric, fault.dataset, fault.method): fault.reason for fault in find_faults()}
    impossible = {(fault.metric, fault.dataset, fault.method) for fault in find_impossible()}
    tabular = {name for name, facts in paper_datasets().items() if "domain" in facts}
    cells = []
    for table in paper_tables():
        for method, row in table.rows.items():
            for dataset in row:
                value = printed_value(table.metric, dataset, method) if dataset in tabular else None
                if value is not None:
                    key = (table.metric, dataset, method)
                    cells.append(Printed(*key, value, doubts.get(key, ""), key in impossible))
    return tuple(cells)


def printed_value(metric: str, dataset: str, method: str) -> PaperCell | None:
    """The number printed in the paper, in the units of METRICS."""
    cell = paper_value(metric, dataset, method)
    scale = next((table.scale for table in paper_tables() if table.metric == metric), None)
    if cell is None or scale is None:
        return None
    return PaperCell(cell.mean / scale, None if cell.std is None else cell.std / scale)


def measure(results: StudyResults) -> dict[Key, Summary]:
    """What a study has of the printed numbers; a key is missing where there is no result."""
    found = {}
    for metric in dict.fromkeys(cell.metric for cell in printed_cells()):
        for dataset, row in results.scores(metric).items():
            for method, trials in row.items():
                summary = summarise(trials)
                if summary.n:
                    found[metric, dataset, method] = summary
    return found


def judge(cell: Printed, ours: Summary) -> str:
    """One of VERDICTS: reproduced, where our mean lies within two standard deviations of the printed one.

    The larger deviation of the two counts, since the paper's trials and ours need not vary alike.
    """
    spread = float(np.nanmax([ours.std, cell.value.std or 0.0]))
    if abs(ours.mean - cell.value.mean) <= 2 * spread + ROUNDING:
        return "reproduced"
    return "better" if cell.sign * (ours.mean - cell.value.mean) > 0 else "worse"


def is_below(cell: Printed, mean: float) -> bool:
    """Whether a mean is worse than the printed one by more than rounding."""
    return cell.sign * (mean - cell.value.mean) < -ROUNDING


def has_features(dataset: str) -> bool:
    """Whether the features that the paper used can be had."""
    return all(file.url for file in DATASETS[dataset].files)


def as_printed(results: StudyResults) -> StudyResults:
    """The same results, in which the paper's text followed word by word has the paper's name: crisp.

    Where a study has both, our default reading of CRISP is left out.
    """
    study = results.study
    if _WORD_BY_WORD not in study.methods:
        return results
    methods = tuple(name for name in study.methods if name != "crisp")
    renamed = {run.key(): _rename(run) for run in results.runs if run.method in methods}
    return dataclasses.replace(
        results,
        study=dataclasses.replace(study, methods=tuple("crisp" if name == _WORD_BY_WORD else name for name in methods)),
        runs=tuple(renamed.values()),
        finished=tuple((renamed[run.key()], result) for run, result in results.finished if run.key() in renamed),
        states={run.key(): results.states[old] for old, run in renamed.items()},
        reasons={run.key(): results.reasons[old] for old, run in renamed.items() if old in results.reasons},
    )


def _rename(run: Run) -> Run:
    return dataclasses.replace(run, method="crisp") if run.method == _WORD_BY_WORD else run


def printed_text(cell: Printed) -> str:
    """The number as printed, with a question mark where it is in doubt."""
    std = math.nan if cell.value.std is None else cell.value.std
    return mean_and_std(Summary(cell.value.mean, std, 1)) + ("?" if cell.doubt else "")


def deciding_spread(cell: Printed, ours: Summary) -> float:
    """The standard deviation that decides the verdict: the larger of the two."""
    return max(value for value in (ours.std, cell.value.std or 0.0) if not math.isnan(value))
