"""The page of a fit, from a plain dictionary: what was learnt, label by label, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from onepos.report.charts.fits import Result, has_curves, prior_caption, prior_chart, training_curves
from onepos.report.demo_page import made_with
from onepos.report.page import Chart, Page, Section, render_html
from onepos.report.tables import Cell, Table, as_float, column, decimal, grouped, priors_table, seconds_text


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
