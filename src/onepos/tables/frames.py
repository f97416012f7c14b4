"""What a user passes as a table → a pandas DataFrame whose columns have different names, all of them text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from onepos.validation import find_repeat


def as_frame(table: Any) -> pd.DataFrame:
    """Return a table as a DataFrame; one that already is one is not copied.

    Args:
        table: A DataFrame of pandas or polars, an Arrow table or record batch, a `datasets.Dataset`, an array with two
            dimensions, a dictionary of columns, or a list of dictionaries, one per row.

    Raises:
        ValueError: Where it is none of these, or two columns have one name.
    """
    frame = _to_pandas(table)
    names = [str(name) for name in frame.columns]
    if repeat := find_repeat(names):
        first, second = repeat
        raise ValueError(
            f"The columns of a table must have different names; {names[first]!r} is both column {first} and column "
            f"{second} (counted from 0). Rename one."
        )
    if list(frame.columns) != names:
        frame = frame.copy(deep=False)
        frame.columns = pd.Index(names)
    return frame


def _to_pandas(table: Any) -> pd.DataFrame:
    if isinstance(table, pd.DataFrame):
        return table
    if isinstance(table, Mapping):
        return _from_columns(table)
    if hasattr(table, "collect") and not hasattr(table, "to_pandas"):  # a LazyFrame of polars
        table = table.collect()
    if hasattr(table, "to_pandas") and _has_columns(table):
        return _convert(table)
    if isinstance(table, np.ndarray) and table.ndim == 2:
        return pd.DataFrame(table)
    if isinstance(table, list | tuple) and all(isinstance(row, Mapping) for row in table):
        return pd.DataFrame([dict(row) for row in table])
    raise ValueError(
        "A table must be a DataFrame of pandas or polars, an Arrow table, a datasets.Dataset, a dictionary of columns "
        f"or a list of dictionaries; got {type(table).__name__}. Convert it to one of these."
    )


def _from_columns(table: Mapping[Any, Any]) -> pd.DataFrame:
    parts = [str(name) for name, column in table.items() if hasattr(column, "to_pandas") and _has_columns(column)]
    if parts:
        raise ValueError(
            f"A table must be one table; got {len(parts)}, under {parts[0]!r} and others. Pass one of them, "
            f"such as table[{parts[0]!r}]."
        )
    try:
        return pd.DataFrame(dict(table))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"The columns of a table must be lists of equal length; they are not ({error}). Correct the columns."
        ) from None


def _has_columns(table: Any) -> bool:
    return hasattr(table, "columns") or hasattr(table, "column_names")


def _convert(table: Any) -> pd.DataFrame:
    """By the table's own method; polars without pyarrow has only lists to offer."""
    try:
        return pd.DataFrame(table.to_pandas())
    except ImportError:
        return pd.DataFrame(table.to_dict(as_series=False))
