"""Labels in a file of their own (`--labels`), joined to the rows by their order or by ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onepos.validation import find_repeat, name_some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onepos.cli.options import RowOptions
    from onepos.datasets import Dataset
    from onepos.datasets.raw import RawDataset
    from onepos.datasets.table import Table

LONG = frozenset({"item", "label", "value"})
"""The columns of a long table, which has a row per item and label."""

_ENOUGH_ROWS = 10


class LabelFile(NamedTuple):
    """Labels (n, c) of 0 and 1, their names, and the id of each row where the file has ids."""

    Y: Any
    names: tuple[str, ...]
    ids: list[str] | None


def read_label_file(options: RowOptions) -> LabelFile:
    """The labels of --labels: of the column --label, or of the only one beside the ids."""
    from onepos.datasets.table import open_table

    path, ids = Path(str(options.labels)), options.id_column
    table = open_table(path, text=(options.label, ids, *(() if options.label else _other_columns(path, ids))))
    columns = list(table.frame.columns)
    if set(columns) >= LONG and options.label is None:
        return read_long_table(table)
    has_ids = ids in columns
    if options.label_columns:
        Y, names = table.to_labels(label_columns=options.label_columns.split(","))
    else:
        others = [name for name in columns if name != ids]
        if options.label is None and len(others) != 1:
            raise ValueError(
                f"{path.name} must have one column of labels{' beside the ids' if has_ids else ''}, or --label names "
                f"it; it has {len(others)} columns ({name_some(others)}). Add --label COLUMN, or --id COLUMN if one "
                "holds ids."
            )
        Y, names = table.to_labels(label=options.label or others[0], separator=options.separator)
    return LabelFile(Y, names, table.to_texts(str(ids)) if has_ids else None)


def read_long_table(table: Table) -> LabelFile:
    """The labels of a long table `item,label,value`; the place where `Labels.from_long` is to be called."""
    raise ValueError(
        f"{table.path.name} must have one row per item; it is a long table (item, label, value), which can not be read "
        "yet. Give a table with one row per item and a column of labels."
    )


def _other_columns(path: Path, ids: str | None) -> list[str]:
    """The columns of a text file, whose cells are kept as written: a label may be called NA."""
    from onepos.datasets.table import read_header

    return [name for name in read_header(path) if name != ids]


def read_with_labels(
    name: str, table: Table | None, options: RowOptions, features: Sequence[str] | None, is_raw: bool | None
) -> Dataset | RawDataset:
    """Rows of a table or embeddings, beside the labels of another file."""
    from onepos.cli.inputs import dropped_columns
    from onepos.datasets import Dataset
    from onepos.datasets.embeddings import from_frame, list_column, read_embeddings
    from onepos.datasets.files import strip_suffix
    from onepos.datasets.table import open_table

    labels = read_label_file(options)
    file = Path(name).name
    if table is not None and list_column(table.frame) is None:
        if options.id_column is not None and name.lower().endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz")):
            table = open_table(name, text=[options.id_column])
        ids = None if options.id_column is None else table.to_texts(options.id_column)
        own = options.label if options.label in table.frame.columns else None
        if own is not None and own not in dropped_columns(options):
            raise _also_a_feature(own, file)
        order = match_ids(ids, labels, file, options)
        Y = labels.Y[order]
        return table.with_labels(table.without(dropped_columns(options)), Y, labels.names, features, is_raw)
    if table is not None:
        found = from_frame(table.frame, file, options.id_column)
    elif name.lower().endswith((".npy", ".npz")):
        found = read_embeddings(name)
    else:
        raise ValueError(
            f"--labels goes with a table or with embeddings (.npy, .npz, .parquet); {name} is none of these. Leave it "
            "out, or name such a file."
        )
    ids = found.ids if options.id_column is not None else None
    if options.id_column is not None and ids is None:
        raise ValueError(
            f"--id joins two files by ids; {file} has none. Leave --id out if the rows are in the same order, or write "
            "the vectors with numpy.savez(file, X=vectors, ids=ids)."
        )
    order = match_ids(ids, labels, file, options)
    return Dataset(strip_suffix(Path(name)), found.X, labels.Y[order], labels.names, source=file)


def match_ids(ids: list[str] | None, labels: LabelFile, file: str, options: RowOptions) -> Any:
    """For each row of the data, its row in the file of labels; every id must be in both."""
    import numpy as np

    other = Path(str(options.labels)).name
    if ids is None:
        return slice(None)
    if labels.ids is None:
        raise ValueError(
            f"both files must have the ids of --id; {other} has no column '{options.id_column}'. Add it, or leave --id "
            "out if the rows are in the same order."
        )
    for name, each in ((file, ids), (other, labels.ids)):
        if repeat := find_repeat(each):
            raise ValueError(
                f"every id must come once; in {name} {each[repeat[0]]!r} is in rows {repeat[0]} and {repeat[1]}. "
                "Remove one of them."
            )
    place = {name: row for row, name in enumerate(labels.ids)}
    known = set(ids)
    without_label = [name for name in ids if name not in place]
    without_row = [name for name in labels.ids if name not in known]
    if without_label or without_row:
        faults = [
            f"{len(each)} of {total} ids of {mine} are not in {yours} ({name_some(each, 3)})"
            for each, total, mine, yours in (
                (without_label, len(ids), file, other),
                (without_row, len(labels.ids), other, file),
            )
            if each
        ]
        raise ValueError(f"every id must be in both files; {' and '.join(faults)}. Add or remove these rows.")
    return np.array([place[name] for name in ids])


def check_leaks(table: Table, options: RowOptions) -> None:
    """Refuse a label that is also an id, and a feature that holds the same cells as the label."""
    label = options.label
    if label is None or label not in table.frame.columns:
        return
    if label == options.id_column:
        raise ValueError(f"--label and --id must name different columns; both are '{label}'. Correct one.")
    cells = table.frame[label].astype(str)
    if len(cells) < _ENOUGH_ROWS or cells.nunique() < 2:
        return
    left = table.without(_dropped(options))
    for name in left.columns:
        if name != label and left[name].dtype.kind == "O" and bool((left[name].astype(str) == cells).all()):
            raise ValueError(
                f"the label must not also be a feature; the columns '{label}' and '{name}' hold the same cells. Add "
                f"--drop '{name}'."
            )


def _dropped(options: RowOptions) -> list[str]:
    from onepos.cli.inputs import dropped_columns

    return dropped_columns(options)


def check_declared(options: RowOptions, declared: Sequence[str]) -> None:
    """Refuse a label or an id among the columns that are named as features."""
    for name in declared:
        if name == options.label:
            raise _also_a_feature(name)
        if name == options.id_column:
            raise ValueError(f"--id must name a column that is not a feature; '{name}' is in both. Correct one.")


def _also_a_feature(name: str, file: str = "") -> ValueError:
    where = f"{file} holds it too" if file else "--text or --categorical names it too"
    return ValueError(
        f"the label must not also be a feature; --label names '{name}', and {where}. "
        f"{f'Add --drop {name}.' if file else 'Leave it out there.'}"
    )
