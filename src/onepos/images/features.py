"""Images → features of a frozen network: `ImageFeatures`, a scikit-learn transformer."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from onepos.images.inputs import (
    ImageInput,
    OnImages,
    check_image_parameters,
    check_images,
    judge_unreadable,
    make_image_network,
    open_images,
)
from onepos.images.networks import Normalization
from onepos.images.samples import Images, keep_file
from onepos.training.loop import run_in_steps
from onepos.training.runtime import NETWORK_STREAM, choose_device, seeded

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
        on_error: What unreadable files do: "raise" an error that names them, or "skip" them with a warning; their rows
            are NaN.
        workers: Processes that decode images; 0 decodes in this one.
        cache: A folder to keep the features in, so that they are computed once per set of images. None keeps nothing.
        device: "auto", "cpu", "cuda", "mps".

    Attributes:
        n_features_out_: Width of the features.
        image_size_: Side of the square to which images are scaled.
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
        on_error: str = "raise",
        workers: int = 0,
        cache: str | os.PathLike[str] | None = None,
        device: str = "auto",
    ) -> None:
        self.network = network
        self.weights = weights
        self.image_size = image_size
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
        check_images(X)
        with seeded(0, NETWORK_STREAM, torch.device("cpu")):
            return self.adopt(*make_image_network(self.network, self.weights, self.image_size, X))

    def adopt(self, network: nn.Module, how: ImageInput, n_features: int) -> Self:
        """Be fitted with a network that is already made, what it takes, and the width of its features."""
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
        """Features as by `transform`, and the rows that could not be read with the reason."""
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
        # Copy on write: torch needs memory it may write to, and the file must not change.
        kept: Floats = np.load(path, mmap_mode="c", allow_pickle=False)
        return kept


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
