"""Training a model in a command, with its progress shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onepos.cli.console import progress
from onepos.cli.inputs import as_inputs, spread_labels

if TYPE_CHECKING:
    from onepos.datasets import Dataset
    from onepos.estimator import SinglePositiveClassifier
    from onepos.images.readers import ImageDataset


def train_model(
    model: SinglePositiveClassifier,
    rows: Dataset | ImageDataset,
    observed: Any,
    held_out: Dataset | ImageDataset | None,
    checkpoint: Path | None,
    quiet: bool,
) -> None:
    """Fit it to rows of which one label each is observed."""
    import pandas as pd

    names = list(rows.label_names)
    of_images = hasattr(rows, "files")  # they report their own progress
    with progress(quiet) as advance:

        def show(epoch: int, _: Any) -> None:
            if not of_images:
                advance("preparing", 0, 1)
            advance("training, epoch", epoch, int(model.epochs))

        if not of_images:
            advance("preparing", -1, 1)
        model.fit(
            as_inputs(rows),
            pd.DataFrame(observed, columns=names),
            validation=None if held_out is None else (_in_order(held_out, rows), spread_labels(held_out, names)),
            checkpoint=checkpoint,
            on_epoch=show,
            **({"on_images": lambda what, done, n: advance(what, done - 1, n)} if of_images else {}),
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
