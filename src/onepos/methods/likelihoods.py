"""The likelihood of an observed entry given its propensity, and the scale of logits that makes it greatest.

With f = σ(g) the model's probability of a label, P(l_j = 1 | x) = e_j·f_j, where the propensity e_j is the share of the
positives of label j that are observed. Both work for g of any size, in at least float32; see docs/theory.md.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from onepos.methods.losses import binary_cross_entropy

# Two numbers converge within a few steps, and from one epoch to the next they hardly move.
_SCORING_STEPS, _CONVERGED = 8, 1e-3
_DAMPING, _TINY = 1e-4, 1e-8

# A slope outside these bounds means that logits and target have nothing to do with each other.
_FLATTEST, _STEEPEST = 0.5, 2.0


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
    unobserved_positive = F.softplus(logits + torch.log1p(-propensity.to(logits.dtype)))
    return torch.addcmul(binary_cross_entropy(logits, observed), 1 - observed, unobserved_positive, value=-1)


@torch.no_grad()
def fit_scale(
    logits: Tensor, target: Tensor, propensity: Tensor, slope: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor]:
    """β, between ½ and 2, and δ that make the propensity likelihood of β·g + δ least: Platt's scaling.

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
        aa, bb = aa * (1 + _DAMPING) + _TINY, bb * (1 + _DAMPING) + _TINY  # equal logits have no slope
        steeper = slope * ((bb * first - ab * second) / (aa * bb - ab * ab)).clamp(-1, 1).exp()
        steeper = steeper.clamp(_FLATTEST, _STEEPEST)
        turn = (steeper / slope).log()
        step = ((second - ab * turn) / bb).clamp(-1, 1)  # best for the new slope
        slope, shift = steeper, shift + step
        if torch.maximum(turn.abs(), step.abs()) < _CONVERGED:
            break
    return slope, shift


def _widen(logits: Tensor) -> Tensor:
    """At least float32: half precision would lose the sums over labels."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
