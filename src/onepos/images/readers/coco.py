"""MS-COCO 2014: `annotations/instances_{train,val}2014.json`, `train2014` and `val2014`."""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onepos.datasets.dataset import Labels
from onepos.images.readers.image_dataset import ImageDataset, join_parts
from onepos.images.readers.json_lists import iterate_lists
from onepos.images.readers.listing import check_counts, check_images, find_root

EXPECTED = {"train": 82081, "test": 40137}
VARIANTS: dict[tuple[int, ...], str] = {
    (82783, 40504): "COCO 2014 with the images that have no annotation",
    (117266, 4952): "COCO 2017",
}
N_CLASSES = 80
FOLDERS = {"train": "train2014", "test": "val2014"}  # the official val images are the test images of the benchmark


def read_coco(root: str | os.PathLike[str], *, strict: bool = True, check_files: bool = True) -> ImageDataset:
    """Read COCO 2014 as the published single-positive benchmark does.

    A label is positive where the image has an annotation of that category, crowds included. Images without any
    annotation are left out. Classes are in the order of the annotation file, images in that of their ids sorted *as
    text* ("1000" before "9"): the published draw depends on both. The annotation files are read piece by piece.

    Args:
        root: The folder that holds `annotations`, `train2014` and `val2014`.
        strict: Whether there must be exactly the 80 classes, 82 081 train and 40 137 test images of the benchmark.
        check_files: Whether every image must be there.
    """
    folder = find_root(root, "annotations", ("coco", "COCO"), "COCO 2014")
    parts = {}
    classes: dict[int, str] = {}
    for part, images in FOLDERS.items():
        path = folder / "annotations" / f"instances_{images}.json"
        content = _read_instances(path)
        if classes and list(classes.items()) != list(content.classes.items()):
            raise ValueError(
                f"{path.name} must list the same categories as the train file; it does not. Get both again."
            )
        classes = content.classes
        parts[part] = _label(path, content, images)
        if check_files:
            ids = sorted(set(content.image), key=str)
            check_images(folder, parts[part][0], path.name, "image", ids)
    if strict:
        if len(classes) != N_CLASSES:
            raise ValueError(
                f"COCO 2014 must have {N_CLASSES} categories; the annotation files have {len(classes)}. Give the "
                "instances files, or pass strict=False to use these as they are."
            )
        check_counts("COCO 2014", folder, {part: len(paths) for part, (paths, _) in parts.items()}, EXPECTED, VARIANTS)
    return join_parts("coco", folder, parts, list(classes.values()), "MS-COCO 2014, instances")


class _Instances(NamedTuple):
    """What is kept of an annotation file: numbers only, so that it stays small."""

    files: dict[int, str]
    classes: dict[int, str]
    image: array[int]
    category: array[int]
    offset: array[int]


def _read_instances(path: Path) -> _Instances:
    content = _Instances({}, {}, array("q"), array("q"), array("q"))
    for key, element, offset in iterate_lists(path):
        if key == "images":
            content.files[_get(path, element, "id", offset, int)] = _get(path, element, "file_name", offset, str)
        elif key == "categories":
            content.classes[_get(path, element, "id", offset, int)] = _get(path, element, "name", offset, str)
        elif key == "annotations":
            content.image.append(_get(path, element, "image_id", offset, int))
            content.category.append(_get(path, element, "category_id", offset, int))
            content.offset.append(offset)
    for name, found in (("images", content.files), ("categories", content.classes), ("annotations", content.image)):
        if not found:
            raise ValueError(f"{path.name} must hold a list '{name}'; it holds none. Give an instances file of COCO.")
    return content


def _get(path: Path, element: Any, key: str, offset: int, kind: type) -> Any:
    value = element.get(key) if isinstance(element, Mapping) else None
    if type(value) is not kind:
        what = "a whole number" if kind is int else "text"
        raise ValueError(
            f"{path.name}, character {offset}: there must be {what} as '{key}'; it is {value!r}. Get the file again."
        )
    return value


def _label(path: Path, content: _Instances, folder: str) -> tuple[list[str], Labels]:
    ids = sorted(set(content.image), key=str)
    row_of = {image: row for row, image in enumerate(ids)}
    column_of = {category: column for column, category in enumerate(content.classes)}
    for what, numbers, known in (
        ("category", content.category, column_of),
        ("image", content.image, content.files),
    ):
        unknown = next((k for k, number in enumerate(numbers) if number not in known), None)
        if unknown is not None:
            raise ValueError(
                f"{path.name}, character {content.offset[unknown]}: an annotation must be of a listed {what}; it is of "
                f"{what} {numbers[unknown]}. Get the file again."
            )
    Y = np.zeros((len(ids), len(column_of)), np.uint8)
    Y[[row_of[image] for image in content.image], [column_of[category] for category in content.category]] = 1
    return [f"{folder}/{content.files[image]}" for image in ids], Y
