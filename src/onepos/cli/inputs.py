"""What the user typed → what the library takes: data by name, file or folder, observed labels, parameters."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Container, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from onepos.validation import find_repeat, name_some, suggest

if TYPE_CHECKING:
    import pandas as pd

    from onepos.cli.options import DrawOptions, RowOptions
    from onepos.datasets.dataset import Dataset, LabelledRows
    from onepos.datasets.raw import RawDataset
    from onepos.datasets.table import Table
    from onepos.estimator import SinglePositiveClassifier
    from onepos.images.readers import ImageDataset
    from onepos.labels import Labels

# Tables with fewer rows bring no warning about columns that look like ids.
_ENOUGH_ROWS = 10
_UNNAMED = re.compile(r"(Unnamed: \d+)?\s*")
_ID = re.compile(r"(?i:^(id|uid|uuid|guid|index|row ?id)$|^id[ _.-]|[ _.-](id|uid|uuid|guid)$)|[a-z0-9]I[dD]$")
_PARTS = ("train", "val", "test")
_LAYOUTS = ("voc:", "coco:", "nuswide:", "cub:")
"""Data sets with an official layout on disk, named as `voc:FOLDER` and read by the function read_voc."""


def read_rows(
    data: str, options: RowOptions, features: Sequence[str] | None = None, is_raw: bool | None = None
) -> LabelledRows:
    """A file, a folder of images, or a named data set; with `:part` behind it, one part of its split.

    Args:
        data: What the user typed.
        options: Which columns hold what, and the seed of the split.
        features: The columns of a table that a model needs as features; by default all but the labels, with a
            warning about those that look like row numbers or ids.
        is_raw: Whether the cells of a table stay as they are; None: where some are missing or no numbers.
    """
    from onepos.cli.label_files import read_with_labels
    from onepos.datasets import load_dataset, read_dataset
    from onepos.datasets.raw import RawDataset

    name, part = _cut_part(data)
    table = _open_if_table(name, options)
    if _is_of_images(name, table, options.image):
        return _read_image_rows(name, part, options, table)
    if options.image is not None:
        raise ValueError(
            f"--image names a column of paths in a table (.csv, .tsv, .parquet); {name} is none. Leave it out."
        )
    if options.labels is not None:
        dataset = read_with_labels(name, table, options, features, is_raw)
        return dataset.take(_parts(dataset, options.split_seed)[part]) if part else dataset
    _check_table_options(name, table, options)
    columns = _column_options(name, options)
    if "/" in name and not Path(name).exists():
        raise FileNotFoundError(f"there is no file or folder {name}. Name one that is there, or a data set.")
    if table is not None:
        dataset = _read_labelled(table, options, columns, features=features, is_raw=is_raw)
    else:
        is_file = Path(name).suffix != "" or Path(name).exists()
        dataset = read_dataset(name, **columns) if is_file else load_dataset(name, options.data_root)
    if options.label and not options.separator:
        _warn_of_odd_labels(dataset.label_names, dataset.n_samples, is_fit=features is None)
    if table is not None and features is None and not isinstance(dataset, RawDataset):
        _warn_of_id_columns(table.frame[list(dataset.feature_names or ())])
    return dataset.take(_parts(dataset, options.split_seed)[part]) if part else dataset


def read_ids(data: str, rows: LabelledRows, options: RowOptions) -> list[str]:
    """The ids of the rows that `read_rows` gave: those of --id, the paths of images, or the row numbers."""
    name, part = _cut_part(data)
    if options.id_column is None:
        return list(rows.files) if hasattr(rows, "files") else [str(row) for row in range(rows.n_samples)]
    table = _open_if_table(name, options, options.id_column)
    if table is not None:
        ids = table.to_texts(options.id_column)
    elif hasattr(rows, "files"):
        raise ValueError(f"--id names a column of a table; {name} is none, and its paths are the ids. Leave it out.")
    else:
        from onepos.datasets.embeddings import read_embeddings

        ids = read_embeddings(name, options.id_column).ids or []
    if part:
        whole = read_rows(name, options)
        ids = [ids[row] for row in _parts(whole, options.split_seed)[part]]
    if repeat := find_repeat(ids):
        raise ValueError(
            f"every id must come once; in {name} {ids[repeat[0]]!r} is in rows {repeat[0]} and {repeat[1]}. Remove one "
            "of them, or name another column with --id."
        )
    return ids


def _read_labelled(table: Table, options: RowOptions, columns: dict[str, Any], **how: Any) -> Dataset | RawDataset:
    """A table that holds its labels, and perhaps the groups of its rows."""
    from onepos.cli.label_files import check_leaks, read_answers

    check_leaks(table, options, how["features"])
    answers = read_answers(options, table.path.name, is_used=bool(options.label_columns))
    dataset = table.to_dataset(**columns, **how, answers=answers)
    return dataset if options.group is None else replace(dataset, groups=table.to_groups(options.group))


def _check_table_options(name: str, table: Table | None, options: RowOptions) -> None:
    """Refuse options about the cells of a table where there is none."""
    given = [word for word in ("group", "yes", "no", "unknown") if getattr(options, word)]
    if table is None and given:
        raise ValueError(f"--{given[0]} is for a table (.csv, .tsv, .jsonl, .parquet); {name} is none. Leave it out.")


def _cut_part(data: str) -> tuple[str, str]:
    """The name, and the part of its split behind it."""
    name, _, part = data.rpartition(":")
    if not name or f"{name}:" in _LAYOUTS:
        return data, ""
    if part in _PARTS:
        return name, part
    if Path(name).exists() and not Path(data).exists():
        raise ValueError(f"the part after {name}: must be one of {', '.join(_PARTS)}; it is '{part}'. Correct it.")
    return data, ""


def _open_if_table(name: str, options: RowOptions, id_column: str | None = None) -> Table | None:
    """The table of this name, which is opened once; None where this names no table."""
    from onepos.datasets.table import TABLE_SUFFIXES, open_table

    if not name.lower().endswith(TABLE_SUFFIXES) or Path(name).is_dir():
        return None
    label = options.label or (None if options.label_columns else "label")
    return open_table(name, text=(options.image, label, id_column, options.group))


def _is_of_images(name: str, table: Table | None, image: str | None) -> bool:
    """Whether this names images: a folder, an official layout, an image, or a table with a column of paths."""
    from onepos.images.readers import SUFFIXES

    is_listed = name.startswith(_LAYOUTS) or name.lower().endswith(SUFFIXES)
    return is_listed or Path(name).is_dir() or _find_image_column(table, image) is not None


def _find_image_column(table: Table | None, image: str | None) -> str | None:
    """The given column, or `path` where its first cell is the path of an image."""
    from onepos.images.readers import SUFFIXES

    if table is None or image is not None:
        return None if table is None else image
    first = str(table.frame["path"].iloc[0]) if "path" in table.frame.columns else ""
    return "path" if first.strip().lower().endswith(SUFFIXES) else None


def _read_image_rows(name: str, part: str, options: RowOptions, table: Table | None) -> ImageDataset:
    """Labelled images, all or one part of the split they bring, or of a seeded one."""
    from onepos.images.readers import read_folders

    listed = table is not None and _find_image_column(table, options.image) is not None
    if options.labels is not None and not listed:
        raise ValueError(
            f"--labels goes with a table of images, with a column of paths; {name} is none. Leave it out, or list the "
            "images in a table."
        )
    _check_table_options(name, table if listed else None, options)
    if name.startswith(_LAYOUTS):  # with the split and the single positives of the published benchmark
        import onepos.bench.image_sets as readers

        layout, _, folder = name.partition(":")
        images = readers.with_published_protocol(getattr(readers, f"read_{layout}")(folder))
    elif Path(name).is_dir():
        images = read_folders(name)
    elif table is not None and listed:
        images = _read_image_list(table, options)
    else:
        raise ValueError(
            f"labelled images come as a folder per class or a table of paths and labels; {name} is one image. "
            "Name the folder above the folders of the classes."
        )
    if not part:
        return images
    parts = images.splits or _draw_parts(images, options.split_seed)
    if part not in parts:
        raise ValueError(f"{name} has the parts {', '.join(parts)}; there is no {part}. Name one of them.")
    return images.take(parts[part])


def _read_image_list(table: Table, options: RowOptions) -> ImageDataset:
    """The images of a table of paths, with the labels it holds or those of another file."""
    from onepos.cli.label_files import join_labels, read_answers, read_ids
    from onepos.images.readers import read_image_table

    image = str(_find_image_column(table, options.image))
    labels, groups = None, None
    if options.labels is not None:
        labels, groups = join_labels(table.path.name, options, read_ids(table, options), len(table.frame))
    else:
        answers = read_answers(options, table.path.name, is_used=bool(options.label_columns))
        if options.label_columns:
            labels = table.to_labels(label_columns=options.label_columns.split(","), answers=answers)
    if options.group is not None and groups is None:
        groups = table.to_groups(options.group)
    label, separator = options.label or "label", options.separator
    return replace(read_image_table(table, image=image, label=label, separator=separator, labels=labels), groups=groups)


def _draw_parts(rows: LabelledRows, seed: int) -> dict[str, Any]:
    from onepos.protocol import train_val_test_split

    return train_val_test_split(rows.Y, seed, groups=rows.groups)._asdict()


def _parts(dataset: LabelledRows, seed: int) -> dict[str, Any]:
    """The rows of each part: as they come with the data, otherwise by the seed."""
    import numpy as np

    shipped = dict(dataset.splits or {})
    if not {"train", "test"} <= set(shipped):
        return _draw_parts(dataset, seed)
    if "val" not in shipped:
        rows = np.random.default_rng(seed).permutation(shipped["train"])
        shipped["val"], shipped["train"] = (np.sort(each) for each in np.split(rows, [len(rows) // 10]))
    return shipped


def _warn_of_odd_labels(names: Sequence[str], n_rows: int, *, is_fit: bool) -> None:
    """Warn of a label that is the only one, of one that looks like a list of others, and of measurements as labels."""
    if is_fit and len(names) == 1:
        warnings.warn(
            f"'{names[0]}' is the only label, so a model can only predict it for every row; add rows with other "
            "labels, or name another column with --label",
            UserWarning,
            stacklevel=2,
        )
    known = set(names)
    for name, mark in ((name, mark) for mark in ";|," for name in names if mark in name):
        if known.intersection(each.strip() for each in name.split(mark)):
            remedy = f"If '{mark}' separates several labels, add --separator '{mark}'."
            warnings.warn(f"'{name}' is read as one label. {remedy}", UserWarning, stacklevel=2)
            break
    numbers = [name for name in names if _is_fraction(name)]
    if 2 * len(numbers) > len(names) > n_rows / 4:
        warnings.warn(
            f"{n_rows} rows hold {len(names)} different labels, such as {numbers[0]}; each number is read as a label. "
            "If this column holds measurements, name another column with --label.",
            UserWarning,
            stacklevel=2,
        )


def _warn_of_id_columns(frame: pd.DataFrame) -> None:
    """Warn of features that look like row numbers or ids, from which a model learns nothing that holds for new rows."""
    from onepos.datasets.table import drop_option

    found = [name for name in frame.columns if len(frame) >= _ENOUGH_ROWS and _is_id(name, frame[name])]
    if not found:
        return
    names, remedy = name_some(found, 10), drop_option(found)
    if len(found) == 1:
        text = f"column {names} looks like a row number or an id but is a feature; if it says nothing about the labels"
    else:
        text = f"columns {names} look like row numbers or ids but are features; if they say nothing about the labels"
    them = "it" if len(found) == 1 else "them"
    warnings.warn(f"{text}, leave {them} out with {remedy}", UserWarning, stacklevel=2)


def _is_id(name: str, column: pd.Series[Any]) -> bool:
    """Whether a feature has no name, numbers the rows from 0 or 1, or has the name of an id and no value twice."""
    import numpy as np

    first = column.iloc[0]
    if _UNNAMED.fullmatch(name) or (first in (0, 1) and np.array_equal(column, first + np.arange(len(column)))):
        return True
    return _ID.search(name) is not None and column.is_unique and bool((column % 1 == 0).all())


def _is_fraction(text: str) -> bool:
    try:
        return float(text) % 1 != 0
    except ValueError:
        return False


def _column_options(name: str, options: RowOptions) -> dict[str, Any]:
    """The options about columns as the reader of this kind of file takes them."""
    known = ("label", "separator", "label_columns")
    columns: dict[str, Any] = {key: value for key in known if (value := getattr(options, key))}
    if "label_columns" in columns:
        columns["label_columns"] = columns["label_columns"].split(",")
    if dropped := dropped_columns(options):
        columns["drop"] = dropped
    kind = Path(name.removesuffix(".gz")).suffix
    if kind not in (".arff", ".mat"):
        return columns
    labels = columns.pop("label_columns", None)
    if columns:
        raise ValueError(
            f"{kind} files name their labels themselves; --{next(iter(columns))} is for tables. "
            "Leave it out, or give --label-columns."
        )
    return {} if labels is None else {"labels": labels if kind == ".arff" else labels[0]}


def dropped_columns(
    options: RowOptions, id_column: str | None = None, columns: Container[str] | None = None
) -> list[str]:
    """The columns of --drop, --id and --group, which are not features; with `columns`, a group only among these."""
    named = [name for given in options.drop or () for name in given.split(",")]
    group = options.group if columns is None or options.group in columns else None
    ids = [_as_pattern(name) for name in (options.id_column, id_column, group) if name is not None]
    return [*named, *ids]


def _as_pattern(name: str) -> str:
    """A column name whose characters of a pattern stand for themselves."""
    return re.sub(r"([*?[])", r"[\1]", name)


def observe(rows: LabelledRows, options: DrawOptions, seed: int, positives: str, save_to: Path | None = None) -> Labels:
    """What is known of the labels: as the data holds them, or by the draw of the options, written to `save_to`.

    A draw keeps one label of each row and nothing else, no known negatives either.
    """
    from onepos.datasets import load_draw, save_draw
    from onepos.labels import Labels
    from onepos.protocol import draw_single_positive
    from onepos.validation import check_one_positive

    how, file = options.draw, options.draw_file
    if save_to is not None and how is None:
        raise ValueError(
            "--save-draw writes the draw of --draw, which is missing. Add --draw uniform, or leave it out."
        )
    if how is not None and file is not None:
        raise ValueError("--draw and --draw-file exclude each other; both are given. Leave one out.")
    if file is not None:
        return Labels.from_arrays(load_draw(file, rows.Y), None, rows.label_names)
    if how is not None:
        observed = draw_single_positive(rows.Y, seed, how=str(how))
        if save_to is not None:
            save_draw(save_to, observed, how=str(how), seed=seed)
        return Labels.from_arrays(observed, None, rows.label_names)
    if rows.observed is not None:
        return Labels.from_arrays(rows.observed, rows.known_negative, rows.label_names, rows.at_random)
    known = rows.known
    if positives == "single":  # checked here too, because importing torch before an error takes seconds
        check_one_positive(rows.Y, "the data", skip=known.is_reviewed)
    return known


def as_inputs(rows: Any, names: Sequence[str] | None = None) -> Any:
    """The files of images, or the features; with `names`, those of the model, its columns in its order."""
    import numpy as np
    import pandas as pd

    from onepos.datasets.raw import RawDataset
    from onepos.images.readers import ImageDataset

    if isinstance(rows, ImageDataset):
        return rows.files
    if isinstance(rows, RawDataset):
        return rows.frame
    if names is None or rows.feature_names is None or rows.is_sparse:
        return rows.X
    frame = pd.DataFrame(np.asarray(rows.X), columns=list(rows.feature_names), copy=False)  # a view of the features
    return frame[list(names)] if set(names) <= set(frame.columns) else frame


def spread_labels(rows: LabelledRows, names: list[str]) -> Any:
    """Y of `rows` with one column per name; see `match_labels`."""
    Y, unknown = match_labels(rows, names)
    if unknown:
        raise _unknown_label(rows.name, unknown, names)
    return Y


def match_labels(rows: LabelledRows, names: list[str]) -> tuple[Any, list[str]]:
    """Y of `rows` with a column per name, and the labels of `rows` that are none of the names; at least one must be.

    A label that does not occur in `rows` is absent everywhere. Where known negatives are told apart, it is unknown
    everywhere, and unknown entries are NaN.
    """
    import numpy as np

    place = {name: column for column, name in enumerate(names)}
    known = [column for column, name in enumerate(rows.label_names) if name in place]
    unknown = [name for name in rows.label_names if name not in place]
    if not known:
        raise _unknown_label(rows.name, unknown, names)
    if rows.known_negative is None:
        own, Y = rows.Y, np.zeros((rows.n_samples, len(names)), np.uint8)
    else:
        own = np.where(rows.Y | rows.known_negative, rows.Y, np.nan)
        Y = np.full((rows.n_samples, len(names)), np.nan)
    Y[:, [place[rows.label_names[column]] for column in known]] = own[:, known]
    return Y, unknown


def judge_labels(
    rows: LabelledRows, is_read: Any, Y: Any, unknown: list[str], what: str
) -> tuple[list[str], dict[str, Any]]:
    """What to know before one trusts scores: sentences, and the same as facts.

    Args:
        rows: The labelled rows.
        is_read: Which of them are scored.
        Y: The known labels of those.
        unknown: The labels of `rows` that the model does not know.
        what: "row" or "image".
    """
    import numpy as np

    labels, is_told = rows.Y[is_read], rows.known_negative is not None
    columns = [rows.label_names.index(name) for name in unknown]
    found = [name for name, column in zip(unknown, columns, strict=True) if labels[:, column].any()]
    has_unknown = labels[:, columns].any(axis=1)
    n_bare = int((has_unknown & ~(Y == 1).any(axis=1)).sum())
    remarks = []
    if (labels.sum(1) <= 1).all() and not is_told:
        remarks.append(
            f"every {what} holds at most one label, so all other labels count as absent; if several labels are true of "
            f"{'a row' if what == 'row' else 'an image'}, these scores are too low: evaluate on fully labelled data."
        )
    is_kind = ((Y == 1).any(axis=1) & ~(Y == 0).any(axis=1) & np.isnan(Y).any(axis=1)) if is_told else np.zeros(0)
    if is_kind.any():
        remarks.append(
            f"{int(is_kind.sum())} of {len(labels)} {what}s hold labels known to be there and none known to be "
            "absent, so a label predicted too much never counts as wrong; these scores are too high: evaluate on "
            "reviewed rows."
        )
    if found:
        them = f"label {name_some(found)} is" if len(found) == 1 else f"{len(found)} labels ({name_some(found)}) are"
        bare = f"{n_bare} of them no other; these count as {what}s without a {'known ' * is_told}label."
        remarks.append(
            f"{them} unknown to the model and left out; {int(has_unknown.sum())} of {len(labels)} {what}s hold such a "
            f"label, {bare if n_bare else 'each with one that is known.'}"
        )
    return remarks, {
        "n_unknown_labels": len(found),
        "unknown_labels": found[:5],
        "n_rows_without_known_label": n_bare,
    }


def spread_known(labels: Labels, names: list[str], source: str, ids: list[str] | None = None) -> Labels:
    """What is known of the labels, with a column per label of a model; all must be labels of it.

    Args:
        labels: Of the rows.
        names: The labels of the model.
        source: Where the labels are from, for messages.
        ids: The ids of the rows.
    """
    import numpy as np
    import scipy.sparse as sp

    from onepos.labels import Labels

    place = {name: column for column, name in enumerate(names)}
    unknown = [str(name) for name in labels.classes if str(name) not in place]
    if unknown:
        raise _unknown_label(source, unknown, names)
    columns = np.array([place[str(name)] for name in labels.classes], np.intp)
    parts = []
    for part in (labels.positive.tocoo(), labels.negative.tocoo()):
        entries = np.ones(part.nnz, bool), (part.row, columns[part.col])
        parts.append(sp.csr_array(sp.coo_array(entries, (len(labels), len(names)))))
    return Labels(parts[0], parts[1], np.array(names), None if ids is None else np.array(ids), labels.at_random)


def _unknown_label(source: str, unknown: list[str], names: list[str]) -> ValueError:
    return ValueError(
        f"every label must be one the model was fitted with; {source} holds {unknown[0]!r}: "
        f"{suggest(unknown[0], names)}"
    )


def read_inputs(
    model: SinglePositiveClassifier, data: str, options: RowOptions, id_column: str | None = None
) -> tuple[Any, list[str] | None]:
    """What to predict: the model's own columns of a table, the features of a data set, or files of images.

    With `id_column` also the ids of the rows, as text; they come from a table.
    """
    name, part = _cut_part(data)
    names = getattr(model, "feature_names_in_", None)
    encoder = getattr(model, "encoder_", None)
    used = list(names) if encoder is None and names is not None else []
    _check_id_column(id_column, name, used if encoder is None else [column.name for column in encoder.columns_])
    if encoder is not None:
        return _read_raw(name, part, options, id_column)
    if model.kind == "images":
        return _list_images(name, part, options, id_column)
    if Path(name).is_dir():
        raise ValueError(f"the model takes rows of numbers; {name} is a folder. Name a table or a data set.")
    kind = Path(name.removesuffix(".gz")).suffix
    if kind in ("", ".arff", ".mat") or (part and kind == ".npz" and _holds_labels(name)):
        return as_inputs(read_rows(data, options), names), None
    import numpy as np
    import pandas as pd

    from onepos.datasets.table import open_table
    from onepos.protocol import train_val_test_split

    X, found, ids = _read_features(name, names, dropped_columns(options), id_column)
    if part:
        groups = None if options.group is None else open_table(name, text=[options.group]).to_groups(options.group)
        rows = train_val_test_split(np.ones((X.shape[0], 1)), options.split_seed, groups=groups)._asdict()[part]
        X, ids = X[rows], None if ids is None else [ids[row] for row in rows]
    return pd.DataFrame(np.asarray(X), columns=list(found)) if names is not None and found is not None else X, ids


def _read_raw(name: str, part: str, options: RowOptions, id_column: str | None) -> tuple[Any, list[str] | None]:
    """The cells of a table as they are, and the ids of its rows."""
    import numpy as np

    from onepos.datasets.table import TABLE_SUFFIXES, open_table
    from onepos.protocol import train_val_test_split

    if not name.lower().endswith(TABLE_SUFFIXES):
        raise ValueError(
            f"the model was fitted to a raw table; {name} is none ({', '.join(TABLE_SUFFIXES)}). Name a table with the "
            "same columns."
        )
    table = open_table(name, text=[id_column, options.group])
    ids = None if id_column is None else table.to_texts(id_column)
    groups = None if options.group is None else table.to_groups(options.group)
    frame = table.without(dropped_columns(options, id_column))
    if part:
        rows = train_val_test_split(np.ones((len(frame), 1)), options.split_seed, groups=groups)._asdict()[part]
        frame, ids = frame.take(rows), None if ids is None else [ids[row] for row in rows]
    return frame, ids


def _check_id_column(id_column: str | None, name: str, features: list[str]) -> None:
    """Refuse ids that are not in a table, or that the model takes for a feature."""
    from onepos.datasets.table import TABLE_SUFFIXES, drop_option

    if id_column is not None and not name.lower().endswith(TABLE_SUFFIXES):
        raise ValueError(f"--id names a column of a table ({', '.join(TABLE_SUFFIXES)}); {name} is none. Leave it out.")
    if id_column in features:
        raise ValueError(
            f"--id must name a column that is not a feature; the model was fitted with '{id_column}' as a feature. "
            f"Fit again with {drop_option([id_column])}, or name another column."
        )


def _read_features(
    name: str, wanted: Sequence[str] | None, dropped: list[str], id_column: str | None
) -> tuple[Any, Sequence[str] | None, list[str] | None]:
    """The features of a file, their names, and the ids of its rows."""
    from onepos.datasets import open_table, read_features

    columns = None if wanted is None else list(wanted)
    if columns is None and name.lower().endswith((".npy", ".parquet")):
        from onepos.datasets.embeddings import list_column, read_embeddings

        if name.lower().endswith(".npy") or list_column(open_table(name).frame) is not None:
            found = read_embeddings(name, id_column)
            return found.X, None, found.ids
    if id_column is None:
        return *read_features(name, columns=columns, drop=dropped), None
    table = open_table(name, text=[id_column])
    ids = table.to_texts(id_column)
    return *table.to_features(columns, [*dropped, id_column]), ids


def _list_images(
    name: str, part: str, options: RowOptions, id_column: str | None
) -> tuple[list[str], list[str] | None]:
    """The images to predict: all in a folder however deep, those of a table, one, or a part of labelled ones.

    With `id_column` also the ids in a table.
    """
    from onepos.images.readers import SUFFIXES, list_paths

    table = _open_if_table(name, options, id_column)
    if part and id_column is not None:
        raise ValueError(f"--id takes all images of a table; {name}:{part} is a part. Leave :{part} or --id out.")
    if part or name.startswith(_LAYOUTS):
        return _read_image_rows(name, part, options, table).files, None
    if Path(name).is_dir():
        found = sorted(path for path in Path(name).rglob("*") if path.name.lower().endswith(SUFFIXES))
        seen = [path for path in found if not any(step.startswith(".") for step in path.relative_to(name).parts)]
        if not seen:
            raise ValueError(f"{name} must hold images ({', '.join(SUFFIXES)}); it holds none. Check the path.")
        return [str(path) for path in seen], None
    if name.lower().endswith(SUFFIXES):
        return [name], None
    column = _find_image_column(table, options.image)
    if table is None or column is None:
        raise ValueError(
            f"this model takes images: name a folder, an image, or a table with a column of paths (--image); {name} "
            "is none of these."
        )
    paths = [str(Path(name).parent / path) for path in list_paths(table, column)]
    return paths, None if id_column is None else table.to_texts(id_column)


def _holds_labels(name: str) -> bool:
    """Whether an NPZ file is a data set, with the split that may come with it, and not features alone."""
    from onepos.datasets.npz import open_archive

    try:
        with open_archive(Path(name)) as archive:
            return "Y" in archive or "y" in archive
    except (OSError, ValueError):
        return False  # the reader of features explains what is wrong with the file


def parse_parameters(texts: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE, with VALUE as JSON where it is JSON (numbers, true, lists) and as text otherwise."""
    parsed: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes NAME=VALUE; got {text!r}. For example: --set lam=0.5")
        try:
            parsed[name] = json.loads(value)
        except json.JSONDecodeError:
            parsed[name] = value
    return parsed


