"""How good is it: eight multi-label metrics, a table of them, and a table per label.

Y is the (n, c) 0/1 array of true labels. `scores` order the labels; any increasing transform of them gives
the same ranking metrics, but prefer logits, since sigmoids that saturate at 0 or 1 tie. Ties always count
against the model. When nothing is left to average, the answer is NaN. Where both are data frames, their columns
are matched by name, and rows by position. docs/metrics.md lists every rule.

Y may hold NaN (or None, <NA>) where a label is unknown, or be `Labels`. Unknown entries are left out: a row is ranked
and counted as if it had only its known labels, a label as if there were only the rows where it is known. A row with
unknown entries and no known label is left out of the metrics that are means over rows, since nobody knows whether it
has labels.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onepos.labels import Labels
from onepos.validation import (
    Indicator,
    check_finite,
    check_indicator,
    check_known,
    check_truth,
    find_repeat,
    name_some,
)

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Known = NDArray[np.bool_] | None
"""Which entries of Y are known; None where all are."""

# Sorted blocks of this many scores stay in the processor's cache and bound the extra memory.
_BLOCK = 1 << 18


def ranking_loss(Y: Any, scores: ArrayLike) -> float:
    """Share of (relevant, irrelevant) label pairs in the wrong order, averaged over rows.

    1/(m(c−m)) · #{(j, k): y_j = 1, y_k = 0, s_j ≤ s_k}, m the number of the row's labels. A tied pair is an
    error. Rows with no label, or all of them, have no pair and are skipped.

    Examples:
        >>> ranking_loss([[1, 0, 0]], [[2.0, 3.0, 1.0]])
        0.5
    """
    Y, values, known = _check(Y, scores)
    _, inverted = _rank_sums(Y, values)
    m = np.count_nonzero(Y, axis=1)
    pairs = m * (_count_known(Y, known) - m)
    return _mean(inverted[pairs > 0] / pairs[pairs > 0])


def one_error(Y: Any, scores: ArrayLike) -> float:
    """Share of rows whose top-scored label is irrelevant.

    Where several labels tie for the top, one irrelevant among them is an error. A row without labels is an
    error.

    Examples:
        >>> one_error([[1, 0], [1, 0]], [[2.0, 1.0], [1.0, 1.0]])
        0.5
    """
    Y, values, known = _check(Y, scores)
    if Y.size == 0:
        return float("nan")
    is_top = values == values.max(axis=1, keepdims=True)
    return _mean(np.any(is_top & (Y == 0), axis=1)[_is_kept(Y, known)])


def coverage(Y: Any, scores: ArrayLike) -> float:
    """How far down the ranking one must go to meet all of a row's labels, as a share of c.

    (mean over rows of max{rank_j: y_j = 1} − 1) / c, where rank_j = #{k: s_k ≥ s_j}. Rows without labels add
    0 to the ranks and stay in the mean, so they may make it negative.

    Examples:
        >>> coverage([[1, 0, 1, 0]], [[4.0, 3.0, 2.0, 1.0]])
        0.5
    """
    Y, values, known = _check(Y, scores)
    if Y.size == 0:
        return float("nan")
    worst = np.min(values, axis=1, keepdims=True, where=Y.view(np.bool_), initial=np.inf)
    depth = np.count_nonzero(values >= worst, axis=1)
    if known is None:
        return float((_mean(depth) - 1) / Y.shape[1])
    kept = _is_kept(Y, known)
    return _mean((depth[kept] - 1) / _count_known(Y, known)[kept])


def average_precision(Y: Any, scores: ArrayLike) -> float:
    """Example-based average precision: how pure the ranking is above each relevant label.

    1/m · Σ_{j: y_j = 1} #{k: y_k = 1, s_k ≥ s_j} / #{k: s_k ≥ s_j}, averaged over the rows with m ≥ 1 labels.
    Also known as label-ranking average precision.

    Examples:
        >>> average_precision([[1, 0, 1, 0]], [[4.0, 3.0, 2.0, 1.0]])  # (1/1 + 2/3) / 2
        0.8333333333333333
    """
    Y, values, _ = _check(Y, scores)
    return _mean(_drop_nan(_average_precisions(Y, values)))


def mean_average_precision(Y: Any, scores: ArrayLike, empty: Literal["skip", "zero"] = "skip") -> float:
    """Label-based average precision (mAP): the area under each label's precision-recall steps, averaged.

    The formula of `average_precision` with rows and labels exchanged; tied scores are one threshold. A label
    without positives is left out (`empty="skip"`), or counts 0 as in Cole et al.'s code (`empty="zero"`).

    Examples:
        >>> mean_average_precision([[1, 0], [0, 0]], [[2.0, 1.0], [1.0, 2.0]])
        1.0
        >>> mean_average_precision([[1, 0], [0, 0]], [[2.0, 1.0], [1.0, 2.0]], empty="zero")
        0.5
    """
    if empty not in ("skip", "zero"):
        raise ValueError(f"empty must be 'skip' or 'zero'; {empty!r} was given. Choose one of them.")
    Y, values, _ = _check(Y, scores)
    per_label = _average_precisions(Y.T, values.T)
    return _mean(_drop_nan(per_label) if empty == "skip" else np.nan_to_num(per_label))


def hamming_loss(Y: Any, predicted: Any) -> float:
    """Share of the n·c decisions that are wrong.

    Examples:
        >>> hamming_loss([[1, 0], [1, 0]], [[1, 1], [1, 0]])
        0.25
    """
    Y, decisions, known = _check_decisions(Y, predicted)
    return _mean(decisions != Y if known is None else (decisions != Y)[known])


def macro_f1(Y: Any, predicted: Any) -> float:
    """F1 = 2·TP / (2·TP + FP + FN) per label, averaged over the labels with at least one positive in Y.

    Examples:
        >>> macro_f1([[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 0, 1]])  # 1 and 0; the third has no positive
        0.5
    """
    Y, decisions, _ = _check_decisions(Y, predicted)
    return _mean(_drop_nan(_label_f1(Y, decisions)))


def micro_f1(Y: Any, predicted: Any) -> float:
    """F1 = 2·TP / (2·TP + FP + FN) with the counts summed over all labels.

    Examples:
        >>> micro_f1([[1, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 0, 1]])
        0.5
    """
    Y, decisions, _ = _check_decisions(Y, predicted)
    n_marked = np.count_nonzero(Y) + np.count_nonzero(decisions)
    return float(2 * np.count_nonzero(Y & decisions) / n_marked) if n_marked else float("nan")


@dataclass(frozen=True)
class Metric:
    """One row of the table of metrics; the function takes Y and what it `uses`."""

    name: str
    title: str
    function: Callable[[Any, Any], float]
    greater_is_better: bool
    uses: Literal["scores", "decisions"]

    @property
    def words(self) -> str:
        """The title within a sentence: average precision, but mAP and macro-F1."""
        return self.title[0].lower() + self.title[1:]


METRICS: dict[str, Metric] = {
    "ranking_loss": Metric("ranking_loss", "Ranking loss", ranking_loss, False, "scores"),
    "hamming_loss": Metric("hamming_loss", "Hamming loss", hamming_loss, False, "decisions"),
    "one_error": Metric("one_error", "One-error", one_error, False, "scores"),
    "coverage": Metric("coverage", "Coverage", coverage, False, "scores"),
    "average_precision": Metric("average_precision", "Average precision", average_precision, True, "scores"),
    "map": Metric("map", "mAP", mean_average_precision, True, "scores"),
    "macro_f1": Metric("macro_f1", "Macro-F1", macro_f1, True, "decisions"),
    "micro_f1": Metric("micro_f1", "Micro-F1", micro_f1, True, "decisions"),
}


def evaluate(
    Y: Any,
    scores: ArrayLike,
    threshold: ArrayLike = 0.5,
    names: Iterable[str] | None = None,
    *,
    decisions: Any = None,
) -> dict[str, float]:
    """Compute several metrics at once.

    Where Y holds unknown entries, the answer has two more keys: "unknown_entries", how many entries were left out, and
    "rows_left_out", how many rows were left out of the means over rows.

    Args:
        Y: true labels; NaN where unknown.
        scores: one per row and label.
        threshold: decisions are scores > threshold; one number or one per label, in the order of the scores and
            in their units (0.5 for probabilities, 0 for logits).
        names: keys of METRICS; all by default.
        decisions: the (n, c) 0/1 array of predicted labels, in place of a threshold.

    Examples:
        >>> evaluate([[1, 0], [0, 1]], [[0.9, 0.2], [0.1, 0.4]], names=["ranking_loss", "hamming_loss"])
        {'ranking_loss': 0.0, 'hamming_loss': 0.25}
    """
    indicator, _, known = _check(Y, scores)
    truth = indicator if known is None else np.where(known, indicator, np.nan)
    values = _as_scores(scores)
    chosen = list(METRICS if names is None else names)
    check_known(chosen, METRICS, "unknown metric")
    arguments = {"scores": values, "decisions": _decide(scores, values, threshold, decisions)}
    found = {name: METRICS[name].function(truth, arguments[METRICS[name].uses]) for name in chosen}
    if known is not None:
        found["unknown_entries"] = float(np.count_nonzero(~known))
        found["rows_left_out"] = float(np.count_nonzero(~_is_kept(indicator, known)))
    return found


def per_label(
    Y: Any,
    scores: ArrayLike,
    threshold: ArrayLike = 0.5,
    label_names: Sequence[Any] | None = None,
    *,
    decisions: Any = None,
) -> "pd.DataFrame":
    """One row per label: how common it is, how often it is predicted, and how well.

    Columns: n_positive, share (of the rows: the label's prior), predicted_share, average_precision,
    precision, recall, f1. Of each label those rows count where it is known. A quotient with nothing below the line is
    NaN, and so is f1 where Y has no positive; hence the means of the columns average_precision and f1 are mAP and
    macro-F1. `threshold` and `decisions` are those of `evaluate`; `label_names` are the index of the table, by default
    the columns of the scores, or of Y, where one is a data frame, else the label numbers.

    Examples:
        >>> table = per_label([[1, 0], [1, 1]], [[0.9, 0.2], [0.1, 0.7]], label_names=["sky", "sea"])
        >>> table.loc["sky"].round(2).to_dict()  # doctest: +NORMALIZE_WHITESPACE
        {'n_positive': 2.0, 'share': 1.0, 'predicted_share': 0.5, 'average_precision': 1.0,
         'precision': 1.0, 'recall': 0.5, 'f1': 0.67}
    """
    import pandas as pd

    frames: list[Any] = [each for each in (scores, Y) if _has_names(each)]
    Y, ranked, known = _check(Y, scores)
    values, n_labels = _as_scores(scores), Y.shape[1]
    n_known = np.full(n_labels, len(Y)) if known is None else np.count_nonzero(known, axis=0)
    if label_names is not None and len(label_names) != n_labels:
        raise ValueError(
            f"label_names must hold one name per label, {n_labels}; {len(label_names)} were given. "
            "Name every column of Y."
        )
    if label_names is None:
        label_names = list(frames[0].columns) if frames else range(n_labels)
    chosen = _decide(scores, values, threshold, decisions)
    chosen = chosen if known is None else chosen & known
    n_positive, n_predicted = np.count_nonzero(Y, axis=0), np.count_nonzero(chosen, axis=0)
    n_hits = np.count_nonzero(Y & chosen, axis=0)
    return pd.DataFrame(
        {
            "n_positive": n_positive,
            "share": _ratio(n_positive, n_known),
            "predicted_share": _ratio(n_predicted, n_known),
            "average_precision": _average_precisions(Y.T, ranked.T),
            "precision": _ratio(n_hits, n_predicted),
            "recall": _ratio(n_hits, n_positive),
            "f1": _label_f1(Y, chosen),
        },
        index=pd.Index(label_names, name="label"),
    )


def _rank_sums(Y: Indicator, values: NDArray[Any]) -> tuple[Floats, Floats]:
    """Per row, summed over its positives: precision at the positive, and negatives not ranked below it."""
    precision, inverted = np.zeros(len(Y)), np.zeros(len(Y))
    step = max(1, _BLOCK // max(1, Y.shape[1]))
    for start in range(0, len(Y), step):
        block = slice(start, start + step)
        row, rank, hits = _ranks(np.ascontiguousarray(Y[block]), np.ascontiguousarray(values[block]))
        n_rows = len(Y[block])
        precision[block] = np.bincount(row, hits / rank, minlength=n_rows)
        inverted[block] = np.bincount(row, rank - hits, minlength=n_rows)
    return precision, inverted


def _ranks(Y: Indicator, values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For every positive: its row, #{k: s_k ≥ s_j}, and how many of those k are positives themselves."""
    n_rows, n_labels = Y.shape
    row_start = np.arange(n_rows) * n_labels
    order = np.argsort(values, axis=1)  # ascending
    order += row_start[:, None]
    place = np.flatnonzero(Y.view(np.bool_).ravel().take(order))  # of each positive, in the flattened sorted block
    row = place // max(1, n_labels)
    first = _first_of_tied(np.sort(values, axis=1), place)
    rank = row_start[row] + n_labels - first
    hits = np.searchsorted(place, row_start + n_labels)[row] - np.searchsorted(place, first)
    return row, rank, hits


def _first_of_tied(ordered: NDArray[Any], place: NDArray[np.int64]) -> NDArray[np.int64]:
    """Move each place in the flattened rows of `ordered` to the first one of equal value in its row."""
    is_repeat = np.zeros(ordered.shape, dtype=bool)
    np.equal(ordered[:, 1:], ordered[:, :-1], out=is_repeat[:, 1:])
    if not np.any(is_repeat):
        return place
    starts = np.flatnonzero(~is_repeat)
    return starts[np.searchsorted(starts, place, side="right") - 1]


def _average_precisions(Y: Indicator, values: NDArray[Any]) -> Floats:
    """Average precision of each row, NaN where it has no positive."""
    return _ratio(_rank_sums(Y, values)[0], np.count_nonzero(Y, axis=1))


def _label_f1(Y: Indicator, decisions: Indicator) -> Floats:
    """F1 of each label, NaN where Y has no positive."""
    n_positive = np.count_nonzero(Y, axis=0)
    f1 = _ratio(2 * np.count_nonzero(Y & decisions, axis=0), n_positive + np.count_nonzero(decisions, axis=0))
    return np.where(n_positive > 0, f1, np.nan)


def _ratio(above: NDArray[Any], below: NDArray[Any]) -> Floats:
    ratio = np.full(len(above), np.nan)
    np.divide(above, below, out=ratio, where=below > 0)
    return ratio


def _drop_nan(values: Floats) -> Floats:
    return values[~np.isnan(values)]


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if values.size else float("nan")


def _decide(scores: ArrayLike, values: NDArray[Any], threshold: ArrayLike, decisions: Any) -> Indicator:
    """The decisions given, with columns like those of the scores, or the scores above the threshold."""
    if decisions is not None:
        chosen = check_indicator(_match_columns(decisions, "decisions", scores, "scores"), "decisions")
        _check_shapes(chosen, values, "decisions", "scores")
        return chosen
    limit = np.asarray(threshold, dtype=np.float64)
    if limit.shape not in {(), (values.shape[1],)}:
        raise ValueError(
            f"threshold must be one number, or one for each of the {values.shape[1]} labels; "
            f"its shape is {limit.shape}. Give it in the units of the scores."
        )
    if np.any(np.isnan(limit)):
        place = f"that of label {np.flatnonzero(np.isnan(limit))[0]}" if limit.ndim else "it"
        raise ValueError(f"threshold must be a number; {place} is NaN. Use inf to never predict a label.")
    return (values > limit).view(np.uint8)


def _check(Y: Any, scores: ArrayLike) -> tuple[Indicator, NDArray[Any], Known]:
    """The positives, the scores and what is known; an unknown entry is no positive and has the score −∞, below all."""
    Y, known = _read_truth(_match_columns(Y, "Y", scores, "scores"))
    values = _as_scores(scores)
    _check_shapes(Y, values, "Y", "scores")
    check_finite(values, "scores", "Give logits or probabilities, and look for a training run that diverged.")
    return Y, values if known is None else np.where(known, values, -np.inf), known


def _as_scores(scores: ArrayLike) -> NDArray[Any]:
    values = np.asarray(scores)
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def _read_truth(Y: Any) -> tuple[Indicator, Known]:
    return check_truth(Y.to_array() if isinstance(Y, Labels) else Y, "Y")


def _check_decisions(Y: Any, predicted: Any) -> tuple[Indicator, Indicator, Known]:
    """The positives, the decisions and what is known; an unknown entry is neither positive nor predicted."""
    Y, known = _read_truth(_match_columns(Y, "Y", predicted, "predicted"))
    decisions = check_indicator(predicted, "predicted")
    _check_shapes(Y, decisions, "Y", "predicted")
    return Y, decisions if known is None else decisions & known, known


def _count_known(Y: Indicator, known: Known) -> NDArray[np.intp]:
    """Of each row, how many of its labels are known."""
    return np.full(len(Y), Y.shape[1]) if known is None else np.count_nonzero(known, axis=1)


def _is_kept(Y: Indicator, known: Known) -> NDArray[np.bool_]:
    """Which rows have a known label, or all of whose labels are known."""
    return np.ones(len(Y), bool) if known is None else np.asarray(Y.any(axis=1) | known.all(axis=1))


def _check_shapes(first: NDArray[Any], second: NDArray[Any], *names: str) -> None:
    if first.shape != second.shape:
        raise ValueError(
            f"{' and '.join(names)} must have one shape (n, c); theirs are {first.shape} and {second.shape}. "
            "Give the same rows and labels to both."
        )


def _match_columns(values: Any, name: str, model: Any, model_name: str) -> Any:
    """The columns of a data frame in the order of those of another; whatever has no column names is left as it is."""
    if not (hasattr(values, "columns") and hasattr(model, "columns")):
        return values
    own, wanted = list(values.columns), list(model.columns)
    if own == wanted or _lacks_names(values, wanted) or _lacks_names(model, own):
        return values
    if len(own) == len(wanted) and set(own) == set(wanted) and find_repeat(own) is None:
        return values[wanted]
    differences = [
        f"{name_some(only)} only in {where}"
        for only, where in (
            ([column for column in own if column not in wanted], name),
            ([column for column in wanted if column not in own], model_name),
        )
        if only
    ]
    repeated = [each[repeat[0]] for each in (own, wanted) if (repeat := find_repeat(each))]
    raise ValueError(
        f"the columns of {name} and {model_name} must have the same names, each once; "
        f"{' and '.join(differences) or f'{repeated[0]!r} is there twice'}. "
        "Rename or drop columns, or pass arrays in one order."
    )


def _lacks_names(frame: Any, others: list[Any]) -> bool:
    """Whether the columns of a data frame have no names, while the others have some that are no numbers."""
    return not _has_names(frame) and not any(isinstance(each, int | np.integer) for each in others)


def _has_names(values: Any) -> bool:
    """Whether this is a data frame with names of its columns, not the numbers that pandas puts in their place."""
    return hasattr(values, "columns") and type(values.columns).__name__ != "RangeIndex"
