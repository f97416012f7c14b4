"""Formulas shared by two or more methods: tensors in, a number out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def binary_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """−t·log f − (1 − t)·log(1 − f) of every entry, for targets in [0, 1]; `target` gets no gradient.

    Two kernels also in a stack of runs, where torch's own function takes forty.
    """
    return torch.addcmul(F.softplus(logits), logits, target, value=-1)


def deny(logits: Tensor, known_negative: Tensor | None) -> Tensor | float:
    """−log(1 − f) of every entry known to be absent, 0 of the others; 0 where none is known."""
    return 0.0 if known_negative is None else known_negative * F.softplus(logits)


def assume_negative(logits: Tensor, observed: Tensor) -> Tensor:
    """Binary cross-entropy with every unobserved label taken for negative, mean over all B·c entries."""
    return binary_cross_entropy(logits, observed).mean()


def assume_negative_per_label(logits: Tensor, observed: Tensor) -> Tensor:
    """The same loss of each label by itself, mean over the batch: (c,)."""
    return binary_cross_entropy(logits, observed).mean(0)


def expected_count_penalty(scores: Tensor, cardinality: float | None) -> Tensor:
    """Squared distance of the mean row sum of `scores` (B, c) from the cardinality, as a share of c."""
    # `setup` has checked that it is a number.
    return ((scores.sum(1).mean() - cardinality) / scores.shape[1]) ** 2  # type: ignore[operator]


def check_cardinality(method: str, cardinality: float | None, n_labels: int) -> None:
    """Refuse a mean number of labels per row that is missing or impossible."""
    if cardinality is None:
        raise ValueError(
            f"{method} needs cardinality, the mean number of labels per row; none was given. "
            f"Pass {method}(cardinality=…) or use a recipe."
        )
    if not 0 < cardinality <= n_labels:
        raise ValueError(
            f"cardinality must be above 0 and at most the number of labels, {n_labels}; got {cardinality!r}. "
            "Pass the mean number of labels per row."
        )


def lowest_per_label(scores: Tensor, candidates: Tensor, count: Tensor) -> Tensor:
    """Mask of the `count[j]` candidates with the lowest scores in each column j; of equal ones the first rows."""
    order = scores.masked_fill(~candidates, torch.inf).T.contiguous().argsort(stable=True)  # (c, n) sorts faster
    first = torch.arange(len(scores), device=scores.device) < count[:, None]
    return candidates & torch.zeros_like(first).scatter(1, order, first).T
