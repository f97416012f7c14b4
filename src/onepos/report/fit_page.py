"""The page of a fit, from a plain dictionary: it can be rebuilt long after the training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from onepos.report.charts.calibration import calibration_chart
from onepos.report.charts.fits import (
    Result,
    convergence_labels,
    has_curves,
    prior_caption,
    prior_chart,
    prior_convergence,
    prior_run,
    training_curves,
)
from onepos.report.page import Bar, Card, Chart, Page, Pill, Section, render_html
from onepos.report.tables import (
    MISSING,
    Cell,
    Table,
    as_float,
    column,
    decimal,
    grouped,
    percent,
    priors_table,
    seconds_text,
)

# The number of labels per row is open where the sums of the ends of the intervals differ by more than this factor.
_OPEN = 2.0
# The labels per row that a model assumes and those estimated from the data differ much by more than this factor.
_MUCH = 1.15


def render_fit(result: Result) -> str:
    """The page of a fit, as one self-contained HTML file.

    Args:
        result: A plain, JSON-able dictionary. `labels` must be given; what else is missing or None is left out of the
            page, and a number that is None or NaN is unknown. `onepos.report.fit_facts` makes most of it.

            - `labels`: the names of the labels; all lists below that are "per label" have this order.
            - `observed`: per label, the number of rows in which it is observed.
            - `n_rows`: number of training rows; `n_groups`: of groups of rows.
            - `known`: entries that are known: `yes`, `no`, `unknown`, `rows`, `rows_reviewed`.
            - `columns`: per column of a raw table `name`, `kind`, `read_as`, `became`, `missing`, `reason`.
            - `class_prior`, `class_prior_lower`, `class_prior_upper`: per label, the estimated share of rows that
              truly have it, and the two ends of its confidence interval; `true_prior`: where the truth is known.
            - `reliable`: per label, whether the interval is narrow.
            - `thresholds`: per label, the probability above which it is predicted; or one number for all.
            - `predicted_share`: per label, the mean predicted probability over the training rows.
            - `method`: name of the method; `parameters`: name → value of its parameters.
            - `history`: `epoch`, `loss`, and `validation` if there are validation rows: one number per epoch each;
              `search`, the scores by which the number of epochs was chosen; `prior`, per epoch the class priors.
            - `validation_title`: what the validation score is, such as "Average precision".
            - `best_epoch`: the epoch that was kept, as numbered in `history["epoch"]`.
            - `together`: as `describe_probabilities` gives it.
            - `quality`, `calibration`, `additions`, `doubts`: as `describe_completion` gives them.
            - `seconds`: duration of the fit.
            - `data` and `model`: where the rows came from and where the model was saved, as texts.
            - `more`: a sentence on what the page would show beside this, and the command for it.
            - `created`: ISO time; `versions`: package → version; `title`: of the page.
            - `warnings`: sentences that the fit gave as warnings.
    """
    result = without_none(result)
    page = Page(
        title=result.get("title") or "What the model learnt",
        lead=_lead(result),
        alert=" ".join(map(str, result.get("warnings", ()))),
        tiles=_tiles(result),
        sections=fit_sections(result),
        footer=made_with(result),
    )
    return render_html(page)


def without_none(result: Result) -> dict[str, Any]:
    """What is known of a result."""
    return {name: value for name, value in result.items() if value is not None}


def fit_sections(result: Result) -> list[Section]:
    """The parts of the page of a fit, of what is known."""
    parts = (_data, _priors, _training, _quality, _calibration, _additions, _together, _doubts, _parameters, _next)
    return [section for part in parts for section in part(result)]


def priors_of(result: Result) -> dict[str, Any]:
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
        "true": result.get("true_prior"),
        "reliable": result.get("reliable"),
        "predicted_share": result.get("predicted_share"),
        "threshold": thresholds,
    }


def labels_per_row(result: Result) -> tuple[float, float, float]:
    """The sum of the class priors, and of the two ends of their intervals; NaN where unknown."""
    c = len(result["labels"])
    names = ("class_prior", "class_prior_lower", "class_prior_upper")
    sums = [np.nansum(each) if np.isfinite(each).any() else np.nan for each in (column(result, n, c) for n in names)]
    return float(sums[0]), float(sums[1]), float(sums[2])


def made_with(result: Result) -> str:
    """When and with which versions a page was made."""
    created = str(result.get("created") or "").replace("T", " ")
    versions = ", ".join(f"{name} {version}" for name, version in (result.get("versions") or {}).items())
    return f"Made{' ' + created if created else ''} with {versions or 'onepos'}."


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


def _tiles(result: Result) -> list[tuple[str, str]]:
    tiles = []
    observed, n_rows = column(result, "observed", len(result["labels"])), result.get("n_rows")
    if n_rows:
        tiles.append((grouped(n_rows), "training rows"))
        if np.isfinite(observed).any():
            tiles.append((f"{np.nansum(observed) / n_rows:.2f}", "observed labels per row"))
    kappa, low, high = labels_per_row(result)
    if np.isfinite(kappa):
        ends = f", probably {low:.2f} to {high:.2f}" if np.isfinite(low + high) else ""
        tiles.append((f"{kappa:.2f}", f"true labels per row, estimated: the sum of the class priors{ends}"))
    additions = result.get("additions")
    if additions:
        stated = percent(additions["min_precision"])
        tiles.append((grouped(additions["n_added"]), f"labels could be added where {stated} are to be right"))
    seconds = as_float(result.get("seconds"))
    if seconds is not None:
        tiles.append((seconds_text(seconds), "duration of the fit"))
    return tiles


def _data(result: Result) -> Iterator[Section]:
    """What is known of the rows, and how the columns of a raw table were read."""
    known, columns = result.get("known"), result.get("columns")
    tables = [_known_table(known, result)] if known else []
    if columns:
        tables.append(_columns_table(columns))
    if tables:
        yield Section("data", "The data", tables=tuple(tables))


def _known_table(known: Mapping[str, int], result: Result) -> Table:
    entries = known["rows"] * len(result["labels"])
    lines = [
        ("Rows", grouped(known["rows"]), ""),
        ("Labels known to be there", grouped(known["yes"]), percent(known["yes"] / max(1, entries))),
        ("Labels known to be absent", grouped(known["no"]), percent(known["no"] / max(1, entries))),
        ("Unknown", grouped(known["unknown"]), percent(known["unknown"] / max(1, entries))),
        (
            "Fully reviewed rows",
            grouped(known["rows_reviewed"]),
            percent(known["rows_reviewed"] / max(1, known["rows"])),
        ),
    ]
    if result.get("n_groups"):
        lines.append(("Groups of rows, never split", grouped(result["n_groups"]), ""))
    rows = [[Cell(text) for text in line] for line in lines]
    return Table("known", "What is known of the labels", ["Of the data", "Number", "Share"], rows)


def _columns_table(columns: Sequence[Mapping[str, Any]]) -> Table:
    rows = []
    for each in columns:
        missing = as_float(each["missing"])
        gaps = MISSING if missing is None else percent(missing)
        left_out = Cell(f"left out: {each['reason']}", tone="unknown")
        became = left_out if each["reason"] else Cell(each["became"])
        rows.append([Cell(each["name"]), Cell(gaps), Cell(each["read_as"] or MISSING), became])
    header = ["Column", "Missing", "Read as", "Became"]
    about = "Read as: what the cells of a column were found to be. Became: the numbers that the network takes."
    return Table("columns", "How the columns were read", header, rows, about, is_prose=True)


def _priors(result: Result) -> Iterator[Section]:
    priors = priors_of(result)
    table = priors_table(priors, "labels", "Label by label", _about(priors))
    if priors["estimated"] is None:
        yield Section("labels", table.title, tables=(table,))
        return
    text = [
        "The observed share counts a label only in rows where it is observed, so it is too small for a label that "
        "often occurs together with others. The estimated prior corrects that.",
        *_doubts_about_priors(result),
    ]
    chart = Chart(partial(prior_chart, {"priors": priors}), prior_caption(table))
    yield Section("priors", "How common each label is", text, chart=chart, folded=(table,))


def _doubts_about_priors(result: Result) -> list[str]:
    """Sentences on how far the class priors can be relied on."""
    kappa, low, high = labels_per_row(result)
    sentences = []
    judged = result.get("additions") or {}
    if judged.get("calibrated_on") and not _MUCH * kappa > judged["labels_per_row"][0] > kappa / _MUCH:
        new, least, most = judged["labels_per_row"]
        sentences.append(
            f"The model puts {kappa:.2f} labels in a row. With the {judged['calibrated_on']} reviewed rows of these "
            f"data {new:.2f} are estimated, {least:.2f} to {most:.2f}: fit the model again with these answers."
        )
    elif high > _OPEN * low:
        sentences.append(
            f"How many labels a row has is open: {kappa:.2f} is estimated, but the data go with anything from "
            f"{low:.2f} to {high:.2f}, and all priors rise and fall together. Reviewing about 50 rows "
            "drawn at random settles it."
        )
    estimated = column(result, "class_prior", len(result["labels"]))
    unknown = [str(name) for name, prior in zip(result["labels"], estimated, strict=True) if not np.isfinite(prior)]
    if unknown:
        names = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        sentences.append(f"{len(unknown)} of {len(result['labels'])} labels have no estimate ({names}).")
    return sentences


def _about(priors: Mapping[str, Any]) -> str:
    sentences = []
    if np.isfinite(priors["n_positive"]).any():
        sentences.append("Observed positives: rows in which the label is observed.")
    if priors["estimated"] is not None:
        sentences.append("Estimated prior: share of all rows that truly have the label.")
    if priors["reliable"] is not None:
        sentences.append("Narrow interval: “no” where it reaches below half or above double of the estimate.")
    if priors["predicted_share"] is not None:
        sentences.append("Mean predicted: mean probability over the training rows; it should lie near the prior.")
    if priors["threshold"] is not None:
        sentences.append("Threshold: the label is predicted where its probability is above this.")
    return " ".join(sentences)


def _training(result: Result) -> Iterator[Section]:
    """The curves of the fit, and of the class priors where they move."""
    history, name = result.get("history") or {}, str(result.get("method") or "this fit")
    runs: list[dict[str, Any]] = [{"name": name, "history": history, "best_epoch": result.get("best_epoch")}]
    title, text = result.get("validation_title"), []
    if history.get("search") and not history.get("validation"):
        search = {"epoch": list(range(1, len(history["search"]) + 1)), "validation": history["search"]}
        runs.append({"name": "search", "history": search, "best_epoch": len(history["epoch"])})
        title = "Search for the number of epochs"
        text = [
            "The number of epochs was found first, on four fifths of the rows: the mean reciprocal rank of the "
            "observed label of the other rows. Then all rows were trained on for as long."
        ]
    curves = {"runs": runs, "validation_title": title}
    if not has_curves(curves):
        return
    caption = "A ring marks the epoch that was kept." if result.get("best_epoch") is not None else ""
    yield Section("training", "Training", text, chart=Chart(partial(training_curves, curves), caption))
    moving = {"runs": runs[:1], "priors": priors_of(result)}
    run = prior_run(moving)
    if run is not None and convergence_labels(moving) and any(p != history["prior"][0] for p in history["prior"]):
        caption = f"Dashed: true, where that is known. Shown are {len(convergence_labels(moving))} labels."
        chart = Chart(partial(prior_convergence, moving), caption)
        yield Section("convergence", "The class priors, epoch by epoch", chart=chart)


_KINDS = {"model": "This model", "held_out": "Models without the row", "frequency": "By frequency alone"}


def _quality(result: Result) -> Iterator[Section]:
    """Criteria that need one known label per row."""
    quality = result.get("quality")
    if not quality:
        return
    kinds = [kind for kind in _KINDS if any(each["scores"].get(kind) is not None for each in quality)]
    rows = []
    for each in quality:
        title = each["title"][0].upper() + each["title"][1:]
        arrow = "↑" if each["greater_is_better"] else "↓"
        rows.append([Cell(f"{title} {arrow}"), *(Cell(decimal(each["scores"].get(kind))) for kind in kinds)])
    text = (
        "How well known labels are ranked among all labels; no row needs all its labels for that. Hidden labels count "
        "as absent, so compare columns rather than expecting 1. ↑ higher is better, ↓ lower is better."
    )
    notes = {
        "model": "This model: it did not learn from these rows.",
        "held_out": "Models without the row: several small models, each of which judges rows it did not learn from.",
        "frequency": "By frequency alone: the same order of the labels for all rows, the most observed first.",
    }
    about = " ".join(notes[kind] for kind in kinds)
    header = ["Criterion", *(_KINDS[kind] for kind in kinds)]
    table = Table("quality", "Quality without full labels", header, rows, about)
    yield Section("quality", table.title, [text], (table,))


def _calibration(result: Result) -> Iterator[Section]:
    """Stated probabilities beside answers."""
    found = result.get("calibration")
    if not found:
        return
    series = {"this model": found["model"], "models without the row": found["held_out"]}
    series = {name: bins for name, bins in series.items() if bins}
    rows = [
        [Cell(f"{name}, about {percent(each['stated'])}"), Cell(grouped(each["n"])), Cell(percent(each["share"])),
         Cell(f"{percent(each['low'])} to {percent(each['high'])}")]
        for name, bins in series.items()
        for each in bins
    ]  # fmt: skip
    header = ["Probability", "Entries", "Yes", "90 % interval"]
    table = Table("calibration-bins", "Do the probabilities hold?", header, rows)
    text = (
        f"Checked on {found['rows']} fully reviewed row{'s' if found['rows'] != 1 else ''}: of the labels with a "
        "stated probability of 70 %, about 70 % should be there."
    )
    caption = (
        "Bars are 90 % intervals. Models without the row: each row was judged without its answers but for one label, "
        "drawn at random; its other labels count."
    )
    chart = Chart(partial(calibration_chart, series), caption)
    yield Section("calibration", table.title, [text], chart=chart, folded=(table,))


def _additions(result: Result) -> Iterator[Section]:
    """The labels that `onepos complete` would add."""
    found = result.get("additions")
    if not found:
        return
    table = additions_table(found)
    stated = percent(found["min_precision"])
    if found["n_added"]:
        text = [
            f"If {stated} of the added labels are to be right, {grouped(found['n_added'])} labels can be added to "
            f"{grouped(found['n_rows'])} rows; {percent(found['expected_precision'])} of them are expected to be right."
        ]
    else:
        text = [f"If {stated} of the added labels are to be right, none can be added yet."]
    if found["warning"]:
        text.append(f"{found['warning'][0].upper()}{found['warning'][1:]}")
    shown, folded = ((table,), ()) if found["n_added"] else ((), (table,))
    yield Section("additions", table.title, text, shown, folded)


def additions_table(found: Mapping[str, Any]) -> Table:
    """Per label: rows in which it is observed and to which it is added, and how right and how many these are."""
    rows, has_truth = [], any("precision" in each for each in found["labels"])
    for each in sorted(found["labels"], key=lambda line: -line["added"]):
        ends = [as_float(each[name]) for name in ("precision_low", "precision_high")]
        interval = MISSING if None in ends else " to ".join(percent(end) for end in ends if end is not None)
        right = as_float(each["expected_precision"])
        texts = [
            str(each["label"]), grouped(each["observed"]), grouped(each["added"]),
            MISSING if right is None else percent(right), interval, percent(each["expected_recall"]),
        ]  # fmt: skip
        rows.append([Cell(text) for text in texts])
        if has_truth:
            true = as_float(each["precision"])
            rows[-1].insert(5, Cell(MISSING if true is None else percent(true)))
    header = ["Label", "Observed", "Could be added", "Expected right", "90 % interval", "Of the hidden ones"]
    if has_truth:
        header.insert(5, "Truly right")
    about = "Of the hidden ones: the share of the rows with this label hidden that is expected to be found."
    return Table("additions", "Labels that could be added", header, rows, about)


def _together(result: Result) -> Iterator[Section]:
    """Labels that occur together."""
    found = result.get("together")
    if not found:
        return
    names = [str(result["labels"][j]) for j in found["labels"]]
    rows = []
    for i, shares in enumerate(found["share"]):
        cells = [Cell("", tone="unknown") if i == j else Cell(f"{100 * s:.0f}", heat=s) for j, s in enumerate(shares)]
        rows.append([Cell(names[i]), *cells])
    more = f" Shown are the {len(names)} most frequent of {len(result['labels'])} labels." * (
        len(names) < len(result["labels"])
    )
    about = f"Of the rows with the label on the left, the share in percent that also has the label above.{more}"
    tables = [Table("together", "Labels that occur together", ["Of the rows with …", *names], rows, about)]
    if found["pairs"]:
        tables.append(_pairs_table(found["pairs"], result["labels"]))
    text = (
        "Expected from the probabilities of the model, hidden labels included; the labels of a row count as "
        "independent given its features."
    )
    yield Section("together", tables[0].title, [text], tuple(tables))


def _pairs_table(pairs: Sequence[Mapping[str, Any]], labels: Sequence[Any]) -> Table:
    has_truth, rows = "true_times" in pairs[0], []
    for each in pairs:
        names = " + ".join(str(labels[j]) for j in each["labels"])
        texts = [names, f"{100 * each['share']:.1f} %", f"{each['times']:.2f} ×"]
        rows.append([Cell(text) for text in [*texts, *([f"{each['true_times']:.2f} ×"] if has_truth else [])]])
    about = (
        "As often as by chance: how often both occur, as a multiple of how often they would if they had nothing to do "
        "with each other."
    )
    header = ["Pair", "Rows with both", "As often as by chance", *(["Truly"] if has_truth else [])]
    return Table("pairs", "Pairs that stand out", header, rows, about)


def _doubts(result: Result) -> Iterator[Section]:
    """The rows whose review is worth most."""
    found = result.get("doubts")
    if not found:
        return
    text = (
        "The rows with most entries that are expected to be wrong. A bar is the probability that the label is there, "
        "judged by models that did not see the row. `onepos serve` opens a page to answer them."
    ).replace("`", "")
    yield Section("doubts", "Rows the models doubt", [text], cards=[_doubt_card(each) for each in found])


def _doubt_card(each: Mapping[str, Any]) -> Card:
    pills = [("Known", [Pill(name, "seen") for name in each["present"]])] if each["present"] else []
    if each["absent"]:
        more = each["n_absent"] - len(each["absent"])
        names = [Pill(name, "hidden") for name in each["absent"]] + [Pill(f"and {more} more", "hidden")] * (more > 0)
        pills.append(("Known to be absent", names))
    bars = [Bar(name, round(100 * p), note="would be added" if added else "") for name, p, added in each["doubtful"]]
    return Card(
        title=each["item"],
        image=each["image"],
        alt=f"Row {each['item']}",
        texts=each["texts"],
        fields=each["fields"],
        note=each["note"],
        pills=pills,
        bars=[("In doubt", bars)] if bars else [],
    )


def _parameters(result: Result) -> Iterator[Section]:
    rows = [[Cell(str(name)), Cell(_short(value))] for name, value in (result.get("parameters") or {}).items()]
    if rows:
        table = Table("parameters", "Parameters of the method", ["Parameter", "Value"], rows)
        yield Section("parameters", table.title, folded=(table,))


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 6:
        return f"{len(value)} values from {decimal(min(value))} to {decimal(max(value))}"
    return str(value)


def _next(result: Result) -> Iterator[Section]:
    model = result.get("model") or "onepos-model"
    text = [
        "Predict labels for new rows, with their probabilities; or measure the model on rows whose labels are all "
        "known. From Python: SinglePositiveClassifier.load(folder), then predict or predict_proba."
    ]
    code = [f"onepos predict {model} NEW_ROWS --out predictions.csv", f"onepos evaluate {model} ROWS_WITH_ALL_LABELS"]
    more = result.get("more")
    if more:
        text.append(str(more[0]))
        code.append(str(more[1]))
    yield Section("next", "What to do next", text, code=code)
