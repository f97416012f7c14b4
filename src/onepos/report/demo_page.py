"""The page of the demo: the page of a fit, behind the story of how it came about; every number is of the run."""

from __future__ import annotations

import base64
import dataclasses
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onepos.metrics import METRICS, evaluate
from onepos.report.charts.fits import Result, prior_caption, prior_chart, run_title
from onepos.report.fit_facts import describe_completion, describe_labels, describe_model, describe_probabilities
from onepos.report.fit_page import fit_sections, labels_per_row, made_with, priors_of, without_none
from onepos.report.items import FeatureItems
from onepos.report.page import Bar, Card, Chart, Page, Pill, Section, render_html
from onepos.report.tables import MISSING, Cell, Table, as_array, as_float, decimal, grouped, percent, priors_table

if TYPE_CHECKING:
    from onepos.bench.demo import Demo, Run
    from onepos.completion import Completion
    from onepos.datasets import Dataset

# Metrics of the compact comparison; images shown of the data and of the completed data.
_COMPARED = ("average_precision", "map", "micro_f1", "hamming_loss")
_N_GIVEN, _N_COMPLETED = 6, 12


def describe_demo(demo: Demo) -> dict[str, Any]:
    """A run of the demo in plain lists and numbers, as `render_demo` takes it."""
    train, after, seed = demo.train, demo.after, demo.seed
    items = FeatureItems([f"image {row}" for row in range(train.n_samples)], train.X, image_shape=train.image_shape)
    facts = describe_model(after.model, after.method) | describe_labels(demo.reviewed)
    facts |= describe_probabilities(after.model.predict_proba(train.X))
    facts |= describe_completion(demo.completions[1], items)
    _add_truth(facts, demo.completions[1], train)
    return facts | {
        "title": "From one label each to all labels",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "true_prior": train.prior.tolist(),
        "dataset": {
            "name": train.name,
            "n_train": train.n_samples,
            "n_test": demo.test.n_samples,
            "n_features": train.n_features,
            "n_labels": train.n_labels,
            "cardinality": float(train.Y.sum(1).mean()),
            "label_names": list(train.label_names),
        },
        "metrics": [
            {"name": name, "title": metric.title, "greater_is_better": metric.greater_is_better}
            for name, metric in METRICS.items()
        ],
        "runs": [_describe_run(run, demo.test) for run in (*demo.runs, after)],
        "story": {
            "n_reviewed": len(demo.rows),
            "before": describe_model(demo.before.model, demo.before.method) | describe_labels(demo.observed),
            "given": _show_given(demo, items),
            "completed": [_judge_additions(each, train) for each in demo.completions],
            "shown": _show_completed(demo, items),
            "changes": _changes(demo),
        },
    }


def _describe_run(run: Run, test: Dataset) -> dict[str, Any]:
    decisions = run.model.decide(run.probability)
    return {
        "name": run.name,
        "role": run.role,
        "method": run.method,
        "scores": evaluate(test.Y, run.probability, decisions=decisions),
        "seconds": run.seconds,
    }


def _changes(demo: Demo) -> list[dict[str, Any]]:
    """Test scores before and after the review, and with all labels."""
    runs = {"before": demo.before, "after": demo.after, "full": demo.oracle}
    usual = {key: run.model.decide(run.probability) for key, run in runs.items()}
    half = {key: run.model.decide(run.probability, threshold="hamming") for key, run in runs.items()}
    Y = demo.test.Y

    def line(name: str, words: str, decisions: Mapping[str, Any]) -> dict[str, Any]:
        scores = {
            key: evaluate(Y, run.probability, names=[name], decisions=decisions[key]) for key, run in runs.items()
        }
        metric = METRICS[name]
        return {
            "title": metric.title + words,
            "name": name,
            "greater_is_better": metric.greater_is_better,
            **{key: each[name] for key, each in scores.items()},
        }

    return [
        line("micro_f1", ", default decisions", usual),
        line("hamming_loss", ", default decisions", usual),
        line("hamming_loss", ", labels above one half", half),
        line("map", "", usual),
        {
            "title": "Labels predicted per image",
            "name": "labels_per_row",
            "true": float(Y.sum(1).mean()),
            **{key: float(each.sum(1).mean()) for key, each in usual.items()},
        },
        {
            "title": "Labels per image, estimated from the training images",
            "name": "cardinality",
            "true": float(demo.train.Y.sum(1).mean()),
            **{key: float(np.nansum(run.model.class_prior_)) for key, run in runs.items()},
        },
    ]


