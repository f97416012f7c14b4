"""JSON lines: one object per line, whose entries are the cells of a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from onepos.datasets.files import naming, open_binary
from onepos.reading import check_size, is_unicode, shorten

if TYPE_CHECKING:
    import pandas as pd


def read_json_lines(path: Path) -> pd.DataFrame:
    """The rows of a file; an entry that a line does not have is a missing cell."""
    import pandas as pd

    rows = []
    names: set[str] = set()
    with naming(path), open_binary(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(
                    f"{path.name}, line {number}: every line must be a JSON object; this one is not ({error}). Correct "
                    "the line, or get the file again if it was cut off."
                ) from None
            if not isinstance(row, dict):
                raise ValueError(
                    f'{path.name}, line {number}: every line must be a JSON object, such as {{"title": "Up"}}; this '
                    f"one is {shorten(json.dumps(row))[:40]}. Write one object per line."
                )
            if not is_unicode(line, row):
                raise ValueError(
                    f"{path.name}, line {number}: text must be valid Unicode; it has half of a surrogate pair. Correct "
                    "the line."
                )
            rows.append(row)
            names.update(row)
        check_size(path, 8 * len(rows) * len(names))  # each line may name columns of its own
        return pd.DataFrame(rows)
