"""The frozen `ImageDataset`: paths instead of features, otherwise as `Dataset`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onepos.datasets.dataset import LabelledRows, Labels, Rows
from onepos.images.readers.listing import Part


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

    Raises:
        ValueError: When one of the statements above does not hold; the text names the place.
    """

    name: str
    root: str
    paths: tuple[str, ...]
    Y: Labels
    label_names: tuple[str, ...]
    splits: Mapping[str, Rows] | None = None
    source: str = ""
    observed: Labels | None = None

    def __post_init__(self) -> None:
        """Check every field and freeze the arrays."""
        self.__dict__.update(root=os.fspath(self.root), paths=tuple(self.paths))
        self._check_labels()
        if len(self.paths) != self.n_samples:
            raise ValueError(
                f"there must be one path per row of Y; there are {len(self.paths)} paths and {self.n_samples} rows. "
                "Check that both come from the same list."
            )
        first: dict[str, int] = {}
        for row, path in enumerate(self.paths):
            if first.setdefault(path, row) != row:
                raise ValueError(
                    f"an image must have one row only; rows {first[path]} and {row} are both {path}. "
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
