"""A long table of answers, one per line (item, label, value, perhaps time and reason) → what is known of each entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from onepos.validation import check_cases, find_repeat, name_some

if TYPE_CHECKING:
    import pandas as pd

Codes = npt.NDArray[np.int64]

YES = frozenset({"1", "1.0", "true", "yes", "y"})
NO = frozenset({"0", "0.0", "false", "no", "n"})
UNKNOWN = frozenset({"", "nan", "none", "unknown", "unsure", "?", "<na>"})

_COLUMNS = ("item", "label", "value", "source", "time", "reason")


@dataclass(frozen=True)
class Answers:
    """The words for yes, no and unknown; upper case and spaces around a word do not count.

    Attributes:
        yes, no, unknown: The words, in lower case.
        tells_no: Whether words for no were given, so that in label columns each of them is a known no.
    """

    yes: frozenset[str] = YES
    no: frozenset[str] = NO
    unknown: frozenset[str] = UNKNOWN
    tells_no: bool = False

    @classmethod
    def with_words(cls, yes: Iterable[Any] = (), no: Iterable[Any] = (), unknown: Iterable[Any] = ()) -> Answers:
        """The usual words and some more, which mean what is given here even if they usually mean something else."""
        given = [frozenset(map(_as_word, words)) for words in (yes, no, unknown)]
        for first, second in combinations(given, 2):
            if both := sorted(first & second):
                raise ValueError(
                    f"a word must mean one of yes, no and unknown; {both[0]!r} is given for two. Give it for one."
                )
        taken = frozenset().union(*given)
        yes, no, unknown = ((usual - taken) | own for usual, own in zip((YES, NO, UNKNOWN), given, strict=True))
        return cls(yes, no, unknown, tells_no=bool(given[1]))

    def read(self, column: pd.Series[Any]) -> Codes:
        """1 for yes, 0 for no, -1 for unknown, -2 for a word that is none of these, of each cell."""
        import pandas as pd

        place, cells = pd.factorize(column)
        return np.array([*map(self._read_word, map(_as_word, cells)), -1], np.int64)[place]

    def _read_word(self, word: str) -> int:
        return 1 if word in self.yes else 0 if word in self.no else -1 if word in self.unknown else -2


def _as_word(cell: Any) -> str:
    is_whole = isinstance(cell, float | np.floating) and float(cell).is_integer()
    return str(int(cell) if is_whole else cell).strip().lower()


class LongLabels(NamedTuple):
    """What is known of each (item, label), once each.

    Attributes:
        items: The ids of the rows.
        classes: The labels in their order.
        row: Of each entry its place in `items`.
        column: Its place in `classes`.
        value: 1 for yes, 0 for no, -1 for unknown.
        at_random: Of each item whether none of its answers was given because it looked doubtful; None if that is so of
            all.
    """

    items: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    row: Codes
    column: Codes
    value: Codes
    at_random: npt.NDArray[np.bool_] | None = None


def place_of(position: int) -> str:
    """How a message names a line of a table that is in memory."""
    return f"line {position} (counted from 0)"


def read_long(table: Any, items: Any, answers: Answers, place: Callable[[int], str] = place_of) -> LongLabels:
    """Read the table; `Labels.from_long` has the rules."""
    frame = _as_frame(table)
    value = _read_values(frame, answers, place)
    row, ids = _match_items(frame["item"], items, place)
    column, classes = _find_labels(frame["label"])
    at_random = _read_reasons(frame, row, len(ids))
    named = column >= 0
    if (value[~named] >= 0).any():
        line = int(np.flatnonzero(~named & (value >= 0))[0])
        raise ValueError(f"every answer must name its label; {place(line)} has a value and no label. Fill it in.")
    row, column, value = row[named], column[named], value[named]
    time = _read_times(frame, named)
    key = row * max(1, len(classes)) + column
    kept = _latest(key, value, time)
    _check_agreement(key[kept], value[kept], row[kept], column[kept], ids, classes, time is not None)
    # Those left of one entry agree, but for unknown ones: the largest is the known one.
    order = kept[np.lexsort((value[kept], key[kept]))]
    is_last = np.r_[key[order][1:] != key[order][:-1], True] if len(order) else np.zeros(0, bool)
    order = order[is_last]
    return LongLabels(ids, classes, row[order], column[order], value[order], at_random)


def _as_frame(table: Any) -> pd.DataFrame:
    import pandas as pd

    for convert in ("to_pandas", "toPandas"):
        if hasattr(table, convert):
            table = getattr(table, convert)()
    frame = table if isinstance(table, pd.DataFrame) else pd.DataFrame(table)
    missing = [name for name in ("item", "label") if name not in frame.columns]
    if missing:
        found = ", ".join(map(repr, frame.columns[:8]))
        raise ValueError(
            f"a long table must have the columns {', '.join(_COLUMNS[:3])}, and may have {', '.join(_COLUMNS[3:])}; "
            f"{missing[0]!r} is missing, found are {found or 'none'}. Rename the columns."
        )
    return frame


def _read_values(frame: pd.DataFrame, answers: Answers, place: Callable[[int], str]) -> Codes:
    """1, 0 or -1 of each line."""
    if "value" not in frame.columns:
        return np.ones(len(frame), np.int64)
    codes = answers.read(frame["value"])
    wrong = np.flatnonzero(codes == -2)
    if len(wrong):
        line = int(wrong[0])
        raise ValueError(
            "value must be yes (1, true, yes), no (0, false, no) or unknown (empty, unknown, unsure); "
            f"{place(line)}, item {str(frame['item'].iloc[line])!r}, holds "
            f"{str(frame['value'].iloc[line])!r}. Write one of these, or say what it means "
            "with Answers (on the command line --yes, --no or --unknown)."
        )
    return codes


def _match_items(column: pd.Series[Any], items: Any, place: Callable[[int], str]) -> tuple[Codes, npt.NDArray[Any]]:
    """The row of each line, and the ids of the rows."""
    import pandas as pd

    if column.isna().any():
        line = int(np.flatnonzero(column.isna())[0])
        raise ValueError(f"every answer must name its item; {place(line)} has none. Fill it in.")
    if items is None:
        codes, ids = pd.factorize(column)
        return np.asarray(codes, np.int64), np.asarray(ids)
    given = pd.Series(np.asarray(items))
    both_numbers = all(pd.api.types.is_numeric_dtype(each) for each in (column, given))
    own, known = (column, given) if both_numbers else (column.astype(str), given.astype(str))
    repeat = find_repeat(known)
    if repeat is not None:
        raise ValueError(
            f"items must name each row once; rows {repeat[0]} and {repeat[1]} are both {str(given[repeat[0]])!r}. "
            "Give every row an id of its own."
        )
    row = pd.Index(known).get_indexer(pd.Index(own))
    lost = own[row < 0].drop_duplicates()
    if len(lost):
        first = str(lost.iloc[0])
        raise ValueError(
            f"every item of the labels must be one of the rows; {len(lost)} of {own.nunique()} are not, the first is "
            f"{first!r}, the rows are {name_some(known, 3)}. Check that both name the rows by the same ids."
        )
    return np.asarray(row, np.int64), np.asarray(given)


def _find_labels(column: pd.Series[Any]) -> tuple[Codes, npt.NDArray[Any]]:
    """The place of the label of each line, -1 where the cell is empty, and the labels in their order."""
    import pandas as pd

    is_number = pd.api.types.is_numeric_dtype(column)
    cells = column if is_number else column.astype(object).where(column.notna(), "").astype(str).str.strip()
    cells = cells if is_number else cells.where(cells != "", None)
    place, labels = pd.factorize(cells, sort=True)
    classes = np.asarray(labels) if is_number else np.array(list(labels), dtype=str)
    if len(classes) == 0:
        raise ValueError("a long table must hold at least one label; every cell of 'label' is empty. Label some items.")
    if is_number and classes.dtype.kind == "f" and (classes == np.round(classes)).all():
        classes = classes.astype(np.int64)
    check_cases(classes.tolist(), "the column 'label'")
    return np.asarray(place, np.int64), classes


def _read_reasons(frame: pd.DataFrame, row: Codes, n_items: int) -> npt.NDArray[np.bool_] | None:
    """Which items were not shown for being doubtful; a review page writes the reason beside each answer."""
    if "reason" not in frame.columns:
        return None
    is_doubtful = (frame["reason"].astype(str).str.strip().str.lower() == "doubtful").to_numpy()
    if not is_doubtful.any():
        return None
    at_random = np.ones(n_items, bool)
    at_random[row[is_doubtful]] = False
    return at_random


def _read_times(frame: pd.DataFrame, named: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64] | None:
    """Numbers that grow with the time, -inf where there is none; None without a column of times."""
    import pandas as pd

    if "time" not in frame.columns or frame["time"].isna().all():
        return None
    column = frame["time"][named]
    if pd.api.types.is_numeric_dtype(column):
        numbers = column.to_numpy(np.float64, na_value=np.nan)
    else:
        dates = pd.to_datetime(column, errors="coerce", utc=True, format="mixed")
        lost = np.flatnonzero(dates.isna() & column.notna() & (column.astype(str).str.strip() != ""))
        if len(lost):
            raise ValueError(
                f"time must hold dates or numbers; item {str(frame['item'][named].iloc[lost[0]])!r} has "
                f"{str(column.iloc[lost[0]])!r}. Write times as 2026-01-31T12:00."
            )
        known = dates.notna().to_numpy()
        numbers = np.full(len(dates), np.nan)
        numbers[known] = (dates[known] - pd.Timestamp("1970-01-01", tz="UTC")).dt.total_seconds()
    return np.where(np.isnan(numbers), -np.inf, numbers)


def _latest(key: Codes, value: Codes, time: npt.NDArray[np.float64] | None) -> Codes:
    """Positions of the answers that count: those of the latest time of their entry, or all without times."""
    if time is None or len(key) == 0:
        return np.arange(len(key))
    order = np.lexsort((time, key))
    is_last = np.r_[key[order][1:] != key[order][:-1], True]
    last_of = np.cumsum(np.r_[True, is_last[:-1]]) - 1  # of each line, in order, the number of its entry
    return np.sort(order[time[order] == time[order][is_last][last_of]])


def _check_agreement(
    key: Codes,
    value: Codes,
    row: Codes,
    column: Codes,
    ids: npt.NDArray[Any],
    classes: npt.NDArray[Any],
    has_times: bool,
) -> None:
    both = np.intersect1d(key[value == 1], key[value == 0])
    if len(both):
        at = int(np.flatnonzero(key == both[0])[0])
        remedy = (
            "Correct one of them" if has_times else "Correct one of them, or add a column 'time': the latest counts"
        )
        raise ValueError(
            f"the answers about an item and a label must agree; item {str(ids[row[at]])!r}, label "
            f"{str(classes[column[at]])!r} is both yes and no{' at one time' if has_times else ''}. {remedy}."
        )
