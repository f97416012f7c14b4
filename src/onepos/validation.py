"""Checks that every layer shares: 0/1 indicators, finite numbers, one positive label per row, misspelled names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Number
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Indicator: TypeAlias = npt.NDArray[np.uint8]
Names: TypeAlias = Sequence[Any] | npt.NDArray[Any]

_NAMES_LISTED = 24
# Comparing takes the product of two lengths: of longer names the beginning, of many names the first ones.
_LONGEST_NAME, _MOST_COMPARED = 120, 5000


def suggest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean 'x'?" where a known name is close, otherwise "choose from" and the known names."""
    names = [str(each)[:_LONGEST_NAME] for each in known]
    close = get_close_matches(str(name)[:_LONGEST_NAME], names[:_MOST_COMPARED], n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"choose from {', '.join(names[:_NAMES_LISTED])}{', …' if len(names) > _NAMES_LISTED else ''}."


def check_known(names: Iterable[str], known: Iterable[str], complaint: str) -> None:
    """Raise a ValueError about the first of the names that is not known, for example "unknown metric 'map2'; …"."""
    choices = dict.fromkeys(known)
    for name in names:
        if name not in choices:
            raise ValueError(f"{complaint} '{name}'; {suggest(name, choices)}")


def name_some(names: Iterable[Any], most: int = 5) -> str:
    """Return the first names in quotation marks, and … where there are more."""
    listed = [repr(text if len(text := str(name)) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}…") for name in names]
    return ", ".join(listed[:most]) + (", …" if len(listed) > most else "")


_SHOWN = 80
"""Characters of a value that a message shows."""


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise a ValueError where a setting is none of a few words."""
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}; got {_show(value)}.")


def _show(value: Any) -> str:
    """A value as it is written in Python, or the beginning of it."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def check_whole(name: str, value: Any, least: int) -> None:
    """Raise a ValueError where a setting is not a whole number of at least `least`."""
    if not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {_show(value)}.")


def find_repeat(names: Iterable[str]) -> tuple[int, int] | None:
    """Return the positions of the first name that comes a second time, None where all differ."""
    first: dict[str, int] = {}
    for place, name in enumerate(names):
        if first.setdefault(name, place) != place:
            return first[name], place
    return None


def without_nan(value: Any) -> Any:
    """Return the same numbers, lists and dictionaries with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_dense(values: Any) -> npt.NDArray[Any]:
    """Return an array, a sparse matrix or a DataFrame as an array."""
    for convert in ("toarray", "to_numpy"):
        if hasattr(values, convert):
            return np.asarray(getattr(values, convert)())
    return np.asarray(values)


def check_indicator(values: Any, name: str, *, columns: Names | None = None, allow_empty: bool = True) -> Indicator:
    """Return a 0/1 matrix as an array of uint8; an array that already is one is returned itself, not copied.

    Args:
        values: An array, a sparse matrix or a DataFrame, (n, c).
        name: What the error message calls it.
        columns: Names of the columns, for the error message; by default those of a DataFrame.
        allow_empty: Whether it may have no rows or no columns.

    Raises:
        ValueError: When it is not a matrix of zeros and ones; the message names row, column and value.
    """
    columns = getattr(values, "columns", None) if columns is None else columns
    array = to_dense(values)
    if array.ndim != 2 or (0 in array.shape and not allow_empty):
        raise ValueError(
            f"{name} must be a 0/1 matrix (rows, labels){'' if allow_empty else ' with at least one of each'}; "
            f"its shape is {array.shape}. Give one row per example and one column per label."
        )
    if array.dtype == np.bool_:
        return array.view(np.uint8)
    if array.dtype == np.uint8 and (array.size == 0 or array.max() <= 1):
        return array
    is_number = array.dtype.kind in "buif"
    is_wrong = (array != 0) & (array != 1) if is_number else ~np.vectorize(_is_binary, otypes=[bool])(array)
    if np.any(is_wrong):
        row, column = np.argwhere(is_wrong)[0]
        raise not_binary(name, row, column, array[row, column], columns)
    return array.astype(np.uint8)


def check_truth(
    values: Any, name: str, *, columns: Names | None = None, allow_empty: bool = True
) -> tuple[Indicator, npt.NDArray[np.bool_] | None]:
    """Split a matrix of 1, 0 and, where unknown, NaN, None or <NA> into the indicator of its ones and what is known.

    The arguments are those of `check_indicator`. The second array is None where nothing is unknown.
    """
    columns = getattr(values, "columns", None) if columns is None else columns
    array = to_dense(values)
    missing = find_missing(array)
    if not missing.any():
        return check_indicator(array, name, columns=columns, allow_empty=allow_empty), None
    filled = np.where(missing, 0, array)
    return check_indicator(filled, name, columns=columns, allow_empty=allow_empty), ~missing


def find_missing(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where an array holds None, NaN, pandas.NA or pandas.NaT."""
    if values.dtype.kind == "f":
        missing: npt.NDArray[np.bool_] = np.isnan(values)
        return missing
    if values.dtype != object:
        return np.zeros(values.shape, bool)
    import pandas as pd

    return np.asarray(pd.isna(values))


def check_cases(names: Iterable[Any], where: str) -> None:
    """Raise a ValueError where two names differ in nothing but upper and lower case."""
    first: dict[str, str] = {}
    for name in names:
        if isinstance(name, str) and first.setdefault(name.casefold(), name) != name:
            raise ValueError(
                f"a label must be written in one way; {where} holds {str(first[name.casefold()])!r} and {str(name)!r}, "
                "which differ in upper and lower case only. Write one of them throughout, or rename one if they "
                "are two labels."
            )


def read_groups(groups: Any, n_rows: int) -> npt.NDArray[np.int64]:
    """One number per row, equal for rows of one group; a row without a group (None, NaN) is one by itself."""
    values = to_dense(groups)
    if values.ndim != 1 or len(values) != n_rows:
        raise ValueError(
            f"groups must hold one value per row of X, {n_rows} in all; its shape is {values.shape}. "
            "Pass the group of each row."
        )
    import pandas as pd

    codes = np.asarray(pd.factorize(values)[0], np.int64)
    alone = np.flatnonzero(codes < 0)
    codes[alone] = codes.max(initial=-1) + 1 + np.arange(len(alone))
    return codes


def not_binary(name: str, row: int, column: int, value: Any, columns: Names | None = None) -> ValueError:
    """The error about an entry of an indicator that is neither 0 nor 1."""
    label = "" if columns is None or len(columns) <= column else f" ({str(columns[column])!r})"
    found = repr(str(value)) if isinstance(value, str) else value
    return ValueError(
        f"{name} must hold only 0 and 1; row {row}, column {column}{label} holds {found}. "
        "Mark a positive label with 1 and every other label with 0."
    )


def _is_binary(value: Any) -> bool:
    return isinstance(value, Number | np.bool_) and value in (0, 1)


def one_hot(labels: npt.ArrayLike, n_labels: int) -> Indicator:
    """Return the indicator (n, n_labels) of one label number per row; a row with -1 holds none."""
    columns = np.asarray(labels, dtype=np.intp)
    indicator = np.zeros((len(columns), n_labels), dtype=np.uint8)
    rows = np.flatnonzero(columns >= 0)
    indicator[rows, columns[rows]] = 1
    return indicator


def check_one_positive(indicator: Indicator, name: str = "y", skip: npt.NDArray[np.bool_] | None = None) -> None:
    """Raise a ValueError where a row of an indicator, unless skipped, does not hold exactly one positive label."""
    counts = indicator.sum(axis=1, dtype=np.int64)
    counts = counts if skip is None else np.where(skip, 1, counts)
    draw = "Keep one per row with draw_single_positive() (on the command line --draw uniform)"
    for is_wrong, found, remedy in (
        (counts > 1, "several", draw),
        (counts == 0, "none", "Label these rows or remove them"),
    ):
        if is_wrong.any():
            raise ValueError(
                f"{name} must hold exactly one positive label per row; {int(is_wrong.sum())} of {len(counts)} rows "
                f"hold {found}, the first is row {int(is_wrong.argmax())} (counted from 0). {remedy}, or accept any "
                "number with positives='any' (--positives any)."
            )


def check_finite(values: Any, name: str, remedy: str = "Fill in or drop such values first.") -> None:
    """Raise a ValueError where a matrix (an array, a CSR matrix or a tensor) holds NaN or an infinite number."""
    is_sparse = hasattr(values, "indptr")
    stored = values.data if is_sparse else values
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(float(stored.sum())):  # one pass without a mask; a sum that overflows needs the mask
            return
    stored = stored.detach().cpu().double().numpy() if hasattr(stored, "detach") else stored
    wrong = np.flatnonzero(~np.isfinite(stored))
    if len(wrong) == 0:
        return
    if is_sparse:
        row, column = int(np.searchsorted(values.indptr, wrong[0], side="right")) - 1, int(values.indices[wrong[0]])
    else:
        row, column = (int(k) for k in np.unravel_index(wrong[0], stored.shape))
    value = stored.ravel()[wrong[0]]
    found = "NaN" if np.isnan(value) else str(float(value))
    raise ValueError(f"{name} must be finite; row {row}, column {column} holds {found}. {remedy}")
