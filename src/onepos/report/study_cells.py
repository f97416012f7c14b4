"""Cells that several tables of a study share."""

from __future__ import annotations

from collections.abc import Sequence

from onepos.bench.results import StudyResults
from onepos.bench.statistics import FloatArray, summarise
from onepos.report.tables import Cell, mean_and_std


def heading(results: StudyResults, method: str) -> Cell:
    """The head of a method's row: its name, its role, and a dagger where it is privileged."""
    roles = {results.study.floor: "floor", results.study.oracle: "oracle"}
    is_privileged = method in results.privileged and method != results.study.oracle
    return Cell(method + (" †" if is_privileged else ""), mark=roles.get(method, ""))


def summary_cell(values: Sequence[float] | FloatArray, n_wanted: int, digits: int = 3) -> Cell:
    """Mean ± std of the trials, with a note where some are missing."""
    summary = summarise(values)
    is_short = 0 < summary.n < n_wanted
    notes = ((f"{summary.n} of {n_wanted} trials", "warning"),) if is_short else ()
    return Cell(mean_and_std(summary, digits), notes=notes)
