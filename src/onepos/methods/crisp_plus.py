"""CRISP+: what other rows say about a label takes out the noise of the draw, and class priors set the scale.

One label γ is drawn from those of a row, so of E[l_j | x] = E[y_j/|y| | x] each row shows a single throw. Before the
training, models and neighbours that never saw a row's γ estimate its chances s̃_ij (`onepos.crossfit`), and from these
follow class priors π̂ (`estimate_priors`, "bracket"). With ρ_j the share of rows that show label j, m_i = max_j s̃_ij
and m̄ its mean, the network learns

    target       l̃_ij = (1 − α)·l_ij + α·s̃_ij          half of it thrown, half of it expected
    propensity   e_ij = (ρ_j/π̂_j) · √(m_i/m̄), at most 1    how often label j of row i is shown if it is there
    L = −2·mean_ij [ l̃_ij log σ(h_ij) + (1 − l̃_ij) log(1 − e_ij·σ(h_ij)) ],   h = g + log(κ̂/κ₀)

and h starts at logit π̂_j. σ(g) is a probability that the label is there, not that it is shown: a threshold of one half
needs no choosing. κ₀ is κ̂ = Σπ̂, the number of labels per row, unless the data leave it open within a factor of five.
Then it is the low end of its interval: all logits are lower by a constant, so that rather too few labels are predicted
than too many, and no ranking changes. In place of the two terms of Eq. (8) stands one proper loss; docs/theory.md says
of what.

References:
    The class-prior-induced risk of the CRISP paper, Eq. (8), and its priors, Eq. (2), are what this starts from.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onepos.crossfit import cross_fit
from onepos.likelihoods import propensity_likelihood
from onepos.method import Batch, Method, TrainView
from onepos.priors import FloatArray, estimate_priors

# Half of the noise of the gradients is gone with that of the targets. To Adam the size of a loss means nothing but
# against weight decay, which would weigh twice as much as it does for AN.
_WEIGHT = 2.0


class CRISPPlus(Method):
    """Propensity likelihood of targets that are half drawn and half expected.

    Nothing is tuned per data set. `setup` is most of the cost: it trains ten small models on four fifths of the rows
    each, whatever the network.

    Rows may show none, one or several labels. Of one that shows none the target is s̃ alone; of one that shows r labels
    r·s̃ stands for s̃.

    Args:
        alpha: α, share of the expected label in the target; 0 learns from the drawn ones alone.
        cardinality: Mean number of labels per row, where it is known; otherwise estimated.
    """

    target: Tensor  # l̃, (n, c)
    row_factor: Tensor  # √(m_i/m̄), (n, 1)
    propensity: Tensor  # ρ_j/π̂_j, (c,)
    caution: Tensor  # log(κ̂/κ₀), ()
    prior_interval: Tensor  # (c, 2)

    def __init__(self, alpha: float = 0.5, cardinality: float | None = None) -> None:
        super().__init__()
        self.alpha, self.cardinality = alpha, cardinality

    @property
    def privileged(self) -> frozenset[str]:  # type: ignore[override]
        """What it was told."""
        return frozenset() if self.cardinality is None else frozenset({"cardinality"})

    @property
    def prior_is_given(self) -> bool:
        """They are estimated before the training, and not from its scores."""
        return True

    def setup(self, train: TrainView) -> None:
        """Ask the other rows, estimate the priors, start the head there."""
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha must lie between 0 and 1; got {self.alpha!r}. The default is 0.5.")
        observed = train.observed.float()
        fit = cross_fit(_describe(train), train.observed)
        estimate = estimate_priors(
            fit.probability, train.observed, estimator="bracket", known_cardinality=self.cardinality
        )
        if estimate.warning:
            warnings.warn(estimate.warning, UserWarning, stacklevel=2)
        device = observed.device
        prior = torch.as_tensor(estimate.prior, dtype=torch.float32, device=device)
        interval = np.stack([estimate.lower, estimate.upper], axis=1)
        n_shown = observed.sum(1, keepdim=True)
        alpha = torch.where(n_shown > 0, self.alpha, 1.0)
        expected = (n_shown.clamp(min=1) * fit.probability.to(observed)).clamp(max=1)
        share = observed.sum(0) / (n_shown > 0).sum().clamp(min=1)
        self.register_buffer("class_prior", prior)
        self.register_buffer("prior_interval", torch.as_tensor(interval, dtype=torch.float32, device=device))
        # What follows from the data row by row is not saved: it would be most of a checkpoint.
        self.register_buffer("target", (1 - alpha) * observed + alpha * expected, persistent=False)
        row_factor = (fit.peak / fit.peak.mean()).sqrt().to(observed)[:, None]
        self.register_buffer("row_factor", row_factor, persistent=False)
        self.register_buffer("propensity", (share / prior).nan_to_num(1.0))  # a label never shown: AN
        low, _ = estimate.cardinality_interval
        caution = math.log(estimate.cardinality / low) if estimate.warning else 0.0
        self.register_buffer("caution", torch.tensor(caution, device=device))
        self._start_head(prior, train.n_samples)

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor:
        """The propensity likelihood of the targets, twice its mean over all entries."""
        propensity = (self.propensity * self.row_factor[batch.index]).clamp(max=1.0)
        entries = propensity_likelihood(self(features[0]) + self.caution, self.target[batch.index], propensity)
        return _WEIGHT * entries.mean()

    def lr_factor(self, name: str) -> float:
        """The head learns twice as fast: targets of which half the noise is gone bear more steps before it overfits."""
        return 2.0 if name.startswith("head.") else 1.0

    def final_prior(self, logits: Tensor, observed: Any) -> tuple[FloatArray, FloatArray]:
        """Those of `setup`, with their intervals."""
        assert self.class_prior is not None
        return self.class_prior.double().cpu().numpy(), self.prior_interval.double().cpu().numpy()

    @torch.no_grad()
    def _start_head(self, prior: Tensor, n: int) -> None:
        """Its weights were scaled by whoever made it; only the bias moves."""
        start_at = getattr(self.head, "start_at", None)
        if start_at is not None:
            start_at(torch.logit(prior.nan_to_num(0.0).clamp(0.5 / (n + 1), 0.95)) - self.caution, 1.0)


def _describe(train: TrainView) -> Tensor:
    """Rows of numbers for `cross_fit`: the inputs, of pictures what the network makes of them before the training."""
    rows = train.inputs() if train.is_tabular else train.features()
    return rows.float()
