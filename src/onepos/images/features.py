"""Images → features of a frozen network: `ImageFeatures`, and what a user passes as images → samples."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from onepos.images.networks import Normalization, as_normalization, find_backbone, make_image_backbone
from onepos.images.regions import add_regions
from onepos.images.samples import ImageFiles, Images, ImageTensors, find_broken, keep_file, load_kept
from onepos.images.weights import first_few
from onepos.reading import shorten
from onepos.training.backbones import n_outputs
from onepos.training.loop import run_in_steps
from onepos.training.runtime import NETWORK_STREAM, choose_device, seeded
from onepos.validation import check_choice, check_whole

Floats = npt.NDArray[np.float32]

_PASS_ON_CPU = 32  # no slower than larger steps there, and progress is seen sooner


class ImageFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped
    """Features of images from a frozen network, as a scikit-learn transformer.

    Args:
        network: "efficientnet-lite0", "resnet50" or another name in `onepos.images.networks.BACKBONES`; or a torch
            module from normalized images (B, 3, H, W) to features (B, d). Images for a module are normalized by its
            attribute `normalization` (mean and deviation), by default as for ImageNet.
        weights: "pretrained", or the path of a weight file; "auto" takes the pretrained weights of a named network and
            leaves a module as it is.
        image_size: Side in pixels of the square to which images are scaled. None is the usual one of the network;
            for a module that of square arrays, 224 for files.
        regions: Whether the network also looks at four crops of each image, of three fifths of its side. The features
            of the image are then followed by the greatest over image and crops: twice as many features, in five times
            the time. For images of several objects.
        on_error: What unreadable files do: "raise" an error that names them, or "skip" them with a warning; their rows
            are NaN.
        workers: Processes that decode images; 0 decodes in this one.
        cache: A folder to keep the features in, so that they are computed once per set of images. None keeps nothing.
        device: "auto", "cpu", "cuda", "mps".

    Attributes:
        n_features_out_: Width of the features.
        image_size_: Side of the square to which images are scaled; with `regions` larger than what the network sees.
        normalization_: Mean and deviation by which pixels are normalized.
        weights_sha256_: Checksum of the weight file, None without one.
        network_: The network.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> from onepos import ImageFeatures
        >>> network = nn.Sequential(nn.Conv2d(3, 4, 8, stride=8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> images = np.zeros((5, 32, 32, 3), np.uint8)
        >>> ImageFeatures(network).fit_transform(images).shape
        (5, 4)
    """

    network_: nn.Module
    image_size_: int
    normalization_: Normalization
    weights_sha256_: str | None
    n_features_out_: int

    def __init__(
        self,
        network: str | nn.Module = "efficientnet-lite0",
        *,
        weights: str | os.PathLike[str] | None = "auto",
        image_size: int | None = None,
        regions: bool = False,
        on_error: str = "raise",
        workers: int = 0,
        cache: str | os.PathLike[str] | None = None,
        device: str = "auto",
    ) -> None:
        self.network = network
        self.weights = weights
        self.image_size = image_size
        self.regions = regions
        self.on_error = on_error
        self.workers = workers
        self.cache = cache
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:
        """Load the network; no image is opened and nothing is learned.

        Args:
            X: n paths, or a uint8 array (n, height, width, 3).
            y: Ignored.
        """
        check_image_parameters(self)
        if not isinstance(self.regions, bool):
            raise ValueError(f"regions must be True or False; got {self.regions!r}.")
        check_images(X)
        with seeded(0, NETWORK_STREAM, torch.device("cpu")):
            network, how, width = make_image_network(self.network, self.weights, self.image_size, X)
        if self.regions:
            network, size, width = add_regions(network, how.size, width)
            how = how._replace(size=size)
        return self.adopt(network, how, width)

    def adopt(self, network: nn.Module, how: ImageInput, n_features: int) -> Self:
        """Be fitted with a network that is already made, what it takes, and the width of its features.

        Args:
            network: From images to features.
            how: Size and normalization of the images that it takes.
            n_features: Width of its features.
        """
        self.network_, self.n_features_out_ = network.eval(), n_features
        self.image_size_, self.normalization_, self.weights_sha256_ = how
        return self

    def transform(self, X: Any, *, on_images: OnImages | None = None) -> Floats:
        """Features (n, d), float32; NaN for images that can not be read where `on_error` is "skip".

        Args:
            X: n paths, or a uint8 array (n, height, width, 3).
            on_images: Called with what is being done, how many images are done, and how many there are.
        """
        return self.extract(X, on_images)[0]

    def extract(self, X: Any, on_images: OnImages | None = None) -> tuple[Floats, dict[int, str]]:
        """Features as by `transform`, and the rows that could not be read with the reason.

        Args:
            X: n paths, or a uint8 array (n, height, width, 3).
            on_images: Called with what is being done, how many images are done, and how many there are.
        """
        check_is_fitted(self)
        check_image_parameters(self)
        how = ImageInput(self.image_size_, self.normalization_, self.weights_sha256_)
        images = open_images(X, how, int(self.workers), self.on_error, on_images)
        features = self._compute(images, on_images) if self.cache is None else self._look_up(images, on_images)
        judge_unreadable(images, images.skipped, self.on_error)
        return features, images.skipped

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = False, True
        tags.no_validation = True
        return tags

    def _compute(self, images: Images, on_images: OnImages | None) -> Floats:
        device = choose_device(str(self.device))
        features = run_network(self.network_, images, device, "computing features, image", on_images)
        self.network_.cpu()
        wrong = np.flatnonzero(~np.isfinite(features).all(1))
        wrong = wrong[~np.isin(wrong, list(images.skipped))]
        if len(wrong):
            raise ValueError(f"the features must be finite; those of row {wrong[0]} are not. Check the weights.")
        return features

    def _look_up(self, images: Images, on_images: OnImages | None) -> Floats:
        """The features from the folder `cache`, where they are put the first time.

        The file is named by a hash of the weights, the structure of the network, the images, their size and
        normalization: if one of these changes, features are computed again.
        """
        facts = {
            "weights": self.weights_sha256_ or _hash_weights(self.network_),
            "network": hashlib.sha256(str(self.network_).encode()).hexdigest(),
            "images": images.sources(),
            "size": images.size,
            "normalization": images.normalization._asdict(),
        }
        name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()

        def write(handle: BinaryIO) -> None:
            features = self._compute(images, on_images)
            if len(images.skipped) == len(images):  # an error in any case: nothing is kept
                judge_unreadable(images, images.skipped, self.on_error)
            np.save(handle, features)

        n_bytes = 4 * len(images) * self.n_features_out_
        path = keep_file(self.cache or "", name, "features", n_bytes, write, images.skipped, facts)
        return load_kept(path, (len(images), self.n_features_out_), np.float32)


def run_network(
    network: nn.Module, images: Images, device: torch.device, what: str = "", on_images: OnImages | None = None
) -> Floats:
    """Outputs of a network in evaluation mode, (n, width); NaN for images that can not be read."""
    network = network.to(device).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]
    n, done = len(images), 0
    if device.type == "cpu":
        images.pass_rows = min(images.pass_rows, _PASS_ON_CPU)

    def output(rows: Tensor) -> Tensor:
        nonlocal done
        result: Tensor = network(rows.contiguous(memory_format=torch.channels_last))
        done += len(rows)
        if on_images is not None:
            on_images(what, min(done, n), n)
        return result.float()

    outputs: Floats = run_in_steps(output, images.to(device), device).cpu().numpy()
    outputs[sorted(images.skipped)] = np.nan
    return outputs


def _hash_weights(network: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        digest.update(repr((name, tuple(tensor.shape), str(tensor.dtype))).encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


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
            f"got {shorten(repr(parameters.image_size))}."
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
