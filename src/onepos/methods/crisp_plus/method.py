"""CRISP+: held-out predictions take out the noise of the draw, and class priors set the scale.

The observed label γ is drawn from those of a row, so of E[l_j | x] = E[y_j/|y| | x] each row gives one draw. Before the
training, models and neighbours that never saw a row's γ predict it with probabilities s̃_ij (`crossfit`), and from these
follow class priors π̂ (`estimate_priors`, "bracket"). With ρ_j the share of rows in which label j is observed,
m_i = max_j s̃_ij and m̄ its mean, the network learns

    target       l̃_ij = (1 − α)·l_ij + α·s̃_ij          half of it drawn, half of it expected
    propensity   e_ij = (ρ_j/π̂_j) · √(m_i/m̄), at most 1    probability that label j of row i is observed if present
    weight       w_j ∝ 1/√ρ_j, with Σ_j ρ_j·w_j = Σ_j ρ_j     so that weight decay does not drown rare labels
    L = −(2/5n) Σ_ij w_j·[ l̃_ij log σ(h_ij) + (1 − l̃_ij) log(1 − e_ij·σ(h_ij)) ]

by linear logits h that start at logit π̂_j. A network that has seen a row's own draw is too sure of it; the held-out
predictions are not. So after each epoch β and δ are fitted that make e_j·σ(β·h_ij + δ), e_j = ρ_j/π̂_j, most like s̃_ij
(`fit_scale`); of images, where s̃ comes from features that the network has long improved, β = 1 and δ = 0. One label of
each row is observed, so the expected number of observed labels, Σ_j e_j·σ(x_ij), is made the same in all rows
(`RowNormalizedHead`). Targets of which half are drawn do not carry all that the held-out predictions know, so for a new
row the network is averaged with their ensemble (`EnsembleNetwork`):

    x_ij = β·h_ij + δ,    g_ij = ½·[ x_ij − log(N_i/N̄) ] + ½·logit(s̃_ij/e_j)

N_i is the expected number of observed labels of row i, N̄ its geometric mean. σ(g) is the probability that the label is
present, not that it is observed, so a threshold of one half needs no tuning. κ̂ = Σπ̂ is the mean number of labels per
row, which single positives determine only up to an interval from κ₋ on. Where that interval spans a factor of five,
decisions use κ₀ = max(√κ₋, T³/5) in place of κ̂, if that is less: the root is half of the way from κ₋ to AN, and T, how
many labels of a row are nearly as likely as its likeliest, tells rows of many labels from rows that the models do not
separate. The first half of g is then lower by log(κ̂/κ₀), and s̃ in the second smaller by κ₀/κ̂. In place of the two
terms of Eq. (8) stands one proper loss; docs/theory.md derives it.

References:
    The class-prior-induced risk of the CRISP paper, Eq. (8), and its priors, Eq. (2), are what this starts from.
"""

from __future__ import annotations

import math
import warnings
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onepos.methods.base import Batch, Method, StackRules, TrainView
from onepos.methods.crisp_plus.head import RowNormalizedHead
from onepos.methods.crisp_plus.network import EnsembleNetwork
from onepos.methods.crossfit import held_out
from onepos.methods.ensemble import Ensemble
from onepos.methods.likelihoods import fit_scale, propensity_likelihood
from onepos.priors import FloatArray, PriorEstimate, count_near_ties, estimate_priors

# Of all labels' part in the loss of a row. To Adam the size of a loss means nothing but against weight decay. It is a
# sum over the labels: a mean over many is so small that any weight decay drowns it. Of five labels it is twice their
# mean, since with the noise of the targets half of that of the gradients is gone.
_WEIGHT = 0.4

# Of each label's part: the power of its frequency. A label observed in one row of a hundred has small gradients,
# against which weight decay is as much stronger; −1 would make up for all of that. Measured, not derived: the research
# log has the sets.
_RARITY = -0.5

# Rows from which β and δ are fitted: two numbers need no more, and a pass over these costs little.
_SCALE_ROWS = 2048

