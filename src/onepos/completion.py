"""From one label per row to all labels, with a stated precision: `complete_labels`.

Every row is judged by models that did not learn from its label (`methods.crossfit`), class priors set the scale
(`priors`, "bracket"), and `methods.presence` makes of both the probability that a label is present, given what is known
of the row. A label is added where this probability exceeds its threshold, the lowest above which the mean of cautious
probabilities is at least the wanted precision. docs/complete.md says how far that can be relied on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import binom

from onepos.exchange.coco import make_coco
from onepos.exchange.entries import Entries
from onepos.exchange.hugging_face import make_dataset
from onepos.exchange.label_studio import LabelStudioProject, make_project
from onepos.labels import Labels, list_labels
from onepos.methods.base import Watch
from onepos.methods.crossfit import judge_rows, read_seed, without_negatives
from onepos.methods.presence import (
    Calibration,
    Known,
    calibrate,
    logit,
    presence,
    presence_at,
    prior_at,
    sigmoid,
)
from onepos.priors import FloatArray, PriorEstimate, estimate_priors
from onepos.tables.choice import make_encoder
from onepos.validation import check_whole

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset

Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]

# Of the items of a review, the share that is drawn at random.
_RANDOM_SHARE = 0.2
# Standard deviations by which the probabilities are lowered that the thresholds are chosen by; the second number is for
# data that leave open how many labels a row has.
_CAUTION, _MORE_CAUTION = 0.25, 0.5
# Standard deviations of the priors and of the calibration that an interval of the precision reaches, chosen by how many
# intervals held the true precision in development draws; and the chance to lie below or above beyond that.
_ENDS, _TAIL = 1.1, 0.05
# A precision is promised where so many reviewed rows calibrate and the lower end of its interval is at least this share
# of the wanted one.
_ENOUGH_REVIEWED, _LEAST_SHARE = 20, 2 / 3
# The number of labels per row is open where the ends of its interval differ by more than this factor.
_OPEN = 2.0


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
        summary: A line per label: observed (rows), prior with its interval, added (rows), the share of the added
            labels expected to be right with its 90 % interval, the share of the hidden labels expected to be found,
            and whether the precision is promised: it is with at least 20 reviewed rows, if the interval does not begin
            below two thirds of `min_precision`.
        calibrated_on: Number of reviewed rows by which the probabilities were calibrated.
        warning: Why the precision is not promised, and what can be done; empty where it is.
        held_out: Probability that each label is the observed one of the row, by models that did not see it, (n, c).
        seed: Of the random rows of a review.

    Example:
        >>> import numpy as np
        >>> from onepos import complete_labels
        >>> known = [[1, np.nan], [np.nan, 1], [1, 0]]                # NaN: nobody looked
        >>> held_out = [[0.6, 0.4], [0.3, 0.7], [0.9, 0.1]]           # as an earlier completion left it
        >>> done = complete_labels(None, known, held_out=held_out, min_precision=0.5, random_state=0)
        >>> done.to_long().columns.tolist()
        ['item', 'label', 'value', 'probability', 'source']
        >>> len(done.table), done.calibrated_on
        (3, 1)
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
    held_out: Floats
    seed: int

    @cached_property
    def table(self) -> pd.DataFrame:
        """The ids, and a column of lists with all labels of the row after completion, the most probable first."""
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

        Args:
            n: How many items, at most.
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
    def entries(self) -> Entries:
        """What is known and what is added, as the writers of `onepos.exchange` take it."""
        return Entries.of(self.labels, self.items, self.added, self.probability)

    def to_label_studio(
        self, columns: Any = None, *, images: Sequence[str] | None = None, review: int | None = None
    ) -> LabelStudioProject:
        """Tasks for Label Studio, and its labeling configuration: per label a choice of yes, no and unsure.

        Known and added labels are filled in before an annotator looks at an item; fully known items are annotated
        already. `read_answers` reads what Label Studio exports.

        Args:
            columns: What an annotator sees of each row: a data frame, or names and lists of cells.
            images: The address of each row's image, as Label Studio opens it.
            review: Only so many items, those most worth a look, in their order; by default all.
        """
        if review is None:
            return make_project(self.entries, columns, images=images)
        chosen = self.review(review)
        rows, reasons = chosen["row"].tolist(), chosen["reason"].tolist()
        return make_project(self.entries, columns, images=images, rows=rows, reasons=reasons)

    def to_coco(self) -> dict[str, Any]:
        """Labels of images as in COCO and LVIS, with what is known to be absent; for `json.dump`."""
        return make_coco(self.entries)

    def to_datasets(self, columns: Any = None) -> Dataset:
        """A `datasets.Dataset` with a row per item: item, labels, absent, added, probability, and further columns.

        Args:
            columns: What to put beside the labels: a data frame, or a dictionary of lists, with a row per item.
        """
        return make_dataset(self.entries, columns)

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
    random_rows: Any = None,
    held_out: Any = None,
    random_state: int | np.random.RandomState | None = None,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Completion:
    """Add the labels that nobody wrote down, as far as they can be added with the wanted precision.

    Rows of which all labels are known, some of them to be absent, are taken as a random sample: they calibrate the
    probabilities and count for the class priors. `random_rows`, or `Labels.at_random`, says otherwise.

    Args:
        X: As for `SinglePositiveClassifier.fit`: an array, a data frame, a sparse matrix or a raw table. None with
            `held_out`.
        y: Labels as for `SinglePositiveClassifier.fit` with positives="any". What it holds stays as it is.
        min_precision: Of the labels that are added, at least this share is to be right, label by label.
        groups: One value per row; rows with equal values are never judged by each other.
        cardinality: Mean number of labels per row, where it is known.
        items: The ids of the rows; by default those of `Labels`, or the row numbers.
        random_rows: Which reviewed rows were drawn at random, as a mask or as row numbers; only these calibrate. With
            it, rows of which some entries were reviewed count too, by these. By default all fully reviewed rows.
        held_out: What was made before, `Completion.held_out`; then nothing is trained.
        random_state: Seed of everything random.
        on_progress: Called with what is being done, how much of it is done, and how much there is.

    Example:
        >>> from onepos import draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(500))
        >>> observed = draw_single_positive(scenes.Y, random_state=0)
        >>> known = observed.astype(float)
        >>> known[known == 0] = np.nan
        >>> known[:50] = scenes.Y[:50]                           # 50 rows were reviewed
        >>> done = complete_labels(scenes.X, known, min_precision=0.7, random_state=0)
        >>> done.calibrated_on, done.probability.shape
        (50, (500, 10))
    """
    if not isinstance(min_precision, int | float | np.number) or not 0 < min_precision <= 1:
        raise ValueError(
            f"min_precision must be a number above 0, at most 1; got {min_precision!r}. Pass 0.9 for nine in ten right."
        )
    seed = read_seed(random_state)
    if held_out is None:
        encoder = make_encoder("auto", X)
        rows = X if encoder is None else encoder.fit(X).transform(X)
        labels = Labels.read(y, int(np.shape(rows)[0]))
        watch = Watch() if on_progress is None else Watch(tell=on_progress)
        judged = judge_rows(rows, labels, groups=groups, seed=seed, watch=watch).probability.cpu().numpy()
    else:
        judged = np.asarray(held_out, np.float32)
        labels = Labels.read(y, len(judged))
        _check_held_out(judged, labels)
    known = _read_known(labels)
    sample = _read_sample(random_rows, known, labels)
    estimate = _estimate(judged, known, sample, cardinality)
    return _complete(labels, known, sample, judged, estimate, min_precision, _read_items(items, labels), seed)


def _check_held_out(held_out: Floats, labels: Labels) -> None:
    if held_out.shape != labels.positive.shape:
        raise ValueError(
            f"held_out must have a row per row and a column per label, {labels.positive.shape}; its shape is "
            f"{held_out.shape}. Pass Completion.held_out of the same rows and labels."
        )
    total = held_out.sum(1, dtype=np.float64)
    if not bool((np.abs(total - 1) < 1e-3).all()) or float(held_out.min()) < 0:
        row = int(np.abs(total - 1).argmax())
        raise ValueError(
            f"the rows of held_out must sum to 1 and hold no number below 0; row {row} sums to {total[row]:.4g}. Pass "
            "Completion.held_out."
        )


def _read_known(labels: Labels) -> Known:
    positive, negative = labels.observed.astype(bool), np.asarray(labels.negative.toarray(), bool)
    return Known(positive, negative, (positive | negative).all(1) & negative.any(1))


def _read_sample(random_rows: Any, known: Known, labels: Labels) -> Flags:
    """The rows that calibrate, (n,)."""
    if random_rows is None:
        return known.complete if labels.at_random is None else known.complete & labels.at_random
    given, n = np.asarray(random_rows), len(known.complete)
    is_mask = given.dtype == bool and given.shape == (n,)
    is_rows = given.ndim == 1 and given.dtype.kind in "iu" and (len(given) == 0 or 0 <= given.min() <= given.max() < n)
    if not is_mask and not is_rows and given.size:
        raise ValueError(
            f"random_rows must be a mask of {n} rows or hold row numbers from 0 to {n - 1}; got an array of shape "
            f"{given.shape} and type {given.dtype}. Pass the rows that were drawn at random."
        )
    sample = np.zeros(n, bool)
    sample[given if given.size else []] = True
    return sample & known.negative.any(1)


def _read_items(items: Any, labels: Labels) -> npt.NDArray[Any]:
    given = labels.items if items is None else np.asarray(items)
    ids = np.arange(len(labels)) if given is None else given
    if ids.shape != (len(labels),):
        raise ValueError(
            f"items must name every row, {len(labels)} in all; its shape is {ids.shape}. Pass one id per row."
        )
    return ids


def _estimate(held_out: Floats, known: Known, sample: Flags, cardinality: float | None) -> PriorEstimate:
    """Class priors by the bracket, and by the fully reviewed rows of the random sample."""
    drawn, labelled = ~known.complete, known.complete & sample
    if not known.positive[drawn].any():
        drawn = np.ones(len(drawn), bool)
    options: dict[str, Any] = {"estimator": "bracket", "cardinality": cardinality}
    if labelled.sum() >= 2:
        options["labelled"] = known.positive[labelled].astype(np.uint8)
    probability = torch.from_numpy(held_out[drawn])
    negative = known.negative[drawn]
    if negative.any():
        probability = without_negatives(probability, torch.from_numpy(negative.astype(np.uint8)))
        probability[probability.sum(1) == 0] = 1 / probability.shape[1]
    return estimate_priors(probability, known.positive[drawn].astype(np.uint8), **options)


def _complete(
    labels: Labels,
    known: Known,
    sample: Flags,
    held_out: Floats,
    estimate: PriorEstimate,
    min_precision: float,
    items: npt.NDArray[Any],
    seed: int,
) -> Completion:
    raw = presence(held_out, known, estimate)
    calibration = calibrate(raw, known, sample)
    warning = _judge_basis(estimate, calibration)
    if warning:
        warnings.warn(warning, UserWarning, stacklevel=3)
    unknown = known.unknown
    probability = calibration.apply(raw)
    caution = _MORE_CAUTION if warning and _is_open(estimate) else _CAUTION
    cautious = calibration.apply(presence(held_out, known, estimate, caution), caution)
    thresholds, added = _decide(probability, cautious, unknown, min_precision)
    sure = np.where(unknown, probability, known.positive).astype(np.float32)
    ends = [
        _mean_of_added(calibration.apply(presence_at(held_out, known, prior_at(estimate, level))), added)
        for level in (-_ENDS, _ENDS)
    ]
    return Completion(
        items=items,
        classes=labels.classes,
        labels=labels,
        probability=sure,
        prior=estimate.prior,
        prior_interval=np.stack([estimate.lower, estimate.upper], 1),
        added=added,
        thresholds=thresholds,
        min_precision=float(min_precision),
        summary=_summarize(
            labels,
            estimate,
            calibration,
            (probability, ends),
            unknown,
            added,
            np.inf if warning else min_precision * _LEAST_SHARE,
        ),
        calibrated_on=calibration.n_rows,
        warning=warning,
        held_out=held_out,
        seed=seed,
    )


def _is_open(estimate: PriorEstimate) -> bool:
    """Whether one label per row leaves open how many labels a row has."""
    low, high = estimate.cardinality_interval
    return high > _OPEN * low


def _judge_basis(estimate: PriorEstimate, calibration: Calibration) -> str:
    """Why the precision is not promised; empty where it is."""
    if calibration.n_rows >= _ENOUGH_REVIEWED:
        return ""
    low, high = estimate.cardinality_interval
    if _is_open(estimate):
        return (
            "the precision of the added labels is not promised: the mean number of labels per row may lie anywhere "
            f"from {low:.2g} to {high:.2g}, and all probabilities scale with it. Review about 50 rows drawn at random; "
            "the mean alone, if it is known, helps too: pass it as cardinality."
        )
    return (
        f"the precision of the added labels is not promised: it was checked on {calibration.n_rows} reviewed rows, and "
        f"at least {_ENOUGH_REVIEWED} are needed. Review about 50 rows drawn at random."
    )


def _decide(
    probability: FloatArray, cautious: FloatArray, unknown: Flags, min_precision: float
) -> tuple[FloatArray, Flags]:
    """Thresholds (c,), and the unknown entries above them, (n, c).

    Of each label as many entries are added, from the most probable on, as leave the mean of their cautious
    probabilities at least `min_precision`. Both kinds of probabilities have the same order within a label.
    """
    n, c = probability.shape
    thresholds, added = np.ones(c), np.zeros((n, c), bool)
    for j in range(c):
        rows = np.flatnonzero(unknown[:, j])
        rows = rows[np.argsort(-probability[rows, j], kind="stable")]
        mean = np.cumsum(cautious[rows, j]) / np.arange(1, len(rows) + 1)
        count = int((mean >= min_precision).sum())
        if count == 0:
            continue
        last = probability[rows[count - 1], j]
        after = probability[rows[count], j] if count < len(rows) else 0.0
        # Tied entries are added together or not at all.
        thresholds[j] = (last + after) / 2 if after < last else last
        added[rows, j] = probability[rows, j] > thresholds[j]
    return thresholds, added


def _mean_of_added(values: FloatArray, added: Flags) -> FloatArray:
    """Mean over the added entries of each label, (c,); NaN without any."""
    count = added.sum(0)
    total = np.where(added, values, 0.0).sum(0)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def _summarize(
    labels: Labels,
    estimate: PriorEstimate,
    calibration: Calibration,
    probabilities: tuple[FloatArray, list[FloatArray]],
    unknown: Flags,
    added: Flags,
    least: float,
) -> pd.DataFrame:
    import pandas as pd

    probability, ends = probabilities
    count = added.sum(0)
    mean = _mean_of_added(probability, added)
    hidden = np.where(unknown, probability, 0.0).sum(0)
    low, high = _interval_of_precision(mean, ends, count, calibration)
    return pd.DataFrame(
        {
            "label": labels.classes,
            "observed": labels.observed.sum(0, dtype=np.int64),
            "prior": estimate.prior,
            "prior_low": estimate.lower,
            "prior_high": estimate.upper,
            "added": count,
            "expected_precision": mean,
            "precision_low": low,
            "precision_high": high,
            "expected_recall": np.where(added, probability, 0.0).sum(0) / np.maximum(hidden, 1e-12),
            "promised": np.nan_to_num(low) >= least,
        }
    )


def _interval_of_precision(
    mean: FloatArray, ends: list[FloatArray], count: npt.NDArray[np.int64], calibration: Calibration
) -> tuple[FloatArray, FloatArray]:
    """Ends of the 90 % intervals of the share of right additions, (c,) each; NaN where nothing was added.

    Two errors of the logit of the mean are taken together, as if they were independent: from the mean to that with
    higher or lower priors, and of the calibration. Then comes the chance in `count` additions.
    """
    middle = logit(mean)
    fixed = (_ENDS * calibration.error(middle)) ** 2
    outer = [
        sigmoid(middle + sign * np.sqrt((logit(end) - middle) ** 2 + fixed))
        for sign, end in zip((-1, 1), ends, strict=True)
    ]
    n = np.maximum(count, 1)
    found = [binom.ppf(tail, n, np.nan_to_num(p)) / n for tail, p in zip((_TAIL, 1 - _TAIL), outer, strict=True)]
    low, high = (np.where(count > 0, each, np.nan) for each in found)
    return low, high
