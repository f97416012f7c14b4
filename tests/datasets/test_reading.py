import subprocess
import sys

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

import onepos.datasets
from onepos.datasets import read_dataset, read_features, write_npz


def test_the_suffix_decides(small, tmp_path):
    (tmp_path / "a.csv").write_text("f,kind\n1,x\n2,y\n")
    (tmp_path / "b.arff").write_text("@relation 'b: -C 1'\n@attribute l {0,1}\n@attribute f numeric\n@data\n1,2\n0,3\n")
    scipy.io.savemat(tmp_path / "c.MAT", {"X": small.X, "Y": small.Y})
    write_npz(small, tmp_path)
    assert read_dataset(tmp_path / "a.csv", label="kind").label_names == ("x", "y")
    np.testing.assert_array_equal(read_dataset(tmp_path / "b.arff").X, [[2], [3]])
    np.testing.assert_array_equal(read_dataset(tmp_path / "c.MAT").Y, small.Y)
    np.testing.assert_array_equal(read_dataset(str(tmp_path / "small.npz")).Y, small.Y)


def test_unknown_suffix_lists_what_is_read(tmp_path):
    with pytest.raises(
        ValueError, match=r"a.xlsx must end in one of .arff, .arff.gz, .mat, .csv, .* Rename or convert"
    ):
        read_dataset(tmp_path / "a.xlsx")


@pytest.mark.parametrize("name", ["a.arff", "a.mat", "a.csv", "a.tsv", "a.parquet", "a.npz"])
def test_missing_file_and_folder(tmp_path, name):
    options = {"label": "kind"} if name[1:] in (".csv", ".tsv", ".parquet") else {}
    with pytest.raises(FileNotFoundError, match=f"there is no file .*{name}. Check the name."):
        read_dataset(tmp_path / name, **options)
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=f"{name} must be a file; it is a folder"):
        read_dataset(tmp_path / name, **options)


def test_features_of_a_table(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("b,a,kind\n1,2,x\n3,4,y\n")
    X, names = read_features(path, columns=("a", "b"))
    np.testing.assert_array_equal(X, [[2, 1], [4, 3]])
    assert names == ("a", "b")
    X, names = read_features(path, drop="kind")
    np.testing.assert_array_equal(X, [[1, 2], [3, 4]])
    assert names == ("b", "a")
    with pytest.raises(ValueError, match=r"a.csv has no column 'aa'; did you mean 'a'\?"):
        read_features(path, columns=("aa",))
    with pytest.raises(ValueError, match=r"a.csv, line 2: features must be numbers; column 'kind' holds 'x'"):
        read_features(path)


def test_features_of_npz(small, small_sparse, tmp_path):
    X, names = read_features(write_npz(small, tmp_path), columns=("c", "a"))
    np.testing.assert_array_equal(X, small.X[:, [2, 0]])
    assert names == ("c", "a")
    X, names = read_features(write_npz(small_sparse, tmp_path))
    assert abs(X - small_sparse.X).max() == 0
    assert names is None
    X, names = read_features(tmp_path / "thin_X.npz", columns=("a", "b", "c"))
    assert isinstance(X, sp.csr_array)
    assert names == ("a", "b", "c")
    np.savez(tmp_path / "bare.npz", X=small.X)
    np.testing.assert_array_equal(read_features(tmp_path / "bare.npz")[0], small.X)
    with pytest.raises(ValueError, match=r"bare.npz must hold 2 features; it holds 3 without names"):
        read_features(tmp_path / "bare.npz", columns=("a", "b"))


def test_features_of_labelled_files(tmp_path):
    path = tmp_path / "b.arff"
    path.write_text("@relation 'b: -C 1'\n@attribute l {0,1}\n@attribute f numeric\n@data\n1,2\n0,3\n")
    X, names = read_features(path, columns=("f",))
    np.testing.assert_array_equal(X, [[2], [3]])
    assert names == ("f",)


def test_public_names_exist():
    assert len(set(onepos.datasets.__all__)) == len(onepos.datasets.__all__)
    for name in onepos.datasets.__all__:
        assert hasattr(onepos.datasets, name)


def test_import_leaves_heavy_packages_alone():
    code = (
        "import sys, onepos.datasets; "
        "print([m for m in ('torch', 'pandas', 'h5py', 'pyarrow', 'sklearn', 'scipy.io') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_half_of_a_surrogate_pair_is_refused_by_its_line(tmp_path):
    """It was read, and writing the results ended in an error of Python."""
    from onepos.datasets import open_table

    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": "\\ud83d\\ude00"}\n')
    assert open_table(path).frame["a"].tolist() == ["\N{GRINNING FACE}"]
    path.write_text('{"a": "x"}\n{"a": "\\ud800"}\n')
    with pytest.raises(ValueError, match=r"rows.jsonl, line 2: text must be valid Unicode"):
        open_table(path)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_dates_outside_the_calendar_are_refused(tmp_path, zone):
    """Arrow holds years that Python can not write down."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    from onepos.datasets import open_table

    path = tmp_path / "rows.parquet"
    days = pa.array([0, 2**62], pa.timestamp("us", zone))
    pyarrow.parquet.write_table(pa.table({"day": days}), path)
    with pytest.raises(ValueError, match=r"rows.parquet: a date must be of the years 1 to 9999; column 'day' holds"):
        open_table(path)
