"""`onepos priors`."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onepos.cli.console import Advance, json_number, progress, show_json, show_number, show_table
from onepos.cli.fitting import make_classifier, train_model, without_skipped
from onepos.cli.inputs import as_inputs, check_output, observe, read_rows
from onepos.cli.options import (
    Cache,
    DataArgument,
    DataRoot,
    Device,
    DrawFile,
    DrawHow,
    DrawOptions,
    Drop,
    Epochs,
    Estimator,
    Image,
    ImageOptions,
    Json,
    Label,
    LabelColumns,
    Method,
    Network,
    Positives,
    Quiet,
    RowOptions,
    Seed,
    Separator,
    Size,
    SkipBroken,
    SplitSeed,
    TrainOptions,
    Weights,
    Workers,
)

if TYPE_CHECKING:
    from onepos.datasets import Dataset
    from onepos.estimator import SinglePositiveClassifier
    from onepos.images.readers import ImageDataset
    from onepos.priors import PriorEstimate


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
    epochs: Epochs = None,
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
    positives: Positives = None,
    device: Device = None,
    seed: Seed = 0,
    split_seed: SplitSeed = 0,
    data_root: DataRoot = None,
    out: Annotated[Path | None, typer.Option(help="Also write the table here (CSV).")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Estimate how common each label really is, with intervals, from one observed label per row."""
    check_output(out, quiet, as_json)
    is_held_out = estimator != Estimator.bbe
    if cardinality is not None and not is_held_out:
        raise ValueError("--cardinality is not for --estimator bbe, which was asked for. Add --estimator bracket.")
    rows = read_rows(data, RowOptions(label, separator, label_columns, image, drop, split_seed, data_root))
    observed = observe(rows, DrawOptions(draw, draw_file), seed, positives or "single")

    from onepos.priors import estimate_priors

    images = ImageOptions(workers, skip_broken, cache).parameters()
    images |= {"weights": None if weights == "none" else weights, "image_size": size}
    settings = TrainOptions(epochs=epochs, positives=positives, device=device).parameters()
    model = make_classifier(rows, method, network, images, **settings, random_state=seed)
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
        [name, str(count), f"{count / len(observed):.4f}", *(show_number(v) for v in numbers), "yes" if sure else "no"]
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
                        (name, int(n), int(n) / len(observed), *map(json_number, numbers), bool(sure)),
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
            f"{count} too few observed positives for the guarantee behind the estimate; there it may be off in either "
            "direction."
        )


def _ask_the_trained(
    model: SinglePositiveClassifier, rows: Dataset | ImageDataset, observed: Any, quiet: bool
) -> tuple[Any, Any]:
    """Logits of the rows the model is trained on, and their observed labels; without skipped pictures."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # features of pictures are wanted twice
        model.set_params(cache=model.cache or folder)
        train_model(model, rows, observed, None, None, quiet)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # skipped pictures were named before
            logits = model.decision_function(as_inputs(rows, model))
    return without_skipped(logits, model), without_skipped(observed, model)


def _ask_others(
    model: SinglePositiveClassifier, rows: Dataset | ImageDataset, observed: Any, seed: int, quiet: bool
) -> tuple[Any, Any]:
    """P(observed label | row) by models that never saw it, and the observed labels; without skipped pictures."""
    from onepos.labels import read_labels
    from onepos.methods.crossfit import cross_fit

    observed, _ = read_labels(observed, len(observed), str(model.positives))
    with progress(quiet) as advance:
        X: Any = getattr(rows, "X", None)
        if X is None:
            features = _picture_features(model, as_inputs(rows), advance)
            read = ~(features != features).any(1)  # all but skipped pictures
            X, observed = features[read], observed[read]
        advance("cross-fitting", -1, 1)
        fit = cross_fit(X, observed, seed)
        advance("cross-fitting", 0, 1)
    return fit.probability.numpy(), observed


def _picture_features(model: SinglePositiveClassifier, files: Any, advance: Advance) -> Any:
    """What the model's network makes of pictures as it is, (n, d); NaN where one was skipped."""
    from onepos.images import inputs as pictures
    from onepos.training.runtime import choose_device

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
