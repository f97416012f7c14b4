"""Tables of scores: per metric, ranks, ranks by budget, tests, shares of the distance to full labels, and CSV."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from onepos.bench.comparison import MetricComparison, known_mean, rank_methods, share_of
from onepos.bench.results import Chosen, StudyResults, choose, primary_metric
from onepos.bench.statistics import FloatArray, ShareClosed, summarise
from onepos.metrics import METRICS
from onepos.report.tables import MISSING, Cell, Table, csv_table, decimal, mean_and_std, p_value, percent


def heading(results: StudyResults, method: str) -> Cell:
    """The head of a method's row: its name, its role, and a dagger where it is privileged."""
    roles = {results.study.floor: "floor", results.study.oracle: "oracle"}
    is_privileged = method in results.privileged and method != results.study.oracle
    return Cell(method + (" †" if is_privileged else ""), mark=roles.get(method, ""))


def summary_cell(values: Sequence[float] | FloatArray, n_wanted: int) -> Cell:
    """Mean ± std of the trials, with a note where some are missing."""
    summary = summarise(values)
    is_short = 0 < summary.n < n_wanted
    return Cell(mean_and_std(summary), notes=((f"{summary.n} of {n_wanted} trials", "warning"),) if is_short else ())


def scores_table(comparison: MetricComparison) -> Table:
    """Method × data set: mean ± std, and the rank."""
    study = comparison.results.study
    best = {dataset: _best_text(comparison, dataset) for dataset in study.datasets}
    ranks = comparison.mean_ranks
    lowest = decimal(min(ranks.values()), 2) if ranks else ""
    rows = []
    for method in study.methods:
        cells = [_score_cell(comparison, dataset, method, best[dataset]) for dataset in study.datasets]
        mean_rank = decimal(ranks.get(method), 2)
        rows.append([heading(comparison.results, method), *cells, Cell(mean_rank, is_best=mean_rank == lowest)])
    header = ["Method", *study.datasets, "Mean rank"]
    about = (
        "Mean ± standard deviation over the trials, then the rank on the data set, the oracle left out. The best but "
        "the oracle is bold."
    )
    return Table(comparison.metric.replace("_", "-"), comparison.title, header, rows, about)


def overview_table(comparisons: Sequence[MetricComparison]) -> Table:
    """Method × metric: the mean rank over the data sets, for methods that have results on all of them."""
    results = comparisons[0].results
    ranks = {each.metric: each.mean_ranks for each in comparisons}
    lowest = {metric: decimal(min(row.values()), 2) if row else "" for metric, row in ranks.items()}
    overall = {name: known_mean([row[name] for row in ranks.values() if name in row]) for name in results.competitors}
    order = sorted(overall, key=lambda name: math.inf if math.isnan(overall[name]) else overall[name])
    smallest = decimal(overall[order[0]], 2)
    rows = []
    for method in order:
        texts = {metric: decimal(row.get(method), 2) for metric, row in ranks.items()}
        cells = [
            Cell(text, is_best=text == lowest[metric], heat=_rank_heat(ranks[metric], method))
            for metric, text in texts.items()
        ]
        last = decimal(overall[method], 2)
        rows.append([heading(results, method), *cells, Cell(last, is_best=last == smallest != MISSING)])
    titles = [each.title.rstrip(" ↑↓") for each in comparisons]
    about = (
        "Rank among the methods but the oracle, 1 for the best, averaged over the data sets; last the mean of the row."
    )
    return Table("overview", "Who ranks where", ["Method", *titles, "All"], rows, about)


def budget_ranks(results: StudyResults) -> dict[int, dict[str, float]]:
    """m → method → mean rank when only the first m configurations of each method may be chosen from.

    A data set with fewer configurations gives all it has. Ranked are the methods with results on every data set.
    """
    count = max((run.configuration for run in results.runs), default=0) + 1
    steps = [2**k for k in range(count.bit_length()) if 2**k < count] + [count]
    metric = primary_metric(results.study)
    found = {}
    for m in steps:
        chosen = choose(results.study, [each for each in results.finished if each[0].configuration < m])
        ranks = _mean_ranks(results, metric, chosen)
        if ranks:
            found[m] = ranks
    return found


