"""Runs on images: their data, and the network they start from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from onepos.bench.image_sets import IMAGE_SETS, image_cache, load_images, with_published_protocol
from onepos.bench.study import PUBLISHED_DRAW, ImageSettings, Run
from onepos.datasets import Dataset, load_dataset
from onepos.datasets.dataset import Labels
from onepos.datasets.scenes import as_images
from onepos.images import ImageFiles, ImageTensors, pack_images
from onepos.images.features import run_network
from onepos.images.networks import BACKBONES, make_image_backbone
from onepos.images.readers import ImageDataset
from onepos.protocol import draw_single_positive
from onepos.training.runtime import NETWORK_STREAM, choose_device, seeded

# Decoded images that are held in memory, in bytes; of more the files are read in every epoch.
_IN_MEMORY = 4 << 30


class ImagePart(NamedTuple):
    """Some images, all their labels, and the observed one of each."""

    samples: ImageTensors | ImageFiles
    labels: Labels
    observed: Labels


def load_image_data(name: str) -> Dataset | ImageDataset:
    """Images in the published split, or a data set whose rows are small images."""
    return with_published_protocol(load_images(name)) if name in IMAGE_SETS else load_dataset(name)


def image_parts(data: Dataset | ImageDataset, run: Run, settings: ImageSettings) -> dict[str, ImagePart]:
    """Training, validation and test images, in the size and normalization that the network takes."""
    parts = {}
    for name in ("train", "val", "test"):
        if not len((data.splits or {}).get(name, ())):
            raise ValueError(f"{data.name} must come with a part {name!r}; it does not. Images are not split again.")
        part = data.take((data.splits or {})[name])
        parts[name] = ImagePart(_samples(part, run, settings), part.Y, _draw(part, run))
    return parts


def _samples(part: Dataset | ImageDataset, run: Run, settings: ImageSettings) -> ImageTensors | ImageFiles:
    normalization = BACKBONES[run.network].normalization
    if isinstance(part, Dataset):
        height = (part.image_shape or (0,))[0]
        if height == 0 or settings.size % height:
            raise ValueError(
                f"the size of the images must be a multiple of that of {part.name}, {height} pixels; it is "
                f"{settings.size}. Change images.size of the study."
            )
        return ImageTensors(as_images(part, settings.size // height), normalization)
    files = ImageFiles(part.files, settings.size, normalization=normalization)
    if len(files) * files.n_features > _IN_MEMORY:
        return files
    return pack_images(files, image_cache()).load()


def _draw(part: Dataset | ImageDataset, run: Run) -> Labels:
    if run.draw_seed != PUBLISHED_DRAW:
        return draw_single_positive(part.Y, run.draw_seed)
    if part.observed is None:
        raise ValueError(f'{part.name} must come with a draw for draw = "published"; it has none. Write "fixed".')
    return part.observed


def make_image_network(run: Run, settings: ImageSettings, *, maps: bool) -> nn.Module:
    """The network at its start."""
    weights = None if settings.weights == "random" else settings.weights
    return make_image_backbone(run.network, weights, maps)[0]


def start_features(run: Run, settings: ImageSettings, samples: ImageTensors | ImageFiles, device: str) -> Tensor:
    """Features of the network before training, each with mean 0 and variance 1; the same for all runs of a trial."""
    with seeded(0, NETWORK_STREAM, torch.device("cpu")):
        network = make_image_network(run, settings, maps=False)
    features = run_network(network, samples, choose_device(device))
    spread = features.std(axis=0)
    return torch.from_numpy((features - features.mean(axis=0)) / np.where(spread > 0, spread, 1))
