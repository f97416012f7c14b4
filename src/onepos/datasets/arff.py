"""ARFF, as Mulan (with an XML file) and MEKA (with `-C n` in the relation) write it.

Rows are read in blocks. A block of plain numbers is checked by one regular expression per line and converted at
once; whatever else occurs (quotes, named categories, mistakes) goes through the slow parser, which knows the
line and can say what is wrong with it. Sparse rows go straight into CSR.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from onepos.datasets.dataset import Dataset, Features, stack_rows
from onepos.datasets.files import check_file, naming, open_binary, strip_suffix
from onepos.datasets.label_xml import find_label_xml, read_label_names
from onepos.validation import suggest, to_dense

BLOCK = 2048

# Possessive quantifiers (*+): a long malformed line fails at once instead of being tried in every way.
_NUMBER = r"[-+]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][-+]?+\d++)?+"
_QUOTED = r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+\""""
_BARE = r"""[^\s,'"{}][^\s,{}]*+"""
_PAIR = rf"\d++\s++{_NUMBER}\s*+"
_DENSE_LINE = re.compile(rf"{_NUMBER}\s*+(?:,\s*+{_NUMBER}\s*+)*+")
_SPARSE_LINE = re.compile(rf"\{{\s*+(?:{_PAIR}(?:,\s*+{_PAIR})*+)?+\}}")
_CELL = re.compile(rf"\s*+({_QUOTED}|{_BARE})\s*+(,|$)")
_SPARSE_CELL = re.compile(rf"\s*+(\d++)\s++({_QUOTED}|{_BARE})\s*+(,|$)")
_ATTRIBUTE = re.compile(rf"@attribute\s+({_QUOTED}|[^\s'\"{{][^\s{{]*+)\s*+(\S.*)", re.IGNORECASE)
_MEKA_LABELS = re.compile(r"-C\s+(-?\d+)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}

Line = tuple[int, str]


def read_arff(path: str | Path, xml: str | Path | None = None, *, labels: int | Sequence[str] | None = None) -> Dataset:
    """Read an ARFF file, dense or sparse, plain or gzipped.

    Numeric attributes and categories written as numbers ({0,1}) become one feature each, other categories one
    0/1 feature per value. Label columns keep the order of the ARFF file.

    Args:
        path: `.arff` or `.arff.gz`.
        xml: Mulan's label file. By default the one beside the ARFF file: for `x-train.arff`, `x-train.xml`
            or `x.xml`; without one, MEKA's `-C n` in the relation decides.
        labels: Names of the label attributes, or their number: the first n, or with -n the last n.
    """
    path = check_file(Path(path))
    with naming(path), open_binary(path) as handle:
        lines = _content_lines(handle)
        relation, attributes = _read_header(path, lines)
        chosen = _choose_labels(path, relation, attributes, xml, labels)
        values = _read_rows(path, lines, attributes)
        columns = sorted(set(range(len(attributes))) - set(chosen))
        X, feature_names = _take_features(values, attributes, columns)
        return Dataset(
            name=strip_suffix(path),
            X=X,
            Y=to_dense(values[:, chosen]),
            label_names=tuple(attributes[j].name for j in chosen),
            feature_names=feature_names,
            source=path.name,
        )


@dataclass(frozen=True)
class _Attribute:
    name: str
    values: tuple[str, ...] | None = None

    @cached_property
    def is_named(self) -> bool:
        """Whether the values are words, not numbers."""
        return self.values is not None and not all(re.fullmatch(_NUMBER, value) for value in self.values)

    @cached_property
    def codes(self) -> dict[str, float]:
        """The number that stands for each value: itself, or its place in the list."""
        return {value: float(place) if self.is_named else float(value) for place, value in enumerate(self.values or ())}

    def encode(self, token: str) -> float | None:
        """Return the number for a written value, or None when it is not allowed."""
        if token in self.codes:
            return self.codes[token]
        if self.is_named or not re.fullmatch(_NUMBER, token):
            return None
        number = float(token)
        return number if self.values is None or number in self.codes.values() else None


def _content_lines(handle: Iterable[bytes]) -> Iterator[Line]:
    """Yield line number and stripped text of the lines that are neither blank nor a comment."""
    for number, raw in enumerate(handle, start=1):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            # Files older than UTF-8; Latin-1 reads any byte.
            text = raw.decode("latin-1").strip()
        if text and not text.startswith("%"):
            yield number, text


def _fail(path: Path, line: int, what: str) -> NoReturn:
    raise ValueError(f"{path.name}, line {line}: {what}")


def _unquote(token: str) -> str:
    if token[0] not in "'\"":
        return token
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), token[1:-1])


