"""Class priors from held-out probabilities of the observed label: one scale for all labels, then their proportions.

With γ the one observed label of a row, drawn uniformly from its |y| labels, and s_ij an estimate of P(γ = j | x_i) by
models that were not fitted to row i (`onepos.held_out_probabilities`):

    ρ_j = share of rows with γ = j,   κ = E|y| = Σ_j π_j,   π_j = E[|y|·1(γ = j)]  exactly

A label with few observed positives says little about its own prior, but κ concerns all rows, and π_j ≈ κ·ρ_j. P(γ | x)
does not determine κ: a row with s = (½, ½) has two labels, or one that the features do not determine. So κ is
bracketed. With m_i = max_j s_ij,

    row anchor     1 / mean_i m_i, an upper bound of the harmonic mean of |y|: m_i ≤ E[1/|y|], equal where a label is
                   certain
    lower          T = mean_i Σ_j (s_ij/m_i)³, the number of labels nearly as likely as the likeliest: |y| where all
                   labels are certain, too few where they are not and |y| is large
    upper          1 / Σ_j ρ_j·(ρ_j/π̂_j) with π̂_j of Eq. (2) on s, but at least lower; too large where no row is certain
                   of label j. This mean over labels is hardly moved by single π̂_j that are far too large
    κ̂              upper^0.6 · lower^0.4
    reach          1 + λ, where λ/(1 − e^−λ) is the row anchor: κ if each row has a certain label and 1 + Poisson(λ)
                   labels, for the anchor is then their harmonic mean. No interval of κ ends below it

Rows with many labels are under-represented among the observed positives of a label, since each of their labels is drawn
with chance 1/|y|. Counting row i for (1/m_i) / mean(1/m) instead of 1 corrects the proportions.

The exponents and the widths below are measured, not derived: chosen on thirteen data sets, see docs/priors.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from onepos.priors.best_bin import best_bin_priors, find_positives, read_scores
from onepos.priors.estimate import FloatArray, IntArray, PriorEstimate
from onepos.validation import check_indicator

# Exponent of the upper end of the bracket in κ̂; the lower end has the rest.
_UPPER_SHARE = 0.6

# Relative standard deviation of κ̂: a constant part and a share of the logarithmic distance from the lowest to the
# highest of lower, upper and row anchor.
_SCALE_ERROR, _SHARE_OF_BRACKET = 0.12, 0.28

# Relative standard deviation of a label's share in Σπ beyond the noise of counting.
_PROPORTION_ERROR = 0.25

# Rows of average weight that are added to each label's own rows.
_PSEUDO_ROWS = 5.0

# Observed positives that a label nobody observed is given.
_UNSEEN = 0.5

# The warning comes where the ends of the interval of κ differ by more than this factor.
_WIDE = 5.0


@dataclass(frozen=True)
class _Scale:
    """κ̂, its relative standard deviation, and the value its interval must reach."""

    value: float
    error: float
    reach: float = 1.0


@dataclass(frozen=True)
class _Rows:
    """The rows with an observed label. A row with r observed labels counts 1/r for each.

    Attributes:
        probability: s, (n, c).
        n_positive: n_j, (c,).
        frequency: ρ_j, (c,).
        proportion: The same with row i counted for (1/m_i) / mean(1/m), (c,).
        row_anchor: 1 / mean m.
        best_bin: π̂ of Eq. (2) on s, (c,).
    """

    probability: npt.NDArray[Any]
    n_positive: IntArray
    frequency: FloatArray
    proportion: FloatArray
    row_anchor: float
    best_bin: FloatArray


def bracket_priors(scores: Any, observed: Any, cardinality: float | None, labelled: Any, level: float) -> PriorEstimate:
    """Estimate priors by the bracket; `estimate_priors` describes the arguments."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level}. Use 0.9 for 90 % intervals.")
    rows = _read_rows(scores, observed)
    known = rows.n_positive > 0
    complete = None if labelled is None else _read_labelled(labelled, len(known))
    scale = _find_scale(rows)
    if complete is not None:
        scale = _combine_with_rows(scale, complete)
    if cardinality is not None:
        scale = _Scale(_check_cardinality(cardinality, rows.n_positive), 0.0)

    most = max(1, int(known.sum()))
    scale = _Scale(float(np.clip(scale.value, 1, most)), scale.error, min(scale.reach, most))
    prior = _share_out(rows.proportion, scale.value, rows.frequency)
    error = _PROPORTION_ERROR if complete is None else _proportion_error(scale.value)
    n_proportion = np.where(known, 1 / (error**2 + 1 / np.maximum(rows.n_positive, 1)), np.nan)
    if complete is not None:
        prior, n_proportion = _combine_with_counts(prior, n_proportion, complete, scale.value / len(rows.probability))
        prior = _share_out(prior, scale.value, rows.frequency)
    return _assemble(prior, 1 / (scale.error**2 + 1 / n_proportion), rows, scale, level)


