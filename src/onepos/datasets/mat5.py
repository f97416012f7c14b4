"""The matrices of a MATLAB file of versions 5 to 7.

It is read here and not by SciPy, whose compiled reader trusts the type codes in the file and crashes the whole
process where one is damaged. Only real numeric and sparse matrices are read; cells, structures, text and
complex matrices are passed over.

A file is a header of 128 bytes and a row of elements; an element is a tag (type, size) and data filled up to eight
bytes. A matrix is an element made of elements: flags, sizes, name, values.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

HEADER = 128
MATRIX, COMPRESSED = 14, 15
SPARSE, NUMERIC = 5, range(6, 16)
COMPLEX = 0x0800
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}


class _Element(NamedTuple):
    kind: int
    data: memoryview
    offset: int


class _File(NamedTuple):
    name: str
    order: str

    def fail(self, offset: int, what: str) -> NoReturn:
        raise ValueError(f"{self.name}, byte {offset}: {what}. The file is damaged; get it again.")


def load_mat5(path: Path) -> dict[str, Any]:
    """Return the real numeric and sparse matrices of the file by name."""
    content = memoryview(path.read_bytes())
    file = _File(path.name, _read_order(path.name, bytes(content[:HEADER])))
    matrices = {}
    for element in _split_elements(file, content[HEADER:], HEADER):
        if element.kind == COMPRESSED:
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
        data = unpacker.decompress(element.data)
    except zlib.error as error:
        file.fail(element.offset, f"compressed data must be whole; {error}")
    if not unpacker.eof:
        file.fail(element.offset, "compressed data must be whole; its end is missing")
    return memoryview(data)


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
    return sp.csc_array((values[:n_stored], rows[:n_stored].astype(np.int64), pointers), shape=shape)
