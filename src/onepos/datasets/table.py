"""Tables with one row per sample: CSV, TSV, JSON lines and Parquet.

`open_table` opens a file once and keeps what it found in a `Table`, from which the features, the labels or the columns
of an image table are taken. A file is opened again only to find the line that an error message names.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onepos.datasets.dataset import Dataset, Features, check_features
from onepos.datasets.files import BinaryFile, check_file, naming, open_binary, strip_suffix
from onepos.datasets.json_lines import read_json_lines
from onepos.datasets.raw import RawDataset
from onepos.labels import Labels, binarize
from onepos.long_labels import Answers
from onepos.reading import check_size
from onepos.validation import check_cases, check_known, find_repeat, name_some, read_groups

if TYPE_CHECKING:
    import pandas as pd

TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".jsonl", ".jsonl.gz")
# In a label cell these are names like any other; in a feature cell they stand for a missing number.
MISSING = ["", "NA", "N/A", "n/a", "<NA>", "nan", "NaN", "NAN", "null", "NULL", "None", "?"]

# How many columns a message about several explains, and how many it puts into the option that leaves them out.
_COLUMNS_EXPLAINED, _COLUMNS_DROPPED = 10, 40
_DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}"
_DELIMITERS = ",;\t|"
# 1.234,50, as files that are not separated by commas may hold it; so many cells are looked at before all are.
_DECIMAL_COMMA, _FIRST_CELLS = r"[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?", 100

Names = str | Sequence[str] | None


def read_table(
    path: str | Path,
    *,
    label: str | None = None,
    separator: str | None = None,
    label_columns: Names = None,
    drop: Names = None,
) -> Dataset:
    """Read a table with labels and numeric features; see `open_table` and `Table.to_dataset`."""
    table = open_table(path, text=[label])
    read = table.to_dataset(label=label, separator=separator, label_columns=label_columns, drop=drop)
    assert isinstance(read, Dataset)  # since it is not to be raw
    return read


def open_table(path: str | Path, *, text: Sequence[str | None] = ()) -> Table:
    """Read a table into memory; the file is opened once.

    Args:
        path: `.csv`, `.tsv` (also `.gz`; first line: column names; UTF-8), `.jsonl` (also `.gz`; an object per line)
            or `.parquet`. Cells of a CSV file are separated by commas, semicolons, tabs or bars, whichever its first
            line holds most of; without commas between cells, numbers may be written 1.234,50.
        text: Columns of a text file whose cells are kept as they are written, where the table has them.
    """
    path = check_file(Path(path))
    if path.suffix.lower() == ".parquet":
        frame, delimiter = _read_parquet(path), ""
    elif path.name.lower().endswith((".jsonl", ".jsonl.gz")):
        frame, delimiter = read_json_lines(path), ""
    else:
        with naming(path, "Save it as UTF-8 text with the column names in the first line."), open_binary(path) as file:
            try:
                frame, delimiter = _read_text(path, file, set(text))
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path.name}{_find_other_encoding(file)}: the text must be UTF-8; it is in another encoding, such "
                    "as Latin-1 or UTF-16. Save the file as UTF-8 (in Excel: CSV UTF-8)."
                ) from error
    frame.columns = [str(column) for column in frame.columns]
    if frame.empty:
        raise ValueError(f"{path.name} must hold at least one row; it holds none. Check the file.")
    return Table(path, frame, delimiter)


@dataclass(frozen=True, eq=False)
class Table:
    """The cells of a table, its file, and the character between two cells of a text file (empty for Parquet)."""

    path: Path
    frame: pd.DataFrame
    delimiter: str

    def to_dataset(
        self,
        *,
        label: str | None = None,
        separator: str | None = None,
        label_columns: Names = None,
        drop: Names = None,
        features: Sequence[str] | None = None,
        is_raw: bool | None = False,
        answers: Answers | None = None,
    ) -> Dataset | RawDataset:
        """Labels from one column or from 0/1 columns, features from all others.

        True and False count as 1 and 0. Features are kept as float32, or float64 where float32 would blur a column.

        Args:
            label: Column that holds the label; an empty cell means no positive label.
            separator: The text between several labels of one cell, for example ";".
            label_columns: Columns of 1 (yes), 0 and empty cells (unknown), one per label, in the order of the table: a
                name, a pattern such as "label_*", or a list of both. A 0 is a known no where some cell is empty;
                where none is, a 0 may be a no or unknown.
            drop: Columns to leave out: a name, a pattern, or a list of both.
            features: The only columns to take as features, which a model needs; all others are left out.
            is_raw: False: features must be numbers, known and finite. True: they are kept as they are. None: they are
                kept as they are where some are no numbers, or missing.
            answers: The words for yes, no and unknown in label columns. A word for no beyond the usual ones is always
                a known no.
        """
        if (label is None) == (label_columns is None):
            raise ValueError(
                f"{self.path.name} needs either a label column (label, --label) or label columns (label_columns, "
                f"--label-columns); {'none' if label is None else 'both'} given. Name one: its columns are "
                f"{', '.join(self.frame.columns[:12])} …"
            )
        with naming(self.path):
            frame = self.frame.drop(columns=self.match(drop))
            if label is not None:
                self.check_columns([label], frame.columns)
            names = self._label_names(frame, label_columns) if label is None else [label]
            inputs = frame.drop(columns=names)
            X = self._to_inputs(inputs, features, is_raw)
            return self._build(X, self._to_labels(frame[names], label, separator, answers), inputs.columns, features)

    def to_labels(
        self,
        *,
        label: str | None = None,
        separator: str | None = None,
        label_columns: Names = None,
        drop: Names = None,
        answers: Answers | None = None,
    ) -> Labels:
        """The labels alone, from one column or from 0/1 columns; see `to_dataset`."""
        with naming(self.path):
            frame = self.frame.drop(columns=self.match(drop))
            names = self._label_names(frame, label_columns) if label is None else [label]
            self.check_columns(names, frame.columns)
            return self._to_labels(frame[names], label, separator, answers)

    def _label_names(self, frame: pd.DataFrame, label_columns: Names) -> list[str]:
        found = [name for name in self.match(label_columns) if name in frame.columns]
        if not found:
            raise ValueError(
                f"{self.path.name} must have label columns; all that are named are dropped. Name others, or drop fewer."
            )
        return found

    def _to_labels(
        self, frame: pd.DataFrame, label: str | None, separator: str | None, answers: Answers | None
    ) -> Labels:
        if label is not None:
            indicator, names = binarize(_label_cells(frame[label]), separator)
            return Labels.from_arrays(indicator, None, names)
        return self._read_answers(frame, answers or Answers())

    def with_labels(
        self,
        inputs: pd.DataFrame,
        labels: Labels,
        features: Sequence[str] | None,
        is_raw: bool | None,
    ) -> Dataset | RawDataset:
        """Some columns of this table beside labels; see `to_dataset`."""
        with naming(self.path):
            X = self._to_inputs(inputs, features, is_raw)
            return self._build(X, labels, inputs.columns, features)

    def _to_inputs(
        self, inputs: pd.DataFrame, features: Sequence[str] | None, is_raw: bool | None
    ) -> pd.DataFrame | npt.NDArray[np.float64]:
        """The cells of a raw table, or numbers."""
        if is_raw or (is_raw is None and _is_raw(inputs)):
            return inputs if features is None else inputs[[name for name in inputs.columns if name in features]]
        if features is not None:
            self.check_columns(features, inputs.columns)
            inputs = inputs[list(features)]
        if not len(inputs.columns):
            raise ValueError(
                f"{self.path.name} must have a column to learn from; its columns ({name_some(self.frame.columns)}) "
                "hold labels or ids, or are left out. Add a column, or leave fewer out."
            )
        return self._to_features(inputs, are_needed=features is not None)

    def _build(
        self, X: Any, labels: Labels, columns: Iterable[str], features: Sequence[str] | None
    ) -> Dataset | RawDataset:
        name, file = strip_suffix(self.path), self.path.name
        Y, names, negative = labels.observed, tuple(labels.classes), labels.known_negative
        if not isinstance(X, np.ndarray):
            return RawDataset(name, X, Y, names, source=file, known_negative=negative, at_random=labels.at_random)
        used = tuple(columns if features is None else features)
        return Dataset(name, X, Y, names, used, source=file, known_negative=negative, at_random=labels.at_random)

    def without(self, drop: Names) -> pd.DataFrame:
        """The cells of all columns but those named or matched by a pattern."""
        with naming(self.path):
            return self.frame.drop(columns=self.match(drop))

    def to_features(
        self, columns: Sequence[str] | None = None, drop: Names = None
    ) -> tuple[Features, tuple[str, ...] | None]:
        """The features alone; see `read_features`."""
        with naming(self.path):
            frame = self.frame.drop(columns=self.match(drop))
            if columns is not None:
                self.check_columns(columns, frame.columns)
                frame = frame[list(columns)]
            return check_features(self._to_features(frame, are_needed=columns is not None)), tuple(frame.columns)

    def to_texts(self, column: str) -> list[str]:
        """The cells of a column as text, such as ids; to keep those of a text file as written, name it in `open_table`.

        Whole numbers have no decimal point, and missing cells are empty.
        """
        with naming(self.path):
            self.check_columns([column])
            return [str(cell) for cell in _label_cells(self.frame[column])]

    def to_groups(self, column: str) -> npt.NDArray[np.int64]:
        """A number per row, equal where the cells of a column are; a row with an empty cell is alone."""
        with naming(self.path):
            self.check_columns([column])
            cells = self.frame[column]
            return read_groups(cells.astype(object).mask(cells.astype(str).str.strip() == ""), len(cells))

    def check_columns(self, wanted: Sequence[str], present: Iterable[str] | None = None) -> None:
        """Raise a ValueError where a column is missing."""
        check_known(wanted, self.frame.columns if present is None else present, f"{self.path.name} has no column")

    def place(self, row: int) -> str:
        """The line of a row in a text file, else its number, for an error message."""
        return f"line {self.line(row)}" if self.delimiter else f"row {row}"

    def line(self, row: int) -> int:
        """The line in which a row of a text file ends; counted from 1."""
        with open_binary(self.path) as file, closing(_cells(file, self.delimiter)) as rows:
            return next(islice(rows, row + 1, None))[0]

    def match(self, patterns: Names) -> list[str]:
        """The columns named or matched by a pattern, in the order of the table."""
        wanted = [patterns] if isinstance(patterns, str) else list(patterns or ())
        chosen: set[str] = set()
        for pattern in wanted:
            # A name may itself hold the characters of a pattern.
            found = {column for column in self.frame.columns if column == pattern or fnmatchcase(column, pattern)}
            if not found:
                self.check_columns([pattern])
            chosen |= found
        return [column for column in self.frame.columns if column in chosen]

    def _to_floats(self, frame: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Numbers, and True and False as 1 and 0, in full precision; missing cells are NaN."""
        import pandas as pd

        # Where a cell is missing, True and False come as objects.
        flags = [
            column
            for column in frame.columns
            if frame[column].dtype == object and pd.api.types.infer_dtype(frame[column], skipna=True) == "boolean"
        ]
        return np.asarray(frame.astype(dict.fromkeys(flags, "boolean")).to_numpy(dtype=np.float64, na_value=np.nan))

    def _to_features(self, frame: pd.DataFrame, *, are_needed: bool) -> npt.NDArray[np.float64]:
        faults = list(filter(None, (_find_text(frame[column]) for column in frame.columns)))
        of_text = {fault.column for fault in faults}
        numbers = [column for column in frame.columns if column not in of_text]
        X = self._to_floats(frame[numbers])
        if not np.isfinite(X).all():
            faults += filter(None, map(_find_not_finite, numbers, X.T))
        if faults:
            order = {column: place for place, column in enumerate(frame.columns)}
            faults.sort(key=lambda fault: order[fault.column])
            raise ValueError(f"{self._describe(faults)}. {_remedy(faults, are_needed)}")
        return X

    def _describe(self, faults: list[_Fault]) -> str:
        """What must hold of features, and the columns of which it does not, each with its first wrong cell."""
        first = faults[0]
        if len(faults) == 1:
            return f"{self.path.name}, {self.place(first.row)}: {first.alone}"
        shown = faults[:_COLUMNS_EXPLAINED]
        places = {row: self.place(row) for row in {fault.row for fault in shown}}
        found = ", ".join(f"'{fault.column}' {fault.among} ({fault.example}{places[fault.row]})" for fault in shown)
        more = f" and {len(faults) - len(shown)} more" if len(faults) > len(shown) else ""
        return (
            f"{self.path.name}: features must be numbers, known and finite; {len(faults)} columns are not: "
            f"{found}{more}"
        )

    def _read_answers(self, frame: pd.DataFrame, answers: Answers) -> Labels:
        """Label columns; a 0 is a known no where some cell is unknown, or where the words for no were given."""
        check_cases(frame.columns, "the line of column names")
        codes = np.column_stack([answers.read(frame[column]) for column in frame.columns])
        if (codes == -2).any():
            row, column = (int(k) for k in np.argwhere(codes == -2)[0])
            raise ValueError(
                f"{self.path.name}, {self.place(row)}: label columns must hold 1 (yes), 0 (no) or nothing (unknown); "
                f"column '{frame.columns[column]}' holds '{str(frame.iloc[row, column])[:40]}'. Correct it, name the "
                "right label columns, or say what it means with --yes, --no or --unknown."
            )
        is_told = bool((codes == -1).any()) or answers.tells_no
        return Labels.from_arrays(codes == 1, codes == 0 if is_told else None, list(frame.columns))


