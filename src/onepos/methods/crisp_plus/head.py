"""Features → the probability that a label is present, by way of the probability that it is the observed one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onepos.methods.heads import LinearHead


class ObservedLabelHead(nn.Module):
    """Logits logit(s_j) + shift_j, where s = softmax(linear) is the probability of each label to be the observed one.

    A present label is the observed one with a probability e_j below 1, so label j is present with about s_j/e_j where
    that is small, and surely where s_j is 1: the odds of both are a factor apart, whose logarithm is the shift. The
    order of the rows within a label is the same whatever the shift.

    Args:
        n_features: Width of the features.
        n_labels: Number of labels.

    Attributes:
        shift: (c,); set so that the mean probability of a label is its class prior.
    """

    shift: Tensor

    def __init__(self, n_features: int, n_labels: int) -> None:
        super().__init__()
        self.linear = LinearHead(n_features, n_labels)
        self.register_buffer("shift", torch.zeros(n_labels))

    def forward(self, features: Tensor) -> Tensor:
        """Logits, (B, c)."""
        return self.unshifted(features) + self.shift

    def unshifted(self, features: Tensor) -> Tensor:
        """logit(s), (B, c)."""
        log_observed = self.log_observed(features)
        # log(1 − s) is that of the sum of all others; where s is 1 to the last bit, the limit keeps it finite.
        rest = -torch.expm1(log_observed)
        return log_observed - torch.log(rest.clamp(min=torch.finfo(rest.dtype).eps / 4))

    def log_observed(self, features: Tensor) -> Tensor:
        """log s, (B, c)."""
        linear = self.linear(features)
        return torch.log_softmax(linear.float() if linear.dtype in (torch.bfloat16, torch.float16) else linear, -1)

    def start_at(self, log_odds: Tensor, weight_scale: float) -> None:
        """Start near the given linear logits (c,) for every row."""
        self.linear.start_at(log_odds, weight_scale)
