"""Is it more than chance, and how far does it go: tables of tests, and of the distance closed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from crisp_paper.paper import paper_tests

from onepos.bench.statistics import ShareClosed, SignedRanks, mean_scores, signed_ranks
from onepos.metrics import METRICS
from onepos.report.study_comparison import MetricComparison, known_mean, share_of
from onepos.report.study_tables import Cell, StudyTable
from onepos.report.tables import MISSING, decimal, percent


def friedman_table(comparisons: Sequence[MetricComparison]) -> StudyTable:
    """Metric by metric: whether the ranks differ at all."""
    rows = []
    for each in comparisons:
        test = each.friedman
        if test is None:
            continue
        numbers = [
            str(len(test.datasets)),
            str(len(test.mean_ranks)),
            decimal(test.chi_square, 2),
            p_value(test.p_chi_square),
            "infinite" if math.isinf(test.f) else decimal(test.f, 2),
            p_value(test.p_f),
            decimal(test.critical_difference, 2),
            ", ".join(test.left_out) or MISSING,
        ]
        rows.append([Cell(each.title), *map(Cell, numbers)])
    header = ["Metric", "Data sets", "Methods", "Chi-square", "p", "F", "p", "Critical difference", "Left out"]
    about = (
        "Friedman’s test and its form by Iman and Davenport; mean ranks at least the critical difference apart differ "
        "significantly (Nemenyi, 0.05). A method without results on every data set is left out."
    )
    return StudyTable("friedman", "Do the ranks differ at all?", header, rows, about)


def wilcoxon_table(comparisons: Sequence[MetricComparison]) -> StudyTable | None:
    """The paper's method against every other: our outcome with the exact p-value, the printed one below."""
    reference, printed = paper_tests()
    results = comparisons[0].results
    others = [name for name in results.competitors if name != reference]
    if reference not in results.competitors or not others or len(results.study.datasets) < 2:
        return None
    tests = {each.metric: _signed_ranks(each, reference) for each in comparisons}
    rows = []
    for other in others:
        cells = []
        for metric, row in tests.items():
            theirs = printed.get(metric, {}).get(other)
            notes = [(f"normal {p_value(row[other].p_paper)}", "")] if _differs(row[other]) else []
            notes += [(f"paper {theirs.outcome} {theirs.p:.4f}", "")] if theirs else []
            cells.append(_test_cell(row[other], tuple(notes)))
        rows.append([results.heading(other), *cells])
    n = len(results.study.datasets)
    least = f"With {n} data sets the exact p-value is at least {p_value(2 ** (1 - n))}"
    least += ", so nothing can be significant." if 2 ** (1 - n) >= 0.05 else "."
    about = (
        f"{reference} against each method over the means on the data sets, two-sided at 0.05, by the exact p-value. "
        f"{least} Where means are equal, “normal” is the approximation the paper takes then. Below: what is printed."
    )
    header = ["Method", *(each.title.rstrip(" ↑↓") for each in comparisons)]
    return StudyTable("wilcoxon", f"{reference} against the others: Wilcoxon’s signed-ranks test", header, rows, about)


def record_table(comparison: MetricComparison) -> StudyTable:
    """Method × method: data sets won, tied, lost."""
    names = comparison.results.competitors
    rows = []
    for method in names:
        records = [comparison.records.get((method, other)) for other in names]
        totals = [sum(getattr(each, kind) for each in records if each) for kind in ("win", "tie", "loss")]
        cells = [Cell(f"{each.win}/{each.tie}/{each.loss}" if each else "·") for each in records]
        rows.append([comparison.results.heading(method), *cells, Cell("/".join(map(str, totals)))])
    about = (
        "Data sets on which the method of the row is significantly better than, not to be told from, and worse than "
        "that of the column: paired t-test over the trials at 0.05"
    )
    is_corrected = comparison.results.study.split == "new"
    about += ", corrected for splits that share rows." if is_corrected else "; the trials share one split."
    header = ["Win/tie/loss", *names, "All"]
    return StudyTable(f"record-{comparison.metric.replace('_', '-')}", "Win, tie, loss", header, rows, about)


def _count_known(comparison: MetricComparison, name: str) -> tuple[int, int]:
    """On how many data sets with a clear gap the method has a share, and how many there are."""
    clear = [closed for closed in comparison.shares.values() if _is_clear(closed)]
    return sum(not math.isnan(share_of(closed, name)) for closed in clear), len(clear)


