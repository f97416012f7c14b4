"""`onepos demo`, `fit`, `predict` and `evaluate`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onepos.cli.console import progress, show_json, show_number, show_table
from onepos.cli.fitting import (
    describe_rows,
    make_classifier,
    shorten,
    show_fit,
    summarize_fit,
    train_model,
    without_skipped,
    write_fit_report,
)
from onepos.cli.inputs import (
    as_inputs,
    check_folder,
    check_model_folder,
    observe,
    parse_parameters,
    read_inputs,
    read_rows,
    spread_labels,
)
from onepos.cli.options import (
    Checkpoint,
    DataArgument,
    DrawOptions,
    FineTune,
    ImageOptions,
    InputOptions,
    Json,
    Method,
    ModelArgument,
    Network,
    Quiet,
    RecipeOf,
    RowOptions,
    Seed,
    Set,
    Size,
    TrainOptions,
    ValidationData,
    Weights,
    grouped,
)

if TYPE_CHECKING:
    from onepos.estimator import SinglePositiveClassifier


def demo(
    out: Annotated[Path, typer.Option(help="The report page.")] = Path("demo-report.html"),
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train CRISP, CRISP+, a lower and an upper reference on generated images of digits; write a report page."""
    import torch

    from onepos.bench.demo import run_demo
    from onepos.files import write_atomically
    from onepos.report.demo_page import demo_priors_table, metrics_table, render_demo

    check_folder(out)
    torch.set_num_threads(1)  # at this size a second thread costs more than it saves
    with progress(quiet) as advance:
        result = run_demo(seed, progress=advance)
    write_atomically(out, render_demo(result))
    if as_json:
        show_json(result)
    elif not quiet:
        scores, priors = metrics_table(result), demo_priors_table(result)
        title = "Scores on test images; in training, one label per image was observed"
        show_table(list(scores.header), scores.texts(), title=title)
        print()
        title = "Share of images with each label: CRISP's estimate and the truth"
        show_table(list(priors.header), priors.texts(), title=title)
        print(f"\nreport: {out}")


