"""One class per kind of column: what is counted in a stream of blocks, and how cells become numbers.

A column is updated with each block, finished once, and then encodes. What it needs for that are a few facts and
arrays, from which it can be restored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from onepos.tables.cells import (
    DATE_FORMATS,
    CellFault,
    Dates,
    Floats,
    Mask,
    quote,
    read_booleans,
    read_dates,
    read_numbers,
    read_texts,
    storage_of,
)
from onepos.tables.counts import Counts
from onepos.tables.kinds import NEARLY_ALL, Choice, Kind, not_dates
from onepos.tables.moments import Moments
from onepos.tables.sample import Sample
from onepos.tables.sentences import MODELS, WIDTHS, embed
from onepos.tables.state import (
    Arrays,
    Facts,
    get_count,
    get_flag,
    get_number,
    get_numbers,
    get_packed,
    get_rising,
    get_text,
    get_texts,
    pack_texts,
    wrong,
)
from onepos.tables.terms import chunks_of, count_characters, count_words

Piece: TypeAlias = npt.NDArray[np.float32] | sp.csr_array
"""Some columns of the result, dense or sparse."""

CLIP = 5.0
"""Standardized numbers lie between -CLIP and CLIP."""
SKEWED, LESS_SKEWED = 2.0, 0.5
"""Numbers of a skewness above SKEWED are taken as logarithms where that leaves at most this share of the skewness."""
N_STEPS = 12
"""Steps of a column of numbers, with about equally many rows each."""
STEP_ROWS = 100
"""Numbers of fewer rows get no steps."""
MIN_ROWS = 2
"""A category or a term that is in fewer rows is not kept by itself, unless all are."""
TEXT_WEIGHT = 3.0
"""The length of a row's vector of one text column; that of one standardized number is 1 on average."""
WORD_SHARE = 0.5
"""The share of `max_text_features` that is kept for words; the rest is for character n-grams."""


class Column(ABC):
    """A column of the table that gives numbers.

    Attributes:
        name: Its name.
        read_as: How its cells are read, in words.
        n_rows: Rows met in fit.
        n_missing: Rows of which the cell was missing.
    """

    kind: ClassVar[Kind]
    must_hold: ClassVar[str]
    """What its cells must be, for a message."""

    def __init__(self, name: str, choice: Choice) -> None:
        self.name = name
        self.read_as = choice.read_as
        self.written = choice.written
        self.n_rows = 0
        self.n_missing = 0

    def update(self, cells: pd.Series[Any], start: int) -> None:
        """Count one more block, whose first row is row `start` of the table."""
        is_missing = self._update(cells, start)
        self.n_rows += len(cells)
        self.n_missing += int(is_missing.sum())

    def encode(self, cells: pd.Series[Any]) -> list[Piece]:
        """The numbers of a block, and whether a cell is missing where cells were missing in fit."""
        piece, is_missing = self._encode(cells)
        return [piece, is_missing[:, None].astype(np.float32)] if self.n_missing else [piece]

    @property
    def names(self) -> list[str]:
        """The names of the numbers."""
        return [*self._names, f"{self.name} missing"] if self.n_missing else self._names

    @property
    def became(self) -> str:
        """What the column became, in words."""
        return self._became + (", and whether it is missing" if self.n_missing else "")

    @property
    def n_filled(self) -> float:
        """How many of the numbers of a row are not 0, on average."""
        return float(len(self._names))

    def finish(self) -> None:
        """Decide what is kept, after the last block."""
        return

    @property
    @abstractmethod
    def _names(self) -> list[str]:
        """Names without that of the missing cells."""

    @property
    @abstractmethod
    def _became(self) -> str: ...

    @abstractmethod
    def _update(self, cells: pd.Series[Any], start: int) -> Mask:
        """Count a block; return which cells are missing."""

    @abstractmethod
    def _encode(self, cells: pd.Series[Any]) -> tuple[Piece, Mask]: ...

    def to_state(self) -> tuple[Facts, Arrays]:
        """What `restore` needs."""
        facts = {
            "name": self.name,
            "kind": self.kind,
            "read_as": self.read_as,
            "n_rows": self.n_rows,
            "n_missing": self.n_missing,
        }
        more, arrays = self._to_state()
        return facts | more, arrays

    @classmethod
    def restore(cls, facts: Facts, arrays: Arrays) -> Column:
        """The column that gave these facts and arrays."""
        column = cls(get_text(facts, "name"), Choice(cls.kind, get_text(facts, "read_as")))
        column.n_rows, column.n_missing = get_count(facts, "n_rows"), get_count(facts, "n_missing")
        column._restore(facts, arrays)
        return column

    def _to_state(self) -> tuple[Facts, Arrays]:
        return {}, {}

    @abstractmethod
    def _restore(self, facts: Facts, arrays: Arrays) -> None: ...


