"""From class priors to decisions: the threshold above which the expected share of rows lies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onepos.priors.estimate import FloatArray


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
    ordered = -np.sort(-np.asarray(scores, np.float64), axis=0)  # (n, c), falling
    share = np.asarray(prior, np.float64)
    n, c = ordered.shape
    count = np.clip(np.rint(np.nan_to_num(share) * n), 0, n).astype(np.int64)
    edges = np.vstack([np.full(c, np.inf), ordered, np.full(c, -np.inf)])
    above, below = edges[count, np.arange(c)], edges[count + 1, np.arange(c)]
    middle = np.where(np.isinf(above), below, np.where(np.isinf(below), above - 1, (above + below) / 2))
    # Where a tie straddles the line, all of it goes to the side that comes nearer to the wanted count.
    with_tie, without = (ordered >= middle).sum(0), (ordered > middle).sum(0)
    take_all = (above == below) & (with_tie - count < count - without)
    return np.where(np.isnan(share), np.nan, np.where(take_all, np.nextafter(middle, -np.inf), middle))


def make_thresholds(threshold: float | str, probability: FloatArray, prior: FloatArray) -> FloatArray:
    """One threshold per label, (c,): the same number for all, or with "prior" matched to the class priors."""
    if threshold != "prior":
        return np.full(probability.shape[1], float(threshold))
    matched = match_thresholds(probability, prior)
    return np.where(np.isnan(matched), 0.5, matched)  # an unknown prior can not be matched
