"""CRISP+: what other rows say about a label takes out the noise of the draw, and class priors set the scale.

One label γ is drawn from those of a row, so of E[l_j | x] = E[y_j/|y| | x] each row shows a single throw. Before the
training, models and neighbours that never saw a row's γ estimate its chances s̃_ij (`onepos.methods.crossfit`), and from these
follow class priors π̂ (`estimate_priors`, "bracket"). With ρ_j the share of rows that show label j, m_i = max_j s̃_ij
and m̄ its mean, the network learns

    target       l̃_ij = (1 − α)·l_ij + α·s̃_ij          half of it thrown, half of it expected
    propensity   e_ij = (ρ_j/π̂_j) · √(m_i/m̄), at most 1    how often label j of row i is shown if it is there
    weight       w_j ∝ 1/√ρ_j, with Σ_j ρ_j·w_j = Σ_j ρ_j     so that weight decay does not drown rare labels
    L = −(2/5n) Σ_ij w_j·[ l̃_ij log σ(h_ij) + (1 − l̃_ij) log(1 − e_ij·σ(h_ij)) ]

by linear logits h that start at logit π̂_j. A network that has seen a row's own throw is surer of it than it should be;
what other rows expect is not. So after each epoch β and δ are fitted that make e_j·σ(β·h_ij + δ), e_j = ρ_j/π̂_j, most
like s̃_ij (`fit_scale`); but of pictures, where s̃ comes from features that the network has long improved, β = 1 and
δ = 0. Of each row one label is shown, so its claims e_j·σ(x_ij) should come to the same in all rows; logits that do not
know of each other are told so then. Nor is what the models and neighbours know all in the network, which sees it
through targets half of which are thrown: of a new row they are asked too (`onepos.methods.crossfit.Advisers`), and count for
half (`OneShownHead`):

    x_ij = β·h_ij + δ,    g_ij = ½·[ x_ij − log(N_i/N̄) ] + ½·logit(s̃_ij/e_j)

N_i is the size of all claims of row i, N̄ its geometric mean. σ(g) is a probability that the label is there, not that it
is shown: a threshold of one half needs no choosing. κ̂ = Σπ̂ is the number of labels per row, which single positives
leave open within an interval from κ₋ on. If that is a factor of five, decisions are taken with κ₀ = max(√κ₋, T³/5) in
place of κ̂, if that is less: the root is half of the way from κ₋ to AN, and T, how many labels of a row are nearly as
likely as its likeliest, tells rows of many labels from rows that are not understood. The first half of g is then lower
by log(κ̂/κ₀), and s̃ in the second smaller by κ₀/κ̂. In place of the two terms of Eq. (8) stands one proper loss;
docs/theory.md says of what.

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
from torch import Tensor

from onepos.methods.base import Batch, Method, TrainView
from onepos.methods.crossfit import Advisers, cross_fit
from onepos.methods.heads import OneShownHead
from onepos.methods.likelihoods import fit_scale, propensity_likelihood
from onepos.priors import FloatArray, PriorEstimate, count_near_ties, estimate_priors

# Of all labels' part in the loss of a row. To Adam the size of a loss means nothing but against weight decay. It is a
# sum over the labels: a mean over many is so small that any weight decay drowns it. Of five labels it is twice their
# mean, since with the noise of the targets half of that of the gradients is gone.
_WEIGHT = 0.4

# Of each label's part: the power of its frequency. A label that is shown in one row of a hundred has small gradients,
# against which weight decay is as much stronger; −1 would make up for all of that. Measured, not derived: the research
# log has the sets.
_RARITY = -0.5

# Rows that tell β and δ: two numbers need no more, and a pass over these costs little.
_WITNESSES = 2048

# Where κ is open: rows of as many labels as the cube of the near ties, divided by this. Measured, not derived: the
# research log has the sets.
_TIES = 5.0

_REMEDY = (
    "Here that is CRISPPlus(cardinality=2.5), on the command line --set cardinality=2.5; without it rather too few "
    "labels are predicted than too many."
)


class CRISPPlus(Method):
    """Propensity likelihood of targets that are half drawn and half expected.

    Nothing is tuned per data set. `setup` is most of the cost: it trains ten small models on four fifths of the rows
    each, whatever the network.

    Rows may show none, one or several labels. Of one that shows none the target is s̃ alone; of one that shows r labels
    r·s̃ stands for s̃, of a new row r·s̃ with the mean r.

    Args:
        alpha: α, share of the expected label in the target; 0 learns from the drawn ones alone.
        cardinality: Mean number of labels per row, where it is known; otherwise estimated.
        trust: Share of models and neighbours in the logits of a new row. With 0 the network predicts alone, and the
            model holds no training rows; with more it holds those whose label is known, in half precision. Pictures
            trained end to end are predicted by the network alone.
    """

    entry = "head.linear"
    structural = frozenset({"trust"})
    head: OneShownHead
    target: Tensor  # l̃, (n, c)
    row_factor: Tensor  # √(m_i/m̄), (n, 1)
    weight: Tensor  # w_j, (c,)
    witnesses: Tensor  # positions of the rows that tell β and δ, (w,)
    expected: Tensor  # s̃ of these rows, (w, c)
    prior_interval: Tensor  # (c, 2)

    def __init__(self, alpha: float = 0.5, cardinality: float | None = None, trust: float = 0.5) -> None:
        super().__init__()
        self.alpha, self.cardinality, self.trust = alpha, cardinality, trust

    @property
    def privileged(self) -> frozenset[str]:  # type: ignore[override]
        """What it was told."""
        return frozenset() if self.cardinality is None else frozenset({"cardinality"})

    @property
    def prior_is_given(self) -> bool:
        """They are estimated before the training, and not from its scores."""
        return True

    def make_head(self, n_features: int, n_labels: int) -> OneShownHead:
        """Linear, with a constant for each row."""
        return OneShownHead(n_features, n_labels)

    def setup(self, train: TrainView) -> None:
        """Ask the other rows, estimate the priors, start the head there."""
        for name in ("alpha", "trust"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and 0 <= float(value) <= 1):
                raise ValueError(f"{name} must lie between 0 and 1; got {value!r}. The default is 0.5.")
        if self.cardinality is not None and not (isinstance(self.cardinality, Real) and self.cardinality >= 1):
            raise ValueError(
                "cardinality, the mean number of labels per row, must be a number of at least 1; got "
                f"{self.cardinality!r}. Leave it out to have it estimated."
            )
        observed = train.observed.float()
        fit = cross_fit(_describe(train), train.observed)
        estimate = estimate_priors(fit.probability, train.observed, estimator="bracket", cardinality=self.cardinality)
        if estimate.warning:
            warnings.warn(f"{estimate.warning} {_REMEDY}", UserWarning, stacklevel=2)
        device = observed.device
        prior = torch.as_tensor(estimate.prior, dtype=torch.float32, device=device)
        interval = np.stack([estimate.lower, estimate.upper], axis=1)
        n_shown = observed.sum(1, keepdim=True)
        alpha = torch.where(n_shown > 0, self.alpha, 1.0)
        expected = (n_shown.clamp(min=1) * fit.probability.to(observed)).clamp(max=1)
        n_showing = (n_shown > 0).sum().clamp(min=1)
        share = observed.sum(0) / n_showing
        self.register_buffer("class_prior", prior)
        self.register_buffer("prior_interval", torch.as_tensor(interval, dtype=torch.float32, device=device))
        # What follows from the data row by row is not saved: it would be most of a checkpoint.
        self.register_buffer("target", (1 - alpha) * observed + alpha * expected, persistent=False)
        row_factor = (fit.peak / fit.peak.mean()).sqrt().to(observed)[:, None]
        self.register_buffer("row_factor", row_factor, persistent=False)
        self.register_buffer("weight", _weights(share, train.n_samples), persistent=False)
        n_witnesses = min(_WITNESSES, train.n_samples)
        witnesses = torch.arange(n_witnesses, device=device) * train.n_samples // n_witnesses
        self.register_buffer("witnesses", witnesses, persistent=False)
        self.register_buffer("expected", expected[witnesses], persistent=False)
        self.head.propensity = (share / prior).nan_to_num(1.0)  # a label never shown: AN
        self.head.caution = torch.tensor(_caution(estimate, fit.probability), device=device)
        self.head.trust = torch.tensor(float(self.trust), device=device)
        self.head.shown = observed.sum() / n_showing
        self.head.start_at(torch.logit(prior.nan_to_num(0.0).clamp(0.5 / (train.n_samples + 1), 0.95)), 1.0)

    def make_advisers(self, train: TrainView) -> Advisers | None:
        """Those who were asked about the training rows."""
        if not (train.is_tabular and self.trust):
            return None
        return cross_fit(_describe(train), train.observed).advisers

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor:
        """The propensity likelihood of the targets: a weighted sum over the labels, a mean over the rows."""
        logits = self.head.free(features[0])
        propensity = (self.head.propensity * self.row_factor[batch.index]).clamp(max=1.0)
        entries = propensity_likelihood(logits, self.target[batch.index], propensity)
        return _WEIGHT * (entries @ self.weight).mean()

    @torch.no_grad()
    def end_epoch(self, train: TrainView) -> None:
        """Scale the logits to what other rows expect, and keep them where they then are on average."""
        head = self.head
        free = head.free(train.features(self.witnesses))
        if train.is_tabular:
            shown = head.propensity.clamp(max=1.0)
            head.slope, head.shift = fit_scale(free, self.expected, shown, head.slope, head.shift)
        head.level = head.log_claims(free).mean()

    def lr_factor(self, name: str) -> float:
        """The head learns twice as fast: targets of which half the noise is gone bear more steps before it overfits."""
        return 2.0 if name.startswith("head.") else 1.0

    def final_prior(self, logits: Tensor, observed: Any) -> tuple[FloatArray, FloatArray]:
        """Those of `setup`, with their intervals."""
        assert self.class_prior is not None
        return self.class_prior.double().cpu().numpy(), self.prior_interval.double().cpu().numpy()


def _weights(share: Tensor, n_rows: int) -> Tensor:
    """w_j ∝ ρ_j^_RARITY, of mean 1 over the labels that are shown; one never shown counts as shown in half a row."""
    share = share.clamp(min=0.5 / n_rows)
    weight = share**_RARITY
    return weight * (share.sum() / (share * weight).sum())


def _caution(estimate: PriorEstimate, probability: Tensor) -> float:
    """log(κ̂/κ₀): by how much decisions keep below κ̂ where κ is open."""
    if not estimate.warning:
        return 0.0
    low, _ = estimate.cardinality_interval
    near_ties = count_near_ties(probability.cpu().numpy())
    return max(0.0, math.log(estimate.cardinality / max(math.sqrt(low), near_ties**3 / _TIES)))


def _describe(train: TrainView) -> Tensor:
    """Rows of numbers for `cross_fit`: the inputs, of pictures what the network makes of them before the training."""
    rows = train.inputs() if train.is_tabular else train.features()
    return rows.float()
