"""MATLAB files: versions 5 to 7 by a reader of our own, and version 7.3 (HDF5) through h5py.

SciPy's compiled reader of versions 5 to 7 trusts the type codes in the file and crashes the whole process where one is
damaged.
"""

import struct
import warnings
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from onepos.datasets.dataset import Dataset, Rows, check_indices, stack_rows
from onepos.datasets.files import check_file, naming
from onepos.reading import check_size, most_bytes, too_large
from onepos.validation import Indicator, check_known, to_dense

# (features, labels) as the known collections call them; two pairs where train and test are kept apart.
LAYOUTS = (
    (("X", "Y"),),
    (("train_data", "train_target"), ("test_data", "test_target")),
    (("train_data", "train_target"),),
    (("data", "target"),),
)
INDEX_KEYS = {"train": "tr_idx", "val": "va_idx", "test": "te_idx"}
_KNOWN = frozenset(key for layout in LAYOUTS for pair in layout for key in pair) | {*INDEX_KEYS.values(), "Y_obs"}
"""Variables that are read; others are left on the disk, whatever their size."""

Orientation = Literal["auto", "rows", "columns"]
Arrays = Mapping[str, Any]


def read_mat(
    path: str | Path, *, features: str | None = None, labels: str | None = None, orientation: Orientation = "auto"
) -> Dataset:
    """Read a MATLAB file.

    Known variable names: `X` and `Y`; `data` and `target`; `train_data`, `train_target`, `test_data`,
    `test_target`; with `Y_obs` and `tr_idx`, `va_idx`, `te_idx` (SMILE) the draw and the split come along.
    Labels are 0/1 or -1/+1, one row or one column per sample.

    Args:
        path: `.mat` file.
        features: Variable that holds the features, when it is none of the above.
        labels: Variable that holds the labels.
        orientation: "rows" or "columns": whether a sample is a row or a column of the labels; "auto"
            takes the one that fits the features.
    """
    if orientation not in ("auto", "rows", "columns"):
        raise ValueError(f"orientation must be auto, rows or columns; it is '{orientation}'. Choose one.")
    path = check_file(Path(path))
    with naming(path):
        wanted = _KNOWN | {name for name in (labels, features) if name is not None}
        arrays = (_load_hdf5 if _is_hdf5(path) else load_mat5)(path, wanted)
        layout = _choose_layout(path, arrays, features, labels)
        for matrix in arrays.values():
            check_indices(matrix)
        parts = [_read_part(path, arrays, *keys, orientation) for keys in layout]
        X = stack_rows([X for X, _ in parts])
        Y = np.concatenate([Y for _, Y in parts])
        return Dataset(
            name=path.stem,
            X=X,
            Y=Y,
            label_names=tuple(f"label{column}" for column in range(Y.shape[1])),
            splits=_read_splits(path, arrays, [len(Y) for _, Y in parts]),
            source=path.name,
            observed=_read_observed(path, arrays, Y.shape, orientation),
        )


def _is_hdf5(path: Path) -> bool:
    with path.open("rb") as handle:
        head = handle.read(128)
    return head.startswith((b"MATLAB 7.3", b"\x89HDF"))


def _load_hdf5(path: Path, wanted: Collection[str]) -> dict[str, Any]:
    try:
        import h5py
    except ImportError:
        raise ImportError(
            f"{path.name} is a MATLAB 7.3 file and needs h5py, which is not installed. Run: pip install 'onepos[mat73]'"
        ) from None
    arrays: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        for key in file:
            # A link may lead to another file, which someone who passes a file on must not make us read.
            if key.startswith("#") or not isinstance(file.get(key, getlink=True), h5py.HardLink):
                continue
            array = _load_node(path, file[key]) if key in wanted else None
            is_matrix = isinstance(array, np.ndarray) and array.ndim == 2 and array.dtype.kind in "buif"
            if array is None or sp.issparse(array) or is_matrix:
                arrays[key] = array
    return arrays


