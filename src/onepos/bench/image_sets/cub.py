"""CUB-200-2011 with its 312 attributes as labels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from onepos.bench.image_sets.lists import Benchmark, bad_line, find_root, numbered_lines
from onepos.datasets.dataset import Labels
from onepos.images.readers import ImageDataset, check_images, join_parts

_VARIANTS: dict[tuple[int, ...], str] = {(3000, 3033): "the older CUB-200 of 2010"}
_BENCHMARK = Benchmark("CUB-200-2011", 312, "attributes", {"train": 5994, "test": 5794}, _VARIANTS)
_UNKNOWN = 255


def read_cub(root: str | os.PathLike[str], *, strict: bool = True, check_files: bool = True) -> ImageDataset:
    """Read CUB-200-2011 as the published single-positive benchmark does.

    A label is an attribute with `is_present`, whatever its certainty. Images and attributes are in the order of their
    lists. `root` holds `CUB_200_2011` (and `attributes.txt`, as the archive has it), or is that folder. With `strict`
    there must be exactly the attributes and images of the benchmark, with `check_files` every file.
    """
    folder = find_root(root, "images.txt", ("CUB_200_2011", "CUB_200_2011/CUB_200_2011"), "CUB-200-2011")
    images = _read_numbered(folder / "images.txt")
    names = _read_numbered(_find_attributes(folder))
    in_train = _read_split(folder / "train_test_split.txt", images)
    paths = [f"images/{path}" for path in images.values()]
    if check_files:
        numbers = list(images)
        check_images(folder, paths, "images.txt", lambda row: f"image {numbers[row]}")
    Y = _read_labels(folder / "attributes" / "image_attribute_labels.txt", images, names)
    rows = {"train": np.flatnonzero(in_train), "test": np.flatnonzero(~in_train)}
    parts = {part: ([paths[row] for row in mine], Y[mine]) for part, mine in rows.items()}
    if strict:
        _BENCHMARK.check(folder, parts, "attributes.txt has")
    return join_parts("cub", folder, parts, list(names.values()), "CUB-200-2011, image_attribute_labels.txt")


def _find_attributes(folder: Path) -> Path:
    """attributes.txt is beside the folder in the official archive, in `attributes` or the folder itself in others."""
    for path in (folder / "attributes.txt", folder.parent / "attributes.txt", folder / "attributes" / "attributes.txt"):
        if path.is_file():
            return path
    raise FileNotFoundError(f"there is no attributes.txt in {folder} or beside it. It comes with the archive.")


def _read_numbered(path: Path) -> dict[int, str]:
    """Lines of a number and a name."""
    entries: dict[int, str] = {}
    for number, line in numbered_lines(path):
        words = line.split(maxsplit=1)
        if len(words) != 2 or not words[0].isdigit() or int(words[0]) in entries:
            raise bad_line(path, number, "a line must hold a number of its own and a name", line)
        entries[int(words[0])] = words[1]
    if not entries:
        raise ValueError(f"{path.name} must hold at least one line; it is empty. Get the file again.")
    return entries


def _read_split(path: Path, images: dict[int, str]) -> np.ndarray:
    flags: dict[int, bool] = {}
    for number, line in numbered_lines(path):
        words = line.split()
        if len(words) != 2 or not words[0].isdigit() or int(words[0]) not in images or words[1] not in ("0", "1"):
            raise bad_line(path, number, "a line must hold a listed image and 0 (test) or 1 (train)", line)
        flags[int(words[0])] = words[1] == "1"
    missing = [image for image in images if image not in flags]
    if missing:
        raise ValueError(f"{path.name} must name every image; image {missing[0]} is missing. Get the file again.")
    return np.array([flags[image] for image in images])


def _read_labels(path: Path, images: dict[int, str], names: dict[int, str]) -> Labels:
    """(images, attributes); a line is image, attribute, is_present, certainty, time, and a few have a word more."""
    row_of = {str(image): row for row, image in enumerate(images)}
    column_of = {str(attribute): column for column, attribute in enumerate(names)}
    value_of = {"0": 0, "1": 1}
    Y = np.full((len(images), len(names)), _UNKNOWN, np.uint8)
    for number, line in numbered_lines(path):
        words = line.split(maxsplit=3)
        try:
            row, column, value = row_of[words[0]], column_of[words[1]], value_of[words[2]]
        except (KeyError, IndexError):
            must = "a line must hold a listed image, a listed attribute and 0 or 1"
            raise bad_line(path, number, must, line) from None
        Y[row, column] = value
    missing = np.argwhere(Y == _UNKNOWN)
    if len(missing):
        row, column = missing[0]
        raise ValueError(
            f"{path.name} must label every image; image {list(images)[row]} has no attribute {list(names)[column]} "
            f"({len(missing)} entries are missing). It was cut off; get it again."
        )
    return Y
