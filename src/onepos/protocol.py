"""Which rows train, validate and test, and which one label of a row is observed: seeded splits and draws.

Nothing here touches NumPy's global generator: a seed enters through `random_state` and stays inside the call.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from onepos.datasets.npz import cole_rows
from onepos.validation import Indicator, check_indicator, not_binary, one_hot, read_groups

Indices = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]
Seed = int | np.random.Generator | None

_PARTS = ("train", "val", "test")


class Split(NamedTuple):
    """Row numbers of the three parts, each sorted; together they hold every row once."""

    train: Indices
    val: Indices
    test: Indices


def train_val_test_split(
    Y: Any, random_state: Seed = None, fractions: Sequence[float] = (0.8, 0.1, 0.1), *, groups: Any = None
) -> Split:
    """Divide the rows of Y at random into train, val and test.

    Each size is rounded in turn from what the parts before it left, so the sizes sum to n. With groups the sizes are as
    near to that as whole groups allow.

    Args:
        Y: One entry per row; only the number of rows matters.
        random_state: A seed, a Generator (which is advanced), or None for a split that can not be repeated.
        fractions: Shares of train, val and test; they sum to 1, and a part may be 0.
        groups: One value per row; rows with equal values are in one part. A row with None or NaN is a group by itself.

    Examples:
        >>> train_val_test_split(np.eye(10), random_state=0)
        Split(train=array([0, 1, 2, 3, 4, 5, 7, 9]), val=array([8]), test=array([6]))
    """
    n = Y.shape[0] if hasattr(Y, "shape") else len(Y)
    sizes, rng = _part_sizes(n, fractions), np.random.default_rng(random_state)
    if groups is None:
        part = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    else:
        part = _split_groups(read_groups(groups, n), sizes, rng)
    return Split(*(np.flatnonzero(part == k) for k in range(len(_PARTS))))


def _split_groups(groups: Indices, sizes: Indices, rng: np.random.Generator) -> Indices:
    """The part of each row: the largest groups first, each goes to the part that is short of most rows."""
    count = np.bincount(groups)
    order = rng.permutation(len(count))
    lacking, part_of = np.array(sizes, np.int64), np.empty(len(count), np.int64)
    for group in order[np.argsort(-count[order], kind="stable")].tolist():
        part = int(np.argmax(np.where(sizes > 0, lacking, -np.inf)))
        part_of[group] = part
        lacking[part] -= count[group]
    return part_of[groups]


def cole_split(n: int, seed: int = 1200, val_fraction: float = 0.2) -> Split:
    """Train/val split of the image benchmarks, exactly as drawn by Cole et al.'s code; `test` is empty.

    The legacy RandomState(seed) permutes the rows; the last round(val_fraction · n) of them validate.

    References:
        Cole, Mac Aodha, Lorieul, Perona, Morris, Jojic: Multi-label learning from single positive
        labels, CVPR 2021.

    Examples:
        >>> [len(part) for part in cole_split(5717)]  # VOC 2012
        [4574, 1143, 0]
    """
    return Split(*cole_rows(n, seed, val_fraction), np.empty(0, dtype=np.int64))


def draw_single_positive(Y: Any, random_state: Seed = None, how: str | ArrayLike = "uniform") -> Indicator:
    """Keep one positive label of each row, as if an annotator had named a single one.

    P(label j is kept | row i) = w_ij / Σ_k w_ik over the positives k of row i. Rows without positives stay zero.

    Args:
        Y: True labels, a 0/1 array or SciPy sparse matrix (n, c).
        random_state: A seed, a Generator (which is advanced), or None for a draw that can not be repeated.
        how: What w is: "uniform" (1), "frequency" (the number of rows of Y with label j), or an array of propensities
            >= 0 per label (c,) or per row and label (n, c). "cole" is the uniform draw of Cole et al.'s code, bit for
            bit; it needs an integer seed (they used 1200).

    Returns:
        A new array (n, c) of uint8 with at most one 1 per row.

    Examples:
        >>> Y = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 0]])
        >>> draw_single_positive(Y, random_state=0, how=[0, 1, 0])
        array([[0, 1, 0],
               [0, 1, 0],
               [0, 0, 0]], dtype=uint8)
    """
    positives = _positives(Y)
    if isinstance(how, str) and how == "cole":
        labels = _draw_cole(positives, random_state)
    elif isinstance(how, str) and how == "uniform":
        labels = _draw_uniform(positives, np.random.default_rng(random_state))
    else:
        labels = _draw_weighted(positives, _weights(positives, how), np.random.default_rng(random_state))
    observed = np.zeros(positives.shape, dtype=np.uint8)
    observed[_labelled(positives), labels] = 1
    return observed


def as_indicator(observed: Any, n_labels: int | None = None) -> Indicator:
    """Turn labels in either accepted form into a new 0/1 array (n, c).

    Args:
        observed: A 0/1 array (n, c), or a vector of n label indices where -1 stands for none.
        n_labels: The number of labels c; by default the largest index plus one.

    Examples:
        >>> as_indicator([2, 0, -1])
        array([[0, 0, 1],
               [1, 0, 0],
               [0, 0, 0]], dtype=uint8)
    """
    if np.ndim(observed) == 1:
        return _from_indices(np.asarray(observed), n_labels)
    indicator = check_indicator(observed, "observed").copy()
    if n_labels is not None and indicator.shape[1] != n_labels:
        raise ValueError(
            f"observed must have one column per label, {n_labels}; it has {indicator.shape[1]}. "
            "Give all labels a column, also those never observed."
        )
    return indicator


def _positives(Y: Any) -> sp.csr_array:
    """Y as a matrix of ones alone; the labels of row i are the ascending indices[indptr[i]:indptr[i + 1]]."""
    if not hasattr(Y, "tocsr"):
        return sp.csr_array(check_indicator(Y, "Y"))
    matrix = sp.csr_array(Y, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if np.any(matrix.data != 1):
        wrong = int(np.argmax(matrix.data != 1))
        row = int(np.searchsorted(matrix.indptr, wrong, side="right")) - 1
        raise not_binary("Y", row, matrix.indices[wrong], matrix.data[wrong])
    return matrix


def _labelled(positives: sp.csr_array) -> Indices:
    return np.flatnonzero(np.diff(positives.indptr))


def _part_sizes(n_samples: int, fractions: Sequence[float]) -> Indices:
    shares = np.asarray(fractions, dtype=np.float64)
    if shares.shape != (len(_PARTS),) or not np.all(shares >= 0) or abs(shares.sum() - 1) > 1e-9:
        raise ValueError(
            f"fractions must be three numbers >= 0 that sum to 1; {tuple(fractions)} was given. "
            "Use for instance (0.8, 0.1, 0.1)."
        )
    sizes = np.zeros(len(_PARTS), dtype=np.int64)
    for k, share in enumerate(shares):
        if share > 0:
            sizes[k] = np.floor((n_samples - sizes.sum()) * (share / shares[k:].sum()) + 0.5)
            if sizes[k] == 0:
                raise ValueError(
                    f"every part must get a row; {n_samples} rows leave {_PARTS[k]} (fraction {share:g}) "
                    "empty. Give more rows or set that fraction to 0."
                )
    return sizes


def _draw_uniform(positives: sp.csr_array, rng: np.random.Generator) -> Indices:
    """One label for each row that has any, like the other draws."""
    rows = _labelled(positives)
    chosen: Indices = positives.indptr[rows] + rng.integers(np.diff(positives.indptr)[rows])
    return positives.indices[chosen]


def _draw_weighted(positives: sp.csr_array, weights: Floats, rng: np.random.Generator) -> Indices:
    """Draw by an exponential race: the smallest of E_k / w_k is label k with probability w_k / Σ w."""
    rows = _labelled(positives)
    if len(rows) == 0:
        return rows
    starts = positives.indptr[rows]
    largest = np.maximum.reduceat(weights, starts)
    if np.any(largest == 0):
        raise ValueError(
            "every row with positives must have one of propensity > 0; "
            f"all positives of row {rows[np.argmin(largest)]} have 0. Raise one of them or drop the row."
        )
    owner = np.repeat(np.arange(len(rows)), np.diff(positives.indptr)[rows])
    speed = weights / largest[owner]
    time = np.full(len(weights), np.inf)
    with np.errstate(over="ignore"):
        np.divide(rng.standard_exponential(len(weights)), speed, out=time, where=speed > 0)
    first = np.flatnonzero(time == np.minimum.reduceat(time, starts)[owner])
    # Two labels may finish together (once in 2⁵³): the lower one wins.
    return positives.indices[first[np.unique(owner[first], return_index=True)[1]]]


def _weights(positives: sp.csr_array, how: str | ArrayLike) -> Floats:
    """Weight of every positive, in the order of `positives.indices`."""
    n_samples, n_labels = positives.shape
    if isinstance(how, str):
        if how != "frequency":
            raise ValueError(
                f"how must be 'uniform', 'frequency', 'cole' or an array of propensities; {how!r} was given. "
                "See docs/protocol.md."
            )
        return np.bincount(positives.indices, minlength=n_labels)[positives.indices].astype(np.float64)
    propensity = np.asarray(how, dtype=np.float64)
    if propensity.shape not in {(n_labels,), (n_samples, n_labels)}:
        raise ValueError(
            f"propensities must have shape ({n_labels},) or ({n_samples}, {n_labels}); "
            f"theirs is {propensity.shape}. Give one per label, or one per row and label."
        )
    wrong = ~(np.isfinite(propensity) & (propensity >= 0))
    if np.any(wrong):
        where = np.argwhere(wrong)[0]
        place = f"label {where[0]}" if propensity.ndim == 1 else f"row {where[0]}, column {where[1]}"
        raise ValueError(
            f"propensities must be finite and >= 0; {place} has {propensity[tuple(where)]}. "
            "Use 0 for labels that are never observed."
        )
    return np.broadcast_to(propensity, positives.shape)[positives.nonzero()]


def _draw_cole(positives: sp.csr_array, seed: Seed) -> Indices:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ValueError(
            f"how='cole' repeats published draws and needs its integer seed; {seed!r} was given. Use 1200."
        )
    legacy = np.random.RandomState(seed)
    labels = positives.indices.copy()
    # Only the random numbers that shuffling the unkept negatives consumes matter, not their order.
    negatives = np.empty(positives.shape[1], dtype=np.int64)
    for start, stop in pairwise(positives.indptr.tolist()):
        legacy.shuffle(labels[start:stop])
        legacy.shuffle(negatives[: len(negatives) - (stop - start)])
    return labels[positives.indptr[_labelled(positives)]]


def _from_indices(labels: NDArray[Any], n_labels: int | None) -> Indicator:
    if not np.issubdtype(labels.dtype, np.integer):
        raise TypeError(
            f"a vector of labels must hold integers, -1 for none; its type is {labels.dtype}. Number the labels from 0."
        )
    if n_labels is None:
        if len(labels) == 0 or labels.max() < 0:
            raise ValueError("the number of labels must be known; no row has a label. Pass n_labels as a number.")
        n_labels = int(labels.max()) + 1
    wrong = np.flatnonzero((labels < -1) | (labels >= n_labels))
    if len(wrong):
        raise ValueError(
            f"label indices must be -1 (none) or 0 to {n_labels - 1}; "
            f"row {wrong[0]} holds {labels[wrong[0]]}. Number the labels from 0, or raise n_labels."
        )
    return one_hot(labels, n_labels)
