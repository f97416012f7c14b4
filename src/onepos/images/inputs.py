"""What a user passes as pictures → samples, and one pass of a network over them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

from onepos.images import ImageFiles, ImageTensors, find_broken, pack_images
from onepos.images.features import cache_features
from onepos.images.networks import BACKBONES, Normalisation, make_image_backbone
from onepos.training.backbones import NETWORKS
from onepos.training.loop import run_in_steps
from onepos.training.samples import Scaling

Floats = npt.NDArray[np.float32]
OnPictures = Callable[[str, int, int], None]
"""Told what is being done, how many pictures are done, and how many there are."""

SMALLEST, LARGEST = 8, 4096
"""Sides of pictures in pixels."""

_OWN_SIZE = 224  # of files, for a network that does not say what it is used to
_NAMED = 5  # unreadable files named in a message
_CHECKED_AT_ONCE = 1024
_PASS_ON_CPU = 32  # no slower than larger steps there, and progress is seen sooner


@dataclass(frozen=True)
class PictureInput:
    """What the network of a fitted model takes.

    Attributes:
        size: Side of the square to which pictures are scaled.
        normalisation: Of their pixels.
        weights_sha256: Checksum of the weight file the network started from, None without one.
    """

    size: int
    normalisation: Normalisation
    weights_sha256: str | None


def holds_pictures(X: Any) -> bool:
    """Whether X is a list of paths or an array of pictures, judged by its shape and its first entry."""
    if isinstance(X, str | os.PathLike):
        raise ValueError(f"X must be a list of paths; it is one path, {os.fspath(X)}. Pass a list of pictures.")
    n_dimensions = getattr(X, "ndim", None)
    if n_dimensions not in (None, 1) or not hasattr(X, "__len__"):
        return bool(n_dimensions == 4)
    first = next(iter(X), None)
    return isinstance(first, str | os.PathLike) or getattr(first, "ndim", 0) == 3


def takes_pictures(network: str | nn.Module, X: Any) -> bool:
    """Whether this is a network for pictures; a sentence where network and X are not of one kind."""
    found = holds_pictures(X)
    if isinstance(network, str) and network in BACKBONES and not found:
        shape, size = getattr(X, "shape", None), f" of {len(X)}" if hasattr(X, "__len__") else ""
        what = f"a {type(X).__name__}" + (f" of shape {tuple(shape)}" if shape else size)
        raise ValueError(
            f"network {network!r} takes pictures: X must be a list of paths or a uint8 array (n, height, width, 3); "
            f"it is {what}. For rows of numbers choose network='mlp'."
        )
    if isinstance(network, str) and network in NETWORKS and found:
        raise ValueError(
            f"network {network!r} takes rows of numbers; X holds pictures, or text, which would be their paths. "
            f"For pictures choose {', '.join(map(repr, reversed(BACKBONES)))}, or pass a torch module."
        )
    return found


def make_picture_network(
    network: str | nn.Module, weights: str | os.PathLike[str] | None, *, maps: bool, fine_tune: bool
) -> tuple[nn.Module, Normalisation, str | None]:
    """The network with the weights asked for, as `make_image_backbone`, whose default "auto" is settled here.

    A module of the user's may have an attribute `normalisation`; otherwise ImageNet's is taken.
    """
    if weights == "auto":
        weights = "pretrained" if isinstance(network, str) else None
    if weights is None and isinstance(network, str) and not fine_tune:
        raise ValueError(
            "weights=None starts the network at random, and with fine_tune=False it would stay so. "
            "Pass fine_tune=True, or weights='pretrained', or the path of a weight file."
        )
    own = None if isinstance(network, str) else getattr(network, "normalisation", None)
    return make_image_backbone(network, weights, maps, normalisation=None if own is None else as_normalisation(own))


def as_normalisation(parts: Any) -> Normalisation:
    """Mean and deviation, three numbers each, as a `Normalisation`."""
    try:
        (r, g, b), (dr, dg, db) = ([float(value) for value in part] for part in parts)
    except (TypeError, ValueError):
        r = g = b = dr = dg = db = float("nan")
    if not (np.isfinite([r, g, b, dr, dg, db]).all() and min(dr, dg, db) > 0):
        raise ValueError(
            "a normalisation must be a mean and a deviation above 0, each of three numbers for values in [0, 1]; got "
            f"{parts!r}. For example ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))."
        )
    return Normalisation((r, g, b), (dr, dg, db))


def choose_size(image_size: int | None, network: str | nn.Module, X: Any) -> int:
    """The side asked for, or the usual one of the network; for the user's own that of square arrays."""
    if image_size is not None:
        return int(image_size)
    if isinstance(network, str):
        return BACKBONES[network].resolution
    shape: tuple[int, ...] = getattr(X, "shape", ())
    return int(shape[1]) if len(shape) == 4 and shape[1] == shape[2] else _OWN_SIZE


