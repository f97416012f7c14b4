"""The points of a search space: a full grid, Sobol points, random ones, or a star: one axis at a time.

A value depends on the seed, the number of its point, and the name and place of its axis, on nothing else: more points,
or further axes behind the first ones, leave the rest as it was. So all methods meet the same points of the axes they
share, whatever axes of their own follow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

SAMPLERS = ("grid", "sobol", "random", "star")
"""Ways to draw points: by `draw_points`, but those of a star by `draw_star`."""

_BITS = 30

# Which of Sobol's dimensions the axes take, in this order. In his own order some pairs, the 2nd and the 7th for one,
# lie on a few lines while points are few. Of these eight, any two fall evenly into quadrants within 16 points and
# reach at least 8 of 4 × 4 cells; any two of the first four do so within 8 points.
_DIMENSIONS = (0, 1, 2, 10, 31, 3, 41, 4)


@dataclass(frozen=True)
class Axis:
    """One direction of a search space."""

    kind: str  # "values", "log" or "linear"
    entries: tuple[Any, ...]  # the values to choose from, or the two ends

    def at(self, position: float) -> Any:
        """The value at a position from 0 to below 1 along the axis."""
        if self.kind == "values":
            return self.entries[int(position * len(self.entries))]
        low, high = self.entries
        value = low * (high / low) ** position if self.kind == "log" else low + (high - low) * position
        # Mathematics libraries differ in the last digit; machines that share a folder must mean the same run.
        return float(f"{value:.4g}")


def draw_points(axes: Mapping[str, Axis], sampler: str, count: int | None, seed: int) -> list[dict[str, Any]]:
    """The points of a space, each a value per axis.

    Axes of `values` are balanced: in a "grid" by nature; in 2ᵐ "sobol" points, or any number of "random" ones, no
    value comes more than once oftener than another. A grid has every combination, the first axis fastest, whatever the
    `count`, and takes axes of `values` only; of Sobol points the count is a power of two, and the order of the axes
    decides which of his dimensions they take.
    """
    if sampler == "grid":
        slowest_first = [axis.entries for axis in axes.values()][::-1]
        return [dict(zip(axes, reversed(point), strict=True)) for point in product(*slowest_first)]
    if count is None:
        raise ValueError(f"the sampler {sampler!r} needs the number of points; none was given.")
    if sampler == "sobol":
        positions = _sobol(list(axes), count, seed)
    else:
        positions = np.array([_random(name, axis, count, seed) for name, axis in axes.items()]).T
    return [{name: axes[name].at(float(u)) for name, u in zip(axes, row, strict=True)} for row in positions]


def draw_star(axes: Mapping[str, Axis]) -> list[dict[str, Any]]:
    """The points of a star: the centre, where no axis is set, then every value of one axis after the other.

    Example:
        >>> draw_star({"x": Axis("values", (1, 2)), "y": Axis("values", (3,))})
        [{}, {'x': 1}, {'x': 2}, {'y': 3}]
    """
    return [{}, *({name: value} for name, axis in axes.items() for value in axis.entries)]


def hash_bits(*words: object) -> int:
    """A number below 2³⁰ that looks random and follows from the words, on every machine and for all time."""
    digest = hashlib.blake2b(" ".join(map(str, words)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> (32 - _BITS)


def _sobol(names: list[str], count: int, seed: int) -> npt.NDArray[np.float64]:
    """The first points of Sobol's sequence, the digits of each axis shifted at random, (count, axes)."""
    from scipy.stats import qmc  # takes most of a second to import

    chosen = [*_DIMENSIONS, *(d for d in range(len(names)) if d not in _DIMENSIONS)][: len(names)]
    engine = qmc.Sobol(max(chosen) + 1, scramble=False, bits=_BITS)
    points = engine.random_base2((count - 1).bit_length())[:count, chosen]
    shift = np.array([hash_bits(seed, "axis", name) for name in names])
    shifted = (points * 2**_BITS).astype(np.int64) ^ shift
    positions: npt.NDArray[np.float64] = (shifted + 0.5) / 2**_BITS
    return positions


def _random(name: str, axis: Axis, count: int, seed: int) -> list[float]:
    """Positions along one axis; those of an axis of values go through all of them before one comes again."""
    if axis.kind != "values":
        return [(hash_bits(seed, "axis", name, k) + 0.5) / 2**_BITS for k in range(count)]
    size = len(axis.entries)
    order = [
        value
        for block in range(-(-count // size))
        for value in sorted(range(size), key=lambda value: hash_bits(seed, "axis", name, block, value))
    ]
    return [(value + 0.5) / size for value in order[:count]]
