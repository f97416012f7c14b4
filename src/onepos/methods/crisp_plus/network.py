"""The network that predicts after CRISP+: the trained one and the ensemble, averaged in their logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onepos.methods.crisp_plus.head import RowNormalizedHead
from onepos.methods.ensemble import Ensemble

_UNLIKELY, _CERTAIN = 1e-6, 1 - 1e-4  # of many labels, small probabilities still tell which is the likelier


class EnsembleNetwork(nn.Module):
    """(1 − weight)·network + weight·ensemble, in logits.

    The ensemble gives the probability s_j that label j is the observed one. Divided by the propensity e_j, it is the
    probability that the label is present.

    Args:
        backbone: Rows → features.
        head: Features → logits; its propensities and offset serve the ensemble too.
        ensemble: Rows → s.
        weight: Of the ensemble, from 0 to 1.
        observed_per_row: Mean number of observed labels of a row that has any: e counts them all, s sums to 1.
    """

    weight: Tensor
    observed_per_row: Tensor

    def __init__(
        self, backbone: nn.Module, head: RowNormalizedHead, ensemble: Ensemble, weight: float, observed_per_row: Tensor
    ) -> None:
        super().__init__()
        self.backbone, self.head, self.ensemble = backbone, head, ensemble
        self.register_buffer("weight", torch.tensor(float(weight)))
        self.register_buffer("observed_per_row", observed_per_row.detach().clone())

    @property
    def n_training_rows(self) -> int:
        """Training rows that it holds."""
        return len(self.ensemble.features)

    def forward(self, rows: Tensor) -> Tensor:
        """Logits, (B, c)."""
        return self.combine(self.head(self.backbone(rows)), self.ensemble(rows))

    def combine(self, logits: Tensor, probability: Tensor) -> Tensor:
        """Logits (B, c) of the trained network, and probabilities s (B, c) of the ensemble, as one."""
        head = self.head
        present = probability * (self.observed_per_row * torch.exp(-head.logit_offset)) / head.propensity.clamp(max=1.0)
        return torch.lerp(logits, torch.logit(present.clamp(_UNLIKELY, _CERTAIN)), self.weight)
