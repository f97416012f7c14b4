"""How good a model is, measured on rows of which one positive label is known: selection without full labels.

`observed` is the (n, c) 0/1 array of the known positives: γ_i is the one of row i, drawn uniformly from its labels.
`logits` are the model's g, p = σ(g) its scores. `prior` holds the class priors π (c,), NaN where unknown, or is None;
few criteria use it, and each documents what it does without. Where priors are estimated, give the same ones to every
model under comparison: with each its own, each would be judged by another measure.

Of a row with several known positives each counts as if it had been drawn, and the row weighs one all the same (in the
two risks each counts in full). A row without any is left out where only its γ would count; elsewhere it is unlabelled
like all others. When nothing is left to average, the answer is NaN. docs/selection.md derives the criteria and compares
the models they choose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onepos.metrics import METRICS
from onepos.validation import Indicator, check_finite, check_indicator

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

# Numbers worked on at once: they stay in the processor's cache through all nodes of the quadrature.
_BLOCK = 1 << 15

# Gauss-Legendre on [−1, 1]; exact for polynomials of degree 47, and to 13 digits for exp(−_REACH·u), u in [0, 1].
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_REACH = 36.0

# Below this logit σ(g) is exp(g) in double precision.
_RARE = -40.0


def likelihood(observed: Any, logits: ArrayLike, prior: ArrayLike | None = None) -> float:
    """Mean log-likelihood of γ, given that the labels of x are independent and one of them is drawn uniformly.

        P(γ = j | x) = p_j · E[1/(1 + S_j)] / (1 − Π_k (1 − p_k)),    S_j = Σ_{k≠j} y_k

    It tells the ratios of a row's scores better than their level: where all are low, it is that of a softmax over the
    logits. It does not look at `prior`; `aligned_likelihood` does.

    Examples:
        >>> round(likelihood([[1, 0]], [[0.0, 0.0]]), 6)  # two labels, equally likely: −log 2
        -0.693147
    """
    values, rows, labels = _known(observed, logits)
    return _mean_over_rows(log_probability(values, rows, labels), rows)


def aligned_likelihood(observed: Any, logits: ArrayLike, prior: ArrayLike | None = None) -> float:
    """`likelihood` less Σ_j KL(π_j ‖ mean of p_j): how far the mean score of each label is from its prior.

    The second term tells the level, which the first leaves open. A label whose prior is unknown adds nothing to it;
    without any prior this is `likelihood`.
    """
    observed, values = _check(observed, logits)
    share = _check_prior(prior, values.shape[1])
    known = ~np.isnan(share)
    if len(values) == 0 or not known.any():
        return likelihood(observed, values)
    share, values_known = share[known], values[:, known]
    divergence = _entropy_term(share, _sigmoid(values_known)) + _entropy_term(1 - share, _sigmoid(-values_known))
    return likelihood(observed, values) - divergence


def recall_at(observed: Any, logits: ArrayLike, prior: ArrayLike | None = None, *, k: int) -> float:
    """Share of rows whose γ is among the k highest scores; of tied ones, the mean over their orders.

    In expectation over the draw it is the share of all of a row's labels that are among the k highest.

    Examples:
        >>> recall_at([[1, 0, 0], [0, 1, 0]], [[3.0, 2.0, 1.0], [3.0, 2.0, 2.0]], k=2)  # 1 and, tied, 1/2
        0.75
    """
    values, rows, labels = _known(observed, logits)
    n_above, n_tied = _places(values, rows, labels)
    return _mean_over_rows(np.clip((k - n_above) / n_tied, 0, 1), rows)


def pu_risk(observed: Any, logits: ArrayLike, prior: ArrayLike | None = None) -> float:
    """The non-negative risk of learning from positives and unlabelled rows, logistic loss, summed over labels.

        Σ_j  π_j·R⁺_j(+) + max(0, R_j(−) − π_j·R⁺_j(−))

    R⁺_j is the mean over the rows with γ = j, R_j over all rows, of softplus(−g) for (+) and softplus(g) for (−). A
    prior that is unknown or lower than the observed share is replaced by that share, the least it can be; without any
    prior this is `assume_negative`, and so is the term of a label that is never observed.

    References:
        Kiryo et al., Positive-Unlabeled Learning with Non-Negative Risk Estimator, NeurIPS 2017, Eq. (6).
    """
    observed, values = _check(observed, logits)
    if len(values) == 0:
        return float("nan")
    n_positive = observed.sum(axis=0, dtype=np.int64)
    share = np.fmax(_check_prior(prior, values.shape[1]), n_positive / len(values))
    negative = np.logaddexp(0, values)
    per_positive = np.divide(share, n_positive, out=np.zeros_like(share), where=n_positive > 0)
    as_negative = per_positive * (negative * observed).sum(axis=0)
    as_positive = as_negative - per_positive * (values * observed).sum(axis=0)  # softplus(−g) = softplus(g) − g
    return float((as_positive + np.maximum(0, negative.mean(axis=0) - as_negative)).sum())


def assume_negative(observed: Any, logits: ArrayLike, prior: ArrayLike | None = None) -> float:
    """Binary cross-entropy with every label but γ taken for absent, summed over labels, mean over rows: the floor.

    It measures P(γ = j | x) in place of P(y_j = 1 | x), and so favours scores that are too low. It does not
    look at `prior`.
    """
    observed, values = _check(observed, logits)
    return float((np.logaddexp(0, values) - values * observed).sum() / len(values)) if len(values) else float("nan")


def pooled_precision(observed: Any, logits: ArrayLike, prior: ArrayLike | None = None) -> float:
    """Σ_k r_k·R_k/k: average precision, up to a factor, with the precision at rank k pooled over the rows.

    r_k is the share of rows whose γ has rank k, and R_k = r_1 + … + r_k is `recall_at` k. Average precision is, over
    the draw, the mean of the precision at the rank of γ. That precision is not known row by row, but on average over
    rows: m·R_k/k at rank k, if rows have m labels each. The factor m is the same for all models and left out, so no
    prior is needed. Tied labels share their ranks.

    Examples:
        >>> pooled_precision([[1, 0, 0], [0, 1, 0]], [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])  # (1/2 · 1/2)/1 + (1/2 · 1)/2
        0.5
    """
    values, rows, labels = _known(observed, logits)
    if len(rows) == 0:
        return float("nan")
    n_above, n_tied = _places(values, rows, labels)
    weight = 1 / (n_tied * np.bincount(rows)[rows] * len(np.unique(rows)))
    size = values.shape[1] + 1
    begins, ends = np.bincount(n_above, weight, size), np.bincount(n_above + n_tied, weight, size)
    share = np.cumsum(begins - ends)[:-1]
    return float((share * np.cumsum(share) / np.arange(1, size)).sum())


def micro_auc(observed: Any, logits: ArrayLike, prior: ArrayLike | None = None) -> float:
    """How often γ scores higher than another label of the same or any other row; a tie is half a success.

    It compares both labels within a row and rows within a label, and no increasing transform of the logits changes it.
    Hidden positives among the others make it too low by an amount that is nearly the same for all models. It does not
    look at `prior`.

    Examples:
        >>> micro_auc([[1, 0], [0, 1]], [[3.0, 1.0], [2.0, 1.0]])  # 3 is above 1 and 2; 1 is below 2 and ties with 1
        0.625
    """
    observed, values = _check(observed, logits)
    rows, labels = np.nonzero(observed)
    others = np.sort(values[observed == 0])
    if len(others) == 0:
        return float("nan")
    own = values[rows, labels]
    n_below = (np.searchsorted(others, own, "left") + np.searchsorted(others, own, "right")) / 2
    return _mean_over_rows(n_below / len(others), rows)


class Criterion(NamedTuple):
    """One row of the table of criteria."""

    function: Callable[[Any, Any, Any], float]  # takes observed, logits and prior
    greater_is_better: bool  # which way is up
    description: str


def _as_if_known(metric: str, description: str) -> Criterion:
    """A metric of METRICS, as if the known labels were all there are. It does not look at `prior`.

    Average precision is then the mean of 1/rank of γ. Ranking loss is the share of the other labels ranked above γ: in
    expectation over the draw, up to a constant, the number of wrong pairs per label of the row, all labels known.
    """
    found = METRICS[metric]
    return Criterion(lambda o, logits, _: found.function(*_check(o, logits)), found.greater_is_better, description)


CRITERIA: dict[str, Criterion] = {
    "pooled_precision": Criterion(pooled_precision, True, "average precision from the ranks of the known labels"),
    "micro_auc": Criterion(micro_auc, True, "how often a known label scores higher than another, of any row"),
    "likelihood": Criterion(likelihood, True, "log-likelihood of the known label"),
    "aligned_likelihood": Criterion(aligned_likelihood, True, "the same, with mean scores held to the class priors"),
    "pu_risk": Criterion(pu_risk, False, "non-negative positive-unlabelled risk with the class priors"),
    "assume_negative": Criterion(assume_negative, False, "cross-entropy with all other labels taken for absent"),
    "average_precision": _as_if_known("average_precision", "mean reciprocal rank of the known label"),
    "ranking_loss": _as_if_known("ranking_loss", "share of labels ranked above the known one"),
    "map": _as_if_known("map", "mAP with all other labels taken for absent"),
    "recall_at_1": Criterion(partial(recall_at, k=1), True, "share of known labels with the highest score"),
    "recall_at_3": Criterion(partial(recall_at, k=3), True, "share of known labels among the 3 highest"),
    "recall_at_5": Criterion(partial(recall_at, k=5), True, "share of known labels among the 5 highest"),
}


def log_probability(logits: Floats, rows: Indices, labels: Indices) -> Floats:
    """log P(γ = labels[i] | x of rows[i]) for every i, as at `likelihood`; rows in ascending order.

    E[1/(1 + S_j)] = ∫₀¹ Π_{k≠j} (1 − p_k·s) ds. The integrand is at most exp(−s·Σ_{k≠j} p_k), so the integral ends at
    s = _REACH/Σp where that is below 1; it is then smooth enough for the same few nodes with any number of labels.
    Products are safe there: they come near the smallest float only where they no longer count.
    """
    expected = np.empty(len(rows))
    log_any = np.empty(len(rows))
    for block, mine in _blocks(logits, rows):
        p = _sigmoid(logits[block])
        reach = np.minimum(1, _REACH / np.maximum(p.sum(axis=1), 1))
        row = rows[mine] - block.start
        own = p[row, labels[mine]]
        total = np.zeros(len(row))
        for node, weight in zip((1 + _NODES) / 2, _WEIGHTS / 2, strict=True):
            s = reach * node
            total += weight * np.prod(1 - p * s[:, None], axis=1)[row] / (1 - own * s[row])
        expected[mine] = total * reach[row]
        log_any[mine] = _log_any(logits[block])[row]
    return np.log(expected) - np.logaddexp(0, -logits[rows, labels]) - log_any


def _log_any(logits: Floats) -> Floats:
    """log(1 − Π_k (1 − p_k)): of each row, the chance that it has a label at all."""
    top = logits.max(axis=1)
    rare = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    none = np.logaddexp(0, logits).sum(axis=1)
    log_any: Floats = np.where(top < _RARE, rare, np.log(-np.expm1(-np.maximum(none, np.exp(_RARE)))))
    return log_any


def _places(logits: Floats, rows: Indices, labels: Indices) -> tuple[Indices, Indices]:
    """How many labels of its row score higher than each of the given ones, and how many as high, itself included."""
    n_above, n_tied = np.empty(len(rows), np.intp), np.empty(len(rows), np.intp)
    for _, mine in _blocks(logits, rows):
        others, own = logits[rows[mine]], logits[rows[mine], labels[mine], None]
        n_above[mine], n_tied[mine] = (others > own).sum(axis=1), (others == own).sum(axis=1)
    return n_above, n_tied


def _blocks(logits: Floats, rows: Indices) -> list[tuple[slice, slice]]:
    """Blocks of rows, and with each the positions in the ascending `rows` that fall into it."""
    step = max(1, _BLOCK // max(1, logits.shape[1]))
    starts = np.arange(0, len(logits) + step, step)
    ends = np.searchsorted(rows, starts)
    return [
        (slice(starts[k], starts[k + 1]), slice(ends[k], ends[k + 1]))
        for k in range(len(starts) - 1)
        if ends[k] < ends[k + 1]
    ]


def _entropy_term(share: Floats, scores: Floats) -> float:
    """Σ_j share_j · log(share_j / mean of scores_j), where 0 · log 0 = 0."""
    tiny = np.finfo(np.float64).tiny
    return float((share * np.log(np.maximum(share, tiny) / np.maximum(scores.mean(axis=0), tiny))).sum())


def _sigmoid(logits: Floats) -> Floats:
    return np.exp(-np.logaddexp(0, -logits))


def _mean_over_rows(values: Floats, rows: Indices) -> float:
    """The mean over the rows that occur, of the mean of the values of each."""
    if len(rows) == 0:
        return float("nan")
    count = np.bincount(rows)
    total = np.bincount(rows, values)
    return float((total[count > 0] / count[count > 0]).mean())


def _known(observed: Any, logits: ArrayLike) -> tuple[Floats, Indices, Indices]:
    """The logits, and row and label of each known positive."""
    observed, values = _check(observed, logits)
    rows, labels = np.nonzero(observed)
    return values, rows, labels


def _check(observed: Any, logits: ArrayLike) -> tuple[Indicator, Floats]:
    observed, values = check_indicator(observed, "observed"), np.asarray(logits, np.float64)
    if observed.shape != values.shape:
        raise ValueError(
            f"observed and logits must have one shape (n, c); theirs are {observed.shape} and {values.shape}. "
            "Give the same rows and labels to both."
        )
    check_finite(values, "logits", "Look for a training run that diverged.")
    return observed, values


def _check_prior(prior: ArrayLike | None, n_labels: int) -> Floats:
    """The priors as an array, NaN where unknown."""
    share = np.full(n_labels, np.nan) if prior is None else np.asarray(prior, np.float64)
    if share.shape != (n_labels,):
        raise ValueError(
            f"prior must hold one number for each of the {n_labels} labels; its shape is {share.shape}. "
            "Put NaN where a prior is unknown."
        )
    wrong = np.flatnonzero((share < 0) | (share > 1))
    if len(wrong):
        raise ValueError(
            f"prior must lie between 0 and 1; that of label {wrong[0]} is {share[wrong[0]]}. "
            "Put NaN where it is unknown."
        )
    return share
