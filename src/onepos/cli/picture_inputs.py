"""Pictures as a command names them: folders, tables of paths, official layouts."""

from __future__ import annotations

import csv
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onepos.images.readers import ImageDataset

PARTS = ("train", "val", "test")
LAYOUTS = ("voc", "coco", "nuswide", "cub")
"""Data sets with an official layout on disk, named as `voc:FOLDER`."""


def cut_part(data: str) -> tuple[str, str]:
    """The name, and the part of its split behind it."""
    name, _, part = data.rpartition(":")
    return (name, part) if part in PARTS and name and name not in LAYOUTS else (data, "")


def is_of_pictures(name: str, image: str | None) -> bool:
    """Whether this names pictures: a folder, an official layout, a picture, or a table with a column of paths."""
    from onepos.images.readers.folders import SUFFIXES

    if name.partition(":")[0] in LAYOUTS and ":" in name:
        return True
    return Path(name).is_dir() or name.lower().endswith(SUFFIXES) or _find_image_column(name, image) is not None


def _find_image_column(name: str, image: str | None) -> str | None:
    """The column asked for, or `path` where its first cell is the path of a picture."""
    from onepos.images.readers.folders import SUFFIXES

    if Path(name).suffix not in (".csv", ".tsv") or not Path(name).is_file():
        return None
    if image is not None:
        return image
    columns, first = _read_cells(name, 1)
    cells = dict(zip(columns, first[0] if first else [], strict=False))
    return "path" if cells.get("path", "").strip().lower().endswith(SUFFIXES) else None


def _read_cells(table: str, n_rows: int | None) -> tuple[list[str], list[list[str]]]:
    """The header of a table and its first rows, or all."""
    with open(table, encoding="utf-8-sig", newline="", errors="replace") as handle:
        header = handle.readline()
        handle.seek(0)
        reader = csv.reader(handle, delimiter=next((mark for mark in "\t,;" if mark in header), ","))
        columns = next(reader, [])
        return columns, [row for row in islice(reader, n_rows) if row]


def read_picture_rows(name: str, part: str, columns: dict[str, str | None], split_seed: int) -> ImageDataset:
    """Labelled pictures, all or one part of the split they bring, or of a seeded one."""
    layout, _, folder = name.partition(":")
    if layout in LAYOUTS and folder:
        pictures = _read_layout(layout, folder)
    elif Path(name).is_dir():
        from onepos.images.readers import read_folders

        pictures = read_folders(name)
    elif (image := _find_image_column(name, columns.get("image"))) is not None:
        from onepos.images.readers import read_image_table

        label = columns.get("label") or "label"
        pictures = read_image_table(name, image=image, label=label, separator=columns.get("separator"))
    else:
        raise ValueError(
            f"labelled pictures come as a folder per class or a table of paths and labels; {name} is one picture. "
            "Name the folder above the folders of the classes."
        )
    if not part:
        return pictures
    if pictures.splits is None:
        from onepos.protocol import train_val_test_split

        return pictures.take(train_val_test_split(pictures.Y, split_seed)._asdict()[part])
    if part not in pictures.splits:
        raise ValueError(f"{name} has the parts {', '.join(pictures.splits)}; there is no {part}. Name one of them.")
    return pictures.take(pictures.splits[part])


def _read_layout(layout: str, folder: str) -> ImageDataset:
    """With the split and the single positives of the published benchmark."""
    import onepos.images.readers as readers
    from onepos.images import with_published_protocol

    read = {
        "voc": readers.read_voc,
        "coco": readers.read_coco,
        "nuswide": readers.read_nuswide,
        "cub": readers.read_cub,
    }
    return with_published_protocol(read[layout](folder))


def list_pictures(name: str, part: str, image: str | None, split_seed: int) -> list[str]:
    """The pictures to predict: all in a folder however deep, those of a table, one, or a part of labelled ones."""
    from onepos.images.readers.folders import SUFFIXES

    if part or name.partition(":")[0] in LAYOUTS:
        return read_picture_rows(name, part, {"image": image}, split_seed).files
    if Path(name).is_dir():
        found = sorted(path for path in Path(name).rglob("*") if path.name.lower().endswith(SUFFIXES))
        seen = [path for path in found if not any(step.startswith(".") for step in path.relative_to(name).parts)]
        if not seen:
            raise ValueError(f"{name} must hold pictures ({', '.join(SUFFIXES)}); it holds none. Check the path.")
        return [str(path) for path in seen]
    if name.lower().endswith(SUFFIXES):
        return [name]
    column = _find_image_column(name, image)
    if column is None:
        raise ValueError(
            f"this model takes pictures: name a folder, a picture, or a table with a column of paths (--image); {name} "
            "is none of these."
        )
    columns, rows = _read_cells(name, None)
    if column not in columns:
        raise ValueError(f"{name} has no column '{column}'; it has {', '.join(columns)}. Name one with --image.")
    place = columns.index(column)
    short = next((k for k, row in enumerate(rows) if len(row) <= place or not row[place].strip()), None)
    if short is not None or not rows:
        raise ValueError(f"{name} must hold a path in each row; row {short or 0} holds none. Correct the table.")
    return [str(Path(name).parent / row[place].strip().replace("\\", "/")) for row in rows]
