"""One builder of what is trained: data, labels, a method and a plan become a `Task`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from onepos.methods.base import Batch, Memory, Method, Mixing, Shared, drop
from onepos.training.backbones import make_backbone, n_outputs
from onepos.training.plan import USUAL_EPOCHS, Plan
from onepos.training.runtime import NETWORK_STREAM, count_weights, seeded
from onepos.training.samples import DenseRows, Samples

Indicator = npt.NDArray[np.uint8]

# Steps after which more epochs than usual are not needed.
_ENOUGH_STEPS = 5_000


class Validation(NamedTuple):
    """Rows that choose the best epoch; `full` is whether Y holds all labels of a row, or one of them.

    Y is an indicator, or holds NaN where a label is unknown.
    """

    samples: Samples
    Y: npt.NDArray[Any]
    full: bool


@dataclass(frozen=True)
class TrainingData:
    """The inputs of a training; the labels come beside them.

    Attributes:
        samples: The training rows or images, as the network takes them.
        validation: Rows to choose the epoch by.
        offers: What the caller gives a method beyond the samples, such as "full labels".
        shared: Results that trainings on the same rows and labels share.
        groups: Equal numbers for rows that must not be split, (n,).
        at_random: Which rows, if they are fully reviewed, were picked by chance alone, (n,); None for all.
    """

    samples: Samples
    validation: Validation | None = None
    offers: frozenset[str] = frozenset()
    shared: Shared = field(default_factory=Shared)
    groups: npt.NDArray[np.int64] | None = None
    at_random: npt.NDArray[np.bool_] | None = None

    def missing(self, method: Method) -> list[str]:
        """What the method needs and does not find here."""
        there = self.samples.offers | self.offers
        if self.validation is not None and self.validation.full:
            there |= {"validation labels"}
        return sorted(needs(method) - there)


class Learner(nn.Module):
    """Backbone and method as one module.

    Attributes:
        frozen: Whether the backbone gets no gradients; set by the loop.
        compiled: What takes the backbone's place in a training that compiles it.
    """

    def __init__(self, backbone: nn.Module, method: Method) -> None:
        super().__init__()
        self.backbone = backbone
        self.method = method
        self.frozen = False
        self.compiled: Callable[[Tensor], Tensor] | None = None

    def forward(
        self, views: tuple[Tensor, ...], observed: Tensor, index: Tensor, known_negative: Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        """The loss of a batch, and what the method wants to remember of its rows."""
        mixing = Mixing.draw(len(index), index.device) if self.method.mixes_rows else None
        if mixing is not None:
            views = tuple(mixing.apply(view) for view in views)
        if self.method.drops_inputs:
            views = tuple(drop(view, self.method.drops_inputs) for view in views)
        features = [drop(self.embed(view), self.method.drops_features) for view in views]
        result = self.method.loss(features, Batch(views, observed, index, mixing, known_negative))
        return result if isinstance(result, tuple) else (result, {})

    def embed(self, rows: Tensor) -> Tensor:
        """The backbone's features; images go in channels last, in which convolutions are fastest."""
        if rows.ndim == 4:
            rows = rows.contiguous(memory_format=torch.channels_last)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            features: Tensor = (self.compiled or self.backbone)(rows)
        return features

    def logits(self, rows: Tensor) -> Tensor:
        """The head of the backbone, (B, c)."""
        logits: Tensor = self.method(self.embed(rows))
        return logits


@dataclass(frozen=True)
class Task:
    """One training, ready to run. Tasks on the same samples, labels or shared results should hold the same objects.

    Attributes:
        learner: A backbone and a fresh method, whose head is made when the training begins; trained in place.
        samples: The training inputs.
        observed: The observed positives, (n, c) 0/1.
        n_features: Width of the backbone's features; of maps, their channels.
        plan: How to train.
        validation: Rows to choose the epoch by.
        shared: As in `TrainingData`.
        known_negative: The entries known to be absent, (n, c) 0/1; None where none are known.
        groups, at_random: As in `TrainingData`.
    """

    learner: Learner
    samples: Samples
    observed: Indicator
    n_features: int
    plan: Plan
    validation: Validation | None = None
    shared: Shared = field(default_factory=Shared)
    known_negative: Indicator | None = None
    groups: npt.NDArray[np.int64] | None = None
    at_random: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if len(self.samples) != len(self.observed):
            raise ValueError(
                f"samples and labels must have as many rows; got {len(self.samples)} and {len(self.observed)}. "
                "Pass the labels of the same rows."
            )

    @property
    def step_size(self) -> float:
        """Multiply-adds of one pass of a batch through backbone and head; infinite for images."""
        if "views" in self.samples.offers:
            return math.inf
        n_labels: int = self.observed.shape[1]
        return self.plan.batch_size * (count_weights(self.learner.backbone) + self.n_features * n_labels)


def make_task(
    data: TrainingData,
    labels: Indicator,
    method: Method,
    plan: Plan,
    *,
    network: str | nn.Module = "mlp",
    hidden: Sequence[int] = (512,),
    known_negative: Indicator | None = None,
) -> Task:
    """The task of training this method on these data.

    Args:
        data: What to learn from.
        labels: The observed positives, (n, c) 0/1.
        method: A method that was not trained yet; it becomes part of the task.
        plan: How to train; the weights of the network start from its seed.
        network: A name in NETWORKS, or a module from inputs to features, which is copied.
        hidden: Widths of the hidden layers, for "mlp".
        known_negative: The entries known to be absent, (n, c) 0/1; None where none are known.
    """
    for need in data.missing(method):
        remedy = {
            "validation labels": "Pass fit(X, y, validation=(X_val, Y_val)) with all labels of some rows.",
        }.get(need, "Choose another method: see `onepos list methods`.")
        raise ValueError(f"{type(method).__name__} needs {need}; this data has none. {remedy}")
    probe = data.samples.probe()
    with seeded(plan.seed, NETWORK_STREAM, torch.device("cpu")):
        backbone = make_backbone(network, probe.shape[1], labels.shape[1], hidden)
    width = n_outputs(backbone, probe, maps=method.maps)
    learner = Learner(backbone, method)
    return Task(
        learner,
        data.samples,
        labels,
        width,
        plan,
        data.validation,
        data.shared,
        known_negative,
        data.groups,
        data.at_random,
    )


def usual_epochs(task: Task) -> int:
    """Passes over the rows where no number is asked for: of few dense rows more, until enough steps are made.

    Only for a method that does not overfit when it is trained for longer.
    """
    if task.learner.method.stops_early or not isinstance(task.samples, DenseRows):
        return USUAL_EPOCHS
    n_steps = -(-len(task.observed) // task.plan.batch_size)
    return min(2 * USUAL_EPOCHS, max(USUAL_EPOCHS, -(-_ENOUGH_STEPS // n_steps)))


def needs(method: Method) -> frozenset[str]:
    """What the data must offer, of {"maps", "views", "validation labels", "full labels"}."""
    return method.requires.union({"views"} if method.views > 1 else (), {"maps"} if method.maps else ())
