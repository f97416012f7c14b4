"""Class priors from one observed label per row: P(label j) for every label, with intervals and a diagnosis.

`best_bin` is the paper's estimator, `held_out` those that read probabilities of the observed label, `thresholds` turns
priors into decisions.
"""

from __future__ import annotations

from typing import Any

from onepos.priors.best_bin import best_bin_priors, check_parameters
from onepos.priors.estimate import FloatArray, PriorEstimate
from onepos.priors.held_out import HELD_OUT, count_near_ties, held_out_priors
from onepos.priors.thresholds import make_thresholds, match_thresholds
from onepos.validation import suggest

__all__ = [
    "ESTIMATORS",
    "FloatArray",
    "PriorEstimate",
    "check_parameters",
    "count_near_ties",
    "estimate_priors",
    "make_thresholds",
    "match_thresholds",
]

ESTIMATORS = ("bbe", *HELD_OUT)


def estimate_priors(
    scores: Any,
    observed: Any,
    *,
    delta: float = 0.01,
    tau: float = 0.01,
    estimator: str = "bbe",
    known_cardinality: float | None = None,
    labelled: Any = None,
    level: float = 0.9,
) -> PriorEstimate:
    """Estimate P(label = 1) of every label from scores and one observed positive per row.

    "bbe" is the paper's estimator, Eq. (2), label by label, and takes any scores. The others take held-out
    probabilities of the observed label, `onepos.methods.crossfit.cross_fit(X, observed).probability`, and estimate one scale
    for all labels (`onepos.priors.held_out` has the formulas, docs/priors.md the measurements):

    - "anchor": every row has a label that the features make certain; proportions as observed;
    - "reweighted": the same scale; proportions corrected for rows with many labels;
    - "bracket": a scale between two bounds; corrected proportions. The one to use;
    - "shrinkage": "bracket", drawn towards Eq. (2) where a label has many observed positives.

    **What the interval means for "bbe".** By the Dvoretzky-Kiefer-Wolfowitz inequality, q̂ and q̂ᵖ are within ε_n and
    ε_nj of their expectations at all thresholds at once, with probability at least 1 − δ. On that event
    r = q(ẑ)/qᵖ(ẑ) lies in [(q̂−ε_n)/(q̂ᵖ+ε_nj), (q̂+ε_n)/(q̂ᵖ−ε_nj)]: the form of Theorem 4.1 with its
    constants solved exactly instead of bounded. Since r = π + (1−π)·qⁿ(ẑ)/qᵖ(ẑ) ≥ π,

    - `upper` ≥ π holds for any scores whatever;
    - `lower` ≤ π needs the rows scored above ẑ to be (almost) all positives, qⁿ(ẑ) ≈ 0. No data without full
      labels can check this; a weak classifier breaks it, and π̂ is then too high.

    It is assumed that the scores do not depend on these rows (scores of the rows a network was trained on
    do: the more it has memorised, the further π̂ falls towards n_j/n) and that S_j is a sample of the rows
    with label j. A uniform draw of one label per row favours rows with few labels, so the second holds only
    if label j is independent of the number of labels. `lower` never falls below n_j/n, which is certain for
    these rows. The guarantee is per label, not for all labels together.

    **And for the others.** A gamma interval from three errors: that of the scale, which grows with the distance of the
    two bounds, that of a label's proportion, and the noise of counting n_j. The first two were measured on real data;
    no theorem stands behind them. If the scale is open within a factor of 5, `warning` says so.

    Args:
        scores: (n, c) array or tensor on any device, larger means more likely; any increasing transform of a
            column leaves the answer as it is.
        observed: (n, c) 0/1 array or tensor, or a vector of n label indices with −1 for none.
        delta: δ, the probability with which an interval of "bbe" may miss.
        tau: τ, weight of the confidence term in the choice of ẑ.
        estimator: A name in ESTIMATORS.
        known_cardinality: Mean number of labels per row, where it is known; it replaces the estimate of the scale. Not
            for "bbe".
        labelled: (l, c) 0/1, all labels of l rows drawn at random, 10 to 200 of them, whether or not they are among
            those of `scores`. Not for "bbe".
        level: Coverage of the intervals of all but "bbe".

    Example:
        >>> import numpy as np
        >>> scores = np.array([[0.9], [0.8], [0.7], [0.2], [0.1], [0.0]])
        >>> estimate_priors(scores, np.array([0, 0, -1, -1, -1, -1])).prior   # 2 of the top 2 were observed
        array([0.33333333])
    """
    if estimator not in ESTIMATORS:
        raise ValueError(_unknown(estimator))
    if estimator != "bbe":
        return held_out_priors(scores, observed, estimator, delta, tau, known_cardinality, labelled, level)
    if known_cardinality is not None or labelled is not None:
        given = "known_cardinality" if labelled is None else "labelled"
        raise ValueError(f"{given} can not be used by estimator 'bbe'; it was given. Choose estimator='bracket'.")
    return best_bin_priors(scores, observed, delta, tau)


def _unknown(estimator: str) -> str:
    return f"unknown estimator {estimator!r}; {suggest(estimator, ESTIMATORS)}"
