"""From held-out probabilities of the observed label to the probability that another label is present too.

With s_ij the held-out probability that j is the observed label of row i, π_j the class prior and U_j the rows of which
nothing is known about label j,

    p_ij(π) = σ(logit s_ij + b_j),   b_j such that Σ_{i in U_j} p_ij = n·π_j − (rows known to have label j)

so all labels that are not observed are as many as the prior leaves. π is uncertain: p_ij is the mean of p_ij(π) over
seven levels of π between the ends of its interval and beyond. All labels rise and fall together, since most of the
uncertainty is that of their common scale.

With reviewed rows, of which all labels are known, p is calibrated: σ(a + b·logit p + u_j), with a and b those of the
largest posterior density under a ~ N(0, 1), b ~ N(1, 0.3²), and then u_j under u_j ~ N(0, 0.5²). An entry counts by the
probability that it was not the observed one: of a row with |y| labels, each was drawn with probability 1/|y|.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from onepos.methods.heads import shift_to
from onepos.priors import FloatArray, PriorEstimate

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]

# Standard deviations of the logarithm of a prior at which probabilities are computed and averaged.
_LEVELS = (-1.6, -0.9, -0.4, 0.0, 0.4, 0.9, 1.6)
# Rows from which the shifts are fitted, at most.
_SHIFT_ROWS = 20_000
# Of the prior of a calibration: standard deviations of a and b.
_SPREAD = np.array([1.0, 0.3])
# The same of the offset of a label.
_LABEL_SPREAD = 0.5
_STEPS = 50
_LEAST = 1e-7


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of the rows.

    Attributes:
        positive, negative: Known entries, (n, c).
        complete: The rows of which all is known, (n,).
    """

    positive: Flags
    negative: Flags
    complete: Flags

    @property
    def unknown(self) -> Flags:
        """Entries of which nothing is known, (n, c)."""
        return ~(self.positive | self.negative)


@dataclass(frozen=True)
class Calibration:
    """A map of logits, z → a + b·z + u.

    Attributes:
        coefficients: (a, b).
        offset: u, (c,).
        covariance: Of both, (2, 2).
        n_rows: Reviewed rows behind it.
    """

    coefficients: FloatArray
    offset: FloatArray
    covariance: FloatArray
    n_rows: int

    def apply(self, probability: FloatArray, caution: float = 0.0) -> FloatArray:
        """Calibrated probabilities, lower by `caution` standard deviations of their logits."""
        if self.n_rows == 0:
            return probability
        z = logit(probability)
        found = self.coefficients[0] + self.coefficients[1] * z + self.offset
        return sigmoid(found - caution * self.error(z) if caution else found)

    def error(self, z: FloatArray) -> FloatArray:
        """Standard deviation of the calibrated logits."""
        (aa, ab), (_, bb) = self.covariance
        return np.asarray(np.sqrt(np.maximum(aa + 2 * ab * z + bb * z * z, 0.0)))


NONE = Calibration(np.array([0.0, 1.0]), np.zeros(1), np.array([[0.25, 0.0], [0.0, 0.0]]), 0)
"""No reviewed rows, no calibration; a logit may be wrong by about as much as on development sets."""


def logit(probability: Any) -> FloatArray:
    """log(p / (1 − p)) of probabilities that are kept away from 0 and 1."""
    p = np.clip(np.asarray(probability, np.float64), _LEAST, 1 - _LEAST)
    return np.asarray(np.log(p) - np.log1p(-p))


def sigmoid(z: FloatArray) -> FloatArray:
    """1 / (1 + e^−z)."""
    return np.asarray(1 / (1 + np.exp(-np.clip(z, -60, 60))))


def prior_at(estimate: PriorEstimate, level: float, coverage: float = 0.9) -> FloatArray:
    """The priors so many standard deviations of their logarithms from the estimate, (c,); 0 where unknown."""
    end = NormalDist().inv_cdf((1 + coverage) / 2)
    middle = np.maximum(np.nan_to_num(estimate.prior), 1e-12)
    other = np.nan_to_num(estimate.lower if level < 0 else estimate.upper)
    spread = np.abs(np.log(np.maximum(other, 1e-12) / middle)) / end
    return np.asarray(np.where(np.isnan(estimate.prior), 0.0, np.minimum(middle * np.exp(level * spread), 1.0)))


def presence_at(held_out: Floats, known: Known, prior: FloatArray) -> FloatArray:
    """p(π), (n, c), of every entry, known or not."""
    z, unknown, drawn = logit(held_out), known.unknown, ~known.complete
    wanted = drawn.sum() * prior - known.positive[drawn].sum(0)
    share = np.clip(wanted / np.maximum(unknown.sum(0), 1), 0.0, 1.0)
    rows = np.flatnonzero(drawn)
    rows = rows if len(rows) else np.arange(len(z))
    few = rows[np.arange(min(_SHIFT_ROWS, len(rows))) * len(rows) // min(_SHIFT_ROWS, len(rows))]
    some = np.where(unknown[few], z[few], -1e9)
    mean = share * unknown[few].mean(0)
    return sigmoid(z + shift_to(torch.from_numpy(mean), torch.from_numpy(some)).numpy())


def presence(held_out: Floats, known: Known, estimate: PriorEstimate, caution: float = 0.0) -> FloatArray:
    """The mean of p(π) over levels of π, all of them lower by `caution` standard deviations, (n, c)."""
    total = np.zeros(held_out.shape)
    for level in _LEVELS:
        total += presence_at(held_out, known, prior_at(estimate, level - caution))
    return total / len(_LEVELS)


def calibrate(probability: FloatArray, known: Known, rows: Flags) -> Calibration:
    """Fit a and b to the known entries of these rows; none is made without rows or where nothing counts."""
    positive = known.positive[rows]
    counts = positive.sum(1, keepdims=True)
    weight = np.where(known.unknown[rows], 0.0, 1 - positive / np.maximum(counts, 1))
    weight[counts[:, 0] == 0] = 0.0  # a row without a label would not have been drawn from
    if not weight.any():
        return NONE
    z, target = logit(probability[rows]), positive.astype(np.float64)
    start, precision = np.array([0.0, 1.0]), np.diag(_SPREAD**-2.0)
    found = start.copy()
    for _ in range(_STEPS):
        p = sigmoid(found[0] + found[1] * z)
        error, bend = weight * (target - p), weight * p * (1 - p)
        slope = np.array([error.sum(), (error * z).sum()]) - precision @ (found - start)
        mixed = (bend * z).sum()
        curvature = np.array([[bend.sum(), mixed], [mixed, (bend * z * z).sum()]]) + precision
        step = np.linalg.solve(curvature, slope)
        found = found + step * min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-8:
            break
    offset = _fit_offsets(found[0] + found[1] * z, target, weight)
    return Calibration(found, offset, np.asarray(np.linalg.inv(curvature), np.float64), int(rows.sum()))


def _fit_offsets(z: FloatArray, target: FloatArray, weight: FloatArray) -> FloatArray:
    """u, (c,), by Newton's steps, none of them larger than 1."""
    offset = np.zeros(z.shape[1])
    for _ in range(_STEPS):
        p = sigmoid(z + offset)
        slope = (weight * (target - p)).sum(0) - offset / _LABEL_SPREAD**2
        curvature = (weight * p * (1 - p)).sum(0) + _LABEL_SPREAD**-2
        step = np.clip(slope / curvature, -1, 1)
        offset = offset + step
        if np.abs(step).max() < 1e-8:
            break
    return offset
