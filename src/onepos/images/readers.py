"""Images on disk with their labels: folders, and tables of paths."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from onepos.datasets.dataset import LabelledRows, Rows
from onepos.datasets.files import naming
from onepos.datasets.table import Table, open_table
from onepos.labels import Labels
from onepos.validation import Indicator, find_repeat


@dataclass(frozen=True, eq=False, repr=False)
class ImageDataset(LabelledRows):
    """The paths of the images of a data set, and their full labels; no image is opened here.

    Args:
        name: Short name, used for file names and tables.
        root: Folder the paths start from.
        paths: One file per row, relative to `root` with forward slashes; no two alike. An absolute path is left
            as it is.
        Y: Labels, (n, c), 0 or 1; kept as uint8. Rows without a positive are allowed and counted by `describe`.
        label_names: One name per column of Y, no two alike.
        splits: Row numbers per part ("train", "val", "test") as the source ships them; no row in two parts.
        source: Where the data came from.
        observed: The observed labels, (n, c), a subset of Y, where the source is single-positive itself or
            ships a draw.
        known_negative, groups, at_random: As in `Dataset`.

    Raises:
        ValueError: When one of the statements above does not hold; the text names the place.
    """

    name: str
    root: str
    paths: tuple[str, ...]
    Y: Indicator
    label_names: tuple[str, ...]
    splits: Mapping[str, Rows] | None = None
    source: str = ""
    observed: Indicator | None = None
    known_negative: Indicator | None = None
    groups: Rows | None = None
    at_random: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        """Check every field and freeze the arrays."""
        self.__dict__.update(root=os.fspath(self.root), paths=tuple(self.paths))
        self._check_labels()
        if len(self.paths) != self.n_samples:
            raise ValueError(
                f"there must be one path per row of Y; there are {len(self.paths)} paths and {self.n_samples} rows. "
                "Check that both come from the same list."
            )
        if repeat := find_repeat(self.paths):
            first, second = repeat
            raise ValueError(
                f"an image must have one row only; rows {first} and {second} are both {self.paths[first]}. "
                "Put all its labels into one row."
            )

    def __repr__(self) -> str:
        return f"ImageDataset('{self.name}', {self.n_samples} images, {self.n_labels} labels)"

    @property
    def files(self) -> list[str]:
        """The paths with the root before them, ready to be opened."""
        return [os.path.join(self.root, path) for path in self.paths]

    def describe(self) -> dict[str, Any]:
        """Return the figures that tell one variant of a data set from another."""
        return super().describe() | {"parts": {part: len(rows) for part, rows in (self.splits or {}).items()}}

    def _take_inputs(self, rows: Rows) -> dict[str, Any]:
        return {"paths": tuple(self.paths[row] for row in rows)}


def join_parts(
    name: str, root: str | os.PathLike[str], parts: Mapping[str, Part], label_names: Sequence[str], source: str
) -> ImageDataset:
    """Put the (paths, Y) of the parts below each other; `splits` holds the rows of each."""
    ends = np.cumsum([0, *(len(paths) for paths, _ in parts.values())])
    return ImageDataset(
        name=name,
        root=os.fspath(root),
        paths=tuple(path for paths, _ in parts.values() for path in paths),
        Y=np.concatenate([Y for _, Y in parts.values()]),
        label_names=tuple(label_names),
        splits={part: np.arange(ends[i], ends[i + 1]) for i, part in enumerate(parts)},
        source=source,
    )


SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")
PARTS = ("train", "val", "test")


def read_folders(root: str | os.PathLike[str]) -> ImageDataset:
    """Read `root/<class>/…/<image>`, or `root/{train,val,test}/<class>/…` where the folders are named so.

    Classes are in alphabetical order, and so are the images of each. `Y` and `observed` are the same: the folder is
    the one label that is known to be positive, of the others nothing is known. Hidden files and folders are left out.

    Args:
        root: The folder.
    """
    folder = Path(root)
    found = _subfolders(folder)
    is_parted = "train" in found and set(found) <= set(PARTS)
    parts = [part for part in PARTS if part in found] if is_parted else [""]
    listed = {part: _list_classes(folder, part) for part in parts}
    classes = sorted({name for images in listed.values() for name in images})
    content = {part: _label(images, classes) for part, images in listed.items()}
    data = join_parts(folder.resolve().name, folder, content, classes, "a folder per class")
    return replace(data, splits=data.splits if is_parted else None, observed=data.Y)


def _subfolders(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}. Check the name.")
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def _list_classes(root: Path, part: str) -> dict[str, list[str]]:
    """Class → images, relative to the root."""
    folder = root / part
    stray = sorted(entry.name for entry in os.scandir(folder) if entry.is_file() and _is_image(entry.name))
    if stray:
        raise ValueError(f"every image must be in the folder of its class; {folder / stray[0]} is not. Move it.")
    classes = {name: _list_images(root, folder / name) for name in _subfolders(folder)}
    if not classes:
        raise ValueError(f"{folder} must hold a folder per class; it holds none. Check the path.")
    for name, images in classes.items():
        if not images:
            raise ValueError(
                f"the folder of a class must hold images ({', '.join(SUFFIXES)}); {folder / name} holds none. Remove "
                "the folder or add images."
            )
    return classes


def _list_images(root: Path, folder: Path) -> list[str]:
    found = []
    for where, inner, names in os.walk(folder, followlinks=True):
        inner[:] = [name for name in inner if not name.startswith(".")]
        found += [Path(where, name).relative_to(root).as_posix() for name in names if _is_image(name)]
    return sorted(found)


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _label(images: dict[str, list[str]], classes: list[str]) -> Part:
    columns = np.repeat([classes.index(name) for name in images], [len(mine) for mine in images.values()])
    return [path for mine in images.values() for path in mine], np.eye(len(classes), dtype=np.uint8)[columns]


def read_image_table(
    path: str | os.PathLike[str] | Table,
    *,
    image: str = "path",
    label: str = "label",
    separator: str | None = None,
    labels: Labels | None = None,
    check_files: bool = True,
) -> ImageDataset:
    """Read a table with a column of paths and a column of labels; other columns are left out.

    Args:
        path: A file that `open_table` reads, or what it returned.
        image: Column of the paths; they start from the folder of the table unless they are absolute.
        label: Column of the label; an empty cell means that no label is known to be positive.
        separator: What stands between several labels of one cell. Without it there is one label per image, and
            `observed` is set.
        labels: The labels of the rows, if they are not in a column of the table.
        check_files: Whether every image must be there.
    """
    table = path if isinstance(path, Table) else open_table(Path(path), text=(image, label))
    with naming(table.path):
        paths = list_paths(table, image)
        known = labels if labels is not None else table.to_labels(label=label, separator=separator)
        if check_files:
            check_images(table.path.parent, paths, table.path.name, table.place)
        return ImageDataset(
            name=table.path.stem,
            root=os.fspath(table.path.parent),
            paths=tuple(paths),
            Y=known.observed,
            label_names=tuple(known.classes),
            source=table.path.name,
            observed=known.observed if labels is None and separator is None else None,
            known_negative=known.known_negative,
            at_random=known.at_random,
        )


def list_paths(table: Table, image: str) -> list[str]:
    """The paths in a column of a table, with forward slashes; every row must hold one."""
    table.check_columns([image])
    paths = [str(cell).strip().replace("\\", "/") for cell in table.frame[image].fillna("")]
    if "" in paths:
        raise ValueError(
            f"{table.path.name}, {table.place(paths.index(''))}: a row must hold a path; column '{image}' is empty. "
            "Correct the line, or get the file again if it was cut off."
        )
    return paths


Part: TypeAlias = tuple[list[str], Indicator]
"""Paths, relative to the root of the data, and the labels of each."""


def check_images(root: Path, paths: Sequence[str], list_name: str, place: Callable[[int], str]) -> None:
    """Raise an error that names the first missing image of a list; each folder is listed once.

    `place` gives the place of a path in the file `list_name`, such as "line 7".
    """
    split = [os.path.split(path) for path in paths]
    present = {folder: _list(os.path.join(root, folder)) for folder in {folder for folder, _ in split}}
    missing = [row for row, (folder, name) in enumerate(split) if name not in present[folder]]
    if missing:
        more = f" ({len(missing)} of {len(paths)} images are missing)" if len(missing) > 1 else ""
        raise FileNotFoundError(
            f"{list_name}, {place(missing[0])}: the image must be there; {paths[missing[0]]} is not in "
            f"{root}{more}. Extract the images there, or pass check_files=False to read the labels alone."
        )


def _list(folder: str) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return set()
