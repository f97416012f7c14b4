"""Mean, deviation and skewness of a stream of numbers."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

_NO_DEVIATION = 1e-12
"""A deviation below this share of the mean is an error of rounding."""


class Moments:
    """The first three moments, added up block by block around the mean, so that the blocks make no difference.

    Attributes:
        n: How many numbers were met.
        mean: Their mean, 0 before the first.
        deviation: Their standard deviation; 1 where they do not differ.
    """

    def __init__(self) -> None:
        self.n = 0
        self.mean = 0.0
        self.deviation = 1.0
        self._square = self._cube = 0.0

    @classmethod
    def of(cls, mean: float, deviation: float) -> Moments:
        """Moments that were stored."""
        moments = cls()
        moments.mean, moments.deviation = mean, deviation
        return moments

    def update(self, numbers: npt.NDArray[np.float64]) -> None:
        """Add a block of finite numbers."""
        n = len(numbers)
        if n == 0:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(numbers.mean())
            centred = numbers - mean
            square, cube = float((centred**2).sum()), float((centred**3).sum())
            self._merge(n, np.float64(mean), np.float64(square), np.float64(cube))

    def _merge(self, n: int, mean: np.float64, square: np.float64, cube: np.float64) -> None:
        total, step = self.n + n, mean - self.mean
        both = self.n / total * n
        self._cube += float(
            cube + step**3 * both * ((self.n - n) / total) + 3 * step * (self.n * square - n * self._square) / total
        )
        self._square += float(square + step**2 * both)
        self.mean += float(step * (n / total))
        self.n = total
        deviation = math.sqrt(self._square / total) if self._square >= 0 else math.nan
        self.deviation = deviation if not deviation <= _NO_DEVIATION * abs(self.mean) else 1.0

    @property
    def is_finite(self) -> bool:
        """Whether the numbers were small enough for their squares."""
        return math.isfinite(self.mean) and math.isfinite(self.deviation)

    @property
    def skewness(self) -> float:
        """0 for symmetric numbers, positive for a long tail to the right; 0 where the numbers do not differ."""
        if self.n == 0 or not self.is_finite or self._square == 0:
            return 0.0
        with np.errstate(all="ignore"):
            skewness = float(np.float64(self._cube) / self.n / np.float64(self.deviation) ** 3)
        return skewness if math.isfinite(skewness) else 0.0
