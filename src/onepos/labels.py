"""What a user passes as y, or writes into a column of labels → an (n, c) indicator and its classes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from onepos.validation import Indicator, check_indicator, check_one_positive, name_some, one_hot, suggest, to_dense


def read_labels(y: Any, n_rows: int, positives: str) -> tuple[Indicator, npt.NDArray[Any]]:
    """The observed positives and the classes.

    Args:
        y: A vector of labels, or an indicator as array, list, sparse matrix or DataFrame.
        n_rows: How many rows X has.
        positives: "single" demands exactly one positive per row; "any" also takes none (in a vector: None or
            NaN) or several.
    """
    values, names = _as_array(y, n_rows)
    if values.ndim == 1:
        return _read_vector(values, positives)
    indicator = check_indicator(values, "y", columns=names, allow_empty=False)
    if positives == "single":
        check_one_positive(indicator)
    return indicator, np.arange(indicator.shape[1]) if names is None else names


def read_full_labels(
    y: Any, n_rows: int, classes: npt.NDArray[Any], *, unknown: Literal["raise", "warn", "skip"] = "raise"
) -> Indicator:
    """Labels of further rows as an indicator over the classes of a model.

    Args:
        y: As in `read_labels`; a vector holds one label per row.
        n_rows: How many rows X has.
        classes: The labels of the model.
        unknown: What a row of a vector does whose label the model does not know: "raise" an error, "warn" and count as
            a row without labels, or "skip", the same without the warning. In the last two a row may also hold None or
            NaN, and at least one label must be known.
    """
    values, names = _as_array(y, n_rows)
    if values.ndim == 1:
        return _encode(values, classes, unknown)
    if names is not None and set(names) == set(classes):
        values = values[:, [list(names).index(label) for label in classes]]
    elif names is not None and classes.dtype.kind not in "iu":
        other = next((name for name in names if name not in set(classes)), None)
        raise ValueError(
            "the columns of Y must be the labels the model was fitted with; "
            + (f"{other!r} is none of them." if other is not None else f"{len(classes) - len(names)} are missing.")
            + " Rename the columns, or pass an array in the order of classes_."
        )
    indicator = check_indicator(values, "Y", columns=names)
    if indicator.shape[1] != len(classes):
        raise ValueError(
            f"Y must have one column per label, {len(classes)} in all; it has {indicator.shape[1]}. "
            "Use the labels the model was fitted with."
        )
    return indicator


def binarize(cells: Iterable[Any], separator: str | None = None) -> tuple[Indicator, tuple[str, ...]]:
    """Turn one cell per row into an indicator.

    Args:
        cells: One label per cell, several joined by `separator`, or a list of labels; an empty cell means no
            positive label.
        separator: The text between two labels of one cell.

    Returns:
        The (n, c) indicator and the label names: numbers in their order, then text in alphabetical order.
    """
    rows = [_split_cell(cell, separator) for cell in cells]
    names = sorted({name for row in rows for name in row}, key=_natural_order)
    if not names:
        raise ValueError("there must be at least one label; every label cell is empty. Check the label column.")
    column = {name: j for j, name in enumerate(names)}
    indicator = np.zeros((len(rows), len(names)), np.uint8)
    for marks, row in zip(indicator, rows, strict=True):
        marks[[column[name] for name in row]] = 1
    return indicator, tuple(names)


def list_labels(
    names: Sequence[Any], scores: npt.NDArray[np.float64], decisions: npt.NDArray[np.integer]
) -> list[list[Any]]:
    """The names of the labels decided for each row, the one with the highest score first."""
    rows, labels = np.nonzero(decisions)
    order = np.lexsort((-scores[rows, labels], rows))
    ends = np.cumsum(np.bincount(rows, minlength=len(decisions)))
    chosen = [names[label] for label in labels[order].tolist()]
    return [chosen[start:end] for start, end in pairwise([0, *ends.tolist()])]


def _as_array(y: Any, n_rows: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """y as an array of one or two dimensions with a row per row of X, and the column names of a DataFrame."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    try:
        values = to_dense(y)
    except ValueError as error:
        raise ValueError(
            "y must be one label per row or rows of equal length with a 0 or 1 per label; its rows differ in length. "
            "Turn lists of labels into an indicator matrix."
        ) from error
    is_frame = hasattr(y, "columns")
    if values.ndim == 2 and values.shape[1] == 1 and not hasattr(y, "toarray"):
        if not is_frame:
            from sklearn.exceptions import DataConversionWarning

            warning = "A column-vector y was passed when a 1d array was expected; it is read as one label per row."
            warnings.warn(warning, DataConversionWarning, stacklevel=4)
        if not is_frame or not np.isin(values, [0, 1]).all():
            values, is_frame = values.ravel(), False
    if values.ndim not in (1, 2):
        raise ValueError(f"y must be a vector of labels or an indicator matrix; got {values.ndim} dimensions.")
    if len(values) != n_rows:
        raise ValueError(
            f"X and y must have the same number of rows; X has {n_rows}, y has {len(values)} (inconsistent). "
            "Pass one row of y per row of X."
        )
    return values, np.asarray(y.columns) if is_frame else None


