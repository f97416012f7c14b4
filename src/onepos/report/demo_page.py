"""The page of the demo, from a plain dictionary: it can be rebuilt in a second from a result saved long ago."""

from __future__ import annotations

import base64
import dataclasses
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from onepos.report.charts.fits import (
    Result,
    convergence_labels,
    has_curves,
    prior_caption,
    prior_chart,
    prior_convergence,
    prior_run,
    run_name,
    run_title,
    training_curves,
)
from onepos.report.page import Chart, Example, Page, Section, render_html
from onepos.report.tables import Cell, Table, as_array, as_float, column, decimal, grouped, percent, priors_table

_LEAD = (
    "In single-positive learning one label of every training example is observed; all the others, true or not, are "
    "hidden. The task is to learn from that alone a model that finds all labels of a new example."
)


def render_demo(result: Result) -> str:
    """The page of a demo run, as HTML.

    Args:
        result: Plain, JSON-able dictionary with `title`, `created`, `versions`, `dataset`, `metrics`,
            `runs`, `priors` and, if wanted, `examples`. A section that is missing or empty is left out,
            a prior that is None or NaN is unknown.
    """
    empty: dict[str, Any] = {"runs": [], "metrics": [], "dataset": {}, "versions": {}}
    result = empty | {name: section for name, section in result.items() if section is not None}
    page = Page(
        title=result.get("title") or "onepos demo",
        lead=_LEAD,
        tiles=_tiles(result),
        sections=list(_sections(result)),
        footer=_data_text(result["dataset"]) + made_with(result),
    )
    return render_html(page)


def metrics_table(result: Result) -> Table:
    """One row per metric, one column per run; below a score the share of the distance to the oracle that it closes."""
    runs = result["runs"]
    rows = [_metric_row(metric, runs) for metric in result["metrics"]]
    for title, key, digits in (("Training time (s)", "seconds", 1), ("Epoch kept", "best_epoch", 0)):
        if any(as_float(run.get(key)) is not None for run in runs):
            rows.append([Cell(title), *(Cell(decimal(run.get(key), digits)) for run in runs)])
    about = (
        "The oracle learns from all labels, which nobody has in practice: it is the score that could be reached. The "
        "floor treats every hidden label as negative. The percentage is how far a method gets from the floor (0 %) to "
        "the oracle (100 %); below zero it is worse than the floor."
    )
    return Table("metrics", "How well each method does", ["Metric", *map(run_title, runs)], rows, about)


def demo_priors_table(result: Result) -> Table:
    """The priors, label by label."""
    priors = result.get("priors") or {"label": []}
    about = "Error is estimated minus true." if priors.get("true") is not None else ""
    return priors_table(priors, "priors", "The priors, label by label", about)


def image_uri(pixels: Sequence[Sequence[float]]) -> str:
    """A grey image with values from 0 (black) to 1 (white), as a PNG in a data URI."""
    from PIL import Image

    grey = (np.nan_to_num(np.asarray(pixels, dtype=float)).clip(0, 1) * 255).round().astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def made_with(result: Result) -> str:
    """When and with which versions a page was made."""
    created = str(result.get("created") or "").replace("T", " ")
    versions = ", ".join(f"{name} {version}" for name, version in (result.get("versions") or {}).items())
    return f"Made{' ' + created if created else ''} with {versions or 'onepos'}."


def _sections(result: Result) -> Iterator[Section]:
    if result["runs"] and result["metrics"]:
        text = (
            "Measured on test examples whose labels are all known. ↓ means lower is better, ↑ higher is better; the "
            "best value apart from the oracle is bold."
        )
        table = metrics_table(result)
        yield Section("metrics", table.title, [text, *filter(None, [result.get("remark")])], (table,))
    yield from _prior_sections(result)
    if has_curves(result):
        caption = (
            "A ring marks the epoch that was kept. Losses of different methods are different formulas: compare their "
            "shapes, not their heights."
        )
        yield Section("training", "How training went", chart=Chart(partial(training_curves, result), caption))
    examples = [_example(each) for each in result.get("examples") or []]
    if examples:
        text = (
            "Filled: the one label that a training set would hold. Outlined: true but hidden. Bars: the model’s "
            "probability, with ✓ for labels that are true and ✗ for labels that are not."
        )
        yield Section("examples", "A few test examples", [text], examples=examples)


def _prior_sections(result: Result) -> Iterator[Section]:
    curves, run = convergence_labels(result), prior_run(result)
    table = demo_priors_table(result)
    if curves and run is not None:
        text = (
            "The prior of a label is the share of all examples that truly have it. "
            f"{run_name(run)} estimates it anew after each epoch, from its own scores and the single positives."
        )
        caption = "Solid: estimated. Dashed, same colour: true. Where the priors differ much, the scale is logarithmic."
        if len(curves) < len(table.rows):
            caption += (
                f" Shown are {len(curves)} of {len(table.rows)} labels: of those with an estimate, a selection from "
                "the most to the least often observed."
            )
        chart = Chart(partial(prior_convergence, result), caption)
        yield Section("convergence", "How the estimated priors converge", [text], chart=chart)
    if table.rows:
        text = (
            "The observed share counts a label only where it is the observed one, so it is too small for every label "
            "that shares its examples with others. The estimate corrects that."
        )
        caption = (
            f"{prior_caption(table)} The interval assumes scores of examples that the model was not trained on. Here "
            "the scores are those of the training examples, so estimates and intervals come out too low."
        )
        chart = Chart(partial(prior_chart, result), caption)
        yield Section("priors", "How common each label really is", [text], chart=chart)
        yield Section("prior-table", table.title, tables=(table,))


