"""ARFF, as Mulan (with an XML file) and MEKA (with `-C n` in the relation) write it.

Rows are read in blocks. A block of plain numbers is checked by one regular expression per line and converted at
once; whatever else occurs (quotes, named categories, mistakes) goes through the slow parser, which knows the
line and can say what is wrong with it. Sparse rows go straight into CSR.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar
from xml.parsers import expat

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from onepos.datasets.dataset import Dataset, Features
from onepos.datasets.files import check_file, naming, open_binary, strip_suffix
from onepos.reading import check_size
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
Row = TypeVar("Row")


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
        width = sum(len(attributes[j].values or ()) if attributes[j].is_named else 1 for j in columns)
        check_size(path, 4 * values.shape[0] * (1 if sp.issparse(values) else width))
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

    def encode(self, token: str) -> float:
        """Return the number for a written value."""
        if token == "?":
            raise ValueError(f"every value must be known; '{self.name}' is missing (?). Fill or drop the row.")
        value = _unquote(token)
        if value in self.codes:
            return self.codes[value]
        if not self.is_named and re.fullmatch(_NUMBER, value):
            number = float(value)
            if self.values is None or number in self.codes.values():
                return number
        allowed = "a number" if self.values is None else f"one of {{{','.join(self.values)[:60]}}}"
        raise ValueError(f"'{self.name}' must be {allowed}; it is '{token[:40]}'. Correct the value.")


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


@contextmanager
def _at(path: Path, line: int) -> Iterator[None]:
    """Begin the message of an error with the line it is about."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path.name}, line {line}: {error}") from None


def _unquote(token: str) -> str:
    if token[0] not in "'\"":
        return token
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), token[1:-1])


def _read_header(path: Path, lines: Iterator[Line]) -> tuple[str, list[_Attribute]]:
    relation, line = "", 0
    attributes: list[_Attribute] = []
    for line, text in lines:
        keyword = text.split(maxsplit=1)[0].lower()
        with _at(path, line):
            if keyword == "@data":
                if not attributes:
                    raise ValueError("@attribute lines must come before @data; there is none. Get the file again.")
                return relation, attributes
            if keyword == "@relation":
                relation = text[len(keyword) :]
            elif keyword == "@attribute":
                attributes.append(_read_attribute(text))
            else:
                raise ValueError(
                    "a header line must start with @relation, @attribute or @data; it starts with "
                    f"'{keyword[:40]}'. Check that this is an ARFF file."
                )
    raise ValueError(f"{path.name} must have a line @data with rows below; it ends at line {line}. Get the file again.")


def _read_attribute(text: str) -> _Attribute:
    match = _ATTRIBUTE.fullmatch(text)
    if match is None:
        raise ValueError(f"@attribute must give a name and a type; found '{text[:60]}'. Quote names with spaces.")
    name, kind = _unquote(match[1]), match[2]
    if kind.startswith("{"):
        values, unread = _split_cells(_CELL, kind[1:].rpartition("}")[0])
        if unread is not None:
            raise ValueError(f"'{name}' must list its values as {{a,b,…}}; found '{kind[:60]}'. Correct the line.")
        return _Attribute(name, tuple(_unquote(value[1]) for value in values))
    word = kind.split()[0].lower()
    if word not in ("numeric", "real", "integer"):
        raise ValueError(
            f"'{name}' must be numeric or {{a,b,…}}; it is {word[:40]}. Remove or encode the attribute first."
        )
    return _Attribute(name)


def _split_cells(cell: re.Pattern[str], text: str) -> tuple[list[re.Match[str]], str | None]:
    """Split at the commas outside quotes; also return where the text can not be read, None where all of it can."""
    cells: list[re.Match[str]] = []
    place, more = 0, True
    while more and (match := cell.match(text, place)):
        cells.append(match)
        place, more = match.end(), match[0].endswith(",")
    return cells, text[place : place + 60].strip() if more else None


def _choose_labels(
    path: Path, relation: str, attributes: list[_Attribute], xml: str | Path | None, labels: int | Sequence[str] | None
) -> list[int]:
    label_file = check_file(Path(xml)) if xml is not None else find_label_xml(path)
    meka = _MEKA_LABELS.search(relation)
    origin = "labels"
    if labels is None and label_file is not None:
        labels, origin = read_label_names(label_file), label_file.name
    elif labels is None and meka is not None:
        labels = int(meka[1])
    if labels is None:
        raise ValueError(
            f"{path.name} must come with its labels; there is no {strip_suffix(path)}.xml beside it and no -C in "
            "@relation. Give the XML file, or the names or number of the label attributes."
        )
    if isinstance(labels, int):
        chosen = _count_labels(path, len(attributes), labels)
    else:
        chosen = _find_labels(path, attributes, [labels] if isinstance(labels, str) else labels, origin)
    for attribute in (attributes[column] for column in chosen):
        if attribute.is_named or not set(attribute.codes.values()) <= {0.0, 1.0}:
            raise ValueError(
                f"{path.name}: a label must be {{0,1}}; '{attribute.name}' is "
                f"{{{','.join(attribute.values or ())[:60]}}}. Check which attributes are labels."
            )
    return chosen


