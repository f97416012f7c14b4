"""A CSV file of paths and labels."""

from __future__ import annotations

import csv
import os
from itertools import islice
from pathlib import Path

from onepos.datasets.files import check_file, naming
from onepos.datasets.labels import binarise, suggest
from onepos.images.readers.image_dataset import ImageDataset
from onepos.images.readers.listing import check_images


def read_image_table(
    path: str | os.PathLike[str],
    *,
    image: str = "path",
    label: str = "label",
    separator: str | None = None,
    check_files: bool = True,
) -> ImageDataset:
    """Read a table with a column of paths and a column of labels; other columns are left out.

    Args:
        path: `.csv` (comma or semicolon) or `.tsv`, UTF-8, first line: column names.
        image: Column of the paths; they start from the folder of the table unless they are absolute.
        label: Column of the label; an empty cell means that no label is known to be positive.
        separator: Text between several labels of one cell. Without it there is one label per image, and
            `observed` is set.
        check_files: Whether every image must be there.
    """
    table = check_file(Path(path))
    lines, paths, cells = [], [], []
    with naming(table, "Save it as UTF-8 text."):
        columns, rows = read_cells(table)
        place, value = (_find(table, columns, name) for name in (image, label))
        for line, row in rows:
            if len(row) != len(columns) or not row[place].strip():
                raise ValueError(
                    f"{table.name}, line {line}: a row must hold {len(columns)} cells and a path; it is "
                    f"'{','.join(row)[:60]}'. Correct the line, or get the file again if it was cut off."
                )
            lines.append(line)
            paths.append(row[place].strip().replace("\\", "/"))
            cells.append(row[value])
        if not paths:
            raise ValueError(f"{table.name} must hold at least one row; it holds none. Check the file.")
        Y, names = binarise(cells, separator)
    if check_files:
        check_images(table.parent, paths, table.name, "line", lines)
    with naming(table):
        return ImageDataset(
            name=table.stem,
            root=os.fspath(table.parent),
            paths=tuple(paths),
            Y=Y,
            label_names=names,
            source=table.name,
            observed=Y if separator is None else None,
        )


def read_cells(
    table: str | os.PathLike[str], n_rows: int | None = None, errors: str = "strict"
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header of a table, and its first rows or all, without blank ones, with their line numbers.

    `errors` is what text that is not UTF-8 does, as in `open`.
    """
    with open(table, encoding="utf-8-sig", newline="", errors=errors) as handle:
        header = handle.readline()
        handle.seek(0)
        reader = csv.reader(handle, delimiter=next((mark for mark in "\t,;" if mark in header), ","))
        columns = next(reader, [])
        return columns, list(islice(((reader.line_num, row) for row in reader if row), n_rows))


def _find(table: Path, columns: list[str], name: str) -> int:
    if name not in columns:
        raise ValueError(f"{table.name} has no column '{name}'; {suggest(name, columns)}")
    return columns.index(name)
