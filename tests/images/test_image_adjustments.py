"""Each adjustment against Pillow's, or against an image-by-image restatement."""

import colorsys

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from onepos.images import adjustments as adjust

STEP = 1 / 255


@pytest.fixture
def images():
    """Four different 17 × 17 images: noise, a dark one, a smooth one, one color."""
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (17, 17, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)).resize((17, 17)))
    return np.stack([noise, noise // 4 + 20, smooth, np.full_like(noise, 77)])


def ours(images):
    return torch.tensor(images).permute(0, 3, 1, 2).float() / 255


def theirs(images, function):
    """A Pillow function of (image, k) on each image, as a tensor."""
    return ours(np.stack([np.asarray(function(Image.fromarray(p), k)) for k, p in enumerate(images)]))


def assert_near(found, expected, steps=1.01):
    torch.testing.assert_close(found, expected, rtol=0, atol=steps * STEP)


@pytest.mark.parametrize("name", ["Brightness", "Contrast", "Color", "Sharpness"])
@pytest.mark.parametrize("factors", [(0.0, 0.3, 1.0, 1.9), (1.4, 0.6, 1.7, 0.1)])
def test_enhancements(images, name, factors):
    function = {
        "Brightness": adjust.brightness,
        "Contrast": adjust.contrast,
        "Color": adjust.saturation,
        "Sharpness": adjust.sharpness,
    }[name]
    expected = theirs(images, lambda image, k: getattr(ImageEnhance, name)(image).enhance(factors[k]))
    assert_near(function(ours(images), torch.tensor(factors)), expected, 2.01)


def test_gray(images):
    assert_near(
        adjust.gray(ours(images)).expand(-1, 3, -1, -1), theirs(images, lambda p, _: p.convert("L").convert("RGB"))
    )


def test_solarize_posterize(images):
    units = ours(images)
    thresholds = (0, 100, 200, 256)
    expected = theirs(images, lambda p, k: ImageOps.solarize(p, thresholds[k]))
    assert_near(adjust.solarize(units, (torch.tensor(thresholds) - 0.5) / 255), expected, 0.01)
    bits = (1, 4, 6, 8)
    expected = theirs(images, lambda p, k: ImageOps.posterize(p, bits[k]))
    assert_near(adjust.posterize(units, torch.tensor(bits)), expected, 0.01)


def test_autocontrast_and_equalize(images):
    assert_near(adjust.autocontrast(ours(images)), theirs(images, lambda p, _: ImageOps.autocontrast(p)))
    large = np.stack([np.asarray(Image.fromarray(p).resize((40, 40))) for p in images])  # below 256 pixels no spread
    assert_near(adjust.equalize(ours(large)), theirs(large, lambda p, _: ImageOps.equalize(p)), 0.01)
    assert_near(adjust.equalize(ours(images)), theirs(images, lambda p, _: ImageOps.equalize(p)), 0.01)


def test_hue(images):
    shifts = (0.1, -0.3, 0.5, 0.0)
    found = adjust.hue(ours(images), torch.tensor(shifts)).permute(0, 2, 3, 1)
    for k, image in enumerate(images):
        for y, x in [(0, 0), (3, 9), (16, 16), (8, 2)]:
            h, s, v = colorsys.rgb_to_hsv(*(image[y, x] / 255))
            expected = colorsys.hsv_to_rgb((h + shifts[k]) % 1, s, v)
            assert found[k, y, x].tolist() == pytest.approx(expected, abs=1e-5)


def in_pixels(matrix, side):
    """Pillow's six numbers for a matrix in halves of the side around the center."""
    half = side / 2
    to_unit = np.array([[1 / half, 0, -1], [0, 1 / half, -1], [0, 0, 1]])
    full = np.vstack([matrix, [0, 0, 1]])
    return (np.linalg.inv(to_unit) @ full @ to_unit)[:2].ravel()


def test_warp_equals_pillow_up_to_its_fixed_point(images):
    matrices = np.array(
        [
            [[1, 0.2, 0.1], [0, 1, -0.3]],
            [[0.8, -0.1, 0], [0.2, 1.1, 0.05]],
            [[1, 0, 0.5], [0, 1, 0]],
            [[-1, 0, 0], [0, 1, 0]],
        ]
    )
    found = adjust.warp(ours(images), torch.tensor(matrices, dtype=torch.float32), fill=128 / 255)

    def pillow(image, k):
        data = tuple(in_pixels(matrices[k], 17))
        return image.transform(
            image.size, Image.Transform.AFFINE, data, Image.Resampling.BILINEAR, fillcolor=(128,) * 3
        )

    different = (found - theirs(images, pillow)).abs() > 1.5 * STEP
    assert different.float().mean() < 0.005  # a place exactly on the edge may fall to either side


def test_rotate_shear_translate_go_where_they_say():
    image = torch.zeros(1, 3, 9, 9)
    image[0, :, 2, 4] = 1  # above the center

    def peak(image):
        return divmod(int((image - 0.5)[0, 0].argmax()), 9) if image.max() > 0.9 else None

    assert peak(adjust.rotate(image, torch.tensor([90.0]))) == (4, 2)  # left of it
    turned = Image.fromarray((image[0].permute(1, 2, 0).numpy() * 255).astype(np.uint8)).rotate(90)
    assert turned.getpixel((2, 4)) == (255, 255, 255)
    share = torch.tensor([2 / 9])
    assert peak(adjust.translate(image, share, 0 * share)) == (2, 2)
    assert peak(adjust.translate(image, 0 * share, -share)) == (4, 4)
    half = torch.tensor([0.5])
    assert peak(adjust.shear(image, half, 0 * half)) == (2, 5)  # two rows above the center, half of it to the right
    aside = image.transpose(2, 3)
    assert peak(adjust.shear(aside, 0 * half, half)) == (5, 2)
