"""What a network was trained to see."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Normalisation(NamedTuple):
    """(value − mean) / deviation per channel (red, green, blue), of values in [0, 1]."""

    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]

    def __call__(self, images: Tensor) -> Tensor:
        """Images (…, 3, H, W) of floats in [0, 1] → the same shape, normalised."""
        mean, deviation = (images.new_tensor(part).view(3, 1, 1) for part in self)
        return (images - mean) / deviation


IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
LITE = Normalisation((127 / 255,) * 3, (128 / 255,) * 3)  # (pixel − 127) / 128
UNIT = Normalisation((0.0,) * 3, (1.0,) * 3)