def _metric_row(metric: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> list[Cell]:
    scores, is_greater = _scores(metric, runs), metric["greater_is_better"]
    contest = [
        score for score, run in zip(scores, runs, strict=True) if run.get("role") != "oracle" and not math.isnan(score)
    ]
    # Equal as printed is equal: bold must not hint at a difference that the digits do not have.
    best = decimal(max(contest) if is_greater else min(contest)) if len(contest) > 1 else None
    cells = [Cell(f"{metric['title']} {'↑' if is_greater else '↓'}")]
    for score, share, run in zip(scores, _shares(metric, runs), runs, strict=True):
        text = decimal(score)
        cell = Cell(text, is_best=run.get("role") != "oracle" and text == best)
        if not math.isnan(share):
            notes = ((percent(share), "worse" if share < 0 else ""),)
            cell = dataclasses.replace(cell, notes=notes, heat=min(1.0, max(0.0, share)))
        cells.append(cell)
    return cells


def _scores(metric: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> list[float]:
    values = as_array([(run.get("scores") or {}).get(metric["name"]) for run in runs]).tolist()
    return list(values)


def _shares(metric: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> list[float]:
    """Share of the distance from the first floor to the first oracle that each method closes; NaN without one.

    Where the floor is not worse than the oracle, there is none.
    """
    sign = -1.0 if metric["greater_is_better"] else 1.0  # with the sign turned, smaller is better for every metric
    pairs = [(sign * score, run.get("role", "method")) for score, run in zip(_scores(metric, runs), runs, strict=True)]
    floor, oracle = (next((cost for cost, role in pairs if role == name), math.nan) for name in ("floor", "oracle"))
    is_clear = floor > oracle
    return [(floor - cost) / (floor - oracle) if is_clear and role == "method" else math.nan for cost, role in pairs]


def _data_text(dataset: Mapping[str, Any]) -> str:
    """The data set's name, and its sizes as far as they are known."""
    units = {
        "n_train": "training examples",
        "n_val": "for validation",
        "n_test": "for test",
        "n_features": "features",
        "n_labels": "labels",
    }
    sizes = ", ".join(f"{dataset[name]} {unit}" for name, unit in units.items() if dataset.get(name) is not None)
    return f"Data: {dataset['name']}{f' ({sizes})' if sizes else ''}. " if dataset.get("name") else ""


def _tiles(result: Result) -> list[tuple[str, str]]:
    """The page in four numbers: (number, what it is)."""
    dataset, tiles = result["dataset"], []
    if dataset.get("n_train"):
        tiles.append((grouped(dataset["n_train"]), "training examples, each with one observed label"))
    if as_float(dataset.get("cardinality")) is not None:
        text = f"of {dataset.get('n_labels')} labels are true for an example, on average"
        tiles.append((f"{dataset['cardinality']:.1f}", text))
    return [*tiles, *_gap_tile(result), *_prior_tile(result)]


def _gap_tile(result: Result) -> list[tuple[str, str]]:
    """The best method's share of the distance closed, in the first metric that has one."""
    for metric in result["metrics"]:
        pairs = zip(_shares(metric, result["runs"]), result["runs"], strict=True)
        known = [(share, run) for share, run in pairs if not math.isnan(share)]
        if known:
            share, run = max(known, key=lambda pair: pair[0])
            text = f"of the {metric['title'].lower()} gap to full labels closed by {run_name(run)}"
            return [(percent(share), text + (", worse than the floor" if share < 0 else ""))]
    return []


def _prior_tile(result: Result) -> list[tuple[str, str]]:
    """Mean absolute error of the estimated priors beside that of the observed shares, same labels."""
    priors = result.get("priors") or {"label": []}
    true, estimated, share = (
        column(priors, name, len(priors["label"])) for name in ("true", "estimated", "observed_share")
    )
    known = np.isfinite(true + estimated + share)
    if not known.any():
        return []
    ours, observed = (np.abs(values - true)[known].mean() for values in (estimated, share))
    return [(f"{ours:.3f}", f"mean error of the estimated priors (of the observed shares: {observed:.3f})")]


def _example(example: Mapping[str, Any]) -> Example:
    true = [str(name) for name in example["true"]]
    observed = example.get("observed")
    return Example(
        image_uri(example["image"]),
        None if observed is None else str(observed),
        [name for name in true if name != str(observed)],
        [(str(name), round(100 * share), str(name) in true) for name, share in example.get("predicted") or []],
    )
