"""Tables as text: from a result to formatted strings, and from strings to Markdown, CSV and LaTeX.

A table is a header and rows of strings; positions in it are (row, column), counted from zero.
"""

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

Result = Mapping[str, Any]
Table = tuple[list[str], list[list[str]]]
Position = tuple[int, int]

UNKNOWN = "unknown"
MISSING = "–"

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "–": "--",
    "−": "$-$",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}


class Cell(NamedTuple):
    """One run's value of one metric.

    Attributes:
        text: The value as shown.
        share: Share of the floor-to-oracle distance that the run closes, where that is defined.
        is_best: Whether no run but the oracle is better.
    """

    text: str
    share: float | None
    is_best: bool


def as_float(value: Any) -> float | None:
    """The value as a finite float, or None for what is not known (None, NaN, infinite)."""
    if value is None or not math.isfinite(value):
        return None
    return float(value)


def column(section: Mapping[str, Any] | None, name: str, length: int) -> list[float | None]:
    """A list of numbers from a section, or that many unknowns where the section has none."""
    values = (section or {}).get(name)
    return [None] * length if values is None else [as_float(value) for value in values]


def decimal(value: Any, digits: int = 3, missing: str = MISSING) -> str:
    """The value with a fixed number of digits after the point."""
    number = as_float(value)
    return missing if number is None else f"{number:.{digits}f}".replace("-", "−")


def percent(share: float) -> str:
    """A share as a whole percentage.

    >>> percent(0.841)
    '84 %'
    """
    return f"{100 * share:.0f} %".replace("-", "−")


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


def metric_cells(result: Result) -> list[list[Cell]]:
    """One list per metric, holding one cell per run.

    The share compares a method with the first run whose role is "floor" and the first whose role is
    "oracle"; it is left out where the floor is not worse than the oracle, since nothing is to be closed.
    """
    return [_metric_row(metric, result["runs"]) for metric in result["metrics"]]


def metrics_table(result: Result) -> Table:
    """One row per metric, one column per run; in brackets the share of the distance closed."""
    runs = result["runs"]
    rows = []
    for metric, cells in zip(result["metrics"], metric_cells(result), strict=True):
        texts = [c.text if c.share is None else f"{c.text} ({percent(c.share)})" for c in cells]
        rows.append([metric_title(metric), *texts])
    if any(as_float(run.get("seconds")) is not None for run in runs):
        rows.append(["Training time (s)", *(decimal(run.get("seconds"), 1) for run in runs)])
    return ["Metric", *map(run_title, runs)], rows


def best_cells(result: Result) -> set[Position]:
    """Positions in `metrics_table` of the best value of each metric, the oracle left out."""
    table = metric_cells(result)
    return {(i, j + 1) for i, cells in enumerate(table) for j, cell in enumerate(cells) if cell.is_best}


def priors_table(result: Result) -> Table:
    """One row per label: what was observed, what was estimated and, where known, what is true."""
    priors = result.get("priors") or {"label": []}
    n_labels = len(priors["label"])
    counts, shares, estimated, lower, upper, true = (
        column(priors, name, n_labels)
        for name in ("n_positive", "observed_share", "estimated", "lower", "upper", "true")
    )
    has_truth = any(value is not None for value in true)
    header = ["Label", "Observed positives", "Observed share", "Estimated prior", "Interval"]
    header += [*(["True prior", "Error"] if has_truth else []), "Enough positives"]
    rows = []
    for j, label in enumerate(priors["label"]):
        row = [str(label), decimal(counts[j], 0), decimal(shares[j]), decimal(estimated[j], missing=UNKNOWN)]
        row.append(_interval(lower[j], upper[j]))
        if has_truth:
            row += [decimal(true[j]), _signed_error(estimated[j], true[j])]
        rows.append([*row, reliability(result, j)])
    return header, rows


def reliability(result: Result, j: int) -> str:
    """Whether the estimate for label j can be trusted: "yes", "no" or "unknown"."""
    priors = result["priors"]
    if column(priors, "estimated", j + 1)[j] is None:
        return UNKNOWN
    flags = priors.get("reliable")
    return "yes" if flags is None or flags[j] else "no"


def metric_title(metric: Mapping[str, Any]) -> str:
    """The metric's title with an arrow for the direction that is better."""
    return f"{metric['title']} {'↑' if metric['greater_is_better'] else '↓'}"


def run_name(run: Mapping[str, Any]) -> str:
    """The run's name without its role, should the name end with it."""
    return str(run["name"]).removesuffix(f"({run.get('role')})").strip()


def run_title(run: Mapping[str, Any]) -> str:
    """The run's name, followed by its role in brackets for the oracle and the floor."""
    role = run.get("role", "method")
    return run_name(run) if role == "method" else f"{run_name(run)} ({role})"


def _metric_row(metric: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> list[Cell]:
    # With the sign turned, smaller is better for every metric.
    sign = -1.0 if metric["greater_is_better"] else 1.0
    scores = [as_float((run.get("scores") or {}).get(metric["name"])) for run in runs]
    costs = [None if score is None else sign * score for score in scores]
    roles = [run.get("role", "method") for run in runs]
    floor, oracle = (_first(costs, roles, role) for role in ("floor", "oracle"))
    contest = [cost for cost, role in zip(costs, roles, strict=True) if role != "oracle" and cost is not None]
    # Equal as shown is equal: bold must not hint at a difference that the digits do not show.
    best = decimal(sign * min(contest)) if len(contest) > 1 else None
    cells = []
    for score, cost, role in zip(scores, costs, roles, strict=True):
        text = decimal(score)
        share = _share_closed(cost, floor, oracle) if role == "method" else None
        cells.append(Cell(text, share, role != "oracle" and text == best))
    return cells


def _first(costs: Sequence[float | None], roles: Sequence[str], role: str) -> float | None:
    return next((cost for cost, name in zip(costs, roles, strict=True) if name == role), None)


def _share_closed(cost: float | None, floor: float | None, oracle: float | None) -> float | None:
    if cost is None or floor is None or oracle is None or floor <= oracle:
        return None
    return (floor - cost) / (floor - oracle)


def _interval(lower: float | None, upper: float | None) -> str:
    if lower is None or upper is None:
        return UNKNOWN
    return f"{decimal(lower)} to {decimal(upper)}"


def _signed_error(estimated: float | None, true: float | None) -> str:
    if estimated is None or true is None:
        return MISSING
    return f"{estimated - true:+.3f}".replace("-0.000", "+0.000").replace("-", "−")


def _markdown_row(cells: Sequence[str], bold: Sequence[bool] | None = None) -> str:
    texts = [" ".join(str(cell).replace("|", r"\|").split()) for cell in cells]
    marks = bold or [False] * len(texts)
    return "| " + " | ".join(f"**{t}**" if b else t for t, b in zip(texts, marks, strict=True)) + " |"


def _latex_text(text: str) -> str:
    return "".join(_LATEX.get(mark, mark) for mark in str(text))
