"""A CSV file of paths and labels."""

from __future__ import annotations

import os
from pathlib import Path

from onepos.datasets.files import naming
from onepos.datasets.table import Table, open_table
from onepos.images.readers.image_dataset import ImageDataset
from onepos.images.readers.listing import check_images
from onepos.labels import binarize


def read_image_table(
    path: str | os.PathLike[str] | Table,
    *,
    image: str = "path",
    label: str = "label",
    separator: str | None = None,
    check_files: bool = True,
) -> ImageDataset:
    """Read a table with a column of paths and a column of labels; other columns are left out.

    Args:
        path: A file that `open_table` reads, or what it returned.
        image: Column of the paths; they start from the folder of the table unless they are absolute.
        label: Column of the label; an empty cell means that no label is known to be positive.
        separator: What stands between several labels of one cell. Without it there is one label per image, and
            `observed` is set.
        check_files: Whether every image must be there.
    """
    table = path if isinstance(path, Table) else open_table(Path(path), text=(image, label))
    with naming(table.path):
        table.check_columns([image, label])
        paths = [str(cell).strip().replace("\\", "/") for cell in table.frame[image].fillna("")]
        if "" in paths:
            raise ValueError(
                f"{table.path.name}, {table.place(paths.index(''))}: a row must hold a path; column '{image}' is "
                "empty. Correct the line, or get the file again if it was cut off."
            )
        Y, names = binarize(table.frame[label].fillna("").astype(str), separator)
        if check_files:
            check_images(table.path.parent, paths, table.path.name, table.place)
        return ImageDataset(
            name=table.path.stem,
            root=os.fspath(table.path.parent),
            paths=tuple(paths),
            Y=Y,
            label_names=names,
            source=table.path.name,
            observed=Y if separator is None else None,
        )
