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
    DataArgument,
    Device,
    DrawFile,
    DrawHow,
    DrawOptions,
    Epochs,
    Estimator,
    ImageOptions,
    Json,
    Method,
    Network,
    Positives,
    Quiet,
    RowOptions,
    Seed,
    Size,
    TrainOptions,
    Weights,
    grouped,
)

if TYPE_CHECKING:
    from onepos.datasets import Dataset
    from onepos.estimator import SinglePositiveClassifier
    from onepos.images.readers import ImageDataset
    from onepos.priors import PriorEstimate


@grouped
def priors(
    data: DataArgument,
    row_options: RowOptions,
    image_options: ImageOptions,
    draw: DrawHow = None,
    draw_file: DrawFile = None,
    method: Method = "crisp",
    network: Network = None,
    weights: Weights = "auto",
    size: Size = None,
    epochs: Epochs = None,
    estimator: Annotated[
        Estimator,
        typer.Option(
            help="bbe, the paper's, uses scores of a network trained on these rows. bracket, better on most data, uses "
            "held-out probabilities and needs no --method, --epochs or, for rows, --network."
        ),
    ] = Estimator.bbe,
    cardinality: Annotated[
        float | None, typer.Option(help="Mean number of labels per row, where it is known; for bracket.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Probability with which an interval may miss, by default 0.01; for bbe.")
    ] = None,
    tau: Annotated[float | None, typer.Option(help="Weight of the confidence term, by default 0.01; for bbe.")] = None,
    positives: Positives = None,
    device: Device = None,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the table here (CSV).")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Estimate how common each label really is, with intervals, from one observed label per row."""
    check_output(out, quiet, as_json)
    given = {"cardinality": cardinality, "delta": delta, "tau": tau}
    settings = {name: value for name, value in given.items() if value is not None}
    _refuse_unused(settings, estimator)
    rows = read_rows(data, row_options)
    observed = observe(rows, DrawOptions(draw, draw_file), seed, positives or "single")

    from onepos.priors import estimate_priors

    images = image_options.parameters()
    images |= {"weights": None if weights == "none" else weights, "image_size": size}
    chosen = TrainOptions(epochs=epochs, positives=positives, device=device).parameters()
    model = make_classifier(rows, method, network, images, **chosen, random_state=seed)
    if estimator == Estimator.bracket:
        scores, observed = _held_out_scores(model, rows, observed, seed, quiet)
    else:
        scores, observed = _trained_scores(model, rows, observed, quiet)
    estimate = estimate_priors(scores, observed, estimator=str(estimator), **settings)
    if estimate.warning:
        warnings.warn(estimate.warning, UserWarning, stacklevel=2)
    level = 0.9 if estimator == Estimator.bracket else 1 - settings.get("delta", 0.01)
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
        _explain_priors(estimate, estimator)


def _refuse_unused(settings: dict[str, float], estimator: Estimator) -> None:
    """Before the training: an option that the estimator does not use."""
    other = {Estimator.bbe: Estimator.bracket, Estimator.bracket: Estimator.bbe}[estimator]
    for name in settings.keys() & ({"cardinality"} if estimator == Estimator.bbe else {"delta", "tau"}):
        raise ValueError(f"--{name} is not for --estimator {estimator}. Leave it out or add --estimator {other}.")


def _explain_priors(estimate: PriorEstimate, estimator: Estimator) -> None:
    """Lines below the table: how far it can be relied on."""
    doubtful = int((~estimate.reliable).sum())
    count = f"{doubtful} of {len(estimate.prior)} labels have"
    if estimator == Estimator.bracket:
        low, high = estimate.cardinality_interval
        sure = "as given" if low == high else f"probably {low:.2f} to {high:.2f}"
        print(f"labels per row: {estimate.cardinality:.2f}, {sure}; all priors scale with it.")
        if doubtful:
            print(f"{count} an interval that reaches below half or above double the estimate.")
        return
    print(
        "The scores are of the rows the network was trained on, as in the paper: the more it has memorised them, the "
        "further priors and intervals fall below the truth."
    )
    if doubtful:
        print(
            f"{count} too few observed positives for the guarantee behind the estimate; there it may be off in either "
            "direction."
        )


def _trained_scores(
    model: SinglePositiveClassifier, rows: Dataset | ImageDataset, observed: Any, quiet: bool
) -> tuple[Any, Any]:
    """Logits of the rows the model is trained on, and their observed labels; without skipped images."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # features of images are needed twice
        if model.kind == "images":
            model.set_params(cache=model.get_params()["cache"] or folder)
        train_model(model, rows, observed, None, None, quiet)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # skipped images were named before
            logits = model.decision_function(as_inputs(rows, model))
    return without_skipped(logits, model), without_skipped(observed, model)


def _held_out_scores(
    model: SinglePositiveClassifier, rows: Dataset | ImageDataset, observed: Any, seed: int, quiet: bool
) -> tuple[Any, Any]:
    """Held-out P(observed label | row), and the observed labels; without skipped images."""
    from onepos.labels import read_labels
    from onepos.methods.crisp_plus.crossfit import held_out_probabilities

    observed, _ = read_labels(observed, len(observed), str(model.positives))
    with progress(quiet) as advance:
        X: Any = getattr(rows, "X", None)
        if X is None:
            features = _image_features(model, as_inputs(rows), advance)
            read = ~(features != features).any(1)  # all but skipped images
            X, observed = features[read], observed[read]
        advance("cross-fitting", -1, 1)
        fit = held_out_probabilities(X, observed, random_state=seed)
        advance("cross-fitting", 0, 1)
    return fit.probability.numpy(), observed


def _image_features(model: SinglePositiveClassifier, files: Any, advance: Advance) -> Any:
    """Features of images from the model's frozen network, (n, d); NaN where one was skipped."""
    from onepos.images.features import ImageFeatures

    names = ImageFeatures().get_params()
    features = ImageFeatures(**{name: value for name, value in model.get_params().items() if name in names})
    return features.fit(files).transform(files, on_images=lambda what, done, n: advance(what, done - 1, n))
