"""How the cells of a column are read: as text, numbers, booleans or dates, whatever their dtype."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from numbers import Number
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from onepos.datasets.table import MISSING

Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Dates: TypeAlias = npt.NDArray[np.datetime64]
Storage: TypeAlias = Literal["number", "boolean", "date", "duration", "text", "category", "empty", "other"]
"""What the cells are before they are read."""

TRUE_AND_FALSE = (("true", "false"), ("yes", "no"), ("y", "n"), ("t", "f"))
# The ways to write a date, tried in this order; the one that reads most cells is kept. Times may follow the date.
DATE_FORMATS = (
    "ISO8601",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%d.%m.%Y",
    "%Y/%m/%d",
    "%d-%m-%Y",
    "%d %b %Y",
    "%d %B %Y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%d-%b-%Y",
    "%m/%d/%Y %H:%M",
    "%d/%m/%Y %H:%M",
    "%d.%m.%Y %H:%M",
    "%m/%d/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M:%S",
    "%d.%m.%Y %H:%M:%S",
    "%Y/%m/%d %H:%M:%S",
)

_STORAGES: dict[str, Storage] = {
    "string": "text",
    "boolean": "boolean",
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "number",
    "datetime64": "date",
    "datetime": "date",
    "date": "date",
    "period": "date",
    "timedelta64": "duration",
    "timedelta": "duration",
    "empty": "empty",
    "categorical": "category",
}
_MISSING = frozenset(MISSING)
FINITE, SINGLE = "finite numbers", "single values, such as numbers, dates and text"
"""What every column must hold; a column that does not can only be corrected or left out."""
_DATE = r"(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{4}|[A-Za-z]{3,9} \d{1,2}, \d{4})(?:[ T].*)?"


class TableError(ValueError):
    """A table that can not be encoded; the message does not name its file."""


class CellFault(Exception):
    """A cell that is not what its column holds.

    Attributes:
        row: Its row in the block, counted from 0.
        found: What was found, for a message.
        must_hold: What the column must hold; empty where that follows from its kind.
    """

    def __init__(self, row: int, found: str, must_hold: str = "") -> None:
        super().__init__(found)
        self.row = row
        self.found = found
        self.must_hold = must_hold


@dataclass(frozen=True)
class Texts:
    """The cells of a column as text: each different text once, and which of them a row holds.

    Attributes:
        codes: The number of each row's text; -1 where the cell is missing.
        values: The different texts, without blanks at their ends, in the order in which they come first.
    """

    codes: npt.NDArray[np.intp]
    values: list[str]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """In how many rows each text is."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.values)).astype(np.int64)

    def take(self, per_value: npt.NDArray[Any], missing: Any) -> npt.NDArray[Any]:
        """Return one entry per row from one entry per text."""
        return np.append(per_value, np.array([missing], dtype=per_value.dtype))[self.codes]

    def first_row(self, is_wanted: Mask) -> int:
        """The first row that holds one of the wanted texts."""
        return int(np.argmax(self.take(is_wanted, False)))


def storage_of(cells: pd.Series[Any]) -> Storage:
    """Say what the cells are, from the dtype or, among objects, from the cells themselves."""
    if isinstance(cells.dtype, pd.ArrowDtype):
        if str(cells.dtype).startswith("dictionary"):
            return "category"
        if cells.dtype.kind == "O":
            cells = cells.astype(object)
    if cells.isna().all():
        return "empty"
    inferred = pd.api.types.infer_dtype(cells, skipna=True)
    if inferred in ("mixed", "mixed-integer"):
        return "text" if all(isinstance(cell, str | Number | Decimal) for cell in cells.dropna()) else "other"
    return _STORAGES.get(inferred, "other")


def read_texts(cells: pd.Series[Any]) -> Texts:
    """Read every cell as text; a whole number has no decimal point."""
    if isinstance(cells.dtype, pd.CategoricalDtype | pd.ArrowDtype):
        cells = cells.astype(object)
    _check_scalars(cells)
    codes, raw = pd.factorize(cells)
    texts = np.array([_write(value) for value in np.asarray(raw, dtype=object)], dtype=object)
    merged, values = pd.factorize(texts)
    is_missing = np.array([value in _MISSING for value in values], dtype=bool)
    renumbered = np.where(is_missing, -1, np.cumsum(~is_missing) - 1)
    number = np.append(renumbered[merged], -1).astype(np.intp)
    return Texts(number[codes], [str(value) for value in values[~is_missing]])


