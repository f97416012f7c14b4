"""The contract of a method: what it may see, what it may keep, what it must give.

A method is an `nn.Module` and a scikit-learn parameter holder. One rule carries the rest: **whatever a method
remembers is a parameter or a buffer**, so it moves with the device, is trained by the optimiser, is saved and
resumed by `state_dict` and is reset by `clone`.

`loss` is pure: a function of features, batch, parameters and buffers. It writes nothing in place and does not
branch on the values of tensors. It may branch on `self.epoch` and on int, str and bool parameters; float
parameters are used in arithmetic only. So many runs can be stacked and trained as one, compiled, or spread
over processes without touching a method. What a batch changes in per-row memory is returned beside the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from onepos.methods.crossfit import Advisers
from onepos.methods.heads import LinearHead
from onepos.priors import FloatArray, PriorEstimate, estimate_priors

Memory = dict[str, Tensor]
"""New rows of per-row buffers, by buffer name: {"labels": (B, c)}."""


@dataclass(frozen=True)
class Batch:
    """What the loop hands to a method. It carries no true labels: a method can not peek.

    Attributes:
        views: One tensor per view of the samples, (B, d) or pictures (B, 3, H, W).
        observed: The observed positives, 0/1 in floating point, (B, c).
        index: Positions of the rows in the training set, (B,).
    """

    views: tuple[Tensor, ...]
    observed: Tensor
    index: Tensor


@dataclass(frozen=True)
class TrainView:
    """A method's read-only window on the whole training set; a pass is made only when asked for.

    Attributes:
        observed: The observed positives, 0/1, (n, c).
        n_features: Width of the features, of maps their channels.
        n_epochs: Length of the training.
        inputs: The rows themselves as the network gets them, un-augmented and dense, in index order.
        features: A pass of the current network in evaluation mode: features in index order, (n, d); of a method with
            `maps` all maps (n, d, h, w) at once, which is much memory. Given ascending positions, of these rows only.
        logits: The same up to the head, (n, c).
        validation_prior: Share of each label in fully labelled validation rows, (c,); None without such rows.
        is_tabular: Whether the inputs are rows of numbers; otherwise they are pictures.
    """

    observed: Tensor
    n_features: int
    n_epochs: int
    inputs: Callable[[], Tensor]
    features: Callable[..., Tensor]
    logits: Callable[[], Tensor]
    validation_prior: Tensor | None = None
    is_tabular: bool = True

    @property
    def n_samples(self) -> int:
        """Number of rows n."""
        return self.observed.shape[0]

    @property
    def n_labels(self) -> int:
        """Number of labels c."""
        return self.observed.shape[1]

    def scores(self) -> Tensor:
        """Probabilities of the current network, (n, c)."""
        return torch.sigmoid(self.logits())


class Method(BaseEstimator, nn.Module):  # type: ignore[misc]  # BaseEstimator is untyped
    """Base of all methods: write `loss`, and of the rest what the idea needs.

    Attributes:
        views: Views per sample the loop must supply.
        maps: Whether `loss` and `forward` take feature maps (B, d, h, w) instead of pooled features (B, d). Whoever
            makes an image backbone asks it for maps then; `n_features` is d in both cases.
        requires: What the data must offer, of {"maps", "views", "validation labels"}.
        privileged: What a method is told that single positives do not tell, such as the mean number of labels.
        structural: Float parameters that `loss` turns into whole numbers; runs that differ in them can not be stacked.
        stackable: Whether runs of this method can be stacked at all.
        entry: The module that `loss` and `forward` call first, on the features, and make no other use of these. Where
            it is linear, a stack holds it among its own layers, which is faster.
        epoch: The running epoch, from 0; set by the loop.
        class_prior: Class priors (c,) of a method that has them, as a buffer; NaN where unknown.
    """

    views: int = 1
    maps: bool = False
    requires: frozenset[str] = frozenset()
    privileged: frozenset[str] = frozenset()
    structural: frozenset[str] = frozenset()
    stackable: bool = True
    entry: str = "head"
    epoch: int = 0
    class_prior: Tensor | None
    head: nn.Module

    if TYPE_CHECKING:  # BaseEstimator brings no types, and nn.Module would answer that every attribute is a tensor

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """The constructor's parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("class_prior", None)

    @property
    def prior_is_given(self) -> bool:
        """Whether `class_prior` was handed to the method, not estimated from its scores."""
        return False

    @property
    def warming_up(self) -> bool:
        """Whether the running epoch only prepares the method; such an epoch is not kept as the best."""
        return False

    @property
    def phase(self) -> Any:
        """What `loss` makes of the epoch: in all epochs of one phase it must be the same function.

        By default every epoch is a phase of its own if `loss` asks for it. Longer ones train faster in a stack.
        """
        return self.epoch

    def make_head(self, n_features: int, n_labels: int) -> nn.Module:
        """The module from features to logits."""
        return LinearHead(n_features, n_labels)

    def setup(self, train: TrainView) -> None:
        """Once, before training: declare parameters and buffers. By default there is nothing to remember."""

    def make_advisers(self, train: TrainView) -> Advisers | None:
        """Models that are asked about rows beside the network, made after `setup` and never changed; None for none.

        Only where rows are tabular. What they say is the second argument of `head`.
        """
        return None

    def forward(self, features: Tensor, advice: Tensor | None = None) -> Tensor:
        """Logits (B, c), in full precision also where the layers ran in half; `advice` where there are advisers."""
        logits: Tensor = self.head(features) if advice is None else self.head(features, advice)
        return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor | tuple[Tensor, Memory]:
        """The idea: a scalar from the features of each view and the batch; pure, see the module's docstring.

        A method with per-row memory returns (loss, {"name": new rows}); the loop writes them to
        `self.name[batch.index]` after the step.
        """
        raise NotImplementedError(f"{type(self).__name__} must define loss(features, batch); it does not.")

    def estimate_prior(self, logits: Tensor, observed: Any) -> PriorEstimate:
        """Class priors from the scores of the trained network, for the report; a method may have settings for it."""
        return estimate_priors(logits, observed)

    def final_prior(self, logits: Tensor, observed: Any) -> tuple[FloatArray, FloatArray]:
        """What to report after training: priors (c,) and their interval (c, 2); of given priors there is none, NaN."""
        if self.prior_is_given and self.class_prior is not None:
            given = self.class_prior.double().cpu().numpy()
            return given, np.full((len(given), 2), np.nan)
        estimate = self.estimate_prior(logits, observed)
        return estimate.prior, np.stack([estimate.lower, estimate.upper], axis=1)

    def end_epoch(self, train: TrainView) -> None:
        """After each epoch: revise what is remembered. By default nothing."""

    def lr_factor(self, name: str) -> float:
        """Learning rate of the method's parameter `name`, as a multiple of the plan's."""
        return 1.0