def budget_table(results: StudyResults, ranks: Mapping[int, Mapping[str, float]]) -> Table:
    """Method × number of configurations: the mean rank."""
    last = list(ranks.values())[-1]
    rows = []
    for name in sorted(last, key=last.__getitem__):
        texts = [(decimal(row.get(name), 2), decimal(min(row.values()), 2)) for row in ranks.values()]
        rows.append([heading(results, name), *(Cell(text, is_best=text == least) for text, least in texts)])
    title = METRICS[primary_metric(results.study)].words
    about = (
        f"Mean rank in {title} when each method may be tuned over its first 1, 2, 4, … configurations only, in the "
        f"order of the search ({results.study.sampler}); a data set that has fewer gives all it has."
    )
    return Table("budget", "Rank by budget", ["Method", *map(str, ranks)], rows, about)


def cells_csv(results: StudyResults, comparisons: Sequence[MetricComparison]) -> str:
    """Every cell of every metric in long format, unrounded."""
    header = ["dataset", "method", "role", "privileged", "metric", "mean", "std", "n_trials", "planned_trials", "rank"]
    rows = []
    for each in comparisons:
        for dataset, row in each.scores.items():
            for method, trials in row.items():
                summary = summarise(trials)
                numbers: list[float | None] = [summary.mean, summary.std, summary.n, results.n_trials(dataset)]
                numbers += [each.ranks[dataset].get(method), share_of(each.shares[dataset], method)]
                words = [dataset, method, heading(results, method).mark or "method"]
                words += ["; ".join(results.privileged.get(method, ())), each.metric]
                rows.append([*words, *map(_number, numbers)])
    return csv_table(rows, [*header, "share_closed"])


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


def _mean_ranks(results: StudyResults, metric: str, chosen: Chosen) -> dict[str, float]:
    scores = results.scores(metric, chosen)
    full = [name for name in results.competitors if all(summarise(row[name]).n for row in scores.values())]
    greater = METRICS[metric].greater_is_better
    ranks = [rank_methods({name: row[name] for name in full}, greater_is_better=greater) for row in scores.values()]
    return {name: known_mean([row[name] for row in ranks]) for name in full}


def _best_text(comparison: MetricComparison, dataset: str) -> str:
    """The best mean of the contest as printed; nothing where there is no contest."""
    ranks = comparison.ranks[dataset]
    if len(ranks) < 2:
        return ""
    winner = min(ranks, key=ranks.__getitem__)
    return decimal(summarise(comparison.scores[dataset][winner]).mean)


def _score_cell(comparison: MetricComparison, dataset: str, method: str, best: str) -> Cell:
    results, trials = comparison.results, comparison.scores[dataset][method]
    summary = summarise(trials)
    cell = summary_cell(trials, results.n_trials(dataset))
    rank = comparison.ranks[dataset].get(method)
    # Equal as printed is equal: bold must not hint at a difference that the digits do not have.
    is_best = rank is not None and decimal(summary.mean) == best
    return Cell(cell.text, "" if rank is None else f"{rank:g}", cell.notes, is_best)


def _rank_heat(ranks: Mapping[str, float], method: str) -> float | None:
    """1 for rank 1, 0 for the last rank there is."""
    return 1 - (ranks[method] - 1) / (len(ranks) - 1) if method in ranks else None


def _number(value: float | None) -> str:
    """A number in full, nothing for what is not known."""
    return "" if value is None or math.isnan(value) else repr(value)


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


def _is_clear(closed: ShareClosed) -> bool:
    return any(math.isfinite(share) for share in closed.shares.values())


def _share_cell(share: float, rivals: Mapping[str, float]) -> Cell:
    if math.isnan(share):
        return Cell(MISSING)
    known = [value for value in rivals.values() if math.isfinite(value)]
    text = percent(round(share, 2) + 0.0)
    is_best = len(known) > 1 and text == percent(round(max(known), 2) + 0.0)
    return Cell(text, is_best=is_best, tone="worse" if round(share, 2) < 0 else "", heat=min(1.0, max(0.0, share)))