def read_pictures(X: Any, how: PictureInput, workers: int) -> ImageFiles | ImageTensors:
    """Paths or pixels as samples of the size asked for; unreadable files are met later, and noted in `skipped`."""
    if len(X) == 0:
        raise ValueError("X must hold at least one picture; it is empty.")
    if getattr(X, "ndim", 1) == 1 and isinstance(next(iter(X)), str | os.PathLike):
        files = list(X)
        for row, file in enumerate(files):
            if not isinstance(file, str | os.PathLike):
                raise ValueError(f"X must hold one path per row; row {row} holds {file!r}. Drop or correct the row.")
        return ImageFiles(files, how.size, normalisation=how.normalisation, workers=workers, on_error="skip")
    return ImageTensors(_scaled(_as_pixels(X), how.size), how.normalisation)


def find_unreadable(pictures: ImageFiles | ImageTensors, on_pictures: OnPictures | None) -> dict[int, str]:
    """Try every file: row → reason of those that can not be read."""
    if not isinstance(pictures, ImageFiles):
        return {}
    files, broken = [os.fsdecode(file) for file in pictures.files], {}
    for start in range(0, len(files), _CHECKED_AT_ONCE):
        part = files[start : start + _CHECKED_AT_ONCE]
        broken.update({start + row: reason for row, reason in find_broken(part, pictures.workers).items()})
        if on_pictures is not None:
            on_pictures("checking pictures", start + len(part), len(files))
    return broken


def some_are_missing(pictures: ImageFiles | ImageTensors) -> bool:
    """Whether a file is not there, which is quick to tell."""
    return isinstance(pictures, ImageFiles) and not all(os.path.isfile(os.fsdecode(file)) for file in pictures.files)


def judge_unreadable(pictures: ImageFiles | ImageTensors, unreadable: dict[int, str], on_error: str) -> None:
    """Raise or warn, naming the files; an error in any case where nothing is left."""
    if not unreadable or not isinstance(pictures, ImageFiles):
        return
    names = [os.fsdecode(pictures.files[row]) for row in list(unreadable)[:_NAMED]]
    more = f" and {len(unreadable) - _NAMED} more" if len(unreadable) > _NAMED else ""
    count = f"{len(unreadable)} of {len(pictures)}"
    listed = f"{', '.join(names)}{more}. Of the first: {next(iter(unreadable.values()))}"
    if on_error == "raise":
        raise ValueError(
            f"every picture must be readable; {count} are not: {listed} Or go on without them: on_error='skip', on the "
            "command line --skip-broken."
        )
    if len(unreadable) == len(pictures):
        raise ValueError(f"some pictures must be readable; {count} are not: {listed}")
    warnings.warn(f"{count} pictures are not readable and left out: {listed}", UserWarning, stacklevel=4)


def run_network(
    network: nn.Module,
    pictures: ImageFiles | ImageTensors,
    device: torch.device,
    what: str,
    on_pictures: OnPictures | None,
) -> Floats:
    """Outputs of a network in evaluation mode, (n, width); NaN for pictures that can not be read."""
    network, n, done = _on(network, device).eval(), len(pictures), 0
    _take_small_steps(pictures, device)

    def output(rows: Tensor) -> Tensor:
        nonlocal done
        result: Tensor = network(rows.contiguous(memory_format=torch.channels_last))
        done += len(rows)
        if on_pictures is not None:
            on_pictures(what, min(done, n), n)
        return result.float()

    outputs: Floats = run_in_steps(output, pictures.to(device), device).cpu().numpy()
    outputs[sorted(pictures.skipped)] = np.nan
    return outputs


