"""One door for all formats."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from onepos.datasets.arff import read_arff
from onepos.datasets.dataset import Dataset, Features
from onepos.datasets.mat import read_mat
from onepos.datasets.table import TABLE_SUFFIXES, read_table, read_table_features, select_columns

READERS: dict[str, Callable[..., Dataset]] = {
    ".arff": read_arff,
    ".arff.gz": read_arff,
    ".mat": read_mat,
    **dict.fromkeys(TABLE_SUFFIXES, read_table),
}


def read_dataset(path: str | Path, **options: Any) -> Dataset:
    """Read a data set; the suffix of the file decides how.

    Args:
        path: `.arff`, `.mat`, `.csv`, `.tsv`, `.parquet` or `.npz`; the text formats also gzipped.
        **options: Passed to `read_arff`, `read_mat` or `read_table`.
    """
    return _find_reader(Path(path))(path, **options)


def read_features(
    path: str | Path, *, columns: Sequence[str] | None = None, drop: str | Sequence[str] | None = None
) -> tuple[Features, tuple[str, ...] | None]:
    """Read features alone, to predict for rows whose labels nobody knows.

    Args:
        path: Any file `read_dataset` reads; tables and NPZ files need not hold labels.
        columns: The features wanted, in this order; all other columns are left out. By default every column.
        drop: Columns of a table to leave out, for example the label: names or patterns.

    Returns:
        The features, and their names where they are known.
    """
    path = Path(path)
    reader = _find_reader(path)
    if reader is read_table:
        return read_table_features(path, columns=columns, drop=drop)
    dataset = reader(path)
    return select_columns(path, dataset.X, dataset.feature_names, columns)


def _find_reader(path: Path) -> Callable[..., Dataset]:
    for suffix, reader in READERS.items():
        if path.name.lower().endswith(suffix):
            return reader
    raise ValueError(f"{path.name} must end in one of {', '.join(READERS)}; it does not. Rename or convert the file.")