def _load_node(path: Path, node: Any) -> Any:
    if "MATLAB_sparse" in node.attrs:
        n_rows, pointers = int(node.attrs["MATLAB_sparse"]), _load_values(path, node["jc"])
        # MATLAB leaves data and ir out when there is nothing in the matrix.
        data, rows = (_load_values(path, node[key]) if key in node else np.zeros(0) for key in ("data", "ir"))
        shape = n_rows, len(pointers) - 1
        _check_shape(path, shape)
        return sp.csc_array((data, rows.astype(np.int64), pointers), shape=shape)
    # HDF5 keeps the rows of a MATLAB matrix as columns.
    return _load_values(path, node).T if hasattr(node, "dtype") else None


def _check_shape(path: Path, shape: tuple[int, int]) -> None:
    """Refuse a sparse matrix of a size that takes far more memory than its file, even with nothing in it."""
    if min(shape) < 0:
        raise ValueError(f"{path.name} must hold matrices of a size; one is {shape[0]} × {shape[1]}. Get it again.")
    check_size(path, 8 * max(shape))


def _load_values(path: Path, node: Any) -> npt.NDArray[Any]:
    """The values of a variable, which must be in the file itself and of a size that goes with it."""
    if node.external or node.is_virtual:
        raise ValueError(
            f"{path.name} must hold its values itself; those of '{node.name}' are in other files. Save it again with "
            "-v7.3, or with -v7."
        )
    check_size(path, node.size * node.dtype.itemsize)
    return np.asarray(node[()])


def _choose_layout(path: Path, arrays: Arrays, features: str | None, labels: str | None) -> tuple[tuple[str, str], ...]:
    if (features is None) != (labels is None):
        raise ValueError("features and labels must be given together; only one is. Name both variables.")
    if features is not None and labels is not None:
        check_known([features, labels], arrays, f"{path.name} has no matrix")
        return ((features, labels),)
    for layout in LAYOUTS:
        if all(key in arrays for pair in layout for key in pair):
            return layout
    raise ValueError(
        f"{path.name} must hold X and Y, data and target, or train_data and train_target; its matrices are "
        f"{', '.join(arrays) or 'none'}. Name the two with features and labels."
    )


def _read_part(
    path: Path, arrays: Arrays, features: str, labels: str, orientation: Orientation
) -> tuple[Any, Indicator]:
    """Return features and labels with a sample per row."""
    X, Y = arrays[features], arrays[labels]
    x, y = X.shape, Y.shape
    allowed = {"auto": (0, 1), "rows": (0,), "columns": (1,)}[orientation]
    # Axes of X and Y of one length: the samples may lie along them.
    fits = [(i, j) for i in (0, 1) for j in allowed if x[i] == y[j]]
    for candidates in ([pair for pair in fits if pair[0] == 0], fits):
        if len(candidates) == 1:
            x_axis, y_axis = candidates[0]
            return (X.T if x_axis else X), _to_indicator(path, labels, Y.T if y_axis else Y)
    if fits:
        raise ValueError(
            f"{path.name} must show which side of '{labels}' is the samples; it is {y[0]} × {y[1]} and fits both "
            "ways. Give orientation 'rows' or 'columns'."
        )
    raise ValueError(
        f"{path.name} must have as many samples in '{features}' as in '{labels}'; they are {x[0]} × {x[1]} and "
        f"{y[0]} × {y[1]}. Name the right variables with features and labels."
    )


def _to_indicator(path: Path, key: str, labels: Any) -> Indicator:
    check_size(path, 8 * int(labels.shape[0]) * int(labels.shape[1]))
    values = to_dense(labels)
    negative = -1 if (values == -1).any() else 0
    wrong = np.argwhere((values != 1) & (values != negative))
    if len(wrong):
        row, column = wrong[0]
        raise ValueError(
            f"{path.name}: '{key}' must hold 0 and 1, or -1 and 1; row {row}, column {column} is "
            f"{values[row, column]:g} (among labels of {negative} and 1). Name the right variable with labels."
        )
    return np.asarray(values == 1, dtype=np.uint8)


def _read_observed(path: Path, arrays: Arrays, shape: tuple[int, ...], orientation: Orientation) -> Indicator | None:
    if "Y_obs" not in arrays:
        return None
    given = arrays["Y_obs"]
    return _to_indicator(path, "Y_obs", given.T if given.shape != shape or orientation == "columns" else given)


