"""CRISP+: held-out predictions take out the noise of the draw, and class priors set the scale.

The observed label γ is drawn from those of a row, so of E[l_j | x] = E[y_j/|y| | x] each row gives one draw. Before the
training, models and neighbours that never saw a row's γ predict it with probabilities s̃_ij (`crossfit`), and from these
follow class priors π̂ (`estimate_priors`, "bracket") and the mean number of labels κ̂ = Σπ̂. The network learns by softmax
regression

    target   l̃_ij = (1 − α)·l_ij + α·s̃_ij,   α = (1 − 1/κ̂) / B, at most 1,   B = (1/n) Σ_ij (l_ij − s̃_ij)²
    L = −(1/n) Σ_ij l̃_ij log s_ij,   s_i = softmax(h_i)

on mixtures of two rows and of their targets, x = λx_a + (1 − λ)x_b with λ uniform, and with dropout before its last
layer. B, the squared error of the held-out predictions, is their distance from y/|y| and the chance of the draw, which
is 1 − E[1/|y|], about 1 − 1/κ. Of two estimates of y/|y| with independent errors the weights are as the errors of the
other: hence α. With one label per row (κ = 1) there is no chance and the target is the label itself; with many, or with
predictions that err little but for the draw, it is the prediction.

s_ij is the probability that label j is the observed one of row i. The probability that it is present has the logit

    g_ij = logit s_ij + b_j,   b_j such that the mean of σ(logit s̃_ij + b_j) over the training rows is π̂_j·s̄_j/l̄_j

with s̄ and l̄ the means of the held-out predictions and of the targets, which hardly differ where rows are many. This is
so that probabilities agree with the class priors. Of rows that it learnt from the network is too sure: there its s lies
nearer to 0 and 1 than on new rows, where σ(g) of a shift that fits the training rows has a mean above π̂. s̃ never saw
the row, so it stands for s on new rows; the thresholds of decisions follow from σ(logit s̃ + b) too. The result is one
plain network; nothing of the rows or of the models that made the targets is kept. Where single positives do not settle
κ, a warning says so and the interval of the priors shows it. In place of the two terms of Eq. (8) of the CRISP
paper stands one proper loss; docs/theory.md derives it.

References:
    The class-prior-induced risk of the CRISP paper, Eq. (8), and its priors, Eq. (2), are what this starts from.
    Mixtures of rows: Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018.
"""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onepos.methods.base import Batch, Method, StackRules, TrainView
from onepos.methods.crisp_plus.head import ObservedLabelHead
from onepos.methods.crossfit import held_out, without_negatives
from onepos.methods.heads import shift_to
from onepos.priors import FloatArray, PriorEstimate, estimate_priors

# Rows from which shifts and thresholds follow: these take little memory and time.
_DECISION_ROWS = 4096

# Least probability of a label whose logit is taken; the largest is as far from 1.
_LEAST = 1e-7

# Of the features, where a hidden layer made them.
_DROPOUT = 0.25

# Of the numbers of a row; each of them counts where labels are linear in them, and none is dropped.
_INPUT_DROPOUT = 0.1