@dataclass(frozen=True)
class _Fault:
    """Why a column can not be a feature: its first wrong cell, and the words for it."""

    column: str
    row: int
    value: str
    """The cell, as it is written in a message."""
    alone: str
    """What must hold and what was found, where this is the only column."""
    among: str
    """What the column holds, where several columns are named."""
    remedy: str
    """What to do, where this is the only column and need not be a feature."""

    @property
    def example(self) -> str:
        return f"{self.value}, " if self.value else ""


def _find_text(column: pd.Series[Any]) -> _Fault | None:
    """The first cell that is no number; a column of True and False, or of missing cells alone, has none."""
    import pandas as pd

    kind = pd.api.types
    if kind.is_numeric_dtype(column) and not kind.is_complex_dtype(column):
        return None
    if column.dtype == object and kind.infer_dtype(column, skipna=True) in ("boolean", "empty"):
        return None
    is_text = pd.to_numeric(column.astype(object), errors="coerce").isna() & column.notna()
    if kind.is_datetime64_any_dtype(column):
        is_text = column.notna()
    row = int(np.argmax(is_text.to_numpy())) if is_text.any() else 0
    value = f"'{str(column.iloc[row])[:40]}'"
    examples = column[is_text].head(20).astype(str)
    among = "holds dates" if len(examples) and examples.str.match(_DATE).all() else "holds text"
    alone = f"features must be numbers; column '{column.name}' holds {value}"
    remedy = "Leave the column out with drop ({}), encode it as numbers, or name it as the label."
    return _Fault(str(column.name), row, value, alone, among, remedy)


