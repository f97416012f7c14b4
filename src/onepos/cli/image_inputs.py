"""Images as a command names them: folders, tables of paths, official layouts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onepos.cli.options import RowOptions
    from onepos.datasets.table import Table
    from onepos.images.readers import ImageDataset

PARTS = ("train", "val", "test")
LAYOUTS = ("voc", "coco", "nuswide", "cub")
"""Data sets with an official layout on disk, named as `voc:FOLDER`; `onepos.images.readers` has read_voc and so on."""


def cut_part(data: str) -> tuple[str, str]:
    """The name, and the part of its split behind it."""
    name, _, part = data.rpartition(":")
    if not name or name in LAYOUTS:
        return data, ""
    if part in PARTS:
        return name, part
    if Path(name).exists() and not Path(data).exists():
        raise ValueError(f"the part after {name}: must be one of {', '.join(PARTS)}; it is '{part}'. Correct it.")
    return data, ""


def open_if_table(name: str, options: RowOptions) -> Table | None:
    """The table of this name, which is opened once; None where this names no table."""
    from onepos.datasets.table import TABLE_SUFFIXES, open_table

    if not name.lower().endswith(TABLE_SUFFIXES) or Path(name).is_dir():
        return None
    label = options.label or (None if options.label_columns else "label")
    return open_table(name, text=(options.image, label))


def is_of_images(name: str, table: Table | None, image: str | None) -> bool:
    """Whether this names images: a folder, an official layout, an image, or a table with a column of paths."""
    from onepos.images.readers.folders import SUFFIXES

    if name.partition(":")[0] in LAYOUTS and ":" in name:
        return True
    return Path(name).is_dir() or name.lower().endswith(SUFFIXES) or _find_image_column(table, image) is not None


def _find_image_column(table: Table | None, image: str | None) -> str | None:
    """The given column, or `path` where its first cell is the path of an image."""
    from onepos.images.readers.folders import SUFFIXES

    if table is None or image is not None:
        return None if table is None else image
    first = str(table.frame["path"].iloc[0]) if "path" in table.frame.columns else ""
    return "path" if first.strip().lower().endswith(SUFFIXES) else None


def read_image_rows(name: str, part: str, options: RowOptions, table: Table | None) -> ImageDataset:
    """Labelled images, all or one part of the split they bring, or of a seeded one."""
    import onepos.images.readers as readers
    from onepos.protocol import train_val_test_split

    layout, _, folder = name.partition(":")
    if layout in LAYOUTS and folder:  # with the split and the single positives of the published benchmark
        images = readers.with_published_protocol(getattr(readers, f"read_{layout}")(folder))
    elif Path(name).is_dir():
        images = readers.read_folders(name)
    elif table is not None and (image := _find_image_column(table, options.image)) is not None:
        label, separator = options.label or "label", options.separator
        images = readers.read_image_table(table, image=image, label=label, separator=separator)
    else:
        raise ValueError(
            f"labelled images come as a folder per class or a table of paths and labels; {name} is one image. "
            "Name the folder above the folders of the classes."
        )
    if not part:
        return images
    parts = images.splits or train_val_test_split(images.Y, options.split_seed)._asdict()
    if part not in parts:
        raise ValueError(f"{name} has the parts {', '.join(parts)}; there is no {part}. Name one of them.")
    return images.take(parts[part])


def list_images(name: str, part: str, options: RowOptions) -> list[str]:
    """The images to predict: all in a folder however deep, those of a table, one, or a part of labelled ones."""
    from onepos.images.readers.folders import SUFFIXES

    table = open_if_table(name, options)
    if part or name.partition(":")[0] in LAYOUTS:
        return read_image_rows(name, part, options, table).files
    if Path(name).is_dir():
        found = sorted(path for path in Path(name).rglob("*") if path.name.lower().endswith(SUFFIXES))
        seen = [path for path in found if not any(step.startswith(".") for step in path.relative_to(name).parts)]
        if not seen:
            raise ValueError(f"{name} must hold images ({', '.join(SUFFIXES)}); it holds none. Check the path.")
        return [str(path) for path in seen]
    if name.lower().endswith(SUFFIXES):
        return [name]
    column = _find_image_column(table, options.image)
    if table is None or column is None:
        raise ValueError(
            f"this model takes images: name a folder, an image, or a table with a column of paths (--image); {name} "
            "is none of these."
        )
    table.check_columns([column])
    paths = [str(path).strip().replace("\\", "/") for path in table.frame[column].fillna("")]
    if "" in paths:
        raise ValueError(f"{name} must hold a path in each row; row {paths.index('')} holds none. Correct the table.")
    return [str(Path(name).parent / path) for path in paths]
