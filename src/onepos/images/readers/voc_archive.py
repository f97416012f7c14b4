"""VOC 2012 scaled down: a ZIP archive of small images, `train/<name>.jpg` and `val/<name>.jpg`, and one of labels."""

from __future__ import annotations

import os
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np

from onepos.datasets.files import check_file, naming
from onepos.images.readers.image_dataset import ImageDataset, join_parts

PARTS = {"train": "train", "test": "val"}  # the official val images are the test images of the benchmark


def read_voc_archive(
    labels: str | os.PathLike[str], images: str | os.PathLike[str], folder: str | os.PathLike[str]
) -> ImageDataset:
    """Read the labels, and unpack the images where that was not done before.

    Classes are in alphabetical order and images in that of the archive of labels, as `read_voc` has them.

    Args:
        labels: NPZ archive with `class_names`, and for train and val `Y_…` and `…_images`.
        images: The ZIP archive.
        folder: Where they are unpacked; it appears when it is complete.
    """
    label_path, image_path = check_file(Path(labels)), check_file(Path(images))
    with naming(label_path), np.load(label_path, allow_pickle=False) as archive:
        order = np.argsort(archive["class_names"])
        names = archive["class_names"][order].tolist()
        parts = {
            part: ([f"{theirs}/{name}" for name in archive[f"{theirs}_images"]], archive[f"Y_{theirs}"][:, order])
            for part, theirs in PARTS.items()
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