def _count_labels(path: Path, n_attributes: int, count: int) -> list[int]:
    if not 0 < abs(count) < n_attributes:
        raise ValueError(
            f"{path.name} must keep at least one label and one feature; {abs(count)} of its {n_attributes} "
            "attributes would be labels. Correct the number of labels."
        )
    return list(range(n_attributes))[:count] if count > 0 else list(range(n_attributes))[count:]


def _find_labels(path: Path, attributes: list[_Attribute], names: Sequence[str], origin: str) -> list[int]:
    known = {attribute.name for attribute in attributes}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"{path.name} must have an attribute for each label; '{unknown[0]}' ({origin}) is not one: "
            f"{suggest(unknown[0], [attribute.name for attribute in attributes])}"
        )
    wanted = set(names)
    chosen = [column for column, attribute in enumerate(attributes) if attribute.name in wanted]
    if len(chosen) == len(attributes):
        raise ValueError(f"{path.name} must have a feature; every attribute is a label. Check {origin}.")
    return chosen


def _read_rows(path: Path, lines: Iterator[Line], attributes: list[_Attribute]) -> Features:
    first = next(lines, None)
    if first is None:
        raise ValueError(f"{path.name} must have rows below @data; there are none. Get the file again.")
    rows = chain([first], lines)
    blocks = iter(lambda: list(islice(rows, BLOCK)), [])
    if not first[1].startswith("{"):
        return np.concatenate([_read_dense(path, block, attributes) for block in blocks])
    for attribute in attributes:
        if attribute.values and attribute.codes[attribute.values[0]] != 0:
            raise ValueError(
                f"{path.name}: a sparse file leaves out the first value of each attribute, which must be 0; "
                f"'{attribute.name}' lists {attribute.values[0]} first. Write it as {{0,…}}, or the rows in full."
            )
    return sp.csr_array(sp.vstack([_read_sparse(path, block, attributes) for block in blocks], format="csr"))


def _read_dense(path: Path, block: list[Line], attributes: list[_Attribute]) -> npt.NDArray[np.float32]:
    width, texts = len(attributes), [text for _, text in block]
    if all(text.count(",") == width - 1 and _DENSE_LINE.fullmatch(text) for text in texts):
        values = np.array(",".join(texts).split(","), dtype=np.float64).reshape(-1, width)
        if all(np.isin(values[:, columns], codes).all() for codes, columns in _group_by_codes(attributes)):
            return _narrow(values)
    return _narrow(np.array(_parse_lines(path, block, _parse_dense, attributes)))


def _parse_lines(
    path: Path, block: list[Line], parse: Callable[[str, list[_Attribute]], Row], attributes: list[_Attribute]
) -> list[Row]:
    rows = []
    for number, text in block:
        with _at(path, number):
            rows.append(parse(text, attributes))
    return rows


