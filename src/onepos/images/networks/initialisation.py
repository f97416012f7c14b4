"""How a convolutional network starts when no weights are loaded."""

from __future__ import annotations

import math

from torch import nn


def initialise_convolutions(network: nn.Module) -> None:
    """Draw every kernel from N(0, 2 / (k²·outputs per group)): He's rule by fan-out, for grouped convolutions as well.

    Batch normalisation keeps torch's start, scale one and shift zero.

    References:
        He et al., Delving Deep into Rectifiers, ICCV 2015.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            fan_out = math.prod(layer.kernel_size) * layer.out_channels // layer.groups
            nn.init.normal_(layer.weight, std=math.sqrt(2 / fan_out))
