"""The frozen `ImageDataset`: paths instead of features, otherwise as `Dataset`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from onepos.datasets.dataset import Labels, Rows, as_rows, check_indicator, check_splits, move_splits


@dataclass(frozen=True, eq=False, repr=False)
class ImageDataset:
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
        names = tuple(map(str, self.label_names))
        Y = check_indicator(self.Y, "Y", names)
        self.__dict__.update(root=os.fspath(self.root), paths=tuple(self.paths), label_names=names, Y=Y)
        if len(self.paths) != self.n_samples:
            raise ValueError(
                f"there must be one path per row of Y; there are {len(self.paths)} paths and {self.n_samples} rows. "
                "Check that both come from the same list."
            )
        _check_different(self.paths)
        if self.splits is not None:
            self.__dict__["splits"] = check_splits(self.splits, self.n_samples)
        if self.observed is not None:
            self.__dict__["observed"] = self._check_observed()

    def __repr__(self) -> str:
        return f"ImageDataset('{self.name}', {self.n_samples} images, {self.n_labels} labels)"

    @property
    def n_samples(self) -> int:
        """Number of images."""
        return int(self.Y.shape[0])

    @property
    def n_labels(self) -> int:
        """Number of columns of Y."""
        return int(self.Y.shape[1])

    @property
    def files(self) -> list[str]:
        """The paths with the root before them, ready to be opened."""
        return [os.path.join(self.root, path) for path in self.paths]

    @property
    def cardinality(self) -> float:
        """Mean number of positive labels per row."""
        return float(self.Y.sum(dtype=np.int64) / self.n_samples)

    @property
    def density(self) -> float:
        """Mean share of positive labels per row."""
        return self.cardinality / self.n_labels

    @property
    def prior(self) -> npt.NDArray[np.float64]:
        """Share of positive rows per label, (c,)."""
        return np.asarray(self.Y.mean(axis=0, dtype=np.float64))

    def take(self, rows: npt.ArrayLike) -> ImageDataset:
        """Keep the given rows, in the given order, each once; splits follow their rows.

        Args:
            rows: Row numbers, or a boolean mask of length n.
        """
        chosen = as_rows(rows, self.n_samples, "rows")
        return replace(
            self,
            paths=tuple(self.paths[row] for row in chosen),
            Y=self.Y[chosen],
            splits=move_splits(self.splits, chosen, self.n_samples),
            observed=None if self.observed is None else self.observed[chosen],
        )

    def without_unlabelled(self) -> ImageDataset:
        """Drop the rows that have no positive label; no positive can be drawn from them."""
        labelled = self.Y.any(axis=1)
        return self if labelled.all() else self.take(labelled)

    def describe(self) -> dict[str, Any]:
        """Return the figures that tell one variant of a data set from another."""
        per_row = self.Y.sum(axis=1, dtype=np.int64)
        prior = self.prior
        return {
            "name": self.name,
            "n_samples": self.n_samples,
            "n_labels": self.n_labels,
            "parts": {part: len(rows) for part, rows in (self.splits or {}).items()},
            "cardinality": self.cardinality,
            "density": self.density,
            "prior_min": float(prior.min()),
            "prior_median": float(np.median(prior)),
            "prior_max": float(prior.max()),
            "rows_without_label": int((per_row == 0).sum()),
            "rows_with_one_label": int((per_row == 1).sum()),
            "labels_without_positive": int((prior == 0).sum()),
        }

    def _check_observed(self) -> Labels:
        observed = check_indicator(self.observed, "observed", self.label_names)
        if observed.shape != self.Y.shape or (observed > self.Y).any():
            raise ValueError(
                f"observed must have the shape of Y, {self.Y.shape}, and mark only true positives; it is "
                f"{observed.shape} or marks others. Draw again from this Y."
            )
        return observed


def join_parts(
    name: str,
    root: str | os.PathLike[str],
    parts: Mapping[str, tuple[Sequence[str], npt.NDArray[Any]]],
    label_names: Sequence[str],
    source: str,
) -> ImageDataset:
    """Put the (paths, Y) of the parts below each other; `splits` holds the rows of each."""
    lengths = [len(paths) for paths, _ in parts.values()]
    ends = np.cumsum([0, *lengths])
    return ImageDataset(
        name=name,
        root=os.fspath(root),
        paths=tuple(path for paths, _ in parts.values() for path in paths),
        Y=np.concatenate([Y for _, Y in parts.values()]),
        label_names=tuple(label_names),
        splits={part: np.arange(ends[i], ends[i + 1]) for i, part in enumerate(parts)},
        source=source,
    )


def _check_different(paths: Sequence[str]) -> None:
    first: dict[str, int] = {}
    for row, path in enumerate(paths):
        if first.setdefault(path, row) != row:
            raise ValueError(
                f"an image must have one row only; rows {first[path]} and {row} are both {path}. "
                "Put all its labels into one row."
            )
