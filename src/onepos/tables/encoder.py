"""`TableEncoder`: a raw table → a matrix of numbers, all of them scaled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from onepos.tables.cells import FINITE, SINGLE, CellFault, TableError
from onepos.tables.columns import COLUMNS, CategoryColumn, Column, NumberColumn, Piece, TextColumn
from onepos.tables.frames import as_frame
from onepos.tables.kinds import KINDS, Choice, choose_declared, choose_kind, left_out
from onepos.tables.sentences import MODELS, embed
from onepos.tables.state import Arrays, Facts, get, get_count, get_flag, get_text, get_texts, wrong
from onepos.validation import check_choice, check_known, check_whole, find_repeat, name_some

Matrix: TypeAlias = npt.NDArray[np.float32] | sp.csr_array
Blocks: TypeAlias = Callable[[], Iterable[Any]]

HEAD_ROWS = 100_000
"""What a column is follows from so many rows at the beginning of the table."""
SPARSE_BELOW = 0.25
"""The matrix is sparse where a smaller share of it is not 0; a sparse entry takes twice the memory of a dense one."""
MOST_WITH_STEPS = 32
"""With more columns of numbers each is one number, without steps: they would be many, and say much the same."""
FORMAT = 2

_FAULTS_LISTED = 10


@dataclass(frozen=True)
class ColumnReport:
    """What became of a column of the table.

    Attributes:
        name: Its name.
        kind: number, boolean, category, date, text or left out.
        read_as: How its cells were read; empty where it is left out.
        became: What it became; empty where it is left out.
        n_outputs: How many columns of the result it gives.
        missing: The share of missing cells, None where they were not counted.
        reason: Why it is left out; empty where it is not.
    """

    name: str
    kind: str
    read_as: str
    became: str
    n_outputs: int
    missing: float | None
    reason: str


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn the columns of a table into numbers that a model can be trained on without further scaling.

    What each column is follows from its cells by fixed rules, unless it is declared; `describe` lists what was found.

    Args:
        text: Columns to take as text.
        categorical: Columns to take as categories, such as numbers that are codes.
        drop: Columns to leave out.
        max_text_features: At most so many words and character n-grams are kept of each column of text.
        text_model: "wordllama" or "minilm" sets a sentence embedding beside the n-grams of each column of text
            (docs/tables.md); they need the extras `text` and `minilm`. None sets none.
        max_categories: At most so many categories are kept of each column, the most frequent ones.

    Attributes:
        feature_names_in_: The columns of the table in fit.
        columns_: The columns that give numbers, fitted.
        left_out_: The columns that do not, and why.
        is_sparse_: Whether `transform` returns a sparse matrix.
        n_rows_: The number of rows in fit.
        n_features_in_: The number of columns of the table in fit.
        n_outputs_: The number of columns of the result.
        ignored_: The columns of the table last transformed that were not there in fit.

    Examples:
        >>> table = {"pages": [310, 95, None], "cover": ["hard", "soft", "soft"], "out": ["no", "yes", "no"]}
        >>> encoder = TableEncoder().fit(table)
        >>> encoder.get_feature_names_out().tolist()
        ['pages', 'pages missing', 'cover=soft', 'cover other', 'out']
        >>> encoder.transform(table).tolist()[2]
        [0.0, 1.0, 1.0, 0.0, -1.0]
    """

    def __init__(
        self,
        text: Sequence[str] = (),
        categorical: Sequence[str] = (),
        drop: Sequence[str] = (),
        max_text_features: int = 30_000,
        max_categories: int = 1_000,
        text_model: str | None = None,
    ) -> None:
        self.text = text
        self.categorical = categorical
        self.drop = drop
        self.max_text_features = max_text_features
        self.max_categories = max_categories
        self.text_model = text_model

    def fit(self, frame: Any, y: Any = None) -> Self:
        """Learn from a table what its columns are; `frame` may be all that `as_frame` takes.

        Args:
            frame: A data frame, or whatever else `as_frame` takes.
            y: Not used; scikit-learn passes it.
        """
        return self.fit_blocks(lambda: (frame,))

    def fit_blocks(self, blocks: Blocks) -> Self:
        """Learn from a table that comes in blocks of rows and need not fit into memory.

        Args:
            blocks: Returns the blocks from the first; it is called a second time where a column holds nothing, or one
                value only, in the first rows and something else later.
        """
        check_whole("max_text_features", self.max_text_features, 2)
        check_whole("max_categories", self.max_categories, 1)
        if self.text_model is not None:
            check_choice("text_model", self.text_model, MODELS)
            embed([], self.text_model)  # what is not installed is named before the work
        stream = _frames(blocks)
        first: list[pd.DataFrame] = []
        while sum(map(len, first)) < HEAD_ROWS and (block := next(stream, None)) is not None:
            first.append(block)
        if not first:
            raise ValueError("A table must hold at least one row; it holds none. Check the table.")
        head = (first[0] if len(first) == 1 else pd.concat(first, ignore_index=True)).iloc[:HEAD_ROWS]
        declared = self._check_declared(list(head.columns))
        choices = {name: self._choose(name, head[name], declared.get(name)) for name in head.columns}
        columns, choices = self._count(chain(first, stream), choices, declared)
        late = {name: choice for name, choice in choices.items() if choice.kind != "left out" and name not in columns}
        if late:
            columns |= self._count(_frames(blocks), late, declared)[0]
        return self._finish(list(head.columns), columns, choices)

    def _check_declared(self, names: list[str]) -> dict[str, str]:
        """Which columns the user declared to be what."""
        declared: dict[str, str] = {}
        for kind, given in (("text", self.text), ("category", self.categorical), ("left out", self.drop)):
            wanted = _as_names(given)
            try:
                check_known(wanted, names, "The table has no column")
            except ValueError as error:
                raise TableError(str(error)) from None
            for name in wanted:
                if declared.setdefault(name, kind) != kind:
                    raise ValueError(
                        f"A column must be in one of text, categorical and drop; {name!r} is in two. Remove one."
                    )
        return declared

    def _choose(self, name: str, cells: pd.Series[Any], declared: str | None) -> Choice:
        try:
            if declared == "left out":
                return left_out("named in drop")
            if declared is not None:
                return choose_declared("text" if declared == "text" else "category", cells)
            return choose_kind(name, cells, self.max_categories)
        except CellFault as fault:
            raise _cell_error(name, "cells of one kind", fault) from None

    def _count(
        self, blocks: Iterable[pd.DataFrame], choices: dict[str, Choice], declared: Mapping[str, str]
    ) -> tuple[dict[str, Column], dict[str, Choice]]:
        """Update the columns with all blocks; return them, and the choices with those that later rows changed."""
        columns = {name: self._make(name, choice) for name, choice in choices.items() if choice.kind != "left out"}
        watched = {name: _Watch() for name, choice in choices.items() if choice.may_change}
        choices, start = dict(choices), 0
        for block in blocks:
            self._check_block(block, choices, start)
            for name, column in columns.items():
                _update(column, block[name], start)
            for name in [name for name, watch in watched.items() if watch.has_changed(block[name])]:
                choices[name] = self._choose(name, watched[name].with_first(block[name]), declared.get(name))
                if not choices[name].may_change:
                    del watched[name]
            start += len(block)
        self.n_rows_ = start
        return columns, choices

    def _check_block(self, block: pd.DataFrame, names: Iterable[str], start: int) -> None:
        absent = [name for name in names if name not in block.columns]
        if absent:
            raise ValueError(
                f"Every block of a table must have the columns of the first; the block that begins with row {start} "
                f"has no {name_some(absent)}. Add them."
            )

    def _make(self, name: str, choice: Choice) -> Column:
        if choice.kind == "category":
            return CategoryColumn(name, choice, self.max_categories)
        if choice.kind == "text":
            return TextColumn(name, choice, self.max_text_features, self.text_model)
        return COLUMNS[choice.kind](name, choice)

    def _finish(self, names: list[str], columns: dict[str, Column], choices: dict[str, Choice]) -> Self:
        if not columns:
            why = "; ".join(f"{name!r}: {choice.reason}" for name, choice in list(choices.items())[:_FAULTS_LISTED])
            raise TableError(
                f"A table must have a column to learn from; all {len(names)} are left out ({why}). Add a column that "
                "differs between rows, or name one in text or categorical."
            )
        for column in columns.values():
            try:
                column.finish()
            except CellFault as fault:
                raise _cell_error(column.name, column.must_hold, fault) from None
        self.columns_ = [columns[name] for name in names if name in columns]
        numbers = [column for column in self.columns_ if isinstance(column, NumberColumn)]
        if len(numbers) > MOST_WITH_STEPS:
            for column in numbers:
                column.leave_out_steps()
        self.left_out_ = {name: choices[name].reason for name in names if name not in columns}
        self.is_sparse_ = _is_sparse(self.columns_)
        self._set_names(names)
        return self

    def _set_names(self, names: list[str]) -> None:
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)
        self.ignored_: tuple[str, ...] = ()

    def transform(self, frame: Any) -> Matrix:
        """Return the numbers of a table, float32, (rows, features): an array, or a CSR array where `is_sparse_`.

        Args:
            frame: A data frame, or whatever else `as_frame` takes.
        """
        check_is_fitted(self, "columns_")
        table = as_frame(frame)
        known = set(self.feature_names_in_)
        self.ignored_ = tuple(name for name in table.columns if name not in known)
        pieces: list[Piece] = []
        faults = []
        for column in self.columns_:
            if column.name not in table.columns:
                faults.append(f"there is no column {column.name!r}")
                continue
            try:
                pieces += column.encode(table[column.name])
            except CellFault as fault:
                faults.append(f"column {column.name!r} ({column.kind}) holds {fault.found} in row {fault.row}")
        if faults:
            more = f"; and {len(faults) - _FAULTS_LISTED} more" if len(faults) > _FAULTS_LISTED else ""
            raise TableError(
                "A table must have the columns the encoder was fitted with, and cells of the same kind in them; "
                f"{'; '.join(faults[:_FAULTS_LISTED])}{more}. Add or correct them."
            )
        return _join(pieces, is_sparse=self.is_sparse_)

    def transform_blocks(self, blocks: Blocks | Iterable[Any]) -> Iterator[Matrix]:
        """Yield the numbers of each block of a table, in order.

        Args:
            blocks: Tables, or a function that gives them.
        """
        for block in blocks() if callable(blocks) else blocks:
            yield self.transform(block)

    @property
    def n_outputs_(self) -> int:
        """How many columns the result has."""
        check_is_fitted(self, "columns_")
        return sum(len(column.names) for column in self.columns_)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """The names of the columns of the result, such as 'pages', 'cover=soft' or 'title: love'.

        Args:
            input_features: Not used; scikit-learn passes it.
        """
        check_is_fitted(self, "columns_")
        return np.array([name for column in self.columns_ for name in column.names], dtype=object)

    def describe(self) -> list[ColumnReport]:
        """What was found in each column of the table and what it became, in the order of the table."""
        check_is_fitted(self, "columns_")
        columns = {column.name: column for column in self.columns_}
        return [
            _report(columns[name]) if name in columns
            else ColumnReport(name, "left out", "", "", 0, None, self.left_out_[name])
            for name in self.feature_names_in_
        ]  # fmt: skip

    def to_state(self) -> tuple[Facts, Arrays]:
        """Return what `from_state` needs: facts for a JSON file, and arrays of numbers and bytes."""
        check_is_fitted(self, "columns_")
        states = [column.to_state() for column in self.columns_]
        facts: Facts = {
            "format": FORMAT,
            "text": _as_names(self.text),
            "categorical": _as_names(self.categorical),
            "drop": _as_names(self.drop),
            "max_text_features": int(self.max_text_features),
            "max_categories": int(self.max_categories),
            "text_model": self.text_model or "",
            "n_rows": self.n_rows_,
            "is_sparse": self.is_sparse_,
            "names": [str(name) for name in self.feature_names_in_],
            "left_out": dict(self.left_out_),
            "columns": [each for each, _ in states],
        }
        arrays = {f"{n}.{key}": array for n, (_, own) in enumerate(states) for key, array in own.items()}
        return facts, arrays

    @classmethod
    def from_state(cls, facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Return the encoder that `to_state` was called on; a ValueError says what is wrong with facts or arrays.

        Args:
            facts: The first part of the state.
            arrays: The second.
        """
        if get(facts, "format") != FORMAT:
            raise wrong(f"the format {FORMAT}", facts["format"])
        encoder = cls(
            text=tuple(get_texts(facts, "text")),
            categorical=tuple(get_texts(facts, "categorical")),
            drop=tuple(get_texts(facts, "drop")),
            max_text_features=get_count(facts, "max_text_features"),
            max_categories=get_count(facts, "max_categories"),
            text_model=get_text(facts, "text_model", ("", *MODELS)) or None,
        )
        encoder.n_rows_ = get_count(facts, "n_rows")
        encoder.is_sparse_ = get_flag(facts, "is_sparse")
        encoder.columns_ = _restore_columns(get(facts, "columns"), arrays)
        reasons = get(facts, "left_out")
        if not isinstance(reasons, Mapping):
            raise wrong("as 'left_out' a dictionary", reasons)
        encoder.left_out_ = {name: get_text(reasons, name) for name in reasons}
        names = get_texts(facts, "names")
        if sorted(names) != sorted([column.name for column in encoder.columns_] + list(encoder.left_out_)):
            raise wrong("as 'names' those of its columns and of those left out", names)
        encoder._set_names(names)
        return encoder


class _Watch:
    """A column whose cells were all missing, or all the same, in the first rows."""

    def __init__(self) -> None:
        self._first: pd.Series[Any] = pd.Series(dtype=object)

    def has_changed(self, cells: pd.Series[Any]) -> bool:
        """Whether a cell of this block differs from the first one that was met."""
        if not len(self._first):
            self._first = cells.iloc[:1].astype(object)
        first = self._first.iloc[0]
        if pd.isna(first):
            return bool(cells.notna().any())
        return not bool((cells.astype(object) == first).all())

    def with_first(self, cells: pd.Series[Any]) -> pd.Series[Any]:
        """The cells of a block after the first one that was met."""
        return pd.concat([self._first, cells.astype(object)], ignore_index=True)


def _frames(blocks: Blocks) -> Iterator[pd.DataFrame]:
    """The blocks that hold rows."""
    return (frame for frame in map(as_frame, blocks()) if len(frame))


def _as_names(given: Sequence[str]) -> list[str]:
    return [str(name) for name in ([given] if isinstance(given, str) else given)]


def _update(column: Column, cells: pd.Series[Any], start: int) -> None:
    try:
        column.update(cells, start)
    except CellFault as fault:
        raise _cell_error(column.name, column.must_hold, fault, start) from None


def _cell_error(name: str, must_hold: str, fault: CellFault, start: int = 0) -> ValueError:
    found = fault.found if " cells are " in fault.found else f"it holds {fault.found}"
    others = "" if fault.must_hold in (FINITE, SINGLE) else "text, categorical or "
    return TableError(
        f"Column {name!r} must hold {fault.must_hold or must_hold}; {found} in row {start + fault.row} (counted from "
        f"0). Correct the column, or name it in {others}drop."
    )


def _is_sparse(columns: list[Column]) -> bool:
    if not any(isinstance(column, CategoryColumn | TextColumn) for column in columns):
        return False
    return sum(column.n_filled for column in columns) < SPARSE_BELOW * sum(len(column.names) for column in columns)


def _join(pieces: list[Piece], *, is_sparse: bool) -> Matrix:
    """Put pieces side by side."""
    if not is_sparse:
        return np.hstack([piece.toarray() if isinstance(piece, sp.csr_array) else piece for piece in pieces])
    return sp.csr_array(sp.hstack([sp.csr_array(piece) for piece in pieces], format="csr", dtype=np.float32))


def _report(column: Column) -> ColumnReport:
    missing = column.n_missing / column.n_rows if column.n_rows else 0.0
    return ColumnReport(column.name, column.kind, column.read_as, column.became, len(column.names), missing, "")


def _restore_columns(stored: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> list[Column]:
    if not isinstance(stored, list) or not stored or not isinstance(arrays, Mapping):
        raise wrong("at least one column, and its arrays", "it does not")
    columns = []
    for number, facts in enumerate(stored):
        kind = get_text(facts, "kind", KINDS[:-1])
        prefix = f"{number}."
        own = {key.removeprefix(prefix): array for key, array in arrays.items() if str(key).startswith(prefix)}
        columns.append(next(COLUMNS[each] for each in COLUMNS if each == kind).restore(facts, own))
    if repeat := find_repeat(column.name for column in columns):
        raise wrong("columns with different names", columns[repeat[0]].name)
    return columns
