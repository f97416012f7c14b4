"""Runs on pictures: their data, and the network they start from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from onepos.bench.study import PUBLISHED_DRAW, PictureSettings, Run
from onepos.datasets import Dataset, load_dataset
from onepos.datasets.dataset import Labels
from onepos.datasets.scenes import as_images
from onepos.images import ImageFiles, ImageTensors, pack_images, with_published_protocol
from onepos.images.inputs import run_network
from onepos.images.networks import BACKBONES, make_image_backbone, n_image_features
from onepos.images.readers import IMAGE_SETS, ImageDataset, load_images, picture_cache
from onepos.protocol import draw_single_positive
from onepos.training.loop import NETWORK_STREAM
from onepos.training.runtime import choose_device, seeded

# Decoded pictures that are held in memory, in bytes; of more the files are read in every epoch.
_IN_MEMORY = 4 << 30


class PicturePart(NamedTuple):
    """Some pictures, all their labels, and the one of each that is shown."""

    samples: ImageTensors | ImageFiles
    labels: Labels
    observed: Labels


def load_pictures(name: str) -> Dataset | ImageDataset:
    """Pictures in the published split, or a data set whose rows are small pictures."""
    return with_published_protocol(load_images(name)) if name in IMAGE_SETS else load_dataset(name)


def picture_parts(data: Dataset | ImageDataset, run: Run, settings: PictureSettings) -> dict[str, PicturePart]:
    """Training, validation and test pictures, in the size and normalisation that the network takes."""
    parts = {}
    for name in ("train", "val", "test"):
        if not len((data.splits or {}).get(name, ())):
            raise ValueError(f"{data.name} must come with a part {name!r}; it does not. Pictures are not split anew.")
        part = data.take((data.splits or {})[name])
        parts[name] = PicturePart(_samples(part, run, settings), part.Y, _draw(part, run))
    return parts


def _samples(part: Dataset | ImageDataset, run: Run, settings: PictureSettings) -> ImageTensors | ImageFiles:
    normalisation = BACKBONES[run.network].normalisation
    if isinstance(part, Dataset):
        height = (part.image_shape or (0,))[0]
        if height == 0 or settings.size % height:
            raise ValueError(
                f"the size of the pictures must be a multiple of that of {part.name}, {height} pixels; it is "
                f"{settings.size}. Change pictures.size of the study."
            )
        return ImageTensors(as_images(part, settings.size // height), normalisation)
    files = ImageFiles(part.files, settings.size, normalisation=normalisation)
    if len(files) * files.n_features > _IN_MEMORY:
        return files
    return pack_images(files, picture_cache()).load()


def _draw(part: Dataset | ImageDataset, run: Run) -> Labels:
    if run.draw_seed != PUBLISHED_DRAW:
        return draw_single_positive(part.Y, run.draw_seed)
    if part.observed is None:
        raise ValueError(f'{part.name} must come with a draw for draw = "published"; it has none. Write "fixed".')
    return part.observed


def make_picture_network(run: Run, settings: PictureSettings, *, maps: bool) -> tuple[nn.Module, int]:
    """The network at its start, and the width of its features or maps."""
    weights = None if settings.weights == "random" else settings.weights
    backbone, _, _ = make_image_backbone(run.network, weights, maps)
    return backbone, n_image_features(backbone, settings.size, maps)


def start_features(run: Run, settings: PictureSettings, samples: ImageTensors | ImageFiles, device: str) -> Tensor:
    """Features of the network before training, each with mean 0 and variance 1; the same for all runs of a trial."""
    with seeded(0, NETWORK_STREAM, torch.device("cpu")):
        network, _ = make_picture_network(run, settings, maps=False)
    features = run_network(network, samples, choose_device(device), "", None)
    spread = features.std(axis=0)
    return torch.from_numpy((features - features.mean(axis=0)) / np.where(spread > 0, spread, 1))
