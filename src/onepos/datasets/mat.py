"""MATLAB files: versions 5 to 7 (mat5.py), and version 7.3 (HDF5) through h5py."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from onepos.datasets.dataset import Dataset, Labels, Rows, check_indices, stack_rows
from onepos.datasets.files import check_file, naming
from onepos.datasets.mat5 import load_mat5
from onepos.validation import check_known, to_dense

# (features, labels) as the known collections call them; two pairs where train and test are kept apart.
LAYOUTS = (
    (("X", "Y"),),
    (("train_data", "train_target"), ("test_data", "test_target")),
    (("train_data", "train_target"),),
    (("data", "target"),),
)
INDEX_KEYS = {"train": "tr_idx", "val": "va_idx", "test": "te_idx"}
Orientation = Literal["auto", "rows", "columns"]
Arrays = Mapping[str, Any]


def read_mat(
    path: str | Path, *, features: str | None = None, labels: str | None = None, orientation: Orientation = "auto"
) -> Dataset:
    """Read a MATLAB file.

    Known variable names: `X` and `Y`; `data` and `target`; `train_data`, `train_target`, `test_data`,
    `test_target`; with `Y_obs` and `tr_idx`, `va_idx`, `te_idx` (SMILE) the draw and the split come along.
    Labels are 0/1 or -1/+1, one row or one column per sample.

    Args:
        path: `.mat` file.
        features: Variable that holds the features, when it is none of the above.
        labels: Variable that holds the labels.
        orientation: "rows" or "columns": whether a sample is a row or a column of the labels; "auto"
            takes the one that fits the features.
    """
    if orientation not in ("auto", "rows", "columns"):
        raise ValueError(f"orientation must be auto, rows or columns; it is '{orientation}'. Choose one.")
    path = check_file(Path(path))
    with naming(path):
        arrays = _load_hdf5(path) if _is_hdf5(path) else load_mat5(path)
        for matrix in arrays.values():
            check_indices(matrix)
        layout = _choose_layout(path, arrays, features, labels)
        parts = [_read_part(path, arrays, *keys, orientation) for keys in layout]
        X = stack_rows([X for X, _ in parts])
        Y = np.concatenate([Y for _, Y in parts])
        return Dataset(
            name=path.stem,
            X=X,
            Y=Y,
            label_names=tuple(f"label{column}" for column in range(Y.shape[1])),
            splits=_read_splits(path, arrays, [len(Y) for _, Y in parts]),
            source=path.name,
            observed=_read_observed(path, arrays, Y.shape, orientation),
        )


def _is_hdf5(path: Path) -> bool:
    with path.open("rb") as handle:
        head = handle.read(128)
    return head.startswith((b"MATLAB 7.3", b"\x89HDF"))


def _load_hdf5(path: Path) -> dict[str, Any]:
    try:
        import h5py
    except ImportError:
        raise ImportError(
            f"{path.name} is a MATLAB 7.3 file and needs h5py, which is not installed. Run: pip install 'onepos[mat73]'"
        ) from None
    with h5py.File(path, "r") as file:
        arrays = {key: _load_node(node) for key, node in file.items() if not key.startswith("#")}
    return {
        key: array
        for key, array in arrays.items()
        if sp.issparse(array) or (isinstance(array, np.ndarray) and array.ndim == 2 and array.dtype.kind in "buif")
    }


def _load_node(node: Any) -> Any:
    if "MATLAB_sparse" in node.attrs:
        n_rows, pointers = int(node.attrs["MATLAB_sparse"]), node["jc"][()]
        # MATLAB leaves data and ir out when there is nothing in the matrix.
        data, rows = (node[key][()] if key in node else np.zeros(0) for key in ("data", "ir"))
        return sp.csc_array((data, rows.astype(np.int64), pointers), shape=(n_rows, len(pointers) - 1))
    # HDF5 keeps the rows of a MATLAB matrix as columns.
    return node[()].T if hasattr(node, "dtype") else None


def _choose_layout(path: Path, arrays: Arrays, features: str | None, labels: str | None) -> tuple[tuple[str, str], ...]:
    if (features is None) != (labels is None):
        raise ValueError("features and labels must be given together; only one is. Name both variables.")
    if features is not None and labels is not None:
        check_known([features, labels], arrays, f"{path.name} has no matrix")
        return ((features, labels),)
    for layout in LAYOUTS:
        if all(key in arrays for pair in layout for key in pair):
            return layout
    raise ValueError(
        f"{path.name} must hold X and Y, data and target, or train_data and train_target; its matrices are "
        f"{', '.join(arrays) or 'none'}. Name the two with features and labels."
    )


def _read_part(path: Path, arrays: Arrays, features: str, labels: str, orientation: Orientation) -> tuple[Any, Labels]:
    """Return features and labels with a sample per row."""
    X, Y = arrays[features], arrays[labels]
    x, y = X.shape, Y.shape
    allowed = {"auto": (0, 1), "rows": (0,), "columns": (1,)}[orientation]
    # Axes of X and Y of one length: the samples may lie along them.
    fits = [(i, j) for i in (0, 1) for j in allowed if x[i] == y[j]]
    for candidates in ([pair for pair in fits if pair[0] == 0], fits):
        if len(candidates) == 1:
            x_axis, y_axis = candidates[0]
            return (X.T if x_axis else X), _to_indicator(path, labels, Y.T if y_axis else Y)
    if fits:
        raise ValueError(
            f"{path.name} must show which side of '{labels}' is the samples; it is {y[0]} × {y[1]} and fits both "
            "ways. Give orientation 'rows' or 'columns'."
        )
    raise ValueError(
        f"{path.name} must have as many samples in '{features}' as in '{labels}'; they are {x[0]} × {x[1]} and "
        f"{y[0]} × {y[1]}. Name the right variables with features and labels."
    )


def _to_indicator(path: Path, key: str, labels: Any) -> Labels:
    values = to_dense(labels)
    negative = -1 if (values == -1).any() else 0
    wrong = np.argwhere((values != 1) & (values != negative))
    if len(wrong):
        row, column = wrong[0]
        raise ValueError(
            f"{path.name}: '{key}' must hold 0 and 1, or -1 and 1; row {row}, column {column} is "
            f"{values[row, column]:g} (among labels of {negative} and 1). Name the right variable with labels."
        )
    return np.asarray(values == 1, dtype=np.uint8)


def _read_observed(path: Path, arrays: Arrays, shape: tuple[int, ...], orientation: Orientation) -> Labels | None:
    if "Y_obs" not in arrays:
        return None
    given = arrays["Y_obs"]
    return _to_indicator(path, "Y_obs", given.T if given.shape != shape or orientation == "columns" else given)


def _read_splits(path: Path, arrays: Arrays, lengths: list[int]) -> dict[str, Rows] | None:
    if len(lengths) == 2:
        return {"train": np.arange(lengths[0]), "test": np.arange(lengths[0], sum(lengths))}
    rows = {part: _to_rows(path, arrays[key], key) for part, key in INDEX_KEYS.items() if key in arrays}
    if not rows:
        return None
    # The SMILE files count from 0. An index equal to n only makes sense counted from 1, as MATLAB does.
    if max(index.max(initial=0) for index in rows.values()) == lengths[0]:
        rows = {part: index - 1 for part, index in rows.items()}
    both = np.isin(rows.get("train", ()), rows.get("val", ()))
    if both.any():  # in the first SMILE files
        warnings.warn(
            f"{path.name}: {both.sum()} validation rows are also listed as train; they are left out of train.",
            stacklevel=3,
        )
        rows["train"] = rows["train"][~both]
    return rows


def _to_rows(path: Path, values: Any, key: str) -> Rows:
    index = np.asarray(values).ravel()
    if (index != np.floor(index)).any():
        raise ValueError(f"{path.name}: '{key}' must hold row numbers; it holds fractions. Check the file.")
    return index.astype(np.intp)
