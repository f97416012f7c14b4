import numpy as np
import pytest
import torch

from onepos.images import make_views
from onepos.images import views as module
from onepos.images.networks import IMAGENET, LITE, UNIT


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images():
    return torch.rand(64, 3, 24, 24, generator=seeded(9))


def test_to_unit_and_normalize():
    pixels = torch.randint(256, (2, 5, 5, 3), dtype=torch.uint8, generator=seeded())
    found = IMAGENET(module.to_unit(pixels))
    expected = (pixels.numpy() / 255 - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
    np.testing.assert_allclose(found.permute(0, 2, 3, 1).numpy(), expected, atol=1e-5)
    lite = LITE(module.to_unit(pixels))
    np.testing.assert_allclose(lite.permute(0, 2, 3, 1).numpy(), (pixels.numpy().astype(float) - 127) / 128, atol=1e-6)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_flip_swaps_half_of_them(images):
    flipped = module.flip(images, seeded())
    swapped = (flipped == images.flip(3)).flatten(1).all(1)
    kept = (flipped == images).flatten(1).all(1)
    assert (swapped ^ kept).all()
    assert 20 < swapped.sum() < 44
    assert torch.equal(module.flip(images, seeded(), p=1.0), images.flip(3))


def test_grayscale_takes_the_color_out_of_some(images):
    found = module.grayscale(images, seeded())
    is_grey = (found[:, :1] == found).flatten(1).all(1)
    assert 4 < is_grey.sum() < 24
    assert torch.equal(found[~is_grey], images[~is_grey])


def test_cutout_covers_one_box_with_one_color(images):
    found = module.cutout(images, seeded())
    sides = []
    for before, after in zip(images, found, strict=True):
        changed = (before != after).any(0)
        ys, xs = torch.nonzero(changed, as_tuple=True)
        box = after[:, ys.min() : ys.max() + 1, xs.min() : xs.max() + 1]
        assert changed.sum() == box[0].numel()  # a full rectangle
        assert (box == box[:, :1, :1]).all()  # of one color
        sides.append((box.shape[1], box.shape[2]))
    assert max(sides) == (12, 12)  # half of the side
    assert len(set(sides)) > 5  # some reach over the edge


def test_jitter_leaves_some_alone_and_stays_in_range(images):
    found = module.color_jitter(images, seeded())
    same = (found == images).flatten(1).all(1)
    assert 4 < same.sum() < 24
    assert found.min() >= 0
    assert found.max() <= 1
    assert torch.equal(module.color_jitter(images, seeded(), (0.0, 0.0, 0.0, 0.0), 0.0), images)


def test_jitter_without_amounts_changes_nothing(images):
    found = module.color_jitter(images, seeded(), (0.0, 0.0, 0.0, 0.0), 1.0)
    torch.testing.assert_close(found, images, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", module.OPERATIONS)
def test_every_operation_keeps_shape_and_range(images, name):
    found = module.OPERATIONS[name](images, torch.linspace(-1, 1, 64))
    assert found.shape == images.shape
    assert found.min() >= 0
    assert found.max() <= 1


@pytest.mark.parametrize("name", sorted(set(module.OPERATIONS) - {"identity", "autocontrast", "equalize"}))
def test_no_strength_changes_nothing(images, name):
    # The pixels above the threshold 1 of solarize are none, 8 bits of posterize are all that there are.
    found = module.OPERATIONS[name](images, torch.zeros(64))
    torch.testing.assert_close(found, images, rtol=0, atol=0.51 / 255)


def test_rand_augment_is_its_operations_one_by_one(images):
    found = module.rand_augment(images, seeded(3))
    generator = seeded(3)
    expected = images
    for _ in range(2):
        which = torch.randint(14, (64,), generator=generator)
        strength = 2 * torch.rand(64, generator=generator) - 1
        operations = list(module.OPERATIONS.values())
        one_by_one = [operations[k](x[None], s[None]) for k, x, s in zip(which, expected, strength, strict=True)]
        expected = torch.cat(one_by_one)
    torch.testing.assert_close(found, expected)
    assert len(which.unique()) == 14


def test_views(images):
    pixels = (images * 255).byte().permute(0, 2, 3, 1).contiguous()
    weak, strong = make_views(pixels, 2, UNIT, seeded())
    (alone,) = make_views(pixels, 1, UNIT, seeded())
    assert torch.equal(weak, alone)
    plain = module.to_unit(pixels)
    is_plain = (weak == plain).flatten(1).all(1) | (weak == plain.flip(3)).flatten(1).all(1)
    assert is_plain.all()
    assert (strong - plain).abs().flatten(1).mean(1).min() > 0.01
    again = make_views(pixels, 2, UNIT, seeded())
    other = make_views(pixels, 2, UNIT, seeded(1))
    assert torch.equal(strong, again[1])
    assert not torch.equal(strong, other[1])
    assert len(make_views(pixels, 3, UNIT, seeded())) == 3


def test_nothing_touches_the_global_generator(images):
    pixels = (images * 255).byte().permute(0, 2, 3, 1)
    before = torch.get_rng_state()
    make_views(pixels, 2, IMAGENET, seeded())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_device_does_not_matter(images):
    pixels = (images * 255).byte().permute(0, 2, 3, 1).contiguous()
    here = make_views(pixels, 2, IMAGENET, seeded())
    there = make_views(pixels.cuda(), 2, IMAGENET, seeded())
    torch.testing.assert_close(there[0].cpu(), here[0])
    # Rounding to whole levels and the edge of a warp may fall to either side.
    assert ((there[1].cpu() - here[1]).abs() > 1e-4).float().mean() < 1e-3
