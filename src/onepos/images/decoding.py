"""From a file to pixels."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]


def read_image(path: str | os.PathLike[str], size: int) -> Pixels:
    """Decode an image and squash it to a square, as the published image benchmarks do, (size, size, 3).

    The aspect ratio is not kept. A JPEG much larger than needed is decoded at a half, a quarter or an eighth of its
    size, though never below twice `size`. Only the first image of an animation is read; a rotation that
    a camera noted beside the pixels (EXIF) is not applied.

    Deviation: the published code decodes large JPEGs in full before it scales them; with photos from 4 × `size` up
    the pixels differ in rounding, in exchange for several times the speed. Those of VOC, COCO and CUB are smaller.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged or not an image with 8 bits per color.
    """
    try:
        with Image.open(path) as image:
            if image.mode.startswith(("I", "F")):
                raise ValueError(f"its pixels are of type {image.mode} instead of 8 bits per color")
            image.draft(None, (2 * size, 2 * size))
            squashed = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no image {path}. Check the list that names it.") from None
    except Exception as error:  # damaged files make Pillow raise errors of every type
        what = str(error).strip().rstrip(".") or type(error).__name__
        raise ValueError(
            f"an image must be readable to its end; {os.fspath(path)} is not: {what}. Replace or remove the file."
        ) from error
    return np.asarray(squashed)
