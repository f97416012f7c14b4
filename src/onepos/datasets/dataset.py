"""The frozen `Dataset`: one matrix of features, one of labels, and their names.

Once a `Dataset` exists, its arrays are checked: shapes agree, labels are 0 or 1, features are finite. Later layers rely
on that and do not check again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from onepos.labels import Labels
from onepos.validation import Indicator, check_finite, check_indicator, find_repeat

Features: TypeAlias = npt.NDArray[np.float32 | np.float64] | sp.csr_array
Rows: TypeAlias = npt.NDArray[np.intp]

# Rounding to float32 may change a value by this share of its column's standard deviation.
BLUR = 1e-6
COLUMNS_AT_ONCE = 64


class LabelledRows:
    """What data sets of features and of images share: labels, their names, splits and a draw, checked and read-only.

    Where `known_negative` is None, nothing tells whether a 0 of Y is a no or unknown: for training it is unknown, for
    scores a no. With it, an entry that is in neither is unknown for both.
    """

    name: str
    Y: Indicator
    label_names: tuple[str, ...]
    splits: Mapping[str, Rows] | None
    source: str
    observed: Indicator | None
    known_negative: Indicator | None
    groups: Rows | None
    at_random: npt.NDArray[np.bool_] | None

    def _check_labels(self) -> None:
        names = tuple(map(str, self.label_names))
        Y = check_indicator(self.Y, "Y", columns=names, allow_empty=False)
        _check_names(names, Y.shape[1])
        self.__dict__.update(label_names=names, Y=_freeze(np.ascontiguousarray(Y)))
        if self.observed is not None:
            self.__dict__["observed"] = self._check_observed()
        if self.known_negative is not None:
            self.__dict__["known_negative"] = self._check_negative()
        if self.at_random is not None:
            Labels.from_arrays(self.Y, None, self.label_names, self.at_random)  # refuses another shape
        if self.groups is not None and np.shape(self.groups) != (len(Y),):
            raise ValueError(
                f"groups must hold a number per row, {len(Y)} in all; its shape is {np.shape(self.groups)}. Give each "
                "row its group."
            )
        if self.splits is not None:
            self.__dict__["splits"] = _check_splits(self.splits, self.n_samples)

    def _check_observed(self) -> Indicator:
        observed = check_indicator(self.observed, "observed", columns=self.label_names)
        if observed.shape != self.Y.shape:
            raise ValueError(
                f"observed must have the shape of Y; it is {observed.shape}, Y is {self.Y.shape}. "
                "Check that both come from the same file."
            )
        wrong = np.argwhere(observed > self.Y)
        if len(wrong):
            row, column = wrong[0]
            raise ValueError(
                f"observed must mark only true positives; row {row} marks '{self.label_names[column]}' "
                "which Y does not hold. Draw again from this Y."
            )
        return _freeze(np.ascontiguousarray(observed))

    def _check_negative(self) -> Indicator:
        negative = check_indicator(self.known_negative, "known_negative", columns=self.label_names)
        Labels.from_arrays(self.Y, negative, self.label_names)  # refuses another shape, and an entry that is both
        return _freeze(np.ascontiguousarray(negative))

    @property
    def known(self) -> Labels:
        """What is known of the labels; without known negatives only the positives."""
        return Labels.from_arrays(self.Y, self.known_negative, self.label_names, self.at_random)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.Y.shape[0])

    @property
    def n_labels(self) -> int:
        """Number of columns of Y."""
        return int(self.Y.shape[1])

    @property
    def cardinality(self) -> float:
        """Mean number of positive labels per row."""
        return float(self.Y.sum(dtype=np.int64) / self.n_samples)

    @property
    def density(self) -> float:
        """Mean share of positive labels per row."""
        return self.cardinality / self.n_labels

    @property
    def prior(self) -> npt.NDArray[np.float64]:
        """Share of positive rows per label, (c,)."""
        return np.asarray(self.Y.mean(axis=0, dtype=np.float64))

    def take(self, rows: npt.ArrayLike) -> Self:
        """Keep the given rows, in the given order.

        Splits follow their rows to the new positions; they are dropped when a row is taken twice.

        Args:
            rows: Row numbers, or a boolean mask of length n.
        """
        chosen = _as_rows(rows, self.n_samples, "rows")
        return replace(  # type: ignore[type-var]  # every subclass is a dataclass
            self,
            Y=self.Y[chosen],
            splits=_move_splits(self.splits, chosen, self.n_samples),
            **{
                name: None if values is None else values[chosen]
                for name in ("observed", "known_negative", "groups", "at_random")
                for values in (getattr(self, name),)
            },
            **self._take_inputs(chosen),
        )

    def _take_inputs(self, rows: Rows) -> dict[str, Any]:
        """The fields of a subclass that have one entry per row, for the chosen rows."""
        raise NotImplementedError

    def without_unlabelled(self) -> Self:
        """Drop the rows that have no positive label: nothing can be observed of them."""
        is_labelled = self.Y.any(axis=1)
        return self if is_labelled.all() else self.take(is_labelled)

    def describe(self) -> dict[str, Any]:
        """Return the figures that tell one variant of a data set from another."""
        per_row, prior = self.Y.sum(axis=1, dtype=np.int64), self.prior
        return {
            "name": self.name,
            "n_samples": self.n_samples,
            "n_labels": self.n_labels,
            "cardinality": self.cardinality,
            "density": self.density,
            "prior_min": float(prior.min()),
            "prior_median": float(np.median(prior)),
            "prior_max": float(prior.max()),
            "rows_without_label": int((per_row == 0).sum()),
            "rows_with_one_label": int((per_row == 1).sum()),
            "label_sets": len(np.unique(np.packbits(self.Y, axis=1), axis=0)),
            "labels_without_positive": int((prior == 0).sum()),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(LabelledRows):
    """Features and full labels of one data set, checked and read-only.

    Args:
        name: Short name, used for file names and tables.
        X: Features, (n, d), dense or sparse; kept as float32, or float64 where float32 would blur a column (dense
            only).
        Y: Labels, (n, c), 0 or 1; kept as uint8.
        label_names: One name per column of Y, no two alike.
        feature_names: One name per column of X, where the source has them.
        splits: Row numbers per part ("train", "val", "test") as the source ships them; no row in two parts.
        source: Where the data came from.
        image_shape: Shape of one row when the features are the pixels of an image.
        observed: The single-positive draw shipped with the data, (n, c), a subset of Y.
        known_negative: Entries known to be absent, (n, c); None where that is not recorded.
        groups: Equal numbers for rows that no split may separate, (n,).
        at_random: As in `Labels`.

    Example:
        >>> import numpy as np
        >>> from onepos import Dataset
        >>> photos = Dataset("photos", np.ones((3, 4)), np.array([[1, 0], [1, 1], [0, 1]]), ("cat", "dog"))
        >>> photos
        Dataset('photos', 3 × 4 features, 2 labels)
        >>> photos.take([0, 2]).Y.tolist()
        [[1, 0], [0, 1]]

    Raises:
        ValueError: When one of the statements above does not hold; the message names the place.
    """

    name: str
    X: Features
    Y: Indicator
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None
    splits: Mapping[str, Rows] | None = None
    source: str = ""
    image_shape: tuple[int, ...] | None = None
    observed: Indicator | None = None
    known_negative: Indicator | None = None
    groups: Rows | None = None
    at_random: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        """Check every field and freeze the arrays."""
        self.__dict__["X"] = check_features(self.X)
        self._check_labels()
        n, d = self.X.shape
        if n != self.n_samples:
            raise ValueError(
                f"X and Y must have the same number of rows; X has {n}, Y has {self.n_samples}. "
                "Check that both come from the same file."
            )
        if self.feature_names is not None:
            self.__dict__["feature_names"] = tuple(map(str, self.feature_names))
            if len(self.feature_names) != d:
                raise ValueError(
                    f"feature_names must name each of the {d} columns of X; {len(self.feature_names)} names "
                    "given. Give one per column, or None."
                )
        if self.image_shape is not None and int(np.prod(self.image_shape)) != d:
            raise ValueError(
                f"image_shape must hold as many pixels as X has columns; {self.image_shape} holds "
                f"{int(np.prod(self.image_shape))}, X has {d}. Correct one of them."
            )

    def __repr__(self) -> str:
        kind = "sparse " if self.is_sparse else ""
        return f"Dataset('{self.name}', {self.n_samples} × {self.n_features} {kind}features, {self.n_labels} labels)"

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return int(self.X.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Whether X is a sparse matrix."""
        return sp.issparse(self.X)

    def describe(self) -> dict[str, Any]:
        """Return the figures that tell one variant of a data set from another."""
        first = {"name": self.name, "n_samples": self.n_samples, "n_features": self.n_features}
        return first | super().describe() | {"sparse": self.is_sparse}

    def _take_inputs(self, rows: Rows) -> dict[str, Any]:
        return {"X": self.X[rows]}


