"""The numbers printed in the paper (paper.json, made by scripts/make_paper_numbers.py), and what is wrong with them.

A number is found by its metric, data set and method, named as in METRICS, DATASETS and METHODS; two more metrics are
the times of the paper, `prior_time` and `epoch_time`. Tables of variants repeat the numbers of the paper's own method;
here each number stands once, in the table with all methods.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from crisp_paper.signed_ranks import SignedRanks, signed_ranks
from onepos.bench.statistics import Outcome
from onepos.metrics import METRICS

ROUNDING = 0.0005
"""How far a printed score may lie from the computed one: three decimals are printed."""


@dataclass(frozen=True)
class PaperCell:
    """A printed number.

    Attributes:
        mean: Over five trials.
        std: None where none is printed. The paper does not say whether it divides by n or n − 1.
    """

    mean: float
    std: float | None


@dataclass(frozen=True)
class PaperTable:
    """A printed table, or the part of one that is about one metric.

    Attributes:
        label: What the LaTeX source of the paper calls it.
        metric: A key of METRICS, or one of the two times.
        scale: A value of METRICS times this is in the units printed: 100 for percent. None where the paper states no
            unit, as for the times.
        rows: Method → data set → number, in the order printed.
    """

    label: str
    metric: str
    scale: float | None
    rows: dict[str, dict[str, PaperCell]]


@dataclass(frozen=True)
class PaperTest:
    """A printed Wilcoxon test of the paper's method against another, over the tabular data sets.

    Attributes:
        outcome: At the 0.05 level, as printed.
        p: As printed.
    """

    outcome: Outcome
    p: float


@dataclass(frozen=True)
class Fault:
    """A printed number that can not be, or does not follow from the other printed numbers.

    Attributes:
        label: Of the table.
        metric: Of the number.
        dataset: None for a test over all data sets.
        method: Of the number; for a test, the method tested against.
        reason: One sentence.
    """

    label: str
    metric: str
    dataset: str | None
    method: str
    reason: str


@cache
def paper_tables() -> tuple[PaperTable, ...]:
    """All tables of results."""
    return tuple(
        PaperTable(
            table["label"],
            table["metric"],
            table["scale"],
            {
                method: {dataset: PaperCell(mean, std) for dataset, (mean, std) in row.items()}
                for method, row in table["rows"].items()
            },
        )
        for table in _read()["tables"]
    )


def paper_value(metric: str, dataset: str, method: str) -> PaperCell | None:
    """The printed number, in the units printed; None where the paper has none.

    Example:
        >>> own_method, _ = paper_tests()
        >>> paper_value("ranking_loss", "yeast", own_method)
        PaperCell(mean=0.164, std=0.001)
    """
    rows = (table.rows for table in paper_tables() if table.metric == metric)
    found = (row[method][dataset] for row in rows if dataset in row.get(method, ()))
    return next(found, None)


def paper_tests() -> tuple[str, dict[str, dict[str, PaperTest]]]:
    """The paper's own method, and metric → method it is tested against → the printed test."""
    table = _read()["wilcoxon"]
    rows = {
        metric: {method: PaperTest(outcome, p) for method, (outcome, p) in row.items()}
        for metric, row in table["rows"].items()
    }
    return table["reference"], rows


def paper_datasets() -> dict[str, dict[str, Any]]:
    """Data set → what the paper states of it: the label of the table, counts, and the domain of tabular ones."""
    datasets: dict[str, dict[str, Any]] = _read()["datasets"]
    return datasets


def repeat_test(metric: str, method: str) -> SignedRanks:
    """The paper's Wilcoxon test of its own method against another, from its printed means."""
    reference, _ = paper_tests()
    rows = next(table.rows for table in paper_tables() if table.metric == metric and reference in table.rows)
    ours, theirs = ([cell.mean for cell in rows[name].values()] for name in (reference, method))
    return signed_ranks(ours, theirs, greater_is_better=METRICS[metric].greater_is_better)


def find_faults() -> tuple[Fault, ...]:
    """Check the printed numbers against each other.

    - In every row with a label, coverage is at least ranking loss·(c−1)/c: the share of irrelevant labels before the
      last relevant one is at least the mean over the relevant ones. Printed means are off by half of the last digit.
    - A standard deviation over ten times that of any other method on the same data set is taken for a misprint.
    - Each printed p-value is compared with the test repeated from the printed means. Where means are equal as printed,
      the fourth digit, which is not printed, may have made the difference.
    """
    return (*find_impossible(), *_odd_spreads(), *_tests_that_do_not_follow())


def find_impossible() -> Iterator[Fault]:
    """Numbers that contradict another one of the same row: the first rule of `find_faults`."""
    for table, dataset, method, cell in _numbers():
        loss = paper_value("ranking_loss", dataset, method)
        if table.metric != "coverage" or loss is None:
            continue
        factor = 1 - 1 / paper_datasets()[dataset]["n_labels"]
        if cell.mean + ROUNDING < (loss.mean - ROUNDING) * factor:
            reason = (
                f"coverage {cell.mean:.3f} lies below {loss.mean * factor:.3f}, the least that ranking loss "
                f"{loss.mean:.3f} allows: they can not come from the same predictions"
            )
            yield Fault(table.label, table.metric, dataset, method, reason)


def _odd_spreads() -> Iterator[Fault]:
    for table, dataset, method, cell in _numbers():
        others = [row[dataset].std or 0.0 for name, row in table.rows.items() if name != method]
        if cell.std is not None and others and cell.std > 10 * max(others):
            reason = f"standard deviation {cell.std:.3f}, where the next largest is {max(others):.3f}"
            yield Fault(table.label, table.metric, dataset, method, reason)


def _tests_that_do_not_follow() -> Iterator[Fault]:
    for metric, row in paper_tests()[1].items():
        for method, printed in row.items():
            test = repeat_test(metric, method)
            if abs(test.p_paper - printed.p) > 1e-4:
                reason = (
                    f"{printed.outcome} [{printed.p:g}] is printed; the printed means, {test.n_win} better, "
                    f"{test.n_tie} equal, {test.n_loss} worse, give {test.p_paper:.5f}"
                )
                yield Fault(_read()["wilcoxon"]["label"], metric, None, method, reason)


def _numbers() -> Iterator[tuple[PaperTable, str, str, PaperCell]]:
    """Table, data set, method and number of every cell."""
    for table in paper_tables():
        for method, row in table.rows.items():
            for dataset, cell in row.items():
                yield table, dataset, method, cell


@cache
def _read() -> dict[str, Any]:
    numbers: dict[str, Any] = json.loads(Path(__file__).with_name("paper.json").read_text(encoding="utf-8"))
    return numbers