class CRISPPlus(Method):
    """Learns from observed labels and held-out predictions of them; class priors set the scale. The default.

    Nothing is tuned per data set. `setup` is most of the cost: it trains small models on four fifths of the rows each,
    whatever the network.

    Rows may have none, one or several observed labels. The target of a row with none is s̃ alone; several count in
    equal parts. At known negatives s̃ is 0, and the rest of the row is scaled up to a sum of 1. A fully reviewed row, of
    which every label is known, has no part of s̃: its target is its labels in equal parts, or 0 if it has none, since a
    softmax has no way to say "none". Two or more such rows that were picked at random also count for the priors
    (`labelled` of `estimate_priors`), and by them for the thresholds; for α they do not.

    Args:
        alpha: α, share of the expected label in the target; 0 learns from the drawn ones alone. "auto" is the formula.
        cardinality: Mean number of labels per row, where it is known; otherwise estimated.
        mix: Whether rows of numbers are mixed in pairs.

    Example:
        >>> from onepos import CRISPPlus, SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(48))
        >>> observed = draw_single_positive(scenes.Y, random_state=3)
        >>> model = SinglePositiveClassifier(CRISPPlus(cardinality=2.0), epochs=2, random_state=0)
        >>> model.fit(scenes.X, observed).predict_proba(scenes.X).shape
        (48, 10)
    """

    stacking = StackRules(possible=False)  # rows are mixed at random, a new mixture in every step
    uses_negatives = True
    stops_early = False  # targets without most of the noise, mixtures and dropout leave nothing to overfit
    head: ObservedLabelHead
    target: Tensor  # l̃, (n, c)
    expected_logits: Tensor  # logit s̃ + b of some rows, from which the thresholds follow, (w, c)
    prior_interval: Tensor  # (c, 2)

    def __init__(self, alpha: float | str = "auto", cardinality: float | None = None, mix: bool = True) -> None:
        super().__init__()
        self.alpha, self.cardinality, self.mix = alpha, cardinality, mix

    @property
    def privileged(self) -> frozenset[str]:  # type: ignore[override]
        """The mean number of labels, where it was given."""
        return frozenset() if self.cardinality is None else frozenset({"cardinality"})

    @property
    def prior_is_given(self) -> bool:
        """They are estimated before the training, and not from its scores."""
        return True

    def make_head(self, n_features: int, n_labels: int) -> ObservedLabelHead:
        """A softmax over the labels, and a shift for each."""
        return ObservedLabelHead(n_features, n_labels)

    def setup(self, train: TrainView) -> None:
        """Predict each row from the others, estimate the priors, start at the frequencies of the labels."""
        self._check()
        observed = train.observed.float()
        fit = held_out(train)
        estimate, cardinality = self._estimate(fit.probability, train)
        if estimate.warning:
            warnings.warn(estimate.warning, UserWarning, stacklevel=2)
        device = observed.device
        interval = np.stack([estimate.lower, estimate.upper], axis=1)
        prior = torch.as_tensor(estimate.prior, dtype=torch.float32, device=device)
        self.register_buffer("class_prior", prior)
        self.register_buffer("prior_interval", torch.as_tensor(interval, dtype=torch.float32, device=device))
        # What follows from the data row by row is not saved: it would be most of a checkpoint.
        self.register_buffer(
            "target", self._make_target(fit.probability.to(observed), train, 1 / cardinality), persistent=False
        )
        n_rows = min(_DECISION_ROWS, train.n_samples)
        rows = torch.arange(n_rows, device=fit.probability.device) * train.n_samples // n_rows
        expected = torch.logit(fit.probability[rows].to(prior), eps=_LEAST)
        self.head.shift = shift_to(self._wanted_mean(prior, fit.probability.to(prior), train), expected)
        self.register_buffer("expected_logits", expected + self.head.shift, persistent=False)
        self.mixes_rows = bool(self.mix) and train.is_tabular
        has_layers = next(train.backbone.parameters(), None) is not None
        self.drops_features = _DROPOUT if train.is_tabular and has_layers else 0.0
        is_dense = train.is_tabular and train.sparse_inputs() is None
        self.drops_inputs = _INPUT_DROPOUT if self.drops_features and is_dense and not _is_linear(fit.weight) else 0.0
        frequency = (observed.sum(0) + 0.5) / (observed.sum() + 0.5 * train.n_labels)
        self.head.start_at(frequency.log(), 0.0)

    def _wanted_mean(self, prior: Tensor, probability: Tensor, train: TrainView) -> Tensor:
        """π̂ times the mean of s̃ over that of the targets, (c,).

        The network learns the mean of the targets. Where held-out predictions are nearly 0 and 1, to make up for a mean
        a little beside it would take a shift of any size.
        """
        if train.known_negative is not None:
            probability = without_negatives(probability, train.known_negative)
        drawn = ~train.is_complete
        rows = drawn if bool(train.observed[drawn].any()) else torch.ones_like(drawn)
        expected, learnt = probability[rows].mean(0), self.target[rows].to(prior).mean(0)
        return (prior * expected / learnt.clamp(min=_LEAST)).clamp(max=1 - _LEAST)

    def _estimate(self, probability: Tensor, train: TrainView) -> tuple[PriorEstimate, float]:
        """Class priors, from the fully reviewed rows too; these are no draws of one label. And κ̂ without these rows."""
        drawn, sample = ~train.is_complete, train.is_sample
        if not bool(train.observed[drawn].any()):
            drawn = torch.ones_like(drawn)
        rows = probability[drawn], train.observed[drawn]
        estimate = estimate_priors(*rows, estimator="bracket", cardinality=self.cardinality)
        cardinality = estimate.cardinality
        if int(sample.sum()) >= 2:
            labelled = train.observed[sample].cpu().numpy()
            estimate = estimate_priors(*rows, estimator="bracket", cardinality=self.cardinality, labelled=labelled)
        return estimate, cardinality

    def _make_target(self, expected: Tensor, train: TrainView, mean_share: float) -> Tensor:
        """l̃, (n, c).

        `mean_share`, about E[1/|y|], is that of the rows with one label alone: on development sets α of a κ̂ that fully
        reviewed rows had corrected ranked worse, up or down.
        """
        observed, complete = train.observed.to(expected), train.is_complete
        drawn = ~complete
        automatic = self.alpha == "auto"
        alpha = _share_of_chance(observed[drawn], expected[drawn], mean_share) if automatic else float(self.alpha)
        n_observed = observed.sum(1, keepdim=True)
        share = torch.where(n_observed > 0, alpha, 1.0)
        if train.known_negative is not None:
            expected = without_negatives(expected, train.known_negative)
            share = torch.where(complete[:, None], 0.0, share)
        return (share * expected).addcmul_((1 - share) / n_observed.clamp(min=1), observed)

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor:
        """Cross-entropy of the targets, a sum over the labels and a mean over the rows."""
        target = batch.mix(self.target[batch.index])
        return -(self.head.log_observed(features[0]) * target).sum(1).mean()

    def training_logits(self, train: TrainView) -> Tensor:
        """Those of held-out predictions, for some of the rows: the network is too sure of rows that it learnt from."""
        return self.expected_logits

    def lr_at(self, progress: float) -> float:
        """Constant, then falling to 0 in the second half, which averages out the noise of the mixtures."""
        return min(1.0, 2 * (1 - progress))

    def final_prior(self, logits: Tensor, observed: Any) -> tuple[FloatArray, FloatArray]:
        """Those of `setup`, with their intervals."""
        assert self.class_prior is not None
        return self.class_prior.double().cpu().numpy(), self.prior_interval.double().cpu().numpy()

    def _check(self) -> None:
        is_share = isinstance(self.alpha, Real) and 0 <= float(self.alpha) <= 1
        if self.alpha != "auto" and not is_share:
            raise ValueError(
                f"alpha must lie between 0 and 1, or be 'auto'; got {self.alpha!r}. The default is 'auto'."
            )
        if self.cardinality is not None and not (isinstance(self.cardinality, Real) and self.cardinality >= 1):
            raise ValueError(
                "cardinality, the mean number of labels per row, must be a number of at least 1; got "
                f"{self.cardinality!r}. Leave it out to have it estimated."
            )


def _is_linear(weight: dict[str, float]) -> bool:
    """Whether linear models predict held-out rows better than networks with a hidden layer."""
    return weight.get("linear", 0.0) >= weight.get("layered", 0.0)


def _share_of_chance(observed: Tensor, predicted: Tensor, mean_share: float) -> float:
    """(1 − E[1/|y|])/B, at most 1: of the squared error B of the held-out predictions, the part due to the draw alone.

    Of rows with m observed labels the draw has 1/m in the place of 1: none is left to chance where all are observed.
    """
    known = observed.any(1)
    if not bool(known.any()):
        return 0.0
    n_observed = observed[known].sum(1, keepdim=True)
    squared_error = float((observed[known] / n_observed - predicted.to(observed)[known]).square().sum(1).mean())
    chance = float(n_observed.reciprocal().mean()) - mean_share
    return min(1.0, max(0.0, chance) / max(squared_error, 1e-6))
