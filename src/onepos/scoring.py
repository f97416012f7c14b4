"""Scorers for scikit-learn that need one known label per row: `cross_val_score(model, X, y, scoring=SCORERS["map"])`.

scikit-learn has no public table to which names could be added, so a scorer is passed as an object.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onepos.criteria import CRITERIA
from onepos.labels import Labels

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scorer:
    """A criterion of `onepos.criteria` as a scorer: called with a fitted estimator, X and y; higher is better.

    y is a vector with one label per row, or an indicator of the known labels. A row of a vector without a label (None,
    NaN), or with one that did not occur in the training rows, counts as a row without a label: when rows are split into
    folds, a rare label may be missing from the training rows of one.

    The estimator needs `classes_` and gives one score per row and label, by `decision_function` or else by
    `predict_proba`: a `SinglePositiveClassifier`, a pipeline that ends in one, or for comparison a classifier of
    scikit-learn for three or more classes.
    """

    name: str

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """The value of the criterion; NaN where no row holds a label that the estimator knows."""
        logits, classes = _logits(estimator, X), np.asarray(estimator.classes_)
        if logits.shape[1:] != classes.shape:
            raise ValueError(
                f"a scorer needs one score per row and label, {len(classes)} labels in all; "
                f"{type(estimator).__name__} gives scores of shape {logits.shape}. Use a SinglePositiveClassifier."
            )
        observed = Labels.read(y, len(logits), classes=classes, unknown="skip").observed
        is_read = ~np.isnan(logits).any(axis=1)  # all but images that could not be read
        criterion = CRITERIA[self.name]
        value = criterion.function(observed[is_read], logits[is_read], None)
        return value if criterion.greater_is_better else -value


SCORERS: dict[str, Scorer] = {
    name: Scorer(name) for name in ("average_precision", "pooled_precision", "micro_auc", "map", "likelihood")
}


def _logits(estimator: Any, X: Any) -> Floats:
    """The scores as logits, which the likelihood needs; the other criteria look at their order."""
    if hasattr(estimator, "decision_function"):
        return np.asarray(estimator.decision_function(X), np.float64)
    probability = np.asarray(estimator.predict_proba(X), np.float64)
    limits = np.finfo(np.float64)
    probability = np.clip(probability, limits.tiny, 1 - limits.epsneg)
    logits: Floats = np.log(probability) - np.log1p(-probability)
    return logits
