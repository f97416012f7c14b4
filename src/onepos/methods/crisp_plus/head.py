"""Linear logits, normalized within each row by how many labels the row is expected to have observed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onepos.methods.heads import LinearHead


class RowNormalizedHead(nn.Module):
    """Linear logits minus the logarithm of the row's expected number of observed labels.

    A present label is the observed one with probability e_j (the propensity), so σ(x_j) means that label j is observed
    with probability e_j·σ(x_j). As many labels of every row are observed, usually one, so the sum of these over the
    labels should be the same in all rows; linear logits do not know of each other. The result is

        g_j = x_j − log N + level − logit_offset,    N = [ Σ_k (e_k·σ(x_k))^r ]^(1/r),    x_j = slope·h_j + shift

    with h the linear logits. It keeps the order of the labels of a row and moves rows against each other. With r = 1, N
    is the expected number itself; `EXPONENT` is a little more, so that the noise of many small terms counts less.

    Args:
        n_features: Width of the features.
        n_labels: Number of labels.

    Attributes:
        propensity: e_j, (c,); set by the method.
        slope: (); above 0.
        shift: ().
        level: (); the mean of log N over many rows keeps the logits where they are on average.
        logit_offset: (); by how much all logits are lowered.
    """

    EXPONENT = 1.25
    propensity: Tensor
    slope: Tensor
    shift: Tensor
    level: Tensor
    logit_offset: Tensor

    def __init__(self, n_features: int, n_labels: int) -> None:
        super().__init__()
        self.linear = LinearHead(n_features, n_labels)
        self.register_buffer("propensity", torch.ones(n_labels))
        self.register_buffer("slope", torch.ones(()))
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("level", torch.zeros(()))
        self.register_buffer("logit_offset", torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        """Logits, (B, c)."""
        linear = self.linear_logits(features)
        return self.scale(linear) - self.log_expected(linear).unsqueeze(-1) + (self.level - self.logit_offset)

    def linear_logits(self, features: Tensor) -> Tensor:
        """h, (B, c)."""
        linear: Tensor = self.linear(features)
        return linear.float() if linear.dtype in (torch.bfloat16, torch.float16) else linear

    def scale(self, linear: Tensor) -> Tensor:
        """x, (B, c)."""
        return self.slope * linear + self.shift

    def log_expected(self, linear: Tensor) -> Tensor:
        """log N of each row, (B,)."""
        log_observed = F.logsigmoid(self.scale(linear)) + self.propensity.log()
        return torch.logsumexp(self.EXPONENT * log_observed, -1) / self.EXPONENT

    def start_at(self, log_odds: Tensor, weight_scale: float) -> None:
        """Start near the given linear logits (c,) for every row."""
        self.linear.start_at(log_odds, weight_scale)
