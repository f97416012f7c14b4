"""`onepos priors`."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from onepos.cli import options
from onepos.cli.console import json_number, progress, show_json, show_number, show_table
from onepos.cli.fitting import image_progress, make_classifier, train_model, without_skipped
from onepos.cli.inputs import as_inputs, check_folder, observe, read_rows
from onepos.cli.options import Estimator

if TYPE_CHECKING:
    from onepos.datasets import Dataset
    from onepos.estimator import SinglePositiveClassifier
    from onepos.images.readers import ImageDataset
    from onepos.priors import PriorEstimate


@options.grouped
def priors(
    data: options.DataArgument,
    row_options: options.RowOptions,
    image_options: options.ImageOptions,
    draw_options: options.DrawOptions,
    network_options: options.NetworkOptions,
    method: options.Method = "crisp",
    epochs: options.Epochs = None,
    estimator: Annotated[
        Estimator,
        Option(
            help="bbe, the paper's, uses scores of a network trained on these rows. bracket, better on most data, uses "
            "held-out probabilities and needs no --method, --epochs or, for rows, --network."
        ),
    ] = Estimator.bbe,
    cardinality: Annotated[float | None, Option(help="Mean number of labels per row, if known; for bracket.")] = None,
    delta: Annotated[
        float | None, Option(help="Probability with which an interval may miss, by default 0.01; for bbe.")
    ] = None,
    tau: Annotated[float | None, Option(help="Weight of the confidence term, by default 0.01; for bbe.")] = None,
    positives: options.Positives = None,
    device: options.Device = None,
    seed: options.Seed = 0,
    out: Annotated[Path | None, Option(help="Also write the table here (CSV).")] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Estimate how common each label really is, with intervals, from one observed label per row."""
    check_folder(out)
    if quiet and not as_json and out is None:
        raise ValueError("--quiet prints no table, so the result needs --out FILE or --json; add one of them.")
    given = {"cardinality": cardinality, "delta": delta, "tau": tau}
    settings = {name: value for name, value in given.items() if value is not None}
    _refuse_unused(settings, estimator)
    rows = read_rows(data, row_options)
    observed = observe(rows, draw_options, seed, positives or "single")

    from onepos.priors import estimate_priors

    chosen = options.TrainOptions(epochs=epochs, positives=positives, device=device).parameters()
    model = make_classifier(rows, method, network_options, image_options, **chosen, random_state=seed)
    score = _held_out_scores if estimator == Estimator.bracket else _trained_scores
    scores, observed = score(model, rows, observed, quiet)
    estimate = estimate_priors(scores, observed, estimator=str(estimator), **settings)
    if estimate.warning:
        warnings.warn(estimate.warning, UserWarning, stacklevel=2)
    header = ["label", "observed", "share", "prior", "lower", "upper", "reliable"]
    counts, numbers = estimate.n_positive, (estimate.prior, estimate.lower, estimate.upper)
    columns = [counts.tolist(), (counts / len(observed)).tolist(), *(map(json_number, each) for each in numbers)]
    entries = list(zip(rows.label_names, *columns, estimate.reliable.tolist(), strict=True))
    table = [[*map(show_number, entry[:-1]), "yes" if entry[-1] else "no"] for entry in entries]
    if out is not None:
        from onepos.files import write_atomically
        from onepos.report.tables import csv_table

        write_atomically(out, csv_table(table, header))
    if as_json:
        show_json([dict(zip(header, entry, strict=True)) for entry in entries])
    elif not quiet:
        level = 0.9 if estimator == Estimator.bracket else 1 - settings.get("delta", 0.01)
        show_table(header, table, title=f"{len(observed)} rows; intervals at {level:g} per label")
        print()
        _explain_priors(estimate, estimator)


def _refuse_unused(settings: dict[str, float], estimator: Estimator) -> None:
    """Before the training: an option that the estimator does not use."""
    is_bbe = estimator == Estimator.bbe
    unused, other = ({"cardinality"}, Estimator.bracket) if is_bbe else ({"delta", "tau"}, Estimator.bbe)
    for name in settings.keys() & unused:
        raise ValueError(f"--{name} is not for --estimator {estimator}. Leave it out or add --estimator {other}.")


def _explain_priors(estimate: PriorEstimate, estimator: Estimator) -> None:
    """Lines below the table: how far it can be relied on."""
    doubtful = int((~estimate.reliable).sum())
    count = f"{doubtful} of {len(estimate.prior)} labels have"
    if estimator == Estimator.bracket:
        low, high = estimate.cardinality_interval
        sure = "as given" if low == high else f"probably {low:.2f} to {high:.2f}"
        print(f"labels per row: {estimate.cardinality:.2f}, {sure}; all priors scale with it.")
        why = "an interval that reaches below half or above double the estimate."
    else:
        print(
            "The scores are of the rows the network was trained on, as in the paper: the more it has memorised them, "
            "the further priors and intervals fall below the truth."
        )
        why = (
            "too few observed positives for the guarantee behind the estimate; there it may be off in either direction."
        )
    if doubtful:
        print(f"{count} {why}")


def _trained_scores(
    model: SinglePositiveClassifier, rows: Dataset | ImageDataset, observed: Any, quiet: bool
) -> tuple[Any, Any]:
    """Logits of the rows the model is trained on, and their observed labels; without skipped images."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # features of images are needed twice
        if model.kind == "images":
            model.set_params(cache=model.get_params()["cache"] or folder)
        train_model(model, rows, observed, quiet)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # skipped images were named before
            logits = model.decision_function(as_inputs(rows, getattr(model, "feature_names_in_", None)))
    return without_skipped(logits, model), without_skipped(observed, model)


def _held_out_scores(
    model: SinglePositiveClassifier, rows: Dataset | ImageDataset, observed: Any, quiet: bool
) -> tuple[Any, Any]:
    """Held-out P(observed label | row), and the observed labels; without skipped images."""
    from onepos.labels import read_labels
    from onepos.methods.crossfit import held_out_probabilities

    observed, _ = read_labels(observed, len(observed), str(model.positives))
    X = as_inputs(rows)
    with progress(quiet) as advance:
        if model.kind == "images":
            from onepos.images.features import ImageFeatures

            known = ImageFeatures().get_params()
            frozen = ImageFeatures(**{name: value for name, value in model.get_params().items() if name in known})
            features = frozen.fit(X).transform(X, **image_progress(model, advance))
            is_read = ~(features != features).any(1)
            X, observed = features[is_read], observed[is_read]
        advance("cross-fitting", -1, 1)
        fit = held_out_probabilities(X, observed, random_state=model.random_state)
        advance("cross-fitting", 0, 1)
    return fit.probability.numpy(), observed
