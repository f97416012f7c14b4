"""Tables of tests, and of the share of the distance from floor to oracle that a method closes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from onepos.bench.comparison import MetricComparison, known_mean, share_of
from onepos.bench.statistics import ShareClosed
from onepos.metrics import METRICS
from onepos.report.study_scores import heading
from onepos.report.tables import MISSING, Cell, Table, decimal, p_value, percent


def friedman_table(comparisons: Sequence[MetricComparison]) -> Table:
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
    return Table("friedman", "Do the ranks differ at all?", header, rows, about)


def record_table(comparison: MetricComparison) -> Table:
    """Method × method: data sets won, tied, lost."""
    names = comparison.results.competitors
    rows = []
    for method in names:
        records = [comparison.records.get((method, other)) for other in names]
        totals = [sum(getattr(each, kind) for each in records if each) for kind in ("win", "tie", "loss")]
        cells = [Cell(f"{each.win}/{each.tie}/{each.loss}" if each else "·") for each in records]
        rows.append([heading(comparison.results, method), *cells, Cell("/".join(map(str, totals)))])
    about = (
        "Data sets on which the method of the row is significantly better than, not distinguishable from, and worse "
        "than that of the column: paired t-test over the trials at 0.05"
    )
    is_corrected = comparison.results.study.split == "new"
    about += ", corrected for splits that share rows." if is_corrected else "; the trials share one split."
    header = ["Win/tie/loss", *names, "All"]
    return Table(f"record-{comparison.metric.replace('_', '-')}", "Win, tie, loss", header, rows, about)


def _count_known(comparison: MetricComparison, name: str) -> tuple[int, int]:
    """On how many data sets with a clear gap the method has a share, and how many there are."""
    clear = [closed for closed in comparison.shares.values() if _is_clear(closed)]
    return sum(not math.isnan(share_of(closed, name)) for closed in clear), len(clear)


def _mean_share_cell(name: str, shares: Mapping[str, float], comparison: MetricComparison) -> Cell:
    """A mean over fewer data sets than the others' is marked, and never the best."""
    known, all_of_them = _count_known(comparison, name)
    rivals = {rival: share for rival, share in shares.items() if _count_known(comparison, rival)[0] == all_of_them}
    cell = _share_cell(shares[name], rivals)
    if known == all_of_them or known == 0:
        return cell
    return dataclasses.replace(cell, is_best=False, notes=((f"on {known} of {all_of_them}", ""),))


def share_overview(comparisons: Sequence[MetricComparison]) -> Table:
    """Method × metric: the share of the distance from floor to oracle, mean over the data sets with a clear gap."""
    results = comparisons[0].results
    names = [name for name in results.competitors if name != results.study.floor]
    shares = {
        each.metric: {name: known_mean([share_of(closed, name) for closed in each.shares.values()]) for name in names}
        for each in comparisons
    }
    rows = [
        [heading(results, name), *(_mean_share_cell(name, shares[each.metric], each) for each in comparisons)]
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
    return Table("shares", "How much of the way to full labels", header, rows, about)


def share_table(comparison: MetricComparison) -> Table:
    """Method × data set: the share of the distance from floor to oracle that is closed."""
    results = comparison.results
    names = [name for name in results.competitors if name != results.study.floor]
    rows = []
    for name in names:
        cells = []
        for closed in comparison.shares.values():
            cells.append(_share_cell(share_of(closed, name), {each: share_of(closed, each) for each in names}))
        rows.append([heading(results, name), *cells])
    gaps = [
        Cell(decimal(closed.gap.mean, 3), notes=((f"p {p_value(closed.p_gap)}", ""),))
        for closed in comparison.shares.values()
    ]
    rows.append([Cell("Distance"), *gaps])
    name = f"shares-{comparison.metric.replace('_', '-')}"
    about = "No share is given where the distance is not clear of noise (paired t-test over the trials, 0.05)."
    return Table(name, comparison.title, ["Method", *results.study.datasets], rows, about)


def _is_clear(closed: ShareClosed) -> bool:
    return any(math.isfinite(share) for share in closed.shares.values())


def _share_cell(share: float, rivals: Mapping[str, float]) -> Cell:
    if math.isnan(share):
        return Cell(MISSING)
    known = [value for value in rivals.values() if math.isfinite(value)]
    text = percent(round(share, 2) + 0.0)
    is_best = len(known) > 1 and text == percent(round(max(known), 2) + 0.0)
    return Cell(text, is_best=is_best, tone="worse" if round(share, 2) < 0 else "", heat=min(1.0, max(0.0, share)))
