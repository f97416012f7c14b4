"""What a user passes as y, or writes into a column of labels → `Labels`: known positives, negatives and classes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from onepos.long_labels import Answers, place_of, read_long
from onepos.reading import check_label_count
from onepos.validation import (
    Indicator,
    check_cases,
    check_indicator,
    check_one_positive,
    check_truth,
    find_missing,
    name_some,
    not_binary,
    suggest,
    to_dense,
)

# What holds the labels of a row, where it may have several.
_COLLECTIONS = list, tuple, set, frozenset, np.ndarray


@dataclass(frozen=True, eq=False)
class Labels:
    """What is known of the labels of n rows: positives, negatives, and the rest unknown.

    Everything that takes labels takes any form that `Labels.read` does, and an object of this class.

    Attributes:
        positive: Entries known to be present, a sparse matrix of bool, (n, c).
        negative: Entries known to be absent, the same.
        classes: The labels, in column order.
        items: The ids of the rows of a long table; None of other forms.
        at_random: Which rows chance alone picked for the review, (n,); only these show how frequent the labels are.
            None where no fully reviewed row was picked otherwise, such as for being doubtful.

    Example:
        >>> labels = Labels.read([[1.0, 0.0, np.nan], [np.nan, 1.0, np.nan]], 2)
        >>> int(labels.positive.sum()), int(labels.negative.sum())
        (2, 1)
    """

    positive: sp.csr_array
    negative: sp.csr_array
    classes: npt.NDArray[Any]
    items: npt.NDArray[Any] | None = None
    at_random: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        shape = self.positive.shape
        if self.negative.shape != shape or len(self.classes) != shape[1]:
            raise ValueError(
                "positive and negative must have one shape, with a column per class; they have "
                f"{shape} and {self.negative.shape}, and there are {len(self.classes)} classes. Pass equal shapes."
            )
        if self.at_random is not None and np.shape(self.at_random) != shape[:1]:
            raise ValueError(
                f"at_random must hold True or False for every row, {shape[0]} in all; its shape is "
                f"{np.shape(self.at_random)}. Leave it out where all reviewed rows were drawn at random."
            )
        both = self.positive.multiply(self.negative).tocoo()
        if both.nnz:
            row, column = int(both.row[0]), int(both.col[0])
            raise ValueError(
                f"an entry must be positive or negative, not both; row {row} has both for the label "
                f"{str(self.classes[column])!r}. Keep one of them."
            )

    @classmethod
    def read(
        cls,
        y: Any,
        n_rows: int,
        *,
        positives: str = "any",
        classes: npt.NDArray[Any] | None = None,
        unknown: Literal["raise", "warn", "skip"] = "raise",
    ) -> Labels:
        """Read any form of labels.

        Args:
            y: One label per row; a list, set or tuple of labels per row; an indicator of 0 (unknown) and 1 as array,
                list, sparse matrix or data frame, whose columns are the classes; the same with NaN, None or <NA>
                somewhere, where 0 is a known negative and the missing entries are unknown; or `Labels`.
            n_rows: How many rows X has.
            positives: "single" demands exactly one positive in each row that is not reviewed, see `is_reviewed`; "any"
                also takes none (in a vector: None or NaN) or several.
            classes: The labels of a model, in the order of its columns; by default those of y.
            unknown: With `classes`: what a label does that is none of them. "raise" an error, "warn" and leave it out,
                or "skip", the same without the warning. In the last two a row of a vector may also hold None or NaN,
                and at least one label must be known.
        """
        found = y if isinstance(y, Labels) else _read(y, n_rows, positives, classes, unknown)
        if found.positive.shape[0] != n_rows:
            raise _other_length(n_rows, found.positive.shape[0])
        if classes is not None:
            found = found._with_classes(classes)
        if positives == "single":
            check_one_positive(found.observed, skip=found.is_reviewed)
        return found

    @classmethod
    def from_long(
        cls,
        table: Any,
        items: Any = None,
        *,
        classes: npt.NDArray[Any] | None = None,
        answers: Answers | None = None,
        place: Callable[[int], str] = place_of,
    ) -> Labels:
        """Read a table with a row per answer: columns item, label, value and, where there are, time and reason.

        A value is yes (1, true, yes), no (0, false, no) or unknown (empty, unknown, unsure, ?); without the column all
        are yes. Where an item has several answers about a label, the latest `time` counts; without times they must
        agree, but for unknown ones. Items whose `reason` is doubtful were not picked at random, see `at_random`.

        Args:
            table: A data frame, or what becomes one.
            items: The ids of the rows, in their order; rows without an answer are unknown. By default the items of the
                table, in the order in which they appear.
            classes: The labels of a model, in the order of its columns; by default those of the table.
            answers: Further words for yes, no and unknown.
            place: How messages name the line at a position of the table, such as its line in a file.

        Example:
            >>> answers = {"item": ["a", "a", "b"], "label": ["cat", "dog", "dog"], "value": ["yes", "no", "yes"]}
            >>> Labels.from_long(answers).to_array().tolist()
            [[1.0, 0.0], [nan, 1.0]]
        """
        found = read_long(table, items, answers or Answers(), place)
        shape = len(found.items), len(found.classes)
        parts = [_sparse(found.row[found.value == k], found.column[found.value == k], shape) for k in (1, 0)]
        labels = cls(parts[0], parts[1], found.classes, found.items, found.at_random)
        return labels if classes is None else labels._with_classes(np.asarray(classes), subset=True)

    @classmethod
    def from_arrays(
        cls, positive: Any, negative: Any, classes: Sequence[Any] | npt.NDArray[Any], at_random: Any = None
    ) -> Labels:
        """Labels of two indicators (n, c), of known positives and of known negatives; None for no known negative.

        Args:
            positive: 1 where a label is known to be there, (n, c).
            negative: 1 where it is known to be absent, (n, c), or None.
            classes: Names of the labels, (c,).
            at_random: Which rows chance alone picked for the review, (n,); None for all.
        """
        marks = check_indicator(positive, "positive").view(np.bool_)
        nos = np.zeros_like(marks) if negative is None else check_indicator(negative, "negative").view(np.bool_)
        return cls(sp.csr_array(marks), sp.csr_array(nos), np.asarray(classes), at_random=at_random)

    @property
    def observed(self) -> Indicator:
        """The positives as an array, (n, c) 0/1."""
        return np.asarray(self.positive.toarray()).view(np.uint8)

    @property
    def known_negative(self) -> Indicator | None:
        """The known negatives as an array, (n, c) 0/1; None where there are none."""
        return np.asarray(self.negative.toarray()).view(np.uint8) if self.negative.nnz else None

    @property
    def is_reviewed(self) -> npt.NDArray[np.bool_]:
        """Which rows have a known negative or, where some row has one and labels are several, all labels, (n,)."""
        with_negative = np.diff(self.negative.indptr) > 0
        if len(self.classes) < 2 or not with_negative.any():
            return with_negative
        return np.asarray(with_negative | (np.diff(self.positive.indptr) == len(self.classes)))

    @property
    def is_complete(self) -> npt.NDArray[np.bool_]:
        """Which rows are fully reviewed, (n,); these are the rows of `is_reviewed` of which every label is known."""
        n_known = np.diff(self.positive.indptr) + np.diff(self.negative.indptr)
        return np.asarray(self.is_reviewed & (n_known == len(self.classes)))

    @property
    def is_sample(self) -> npt.NDArray[np.bool_]:
        """Which rows are fully reviewed and were picked by chance alone, (n,)."""
        return self.is_complete if self.at_random is None else self.is_complete & self.at_random

    def take(self, rows: Any) -> Labels:
        """The labels of some rows, by their numbers or a mask, in this order.

        Args:
            rows: Numbers of rows, or a mask (n,).
        """
        items, at_random = (None if each is None else each[rows] for each in (self.items, self.at_random))
        positive, negative = sp.csr_array(self.positive[rows]), sp.csr_array(self.negative[rows])
        return Labels(positive, negative, self.classes, items, at_random)

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.positive.shape[0])

    def to_array(self) -> npt.NDArray[Any]:
        """All that is known, (n, c): 1, 0 and NaN for unknown. Without any known negative, an indicator of 0 and 1."""
        if not self.negative.nnz:
            return self.observed
        values = np.full(self.positive.shape, np.nan)
        values[self.positive.nonzero()] = 1
        values[self.negative.nonzero()] = 0
        return values

    def _with_classes(self, classes: npt.NDArray[Any], *, subset: bool = False) -> Labels:
        """The columns in the order of the classes of a model; columns without names are in that order already."""
        own, wanted = self.classes.tolist(), classes.tolist()
        known = set(wanted)
        other = next((name for name in own if name not in known), None)
        by_name = subset or set(own) == known
        if (not by_name and not _is_count(self.classes) and classes.dtype.kind not in "iu") or (
            subset and other is not None
        ):
            raise ValueError(
                "the columns of Y must be the labels the model was fitted with; "
                + (f"{other!r} is none of them." if other is not None else f"{len(wanted) - len(own)} are missing.")
                + " Rename the columns, or pass an array in the order of classes_."
            )
        if not by_name and len(own) != len(wanted):
            raise ValueError(
                f"Y must have one column per label, {len(wanted)} in all; it has {len(own)}. "
                "Use the labels the model was fitted with."
            )
        parts = [self.positive, self.negative]
        if by_name and own != wanted:
            place = {label: j for j, label in enumerate(wanted)}
            column = np.array([place[label] for label in own], np.intp)
            shape = len(self), len(wanted)
            parts = [_sparse(row, column[label], shape) for row, label in (part.nonzero() for part in parts)]
        return Labels(parts[0], parts[1], classes, self.items, self.at_random)


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
    names = sorted({name for row in rows for name in row}, key=natural_order)
    if not names:
        raise ValueError("there must be at least one label; every label cell is empty. Check the label column.")
    check_cases(names, "the label column")
    column = {name: j for j, name in enumerate(names)}
    check_label_count(len(rows), len(names))
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


def _read(y: Any, n_rows: int, positives: str, classes: npt.NDArray[Any] | None, unknown: str) -> Labels:
    """Labels of any form but their own."""
    tags = _as_tags(y)
    if tags is not None:
        if len(tags) != n_rows:
            raise _other_length(n_rows, len(tags))
        return _read_tags(tags, classes, unknown)
    if sp.issparse(y):
        return _read_sparse(y, "y" if classes is None else "Y")
    values, names = _as_array(y, n_rows)
    if values.ndim == 1:
        return _read_vector(values, positives, classes, unknown)
    indicator, known = check_truth(
        values, "y" if classes is None else "Y", columns=names, allow_empty=classes is not None
    )
    positive = sp.csr_array(indicator.view(np.bool_))
    no = np.zeros(indicator.shape, bool) if known is None else known & (indicator == 0)
    return Labels(positive, sp.csr_array(no), np.arange(indicator.shape[1]) if names is None else names)


def _sparse(row: npt.NDArray[Any], column: npt.NDArray[Any], shape: tuple[int, int]) -> sp.csr_array:
    """A matrix of bool with these entries, each of which may be named more than once."""
    matrix = sp.coo_array((np.ones(len(row), bool), (row, column)), shape).tocsr()
    return sp.csr_array(matrix)


def _other_length(n_rows: int, found: int) -> ValueError:
    return ValueError(
        f"X and y must have the same number of rows; X has {n_rows}, y has {found} (inconsistent). "
        "Pass one row of y per row of X."
    )


def _is_count(classes: npt.NDArray[Any]) -> bool:
    """Whether these are the column numbers that stand for names where there are none."""
    return classes.dtype.kind in "iu" and np.array_equal(classes, np.arange(len(classes)))


def _as_tags(y: Any) -> list[Any] | None:
    """y as a list with the labels of each row; None where it is of another form."""
    is_series = hasattr(y, "to_numpy") and hasattr(y, "dtype")
    is_of_numbers = isinstance(y, np.ndarray) and y.dtype != object
    if hasattr(y, "columns") or is_of_numbers or not (is_series or isinstance(y, list | tuple | np.ndarray)):
        return None
    rows = list(y)
    holds_lists = any(isinstance(row, _COLLECTIONS) for row in rows)
    try:
        values = np.asarray(y)
    except ValueError:  # rows of different length
        _refuse_uneven_indicator(rows)
        return rows if holds_lists else None
    if values.ndim == 1:
        return rows if values.dtype == object and holds_lists else None
    # Rows of equal length: names are labels; numbers are an indicator, and so are "0" and "1", which it refuses.
    is_of_names = values.ndim == 2 and values.dtype.kind in "US" and not np.isin(values, ["0", "1", ""]).all()
    return rows if is_of_names else None


def _refuse_uneven_indicator(rows: list[Any]) -> None:
    """Raise a ValueError where rows of different length hold nothing but 0 and 1."""
    cells = [cell for row in rows if isinstance(row, list | tuple | np.ndarray) for cell in row]
    if all(isinstance(cell, int | float | np.number | np.bool_) and cell in (0, 1) for cell in cells):
        raise ValueError(
            "y must be one label per row or rows of equal length with a 0 or 1 per label; its rows differ in "
            "length. Give every row as many entries; labels called 0 and 1 can be given as sets."
        )


def _read_tags(rows: list[Any], classes: npt.NDArray[Any] | None, unknown: str) -> Labels:
    lists = [row if isinstance(row, _COLLECTIONS) else [row] for row in rows]
    tags = np.empty(sum(map(len, lists)), object)
    tags[:] = [tag for row in lists for tag in row]
    row_of = np.repeat(np.arange(len(lists)), [len(row) for row in lists])
    is_missing = find_missing(tags)
    tags, row_of = tags[~is_missing], row_of[~is_missing]
    if len(tags) == 0 and classes is None:
        raise ValueError("y must hold at least one label; every row is without. Label some rows.")
    if classes is not None:
        column = _encode(tags, classes, unknown, row_of)
    else:
        classes, column = _find_classes(tags)
    kept = column >= 0
    shape = len(rows), len(classes)
    return Labels(_sparse(row_of[kept], column[kept], shape), sp.csr_array(shape, dtype=bool), classes)


def _read_sparse(y: Any, name: str) -> Labels:
    """A sparse indicator; entries that are not stored are 0."""
    matrix = sp.csr_array(y)
    if 0 in matrix.shape and name == "y":
        check_indicator(np.empty(matrix.shape), name, allow_empty=False)
    wrong = np.flatnonzero(~np.isin(matrix.data, [0, 1]))
    if len(wrong):
        row = int(np.searchsorted(matrix.indptr, wrong[0], side="right")) - 1
        raise not_binary(name, row, int(matrix.indices[wrong[0]]), matrix.data[wrong[0]])
    positive = sp.csr_array(matrix.astype(bool))
    positive.eliminate_zeros()
    return Labels(positive, sp.csr_array(positive.shape, dtype=bool), np.arange(matrix.shape[1]))


def _as_array(y: Any, n_rows: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """y as an array of one or two dimensions with a row per row of X, and the column names of a DataFrame."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    is_frame = hasattr(y, "columns")
    if is_frame and {"item", "label"} <= set(y.columns):
        raise ValueError(
            "y must have a row per row of X; it is a long table with a row per answer. Pass Labels.from_long(y, items)."
        )
    values = to_dense(y)
    if values.ndim == 2 and values.shape[1] == 1:
        if not is_frame:
            from sklearn.exceptions import DataConversionWarning

            warning = "A column-vector y was passed when a 1d array was expected; it is read as one label per row."
            warnings.warn(warning, DataConversionWarning, stacklevel=5)
        known = values[~find_missing(values)]
        if not is_frame or not np.isin(known.astype(str), ["0", "1", "0.0", "1.0", "True", "False"]).all():
            values, is_frame = values.ravel(), False
    if values.ndim not in (1, 2):
        raise ValueError(f"y must be a vector of labels or an indicator matrix; got {values.ndim} dimensions.")
    if len(values) != n_rows:
        raise _other_length(n_rows, len(values))
    return values, np.asarray(y.columns) if is_frame else None