def _read_header(path: Path, lines: Iterator[Line]) -> tuple[str, list[_Attribute]]:
    relation, number = "", 0
    attributes: list[_Attribute] = []
    for number, text in lines:
        keyword = text.split(maxsplit=1)[0].lower()
        if keyword == "@data":
            if not attributes:
                _fail(path, number, "@attribute lines must come before @data; there is none. Get the file again.")
            return relation, attributes
        if keyword == "@relation":
            relation = text[len(keyword) :]
        elif keyword == "@attribute":
            attributes.append(_read_attribute(path, number, text))
        else:
            _fail(
                path,
                number,
                "a header line must start with @relation, @attribute or @data; it starts with "
                f"'{keyword[:40]}'. Check that this is an ARFF file.",
            )
    raise ValueError(
        f"{path.name} must have a line @data with rows below; it ends at line {number}. Get the file again."
    )


def _read_attribute(path: Path, line: int, text: str) -> _Attribute:
    match = _ATTRIBUTE.fullmatch(text)
    if match is None:
        _fail(path, line, f"@attribute must give a name and a type; found '{text[:60]}'. Quote names with spaces.")
    name, kind = _unquote(match[1]), match[2]
    if kind.startswith("{"):
        inside, brace, _ = kind[1:].rpartition("}")
        values = _split_cells(inside)
        if not brace or not values:
            _fail(path, line, f"'{name}' must list its values as {{a,b,…}}; found '{kind[:60]}'. Correct the line.")
        return _Attribute(name, tuple(map(_unquote, values)))
    word = kind.split()[0].lower()
    if word not in ("numeric", "real", "integer"):
        _fail(
            path,
            line,
            f"'{name}' must be numeric or {{a,b,…}}; it is {word[:40]}. Remove or encode the attribute first.",
        )
    return _Attribute(name)


def _split_cells(text: str) -> list[str] | None:
    """Split at the commas outside quotes; None when the text is not a list of cells."""
    cells, place, more = [], 0, True
    while more:
        match = _CELL.match(text, place)
        if match is None:
            return None
        cells.append(match[1])
        place, more = match.end(), match[2] == ","
    return cells


def _choose_labels(
    path: Path,
    relation: str,
    attributes: list[_Attribute],
    xml: str | Path | None,
    labels: int | Sequence[str] | None,
) -> list[int]:
    label_file = check_file(Path(xml)) if xml is not None else find_label_xml(path)
    meka = _MEKA_LABELS.search(relation)
    if isinstance(labels, int):
        chosen = _count_labels(path, len(attributes), labels)
    elif labels is not None:
        chosen = _find_labels(path, attributes, [labels] if isinstance(labels, str) else labels, "labels")
    elif label_file is not None:
        chosen = _find_labels(path, attributes, read_label_names(label_file), label_file.name)
    elif meka is not None:
        chosen = _count_labels(path, len(attributes), int(meka[1]))
    else:
        raise ValueError(
            f"{path.name} must come with its labels; there is no {strip_suffix(path)}.xml beside it and no -C in "
            "@relation. Give the XML file, or the names or number of the label attributes."
        )
    for column in chosen:
        _check_label(path, attributes[column])
    return chosen


def _count_labels(path: Path, n_attributes: int, count: int) -> list[int]:
    if not 0 < abs(count) < n_attributes:
        raise ValueError(
            f"{path.name} must keep at least one label and one feature; {abs(count)} of its {n_attributes} "
            "attributes would be labels. Correct the number of labels."
        )
    return list(range(count)) if count > 0 else list(range(n_attributes + count, n_attributes))


