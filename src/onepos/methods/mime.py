"""MIME: learn through a noisy bottleneck, and let the network's own confident scores replace missing labels.

Features become a Gaussian N(μ, σ²) over a code z; logits are linear in z. With y the labels so far and m = 0 for
ignored entries, 1 for the others:

    L = −(1/Bc) Σ_ij m_ij·[ y_ij·log f_ij + (1 − y_ij)·log(1 − f_ij) ]  −  (β/2)·mean(1 + 2·log σ − μ² − σ²)

After each epoch from `warmup` on, confident entries (f > θ) become positive for good, or (rule of 2023) the
best-scored unobserved entries of each label are ignored, as many as a plug-in class prior expects.

References:
    Liu et al., Revisiting Pseudo-Label for Single-Positive Multi-Label Learning (MIME), ICML 2023.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onepos.methods.base import Batch, Method, StackRules, TrainView
from onepos.methods.heads import GaussianHead, LabelGaussianHead
from onepos.methods.losses import binary_cross_entropy, lowest_per_label

_EPSILON = 1e-5


class MIME(Method):
    """Mutual label enhancement, in the form for tabular data: one code per row.

    With `per_label` in the form for images: label attention over the feature maps gives one embedding per label
    (`LabelGaussianHead`), and two layers make a code of it. The noise of these codes is drawn
    batch by batch: n·c·z_dim numbers are too many to hold.

    Deviation: only the loss and the pseudo-label rules of the tabular form are public. Where the image network has
    a code and an encoder of two layers per label, here one linear layer makes one code that all labels share.
    Deviation: the published network draws z in evaluation too, so its scores and pseudo-labels are random; here both
    take z = μ. `as_published` makes the pseudo-labels from drawn codes; prediction stays without chance.
    Deviation: the published code adds ε = 1e-5 inside the logarithms; the form on logits used here needs none.
    `as_published` adds it.
    Deviation: in the tabular copy of rule="prior", an entry that is ignored in one epoch is no candidate for the next,
    so the highest-scored entries are ignored in every second epoch only and count as negatives in between. The image
    code, followed here, chooses among all unobserved entries each time. `as_published` alternates, but for `per_label`.

    Deviation: in the first release (2023) `E[1/|y|]` is computed from the full labels of training and validation rows,
    and pseudo-labels come from a pass in training mode, none at all where one batch holds all rows; here `E[1/|y|]` is
    a parameter and the pass is in evaluation mode.
    Deviation: the authors train with Adamax, the head ten times faster than the network; here with Adam, and
    `backbone_lr=0.1` in the recipes.
    Deviation: the published trainer drops the last incomplete batch (`drop_last`), also of validation and test rows, so
    up to B − 1 rows are neither learnt nor scored; here every row counts.

    Deviation: a known negative, which the paper does not have, gets no pseudo-label and is never ignored.

    Args:
        beta: β, weight of the Kullback–Leibler term.
        theta: θ, the score above which an entry becomes positive; for rule="threshold".
        z_dim: Width of the code.
        samples: Draws of z whose mean is taken in training.
        warmup: The first pseudo-labels are made after this many epochs.
        rule: "threshold" (published code since 2024) or "prior" (2023): ignore the ⌊π̃_j·n⌋ unobserved entries of
            label j with the highest scores, rebuilt after each epoch, where π̃_j = (n_j/n)/`E[1/|y|]`.
        inverse_cardinality: `E[1/|y|]`, the mean over the rows of one divided by the number of their labels (a row
            without labels counts as 0); for rule="prior". It can not be derived from single positives: privileged.
        per_label: A code per label from feature maps, the form for images, see above.
        as_published: Do as the published code does, see above; `rule` chooses which of its two rules. The
            pseudo-labels of `per_label` take z = μ all the same: the maps of all rows would have to be held for them.

    Example:
        >>> from onepos import MIME, SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(48))
        >>> observed = draw_single_positive(scenes.Y, random_state=3)
        >>> model = SinglePositiveClassifier(MIME(), epochs=2, random_state=0)
        >>> model.fit(scenes.X, observed).predict_proba(scenes.X).shape
        (48, 10)

    References:
        Liu et al., Revisiting Pseudo-Label for Single-Positive Multi-Label Learning (MIME), ICML 2023.
    """

    head: GaussianHead | LabelGaussianHead
    uses_negatives = True
    labels: Tensor
    ignored: Tensor
    noise: Tensor  # of each row's code in the running epoch, (n, z_dim); not with `per_label`

    def __init__(
        self,
        beta: float = 1e-4,
        theta: float = 0.95,
        z_dim: int = 256,
        samples: int = 10,
        warmup: int = 2,
        rule: str = "threshold",
        inverse_cardinality: float | None = None,
        per_label: bool = False,
        as_published: bool = False,
    ) -> None:
        super().__init__()
        self.beta, self.theta = beta, theta
        self.z_dim, self.samples, self.warmup = z_dim, samples, warmup
        self.rule, self.inverse_cardinality = rule, inverse_cardinality
        self.per_label, self.as_published = per_label, as_published

    @property
    def maps(self) -> bool:  # type: ignore[override]
        """Codes per label are found in feature maps."""
        return self.per_label

    @property
    def requires(self) -> frozenset[str]:  # type: ignore[override]
        """Feature maps, for codes per label."""
        return frozenset({"maps"} if self.per_label else ())

    @property
    def stacking(self) -> StackRules:  # type: ignore[override]
        """Not with codes per label, since a stack holds linear layers only."""
        return StackRules(possible=not self.per_label, entry="head.encoder")

    @property
    def privileged(self) -> frozenset[str]:  # type: ignore[override]
        """The number of labels per row, if the pseudo-labels come from it."""
        return frozenset({"mean inverse number of labels"} if self.rule == "prior" else ())

    @property
    def prior_is_given(self) -> bool:
        """Whether the priors follow from a number the user gave."""
        return self.rule == "prior"

    def make_head(self, n_features: int, n_labels: int) -> GaussianHead | LabelGaussianHead:
        """A Gaussian code between features and logits."""
        if self.z_dim < 1:
            raise ValueError(f"z_dim must be at least 1; got {self.z_dim!r}. The paper takes 256.")
        return (LabelGaussianHead if self.per_label else GaussianHead)(n_features, n_labels, self.z_dim)

    def setup(self, train: TrainView) -> None:
        """Start from the observed labels, none ignored."""
        if self.samples < 1:
            raise ValueError(f"samples must be at least 1; got {self.samples!r}. The paper takes 10.")
        if self.rule not in ("threshold", "prior"):
            raise ValueError(f"rule must be 'threshold' or 'prior'; got {self.rule!r}.")
        if not (self.beta >= 0 and 0 < self.theta < 1):
            raise ValueError(
                f"beta must not be negative and theta must lie between 0 and 1; got {self.beta!r} and {self.theta!r}."
            )
        self.register_buffer("labels", train.observed > 0)
        self.register_buffer("ignored", torch.zeros_like(self.labels))
        if not self.per_label:
            self.register_buffer("noise", self._draw_noise(train.n_samples))
        if self.rule == "prior":
            share = train.observed.float().mean(0) / self._checked_cardinality()
            self.register_buffer("class_prior", torch.where(share > 0, share.clamp(max=1), torch.nan))

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor:
        """Cross-entropy of a drawn code, and its distance from the standard normal."""
        logits, mean, log_std = self.head.sample(features[0], self._noise_of(batch.index))
        labels = self.labels[batch.index].to(logits.dtype)
        kept = (~self.ignored[batch.index]).to(logits.dtype)
        divergence = -0.5 * (1 + 2 * log_std - mean**2 - torch.exp(2 * log_std)).mean()
        if self.as_published:
            right = torch.where(labels > 0, logits, -logits).sigmoid()  # the score of the label as it stands
            return -(kept * torch.log(right + _EPSILON)).mean() + self.beta * divergence
        return (kept * binary_cross_entropy(logits, labels)).mean() + self.beta * divergence

    def end_epoch(self, train: TrainView) -> None:
        """Draw the noise of the next epoch, and make its pseudo-labels."""
        if not self.per_label:
            self.noise = self._draw_noise(train.n_samples)
        if self.epoch + 1 < self.warmup:
            return
        if self.rule == "threshold":
            likely = torch.sigmoid(self._score(train)) > self.theta
            self.labels = self.labels | (likely & train.hidden)
        else:
            n_positive = train.observed.sum(0, dtype=torch.int64).tolist()
            # Rounded, so that a quotient that is a whole number does not lose one to its floating-point error.
            count = [math.floor(round(n / self._checked_cardinality(), 9)) for n in n_positive]
            candidates = train.hidden
            if self.as_published and not self.per_label:
                candidates &= ~self.ignored
            self.ignored = lowest_per_label(-self._score(train), candidates, torch.tensor(count).to(self.labels.device))

    def _noise_of(self, index: Tensor) -> Tensor:
        """Of the codes of these rows, (B, z_dim) or (B, c, z_dim)."""
        return self._draw_noise(len(index), self.labels.shape[1]) if self.per_label else self.noise[index]

    def _draw_noise(self, *rows: int) -> Tensor:
        """The mean of m draws from N(0, 1) is one draw from N(0, 1/m)."""
        return torch.randn(*rows, self.z_dim, device=self.labels.device) / math.sqrt(self.samples)

    @torch.no_grad()
    def _score(self, train: TrainView) -> Tensor:
        """Logits of all training rows: of the mean code, or as published of drawn ones."""
        if not self.as_published or self.per_label:
            return train.logits()
        return self.head.sample(train.features(), self._draw_noise(train.n_samples))[0]

    def _checked_cardinality(self) -> float:
        if self.inverse_cardinality is None or not 0 < self.inverse_cardinality <= 1:
            raise ValueError(
                "rule='prior' needs inverse_cardinality, the mean of 1/|y| over rows with all |y| labels, above 0 and "
                f"at most 1; got {self.inverse_cardinality!r}. Give it, or take rule='threshold'."
            )
        return self.inverse_cardinality
