"""A folder per class, as in ImageNet: one label per image, which is single-positive data."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from onepos.images.readers.image_dataset import ImageDataset, join_parts

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")
PARTS = ("train", "val", "test")


def read_folders(root: str | os.PathLike[str]) -> ImageDataset:
    """Read `root/<class>/…/<image>`, or `root/{train,val,test}/<class>/…` where the folders are named so.

    Classes are in alphabetical order, and so are the images of each. `Y` and `observed` are the same: the folder is
    the one label that is known to be positive, of the others nothing is known. Hidden files and folders are left out.

    Args:
        root: The folder.
    """
    folder = Path(root)
    found = _subfolders(folder)
    is_parted = "train" in found and set(found) <= set(PARTS)
    parts = {part: _list_classes(folder, part) for part in PARTS if part in found} if is_parted else None
    listed = parts or {"all": _list_classes(folder, "")}
    classes = sorted({name for images in listed.values() for name in images})
    content = {part: _label(images, classes) for part, images in listed.items()}
    data = join_parts(folder.resolve().name, folder, content, classes, "a folder per class")
    return replace(data, splits=data.splits if parts else None, observed=data.Y)


def _subfolders(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}. Check the name.")
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def _list_classes(root: Path, part: str) -> dict[str, list[str]]:
    """Class → images, relative to the root."""
    folder = root / part
    stray = sorted(entry.name for entry in os.scandir(folder) if entry.is_file() and _is_image(entry.name))
    if stray:
        raise ValueError(f"every image must be in the folder of its class; {folder / stray[0]} is not. Move it.")
    classes = {name: _list_images(root, folder / name) for name in _subfolders(folder)}
    if not classes:
        raise ValueError(f"{folder} must hold a folder per class; it holds none. Check the path.")
    for name, images in classes.items():
        if not images:
            raise ValueError(
                f"the folder of a class must hold images ({', '.join(SUFFIXES)}); {folder / name} holds none. Remove "
                "the folder or add images."
            )
    return classes


def _list_images(root: Path, folder: Path) -> list[str]:
    found = []
    for where, inner, names in os.walk(folder, followlinks=True):
        inner[:] = [name for name in inner if not name.startswith(".")]
        found += [Path(where, name).relative_to(root).as_posix() for name in names if _is_image(name)]
    return sorted(found)


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _label(images: dict[str, list[str]], classes: list[str]) -> tuple[list[str], np.ndarray]:
    column_of = {name: column for column, name in enumerate(classes)}
    columns = [column_of[name] for name, mine in images.items() for _ in mine]
    Y = np.zeros((len(columns), len(classes)), np.uint8)
    Y[np.arange(len(columns)), columns] = 1
    return [path for mine in images.values() for path in mine], Y