def _assemble(prior: FloatArray, n_effective: FloatArray, rows: _Rows, scale: _Scale, level: float) -> PriorEstimate:
    known = ~np.isnan(n_effective)
    total = float(prior.sum())
    prior = np.where(known, prior, np.nan)
    low, high = (max(1.0, float(end)) for end in _interval(scale.value, scale.error**2, level))
    stretch = max(1.0, scale.reach / high)
    high *= stretch
    lower, upper = _interval(prior, 1 / n_effective, level)
    lower, upper = np.maximum(lower, rows.frequency), np.minimum(stretch * upper, 1)
    return PriorEstimate(
        prior=prior,
        lower=lower,
        upper=upper,
        n_positive=rows.n_positive,
        reliable=known & (lower >= prior / 2) & ((upper <= 2 * prior) | (upper == 1)),
        n_effective=n_effective,
        threshold=np.full(len(prior), np.nan),
        cardinality=total,
        cardinality_interval=(low, high),
        warning=_warn(low, high),
    )


def _warn(low: float, high: float) -> str:
    if high <= _WIDE * low:
        return ""
    return (
        "one observed label per row does not settle how many labels a row has: their mean number may lie anywhere from "
        f"{low:.2g} to {high:.2g}, and all class priors scale with it. If you know the mean, even roughly, pass it as "
        "cardinality: in Python to estimate_priors, CRISPPlus or CRISP, on the command line onepos priors "
        "--cardinality or onepos fit --set cardinality=…. If not, count the labels of about 50 rows drawn at random."
    )


def _read_rows(scores: Any, observed: Any) -> _Rows:
    values = read_scores(scores)
    probability = values if isinstance(values, np.ndarray) else values.cpu().numpy()
    _check_probability(probability)
    row, label = find_positives(observed, probability.shape)
    n_observed = np.bincount(row, minlength=len(probability))
    if len(row) == 0:
        raise ValueError(
            "observed must hold at least one positive label; it holds none. Pass rows with an observed label."
        )
    share, n_rows = 1 / n_observed[row], int((n_observed > 0).sum())
    c = probability.shape[1]
    peak = probability.max(1).astype(np.float64)
    count = np.bincount(label, share, minlength=c).astype(np.float64)
    size = 1 / peak / (1 / peak[n_observed > 0]).mean()
    weight = (np.bincount(label, share * size[row], minlength=c) + _PSEUDO_ROWS) / (count + _PSEUDO_ROWS)
    return _Rows(
        probability,
        np.bincount(label, minlength=c).astype(np.int64),
        count / n_rows,
        weight * _shrink(count) / n_rows,
        1 / float(peak.mean()),
        best_bin_priors(probability, observed).prior,
    )


def _shrink(count: FloatArray) -> FloatArray:
    """Counts drawn to their mean as far as their spread is the noise of counting: posterior means, gamma and Poisson.

    With two positives per label the noise is as large as the count; with hundreds this changes nothing. Labels nobody
    observed get a part of Σπ too, at most _UNSEEN positives each.
    """
    mean, spread = float(count.mean()), float(count.var())
    noise = min(1.0, mean / spread) if spread > 0 else 1.0
    shrunk = (1 - noise) * count + noise * mean
    return np.where(count > 0, shrunk, np.minimum(shrunk, _UNSEEN))


def _check_probability(probability: npt.NDArray[Any]) -> None:
    total = probability.sum(1, dtype=np.float64)
    wrong = np.flatnonzero((np.abs(total - 1) > 1e-3) | (probability.min(1) < 0))
    if len(wrong):
        row = wrong[0]
        raise ValueError(
            "estimator 'bracket' needs probabilities of the observed label, in rows that sum to 1; "
            f"row {row} sums to {total[row]:.4g} and its smallest entry is {probability[row].min():.4g}. "
            "Pass held_out_probabilities(X, y).probability."
        )


def _check_cardinality(cardinality: float, n_positive: IntArray) -> float:
    most = int((n_positive > 0).sum())
    if not 1 <= cardinality <= most:
        raise ValueError(
            f"cardinality must lie between 1 and the number of observed labels, {most}; got {cardinality}. "
            "Pass the mean number of labels of the rows that have any."
        )
    return float(cardinality)


