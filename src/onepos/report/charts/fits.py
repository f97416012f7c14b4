"""Charts of class priors and of training, from a plain result, or "" where it has nothing to draw.

A result is a dictionary with `priors`, a column per key (label, n_positive, observed_share, estimated, lower, upper,
reliable, true), and `runs`, each with its name, its role and its history by epoch (epoch, loss, validation, prior).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
    scale_priors,
    shorten,
)
from onepos.report.tables import Floats, Table, as_array, as_float, column

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Result = Mapping[str, Any]

MAX_CURVES = 12
MAX_ROWS = 40
# The runs to compare with are neutral: the hues are for the methods.
_REFERENCES: dict[Any, tuple[str, Any]] = {"oracle": (INK, (0, (5, 2))), "floor": (MUTED, (0, (1, 1)))}


def prior_convergence(result: Result, width: int = WIDE) -> str:
    """The estimated prior of each label, epoch by epoch, with its true value as a dashed line.

    Takes the first run that has a prior history, and at most twelve labels (`convergence_labels`).
    The axis is logarithmic where the last estimates and the true priors span more than a factor of eight.
    """
    run, chosen = prior_run(result), convergence_labels(result)
    if run is None or not chosen:
        return ""
    names = _label_names(result)
    estimated = _prior_history(run)[:, chosen]
    true = column(result.get("priors"), "true", len(names))[chosen]
    epochs = np.asarray(run["history"]["epoch"], dtype=float)
    labels = [shorten(names[j], 24 if width > NARROW else 11) for j in chosen]

    def draw(figure: Figure) -> None:
        axes = add_axes(figure, (50, 44, 28 + 8 * max(map(len, labels)), 12))
        scale_epochs(axes, epochs)
        last = [np.flatnonzero(np.isfinite(curve))[-1] for curve in estimated.T]
        ends = estimated[last, range(len(chosen))]
        # A first estimate far off must not squeeze a logarithmic axis; it may run out of it.
        is_log = _span(np.concatenate([ends, true])) > 8
        scale_priors(axes, "y", np.concatenate([ends if is_log else estimated.ravel(), true]), is_log)
        # Hues go round in the order of the curves' ends: two curves of one hue are never neighbours.
        for rank, j in enumerate(np.argsort(ends, kind="stable")):
            hue, marker = SERIES[rank % len(SERIES)], "os"[rank // len(SERIES) % 2]
            axes.axhline(true[j], color=hue, lw=1.2, ls=(0, (5, 3)), alpha=0.8)
            axes.plot(epochs, estimated[:, j], color=hue, lw=2, marker=marker, ms=4.5, mec=CARD, mew=0.7)
        label_ends(axes, epochs[last], ends, labels)

    return render(draw, width, 430, "prior-convergence", "Estimated prior of each label per epoch")


def prior_chart(result: Result, width: int = WIDE) -> str:
    """Each label's prior: true, observed share, and estimated with its interval.

    One row per label, the commonest on top, with a hollow grey dot where the priors have a column `before`; beyond
    forty labels a scatter of the estimated against the true prior (against the observed share where no truth is known)
    on logarithmic axes. An estimate that is not reliable has a hollow marker.
    """
    priors = result.get("priors")
    if not priors or not priors["label"]:
        return ""
    is_wide, n_labels = width > NARROW, len(priors["label"])
    columns = ("true", "estimated", "lower", "upper", "observed_share", "before")
    values = {name: column(priors, name, n_labels) for name in columns}
    reliable = np.array([True] * n_labels if priors.get("reliable") is None else priors["reliable"], dtype=bool)
    if n_labels > MAX_ROWS:
        title = "Estimated against true prior, one dot per label"
        draw = partial(_draw_scatter, values=values, reliable=reliable)
        return render(draw, width, 560 if is_wide else 440, "prior-chart", title)
    names = [shorten(name, 24 if is_wide else 12) for name in priors["label"]]
    title = "Prior of each label: true, observed and estimated"
    draw = partial(_draw_rows, values=values, reliable=reliable, names=names)
    return render(draw, width, (84 if is_wide else 124) + 30 * n_labels, "prior-chart", title)


def prior_caption(table: Table) -> str:
    """How to read `prior_chart`.

    Args:
        table: Of the same priors, by `priors_table`.
    """
    if len(table.rows) > MAX_ROWS:
        caption = "One dot per label; on the dashed line the two are equal. The pale line is the confidence interval."
    else:
        caption = "The pale bar is the confidence interval of the estimate; an arrow marks one that goes on."
    if any(row[-1].text == "no" for row in table.rows):
        caption += " A hollow dot marks an estimate whose interval reaches below half or above double of it."
    if any(row[-1].text == "unknown" for row in table.rows):
        caption += " Unknown: the label has no estimate, as when it was never observed."
    return caption


def training_curves(result: Result, width: int = WIDE) -> str:
    """Training loss and validation score of each run, epoch by epoch; a ring marks the epoch kept."""
    runs = result.get("runs") or []
    titles = {"loss": "Training loss", "validation": result.get("validation_title") or "Validation score"}
    panels = [name for name in titles if any(_has_history(run, name) for run in runs)]
    if not panels:
        return ""
    legend_columns = min(4, len(runs)) if width > NARROW else 1
    head = 18 + 22 * -(-len(runs) // legend_columns)
    columns = len(panels) if width > NARROW else 1
    height = head + 290 * len(panels) // columns

    def draw(figure: Figure) -> None:
        for k, name in enumerate(panels):
            left, above = (k * width / columns, 0) if columns > 1 else (0, 290 * k)
            right, below = width - width / columns - left, height - head - 290 - above
            axes = add_axes(figure, (left + 54, below + 44, right + 14, head + above + 34))
            axes.set_title(titles[name], loc="left", fontsize=13, color=INK, fontweight="bold")
            _draw_history(axes, runs, name)
        add_legend(figure, legend_columns)

    return render(draw, width, height, "training-curves", "Training loss and validation score per epoch")


def has_curves(result: Result) -> bool:
    """Whether `training_curves` has something to draw."""
    return any(_has_history(run, name) for run in result.get("runs") or [] for name in ("loss", "validation"))


def run_name(run: Mapping[str, Any]) -> str:
    """The run's name without its role, should the name end with it."""
    return str(run["name"]).removesuffix(f"({run.get('role')})").strip()


