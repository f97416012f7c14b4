"""What the command line prints: tables, progress, errors."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Advance = Callable[[str, int, int], None]


def show_table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """A table on standard output: drawn on a terminal, plain aligned columns elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(title=title or None, title_justify="left")
        for k, name in enumerate(header):
            table.add_column(name, justify="right" if _is_numeric(rows, k) else "left")
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    if title:
        print(title)
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    aligned = [f">{width}" if _is_numeric(rows, k) else f"<{width}" for k, width in enumerate(widths)]
    for row in [header, *rows]:
        print("  ".join(map(format, row, aligned)).rstrip())


def _is_numeric(rows: Sequence[Sequence[str]], column: int) -> bool:
    """Whether a column holds numbers, perhaps with a sign or a remark behind them."""
    cells = [row[column] for row in rows]
    return column > 0 and max(map(len, cells), default=0) < 20 and any(cell[:1].isdigit() for cell in cells)


def show_json(value: Any) -> None:
    """A value as JSON on standard output."""
    print(json.dumps(value, indent=1, ensure_ascii=False))


@contextmanager
def progress(quiet: bool) -> Iterator[Advance]:
    """Gives advance(what, step, steps): a bar on a terminal, ten plain lines per task elsewhere, on standard error.

    A step of −1 announces a long step.
    """
    if quiet:
        yield lambda what, step, steps: None
    elif sys.stderr.isatty():
        yield from _bar()
    else:
        yield _lines()


def _lines() -> Advance:
    printed: dict[str, int] = {}
    began: dict[str, float] = {}

    def advance(what: str, step: int, steps: int) -> None:
        if step < 0:
            print(f"{what} …", file=sys.stderr, flush=True)
        tenth = 10 * (step + 1) // max(steps, 1)
        if tenth != printed.get(what, 0):
            print(f"{what}: {step + 1}/{steps}{_time_left(what, step + 1, steps)}", file=sys.stderr, flush=True)
        printed[what] = tenth

    def _time_left(what: str, done: int, total: int) -> str:
        """At most, once it can be told: a training may end early."""
        spent = time.perf_counter() - began.setdefault(what, time.perf_counter())
        left = spent * (total - done) / max(done, 1)
        return f", at most {left:.0f} s more" if spent > 1 and left > 1 else ""

    return advance


def _bar() -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    times = TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *times)
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, Any] = {}

        def advance(what: str, step: int, steps: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=steps)
            bar.update(tasks[what], completed=step + 1)

        yield advance


def complain(sentence: str) -> None:
    """One sentence on standard error."""
    print(f"error: {sentence}", file=sys.stderr)


def show_number(value: Any) -> str:
    """A cell of a table; None and NaN stand for what is unknown."""
    if value is None or value != value:
        return "unknown"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