class NumberColumn(Column):
    """Standardized numbers, of which the logarithm was taken where they are skewed; and steps.

    A step says how far a number has come from one quantile of the column to the next: -1 below, 1 above, and between
    them what lies between. By steps a network learns what is not a straight line of the number.
    """

    kind = "number"
    must_hold = "numbers or text, not both"

    def __init__(self, name: str, choice: Choice) -> None:
        super().__init__(name, choice)
        self.is_log = False
        self.moments = Moments()
        self.edges = np.empty(0)
        self._log_moments = Moments()
        self._sample = Sample()

    def _update(self, cells: pd.Series[Any], start: int) -> Mask:
        numbers = read_numbers(cells, storage_of(cells))
        is_missing = np.isnan(numbers)
        known = numbers[~is_missing]
        self.moments.update(known)
        self._log_moments.update(signed_log(known))
        self._sample.update(numbers, start)
        return is_missing

    def finish(self) -> None:
        """Decide what is kept, after the last block."""
        raw, log = self.moments, self._log_moments
        limit = LESS_SKEWED * abs(raw.skewness)
        self.is_log = not raw.is_finite or (abs(raw.skewness) > SKEWED and abs(log.skewness) <= limit)
        self.moments = log if self.is_log else raw
        known = self._sample.numbers()
        if len(known) >= STEP_ROWS:
            edges = np.unique(np.quantile(self._level(known), np.linspace(0, 1, N_STEPS + 1)))
            self.edges = edges if len(edges) > 2 else self.edges  # one step is the number itself

    def leave_out_steps(self) -> None:
        """Be the standardized number alone, where there are many columns."""
        self.edges = np.empty(0)

    def _level(self, numbers: Floats) -> Floats:
        return signed_log(numbers) if self.is_log else numbers

    def _encode(self, cells: pd.Series[Any]) -> tuple[Piece, Mask]:
        numbers = read_numbers(cells, storage_of(cells))
        is_missing, level = np.isnan(numbers), self._level(numbers)
        scaled = standardize(level, self.moments)[:, None]
        if not len(self.edges):
            return scaled, is_missing
        with np.errstate(over="ignore"):
            share = (level[:, None] - self.edges[:-1]) / np.diff(self.edges)
        steps = np.nan_to_num(2 * np.clip(share, 0, 1) - 1)
        return np.hstack([scaled, steps.astype(np.float32)]), is_missing

    @property
    def _names(self) -> list[str]:
        ends = (np.sign(self.edges) * np.expm1(np.abs(self.edges)) if self.is_log else self.edges).tolist()
        return [self.name, *(f"{self.name} {low:.6g} to {high:.6g}" for low, high in pairwise(ends))]

    @property
    def _became(self) -> str:
        steps = f", and {len(self.edges) - 1} steps" if len(self.edges) else ""
        return ("logarithm, standardized" if self.is_log else "standardized") + steps

    def _to_state(self) -> tuple[Facts, Arrays]:
        facts = {"is_log": self.is_log, "mean": self.moments.mean, "deviation": self.moments.deviation}
        return facts | {"edges": self.edges.tolist()}, {}

    def _restore(self, facts: Facts, arrays: Arrays) -> None:
        self.is_log = get_flag(facts, "is_log")
        self.moments = Moments.of(get_number(facts, "mean"), get_number(facts, "deviation", positive=True))
        self.edges = get_rising(facts, "edges")


class BooleanColumn(Column):
    """1 for true, -1 for false, 0 where it is missing."""

    kind = "boolean"
    must_hold = "true or false"

    def _update(self, cells: pd.Series[Any], start: int) -> Mask:
        return np.isnan(read_booleans(cells, storage_of(cells)))

    def _encode(self, cells: pd.Series[Any]) -> tuple[Piece, Mask]:
        flags = read_booleans(cells, storage_of(cells))
        return np.nan_to_num(2 * flags - 1).astype(np.float32)[:, None], np.isnan(flags)

    @property
    def _names(self) -> list[str]:
        return [self.name]

    @property
    def _became(self) -> str:
        return "1 or -1"

    def _restore(self, facts: Facts, arrays: Arrays) -> None: ...