def run_title(run: Mapping[str, Any]) -> str:
    """The run's name, followed by its role in brackets for the oracle and the floor."""
    role = run.get("role", "method")
    return run_name(run) if role == "method" else f"{run_name(run)} ({role})"


def prior_run(result: Result) -> Mapping[str, Any] | None:
    """The first run with a prior history: the one whose curves are shown."""
    return next((run for run in result.get("runs") or [] if _has_history(run, "prior")), None)


def convergence_labels(result: Result) -> list[int]:
    """The labels whose curves are shown: all that have an estimate, or twelve of them.

    The twelve are spread from the most to the least observed label, in equal steps of the logarithm of
    the number of observed positives: counts of labels fall off like a power, and so do the priors.
    """
    run = prior_run(result)
    if run is None:
        return []
    known = np.flatnonzero(np.isfinite(_prior_history(run)).any(axis=0))
    counts = column(result.get("priors"), "n_positive", len(_label_names(result)))[known]
    if len(known) <= MAX_CURVES:
        return [int(j) for j in known]
    size = np.log1p(np.nan_to_num(counts))
    chosen: list[int] = []
    for step in np.linspace(size.max(), size.min(), MAX_CURVES):
        nearest = int(np.argmin(np.abs(size - step)))
        chosen.append(int(known[nearest]))
        size[nearest] = np.inf  # taken
    return chosen


def _draw_rows(figure: Figure, values: Mapping[str, Floats], reliable: NDArray[np.bool_], names: Sequence[str]) -> None:
    is_wide = figure.get_figwidth() * figure.dpi > NARROW
    axes = add_axes(figure, (20 + 8 * max(map(len, names)), 44, 18, 40 if is_wide else 80))
    reference = np.where(np.isfinite(values["true"]), values["true"], values["observed_share"])
    order = np.argsort(np.nan_to_num(reference), kind="stable")
    rows = np.arange(len(names), dtype=float)
    true, estimated, lower, upper, share, before = (
        values[name][order] for name in ("true", "estimated", "lower", "upper", "observed_share", "before")
    )
    axes.hlines(rows, lower, upper, color=SERIES[0], lw=2.2, alpha=0.55)
    axes.plot([], [], color=SERIES[0], lw=2.2, alpha=0.55, label="interval")
    if np.isfinite(share).any():
        axes.plot(share, rows, "d", color=MUTED, ms=6.5, label="observed share")
    if np.isfinite(before).any():
        axes.plot(before, rows, "o", ms=8, mec=MUTED, mfc=CARD, mew=1.6, label="estimated before")
    if np.isfinite(true).any():
        axes.plot(true, rows, "|", color=SERIES[1], ms=17, mew=3, label="true prior")
    _dots(axes, estimated, rows, reliable[order], size=9)
    for row in rows[~np.isfinite(estimated)]:
        place: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "center"}
        axes.text(0.99, row, "unknown", color=MUTED, fontstyle="italic", fontsize=12, **place)
    axes.set_yticks(rows, [names[j] for j in order], color=INK)
    axes.set_ylim(-0.7, len(names) - 0.3)
    # A rare label's interval may reach up to 1; an arrow then marks it, and the dots stay apart.
    dots = np.concatenate([true, estimated, share, before])
    _, edge = scale_priors(axes, "x", np.concatenate([dots, upper.clip(max=1.4 * np.nanmax(dots, initial=0))]))
    beyond = rows[upper > edge]
    axes.plot(np.full(len(beyond), edge), beyond, ">", color=SERIES[0], ms=6, clip_on=False)
    axes.set_xlabel("prior: share of examples with the label")
    add_legend(figure, 5 if is_wide else 2)


