"""Training a model in a command: the classifier, its progress, and what is printed about the fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onepos.cli.console import json_number, progress, show_number, show_table
from onepos.cli.inputs import as_inputs, spread_labels

if TYPE_CHECKING:
    from onepos.datasets import Dataset
    from onepos.estimator import SinglePositiveClassifier
    from onepos.images.readers import ImageDataset

_LABELS_LISTED = 30


def make_classifier(
    rows: Dataset | ImageDataset, method: Any, network: str | None, images: dict[str, Any], **parameters: Any
) -> SinglePositiveClassifier:
    """The classifier for rows of numbers or for images; `images` are the parameters of the latter alone."""
    from onepos.estimator import SinglePositiveClassifier

    if not hasattr(rows, "files"):
        return SinglePositiveClassifier(method, network=network or "mlp", **parameters)
    from onepos.images.classifier import SinglePositiveImageClassifier

    return SinglePositiveImageClassifier(method, network=network or "efficientnet-lite0", **images, **parameters)


def describe_rows(data: str, rows: Dataset | ImageDataset, observed: Any) -> str:
    """One sentence about what was read."""
    if hasattr(rows, "files"):
        size, unit = f"{rows.n_samples} images", "image"
    else:
        size, unit = f"{rows.n_samples} rows, {rows.n_features} features", "row"
    return f"read {data}: {size}, {rows.n_labels} labels, {observed.sum(1).mean():.2f} observed labels per {unit}"


def train_model(
    model: SinglePositiveClassifier,
    rows: Dataset | ImageDataset,
    observed: Any,
    held_out: Dataset | ImageDataset | None,
    checkpoint: Path | None,
    quiet: bool,
) -> None:
    """Fit a classifier to rows and their observed labels."""
    import pandas as pd

    names = list(rows.label_names)
    is_images = hasattr(rows, "files")  # reading them has a progress of its own
    with progress(quiet) as advance:

        def show(epoch: int, _: Any) -> None:
            if not is_images:
                advance("preparing", 0, 1)
            advance("training, epoch", epoch, int(model.epochs))

        if not is_images:
            advance("preparing", -1, 1)
        more = {"on_images": lambda what, done, n: advance(what, done - 1, n)} if is_images else {}
        model.fit(
            as_inputs(rows),
            pd.DataFrame(observed, columns=names),
            validation=None if held_out is None else (_in_order(held_out, rows), spread_labels(held_out, names)),
            checkpoint=checkpoint,
            on_epoch=show,
            **more,
        )


def _in_order(held_out: Dataset | ImageDataset, rows: Dataset | ImageDataset) -> Any:
    """The features of `held_out` in the order of `rows`, where both are named."""
    frame = as_inputs(held_out)
    names = list(getattr(rows, "feature_names", None) or ())
    return frame[names] if hasattr(frame, "columns") and names and set(names) <= set(frame.columns) else frame


def without_skipped(values: Any, model: SinglePositiveClassifier) -> Any:
    """The rows the model was fitted to: without images that could not be read."""
    skipped = getattr(model, "skipped_", {})
    return values[[row not in skipped for row in range(len(values))]] if skipped else values


def summarize_fit(model: SinglePositiveClassifier, method: str, observed: Any, seconds: float) -> dict[str, Any]:
    """What a report of a fit contains: one entry per label, one per epoch, and the settings."""
    import platform
    from importlib.metadata import version

    from onepos import __version__

    interval = model.class_prior_interval_
    return {
        "label": [str(name) for name in model.classes_],
        "observed": [int(count) for count in observed.sum(0)],
        "prior": [json_number(value) for value in model.class_prior_],
        "lower": [json_number(value) for value in interval[:, 0]],
        "upper": [json_number(value) for value in interval[:, 1]],
        "threshold": [float(value) for value in model.thresholds_],
        "loss": list(model.history_.loss),
        "validation": list(model.history_.validation),
        "best_epoch": model.history_.best_epoch,
        "method": method,
        "parameters": model.method_.get_params(),
        "n_rows": len(observed),
        "n_features": getattr(model, "n_features_in_", None),
        "seconds": seconds,
        "versions": {"onepos": __version__, "python": platform.python_version()}
        | {package: version(package) for package in ("torch", "numpy", "scikit-learn")},
    }


def write_fit_report(path: Path, summary: dict[str, Any]) -> None:
    """Write the report page of a fit."""
    from onepos.files import write_atomically
    from onepos.report.fit_page import render_fit

    write_atomically(path, render_fit(summary))


def shorten(summary: dict[str, Any], out: Path) -> dict[str, Any]:
    """What `--json` prints of a fit."""
    best = summary["best_epoch"]
    return {
        "model": str(out),
        "best_epoch": best,
        "validation": summary["validation"][best] if summary["validation"] else None,
        "loss": summary["loss"][-1],
        "class_prior": dict(zip(summary["label"], summary["prior"], strict=True)),
    }


def show_fit(model: SinglePositiveClassifier, summary: dict[str, Any], out: Path, report: Path | None) -> None:
    """Print the labels, the epoch that was kept, where the model is, and the next command."""
    _show_labels(summary, out)
    best = summary["best_epoch"]
    epoch = f"epoch {best + 1} of {len(summary['loss'])}"
    if summary["validation"]:
        print(f"\nkept {epoch}: it has the best score on the validation rows, {summary['validation'][best]:.4f}")
    else:
        print(f"\nkept {epoch}, the last one: only --validation rows can tell which epoch is best")
    print(f"model: {out}")
    n_held = getattr(model.network_, "n_training_rows", 0)
    if n_held:
        print(
            f"The model folder also holds the {n_held} training rows (in half precision): its ensemble compares new "
            "rows with them. --set ensemble_weight=0 leaves them out."
        )
    if report is not None:
        print(f"report: {report}")
    print(f"next: onepos predict {out} {'FOLDER' if model.kind == 'images' else 'NEW_ROWS.csv'}")


def _show_labels(summary: dict[str, Any], out: Path) -> None:
    columns = [summary[name] for name in ("label", "observed", "prior", "lower", "upper")]
    rows = [
        [label, str(count), *("unknown" if value is None else show_number(value) for value in numbers)]
        for label, count, *numbers in zip(*columns, strict=True)
    ]
    title = f"trained {summary['method']} on {summary['n_rows']} rows; share = estimated share of rows with the label"
    show_table(["label", "observed rows", "share", "lower", "upper"], rows[:_LABELS_LISTED], title=title)
    if len(rows) > _LABELS_LISTED:
        print(f"… and {len(rows) - _LABELS_LISTED} more labels, in {out}/model.json")
