"""Tables: CSV, TSV and Parquet with one row per sample, and NPZ archives."""

import csv
import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import numpy.typing as npt

from onepos.datasets.dataset import Dataset, Features, Labels, check_features
from onepos.datasets.files import check_file, naming, open_binary, strip_suffix
from onepos.datasets.labels import binarise, suggest
from onepos.datasets.npz import read_npz, read_npz_features

if TYPE_CHECKING:
    import pandas as pd

TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".npz")
# In a label cell these are names like any other; in a feature cell they stand for a missing number.
MISSING = ["", "NA", "N/A", "n/a", "<NA>", "nan", "NaN", "NAN", "null", "NULL", "None", "?"]


def read_table(
    path: str | Path,
    *,
    label: str | None = None,
    separator: str | None = None,
    label_columns: str | Sequence[str] | None = None,
    drop: str | Sequence[str] | None = None,
) -> Dataset:
    """Read a table: labels in one column or in 0/1 columns, numeric features in all the others.

    True and False count as 1 and 0. Features are kept as float32, or float64 where float32 would blur a column.

    Args:
        path: `.csv`, `.tsv` (also `.gz`; first line: column names; UTF-8), `.parquet` or `.npz`. A CSV file
            without a comma in its first line may use semicolons or tabs.
        label: Column that holds the label; an empty cell means no positive label.
        separator: What stands between several labels of one cell, for example ";".
        label_columns: 0/1 columns, one per label, in the order of the table: a name, a pattern such as "label_*",
            or a list of both.
        drop: Columns to leave out: a name, a pattern, or a list of both.
    """
    path = check_file(Path(path))
    if path.suffix.lower() == ".npz":
        _refuse_options(path, label, separator, label_columns, drop)
        return read_npz(path)
    if (label is None) == (label_columns is None):
        raise ValueError(
            f"{path.name} needs either a label column or label columns; {'none' if label is None else 'both'} "
            f"given. Name one: its columns are {', '.join(_read_columns(path)[:12])} …"
        )
    with naming(path):
        frame = _read_frame(path, text_column=label)
        frame = frame.drop(columns=_match_columns(path, frame, drop))
        names = _find_labels(path, frame, label, label_columns)
        X = _to_numbers(path, frame.drop(columns=names))
        if label is not None:
            Y, label_names = binarise(_label_cells(frame[label]), separator)
        else:
            Y, label_names = _to_indicator(path, frame[names]), tuple(names)
        feature_names = tuple(column for column in frame.columns if column not in set(names))
        return Dataset(strip_suffix(path), X, Y, label_names, feature_names, source=path.name)


def read_table_features(
    path: str | Path, *, columns: Sequence[str] | None = None, drop: str | Sequence[str] | None = None
) -> tuple[Features, tuple[str, ...] | None]:
    """Read the features of a table that need not hold labels; see `reading.read_features`."""
    path = check_file(Path(path))
    if path.suffix.lower() == ".npz":
        X, names = read_npz_features(path)
        return select_columns(path, X, names, columns)
    with naming(path):
        frame = _read_frame(path)
        frame = frame.drop(columns=_match_columns(path, frame, drop))
        if columns is not None:
            _check_columns(path, list(frame.columns), columns)
            frame = frame[list(columns)]
        return check_features(_to_numbers(path, frame)), tuple(frame.columns)


def _refuse_options(path: Path, *options: Any) -> None:
    if any(option is not None for option in options):
        raise ValueError(
            f"{path.name} must hold its labels as Y or y; label, separator, label_columns and drop are for "
            "tables with named columns. Leave them out."
        )


def select_columns(
    path: Path, X: Features, names: tuple[str, ...] | None, columns: Sequence[str] | None
) -> tuple[Features, tuple[str, ...] | None]:
    """Keep the wanted columns, in the wanted order."""
    if columns is None:
        return X, names
    if names is not None:
        _check_columns(path, names, columns)
        place = {name: j for j, name in enumerate(names)}
        return check_features(X[:, [place[name] for name in columns]]), tuple(columns)
    if X.shape[1] != len(columns):
        raise ValueError(
            f"{path.name} must hold {len(columns)} features; it holds {X.shape[1]} without names. "
            "Give the features the model was trained on."
        )
    return X, tuple(columns)


