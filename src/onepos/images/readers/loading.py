"""Loading pictures with their labels by the name of the data set."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from onepos.datasets.loading import data_root
from onepos.images.readers.coco import read_coco
from onepos.images.readers.cub import read_cub
from onepos.images.readers.image_dataset import ImageDataset
from onepos.images.readers.nuswide import read_nuswide
from onepos.images.readers.voc import read_voc
from onepos.images.readers.voc_archive import read_voc_archive
from onepos.validation import suggest


def _read_small_voc(folder: Path) -> ImageDataset:
    files = folder / "voc2012_labels.npz", folder / "voc2012_128px.zip"
    return read_voc_archive(*files, picture_cache() / "voc-128px")


def _in_own_folder(read: Callable[[Path], ImageDataset], name: str, folder: Path) -> ImageDataset:
    return read(folder / name if (folder / name).is_dir() else folder)


IMAGE_SETS: dict[str, Callable[[Path], ImageDataset]] = {
    "voc": partial(_in_own_folder, read_voc, "voc"),
    "coco": partial(_in_own_folder, read_coco, "coco"),
    "nuswide": partial(_in_own_folder, read_nuswide, "nuswide"),
    "cub": partial(_in_own_folder, read_cub, "cub"),
    "voc-128px": _read_small_voc,
}
"""By name: folder of pictures → data set."""


def picture_cache() -> Path:
    """Where pictures that were unpacked or decoded are kept: `$ONEPOS_CACHE`, else `~/.cache/onepos/pictures`."""
    return Path(os.environ.get("ONEPOS_CACHE") or Path.home() / ".cache" / "onepos" / "pictures").expanduser()


def load_images(name: str, root: str | Path | None = None) -> ImageDataset:
    """Load the list of pictures of a data set by name; never touches the network.

    Args:
        name: A key of `IMAGE_SETS`. In the official layouts the pictures lie in `<root>/images/<name>`, or in
            `<root>/images` itself.
        root: Data folder, see `data_root`.
    """
    if name not in IMAGE_SETS:
        raise ValueError(f"unknown data set of pictures '{name}'; {suggest(name, list(IMAGE_SETS))}")
    folder = data_root(root) / "images"
    try:
        return IMAGE_SETS[name](folder)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error} {name} is looked for in {folder}; $ONEPOS_DATA says where data lie."
        ) from error