def parse_time(text: str | None) -> float | None:
    """Seconds of a text such as 90, 60s, 10m or 2h."""
    if text is None:
        return None
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:].lower())
    try:
        seconds = float(text if unit is None else text[:-1]) * (unit or 1)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"--time-limit takes a time above 0, such as 60s, 10m or 2h; got {text!r}.")
    return seconds


def check_folder(*paths: Path | None) -> None:
    """Refuse, before any work, a file that cannot be written; None stands for no file."""
    for path in filter(None, paths):
        if path.is_dir():
            raise IsADirectoryError(f"{path} must be a file, or not exist yet; it is a folder. Name a file in it.")
        folder = path.resolve().parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise FileNotFoundError(
                f"{path} must lie in a folder that can be written to; {folder} is none. Make it first."
            )


def check_model_folder(path: Path) -> None:
    """Refuse, before any work, a folder that cannot be made or written to."""
    place = path.resolve()
    nearest = next(folder for folder in (place, *place.parents) if folder.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(
            f"{path} must be a folder, or not exist yet; {nearest} is a file. Name another with --out."
        )
    try:  # permissions alone do not tell: root may write anywhere but to some file systems
        with TemporaryDirectory(dir=nearest):
            return
    except OSError as error:
        raise NotADirectoryError(
            f"{path} must be a folder that can be written to; {nearest} is not ({error.strerror}). "
            "Name another with --out."
        ) from error
