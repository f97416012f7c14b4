"""What all charts share: theme, size in pixels, axes, and SVG.

Text stays text. Colours are CSS variables with the light value as fallback, so an SVG inlined in the
page follows its light or dark theme, and one saved on its own still looks right.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onepos.report.tables import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, NARROW = 920, 350  # widths in pixels at which the page shows a chart, on a desk and on a phone
INK, MUTED, GRID, CARD = "#1f2430", "#5d6675", "#dfe3ea", "#ffffff"
# Okabe and Ito's colour-blind-safe hues, the pale ones darkened to a contrast of 3:1 on white, in an order
# that keeps like hues apart also where the list starts again.
SERIES = ("#0072b2", "#d55e00", "#3a9ad9", "#cc79a7", "#009e73", "#c98500")

_VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", CARD: "card"}
_VARIABLES |= {colour: f"c{i}" for i, colour in enumerate(SERIES)}
_PIXELS_PER_INCH = 72  # matplotlib writes SVG at 72 units per inch: one unit is one pixel here
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a label may hold dollar signs
    "font.size": 13,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    **{f"{axis}tick.{kind}.size": 0 for axis in "xy" for kind in ("major", "minor")},
    "legend.frameon": False,
    "legend.borderaxespad": 0,
    "legend.borderpad": 0,
}


def render(draw: Callable[[Figure], None], width: int, height: int, name: str, title: str) -> str:
    """Draw on a fresh figure and return it as SVG, the same bytes for the same drawing.

    Args:
        draw: Puts the axes on the figure.
        width: Width in pixels.
        height: Height in pixels.
        name: Class of the SVG element; with the width, the salt of the identifiers inside it.
        title: What a screen reader reads out. Plain text of ours, never a user's.
    """
    import matplotlib.style
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    # "default" first: a user's own matplotlibrc must not change the page.
    with matplotlib.style.context(["default", _STYLE | {"svg.hashsalt": f"{name}-{width}"}]):
        figure = Figure(figsize=(width / _PIXELS_PER_INCH, height / _PIXELS_PER_INCH), dpi=_PIXELS_PER_INCH)
        draw(figure)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    opening = (
        f'<svg class="chart {name}" role="img" aria-label="{title}" viewBox="0 0 {width} {height}" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    return re.sub(r'style="[^"]*"', _use_theme, opening + svg[svg.index(">") + 1 :]).strip()


def add_axes(figure: Figure, margins: tuple[float, float, float, float]) -> Axes:
    """Axes with the given margins in pixels: left, bottom, right, top."""
    left, bottom, right, top = margins
    width, height = figure.get_size_inches() * _PIXELS_PER_INCH
    box = (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height)
    return figure.add_axes(box)


def scale_epochs(axes: Axes, epochs: Floats) -> None:
    """An epoch axis from the first to the last epoch, with whole numbers on it."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("epoch")
    axes.set_xlim(epochs.min(), max(epochs.max(), epochs.min() + 1))
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))


def scale_priors(axes: Axes, which: str, priors: Floats, is_log: bool = False) -> tuple[float, float]:
    """Limits of the "x" or "y" axis that hold all the known priors; zeros have no place on a log axis."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    known = priors[np.isfinite(priors) & (priors > 0)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.1, 1.0)
    limits = (low / 1.5, min(1.0, 1.25 * high)) if is_log else (0.0, min(1.0, 1.06 * high))
    axes.set(**{f"{which}scale": "log" if is_log else "linear", f"{which}lim": limits})
    if is_log:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 60 else (1, 3)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:g}")
    return limits


def add_legend(figure: Figure, n_columns: int) -> None:
    """The legend of the first axes at the top of the figure, flush with the axes' left edge if that fits."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    left = figure.axes[0].get_position().x0 if n_columns > 2 else 0.02
    anchor = (left, 1 - 4 / (figure.get_figheight() * _PIXELS_PER_INCH))
    figure.legend(handles, labels, loc="upper left", bbox_to_anchor=anchor, ncols=n_columns)


def label_ends(axes: Axes, x: Floats, y: Floats, names: Sequence[str]) -> None:
    """Write each curve's name to the right of the axes, apart from each other, tied to the curve's end."""
    box = axes.get_window_extent()
    points = axes.transData.transform(np.column_stack([x, y.clip(*axes.get_ylim())]))
    heights = spread(points[:, 1], gap=16, low=box.y0 + 6, high=box.y1 - 6)
    to_axes = axes.transAxes.inverted()
    for point, height, name in zip(points, heights, names, strict=True):
        tie = to_axes.transform(np.array([point, [box.x1 + 14, height]]))
        axes.plot(*tie.T, transform=axes.transAxes, color=MUTED, lw=0.8, alpha=0.6, clip_on=False)
        axes.annotate(name, tie[1], (4, 0), "axes fraction", "offset points", va="center_baseline", fontsize=13)


def spread(heights: Floats, gap: float, low: float, high: float) -> Floats:
    """Move heights apart to at least the gap, as little as possible in squares, within [low, high].

    >>> spread(np.array([5.0, 5.0, 20.0]), gap=2, low=0, high=30).tolist()
    [4.0, 6.0, 20.0]
    """
    from scipy.optimize import isotonic_regression

    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(len(heights))
    # With the steps taken off, "at least the gap apart" reads "not decreasing".
    flat = isotonic_regression(heights[order] - steps).x
    placed = np.empty(len(heights))
    placed[order] = np.clip(flat, low, max(low, high - steps[-1])) + steps
    return placed


def shorten(name: object, length: int) -> str:
    """The name in at most that many characters."""
    text = " ".join(str(name).split())
    return text if len(text) <= length else text[: length - 1] + "…"


def _use_theme(style: re.Match[str]) -> str:
    text = style[0].replace("'DejaVu Sans'", "system-ui").replace("DejaVu Sans", "system-ui")
    for colour, variable in _VARIABLES.items():
        text = text.replace(f": {colour}", f": var(--{variable}, {colour})")
    return text
