"""Charts of a study, as SVG: critical-difference diagram, and rank by budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from onepos.bench.statistics import Friedman
from onepos.report.charts.canvas import (
    CARD,
    INK,
    MUTED,
    NARROW,
    SERIES,
    WIDE,
    add_axes,
    label_ends,
    render,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_AXIS, _BAR, _ROW = 62, 10, 22  # height of the axis, distance of bars, distance of rows, all in pixels


def critical_difference_diagram(test: Friedman, name: str, width: int = WIDE) -> str:
    """Methods along an axis of mean ranks, the best to the left; a bar joins those that do not differ significantly.

    Args:
        test: Of the ranks.
        name: Tells apart the diagrams of a page.
        width: In pixels.
    """
    is_wide = width > NARROW
    side = 150 if is_wide else 96
    k = len(test.mean_ranks)
    top = _AXIS + 16 + _BAR * len(test.groups)
    height = top + _ROW * (k + 1) // 2 + 18
    # The ruler of the critical difference starts at 1 too, and may be longer than the ranks.
    unit = (width - 2 * side - 24) / max(k - 1, test.critical_difference)

    def place(rank: float) -> float:
        return side + 12 + unit * (rank - 1)

    def draw(figure: Figure) -> None:
        axes = _blank(figure, width, height)
        _draw_ruler(axes, place, k, test.critical_difference)
        for i, group in enumerate(test.groups):
            ends = [place(test.mean_ranks[each]) for each in (group[0], group[-1])]
            y = _AXIS + 14 + _BAR * i
            axes.plot([ends[0] - 4, ends[1] + 4], [y, y], color=SERIES[0], lw=4.5, solid_capstyle="round")
        names = list(test.mean_ranks)
        n_left = (k + 1) // 2
        for i, method in enumerate(names):
            is_left = i < n_left
            level = top + _ROW * (i if is_left else k - 1 - i) + 10
            x, rank = place(test.mean_ranks[method]), f"{test.mean_ranks[method]:.2f}"
            edge = side if is_left else width - side
            axes.plot([x, x, edge], [_AXIS, level, level], color=MUTED, lw=1)
            axes.plot([x], [_AXIS], "o", ms=5, color=INK)
            text = shorten(method, 15 if is_wide else 11)
            if is_wide:
                text = f"{text}  {rank}" if is_left else f"{rank}  {text}"
            axes.text(edge + (-5 if is_left else 5), level, text, ha="right" if is_left else "left", va="center")

    return render(draw, width, height, f"critical-difference-{name}", "Mean ranks and their critical difference")


def budget_chart(ranks: Mapping[int, Mapping[str, float]], floor: str, width: int = WIDE) -> str:
    """Mean rank of each method against the number of configurations it may choose from; "" for a single number."""
    if len(ranks) < 2:
        return ""
    last = ranks[max(ranks)]
    names = sorted(last, key=last.__getitem__)
    steps = np.array(sorted(ranks), dtype=float)
    curves = np.array([[ranks[int(m)].get(name, np.nan) for m in steps] for name in names])
    labels = [shorten(name, 16 if width > NARROW else 11) for name in names]
    height = max(300, 90 + 18 * len(names))

    def draw(figure: Figure) -> None:
        axes = add_axes(figure, (46, 44, 30 + 8 * max(map(len, labels)), 12))
        axes.set_xscale("log", base=2)
        axes.set_xlim(steps[0] / 1.06, steps[-1] * 1.06)
        axes.set_xticks(steps, [f"{m:g}" for m in steps])
        axes.minorticks_off()
        # Rank 1 is at the top: the axis shows the negative, and its labels do not.
        axes.set_ylim(-np.nanmax(curves) - 0.5, -np.nanmin(curves) + 0.5)
        axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
        axes.set_xlabel("configurations to choose from")
        axes.set_ylabel("mean rank")
        for i, (name, curve) in enumerate(zip(names, curves, strict=True)):
            hue, dashes = (MUTED, (0, (1, 1))) if name == floor else (SERIES[i % len(SERIES)], "-")
            marker = "os^D"[i // len(SERIES) % 4]
            axes.plot(steps, -curve, color=hue, ls=dashes, lw=2, marker=marker, ms=5.5, mec=CARD, mew=0.7)
        label_ends(axes, np.full(len(names), steps[-1]), -curves[:, -1], labels)

    return render(draw, width, height, "budget-chart", "Mean rank against the number of configurations")


def _blank(figure: Figure, width: int, height: int) -> Axes:
    """Axes without any mark whose units are pixels, counted from the top left."""
    axes = add_axes(figure, (0, 0, 0, 0))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return axes


def _draw_ruler(axes: Axes, place: Callable[[float], float], k: int, distance: float) -> None:
    """The axis of ranks, and above it a ruler as long as the critical difference."""
    axes.plot([place(1), place(k)], [_AXIS, _AXIS], color=INK, lw=1.2)
    step = 1 if place(2) - place(1) > 22 else 2 if place(3) - place(1) > 22 else 4
    for rank in range(1, k + 1, step):
        axes.plot([place(rank)] * 2, [_AXIS - 5, _AXIS], color=INK, lw=1.2)
        axes.text(place(rank), _AXIS - 8, str(rank), ha="center", va="bottom", color=MUTED, fontsize=12)
    start, stop = place(1), place(1 + distance)
    axes.plot([start, start, stop, stop], [28, 24, 24, 28], color=SERIES[1], lw=1.5)
    axes.text(start, 18, f"critical difference {distance:.2f}", va="bottom", color=MUTED, fontsize=12)
