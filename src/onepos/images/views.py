"""Views of images: everything random is drawn here, from a generator on the CPU, for a whole batch at once.

The same generator gives the same views on every device. Images are (B, 3, H, W) with values in [0, 1] until they are
normalized; the amounts are drawn per image.

Weak view: flip. Strong view: flip, cutout, two random operations, color jitter, grayscale.

Deviation: the published strong view draws its two operations with a package whose policies are its own; here they are
drawn uniformly from the 14 of RandAugment, each with a uniform strength. The order of the four color changes is drawn
once per batch instead of once per image.

References:
    Cubuk, Zoph, Shlens, Le: RandAugment, CVPR Workshops 2020.
    DeVries, Taylor: Improved regularization of convolutional neural networks with cutout, 2017.
    Xie, Xiao, Huang: Label-aware global consistency for multi-label learning with single positive labels, NeurIPS 2022.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from onepos.images import adjustments as adjust
from onepos.images.networks import Normalization


def to_unit(pixels: Tensor) -> Tensor:
    """uint8 (B, H, W, 3) → float (B, 3, H, W) in [0, 1], stored channels last."""
    return pixels.permute(0, 3, 1, 2).float().div_(255)


def carry(values: Tensor, device: torch.device) -> Tensor:
    """The values on the device; to CUDA from pinned memory, or the copy would wait for all that is queued there."""
    pinned = values.pin_memory() if device.type == "cuda" and values.device.type == "cpu" else values
    return pinned.to(device, non_blocking=True)


def make_views(pixels: Tensor, n_views: int, normalization: Normalization, generator: Generator) -> tuple[Tensor, ...]:
    """Normalized views of uint8 images (B, H, W, 3): a weak one, then strong ones."""
    images = to_unit(pixels)
    views = [flip(images, generator), *(strong_view(images, generator) for _ in range(n_views - 1))]
    return tuple(normalization(view) for view in views)


def strong_view(images: Tensor, generator: Generator) -> Tensor:
    """Hard to recognize, yet of the same content."""
    images = cutout(flip(images, generator), generator)
    images = color_jitter(rand_augment(images, generator), generator)
    return grayscale(images, generator)


def flip(images: Tensor, generator: Generator, p: float = 0.5) -> Tensor:
    """Swap left and right with probability p."""
    return torch.where(_chosen(images, generator, p), images.flip(3), images)


def grayscale(images: Tensor, generator: Generator, p: float = 0.2) -> Tensor:
    """Take the color out with probability p."""
    return torch.where(_chosen(images, generator, p), adjust.gray(images), images)


def cutout(images: Tensor, generator: Generator, share: float = 0.5) -> Tensor:
    """Cover a square of `share` of the side with one random color; it may reach over the edge."""
    n, _, height, width = images.shape
    inside = images.new_ones(1, 1, 1, 1, dtype=torch.bool)
    for length, shape in ((height, (1, 1, -1, 1)), (width, (1, 1, 1, -1))):
        side = int(length * share + 0.5)
        center = carry(torch.randint(length, (n, 1, 1, 1), generator=generator), images.device)
        place = torch.arange(length, device=images.device).view(shape)
        inside = inside & (place >= center - side // 2) & (place < center - side // 2 + side)
    color = carry(torch.randint(256, (n, 3, 1, 1), generator=generator), images.device).to(images.dtype) / 255
    return torch.where(inside, color, images)


def color_jitter(
    images: Tensor,
    generator: Generator,
    amounts: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1),
    p: float = 0.8,
) -> Tensor:
    """With probability p change brightness, contrast and saturation by up to a share, and hue by up to a turn."""
    chosen = _chosen(images, generator, p)
    changes = (adjust.brightness, adjust.contrast, adjust.saturation, adjust.hue)
    centers = (1.0, 1.0, 1.0, 0.0)
    jittered = images
    for k in torch.randperm(len(changes), generator=generator).tolist():
        amount = centers[k] + amounts[k] * (2 * torch.rand(len(images), generator=generator) - 1)
        jittered = changes[k](jittered, carry(amount, images.device).to(images.dtype))
    return torch.where(chosen, jittered, images)


def rand_augment(images: Tensor, generator: Generator, n_operations: int = 2) -> Tensor:
    """Apply `n_operations` drawn from `OPERATIONS`, each with its own strength, to every image."""
    for _ in range(n_operations):
        which = torch.randint(len(OPERATIONS), (len(images),), generator=generator)
        # Uniform in [-1, 1]: how strong, and in which direction where there are two.
        strength = 2 * torch.rand(len(images), generator=generator) - 1
        changed = images.clone()
        for k, operation in enumerate(OPERATIONS.values()):
            mine = torch.nonzero(which == k).flatten()  # known on the CPU: no waiting for the device
            if len(mine):
                there = carry(mine, images.device)
                changed[there] = operation(images[there], carry(strength[mine], images.device).to(images.dtype))
        images = changed
    return images


# Strength s in [-1, 1] → image; the ranges are those of RandAugment.
OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "identity": lambda x, s: x,
    "autocontrast": lambda x, s: adjust.autocontrast(x),
    "equalize": lambda x, s: adjust.equalize(x),
    "rotate": lambda x, s: adjust.rotate(x, 30 * s),
    "solarize": lambda x, s: adjust.solarize(x, 1 - s.abs()),
    "posterize": lambda x, s: adjust.posterize(x, 8 - (4 * s.abs()).round()),
    "contrast": lambda x, s: adjust.contrast(x, 1 + 0.9 * s),
    "saturation": lambda x, s: adjust.saturation(x, 1 + 0.9 * s),
    "brightness": lambda x, s: adjust.brightness(x, 1 + 0.9 * s),
    "sharpness": lambda x, s: adjust.sharpness(x, 1 + 0.9 * s),
    "shear x": lambda x, s: adjust.shear(x, 0.3 * s, 0 * s),
    "shear y": lambda x, s: adjust.shear(x, 0 * s, 0.3 * s),
    "translate x": lambda x, s: adjust.translate(x, 0.3 * s, 0 * s),
    "translate y": lambda x, s: adjust.translate(x, 0 * s, 0.3 * s),
}


def _chosen(images: Tensor, generator: Generator, p: float) -> Tensor:
    return carry(torch.rand(len(images), 1, 1, 1, generator=generator) < p, images.device)
