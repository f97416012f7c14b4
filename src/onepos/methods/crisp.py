"""CRISP: estimate how common each label is, then fit a risk that needs only positives and those priors.

After a warm-up with AN, each epoch ends by estimating the class priors π (Eq. 2, `onepos.priors`) from the
network's own scores, and minimises Eq. (8):

    Σ_j (2π_j/n_j) Σ_{i∈S_j} [1 − σ(g_ij − λ·(1−π_j))]  +  | (1/n) Σ_i σ(g_ij) − π_j |

References:
    Can Class-Priors Help Single-Positive Multi-Label Learning? (the CRISP paper), Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onepos.methods.base import Batch, Memory, Method, StackRules, TrainView
from onepos.methods.losses import assume_negative, assume_negative_per_label
from onepos.priors import PriorEstimate, check_parameters, estimate_priors


class CRISP(Method):
    """Class-prior-induced single-positive learning.

    Deviation: the paper writes Eq. (8) over the whole data set and leaves the mini-batch form open. With
    `normalize="dataset"` a positive of label j weighs n/(n_j·B), so that the first term of a batch is an
    unbiased estimate of the full one; "batch" divides by the positives of the batch instead, which lets a
    rare label weigh as much as a common one in the few batches that hold it. The second term takes the mean
    over the batch in both forms: |batch mean − π| is larger on average than |mean − π|.

    Deviation: a label without a prior (nobody observed it) keeps the AN loss; Eq. (8) is undefined there.

    Deviation: the paper does not say how long the warm-up is; the default of three epochs gave better priors than one
    on Yeast, Scene and Image.

    Deviation: Theorem 4.1 prints the condition n_j ≥ 2·ln(4/δ)/qᵖ, its proof uses qᵖ squared; `onepos.priors` follows
    the proof.

    Args:
        delta: δ of Eq. (2), the probability with which the bound behind the estimate may fail.
        tau: τ of Eq. (2), weight of the confidence term.
        lam: λ of Eq. (8), shift of the positives' logits by λ·(1−π).
        warmup: Epochs of AN at the start; the paper does not say how many. Few leave the scores too poor to
            estimate from, many let the network memorise the observed labels, and π̂ falls to n_j/n.
        every: Re-estimate the priors after every this many epochs (3 is the paper's CRISP-3ep).
        prior: "estimate", "validation" (shares in fully labelled validation rows, the paper's CRISP-val), or
            given priors: one number for all labels or one per label.
        normalize: "dataset" or "batch", see above.
        scores: What the priors are estimated from: "fresh" is a pass over the training rows after the epoch, as in the
            paper; "running" is what the network gave for each row when its batch came, which costs nothing.

    References:
        Can Class-Priors Help Single-Positive Multi-Label Learning? (the CRISP paper), Algorithm 1.
    """

    stacking = StackRules(phase=lambda method: method.warming_up)  # the loss changes once
    class_prior: Tensor  # the buffer is filled in setup
    positive_weight: Tensor
    running_logits: Tensor

    def __init__(
        self,
        delta: float = 0.01,
        tau: float = 0.01,
        lam: float = 1.0,
        warmup: int = 3,
        every: int = 1,
        prior: str | float | Sequence[float] = "estimate",
        normalize: str = "dataset",
        scores: str = "fresh",
    ) -> None:
        super().__init__()
        self.delta, self.tau, self.lam = delta, tau, lam
        self.warmup, self.every = warmup, every
        self.prior, self.normalize, self.scores = prior, normalize, scores

    @property
    def requires(self) -> frozenset[str]:  # type: ignore[override]
        """Fully labelled validation rows, if the priors come from there."""
        return frozenset({"validation labels"} if self._source() == "validation" else ())

    @property
    def privileged(self) -> frozenset[str]:  # type: ignore[override]
        """Priors that come from full labels."""
        return self.requires

    @property
    def prior_is_given(self) -> bool:
        """Whether the priors come from validation rows or from the user."""
        return self._source() != "estimate"

    @property
    def warming_up(self) -> bool:
        """Whether this epoch still runs AN."""
        return self.epoch < self.warmup

    def setup(self, train: TrainView) -> None:
        """Keep the priors and the weight n/n_j of a positive."""
        self._check()
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
        risk = self._risk(logits, batch.observed)
        return (risk, {"running_logits": logits}) if self._gathers() else risk

    def _risk(self, logits: Tensor, observed: Tensor) -> Tensor:
        if self.warming_up:
            return assume_negative(logits, observed)
        prior = self.class_prior.nan_to_num(0.0)
        missed = torch.sigmoid(self.lam * (1 - prior) - logits) * observed  # 1 − σ(g − λ(1−π)), (B, c)
        if self.normalize == "dataset":
            positive = self.positive_weight * missed.mean(0)
        else:
            positive = missed.sum(0) / observed.sum(0).clamp(min=1)
        align = (torch.sigmoid(logits).mean(0) - prior).abs()
        risk = 2 * prior * positive + align  # Eq. (8), one term per label
        return torch.where(self.class_prior.isnan(), assume_negative_per_label(logits, observed), risk).sum()

    def end_epoch(self, train: TrainView) -> None:
        """Re-estimate the priors from the scores of the whole training set."""
        after_warmup = self.epoch + 1 - self.warmup
        if self._source() == "estimate" and after_warmup >= 0 and after_warmup % self.every == 0:
            if self._gathers():
                seen = ~self.running_logits[:, 0].isnan()  # without images that could not be read
                logits, observed = self.running_logits[seen], train.observed[seen]
            else:
                logits, observed = train.logits(), train.observed
            prior = self.estimate_prior(logits, observed).prior
            self.class_prior = torch.as_tensor(prior, dtype=torch.float32, device=self.class_prior.device)

    def estimate_prior(self, logits: Tensor, observed: Any) -> PriorEstimate:
        """Eq. (2) with this method's δ and τ."""
        return estimate_priors(logits, observed, delta=self.delta, tau=self.tau)

    def _check(self) -> None:
        if self._source() not in ("estimate", "validation", "given"):
            raise ValueError(f"prior must be 'estimate', 'validation' or numbers; got {self.prior!r}.")
        if self.normalize not in ("dataset", "batch"):
            raise ValueError(f"normalize must be 'dataset' or 'batch'; got {self.normalize!r}.")
        if self.scores not in ("fresh", "running"):
            raise ValueError(f"scores must be 'fresh' or 'running'; got {self.scores!r}.")
        for name, least in (("warmup", 0), ("every", 1)):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}.")
        if not isinstance(self.lam, int | float):
            raise ValueError(f"lam must be a number; got {self.lam!r}. The paper uses 1.")
        check_parameters(self.delta, self.tau)

    def _gathers(self) -> bool:
        return self.scores == "running" and self._source() == "estimate"

    def _source(self) -> str:
        return self.prior if isinstance(self.prior, str) else "given"

    def _first_prior(self, train: TrainView) -> Tensor:
        device = train.observed.device
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