def _judge_additions(completion: Completion, train: Dataset) -> dict[str, Any]:
    """What was added, and how much of it is right."""
    added, true = completion.added, train.Y == 1
    hidden = true & ~completion.labels.observed.astype(bool)
    n = int(added.sum())
    return {
        "n_added": n,
        "n_rows": int(added.any(1).sum()),
        "expected_precision": float(completion.probability[added].mean()) if n else None,
        "precision": float(true[added].mean()) if n else None,
        "n_right": int((added & true).sum()),
        "n_hidden": int(hidden.sum()),
        "labels_per_row": float((added | completion.labels.observed.astype(bool)).sum(1).mean()),
    }


def _add_truth(facts: dict[str, Any], completion: Completion, train: Dataset) -> None:
    """The share of the added labels that is right, label by label (None without any), and how often pairs occur."""
    count, right = completion.added.sum(0), (completion.added & (train.Y == 1)).sum(0)
    for line, n, k in zip(facts["additions"]["labels"], count.tolist(), right.tolist(), strict=True):
        line["precision"] = k / n if n else None
    for pair in facts["together"]["pairs"]:
        both = train.Y[:, pair["labels"]].astype(bool)
        pair["true_times"] = float(both.all(1).mean() / both.mean(0).prod())


def _show_given(demo: Demo, items: FeatureItems) -> list[dict[str, Any]]:
    """Training images of two labels or more, drawn at random."""
    rows = np.flatnonzero(demo.train.Y.sum(1) >= 2)
    rows = np.sort(np.random.default_rng(demo.seed).choice(rows, min(_N_GIVEN, len(rows)), replace=False))
    return [_labels_of(row, demo.observed.observed[row], demo.train, items) for row in rows.tolist()]


def _show_completed(demo: Demo, items: FeatureItems) -> list[dict[str, Any]]:
    """Training images with an added label, drawn at random; with what was added, right and wrong."""
    done = demo.completions[1]
    rows = np.flatnonzero(done.added.any(1))
    if len(rows) == 0:
        return []
    rows = np.sort(np.random.default_rng(demo.seed).choice(rows, min(_N_COMPLETED, len(rows)), replace=False))
    shown = []
    for row in rows.tolist():
        found = _labels_of(row, done.labels.observed[row], demo.train, items)
        order = np.argsort(-done.probability[row], kind="stable")
        names = demo.train.label_names
        found["added"] = [
            [names[j], float(done.probability[row, j]), bool(demo.train.Y[row, j])]
            for j in order.tolist()
            if done.added[row, j]
        ]
        found["hidden"] = [name for name in found["hidden"] if name not in {each[0] for each in found["added"]}]
        shown.append(found)
    return shown


def _labels_of(row: int, observed: npt.NDArray[Any], train: Dataset, items: FeatureItems) -> dict[str, Any]:
    names, true = np.array(train.label_names), train.Y[row] == 1
    return {
        "item": items.ids[row],
        "image": np.asarray(train.X[row], np.float64).reshape(train.image_shape or (1, -1)).tolist(),
        "observed": names[observed == 1].tolist(),
        "hidden": names[true & (observed == 0)].tolist(),
    }


def render_demo(result: Result) -> str:
    """The page of a demo run, as HTML.

    Args:
        result: What `describe_demo` gave: the facts of `render_fit`, and `dataset`, `metrics`, `runs` and `story`. A
            section whose facts are missing is left out.
    """
    result = {"labels": [], "runs": [], "metrics": [], "dataset": {}} | without_none(result)
    page = Page(
        title=result.get("title") or "onepos demo",
        lead=(
            "Every training image shows one to four digits, but only one of them is written down. onepos estimates how "
            "common each digit really is, a person reviews a few images, and the missing labels are added. The truth "
            "is known here, so each step is checked against it."
        ),
        tiles=_tiles(result),
        sections=list(_sections(result)),
        footer=_data_text(result["dataset"]) + made_with(result),
    )
    return render_html(page)


