"""What the networks share: normalization of inputs, initial kernels, frozen batch normalization."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F


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
