"""The contract of a method: what it may see, what it may keep, what it must return.

A method is an `nn.Module` and a scikit-learn parameter holder. One rule carries the rest: **whatever a method
remembers is a parameter or a buffer**, so it moves with the device, is trained by the optimiser, is saved and
resumed by `state_dict` and is reset by `clone`.

`loss` is pure: a function of features, batch, parameters and buffers. It writes nothing in place and does not
branch on the values of tensors. It may branch on `self.epoch` and on int, str and bool parameters; float
parameters are used in arithmetic only. So many runs can be stacked and trained as one, compiled, or spread
over processes without touching a method. What a batch changes in per-row memory is returned beside the loss.

Every random number of a method follows from the plan's seed: the loop seeds torch around `setup`, each epoch and
`end_epoch`; a method that seeds a generator of its own takes `TrainView.seed`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from onepos.methods.heads import LinearHead
from onepos.priors import FloatArray, PriorEstimate, estimate_priors

Memory = dict[str, Tensor]
"""New rows of per-row buffers, by buffer name: {"labels": (B, c)}."""

Result = TypeVar("Result")


class Disk(Protocol):
    """Where tensors made before a training outlast the process."""

    def load(self, name: str, shape: tuple[int, ...] | None = None) -> Tensor | None:
        """The tensor of this name and shape; None if there is none."""

    def save(self, name: str, tensor: Tensor) -> None:
        """Keep it."""


class Shared:
    """Results that follow from the training rows, their labels and a seed, made once and kept as long as this object.

    Whoever trains holds it: one fit has its own; the runs of a study that see the same rows and labels share one.

    Attributes:
        disk: Where the parts of a long preparation are kept too, so that a fit that was stopped need not make them
            again; None for nowhere.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}
        self.disk: Disk | None = None

    def kept(
        self,
        name: str,
        make: Callable[[], Tensor | None],
        is_whole: Callable[[], bool] = lambda: True,
        shape: tuple[int, ...] | None = None,
    ) -> Tensor | None:
        """What `make` gives, shares of this shape, on `disk` too if there is one; from there if it was made before.

        Where `is_whole` then says no, since the time was up, it is not put on disk.
        """
        if self.disk is None:
            return make()
        tensor = self.disk.load(name, shape)
        if tensor is None:
            tensor = make()
            if tensor is not None and is_whole():
                self.disk.save(name, tensor)
        return tensor

    def once(self, key: Hashable, make: Callable[[], Result]) -> Result:
        """What `make` gives; it is called once per key."""
        if key not in self._made:
            self._made[key] = make()
        result: Result = self._made[key]
        return result


@dataclass(frozen=True)
class Watch:
    """Progress of a long preparation, and the time it may take.

    Attributes:
        tell: Called with what is being done, how far it is and how far it goes.
        deadline: Time of `time.perf_counter` at which it must be over.
        what: What is being done.
    """

    tell: Callable[[str, int, int], None] = lambda what, done, total: None
    deadline: float = math.inf
    what: str = "preparing"

    def named(self, what: str) -> Self:
        """The same for another piece of work."""
        return replace(self, what=what)

    def part(self, share: float) -> Self:
        """The same with this share of the time that is left."""
        if math.isinf(self.deadline):
            return self
        now = time.perf_counter()
        return replace(self, deadline=now + share * max(0.0, self.deadline - now))

    def report(self, done: int, total: int) -> None:
        """So much of it is done."""
        self.tell(self.what, done, total)

    def is_late(self) -> bool:
        """Whether the time is up."""
        return time.perf_counter() > self.deadline

    def share_spent(self, began: float) -> float:
        """Of the time from `began` to the deadline, what is over, from 0 to 1; 0 without a deadline."""
        if math.isinf(self.deadline):
            return 0.0
        return min(1.0, (time.perf_counter() - began) / max(self.deadline - began, 1e-9))

    def has_time(self) -> bool:
        """Whether it is not."""
        return not self.is_late()