def _tiles(result: Result) -> list[tuple[str, str]]:
    """The story in four numbers."""
    story, tiles = result.get("story"), []
    if result["dataset"].get("n_train"):
        tiles.append((grouped(result["dataset"]["n_train"]), "training images, each with one observed label"))
    if not story:
        return tiles
    before, after = (labels_per_row(each)[0] for each in (story["before"], result))
    words = f"labels per image, estimated before and after {story['n_reviewed']} images are reviewed"
    tiles.append((f"{before:.2f} → {after:.2f}", f"{words}; true are {result['dataset']['cardinality']:.2f}"))
    done = story["completed"][1]
    if done["n_added"]:
        text = f"missing labels added, {percent(done['precision'])} of them right; expected were "
        tiles.append((grouped(done["n_added"]), text + percent(done["expected_precision"])))
    first = story["changes"][0]
    text = f"{METRICS[first['name']].title} on new images; with all labels it is {first['full']:.3f}"
    return [*tiles, (f"{first['before']:.3f} → {first['after']:.3f}", text)]


def _sections(result: Result) -> Iterator[Section]:
    if result.get("story"):
        yield from _story_sections(result, result["story"])
    if result["runs"] and result["metrics"]:
        text = (
            "All with default settings, from one label per image; the oracle from all labels. Measured on "
            f"{grouped(result['dataset'].get('n_test') or 0)} test images of new handwriting. ↓ lower is better, "
            "↑ higher is better; the best value apart from the oracle is bold."
        )
        yield Section("methods", "Beside other methods", [text], (metrics_table(result, _COMPARED),))
    if result["labels"]:
        rest = [
            "The rest of this page is what onepos report shows for any model and its data. Here it describes the model "
            "fitted with the reviewed images."
        ]
        yield Section("report", "The report of the model", rest, is_divider=True)
        left_out = ("parameters", "next")
        yield from (each for each in fit_sections(result) if each.name not in left_out)
    about = [
        "A table with one label per row is enough; images come as one folder per label. The commands write a model, "
        "this page for it, the completed table, and open a page on which people review the doubtful rows."
    ]
    code = [
        "onepos fit items.csv --label category",
        "onepos report onepos-model --data items.csv --label category",
        "onepos complete items.csv --label category",
        "onepos serve onepos-model --data items.csv --label category",
    ]
    yield Section("next", "With your data", about, code=code)


def _story_sections(result: Result, story: Mapping[str, Any]) -> Iterator[Section]:
    """One label each, the class priors, the review, the completed data, and what it brings."""
    cardinality, n = result["dataset"]["cardinality"], story["n_reviewed"]
    text = (
        f"An image holds {cardinality:.2f} digits on average, and one of them, drawn at random, is observed (filled). "
        "The others are hidden (dashed): nobody says that they are absent. These images are drawn at random from those "
        "with two digits or more."
    )
    yield Section("observed", "1. One label each", [text], cards=[_given_card(each) for each in story["given"]])
    yield _shares_section(result, story)
    text = (
        f"{n} images are drawn at random, and a person says of every digit whether it is there; in this demo the true "
        f"labels answer. That settles how many labels an image has."
    )
    priors = priors_of(result) | {"before": story["before"]["class_prior"], "observed_share": None}
    caption = "The pale bar is the confidence interval after the review."
    chart = Chart(partial(prior_chart, {"priors": priors}), caption)
    yield Section("review", f"3. {n} images are reviewed", [text], (_review_table(result, story),), chart=chart)
    yield _completed_section(result, story)
    table = _changes_table(story)
    yield Section("better", table.title, _describe_changes(story), (table,))


_WHY = (
    "A few reviewed images say little about which digit is where. What they settle is how many digits there are, and "
    "with it the level of all probabilities: that changes decisions more than the order of images, which mAP measures."
)


def _shares_section(result: Result, story: Mapping[str, Any]) -> Section:
    """The class priors from one label per image."""
    before = without_none(story["before"] | {"true_prior": result.get("true_prior")})
    kappa, low, high = labels_per_row(before)
    priors = priors_of(before)
    table = priors_table(priors, "priors-before", "Label by label, before the review", "Error is estimated minus true.")
    true = result["dataset"]["cardinality"]
    text = [
        "A digit is observed less often than it occurs, since only one digit of an image is observed. onepos estimates "
        "the class prior, the share of images that truly show a digit, from the observed labels alone.",
        f"The order of the digits is right, but one label per image leaves open how many labels there are: the "
        f"estimate is {kappa:.2f} per image, and the data go with {low:.2f} to {high:.2f}. The truth is {true:.2f}.",
    ]
    if not _is_ordered(priors):
        text[1] = text[1].replace("The order of the digits is right, but one", "One")
    chart = Chart(partial(prior_chart, {"priors": priors}), prior_caption(table))
    return Section("shares", "2. How common is each label?", text, chart=chart, folded=(table,))


