"""Formulas shared by two or more methods: tensors in, a number out."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def assume_negative(logits: Tensor, observed: Tensor) -> Tensor:
    """Binary cross-entropy with every unobserved label taken for negative, mean over all B·c entries.

    Deviation: the published code adds ε = 1e-5 inside the logarithm of the probability; the form on logits
    used here needs none.
    """
    return F.binary_cross_entropy_with_logits(logits, observed)


def assume_negative_per_label(logits: Tensor, observed: Tensor) -> Tensor:
    """The same loss of each label by itself, mean over the batch: (c,)."""
    return F.binary_cross_entropy_with_logits(logits, observed, reduction="none").mean(0)
