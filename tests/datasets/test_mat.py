import re
import sys

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from onepos.datasets import load_dataset, read_mat

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 4))
Y = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]])
SIGNED = 2.0 * Y - 1


def _save_v5(path, **arrays):
    scipy.io.savemat(path, arrays)
    return path


def _save_v73(path, **arrays):
    """Write the way MATLAB does: a user block with the version, matrices transposed, sparse ones as groups."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in arrays.items():
            if sp.issparse(value):
                columns = sp.csc_array(value)
                group = file.create_group(name)
                group.attrs["MATLAB_sparse"] = np.uint64(columns.shape[0])
                group["jc"] = columns.indptr.astype(np.uint64)
                if columns.nnz:
                    group["data"], group["ir"] = columns.data, columns.indices.astype(np.uint64)
            else:
                file[name] = np.atleast_2d(value).T
    with path.open("r+b") as handle:
        handle.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return path


@pytest.fixture(params=[_save_v5, _save_v73], ids=["v5", "v7.3"])
def save(request, tmp_path):
    return lambda name="set.mat", **arrays: request.param(tmp_path / name, **arrays)


@pytest.mark.parametrize("labels", [Y, SIGNED, Y.astype(bool), sp.csc_array(Y.astype(float))])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_labels_of_every_kind(save, labels, is_transposed):
    data = read_mat(save(data=X, target=labels.T if is_transposed else labels))
    np.testing.assert_array_equal(data.Y, Y)
    np.testing.assert_allclose(data.X, X, rtol=1e-6)
    assert data.name == "set"


def test_samples_as_columns_of_both(save):
    data = read_mat(save(X=X.T, Y=Y.T))
    np.testing.assert_allclose(data.X, X, rtol=1e-6)
    np.testing.assert_array_equal(data.Y, Y)


def test_sparse_features_stay_sparse(save):
    thin = sp.csc_array(np.where(X > 0.5, X, 0))
    data = read_mat(save(X=thin, Y=Y))
    assert isinstance(data.X, sp.csr_array)
    np.testing.assert_allclose(data.X.toarray(), thin.toarray(), rtol=1e-6)


def test_train_and_test_kept_apart(save):
    path = save(train_data=X[:5], train_target=SIGNED[:5].T, test_data=X[5:], test_target=SIGNED[5:].T)
    data = read_mat(path)
    np.testing.assert_array_equal(data.Y, Y)
    assert {part: rows.tolist() for part, rows in data.splits.items()} == {"train": [0, 1, 2, 3, 4], "test": [5, 6]}


def _smile(offset=0, train=(0, 1, 2, 3)):
    return {
        "X": X,
        "Y": Y,
        "Y_obs": np.eye(3)[Y.argmax(axis=1)],
        "tr_idx": np.array([train]) + offset,
        "va_idx": np.array([[4]]) + offset,
        "te_idx": np.array([[5, 6]]) + offset,
    }


@pytest.mark.parametrize("offset", [0, 1])
def test_smile_layout(save, offset):
    data = read_mat(save(**_smile(offset)))
    assert {part: rows.tolist() for part, rows in data.splits.items()} == {
        "train": [0, 1, 2, 3],
        "val": [4],
        "test": [5, 6],
    }
    np.testing.assert_array_equal(data.observed.argmax(axis=1), Y.argmax(axis=1))
    assert (data.observed.sum(axis=1) == 1).all()


def test_validation_rows_leave_train(save):
    with pytest.warns(UserWarning, match=r"set.mat: 1 validation rows are also listed as train; they are left out"):
        data = read_mat(save(**_smile(train=(0, 1, 2, 3, 4))))
    assert data.splits["train"].tolist() == [0, 1, 2, 3]


def test_variables_by_name_and_orientation(save):
    square = np.eye(3)
    square[0, 1] = 1
    path = save(inputs=X[:3], tags=square, other=X)
    with pytest.raises(
        ValueError, match=r"set.mat must show which side of 'tags' is the samples; it is 3 × 3 and fits"
    ):
        read_mat(path, features="inputs", labels="tags")
    by_row = read_mat(path, features="inputs", labels="tags", orientation="rows")
    by_column = read_mat(path, features="inputs", labels="tags", orientation="columns")
    np.testing.assert_array_equal(by_row.Y, square)
    np.testing.assert_array_equal(by_column.Y, square.T)


def _changed(value):
    wrong = np.array(Y, dtype=float)
    wrong[2, 1] = value
    return wrong


@pytest.mark.parametrize(
    ("arrays", "options", "sentence"),
    [
        ({"X": X, "Y": _changed(2)}, {}, "set.mat: 'Y' must hold 0 and 1, or -1 and 1; row 2, column 1 is 2 (among"),
        ({"X": X, "Y": _changed(-1)}, {}, "set.mat: 'Y' must hold 0 and 1, or -1 and 1; row 0, column 1 is 0 (among"),
        ({"X": X, "Y": _changed(np.nan)}, {}, "row 2, column 1 is nan"),
        ({"X": X, "Y": Y[:5]}, {}, "set.mat must have as many samples in 'X' as in 'Y'; they are 7 × 4 and 5 × 3."),
        ({"X": X, "Z": Y}, {}, "set.mat must hold X and Y, data and target, or train_data and train_target; its"),
        ({"X": X, "Y": Y}, {"features": "x", "labels": "Y"}, "set.mat has no matrix 'x'; choose from X, Y."),
        ({"X": X, "Y": Y}, {"features": "X"}, "features and labels must be given together; only one is."),
        ({"X": X, "Y": Y}, {"orientation": "up"}, "orientation must be auto, rows or columns; it is 'up'."),
        ({"X": X * np.inf, "Y": Y}, {}, "set.mat: X must be finite; row 0, column 0 holds"),
        (_smile(offset=3), {}, "set.mat: split 'val' must lie between 0 and 6; entry 0 is 7."),
        (_smile() | {"tr_idx": np.array([[0.5]])}, {}, "set.mat: 'tr_idx' must hold row numbers; it holds fractions."),
        (_smile() | {"Y_obs": np.ones((7, 3))}, {}, "set.mat: observed must mark only true positives; row 0 marks"),
    ],
)
def test_wrong_files_are_told(save, arrays, options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_mat(save(**arrays), **options)


def test_missing_h5py_names_the_extra(tmp_path, monkeypatch):
    path = _save_v73(tmp_path / "set.mat", X=X, Y=Y)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"needs h5py, .* pip install 'onepos\[mat73\]'"):
        read_mat(path)


def test_sparse_group_with_wrong_pointers(tmp_path):
    path = _save_v73(tmp_path / "set.mat", X=sp.csc_array(np.ones((7, 4))), Y=Y)
    with h5py.File(path, "r+") as file:
        file["X/ir"][3] = 10**6
    with pytest.raises(ValueError, match=r"set.mat"):
        read_mat(path)


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("file", "name"), [("emotions", "emotions"), ("CAL500", "cal500"), ("rcv1subset1_top944", "rcv1subset1_top944")]
)
def test_real_files_equal_the_stored_sets(real_file, file, name):
    data = read_mat(real_file(f"raw/{file}.mat"))
    stored = load_dataset(name, real_file(f"tabular/{name}.npz").parent.parent)
    np.testing.assert_array_equal(data.Y, stored.Y)
    assert abs(stored.X - data.X.astype(np.float32)).max() < 1e-6  # the stored copy is in single precision


@pytest.mark.real_data
def test_yeast_holds_the_same_rows_as_the_arff(real_file):
    """The MATLAB file lists the 917 test rows first."""
    data = read_mat(real_file("raw/yeast.mat"))
    stored = load_dataset("yeast", real_file("tabular/yeast.npz").parent.parent)
    order = np.concatenate([stored.splits["test"], stored.splits["train"]])
    np.testing.assert_array_equal(data.Y, stored.Y[order])
    np.testing.assert_allclose(data.X, stored.X[order], atol=1e-6)