def _find_labels(path: Path, attributes: list[_Attribute], names: Iterable[str], origin: str) -> list[int]:
    columns: dict[str, list[int]] = {}
    for column, attribute in enumerate(attributes):
        columns.setdefault(attribute.name, []).append(column)
    chosen = []
    for name in names:
        if name not in columns:
            raise ValueError(
                f"{path.name} must have an attribute for each label; '{name}' ({origin}) is not one: "
                f"{suggest(name, list(columns))}"
            )
        chosen.extend(columns[name])
    if len(set(chosen)) == len(attributes):
        raise ValueError(f"{path.name} must have a feature; every attribute is a label. Check {origin}.")
    return sorted(set(chosen))


def _check_label(path: Path, attribute: _Attribute) -> None:
    if attribute.is_named or not set(attribute.codes.values()) <= {0.0, 1.0}:
        raise ValueError(
            f"{path.name}: a label must be {{0,1}}; '{attribute.name}' is "
            f"{{{','.join(attribute.values or ())[:60]}}}. Check which attributes are labels."
        )


def _read_rows(path: Path, lines: Iterator[Line], attributes: list[_Attribute]) -> Features:
    first = next(lines, None)
    if first is None:
        raise ValueError(f"{path.name} must have rows below @data; there are none. Get the file again.")
    rows = chain([first], lines)
    blocks = iter(lambda: list(islice(rows, BLOCK)), [])
    if first[1].startswith("{"):
        _check_first_values(path, attributes)
        return sp.csr_array(stack_rows([_read_sparse(path, block, attributes) for block in blocks]))
    return np.concatenate([_read_dense(path, block, attributes) for block in blocks])


def _check_first_values(path: Path, attributes: list[_Attribute]) -> None:
    for attribute in attributes:
        if attribute.values and not attribute.is_named and attribute.codes[attribute.values[0]] != 0:
            raise ValueError(
                f"{path.name}: a sparse file leaves out the first value of each attribute, which must be 0; "
                f"'{attribute.name}' lists {attribute.values[0]} first. Write it as {{0,…}}, or the rows in full."
            )


def _read_dense(path: Path, block: list[Line], attributes: list[_Attribute]) -> npt.NDArray[np.float32]:
    width = len(attributes)
    texts = [text for _, text in block]
    if all(text.count(",") == width - 1 and _DENSE_LINE.fullmatch(text) for text in texts):
        values = np.array(",".join(texts).split(","), dtype=np.float64).reshape(-1, width)
        if _all_allowed(values, attributes):
            return _narrow(values)
    return _narrow(np.array([_parse_dense(path, *line, attributes) for line in block]))