def _find_scale(rows: _Rows) -> _Scale:
    known = rows.n_positive > 0
    lower = count_near_ties(rows.probability)
    # Rows with a single label abound among the most certain rows of a label, so Eq. (2) may be too low.
    upper = max(lower, 1 / float((rows.frequency[known] ** 2 / rows.best_bin[known]).sum()))
    error = _SCALE_ERROR + _SHARE_OF_BRACKET * math.log(max(upper, rows.row_anchor) / lower)
    value = upper**_UPPER_SHARE * lower ** (1 - _UPPER_SHARE)
    return _Scale(value, error, _arithmetic_mean(rows.row_anchor))


def _arithmetic_mean(harmonic_mean: float) -> float:
    """Of 1 + Poisson(λ), from its harmonic mean λ/(1 − e^−λ): 1 + λ, by Newton's steps, which fall to it from above."""
    rate = harmonic_mean
    for _ in range(60):
        rate -= (rate + harmonic_mean * math.expm1(-rate)) / (1 - harmonic_mean * math.exp(-rate))
        if rate < 1e-9:
            return 1.0
    return 1 + rate


def count_near_ties(probability: npt.NDArray[Any]) -> float:
    """T, the mean over rows of Σ_j (s_ij/m_i)³: how many labels are nearly as likely as the likeliest."""
    total = 0.0
    for block in np.array_split(probability, max(1, probability.size >> 22)):
        total += float(((block / block.max(1, keepdims=True)) ** 3).sum(dtype=np.float64))
    return total / len(probability)


def _share_out(proportion: FloatArray, total: float, floor: FloatArray) -> FloatArray:
    """π in these proportions with Σπ = total, each at least ρ_j, which is certain for these rows, and at most 1."""
    low, high = 0.0, 1.0
    while np.clip(high * proportion, floor, 1).sum() < total and high < 1e12:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(middle * proportion, floor, 1).sum() < total else (low, middle)
    return np.clip(high * proportion, floor, 1)


def _read_labelled(labelled: Any, c: int) -> npt.NDArray[np.uint8]:
    complete = check_indicator(labelled, "labelled")
    if len(complete) < 2 or complete.shape[1] != c:
        raise ValueError(
            f"labelled must hold at least 2 rows with {c} labels, all of them known; got shape {complete.shape}. "
            "Pass 10 to 200 rows drawn at random."
        )
    return complete


def _combine_with_rows(scale: _Scale, complete: npt.NDArray[np.uint8]) -> _Scale:
    """κ̂ and the mean of the fully labelled rows, each weighted by its precision."""
    size = complete.sum(1, dtype=np.float64)
    mean = max(float(size.mean()), 1.0)
    # A few rows may agree by chance, so their variance is not taken for 0.
    weight_rows = len(size) * mean**2 / max(float(size.var(ddof=1)), 0.05 * mean)
    weight = scale.error**-2
    value = (weight + weight_rows) / (weight / scale.value + weight_rows / mean)
    return _Scale(value, (weight + weight_rows) ** -0.5)


def _proportion_error(cardinality: float) -> float:
    """Relative standard deviation of a label's share in Σπ; smaller below κ = 2.

    The shares of labels differ from those of observed labels since rows differ in |y|. For 1 + Poisson they differ by
    √(κ − 1)/κ of κ, which falls to 0 at κ = 1, where each row has its observed label only.
    """
    return _PROPORTION_ERROR * (2 * math.sqrt(cardinality - 1) / cardinality if cardinality < 2 else 1.0)


def _combine_with_counts(
    prior: FloatArray, n_proportion: FloatArray, complete: npt.NDArray[np.uint8], one_positive: float
) -> tuple[FloatArray, FloatArray]:
    """Means of Gamma(n, n/π̂) distributions after k of l rows had the label: (n + k) / (n/π̂ + l).

    They give the proportions of the labels; the scale is κ̂, in which the rows were counted before. A label nobody
    observed starts from half an observed positive, and stays unknown if none of the rows has it.
    """
    found = complete.sum(0, dtype=np.float64)
    known = ~np.isnan(n_proportion)
    strength = np.where(known, n_proportion, _UNSEEN)
    start = np.where(known, prior, _UNSEEN * one_positive)
    updated = (strength + found) / (strength / start + len(complete))
    return np.minimum(updated, 1), np.where(known | (found > 0), strength + found, np.nan)


def _interval(estimate: Any, variance: Any, level: float) -> tuple[Any, Any]:
    """Errors are factors, so the interval is symmetric on a logarithmic scale."""
    factor = np.exp(NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(variance))
    return estimate / factor, estimate * factor
