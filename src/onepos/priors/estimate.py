"""The result of an estimator of class priors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PriorEstimate:
    """Class priors and their uncertainty; every array has one entry per label.

    Attributes:
        prior: π̂; NaN for a label nobody observed.
        lower: Lower end of the interval, see the estimator; NaN for a label nobody observed.
        upper: Upper end of the interval.
        n_positive: Observed positives n_j.
        reliable: "bbe": n_j meets the condition of the theorem, n_j ≥ 2·ln(4/δ) / q̂ᵖ(ẑ)²; that is, the lower
            bound of qᵖ(ẑ) is at least half of q̂ᵖ(ẑ), which is the condition with bound="beta" too. "bracket": the
            interval stays within half and double the estimate.
        n_effective: Positives the estimate rests on. "bbe": those in the bin, n_j·q̂ᵖ(ẑ). "bracket": the number of
            positives whose count alone would give an interval as wide.
        threshold: "bbe": the score ẑ that bounds the bin from below. "bracket": NaN.
        cardinality: Mean number of labels per row: Σ_j π̂_j; "bracket" adds a part for labels nobody observed.
        cardinality_interval: Its interval; NaN of "bbe", which treats every label alone.
        warning: What is wrong with the estimate as a whole and what can be done; empty where nothing is.

    Example:
        >>> import numpy as np
        >>> from onepos import estimate_priors
        >>> scores = np.linspace(1, 0, 200)[:, None]
        >>> observed = (scores > 0.7).astype(int)
        >>> found = estimate_priors(scores, observed)
        >>> bool(found.lower[0] <= found.prior[0] <= found.upper[0]), int(found.n_positive[0])
        (True, 60)
    """

    prior: FloatArray
    lower: FloatArray
    upper: FloatArray
    n_positive: IntArray
    reliable: npt.NDArray[np.bool_]
    n_effective: FloatArray
    threshold: FloatArray
    cardinality: float = float("nan")
    cardinality_interval: tuple[float, float] = (float("nan"), float("nan"))
    warning: str = ""