def _is_raw(frame: pd.DataFrame) -> bool:
    """Whether some cells are missing, or no numbers."""
    return bool(frame.isna().to_numpy().any()) or any(_find_text(frame[column]) for column in frame.columns)


def _find_not_finite(name: str, values: npt.NDArray[np.float64]) -> _Fault | None:
    """The first cell of a column of numbers that is missing or infinite."""
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong) == 0:
        return None
    row = int(wrong[0])
    is_missing = bool(np.isnan(values[row]))
    must, found = ("known", "is empty") if is_missing else ("finite", f"holds {values[row]}")
    alone = f"every feature must be {must}; column '{name}' {found}"
    remedy = f"{'Fill' if is_missing else 'Correct'} it, remove the row, or leave the column out with drop ({{}})."
    among = "has missing cells" if is_missing else "has infinite numbers"
    return _Fault(name, row, "" if is_missing else str(values[row]), alone, among, remedy)


def _remedy(faults: Sequence[_Fault], are_needed: bool) -> str:
    """What to do about columns that can not be features."""
    if are_needed:
        return "The model was fitted with numbers there: encode, fill or correct the cells, or remove their rows."
    remedy = faults[0].remedy if len(faults) == 1 else "Encode, fill or correct them, or leave them out with drop ({})."
    return remedy.format(drop_option([fault.column for fault in faults]))