def check_features(X: Any) -> Features:
    """Return X as a read-only array or CSR matrix, or say what is wrong with it.

    It is kept as float32, or float64 where float32 would blur a column: where rounding would change some value by
    more than 1e-6 of its column's standard deviation, as with time stamps. Sparse features are always float32.
    """
    checked = _as_csr(X) if sp.issparse(X) else _as_matrix(X)
    if checked.ndim != 2 or 0 in checked.shape:
        raise ValueError(
            f"X must be a matrix with at least one row and one column; its shape is {checked.shape}. "
            "Check the file or reshape the array."
        )
    check_finite(checked, "X")
    return checked if isinstance(checked, sp.csr_array) else _freeze(_narrow(checked))


def check_indices(matrix: Any) -> None:
    """Refuse a sparse matrix whose indices point outside; SciPy would follow them and crash."""
    if not hasattr(matrix, "check_format"):
        return
    matrix.check_format(full_check=True)
    # SciPy leaves this out for a matrix that claims to hold nothing.
    if (np.diff(matrix.indptr) < 0).any():
        raise ValueError("the row pointers of a sparse matrix must not decrease; they do. Build it again.")


def stack_rows(blocks: Sequence[Any]) -> Any:
    """Put matrices below each other; the result is sparse when the first one is."""
    return sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.concatenate(blocks)