# Where κ is open: rows of as many labels as the cube of the near ties, divided by this. Measured, not derived: the
# research log has the sets.
_TIES = 5.0


class CRISPPlus(Method):
    """Learns from observed labels and held-out predictions of them; class priors set the scale. The default.

    Nothing is tuned per data set. `setup` is most of the cost: it trains ten small models on four fifths of the rows
    each, whatever the network.

    Rows may have none, one or several observed labels. The target of a row with none is s̃ alone; of a row with r
    labels r·s̃ stands for s̃, of a new row r·s̃ with the mean r.

    Args:
        alpha: α, share of the expected label in the target; 0 learns from the drawn ones alone.
        cardinality: Mean number of labels per row, where it is known; otherwise estimated.
        ensemble_weight: Share of the ensemble in the logits of a new row. With 0 the network predicts alone, and the
            model holds no training rows; with more it holds those with an observed label, in half precision. Images
            trained end to end are predicted by the network alone.
    """

    stacking = StackRules(entry="head.linear", fixed=frozenset({"ensemble_weight"}))
    head: RowNormalizedHead
    target: Tensor  # l̃, (n, c)
    row_factor: Tensor  # √(m_i/m̄), (n, 1)
    weight: Tensor  # w_j, (c,)
    scale_rows: Tensor  # positions of the rows from which β and δ are fitted, (w,)
    expected: Tensor  # s̃ of these rows, (w, c)
    prior_interval: Tensor  # (c, 2)
    observed_per_row: Tensor  # of the rows that have an observed label, ()

    def __init__(self, alpha: float = 0.5, cardinality: float | None = None, ensemble_weight: float = 0.5) -> None:
        super().__init__()
        self.alpha, self.cardinality, self.ensemble_weight = alpha, cardinality, ensemble_weight

    @property
    def privileged(self) -> frozenset[str]:  # type: ignore[override]
        """The mean number of labels, where it was given."""
        return frozenset() if self.cardinality is None else frozenset({"cardinality"})

    @property
    def prior_is_given(self) -> bool:
        """They are estimated before the training, and not from its scores."""
        return True

    def make_head(self, n_features: int, n_labels: int) -> RowNormalizedHead:
        """Linear, with a constant for each row."""
        return RowNormalizedHead(n_features, n_labels)

    def setup(self, train: TrainView) -> None:
        """Predict each row from the others, estimate the priors, start the head there."""
        for name in ("alpha", "ensemble_weight"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and 0 <= float(value) <= 1):
                raise ValueError(f"{name} must lie between 0 and 1; got {value!r}. The default is 0.5.")
        if self.cardinality is not None and not (isinstance(self.cardinality, Real) and self.cardinality >= 1):
            raise ValueError(
                "cardinality, the mean number of labels per row, must be a number of at least 1; got "
                f"{self.cardinality!r}. Leave it out to have it estimated."
            )
        observed = train.observed.float()
        fit = held_out(train)
        estimate = estimate_priors(fit.probability, train.observed, estimator="bracket", cardinality=self.cardinality)
        if estimate.warning:
            warnings.warn(estimate.warning, UserWarning, stacklevel=2)
        device = observed.device
        prior = torch.as_tensor(estimate.prior, dtype=torch.float32, device=device)
        interval = np.stack([estimate.lower, estimate.upper], axis=1)
        n_observed = observed.sum(1, keepdim=True)
        alpha = torch.where(n_observed > 0, self.alpha, 1.0)
        expected = (n_observed.clamp(min=1) * fit.probability.to(observed)).clamp(max=1)
        n_with_label = (n_observed > 0).sum().clamp(min=1)
        share = observed.sum(0) / n_with_label
        self.register_buffer("class_prior", prior)
        self.register_buffer("prior_interval", torch.as_tensor(interval, dtype=torch.float32, device=device))
        # What follows from the data row by row is not saved: it would be most of a checkpoint.
        self.register_buffer("target", (1 - alpha) * observed + alpha * expected, persistent=False)
        row_factor = (fit.peak / fit.peak.mean()).sqrt().to(observed)[:, None]
        self.register_buffer("row_factor", row_factor, persistent=False)
        self.register_buffer("weight", _weights(share, train.n_samples), persistent=False)
        n_rows = min(_SCALE_ROWS, train.n_samples)
        scale_rows = torch.arange(n_rows, device=device) * train.n_samples // n_rows
        self.register_buffer("scale_rows", scale_rows, persistent=False)
        self.register_buffer("expected", expected[scale_rows], persistent=False)
        self.register_buffer("observed_per_row", observed.sum() / n_with_label, persistent=False)
        self.head.propensity = (share / prior).nan_to_num(1.0)  # a label never observed: AN
        self.head.logit_offset = torch.tensor(_logit_offset(estimate, fit.probability), device=device)
        self.head.start_at(torch.logit(prior.nan_to_num(0.0).clamp(0.5 / (train.n_samples + 1), 0.95)), 1.0)

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor:
        """The propensity likelihood of the targets: a weighted sum over the labels, a mean over the rows."""
        logits = self.head.linear_logits(features[0])
        propensity = (self.head.propensity * self.row_factor[batch.index]).clamp(max=1.0)
        entries = propensity_likelihood(logits, self.target[batch.index], propensity)
        return _WEIGHT * (entries @ self.weight).mean()

    @torch.no_grad()
    def end_epoch(self, train: TrainView) -> None:
        """Scale the logits to the held-out predictions, and keep them where they then are on average."""
        head = self.head
        linear = head.linear_logits(train.features(self.scale_rows))
        if train.is_tabular:
            propensity = head.propensity.clamp(max=1.0)
            head.slope, head.shift = fit_scale(linear, self.expected, propensity, head.slope, head.shift)
        head.level = head.log_expected(linear).mean()

    def finish(self, train: TrainView) -> nn.Module | None:
        """The network averaged with the ensemble; alone where the ensemble has no weight, and on images."""
        ensemble = held_out(train).ensemble
        if ensemble is None or not self.ensemble_weight:
            return None
        network = EnsembleNetwork(train.backbone, self.head, ensemble, self.ensemble_weight, self.observed_per_row)
        return network.to(train.observed.device)

    def rebuild(self, backbone: nn.Module, tensors: dict[str, Tensor]) -> nn.Module:
        """As `finish` left it."""
        prefix = "ensemble."
        kept = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        if not kept:
            return super().rebuild(backbone, tensors)
        ensemble = Ensemble.read(kept, len(self.head.propensity))
        return EnsembleNetwork(backbone, self.head, ensemble, self.ensemble_weight, torch.ones(()))

    @torch.no_grad()
    def training_logits(self, train: TrainView) -> Tensor:
        """With the held-out predictions in place of the ensemble, whose neighbours include the row itself."""
        network = self.finish(train)
        if not isinstance(network, EnsembleNetwork):
            return train.logits()
        return network.combine(train.logits(), held_out(train).probability)

    def lr_factor(self, name: str) -> float:
        """The head learns twice as fast: targets of which half the noise is gone bear more steps before it overfits."""
        return 2.0 if name.startswith("head.") else 1.0

    def final_prior(self, logits: Tensor, observed: Any) -> tuple[FloatArray, FloatArray]:
        """Those of `setup`, with their intervals."""
        assert self.class_prior is not None
        return self.class_prior.double().cpu().numpy(), self.prior_interval.double().cpu().numpy()


def _weights(share: Tensor, n_rows: int) -> Tensor:
    """w_j ∝ ρ_j^_RARITY, of mean 1 over the observed labels; one never observed counts as observed in half a row."""
    share = share.clamp(min=0.5 / n_rows)
    weight = share**_RARITY
    return weight * (share.sum() / (share * weight).sum())


def _logit_offset(estimate: PriorEstimate, probability: Tensor) -> float:
    """log(κ̂/κ₀): by how much decisions keep below κ̂ where κ is open."""
    if not estimate.warning:
        return 0.0
    low, _ = estimate.cardinality_interval
    near_ties = count_near_ties(probability.cpu().numpy())
    return max(0.0, math.log(estimate.cardinality / max(math.sqrt(low), near_ties**3 / _TIES)))