def compute_features(
    network: nn.Module,
    pictures: ImageFiles | ImageTensors,
    device: torch.device,
    *,
    cache: str | os.PathLike[str] | None,
    weights_sha256: str | None,
    on_pictures: OnPictures | None,
) -> Floats:
    """Features of a network that stands still, (n, d), kept in the folder `cache` where one is given.

    NaN for pictures that can not be read.
    """
    what = "computing features, picture"
    if cache is None:
        return run_network(network, pictures, device, what, on_pictures)
    _take_small_steps(pictures, device)
    n = len(pictures)
    try:
        kept = cache_features(
            pictures,
            _on(network, device),
            cache,
            weights_hash=weights_sha256,
            on_batch=None if on_pictures is None else lambda done: on_pictures(what, done, n),
        )
    except ValueError:
        if len(pictures.skipped) < n:
            raise
        return np.full((n, 1), np.nan, np.float32)
    features: Floats = kept.data.numpy()
    if pictures.skipped:
        features = features.copy()
        features[sorted(pictures.skipped)] = np.nan
    return features


def fit_feature_scaling(features: Floats) -> Scaling:
    """One number for all features, by which their mean square becomes 1, whatever the network.

    To standardise each by itself raises the faint ones, and a linear head then remembers its rows instead of learning:
    on VOC it cost up to 4 points of mAP (docs/images.md).
    """
    size = float(np.sqrt(np.mean(np.square(features, dtype=np.float64))))
    d = features.shape[1]
    return Scaling(np.zeros(d), np.full(d, size if size > 0 else 1.0))


def take_pictures(
    pictures: ImageFiles | ImageTensors,
    kept: npt.NDArray[np.intp],
    on_error: str,
    cache: str | os.PathLike[str] | None,
    on_pictures: OnPictures | None,
) -> ImageFiles | ImageTensors:
    """Those of the given rows, to be trained on; their pixels are kept in the folder `cache` where one is given.

    Without, a file that breaks from now on does what `on_error` says.
    """
    if not isinstance(pictures, ImageFiles):
        return pictures
    files, n = [os.fsdecode(pictures.files[row]) for row in kept], len(kept)
    normalisation, workers = pictures.normalisation, pictures.workers
    taken = ImageFiles(files, pictures.size, normalisation=normalisation, workers=workers, on_error=on_error)
    if cache is None:
        return taken
    told = None if on_pictures is None else lambda done: on_pictures("decoding, picture", done, n)
    return pack_images(taken, cache, told)


def _on(network: nn.Module, device: torch.device) -> nn.Module:
    """On the device, in the layout in which convolutions are fastest."""
    return network.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def _take_small_steps(pictures: ImageFiles | ImageTensors, device: torch.device) -> None:
    if device.type == "cpu":
        pictures.pass_rows = min(pictures.pass_rows, _PASS_ON_CPU)


def _as_pixels(X: Any) -> npt.NDArray[np.uint8]:
    try:
        pixels = np.asarray(X)
    except ValueError as error:
        raise ValueError(
            "X must be one array (n, height, width, 3); its pictures differ in shape. Scale them, or pass paths."
        ) from error
    if pixels.ndim != 4 or pixels.shape[3] != 3 or pixels.dtype != np.uint8:
        raise ValueError(
            f"X must be paths or a uint8 array (n, height, width, 3); it is {pixels.dtype} of shape {pixels.shape}. "
            "Scale values in [0, 1] by 255 and round; put the colours last."
        )
    return pixels


def _scaled(pixels: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """As files are scaled by `read_image`."""
    if pixels.shape[1:3] == (size, size):
        return pixels
    scaled = np.empty((len(pixels), size, size, 3), np.uint8)
    for row, picture in enumerate(pixels):
        scaled[row] = np.asarray(Image.fromarray(picture).resize((size, size), Image.Resampling.BILINEAR))
    return scaled
