"""Judging rows by `complete_labels`, and what changed from one judgement to the next."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onepos.report.judgement import Judgement
from onepos.validation import without_nan

if TYPE_CHECKING:
    from onepos.labels import Labels

Tell = Callable[[str, int, int], None]
"""Takes what is being done, how much of it is done, and how much there is."""


class Judge(Protocol):
    """Judges the rows by what is known of their labels; it can be sent to another process."""

    def __call__(self, labels: Labels, sample: list[int], tell: Tell) -> Judgement:
        """Judge all rows; `sample` are those that were drawn at random and of which every label is known."""


@dataclass
class Completing:
    """Judges rows by `complete_labels`, and fits the model again.

    Attributes:
        X: The rows, as `complete_labels` takes them.
        items: Their ids.
        min_precision: The wanted precision of the additions.
        seed: Of all random numbers.
        model: The folder of the model that is fitted again; None where it is not.
        inputs: The rows as that model takes them.
        out: The folder to which the model is written that learned from the answers.
        groups: One value per row; rows with equal values are never judged by each other.
    """

    X: Any
    items: list[str]
    min_precision: float = 0.9
    seed: int = 0
    model: Path | None = None
    inputs: Any = None
    out: Path | None = None
    groups: Any = None

    def __call__(self, labels: Labels, sample: list[int], tell: Tell) -> Judgement:
        """Judge all rows."""
        from onepos.completion import complete_labels

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the page shows the one that is kept
            completion = complete_labels(
                self.X,
                labels,
                min_precision=self.min_precision,
                groups=self.groups,
                items=self.items,
                random_rows=np.array(sample, np.intp),
                random_state=self.seed,
                on_progress=lambda what, done, n: tell(what, done - 1, n),
            )
        return Judgement.of(completion)

    def fit_again(self, labels: Labels, sample: list[int], tell: Tell) -> str | None:
        """Fit a model with the settings of the folder to all that is known now, and write it; its folder."""
        if self.model is None or self.out is None:
            return None
        from onepos.estimator import SinglePositiveClassifier

        model = SinglePositiveClassifier.load(self.model)
        model.set_params(positives="any", random_state=self.seed)
        if model.kind == "images":
            model.set_params(workers=0)  # a process that ends with the server may not start others
        at_random = np.zeros(len(labels), bool)
        at_random[sample] = True
        labels = replace(labels, at_random=at_random)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model.fit(
                self.inputs, labels, groups=self.groups, on_progress=lambda what, done, n: tell(what, done - 1, n)
            )
        model.save(self.out)
        return str(self.out)


def compare(before: Judgement, after: Judgement, labels: list[str]) -> dict[str, Any]:
    """What changed from one judgement to the next, in plain numbers."""
    old = {line["label"]: line for line in before.summary}
    new = {line["label"]: line for line in after.summary}

    def both(name: str, key: str) -> list[Any]:
        return [old.get(name, {}).get(key), new.get(name, {}).get(key)]

    rows = [
        {"label": name, **{key: both(name, key) for key in ("prior", "expected_precision", "added")}} for name in labels
    ]
    result: dict[str, Any] = without_nan(
        {
            "labels": rows,
            "added": [before.n_added, after.n_added],
            "expected_precision": [before.expected_precision, after.expected_precision],
            "labels_per_row": [float(np.nansum(before.prior)), float(np.nansum(after.prior))],
            "calibrated_on": [before.calibrated_on, after.calibrated_on],
        }
    )
    return result
