"""`onepos complete`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Option

from onepos.cli import options
from onepos.cli.console import progress, show_json, show_table
from onepos.cli.fitting import naming_table
from onepos.cli.inputs import as_inputs, check_model_folder, observe, read_rows
from onepos.cli.label_files import LONG
from onepos.validation import without_nan

if TYPE_CHECKING:
    from onepos.completion import Completion
    from onepos.datasets.dataset import LabelledRows
    from onepos.labels import Labels


class Format(StrEnum):
    """What a completed data set is written as."""

    csv = "csv"
    parquet = "parquet"
    label_studio = "label-studio"
    coco = "coco"
    datasets = "datasets"


# Labels in the summary that is printed; features beyond which other tools show none of them.
_LABELS_LISTED, _COLUMNS_SHOWN = 15, 30
_DATASET = "dataset"


@options.grouped
def complete(
    data: options.DataArgument,
    row_options: options.RowOptions,
    draw_options: options.DrawOptions,
    network_options: options.NetworkOptions,
    image_options: options.ImageOptions,
    out: Annotated[
        Path,
        Option(
            help="The folder for what is written: the completed data set in the wanted format, the tables summary and, "
            "with --review, review."
        ),
    ] = Path("completed"),
    min_precision: Annotated[
        float, Option(min=0.01, max=1, help="Of the labels that are added, this share is to be right, label by label.")
    ] = 0.9,
    review: Annotated[int | None, Option(min=1, metavar="N", help="Also list the N items most worth a look.")] = None,
    sample: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="The items that were drawn at random for the review, in a column item; of a review table only those "
            "with the reason random count. By default all fully reviewed items.",
        ),
    ] = None,
    cardinality: Annotated[float | None, Option(help="Mean number of labels per row, if known.")] = None,
    positives: options.Positives = None,
    table_format: Annotated[
        Format,
        Option(
            "--format",
            help="csv or parquet: tables; label-studio: tasks to import, with --review only the items worth a look; "
            "coco: JSON for images, with what is known to be absent; datasets: a data set of Hugging Face.",
        ),
    ] = Format.csv,
    image_url: Annotated[
        str,
        Option(
            metavar="URL",
            help="For label-studio: what stands before the path of an image, which begins with the folder of the data; "
            "by default the address of local files in Label Studio.",
        ),
    ] = "/data/local-files/?d=",
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Add the labels that nobody wrote down, with a stated precision.

    --labels may name a long table (item, label, value) of answers, an export of Label Studio, labels of COCO or LVIS in
    JSON or a saved data set; their items are the values of --id, or row numbers.
    """
    check_model_folder(out)
    _check_format(table_format, out)
    rows, observed, answers, ids = read_with_answers(data, row_options, draw_options, seed, positives or "single")

    from onepos.completion import complete_labels

    labels, drawn = merge_answers(observed, answers, ids), None if sample is None else _read_sample(sample)
    with (
        naming_table(rows.source or rows.name),
        progress(quiet or as_json) as advance,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        X, labels, ids = _as_features(rows, labels, ids, network_options, image_options, advance)
        done = complete_labels(
            X,
            labels,
            min_precision=min_precision,
            cardinality=cardinality,
            items=ids,
            random_rows=None if drawn is None else _find(drawn, ids, sample),
            random_state=seed,
            on_progress=lambda what, step, steps: advance(what, step - 1, steps),
        )
    for each in caught:
        if str(each.message) != done.warning:
            warnings.warn(each.message, each.category, stacklevel=2)
    files = _write(done, out, review, table_format, _Shown.of(rows, done, image_url))
    if as_json:
        show_json(_facts(done, files))
    elif not quiet:
        _show(done, files)
    if done.warning:
        warnings.warn(done.warning, UserWarning, stacklevel=2)


def _check_format(table_format: Format, out: Path) -> None:
    if table_format == Format.parquet:
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise ImportError("--format parquet needs pyarrow. Run: pip install 'onepos[parquet]'") from None
    if table_format == Format.datasets:
        from onepos.exchange.hugging_face import check_installed, check_target

        check_installed()
        check_target(out / _DATASET)


def read_with_answers(
    data: str,
    row_options: options.RowOptions,
    draw_options: options.DrawOptions,
    seed: int,
    positives: str,
    columns: tuple[list[str] | None, bool | None] = (None, None),
) -> tuple[LabelledRows, Labels, Labels | None, list[Any]]:
    """The rows, their labels, the answers of a long table beside labels of their own, and the ids of the rows.

    `columns` are those of a table that a model takes, and whether their cells stay as they are.
    """
    from onepos.datasets.files import naming
    from onepos.datasets.table import TABLE_SUFFIXES, open_table
    from onepos.labels import Labels

    name, id_column = data, row_options.id_column
    is_table = name.lower().endswith(TABLE_SUFFIXES) and not Path(name).is_dir()
    table = open_table(name, text=[id_column]) if is_table and (id_column or row_options.labels) else None
    if id_column is not None and not is_table and row_options.labels is None:
        raise ValueError(f"--id names a column of a table ({', '.join(TABLE_SUFFIXES)}); {name} is none. Leave it out.")
    long = None if row_options.labels is None else _open_long(row_options.labels, id_column)
    has_label = row_options.label_columns or table is None or (row_options.label or "label") in table.frame.columns
    is_beside = long is not None and bool(has_label)
    rows = read_rows(data, replace(row_options, labels=None) if is_beside else row_options, *columns)
    ids = _ids(rows, table, id_column)
    answers = None
    if is_beside:
        with naming(Path(str(row_options.labels))):
            answers = Labels.from_long(long, ids)
    return rows, observe(rows, draw_options, seed, positives), answers, ids


def _open_long(path: Path, id_column: str | None) -> Any:
    """The frame of a long table, or of the labels of another tool; None where the table is of another form."""
    from onepos.datasets.table import open_table, read_header
    from onepos.exchange.reading import is_foreign, read_answers

    if is_foreign(path):
        return read_answers(path, item=id_column)
    is_text = path.name.lower().endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz"))
    frame = open_table(path, text=tuple(read_header(path)) if is_text else ()).frame
    return frame if set(frame.columns) >= LONG else None


def _ids(rows: LabelledRows, table: Any, id_column: str | None) -> list[Any]:
    if id_column is not None and table is not None and len(table.frame) == rows.n_samples:
        return list(table.to_texts(id_column))
    return list(rows.files) if hasattr(rows, "files") else list(range(rows.n_samples))


def _read_sample(path: Path) -> list[str]:
    """The ids of the items that were drawn at random."""
    from onepos.datasets.table import open_table

    frame = open_table(path, text=("item", "reason")).frame
    if "item" not in frame.columns:
        raise ValueError(
            f"--sample must name a table with a column 'item'; {path} has {', '.join(map(repr, frame.columns[:5]))}. "
            "Rename the column."
        )
    if "reason" in frame.columns:
        frame = frame[frame["reason"] == "random"]
    return [str(item) for item in frame["item"]]


def _find(drawn: list[str], ids: list[Any], path: Path | None) -> Any:
    """Which rows were drawn, (n,) of bool."""
    import numpy as np

    known = set(map(str, ids))
    lost = next((item for item in drawn if item not in known), None)
    if lost is not None:
        raise ValueError(f"every item of {path} must be one of the rows; {lost!r} is none. Check the ids.")
    chosen = set(drawn)
    return np.array([str(item) in chosen for item in ids])


def merge_answers(observed: Labels, answers: Labels | None, ids: list[Any]) -> Labels:
    """The labels of the data and the answers about them, by the names of the labels."""
    import numpy as np
    import scipy.sparse as sp

    from onepos.labels import Labels

    if answers is None:
        return observed
    own = [str(name) for name in observed.classes]
    names = [*own, *(name for name in map(str, answers.classes) if name not in set(own))]
    place = {name: j for j, name in enumerate(names)}
    column = np.array([place[str(name)] for name in answers.classes])
    shape = len(observed), len(names)
    own_yes, own_no = (part.tocoo() for part in (observed.positive, observed.negative))
    new_yes, new_no = (part.tocoo() for part in (answers.positive, answers.negative))
    parts = []
    for mine, theirs in ((own_yes, new_yes), (own_no, new_no)):
        row, label = np.r_[mine.row, theirs.row], np.r_[mine.col, column[theirs.col]]
        parts.append(sp.csr_array((np.ones(len(row), bool), (row, label)), shape))
    clash = parts[0].multiply(parts[1]).tocoo()
    if clash.nnz:
        raise ValueError(
            f"labels and answers must agree; item {str(ids[int(clash.row[0])])!r}, label "
            f"{names[int(clash.col[0])]!r} is yes in one and no in the other. Correct the table or the answer."
        )
    return Labels(parts[0], parts[1], np.array(names), at_random=answers.at_random)


def _as_features(
    rows: LabelledRows,
    labels: Labels,
    ids: list[Any],
    network: options.NetworkOptions,
    images: options.ImageOptions,
    advance: Any,
) -> tuple[Any, Labels, list[Any]]:
    """What the library takes: the rows, or features of the images that can be read."""
    X = as_inputs(rows, getattr(rows, "feature_names", None))
    if not hasattr(rows, "files"):
        return X, labels, ids
    import numpy as np

    from onepos.images.features import ImageFeatures

    given: dict[str, Any] = {
        "network": network.network,
        "weights": None if network.weights == "none" else network.weights,
    }
    chosen = {name: value for name, value in given.items() if name != "network" or value is not None}
    frozen = ImageFeatures(**chosen, image_size=network.size, **images.parameters())
    features = frozen.fit(X).transform(X, on_images=lambda what, step, n: advance(what, step - 1, n))
    kept = np.flatnonzero(~np.isnan(features).any(1))
    return np.asarray(features)[kept], labels.take(kept), [ids[k] for k in kept]


class _Shown(NamedTuple):
    """What other tools show of the rows: columns, or the addresses of images."""

    columns: Any = None
    images: list[str] | None = None

    @classmethod
    def of(cls, rows: Any, done: Completion, image_url: str) -> _Shown:
        """The cells of a raw table, or few named features; of images the paths inside their folder."""
        from urllib.parse import quote

        if hasattr(rows, "files"):
            above = os.path.dirname(os.path.abspath(rows.root))
            inside = (os.path.relpath(str(item), above) for item in done.items)
            return cls(images=[image_url + quote(Path(path).as_posix()) for path in inside])
        names = getattr(rows, "feature_names", None)
        is_few = names is not None and len(names) <= _COLUMNS_SHOWN
        return cls(as_inputs(rows, names) if is_few and not getattr(rows, "is_sparse", False) else None)


def _write(done: Completion, out: Path, review: int | None, table_format: Format, shown: _Shown) -> dict[str, Path]:
    """Write what is wanted, each file as a whole, after all of them are made."""
    from onepos.cli.outputs import write_table

    is_table = table_format in (Format.csv, Format.parquet)
    suffix = str(table_format) if is_table else "csv"
    tables = {"completed": done.table, "labels": done.to_long()} if is_table else {}
    tables["summary"] = done.summary
    if review is not None:
        tables["review"] = done.review(review)
    save = None if is_table else _make_export(done, review, table_format, shown)
    out.mkdir(parents=True, exist_ok=True)
    written = {} if save is None else save(out)
    for name, table in tables.items():
        written[name] = out / f"{name}.{suffix}"
        write_table(written[name], table, "labels" if name == "completed" else None)
    return written


def _make_export(
    done: Completion, review: int | None, table_format: Format, shown: _Shown
) -> Callable[[Path], dict[str, Path]]:
    """The completed data set for another tool, and how it is written to a folder."""
    from onepos.exchange.coco import save_coco
    from onepos.exchange.hugging_face import save_dataset

    if table_format == Format.label_studio:
        return done.to_label_studio(shown.columns, images=shown.images, review=review).save
    if table_format == Format.coco:
        return lambda out: {"annotations": save_coco(done.entries, out / "annotations.json")}
    dataset = done.to_datasets(shown.columns)
    return lambda out: {"dataset": save_dataset(dataset, out / _DATASET)}


def _facts(done: Completion, files: dict[str, Path]) -> dict[str, Any]:
    summary = done.summary.assign(label=done.summary["label"].astype(str))
    return {
        "n_rows": len(done.items),
        "added": int(done.added.sum()),
        "min_precision": done.min_precision,
        "calibrated_on": done.calibrated_on,
        "warning": done.warning,
        "files": {name: str(path) for name, path in files.items()},
        "labels": [without_nan(line) for line in summary.to_dict("records")],
    }


def _show(done: Completion, files: dict[str, Path]) -> None:
    """Print the labels with most additions, what was added in all, and where the tables are."""
    summary = done.summary.sort_values("added", ascending=False, kind="stable")
    lines = [
        [
            str(line.label),
            str(line.observed),
            f"{line.prior:.3f} ({line.prior_low:.3f} to {line.prior_high:.3f})",
            str(line.added),
            ""
            if line.added == 0
            else f"{line.expected_precision:.2f} ({line.precision_low:.2f} to {line.precision_high:.2f})",
            f"{line.expected_recall:.2f}",
        ]
        for line in summary.head(_LABELS_LISTED).itertuples()
    ]
    header = ["label", "observed", "share of rows", "added", "expected precision", "expected recall"]
    show_table(header, lines, title=f"{len(done.items)} rows; 90 % intervals in parentheses")
    if len(summary) > _LABELS_LISTED:
        print(f"… and {len(summary) - _LABELS_LISTED} more labels, in {files['summary']}")
    basis = f"calibrated on {done.calibrated_on} reviewed rows" if done.calibrated_on else "no reviewed rows"
    changed = int(done.added.any(1).sum())
    right = float(done.probability[done.added].sum())
    print(
        f"\nadded {int(done.added.sum())} labels to {changed} of {len(done.items)} rows, about {right:.0f} of them "
        f"right; {basis}"
    )
    for name, path in files.items():
        print(f"{name}: {path}")