def drop_option(columns: Sequence[str]) -> str:
    """The option of the command line that leaves these columns out, ready to be copied."""
    # A comma separates columns; in a pattern ? matches it.
    names = [column.replace(",", "?") for column in columns[:_COLUMNS_DROPPED]]
    return f"--drop {shlex.quote(','.join(names))}{' …' if len(columns) > _COLUMNS_DROPPED else ''}"


def _label_cells(column: pd.Series[Any]) -> list[Any]:
    """The cells as text or lists; whole numbers without a decimal point, missing cells empty."""
    import pandas as pd

    if pd.api.types.is_float_dtype(column) and (column.dropna() % 1 == 0).all():
        column = column.astype("Int64")
    if column.dtype == object:
        _check_names(column)
    return [
        (cell if isinstance(cell, list | tuple | np.ndarray) else str(cell)) if is_known else ""
        for cell, is_known in zip(column.astype(object), column.notna(), strict=True)
    ]


def _check_names(column: pd.Series[Any]) -> None:
    for row, cell in enumerate(column):
        if isinstance(cell, dict | bytes):
            raise ValueError(
                f"a label or an id must be text or a number; column '{column.name}' holds a {type(cell).__name__} in "
                f"row {row}. Name another column, or write text in it."
            )


def _read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        import pyarrow.parquet
    except ImportError:
        raise ImportError(
            f"{path.name} needs pyarrow, which is not installed. Run: pip install 'onepos[parquet]'"
        ) from None
    with naming(path):
        facts = pyarrow.parquet.ParquetFile(path).metadata
        stored = sum(facts.row_group(k).total_byte_size for k in range(facts.num_row_groups))
        check_size(path, max(stored, 8 * facts.num_rows * facts.num_columns))  # equal cells take next to no room in it
        frame = pd.read_parquet(path)
        _check_dates(frame)
        return frame


