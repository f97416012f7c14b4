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


class GaussianHead(LinearHead):
    """A Gaussian code per row, N(μ, σ²) with μ and log σ linear in the features; logits linear in the code.

    Args:
        n_features: Width of the features.
        n_labels: Number of labels.
        z_dim: Width of the code.
    """

    def __init__(self, n_features: int, n_labels: int, z_dim: int) -> None:
        super().__init__(z_dim, n_labels)
        self.encoder = nn.Linear(n_features, 2 * z_dim)

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, c) of the mean code: without chance."""
        return super().forward(self.encode(features)[0])

    def encode(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ, each (B, z_dim); log σ stays within ±6."""
        mean, double_log_std = _full_precision(self.encoder(features)).chunk(2, dim=-1)
        return mean, (double_log_std / 2).clamp(-6, 6)

    def sample(self, features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the code μ + σ·noise, for noise (B, z_dim), with its μ and log σ."""
        mean, log_std = self.encode(features)
        return _full_precision(super().forward(mean + log_std.exp() * noise)), mean, log_std


def _full_precision(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
