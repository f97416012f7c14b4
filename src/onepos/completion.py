"""From one label per row to all labels, with a stated precision: `complete_labels`.

Every row is judged by models that did not learn from its label (`methods.crossfit`): s_ij is the probability that label
j is the observed one of row i. Class priors π̂ set the scale (`priors`, "bracket"): of the entries that are not known, so
many are present as the prior leaves when the known ones are taken off,

    p_ij = σ(logit s_ij + b_j),   b_j such that Σ p_ij over the unknown entries of label j = n·π̂_j − (known positives)

A label is added where p exceeds its threshold, the lowest above which the mean of p is at least the wanted precision.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import check_random_state

from onepos.labels import Labels, list_labels
from onepos.methods.crossfit import held_out_probabilities, without_negatives
from onepos.methods.heads import shift_to
from onepos.priors import FloatArray, PriorEstimate, estimate_priors
from onepos.tables.choice import make_encoder
from onepos.validation import check_whole

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]

# Of the items of a review, the share that is drawn at random.
_RANDOM_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Completion:
    """A completed data set.

    Attributes:
        items: The ids of the rows, (n,).
        classes: The labels, (c,).
        labels: What was known before.
        probability: Probability that a label is present, given what is known of the row, (n, c): 1 at known positives,
            0 at known negatives.
        prior: Estimated share of the rows with each label, (c,); NaN where unknown.
        prior_interval: Its lower and upper end, (c, 2).
        added: Where a label is added, (n, c).
        thresholds: The probability that an added label exceeds, (c,).
        min_precision: The wanted precision of the added labels.
        summary: A line per label.
        calibrated_on: Number of fully reviewed rows by which the probabilities were calibrated.
        warning: Why the precision can not be promised; empty where it can.
        seed: Of the random rows of a review.
    """

    items: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    labels: Labels
    probability: Floats
    prior: FloatArray
    prior_interval: FloatArray
    added: Flags
    thresholds: FloatArray
    min_precision: float
    summary: pd.DataFrame
    calibrated_on: int
    warning: str
    seed: int

    @cached_property
    def table(self) -> pd.DataFrame:
        """The ids, and a column of lists: all labels of the row after completion, the most probable first."""
        import pandas as pd

        present = self.added | self.labels.observed.astype(bool)
        names = list_labels(self.classes.tolist(), self.probability.astype(np.float64), present)
        return pd.DataFrame({"item": self.items, "labels": pd.Series(names, dtype=object)})

    def to_long(self) -> pd.DataFrame:
        """A row per item and label: what was observed (value 1 or 0), and what is added (value 1)."""
        import pandas as pd

        observed, negative = self.labels.observed.astype(bool), self.labels.negative.toarray()
        row, column = np.nonzero(observed | negative | self.added)
        is_added = self.added[row, column]
        return pd.DataFrame(
            {
                "item": self.items[row],
                "label": self.classes[column],
                "value": (~negative[row, column]).astype(np.int64),
                "probability": self.probability[row, column],
                "source": np.where(is_added, "completed", "observed"),
            }
        )

    def review(self, n: int = 200) -> pd.DataFrame:
        """The items worth a look, a line per item: item, row, reason ("doubtful" or "random"), expected_errors.

        The expected number of wrong entries of an item is the sum of 1 − p over its added labels and of p over the
        unknown labels that were not added. A fifth of the items is drawn at random from all that have unknown labels.
        """
        import pandas as pd

        check_whole("n", n, 1)
        errors = self._expected_errors()
        is_open = np.flatnonzero(self._unknown.any(1))
        n = min(n, len(is_open))
        shuffled = np.random.default_rng(self.seed).permutation(is_open)
        random = shuffled[: int(np.ceil(_RANDOM_SHARE * n))]
        rest = np.setdiff1d(is_open, random)
        doubtful = rest[np.argsort(-errors[rest], kind="stable")][: n - len(random)]
        rows = np.concatenate([doubtful, random])
        place = np.random.default_rng(self.seed + 1).permutation(n)[: len(random)]  # random rows lie between the others
        is_random = np.zeros(n, bool)
        is_random[place] = True
        order = np.empty(n, np.intp)
        order[is_random], order[~is_random] = len(doubtful) + np.arange(len(random)), np.arange(len(doubtful))
        rows = rows[order]
        return pd.DataFrame(
            {
                "item": self.items[rows],
                "row": rows,
                "reason": np.where(is_random, "random", "doubtful"),
                "expected_errors": errors[rows],
            }
        )

    @property
    def _unknown(self) -> Flags:
        known = self.labels.positive + self.labels.negative
        return ~np.asarray(known.toarray(), bool)

    def _expected_errors(self) -> FloatArray:
        wrong = np.where(self.added, 1 - self.probability, self.probability)
        return np.asarray(np.where(self._unknown, wrong, 0).sum(1), np.float64)


def complete_labels(
    X: Any,
    y: Any,
    *,
    min_precision: float = 0.9,
    groups: Any = None,
    cardinality: float | None = None,
    items: Any = None,
    random_state: int | np.random.RandomState | None = None,
) -> Completion:
    """Add the labels that nobody wrote down, as far as they can be added with the wanted precision.

    Args:
        X: As for `SinglePositiveClassifier.fit`: an array, a data frame, a sparse matrix or a raw table.
        y: Labels as for `SinglePositiveClassifier.fit` with positives="any". What it holds stays as it is.
        min_precision: Of the labels that are added, at least this share is to be right, label by label.
        groups: One value per row; rows with equal values are never judged by each other.
        cardinality: Mean number of labels per row, where it is known.
        items: The ids of the rows; by default those of `Labels`, or the row numbers.
        random_state: Seed of everything random.

    Example:
        >>> from onepos import draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(300))
        >>> observed = draw_single_positive(scenes.Y, random_state=0)
        >>> done = complete_labels(scenes.X, observed, min_precision=0.8, random_state=0)
        >>> done.probability.shape
        (300, 10)
    """
    if not 0 < min_precision <= 1:
        raise ValueError(f"min_precision must lie between 0 and 1; got {min_precision!r}. Pass 0.9 for nine in ten.")
    is_seed = isinstance(random_state, int | np.integer)
    seed = int(random_state) if is_seed else int(check_random_state(random_state).randint(2**31 - 1))  # type: ignore[arg-type]
    encoder = make_encoder("auto", X)
    rows = X if encoder is None else encoder.fit(X).transform(X)
    labels = Labels.read(y, rows.shape[0])
    fit = held_out_probabilities(rows, labels, groups=groups, random_state=seed)
    return _complete(labels, fit.probability, min_precision, cardinality, _read_items(items, labels), seed)


def _read_items(items: Any, labels: Labels) -> npt.NDArray[Any]:
    given = labels.items if items is None else np.asarray(items)
    ids = np.arange(len(labels)) if given is None else given
    if len(ids) != len(labels):
        raise ValueError(
            f"items must name every row; there are {len(labels)} rows and {len(ids)} ids. Pass one id per row."
        )
    return ids


def _complete(
    labels: Labels,
    held_out: torch.Tensor,
    min_precision: float,
    cardinality: float | None,
    items: npt.NDArray[Any],
    seed: int,
) -> Completion:
    observed, negative = labels.observed.astype(bool), np.asarray(labels.negative.toarray(), bool)
    complete = (observed | negative).all(1) & negative.any(1)
    estimate = _estimate(held_out, observed, complete, cardinality)
    if estimate.warning:
        warnings.warn(estimate.warning, UserWarning, stacklevel=3)
    unknown = ~(observed | negative)
    logits = torch.logit(held_out.double().clamp(1e-9, 1 - 1e-9)).numpy()
    probability, low, high = (
        _presence(logits, unknown, observed, complete, prior)
        for prior in (estimate.prior, estimate.lower, estimate.upper)
    )
    probability[observed], probability[negative] = 1, 0
    thresholds = _choose_thresholds(probability, unknown, min_precision)
    added = unknown & (probability > thresholds)
    return Completion(
        items=items,
        classes=labels.classes,
        labels=labels,
        probability=probability.astype(np.float32),
        prior=estimate.prior,
        prior_interval=np.stack([estimate.lower, estimate.upper], 1),
        added=added,
        thresholds=thresholds,
        min_precision=min_precision,
        summary=_summarize(labels, estimate, (probability, low, high), unknown, added),
        calibrated_on=0,
        warning=estimate.warning,
        seed=seed,
    )


def _estimate(held_out: torch.Tensor, observed: Flags, complete: Flags, cardinality: float | None) -> PriorEstimate:
    drawn = ~complete
    options: dict[str, Any] = {"estimator": "bracket", "cardinality": cardinality}
    if complete.sum() >= 2:
        options["labelled"] = observed[complete].astype(np.uint8)
    if complete.sum() < 2 or not observed[drawn].any():
        drawn = np.ones(len(observed), bool)
    seen = observed[drawn].astype(np.uint8)
    probability = without_negatives(held_out[drawn], torch.zeros(seen.shape))
    return estimate_priors(probability, seen, **options)


def _presence(logits: FloatArray, unknown: Flags, observed: Flags, complete: Flags, prior: FloatArray) -> FloatArray:
    """p, (n, c): logits shifted so that the unknown entries of a label hold what its prior leaves."""
    n_left = unknown.sum(0)
    wanted = (~complete).sum() * np.nan_to_num(prior) - observed[~complete].sum(0)
    share = np.clip(wanted / np.maximum(n_left, 1), 0, 1)
    known = np.where(unknown, logits, -1e9)
    shift = shift_to(torch.from_numpy(share * n_left / len(logits)), torch.from_numpy(known)).numpy()
    return np.asarray(1 / (1 + np.exp(-(logits + shift))))


def _choose_thresholds(probability: FloatArray, unknown: Flags, min_precision: float) -> FloatArray:
    """Per label the lowest threshold above which the mean of p over unknown entries is at least `min_precision`."""
    ordered = -np.sort(-np.where(unknown, probability, -1), axis=0)
    mean = np.maximum(ordered, 0).cumsum(0) / np.arange(1, len(ordered) + 1)[:, None]
    count = ((mean >= min_precision) & (ordered >= 0)).sum(0)
    column = np.arange(ordered.shape[1])
    last, after = ordered[np.maximum(count - 1, 0), column], ordered[np.minimum(count, len(ordered) - 1), column]
    return np.where(count == 0, 1.0, (last + np.maximum(after, 0)) / 2)


def _summarize(
    labels: Labels, estimate: PriorEstimate, probabilities: tuple[FloatArray, ...], unknown: Flags, added: Flags
) -> pd.DataFrame:
    import pandas as pd

    n_added = added.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, low, high = (np.where(added, p, 0).sum(0) / n_added for p in probabilities)
        recall = np.where(added, probabilities[0], 0).sum(0) / np.where(unknown, probabilities[0], 0).sum(0)
    return pd.DataFrame(
        {
            "label": labels.classes,
            "observed": labels.observed.sum(0, dtype=np.int64),
            "prior": estimate.prior,
            "prior_low": estimate.lower,
            "prior_high": estimate.upper,
            "added": n_added,
            "expected_precision": mean,
            "precision_low": low,
            "precision_high": high,
            "expected_recall": recall,
            "promised": np.full(len(mean), not estimate.warning),
        }
    )