def _check_columns(path: Path, present: Sequence[str], wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in present:
            raise ValueError(f"{path.name} has no column '{name}'; {suggest(name, list(present))}")


def _match_columns(path: Path, frame: "pd.DataFrame", patterns: str | Sequence[str] | None) -> list[str]:
    """Return the columns named or matched by a pattern, in the order of the table."""
    wanted = [patterns] if isinstance(patterns, str) else list(patterns or ())
    for pattern in wanted:
        if not any(column == pattern or fnmatchcase(column, pattern) for column in frame.columns):
            raise ValueError(f"{path.name} has no column '{pattern}'; {suggest(pattern, list(frame.columns))}")
    return [
        column
        for column in frame.columns
        if any(column == pattern or fnmatchcase(column, pattern) for pattern in wanted)
    ]


def _find_labels(
    path: Path, frame: "pd.DataFrame", label: str | None, label_columns: str | Sequence[str] | None
) -> list[str]:
    if label is None:
        return _match_columns(path, frame, label_columns)
    _check_columns(path, list(frame.columns), [label])
    return [label]


def _read_frame(path: Path, text_column: str | None = None) -> "pd.DataFrame":
    import pandas as pd

    if path.suffix.lower() == ".parquet":
        frame = _read_parquet(path)
    else:
        columns, delimiter = _read_columns(path), _find_delimiter(path)
        missing = {column: MISSING for column in columns if column != text_column}
        with naming(path, "Save it as UTF-8 text with the column names in the first line."), _expecting_utf8(path):
            frame = pd.read_csv(
                path,
                sep=delimiter,
                dtype={} if text_column is None else {text_column: str},
                keep_default_na=False,
                na_values=missing,
                low_memory=False,
            )
            _check_widths(path, frame, delimiter, len(columns))
    frame.columns = [str(column) for column in frame.columns]
    if frame.empty:
        raise ValueError(f"{path.name} must hold at least one row; it holds none. Check the file.")
    return frame


def _read_parquet(path: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise ImportError(
            f"{path.name} needs pyarrow, which is not installed. Run: pip install 'onepos[parquet]'"
        ) from None
    with naming(path):
        return pd.read_parquet(path)


@contextmanager
def _expecting_utf8(path: Path) -> Iterator[None]:
    """Say which line of a text file is not UTF-8; spreadsheets like to save Latin-1."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path.name}{_find_other_encoding(path)}: the text must be UTF-8; it is in another encoding, such as "
            "Latin-1 or UTF-16. Save the file as UTF-8."
        ) from error


def _find_other_encoding(path: Path) -> str:
    with open_binary(path) as handle:
        for number, line in enumerate(handle, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f", line {number}"
    return ""


def _open_text(path: Path) -> TextIO:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _find_delimiter(path: Path) -> str:
    if ".tsv" in path.name.lower():
        return "\t"
    with naming(path), _expecting_utf8(path), _open_text(path) as handle:
        header = handle.readline()
    return next((mark for mark in (",", ";", "\t") if mark in header), ",")


def _read_columns(path: Path) -> list[str]:
    """Return the column names, no two alike."""
    if path.suffix.lower() == ".parquet":
        return list(map(str, _read_parquet(path).columns))
    with naming(path, "Save it as UTF-8 text."), _expecting_utf8(path), _open_text(path) as handle:
        columns = next(csv.reader(handle, delimiter=_find_delimiter(path)), [])
    if not columns:
        raise ValueError(f"{path.name} must start with a line of column names; it is empty. Check the file.")
    for place, column in enumerate(columns):
        if column in columns[:place]:
            raise ValueError(
                f"{path.name} must name its columns differently; '{column}' is both column "
                f"{columns.index(column) + 1} and {place + 1}. Rename one."
            )
    return columns


def _scan(path: Path, delimiter: str) -> Iterator[tuple[int, int]]:
    """Yield the line number and number of cells of each row below the column names."""
    with _open_text(path) as handle:
        reader = csv.reader(handle, delimiter=delimiter)
        next(reader)
        for cells in reader:
            if cells:
                yield reader.line_num, len(cells)


def _check_widths(path: Path, frame: "pd.DataFrame", delimiter: str, width: int) -> None:
    """Find rows that are too short or too long, which pandas fills up or shifts in silence."""
    import pandas as pd

    last = frame.iloc[:, -1]
    if isinstance(frame.index, pd.RangeIndex) and not (last.isna() | (last.astype(str) == "")).any():
        return
    for line, n_cells in _scan(path, delimiter):
        if n_cells != width:
            raise ValueError(
                f"{path.name}, line {line}: a row must hold {width} cells like the first line; it holds {n_cells}. "
                "Correct the line, or get the file again if it was cut off."
            )


def _place(path: Path, row: int) -> str:
    """Say where a row is: its line in a text file, else its number."""
    if path.suffix.lower() != ".parquet":
        for number, (line, _) in enumerate(_scan(path, _find_delimiter(path))):
            if number == row:
                return f"line {line}"
    return f"row {row}"


def _as_floats(path: Path, frame: "pd.DataFrame") -> npt.NDArray[np.float64]:
    """Return numbers, and True and False as 1 and 0, in full precision; missing cells are NaN."""
    import pandas as pd

    # Where a cell is missing, True and False come as objects.
    flags = [
        column
        for column in frame.columns
        if frame[column].dtype == object and pd.api.types.infer_dtype(frame[column], skipna=True) == "boolean"
    ]
    frame = frame.astype(dict.fromkeys(flags, "boolean"))
    for column in frame.columns:
        _check_number(path, frame[column])
    return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))


def _to_numbers(path: Path, frame: "pd.DataFrame") -> npt.NDArray[np.float64]:
    X = _as_floats(path, frame)
    missing = np.argwhere(np.isnan(X))
    if len(missing):
        row, place = missing[0]
        raise ValueError(
            f"{path.name}, {_place(path, int(row))}: every feature must be known; column '{frame.columns[place]}' "
            "is empty. Fill it, remove the row, or leave the column out with drop (--drop)."
        )
    infinite = np.argwhere(np.isinf(X))
    if len(infinite):
        row, place = infinite[0]
        raise ValueError(
            f"{path.name}, {_place(path, int(row))}: features must be finite; column '{frame.columns[place]}' holds "
            f"{X[row, place]}. Correct it, remove the row, or leave the column out with drop (--drop)."
        )
    return X


def _check_number(path: Path, column: "pd.Series[Any]") -> None:
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        return
    is_text = pd.to_numeric(column.astype(object), errors="coerce").isna() & column.notna()
    row = int(np.argmax(is_text.to_numpy())) if is_text.any() else 0
    raise ValueError(
        f"{path.name}, {_place(path, row)}: features must be numbers; column '{column.name}' holds "
        f"'{str(column.iloc[row])[:40]}'. Leave the column out with drop (--drop), encode it as numbers, or name it "
        "as the label."
    )


def _to_indicator(path: Path, frame: "pd.DataFrame") -> Labels:
    Y = _as_floats(path, frame)
    wrong = np.argwhere((Y != 0) & (Y != 1))
    if len(wrong):
        row, place = wrong[0]
        raise ValueError(
            f"{path.name}, {_place(path, int(row))}: label columns must hold 0 or 1; column "
            f"'{frame.columns[place]}' holds {Y[row, place]:g}. Correct it, or name the right label columns."
        )
    return Y.astype(np.uint8)


def _label_cells(column: "pd.Series[Any]") -> list[Any]:
    """Return the cells as text or lists; whole numbers without a decimal point, missing cells empty."""
    import pandas as pd

    if pd.api.types.is_float_dtype(column) and (column.dropna() % 1 == 0).all():
        column = column.astype("Int64")
    known = column.notna().to_numpy()
    cells = column.astype(object).to_numpy()
    return [
        (cell if isinstance(cell, list | tuple | np.ndarray) else str(cell)) if is_known else ""
        for cell, is_known in zip(cells, known, strict=True)
    ]
