"""What the models make of the rows, as a person reads it: probabilities, additions and priors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onepos.validation import without_nan

if TYPE_CHECKING:
    from onepos.completion import Completion
    from onepos.labels import Labels

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
