"""Wide sparse rows → few dense numbers: what held-out models learn from where the rows are encoded text.

Spreading out n rows of 20 000 terms takes n·80 kB, and standardizing each term would make the rarest as large as all
others. In place of the terms stand their coordinates along the directions in which the rows differ most (a truncated
singular value decomposition, randomized). Columns that vary as much as a standardized number does stay as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.extmath import randomized_svd

WIDE = 2048
"""Sparse rows of more numbers are reduced."""
N_DIRECTIONS = 512
"""Coordinates that the terms become; chosen by research/results/table-encoders.md."""
STRONG = 0.05
"""A column of which the mean square is at least this stays as it is; that of a standardized number is 1."""

_MOST_STRONG = 512
_POWER_STEPS = 4


def reduce_rows(rows: Any, seed: int) -> npt.NDArray[np.float32]:
    """Strong columns and coordinates of the others, (n, at most _MOST_STRONG + N_DIRECTIONS), single precision.

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
    kept: npt.NDArray[np.float32] = rows[:, strong].toarray().astype(np.float32)
    if not len(weak):
        return kept
    n_directions = min(N_DIRECTIONS, n, len(weak))
    left, size, _ = randomized_svd(rows[:, weak], n_directions, n_iter=_POWER_STEPS, random_state=seed)
    lost = square[weak].sum() * n / max(np.square(size).sum(), 1e-12)
    return np.hstack([kept, (left * (size * np.sqrt(lost))).astype(np.float32)])
