"""Charts of a study in several panels, as SVG: curves by epoch, and scores by the value of a parameter."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onepos.report.charts.canvas import (
    CARD,
    INK,
    MUTED,
    NARROW,
    SERIES,
    WIDE,
    add_axes,
    add_legend,
    label_ends,
    render,
    scale_epochs,
    shorten,
)
from onepos.report.tables import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HUES = tuple(SERIES[k] for k in (0, 1, 4, 3, 5, 2))  # the first three as far apart as can be
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)))  # where the hues start again
_TRUTH = "true"


class Grid:
    """Panels of equal size, row by row.

    Args:
        n_panels: How many.
        n_columns: At most so many beside each other.
        width: Of the whole, in pixels.
        row_height: Of a panel with its margins.
        margins: Of a panel: left, bottom, right, top.
        top: Pixels above all panels.
    """

    def __init__(
        self,
        n_panels: int,
        n_columns: int,
        width: int,
        row_height: int,
        margins: tuple[float, float, float, float],
        top: int = 0,
    ) -> None:
        self.n_columns = min(n_columns, n_panels)
        self.width, self.row_height, self.margins, self.top = width, row_height, margins, top
        self.height = top + row_height * -(-n_panels // self.n_columns)

    def add(self, figure: Figure, k: int, title: str) -> Axes:
        """The axes of panel k."""
        row, column = divmod(k, self.n_columns)
        left, bottom, right, top = self.margins
        step = self.width / self.n_columns
        below = self.height - self.top - (row + 1) * self.row_height
        margins = (
            column * step + left,
            below + bottom,
            self.width - (column + 1) * step + right,
            self.top + row * self.row_height + top,
        )
        axes = add_axes(figure, margins)
        axes.set_title(title, loc="left", fontsize=13, color=INK, fontweight="bold")
        return axes


@dataclass(frozen=True)
class EpochPanel:
    """Curves by epoch.

    Attributes:
        title: Of the panel.
        curves: Name → a number after each epoch, NaN where there is none.
        truth: Where the curves should lie, if that is known.
    """

    title: str
    curves: Mapping[str, Floats]
    truth: float | None = None


@dataclass(frozen=True)
class ValuePanel:
    """Scores by the value of a parameter.

    Attributes:
        title: Of the panel.
        ticks: The values as text, from left to right.
        places: Where they lie on the axis.
        is_log: Whether the axis is logarithmic.
        curves: Data set → the mean and the standard deviation at each value, (2, values); NaN where there is none.
        centres: Data set → the position among the values of the one that all other panels keep.
        is_apart: Whether the first value is a centre that is no number, unlike the others.
    """

    title: str
    ticks: Sequence[str]
    places: Floats
    is_log: bool
    curves: Mapping[str, Floats]
    centres: Mapping[str, int]
    is_apart: bool = False


@dataclass(frozen=True)
class Names:
    """How each curve is drawn, the same in all panels.

    Attributes:
        all: The names of all curves.
        floor: Drawn in grey.
        oracle: Drawn in the colour of text.
        bold: Drawn thick, and given the first hues.
    """

    all: Sequence[str]
    floor: str
    oracle: str
    bold: Collection[str] = ()

    def style(self, name: str) -> dict[str, Any]:
        """Colour, dashes and width of a curve."""
        width = 2.8 if name in self.bold else 1.4
        references = {self.floor: MUTED, self.oracle: INK}
        if name in references:
            return {"color": references[name], "ls": "-", "lw": width}
        rank = [each for each in (*self.bold, *self.all) if each not in references].index(name)
        return {"color": _HUES[rank % len(_HUES)], "ls": _DASHES[rank // len(_HUES) % len(_DASHES)], "lw": width}


def epoch_chart(panels: Sequence[EpochPanel], names: Names, name: str, title: str, width: int = WIDE) -> str:
    """Panels of curves by epoch, each with the names of its curves at their ends.

    Args:
        panels: From left to right, three in a row where the width allows.
        names: How the curves are drawn.
        name: Class of the SVG element.
        title: What a screen reader reads out.
        width: In pixels.
    """
    n_curves = max(len(panel.curves) + (panel.truth is not None) for panel in panels)
    right = 22 + 7 * max(len(shorten(each, 12)) for each in (*names.all, _TRUTH))
    grid = Grid(len(panels), 3 if width > NARROW else 1, width, max(230, 80 + 16 * n_curves), (44, 42, right, 32))

    def draw(figure: Figure) -> None:
        for k, panel in enumerate(panels):
            _draw_epochs(grid.add(figure, k, panel.title), panel, names)

    return render(draw, width, grid.height, name, title)


def value_chart(panels: Sequence[ValuePanel], metric: str, width: int = WIDE) -> str:
    """Panels of scores by value, one curve per data set, with a band of a standard deviation to either side.

    The centre, which all panels share, is a hollow mark. A centre that is no number stands first, and a dotted line
    continues it to the others.
    """
    datasets = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    in_a_row = max(1, min(len(datasets), (width - 60) // (50 + 8 * max(map(len, datasets)))))
    top = 14 + 20 * -(-len(datasets) // in_a_row)
    grid = Grid(len(panels), 2 if width > NARROW else 1, width, 290, (58, 34, 16, 34), top)
    numbers = np.concatenate(
        [
            curve[0] + sign * np.nan_to_num(curve[1])
            for panel in panels
            for curve in panel.curves.values()
            for sign in (-1, 1)
        ]
    )
    low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    margin = 0.05 * max(high - low, 0.02)

    def draw(figure: Figure) -> None:
        for k, panel in enumerate(panels):
            axes = grid.add(figure, k, panel.title)
            axes.set_ylim(low - margin, high + margin)
            if k % grid.n_columns == 0:
                axes.set_ylabel(metric)
            _draw_values(axes, panel, datasets)
        add_legend(figure, in_a_row)

    return render(draw, width, grid.height, "sensitivity", "Scores against the value of each parameter")


def _draw_epochs(axes: Axes, panel: EpochPanel, names: Names) -> None:
    epochs = np.arange(1, max(map(len, panel.curves.values())) + 1, dtype=float)
    scale_epochs(axes, epochs)
    known = np.concatenate([*panel.curves.values(), [panel.truth if panel.truth is not None else np.nan]])
    axes.set_ylim(0, 1.06 * float(np.nanmax(known)))
    ends: list[tuple[float, float, str, dict[str, Any]]] = []
    for name, curve in panel.curves.items():
        style = names.style(name)
        axes.plot(epochs[: len(curve)], curve, **style, zorder=3 if name in names.bold else 2)
        last = np.flatnonzero(np.isfinite(curve))[-1]
        ends.append((epochs[last], curve[last], name, style))
    if panel.truth is not None:
        style = {"color": INK, "ls": (0, (6, 3)), "lw": 1.8}
        axes.axhline(panel.truth, **style, zorder=4)
        ends.append((epochs[-1], panel.truth, _TRUTH, style))
    x, y, texts, styles = zip(*ends, strict=True)
    label_ends(axes, np.array(x), np.array(y), [shorten(text, 12) for text in texts])
    ties = axes.lines[-len(texts) :]
    for tie, text, name, style in zip(ties, axes.texts, texts, styles, strict=True):
        tie.set(color=style["color"], alpha=1)
        text.set(color=style["color"], fontsize=12, fontweight="bold" if name in (*names.bold, _TRUTH) else "normal")


def _draw_values(axes: Axes, panel: ValuePanel, datasets: Sequence[str]) -> None:
    if panel.is_log:
        axes.set_xscale("log")
    first, last = panel.places[0], panel.places[-1]
    pad = (last / first) ** 0.06 if panel.is_log else 0.06 * (last - first) or 0.5
    axes.set_xlim((first / pad, last * pad) if panel.is_log else (first - pad, last + pad))
    axes.minorticks_off()
    axes.set_xticks(panel.places, _spaced(axes, panel))
    for dataset, (mean, std) in panel.curves.items():
        k = datasets.index(dataset)
        hue, marker = _HUES[k % len(_HUES)], "os^D"[k // len(_HUES) % 4]
        centre = panel.centres[dataset]
        if panel.is_apart:
            axes.axhline(mean[centre], color=hue, ls=(0, (1, 1.5)), lw=1.4)
        known = np.isfinite(mean) & (np.arange(len(mean)) >= panel.is_apart)
        axes.fill_between(panel.places[known], (mean - std)[known], (mean + std)[known], color=hue, alpha=0.16, lw=0)
        axes.plot(
            panel.places[known], mean[known], color=hue, lw=2, marker=marker, ms=5, mec=CARD, mew=0.7, label=dataset
        )
        axes.errorbar(
            panel.places[centre],
            mean[centre],
            yerr=std[centre] if panel.is_apart and np.isfinite(std[centre]) else None,
            color=hue,
            marker=marker,
            ms=8.5,
            mfc=CARD,
            mew=2,
            lw=1.6,
            zorder=4,
        )


def _spaced(axes: Axes, panel: ValuePanel) -> list[str]:
    """The texts of the ticks, without those that would run into the next one that is shown."""
    places = axes.transData.transform(np.column_stack([panel.places, np.zeros(len(panel.places))]))[:, 0]
    free, texts = np.inf, []
    for place, text in zip(places[::-1], panel.ticks[::-1], strict=True):
        half = 3 + 3.8 * len(text)
        is_shown = place + half < free
        texts.append(text if is_shown else "")
        free = place - half if is_shown else free
    return texts[::-1]