def _mean_share_cell(name: str, shares: Mapping[str, float], comparison: MetricComparison) -> Cell:
    """A mean over fewer data sets than the others' says so, and is not called the best."""
    known, all_of_them = _count_known(comparison, name)
    rivals = {rival: share for rival, share in shares.items() if _count_known(comparison, rival)[0] == all_of_them}
    cell = _share_cell(shares[name], rivals)
    if known == all_of_them or known == 0:
        return cell
    return dataclasses.replace(cell, is_best=False, notes=((f"on {known} of {all_of_them}", ""),))


def share_overview(comparisons: Sequence[MetricComparison]) -> StudyTable:
    """Method × metric: the share of the distance from floor to oracle, mean over the data sets with a clear gap."""
    results = comparisons[0].results
    names = [name for name in results.competitors if name != results.study.floor]
    shares = {
        each.metric: {name: known_mean([share_of(closed, name) for closed in each.shares.values()]) for name in names}
        for each in comparisons
    }
    rows = [
        [results.heading(name), *(_mean_share_cell(name, shares[each.metric], each) for each in comparisons)]
        for name in names
    ]
    clear = ", ".join(
        f"{METRICS[each.metric].title} {sum(_is_clear(closed) for closed in each.shares.values())}"
        for each in comparisons
    )
    about = (
        "0 % is the floor, 100 % the oracle, which learns from all labels; below zero is worse than the floor. Mean "
        f"over the data sets on which the oracle is significantly better than the floor; so many are: {clear}."
    )
    header = ["Method", *(METRICS[each.metric].title for each in comparisons)]
    return StudyTable("shares", "How much of the way to full labels", header, rows, about)


def share_table(comparison: MetricComparison) -> StudyTable:
    """Method × data set: the share of the distance from floor to oracle that is closed."""
    results = comparison.results
    names = [name for name in results.competitors if name != results.study.floor]
    rows = []
    for name in names:
        cells = []
        for closed in comparison.shares.values():
            cells.append(_share_cell(share_of(closed, name), {each: share_of(closed, each) for each in names}))
        rows.append([results.heading(name), *cells])
    gaps = [
        Cell(decimal(closed.gap.mean, 3), notes=((f"p {p_value(closed.p_gap)}", ""),))
        for closed in comparison.shares.values()
    ]
    rows.append([Cell("Distance"), *gaps])
    name = f"shares-{comparison.metric.replace('_', '-')}"
    about = "No share is given where the distance is not clear of noise (paired t-test over the trials, 0.05)."
    return StudyTable(name, comparison.title, ["Method", *results.study.datasets], rows, about)


def p_value(p: float) -> str:
    """A p-value in four digits, or below which it lies; a half is rounded up, as in print.

    Example:
        >>> p_value(0.03125)
        '0.0313'
    """
    if math.isnan(p):
        return MISSING
    return f"{p + 1e-9:.4f}" if p >= 0.0001 else "< 0.0001"


def _signed_ranks(comparison: MetricComparison, reference: str) -> dict[str, SignedRanks]:
    means = mean_scores(comparison.scores)
    greater = comparison.greater_is_better
    return {
        other: signed_ranks(means[reference], means[other], greater_is_better=greater)
        for other in comparison.results.competitors
        if other != reference
    }


def _test_cell(test: SignedRanks, notes: tuple[tuple[str, str], ...]) -> Cell:
    if math.isnan(test.p_exact):
        return Cell(MISSING, notes=notes)
    outcome = test.outcome(test.p_exact)
    tones = {"win": "better", "loss": "worse", "tie": ""}
    return Cell(f"{outcome} {p_value(test.p_exact)}", notes=notes, tone=tones[outcome])


def _differs(test: SignedRanks) -> bool:
    return abs(test.p_exact - test.p_paper) > 5e-5


def _is_clear(closed: ShareClosed) -> bool:
    return any(math.isfinite(share) for share in closed.shares.values())


def _share_cell(share: float, rivals: Mapping[str, float]) -> Cell:
    if math.isnan(share):
        return Cell(MISSING)
    known = [value for value in rivals.values() if math.isfinite(value)]
    text = percent(round(share, 2) + 0.0)
    is_best = len(known) > 1 and text == percent(round(max(known), 2) + 0.0)
    return Cell(text, is_best=is_best, tone="worse" if round(share, 2) < 0 else "", heat=min(1.0, max(0.0, share)))