def _as_matrix(X: Any) -> npt.NDArray[np.float32 | np.float64]:
    """Return X as float32 where its type fits into that, else as float64."""
    try:
        with np.errstate(over="ignore"):
            given = np.asarray(X)
            if given.dtype.kind in "cMm":
                raise TypeError
            dtype = np.float32 if np.can_cast(given.dtype, np.float32) else np.float64
            return given.astype(dtype, order="C", copy=False)
    except (TypeError, ValueError) as error:
        kind = getattr(X, "dtype", None)
        found = "some entries are none" if getattr(kind, "kind", "O") == "O" else f"its type is {kind}"
        raise ValueError(f"X must hold numbers; {found}. Encode or drop the other columns.") from error


def _narrow(matrix: npt.NDArray[np.float32 | np.float64]) -> npt.NDArray[np.float32 | np.float64]:
    """Return a finite matrix as float32, or as it is where that would blur a column."""
    if matrix.dtype == np.float32:
        return matrix
    with np.errstate(over="ignore"):
        narrow = matrix.astype(np.float32)
    if not np.isfinite(narrow).all():
        return matrix
    for start in range(0, matrix.shape[1], COLUMNS_AT_ONCE):
        block = matrix[:, start : start + COLUMNS_AT_ONCE]
        change = np.abs(block - narrow[:, start : start + COLUMNS_AT_ONCE]).max(axis=0)
        # In a column of one value any change counts, or a row alone would be read otherwise than among others.
        if (change > BLUR * block.std(axis=0)).any():
            return matrix
    return narrow


def _as_csr(X: Any) -> sp.csr_array:
    check_indices(X)
    # A number beyond float32 turns into inf here and is reported with its place by the caller.
    with np.errstate(over="ignore"):
        matrix = sp.csr_array(X, dtype=np.float32)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    parts = tuple(map(_freeze, (matrix.data, matrix.indices, matrix.indptr)))
    frozen = sp.csr_array(parts, shape=matrix.shape, copy=False)
    # Without these flags SciPy would try to sort arrays that it may not write.
    frozen.has_sorted_indices = frozen.has_canonical_format = True
    return frozen


def _freeze(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view; the caller's own array stays writable."""
    view = array.view()
    view.flags.writeable = False
    return view


def _check_names(names: tuple[str, ...], n_labels: int) -> None:
    if len(names) != n_labels:
        raise ValueError(
            f"label_names must name each of the {n_labels} columns of Y; {len(names)} names given. "
            "Give one name per column."
        )
    if repeat := find_repeat(names):
        first, second = repeat
        raise ValueError(
            f"label_names must differ; columns {first} and {second} are both '{names[first]}'. Rename one."
        )


def _check_splits(splits: Mapping[str, Any], n_samples: int) -> dict[str, Rows]:
    checked: dict[str, Rows] = {}
    owner: dict[int, str] = {}
    for part, rows in splits.items():
        checked[part] = _as_rows(rows, n_samples, f"split '{part}'")
        for row in checked[part].tolist():
            if row in owner:
                found = "listed twice" if owner[row] == part else f"also in '{owner[row]}'"
                raise ValueError(
                    f"a row must be in one split only, once; row {row} of '{part}' is {found}. "
                    "Remove it from one, or the scores of that part are too good to be true."
                )
            owner[row] = part
    return checked


def _as_rows(rows: npt.ArrayLike, n_samples: int, what: str) -> Rows:
    """Row numbers, from numbers or a mask."""
    index = np.asarray(rows)
    if index.dtype == bool and index.shape == (n_samples,):
        index = np.flatnonzero(index)
    if index.ndim != 1 or (index.dtype.kind not in "ui" and index.size):
        raise ValueError(
            f"{what} must be a vector of row numbers or a mask of {n_samples} booleans; "
            f"got shape {index.shape} of {index.dtype}. Pass whole numbers."
        )
    outside = np.flatnonzero((index < 0) | (index >= n_samples))
    if len(outside):
        raise ValueError(
            f"{what} must lie between 0 and {n_samples - 1}; entry {outside[0]} is {index[outside[0]]}. "
            "Count rows from 0."
        )
    return _freeze(index.astype(np.intp))


def _move_splits(splits: Mapping[str, Rows] | None, chosen: Rows, n_samples: int) -> dict[str, Rows] | None:
    """The parts by the new numbers of the chosen rows."""
    if splits is None or len(np.unique(chosen)) < len(chosen):
        return None
    place = np.full(n_samples, -1, dtype=np.intp)
    place[chosen] = np.arange(len(chosen))
    moved = {part: place[rows] for part, rows in splits.items()}
    return {part: rows[rows >= 0] for part, rows in moved.items()}
