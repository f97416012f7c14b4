"""What a user passes as images → samples; the network they are for; files that can not be read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import nn

from onepos.images.networks import Normalization, as_normalization, find_backbone, make_image_backbone
from onepos.images.samples import ImageFiles, Images, ImageTensors, find_broken
from onepos.images.weights import first_few
from onepos.training.backbones import n_outputs
from onepos.validation import check_choice, check_whole

OnImages = Callable[[str, int, int], None]
"""Called with what is being done, how many images are done, and how many there are."""

_SMALLEST, _LARGEST = 8, 4096  # sides of images in pixels
_OWN_SIZE = 224  # of files, for a network whose usual size is not known


class ImageInput(NamedTuple):
    """What a network takes.

    Attributes:
        size: Side of the square to which images are scaled.
        normalization: Of their pixels.
        weights_sha256: Checksum of the weight file the network started from, None without one.
    """

    size: int
    normalization: Normalization
    weights_sha256: str | None

    def to_json(self) -> dict[str, Any]:
        """As a dictionary of plain values."""
        return {"size": self.size, **self.normalization._asdict(), "weights_sha256": self.weights_sha256}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> ImageInput:
        """The counterpart of `to_json`; a size out of range raises KeyError."""
        if not is_size(content["size"]):
            raise KeyError(f"the size of images is {content['size']!r}")
        normalization = as_normalization((content["mean"], content["deviation"]))
        return cls(content["size"], normalization, content["weights_sha256"])


def is_size(size: Any) -> bool:
    """Whether this is a side of images in pixels."""
    return isinstance(size, int | np.integer) and bool(_SMALLEST <= size <= _LARGEST)


def check_image_parameters(parameters: Any) -> None:
    """Check `on_error`, `workers` and `image_size` of an estimator."""
    check_choice("on_error", parameters.on_error, ("raise", "skip"))
    check_whole("workers", parameters.workers, 0)
    if parameters.image_size is not None and not is_size(parameters.image_size):
        raise ValueError(
            f"image_size must be None or a whole number of pixels from {_SMALLEST} to {_LARGEST}; "
            f"got {parameters.image_size!r}."
        )


def holds_images(X: Any) -> bool:
    """Whether X is a list of paths or an array of images, judged by its shape and its first entry."""
    if isinstance(X, str | os.PathLike):
        raise ValueError(f"X must be a list of paths; it is one path, {os.fspath(X)}. Pass a list of images.")
    n_dimensions = getattr(X, "ndim", None)
    if n_dimensions not in (None, 1) or not hasattr(X, "__len__"):
        return bool(n_dimensions == 4)
    first = next(iter(X), None)
    return isinstance(first, str | os.PathLike) or getattr(first, "ndim", 0) == 3


def check_images(X: Any) -> None:
    """Refuse what is neither a list of paths nor an array of images."""
    if not holds_images(X):
        shape, length = getattr(X, "shape", None), f" of {len(X)}" if hasattr(X, "__len__") else ""
        found = f"a {type(X).__name__}" + (f" of shape {tuple(shape)}" if shape else length)
        raise ValueError(
            f"X must be a list of paths or a uint8 array (n, height, width, 3); it is {found}. "
            "For rows of numbers use SinglePositiveClassifier."
        )


def make_image_network(
    network: str | nn.Module,
    weights: str | os.PathLike[str] | None,
    image_size: int | None,
    X: Any,
    *,
    maps: bool = False,
    fine_tune: bool = False,
) -> tuple[nn.Module, ImageInput, int]:
    """The network with its weights, what it takes, and the width of its features.

    Args:
        network: As in `make_image_backbone`.
        weights: Likewise, or "auto": pretrained for a name, as they are for a module.
        image_size: None is the usual size of a named network; for a module the side of square arrays, 224 for files.
        X: The images.
        maps: Whether the network gives maps.
        fine_tune: Whether it will be trained.
    """
    if weights == "auto":
        weights = "pretrained" if isinstance(network, str) else None
    if weights is None and isinstance(network, str) and not fine_tune:
        raise ValueError(
            "weights=None starts the network at random, and a frozen network stays so. Pass weights='pretrained' or "
            "the path of a weight file, or train the network too: fine_tune=True."
        )
    made, normalization, sha256 = make_image_backbone(network, weights, maps)
    size = image_size or (find_backbone(network).resolution if isinstance(network, str) else _own_size(X))
    width = n_outputs(made, torch.zeros(2, 3, int(size), int(size)), maps=maps)
    return made, ImageInput(int(size), normalization, sha256), width


def _own_size(X: Any) -> int:
    shape: tuple[int, ...] = getattr(X, "shape", ())
    return int(shape[1]) if len(shape) == 4 and shape[1] == shape[2] else _OWN_SIZE


def open_images(X: Any, how: ImageInput, workers: int, on_error: str, on_images: OnImages | None = None) -> Images:
    """Paths or pixels as samples of the size of `how`.

    With on_error="raise" a missing file is an error here. A file that is there but broken is found when it is read,
    and listed in `skipped`; the caller passes that to `judge_unreadable`.
    """
    check_images(X)
    if len(X) == 0:
        raise ValueError("X must hold at least one image; it is empty.")
    if not isinstance(next(iter(X)), str | os.PathLike):
        return ImageTensors(_scaled(_as_pixels(X), how.size), how.normalization)
    files = list(X)
    for row, file in enumerate(files):
        if not isinstance(file, str | os.PathLike):
            raise ValueError(f"X must hold one path per row; row {row} holds {file!r}. Drop or correct the row.")
    images = ImageFiles(files, how.size, normalization=how.normalization, workers=workers, on_error="skip")
    if on_error == "raise" and not all(map(os.path.isfile, files)):  # quick to see, so no pass is begun in vain
        judge_unreadable(images, find_unreadable(images, on_images), on_error)
    return images


def find_unreadable(images: Images, on_images: OnImages | None) -> dict[int, str]:
    """Try every file: row → reason of those that can not be read."""
    if not isinstance(images, ImageFiles):
        return {}
    n = len(images)
    on_batch = None if on_images is None else lambda done: on_images("checking images", done, n)
    return find_broken([os.fsdecode(file) for file in images.files], images.workers, on_batch)


def judge_unreadable(images: Images, unreadable: dict[int, str], on_error: str) -> None:
    """Raise or warn, naming the files; an error in any case where nothing is left."""
    if not unreadable or not isinstance(images, ImageFiles):
        return
    names = first_few([os.fsdecode(images.files[row]) for row in unreadable], 5)
    count = f"{len(unreadable)} of {len(images)}"
    listed = f"{names}. Of the first: {next(iter(unreadable.values()))}"
    if on_error == "raise":
        raise ValueError(
            f"every image must be readable; {count} are not: {listed} Or go on without them: on_error='skip', on the "
            "command line --skip-broken."
        )
    if len(unreadable) == len(images):
        raise ValueError(f"some images must be readable; {count} are not: {listed}")
    warnings.warn(f"{count} images are not readable and left out: {listed}", UserWarning, stacklevel=4)


def _as_pixels(X: Any) -> npt.NDArray[np.uint8]:
    try:
        pixels = np.asarray(X)
    except ValueError as error:
        raise ValueError(
            "X must be one array (n, height, width, 3); its images differ in shape. Scale them, or pass paths."
        ) from error
    if pixels.ndim != 4 or pixels.shape[3] != 3 or pixels.dtype != np.uint8:
        raise ValueError(
            f"X must be paths or a uint8 array (n, height, width, 3); it is {pixels.dtype} of shape {pixels.shape}. "
            "Scale values in [0, 1] by 255 and round; put the colors last."
        )
    return pixels


def _scaled(pixels: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """As files are scaled by `read_image`."""
    if pixels.shape[1:3] == (size, size):
        return pixels
    scaled = np.empty((len(pixels), size, size, 3), np.uint8)
    for row, image in enumerate(pixels):
        scaled[row] = np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR))
    return scaled
