"""Class priors from one observed label per row: P(label j) for every label, with intervals and a warning.

`best_bin` is the paper's estimator, `bracket` needs held-out probabilities of the observed label, `thresholds` turns
probabilities into decisions.
"""

from __future__ import annotations

from typing import Any

from onepos.priors.best_bin import BOUNDS, best_bin_priors, check_parameters
from onepos.priors.bracket import bracket_priors, count_near_ties
from onepos.priors.estimate import FloatArray, PriorEstimate
from onepos.priors.thresholds import (
    RULES,
    DecisionCurve,
    check_top_k,
    decide,
    decide_top,
    make_curve,
    make_thresholds,
    match_thresholds,
    read_rule,
)
from onepos.validation import suggest

__all__ = [
    "BOUNDS",
    "ESTIMATORS",
    "RULES",
    "DecisionCurve",
    "FloatArray",
    "PriorEstimate",
    "check_parameters",
    "check_top_k",
    "count_near_ties",
    "decide",
    "decide_top",
    "estimate_priors",
    "make_curve",
    "make_thresholds",
    "match_thresholds",
    "read_rule",
]

ESTIMATORS = ("bbe", "bracket")


def estimate_priors(
    scores: Any,
    observed: Any,
    *,
    estimator: str = "bbe",
    cardinality: float | None = None,
    labelled: Any = None,
    level: float | None = None,
    delta: float | None = None,
    tau: float | None = None,
    bound: str | None = None,
) -> PriorEstimate:
    """Estimate P(label = 1) of every label from scores and one observed positive per row.

    - "bbe" is the paper's estimator, Eq. (2), label by label. It takes any scores.
    - "bracket" takes held-out probabilities of the observed label, `held_out_probabilities(X, y).probability`, and
      estimates one scale for all labels, between two bounds (`onepos.priors.bracket` has the formulas). It is better
      on most data, see docs/priors.md.

    An argument that the chosen estimator does not use is refused.

    **The interval of "bbe".** By the Dvoretzky-Kiefer-Wolfowitz inequality, q̂ and q̂ᵖ are within ε_n and ε_nj of their
    expectations at all thresholds at once, with probability at least 1 − δ. On that event r = q(ẑ)/qᵖ(ẑ) lies in
    [(q̂−ε_n)/(q̂ᵖ+ε_nj), (q̂+ε_n)/(q̂ᵖ−ε_nj)]: the form of Theorem 4.1 with its constants solved exactly instead of
    bounded. Since r = π + (1−π)·qⁿ(ẑ)/qᵖ(ẑ) ≥ π,

    - `upper` ≥ π holds for any scores whatever;
    - `lower` ≤ π needs the rows scored above ẑ to be (almost) all positives, qⁿ(ẑ) ≈ 0. No data without full labels can
      check this; a weak classifier breaks it, and π̂ is then too high.

    Two assumptions: the scores do not depend on these rows (scores of the rows a network was trained on do: the more it
    has memorised, the further π̂ falls towards n_j/n), and S_j is a sample of the rows with label j. A uniform draw of
    one label per row favours rows with few labels, so the second holds only if label j is independent of the number of
    labels. `lower` never falls below n_j/n, which is certain for these rows. The guarantee is per label, not for all
    labels together.

    **bound="beta"** is for labels with few observed positives, for which ε_nj is larger than any q̂ and the bin that
    holds all positives wins. It takes exact bounds for all thresholds at once, Q of q from above and P of qᵖ from below
    (`onepos.priors.best_bin`); ẑ is where Q/P is least, and `upper` is Q/P there. The guarantees are those above, for
    any n_j ≥ 1; docs/theory.md has the proof. Poor scores it can not mend, see docs/priors.md.

    **The interval of "bracket".** A gamma interval from three errors: that of the scale, which grows with the distance
    of the two bounds, that of a label's proportion, and the noise of counting n_j. The first two were measured on real
    data; there is no theorem. If the interval of the scale is wider than a factor of 5, `warning` says what to do.

    Args:
        scores: (n, c) array or tensor on any device, larger means more likely; for "bbe" any increasing transform of a
            column leaves the result as it is.
        observed: (n, c) 0/1 array or tensor, or a vector of n label indices with −1 for none.
        estimator: "bbe" or "bracket".
        cardinality: For "bracket": the mean number of labels per row, where it is known; it replaces the estimate of
            the scale.
        labelled: For "bracket": (l, c) 0/1, all labels of l rows drawn at random, 10 to 200 of them, whether or not
            they are among those of `scores`.
        level: For "bracket": coverage of the intervals, by default 0.9.
        delta: For "bbe": δ, the probability with which an interval may miss, by default 0.01.
        tau: For "bbe" with "dkw": τ, weight of the confidence term in the choice of ẑ, by default 0.01.
        bound: For "bbe": "dkw", the paper's and the default, or "beta".

    Example:
        >>> import numpy as np
        >>> scores = np.array([[0.9], [0.8], [0.7], [0.2], [0.1], [0.0]])
        >>> estimate_priors(scores, np.array([0, 0, -1, -1, -1, -1])).prior   # 2 of the top 2 were observed
        array([0.33333333])
    """
    if estimator not in ESTIMATORS:
        raise ValueError(f"unknown estimator {estimator!r}; {suggest(estimator, ESTIMATORS)}")
    of_bracket = {"cardinality": cardinality, "labelled": labelled, "level": level}
    of_bbe = {"delta": delta, "tau": tau, "bound": bound}
    if estimator == "bracket":
        _refuse_unused(of_bbe, "estimator='bracket'", "estimator='bbe'")
        return bracket_priors(scores, observed, cardinality, labelled, 0.9 if level is None else level)
    _refuse_unused(of_bracket, "estimator='bbe'", "estimator='bracket'")
    if bound == "beta":
        _refuse_unused({"tau": tau}, "bound='beta'", "bound='dkw'")
    given: dict[str, Any] = {name: value for name, value in of_bbe.items() if value is not None}
    return best_bin_priors(scores, observed, **given)


def _refuse_unused(arguments: dict[str, Any], chosen: str, other: str) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(
                f"{name} must be left out with {chosen}, which does not use it; it was given. "
                f"Leave it out or pass {other}."
            )
