"""Regions of images: which they are, and what follows from them."""

import pytest
import torch
from torch import nn

from onepos.images.regions import RegionFeatures, add_regions


class Brightest(nn.Module):
    """One feature: the mean of the first channel."""

    def forward(self, images):
        return images[:, 0].mean((1, 2))[:, None]


@pytest.mark.parametrize(("per_side", "corners"), [(1, {0}), (2, {0, 4}), (3, {0, 2, 4})])
def test_crops_cover_the_image(per_side, corners):
    images = torch.arange(100.0).view(1, 1, 10, 10)
    crops = RegionFeatures(nn.Identity(), 6, per_side).crops(images)
    assert [tuple(crop.shape) for crop in crops] == [(1, 1, 6, 6)] * per_side**2
    assert {int(crop[0, 0, 0, 0]) for crop in crops} == {10 * top + left for top in corners for left in corners}


def test_a_small_object_is_seen_in_a_crop():
    images = torch.zeros(2, 3, 10, 10)
    images[0, :, 7:, 7:] = 1.0
    network, size, width = add_regions(Brightest(), 6, 1)
    assert (size, width) == (10, 2)
    whole, greatest = network(images)[0].tolist()
    assert greatest > 2 * whole > 0
    assert network(images)[1].tolist() == [0.0, 0.0]


def test_a_small_image_is_scaled_up():
    network, _, _ = add_regions(Brightest(), 6, 1)
    assert network(torch.ones(2, 3, 4, 4)).tolist() == [[1.0, 1.0]] * 2
