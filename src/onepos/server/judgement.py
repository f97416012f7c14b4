"""What the models make of the rows: probabilities, additions and priors, made by `complete_labels`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from onepos.validation import without_nan

if TYPE_CHECKING:
    from onepos.completion import Completion
    from onepos.labels import Labels

Tell = Callable[[str, int, int], None]
"""Takes what is being done, how much of it is done, and how much there is."""

# Labels of an item that are put to the reviewer: those whose entry is wrong with at least this probability, so many.
_LEAST_DOUBT, _MOST_DOUBTFUL, _MOST_OF_RANDOM = 0.1, 6, 12


@dataclass(frozen=True, eq=False)
class Judgement:
    """Probabilities and additions for n rows and c labels.

    Attributes:
        probability: That a label is present, (n, c): 1 and 0 where that is known.
        known: Entries that are known, (n, c).
        added: Entries that are added, (n, c).
        prior: Estimated share of the rows with each label, (c,).
        prior_interval: Its lower and upper end, (c, 2).
        summary: Per label: name, number observed and added, prior, expected precision and recall.
        worth: Expected number of wrong entries of each row, (n,).
        min_precision: The wanted precision of the additions.
        warning: Why the precision can not be promised; empty where it can.
        calibrated_on: Fully reviewed rows by which the probabilities were calibrated.
    """

    probability: npt.NDArray[np.float32]
    known: npt.NDArray[np.bool_]
    added: npt.NDArray[np.bool_]
    prior: npt.NDArray[np.float64]
    prior_interval: npt.NDArray[np.float64]
    summary: list[dict[str, Any]] = field(default_factory=list)
    worth: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    min_precision: float = 0.9
    warning: str = ""
    calibrated_on: int = 0

    @classmethod
    def of(cls, completion: Completion) -> Judgement:
        """What of a completion is needed to review it."""
        known = np.asarray((completion.labels.positive + completion.labels.negative).toarray(), bool)
        worth = np.zeros(len(known))
        is_open = int((~known).any(1).sum())
        if is_open:
            listed = completion.review(is_open)
            worth[listed["row"].to_numpy()] = listed["expected_errors"].to_numpy()
        summary = completion.summary.assign(label=completion.summary["label"].astype(str))
        return cls(
            np.asarray(completion.probability, np.float32),
            known,
            np.asarray(completion.added, bool),
            np.asarray(completion.prior, np.float64),
            np.asarray(completion.prior_interval, np.float64),
            without_nan(summary.to_dict(orient="records")),
            worth,
            float(completion.min_precision),
            str(completion.warning),
            int(completion.calibrated_on),
        )

    @classmethod
    def unknown(cls, labels: Labels) -> Judgement:
        """Before the rows are judged."""
        known = np.asarray((labels.positive + labels.negative).toarray(), bool)
        nothing = np.zeros(known.shape[1])
        return cls(
            labels.observed.astype(np.float32),
            known,
            np.zeros_like(known),
            nothing,
            np.stack([nothing, nothing], 1),
            worth=np.zeros(len(known)),
        )

    @property
    def n_added(self) -> int:
        """Number of added labels."""
        return int(self.added.sum())

    @property
    def expected_precision(self) -> float | None:
        """Mean probability of the added labels."""
        return float(self.probability[self.added].mean()) if self.added.any() else None

    def rank_labels(self, row: int, is_random: bool) -> tuple[list[int], list[int]]:
        """The unknown labels of a row: those in doubt, the most doubtful first, and the others by probability."""
        probability = self.probability[row].astype(np.float64)
        doubt = np.where(self.added[row], 1 - probability, probability)
        unknown = np.flatnonzero(~self.known[row])
        order = unknown[np.argsort(-doubt[unknown], kind="stable")]
        least, most = (_LEAST_DOUBT / 5, _MOST_OF_RANDOM) if is_random else (_LEAST_DOUBT, _MOST_DOUBTFUL)
        n = min(most, max(1, int((doubt[order] >= least).sum())))
        doubtful, others = order[:n], order[n:]
        return doubtful.tolist(), others[np.argsort(-probability[others], kind="stable")].tolist()


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
