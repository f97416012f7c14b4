"""How likely are the labels that are seen: of the draw itself, of each entry by itself, and of the class priors.

With f = σ(g) the model's probability that a label is there, all for g of any size and in at least float32:

    the draw      P(γ = j | x, |y| ≥ 1) = f_j · E[1/(1 + S_j)] / (1 − Π_k (1 − f_k)),   S_j = Σ_{k≠j} y_k
    an entry      P(l_j = 1 | x) = e_j·f_j,   e_j the propensity: the share of its positives that are seen
    the priors    P(y_j = 1) = π_j against the mean of f_j

What each of them needs and can find is in docs/theory.md.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from onepos.methods.losses import binary_cross_entropy

# Two numbers settle within a few steps, and from one epoch to the next they hardly move.
_SCORING_STEPS, _SETTLED = 8, 1e-3
_DAMPING, _TINY = 1e-4, 1e-8

# A slope beyond these says that one of the two, logits or target, knows nothing of the other.
_FLATTEST, _STEEPEST = 0.5, 2.0


def single_positive_likelihood(logits: Tensor, observed: Tensor, *, nodes: int = 8, max_observed: int = 1) -> Tensor:
    """−log P(the labels a row shows | how many it shows), labels independent given x; one number per row, (B,).

    **What is assumed.** A row that shows m labels has at least m, and any m of its positives were as likely to be shown
    as any other m; that it shows m and not another number says nothing else. For a set O of m labels

        P(O | m) = Π_{j∈O} f_j · E[1/C(m+S, m)] / P(|y| ≥ m),   S = Σ_{k∉O} y_k,

    which sums to 1 over all sets of m labels; m = 1 is the single positive. A row that shows nothing costs 0: it may be
    empty or merely unlabelled, and a loss that took it for empty would again assume negatives.

    **How it is computed.** 1/C(m+s, m) = m ∫₀¹ uᵐ⁻¹ (1−u)ˢ du turns the mean over 2ᶜ label sets into an integral of a
    polynomial of degree c − 1, m ∫₀¹ uᵐ⁻¹ Π_{k∉O}(1 − f_k·u) du, and n Gauss-Legendre nodes are exact up to degree
    2n − 1. The integrand is at most uᵐ⁻¹·exp(−Λu), Λ = Σ_{k∉O} f_k, so the nodes are laid on [0, min(1, K/Λ)] with
    K = 1.5n + 2(m−1). The result is exact for c ≤ 2n as long as Λ ≤ K. Beyond, the largest relative error of P that a
    search over thousands of rows found (c and Λ up to 1000) is for n = 4, 6, 8, 12, 16

        m = 1   3e-3  1e-4  6e-6  1e-8  3e-11          m = 3   9e-2  4e-3  2e-4  2e-7  3e-10
        m = 2   1e-2  3e-4  9e-6  3e-8  9e-11          m = 5   1e-1  3e-2  5e-3  2e-5  4e-8

    Time and memory are O(B·c·n), with max_observed > 1 also O(B·c·max_observed).

    Args:
        logits: (B, c).
        observed: (B, c) of 0 and 1.
        nodes: n.
        max_observed: The most labels a row shows. A row that shows more is only taken to have at least this many,
            which is an upper bound of its cost.
    """
    logits = _widen(logits)
    observed = observed.to(logits.dtype)
    n_observed = observed.sum(1)
    log_yes, others = F.logsigmoid(logits), torch.sigmoid(logits) * (1 - observed)
    log_numerator = (observed * log_yes).sum(1) + _log_chance(others, n_observed.clamp(min=1), nodes)
    log_at_least = _log_at_least(log_yes, F.logsigmoid(-logits), min(max_observed, logits.shape[1]))
    which = n_observed.clamp(1, log_at_least.shape[1]).long() - 1
    return (log_at_least.gather(1, which[:, None])[:, 0] - log_numerator) * (n_observed > 0)


def propensity_likelihood(logits: Tensor, observed: Tensor, propensity: Tensor) -> Tensor:
    """−l·log σ(g) − (1 − l)·log(1 − e·σ(g)) of every entry, (B, c); e = 1 is binary cross-entropy bit for bit.

    1 − e·σ(g) is never formed: its logarithm is softplus(g + log(1−e)) − softplus(g), for any g and e right to the
    rounding of g.

    Args:
        logits: (B, c).
        observed: (B, c) in [0, 1]; what lies between is a soft target.
        propensity: e in [0, 1], of each label (c,) or each entry (B, c).
    """
    logits = _widen(logits)
    observed = observed.to(logits.dtype)
    unseen_positive = F.softplus(logits + torch.log1p(-propensity.to(logits.dtype)))
    return torch.addcmul(binary_cross_entropy(logits, observed), 1 - observed, unseen_positive, value=-1)


@torch.no_grad()
def fit_scale(
    logits: Tensor, target: Tensor, propensity: Tensor, slope: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """β, between ½ and 2, and δ that make the propensity likelihood of β·g + δ least: Platt's scaling of chances.

    By Fisher's scoring in log β and δ: with q = e·σ(β·g + δ), the slope of an entry's likelihood is (l − q)·u and its
    expected curvature q·(1 − σ)·u, u = (1 − σ)/(1 − q).

    Args:
        logits: g, (B, c).
        target: l, (B, c) in [0, 1].
        propensity: e in [0, 1], (c,).
        slope: β to start from, ().
        shift: δ to start from, ().
    """
    logits, unseen = _widen(logits), torch.log1p(-propensity)
    for _ in range(_SCORING_STEPS):
        scaled = slope * logits
        moved = scaled + shift
        score = torch.sigmoid(moved)
        chance, weight = propensity * score, torch.sigmoid(-moved - unseen)
        gradient = (target - chance) * weight
        curvature = chance * (1 - score) * weight
        first, second = (gradient * scaled).mean(), gradient.mean()
        aa, ab, bb = (curvature * scaled * scaled).mean(), (curvature * scaled).mean(), curvature.mean()
        aa, bb = aa * (1 + _DAMPING) + _TINY, bb * (1 + _DAMPING) + _TINY  # logits that are all alike have no slope
        steeper = slope * ((bb * first - ab * second) / (aa * bb - ab * ab)).clamp(-1, 1).exp()
        steeper = steeper.clamp(_FLATTEST, _STEEPEST)
        turn = (steeper / slope).log()
        step = ((second - ab * turn) / bb).clamp(-1, 1)  # best for the slope as it now is
        slope, shift = steeper, shift + step
        if torch.maximum(turn.abs(), step.abs()) < _SETTLED:
            break
    return slope, shift


def prior_alignment(logits: Tensor, prior: Tensor) -> Tensor:
    """−π·log m − (1 − π)·log(1 − m) of each label, m the mean of its scores over the batch; (c,).

    It is least at m = π, where it is the entropy of π. Its mean over random batches is above its value for all rows,
    the more so the smaller the batch and the more the scores of a label differ: in a batch of one row it is binary
    cross-entropy with the target π, which asks for the same score everywhere.

    Args:
        logits: (B, c).
        prior: π, (c,) in [0, 1]; a label without a prior must be left out by the caller.
    """
    logits = _widen(logits)
    log_rows = float(np.log(logits.shape[0]))
    log_mean, log_rest = F.logsigmoid(logits).logsumexp(0) - log_rows, F.logsigmoid(-logits).logsumexp(0) - log_rows
    return -prior * log_mean - (1 - prior) * log_rest


def _widen(logits: Tensor) -> Tensor:
    """At least float32: half precision would lose the sums over labels."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _log_chance(others: Tensor, n_observed: Tensor, n_nodes: int) -> Tensor:
    """log E[1/C(m+S, m)], S the number of positives among labels with the probabilities `others` (B, c); (B,)."""
    nodes, log_weights = others.new_tensor(_gauss_legendre(n_nodes)).unbind()
    # Where the nodes lie changes the error only, so the gradient is the integral of the integrand's gradient.
    expected = others.detach().sum(1)
    end = (1.5 * n_nodes + 2 * (n_observed - 1)) / expected.clamp(min=1)
    end = end.clamp(max=1)[:, None]
    at = end * nodes  # u, (B, n)
    log_product = torch.log1p(-others[:, None, :] * at[:, :, None]).sum(2)  # (B, n, c) → (B, n)
    log_integrand = log_product + (n_observed[:, None] - 1) * at.log()
    return n_observed.log() + (log_integrand + log_weights + end.log()).logsumexp(1)


@cache
def _gauss_legendre(n: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Nodes and logarithms of the weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return tuple((nodes + 1) / 2), tuple(np.log(weights / 2))


def _log_at_least(log_yes: Tensor, log_no: Tensor, most: int) -> Tensor:
    """log P(|y| ≥ m) for m = 1 … most, (B, most), of independent labels with log f and log(1 − f), (B, c).

    Sums over the label that is the m-th positive when the labels are gone through in order: all terms are positive, so
    nothing cancels where the probability is as small as the scores.
    """
    log_none = log_no.cumsum(1)  # of the labels up to and with this one
    log_before = F.pad(log_none[:, :-1], (1, 0))  # exactly m − 1 positives among the labels before this one
    log_mth = log_before + log_yes
    log_at_least = [log_mth.logsumexp(1)]
    for m in range(2, most + 1):
        since = log_none[:, m - 2 : -1]
        log_before = since + (log_mth[:, :-1] - since).logcumsumexp(1)
        log_mth = log_before + log_yes[:, m - 1 :]
        log_at_least.append(log_mth.logsumexp(1))
    return torch.stack(log_at_least, 1)
