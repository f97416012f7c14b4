"""`onepos demo`, `fit`, `predict` and `evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onepos.cli.console import json_number, progress, show_json, show_number, show_table
from onepos.cli.fitting import train_model, without_skipped
from onepos.cli.image_inputs import image_parameters, make_classifier
from onepos.cli.inputs import (
    as_inputs,
    check_folder,
    name_columns,
    observe,
    parse_parameters,
    parse_threshold,
    parse_widths,
    read_inputs,
    read_rows,
    spread_labels,
)
from onepos.cli.options import (
    BatchSize,
    BiasInit,
    Cache,
    Checkpoint,
    DataArgument,
    DataRoot,
    Decay,
    Device,
    DrawFile,
    DrawHow,
    Drop,
    Epochs,
    FineTune,
    Hidden,
    Image,
    Json,
    Label,
    LabelColumns,
    Method,
    ModelArgument,
    Network,
    Positives,
    Precision,
    Quiet,
    Rate,
    RecipeOf,
    SaveDraw,
    Scale,
    Seed,
    Separator,
    Set,
    Size,
    SkipBroken,
    SplitSeed,
    Threshold,
    ValidationData,
    Weights,
    Workers,
)

if TYPE_CHECKING:
    from onepos.estimator import SinglePositiveClassifier


def demo(
    out: Annotated[Path, typer.Option(help="The report page.")] = Path("demo-report.html"),
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train CRISP and CRISP+, their floor and ceiling, on digit scenes; print a table, write a report page."""
    import torch

    from onepos.bench.demo import run_demo
    from onepos.files import write_atomically
    from onepos.report.demo_page import demo_priors_table, metrics_table, render_demo

    check_folder(out)
    torch.set_num_threads(1)  # at this size a second thread only waits for the first
    with progress(quiet) as advance:
        result = run_demo(seed, progress=advance)
    write_atomically(out, render_demo(result))
    if as_json:
        show_json(result)
    elif not quiet:
        scores, priors = metrics_table(result), demo_priors_table(result)
        title = "test scores on digit scenes (one observed label per training scene)"
        show_table(list(scores.header), scores.texts(), title=title)
        print()
        title = "class priors: estimated by CRISP, and true"
        show_table(list(priors.header), priors.texts(), title=title)
        print(f"\nreport: {out}")


