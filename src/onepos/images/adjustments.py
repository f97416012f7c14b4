"""What can be done to images, given how much: batches (B, 3, H, W) of values in [0, 1], one amount per image.

Each gives what Pillow's function of that name gives, up to Pillow's rounding to whole steps of 1/255. Nothing here is
random and nothing waits for the device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

_LEVELS = 255


def gray(images: Tensor) -> Tensor:
    """Luminance 0.299 R + 0.587 G + 0.114 B, (B, 1, H, W)."""
    weight = images.new_tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    return (images * weight).sum(1, keepdim=True)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """From black (0) over the image itself (1) to brighter; factor (B,)."""
    return (images * _each(factor)).clamp(0, 1)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """From its mean luminance (0) over itself (1) to more contrast."""
    return _blend(gray(images).mean((1, 2, 3), keepdim=True), images, factor)


def saturation(images: Tensor, factor: Tensor) -> Tensor:
    """From gray (0) over itself (1) to more colorful."""
    return _blend(gray(images), images, factor)


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """From smoothed (0) over itself (1) to sharper; the outermost pixels stay."""
    kernel = images.new_ones(3, 1, 3, 3)
    kernel[:, :, 1, 1] = 5
    smooth = images.clone()
    smooth[:, :, 1:-1, 1:-1] = F.conv2d(images, kernel / 13, groups=3)
    return _blend(smooth, images, factor)


def hue(images: Tensor, shift: Tensor) -> Tensor:
    """Turn the color circle by `shift`, 1 being a full turn; brightness and saturation in HSV stay."""
    value, which = images.max(1)
    spread = value - images.min(1).values
    red, green, blue = images.unbind(1)
    safe = torch.where(spread > 0, spread, torch.ones_like(spread))
    sixth = torch.stack([(green - blue) / safe, (blue - red) / safe + 2, (red - green) / safe + 4], 1)
    turned = sixth.gather(1, which.unsqueeze(1)) + 6 * _each(shift)
    place = (turned + images.new_tensor([5.0, 3.0, 1.0]).view(1, 3, 1, 1)) % 6
    share = torch.minimum(place, 4 - place).clamp(0, 1)
    return value.unsqueeze(1) - spread.unsqueeze(1) * share


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert what is at least `threshold`, (B,)."""
    return torch.where(images >= _each(threshold), 1 - images, images)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest `bits` of the 8 of every value, (B,)."""
    step = _each(2.0 ** (8 - bits))
    return torch.floor(_whole(images) / step) * step / _LEVELS


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each color of each image from its least and greatest value to 0 and 1."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    flat = high <= low
    return torch.where(flat, images, (images - low) / torch.where(flat, torch.ones_like(low), high - low))


def equalize(images: Tensor) -> Tensor:
    """Spread the values of each color of each image so that all are about equally frequent."""
    n, c, height, width = images.shape
    level = _whole(images).long().reshape(n * c, -1)
    count = torch.zeros(n * c, _LEVELS + 1, dtype=torch.long, device=images.device)
    count.scatter_add_(1, level, torch.ones_like(level))
    last = count.gather(1, level.amax(1, keepdim=True))
    step = torch.div(height * width - last, _LEVELS, rounding_mode="floor")
    below = count.cumsum(1) - count
    safe = step.clamp(min=1)
    table = torch.div(below + torch.div(safe, 2, rounding_mode="floor"), safe, rounding_mode="floor").clamp(max=_LEVELS)
    spread = (table.gather(1, level).reshape(images.shape) / _LEVELS).to(images.dtype)
    return torch.where(step.view(n, c, 1, 1) > 0, spread, images)


def warp(images: Tensor, matrix: Tensor, fill: float = 0.5) -> Tensor:
    """Move the pixels: matrix (B, 2, 3) leads from a place in the result to its place in the image.

    Places are in halves of the side around the center: (-1, -1) is the upper left corner, (1, 1) the lower right one.
    What comes from outside becomes `fill`; in between it is bilinear.
    """
    grid = F.affine_grid(matrix.to(images), list(images.shape), align_corners=False)
    moved = F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
    outside = (grid.abs() > 1).any(3).unsqueeze(1)
    return torch.where(outside, torch.full_like(moved, fill), moved)


def rotate(images: Tensor, degrees: Tensor) -> Tensor:
    """Turn square images to the left around their center."""
    angle = degrees * math.pi / 180
    zero = torch.zeros_like(angle)
    rows = [torch.cos(angle), -torch.sin(angle), zero, torch.sin(angle), torch.cos(angle), zero]
    return warp(images, torch.stack(rows, 1).view(-1, 2, 3))


def shear(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Shift each row by x times its height over the center, each column by y times its place."""
    one, zero = torch.ones_like(x), torch.zeros_like(x)
    return warp(images, torch.stack([one, x, zero, y, one, zero], 1).view(-1, 2, 3))


def translate(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Shift left by the share x of the width and up by the share y of the height."""
    one, zero = torch.ones_like(x), torch.zeros_like(x)
    return warp(images, torch.stack([one, zero, 2 * x, zero, one, 2 * y], 1).view(-1, 2, 3))


def _each(amount: Tensor) -> Tensor:
    return amount.view(-1, 1, 1, 1)


def _whole(images: Tensor) -> Tensor:
    return (images * _LEVELS).round()


def _blend(nothing: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    return (nothing + (images - nothing) * _each(factor)).clamp(0, 1)