def _draw_scatter(figure: Figure, values: Mapping[str, Floats], reliable: NDArray[np.bool_]) -> None:
    is_wide = figure.get_figwidth() * figure.dpi > NARROW
    has_truth = bool(np.isfinite(values["true"]).any())
    x, y = values["true" if has_truth else "observed_share"], values["estimated"]
    drawn = (x > 0) & (y > 0)  # a logarithmic axis has no place for zero, and none for unknown
    spare = max(0.0, figure.get_figwidth() * figure.dpi - 560) / 2  # a square, in the middle
    axes = add_axes(figure, (spare + 64, 48, spare + 18, 40 if is_wide else 64))
    for axis in "xy":
        limits = scale_priors(axes, axis, np.concatenate([x[drawn], y[drawn]]), is_log=True)
    axes.plot(limits, limits, color=MUTED, lw=1.2, ls=(0, (5, 3)), label="equal")
    bounds = np.array([y - values["lower"], values["upper"] - y]).clip(0)[:, drawn]
    axes.errorbar(x[drawn], y[drawn], bounds, fmt="none", ecolor=SERIES[0], elinewidth=1, alpha=min(0.3, 20 / len(x)))
    _dots(axes, x, np.where(drawn, y, np.nan), reliable, size=5.5)
    axes.set_xlabel("true prior" if has_truth else "observed share")
    axes.set_ylabel("estimated prior")
    if not drawn.all():
        note = f"left out: {int((~drawn).sum())} labels, unknown or zero"
        axes.text(0.98, 0.03, note, transform=axes.transAxes, ha="right", color=MUTED, fontsize=12)
    add_legend(figure, 3 if is_wide else 2)


def _dots(axes: Axes, x: Floats, y: Floats, reliable: NDArray[np.bool_], size: float) -> None:
    """Filled dots for reliable estimates and hollow ones for the others."""
    for mask, face, name in ((reliable, SERIES[0], "estimated"), (~reliable, CARD, "wide interval")):
        shown = mask & np.isfinite(x + y)
        if shown.any():
            axes.plot(x[shown], y[shown], "o", ms=size, mec=SERIES[0], mfc=face, mew=1.6, label=name)


def _draw_history(axes: Axes, runs: Sequence[Mapping[str, Any]], name: str) -> None:
    scale_epochs(axes, np.concatenate([run["history"]["epoch"] for run in runs if _has_history(run, name)]))
    hues, length = iter(SERIES * len(runs)), 32 if len(runs) < 4 else 24
    for run in runs:
        role = run.get("role")
        hue, dashes = _REFERENCES[role] if role in _REFERENCES else (next(hues), "-")
        epochs, values = np.empty(0), np.empty(0)
        if _has_history(run, name):
            epochs, values = as_array(run["history"]["epoch"]), as_array(run["history"][name])
        axes.plot(epochs, values, color=hue, lw=2, ls=dashes, label=shorten(run_title(run), length))
        kept = epochs == run.get("best_epoch")
        axes.plot(epochs[kept], values[kept], "o", ms=8, mec=hue, mfc=CARD, mew=2)


def _has_history(run: Mapping[str, Any], name: str) -> bool:
    values = (run.get("history") or {}).get(name) or []
    rows = (value if isinstance(value, Sequence) else [value] for value in values)
    return any(as_float(value) is not None for row in rows for value in row)


def _prior_history(run: Mapping[str, Any]) -> Floats:
    """The history of the prior as (epochs, labels); an epoch without estimates (None) is a row of NaN."""
    rows = run["history"]["prior"]
    n_labels = max(len(row) for row in rows if row is not None)
    return np.array([[np.nan] * n_labels if row is None else as_array(row) for row in rows])


def _label_names(result: Result) -> list[object]:
    return list((result.get("priors") or {}).get("label") or result["dataset"]["label_names"])


def _span(priors: Floats) -> float:
    known = priors[np.isfinite(priors) & (priors > 0)]
    return float(known.max() / known.min()) if known.size else 1.0
