"""Tables of predictions as CSV, Parquet or JSON; the name of the file decides."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onepos.cli.inputs import check_folder

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".json", ".jsonl")
# Decimal places in JSON.
_PLACES = 12


def check_output(out: Path) -> None:
    """Refuse, before any work, a file that cannot be written or whose ending names no format."""
    check_folder(out)
    if not out.name.lower().endswith(SUFFIXES):
        raise ValueError(f"--out must end in one of {', '.join(SUFFIXES)}; it is {out}. Rename it.")
    if out.suffix.lower() == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise ImportError(
                f"{out.name} needs pyarrow, which is not installed. Run: pip install 'onepos[parquet]'"
            ) from None


def make_table(
    names: list[str], probability: Any, predicted: list[list[str]], ids: Sequence[Any], id_name: str
) -> tuple[pd.DataFrame, str]:
    """The ids, the predicted labels and a column of probabilities per label; and the name of the second column.

    The columns of the labels keep their names; `id_name` and "predicted" get a "_" behind them where they are taken.
    """
    import pandas as pd

    table = pd.DataFrame(probability, columns=names)
    id_name = _free_name(id_name, names)
    column = _free_name("predicted", [*names, id_name])
    table.insert(0, column, pd.Series(predicted, dtype=object))
    table.insert(0, id_name, ids)
    return table, column


def write_table(out: Path, table: pd.DataFrame, lists: str | None = None) -> None:
    """Write a table; `lists` is its column of lists, which are real lists in Parquet and JSON and text in CSV."""
    from onepos.files import replacing

    name = out.name.lower()
    with replacing(out) as handle:
        if name.endswith(".parquet"):
            handle.write(table.to_parquet(index=False))
        elif name.endswith((".json", ".jsonl")):
            is_lines = name.endswith(".jsonl")
            text = table.to_json(orient="records", lines=is_lines, double_precision=_PLACES, force_ascii=False)
            handle.write(text.encode() if is_lines else f"{text}\n".encode())
        else:
            joined = table
            if lists is not None:
                joined = table.assign(**{lists: [join_labels(labels) for labels in table[lists]]})
            is_zipped = name.endswith(".gz")
            joined.to_csv(handle, index=False, float_format="%.6g", compression="gzip" if is_zipped else None)


def join_labels(labels: list[str]) -> str:
    """Labels as one line of CSV with semicolons, so that every reader of CSV can split it again.

    Examples:
        >>> join_labels(["dog", "cat"]), join_labels([])
        ('dog;cat', '')
        >>> join_labels(["salt; pepper", "oil"])
        '"salt; pepper";oil'
        >>> next(csv.reader(['"salt; pepper";oil'], delimiter=";"))
        ['salt; pepper', 'oil']
    """
    line = io.StringIO()
    csv.writer(line, delimiter=";", lineterminator="\r\n").writerow(labels)  # a label with one of both is quoted
    return line.getvalue().removesuffix("\r\n")


def _free_name(name: str, taken: list[str]) -> str:
    while name in taken:
        name += "_"
    return name