def fit(
    data: DataArgument,
    label: Label = None,
    separator: Separator = None,
    label_columns: LabelColumns = None,
    image: Image = None,
    drop: Drop = None,
    out: Annotated[Path, typer.Option(help="The model folder.")] = Path("onepos-model"),
    method: Method = "crisp-plus",
    parameters: Set = None,
    recipe: RecipeOf = None,
    threshold: Threshold = None,
    validation: ValidationData = None,
    draw: DrawHow = None,
    draw_file: DrawFile = None,
    save_draw: SaveDraw = None,
    network: Network = None,
    hidden: Hidden = "256",
    weights: Weights = "auto",
    size: Size = None,
    fine_tune: FineTune = False,
    workers: Workers = 2,
    skip_broken: SkipBroken = False,
    cache: Cache = None,
    epochs: Epochs = 20,
    batch_size: BatchSize = 32,
    lr: Rate = 1e-3,
    weight_decay: Decay = 0.0,
    scale: Scale = "standard",
    bias_init: BiasInit = "frequency",
    positives: Positives = "single",
    device: Device = "auto",
    precision: Precision = "32",
    seed: Seed = 0,
    split_seed: SplitSeed = 0,
    data_root: DataRoot = None,
    checkpoint: Checkpoint = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a model from rows with one observed label each and write it to a folder."""
    _check_model_folder(out)
    for path in (checkpoint, save_draw):
        if path is not None:
            check_folder(path)
    columns = name_columns(label, separator, label_columns, drop, image)
    rows = read_rows(data, columns, data_root, split_seed)
    held_out = None if validation is None else read_rows(validation, columns, data_root, split_seed)
    observed = observe(rows, draw, draw_file, save_draw, seed, positives)

    from onepos.bench.recipes import Recipe, check_recipe, find_recipe
    from onepos.methods import make_method

    if recipe:
        check_recipe(method, recipe)
    is_full = bool((rows.Y.sum(1) > 1).any())
    chosen = find_recipe(method, recipe, rows.Y if is_full else None) if recipe else Recipe()
    decide = {"threshold": parse_threshold(threshold)} if threshold else {}
    images = image_parameters(weights=weights, size=size, workers=workers, skip_broken=skip_broken, cache=cache)
    model = make_classifier(
        rows,
        make_method(method, **(chosen.parameters | parse_parameters(parameters))),
        network,
        images | {"fine_tune": fine_tune},
        hidden=parse_widths(hidden),
        scale=scale,
        bias_init=bias_init,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        weight_decay=weight_decay,
        positives=positives,
        device=device,
        precision=precision,
        random_state=seed,
    )
    known = model.get_params(deep=False)  # a recipe for images may name what rows do not have
    model.set_params(**{name: value for name, value in (chosen.plan | decide).items() if name in known})
    train_model(model, rows, observed, held_out, checkpoint, quiet)
    model.save(out)
    _show_fit(model, without_skipped(observed, model), out, quiet, as_json)


def predict(
    model: ModelArgument,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="As for `onepos fit`, without labels; images may lie anywhere in a folder.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The table to write (CSV).")] = Path("predictions.csv"),
    image: Image = None,
    workers: Workers = 2,
    skip_broken: SkipBroken = False,
    cache: Cache = None,
    drop: Drop = None,
    split_seed: SplitSeed = 0,
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Write the probability of every label for every row, and the set of predicted labels."""
    import pandas as pd

    from onepos.files import write_atomically

    check_folder(out)
    fitted = _load(model, workers, skip_broken, cache)
    X = read_inputs(fitted, data, drop, image, data_root, split_seed)
    probability = _predict(fitted, X, quiet)
    is_images = fitted.kind == "images"
    table = pd.DataFrame(probability, columns=[str(name) for name in fitted.classes_], index=X if is_images else None)
    chosen = probability > fitted.thresholds_
    names = ("file" if is_images else "row", "predicted")
    free = [name if name not in table.columns else f"{name}_" for name in names]
    table.insert(0, free[1], [";".join(str(name) for name in fitted.classes_[row]) for row in chosen])
    write_atomically(out, table.to_csv(index_label=free[0], float_format="%.6g"))
    if not quiet:
        read = ~table[str(fitted.classes_[0])].isna()
        count = chosen[read].sum(1).mean()
        what = "image" if is_images else "row"
        print(f"{read.sum()} {what}s, {count:.2f} labels predicted per {what}: {out}")
        if count < 0.5:
            print("Few scores exceed the threshold; fit with --threshold prior to predict as often as estimated.")


def evaluate(
    model: ModelArgument,
    data: DataArgument,
    label: Label = None,
    separator: Separator = None,
    label_columns: LabelColumns = None,
    image: Image = None,
    drop: Drop = None,
    workers: Workers = 2,
    skip_broken: SkipBroken = False,
    cache: Cache = None,
    split_seed: SplitSeed = 0,
    data_root: DataRoot = None,
    per_label: Annotated[bool, typer.Option("--per-label", help="A row for each label too.")] = False,
    as_json: Json = False,
) -> None:
    """Score a model on fully labelled rows."""
    import onepos.metrics as metrics

    columns = name_columns(label, separator, label_columns, drop, image)
    fitted = _load(model, workers, skip_broken, cache)
    rows = read_rows(data, columns, data_root, split_seed)
    Y = spread_labels(rows, [str(name) for name in fitted.classes_])
    probability = _predict(fitted, as_inputs(rows, fitted), as_json)
    read = ~(probability != probability).any(1)  # all but skipped images
    Y, probability = Y[read], probability[read]
    scores = metrics.evaluate(Y, probability, threshold=fitted.thresholds_)
    table = metrics.per_label(Y, probability, fitted.thresholds_, [str(name) for name in fitted.classes_])
    if as_json:
        show_json({"n_rows": len(Y), "scores": scores} | ({"labels": _records(table)} if per_label else {}))
        return
    listed = [
        [m.title, "higher" if m.greater_is_better else "lower", f"{scores[name]:.4f}"]
        for name, m in metrics.METRICS.items()
    ]
    what = "images" if fitted.kind == "images" else "rows"
    show_table(["metric", "better", "value"], listed, title=f"{len(Y)} {what}, {len(fitted.classes_)} labels")
    if fitted.kind == "images" and (Y.sum(1) == 1).all():
        print(
            "\nEach image has one label, and the others count as absent: where images have several, only the ranking "
            "of the known one means something."
        )
    if per_label:
        print()
        show_table(
            ["label", *map(str, table.columns)],
            [[str(row[0]), *(show_number(v) for v in row[1:])] for row in table.itertuples()],
        )


def _load(folder: Path, workers: int, skip_broken: bool, cache: Path | None) -> SinglePositiveClassifier:
    from onepos.estimator import SinglePositiveClassifier

    fitted = SinglePositiveClassifier.load(folder)
    if fitted.kind == "images":
        fitted.set_params(workers=workers, on_error="skip" if skip_broken else "raise", cache=cache)
    return fitted


def _predict(fitted: SinglePositiveClassifier, X: Any, quiet: bool) -> Any:
    from onepos.images.classifier import SinglePositiveImageClassifier

    if not isinstance(fitted, SinglePositiveImageClassifier):
        return fitted.predict_proba(X)
    with progress(quiet) as advance:
        return fitted.predict_proba(X, on_images=lambda what, done, n: advance(what, done - 1, n))


def _show_fit(model: SinglePositiveClassifier, observed: Any, out: Path, quiet: bool, as_json: bool) -> None:
    history = model.history_
    best = history.validation[history.best_epoch] if history.validation else None
    if as_json:
        summary = {"model": str(out), "best_epoch": history.best_epoch, "validation": best, "loss": history.loss[-1]}
        show_json(
            summary
            | {"class_prior": dict(zip(map(str, model.classes_), map(json_number, model.class_prior_), strict=True))}
        )
        return
    if quiet:
        return
    rows = [
        [str(name), str(int(count)), show_number(prior)]
        for name, count, prior in zip(model.classes_, observed.sum(0), model.class_prior_, strict=True)
    ]
    shown = rows[:30]
    show_table(["label", "observed", "estimated prior"], shown)
    if len(rows) > len(shown):
        print(f"… and {len(rows) - len(shown)} labels more, in {out}/model.json")
    print(
        f"\nkept epoch {history.best_epoch + 1} of {len(history.loss)}" + (f", validation {best:.4f}" if best else "")
    )
    n_rows = getattr(model.network_, "n_training_rows", 0)
    print(f"model: {out}" + (f", with {n_rows} training rows, which it asks about new ones" if n_rows else ""))


def _check_model_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise FileNotFoundError(f"{path} must be a folder, or not exist yet; it is a file. Name another with --out.")


def _records(table: Any) -> list[dict[str, Any]]:
    records = json.loads(table.to_json(orient="records"))
    return [{"label": str(name)} | record for name, record in zip(table.index, records, strict=True)]
