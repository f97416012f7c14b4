"""PASCAL VOC 2012: in its official layout, or scaled down in a ZIP archive beside an archive of labels."""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np

from onepos.bench.image_sets.lists import Benchmark, bad_line, find_root, numbered_lines
from onepos.datasets.dataset import Labels
from onepos.datasets.files import check_file, naming
from onepos.images.readers import ImageDataset, check_images, join_parts
from onepos.validation import suggest

# fmt: off
CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on
_VARIANTS: dict[tuple[int, ...], str] = {
    (2501, 2510): "VOC 2007 (train and val)",
    (5011, 4952): "VOC 2007 (trainval and test)",
}
_BENCHMARK = Benchmark("VOC 2012", len(CLASSES), "classes", {"train": 5717, "test": 5823}, _VARIANTS)
LISTS = {"train": "train", "test": "val"}  # the official val images are the test images of the benchmark


def read_voc(root: str | os.PathLike[str], *, strict: bool = True, check_files: bool = True) -> ImageDataset:
    """Read VOC 2012 as the published single-positive benchmark does.

    A label is positive where its flag is 1; "difficult" (0) counts as absent. An image is kept if it has a positive
    label. Classes are in alphabetical order and images in that of their names: the published draw depends on both.
    `root` holds `VOCdevkit`, or is that folder, or `VOC2012`. With `strict` there must be exactly the classes and
    images of the benchmark, with `check_files` every file.
    """
    folder = find_root(root, "ImageSets/Main", ("VOCdevkit/VOC2012", "VOC2012"), "VOC 2012")
    lists = folder / "ImageSets" / "Main"
    classes = _find_classes(lists, strict)
    parts = {}
    for part, ending in LISTS.items():
        flags, lines = _read_flags(lists, classes, ending)
        names = sorted(name for name, row in flags.items() if row.any())
        paths = [f"JPEGImages/{name}.jpg" for name in names]
        if not names:
            raise ValueError(f"{lists} must list images with flag 1; the lists *_{ending}.txt have none. Check them.")
        if check_files:
            places = [f"line {lines[name]}" for name in names]
            check_images(folder, paths, f"{classes[0]}_{ending}.txt", places.__getitem__)
        parts[part] = paths, np.stack([flags[name] for name in names])
    if strict:
        _BENCHMARK.check(folder, parts)
    return join_parts("voc", folder, parts, classes, "PASCAL VOC 2012, ImageSets/Main")


def _find_classes(lists: Path, strict: bool) -> list[str]:
    """The classes that have both lists."""
    matches = [re.fullmatch(r"(.+)_(train|val)\.txt", path.name) for path in lists.iterdir()]
    found = {match.groups() for match in matches if match}
    classes = sorted({name for name, _ in found})
    for name in (*classes, *(CLASSES if strict else ())):
        if strict and name not in CLASSES:
            raise ValueError(
                f"{lists}: '{name}' is not a class of VOC 2012; {suggest(name, CLASSES)} Remove its lists, or pass "
                "strict=False to read other classes."
            )
        for ending in LISTS.values():
            if (name, ending) not in found:
                raise FileNotFoundError(f"there is no file {lists / f'{name}_{ending}.txt'}. Extract the lists again.")
    if not classes:
        raise FileNotFoundError(f"{lists} must hold lists such as cat_train.txt; it holds none. Check the folder.")
    return classes


def _read_flags(lists: Path, classes: list[str], ending: str) -> tuple[dict[str, Labels], dict[str, int]]:
    """Per image one 0/1 row, and its line in the first list.

    Every list of a part must name the same images, or one of them was cut off.
    """
    rows: dict[str, Labels] = {}
    lines: dict[str, int] = {}
    for column, name in enumerate(classes):
        path = lists / f"{name}_{ending}.txt"
        seen = 0
        for number, line in numbered_lines(path):
            words = line.split()
            if len(words) != 2 or words[1] not in ("-1", "0", "1"):
                raise bad_line(path, number, "a line must hold an image and a flag (-1, 0 or 1)", line)
            if column == 0 and words[0] in rows:
                raise bad_line(path, number, "an image must be listed once", line, "Remove the second line.")
            if column > 0 and words[0] not in rows:
                raise bad_line(path, number, f"an image must be in {classes[0]}_{ending}.txt too", line)
            row = rows.setdefault(words[0], np.zeros(len(classes), np.uint8))
            row[column] = words[1] == "1"
            lines.setdefault(words[0], number)
            seen += 1
        if seen != len(rows):
            raise ValueError(
                f"{path.name} must list the {len(rows)} images of {classes[0]}_{ending}.txt; it lists {seen}. "
                "It was cut off or has lines twice; get it again."
            )
    return rows, lines


def read_voc_archive(
    labels: str | os.PathLike[str], images: str | os.PathLike[str], folder: str | os.PathLike[str]
) -> ImageDataset:
    """Read the labels (NPZ), and unpack the images (ZIP) into `folder` where that was not done before.

    Classes are in alphabetical order and images in that of the archive of labels, as `read_voc` has them. That archive
    holds `class_names`, and for train and val `Y_…` and `…_images`. The folder appears when it is complete.
    """
    label_path, image_path = check_file(Path(labels)), check_file(Path(images))
    with naming(label_path), np.load(label_path, allow_pickle=False) as archive:
        order = np.argsort(archive["class_names"])
        names = archive["class_names"][order].tolist()
        parts = {
            part: ([f"{theirs}/{name}" for name in archive[f"{theirs}_images"]], archive[f"Y_{theirs}"][:, order])
            for part, theirs in LISTS.items()
        }
    if not Path(folder).is_dir():
        _unpack(image_path, [path for paths, _ in parts.values() for path in paths], Path(folder))
    return join_parts("voc-128px", folder, parts, names, f"{image_path.name}, {label_path.name}")


def _unpack(archive: Path, names: list[str], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        whole = Path(beside) / folder.name
        with naming(archive), zipfile.ZipFile(archive) as packed:
            packed.extractall(whole, names)
        with suppress(OSError):  # another process was quicker
            whole.rename(folder)
