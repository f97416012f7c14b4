"""Cells and tables, numbers as text, and tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onepos.bench.statistics import Summary

Floats = NDArray[np.float64]

Position = tuple[int, int]
"""Row and column of a cell, counted from zero."""

UNKNOWN = "unknown"
MISSING = "–"

_LATEX = {
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "–": "--",
    "−": "$-$",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: Its content.
        mark: A word or number behind it: a rank, a role.
        notes: Smaller lines below it, each with its tone: "better", "worse", "warning" or "" for none.
        is_best: Whether to set it in bold.
        tone: Of the text, as for the notes; also "unknown".
        heat: From 0 to 1, how strongly the page shades it; None for not at all.
    """

    text: str
    mark: str = ""
    notes: tuple[tuple[str, str], ...] = ()
    is_best: bool = False
    tone: str = ""
    heat: float | None = None

    def flat(self) -> str:
        """All of it in one line; where there is no colour, better and worse are written out."""
        notes = "; ".join(f"{text} {tone}" if tone in ("better", "worse") else text for text, tone in self.notes)
        return self.text + (f" ({self.mark})" if self.mark else "") + (f" [{notes}]" if notes else "")


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        name: Its identifier, in kebab case.
        title: Its heading.
        header: One text per column.
        rows: The first cell of a row is its heading.
        about: Sentences on how to read it.
        is_prose: Whether the cells hold words that may be broken into lines.
    """

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    about: str = ""
    is_prose: bool = False

    def texts(self) -> list[list[str]]:
        """Each cell in one line."""
        return [[cell.flat() for cell in row] for row in self.rows]

    def markdown(self) -> str:
        """The table in Markdown."""
        return markdown_table(self.texts(), self.header, self._bold())

    def latex(self) -> str:
        """The table as a LaTeX tabular."""
        return latex_table(self.texts(), self.header, self._bold())

    def csv(self) -> str:
        """The table as CSV."""
        return csv_table(self.texts(), self.header)

    def _bold(self) -> set[Position]:
        return {(i, j) for i, row in enumerate(self.rows) for j, cell in enumerate(row) if cell.is_best}


def as_float(value: Any) -> float | None:
    """The value as a finite float, or None where it is not known (None, NaN, infinite)."""
    if value is None or not math.isfinite(value):
        return None
    return float(value)


def as_array(values: Sequence[Any]) -> Floats:
    """The values as floats, NaN where one is not known."""
    array = np.array(values, dtype=float)
    array[~np.isfinite(array)] = np.nan
    return array


def column(section: Mapping[str, Any] | None, name: str, length: int) -> Floats:
    """The numbers of that name in a section; all unknown where the section has none."""
    values = (section or {}).get(name)
    return np.full(length, np.nan) if values is None else as_array(values)


def decimal(value: Any, digits: int = 3, missing: str = MISSING) -> str:
    """The value with a fixed number of digits after the point."""
    number = as_float(value)
    return missing if number is None else f"{number:.{digits}f}".replace("-", "−")


def plain(value: float, digits: int = 3) -> str:
    """As `decimal`, but without the sign of a zero.

    >>> plain(-0.0001)
    '0.000'
    """
    return decimal(round(value, digits) + 0.0, digits)


def signed(value: float, digits: int = 3) -> str:
    """A difference with its sign.

    >>> signed(-0.25), signed(0.25), signed(0.0001), signed(float("nan"))
    ('−0.250', '+0.250', '0.000', '–')
    """
    text = plain(value, digits)
    return f"+{text}" if round(value, digits) > 0 else text


def percent(share: float) -> str:
    """A share as a whole percentage.

    >>> percent(0.841)
    '84 %'
    """
    return f"{100 * share:.0f} %".replace("-", "−")


def grouped(number: int) -> str:
    """A whole number in groups of three digits, with spaces at which no line breaks."""
    return f"{number:,}".replace(",", "\u00a0")


def p_value(p: float) -> str:
    """A p-value in four digits, or below which it lies; a half is rounded up, as in print.

    >>> p_value(0.03125)
    '0.0313'
    """
    if math.isnan(p):
        return MISSING
    return f"{p + 1e-9:.4f}" if p >= 0.0001 else "< 0.0001"


def seconds_text(value: float) -> str:
    """Seconds, or milliseconds below one."""
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < 100 else f"{value:.0f} s"


def mean_and_std(summary: Summary, digits: int = 3) -> str:
    """Mean ± std, the mean alone for a single trial."""
    if not summary.n:
        return MISSING
    spread = "" if math.isnan(summary.std) else f" ± {summary.std:.{digits}f}"
    return plain(summary.mean, digits) + spread


def priors_table(priors: Mapping[str, Any], name: str, title: str, about: str = "") -> Table:
    """One row per label: what was observed and estimated and, where known, true prior, predicted share and threshold.

    Args:
        priors: A column per key: `label`; `n_positive` and `observed_share`; `estimated`, `lower`, `upper` and
            `reliable`; `true`, `predicted_share` and `threshold`. None or NaN is unknown.
        name: Identifier of the table.
        title: Its heading.
        about: Sentences on how to read it.
    """
    labels = priors["label"]

    def texts(key: str, digits: int = 3, missing: str = MISSING) -> list[str]:
        return [decimal(value, digits, missing) for value in column(priors, key, len(labels))]

    intervals = zip(texts("lower", missing=UNKNOWN), texts("upper", missing=UNKNOWN), strict=True)
    columns: dict[str, list[str]] = {"Label": [str(label) for label in labels]}
    for head, key, digits in (("Observed positives", "n_positive", 0), ("Observed share", "observed_share", 3)):
        if np.isfinite(column(priors, key, len(labels))).any():
            columns[head] = texts(key, digits)
    columns["Estimated prior"] = texts("estimated", missing=UNKNOWN)
    columns["Interval"] = [UNKNOWN if UNKNOWN in ends else " to ".join(ends) for ends in intervals]
    estimated, true = (column(priors, key, len(labels)) for key in ("estimated", "true"))
    if np.isfinite(true).any():
        columns |= {"True prior": texts("true"), "Error": [signed(value) for value in (estimated - true).tolist()]}
    for head, key in (("Mean predicted", "predicted_share"), ("Threshold", "threshold")):
        if np.isfinite(column(priors, key, len(labels))).any():
            columns[head] = texts(key)
    if priors.get("reliable") is not None:
        narrow = ["yes" if flag else "no" for flag in priors["reliable"]]
        columns["Narrow interval"] = [
            text if is_known else UNKNOWN for text, is_known in zip(narrow, np.isfinite(estimated), strict=True)
        ]
    tones = {"no": "worse", UNKNOWN: "unknown"}
    rows = [[Cell(text, tone=tones.get(text, "")) for text in row] for row in zip(*columns.values(), strict=True)]
    return Table(name, title, list(columns), rows, about)


def markdown_table(rows: Sequence[Sequence[str]], header: Sequence[str], bold: Collection[Position] = ()) -> str:
    """A GitHub-flavoured Markdown table: first column to the left, the others to the right.

    >>> print(markdown_table([["yeast", "0.17"]], ["data", "loss"], bold={(0, 1)}))
    | data | loss |
    |:---|---:|
    | yeast | **0.17** |
    """
    lines = [_markdown_row(header), "|:---|" + "---:|" * (len(header) - 1)]
    for i, row in enumerate(rows):
        lines.append(_markdown_row(row, [(i, j) in bold for j in range(len(row))]))
    return "\n".join(lines)


def csv_table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """The table as CSV (RFC 4180 quoting, newline line ends)."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()


def latex_table(rows: Sequence[Sequence[str]], header: Sequence[str], bold: Collection[Position] = ()) -> str:
    """The table as a LaTeX tabular with booktabs rules; every special character is escaped."""
    lines = [r"\begin{tabular}{l" + "r" * (len(header) - 1) + "}", r"\toprule"]
    lines += [" & ".join(map(_latex_text, header)) + r" \\", r"\midrule"]
    for i, row in enumerate(rows):
        cells = [_latex_text(text) for text in row]
        cells = [rf"\textbf{{{text}}}" if (i, j) in bold else text for j, text in enumerate(cells)]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _markdown_row(cells: Sequence[str], bold: Sequence[bool] | None = None) -> str:
    texts = [" ".join(str(cell).replace("|", r"\|").split()) for cell in cells]
    marks = bold or [False] * len(texts)
    return "| " + " | ".join(f"**{t}**" if b else t for t, b in zip(texts, marks, strict=True)) + " |"


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(mark, mark) for mark in " ".join(str(text).split()))
