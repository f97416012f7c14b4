"""CRISP: estimate how common each label is, then fit a risk that needs only positives and those priors.

After a warm-up with AN the network minimises Eq. (8), with class priors π:

    Σ_j (2π_j/n_j) Σ_{i∈S_j} [1 − σ(g_ij − λ·(1−π_j))]  +  | (1/n) Σ_i σ(g_ij) − π_j |

The paper leaves choices open; each is a parameter. The defaults are the reading that does best over the development
sets, `CRISP.as_published` is the one nearest to the text; docs/methods/crisp.md has what each gives.

References:
    Can Class-Priors Help Single-Positive Multi-Label Learning? (the CRISP paper), Algorithm 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from onepos.methods.base import Batch, Memory, Method, StackRules, TrainView
from onepos.methods.crossfit import held_out
from onepos.methods.heads import shift_to
from onepos.methods.losses import assume_negative, assume_negative_per_label
from onepos.priors import FloatArray, PriorEstimate, check_parameters, estimate_priors
from onepos.validation import check_choice, check_whole

_BEFORE_TRAINING = ("held-out", "bracket")

_PRIORS = (*_BEFORE_TRAINING, "estimate", "validation")

_CHOICES = {
    "risk": ("absolute", "sigmoid", "logistic", "squared"),
    "align": ("smooth", "exact"),
    "normalize": ("dataset", "batch"),
    "reduction": ("sum", "mean"),
    "scores": ("fresh", "running"),
}


class CRISP(Method):
    """Class-prior-induced single-positive learning.

    Deviation: by default the priors come from held-out predictions, once, before the training. The paper estimates them
    from scores of the training rows after every epoch (`prior="estimate"`); its theorem assumes scores that do not
    depend on these rows. The risk gets a low `quantile` of the number of labels, since too many cost more than too few.

    Deviation: after the warm-up the logits are shifted to the priors (`align_start`); AN's scores are κ times too low.

    Deviation: the paper writes Eq. (8) over the whole data set. In a batch of B rows a positive of label j weighs
    n/(n_j·B), so that the first term is an unbiased estimate of the full one (`normalize="dataset"`), and in the second
    term √((batch mean − π)² + π(1−π)/B) stands for `|batch mean − π|`, which for rare labels is mostly noise
    (`align="smooth"`): π(1−π)/B is the most that chance adds to the square. The labels' sum is a mean (`reduction`).

    Deviation: a label without a prior (nobody observed it) keeps the AN loss; Eq. (8) is undefined there.

    Deviation: the paper does not say how long the warm-up is.

    Deviation: Theorem 4.1 prints the condition n_j ≥ 2·ln(4/δ)/qᵖ, its proof uses qᵖ squared; `onepos.priors` follows
    the proof.

    Args:
        prior: Where the class priors come from. "bracket": our estimator on held-out predictions. "held-out": Eq. (2)
            on the same. "estimate": Eq. (2) on the network's scores of the training rows, again and again.
            "validation": shares in fully labelled validation rows (the paper's CRISP-val). Or given: one number for all
            labels or one per label.
        quantile: With "bracket": which quantile of the number of labels per row Eq. (8) gets; 0.5 is the estimate.
        cardinality: With "bracket": mean number of labels per row, where it is known; otherwise estimated.
        risk: "absolute" is Eq. (8). "sigmoid" is its second term without the absolute value, Eq. (5). "logistic" and
            "squared" are proper losses in the same place, with the estimated risk of the negatives kept at 0 or above.
        lam: λ of Eq. (8), shift of the positives' logits by λ·(1−π); proper losses have none.
        warmup: Epochs of AN at the start; the paper does not say how many.
        align_start: Whether the logits are shifted to the priors after the warm-up.
        align: "smooth", see above, or "exact", the absolute value.
        normalize: "dataset", see above, or "batch", which divides by the positives of the batch.
        reduction: "sum" over the labels, as in Eq. (8), or their "mean". The mean is of the size of the warm-up's loss,
            so the optimiser's steps keep their size when one follows the other.
        keep_warmup: Whether the best epoch may be one of the warm-up.
        every: With prior="estimate": estimate again after every this many epochs (3 is the paper's CRISP-3ep).
        scores: With prior="estimate": "fresh" is a pass over the training rows after the epoch, as in the paper;
            "running" is what the network gave for each row when its batch came, which costs nothing.
        delta: δ of Eq. (2), the probability with which the bound behind the estimate may fail.
        tau: τ of Eq. (2), weight of the confidence term.

    Example:
        >>> from onepos import CRISP, SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(48))
        >>> observed = draw_single_positive(scenes.Y, random_state=3)
        >>> model = SinglePositiveClassifier(CRISP(prior="estimate", warmup=1), epochs=2, random_state=0)
        >>> model.fit(scenes.X, observed).predict_proba(scenes.X).shape
        (48, 10)

    References:
        Can Class-Priors Help Single-Positive Multi-Label Learning? (the CRISP paper), Algorithm 1.
        Kiryo et al., Positive-Unlabeled Learning with Non-Negative Risk Estimator, NeurIPS 2017 (the proper losses).
    """

    # The loss changes once.
    stacking = StackRules(phase=lambda method: method._assumes_negative, fixed=frozenset({"quantile"}))
    class_prior: Tensor  # what the risk gets; the buffer is filled in setup
    positive_weight: Tensor
    running_logits: Tensor
    reported_prior: Tensor  # (c, 3): estimate and interval, of priors from before the training

    def __init__(
        self,
        prior: str | float | Sequence[float] = "bracket",
        quantile: float = 0.25,
        cardinality: float | None = None,
        risk: str = "absolute",
        lam: float = 1.0,
        warmup: int = 5,
        align_start: bool = True,
        align: str = "smooth",
        normalize: str = "dataset",
        reduction: str = "mean",
        keep_warmup: bool = False,
        every: int = 1,
        scores: str = "fresh",
        delta: float = 0.01,
        tau: float = 0.01,
    ) -> None:
        super().__init__()
        self.prior, self.quantile, self.cardinality = prior, quantile, cardinality
        self.risk, self.lam = risk, lam
        self.warmup, self.align_start, self.align = warmup, align_start, align
        self.normalize, self.reduction, self.keep_warmup = normalize, reduction, keep_warmup
        self.every, self.scores, self.delta, self.tau = every, scores, delta, tau

    @classmethod
    def as_published(cls, **changes: Any) -> CRISP:
        """The reading nearest to the text: Eq. (2) on fresh scores of the training rows after every epoch.

        Args:
            **changes: Parameters of the constructor that differ from it.
        """
        published = {"prior": "estimate", "warmup": 3, "align_start": False, "align": "exact", "reduction": "sum"}
        return cls(**{**published, **changes})

    @property
    def requires(self) -> frozenset[str]:  # type: ignore[override]
        """Fully labelled validation rows, if the priors come from there."""
        return frozenset({"validation labels"} if self._source() == "validation" else ())

    @property
    def privileged(self) -> frozenset[str]:  # type: ignore[override]
        """The class priors or the mean number of labels, if full labels or the user give them."""
        if self._source() == "given":
            return frozenset({"class priors"})
        return self.requires if self.cardinality is None else frozenset({"cardinality"})

    @property
    def prior_is_given(self) -> bool:
        """Whether the priors were there before the training."""
        return self._source() != "estimate"

    @property
    def warming_up(self) -> bool:
        """Whether this epoch runs AN and can not be kept."""
        return self._assumes_negative and not self.keep_warmup

    @property
    def _assumes_negative(self) -> bool:
        return self.epoch < self.warmup

    def setup(self, train: TrainView) -> None:
        """Keep the priors and the weight n/n_j of a positive."""
        self._check()
        if self.warmup >= train.n_epochs:
            warnings.warn(
                f"CRISP should be trained for longer than its warm-up; it has {train.n_epochs} epochs and a warm-up of "
                f"{self.warmup}, so all of them run AN. Train longer, or set warmup.",
                UserWarning,
                stacklevel=2,
            )
        n_positive = train.observed.sum(0, dtype=torch.float32)
        weight = torch.where(n_positive > 0, train.n_samples / n_positive.clamp(min=1), 0.0)
        self.register_buffer("positive_weight", weight)
        self.register_buffer("class_prior", self._first_prior(train))
        if self._gathers():
            unseen = torch.full((train.n_samples, train.n_labels), torch.nan, device=train.observed.device)
            self.register_buffer("running_logits", unseen)

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor | tuple[Tensor, Memory]:
        """AN in the warm-up, Eq. (8) afterwards."""
        logits = self(features[0])
        if self._assumes_negative:
            risk = assume_negative(logits, batch.observed)
        else:
            per_label = self._risk_per_label(logits, batch.observed)
            risk = per_label.sum() if self.reduction == "sum" else per_label.mean()
        return (risk, {"running_logits": logits}) if self._gathers() else risk

    def _risk_per_label(self, logits: Tensor, observed: Tensor) -> Tensor:
        prior = self.class_prior.nan_to_num(0.0)

        def over_positives(values: Tensor) -> Tensor:
            """(1/n_j) Σ_{i∈S_j} of values (B, c), from a batch."""
            if self.normalize == "dataset":
                return self.positive_weight * (values * observed).mean(0)
            return (values * observed).sum(0) / observed.sum(0).clamp(min=1)

        if self.risk in ("absolute", "sigmoid"):
            missed = over_positives(torch.sigmoid(self.lam * (1 - prior) - logits))  # 1 − σ(g − λ(1−π))
            excess = torch.sigmoid(logits).mean(0) - prior
            risk = 2 * prior * missed + self._distance(excess, prior, len(logits))  # Eq. (8), one term per label
        else:
            loss_of = _squared if self.risk == "squared" else _logistic
            positive, negative = loss_of(logits)  # of every entry as if it were positive, as if it were negative
            rest = negative.mean(0) - prior * over_positives(negative)  # (1−π) · the mean over negatives
            risk = prior * over_positives(positive) + rest.clamp(min=0)
        return torch.where(self.class_prior.isnan(), assume_negative_per_label(logits, observed), risk)

    def _distance(self, excess: Tensor, prior: Tensor, n_rows: int) -> Tensor:
        """The second term of Eq. (8) for mean score − π, (c,)."""
        if self.risk == "sigmoid":
            return excess
        if self.align == "exact":
            return excess.abs()
        # The root must have a slope also where a prior is 0 or 1.
        return (excess**2 + prior * (1 - prior) / n_rows + 1e-12).sqrt()

    @torch.no_grad()
    def end_epoch(self, train: TrainView) -> None:
        """Estimate the priors again, if the scores of the training rows tell them; after the warm-up start there."""
        after_warmup = self.epoch + 1 - self.warmup
        if self._source() == "estimate" and after_warmup >= 0 and after_warmup % self.every == 0:
            if self._gathers():
                seen = ~self.running_logits[:, 0].isnan()  # without images that could not be read
                logits, observed = self.running_logits[seen], train.observed[seen]
            else:
                logits, observed = train.logits(), train.observed
            prior = self.estimate_prior(logits, observed).prior
            self.class_prior = torch.as_tensor(prior, dtype=torch.float32, device=self.class_prior.device)
        if self.align_start and after_warmup == 0:
            bias: Tensor = self.head.bias  # type: ignore[assignment]
            bias.add_(shift_to(self.class_prior, train.logits()))

    def estimate_prior(self, logits: Tensor, observed: Any) -> PriorEstimate:
        """Eq. (2) with this method's δ and τ."""
        return estimate_priors(logits, observed, delta=self.delta, tau=self.tau)

    def final_prior(self, logits: Tensor, observed: Any) -> tuple[FloatArray, FloatArray]:
        """Of priors from before the training the estimate, not the quantile of it that the risk got."""
        if self._source() not in _BEFORE_TRAINING:
            return super().final_prior(logits, observed)
        reported = self.reported_prior.double().cpu().numpy()
        return reported[:, 0], reported[:, 1:]

    def _check(self) -> None:
        if isinstance(self.prior, str) and self.prior not in _PRIORS:
            raise ValueError(f"prior must be one of {', '.join(map(repr, _PRIORS))}, or numbers; got {self.prior!r}.")
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        check_whole("warmup", self.warmup, 0)
        check_whole("every", self.every, 1)
        if not isinstance(self.lam, int | float):
            raise ValueError(f"lam must be a number; got {self.lam!r}. The paper uses 1.")
        if not (isinstance(self.quantile, int | float) and 0 < self.quantile < 1):
            raise ValueError(f"quantile must lie strictly between 0 and 1; got {self.quantile!r}. The default is 0.25.")
        if self.cardinality is not None and self._source() != "bracket":
            raise ValueError(
                f"cardinality must be left out with prior={self.prior!r}, which does not use it; it was given. "
                "Leave it out or pass prior='bracket'."
            )
        check_parameters(self.delta, self.tau)

    def _gathers(self) -> bool:
        return self.scores == "running" and self._source() == "estimate"

    def _source(self) -> str:
        return self.prior if isinstance(self.prior, str) else "given"

    def _first_prior(self, train: TrainView) -> Tensor:
        device = train.observed.device
        if self._source() in _BEFORE_TRAINING:
            settings = self.prior, self.quantile, self.cardinality, self.delta, self.tau
            found = train.shared.once(("crisp", settings, train.seed), lambda: self._held_out(train))
            if found.warning:
                warnings.warn(found.warning, UserWarning, stacklevel=2)
            self.register_buffer("reported_prior", torch.tensor(found.reported, dtype=torch.float32, device=device))
            return torch.tensor(found.used, dtype=torch.float32, device=device)
        if self._source() == "validation":
            if train.validation_prior is None:
                raise ValueError(
                    "prior='validation' needs fully labelled validation rows; none were given. "
                    "Pass fit(X, y, validation=(X_val, Y_val))."
                )
            return train.validation_prior.to(device, torch.float32)
        if self._source() == "given":
            given = np.asarray(self.prior, np.float32)
            if given.ndim and given.shape != (train.n_labels,):
                raise ValueError(
                    f"prior must be one number, or one for each of the {train.n_labels} labels; got {given.size}."
                )
            given = np.broadcast_to(given, (train.n_labels,))
            if not ((given >= 0) & (given <= 1)).all():
                raise ValueError(f"prior must lie between 0 and 1; got {self.prior!r}.")
            return torch.tensor(given, device=device)
        return torch.full((train.n_labels,), torch.nan, device=device)

    def _held_out(self, train: TrainView) -> _HeldOutPriors:
        probability = held_out(train).probability
        if self.prior == "held-out":
            estimate = self.estimate_prior(probability, train.observed)
            used = estimate.prior
        else:
            bracket = partial(estimate_priors, probability, train.observed, estimator="bracket")
            estimate = bracket(cardinality=self.cardinality)
            used = estimate.prior
            if self.cardinality is None and self.quantile != 0.5:
                ends = bracket(level=abs(1 - 2 * self.quantile)).cardinality_interval
                end = ends[0] if self.quantile < 0.5 else min(ends[1], float((estimate.n_positive > 0).sum()))
                used = bracket(cardinality=end).prior
        reported = np.stack([estimate.prior, estimate.lower, estimate.upper], axis=1)
        return _HeldOutPriors(used, reported, estimate.warning)


class _HeldOutPriors(NamedTuple):
    used: FloatArray  # by the risk, (c,)
    reported: FloatArray  # estimate and interval, (c, 3)
    warning: str


def _logistic(logits: Tensor) -> tuple[Tensor, Tensor]:
    return F.softplus(-logits), F.softplus(logits)


def _squared(logits: Tensor) -> tuple[Tensor, Tensor]:
    return torch.sigmoid(-logits) ** 2, torch.sigmoid(logits) ** 2
