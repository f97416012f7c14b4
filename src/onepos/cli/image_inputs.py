"""Images as a command names them: folders, tables of paths, official layouts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onepos.datasets import Dataset
    from onepos.estimator import SinglePositiveClassifier
    from onepos.images.readers import ImageDataset

PARTS = ("train", "val", "test")
LAYOUTS = ("voc", "coco", "nuswide", "cub")
"""Data sets with an official layout on disk, named as `voc:FOLDER`."""


def cut_part(data: str) -> tuple[str, str]:
    """The name, and the part of its split behind it."""
    name, _, part = data.rpartition(":")
    return (name, part) if part in PARTS and name and name not in LAYOUTS else (data, "")


def names_images(name: str, image: str | None) -> bool:
    """Whether this names images: a folder, an official layout, an image, or a table with a column of paths."""
    from onepos.images.readers.folders import SUFFIXES

    if name.partition(":")[0] in LAYOUTS and ":" in name:
        return True
    return Path(name).is_dir() or name.lower().endswith(SUFFIXES) or _find_image_column(name, image) is not None


def _find_image_column(name: str, image: str | None) -> str | None:
    """The given column, or `path` where its first cell is the path of an image."""
    from onepos.images.readers.folders import SUFFIXES
    from onepos.images.readers.image_table import read_cells

    if Path(name).suffix not in (".csv", ".tsv") or not Path(name).is_file():
        return None
    if image is not None:
        return image
    columns, rows = read_cells(name, 1, errors="replace")
    cells = dict(zip(columns, rows[0][1] if rows else [], strict=False))
    return "path" if cells.get("path", "").strip().lower().endswith(SUFFIXES) else None


def read_image_rows(name: str, part: str, columns: dict[str, str | None], split_seed: int) -> ImageDataset:
    """Labelled images: all of them, or one part of the split that comes with them or of a seeded one."""
    import onepos.images.readers as readers

    layout, _, folder = name.partition(":")
    if layout in LAYOUTS and folder:
        images = readers.with_published_protocol(getattr(readers, f"read_{layout}")(folder))
    elif Path(name).is_dir():
        images = readers.read_folders(name)
    elif (image := _find_image_column(name, columns.get("image"))) is not None:
        label = columns.get("label") or "label"
        images = readers.read_image_table(name, image=image, label=label, separator=columns.get("separator"))
    else:
        raise ValueError(
            f"labelled images must be a folder per class or a table of paths and labels; {name} is one image. "
            "Name the folder above the folders of the classes."
        )
    if not part:
        return images
    if images.splits is None:
        from onepos.protocol import train_val_test_split

        return images.take(train_val_test_split(images.Y, split_seed)._asdict()[part])
    if part not in images.splits:
        raise ValueError(f"{name} has the parts {', '.join(images.splits)}; there is no {part}. Name one of them.")
    return images.take(images.splits[part])


def list_images(name: str, part: str, image: str | None, split_seed: int) -> list[str]:
    """The images to predict: all in a folder however deep, those of a table, one, or a part of labelled ones."""
    from onepos.images.readers.folders import SUFFIXES
    from onepos.images.readers.image_table import read_cells

    if part or name.partition(":")[0] in LAYOUTS:
        return read_image_rows(name, part, {"image": image}, split_seed).files
    if Path(name).is_dir():
        return _list_folder(Path(name))
    if name.lower().endswith(SUFFIXES):
        return [name]
    column = _find_image_column(name, image)
    if column is None:
        raise ValueError(
            f"this model takes images: name a folder, an image, or a table with a column of paths (--image); {name} "
            "is none of these."
        )
    columns, rows = read_cells(name)
    if column not in columns:
        raise ValueError(f"{name} has no column '{column}'; it has {', '.join(columns)}. Name one with --image.")
    place = columns.index(column)
    cells = [row[place].strip() if len(row) > place else "" for _, row in rows]
    if not all(cells) or not cells:
        empty = cells.index("") if cells else 0
        raise ValueError(f"{name} must hold a path in each row; row {empty} holds none. Correct the table.")
    return [str(Path(name).parent / cell.replace("\\", "/")) for cell in cells]


def _list_folder(folder: Path) -> list[str]:
    """The images in a folder and below, without hidden ones."""
    from onepos.images.readers.folders import SUFFIXES

    found = sorted(path for path in folder.rglob("*") if path.name.lower().endswith(SUFFIXES))
    kept = [path for path in found if not any(step.startswith(".") for step in path.relative_to(folder).parts)]
    if not kept:
        raise ValueError(f"{folder} must hold images ({', '.join(SUFFIXES)}); it holds none. Check the path.")
    return [str(path) for path in kept]


def make_classifier(
    rows: Dataset | ImageDataset, method: Any, network: str | None, images: dict[str, Any], **parameters: Any
) -> SinglePositiveClassifier:
    """The classifier for rows of numbers, or the one for images; `images` are the parameters of the latter alone."""
    from onepos.estimator import SinglePositiveClassifier

    if not hasattr(rows, "files"):
        return SinglePositiveClassifier(method, network=network or "mlp", **parameters)
    from onepos.images.classifier import SinglePositiveImageClassifier

    return SinglePositiveImageClassifier(method, network=network or "efficientnet-lite0", **images, **parameters)


def image_parameters(
    *, weights: str, size: int | None, workers: int, skip_broken: bool, cache: Path | None
) -> dict[str, Any]:
    """Options of a command as parameters of the image classifier."""
    return {
        "weights": None if weights == "none" else weights,
        "image_size": size,
        "workers": workers,
        "on_error": "skip" if skip_broken else "raise",
        "cache": cache,
    }
