"""ResNet-18, 34, 50 and 101, with the state-dict keys of torchvision, so that its weight files load.

Deviation: the stride of a bottleneck sits in its 3×3 convolution ("v1.5"), the paper has it in the first 1×1;
torchvision's weights were trained so.

References:
    He et al., Deep Residual Learning for Image Recognition, CVPR 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from onepos.images.networks.layers import initialize_convolutions


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

    There is no classifier: the head belongs to the method. The classifier `fc` of a weight file is left unread.

    Args:
        block: BasicBlock or Bottleneck.
        depths: Blocks in each of the four stages.
        maps: Give the maps before pooling instead of their mean.
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
