"""Training a model in a command: the classifier, its progress, and what is printed about the fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onepos.cli.console import Advance, progress, show_number, show_table
from onepos.cli.inputs import as_inputs, spread_labels

if TYPE_CHECKING:
    from onepos.cli.options import ImageOptions, NetworkOptions, RowOptions
    from onepos.datasets.dataset import LabelledRows
    from onepos.estimator import SinglePositiveClassifier
    from onepos.labels import Labels
    from onepos.report.items import Items

_LABELS_LISTED = 30
_COLUMNS = ("labels", "observed", "class_prior", "class_prior_lower", "class_prior_upper")


def make_classifier(
    rows: LabelledRows,
    method: Any,
    network: NetworkOptions,
    images: ImageOptions,
    fine_tune: bool = False,
    **parameters: Any,
) -> SinglePositiveClassifier:
    """The classifier for rows of numbers or for images."""
    from onepos.estimator import SinglePositiveClassifier

    if network.network is not None:
        parameters["network"] = network.network
    if not hasattr(rows, "files"):
        return SinglePositiveClassifier(method, **parameters)
    from onepos.images.classifier import SinglePositiveImageClassifier

    weights = None if network.weights == "none" else network.weights
    parameters |= {"weights": weights, "image_size": network.size, "fine_tune": fine_tune, **images.parameters()}
    return SinglePositiveImageClassifier(method, **parameters)


def train_model(
    model: SinglePositiveClassifier,
    rows: LabelledRows,
    observed: Labels,
    quiet: bool,
    held_out: LabelledRows | None = None,
    checkpoint: Path | None = None,
    time_limit: float | None = None,
) -> None:
    """Fit a classifier to rows and their observed labels."""
    names, features = list(rows.label_names), getattr(rows, "feature_names", None)
    with naming_table(rows.source or rows.name), progress(quiet) as advance:
        model.fit(
            as_inputs(rows, features),
            observed,
            validation=None if held_out is None else (as_inputs(held_out, features), spread_labels(held_out, names)),
            groups=rows.groups,
            checkpoint=checkpoint,
            time_limit=time_limit,
            on_epoch=lambda epoch, _: advance("training, epoch", epoch, model.n_epochs_),
            on_progress=lambda what, done, n: advance(what, done - 1, n),
            **image_progress(model, advance),
        )


@contextmanager
def naming_table(name: str) -> Iterator[None]:
    """Put the name of its file before what is wrong with a raw table."""
    from onepos.tables.cells import TableError

    try:
        yield
    except TableError as error:
        raise ValueError(f"{name}: {error}") from None


def image_progress(model: SinglePositiveClassifier, advance: Advance) -> dict[str, Any]:
    """The argument by which a classifier of images reports its progress; none for rows of numbers."""
    return {"on_images": lambda what, done, n: advance(what, done - 1, n)} if model.kind == "images" else {}


def without_skipped(values: Any, model: SinglePositiveClassifier) -> Any:
    """The rows the model was fitted to: without images that could not be read."""
    skipped = getattr(model, "skipped_", {})
    return values[[row not in skipped for row in range(len(values))]] if skipped else values


def frozen_features(
    model: SinglePositiveClassifier, files: Any, images: ImageOptions, advance: Advance
) -> tuple[Any, Any]:
    """The features of the images that could be read, by which rows are judged; and which images these are."""
    from onepos.images.features import ImageFeatures

    model.set_params(**images.parameters())
    known = ImageFeatures().get_params()
    frozen = ImageFeatures(**{name: value for name, value in model.get_params().items() if name in known})
    X = frozen.fit(files).transform(files, **image_progress(model, advance))
    is_read = ~(X != X).any(1)  # all but skipped images
    return X[is_read], is_read


def items_of(rows: Any, ids: list[str]) -> Items:
    """The rows as a page shows them."""
    from onepos.report.items import FeatureItems, ImageItems, TableItems

    if hasattr(rows, "files"):
        return ImageItems(ids, rows.files, Path(rows.root))
    if hasattr(rows, "frame"):
        return TableItems(ids, rows.frame)
    return FeatureItems(ids, rows.X, rows.feature_names, rows.image_shape)


def show_columns(model: SinglePositiveClassifier, options: RowOptions) -> None:
    """Print for each column of a raw table how it was read and what it became."""
    encoder = getattr(model, "encoder_", None)
    if encoder is None:
        return
    if options.id_column is not None:
        print(f"  {options.id_column}: left out, the ids (--id)")
    if options.group is not None:
        print(f"  {options.group}: left out, the groups (--group)")
    for given in options.drop or ():
        print(f"  {given}: left out (--drop)")
    for column in encoder.describe():
        if column.reason:
            print(f"  {column.name}: left out, {column.reason}")
            continue
        gaps = f", {column.missing:.0%} missing" if column.missing else ""
        print(f"  {column.name}: {column.read_as}{gaps} -> {column.became}")


def show_fit(model: SinglePositiveClassifier, summary: dict[str, Any], out: Path, report: Path | None) -> None:
    """Print the labels, the epoch that was kept, where the model is, and the next command."""
    columns = [summary[name] for name in _COLUMNS]
    rows = [[show_number(cell) for cell in row] for row in zip(*columns, strict=True)]
    title = f"trained {summary['method']} on {summary['n_rows']} rows; share = estimated share of rows with the label"
    show_table(["label", "observed rows", "share", "lower", "upper"], rows[:_LABELS_LISTED], title=title)
    if len(rows) > _LABELS_LISTED:
        print(f"… and {len(rows) - _LABELS_LISTED} more labels, in {out}/model.json")
    best, scores = summary["best_epoch"], summary["history"]["validation"]
    epoch = f"epoch {best} of {len(summary['history']['loss'])}"
    if scores:
        print(f"\nkept {epoch}: it has the best score on the validation rows, {scores[best - 1]:.4f}")
    elif model.history_.search:
        print(
            f"\ntrained for {len(model.history_.loss)} of at most {len(model.history_.search)} epochs, the best number "
            "by the observed labels of a fifth of the rows"
        )
    else:
        print(f"\nkept {epoch}, the last one; with --validation DATA the best epoch is kept")
    print(f"model: {out}")
    if report is not None:
        print(f"report: {report}")
    print(f"next: onepos predict {out} {'FOLDER' if model.kind == 'images' else 'NEW_ROWS.csv'}")
