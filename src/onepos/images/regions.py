"""Features of an image and of its regions, for objects that are small in it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RegionFeatures(nn.Module):
    """Images (B, 3, H, H) → the features of the image beside the greatest over it and its crops, (B, 2d).

    The network sees squares of `size` pixels: the whole image scaled down, and crops at full resolution, which overlap
    and cover the image. So an object is seen once among all others and once large, and a feature of the second half is
    as strong as in the region where it is strongest.

    Args:
        network: From images (B, 3, size, size) to features (B, d).
        size: Side of the squares in pixels.
        per_side: Crops along each side of the image.
    """

    def __init__(self, network: nn.Module, size: int, per_side: int = 2) -> None:
        super().__init__()
        self.network, self.size, self.per_side = network, size, per_side

    def extra_repr(self) -> str:
        """What else decides the features."""
        return f"size={self.size}, per_side={self.per_side}"

    def forward(self, images: Tensor) -> Tensor:
        """The features, (B, 2d)."""
        first = self.network(self._scaled(images))
        greatest = first
        for crop in self.crops(images):
            greatest = torch.maximum(greatest, self.network(crop))
        return torch.cat([first, greatest], 1)

    def crops(self, images: Tensor) -> list[Tensor]:
        """Squares at equal distances, (B, 3, size, size) each; an image that is too small is scaled up for them."""
        images = images if images.shape[2] >= self.size else self._scaled(images)
        room = images.shape[2] - self.size
        places = [round(room * k / max(1, self.per_side - 1)) for k in range(self.per_side)]
        return [
            images[:, :, top : top + self.size, left : left + self.size].contiguous(memory_format=torch.channels_last)
            for top in places
            for left in places
        ]

    def _scaled(self, images: Tensor) -> Tensor:
        if images.shape[2] == self.size:
            return images
        scaled = F.interpolate(images, self.size, mode="bilinear", antialias=True)
        return scaled.contiguous(memory_format=torch.channels_last)


_CROP = 0.6
"""Side of a crop, as a share of that of the image; with two per side they overlap by a fifth of it."""


def add_regions(network: nn.Module, size: int, width: int) -> tuple[nn.Module, int, int]:
    """The network with regions, the side of the images it takes, and the width of its features.

    Args:
        network: From images (B, 3, size, size) to features (B, width).
        size: Side of its images.
        width: Of its features.
    """
    return RegionFeatures(network, size).eval(), round(size / _CROP), 2 * width