class Mixing(NamedTuple):
    """How the rows of a batch were mixed: row i is share_i of itself and the rest of row partner_i of the batch."""

    partner: Tensor  # (B,)
    share: Tensor  # (B,)

    @classmethod
    def draw(cls, n_rows: int, device: torch.device) -> Mixing:
        """Partners by a random permutation, shares uniform from 0 to 1."""
        return cls(torch.randperm(n_rows).to(device), torch.rand(n_rows).to(device))

    def apply(self, values: Tensor) -> Tensor:
        """Mix values (B, ...) of the rows in the same way."""
        share = self.share.to(values.dtype).view(-1, *[1] * (values.ndim - 1))
        return torch.lerp(values[self.partner], values, share)


def drop(values: Tensor, share: float) -> Tensor:
    """Set a share of the values, to the next of 256 parts, to zero at random and scale the rest up.

    On a CPU a sixth of the time of `torch.nn.functional.dropout`: one random number decides on eight values.
    """
    n_dropped = round(256 * share)
    if n_dropped == 0:
        return values
    random = torch.empty(-(-values.numel() // 8), dtype=torch.int64, device=values.device).random_(-(2**63), None)
    kept = random.view(torch.uint8)[: values.numel()].view(values.shape) >= n_dropped
    return values * (kept * (256 / (256 - n_dropped)))


@dataclass(frozen=True)
class Batch:
    """What the loop hands to a method. It carries no true labels: a method can not peek.

    Attributes:
        views: One tensor per view of the samples, (B, d) or images (B, 3, H, W).
        observed: The observed positives, 0/1 in floating point, (B, c).
        index: Positions of the rows in the training set, (B,).
        mixing: How the views were mixed, for a method with `mixes_rows`; labels are as observed.
        known_negative: The entries known to be absent, 0/1 in floating point, (B, c); None where none are known.

    Example:
        >>> import torch
        >>> from onepos import Batch
        >>> batch = Batch((torch.zeros(2, 4),), torch.eye(2), torch.arange(2))
        >>> batch.unknown.tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """

    views: tuple[Tensor, ...]
    observed: Tensor
    index: Tensor
    mixing: Mixing | None = None
    known_negative: Tensor | None = None

    @property
    def unknown(self) -> Tensor:
        """The entries that are neither observed nor known to be absent, 0/1 in floating point, (B, c)."""
        return 1 - self.observed if self.known_negative is None else 1 - self.observed - self.known_negative

    def mix(self, values: Tensor) -> Tensor:
        """Values (B, ...) of the rows, mixed as the rows were.

        Args:
            values: One entry per row of the batch.
        """
        return values if self.mixing is None else self.mixing.apply(values)


@dataclass(frozen=True)
class TrainView:
    """The whole training set as a method sees it, read-only; a pass over the rows is made only on demand.

    Attributes:
        observed: The observed positives, 0/1, (n, c).
        n_features: Width of the features, of maps their channels.
        n_epochs: Length of the training.
        inputs: The rows themselves as the network gets them, un-augmented and dense, in index order.
        features: A pass of the current network in evaluation mode: features in index order, (n, d); of a method with
            `maps` all maps (n, d, h, w) at once, which is much memory. Given ascending positions, of these rows only.
        logits: The same up to the head, (n, c).
        backbone: The network before the head.
        validation_prior: Share of each label in fully labelled validation rows, (c,); None without such rows.
        is_tabular: Whether the inputs are rows of numbers; otherwise they are images.
        seed: The seed of the training.
        shared: Where to keep what other runs on the same rows can use too.
        watch: Where a long `setup` reports its progress, and when it must be over.
        sparse_inputs: What of the rows differs from one constant row, as a SciPy matrix (n, d); None where the rows
            are not sparse.
        known_negative: The entries known to be absent, 0/1, (n, c); None where none are known.
        groups: Equal numbers for rows that must not be split, such as those of one recording, (n,); None without.
        at_random: Which rows, if they are fully reviewed, were picked by chance alone, (n,) of bool; None for all.

    Example:
        >>> import torch
        >>> from onepos import TrainView
        >>> rows = torch.zeros(3, 4)
        >>> train = TrainView(torch.eye(3), 4, 10, lambda: rows, lambda: rows, lambda: rows)
        >>> train.hidden.sum().item()
        6
    """

    observed: Tensor
    n_features: int
    n_epochs: int
    inputs: Callable[[], Tensor]
    features: Callable[..., Tensor]
    logits: Callable[[], Tensor]
    backbone: nn.Module = field(default_factory=nn.Identity)
    validation_prior: Tensor | None = None
    is_tabular: bool = True
    seed: int = 0
    shared: Shared = field(default_factory=Shared)
    watch: Watch = field(default_factory=Watch)
    sparse_inputs: Callable[[], Any] = lambda: None
    known_negative: Tensor | None = None
    groups: Tensor | None = None
    at_random: Tensor | None = None

    @property
    def hidden(self) -> Tensor:
        """Which entries are neither observed nor known to be absent, (n, c) of bool."""
        hidden = self.observed == 0
        return hidden if self.known_negative is None else hidden & (self.known_negative == 0)

    @property
    def is_complete(self) -> Tensor:
        """Which rows are fully reviewed, (n,) of bool; negatives are known, and of such a row every label is."""
        if self.known_negative is None:
            return torch.zeros(self.n_samples, dtype=torch.bool, device=self.observed.device)
        is_known = ~self.hidden.any(1)
        return is_known if self.n_labels > 1 else is_known & self.known_negative.any(1)

    @property
    def is_sample(self) -> Tensor:
        """Which rows are fully reviewed and were picked by chance alone; these show how frequent the labels are."""
        return self.is_complete if self.at_random is None else self.is_complete & self.at_random

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


@dataclass(frozen=True)
class StackRules:
    """What a stack of runs (`onepos.bench.stacking`) must know of a method; no method needs it to be trained.

    Attributes:
        possible: Whether runs of this method can be stacked at all.
        fixed: Float parameters that must be equal in a stack, such as those that `loss` rounds to whole numbers.
        entry: The module that `loss` and `forward` call first, on the features, and make no other use of these. Where
            it is linear, the stack holds it among its own layers, which is faster.
        phase: Of a method in its running epoch: what `loss` makes of the epoch. In all epochs of one phase `loss` must
            be the same function. By default every epoch is a phase of its own; longer ones train faster.
    """

    possible: bool = True
    fixed: frozenset[str] = frozenset()
    entry: str = "head"
    phase: Callable[[Any], Any] = lambda method: method.epoch


class Method(BaseEstimator, nn.Module):  # type: ignore[misc]  # BaseEstimator is untyped
    """Base of all methods: write `loss`, and of the rest what the idea needs.

    Attributes:
        views: Views per sample the loop must supply.
        maps: Whether `loss` and `forward` take feature maps (B, d, h, w) instead of pooled features (B, d). The
            image backbone then gives maps; `n_features` is d in both cases.
        requires: What the data must offer, of {"maps", "views", "validation labels"}.
        privileged: What a method is given beyond single positives, such as the mean number of labels.
        stacking: What a stack of runs must know; see `StackRules`.
        mixes_rows: Whether the loop trains on random mixtures of two rows of a batch; `loss` then mixes its targets
            likewise, by `batch.mix`. May be set in `setup`.
        drops_inputs: Share of the numbers of a row that the loop sets to zero at random, which is their mean where
            rows are scaled. May be set in `setup`.
        drops_features: Share of the features that the loop sets to zero at random before `loss`. May be set in `setup`.
        uses_negatives: Whether the method does something with known negatives; `fit` warns where it does not.
        stops_early: Whether an early end of the training helps, so that `fit` should look for the best epoch.
        epoch: The running epoch, from 0; set by the loop.
        class_prior: Class priors (c,) of a method that has them, as a buffer; NaN where unknown.

    Example:
        >>> from torch.nn.functional import softplus
        >>> from onepos import Method, SinglePositiveClassifier
        >>> class Simple(Method):
        ...     def loss(self, features, batch):
        ...         logits = self(features[0])
        ...         return (softplus(logits) - batch.observed * logits).mean()
        >>> model = SinglePositiveClassifier(Simple(), epochs=1).fit([[0.0], [1.0], [2.0]], ["cat", "dog", "cat"])
        >>> model.predict_proba([[1.5]]).shape
        (1, 2)
    """

    views: int = 1
    maps: bool = False
    requires: frozenset[str] = frozenset()
    privileged: frozenset[str] = frozenset()
    stacking: StackRules = StackRules()
    mixes_rows: bool = False
    drops_inputs: float = 0.0
    drops_features: float = 0.0
    uses_negatives: bool = False
    stops_early: bool = True
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

    def make_head(self, n_features: int, n_labels: int) -> nn.Module:
        """The module from features to logits.

        Args:
            n_features: Width of what the network gives.
            n_labels: c, the number of labels.
        """
        return LinearHead(n_features, n_labels)

    def setup(self, train: TrainView) -> None:
        """Once, before training: declare parameters and buffers. By default there is nothing to remember.

        Args:
            train: The training rows, as a method may see them.
        """

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, c), in full precision also where the layers ran in half.

        Args:
            features: Of one view of the batch, (B, n_features).
        """
        logits: Tensor = self.head(features)
        return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor | tuple[Tensor, Memory]:
        """The idea: a scalar from the features of each view and the batch; pure, see the module's docstring.

        A method with per-row memory returns (loss, {"name": new rows}); the loop writes them to
        `self.name[batch.index]` after the step.

        Args:
            features: Of each view, (B, n_features).
            batch: The rows of the step, with their observed labels.
        """
        raise NotImplementedError(f"{type(self).__name__} must define loss(features, batch); it does not.")

    def finish(self, train: TrainView) -> nn.Module | None:
        """After the last epoch: the network that predicts, from inputs to logits. None is backbone and head.

        A method that hands over a network of its own also writes `rebuild`, by which a saved model is loaded.

        Args:
            train: The training rows, as a method may see them.
        """
        return None

    def rebuild(self, backbone: nn.Module, tensors: dict[str, Tensor]) -> nn.Module:
        """The network of `finish`, of the right shapes, to be filled by `load_state_dict`.

        Args:
            backbone: Made anew; `self.head` was made anew too.
            tensors: The `state_dict` of what `finish` gave. RuntimeError or KeyError where they do not fit.
        """
        return nn.Sequential(backbone, self.head)

    def training_logits(self, train: TrainView) -> Tensor:
        """Logits of the training rows (n, c) after training; thresholds and reported priors follow from them.

        A method whose predicting network remembers the training rows gives what it would predict without them. One
        that reports priors of its own may give those of some of the rows.

        Args:
            train: The training rows, as a method may see them.
        """
        return train.logits()

    def estimate_prior(self, logits: Tensor, observed: Any) -> PriorEstimate:
        """Class priors from the scores of the trained network, for the report; a method may have settings for it.

        Args:
            logits: What `training_logits` gave.
            observed: The observed labels of the same rows, (n, c) of 0 and 1.
        """
        return estimate_priors(logits, observed)

    def final_prior(self, logits: Tensor, observed: Any) -> tuple[FloatArray, FloatArray]:
        """What to report after training: priors (c,) and their interval (c, 2); of given priors there is none, NaN.

        Args:
            logits: What `training_logits` gave.
            observed: The observed labels of the same rows, (n, c) of 0 and 1.
        """
        if self.prior_is_given and self.class_prior is not None:
            given = self.class_prior.double().cpu().numpy()
            return given, np.full((len(given), 2), np.nan)
        estimate = self.estimate_prior(logits, observed)
        return estimate.prior, np.stack([estimate.lower, estimate.upper], axis=1)

    def end_epoch(self, train: TrainView) -> None:
        """After each epoch: revise what is remembered. By default nothing.

        Args:
            train: The training rows, as a method may see them.
        """

    def forget_training(self) -> None:
        """Drop what only training needs: buffers registered with persistent=False, such as targets of the rows."""
        for module in self.modules():
            for name in module._non_persistent_buffers_set:
                module._buffers[name] = None

    def lr_at(self, progress: float) -> float:
        """Learning rate after this share of the training, from 0 to 1, as a multiple of that at the start.

        Args:
            progress: The share that is done.
        """
        return 1.0

    def lr_factor(self, name: str) -> float:
        """Learning rate of the method's parameter `name`, as a multiple of the plan's.

        Args:
            name: As in `named_parameters()`.
        """
        return 1.0