@grouped
def fit(
    data: DataArgument,
    row_options: RowOptions,
    draw_options: DrawOptions,
    train_options: TrainOptions,
    image_options: ImageOptions,
    out: Annotated[Path, typer.Option(help="The model folder.")] = Path("onepos-model"),
    report: Annotated[Path | None, typer.Option(help="Also write a report page (HTML) to this file.")] = None,
    method: Method = "crisp-plus",
    parameters: Set = None,
    recipe: RecipeOf = None,
    validation: ValidationData = None,
    network: Network = None,
    weights: Weights = "auto",
    size: Size = None,
    fine_tune: FineTune = False,
    seed: Seed = 0,
    checkpoint: Checkpoint = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a model from rows with one observed label each and write it to a folder."""
    started = time.perf_counter()
    check_model_folder(out)
    for path in (checkpoint, draw_options.save_draw, report):
        if path is not None:
            check_folder(path)
    settings = train_options.parameters()
    rows = read_rows(data, row_options)
    held_out = None if validation is None else read_rows(validation, row_options)
    observed = observe(rows, draw_options, seed, settings.get("positives", "single"))

    from onepos.bench.recipes import Recipe, check_recipe, find_recipe
    from onepos.methods import make_method

    if recipe:
        check_recipe(method, recipe)
    is_full = bool((rows.Y.sum(1) > 1).any())
    chosen = find_recipe(method, recipe, rows.Y if is_full else None) if recipe else Recipe()
    images = image_options.parameters() | {
        "weights": None if weights == "none" else weights,
        "image_size": size,
        "fine_tune": fine_tune,
    }
    made = make_method(method, **(chosen.parameters | parse_parameters(parameters)))
    model = make_classifier(rows, made, network, images, random_state=seed)
    known = model.get_params(deep=False)  # a recipe for images may name what rows do not have
    model.set_params(**{name: value for name, value in (chosen.plan | settings).items() if name in known})
    train_model(model, rows, observed, held_out, checkpoint, quiet)
    model.save(out)
    summary = summarize_fit(model, method, without_skipped(observed, model), time.perf_counter() - started)
    if report is not None:
        write_fit_report(report, summary)
    if as_json:
        show_json(shorten(summary, out))
    elif not quiet:
        print(describe_rows(data, rows, observed))
        show_fit(model, summary, out, report)


@grouped
def predict(
    model: ModelArgument,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="As for `onepos fit`, without labels; a folder of images may have any structure."
        ),
    ],
    input_options: InputOptions,
    image_options: ImageOptions,
    out: Annotated[Path, typer.Option(help="The table to write (.csv or .csv.gz).")] = Path("predictions.csv"),
    quiet: Quiet = False,
) -> None:
    """Write the probability of every label for every row, and the set of predicted labels."""
    import pandas as pd

    from onepos.files import replacing

    check_folder(out)
    if not out.name.lower().endswith((".csv", ".csv.gz")):
        raise ValueError(f"--out must end in .csv or .csv.gz, the formats that are written; it is {out}. Rename it.")
    fitted = _load(model, image_options)
    X = read_inputs(fitted, data, RowOptions(**vars(input_options)))
    probability = _predict(fitted, X, quiet)
    names = [str(name) for name in fitted.classes_]
    what = "row" if fitted.kind == "rows" else "image"
    table = pd.DataFrame(probability, columns=names, index=None if what == "row" else X)
    chosen = probability > fitted.thresholds_
    mark = next((mark for mark in ";|,/" if not any(mark in name for name in names)), ";")
    columns = ("row" if what == "row" else "file", "predicted")
    index, predicted = (column if column not in names else f"{column}_" for column in columns)
    table.insert(0, predicted, [mark.join(str(name) for name in fitted.classes_[row]) for row in chosen])
    with replacing(out) as handle:
        is_zipped = out.name.lower().endswith(".gz")
        table.to_csv(handle, index_label=index, float_format="%.6g", compression="gzip" if is_zipped else None)
    if quiet:
        return
    is_read = ~table[names[0]].isna()
    count = chosen[is_read].sum(1).mean()
    print(f"{is_read.sum()} {what}s, {count:.2f} labels predicted per {what} on average; written to {out}")
    if mark != ";":
        print(f"'{mark}' separates the labels in the column '{predicted}', because a label contains ';'.")
    if count < 0.5:
        print(
            f"Most {what}s got no label, because few probabilities exceed the threshold. A model fitted with "
            "--threshold prior predicts each label as often as its estimated share."
        )


@grouped
def evaluate(
    model: ModelArgument,
    data: DataArgument,
    row_options: RowOptions,
    image_options: ImageOptions,
    per_label: Annotated[bool, typer.Option("--per-label", help="Also print the scores of each label.")] = False,
    as_json: Json = False,
) -> None:
    """Score a model on fully labelled rows."""
    import onepos.metrics as metrics

    fitted = _load(model, image_options)
    rows = read_rows(data, row_options, getattr(fitted, "feature_names_in_", None))
    names = [str(name) for name in fitted.classes_]
    Y = spread_labels(rows, names)
    probability = _predict(fitted, as_inputs(rows, fitted), as_json)
    is_read = ~(probability != probability).any(1)  # all but skipped images
    Y, probability = Y[is_read], probability[is_read]
    scores = metrics.evaluate(Y, probability, threshold=fitted.thresholds_)
    table = metrics.per_label(Y, probability, fitted.thresholds_, names)
    if as_json:
        show_json({"n_rows": len(Y), "scores": scores} | ({"labels": _records(table)} if per_label else {}))
        return
    listed = [
        [m.title, "higher" if m.greater_is_better else "lower", f"{scores[name]:.4f}"]
        for name, m in metrics.METRICS.items()
    ]
    what = "row" if fitted.kind == "rows" else "image"
    show_table(["metric", "better", "value"], listed, title=f"{len(Y)} {what}s, {len(names)} labels")
    if (Y.sum(1) <= 1).all():
        print(
            f"\nEvery {what} holds at most one label, so all other labels count as absent. Where several labels are "
            "true, these scores are too low: evaluate on fully labelled data."
        )
    if per_label:
        print()
        show_table(
            ["label", *map(str, table.columns)],
            [[str(row[0]), *(show_number(v) for v in row[1:])] for row in table.itertuples()],
        )


def _load(folder: Path, images: ImageOptions) -> SinglePositiveClassifier:
    from onepos.estimator import SinglePositiveClassifier

    fitted = SinglePositiveClassifier.load(folder)
    return fitted.set_params(**images.parameters()) if fitted.kind == "images" else fitted


def _predict(fitted: SinglePositiveClassifier, X: Any, quiet: bool) -> Any:
    from onepos.images.classifier import SinglePositiveImageClassifier

    if not isinstance(fitted, SinglePositiveImageClassifier):
        return fitted.predict_proba(X)
    with progress(quiet) as advance:
        return fitted.predict_proba(X, on_images=lambda what, done, n: advance(what, done - 1, n))


def _records(table: Any) -> list[dict[str, Any]]:
    records = json.loads(table.to_json(orient="records"))
    return [{"label": str(name)} | record for name, record in zip(table.index, records, strict=True)]
