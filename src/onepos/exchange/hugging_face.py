"""Data sets of the library `datasets`: a row per item, with its labels, out and in."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onepos.exchange.entries import Entries, read_columns
from onepos.reading import cause_of

if TYPE_CHECKING:
    from datasets import Dataset

Line = dict[str, str]

_COLUMNS = ("item", "labels", "absent", "added", "probability")


def check_installed() -> None:
    """Raise an ImportError that says what to install."""
    try:
        import datasets  # noqa: F401
    except ImportError:
        raise ImportError(
            "data sets of Hugging Face need the library datasets. Run: pip install 'onepos[datasets]'"
        ) from None


def make_dataset(entries: Entries, columns: Any = None) -> Dataset:
    """A `datasets.Dataset` with a row per item.

    - `item`: the id.
    - `labels`: all labels that are known to be present or were added, class labels.
    - `absent`: those known to be absent. All other labels are unknown.
    - `added`: those of `labels` that were added, and `probability`: of each of them.

    Args:
        entries: What is known and what was added.
        columns: Further columns: a data frame, or names and lists of cells.
    """
    check_installed()
    from datasets import ClassLabel, Dataset, Features, Sequence, Value

    more = read_columns(columns, len(entries.items), _COLUMNS)
    names = Sequence(ClassLabel(names=entries.classes))
    probability = np.ones(entries.yes.shape) if entries.probability is None else entries.probability
    rows = range(len(entries.items))
    cells = {
        "item": entries.items,
        "labels": [np.flatnonzero(entries.yes[row] | entries.added[row]).tolist() for row in rows],
        "absent": [np.flatnonzero(entries.no[row]).tolist() for row in rows],
        "added": [np.flatnonzero(entries.added[row]).tolist() for row in rows],
        "probability": [probability[row][entries.added[row]].tolist() for row in rows],
    }
    kinds = {"item": Value("string"), "labels": names, "absent": names, "added": names}
    own = Dataset.from_dict(cells, Features(kinds | {"probability": Sequence(Value("float32"))}))
    if not more:
        return own
    import pandas as pd
    from datasets import concatenate_datasets

    # The library loses a column without a name.
    frame = pd.DataFrame({name or f"column_{k}": _as_column(column) for k, (name, column) in enumerate(more.items())})
    return concatenate_datasets([Dataset.from_pandas(frame, preserve_index=False), own], axis=1)


def _as_column(cells: list[Any]) -> Any:
    """Cells as a column that Arrow can hold: as text where they are of several kinds, or numbers beyond 64 bits."""
    import pandas as pd
    import pyarrow as pa

    column = pd.Series(cells)
    try:
        pa.array(column, from_pandas=True)
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError):
        missing = [bool(cell is None or cell is pd.NA or cell is pd.NaT or cell != cell) for cell in cells]
        texts = (str(cell).encode("utf-8", "replace").decode() for cell in cells)
        column = pd.Series([None if lacks else text for lacks, text in zip(missing, texts, strict=True)], dtype=object)
    return column


def save_dataset(dataset: Dataset, folder: str | Path) -> Path:
    """Write a data set to a folder, in place of an earlier one, completely or not at all."""
    folder = check_target(Path(folder))
    from datasets import disable_progress_bars, enable_progress_bars, is_progress_bar_enabled

    was_on = is_progress_bar_enabled()
    disable_progress_bars()
    new, old = (folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.part") for _ in range(2))
    try:
        dataset.save_to_disk(str(new))
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    finally:
        if was_on:
            enable_progress_bars()
        for part in (new, old):
            shutil.rmtree(part, ignore_errors=True)
    return folder


def check_target(folder: Path) -> Path:
    """The folder, if a data set can be saved there; an earlier one is replaced, nothing else."""
    if folder.exists() and not is_saved(folder):
        raise ValueError(
            f"{folder} must be a saved data set, which is replaced, or not exist; it is something else. Move it away."
        )
    return folder


def is_saved(path: Path) -> bool:
    """Whether a folder holds a data set that `save_to_disk` wrote, or several."""
    return any((path / name).is_file() for name in ("dataset_info.json", "dataset_dict.json"))


def load_saved(folder: Path) -> Dataset:
    """A data set of `save_to_disk`."""
    check_installed()
    from datasets import Dataset, load_from_disk

    try:
        found = load_from_disk(str(folder))
        if isinstance(found, Dataset):
            found.data.validate(full=True)  # pyarrow trusts a file: damaged offsets would end the process
            return found
    except Exception as error:  # of any type, over several lines
        raise ValueError(
            f"{folder.name} must be readable; {cause_of(error)[:200]}. Save the data set again with save_to_disk."
        ) from error
    parts = ", ".join(map(repr, found))
    raise ValueError(
        f"{folder.name}: labels must be in one data set; these are several ({parts}). Name the folder of one."
    )


def read_dataset(dataset: Dataset, item: str | None = None) -> list[Line]:
    """The labels of a data set as `make_dataset` writes it, a line per item and label: item, label, value, source.

    Class labels of which nothing is known come with an empty value, so that none is lost.

    Args:
        dataset: With the columns item and labels, lists of class labels or of texts, and perhaps absent.
        item: The column of the ids, if it is not called item.
    """
    key = item if item is not None and item in dataset.column_names else "item"
    missing = [name for name in (key, "labels") if name not in dataset.column_names]
    if missing:
        raise ValueError(
            f"a data set of labels must have the columns item and labels; {missing[0]!r} is missing, it has "
            f"{', '.join(map(repr, dataset.column_names[:8]))}. Rename the columns."
        )
    items = [str(each) for each in dataset[key]]
    lines = []
    for column, word in (("labels", "yes"), ("absent", "no")):
        if column in dataset.column_names:
            lines += [
                {"item": items[row], "label": name, "value": word, "source": "datasets"}
                for row, name in _name_labels(dataset, column)
            ]
    seen = {line["label"] for line in lines}
    others = [name for name in getattr(dataset.features["labels"].feature, "names", ()) if name not in seen]
    return lines + [{"item": items[0], "label": name, "value": "", "source": "datasets"} for name in others if items]


def _name_labels(dataset: Dataset, column: str) -> list[tuple[int, str]]:
    """Row and label of each entry of a column of lists."""
    kind = getattr(dataset.features[column], "feature", None)
    names = getattr(kind, "names", None)
    if kind is None or (names is None and getattr(kind, "dtype", "") not in ("string", "large_string")):
        raise ValueError(
            f"the column {column!r} must hold lists of class labels or of texts; it is {dataset.features[column]}. "
            "Convert it."
        )
    cells = [
        (row, entry) for row, entries in enumerate(dataset[column]) for entry in entries or [] if entry is not None
    ]
    if names is None:
        return [(row, str(entry)) for row, entry in cells]
    wrong = next((entry for _, entry in cells if not -1 <= entry < len(names)), None)
    if wrong is not None:
        raise ValueError(
            f"the column {column!r} must hold numbers of its class labels, below {len(names)}; it holds {wrong}. Save "
            "the data set again."
        )
    return [(row, names[entry]) for row, entry in cells if entry >= 0]  # -1 stands for no label
