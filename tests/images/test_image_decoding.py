import numpy as np
import pytest
from PIL import Image

from onepos.images import read_image


def photo(width, height, seed=0):
    """A smooth colorful image, so that scaling it by different ways agrees."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def test_squashes_without_regard_to_the_aspect_ratio(tmp_path):
    photo(61, 40).save(tmp_path / "a.png")
    pixels = read_image(tmp_path / "a.png", 32)
    assert pixels.shape == (32, 32, 3)
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, photo(61, 40).resize((32, 32), Image.Resampling.BILINEAR))


def test_equals_a_full_decoding_below_four_times_the_size(tmp_path):
    photo(120, 100).save(tmp_path / "a.jpg")
    with Image.open(tmp_path / "a.jpg") as image:
        full = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(read_image(tmp_path / "a.jpg", 32), full)


def test_a_large_jpeg_is_decoded_small_and_looks_the_same(tmp_path, monkeypatch):
    photo(640, 512).save(tmp_path / "a.jpg", quality=95)
    with Image.open(tmp_path / "a.jpg") as image:
        full = np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR), float)
    converted = []
    convert = Image.Image.convert
    monkeypatch.setattr(
        Image.Image, "convert", lambda self, *a, **k: converted.append(self.size) or convert(self, *a, **k)
    )
    assert np.abs(read_image(tmp_path / "a.jpg", 32) - full).max() <= 4
    assert converted == [(80, 64)]  # an eighth: never below twice the wanted size


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "CMYK"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    suffix = "tif" if mode == "CMYK" else "png"
    original = photo(20, 20).convert(mode)
    original.save(tmp_path / f"a.{suffix}")
    expected = np.asarray(original.convert("RGB").resize((10, 10), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(read_image(tmp_path / f"a.{suffix}", 10), expected)


def broken(folder, kind):
    path = folder / f"{kind}.jpg"
    photo(64, 64).save(path)
    if kind == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    elif kind == "text":
        path.write_text("not an image")
    elif kind == "empty":
        path.write_bytes(b"")
    else:
        path = folder / "deep.png"
        Image.fromarray(np.zeros((4, 4), np.uint16)).save(path)
    return path


@pytest.mark.parametrize("kind", ["cut", "text", "empty", "deep"])
def test_a_broken_file_is_named(tmp_path, kind):
    path = broken(tmp_path, kind)
    with pytest.raises(ValueError, match=f"must be readable to its end; {path} is not: .* Replace or remove the file"):
        read_image(path, 8)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no image .*gone\.jpg"):
        read_image(tmp_path / "gone.jpg", 8)
