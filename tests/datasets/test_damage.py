"""Damaged files: cut at many places, bytes changed. A reader may only give data or one clear error."""

import gzip
import warnings

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp

from onepos.datasets import Dataset, load_draw, read_arff, read_dataset, read_mat, read_table, save_draw, write_npz

RNG = np.random.default_rng(0)
X = RNG.normal(size=(9, 3)).round(3)
Y = (RNG.random((9, 2)) < 0.5).astype(np.uint8)
Y[:, 0] |= 1 - Y[:, 1]
DATA = Dataset("set", X, Y, ("cat", "dog"))
ARFF = "@relation 'r: -C -2'\n@attribute 'a b' numeric\n@attribute b real\n@attribute c numeric\n"
ARFF += "@attribute cat {0,1}\n@attribute dog {0,1}\n@data\n"


def _arff(path):
    path.write_text(ARFF + "".join(",".join(map(str, [*x, *y])) + "\n" for x, y in zip(X, Y, strict=True)))


def _sparse_arff(path):
    rows = ("{" + ",".join(f"{j} {v}" for j, v in enumerate([*x, *y]) if v) + "}\n" for x, y in zip(X, Y, strict=True))
    path.write_text(ARFF + "".join(rows))


def _arff_gz(path):
    _arff(path)
    path.write_bytes(gzip.compress(path.read_bytes()))


def _frame():
    return pd.DataFrame(X, columns=list("abc")).assign(kind=np.where(Y[:, 0], "cat", "dog"))


def _hdf5(path):
    with h5py.File(path, "w", userblock_size=512) as file:
        file["X"], file["Y"] = X.T, Y.T
    with path.open("r+b") as handle:
        handle.write(b"MATLAB 7.3 MAT-file")


def _read_labelled(path):
    return read_table(path, label="kind")


CASES = {
    "d.arff": (_arff, read_arff),
    "s.arff": (_sparse_arff, read_arff),
    "d.arff.gz": (_arff_gz, read_arff),
    "d.mat": (lambda path: scipy.io.savemat(path, {"X": X, "Y": Y}, do_compression=True), read_mat),
    "s.mat": (lambda path: scipy.io.savemat(path, {"X": sp.csc_array(X), "Y": Y}), read_mat),
    "h.mat": (_hdf5, read_mat),
    "t.csv": (lambda path: _frame().to_csv(path, index=False), _read_labelled),
    "t.csv.gz": (lambda path: _frame().to_csv(path, index=False), _read_labelled),
    "t.tsv": (lambda path: _frame().to_csv(path, index=False, sep="\t"), _read_labelled),
    "t.parquet": (lambda path: _frame().to_parquet(path), _read_labelled),
    "set.npz": (lambda path: write_npz(DATA, path.parent), read_dataset),
    "draw.json": (lambda path: save_draw(path, np.eye(2)[Y.argmax(axis=1)], how="uniform", seed=0), load_draw),
}


def _outcome(read, path):
    """Read; return the error, if any. Any other kind of error than these two fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read(path)
        except (ValueError, FileNotFoundError) as error:
            return str(error)
    return None


@pytest.mark.parametrize("name", CASES)
def test_cut_files(tmp_path, name):
    write, read = CASES[name]
    path = tmp_path / name
    write(path)
    assert _outcome(read, path) is None
    whole = path.read_bytes()
    errors = []
    for end in np.unique(np.linspace(0, len(whole) - 1, 60).astype(int)):
        path.write_bytes(whole[:end])
        errors.append(_outcome(read, path))
    told = [error for error in errors if error is not None]
    assert all(name in error for error in told)
    # Text cut at the end of a line or inside the last number of a row is a smaller, valid file.
    assert len(told) >= len(errors) * (0.6 if name.endswith(("arff", "csv", "tsv")) else 1)


@pytest.mark.parametrize("name", CASES)
def test_changed_bytes(tmp_path, name):
    write, read = CASES[name]
    path = tmp_path / name
    write(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    n_told = 0
    for _ in range(80):
        changed = bytearray(whole)
        for place in rng.integers(len(whole), size=rng.integers(1, 4)):
            changed[place] = rng.integers(256)
        path.write_bytes(changed)
        error = _outcome(read, path)
        if error is not None:
            assert name in error
            n_told += 1
    assert n_told > 0


@pytest.mark.parametrize("name", CASES)
def test_empty_and_foreign_files(tmp_path, name):
    _, read = CASES[name]
    path = tmp_path / name
    for content in (b"", b"\x00" * 600, b"PK\x03\x04 not really", rb"{\rtf1 text}", bytes(range(256)) * 8):
        path.write_bytes(content)
        error = _outcome(read, path)
        assert error is not None
        assert name in error