def _read_vector(values: npt.NDArray[Any], positives: str, classes: npt.NDArray[Any] | None, unknown: str) -> Labels:
    if classes is not None:
        column = _encode(values, classes, unknown, np.arange(len(values)))
    else:
        is_missing = find_missing(values)
        if positives == "single" and is_missing.any():
            raise ValueError(
                f"y must hold one label per row; row {int(np.argmax(is_missing))} holds none (NaN). "
                "Drop the row, or pass positives='any' (--positives any) to train with unlabelled rows."
            )
        if is_missing.all():
            raise ValueError("y must hold at least one label; every row is without. Label some rows.")
        column = np.full(len(values), -1)
        classes, column[~is_missing] = _find_classes(values[~is_missing])
    row = np.flatnonzero(column >= 0)
    shape = len(values), len(classes)
    return Labels(_sparse(row, column[row], shape), sp.csr_array(shape, dtype=bool), classes)


def _find_classes(labels: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """The different labels in order, and the place of each of the given ones among them."""
    from sklearn.utils.multiclass import check_classification_targets

    labels = _of_one_kind(labels)
    check_classification_targets(labels)
    classes, place = np.unique(labels, return_inverse=True)
    check_cases(classes.tolist(), "y")
    return classes, place


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
            f"a label must be an int or a string; y holds a {type(labels[0]).__name__}. Pass names or numbers."
        )
    return labels.astype(str) if isinstance(labels[0], str) else np.array(labels.tolist())