def _narrow(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    # Too large for float32 becomes inf, which Dataset reports with its row and column.
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _group_by_codes(attributes: list[_Attribute]) -> Iterable[tuple[tuple[float, ...], list[int]]]:
    """The numbers that may occur, and the columns they may occur in: none where the values are words, not numbers."""
    groups: dict[tuple[float, ...], list[int]] = {}
    for column, attribute in enumerate(attributes):
        if attribute.values is not None:
            groups.setdefault(() if attribute.is_named else tuple(attribute.codes.values()), []).append(column)
    return groups.items()


def _parse_dense(text: str, attributes: list[_Attribute]) -> list[float]:
    if text.startswith("{"):
        raise ValueError("rows must be all dense or all sparse; the first is dense, this one sparse. Convert it.")
    cells, unread = _split_cells(_CELL, text)
    if unread is not None:
        raise ValueError(f"values must be separated by commas; cannot read '{unread}'. Quote values with spaces.")
    if len(cells) != len(attributes):
        raise ValueError(
            f"a row must hold {len(attributes)} values; it holds {len(cells)}. "
            "Correct the line, or get the file again if it was cut off."
        )
    return [attribute.encode(cell[1]) for cell, attribute in zip(cells, attributes, strict=True)]


def _read_sparse(path: Path, block: list[Line], attributes: list[_Attribute]) -> sp.csr_array:
    texts = [text for _, text in block]
    if all(map(_SPARSE_LINE.fullmatch, texts)) and (matrix := _convert_sparse(texts, attributes)) is not None:
        return matrix
    rows = _parse_lines(path, block, _parse_sparse, attributes)
    values = [value for row in rows for value in row.values()]
    return _make_csr(values, [column for row in rows for column in row], [len(row) for row in rows], len(attributes))


def _convert_sparse(texts: list[str], attributes: list[_Attribute]) -> sp.csr_array | None:
    """Convert lines that look right at once; None when a column or a value is not allowed."""
    pairs = " ".join(texts).replace("{", " ").replace("}", " ").replace(",", " ").split()
    columns, values = (np.array(numbers, dtype=np.float64) for numbers in (pairs[0::2], pairs[1::2]))
    if len(columns) and columns.max() >= len(attributes):
        return None
    indices = columns.astype(np.int32)
    if not all(np.isin(values[np.isin(indices, group)], codes).all() for codes, group in _group_by_codes(attributes)):
        return None
    counts = [text.count(",") + bool(text[1:-1].strip()) for text in texts]
    matrix = _make_csr(values, indices, counts, len(attributes))
    return matrix if matrix.nnz == len(values) else None  # fewer: a column occurred twice in a row


def _make_csr(values: npt.ArrayLike, indices: npt.ArrayLike, counts: list[int], width: int) -> sp.csr_array:
    data, columns = _narrow(np.asarray(values, dtype=np.float64)), np.asarray(indices, dtype=np.int32)
    matrix = sp.csr_array((data, columns, np.cumsum([0, *counts])), shape=(len(counts), width))
    matrix.sum_duplicates()
    return matrix


def _parse_sparse(text: str, attributes: list[_Attribute]) -> dict[int, float]:
    if not text.startswith("{"):
        raise ValueError("rows must be all dense or all sparse; the first is sparse, this one dense. Convert it.")
    if not text.endswith("}"):
        raise ValueError("a sparse row must end with }; this one does not. Get the file again if it was cut off.")
    body = text[1:-1].strip()
    cells, unread = _split_cells(_SPARSE_CELL, body) if body else ([], None)
    if unread is not None:
        raise ValueError(
            f"a sparse row must read {{column value, column value, …}}; cannot read '{unread}'. "
            "Quote values with spaces."
        )
    row: dict[int, float] = {}
    for cell in cells:
        column = int(cell[1])
        if column >= len(attributes):
            raise ValueError(f"columns must lie between 0 and {len(attributes) - 1}; found {column}. Correct it.")
        if column in row:
            raise ValueError(f"a column may occur once per row; column {column} occurs twice. Remove one.")
        row[column] = attributes[column].encode(cell[2])
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
            blocks.append((to_dense(block) == np.arange(len(attribute.values))).astype(np.float32))
            names += [f"{attribute.name}={value}" for value in attribute.values]
        else:
            blocks.append(block)
            names.append(attribute.name)
    if sp.issparse(values):
        return sp.csr_array(sp.hstack(blocks, format="csr")), tuple(names)
    return np.concatenate(blocks, axis=1), tuple(names)


def read_label_names(path: Path) -> tuple[str, ...]:
    """Return the label names of Mulan's XML file in its order; nested labels are flattened.

    A file with a document type declaration is refused: Mulan's files have none, and entities declared there
    could grow without bound or point at other files.
    """
    names: list[str] = []
    parser = expat.ParserCreate(namespace_separator=" ")

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag.split(" ")[-1] != "label":
            return
        if "name" not in attributes:
            raise ValueError(
                f"{path.name}, line {parser.CurrentLineNumber}: a label must have a name; this one has none. Add it."
            )
        names.append(attributes["name"])

    def refuse(*_: Any) -> None:
        raise ValueError(
            f"{path.name} must not declare a document type or entities; line {parser.CurrentLineNumber} does. "
            "Remove the declaration."
        )

    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = refuse
    with naming(path), open_binary(path) as handle:
        parser.ParseFile(handle)
    if not names:
        raise ValueError(f"{path.name} must list labels as <label name=…>; it lists none. Get the file again.")
    return tuple(names)


def find_label_xml(arff: Path) -> Path | None:
    """Return the XML beside an ARFF file: the same stem, or the stem less its last words (`-train`, `-sparse`)."""
    stem = arff.name.removesuffix(".gz").removesuffix(".arff")
    while stem:
        for suffix in (".xml", ".xml.gz"):
            candidate = arff.with_name(stem + suffix)
            if candidate.is_file():
                return candidate
        stem = stem.rpartition("-")[0]
    return None