class DateColumn(Column):
    """Days and year, standardized, and the places in the year, the week and the day as points on a circle."""

    kind = "date"
    must_hold = "dates or text, not both"

    def __init__(self, name: str, choice: Choice) -> None:
        super().__init__(name, choice)
        self.days = Moments()
        self.years = Moments()
        self.has_times = False
        self._n_wrong = 0
        self._first_wrong: tuple[int, str] | None = None

    def _update(self, cells: pd.Series[Any], start: int) -> Mask:
        dates, is_wrong = read_dates(cells, storage_of(cells), self.written)
        known = dates[~np.isnat(dates)]
        self.days.update(_days(known))
        self.years.update(_years(known))
        self.has_times |= bool((known != known.astype("datetime64[D]")).any())
        if is_wrong.any():
            row = int(np.argmax(is_wrong))
            self._first_wrong = self._first_wrong or (start + row, str(cells.iloc[row]))
            self._n_wrong += int(is_wrong.sum())
        return np.isnat(dates)

    def finish(self) -> None:
        """Decide what is kept, after the last block."""
        n_dates = self.n_rows - self.n_missing
        if self._first_wrong and n_dates < NEARLY_ALL * (n_dates + self._n_wrong):
            row, found = self._first_wrong
            raise not_dates(row, n_dates, n_dates + self._n_wrong, found)

    def _encode(self, cells: pd.Series[Any]) -> tuple[Piece, Mask]:
        dates, is_wrong = read_dates(cells, storage_of(cells), self.written)
        is_missing = np.isnat(dates)
        n_dates = int((~is_missing).sum())
        if n_dates < NEARLY_ALL * (n_dates + is_wrong.sum()):
            row = int(np.argmax(is_wrong))
            raise CellFault(row, quote(str(cells.iloc[row])))
        known = np.where(is_missing, np.datetime64(0, "ms"), dates)
        circles = [_circle(_months(known), 12), _circle(_days(known.astype("datetime64[D]")) + 3, 7)]
        if self.has_times:
            circles.append(_circle((known - known.astype("datetime64[D]")) / np.timedelta64(1, "h"), 24))
        scaled = [standardize(_days(known), self.days), standardize(_years(known), self.years)]
        numbers = np.column_stack([*scaled, *circles])
        numbers[is_missing] = 0
        return numbers, is_missing

    @property
    def _names(self) -> list[str]:
        circles = ["month", "weekday", "hour"] if self.has_times else ["month", "weekday"]
        return [
            self.name,
            f"{self.name} year",
            *(f"{self.name} {circle} {part}" for circle in circles for part in ("sin", "cos")),
        ]

    @property
    def _became(self) -> str:
        return "days, year, month, weekday" + (", hour" if self.has_times else "")

    def _to_state(self) -> tuple[Facts, Arrays]:
        moments = {
            f"{name}_{part}": getattr(each, part)
            for name, each in (("days", self.days), ("years", self.years))
            for part in ("mean", "deviation")
        }
        return {"written": self.written, "has_times": self.has_times, **moments}, {}

    def _restore(self, facts: Facts, arrays: Arrays) -> None:
        self.written = get_text(facts, "written", DATE_FORMATS)
        self.has_times = get_flag(facts, "has_times")
        for name in ("days", "years"):
            mean, deviation = get_number(facts, f"{name}_mean"), get_number(facts, f"{name}_deviation", positive=True)
            setattr(self, name, Moments.of(mean, deviation))