def _encode(
    values: npt.NDArray[Any], classes: npt.NDArray[Any], unknown: str, row_of: npt.NDArray[np.intp]
) -> npt.NDArray[np.intp]:
    """The column of each label, -1 where it is none of the classes; `row_of` are the rows they belong to."""
    column = {label: j for j, label in enumerate(classes.tolist())}
    labels = values.tolist()
    found = np.array([column.get(label, -1) for label in labels], np.intp)
    lost = np.flatnonzero(found < 0)
    if unknown != "raise" and len(lost):
        lost = lost[~find_missing(values[lost])]
    if len(lost) and (unknown == "raise" or found.max() < 0):
        at = lost[0]
        raise ValueError(
            f"every label must be one the model was fitted with; row {row_of[at]} holds {labels[at]!r}: "
            f"{suggest(labels[at], classes)}"
        )
    if len(lost) and unknown == "warn":
        warnings.warn(
            f"{len(lost)} of {len(labels)} rows hold a label that the model was not fitted with "
            f"({name_some(dict.fromkeys(labels[at] for at in lost))}); they count as rows without a label.",
            UserWarning,
            stacklevel=6,
        )
    return found


def _split_cell(cell: Any, separator: str | None) -> list[str]:
    parts: Iterable[str] = map(str, cell)
    if isinstance(cell, str):
        parts = [cell] if separator is None else cell.split(separator)
    return [name for part in parts if (name := part.strip())]


def natural_order(name: str) -> tuple[bool, float, str]:
    """A key that sorts numbers in their order and before text."""
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    # A label may be called "nan", which has no place among numbers.
    return (True, 0.0, name) if math.isnan(number) else (False, number, name)
