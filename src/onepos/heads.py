"""Features → logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LinearHead(nn.Linear):
    """One logit per label, linear in the features."""

    @torch.no_grad()
    def start_at(self, log_odds: Tensor, weight_scale: float) -> None:
        """Start near the given logits (c,) for every row: they become the bias, the weights are scaled down."""
        self.bias.copy_(log_odds)
        self.weight.mul_(weight_scale)
