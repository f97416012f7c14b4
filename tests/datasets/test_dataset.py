import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import scipy.sparse as sp

from onepos.datasets import Dataset


def test_counts_and_shares(small):
    assert (small.n_samples, small.n_features, small.n_labels) == (6, 3, 2)
    assert small.cardinality == pytest.approx(6 / 6)
    assert small.density == pytest.approx(0.5)
    np.testing.assert_allclose(small.prior, [3 / 6, 3 / 6])


def test_repr_is_one_line(small, small_sparse):
    assert repr(small) == "Dataset('small', 6 × 3 features, 2 labels)"
    assert repr(small_sparse) == "Dataset('thin', 6 × 3 sparse features, 2 labels)"


def test_describe_counts_by_hand(small):
    figures = small.describe()
    assert figures["rows_without_label"] == 1
    assert figures["rows_with_one_label"] == 4
    assert figures["label_sets"] == 4
    assert figures["labels_without_positive"] == 0
    assert figures["sparse"] is False
    assert replace(small, Y=small.Y * [1, 0]).describe()["labels_without_positive"] == 1


def test_label_sets_are_told_apart_beyond_eight_labels():
    Y = np.zeros((3, 20), dtype=np.uint8)
    Y[0, 3] = Y[1, 19] = Y[2, 19] = 1
    assert Dataset("wide", np.ones((3, 1)), Y, tuple(map(str, range(20)))).describe()["label_sets"] == 2


def test_is_frozen_through_and_through(small, small_sparse):
    with pytest.raises(FrozenInstanceError):
        small.name = "other"
    for array in (small.X, small.Y, small.splits["train"], small_sparse.X.data, small_sparse.X.indices):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_leaves_the_given_arrays_writable_and_unchanged():
    X, Y = np.ones((2, 2), dtype=np.float32), np.eye(2, dtype=np.uint8)
    sparse = sp.csr_array(X)
    Dataset("a", X, Y, ("p", "q"))
    Dataset("b", sparse, Y, ("p", "q"))
    X[0, 0] = Y[0, 1] = sparse.data[0] = 0


def test_sparse_stays_sparse_and_is_made_canonical():
    messy = sp.csr_array((np.array([1.0, 2, 3]), np.array([1, 0, 1]), np.array([0, 3])), shape=(1, 2))
    data = Dataset("messy", messy, [[1]], ("p",))
    assert isinstance(data.X, sp.csr_array)
    assert data.X.dtype == np.float32
    np.testing.assert_array_equal(data.X.toarray(), [[2, 4]])
    assert data.X.has_canonical_format
    assert messy.nnz == 3


STAMPS = 1.7e9 + np.arange(60.0)


@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        (STAMPS, np.float64),
        (STAMPS.astype(np.int64), np.float64),
        (STAMPS.astype(object), np.float64),
        (STAMPS.astype(np.float32), np.float32),
        (np.linspace(-3, 3, 60), np.float32),
        (100 + np.linspace(-3, 3, 60), np.float64),
        (np.full(60, 0.1), np.float64),
        (np.ones(60), np.float32),
        (np.arange(60), np.float32),
        (np.arange(60, dtype=np.uint8), np.float32),
        (np.linspace(0, 1e300, 60), np.float64),
        (np.linspace(0, 1e-300, 60), np.float64),
    ],
)
def test_float64_is_kept_where_float32_would_blur_a_column(column, dtype):
    X = np.column_stack([np.zeros((60, 99), dtype=column.dtype), column])
    data = Dataset("d", X, np.ones((60, 1)), ("p",))
    assert data.X.dtype == dtype
    np.testing.assert_array_equal(data.X, X.astype(dtype))
    assert not data.X.flags.writeable
    assert X.flags.writeable


def test_a_row_alone_is_the_row_among_the_others():
    data = Dataset("d", STAMPS[:, None], np.ones((60, 1)), ("p",))
    assert data.take([37]).X[0, 0] == STAMPS[37]


def test_take_follows_order_masks_and_splits(small):
    part = small.take([5, 0, 4])
    np.testing.assert_array_equal(part.X, small.X[[5, 0, 4]])
    np.testing.assert_array_equal(part.Y, small.Y[[5, 0, 4]])
    assert {k: v.tolist() for k, v in part.splits.items()} == {"train": [1], "test": [0, 2]}
    mask = np.array([1, 0, 0, 1, 0, 0], dtype=bool)
    np.testing.assert_array_equal(small.take(mask).Y, small.Y[[0, 3]])
    assert small.take([0, 0]).splits is None


def test_take_carries_the_draw(small):
    observed = np.array([[1, 0], [0, 1], [0, 1], [1, 0], [0, 1], [0, 0]])
    drawn = replace(small, observed=observed).take([2, 0])
    np.testing.assert_array_equal(drawn.observed, [[0, 1], [1, 0]])


def test_without_unlabelled(small):
    kept = small.without_unlabelled()
    assert kept.n_samples == 5
    assert kept.Y.any(axis=1).all()
    assert kept.splits["test"].tolist() == [4]
    assert kept.without_unlabelled() is kept


def test_pickle_round_trip(small, small_sparse):
    for data in (small, small_sparse):
        again = pickle.loads(pickle.dumps(data))
        np.testing.assert_array_equal(again.Y, data.Y)
        assert abs(again.X - data.X).max() == 0