class CategoryColumn(Column):
    """One number per category that is frequent enough, and one for all others."""

    kind = "category"
    must_hold = "single values"

    def __init__(self, name: str, choice: Choice, max_categories: int = 0) -> None:
        super().__init__(name, choice)
        self.categories: list[str] = []
        self.has_other = False
        self._places: dict[str, int] = {}
        self._most = max_categories
        self._counts = Counts()

    def _update(self, cells: pd.Series[Any], start: int) -> Mask:
        texts = read_texts(cells)
        self._counts.add(texts.values, texts.counts.tolist())
        return texts.codes < 0

    def finish(self) -> None:
        """Decide what is kept, after the last block."""
        counts = self._counts
        kept = counts.most_frequent(self._most, MIN_ROWS) or counts.most_frequent(self._most, 1)
        self._keep(kept, has_other=len(kept) < len(counts.rows) + counts.n_forgotten)

    def _keep(self, categories: list[str], *, has_other: bool) -> None:
        self.categories, self.has_other = categories, has_other
        self._places = {category: place for place, category in enumerate(categories)}

    def _encode(self, cells: pd.Series[Any]) -> tuple[Piece, Mask]:
        texts = read_texts(cells)
        other = len(self.categories) if self.has_other else -1
        places = np.array([self._places.get(value, other) for value in texts.values], dtype=np.intp)
        columns = texts.take(places, -1)
        is_set = columns >= 0
        indptr = np.concatenate([[0], np.cumsum(is_set)]).astype(np.int32)
        ones = np.ones(int(indptr[-1]), dtype=np.float32)
        shape = (len(cells), len(self._names))
        return sp.csr_array((ones, columns[is_set].astype(np.int32), indptr), shape=shape), texts.codes < 0

    @property
    def n_filled(self) -> float:
        """How many of the numbers of a row are not 0, on average."""
        return 1.0

    @property
    def _names(self) -> list[str]:
        names = [f"{self.name}={category}" for category in self.categories]
        return [*names, f"{self.name} other"] if self.has_other else names

    @property
    def _became(self) -> str:
        n = len(self.categories)
        return f"one of {n} categories{' or other' if self.has_other else ''}"

    def _to_state(self) -> tuple[Facts, Arrays]:
        return {"categories": self.categories, "has_other": self.has_other}, {}

    def _restore(self, facts: Facts, arrays: Arrays) -> None:
        self._keep(get_texts(facts, "categories"), has_other=get_flag(facts, "has_other"))
        if not self.categories:
            raise wrong("at least one category per column of categories", "it holds none")


class TextColumn(Column):
    """TF-IDF of words and pairs of words, of character n-grams, and perhaps an embedding.

    Words and characters are equally long, so that the many characters do not drown the words; together, and the
    embedding by itself, they are of length TEXT_WEIGHT.
    """

    kind = "text"
    must_hold = "single values"

    def __init__(self, name: str, choice: Choice, max_features: int = 0, model: str | None = None) -> None:
        super().__init__(name, choice)
        self.model = model
        self.words: list[str] = []
        self.characters: list[str] = []
        self.idf = np.empty(0, dtype=np.float32)
        self._n_filled = 0.0
        self._most = max_features
        self._counts = {"words": Counts(), "characters": Counts()}

    def _update(self, cells: pd.Series[Any], start: int) -> Mask:
        texts = read_texts(cells)
        rows = texts.counts
        for first, end in chunks_of(texts.values):
            chunk, weights = texts.values[first:end], rows[first:end]
            for part, (counts, terms) in {
                "words": count_words(chunk),
                "characters": count_characters(chunk),
            }.items():
                counts.data[:] = 1
                self._counts[part].add(terms, np.asarray(weights @ counts, dtype=np.int64).tolist())
        return texts.codes < 0

    def finish(self) -> None:
        """Decide what is kept, after the last block."""
        words, characters = (
            counts.most_frequent(self._most, MIN_ROWS) or counts.most_frequent(self._most, 1)
            for counts in self._counts.values()
        )
        n_words = min(len(words), max(round(WORD_SHARE * self._most), self._most - len(characters)))
        words, characters = words[:n_words], characters[: self._most - n_words]
        rows = np.array(
            [self._counts["words"].rows[term] for term in words]
            + [self._counts["characters"].rows[term] for term in characters],
            dtype=np.float64,
        )
        n_known = self.n_rows - self.n_missing
        self._n_filled = float(rows.sum()) / self.n_rows
        self._keep(words, characters, (np.log((1 + n_known) / (1 + rows)) + 1).astype(np.float32))

    def _keep(self, words: list[str], characters: list[str], idf: npt.NDArray[np.float32]) -> None:
        self.words, self.characters, self.idf = words, characters, idf
        self._word_places = {term: place for place, term in enumerate(words)}
        self._character_places = {term: place for place, term in enumerate(characters)}

    def _encode(self, cells: pd.Series[Any]) -> tuple[Piece, Mask]:
        texts = read_texts(cells)
        pieces = [self._weigh(texts.values[first:end]) for first, end in chunks_of(texts.values)]
        none = sp.csr_array((1, len(self.idf)), dtype=np.float32)
        by_text = sp.vstack([*pieces, none], format="csr")
        rows = texts.codes % by_text.shape[0]
        found = sp.csr_array(by_text[rows])
        if self.model is not None:
            vectors = np.vstack([embed(texts.values, self.model), np.zeros((1, WIDTHS[self.model]), np.float32)])
            found = sp.csr_array(sp.hstack([found, sp.csr_array(TEXT_WEIGHT * vectors[rows])], format="csr"))
        return found, texts.codes < 0

    def _weigh(self, texts: list[str]) -> sp.csr_array:
        words, _ = count_words(texts, self._word_places)
        characters, _ = count_characters(texts, self._character_places)
        parts = zip((words, characters), np.split(self.idf, [len(self.words)]), strict=True)
        both = sp.hstack([_weigh_terms(counts, idf) for counts, idf in parts], format="csr")
        weights = sp.csr_array(normalize(both, copy=False))
        weights.data *= np.float32(TEXT_WEIGHT)
        return weights

    @property
    def n_filled(self) -> float:
        """How many of the numbers of a row are not 0, on average."""
        return self._n_filled + self._n_embedded

    @property
    def _n_embedded(self) -> int:
        return 0 if self.model is None else WIDTHS[self.model]

    @property
    def _names(self) -> list[str]:
        return [
            *(f"{self.name}: {word}" for word in self.words),
            *(f"{self.name}: {characters!r}" for characters in self.characters),
            *(f"{self.name} {self.model} {place}" for place in range(self._n_embedded)),
        ]

    @property
    def _became(self) -> str:
        embedded = f", and {self._n_embedded} numbers of {self.model}" if self.model else ""
        return f"TF-IDF of {len(self.words)} words and {len(self.characters)} character n-grams{embedded}"

    def _to_state(self) -> tuple[Facts, Arrays]:
        arrays: Arrays = {"words": pack_texts(self.words), "characters": pack_texts(self.characters), "idf": self.idf}
        return {"n_filled": self._n_filled, "model": self.model or ""}, arrays

    def _restore(self, facts: Facts, arrays: Arrays) -> None:
        self._n_filled = get_number(facts, "n_filled")
        self.model = get_text(facts, "model", ("", *MODELS)) or None
        words, characters = get_packed(arrays, "words"), get_packed(arrays, "characters")
        self._keep(words, characters, get_numbers(arrays, "idf", len(words) + len(characters)))
        if not len(self.idf):
            raise wrong("at least one term per column of text", "it holds none")


