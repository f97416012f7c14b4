"""Rows by index: dense and sparse give the same batches, scaled alike."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from onepos.training.samples import as_samples, fit_scaling, make_scaling


@pytest.fixture
def matrix():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 7)) * (rng.random((30, 7)) < 0.3)
    X[4] = 0  # an empty row
    X[:, 2] = 0  # an empty column
    return X


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_sparse_batches_equal_dense_ones(matrix, form, scaled):
    scaling = fit_scaling(matrix) if scaled else None
    dense, sparse = as_samples(matrix, scaling), as_samples(form(matrix), scaling)
    assert (len(sparse), sparse.n_features) == matrix.shape
    for rows in ([0], [4], [5, 4, 4, 29], list(range(30))):
        index = torch.tensor(rows)
        torch.testing.assert_close(sparse.rows(index), dense.rows(index))


@pytest.mark.parametrize("n_views", [0, 1])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_batches_go_through_the_order(matrix, form, n_views):
    samples, order = as_samples(form(matrix)), torch.tensor([4, 29, 0, 4, 7])
    found = list(samples.batches(order, 2, n_views))
    assert [index.tolist() for index, _ in found] == [[4, 29], [0, 4], [7]]
    for index, views in found:
        assert len(views) == 1
        torch.testing.assert_close(views[0], torch.tensor(matrix[index.numpy()], dtype=torch.float32))


def test_sparse_scaling_equals_dense(matrix):
    for first, second in zip(fit_scaling(matrix), fit_scaling(sp.csr_array(matrix)), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-12)
    scaling = fit_scaling(matrix)
    assert scaling.scale[2] == 1, "a constant column keeps its scale"
    scaled = as_samples(matrix, scaling, torch.float64).data.numpy()
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(np.delete(scaled.std(0), 2), 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_scaling_survives_a_large_offset(dtype):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=400) + 1e4, np.full(400, 0.1)]).astype(dtype)
    dense, sparse = fit_scaling(X), fit_scaling(sp.csr_array(X))
    np.testing.assert_allclose(sparse.scale, dense.scale, rtol=1e-6)
    assert sparse.scale[1] == 1


def test_sparse_memory_stays_sparse():
    X = sp.random_array((10_000, 5_000), density=1e-4, format="csr", random_state=0)
    samples = as_samples(X, fit_scaling(X))
    held = sum(t.numel() * t.element_size() for t in (samples.start, samples.column, samples.value, samples.origin))
    assert held < 1_000_000 < 4 * 10_000 * 5_000


def test_duplicate_entries_are_summed_and_the_input_left_alone():
    X = sp.csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    np.testing.assert_array_equal(as_samples(X).rows(torch.tensor([0])).numpy(), [[0, 3, 0]])
    assert X.nnz == 2


def test_a_large_offset_survives_single_precision():
    time_stamps = 1.7e9 + np.arange(10.0)[:, None]
    rows = as_samples(time_stamps, fit_scaling(time_stamps)).data
    assert len(rows.unique()) == 10


def test_fingerprint_knows_its_content(matrix):
    changed = matrix.copy()
    changed[3, 3] += 1
    assert as_samples(matrix).fingerprint() == as_samples(matrix.copy()).fingerprint()
    assert as_samples(matrix).fingerprint() != as_samples(changed).fingerprint()
    assert as_samples(sp.csr_array(matrix)).fingerprint() != as_samples(sp.csr_array(changed)).fingerprint()


def naive_scaling(X, limit):
    """(x − mean)/deviation cut at ±limit, number by number; a constant column is only centred."""
    scaled = np.zeros(X.shape)
    for k, column in enumerate(X.T):
        mean = sum(column) / len(column)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in column) / len(column)) or 1.0
        for i, x in enumerate(column):
            scaled[i, k] = max(-limit, min(limit, (x - mean) / deviation))
    return scaled


@pytest.mark.parametrize(("scale", "limit"), [("clipped", 5.0), ("standard", np.inf)])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_scaling_by_a_loop(matrix, form, scale, limit):
    """Dense and sparse alike, with numbers far beyond the limit on both sides, and a column whose zeros are beyond."""
    X = np.concatenate([np.tile(matrix, (4, 1)), np.zeros((1, 7))])
    X[3, 0], X[5, 1], X[120] = 1e3, -1e3, 0.0
    X[:120, 6] = 100.0  # zero in one row: eleven deviations below the mean
    scaling = make_scaling(form(X), scale)
    assert scaling.limit == limit
    rows = as_samples(form(X), scaling, torch.float64).rows(torch.arange(121)).numpy()
    np.testing.assert_allclose(rows, naive_scaling(X, limit), atol=1e-9)
    assert (np.abs(rows).max() > 9) == (scale == "standard")
    assert rows[120, 6] == pytest.approx(-5 if scale == "clipped" else -math.sqrt(120))


def test_new_rows_are_cut_too(matrix):
    scaling = make_scaling(matrix, "clipped")
    new = np.array([[1e9, -1e9, 1e9, 0.0, 0.0, 0.0, 0.0]])
    for form in (np.asarray, sp.csr_array):
        rows = as_samples(form(new), scaling).rows(torch.tensor([0]))
        assert rows[0, :3].tolist() == [5, -5, 5]


def test_scales():
    assert make_scaling(np.ones((3, 2)), "none") is None
    with pytest.raises(ValueError, match="scale must be 'clipped' or 'standard' or 'none'; got 'both'"):
        make_scaling(np.ones((3, 2)), "both")


@pytest.mark.parametrize("scale", ["clipped", "none"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("index", [[0], [4], [29, 3, 4, 3, 0], [], list(range(30))])
def test_taken_rows_are_those_of_the_index(matrix, form, scale, index):
    """An empty row, the last one, rows twice and in any order, and none."""
    samples = as_samples(form(matrix), make_scaling(matrix, scale))
    index = torch.tensor(index, dtype=torch.long)
    taken = samples.take(index)
    assert type(taken) is type(samples)
    assert len(taken) == len(index)
    assert taken.n_features == 7
    assert torch.equal(taken.rows(torch.arange(len(index))), samples.rows(index))
    if len(index):
        assert taken.fingerprint() == as_samples(form(matrix[index.numpy()]), make_scaling(matrix, scale)).fingerprint()


def test_rows_are_taken_without_a_trace_in_the_rest(matrix):
    for form in (np.asarray, sp.csr_array):
        samples = as_samples(form(matrix))
        before = samples.fingerprint()
        samples.take(torch.tensor([3, 1]))
        assert samples.fingerprint() == before
