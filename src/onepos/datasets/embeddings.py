"""Vectors that another model made of each item: `.npy`, `.npz` with `X` and `ids`, or a column of lists."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from onepos.datasets.files import check_file, naming
from onepos.datasets.npz import open_archive

if TYPE_CHECKING:
    import pandas as pd


class Embeddings(NamedTuple):
    """One vector per row, (n, d), and the id of each row as text where the file has ids."""

    X: npt.NDArray[Any]
    ids: list[str] | None


def read_embeddings(path: str | Path, id_column: str | None = None) -> Embeddings:
    """Read vectors; those of an `.npy` file stay on the disk until they are used.

    Args:
        path: `.npy`: an array (n, d). `.npz`: the array `X` (n, d), and `ids` (n,) or none. `.parquet`: one column of
            lists of equal length, and a column of ids or none.
        id_column: The column of ids of a Parquet file.
    """
    path = check_file(Path(path))
    kind = path.suffix.lower()
    with naming(path):
        if kind == ".parquet":
            return from_frame(_read_parquet(path), path.name, id_column)
        if kind == ".npz":
            return _read_archive(path)
        try:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError:
            found = None
        if not isinstance(found, np.ndarray):
            raise ValueError(
                f"{path.name} must hold an array of numbers; it is of another kind. Write it with numpy.save."
            )
        return Embeddings(_check(found, path.name), None)


def _read_archive(path: Path) -> Embeddings:
    with open_archive(path) as archive:
        if "X" not in archive:
            raise ValueError(
                f"{path.name} must hold the vectors as X, and ids if there are any; it holds "
                f"{', '.join(archive.files) or 'nothing'}. Write it with numpy.savez(file, X=vectors, ids=ids)."
            )
        ids = archive["ids"] if "ids" in archive.files else None
        X = _check(archive["X"], path.name)
        if ids is not None and ids.shape != (len(X),):
            raise ValueError(
                f"{path.name} must hold an id per row of X; it holds {ids.size} ids and {len(X)} rows. Write both."
            )
        return Embeddings(X, None if ids is None else [str(each) for each in ids.tolist()])


def list_column(frame: pd.DataFrame) -> str | None:
    """The column whose first cell is a list of numbers; None where there is none."""
    for name in frame.columns:
        first = frame[name].iloc[0] if len(frame) else None
        if (
            isinstance(first, np.ndarray | list | tuple)
            and len(first)
            and np.issubdtype(np.asarray(first).dtype, np.number)
        ):
            return str(name)
    return None


def from_frame(frame: pd.DataFrame, file: str, id_column: str | None = None) -> Embeddings:
    """The vectors in the column of lists of a table, and its ids."""
    column = list_column(frame)
    if column is None:
        raise ValueError(f"{file} must have a column of lists of numbers; it has none. Check the file.")
    if id_column is not None and id_column not in frame.columns:
        raise ValueError(f"{file} has no column '{id_column}'; its columns are {', '.join(map(str, frame.columns))}.")
    cells = frame[column]
    width = len(cells.iloc[0])
    lengths = np.array([-1 if cell is None else np.size(cell) for cell in cells])
    if (lengths != width).any():
        row = int(np.argmax(lengths != width))
        found = "no list" if lengths[row] < 0 else f"one of {lengths[row]}"
        raise ValueError(
            f"{file}, row {row}: every list in '{column}' must hold {width} numbers like the first; it is {found}. "
            "Make the vectors again."
        )
    ids = None if id_column is None else [str(each) for each in frame[id_column].tolist()]
    return Embeddings(_check(np.stack([np.asarray(cell) for cell in cells]), file), ids)


def _check(X: npt.NDArray[Any], file: str) -> npt.NDArray[Any]:
    if X.ndim != 2 or 0 in X.shape or not (np.issubdtype(X.dtype, np.floating) or np.issubdtype(X.dtype, np.integer)):
        raise ValueError(
            f"{file} must hold vectors of numbers, an array (n, d); it holds {X.dtype} of shape {X.shape}. Save the "
            "vectors as one array."
        )
    return X


def _read_parquet(path: Path) -> pd.DataFrame:
    from onepos.datasets.table import open_table

    return open_table(path).frame
