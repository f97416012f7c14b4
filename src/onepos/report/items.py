"""How a row is shown to a person: its text, its image, or its features as a small table."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onepos.reading import IMAGE_FORMATS

if TYPE_CHECKING:
    import pandas as pd
    from PIL import Image

# Of features, so many are shown; of a text, so many characters; of an image, so many pixels per side.
_MOST_FEATURES, _MOST_CHARACTERS, _MOST_PIXELS = 12, 20_000, 1400
# A cell of so many characters is text.
_LONG = 40
_MOST_MEGAPIXELS = 80_000_000


class Items(Protocol):
    """The rows as they are shown."""

    @property
    def ids(self) -> list[str]:
        """The ids of the rows."""

    def show(self, row: int) -> dict[str, Any]:
        """Texts, fields and whether there is an image."""

    def image(self, row: int) -> tuple[bytes, str] | None:
        """An image and its media type; None where a row is none."""


@dataclass(frozen=True)
class TableItems:
    """Rows of a table with text, categories, dates and numbers."""

    ids: list[str]
    frame: pd.DataFrame

    def __post_init__(self) -> None:
        texts = [name for name in self.frame.columns if _is_text(self.frame[name].head(200))]
        object.__setattr__(self, "_texts", texts)

    def show(self, row: int) -> dict[str, Any]:
        """The columns of text as texts, the others as fields."""
        cells = {str(name): self.frame.iat[row, place] for place, name in enumerate(self.frame.columns)}
        texts: list[str] = self._texts  # type: ignore[attr-defined]
        return {
            "texts": [[name, show_cell(cells[str(name)])[:_MOST_CHARACTERS]] for name in texts],
            "fields": [[name, show_cell(cell)] for name, cell in cells.items() if name not in texts],
            "image": False,
            "note": "",
        }

    def image(self, row: int) -> None:
        """There is none."""


@dataclass(frozen=True)
class FeatureItems:
    """Rows of numbers; those of a grey image are shown as one."""

    ids: list[str]
    X: Any
    names: Sequence[str] | None = None
    image_shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        sample = self.X[: min(5000, self.X.shape[0])]
        sample = np.asarray(sample.toarray() if hasattr(sample, "toarray") else sample, np.float64)
        object.__setattr__(self, "_mean", sample.mean(0))
        object.__setattr__(self, "_deviation", sample.std(0) + 1e-12)

    def show(self, row: int) -> dict[str, Any]:
        """All features where they are few, and otherwise those furthest from their mean."""
        if self.image_shape is not None:
            return {"texts": [], "fields": [], "image": True, "note": ""}
        values = self._values(row)
        chosen, note = np.arange(len(values)), ""
        if len(values) > _MOST_FEATURES:
            away = np.abs(values - self._mean) / self._deviation  # type: ignore[attr-defined]
            chosen = np.argsort(-away, kind="stable")[:_MOST_FEATURES]
            note = f"{_MOST_FEATURES} of {len(values)} features: those furthest from their mean."
        names = [f"feature {k}" for k in range(len(values))] if self.names is None else list(self.names)
        return {
            "texts": [],
            "fields": [[str(names[k]), show_cell(values[k])] for k in chosen],
            "image": False,
            "note": note,
        }

    def image(self, row: int) -> tuple[bytes, str] | None:
        """The pixels of a row as PNG."""
        if self.image_shape is None:
            return None
        from PIL import Image

        pixels = np.rint(self._values(row) * 255).clip(0, 255).astype(np.uint8).reshape(self.image_shape)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        return file.getvalue(), "image/png"

    def _values(self, row: int) -> Any:
        values = self.X[[row]]
        return np.asarray(values.toarray() if hasattr(values, "toarray") else values, np.float64)[0]


@dataclass(frozen=True)
class ImageItems:
    """Images in files; only files that the data set names, inside its folder, and only their pixels."""

    ids: list[str]
    files: list[str]
    root: Path

    def show(self, row: int) -> dict[str, Any]:
        """The image alone; its name is its id."""
        return {"texts": [], "fields": [], "image": True, "note": ""}

    def image(self, row: int) -> tuple[bytes, str] | None:
        """The image, made smaller where it is large, without what a file holds beside its pixels."""
        path = Path(self.files[row]).resolve()
        if not path.is_relative_to(self.root.resolve()):
            raise PermissionError(f"image {self.ids[row]!r} lies outside the folder of the data, so it is not shown.")
        if not path.is_file():
            raise FileNotFoundError(f"image {self.ids[row]!r} is no longer there.")
        image = open_image(path)
        image.thumbnail((_MOST_PIXELS, _MOST_PIXELS))
        file = io.BytesIO()
        has_alpha = image.mode in ("RGBA", "LA", "P")
        if has_alpha or max(image.size) <= 256:
            image.convert("RGBA" if has_alpha else "RGB").save(file, "PNG")
            return file.getvalue(), "image/png"
        image.convert("RGB").save(file, "JPEG", quality=88)
        return file.getvalue(), "image/jpeg"


def open_image(source: Path | io.BytesIO) -> Image.Image:
    """An image, upright; a ValueError of one sentence where it can not be read or is too large."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        image = Image.open(source, formats=IMAGE_FORMATS)
        if image.size[0] * image.size[1] > _MOST_MEGAPIXELS:
            raise ValueError(f"it has {image.size[0]} × {image.size[1]} pixels")
        return ImageOps.exif_transpose(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        is_other = isinstance(error, UnidentifiedImageError)
        reason = "it is no image" if is_other else " ".join(str(error).split())[:120]
        raise ValueError(
            f"an image must be a file such as JPEG or PNG of at most {_MOST_MEGAPIXELS // 10**6} megapixels; this one "
            f"can not be read ({reason}). Use another file."
        ) from None


def show_cell(value: Any) -> str:
    """A cell as text; empty where it is missing."""
    if value is None or value != value:
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    return str(value)


def _is_text(column: pd.Series[Any]) -> bool:
    """Whether cells are long texts, rather than categories."""
    if column.dtype.kind in "biufcmM":
        return False
    known = column.dropna().astype(str)
    return len(known) > 0 and float(known.str.len().mean()) > _LONG
