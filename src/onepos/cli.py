"""The command line: one command is one call of the library. Heavy imports wait until a command needs them."""

from __future__ import annotations

import json
import os
import sys
import warnings
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onepos.bench_cli import bench_app
from onepos.console import Advance, complain, progress, show_json, show_table
from onepos.inputs import (
    as_inputs,
    observe,
    parse_parameters,
    parse_threshold,
    parse_widths,
    read_inputs,
    read_rows,
    spread_labels,
)

if TYPE_CHECKING:
    from onepos.datasets import Dataset
    from onepos.datasets.images import ImageDataset
    from onepos.estimator import SinglePositiveClassifier
    from onepos.priors import PriorEstimate

app = typer.Typer(
    name="onepos",
    help="Multi-label classifiers from one positive label per example.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Known data sets: list, describe, fetch.", no_args_is_help=True, rich_markup_mode=None)
list_app = typer.Typer(help="What there is to choose from.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(bench_app, name="bench")
app.add_typer(data_app, name="data")
app.add_typer(list_app, name="list")


class Draw(StrEnum):
    """How to hide all but one positive of each row."""

    uniform = "uniform"
    frequency = "frequency"
    cole = "cole"


class Estimator(StrEnum):
    """How class priors are estimated; the names of `onepos.priors.ESTIMATORS`, which would bring torch."""

    bbe = "bbe"
    anchor = "anchor"
    reweighted = "reweighted"
    bracket = "bracket"
    shrinkage = "shrinkage"


DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file (.csv .tsv .parquet .npz .arff .mat), the name of a data set, or pictures: a folder with a folder "
        "per class, a table with the columns path and label, or voc:FOLDER, coco:FOLDER, nuswide:FOLDER, cub:FOLDER. "
        "With :train, :val or :test behind it, that part of the split it brings, or of a seeded 80/10/10 one.",
    ),
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder written by `onepos fit`.")]
Label = Annotated[str | None, typer.Option(help="The column that holds the label.")]
Separator = Annotated[str | None, typer.Option(help="The label column holds several labels with this between them.")]
LabelColumns = Annotated[str | None, typer.Option(help="0/1 label columns, by commas, or a pattern such as 'tag_*'.")]
Image = Annotated[str | None, typer.Option(help="The column that holds paths of pictures [default: path, if it does].")]
Drop = Annotated[str | None, typer.Option(help="Columns that are no features, by commas.")]
DataRoot = Annotated[
    Path | None, typer.Option(help="Folder of the data sets [default: $ONEPOS_DATA or ~/.cache/onepos].")
]
SplitSeed = Annotated[int, typer.Option(help="Seed of the split behind :train, :val and :test.")]
DrawHow = Annotated[Draw | None, typer.Option(help="Fully labelled data: keep one positive per row, drawn like this.")]
DrawFile = Annotated[Path | None, typer.Option(help="Fully labelled data: keep the positives named in this draw file.")]
SaveDraw = Annotated[Path | None, typer.Option(help="Write the draw to this file.")]
Method = Annotated[str, typer.Option(help="See `onepos list methods`.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method; repeatable.")
]
RecipeOf = Annotated[
    str | None, typer.Option("--recipe", metavar="DATASET", help="The method's settings for this data set.")
]
Threshold = Annotated[
    str | None, typer.Option(help="A probability, or 'prior' to match the class priors [default: 0.5].")
]
Network = Annotated[
    str | None,
    typer.Option(
        help="For rows mlp, linear or bottleneck [default: mlp]; for pictures efficientnet-lite0, resnet18, resnet34, "
        "resnet50 or resnet101 [default: efficientnet-lite0]."
    ),
]
Weights = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="Pictures: a weight file (.pth, .pt, .safetensors), pretrained, or none [default: pretrained].",
        show_default=False,
    ),
]
Size = Annotated[
    int | None, typer.Option(help="Pictures: side in pixels to which they are scaled [default: the network's].")
]
FineTune = Annotated[
    bool, typer.Option("--fine-tune", help="Pictures: train the whole network, not only its last layer; slow on a CPU.")
]
Workers = Annotated[int, typer.Option(min=0, help="Pictures: processes that decode them.")]
SkipBroken = Annotated[
    bool, typer.Option("--skip-broken", help="Pictures: go on without files that can not be read, and list them.")
]
Cache = Annotated[Path | None, typer.Option(help="Pictures: a folder that keeps their features for the next command.")]
Hidden = Annotated[str, typer.Option(help="Widths of the hidden layers of mlp, by commas.")]
Epochs = Annotated[int, typer.Option(min=1)]
BatchSize = Annotated[int, typer.Option(min=1)]
Rate = Annotated[float, typer.Option(help="Learning rate of Adam.")]
Decay = Annotated[float, typer.Option(help="L2 weight of Adam.")]
Scale = Annotated[str, typer.Option(help="standard or none.")]
BiasInit = Annotated[str, typer.Option(help="frequency or zero: where the head's bias starts.")]
Positives = Annotated[str, typer.Option(help="single: exactly one positive per row; any: none or several are fine.")]
ValidationData = Annotated[
    str | None, typer.Option("--validation", metavar="DATA", help="Rows to choose the epoch by.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Precision = Annotated[str, typer.Option(help="32 or bf16.")]
Checkpoint = Annotated[Path | None, typer.Option(help="Written after each epoch; the same command goes on from it.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    if version:
        from onepos import __version__

        print(f"onepos {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The report page.")] = Path("demo-report.html"),
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train CRISP and CRISP+, their floor and ceiling, on digit scenes; print a table, write a report page."""
    import torch

    from onepos.benchmark.demo import run_demo
    from onepos.files import write_atomically
    from onepos.report.page import render_demo
    from onepos.report.tables import metrics_table, priors_table

    _check_folder(out)
    torch.set_num_threads(1)  # at this size a second thread only waits for the first
    with progress(quiet) as advance:
        result = run_demo(seed, progress=advance)
    write_atomically(out, render_demo(result))
    if as_json:
        show_json(result)
    elif not quiet:
        show_table(*metrics_table(result), title="test scores on digit scenes (one observed label per training scene)")
        print()
        show_table(*priors_table(result), title="class priors: what CRISP estimated against the truth it never saw")
        print(f"\nreport: {out}")


@app.command()
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
            _check_folder(path)
    columns = _columns(label, separator, label_columns, drop, image)
    rows = read_rows(data, columns, data_root, split_seed)
    held_out = None if validation is None else read_rows(validation, columns, data_root, split_seed)
    observed = observe(rows, draw, draw_file, save_draw, seed, positives)

    from onepos.estimator import SinglePositiveClassifier
    from onepos.methods import make_method
    from onepos.recipes import Recipe, find_recipe

    is_full = bool((rows.Y.sum(1) > 1).any())
    chosen = find_recipe(method, recipe, rows.Y if is_full else None) if recipe else Recipe()
    decide = {"threshold": parse_threshold(threshold)} if threshold else {}
    model = SinglePositiveClassifier(
        make_method(method, **(chosen.parameters | parse_parameters(parameters))),
        network=network or _default_network(rows),
        weights=None if weights == "none" else weights,
        image_size=size,
        fine_tune=fine_tune,
        on_error="skip" if skip_broken else "raise",
        workers=workers,
        cache=cache,
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
    ).set_params(**(chosen.plan | decide))
    _train(model, rows, observed, held_out, checkpoint, quiet)
    model.save(out)
    _show_fit(model, _without_skipped(observed, model), out, quiet, as_json)


@app.command()
def predict(
    model: ModelArgument,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="As for `onepos fit`, without labels; pictures may lie anywhere in a folder.",
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

    _check_folder(out)
    fitted = _load(model, workers, skip_broken, cache)
    X = read_inputs(fitted, data, drop, image, data_root, split_seed)
    probability = _predict(fitted, X, quiet)
    is_pictures = fitted.pictures_ is not None
    table = pd.DataFrame(probability, columns=[str(name) for name in fitted.classes_], index=X if is_pictures else None)
    chosen = probability > fitted.thresholds_
    names = ("file" if is_pictures else "row", "predicted")
    free = [name if name not in table.columns else f"{name}_" for name in names]
    table.insert(0, free[1], [";".join(str(name) for name in fitted.classes_[row]) for row in chosen])
    write_atomically(out, table.to_csv(index_label=free[0], float_format="%.6g"))
    if not quiet:
        read = ~table[str(fitted.classes_[0])].isna()
        count = chosen[read].sum(1).mean()
        what = "picture" if is_pictures else "row"
        print(f"{read.sum()} {what}s, {count:.2f} labels predicted per {what}: {out}")
        if count < 0.5:
            print("Few scores exceed the threshold; fit with --threshold prior to predict as often as estimated.")


@app.command()
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

    columns = _columns(label, separator, label_columns, drop, image)
    fitted = _load(model, workers, skip_broken, cache)
    rows = read_rows(data, columns, data_root, split_seed)
    Y = spread_labels(rows, [str(name) for name in fitted.classes_])
    probability = _predict(fitted, as_inputs(rows, fitted), as_json)
    read = ~(probability != probability).any(1)  # all but skipped pictures
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
    what = "rows" if fitted.pictures_ is None else "pictures"
    show_table(["metric", "better", "value"], listed, title=f"{len(Y)} {what}, {len(fitted.classes_)} labels")
    if fitted.pictures_ is not None and (Y.sum(1) == 1).all():
        print(
            "\nEach picture shows one label, and the others count as absent: where pictures have several, only the "
            "ranking of the one that is known means something."
        )
    if per_label:
        print()
        show_table(
            ["label", *map(str, table.columns)],
            [[str(row[0]), *(_number(v) for v in row[1:])] for row in table.itertuples()],
        )


@app.command()
def priors(
    data: DataArgument,
    label: Label = None,
    separator: Separator = None,
    label_columns: LabelColumns = None,
    image: Image = None,
    drop: Drop = None,
    draw: DrawHow = None,
    draw_file: DrawFile = None,
    method: Method = "crisp",
    network: Network = None,
    weights: Weights = "auto",
    size: Size = None,
    workers: Workers = 2,
    skip_broken: SkipBroken = False,
    cache: Cache = None,
    epochs: Epochs = 20,
    estimator: Annotated[
        Estimator,
        typer.Option(
            help="bbe, the paper's, asks the network trained on these rows; the others ask models that have not seen "
            "the row, and need no --method, --network of rows or --epochs. Of these take bracket."
        ),
    ] = Estimator.bbe,
    cardinality: Annotated[
        float | None, typer.Option(help="Mean number of labels per row, where it is known; not for bbe.")
    ] = None,
    delta: Annotated[float, typer.Option(help="bbe: probability with which an interval may miss.")] = 0.01,
    tau: Annotated[float, typer.Option(help="bbe: weight of the confidence term.")] = 0.01,
    positives: Positives = "single",
    device: Device = "auto",
    seed: Seed = 0,
    split_seed: SplitSeed = 0,
    data_root: DataRoot = None,
    out: Annotated[Path | None, typer.Option(help="Also write the table here (CSV).")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Estimate how common each label really is, with intervals, from one observed label per row."""
    if out is not None:
        _check_folder(out)
    is_held_out = estimator != Estimator.bbe
    if cardinality is not None and not is_held_out:
        raise ValueError("--cardinality is not for --estimator bbe, which was asked for. Add --estimator bracket.")
    columns = _columns(label, separator, label_columns, drop, image)
    rows = read_rows(data, columns, data_root, split_seed)
    observed = observe(rows, draw, draw_file, None, seed, positives)

    from onepos.estimator import SinglePositiveClassifier
    from onepos.priors import estimate_priors

    model = SinglePositiveClassifier(
        method,
        network=network or _default_network(rows),
        weights=None if weights == "none" else weights,
        image_size=size,
        on_error="skip" if skip_broken else "raise",
        workers=workers,
        epochs=epochs,
        positives=positives,
        device=device,
        random_state=seed,
        cache=cache,
    )
    level = 0.9 if is_held_out else 1 - delta
    if is_held_out:
        scores, observed = _ask_others(model, rows, observed, seed, quiet)
        estimate = estimate_priors(
            scores, observed, estimator=str(estimator), known_cardinality=cardinality, level=level
        )
    else:
        scores, observed = _ask_the_trained(model, rows, observed, quiet)
        estimate = estimate_priors(scores, observed, delta=delta, tau=tau)
    if estimate.warning:
        warnings.warn(f"{estimate.warning} On the command line: --cardinality.", UserWarning, stacklevel=2)
    header = ["label", "observed", "share", "prior", "lower", "upper", "reliable"]
    columns_of = (
        rows.label_names,
        estimate.n_positive,
        estimate.prior,
        estimate.lower,
        estimate.upper,
        estimate.reliable,
    )
    table = [
        [name, str(count), f"{count / len(observed):.4f}", *(_number(v) for v in numbers), "yes" if sure else "no"]
        for name, count, *numbers, sure in zip(*columns_of, strict=True)
    ]
    if out is not None:
        from onepos.files import write_atomically
        from onepos.report.tables import csv_table

        write_atomically(out, csv_table(table, header))
    if as_json:
        show_json(
            [
                dict(
                    zip(
                        header,
                        (name, int(n), int(n) / len(observed), *map(_json_number, numbers), bool(sure)),
                        strict=True,
                    )
                )
                for name, n, *numbers, sure in zip(*columns_of, strict=True)
            ]
        )
    elif not quiet:
        show_table(header, table, title=f"{len(observed)} rows; intervals at {level:g} per label")
        print()
        _explain_priors(estimate, is_held_out)


def _explain_priors(estimate: PriorEstimate, is_held_out: bool) -> None:
    """What to think of the table."""
    doubtful = int((~estimate.reliable).sum())
    count = f"{doubtful} of {len(estimate.prior)} labels have"
    if is_held_out:
        low, high = estimate.cardinality_interval
        sure = "as given" if low == high else f"probably {low:.2f} to {high:.2f}"
        print(f"labels per row: {estimate.cardinality:.2f}, {sure}; all priors scale with it.")
        if doubtful:
            print(f"{count} an interval that reaches below half or above double the estimate.")
        return
    print(
        "The model was trained on these rows, as in the paper: the better it remembers them, the more its priors "
        "and intervals fall below the truth."
    )
    if doubtful:
        print(
            f"{count} too few observed positives for the guarantee behind the estimate; it tends to be too high there."
        )


def _ask_the_trained(
    model: SinglePositiveClassifier, rows: Dataset | ImageDataset, observed: Any, quiet: bool
) -> tuple[Any, Any]:
    """Logits of the rows the model is trained on, and their observed labels; without skipped pictures."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # features of pictures are wanted twice
        model.set_params(cache=model.cache or folder)
        _train(model, rows, observed, None, None, quiet)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # skipped pictures were named before
            logits = model.decision_function(as_inputs(rows, model))
    return _without_skipped(logits, model), _without_skipped(observed, model)


def _ask_others(
    model: SinglePositiveClassifier, rows: Dataset | ImageDataset, observed: Any, seed: int, quiet: bool
) -> tuple[Any, Any]:
    """P(observed label | row) by models that never saw it, and the observed labels; without skipped pictures."""
    from onepos.crossfit import cross_fit
    from onepos.labels import read_labels

    observed, _ = read_labels(observed, len(observed), str(model.positives))
    with progress(quiet) as advance:
        X: Any = getattr(rows, "X", None)
        if X is None:
            features = _picture_features(model, as_inputs(rows), advance)
            read = ~(features != features).any(1)  # all but skipped pictures
            X, observed = features[read], observed[read]
        advance("cross-fitting", 0, 1)
        fit = cross_fit(X, observed, seed)
    return fit.probability.numpy(), observed


def _picture_features(model: SinglePositiveClassifier, files: Any, advance: Advance) -> Any:
    """What the model's network makes of pictures as it is, (n, d); NaN where one was skipped."""
    from onepos import pictures
    from onepos.runtime import choose_device

    pictures.takes_pictures(model.network, files)
    network, normalisation, sha256 = pictures.make_picture_network(
        model.network, model.weights, maps=False, fine_tune=False
    )
    size = pictures.choose_size(model.image_size, model.network, files)
    samples = pictures.read_pictures(files, pictures.PictureInput(size, normalisation, sha256), int(model.workers))
    features = pictures.compute_features(
        network,
        samples,
        choose_device(str(model.device)),
        cache=model.cache,
        weights_sha256=sha256,
        on_pictures=lambda what, done, n: advance(what, done - 1, n),
    )
    pictures.judge_unreadable(samples, samples.skipped, str(model.on_error))
    return features


@data_app.command("list")
def data_list(data_root: DataRoot = None, as_json: Json = False) -> None:
    """The data sets known by name, and whether they are on this machine."""
    from onepos.datasets import DATASETS
    from onepos.datasets import data_root as find_root

    root = find_root(data_root)
    here = {
        name: source.kind == "generated"
        or (root / "tabular" / f"{name}.npz").is_file()
        or (source.kind == "features" and all((root / "images" / file.name).is_file() for file in source.files))
        for name, source in DATASETS.items()
    }
    if as_json:
        show_json({name: {"title": source.title, "available": here[name]} for name, source in DATASETS.items()})
        return
    rows = [
        [name, f"{s.n_samples}", f"{s.n_features}", f"{s.n_labels}", "yes" if here[name] else "no", s.title]
        for name, s in DATASETS.items()
    ]
    show_table(["name", "rows", "features", "labels", "here", "about"], rows, title=f"data folder: {root}")


@data_app.command("info")
def data_info(
    data: DataArgument,
    label: Label = None,
    separator: Separator = None,
    label_columns: LabelColumns = None,
    image: Image = None,
    drop: Drop = None,
    split_seed: SplitSeed = 0,
    data_root: DataRoot = None,
    as_json: Json = False,
) -> None:
    """Describe a data set: sizes, labels per row, class priors."""
    columns = _columns(label, separator, label_columns, drop, image)
    facts = read_rows(data, columns, data_root, split_seed).describe()
    if as_json:
        show_json(facts)
        return
    show_table(
        ["fact", "value"], [[name.replace("_", " "), _number(value)] for name, value in facts.items()], title=data
    )


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="A name from `onepos data list`.")],
    source: Annotated[Path | None, typer.Option("--from", help="Take the publisher's files from this folder.")] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Check the files' checksums.")] = True,
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set from its publisher, or take files you already have; checksums are verified."""
    from onepos.datasets import get_dataset

    megabyte = 1 << 20
    with progress(quiet) as advance:

        def report(file: str, so_far: int, total: int | None) -> None:
            advance(f"{file} (MiB)", so_far // megabyte, max((total or so_far) // megabyte, 1))

        path = get_dataset(name, root=data_root, source_folder=source, progress=report, verify=verify)
    print(path)


@list_app.command("methods")
def list_methods(as_json: Json = False) -> None:
    """The methods, what they need, and their parameters."""
    from onepos.methods import METHODS

    made = {name: factory() for name, factory in METHODS.items()}
    rows = [
        [
            name,
            ", ".join(sorted(method.requires | method.privileged)) or "–",
            ", ".join(sorted(method.privileged)) or "–",
            ", ".join(f"{key}={value}" for key, value in method.get_params().items()) or "–",
            (type(method).__doc__ or "").split("\n")[0],
        ]
        for name, method in made.items()
    ]
    _list(["name", "needs", "privileged", "parameters", "about"], rows, as_json)


@list_app.command("metrics")
def list_metrics(as_json: Json = False) -> None:
    """The metrics and which way is better."""
    from onepos.metrics import METRICS

    rows = [[n, m.title, "higher" if m.greater_is_better else "lower", m.uses] for n, m in METRICS.items()]
    _list(["name", "title", "better", "computed from"], rows, as_json)


@list_app.command("datasets")
def list_datasets(data_root: DataRoot = None, as_json: Json = False) -> None:
    """The same as `onepos data list`."""
    data_list(data_root, as_json)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; 0 done, 1 the work failed, 2 the input is wrong. No traceback unless --debug."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    warnings.showwarning = _show_warning
    try:
        app(arguments)
    except SystemExit as stop:
        if stop.code == 130:  # what the framework makes of Ctrl-C
            complain("stopped. With --checkpoint FILE the same command goes on where it was.")
            raise SystemExit(1) from None
        raise
    except (ValueError, TypeError, FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        _end(error, 2, debug)
    except Exception as error:  # the last door: whatever failed, a person reads one sentence
        _end(error, 1, debug)


def _end(error: Exception, code: int, debug: bool) -> None:
    if debug:
        raise error
    complain(" ".join(str(error).split()) or type(error).__name__)
    raise SystemExit(code) from None


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        print(f"warning: {message}", file=sys.stderr)


def _columns(
    label: str | None, separator: str | None, label_columns: str | None, drop: str | None, image: str | None
) -> dict[str, str | None]:
    return {"label": label, "separator": separator, "label_columns": label_columns, "drop": drop, "image": image}


def _without_skipped(values: Any, model: SinglePositiveClassifier) -> Any:
    """The rows the model was fitted to: without pictures that could not be read."""
    return values[[row not in model.skipped_ for row in range(len(values))]] if model.skipped_ else values


def _default_network(rows: Dataset | ImageDataset) -> str:
    return "efficientnet-lite0" if hasattr(rows, "files") else "mlp"


def _load(folder: Path, workers: int, skip_broken: bool, cache: Path | None) -> SinglePositiveClassifier:
    from onepos.estimator import SinglePositiveClassifier

    fitted = SinglePositiveClassifier.load(folder)
    return fitted.set_params(workers=workers, on_error="skip" if skip_broken else "raise", cache=cache)


def _predict(fitted: SinglePositiveClassifier, X: Any, quiet: bool) -> Any:
    with progress(quiet) as advance:
        return fitted.predict_proba(X, on_pictures=lambda what, done, n: advance(what, done - 1, n))


def _train(
    model: SinglePositiveClassifier,
    rows: Dataset | ImageDataset,
    observed: Any,
    held_out: Dataset | ImageDataset | None,
    checkpoint: Path | None,
    quiet: bool,
) -> None:
    import pandas as pd

    names = list(rows.label_names)
    with progress(quiet) as advance:
        model.fit(
            as_inputs(rows),
            pd.DataFrame(observed, columns=names),
            validation=None if held_out is None else (_in_order(held_out, rows), spread_labels(held_out, names)),
            checkpoint=checkpoint,
            on_epoch=lambda epoch, history: advance("training, epoch", epoch, int(model.epochs)),
            on_pictures=lambda what, done, n: advance(what, done - 1, n),
        )


def _in_order(held_out: Dataset | ImageDataset, rows: Dataset | ImageDataset) -> Any:
    """The features of `held_out` in the order of `rows`, where both are named."""
    frame = as_inputs(held_out)
    names = list(getattr(rows, "feature_names", None) or ())
    return frame[names] if hasattr(frame, "columns") and names and set(names) <= set(frame.columns) else frame


def _check_model_folder(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise FileNotFoundError(f"{path} must be a folder, or not exist yet; it is a file. Name another with --out.")


def _check_folder(path: Path) -> None:
    """Before any work: can the result be written there?"""
    folder = path.resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise FileNotFoundError(f"{path} must lie in a folder that can be written to; {folder} is none. Make it first.")


def _show_fit(model: SinglePositiveClassifier, observed: Any, out: Path, quiet: bool, as_json: bool) -> None:
    history = model.history_
    best = history.validation[history.best_epoch] if history.validation else None
    if as_json:
        summary = {"model": str(out), "best_epoch": history.best_epoch, "validation": best, "loss": history.loss[-1]}
        show_json(
            summary
            | {"class_prior": dict(zip(map(str, model.classes_), map(_json_number, model.class_prior_), strict=True))}
        )
        return
    if quiet:
        return
    rows = [
        [str(name), str(int(count)), _number(prior)]
        for name, count, prior in zip(model.classes_, observed.sum(0), model.class_prior_, strict=True)
    ]
    shown = rows[:30]
    show_table(["label", "observed", "estimated prior"], shown)
    if len(rows) > len(shown):
        print(f"… and {len(rows) - len(shown)} labels more, in {out}/model.json")
    print(
        f"\nkept epoch {history.best_epoch + 1} of {len(history.loss)}" + (f", validation {best:.4f}" if best else "")
    )
    print(f"model: {out}")


def _records(table: Any) -> list[dict[str, Any]]:
    records = json.loads(table.to_json(orient="records"))
    return [{"label": str(name)} | record for name, record in zip(table.index, records, strict=True)]


def _json_number(value: Any) -> float | None:
    """JSON has no NaN: unknown is null."""
    return None if value != value else float(value)


def _number(value: Any) -> str:
    if isinstance(value, float):
        return "unknown" if value != value else f"{value:.4f}"
    return str(value)


def _list(header: list[str], rows: list[list[str]], as_json: bool) -> None:
    if as_json:
        show_json([dict(zip(header, row, strict=True)) for row in rows])
    else:
        show_table(header, rows)
