"""A verdict on every printed number of CRISP and CRISP-val: which reading of the paper reaches it, if any.

A reading is one way to fill in what the paper leaves open. It reaches a number where its mean is at least as good as
the printed one, or within two standard deviations of it, the larger of the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from crisp_paper.bridges import Evidence
from crisp_paper.paper import ROUNDING
from crisp_paper.printed import (
    NOT_COMPARABLE,
    Key,
    Printed,
    has_features,
    is_below,
    judge,
    printed_cells,
)
from onepos.bench.results import StudyResults
from onepos.bench.statistics import Summary

REACHED = "reached"
TRUE_ONLY = "only with true priors"
NOT_REACHED = "not reached with true priors"
IMPOSSIBLE = "impossible"
OPEN = "open"
KINDS = (REACHED, TRUE_ONLY, NOT_REACHED, IMPOSSIBLE, OPEN, NOT_COMPARABLE)

YES, NEAR, WIDE = "yes", "near", "wide"
HOW = (YES, NEAR, WIDE)
CLOSE = (YES, NEAR)
"""At least as good; within two printed standard deviations; within two of ours, which are larger."""

METHODS = ("crisp", "crisp-val")

_ON_TRAINING, _ON_HELD_OUT = "Eq. (2), training rows, every epoch", "Eq. (2), held-out rows, once"
_OURS = "our estimator, held-out rows, once"
_WORDS, _DEFAULT = "word by word", "our default"
# Methods of the study of readings → where the priors come from, and the training; from the text outwards.
_READINGS = {
    "letter-held-out": (_ON_HELD_OUT, _WORDS),
    "letter-bracket": (_OURS, _WORDS),
    "crisp-estimate": (_ON_TRAINING, _DEFAULT),
    "crisp-held-out": (_ON_HELD_OUT, _DEFAULT),
    "crisp-middle": (_OURS, _DEFAULT),
    "crisp": ("our estimator, lower quartile", _DEFAULT),
}
_TRUE = {"letter-true": ("true priors", _WORDS), "crisp-true": ("true priors", _DEFAULT)}
# Not readings of Eq. (8): another loss in its place.
_OTHER_LOSSES = {
    "crisp-sigmoid": "Eq. (8) without the absolute value",
    "crisp-logistic": "the logistic loss",
    "crisp-squared": "the squared loss",
}


@dataclass(frozen=True)
class Reading:
    """A way to read the paper, and what it gives.

    Attributes:
        number: By which tables name it; the same for both methods.
        priors: Where the class priors come from.
        training: "word by word", or what is changed in it.
        protocol: Under which it was run.
        has_true_priors: Whether it gets the true class priors, which single positives do not tell.
        measured: (Metric, data set) → mean and standard deviation, of the data sets on which all its runs are there.
    """

    number: int
    priors: str
    training: str
    protocol: str
    has_true_priors: bool
    measured: Mapping[tuple[str, str], Summary]


@dataclass(frozen=True)
class Verdict:
    """What became of a printed number.

    Attributes:
        cell: The number.
        kind: One of KINDS.
        how: One of HOW where a reading reaches it, else "".
        reading: The one that decides. Where some are at least as good as printed, the nearest to the text; else, of
            those that reach it in the best way, the one with the best mean; else that with the best mean of all. None
            where none was run.
        ours: What that reading gives.
    """

    cell: Printed
    kind: str
    how: str = ""
    reading: Reading | None = None
    ours: Summary | None = None


def find_readings(evidence: Evidence, method: str = "crisp") -> list[Reading]:
    """The readings of one of METHODS, from the text outwards, those with true priors last; all have numbers."""
    priors = {"crisp": _ON_TRAINING, "crisp-val": "shares in the validation rows"}[method]
    found = [(priors, _WORDS, name, False, _select(*side, method)) for name, *side in _protocols(evidence)]
    for texts, is_true in ((_READINGS, False), (_TRUE, True)):
        found += [
            (*text, "fair", is_true, _select(evidence.readings, evidence.read, name)) for name, text in texts.items()
        ]
    numbered = [Reading(number, *content) for number, content in enumerate(found, 1)]
    n_protocols = len(evidence.bridges) + 2
    return [each for each in numbered if method == "crisp" or each.number <= n_protocols or each.has_true_priors]


def find_verdicts(evidence: Evidence, ways: Sequence[str] = HOW) -> dict[str, list[Verdict]]:
    """Of each of METHODS: one per printed number, in the order printed; `ways` as for `decide`."""
    return {
        method: [
            decide(cell, readings, ways)
            for readings in [find_readings(evidence, method)]
            for cell in printed_cells()
            if cell.method == method
        ]
        for method in METHODS
    }


def decide(cell: Printed, readings: Sequence[Reading], ways: Sequence[str] = HOW) -> Verdict:
    """The verdict on a printed number.

    Args:
        cell: The number.
        readings: All that could reach it.
        ways: Those of HOW that count.
    """
    if not has_features(cell.dataset):
        return Verdict(cell, NOT_COMPARABLE)
    tried = [each for each in readings if (cell.metric, cell.dataset) in each.measured]
    single, true = ([each for each in tried if each.has_true_priors == is_true] for is_true in (False, True))
    if cell.is_impossible:
        return Verdict(cell, IMPOSSIBLE, *_strongest(cell, single, ways))
    if how_reached(cell, single, ways):
        return Verdict(cell, REACHED, *_strongest(cell, single, ways))
    if how_reached(cell, true, ways):
        return Verdict(cell, TRUE_ONLY, *_strongest(cell, true, ways))
    return Verdict(cell, NOT_REACHED if true else OPEN, *_strongest(cell, tried, ways))


def how_reached(cell: Printed, readings: Iterable[Reading], ways: Sequence[str] = HOW) -> str:
    """The best way in which a reading reaches the number; "" where none does."""
    found = {how(cell, each.measured[cell.metric, cell.dataset]) for each in readings}
    return next((word for word in ways if word in found), "")


def how(cell: Printed, ours: Summary) -> str:
    """In which way a mean reaches a printed number, one of HOW; "" where it does not."""
    if not is_below(cell, ours.mean):
        return YES
    if judge(cell, ours) == "worse":
        return ""
    return NEAR if abs(ours.mean - cell.value.mean) <= 2 * (cell.value.std or 0.0) + ROUNDING else WIDE


def count_kinds(verdicts: Iterable[Verdict]) -> Counter[str]:
    """How many of each kind, and "reached, yes" and so on for each way to reach a number."""
    counts: Counter[str] = Counter()
    for each in verdicts:
        counts[each.kind] += 1
        if each.kind == REACHED:
            counts[f"{REACHED}, {each.how}"] += 1
    return counts


def reached_by_other_losses(evidence: Evidence, verdicts: Iterable[Verdict]) -> dict[str, list[Printed]]:
    """Numbers of CRISP that no reading reaches from single positives, but another loss does: loss → numbers."""
    missed = [each.cell for each in verdicts if each.kind in (TRUE_ONLY, NOT_REACHED, OPEN)]
    found = {}
    for method, loss in _OTHER_LOSSES.items():
        side = _select(evidence.readings, evidence.read, method)
        cells = [cell for cell in missed if (cell.metric, cell.dataset) in side]
        found[loss] = [cell for cell in cells if how(cell, side[cell.metric, cell.dataset])]
    return {loss: cells for loss, cells in found.items() if cells}


def _protocols(evidence: Evidence) -> Iterator[tuple[str, StudyResults, Mapping[Key, Summary]]]:
    """Name, results, and what they give."""
    yield "published", evidence.published, evidence.ours
    for bridge in evidence.bridges:
        yield f"published, {bridge.change}", bridge.results, evidence.changed[bridge.change]
    yield "fair", evidence.fair, evidence.changed[evidence.fair.study.name]


def _select(
    results: StudyResults | None, measured: Mapping[Key, Summary], method: str
) -> dict[tuple[str, str], Summary]:
    """(Metric, data set) → what a method gives, where all its runs are there: of fewer points the choice is another."""
    if results is None:
        return {}
    missing = {
        run.dataset
        for run in results.runs
        if run.method == method and results.states.get(run.key()) not in ("done", "skipped")
    }
    return {
        (metric, dataset): summary
        for (metric, dataset, name), summary in measured.items()
        if name == method and dataset not in missing
    }


def _strongest(
    cell: Printed, readings: Sequence[Reading], ways: Sequence[str]
) -> tuple[str, Reading | None, Summary | None]:
    """How, by which reading, and what it gives; see `Verdict.reading`."""
    if not readings:
        return "", None, None
    means = {each.number: each.measured[cell.metric, cell.dataset] for each in readings}
    best = how_reached(cell, readings, ways)
    found = [each for each in readings if how(cell, means[each.number]) == best] if best else readings
    reading = found[0] if best == YES else max(found, key=lambda each: cell.sign * means[each.number].mean)
    return best, reading, means[reading.number]