GOOD = {"name": "d", "X": np.ones((3, 2)), "Y": np.eye(3, dtype=int), "label_names": ("p", "q", "r")}


def _with(array, place, value):
    changed = np.array(array, dtype=float)
    changed[place] = value
    return changed


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"X": _with(GOOD["X"], (1, 0), np.nan)}, "X must be finite; row 1, column 0 holds NaN. Fill in or drop"),
        ({"X": _with(GOOD["X"], (2, 1), np.inf)}, "X must be finite; row 2, column 1 holds inf."),
        ({"X": sp.csr_array(_with(np.zeros((3, 2)), (2, 1), 1e300))}, "X must be finite; row 2, column 1 holds inf."),
        ({"X": sp.csr_array(_with(np.zeros((3, 2)), (2, 1), np.nan))}, "X must be finite; row 2, column 1 holds NaN."),
        ({"X": np.ones(3)}, r"X must be a matrix with at least one row and one column; its shape is \(3,\)."),
        ({"X": np.ones((3, 0))}, r"at least one row and one column; its shape is \(3, 0\)."),
        ({"X": sp.csr_array((3, 0))}, r"at least one row and one column; its shape is \(3, 0\)."),
        ({"X": np.array([["a", "b"]] * 3)}, "X must hold numbers; .* Encode or drop the other columns."),
        ({"X": np.ones((3, 2)) * 1j}, "X must hold numbers; its type is complex128"),
        ({"X": np.ones((4, 2))}, "X and Y must have the same number of rows; X has 4, Y has 3."),
        ({"Y": _with(GOOD["Y"], (2, 1), 2)}, r"Y must hold only 0 and 1; row 2, column 1 \('q'\) holds 2.0. Mark a"),
        ({"Y": _with(GOOD["Y"], (0, 0), np.nan)}, r"Y must hold only 0 and 1; row 0, column 0 \('p'\) holds nan."),
        ({"Y": -GOOD["Y"]}, r"row 0, column 0 \('p'\) holds -1"),
        ({"Y": np.array([["a"] * 3] * 3)}, r"Y must hold only 0 and 1; row 0, column 0 \('p'\) holds 'a'."),
        ({"Y": np.ones(3)}, r"Y must be a 0/1 matrix \(rows, labels\) with at least one of each; its shape is \(3,\)."),
        ({"label_names": ("p", "q")}, "label_names must name each of the 3 columns of Y; 2 names given."),
        ({"label_names": ("p", "q", "p")}, "label_names must differ; columns 0 and 2 are both 'p'. Rename one."),
        ({"feature_names": ("a",)}, "feature_names must name each of the 2 columns of X; 1 names given."),
        ({"image_shape": (2, 2)}, r"image_shape must hold as many pixels as X has columns; \(2, 2\) holds 4, X has 2."),
        ({"splits": {"train": [0, 3]}}, "split 'train' must lie between 0 and 2; entry 1 is 3. Count rows from 0."),
        ({"splits": {"train": [0, -1]}}, "split 'train' must lie between 0 and 2; entry 1 is -1."),
        ({"splits": {"train": [0.5]}}, "split 'train' must be a vector of row numbers"),
        ({"splits": {"train": [0, 1], "val": [1]}}, "a row must be in one split only, once; row 1 of 'val' is also in"),
        ({"splits": {"train": [0, 2, 2]}}, "row 2 of 'train' is listed twice"),
        ({"observed": np.ones((3, 3))}, "observed must mark only true positives; row 0 marks 'q' which Y does not"),
        ({"observed": np.ones((2, 3))}, r"observed must have the shape of Y; it is \(2, 3\), Y is \(3, 3\)."),
    ],
)
def test_bad_input_is_told_where_and_what_to_do(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        Dataset(**(GOOD | change))


def test_sparse_indices_out_of_range_are_refused():
    broken = sp.csr_array(np.ones((3, 2)))
    broken.indices[3] = 77
    with pytest.raises(ValueError, match=r"indices|index values"):
        Dataset(**(GOOD | {"X": broken}))
    empty = sp.csr_array((3, 2))
    empty.indptr[1] = 2
    with pytest.raises(ValueError, match="the row pointers of a sparse matrix must not decrease; they do"):
        Dataset(**(GOOD | {"X": empty}))


def test_take_refuses_rows_that_are_not_there(small):
    with pytest.raises(ValueError, match="rows must lie between 0 and 5; entry 1 is 6"):
        small.take([0, 6])


def test_known_negatives_and_groups_are_checked_and_follow_their_rows(small):
    full = replace(small, known_negative=1 - small.Y, groups=np.array([2, 0, 0, 1, 1, 3]))
    taken = full.take([5, 0])
    np.testing.assert_array_equal(taken.known_negative, (1 - small.Y)[[5, 0]])
    assert taken.groups.tolist() == [3, 2]
    assert full.known.is_complete.all()
    assert small.known.known_negative is None
    for wrong, sentence in (
        ({"known_negative": small.Y}, "an entry must be positive or negative, not both"),
        ({"known_negative": small.Y[:3] * 0}, "positive and negative must have one shape"),
        ({"known_negative": small.Y * 2}, "known_negative must hold only 0 and 1"),
        ({"groups": np.arange(5)}, "groups must hold a number per row, 6 in all"),
    ):
        with pytest.raises(ValueError, match=sentence):
            replace(small, **wrong)
