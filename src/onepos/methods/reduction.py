"""Wide sparse rows → few dense numbers: what models learn from where the rows are encoded text.

Spreading out n rows of 20 000 terms takes n·80 kB, and standardizing each term would make the rarest as large as all
others. In place of the terms stand their coordinates along the directions in which the rows differ most (a truncated
singular value decomposition, randomized). Columns that vary as much as a standardized number does stay as they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils.extmath import randomized_svd

WIDE = 2048
"""Sparse rows of more numbers are reduced."""
N_DIRECTIONS = 768
"""Coordinates that the terms become; chosen by research/results/table-encoders.md."""
STRONG = 0.05
"""A column of which the mean square is at least this stays as it is; that of a standardized number is 1."""

_MOST_STRONG = 512
_POWER_STEPS = 4


class Directions(NamedTuple):
    """What wide rows are reduced by.

    Attributes:
        strong: Columns that stay as they are, (k,).
        weak: All others that are not empty, (m,).
        axes: What a row of these is multiplied by, (m, r), single precision; half precision can hold the numbers, which
            halves a model folder.
    """

    strong: npt.NDArray[np.int64]
    weak: npt.NDArray[np.int64]
    axes: npt.NDArray[np.float32]

    @property
    def width(self) -> int:
        """Numbers that a row becomes."""
        return len(self.strong) + int(self.axes.shape[1])

    def apply(self, rows: Any) -> npt.NDArray[np.float32]:
        """Strong columns and coordinates of the others, (n, k + r), of a SciPy matrix in compressed rows (n, d)."""
        parts = [rows[:, self.strong].toarray(), rows[:, self.weak] @ self.axes]
        return np.hstack(parts).astype(np.float32, copy=False)


def find_directions(rows: Any, seed: int) -> Directions:
    """The directions in which these rows differ most.

    The coordinates are multiplied by one number, so that a row is as long as before: where numbers stand beside text,
    the encoder's balance of both is kept.

    Args:
        rows: A SciPy matrix in compressed rows, (n, d).
        seed: Of the random start of the decomposition.
    """
    n, d = rows.shape
    square = np.bincount(rows.indices, np.square(rows.data, dtype=np.float64), minlength=d) / n
    strong = np.sort(np.argsort(-square, kind="stable")[:_MOST_STRONG])
    strong = strong[square[strong] >= STRONG]
    weak = np.setdiff1d(np.flatnonzero(square), strong)
    if not len(weak):
        return Directions(strong, weak, np.empty((0, 0), np.float32))
    n_directions = min(N_DIRECTIONS, n, len(weak))
    _, size, axes = randomized_svd(rows[:, weak], n_directions, n_iter=_POWER_STEPS, random_state=seed)
    lost = square[weak].sum() * n / max(np.square(size).sum(), 1e-12)
    return Directions(strong, weak, np.ascontiguousarray(axes.T * np.sqrt(lost)).astype(np.float16).astype(np.float32))
