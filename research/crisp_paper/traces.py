"""Traces of a study, epoch by epoch: the class prior that each method predicts, and the error of its own estimate.

The traces are those of the runs that count, averaged over the trials. Studies without them have nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from statistics import mean
from typing import Any

import numpy as np

from crisp_paper.panels import EpochPanel, Names, epoch_chart
from onepos.bench.results import StudyResults
from onepos.report.page import Chart, Section, make_section
from onepos.report.study_scores import heading
from onepos.report.tables import MISSING, Cell, Floats, Table, as_float, decimal, percent, seconds_text

_N_SHOWN = 3  # labels of a data set for which the study names none


@dataclass(frozen=True)
class Traces:
    """The traces of a data set, means over the trials.

    Attributes:
        dataset: Its name.
        labels: The labels to show, counted from one.
        true: The true priors of all labels, shares in the training rows.
        scores: Method → mean score on the validation rows after each epoch, (epochs, labels).
        errors: Method with priors → mean |π̂ − π| over the labels after each epoch, NaN while none is known.
        estimating: Methods whose priors change after most epochs.
    """

    dataset: str
    labels: Sequence[int]
    true: Floats
    scores: Mapping[str, Floats]
    errors: Mapping[str, Floats]
    estimating: Sequence[str]

    @cached_property
    def n_epochs(self) -> int:
        """Of the longest trace."""
        return max(map(len, self.scores.values()))


def trace_sections(results: StudyResults) -> Iterator[Section]:
    """Curves by epoch, where the study has traces."""
    traces = read_traces(results)
    if not traces:
        return
    names = make_names(results, traces)
    panels, title = score_panels(traces), "Predicted class priors by epoch"
    draw = partial(epoch_chart, panels, names, "predicted-priors", title)
    caption = (
        "Mean probability of a label over the validation rows: the class prior that the predictions of a method amount "
        "to; mean over the trials. The dashed line named “true” is the true prior, the share in the training rows. "
        "Methods with priors of their own are thick. Labels are counted from one."
    )
    tables = [score_table(results, each) for each in traces]
    yield make_section("predicted-priors", title, folded=tables, chart=Chart(draw, caption))
    panels, title = error_panels(traces), "Convergence of π̂"
    if panels:
        draw = partial(epoch_chart, panels, names, "prior-errors", title)
        caption = (
            "Mean |π̂ − π| over the labels, of methods with priors of their own: mean over the trials. A curve starts "
            "with the first estimate."
        )
        table = error_table(results, [each for each in traces if each.errors])
        yield make_section("prior-convergence", title, folded=[table], chart=Chart(draw, caption))
    yield make_section("estimate-time", "", estimate_time_table(results, traces))


def read_traces(results: StudyResults) -> list[Traces]:
    """The traces of each data set that has some."""
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for (dataset, method, _), (_, result) in results.chosen.items():
        if result.get("trace"):
            found.setdefault(dataset, {}).setdefault(method, []).append(result)
    return [_traces(results, dataset, found[dataset]) for dataset in results.study.datasets if dataset in found]


def score_panels(traces: Iterable[Traces]) -> list[EpochPanel]:
    """A panel for each label shown: the mean score of every method, and the true prior."""
    return [
        EpochPanel(
            f"{each.dataset}, label {label}",
            {method: curve[:, label - 1] for method, curve in each.scores.items()},
            float(each.true[label - 1]),
        )
        for each in traces
        for label in each.labels
    ]


def error_panels(traces: Iterable[Traces]) -> list[EpochPanel]:
    """A panel for each data set: the error of the priors, of methods that have some."""
    return [EpochPanel(each.dataset, each.errors) for each in traces if each.errors]


def make_names(results: StudyResults, traces: Iterable[Traces]) -> Names:
    """Methods with priors of their own are drawn thick."""
    with_priors = dict.fromkeys(method for each in traces for method in each.errors)
    return Names(results.study.methods, results.study.floor, results.study.oracle, tuple(with_priors))


def score_table(results: StudyResults, traces: Traces) -> Table:
    """Label and method × epoch: the mean score."""
    rows = []
    for label in traces.labels:
        rows.append([Cell("true prior"), Cell(str(label)), *[Cell(decimal(traces.true[label - 1]))] * traces.n_epochs])
        for method in [name for name in results.study.methods if name in traces.scores]:
            numbers = traces.scores[method][:, label - 1]
            rows.append([heading(results, method), Cell(str(label)), *_cells(numbers, traces.n_epochs)])
    about = (
        "Mean probability over the validation rows after so many epochs, the mean of the trials; labels are counted "
        "from one."
    )
    header = ["Method", "Label", *map(str, range(1, traces.n_epochs + 1))]
    return Table(f"predicted-priors-{traces.dataset}", traces.dataset, header, rows, about)


def error_table(results: StudyResults, traces: Sequence[Traces]) -> Table:
    """Method and data set × epoch: the error of the priors."""
    n_epochs = max(each.n_epochs for each in traces)
    rows = [
        [heading(results, method), Cell(each.dataset), *_cells(each.errors[method], n_epochs)]
        for each in traces
        for method in results.study.methods
        if method in each.errors
    ]
    about = "Mean |π̂ − π| over the labels after so many epochs, the mean of the trials."
    header = ["Method", "Data set", *map(str, range(1, n_epochs + 1))]
    return Table("prior-convergence", "Convergence of π̂", header, rows, about)


def estimate_time_table(results: StudyResults, traces: Sequence[Traces]) -> Table | None:
    """Data set and method: time of the estimate and of an epoch."""
    rows = []
    for each in traces:
        for method in each.estimating:
            timings = [
                result["timing"]
                for run, result in results.finished
                if (run.dataset, run.method) == (each.dataset, method)
            ]
            # Runs of a stack share a pass that one of them is charged for: their mean is what each took.
            closing, epoch = (_mean_of(timings, name) for name in ("closing_seconds", "seconds_per_epoch"))
            if closing is not None and epoch:
                words = [method, seconds_text(closing), seconds_text(epoch), percent(closing / epoch)]
                rows.append([Cell(each.dataset), *map(Cell, [*words, f"{_mean_of(timings, 'stack'):.0f}"])])
    if not rows:
        return None
    about = (
        "Of methods that estimate after most epochs. Estimate: what follows the batches of an epoch, a pass over the "
        "training rows and the estimate; epoch: the whole of it, both in the median epoch. Training together makes the "
        "batches cheaper, not the estimate, and so the share larger."
    )
    header = ["Data set", "Method", "Estimate", "Epoch", "Share", "Trained together"]
    return Table("estimate-time", "Time of the prior estimate", header, rows, about)


def _traces(results: StudyResults, dataset: str, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Traces:
    true = np.mean([result["true_prior"] for runs in found.values() for result in runs], axis=0)
    wanted = results.study.shown_labels.get(dataset, range(1, _N_SHOWN + 1))
    with_priors = {method: runs for method, runs in found.items() if any(map(_has_priors, runs))}
    return Traces(
        dataset,
        [label for label in wanted if label <= len(true)],
        true,
        {method: _mean([_array(each["trace"]["mean_score"]) for each in runs]) for method, runs in found.items()},
        {method: _mean([_error(each) for each in runs]) for method, runs in with_priors.items()},
        [method for method, runs in with_priors.items() if any(_changes(each["trace"]["prior"]) for each in runs)],
    )


def _error(result: Mapping[str, Any]) -> Floats:
    """Mean |π̂ − π| of a run after each epoch, over the labels with an estimate."""
    apart = np.abs(_array(result["trace"]["prior"]) - np.array(result["true_prior"]))
    return _mean(list(apart.T))


def _has_priors(result: Mapping[str, Any]) -> bool:
    return any(value is not None for row in result["trace"]["prior"] for value in row)


def _changes(prior: Sequence[Sequence[float | None]]) -> bool:
    """Whether most epochs bring new priors."""
    new = [row != before for before, row in pairwise(prior)]
    return 2 * sum(new) > len(new)


def _array(rows: Sequence[Sequence[float | None]]) -> Floats:
    return np.array(rows, dtype=float)


def _mean(arrays: Sequence[Floats]) -> Floats:
    """Entry by entry over the arrays that have it; those that end early have none."""
    shape = np.max([array.shape for array in arrays], axis=0)
    stack = np.full((len(arrays), *shape), np.nan)
    for place, array in zip(stack, arrays, strict=True):
        place[: len(array)] = array
    count = np.isfinite(stack).sum(0)
    result: Floats = np.where(count, np.nansum(stack, axis=0) / np.maximum(count, 1), np.nan)
    return result


def _cells(numbers: Floats, length: int) -> list[Cell]:
    cells = [Cell(decimal(number)) for number in numbers]
    return cells + [Cell(MISSING)] * (length - len(cells))


def _mean_of(timings: Iterable[Mapping[str, Any]], name: str) -> float | None:
    known = [value for value in (as_float(timing.get(name)) for timing in timings) if value is not None]
    return mean(known) if known else None
