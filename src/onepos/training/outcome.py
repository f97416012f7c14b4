"""What follows from a trained task: class priors, and the thresholds of its decisions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from onepos.priors import DecisionCurve, FloatArray, make_curve, make_thresholds
from onepos.training.loop import Trained, run_in_steps
from onepos.training.samples import Samples
from onepos.training.task import Task


class Outcome(NamedTuple):
    """What follows from the logits of the training rows.

    Attributes:
        class_prior: Estimated share of rows that carry each label, (c,); NaN where unknown.
        class_prior_interval: Its lower and upper end, (c, 2).
        thresholds: Probability above which a label is predicted, (c,).
    """

    class_prior: FloatArray
    class_prior_interval: FloatArray
    thresholds: FloatArray


def training_logits(task: Task, trained: Trained) -> Tensor:
    """Logits of training rows, or some of them, after training, (n, c), in double precision on the CPU."""
    return task.learner.method.training_logits(trained.view).double().cpu()


def read_outcome(task: Task, logits: Tensor, threshold: float | str) -> Outcome:
    """Priors and thresholds of a trained task.

    Args:
        task: What was trained.
        logits: Of its training rows.
        threshold: A number for all labels, or "prior", by which as many training rows exceed a label's threshold as
            carry it by its class prior.
    """
    prior, interval = task.learner.method.final_prior(logits, task.observed)
    return Outcome(prior, interval, make_thresholds(threshold, torch.sigmoid(logits).numpy(), prior))


def read_curve(task: Task, logits: Tensor, prior: FloatArray, min_labels: int | str) -> DecisionCurve:
    """What the rules of decisions need of a trained task.

    Args:
        task: What was trained.
        logits: Of its training rows.
        prior: Its class priors, (c,).
        min_labels: Labels that a row gets at least; "auto" is 1 where each training row has an observed label, and
            otherwise 0. A row of which nothing but a part of its negatives is known does not count.
    """
    least = int(_has_label(task).all()) if isinstance(min_labels, str) else int(min_labels)
    c = logits.shape[1]
    if least > c:
        raise ValueError(f"min_labels must be at most {c}, the number of labels; got {least}.")
    return make_curve(torch.sigmoid(logits).numpy(), prior, least)


def _has_label(task: Task) -> npt.NDArray[np.bool_]:
    """Which rows have an observed label, or may have one beside their known negatives, (n,)."""
    observed = np.asarray(task.observed.any(1))
    if task.known_negative is None:
        return observed
    return np.asarray(observed | (task.known_negative.any(1) & ~task.known_negative.all(1)))


@torch.no_grad()
def predict_rows(network: nn.Module, samples: Samples) -> Tensor:
    """Logits of all samples by a network in evaluation mode, (n, c), on the network's device."""
    device = next(network.parameters()).device

    def output(rows: Tensor) -> Tensor:
        logits: Tensor = network(rows.contiguous(memory_format=torch.channels_last) if rows.ndim == 4 else rows)
        return logits

    return run_in_steps(output, samples.to(device), device)
