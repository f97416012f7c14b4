"""What a user passes as y → an (n, c) indicator and its classes, or a sentence about what is wrong."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets

Indicator = npt.NDArray[np.uint8]


def read_labels(y: Any, n_rows: int, positives: str) -> tuple[Indicator, npt.NDArray[Any]]:
    """The observed positives and the classes.

    Args:
        y: A vector of labels, or an indicator as array, list, sparse matrix or DataFrame.
        n_rows: How many rows X has.
        positives: "single" demands exactly one positive per row; "any" also takes none (in a vector: None or
            NaN) or several.
    """
    values, names = _as_array(y)
    _check_length(values, n_rows)
    if values.ndim == 1:
        return _from_vector(values, positives)
    indicator = _check_indicator(values)
    if positives == "single":
        _check_single(indicator)
    return indicator, np.arange(indicator.shape[1]) if names is None else names


def read_full_labels(y: Any, n_rows: int, classes: npt.NDArray[Any]) -> Indicator:
    """Labels of further rows as an indicator over known classes; a vector gives one label per row."""
    values, names = _as_array(y)
    _check_length(values, n_rows)
    if values.ndim == 1:
        return _encode(values, classes)
    if names is not None and set(names) == set(classes):
        values = values[:, [list(names).index(label) for label in classes]]
    elif names is not None and classes.dtype.kind not in "iu":
        unknown = next((name for name in names if name not in set(classes)), None)
        raise ValueError(
            "the columns of Y must be the labels the model was fitted with; "
            + (f"{unknown!r} is none of them." if unknown is not None else f"{len(classes) - len(names)} are missing.")
            + " Rename the columns, or pass an array in the order of classes_."
        )
    indicator = _check_indicator(values)
    if indicator.shape[1] != len(classes):
        raise ValueError(
            f"Y must have one column per label, {len(classes)} in all; it has {indicator.shape[1]}. "
            "Use the labels the model was fitted with."
        )
    return indicator


def _as_array(y: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """y as a NumPy array of one or two dimensions, and the column names of a DataFrame."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    if hasattr(y, "columns") and hasattr(y, "to_numpy"):
        if len(y.columns) == 1 and not np.isin(y.to_numpy(), [0, 1]).all():
            return _as_array(y.iloc[:, 0])  # a frame of one column of labels
        return y.to_numpy(), np.asarray(y.columns)
    if hasattr(y, "toarray"):
        return np.asarray(y.toarray()), None
    try:
        values = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
    except ValueError as error:
        raise ValueError(
            "y must be one label per row or rows of equal length with a 0 or 1 per label; its rows differ in length. "
            "Turn lists of labels into an indicator matrix."
        ) from error
    if values.ndim == 2 and values.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; it is read as one label per row.",
            DataConversionWarning,
            stacklevel=4,
        )
        values = values.ravel()
    if values.ndim not in (1, 2):
        raise ValueError(f"y must be a vector of labels or an indicator matrix; got {values.ndim} dimensions.")
    return values, None


def _check_length(values: npt.NDArray[Any], n_rows: int) -> None:
    if len(values) != n_rows:
        raise ValueError(
            f"X and y must have the same number of rows; X has {n_rows}, y has {len(values)} (inconsistent). "
            "Pass one row of y per row of X."
        )


def _from_vector(values: npt.NDArray[Any], positives: str) -> tuple[Indicator, npt.NDArray[Any]]:
    unlabelled = _is_missing(values)
    if positives == "single" and unlabelled.any():
        raise ValueError(
            f"y must hold one label per row; row {int(np.argmax(unlabelled))} holds none (NaN). "
            "Drop the row, or pass positives='any' (--positives any) to train with unlabelled rows."
        )
    if unlabelled.all():
        raise ValueError("y must hold at least one label; every row is without. Label some rows.")
    known = values[~unlabelled]
    known = known if known.dtype != object or not all(isinstance(v, str) for v in known) else known.astype(str)
    if known.dtype == object and len({type(value) for value in known}) > 1:
        kinds = ", ".join(sorted({type(value).__name__ for value in known}))
        raise ValueError(f"y must hold labels of one kind, all ints or all strings; it mixes {kinds}. Convert them.")
    if known.dtype == object and not isinstance(known[0], str | int | np.integer | bool | float):
        raise ValueError(
            f"y must hold one label per row, an int or a string; row 0 holds a {type(known[0]).__name__}. "
            "Turn sets or lists of labels into an indicator matrix."
        )
    check_classification_targets(known)
    classes = np.unique(known)
    indicator = np.zeros((len(values), len(classes)), np.uint8)
    indicator[np.flatnonzero(~unlabelled), np.searchsorted(classes, known)] = 1
    return indicator, classes


def _encode(values: npt.NDArray[Any], classes: npt.NDArray[Any]) -> Indicator:
    column = {label: j for j, label in enumerate(classes.tolist())}
    found = [column.get(label, -1) for label in values.tolist()]
    if -1 in found:
        row = found.index(-1)
        raise ValueError(
            f"every label must be one the model was fitted with; row {row} holds {values[row]!r}. "
            f"Known labels begin with {', '.join(repr(str(label)) for label in classes[:5])}."
        )
    indicator = np.zeros((len(values), len(classes)), np.uint8)
    indicator[np.arange(len(values)), found] = 1
    return indicator


def _is_missing(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values), bool)
    if values.dtype == object:
        return np.array([v is None or v is pd.NA or (isinstance(v, float) and np.isnan(v)) for v in values], bool)
    return np.zeros(len(values), bool)


def _check_indicator(values: npt.NDArray[Any]) -> Indicator:
    try:
        good = (values == 0) | (values == 1)
    except TypeError:
        good = np.zeros(values.shape, bool)
    if values.size == 0:
        raise ValueError(f"y must hold at least one label; got shape {values.shape}.")
    if not np.all(good):
        row, column = (int(k) for k in np.argwhere(~good)[0])
        raise ValueError(
            f"an indicator y must hold only 0 and 1; row {row}, column {column} holds {values[row, column]!r}. "
            "Code observed positives as 1 and everything else as 0."
        )
    return values.astype(np.uint8)


def _check_single(indicator: Indicator) -> None:
    count = indicator.sum(1)
    if (count != 1).any():
        row = int(np.argmax(count != 1))
        held = "none" if count[row] == 0 else str(count[row])
        remedy = (
            "Draw one with draw_single_positive()" if count[row] else "Drop the row"
        ) + ", or pass positives='any'."
        raise ValueError(f"y must hold exactly one positive label per row; row {row} holds {held}. {remedy}")