COLUMNS: dict[Kind, type[Column]] = {
    each.kind: each for each in (NumberColumn, BooleanColumn, CategoryColumn, DateColumn, TextColumn)
}


def _weigh_terms(counts: sp.csr_array, idf: npt.NDArray[np.float32]) -> sp.csr_array:
    """TF-IDF weights of length 1 from counts of terms."""
    counts.data = (1 + np.log(counts.data)) * idf[counts.indices]
    return sp.csr_array(normalize(counts, copy=False)) if counts.shape[1] else counts


def signed_log(numbers: Floats) -> Floats:
    """The logarithm of 1 + the size of a number, with the number's sign."""
    return np.asarray(np.sign(numbers) * np.log1p(np.abs(numbers)))


def standardize(numbers: Floats, moments: Moments) -> npt.NDArray[np.float32]:
    """Numbers of mean 0 and deviation 1, not beyond CLIP; 0 where one is missing."""
    scaled = np.clip((numbers - moments.mean) / moments.deviation, -CLIP, CLIP)
    return np.nan_to_num(scaled).astype(np.float32)


def _days(dates: Dates) -> Floats:
    return np.asarray((dates - np.datetime64(0, "ms")) / np.timedelta64(1, "D"))


def _years(dates: Dates) -> Floats:
    return dates.astype("datetime64[Y]").astype(np.int64).astype(np.float64) + 1970


def _months(dates: Dates) -> Floats:
    return (dates.astype("datetime64[M]").astype(np.int64) % 12).astype(np.float64)


def _circle(places: Floats, length: float) -> npt.NDArray[np.float32]:
    """The points on a circle of deviation 1, one column per coordinate."""
    angles = 2 * np.pi * places / length
    return np.asarray(np.sqrt(2) * np.column_stack([np.sin(angles), np.cos(angles)]), dtype=np.float32)
