"""The printed numbers of CRISP and CRISP-val by reading, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crisp_paper.bridges import Evidence
from crisp_paper.printed import Printed, printed_cells, printed_text
from crisp_paper.verdicts import (
    HOW,
    IMPOSSIBLE,
    KINDS,
    METHODS,
    REACHED,
    TRUE_ONLY,
    Reading,
    Verdict,
    count_kinds,
    find_readings,
    how,
)
from onepos.bench.comparison import metric_title
from onepos.report.tables import MISSING, Cell, Table, mean_and_std, plain

TITLES = {"crisp": "CRISP", "crisp-val": "CRISP-val"}

# Verdicts that a cell names in a word; the others in full.
_SHORT = {"not reached with true priors": "no"}


def kind_table(verdicts: Mapping[str, Sequence[Verdict]], close: Mapping[str, Sequence[Verdict]]) -> Table:
    """Method × verdict: how many numbers.

    Args:
        verdicts: Of each method.
        close: The same where “wide” does not count as reached.
    """
    kinds = [*(f"{REACHED}, {each}" for each in HOW), *(kind for kind in KINDS if kind != REACHED)]
    rows = []
    for method in verdicts:
        for name, mine in ((TITLES[method], verdicts[method]), (f"{TITLES[method]}, without wide", close[method])):
            counts = count_kinds(mine)
            rows.append([Cell(name), *(Cell(str(counts[kind])) for kind in kinds)])
    return Table("kinds", "Verdicts", ["Method", *(kind.removeprefix("reached, ") for kind in kinds)], rows)


def number_table(verdicts: Sequence[Verdict]) -> Table:
    """Metric × data set of one method: the printed number, ours, the verdict and the reading."""
    cells = {(each.cell.metric, each.cell.dataset): each for each in verdicts}
    metrics = dict.fromkeys(cell.metric for cell in printed_cells())
    datasets = list(dict.fromkeys(dataset for _, dataset in cells))
    rows = [
        [Cell(metric_title(metric)), *(_number_cell(cells[metric, dataset]) for dataset in datasets)]
        for metric in metrics
    ]
    method = verdicts[0].cell.method
    return Table(f"numbers-{method}", TITLES[method], ["Metric", *datasets], rows)


def reading_table(evidence: Evidence) -> Table:
    """Reading × data set: how many of CRISP's five numbers it reaches."""
    printed = [cell for cell in printed_cells() if cell.method == "crisp" and cell.dataset in evidence.datasets]
    rows = []
    for reading in find_readings(evidence):
        counts = [
            _count(reading, [cell for cell in printed if name in (cell.dataset, "all")])
            for name in (*evidence.datasets, "all")
        ]
        texts = [reading.priors, reading.training, reading.protocol, *counts]
        rows.append([Cell(str(reading.number)), *map(Cell, texts)])
    header = ["Reading", "Priors", "Training", "Protocol", *evidence.datasets, "all"]
    return Table("readings", "CRISP by reading", header, rows, is_prose=True)


def value_tables(evidence: Evidence) -> list[Table]:
    """Per method and metric: reading × data set, what it gives and how it reaches the printed number."""
    return [
        _value_table(evidence, method, metric)
        for method in METHODS
        for metric in dict.fromkeys(cell.metric for cell in printed_cells())
    ]


def _value_table(evidence: Evidence, method: str, metric: str) -> Table:
    printed = {cell.dataset: cell for cell in printed_cells() if (cell.metric, cell.method) == (metric, method)}
    cells = {dataset: printed[dataset] for dataset in evidence.datasets}
    rows = [[Cell("paper"), *(Cell(printed_text(cell)) for cell in cells.values())]]
    for reading in find_readings(evidence, method):
        ours = [reading.measured.get((metric, dataset)) for dataset in cells]
        texts = [
            f"{mean_and_std(summary)} {how(cell, summary)}".strip() if summary else MISSING
            for cell, summary in zip(cells.values(), ours, strict=True)
        ]
        rows.append([Cell(_name(reading)), *map(Cell, texts)])
    about = (
        "Yes: at least as good as printed. Near: within two printed standard deviations. Wide: within two of ours, "
        "which are larger. No word: not reached. –: not run. Readings with “fair” and true priors are the same runs "
        "for CRISP and CRISP-val."
    )
    name, title = f"by-reading-{method}-{metric.replace('_', '-')}", f"{TITLES[method]}: {metric_title(metric)}"
    return Table(name, title, ["Reading", *cells], rows, about, is_prose=True)


def _name(reading: Reading) -> str:
    return f"{reading.number}: {reading.priors}; {reading.training}; {reading.protocol}"


def _count(reading: Reading, cells: Sequence[Printed]) -> str:
    """Reached at all, and of these the ones at least as good as printed."""
    found = [
        how(cell, reading.measured[cell.metric, cell.dataset])
        for cell in cells
        if (cell.metric, cell.dataset) in reading.measured
    ]
    return f"{sum(map(bool, found))} ({found.count('yes')})" if found else MISSING


def _number_cell(verdict: Verdict) -> Cell:
    paper = plain(verdict.cell.value.mean)
    if verdict.ours is None or verdict.reading is None:
        return Cell(f"{paper}, {verdict.kind}")
    words = {REACHED: verdict.how, TRUE_ONLY: f"true, {verdict.how}", IMPOSSIBLE: IMPOSSIBLE}
    word = words.get(verdict.kind) or _SHORT.get(verdict.kind, verdict.kind)
    return Cell(f"{paper} / {plain(verdict.ours.mean)} {word}", str(verdict.reading.number))
