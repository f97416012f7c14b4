import re
import struct

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from onepos.datasets.mat import load_mat5

RNG = np.random.default_rng(0)
NUMERIC = {
    "double": RNG.normal(size=(5, 3)),
    "single": RNG.normal(size=(2, 4)).astype(np.float32),
    "logical": RNG.random((3, 3)) > 0.5,
    "row": np.arange(5)[None],
    "scalar": np.array([[7.5]]),
    "empty": np.zeros((0, 3)),
    **{f"i{bits}": RNG.integers(-100, 100, (2, 3)).astype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": RNG.integers(0, 200, (2, 3)).astype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
}
OTHER = {
    "text": "hello",
    "cell": np.array([1, "a"], dtype=object),
    "record": {"a": 1, "b": np.eye(2)},
    "wave": np.ones((2, 2)) * 1j,
    "cube": np.zeros((2, 2, 2)),
}


@pytest.mark.parametrize("is_compressed", [False, True])
def test_reads_what_scipy_writes_and_passes_over_the_rest(tmp_path, is_compressed):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, NUMERIC | OTHER, do_compression=is_compressed)
    matrices = load_mat5(path)
    assert set(matrices) == set(NUMERIC)
    for name, expected in NUMERIC.items():
        np.testing.assert_array_equal(matrices[name], expected, err_msg=name)


@pytest.mark.parametrize("matrix", [np.eye(4)[:, :3], np.zeros((3, 2)), RNG.random((6, 5)) > 0.7])
def test_sparse(tmp_path, matrix):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"S": sp.csc_array(matrix)})
    found = load_mat5(path)["S"]
    assert sp.issparse(found)
    np.testing.assert_array_equal(found.toarray(), matrix)


def test_bytes_in_the_other_order(tmp_path):
    def element(kind, data):
        return struct.pack(">II", kind, len(data)) + data + b"\0" * (-len(data) % 8)

    values = np.array([[1.5, 2], [3, 4]])
    body = element(6, struct.pack(">II", 6, 0)) + element(5, struct.pack(">ii", 2, 2)) + element(1, b"X")
    body += element(9, values.T.astype(">f8").tobytes())
    path = tmp_path / "big.mat"
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + b"\x01\x00MI" + element(14, body))
    np.testing.assert_array_equal(load_mat5(path)["X"], values)
    np.testing.assert_array_equal(scipy.io.loadmat(path)["X"], values)


def _save(path):
    scipy.io.savemat(path, {"X": np.eye(3), "S": sp.csc_array(np.eye(3))})
    return path.read_bytes()


def _patch(content, place, data):
    return content[:place] + data + content[place + len(data) :]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c: c[:60], "a.mat must be a MATLAB file of version 5 or later; its header is of another kind. Save it"),
        (lambda c: _patch(c, 124, b"\x09\x09"), "a.mat must be a MATLAB file of version 5 or later"),
        (lambda c: c[:200], "a.mat, byte 128: an element must hold 120 bytes; 64 are there. The file is damaged;"),
        (lambda c: c + b"\0\0\0", "an element must start with 8 bytes; the file ends before"),
        (lambda c: _patch(c, 128, b"\x05"), "a.mat, byte 128: a variable must be a matrix (type 14); its type is 5"),
        (lambda c: _patch(c, 160, b"\x07"), "a.mat, byte 128: 'X' must hold 7 × 3 numbers; it holds 9"),
        (lambda c: _patch(c, 176, b"\x63"), "a.mat, byte 176: numbers must have a known type and whole length; their"),
        (lambda c: _patch(c, 128, b"\x0f"), "a.mat, byte 128: compressed data must be whole; Error"),
    ],
)
def test_damage_is_told_with_its_place(tmp_path, change, sentence):
    path = tmp_path / "a.mat"
    path.write_bytes(change(_save(path)))
    with pytest.raises(ValueError, match=re.escape(sentence)):
        load_mat5(path)


def test_cut_compressed_data(tmp_path):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"X": RNG.normal(size=(30, 30))}, do_compression=True)
    content = path.read_bytes()
    size = len(content) - 136
    path.write_bytes(_patch(content, 132, struct.pack("<I", size - 50))[:-50])
    with pytest.raises(ValueError, match=r"a.mat, byte 128: compressed data must be whole; its end is missing"):
        load_mat5(path)


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["yeast", "emotions", "CAL500", "rcv1subset1_top944"])
def test_agrees_with_scipy_on_real_files(real_file, name):
    path = real_file(f"raw/{name}.mat")
    ours, theirs = load_mat5(path), scipy.io.loadmat(path)
    assert set(ours) == {"data", "target"}
    for key, matrix in ours.items():
        np.testing.assert_array_equal(matrix, theirs[key])