def _read_splits(path: Path, arrays: Arrays, lengths: list[int]) -> dict[str, Rows] | None:
    if len(lengths) == 2:
        return {"train": np.arange(lengths[0]), "test": np.arange(lengths[0], sum(lengths))}
    rows = {part: _to_rows(path, arrays[key], key) for part, key in INDEX_KEYS.items() if key in arrays}
    if not rows:
        return None
    # The SMILE files count from 0. An index equal to n only makes sense counted from 1, as MATLAB does.
    if max(index.max(initial=0) for index in rows.values()) == lengths[0]:
        rows = {part: index - 1 for part, index in rows.items()}
    both = np.isin(rows.get("train", ()), rows.get("val", ()))
    if both.any():  # in the first SMILE files
        warnings.warn(
            f"{path.name}: {both.sum()} validation rows are also listed as train; they are left out of train.",
            stacklevel=3,
        )
        rows["train"] = rows["train"][~both]
    return rows


def _to_rows(path: Path, values: Any, key: str) -> Rows:
    index = np.asarray(values).ravel()
    if (index != np.floor(index)).any():
        raise ValueError(f"{path.name}: '{key}' must hold row numbers; it holds fractions. Check the file.")
    return index.astype(np.intp)


HEADER = 128
MATRIX, COMPRESSED = 14, 15
SPARSE, NUMERIC = 5, range(6, 16)
COMPLEX = 0x0800
_PEEK = 4096
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}


class _Element(NamedTuple):
    kind: int
    data: memoryview
    offset: int


class _File(NamedTuple):
    name: str
    order: str
    most: int  # bytes to which a compressed variable may unfold
    path: Path

    def fail(self, offset: int, what: str) -> NoReturn:
        raise ValueError(f"{self.name}, byte {offset}: {what}. The file is damaged; get it again.")


def load_mat5(path: Path, wanted: Collection[str] | None = None) -> dict[str, Any]:
    """Return the real numeric and sparse matrices of a file of versions 5 to 7 by name; all else is passed over.

    With `wanted` compressed ones of other names are not unpacked: they are None.

    A file is a header of 128 bytes and a row of elements; an element is a tag (type, size) and data filled up to eight
    bytes. A matrix is an element made of elements: flags, sizes, name, values.
    """
    content = memoryview(path.read_bytes())
    file = _File(path.name, _read_order(path.name, bytes(content[:HEADER])), most_bytes(path), path)
    matrices: dict[str, Any] = {}
    for element in _split_elements(file, content[HEADER:], HEADER):
        if element.kind == COMPRESSED:
            name = _peek_name(file, element)
            if wanted is not None and name is not None and name not in wanted:
                matrices[name] = None
                continue
            element = next(_split_elements(file, _decompress(file, element), element.offset), element)
        if element.kind != MATRIX:
            file.fail(element.offset, f"a variable must be a matrix (type 14); its type is {element.kind}")
        name, matrix = _read_matrix(file, element)
        if matrix is not None:
            matrices[name] = matrix
    return matrices


def _read_order(name: str, header: bytes) -> str:
    order = {b"IM": "<", b"MI": ">"}.get(header[126:])
    if order is None or struct.unpack(order + "H", header[124:126])[0] != 0x0100:
        raise ValueError(
            f"{name} must be a MATLAB file of version 5 or later; its header is of another kind. "
            "Save it in MATLAB with -v7."
        )
    return order


def _decompress(file: _File, element: _Element) -> memoryview:
    unpacker = zlib.decompressobj()
    try:
        head = zlib.decompressobj().decompress(element.data, 8)
        if len(head) == 8 and 8 + struct.unpack(file.order + "II", head)[1] > file.most:
            raise too_large(file.path, "more", file.most)
        data = unpacker.decompress(element.data, file.most)
    except zlib.error as error:
        file.fail(element.offset, f"compressed data must be whole; {error}")
    if len(data) == file.most and not unpacker.eof:
        raise too_large(file.path, "more", file.most)
    if not unpacker.eof:
        file.fail(element.offset, "compressed data must be whole; its end is missing")
    return memoryview(data)


