"""What a column is: a number, boolean, category, date or text, or left out; by fixed rules, from its first rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from onepos.tables.cells import (
    DATE_FORMATS,
    SINGLE,
    TRUE_AND_FALSE,
    CellFault,
    Texts,
    looks_like_dates,
    parse_dates,
    parse_numbers,
    quote,
    read_numbers,
    read_texts,
    storage_of,
)

Kind: TypeAlias = Literal["number", "boolean", "category", "date", "text", "left out"]
KINDS: tuple[Kind, ...] = get_args(Kind)

MOSTLY = 0.5
"""A column of text of which this share are numbers or dates is meant to hold them: the others are errors."""
NEARLY_ALL = 0.98
"""A column is one of dates where this share of its cells are; the other cells count as missing."""
REPEATED = 0.5
"""Cells repeat where at most this share of them are different."""
TEXT_WORDS = 4.0
"""Cells with this many words on average are text, unless they repeat and are few."""
TITLE_WORDS, TITLE_LENGTH = 1.5, 20.0
"""Cells that do not repeat are text from so many words or characters on average, such as titles."""
ID_ROWS = 20
"""A column with fewer known cells is not taken for one of ids."""
CODE_LENGTH = 40.0
"""Ids have at most so many characters on average."""

_ID_NAME = re.compile(r"(?:.*[\W_]|)(?:id|ids|uuid|guid|key|index)|unnamed: ?\d+", re.IGNORECASE)
_CAMEL_ID = re.compile(r".*[a-z](?:Id|ID)")
_LEADING_ZERO = re.compile(r"[+-]?0\d")
_CODE = re.compile(r"(?=.*\d)\S+")
_MONEY = "[€$£¥]"
_OTHERWISE = rf"{_MONEY}? ?[+-]?(?:\d{{1,3}}(?:[,']\d{{3}})+|\d+)(?:[.,]\d+)? ?(?:{_MONEY}|%)?"
"""Numbers with a comma for a point, with separated thousands, a currency or a percent sign."""


@dataclass(frozen=True)
class Choice:
    """What a column is, and why.

    Attributes:
        kind: What it is.
        read_as: How its cells are read, in words.
        reason: Why it is left out; empty where it is not.
        written: How dates are written.
        may_change: Whether later rows may show that the column is worth keeping after all.
    """

    kind: Kind
    read_as: str = ""
    reason: str = ""
    written: str = DATE_FORMATS[0]
    may_change: bool = False


def left_out(reason: str, *, may_change: bool = False) -> Choice:
    """A column that gives no numbers."""
    return Choice("left out", reason=reason, may_change=may_change)


def choose_kind(name: str, cells: pd.Series[Any], max_categories: int) -> Choice:
    """Decide what a column is; a `CellFault` says that its cells are of two kinds."""
    storage = storage_of(cells)
    if storage == "empty":
        return left_out("all cells are missing", may_change=True)
    if storage == "other":
        row = int(np.argmax(cells.notna().to_numpy(dtype=bool)))
        raise CellFault(row, f"a {type(cells.iloc[row]).__name__}", SINGLE)
    if storage == "category" or storage == "text":
        return _choose_for_texts(name, read_texts(cells), max_categories, is_category=storage == "category")
    if len(cells) > 1 and cells.notna().all() and cells.nunique() == 1:
        return left_out("all cells are the same", may_change=True)
    if storage == "number":
        return _choose_for_numbers(name, cells)
    if storage == "date":
        return Choice("date", "dates")
    return Choice("boolean", "true or false") if storage == "boolean" else Choice("number", "durations in days")


def choose_declared(kind: Kind, cells: pd.Series[Any]) -> Choice:
    """What a column becomes that the user declared to be text or a category."""
    texts = read_texts(cells)
    if not texts.values:
        return left_out("all cells are missing", may_change=True)
    return Choice(kind, f"{kind}, as declared")


def _choose_for_numbers(name: str, cells: pd.Series[Any]) -> Choice:
    numbers = read_numbers(cells, "number")
    known = numbers[~np.isnan(numbers)]
    is_whole = bool((known % 1 == 0).all())
    if is_whole and len(known) == len(numbers) >= ID_ROWS and len(np.unique(known)) == len(known):
        if known.max() - known.min() == len(known) - 1:
            return left_out("whole numbers that number the rows")
        if is_id_name(name):
            return left_out("named like an id, and no value comes twice")
    return Choice("number", "whole numbers" if is_whole else "numbers")


def _choose_for_texts(name: str, texts: Texts, max_categories: int, *, is_category: bool) -> Choice:
    values = texts.values
    if not values:
        return left_out("all cells are missing", may_change=True)
    if len(values) == 1 and len(texts.codes) > 1 and (texts.codes >= 0).all():
        return left_out("all cells are the same", may_change=True)
    if is_category:
        return Choice("category", "categories")
    if any({value.casefold() for value in values} == set(pair) for pair in TRUE_AND_FALSE):
        return Choice("boolean", f"{quote(values[0])} or {quote(values[1])}")
    choice = _number_choice(name, texts) or _date_choice(texts)
    if choice is None:
        _refuse_other_numbers(texts)
    return choice or _word_choice(name, texts, max_categories)


def _number_choice(name: str, texts: Texts) -> Choice | None:
    """Numbers written as text; codes such as 00123 are none."""
    is_number = ~np.isnan(parse_numbers(texts.values))
    counts = texts.counts
    share = counts[is_number].sum() / counts.sum()
    if share <= MOSTLY or any(_LEADING_ZERO.match(value) for value in texts.values):
        return None
    if not is_number.all():
        row = texts.first_row(~is_number)
        raise CellFault(
            row,
            f"{int(counts[~is_number].sum())} of {int(counts.sum())} cells are no numbers, the first is "
            f"{quote(texts.values[texts.codes[row]])}",
            "numbers or text, not both",
        )
    return _choose_for_numbers(name, pd.Series(texts.take(parse_numbers(texts.values), np.nan)))


def _refuse_other_numbers(texts: Texts) -> None:
    """Numbers such as 12,50 or 5 %, which would be taken for text or categories."""
    is_written = pd.Series(texts.values, dtype=object).str.fullmatch(_OTHERWISE).to_numpy(dtype=bool)
    is_other = is_written & np.isnan(parse_numbers(texts.values))
    counts = texts.counts
    if is_other.any() and counts[is_written].sum() > MOSTLY * counts.sum():
        row = texts.first_row(is_other)
        raise CellFault(
            row,
            f"{int(counts[is_other].sum())} of {int(counts.sum())} cells are numbers written otherwise, the first is "
            f"{quote(texts.values[texts.codes[row]])}",
            "numbers written like 1234.5",
        )


def _date_choice(texts: Texts) -> Choice | None:
    if not looks_like_dates(texts.values):
        return None
    counts = texts.counts
    parsed = {written: ~np.isnat(parse_dates(texts.values, written)) for written in DATE_FORMATS}
    written = max(parsed, key=lambda each: counts[parsed[each]].sum())
    share = counts[parsed[written]].sum() / counts.sum()
    if share <= MOSTLY:
        return None
    if share < NEARLY_ALL:
        row = texts.first_row(~parsed[written])
        raise not_dates(row, int(counts[parsed[written]].sum()), int(counts.sum()), texts.values[texts.codes[row]])
    return Choice("date", "dates" if written == "ISO8601" else f"dates written {written}", written=written)


def not_dates(row: int, n_dates: int, n_known: int, other: str) -> CellFault:
    """The fault of a column of which only a part are dates, and the first cell that is none."""
    found = f"{n_dates} of {n_known} cells are dates, the first other is {quote(other)}"
    return CellFault(row, found, "dates or text, not both")


def _word_choice(name: str, texts: Texts, max_categories: int) -> Choice:
    """Ids, text or categories, by how often cells repeat and how long they are."""
    counts = texts.counts
    n_known, n_values = int(counts.sum()), len(texts.values)
    if n_known == n_values >= ID_ROWS and (reason := _why_ids(name, texts.values)):
        return left_out(reason)
    n_words = float(counts @ np.array([value.count(" ") + 1 for value in texts.values])) / n_known
    length = float(counts @ np.array([len(value) for value in texts.values])) / n_known
    is_repeated = n_values <= REPEATED * n_known
    is_long = n_words >= TEXT_WORDS if is_repeated else n_words >= TITLE_WORDS or length >= TITLE_LENGTH
    is_many = n_values > max_categories
    if is_long and (is_many or not is_repeated):
        return Choice("text", f"text, {n_words:.0f} words on average")
    if is_many and not is_repeated:
        return Choice("text", "single words that hardly repeat")
    return Choice("category", f"{n_values} different texts")


def _why_ids(name: str, values: list[str]) -> str:
    length = sum(map(len, values)) / len(values)
    has_blank = any(" " in value for value in values)
    if is_id_name(name) and not has_blank:
        return "named like an id, and no value comes twice"
    if length <= CODE_LENGTH and sum(map(bool, map(_CODE.fullmatch, values))) >= NEARLY_ALL * len(values):
        return "short codes, of which none comes twice"
    return ""


def is_id_name(name: str) -> bool:
    """Whether a column is named like an id, such as `id`, `user_id`, `userId` or `Unnamed: 0`."""
    return bool(_ID_NAME.fullmatch(name) or _CAMEL_ID.fullmatch(name))
