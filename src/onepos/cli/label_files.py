"""Labels in a file of their own (`--labels`), joined to the rows by order or by ids; and labels among features."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onepos.validation import find_repeat, name_some

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    from onepos.cli.options import RowOptions
    from onepos.datasets import Dataset
    from onepos.datasets.raw import RawDataset
    from onepos.datasets.table import Table
    from onepos.labels import Labels
    from onepos.long_labels import Answers

LONG = frozenset({"item", "label", "value"})
"""The columns of a long table, which has a row per item and label."""

_ENOUGH_ROWS = 10
# Of a column, the cells by which it is seen whether it may be 0/1, and how many different ones such a column has.
_FIRST_CELLS, _FEW = 1000, 3


class JoinedLabels(NamedTuple):
    """The labels of the rows of the data, in their order, and their groups where the file of labels has them."""

    labels: Labels
    groups: npt.NDArray[np.int64] | None


def read_with_labels(
    name: str, table: Table | None, options: RowOptions, features: Sequence[str] | None, is_raw: bool | None
) -> Dataset | RawDataset:
    """Rows of a table or embeddings, beside the labels of another file."""
    from onepos.cli.inputs import dropped_columns
    from onepos.datasets import Dataset
    from onepos.datasets.embeddings import from_frame, list_column, read_embeddings
    from onepos.datasets.files import strip_suffix

    file = Path(name).name
    if table is not None and list_column(table.frame) is None:
        joined = join_labels(file, options, read_ids(table, options), len(table.frame))
        inputs = table.without(dropped_columns(options, columns=table.frame.columns))
        if features is None:
            _check_not_in_both(inputs, joined.labels, file, options)
        rows = table.with_labels(inputs, joined.labels, features, is_raw)
        return _with_groups(rows, joined, table, options)
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
    joined = join_labels(file, options, ids, len(found.X))
    labels = joined.labels
    names, negative = tuple(labels.classes), labels.known_negative
    vectors = Dataset(
        strip_suffix(Path(name)),
        found.X,
        labels.observed,
        names,
        source=file,
        known_negative=negative,
        at_random=labels.at_random,
    )  # labels of another length are refused here
    return _with_groups(vectors, joined, table, options)


def read_ids(table: Table, options: RowOptions) -> list[str] | None:
    """The cells of --id as they are written; None without the option."""
    from onepos.datasets.table import open_table

    if options.id_column is None:
        return None
    if table.delimiter:
        table = open_table(table.path, text=[options.id_column])
    return table.to_texts(options.id_column)


def _with_groups(
    rows: Dataset | RawDataset, joined: JoinedLabels, table: Table | None, options: RowOptions
) -> Dataset | RawDataset:
    """The rows with the groups of --group, a column of the data or of the file of labels."""
    from dataclasses import replace

    if options.group is None:
        return rows
    if table is not None and options.group in table.frame.columns:
        return replace(rows, groups=table.to_groups(options.group))
    if joined.groups is None:
        both = f"{rows.source} and {Path(str(options.labels)).name}"
        raise ValueError(f"--group must name a column of the data or of the labels; {both} have no '{options.group}'.")
    return replace(rows, groups=joined.groups)


def join_labels(file: str, options: RowOptions, ids: list[str] | None, n_rows: int) -> JoinedLabels:
    """The labels of --labels for the rows of a file.

    Args:
        file: The name of the file of the rows, for messages.
        options: Which columns hold what.
        ids: The ids of the rows; None where they are joined by their order.
        n_rows: How many rows there are.
    """
    table = _open(options)
    columns = list(table.frame.columns)
    if set(columns) >= LONG and options.label in (None, "label") and not options.label_columns:
        return JoinedLabels(_read_long(table, file, options, ids, n_rows), None)
    labels = _read_wide(table, options)
    label_ids = table.to_texts(str(options.id_column)) if options.id_column in columns else None
    order = _match_ids(ids, label_ids, file, options)
    groups = None if options.group not in columns else table.to_groups(str(options.group))
    return JoinedLabels(
        labels if order is None else labels.take(order), groups if order is None or groups is None else groups[order]
    )


def _open(options: RowOptions) -> Table:
    """The table of --labels; labels of another tool as a long table."""
    from onepos.datasets.table import Table, open_table
    from onepos.exchange.reading import is_foreign, read_answers

    path = Path(str(options.labels))
    if is_foreign(path):
        if options.label or options.label_columns:
            given = "--label" if options.label else "--label-columns"
            raise ValueError(f"{given} names a column; {path.name} names its labels itself. Leave it out.")
        return Table(path, read_answers(path, item=options.id_column), "")
    own = [] if options.label or options.label_columns else _header(path)
    return open_table(path, text=(options.label, options.id_column, *own))


def _header(path: Path) -> list[str]:
    """The columns of a text file, whose cells are kept as written: a label may be called NA."""
    from onepos.datasets.table import read_header

    return [name for name in read_header(path) if name != "time"]


def _read_wide(table: Table, options: RowOptions) -> Labels:
    """The labels of a table with a row per item: of --label-columns, of --label, or of the only column left."""
    path, taken = table.path, (options.id_column, options.group)
    if options.label_columns:
        left = [name for name in table.frame.columns if name in taken]
        return table.to_labels(
            label_columns=options.label_columns.split(","), drop=left, answers=read_answers(options, path.name)
        )
    read_answers(options, path.name, is_used=False)
    others = [name for name in table.frame.columns if name not in taken]
    if options.label is None and len(others) != 1:
        beside = " beside the ids" if options.id_column in table.frame.columns else ""
        raise ValueError(
            f"{path.name} must have one column of labels{beside}, or --label names it; it has {len(others)} columns "
            f"({name_some(others)}). Add --label COLUMN, --label-columns '*' if each column is a label, or --id COLUMN "
            "if one holds ids."
        )
    return table.to_labels(label=options.label or others[0], separator=options.separator)


def _read_long(table: Table, file: str, options: RowOptions, ids: list[str] | None, n_rows: int) -> Labels:
    """The labels of a long table `item,label,value`; without ids an item is the number of a row."""
    import numpy as np
    import pandas as pd

    from onepos.datasets.files import naming
    from onepos.labels import Labels, natural_order
    from onepos.reading import check_label_count

    name = table.path.name
    texts = {column: pd.Series(table.to_texts(column)) for column in ("item", "label")}
    items = texts["item"].mask(texts["item"] == "")
    if ids is None:
        is_row = items.isna() | items.isin([str(row) for row in range(n_rows)])
        if not is_row.all():
            raise ValueError(
                f"without --id an item of {name} must be the number of a row of {file}, from 0 to {n_rows - 1}; it "
                f"holds {items[~is_row].iloc[0]!r}. Write row numbers, or add --id COLUMN, the column of ids in {file}."
            )
    elif repeat := find_repeat(ids):
        raise _id_twice(file, ids, repeat)
    answers = read_answers(options, name)
    with naming(table.path):
        frame = table.frame.assign(item=items, label=texts["label"])
        names = [str(row) for row in range(n_rows)] if ids is None else ids
        labels = Labels.from_long(frame, names, answers=answers, place=table.place)
        check_label_count(len(names), len(labels.classes))
    order = np.array(sorted(labels.classes.tolist(), key=natural_order))
    return Labels.read(labels, n_rows, classes=order)


def read_answers(options: RowOptions, name: str, *, is_used: bool = True) -> Answers:
    """The words of --yes, --no and --unknown; refused where there is nothing to read by them."""
    from onepos.long_labels import Answers

    given = {word: getattr(options, word) or () for word in ("yes", "no", "unknown")}
    if not is_used and any(given.values()):
        first = next(word for word, values in given.items() if values)
        raise ValueError(
            f"--{first} names a word in label columns or in the values of a long table; {name} is read as a table with "
            "one column of labels. Leave it out, or add --label-columns."
        )
    return Answers.with_words(**given)


def _match_ids(ids: list[str] | None, label_ids: list[str] | None, file: str, options: RowOptions) -> Any:
    """For each row of the data, its row in the file of labels; None for the same order. Every id must be in both."""
    import numpy as np

    other = Path(str(options.labels)).name
    if ids is None:
        return None
    if label_ids is None:
        raise ValueError(
            f"both files must have the ids of --id; {other} has no column '{options.id_column}'. Add it, or leave --id "
            "out if the rows are in the same order."
        )
    for name, each in ((file, ids), (other, label_ids)):
        if repeat := find_repeat(each):
            raise _id_twice(name, each, repeat)
    place = {name: row for row, name in enumerate(label_ids)}
    known = set(ids)
    without_label = [name for name in ids if name not in place]
    without_row = [name for name in label_ids if name not in known]
    if without_label or without_row:
        faults = [
            f"{len(each)} of {total} ids of {mine} are not in {yours} ({name_some(each, 3)})"
            for each, total, mine, yours in (
                (without_label, len(ids), file, other),
                (without_row, len(label_ids), other, file),
            )
            if each
        ]
        raise ValueError(f"every id must be in both files; {' and '.join(faults)}. Add or remove these rows.")
    return np.array([place[name] for name in ids])


def _id_twice(name: str, ids: list[str], repeat: tuple[int, int]) -> ValueError:
    return ValueError(
        f"every id must come once; in {name} {ids[repeat[0]]!r} is in rows {repeat[0]} and {repeat[1]}. "
        "Remove one of them."
    )


def _check_not_in_both(inputs: pd.DataFrame, labels: Labels, file: str, options: RowOptions) -> None:
    """Refuse a feature that has the name of the column, or of one of the columns, of labels in the other file."""
    named = map(str, labels.classes.tolist()) if options.label_columns else [options.label]
    shared = next((name for name in named if name in inputs.columns), None)
    if shared is not None:
        raise _also_a_feature(shared, file)


def check_leaks(table: Table, options: RowOptions, features: Sequence[str] | None = None) -> None:
    """Refuse a label that is also an id or a group, and a feature that holds the same cells as a label.

    The features of a model are given; they were looked at when it was fitted.
    """
    from onepos.cli.inputs import dropped_columns

    label = options.label
    for option, column in (("id", options.id_column), ("group", options.group)):
        if label is not None and label == column:
            raise ValueError(f"--label and --{option} must name different columns; both are '{label}'. Correct one.")
    if features is not None or len(table.frame) < _ENOUGH_ROWS:
        return
    left = table.without(dropped_columns(options))
    twins = None
    if label is not None and label in left.columns:
        twins = _find_twin(left, label)
    elif label is None and options.label_columns:
        twins = _find_answer_twin(left, table.match(options.label_columns.split(",")), read_answers(options, ""))
    if twins is not None:
        raise ValueError(
            f"the label must not also be a feature; the columns '{twins[0]}' and '{twins[1]}' hold the same cells. Add "
            f"--drop '{twins[1]}'."
        )


def _find_twin(frame: pd.DataFrame, label: str) -> tuple[str, str] | None:
    """The label and a feature of text with the same cells."""
    cells = _without_case(frame[label])
    if cells.nunique() < 2:
        return None
    for name in frame.columns:
        if name != label and frame[name].dtype.kind == "O" and bool((_without_case(frame[name]) == cells).all()):
            return label, str(name)
    _warn_of_codes(frame, label, cells)
    return None


def _without_case(column: pd.Series[Any]) -> pd.Series[Any]:
    return column.map(str).str.strip().str.casefold()  # astype(str) refuses bytes


def _warn_of_codes(frame: pd.DataFrame, label: str, cells: pd.Series[Any]) -> None:
    """Warn of a feature of whole numbers that stand for the labels one by one."""
    import numpy as np
    import pandas as pd

    place, _ = pd.factorize(cells)
    for name in frame.columns:
        if frame[name].dtype.kind in "iub" and np.array_equal(pd.factorize(frame[name])[0], place):
            warnings.warn(
                f"each value of column '{name}' goes with one label of '{label}' and the other way round; if it is a "
                f"code of the label, leave it out with --drop '{name}'",
                UserWarning,
                stacklevel=2,
            )


def _find_answer_twin(frame: pd.DataFrame, labels: list[str], answers: Answers) -> tuple[str, str] | None:
    """A label column and a feature with the same answers, some of them yes and some no."""
    of_label = {
        codes.tobytes(): name
        for name in labels
        if name in frame.columns and {0, 1} <= set((codes := answers.read(frame[name])).tolist())
    }
    for name in frame.columns:
        if name not in labels and frame[name].iloc[:_FIRST_CELLS].nunique() <= _FEW:
            twin = of_label.get(answers.read(frame[name]).tobytes())
            if twin is not None:
                return twin, str(name)
    return None


def check_declared(options: RowOptions, declared: Sequence[str]) -> None:
    """Refuse a label, an id or a group among the columns that are named as features."""
    for name in declared:
        if name == options.label:
            raise _also_a_feature(name)
        for option, column in (("id", options.id_column), ("group", options.group)):
            if name == column:
                raise ValueError(
                    f"--{option} must name a column that is not a feature; '{name}' is in both. Correct one."
                )


def _also_a_feature(name: str, file: str = "") -> ValueError:
    where = f"{file} holds it too" if file else "--text or --categorical names it too"
    return ValueError(
        f"the label must not also be a feature; --label names '{name}', and {where}. "
        f"{f'Add --drop {name}.' if file else 'Leave it out there.'}"
    )
