"""Which measured cause a number has that the published protocol does not reproduce: the first that holds of five."""

from __future__ import annotations

import dataclasses
from collections import Counter

from crisp_paper.bridges import (
    OTHER_SPLIT,
    Evidence,
    explanations,
    is_measured,
    remaining_gaps,
    single_changes,
)
from crisp_paper.printed import Printed, judge, printed_cells
from onepos.report.tables import MISSING, Cell, Table

ONE_CHANGE, ALL_CHANGES, NEARER, NO_CAUSE = "one change", "all changes", "nearer", "none"
CAUSES = (ONE_CHANGE, OTHER_SPLIT, ALL_CHANGES, NEARER, NO_CAUSE)


def find_lost(evidence: Evidence) -> list[Printed]:
    """The printed numbers of all methods that the published protocol does not reproduce, better ones included."""
    ours = evidence.ours
    return [cell for cell in printed_cells() if cell.key in ours and judge(cell, ours[cell.key]) != "reproduced"]


def cause_of(evidence: Evidence, cell: Printed) -> str:
    """One of CAUSES."""
    if single_changes(evidence, cell):
        return ONE_CHANGE
    found = explanations(evidence, cell)
    if OTHER_SPLIT in found:
        return OTHER_SPLIT
    if evidence.fair.study.name in found:
        return ALL_CHANGES
    return NEARER if remaining_gaps(evidence, cell) else NO_CAUSE


def is_weak(evidence: Evidence, cell: Printed) -> bool:
    """Whether single changes reproduce a number, but none would if its trials differed as they do without it."""
    sides = [evidence.changed[name][cell.key] for name in single_changes(evidence, cell)]
    std = evidence.control[cell.key].std if sides else 0.0
    return bool(sides) and all(judge(cell, dataclasses.replace(each, std=std)) != "reproduced" for each in sides)


def needs_no_change(evidence: Evidence, cell: Printed) -> bool:
    """Whether the published protocol reproduces a number at the points and in the trials of the single changes."""
    return cell.key in evidence.control and judge(cell, evidence.control[cell.key]) == "reproduced"


def cause_table(evidence: Evidence) -> Table:
    """Data set × cause: how many of the numbers that are not reproduced."""
    lost = find_lost(evidence)
    rows = []
    for dataset in (*evidence.datasets, "all"):
        mine = [cell for cell in lost if dataset in (cell.dataset, "all")]
        counts = Counter(cause_of(evidence, cell) for cell in mine)
        measured = sum(is_measured(evidence, cell) for cell in mine)
        texts = {cause: str(counts[cause]) for cause in CAUSES} | ({} if measured else {ONE_CHANGE: MISSING})
        numbers = [str(len(mine)), *texts.values(), str(len(mine) - measured)]
        rows.append([Cell(dataset), *map(Cell, numbers)])
    about = (
        "Numbers of all methods that the published protocol does not reproduce, by the first cause that holds. One "
        "change: a single change reproduces the number. Another split: it differs by no more than two standard "
        "deviations over new splits. All changes: the fair protocol reproduces it. Nearer: a change, or all together, "
        "comes nearer to it. None: none does. Last column: how many have no run with a single change."
    )
    header = ["Data set", "Differ", *CAUSES, "single changes not run"]
    return Table("causes", "Causes by data set", header, rows, about)


def unmeasured(evidence: Evidence) -> dict[str, list[Printed]]:
    """Why no single change was run → the numbers: their data set, or their method on data sets that have some."""
    without: dict[str, list[Printed]] = {}
    covered = {cell.dataset for cell in printed_cells() if is_measured(evidence, cell)}
    for cell in (cell for cell in find_lost(evidence) if not is_measured(evidence, cell)):
        without.setdefault(cell.method if cell.dataset in covered else cell.dataset, []).append(cell)
    return without
