"""Some numbers of a stream, in bounded memory: the same ones in whatever blocks the stream comes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MOST = 20_000
"""So many numbers are kept."""


class Sample:
    """Numbers whose rows have the smallest hash values, which do not depend on the numbers."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._keys: list[npt.NDArray[np.uint64]] = []
        self._numbers: list[npt.NDArray[np.float64]] = []

    def update(self, numbers: npt.NDArray[np.float64], start: int) -> None:
        """Add a block whose first row is row `start` of the stream; missing numbers are NaN."""
        known = np.flatnonzero(~np.isnan(numbers))
        self._keys.append(_mix(known.astype(np.uint64) + np.uint64(start)))
        self._numbers.append(numbers[known])
        if sum(map(len, self._keys)) > 2 * self._most:
            self._cut()

    def numbers(self) -> npt.NDArray[np.float64]:
        """What was kept, in no order."""
        self._cut()
        return self._numbers[0]

    def _cut(self) -> None:
        keys, numbers = np.concatenate([np.empty(0, np.uint64), *self._keys]), np.concatenate([[], *self._numbers])
        if len(keys) > self._most:
            chosen = np.argpartition(keys, self._most)[: self._most]
            keys, numbers = keys[chosen], numbers[chosen]
        self._keys, self._numbers = [keys], [numbers]


def _mix(rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Different numbers for different rows, without a pattern (the finalizer of splitmix64)."""
    mixed = (rows + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))
