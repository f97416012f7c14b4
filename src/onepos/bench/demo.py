"""The demo on digit scenes: one label per image, the class priors, 50 reviewed images, and what they change.

Everything is fitted with default settings to one observed label per training image; the oracle alone learns from all
labels. The test images are looked at once, at the end.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from onepos.completion import Completion, complete_labels
from onepos.datasets import Dataset, digit_scenes
from onepos.estimator import SinglePositiveClassifier
from onepos.labels import Labels
from onepos.protocol import draw_single_positive

# Called with what is being done, the step just finished and the number of steps.
Progress = Callable[[str, int, int], None]

MIN_PRECISION = 0.8
"""Wanted precision of the labels that are added."""

N_REVIEWED = 50


class Oracle(SinglePositiveClassifier):
    """Given the true labels of training rows, and passes them to a method that requires them."""

    _offers = frozenset({"full labels"})


@dataclass(frozen=True, eq=False)
class Run:
    """A fitted model and what it makes of the test images.

    Attributes:
        name: Of the method, for people.
        role: "floor", "method" or "oracle".
        method: Its name in METHODS.
        model: Fitted to the training images.
        seconds: Duration of the fit.
        probability: Of each label for the test images, (n, c).
    """

    name: str
    role: str
    method: str
    model: SinglePositiveClassifier
    seconds: float
    probability: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Demo:
    """All that the demo computed.

    Attributes:
        seed: Of everything random.
        train: The training images with all labels, which only the oracle and the reviewed images show.
        test: The test images.
        observed: What is known before the review: one label per training image.
        reviewed: The same, and all labels of the images that were reviewed.
        rows: Which these are, drawn at random.
        runs: Models that learned from one label each, and the oracle.
        after: The model of `before` fitted again, with the reviewed images.
        completions: The completed training images before and after the review.
    """

    seed: int
    train: Dataset
    test: Dataset
    observed: Labels
    reviewed: Labels
    rows: npt.NDArray[np.intp]
    runs: tuple[Run, ...]
    after: Run
    completions: tuple[Completion, Completion]

    @property
    def before(self) -> Run:
        """The model that learned from one label each, and is compared with itself after the review."""
        return self.runs[_IMPROVED]

    @property
    def oracle(self) -> Run:
        """The model that learned from all labels."""
        return self.runs[-1]


# The name for people, the role and the method of each run; the last one learns from all labels.
_RUNS = (
    ("AN (assume negative)", "floor", "an"),
    ("CRISP", "method", "crisp"),
    ("CRISP+", "method", "crisp-plus"),
    ("full labels (oracle)", "oracle", "full"),
)
_IMPROVED = 2


def run_demo(
    seed: int = 0, epochs: int | str = "auto", n_samples: int = 5000, progress: Progress | None = None
) -> Demo:
    """Draw one label per training image, fit, review 50 images, complete, and fit again."""
    data = digit_scenes(n_samples, random_state=seed)
    train, test = (data.take((data.splits or {})[part]) for part in ("train", "test"))
    one = draw_single_positive(train.Y, seed)
    observed = Labels.from_arrays(one, None, train.label_names)
    rows = np.sort(np.random.default_rng(seed).choice(len(one), min(N_REVIEWED, len(one)), replace=False))
    reviewed = _review(one, train, rows)
    fit = partial(_fit, parts=(train, test), seed=seed, epochs=epochs, progress=progress)
    runs = tuple(
        fit(
            name,
            role,
            method,
            labels=Labels.from_arrays(train.Y, None, train.label_names) if role == "oracle" else observed,
        )
        for name, role, method in _RUNS
    )
    name, role, method = _RUNS[_IMPROVED]
    after = fit(f"{name} and {len(rows)} reviewed images", role, method, labels=reviewed)
    before_and_after = tuple(_complete(train, labels, seed, progress) for labels in (observed, reviewed))
    return Demo(seed, train, test, observed, reviewed, rows, runs, after, before_and_after)  # type: ignore[arg-type]


def _review(one: npt.NDArray[Any], train: Dataset, rows: npt.NDArray[np.intp]) -> Labels:
    """One label per row, and for some rows all of them, as a person would answer."""
    present, absent = one.copy(), np.zeros_like(one)
    present[rows], absent[rows] = train.Y[rows], 1 - train.Y[rows]
    return Labels.from_arrays(present, absent, train.label_names)


def _fit(
    name: str,
    role: str,
    method: str,
    *,
    labels: Labels,
    parts: tuple[Dataset, Dataset],
    seed: int,
    epochs: int | str,
    progress: Progress | None,
) -> Run:
    """Fit one model, and predict the test images."""
    train, test = parts
    tell = progress or _no_progress
    make = Oracle if role == "oracle" else SinglePositiveClassifier
    positives = "any" if role == "oracle" else "single"  # of rows that are not reviewed
    model = make(method, epochs=epochs, positives=positives, device="cpu", random_state=seed)
    tell(f"preparing {name}", -1, 1)

    def report(epoch: int, _: Any) -> None:
        tell(f"preparing {name}", 0, 1)
        tell(f"fitting {name}", epoch, model.n_epochs_)

    began = time.perf_counter()
    model.fit(train.X, labels, on_epoch=report)
    seconds = time.perf_counter() - began
    return Run(name, role, method, model, seconds, model.predict_proba(test.X))


def _complete(train: Dataset, labels: Labels, seed: int, progress: Progress | None) -> Completion:
    tell, what = progress or _no_progress, f"completing, {int(labels.is_complete.sum())} images reviewed"
    tell(what, -1, 1)
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # Completion.warning has it
        done = complete_labels(
            train.X,
            labels,
            min_precision=MIN_PRECISION,
            random_state=seed,
        )
    tell(what, 0, 1)
    return done


def _no_progress(what: str, step: int, steps: int) -> None:
    """Nobody watches."""