def _check_dates(frame: pd.DataFrame) -> None:
    """Refuse dates outside the calendar: Parquet may hold years that Python can not write down."""
    for name, kind in zip(frame.columns, frame.dtypes, strict=True):
        if kind.kind == "M":
            years = frame[name].dt.year.dropna()
            if len(years) and not (years.min() >= 1 and years.max() <= 9999):
                wrong = int(years.max() if years.max() > 9999 else years.min())
                raise ValueError(
                    f"a date must be of the years 1 to 9999; column '{name}' holds one of the year {wrong}. Correct "
                    "it, or leave the column out."
                )


def _read_text(path: Path, file: BinaryFile, text: set[str | None]) -> tuple[pd.DataFrame, str]:
    """The cells and the delimiter of a CSV or TSV file."""
    import pandas as pd

    delimiter = _find_delimiter(path, file.readline().decode("utf-8-sig"))
    with closing(_cells(file, delimiter)) as rows:
        _, columns = next(rows, (0, list[str]()))
    _check_header(path, columns)
    file.seek(0)
    n_lines = sum(block.count(b"\n") for block in iter(partial(file.read, 1 << 20), b""))
    check_size(path, 8 * n_lines * len(columns))  # short lines are filled up
    file.seek(0)
    try:
        frame = pd.read_csv(
            file,
            sep=delimiter,
            dtype={column: str for column in columns if column in text},
            keep_default_na=False,
            na_values={column: MISSING for column in columns if column not in text},
            low_memory=False,
        )
    except pd.errors.ParserError:
        _check_widths(path, file, delimiter, len(columns))
        raise
    if _may_be_uneven(frame):
        _check_widths(path, file, delimiter, len(columns))
    if delimiter != ",":
        _read_decimal_commas(frame, text)
    return frame, delimiter