def _narrow(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    # Too large for float32 becomes inf, which Dataset reports with its row and column.
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _all_allowed(values: npt.NDArray[np.float64], attributes: list[_Attribute]) -> bool:
    for codes, columns in _group_by_codes(attributes).items():
        if not np.isin(values[:, columns], codes).all():
            return False
    return not any(attribute.is_named for attribute in attributes)


def _group_by_codes(attributes: list[_Attribute]) -> dict[tuple[float, ...], list[int]]:
    groups: dict[tuple[float, ...], list[int]] = {}
    for column, attribute in enumerate(attributes):
        if attribute.values is not None and not attribute.is_named:
            groups.setdefault(tuple(attribute.codes.values()), []).append(column)
    return groups


def _parse_dense(path: Path, line: int, text: str, attributes: list[_Attribute]) -> list[float]:
    if text.startswith("{"):
        _fail(path, line, "rows must be all dense or all sparse; the first is dense, this one sparse. Convert it.")
    cells = _split_cells(text)
    if cells is None:
        _fail(path, line, f"values must be separated by commas; cannot read '{text[:60]}'. Quote values with spaces.")
    if len(cells) != len(attributes):
        _fail(
            path,
            line,
            f"a row must hold {len(attributes)} values; it holds {len(cells)}. "
            "Correct the line, or get the file again if it was cut off.",
        )
    return [_encode(path, line, *pair) for pair in zip(cells, attributes, strict=True)]


def _encode(path: Path, line: int, token: str, attribute: _Attribute) -> float:
    if token == "?":
        _fail(path, line, f"every value must be known; '{attribute.name}' is missing (?). Fill or drop the row.")
    number = attribute.encode(_unquote(token))
    if number is None:
        allowed = "a number" if attribute.values is None else f"one of {{{','.join(attribute.values)[:60]}}}"
        _fail(path, line, f"'{attribute.name}' must be {allowed}; it is '{token[:40]}'. Correct the value.")
    return number


def _read_sparse(path: Path, block: list[Line], attributes: list[_Attribute]) -> sp.csr_array:
    texts = [text for _, text in block]
    if all(map(_SPARSE_LINE.fullmatch, texts)):
        matrix = _convert_sparse(texts, attributes)
        if matrix is not None:
            return matrix
    rows = [_parse_sparse(path, *line, attributes) for line in block]
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.array([column for row in rows for column in row], dtype=np.int32)
    data = _narrow(np.array([value for row in rows for value in row.values()], dtype=np.float64))
    return _make_csr(data, indices, indptr, len(attributes))


def _convert_sparse(texts: list[str], attributes: list[_Attribute]) -> sp.csr_array | None:
    """Convert lines that look right at once; None when a column or a value is not allowed."""
    pairs = " ".join(texts).replace("{", " ").replace("}", " ").replace(",", " ").split()
    columns = np.array(pairs[0::2], dtype=np.float64)
    values = np.array(pairs[1::2], dtype=np.float64)
    if len(columns) and columns.max() >= len(attributes):
        return None
    indices = columns.astype(np.int32)
    if np.isin(indices, [j for j, attribute in enumerate(attributes) if attribute.is_named]).any():
        return None
    for codes, group in _group_by_codes(attributes).items():
        if not np.isin(values[np.isin(indices, group)], codes).all():
            return None
    counts = [0, *(text.count(",") + (len(text) > 2 and not text[1:-1].isspace()) for text in texts)]
    matrix = _make_csr(_narrow(values), indices, np.cumsum(counts), len(attributes))
    return matrix if matrix.nnz == len(values) else None  # fewer: a column occurred twice in a row


def _make_csr(
    data: npt.NDArray[np.float32], indices: npt.NDArray[np.int32], indptr: npt.NDArray[Any], width: int
) -> sp.csr_array:
    matrix = sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, width))
    matrix.sum_duplicates()
    return matrix


def _parse_sparse(path: Path, line: int, text: str, attributes: list[_Attribute]) -> dict[int, float]:
    if not text.startswith("{"):
        _fail(path, line, "rows must be all dense or all sparse; the first is sparse, this one dense. Convert it.")
    if not text.endswith("}"):
        _fail(path, line, "a sparse row must end with }; this one does not. Get the file again if it was cut off.")
    body, row, place = text[1:-1], {}, 0
    more = not body.isspace() and bool(body)
    while more:
        match = _SPARSE_CELL.match(body, place)
        if match is None:
            _fail(
                path,
                line,
                "a sparse row must read {column value, column value, …}; cannot read "
                f"'{body[place : place + 60].strip()}'. Quote values with spaces.",
            )
        column = int(match[1])
        if column >= len(attributes):
            _fail(path, line, f"columns must lie between 0 and {len(attributes) - 1}; found {column}. Correct it.")
        if column in row:
            _fail(path, line, f"a column may occur once per row; column {column} occurs twice. Remove one.")
        row[column] = _encode(path, line, match[2], attributes[column])
        place, more = match.end(), match[3] == ","
    return row


def _take_features(
    values: Features, attributes: list[_Attribute], columns: list[int]
) -> tuple[Features, tuple[str, ...]]:
    """Keep the feature columns; a named category becomes one 0/1 column per value."""
    if not any(attributes[j].is_named for j in columns):
        return values[:, columns], tuple(attributes[j].name for j in columns)
    blocks: list[Any] = []
    names: list[str] = []
    for j in columns:
        attribute, block = attributes[j], values[:, [j]]
        if attribute.is_named and attribute.values is not None:
            one_hot = (to_dense(block) == np.arange(len(attribute.values))).astype(np.float32)
            block = sp.csr_array(one_hot) if isinstance(block, sp.csr_array) else one_hot
            names += [f"{attribute.name}={value}" for value in attribute.values]
        else:
            names.append(attribute.name)
        blocks.append(block)
    if isinstance(values, sp.csr_array):
        return sp.csr_array(sp.hstack(blocks, format="csr")), tuple(names)
    return np.concatenate(blocks, axis=1), tuple(names)
