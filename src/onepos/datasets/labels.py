"""From written labels to 0/1 columns, and from a mistyped name to the right one."""

import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from onepos.datasets.dataset import Labels


def binarise(cells: Iterable[Any], separator: str | None = None) -> tuple[Labels, tuple[str, ...]]:
    """Turn one cell per row into an indicator matrix.

    Args:
        cells: One label per cell, several joined by `separator`, or a list of labels; an empty cell means no
            positive label.
        separator: What stands between two labels of one cell.

    Returns:
        The (n, c) indicator and the label names: numbers in their order, then text in alphabetical order.
    """
    rows = [_split_cell(cell, separator) for cell in cells]
    names = sorted({name for row in rows for name in row}, key=_natural_order)
    if not names:
        raise ValueError("there must be at least one label; every label cell is empty. Check the label column.")
    column = {name: j for j, name in enumerate(names)}
    Y = np.zeros((len(rows), len(names)), dtype=np.uint8)
    counts = [len(row) for row in rows]
    Y[np.repeat(np.arange(len(rows)), counts), [column[name] for row in rows for name in row]] = 1
    return Y, tuple(names)


def suggest(name: str, known: Sequence[str]) -> str:
    """Return "did you mean 'x'?" where a known name is close, else the first known names."""
    close = get_close_matches(name, known, n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"known: {', '.join(known[:12])}{', …' if len(known) > 12 else ''}."


def _split_cell(cell: Any, separator: str | None) -> list[str]:
    parts: Iterable[str] = map(str, cell)
    if isinstance(cell, str):
        parts = [cell] if separator is None else cell.split(separator)
    return [name for part in parts if (name := part.strip())]


def _natural_order(name: str) -> tuple[bool, float, str]:
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    # A label may be called "nan", which would upset any sorting.
    return (True, 0.0, name) if math.isnan(number) else (False, number, name)