def _peek_name(file: _File, element: _Element) -> str | None:
    """The name of a compressed matrix by its first bytes; None where they do not hold it."""
    try:
        head = memoryview(zlib.decompressobj().decompress(element.data, _PEEK))
        kind, _ = struct.unpack_from(file.order + "II", head, 0)
        if kind != MATRIX:
            return None
        parts = _split_elements(file, head[8:], element.offset)
        _, _, name = next(parts), next(parts), next(parts)
        return bytes(name.data).decode("latin-1")
    except (zlib.error, struct.error, StopIteration, ValueError):
        return None


def _split_elements(file: _File, data: memoryview, start: int) -> Iterator[_Element]:
    """Yield the elements that follow each other in a block that starts at byte `start` of the file."""
    place = 0
    while place < len(data):
        if len(data) - place < 8:
            file.fail(start + place, "an element must start with 8 bytes; the file ends before")
        kind, size = struct.unpack_from(file.order + "II", data, place)
        if kind >> 16:
            # Up to four bytes of data stand in the tag itself.
            kind, size, begin, step = kind & 0xFFFF, kind >> 16, place + 4, 8
        else:
            begin = place + 8
            step = 8 + (size if kind == COMPRESSED else -(-size // 8) * 8)
        limit = place + 8 if step == 8 and size else len(data)
        if begin + size > limit:
            file.fail(start + place, f"an element must hold {size} bytes; {limit - begin} are there")
        yield _Element(kind, data[begin : begin + size], start + place)
        place += step


def _read_matrix(file: _File, element: _Element) -> tuple[str, Any]:
    """Return name and content; the content is None for what is not a real matrix."""
    parts = _split_elements(file, element.data, element.offset + 8)
    flags, shape = (_read_numbers(file, _next(file, element, parts)) for _ in range(2))
    name = bytes(_next(file, element, parts).data).decode("latin-1")
    if not len(flags):
        file.fail(element.offset, "a matrix must start with its flags; they are empty")
    kind, is_complex = int(flags[0]) & 0xFF, bool(int(flags[0]) & COMPLEX)
    if is_complex or len(shape) != 2 or kind not in (SPARSE, *NUMERIC):
        return name, None
    arrays = [_read_numbers(file, part) for part in parts]
    rows, columns = map(int, shape)
    if len(arrays) != (3 if kind == SPARSE else 1) or min(rows, columns) < 0:
        file.fail(element.offset, f"'{name}' must be one matrix of numbers; it has {len(arrays)} parts")
    if kind == SPARSE:
        return name, _build_sparse(file, element, name, (rows, columns), arrays)
    if len(arrays[0]) != rows * columns:
        file.fail(element.offset, f"'{name}' must hold {rows} × {columns} numbers; it holds {len(arrays[0])}")
    return name, arrays[0].reshape((rows, columns), order="F")


def _next(file: _File, element: _Element, parts: Iterator[_Element]) -> _Element:
    part = next(parts, None)
    if part is None:
        file.fail(element.offset, "a matrix must have flags, sizes, a name and values; some are missing")
    return part


def _read_numbers(file: _File, element: _Element) -> npt.NDArray[Any]:
    code = NUMBERS.get(element.kind)
    if code is None or len(element.data) % int(code[1]):
        file.fail(element.offset, f"numbers must have a known type and whole length; their type is {element.kind}")
    return np.frombuffer(element.data, dtype=file.order + code).astype(code)


def _build_sparse(
    file: _File, element: _Element, name: str, shape: tuple[int, int], arrays: list[npt.NDArray[Any]]
) -> Any:
    rows, pointers, values = arrays
    n_stored = int(pointers[-1]) if len(pointers) else 0
    # MATLAB may reserve more space than it uses.
    if not 0 <= n_stored <= min(len(rows), len(values)):
        file.fail(element.offset, f"'{name}' must hold {n_stored} values and rows; it holds fewer")
    _check_shape(file.path, shape)
    return sp.csc_array((values[:n_stored], rows[:n_stored].astype(np.int64), pointers), shape=shape)
