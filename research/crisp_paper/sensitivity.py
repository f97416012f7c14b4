"""How much a method's own parameters matter: the rays of a star, in which one is varied and the others are fixed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from crisp_paper.panels import ValuePanel, value_chart
from onepos.bench.results import StudyResults, primary_metric, score_of
from onepos.bench.statistics import summarise
from onepos.metrics import METRICS
from onepos.report.page import Chart, Section, make_section
from onepos.report.study_scores import heading, summary_cell
from onepos.report.tables import Cell, Table

_DECADE = 10  # from the least to the greatest value, for a logarithmic axis
_APART = 0.28  # of the length of the axis, how far from the first number a centre stands that is none


@dataclass(frozen=True)
class Ray:
    """One parameter of a method, varied.

    Attributes:
        method: Whose it is.
        parameter: Its name.
        values: As they stand on an axis from left to right; the centre's is among them.
        trials: Data set → for each value the test scores, none where it was not run.
        centres: Data set → the position of the centre among the values.
    """

    method: str
    parameter: str
    values: Sequence[Any]
    trials: Mapping[str, Sequence[Sequence[float]]]
    centres: Mapping[str, int]


def sensitivity_section(results: StudyResults) -> Section:
    """A panel and rows of a table for each parameter that a star varies; empty where there is none."""
    rays = find_rays(results)
    if not rays:
        return Section("sensitivity", "Sensitivity")
    panels, metric = [make_panel(ray) for ray in rays], METRICS[primary_metric(results.study)].title
    caption = (
        f"{metric} on the test rows when one parameter is varied and all others stay at the centre of the star, the "
        "hollow mark: mean over the trials, with a band of one standard deviation to either side. A centre that is no "
        "number stands first; the dotted line carries it on."
    )
    chart = Chart(partial(value_chart, panels, metric), caption)
    return make_section("sensitivity", "Sensitivity", folded=[sensitivity_table(results, rays)], chart=chart)


def find_rays(results: StudyResults) -> list[Ray]:
    """The rays that have results beside the centre; none where the study is no star."""
    if results.study.sampler != "star":
        return []
    metric = primary_metric(results.study)
    scores: dict[tuple[str, str, int], list[float]] = {}
    for run, result in results.finished:
        score = score_of(result, metric)
        if not result["diverged"] and not math.isnan(score):
            scores.setdefault((run.dataset, run.method, run.configuration), []).append(score)
    return [
        ray
        for method in results.study.methods
        for name in sorted(results.study.method_space.get(method, ()))
        for ray in _ray(results, method, name, scores)
    ]


def make_panel(ray: Ray) -> ValuePanel:
    """The ray as a panel of a chart: numbers at their place, on a logarithmic axis if they span a decade."""
    numbers = [float(value) for value in ray.values if _is_number(value)]
    is_apart = len(numbers) == len(ray.values) - 1 and not _is_number(ray.values[0])
    is_log = len(numbers) > 1 and numbers[0] > 0 and numbers[-1] / numbers[0] >= _DECADE
    if len(numbers) == len(ray.values):
        places = np.array(numbers)
    elif is_apart:
        step = (numbers[-1] / numbers[0]) ** _APART if is_log else _APART * (numbers[-1] - numbers[0]) or 1.0
        places = np.array([numbers[0] / step if is_log else numbers[0] - step, *numbers])
    else:
        places, is_log = np.arange(len(ray.values), dtype=float), False
    summaries = {dataset: [summarise(values) for values in row] for dataset, row in ray.trials.items()}
    curves = {name: np.array([[each.mean, each.std] for each in row]).T for name, row in summaries.items()}
    title = f"{ray.method}: {ray.parameter}"
    return ValuePanel(title, [_text(value) for value in ray.values], places, is_log, curves, ray.centres, is_apart)


def sensitivity_table(results: StudyResults, rays: Sequence[Ray]) -> Table:
    """Parameter and value × data set: the test score; floor and oracle below."""
    study, metric = results.study, primary_metric(results.study)
    rows = []
    for ray in rays:
        for k, value in enumerate(ray.values):
            cells = [_cell(results, ray, dataset, k) for dataset in study.datasets]
            rows.append([Cell(f"{ray.method}: {ray.parameter}"), Cell(_text(value)), *cells])
    scores = results.scores(metric)
    for method in dict.fromkeys((study.floor, study.oracle)):
        cells = [summary_cell(scores[name][method], results.n_trials(name)) for name in study.datasets]
        rows.append([heading(results, method), Cell(""), *cells])
    about = (
        f"{METRICS[metric].title} on the test rows, mean ± standard deviation over the trials. One parameter is "
        "varied, all others stay at the centre of the star, which is marked. Nothing is chosen among the values."
    )
    return Table("sensitivity", "Sensitivity", ["Parameter", "Value", *study.datasets], rows, about)


def _ray(
    results: StudyResults, method: str, name: str, scores: Mapping[tuple[str, str, int], list[float]]
) -> Iterator[Ray]:
    star, study = results.study.star(method), results.study
    found: dict[str, list[tuple[Any, list[float], bool]]] = {}
    for dataset in study.datasets:
        centre = study.centre_value(dataset, method, name)
        found[dataset] = [
            (point.get(name, centre), scores.get((dataset, method, k), []), k == 0)
            for k, point in enumerate(star)
            if k == 0 or name in point
        ]
    if not any(trials and not is_centre for row in found.values() for _, trials, is_centre in row):
        return
    values = _in_order([value for row in found.values() for value, _, _ in row])
    by_value = {dataset: {_text(value): trials for value, trials, _ in row} for dataset, row in found.items()}
    known = {dataset: row for dataset, row in by_value.items() if any(row.values())}
    trials = {dataset: [row.get(_text(value), []) for value in values] for dataset, row in known.items()}
    texts = [_text(value) for value in values]
    centres = {dataset: texts.index(_text(found[dataset][0][0])) for dataset in known}
    yield Ray(method, name, values, trials, centres)


def _in_order(values: Sequence[Any]) -> list[Any]:
    """Each value once: what is no number first, as it comes, then the numbers."""
    distinct = {_text(value): value for value in values}.values()
    others = [value for value in distinct if not _is_number(value)]
    return others + sorted(value for value in distinct if _is_number(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    return f"{value:g}" if _is_number(value) else str(value)


def _cell(results: StudyResults, ray: Ray, dataset: str, k: int) -> Cell:
    if dataset not in ray.trials:
        return summary_cell([math.nan], 0)
    cell = summary_cell(ray.trials[dataset][k], results.n_trials(dataset))
    return Cell(cell.text, "centre" if ray.centres[dataset] == k else "", cell.notes)
