"""The tables behind the page on reproduction: a verdict for every printed number of every method, and the cause."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from crisp_paper.bridges import (
    Evidence,
    account_table,
    effect_tables,
    reason_table,
    verdict_table,
)
from crisp_paper.paper import find_faults
from crisp_paper.printed import NOT_COMPARABLE, VERDICTS, Key, Printed, has_features, judge, printed_cells
from crisp_paper.printed_tables import NOT_RUN, cell_table
from crisp_paper.reading_tables import value_tables
from crisp_paper.shortfall import reach_table, shortfall_table
from onepos.bench.results import StudyResults
from onepos.bench.statistics import Summary
from onepos.metrics import METRICS
from onepos.report.page import Page, make_section
from onepos.report.tables import MISSING, Cell, Table, csv_table, percent

# The metrics by which the changes are measured: one within rows that rises, one that falls.
_MEASURED_BY = ("average_precision", "ranking_loss")


def make_cells(evidence: Evidence) -> Page:
    """The page with all tables."""
    status = {cell.key: _status(evidence, cell) for cell in printed_cells()}
    metrics = list(dict.fromkeys(cell.metric for cell in printed_cells()))
    effects = [effect_tables(evidence, metric) for metric in _MEASURED_BY]
    others = {evidence.published.study.name: evidence.ours}
    others |= {name: side for name, side in evidence.changed.items() if name != evidence.fair.study.name}
    sections = [
        make_section("counts", "In short", *(_count_table(status, part) for part in range(3))),
        make_section("doubts", "Printed numbers in doubt", _doubt_table()),
        make_section(
            "cells",
            "Cell by cell",
            *(cell_table(evidence.published, evidence.ours, status, metric) for metric in metrics),
        ),
        make_section("by-reading", "CRISP and CRISP-val by reading", *value_tables(evidence)),
        make_section(
            "changes",
            "Why: one change at a time",
            *(overview for overview, *_ in effects),
            folded=(table for tables in zip(*(rest for _, *rest in effects), strict=True) for table in tables),
        ),
        make_section(
            "accounts",
            "Why: what accounts for the numbers that are not reproduced",
            verdict_table(evidence),
            account_table(evidence, "dataset"),
            account_table(evidence, "method"),
            folded=(reason_table(evidence, dataset) for dataset in evidence.datasets),
        ),
        make_section("reach", "", reach_table(evidence.fair), shortfall_table(evidence.fair, others)),
        make_section("runs", "What was run", _run_table(evidence)),
    ]
    return Page(
        title="The paper’s tables, cell by cell",
        lead=_lead(evidence, status),
        alert=_alert(evidence),
        tiles=_tiles(status),
        sections=[section for section in sections if section.tables],
        downloads={"cells.csv": _cells_csv(evidence, status)},
    )


def _status(evidence: Evidence, cell: Printed) -> str:
    """A verdict, or why there is none."""
    if cell.key in evidence.ours:
        return judge(cell, evidence.ours[cell.key])
    return NOT_RUN if has_features(cell.dataset) else NOT_COMPARABLE


def _count_table(status: Mapping[Key, str], part: int) -> Table:
    """Metric, data set or method (0, 1, 2) × verdict: how many numbers."""
    name = ("Metric", "Data set", "Method")[part]
    kinds = (*VERDICTS, NOT_RUN, NOT_COMPARABLE)
    rows = []
    for value in (*dict.fromkeys(key[part] for key in status), "all"):
        counts = Counter(kind for key, kind in status.items() if value in (key[part], "all"))
        judged = sum(counts[kind] for kind in VERDICTS)
        share = percent(counts["reproduced"] / judged) if judged else MISSING
        title = METRICS[value].title if part == 0 and value in METRICS else value
        rows.append([Cell(title), *(Cell(str(counts[kind])) for kind in kinds), Cell(share)])
    about = (
        "Reproduced: our mean lies within two standard deviations of the printed one, the larger deviation of the two, "
        "rounding allowed for. Better, worse: it does not. Share: reproduced of those that were run."
    )
    header = [name, *kinds, "share"]
    return Table(f"counts-{name.lower().replace(' ', '-')}", f"By {name.lower()}", header, rows, about)


def _doubt_table() -> Table:
    rows = [
        [
            Cell(fault.label),
            *map(Cell, (METRICS[fault.metric].title, fault.dataset or "all", fault.method, fault.reason)),
        ]
        for fault in find_faults()
    ]
    about = "What can not be right, or does not follow from the other printed numbers; in the tables a question mark."
    header = ["Table", "Metric", "Data set", "Method", "Reason"]
    return Table("doubts", "Printed numbers in doubt", header, rows, about, is_prose=True)


def _run_table(evidence: Evidence) -> Table:
    """Study × data set: runs finished of those planned."""
    sides: list[tuple[str, StudyResults]] = [(evidence.published.study.name, evidence.published)]
    sides += [(f"{each.results.study.name} ({each.change})", each.results) for each in evidence.bridges]
    sides.append((evidence.fair.study.name, evidence.fair))
    datasets = list(dict.fromkeys(name for _, side in sides for name in side.study.datasets))
    rows = []
    for name, side in sides:
        planned = Counter(run.dataset for run in side.runs)
        done = Counter(run.dataset for run, _ in side.finished)
        texts = [f"{done[each]} of {planned[each]}" if each in planned else MISSING for each in datasets]
        rows.append([Cell(name), *map(Cell, texts), Cell(f"{len(side.finished)} of {len(side.runs)}")])
    about = "Runs that are finished, of those planned. –: not planned."
    return Table("runs", "What was run", ["Study", *datasets, "All"], rows, about, is_prose=True)


def _lead(evidence: Evidence, status: Mapping[Key, str]) -> str:
    counts = Counter(status.values())
    judged = sum(counts[kind] for kind in VERDICTS)
    study = evidence.published.study
    trials = [str(evidence.published.n_trials(dataset)) for dataset in study.datasets]
    few_to_many = " to ".join(dict.fromkeys((min(trials, key=int), max(trials, key=int))))
    strange = dict.fromkeys(key[1] for key, kind in status.items() if kind == NOT_COMPARABLE)
    parts = [
        f"The paper prints {len(status)} tabular numbers: {_sizes(status)}. Run as published ({study.name}: network "
        f"{', '.join(study.networks)}, scaling {study.scaling}, selection {study.selection.metric}, {few_to_many} "
        f"trials), {counts['reproduced']} of the {judged} that could be compared are reproduced within two standard "
        f"deviations, {counts['better']} come out better and {counts['worse']} worse."
    ]
    if counts[NOT_RUN]:
        parts.append(f"{counts[NOT_RUN]} were not run.")
    if strange:
        parts.append(
            f"{counts[NOT_COMPARABLE]} are not comparable: the paper’s features of {', '.join(strange)} are not "
            "published, and other features give other numbers."
        )
    parts.append(
        "CRISP is the paper’s text followed word by word. These are the tables behind [the short page]"
        "(reproduction.md); every number follows from the runs of the studies named at the end."
    )
    return " ".join(parts)


def _sizes(status: Mapping[Key, str]) -> str:
    words = ("metrics", "data sets", "methods")
    return " × ".join(f"{len({key[part] for key in status})} {word}" for part, word in enumerate(words))


def _alert(evidence: Evidence) -> str:
    sides = [evidence.published, *(each.results for each in evidence.bridges), evidence.fair]
    missing = [
        f"{len(side.runs) - len(side.finished)} of {len(side.runs)} runs of {side.study.name}"
        for side in sides
        if len(side.finished) < len(side.runs)
    ]
    return f"Not all was run: {'; '.join(missing)} are missing." if missing else ""


def _tiles(status: Mapping[Key, str]) -> list[tuple[str, str]]:
    counts = Counter(status.values())
    judged = sum(counts[kind] for kind in VERDICTS)
    return [(str(counts[kind]), f"of {judged} numbers: {kind}") for kind in VERDICTS]


def _cells_csv(evidence: Evidence, status: Mapping[Key, str]) -> str:
    """Every printed number in long format, unrounded: ours, and what each change and the fair protocol give."""
    header = ["metric", "dataset", "method", "paper_mean", "paper_std", "doubt", "verdict", "mean", "std", "n_trials"]
    header += [f"{name} {part}" for name in evidence.changed for part in ("mean", "std", "n_trials", "verdict")]
    rows = []
    for cell in printed_cells():
        row = [*cell.key, repr(cell.value.mean), _number(cell.value.std), cell.doubt, status[cell.key]]
        row += _numbers(evidence.ours.get(cell.key))
        for side in evidence.changed.values():
            summary = side.get(cell.key)
            row += [*_numbers(summary), judge(cell, summary) if summary else ""]
        rows.append(row)
    return csv_table(rows, header)


def _numbers(summary: Summary | None) -> list[str]:
    return ["", "", "0"] if summary is None else [repr(summary.mean), _number(summary.std), str(summary.n)]


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else repr(value)
