"""MS-COCO 2014: `annotations/instances_{train,val}2014.json`, `train2014` and `val2014`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onepos.bench.image_sets.lists import Benchmark, find_root
from onepos.datasets.files import check_file, naming
from onepos.images.readers import ImageDataset, Part, check_images, join_parts

_VARIANTS: dict[tuple[int, ...], str] = {
    (82783, 40504): "COCO 2014 with the images that have no annotation",
    (117266, 4952): "COCO 2017",
}
_BENCHMARK = Benchmark("COCO 2014", 80, "categories", {"train": 82081, "test": 40137}, _VARIANTS)
FOLDERS = {"train": "train2014", "test": "val2014"}  # the official val images are the test images of the benchmark
# What is kept of an annotation file; the outlines of the objects, most of the file, are dropped as they are read.
_KEPT = {"images", "categories", "annotations", "id", "file_name", "name", "image_id", "category_id"}


def read_coco(root: str | os.PathLike[str], *, strict: bool = True, check_files: bool = True) -> ImageDataset:
    """Read COCO 2014 as the published single-positive benchmark does.

    A label is positive where the image has an annotation of that category, crowds included. Images without any
    annotation are left out. Classes are in the order of the annotation file, images in that of their ids sorted *as
    text* ("1000" before "9"): the published draw depends on both. Reading takes twice the memory of the larger file.
    With `strict` there must be exactly the classes and images of the benchmark, with `check_files` every file.
    """
    folder = find_root(root, "annotations", ("coco", "COCO"), "COCO 2014")
    parts = {}
    classes: dict[int, str] = {}
    for part, images in FOLDERS.items():
        path = folder / "annotations" / f"instances_{images}.json"
        content = _read_instances(path)
        of_part = _by_id(path, content, "categories", "name")
        if classes and list(classes.items()) != list(of_part.items()):
            raise ValueError(
                f"{path.name} must list the same categories as the train file; it does not. Get both again."
            )
        classes = of_part
        ids, parts[part] = _label(path, content, classes, images)
        if check_files:
            check_images(folder, parts[part][0], path.name, [f"image {number}" for number in ids].__getitem__)
    if strict:
        _BENCHMARK.check(folder, parts, "the annotation files have")
    return join_parts("coco", folder, parts, list(classes.values()), "MS-COCO 2014, instances")


def _read_instances(path: Path) -> dict[str, Any]:
    with naming(check_file(path)):
        try:
            content = json.loads(
                path.read_bytes(), object_pairs_hook=lambda pairs: {key: value for key, value in pairs if key in _KEPT}
            )
        except json.JSONDecodeError as error:
            # The cut may be inside a text, an escape (six characters) or a word such as `true`.
            is_cut = error.msg.startswith("Unterminated") or len(error.doc) - error.pos < 6
            found = "the end of the file: it was cut off" if is_cut else f"'{error.doc[error.pos : error.pos + 20]}'"
            raise ValueError(
                f"{path.name}, character {error.pos}: the JSON must go on ({error.msg}); there is {found}. "
                "Get the file again."
            ) from None
    for name in ("images", "categories", "annotations"):
        if not isinstance(content, Mapping) or not isinstance(content.get(name), list) or not content[name]:
            raise ValueError(f"{path.name} must hold a list '{name}'; it holds none. Give an instances file of COCO.")
    return dict(content)


def _by_id(path: Path, content: dict[str, Any], name: str, key: str) -> dict[int, str]:
    """Images or categories: id → text."""
    ids = _column(path, content, name, "id", int)
    return dict(zip(ids, _column(path, content, name, key, str), strict=True))


def _column(path: Path, content: dict[str, Any], name: str, key: str, kind: type) -> list[Any]:
    """One entry of each element of a list."""
    values = [element.get(key) if isinstance(element, Mapping) else None for element in content[name]]
    for place, value in enumerate(values):
        if type(value) is not kind:
            what = "a whole number" if kind is int else "text"
            raise ValueError(
                f"{path.name}, {name}[{place}]: there must be {what} as '{key}'; it is {value!r}. Get the file again."
            )
    return values


def _label(path: Path, content: dict[str, Any], classes: dict[int, str], folder: str) -> tuple[list[int], Part]:
    """The ids of the labelled images, their paths and labels."""
    files = _by_id(path, content, "images", "file_name")
    images, categories = (_column(path, content, "annotations", f"{what}_id", int) for what in ("image", "category"))
    ids = sorted(set(images), key=str)
    for what, numbers, known in (("category", categories, classes), ("image", images, files)):
        place = next((place for place, number in enumerate(numbers) if number not in known), None)
        if place is not None:
            raise ValueError(
                f"{path.name}, annotations[{place}]: an annotation must be of a listed {what}; it is of {what} "
                f"{numbers[place]}. Get the file again."
            )
    Y = np.zeros((len(ids), len(classes)), np.uint8)
    row_of, column_of = ({number: place for place, number in enumerate(known)} for known in (ids, classes))
    Y[[row_of[image] for image in images], [column_of[category] for category in categories]] = 1
    return ids, ([f"{folder}/{files[image]}" for image in ids], Y)
