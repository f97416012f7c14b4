"""The chart of calibration: stated probabilities beside the share that was right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onepos.report.charts.canvas import CARD, MUTED, NARROW, SERIES, WIDE, add_axes, add_legend, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Bins = Sequence[Mapping[str, Any]]


def calibration_chart(series: Mapping[str, Bins], width: int = WIDE) -> str:
    """Share of yes against the stated probability, a curve per name; bars are 90 % intervals.

    Args:
        series: Name → bins, as `onepos.report.calibration.bin_entries` makes them; names of ours, at most six.
        width: In pixels.
    """
    is_wide = width > NARROW
    height = 440 if is_wide else 400 + 22 * len(series)

    def draw(figure: Figure) -> None:
        spare = max(0.0, width - 560) / 2  # a square, in the middle
        axes = add_axes(figure, (spare + 58, 48, spare + 18, 40 if is_wide else 18 + 22 * (len(series) + 1)))
        axes.plot([0, 1], [0, 1], color=MUTED, lw=1.2, ls=(0, (5, 3)), label="as stated")
        for k, (name, bins) in enumerate(series.items()):
            stated, share, low, high = (np.array([each[key] for each in bins]) for key in _KEYS)
            spread = np.array([share - low, high - share]).clip(0)
            axes.errorbar(stated, share, spread, fmt="none", ecolor=SERIES[k], elinewidth=1.4, alpha=0.55)
            axes.plot(stated, share, color=SERIES[k], lw=2, marker="os^D"[k % 4], ms=7, mec=CARD, label=name)
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="stated probability", ylabel="share of yes")
        add_legend(figure, 3 if is_wide else 1)

    return render(draw, width, height, "calibration-chart", "Share of yes against the stated probability")


_KEYS = ("stated", "share", "low", "high")
