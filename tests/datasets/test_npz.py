import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from onepos.datasets import Dataset, read_dataset, write_npz


def _assert_equal(first, second):
    assert abs(first.X - second.X).max() == 0
    assert first.X.dtype == second.X.dtype
    assert first.is_sparse is second.is_sparse
    np.testing.assert_array_equal(first.Y, second.Y)
    for field in ("name", "label_names", "feature_names", "image_shape"):
        assert getattr(first, field) == getattr(second, field), field
    assert (first.splits is None) is (second.splits is None)
    for part, rows in (first.splits or {}).items():
        np.testing.assert_array_equal(rows, second.splits[part])
    for field in ("observed", "known_negative", "groups"):
        kept, read = getattr(first, field), getattr(second, field)
        assert (kept is None) is (read is None), field
        if kept is not None:
            np.testing.assert_array_equal(kept, read)


def test_round_trip(small, small_sparse, tmp_path):
    full = replace(small, observed=small.Y * [1, 0], image_shape=(3, 1), source="by hand")
    wide = replace(small, X=1.7e9 + np.arange(18.0).reshape(6, 3))
    reviewed = replace(small, known_negative=(1 - small.Y) * [1, 0], groups=np.array([0, 0, 1, 2, 1, 2]))
    assert wide.X.dtype == np.float64
    for data in (small, small_sparse, full, wide, reviewed):
        again = read_dataset(write_npz(data, tmp_path))
        _assert_equal(data, again)
        assert again.source == (data.source or f"{data.name}.npz")


def test_labels_with_nan_and_groups_of_any_kind(tmp_path):
    Y, groups = np.array([[1, 0], [np.nan, 1], [0, np.nan]]), np.array(["b", "a", "b"])
    np.savez(tmp_path / "own.npz", X=np.ones((3, 2)), Y=Y, groups=groups)
    read = read_dataset(tmp_path / "own.npz")
    assert read.Y.tolist() == [[1, 0], [0, 1], [0, 0]]
    assert read.known_negative.tolist() == [[0, 1], [0, 0], [1, 0]]
    assert read.groups.tolist() == [0, 1, 0]
    assert read.take([2, 0]).groups.tolist() == [0, 0]
    np.savez(tmp_path / "own.npz", X=np.ones((3, 2)), Y=Y, groups=groups[:2])
    with pytest.raises(ValueError, match=r"own\.npz: groups must hold one value per row of X, 3 in all"):
        read_dataset(tmp_path / "own.npz")


def test_layout_on_disk(small, small_sparse, tmp_path):
    with np.load(write_npz(small, tmp_path)) as archive:
        assert set(archive.files) == {"X", "Y", "label_names", "feature_names", "train_idx", "test_idx"}
        assert archive["Y"].dtype == np.uint8
    write_npz(small_sparse, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.npz", "thin.npz", "thin_X.npz"]
    assert abs(sp.load_npz(tmp_path / "thin_X.npz") - small_sparse.X).max() == 0


def test_sparse_file_goes_when_the_set_becomes_dense(small, small_sparse, tmp_path):
    write_npz(small_sparse, tmp_path)
    path = write_npz(replace(small, name="thin"), tmp_path)
    assert not (tmp_path / "thin_X.npz").exists()
    assert not read_dataset(path).is_sparse


def test_a_failed_write_leaves_the_old_file(small, tmp_path, monkeypatch):
    path = write_npz(small, tmp_path)
    before = path.read_bytes()

    def fail(handle, **arrays):
        handle.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="No space left"):
        write_npz(replace(small, Y=1 - small.Y), tmp_path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["small.npz"]


@pytest.mark.parametrize(
    ("y", "names"),
    [
        (np.array([2, 10, 2]), ("2", "10")),
        (np.array([1.0, 0.0, 1.0]), ("0", "1")),
        (np.array(["b", "", "a"]), ("a", "b")),
    ],
)
def test_vector_of_labels(tmp_path, y, names):
    path = tmp_path / "v.npz"
    np.savez(path, X=np.ones((3, 2)), y=y)
    data = read_dataset(path)
    assert data.label_names == names
    np.testing.assert_array_equal(data.Y.sum(axis=1), [value != "" for value in y.astype(str)])


def test_names_are_made_up_where_there_are_none(tmp_path):
    path = tmp_path / "v.npz"
    np.savez(path, X=np.ones((2, 2)), Y=np.eye(2))
    assert read_dataset(path).label_names == ("label0", "label1")


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"Y": np.eye(2)}, "v.npz must hold features as X, or have v_X.npz beside it; it holds Y. Add the features."),
        ({"X": np.eye(2)}, "v.npz must hold labels as Y (0/1 matrix) or y (vector); it holds X. Add them."),
        ({"X": np.eye(2), "Y": np.eye(3)}, "v.npz: X and Y must have the same number of rows; X has 2, Y has 3."),
        ({"X": np.eye(2), "Y": np.ones((2, 2, 2))}, "v.npz: Y must be a 0/1 matrix"),
        ({"X": np.eye(2), "y": np.array([0.5, 1])}, "v.npz: y must name one label per row; it holds fractions or NaN."),
        ({"X": np.eye(2), "Y": np.eye(2), "train_idx": np.array([5])}, "v.npz: split 'train' must lie between 0 and 1"),
        (
            {"X": np.eye(2), "y": np.array(["a", None])},
            "v.npz: 'y' must not be an object array; it is one, and pickles are never read. Store text as a str array: "
            "np.array(names, dtype=str).",
        ),
        (
            {"X": np.eye(2), "Y": np.eye(2), "label_names": np.array(["a", "b"], dtype=object)},
            "v.npz: 'label_names' must not be an object array; it is one, and pickles are never read. Store text as",
        ),
        (
            {"X": np.eye(2), "Y": np.eye(2).astype(object)},
            "v.npz: 'Y' must not be an object array; it is one, and pickles are never read. Store numbers as a numeric",
        ),
    ],
)
def test_wrong_archives_are_told(tmp_path, arrays, sentence):
    path = tmp_path / "v.npz"
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_dataset(path)


def test_a_single_array_is_not_an_archive(tmp_path):
    np.save(tmp_path / "v.npy", np.eye(2))
    path = (tmp_path / "v.npy").rename(tmp_path / "v.npz")
    with pytest.raises(ValueError, match=r"v.npz must be an NPZ archive; it holds a single array"):
        read_dataset(path)


def test_a_file_of_another_kind_is_no_archive(tmp_path):
    (tmp_path / "text.npz").write_text("f0,f1\n1,2\n")
    with pytest.raises(ValueError, match=r"text.npz must be an NPZ archive; it is of another kind. Use numpy.savez."):
        read_dataset(tmp_path / "text.npz")


def test_options_for_tables_are_refused(small, tmp_path):
    with pytest.raises(ValueError, match=r"small.npz must hold its labels as Y or y; label is for tables"):
        read_dataset(write_npz(small, tmp_path), label="cat")


def test_a_name_that_leaves_the_folder_is_refused(small, tmp_path):
    with pytest.raises(ValueError, match=r"the name must do as a file name; it is '\.\./small'"):
        write_npz(replace(small, name="../small"), tmp_path)


def test_sparse_labels_are_accepted(tmp_path):
    data = Dataset("s", np.ones((2, 1)), sp.csr_array(np.eye(2)), ("a", "b"))
    np.testing.assert_array_equal(read_dataset(write_npz(data, tmp_path)).Y, np.eye(2))
