"""From probabilities and class priors to decisions: thresholds by several rules, and the labels they give.

`make_thresholds` serves the benchmark, with all rows at hand. A fitted model keeps a `DecisionCurve`, from which the
thresholds of every rule follow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from onepos.priors.estimate import FloatArray, IntArray
from onepos.validation import check_whole

RULES = ("prior", "f1", "hamming")
"""The rules that give a row at least `min_labels` labels; the others are a number and "precision=P"."""

# Points of a curve: shares of the rows in equal ratios and in equal steps. Of 983 labels they take 0.9 MB.
_RATIOS, _STEPS = 72, 40
_BLOCK = 1 << 22  # probabilities that are sorted at a time
_HALVINGS = 30
_UNKNOWN = 0.5  # threshold of a label whose prior is unknown: there is nothing to match, and its scores mean little


class Rule(NamedTuple):
    """How labels are chosen.

    Attributes:
        name: One of RULES, "number" or "precision".
        value: The number, or the precision; NaN for the other rules.
    """

    name: str
    value: float


def read_rule(threshold: Any) -> Rule:
    """The rule that `threshold` names, or a ValueError."""
    if isinstance(threshold, str):
        if threshold in RULES:
            return Rule(threshold, float("nan"))
        name, _, text = threshold.partition("=")
        value = _read_share(text) if name == "precision" else None
    else:
        name, value = "number", _read_share(threshold) if isinstance(threshold, int | float | np.number) else None
    if value is None:
        raise ValueError(
            "threshold must be a number from 0 to 1, 'prior', 'f1', 'hamming' or 'precision=P' with P from 0 to 1; got "
            f"{threshold!r}."
        )
    return Rule(name, value)


def _read_share(value: Any) -> float | None:
    """A number from 0 to 1; None where it is none."""
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number <= 1 else None


class DecisionCurve(NamedTuple):
    """What the rules need of the probabilities of the training rows, label by label.

    Of every label the n probabilities are sorted, p_1 ≥ … ≥ p_n, and the curve keeps some points of them: for m ranks
    k from 0 to n, the threshold that the k highest exceed, and their sum.

    Attributes:
        rank: k, (m,), ascending from 0 to n.
        threshold: (m, c), in single precision; halfway between p_k and p_(k+1), 1 for k = 0.
        total: p_1 + … + p_k, (m, c), in single precision.
        matched: Thresholds of the rule "prior", (c,); NaN where the prior is unknown.
        min_labels: Labels that a row gets at least by the rules in RULES.
    """

    rank: IntArray
    threshold: npt.NDArray[np.float32]
    total: npt.NDArray[np.float32]
    matched: FloatArray
    min_labels: int

    def choose(self, threshold: Any) -> tuple[FloatArray, int]:
        """Thresholds (c,) of a rule, and how many labels each row gets at least.

        A label is predicted where its probability exceeds its threshold.

        Args:
            threshold: A number for all labels. "prior": as many training rows have the label as its class prior states,
                with the labels counted that `min_labels` adds. "f1": the expected F1 of the label is largest.
                "hamming": 0.5, by which the expected number of wrong entries is smallest. "precision=0.9": the lowest
                threshold above which the mean probability is at least 0.9; 1, which nothing exceeds, where there is
                none.
        """
        rule = read_rule(threshold)
        if rule.name == "number":
            return np.full(len(self.matched), rule.value), 0
        if rule.name == "precision":
            return self._reach_precision(rule.value), 0
        thresholds = self.matched
        if rule.name != "prior":
            thresholds = self._maximize_f1() if rule.name == "f1" else np.full(len(self.matched), 0.5)
        return np.where(np.isnan(self.matched), _UNKNOWN, thresholds), self.min_labels

    def _maximize_f1(self) -> FloatArray:
        """Half of the largest expected F1, F* = max_k 2·S_k/(k + S_n), (c,).

        One more row makes 2·S/(k + S_n) larger exactly if its probability exceeds half of it, so {p > F*/2} is the best
        set. F* is flat about its maximum, so the points of the curve give it well.
        """
        total = self.total.astype(np.float64)
        half: FloatArray = (total[1:] / (self.rank[1:, None] + total[-1])).max(0)
        return half

    def _reach_precision(self, precision: float) -> FloatArray:
        """Where S_k − precision·k falls below 0, (c,).

        The means fall with k, so the points of the curve that are high enough come first. Between the last of them and
        the next one, S_k − precision·k lies above its chord; as far as the chord is not negative, the mean is high
        enough.
        """
        total, threshold = self.total.astype(np.float64), self.threshold.astype(np.float64)
        spare = total - precision * self.rank[:, None] + 1e-6 * total  # single precision has rounded the sums
        last = (spare[1:] >= 0).sum(0)
        after, column = np.minimum(last + 1, len(self.rank) - 1), np.arange(threshold.shape[1])
        width = np.maximum(self.rank[after] - self.rank[last], 1)
        here, there = spare[last, column], spare[after, column]
        rows = np.floor(width * here / np.maximum(here - there, 1e-300))
        part = np.where(last == after, 0.0, rows / width)
        between = (1 - part) * threshold[last, column] + part * threshold[after, column]
        return np.where(last == 0, 1.0, between)


def make_curve(probability: FloatArray, prior: FloatArray, min_labels: int) -> DecisionCurve:
    """The curve of the probabilities (n, c) of rows, and thresholds that match the prior (c,)."""
    n, c = probability.shape
    ratios, steps = np.geomspace(1, n, _RATIOS), np.linspace(0, n, _STEPS)
    rank = np.unique(np.rint(np.concatenate([ratios, steps])).astype(np.int64))
    if n <= _RATIOS + _STEPS:
        rank = np.arange(n + 1)
    threshold, total = np.empty((2, len(rank), c), np.float32)
    for columns in np.array_split(np.arange(c), max(1, probability.size // _BLOCK)):
        part = _sort(probability[:, columns])
        total[0, columns] = 0
        total[1:, columns] = np.add.reduceat(part, rank[:-1], axis=0).cumsum(0)
        above, below = part[rank[1:] - 1], part[np.minimum(rank[1:], n - 1)]
        below[-1] *= 1 - 4e-6  # so that the halfway point is below the last
        threshold[0, columns] = 1
        threshold[1:, columns] = _round_up((above + below) / 2)
    return DecisionCurve(rank, threshold, total, _match_with_least(probability, prior, min_labels), min_labels)


def _round_up(values: FloatArray) -> npt.NDArray[np.float32]:
    """To single precision: a threshold at tied probabilities must not fall below them."""
    rounded = values.astype(np.float32)
    return np.where(rounded < values, np.nextafter(rounded, np.float32(np.inf)), rounded)


def _match_with_least(probability: FloatArray, prior: FloatArray, min_labels: int) -> FloatArray:
    """Thresholds (c,) by which the mean number of labels is Σπ, those counted that `min_labels` adds.

    These would come on top of shares that are π already. So the shares are s·π, with the s from 0 to 1 that comes
    nearest.
    """
    known = ~np.isnan(prior)
    matched = np.full(len(prior), np.nan)
    if not known.any():
        return matched
    scores, share = (probability, prior) if known.all() else (probability[:, known], prior[known])
    ordered = _sort(scores)
    wanted = float(share.sum()) * len(scores)

    def excess(factor: float) -> float:
        count = (scores > _match(ordered, factor * share)).sum(1)
        return float(np.maximum(count, min_labels).sum()) - wanted

    factor = _find_root(excess) if min_labels else 1.0
    matched[known] = _match(ordered, factor * share)
    return matched


def _find_root(excess: Any) -> float:
    """Where a function that does not fall on [0, 1] comes nearest to 0; 1 where it stays below."""
    low, high = 0.0, 1.0
    at_low, at_high = excess(low), excess(high)
    if at_high <= 0 or at_low >= 0:
        return high if at_high <= 0 else low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        value = excess(middle)
        if value > 0:
            high, at_high = middle, value
        else:
            low, at_low = middle, value
    return high if at_high < -at_low else low


def decide(probability: FloatArray, thresholds: FloatArray, min_labels: int = 0) -> npt.NDArray[np.int64]:
    """The labels whose probabilities exceed their thresholds, (n, c) of 0 and 1.

    A row with fewer than `min_labels` also gets its most probable other labels, up to that number. Where a probability
    is NaN, the label is not predicted.

    Args:
        probability: (n, c).
        thresholds: (c,).
        min_labels: Labels of each row at least.

    Example:
        >>> decide(np.array([[0.6, 0.7], [0.2, 0.3]]), np.array([0.5, 0.5]), min_labels=1)
        array([[1, 1],
               [0, 1]])
    """
    chosen = probability > thresholds
    if min_labels:
        few = np.flatnonzero(chosen.sum(1) < min_labels)
        chosen[few] = _most_probable(np.where(chosen[few], np.inf, probability[few]), min_labels)
    return chosen.astype(np.int64)


def decide_top(probability: FloatArray, top_k: int) -> npt.NDArray[np.int64]:
    """The `top_k` most probable labels of each row, (n, c) of 0 and 1; of tied labels the first. None where NaN.

    Example:
        >>> decide_top(np.array([[0.6, 0.7, 0.1]]), 2)
        array([[1, 1, 0]])
    """
    check_top_k(top_k, probability.shape[1])
    return _most_probable(probability, top_k).astype(np.int64)


def check_top_k(top_k: int, n_labels: int) -> None:
    """Raise a ValueError where a row can not have so many labels."""
    check_whole("top_k", top_k, 1)
    if top_k > n_labels:
        raise ValueError(f"top_k must be at most {n_labels}, the number of labels; got {top_k}.")


def _most_probable(probability: FloatArray, k: int) -> npt.NDArray[np.bool_]:
    chosen = np.zeros(probability.shape, bool)
    np.put_along_axis(chosen, np.argsort(-probability, axis=1, kind="stable")[:, :k], True, axis=1)
    return chosen & ~np.isnan(probability)


def match_thresholds(scores: npt.ArrayLike, prior: npt.ArrayLike) -> FloatArray:
    """Per label the threshold above which lie the share π_j of these rows with the highest scores, (c,).

    It lies halfway between the last score above and the first below. Tied scores are kept together: the label gets as
    few rows more or less as ties allow. NaN where the prior is unknown.

    Args:
        scores: (n, c), larger means more likely.
        prior: (c,) share of rows to lie above.

    Example:
        >>> match_thresholds([[0.9], [0.7], [0.3], [0.1]], [0.5])
        array([0.5])
    """
    return _match(_sort(np.asarray(scores, np.float64)), np.asarray(prior, np.float64))


def _sort(scores: FloatArray) -> FloatArray:
    """Every column from its highest to its lowest."""
    return -np.sort(-scores, axis=0)


def _match(ordered: FloatArray, share: FloatArray) -> FloatArray:
    """`match_thresholds` of scores whose columns fall."""
    n, c = ordered.shape
    column = np.arange(c)
    count = np.clip(np.rint(np.nan_to_num(share) * n), 0, n).astype(np.int64)
    above, below = ordered[np.maximum(count - 1, 0), column], ordered[np.minimum(count, n - 1), column]
    middle = np.where(count == 0, below, np.where(count == n, above - 1, (above + below) / 2))
    # Where a tie straddles the line, all of it goes to the side that comes nearer to the wanted count.
    tied = np.flatnonzero((above == below) & (count > 0) & (count < n))
    with_tie, without = ((compare(ordered[:, tied], middle[tied])).sum(0) for compare in (np.greater_equal, np.greater))
    take_all = np.zeros(c, bool)
    take_all[tied] = with_tie - count[tied] < count[tied] - without
    return np.where(np.isnan(share), np.nan, np.where(take_all, np.nextafter(middle, -np.inf), middle))


def make_thresholds(threshold: float | str, probability: FloatArray, prior: FloatArray) -> FloatArray:
    """One threshold per label, (c,): the same number for all, or with "prior" matched to the class priors."""
    if threshold != "prior":
        return np.full(probability.shape[1], float(threshold))
    matched = match_thresholds(probability, prior)
    return np.where(np.isnan(matched), _UNKNOWN, matched)  # an unknown prior can not be matched