def _is_ordered(priors: Mapping[str, Any]) -> bool:
    """Whether the estimated priors have the order of the true ones."""
    true, estimated = (as_array(priors[name]) for name in ("true", "estimated"))
    return bool((np.argsort(true, kind="stable") == np.argsort(estimated, kind="stable")).all())


def _review_table(result: Result, story: Mapping[str, Any]) -> Table:
    """Labels per image and the error of the class priors, before and after the review."""
    rows, true = [], as_array(result["true_prior"])
    sides = (("One label each", story["before"]), (f"{story['n_reviewed']} images reviewed", result))
    for name, facts in sides:
        kappa, low, high = labels_per_row(facts)
        error = float(np.nanmean(np.abs(as_array(facts["class_prior"]) - true)))
        cells = [name, decimal(kappa, 2), f"{low:.2f} to {high:.2f}", decimal(error)]
        rows.append([Cell(text) for text in cells])
    rows.append([Cell("The truth"), Cell(decimal(float(true.sum()), 2)), Cell(MISSING), Cell(MISSING)])
    header = ["Known", "Labels per image, estimated", "Interval", "Mean error of the priors"]
    about = "Labels per image: the sum of the class priors. Interval: the sums of their ends."
    return Table("review", f"3. {story['n_reviewed']} images are reviewed", header, rows, about)


def _completed_section(result: Result, story: Mapping[str, Any]) -> Section:
    before, after = story["completed"]
    wanted = percent(result["additions"]["min_precision"])
    first = (
        f"Before the review {'no label' if not before['n_added'] else grouped(before['n_added']) + ' labels'} could be "
        f"added with {wanted} of them right."
    )
    if not after["n_added"]:
        text = [f"{first} After it there is none either."]
    else:
        text = [
            f"{first} Now {grouped(after['n_added'])} are added to {grouped(after['n_rows'])} images. "
            f"{percent(after['expected_precision'])} were expected to be right, {percent(after['precision'])} are. "
            f"Of all hidden labels {percent(after['n_right'] / max(1, after['n_hidden']))} are found; the others stay "
            "unknown, because nothing in one label per image makes them sure enough.",
            f"{len(story['shown'])} of these images, drawn at random: filled is what was known, a bar what was added, "
            "with its probability; ✓ it is there, ✗ it is not; dashed is what stays hidden.",
        ]
    return Section(
        "completed",
        "4. The data are completed",
        text,
        (_completed_table(story),),
        cards=[_completed_card(each) for each in story["shown"]],
    )


def _completed_table(story: Mapping[str, Any]) -> Table:
    rows = []
    for name, each in zip(
        ("One label each", f"{story['n_reviewed']} images reviewed"), story["completed"], strict=True
    ):
        shares = [MISSING if each[key] is None else percent(each[key]) for key in ("expected_precision", "precision")]
        found = percent(each["n_right"] / max(1, each["n_hidden"]))
        texts = [name, grouped(each["n_added"]), *shares, found, f"{each['labels_per_row']:.2f}"]
        rows.append([Cell(text) for text in texts])
    header = ["Known", "Labels added", "Expected right", "Truly right", "Hidden labels found", "Labels per image then"]
    return Table("completed", "4. The data are completed", header, rows)


def _given_card(each: Mapping[str, Any]) -> Card:
    observed, hidden = each["observed"], each["hidden"]
    alt = f"Image of handwritten digits: {', '.join([*observed, *hidden])}"
    pills = [("Observed", [Pill(name, "seen") for name in observed]), ("Hidden", [Pill(n, "hidden") for n in hidden])]
    return Card(image=image_uri(each["image"]), alt=alt, pills=[group for group in pills if group[1]])


def _completed_card(each: Mapping[str, Any]) -> Card:
    card = _given_card(each)
    bars = [Bar(label, round(100 * p), "right" if is_true else "wrong") for label, p, is_true in each["added"]]
    true = [name for name, _, is_true in each["added"] if is_true]
    return dataclasses.replace(
        card,
        alt=f"Image of handwritten digits: {', '.join([*each['observed'], *true, *each['hidden']])}",
        pills=[("Known", pills) for heading, pills in card.pills if heading == "Observed"],
        bars=[("Added", bars)],
        below=[("Stays hidden", pills) for heading, pills in card.pills if heading == "Hidden"],
    )