def _read_vector(values: npt.NDArray[Any], positives: str) -> tuple[Indicator, npt.NDArray[Any]]:
    from sklearn.utils.multiclass import check_classification_targets

    is_missing = np.array([_is_missing(value) for value in values.tolist()], bool)
    if positives == "single" and is_missing.any():
        raise ValueError(
            f"y must hold one label per row; row {int(np.argmax(is_missing))} holds none (NaN). "
            "Drop the row, or pass positives='any' (--positives any) to train with unlabelled rows."
        )
    if is_missing.all():
        raise ValueError("y must hold at least one label; every row is without. Label some rows.")
    known = _of_one_kind(values[~is_missing])
    check_classification_targets(known)
    classes, place = np.unique(known, return_inverse=True)
    columns = np.full(len(values), -1)
    columns[~is_missing] = place
    return one_hot(columns, len(classes)), classes


def _of_one_kind(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Labels that can be sorted: all strings or all numbers."""
    if labels.dtype != object:
        return labels
    kinds = {type(label) for label in labels}
    if len(kinds) > 1:
        named = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"y must hold labels of one kind, all ints or all strings; it mixes {named}. Convert them.")
    if not isinstance(labels[0], str | int | np.integer | bool | float):
        raise ValueError(
            f"y must hold one label per row, an int or a string; row 0 holds a {type(labels[0]).__name__}. "
            "Turn sets or lists of labels into an indicator matrix."
        )
    return labels.astype(str) if isinstance(labels[0], str) else labels


def _encode(values: npt.NDArray[Any], classes: npt.NDArray[Any], unknown: str) -> Indicator:
    column = {label: j for j, label in enumerate(classes.tolist())}
    labels = values.tolist()
    found = [column.get(label, -1) for label in labels]
    wrong = [row for row, j in enumerate(found) if j < 0 and (unknown == "raise" or not _is_missing(labels[row]))]
    if wrong and (unknown == "raise" or max(found) < 0):
        row = wrong[0]
        raise ValueError(
            f"every label must be one the model was fitted with; row {row} holds {labels[row]!r}: "
            f"{suggest(labels[row], classes)}"
        )
    if wrong and unknown == "warn":
        warnings.warn(
            f"{len(wrong)} of {len(labels)} rows hold a label that the model was not fitted with "
            f"({name_some(dict.fromkeys(labels[row] for row in wrong))}); they count as rows without a label.",
            UserWarning,
            stacklevel=5,
        )
    return one_hot(found, len(classes))


def _is_missing(value: Any) -> bool:
    """None, NaN, pandas.NA or pandas.NaT."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _split_cell(cell: Any, separator: str | None) -> list[str]:
    parts: Iterable[str] = map(str, cell)
    if isinstance(cell, str):
        parts = [cell] if separator is None else cell.split(separator)
    return [name for part in parts if (name := part.strip())]


def _natural_order(name: str) -> tuple[bool, float, str]:
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    # A label may be called "nan", which has no place among numbers.
    return (True, 0.0, name) if math.isnan(number) else (False, number, name)
