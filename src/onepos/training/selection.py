"""Which epoch to keep: the best by one metric, or by the vote of five."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from onepos.metrics import METRICS

MAJORITY = "majority"
"""The rule of the CRISP group's tabular code: the epoch that is the best by most of five metrics.

Of epochs with equally many votes the one met first in the order of `_VOTERS` is taken; where all five differ, the best
by average precision. Within a metric the earliest best epoch counts.
"""

_VOTERS = ("hamming_loss", "coverage", "average_precision", "ranking_loss", "one_error")


class Choice(NamedTuple):
    """The epoch chosen so far, −1 for none, and all that may still be chosen once later epochs are known."""

    best: int
    candidates: frozenset[int]


def measured_by(rule: str) -> tuple[str, ...]:
    """Names of the metrics a rule needs of every epoch; the first is the one to show."""
    if rule != MAJORITY:
        return (rule,)
    return ("average_precision", *(name for name in _VOTERS if name != "average_precision"))


def choose_epoch(series: Mapping[str, Sequence[float]], rule: str, n_skipped: int) -> Choice:
    """The best epoch by a rule.

    Args:
        series: By metric its value in every epoch so far.
        rule: A name in METRICS, or MAJORITY.
        n_skipped: Epochs at the start that do not count.
    """
    best = {name: _best(series[name], METRICS[name].greater_is_better, n_skipped) for name in measured_by(rule)}
    if rule != MAJORITY:
        return Choice(best[rule], frozenset({best[rule]} - {-1}))
    votes = [best[name] for name in _VOTERS]
    most = max(votes.count(epoch) for epoch in votes)
    winner = best["average_precision"] if most == 1 else next(e for e in votes if votes.count(e) == most)
    return Choice(winner, frozenset(votes) - {-1})


def _best(values: Sequence[float], greater_is_better: bool, first: int) -> int:
    """Position of the best value, the earliest of equals; −1 if there is none."""
    known = [k for k in range(first, len(values)) if not math.isnan(values[k])]
    return min(known, key=lambda k: (-values[k] if greater_is_better else values[k], k), default=-1)