def read_numbers(cells: pd.Series[Any], storage: Storage) -> Floats:
    """Read every cell as a finite number, durations in days; a missing cell is NaN."""
    if storage == "empty":
        return np.full(len(cells), np.nan)
    if storage == "duration":
        days = pd.to_timedelta(cells.astype(object)) / pd.Timedelta(days=1)
        return np.asarray(days.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
    if storage in ("number", "boolean"):
        numbers = cells.to_numpy(dtype=np.float64, na_value=np.nan)
    elif storage in ("text", "category"):
        texts = read_texts(cells)
        numbers = texts.take(_numbers_of(texts), np.nan)
    else:
        raise _other(cells)
    if np.isinf(numbers).any():
        row = int(np.argmax(np.isinf(numbers)))
        raise CellFault(row, str(numbers[row]), FINITE)
    return numbers


def _numbers_of(texts: Texts) -> Floats:
    numbers = parse_numbers(texts.values)
    if np.isnan(numbers).any():
        row = texts.first_row(np.isnan(numbers))
        raise CellFault(row, quote(texts.values[texts.codes[row]]))
    return numbers


def parse_numbers(values: list[str]) -> Floats:
    """The numbers that texts stand for, NaN for those that are no number."""
    parsed = pd.to_numeric(pd.Series(values, dtype=object), errors="coerce")
    return parsed.to_numpy(dtype=np.float64, na_value=np.nan)


def read_booleans(cells: pd.Series[Any], storage: Storage) -> Floats:
    """Read every cell as 1 (true) or 0 (false); a missing cell is NaN."""
    if storage in ("boolean", "number", "empty"):
        numbers = read_numbers(cells, storage)
        is_wrong = ~np.isnan(numbers) & (numbers != 0) & (numbers != 1)
        if is_wrong.any():
            row = int(np.argmax(is_wrong))
            raise CellFault(row, f"{numbers[row]:g}")
        return numbers
    if storage not in ("text", "category"):
        raise _other(cells)
    texts = read_texts(cells)
    words = {word: 1.0 - place for pair in TRUE_AND_FALSE for place, word in enumerate(pair)} | {"1": 1.0, "0": 0.0}
    flags = np.array([words.get(value.casefold(), np.nan) for value in texts.values], dtype=np.float64)
    if np.isnan(flags).any():
        row = texts.first_row(np.isnan(flags))
        raise CellFault(row, quote(texts.values[texts.codes[row]]))
    return texts.take(flags, np.nan)


def read_dates(cells: pd.Series[Any], storage: Storage, written: str) -> tuple[Dates, Mask]:
    """Read every cell as a point in time (UTC), NaT where it is missing; and mark the cells that are no date.

    Args:
        cells: The column.
        storage: What `storage_of` says of it.
        written: How dates are written as text, one of `DATE_FORMATS`.
    """
    if storage == "empty":
        return np.full(len(cells), np.datetime64("NaT", "ms")), np.zeros(len(cells), dtype=bool)
    if storage == "date":
        is_period = isinstance(cells.dtype, pd.PeriodDtype)
        dates = _to_dates(cells.dt.to_timestamp() if is_period else cells)
        return dates, np.isnat(dates) & cells.notna().to_numpy(dtype=bool)
    if storage != "text":
        raise _other(cells)
    texts = read_texts(cells)
    dates = texts.take(parse_dates(texts.values, written), np.datetime64("NaT"))
    return dates, np.isnat(dates) & (texts.codes >= 0)


def parse_dates(values: list[str], written: str) -> Dates:
    """The dates that texts stand for, NaT for those that are no date."""
    texts = pd.Series(values, dtype=object)
    texts = texts.where(texts.str.fullmatch(_DATE).fillna(False).astype(bool), None)
    return _to_dates(texts, written)


def looks_like_dates(values: list[str]) -> bool:
    """Whether some of the texts are written like a date, before any is parsed."""
    return bool(pd.Series(values, dtype=object).str.fullmatch(_DATE).fillna(False).any())


def _to_dates(cells: pd.Series[Any], written: str | None = None) -> Dates:
    parsed = pd.to_datetime(cells, format=written, utc=True, errors="coerce")
    return parsed.dt.tz_localize(None).to_numpy().astype("datetime64[ms]")


def quote(text: str) -> str:
    """A cell as it is written in a message."""
    return f"'{text[:40]}{'…' if len(text) > 40 else ''}'"


def _check_scalars(cells: pd.Series[Any]) -> None:
    if cells.dtype == object and pd.api.types.infer_dtype(cells, skipna=True) in ("mixed", "bytes"):
        for row, cell in enumerate(cells):
            if not pd.api.types.is_scalar(cell) or isinstance(cell, bytes):
                raise CellFault(row, f"a {type(cell).__name__}", SINGLE)


def _other(cells: pd.Series[Any]) -> CellFault:
    row = int(np.argmax(cells.notna().to_numpy(dtype=bool)))
    cell = cells.iloc[row]
    return CellFault(row, quote(str(cell)) if pd.api.types.is_scalar(cell) else f"a {type(cell).__name__}")


def _write(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    return str(value)
