"""Whether what a user passes as X is a raw table: one with cells that are no numbers, or that are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from onepos.tables.encoder import TableEncoder
from onepos.tables.frames import as_frame
from onepos.validation import suggest

TABLES = ("auto", "never")
"""Raw tables are encoded; they are refused as they are."""

_NUMBERS = frozenset({"integer", "floating", "mixed-integer-float", "boolean"})


def check_tables(tables: Any) -> None:
    """Refuse what is neither one of TABLES nor an encoder."""
    if isinstance(tables, TableEncoder) or (isinstance(tables, str) and tables in TABLES):
        return
    hint = suggest(tables, TABLES) if isinstance(tables, str) else f"choose one of: {', '.join(TABLES)}."
    raise ValueError(f"tables must be 'auto', 'never' or a TableEncoder; got {tables!r}: {hint}")


def make_encoder(tables: str | TableEncoder, X: Any) -> TableEncoder | None:
    """An encoder that is not fitted yet; None where X goes to the network as it is.

    Args:
        tables: One of TABLES, or an encoder with options, which is used whatever X holds.
        X: What `fit` was given.
    """
    if isinstance(tables, TableEncoder):
        return TableEncoder(**tables.get_params())
    return TableEncoder() if tables == "auto" and is_raw(X) else None


def is_raw(X: Any) -> bool:
    """Whether X is a table with a column that holds something else than numbers, or with a missing cell."""
    if not is_table(X):
        return False
    frame = as_frame(X)
    return any(_is_raw(frame.iloc[:, place]) for place in range(frame.shape[1]))


def is_table(X: Any) -> bool:
    """Whether X has columns with names: a data frame, an Arrow table, a dictionary of columns, a list of records."""
    if isinstance(X, pd.DataFrame | Mapping):
        return True
    if isinstance(X, list | tuple):
        return bool(X) and all(isinstance(row, Mapping) for row in X)
    has_columns = hasattr(X, "columns") or hasattr(X, "column_names")
    return not isinstance(X, np.ndarray) and has_columns and (hasattr(X, "to_pandas") or hasattr(X, "collect"))


def _is_raw(column: pd.Series[Any]) -> bool:
    if bool(column.isna().any()):
        return True
    if column.dtype == object:
        return pd.api.types.infer_dtype(column, skipna=False) not in _NUMBERS
    return not pd.api.types.is_numeric_dtype(column.dtype)  # True and False count as numbers
