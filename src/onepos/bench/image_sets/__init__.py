"""The image benchmarks: their official layouts on disk, and the split and draw that published results share."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from onepos.bench.image_sets.coco import read_coco as read_coco
from onepos.bench.image_sets.cub import read_cub as read_cub
from onepos.bench.image_sets.nuswide import read_nuswide as read_nuswide
from onepos.bench.image_sets.voc import read_voc as read_voc
from onepos.bench.image_sets.voc import read_voc_archive as read_voc_archive
from onepos.datasets.loading import data_root
from onepos.images.readers import ImageDataset
from onepos.protocol import cole_split, draw_single_positive
from onepos.validation import suggest

_PUBLISHED_SEED = 1200


def _read_small_voc(folder: Path) -> ImageDataset:
    files = folder / "voc2012_labels.npz", folder / "voc2012_128px.zip"
    return read_voc_archive(*files, image_cache() / "voc-128px")


IMAGE_SETS: dict[str, Callable[[Path], ImageDataset]] = {
    "voc": read_voc,
    "coco": read_coco,
    "nuswide": read_nuswide,
    "cub": read_cub,
    "voc-128px": _read_small_voc,
}
"""By name: folder of images → data set."""


def image_cache() -> Path:
    """Where images that were unpacked or decoded are kept: `$ONEPOS_CACHE`, else `~/.cache/onepos/images`."""
    return Path(os.environ.get("ONEPOS_CACHE") or Path.home() / ".cache" / "onepos" / "images").expanduser()


def load_images(name: str, root: str | Path | None = None) -> ImageDataset:
    """Load the list of images of a data set in `IMAGE_SETS`; never touches the network.

    They are in `<root>/images/<name>`, or in `<root>/images` itself; `root` is the data folder, see `data_root`.
    """
    if name not in IMAGE_SETS:
        raise ValueError(f"unknown data set of images '{name}'; {suggest(name, list(IMAGE_SETS))}")
    folder = data_root(root) / "images"
    try:
        return IMAGE_SETS[name](folder / name if (folder / name).is_dir() else folder)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error} {name} is looked for in {folder}; set $ONEPOS_DATA to the folder of the data."
        ) from error


def with_published_protocol(data: ImageDataset) -> ImageDataset:
    """The data with the split and the single positives that all published image results share.

    A fifth of the official train rows becomes "val"; the single positives are drawn from the train and the test rows
    separately, each with a fresh generator, before that split. Rows without a positive get none. The data must have the
    parts "train" and "test" in `splits`, rows and classes in the order of their reader.

    References:
        Cole, Mac Aodha, Lorieul, Perona, Morris, Jojic: Multi-label learning from single positive labels, CVPR 2021.
    """
    if data.splits is None or set(data.splits) != {"train", "test"}:
        found = ", ".join(data.splits or ()) or "none"
        raise ValueError(
            f"the published split divides the parts train and test; {data.name} has {found}. Split other data "
            "with onepos.train_val_test_split."
        )
    observed = np.zeros_like(data.Y)
    for rows in data.splits.values():
        observed[rows] = draw_single_positive(data.Y[rows], _PUBLISHED_SEED, how="cole")
    official = data.splits["train"]
    parts = cole_split(len(official), _PUBLISHED_SEED)
    splits = {"train": official[parts.train], "val": official[parts.val], "test": data.splits["test"]}
    return replace(data, splits=splits, observed=observed)