def _find_delimiter(path: Path, header: str) -> str:
    """What separates cells: of a `.csv` file the mark that its first line holds most of, outside quotation marks."""
    return "\t" if ".tsv" in path.name.lower() else max(_DELIMITERS, key=re.sub('"[^"]*"', "", header).count)


def _read_decimal_commas(frame: pd.DataFrame, text: set[str | None]) -> None:
    """Turn columns of which every cell is a number with a comma for a point, or a whole one, into numbers."""
    import pandas as pd

    for name in frame.columns:
        if name in text or pd.api.types.is_numeric_dtype(frame[name]):
            continue
        known = frame[name].dropna()
        if len(known) and not re.fullmatch(_DECIMAL_COMMA, str(known.iloc[0]).strip()):
            continue  # of most columns the first cell tells, and the others take long
        cells = known.astype(str).str.strip()
        is_number = all(cells.iloc[:_FIRST_CELLS].str.fullmatch(_DECIMAL_COMMA))
        if is_number and cells.str.contains(",").any() and cells.str.fullmatch(_DECIMAL_COMMA).all():
            frame[name] = pd.to_numeric(cells.str.replace(".", "").str.replace(",", ".")).reindex(frame.index)


def read_header(path: Path) -> list[str]:
    """The column names of a text file; none of files of another kind."""
    if not check_file(path).name.lower().endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz")):
        return []
    with naming(path), open_binary(path) as file:
        delimiter = _find_delimiter(path, file.readline().decode("utf-8-sig", "replace"))
        with closing(_cells(file, delimiter)) as rows:
            return next(rows, (0, list[str]()))[1]


def _find_other_encoding(file: BinaryFile) -> str:
    file.seek(0)
    for number, line in enumerate(file, start=1):
        try:
            line.decode()
        except UnicodeDecodeError:
            return f", line {number}"
    return ""


def _check_header(path: Path, columns: list[str]) -> None:
    if not columns:
        raise ValueError(f"{path.name} must start with a line of column names; it is empty. Check the file.")
    if repeat := find_repeat(columns):
        first, second = repeat
        raise ValueError(
            f"{path.name} must name its columns differently; '{columns[first]}' is both column {first + 1} and "
            f"{second + 1}. Rename one."
        )


def _cells(file: BinaryFile, delimiter: str) -> Generator[tuple[int, list[str]]]:
    """Yield line number and cells of each row, first those of the column names; the file stays open."""
    file.seek(0)
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        reader = csv.reader(text, delimiter=delimiter)
        for cells in reader:
            if len(cells) > 1 or "".join(cells).strip():  # pandas skips blank lines too
                yield reader.line_num, cells
    finally:
        text.detach()


def _may_be_uneven(frame: pd.DataFrame) -> bool:
    """Whether a row may be too short or too long, which pandas fills up or shifts without an error."""
    import pandas as pd

    last = frame.iloc[:, -1]
    return not isinstance(frame.index, pd.RangeIndex) or bool((last.isna() | (last.astype(str) == "")).any())


def _check_widths(path: Path, file: BinaryFile, delimiter: str, width: int) -> None:
    """Raise a ValueError at the first row that is too short or too long."""
    with closing(_cells(file, delimiter)) as rows:
        for line, cells in rows:
            if len(cells) != width:
                raise ValueError(
                    f"{path.name}, line {line}: a row must hold {width} cells like the first line; it holds "
                    f"{len(cells)}. Correct the line, or get the file again if it was cut off."
                )