def _changes_table(story: Mapping[str, Any]) -> Table:
    """Test scores before and after the review, and with all labels."""
    rows = []
    for each in story["changes"]:
        before, after, full = (each[key] for key in ("before", "after", "full"))
        if "true" in each:
            texts = [f"{value:.2f}" for value in (before, after, full)]
            rows.append([Cell(f"{each['title']} (true: {each['true']:.2f})"), *map(Cell, texts)])
            continue
        tone = _tone(each)
        cell = Cell(decimal(after), is_best=tone == "better", tone=tone, notes=((tone, ""),) if tone else ())
        arrow = "↑" if each["greater_is_better"] else "↓"
        rows.append([Cell(f"{each['title']} {arrow}"), Cell(decimal(before)), cell, Cell(decimal(full))])
    header = ["On test images", "One label each", f"{story['n_reviewed']} images reviewed", "All labels known"]
    about = (
        "Default decisions: each label is predicted as often as its class prior says, and each image gets at least one."
    )
    is_better = _tone(story["changes"][0]) == "better"
    title = "5. A better model" if is_better else "5. The model, fitted again"
    return Table("changes", title, header, rows, about)


def _tone(each: Mapping[str, Any]) -> str:
    """Whether a score is better or worse after the review, as printed; "" where it is the same."""
    gain = round(each["after"], 3) - round(each["before"], 3)
    gain = gain if each["greater_is_better"] else -gain
    return "" if abs(gain) < 5e-4 else "better" if gain > 0 else "worse"


def _describe_changes(story: Mapping[str, Any]) -> list[str]:
    """What got better and what did not, in a sentence."""
    scored = [each for each in story["changes"] if "true" not in each]
    groups = {tone: [f"{each['title']} ({decimal(each['before'])} → {decimal(each['after'])})" for each in scored
                     if _tone(each) == tone] for tone in ("better", "worse", "")}  # fmt: skip
    words = {"better": "Better", "worse": "Worse", "": "Unchanged"}
    text = "; ".join(f"{words[tone]}: {', '.join(names)}" for tone, names in groups.items() if names)
    gains = {each["name"]: abs(each["after"] - each["before"]) for each in scored}
    why = [_WHY] if gains["micro_f1"] > gains["map"] else []
    return [f"The same method, fitted again with the reviewed images, on new images. {text}.", *why]


def summary_tables(result: Result) -> list[Table]:
    """What a terminal shows of the demo: the review, the completed data, and the methods."""
    story = result["story"]
    named = (
        ("Test images, before and after some training images are reviewed", _changes_table(story)),
        ("Training images, completed", _completed_table(story)),
        ("Test images: other methods, one observed label per training image", metrics_table(result)),
    )
    return [dataclasses.replace(table, title=title) for title, table in named]


def metrics_table(result: Result, names: Sequence[str] = ()) -> Table:
    """One row per metric, one column per run; below a score the share of the distance to the oracle that it closes."""
    runs = [run for run in result["runs"] if "reviewed" not in run["name"]]
    metrics = [metric for metric in result["metrics"] if not names or metric["name"] in names]
    rows = [_metric_row(metric, runs) for metric in metrics]
    if any(as_float(run.get("seconds")) is not None for run in runs):
        rows.append([Cell("Time of the fit (s)"), *(Cell(decimal(run.get("seconds"), 1)) for run in runs)])
    about = (
        "The oracle learns from all labels, which nobody has in practice: it is the score that could be reached. The "
        "floor treats every hidden label as negative. The percentage is how far a method gets from the floor (0 %) to "
        "the oracle (100 %); below zero it is worse than the floor."
    )
    return Table("metrics", "How well each method does", ["Metric", *map(run_title, runs)], rows, about)


def image_uri(pixels: Sequence[Sequence[float]]) -> str:
    """A grey image with values from 0 (black) to 1 (white), as a PNG in a data URI."""
    from PIL import Image

    grey = (np.nan_to_num(np.asarray(pixels, dtype=float)).clip(0, 1) * 255).round().astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(grey).save(buffer, "png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


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
