"""The page of a fit and that of the demo, each from a plain dictionary: it can be rebuilt long after the training."""

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
from onepos.report.tables import (
    Cell,
    Table,
    as_array,
    as_float,
    column,
    decimal,
    grouped,
    percent,
    priors_table,
    seconds_text,
)


def render_fit(result: Result) -> str:
    """The page of a fit, as one self-contained HTML file.

    Args:
        result: A plain, JSON-able dictionary. `labels` must be given; what else is missing or None is left out of the
            page, and a number that is None or NaN is unknown.

            - `labels`: the names of the labels; all lists below that are "per label" have this order.
            - `observed`: per label, the number of rows in which it is observed.
            - `n_rows`: number of training rows.
            - `class_prior`, `class_prior_lower`, `class_prior_upper`: per label, the estimated share of rows that
              truly have it, and the two ends of its confidence interval.
            - `reliable`: per label, whether enough positives were observed to estimate its prior.
            - `thresholds`: per label, the probability above which it is predicted; or one number for all.
            - `predicted_share`: per label, the mean predicted probability over the training rows.
            - `method`: name of the method; `parameters`: name → value of its parameters.
            - `history`: `epoch`, `loss`, and `validation` if there are validation rows: one number per epoch each.
            - `validation_title`: what the validation score is, such as "Average precision".
            - `best_epoch`: the epoch that was kept, as numbered in `history["epoch"]`.
            - `seconds`: duration of the fit.
            - `data` and `model`: where the rows came from and where the model was saved, as texts.
            - `created`: ISO time; `versions`: package → version; `title`: of the page.
            - `warnings`: sentences that the fit gave as warnings.
    """
    result = {name: value for name, value in result.items() if value is not None}
    priors = _priors(result)
    page = Page(
        title=result.get("title") or "What the model learnt",
        lead=_lead(result),
        alert=" ".join(map(str, result.get("warnings", ()))),
        tiles=_tiles(result, priors),
        sections=list(_sections(result, priors)),
        footer=made_with(result),
    )
    return render_html(page)


def _priors(result: Result) -> dict[str, Any]:
    """The columns of the table of labels, as `priors_table` and `prior_chart` take them."""
    labels, n_rows = list(result["labels"]), result.get("n_rows")
    observed = column(result, "observed", len(labels))
    thresholds = result.get("thresholds")
    if isinstance(thresholds, int | float):
        thresholds = [thresholds] * len(labels)
    return {
        "label": labels,
        "n_positive": observed,
        "observed_share": observed / n_rows if n_rows else None,
        "estimated": result.get("class_prior"),
        "lower": result.get("class_prior_lower"),
        "upper": result.get("class_prior_upper"),
        "reliable": result.get("reliable"),
        "predicted_share": result.get("predicted_share"),
        "threshold": thresholds,
    }


def _lead(result: Result) -> str:
    n_labels = len(result["labels"])
    method = f"The method {result['method']}" if result.get("method") else "A model"
    rows = f" from {grouped(result['n_rows'])} rows" if result.get("n_rows") else ""
    source = f" of {result['data']}" if result.get("data") else ""
    return (
        f"{method} was trained{rows}{source} to predict {n_labels} label{'s' if n_labels != 1 else ''}. A label that "
        "is not observed in a row may still be true there: the class prior of a label estimates how many rows truly "
        "have it."
    )


def _tiles(result: Result, priors: Mapping[str, Any]) -> list[tuple[str, str]]:
    tiles = []
    if result.get("n_rows"):
        tiles.append((grouped(result["n_rows"]), "training rows"))
        if np.isfinite(priors["n_positive"]).any():
            tiles.append((f"{np.nansum(priors['n_positive']) / result['n_rows']:.2f}", "observed labels per row"))
    estimated = column(priors, "estimated", len(priors["label"]))
    if np.isfinite(estimated).any():
        tiles.append((f"{np.nansum(estimated):.2f}", "true labels per row, estimated: the sum of the class priors"))
    seconds = as_float(result.get("seconds"))
    if seconds is not None:
        tiles.append((seconds_text(seconds), "duration of the fit"))
    return tiles


def _sections(result: Result, priors: Mapping[str, Any]) -> Iterator[Section]:
    table = priors_table(priors, "labels", "Label by label", _about(priors))
    yield Section("labels", table.title, tables=(table,))
    if priors["estimated"] is not None:
        text = (
            "The observed share counts a label only in rows where it is observed, so it is too small for a label that "
            "often occurs together with others. The estimated prior corrects that."
        )
        chart = Chart(partial(prior_chart, {"priors": priors}), prior_caption(table))
        yield Section("priors", "How common each label is", [text], chart=chart)
    training = _training(result)
    if has_curves(training):
        caption = "A ring marks the epoch that was kept." if result.get("best_epoch") is not None else ""
        yield Section("training", "Training", chart=Chart(partial(training_curves, training), caption))
    parameters = _parameter_table(result)
    if parameters.rows:
        yield Section("parameters", parameters.title, tables=(parameters,))
    yield _next_section(result)


def _about(priors: Mapping[str, Any]) -> str:
    sentences = ["Observed positives: rows in which the label is observed."]
    if priors["estimated"] is not None:
        sentences.append("Estimated prior: share of all rows that truly have the label.")
    if priors["reliable"] is not None:
        sentences.append("Enough positives: “no” where too few are observed to rely on the estimate.")
    if priors["predicted_share"] is not None:
        sentences.append("Mean predicted: mean probability over the training rows; it should lie near the prior.")
    if priors["threshold"] is not None:
        sentences.append("Threshold: the label is predicted where its probability is above this.")
    return " ".join(sentences)


def _training(result: Result) -> dict[str, Any]:
    """The fit as the only run of `training_curves`."""
    name = str(result.get("method") or "this fit")
    run = {"name": name, "history": result.get("history"), "best_epoch": result.get("best_epoch")}
    return {"runs": [run], "validation_title": result.get("validation_title")}


def _parameter_table(result: Result) -> Table:
    rows = [[Cell(str(name)), Cell(_short(value))] for name, value in (result.get("parameters") or {}).items()]
    return Table("parameters", "Parameters of the method", ["Parameter", "Value"], rows)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 6:
        return f"{len(value)} values from {decimal(min(value))} to {decimal(max(value))}"
    return str(value)


def _next_section(result: Result) -> Section:
    model = result.get("model") or "onepos-model"
    text = [
        "Predict labels for new rows, with their probabilities; or measure the model on rows whose labels are all "
        "known. From Python: SinglePositiveClassifier.load(folder), then predict or predict_proba."
    ]
    code = [f"onepos predict {model} NEW_ROWS --out predictions.csv", f"onepos evaluate {model} ROWS_WITH_ALL_LABELS"]
    return Section("next", "What to do next", text, code=code)


_DEMO_LEAD = (
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
        lead=_DEMO_LEAD,
        tiles=_demo_tiles(result),
        sections=list(_demo_sections(result)),
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


def _demo_sections(result: Result) -> Iterator[Section]:
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
    moves = run is not None and any(prior != run["history"]["prior"][0] for prior in run["history"]["prior"])
    if curves and run is not None and moves:  # priors from before the training are the same in all epochs
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


def _demo_tiles(result: Result) -> list[tuple[str, str]]:
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
