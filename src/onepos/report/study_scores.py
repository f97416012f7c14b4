"""Tables of scores: per metric beside the paper's, mean ranks over all, ranks by budget, and every cell as CSV."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

from crisp_paper.paper import Fault, find_faults

from onepos.bench.statistics import Summary, summarise
from onepos.metrics import METRICS
from onepos.report.study_comparison import MetricComparison, known_mean, rank_methods, share_of, verdict_of
from onepos.report.study_tables import (
    Cell,
    Chosen,
    StudyResults,
    StudyTable,
    choose,
    primary_metric,
    printed_value,
    summary_cell,
)
from onepos.report.tables import MISSING, csv_table, decimal


def scores_table(comparison: MetricComparison) -> StudyTable:
    """Method × data set: mean ± std, the rank in brackets, the printed number and the difference below."""
    study = comparison.results.study
    best = {dataset: _best_text(comparison, dataset) for dataset in study.datasets}
    ranks = comparison.mean_ranks
    lowest = decimal(min(ranks.values()), 2) if ranks else ""
    rows = []
    for method in study.methods:
        cells = [_score_cell(comparison, dataset, method, best[dataset]) for dataset in study.datasets]
        mean_rank = decimal(ranks.get(method), 2)
        rows.append([comparison.results.heading(method), *cells, Cell(mean_rank, is_best=mean_rank == lowest)])
    header = ["Method", *study.datasets, "Mean rank"]
    about = " ".join(_sentences(comparison))
    return StudyTable(comparison.metric.replace("_", "-"), comparison.title, header, rows, about)


def count_verdicts(comparisons: Sequence[MetricComparison]) -> dict[str, int]:
    """How many of the cells that the paper has too are "within" two standard deviations, "better" and "worse"."""
    counts = {"within": 0, "better": 0, "worse": 0}
    for comparison in comparisons:
        for dataset, row in comparison.scores.items():
            for method, trials in row.items():
                verdict = verdict_of(comparison, dataset, method, summarise(trials))
                if verdict:
                    counts[verdict] += 1
    return counts


def overview_table(comparisons: Sequence[MetricComparison]) -> StudyTable:
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
        rows.append([results.heading(method), *cells, Cell(last, is_best=last == smallest != MISSING)])
    titles = [each.title.rstrip(" ↑↓") for each in comparisons]
    about = (
        "Rank among the methods but the oracle, 1 for the best, averaged over the data sets; last the mean of the row."
    )
    return StudyTable("overview", "Who ranks where", ["Method", *titles, "All"], rows, about)


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


def budget_table(results: StudyResults, ranks: Mapping[int, Mapping[str, float]]) -> StudyTable:
    """Method × number of configurations: the mean rank."""
    last = list(ranks.values())[-1]
    rows = []
    for name in sorted(last, key=last.__getitem__):
        texts = [(decimal(row.get(name), 2), decimal(min(row.values()), 2)) for row in ranks.values()]
        rows.append([results.heading(name), *(Cell(text, is_best=text == least) for text, least in texts)])
    title = METRICS[primary_metric(results.study)].words
    about = (
        f"Mean rank in {title} when each method may be tuned over its first 1, 2, 4, … configurations only, in the "
        f"order of the search ({results.study.sampler}); a data set that has fewer gives all it has."
    )
    return StudyTable("budget", "Rank by budget", ["Method", *map(str, ranks)], rows, about)


def cells_csv(results: StudyResults, comparisons: Sequence[MetricComparison]) -> str:
    """Every cell of every metric in long format, unrounded."""
    header = ["dataset", "method", "role", "told", "metric", "mean", "std", "n_trials", "planned_trials", "rank"]
    header += ["share_closed", "paper_mean", "paper_std", "difference", "verdict"]
    rows = []
    for each in comparisons:
        for dataset, row in each.scores.items():
            for method, trials in row.items():
                summary, printed = summarise(trials), printed_value(each.metric, dataset, method)
                numbers: list[float | None] = [summary.mean, summary.std, summary.n, results.n_trials(dataset)]
                numbers += [each.ranks[dataset].get(method), share_of(each.shares[dataset], method)]
                if printed is not None:
                    numbers += [printed.mean, printed.std, summary.mean - printed.mean]
                else:
                    numbers += [None] * 3
                words = [dataset, method, results.heading(method).mark or "method"]
                words += ["; ".join(results.told.get(method, ())), each.metric]
                verdict = verdict_of(each, dataset, method, summary)
                rows.append([*words, *map(_number, numbers), verdict])
    return csv_table(rows, header)


def _mean_ranks(results: StudyResults, metric: str, chosen: Chosen) -> dict[str, float]:
    scores = results.scores(metric, chosen)
    full = [name for name in results.competitors if all(summarise(row[name]).n for row in scores.values())]
    greater = METRICS[metric].greater_is_better
    ranks = [rank_methods({name: row[name] for name in full}, greater_is_better=greater) for row in scores.values()]
    return {name: known_mean([row[name] for row in ranks]) for name in full}


def _best_text(comparison: MetricComparison, dataset: str) -> str:
    """The best mean of the contest as shown; nothing where there is no contest."""
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
    notes = (*cell.notes, *_printed_note(comparison, dataset, method, summary))
    # Equal as shown is equal: bold must not hint at a difference that the digits do not show.
    is_best = rank is not None and decimal(summary.mean) == best
    return Cell(cell.text, "" if rank is None else f"{rank:g}", notes, is_best)


def _sentences(comparison: MetricComparison) -> list[str]:
    """How to read the table of scores, and what is wrong with the printed numbers in it."""
    study = comparison.results.study
    sentences = [
        "Mean ± standard deviation over the trials, then the rank on the data set, the oracle left out.",
        "The best but the oracle is bold.",
    ]
    pairs = [(dataset, method) for dataset in study.datasets for method in study.methods]
    if any(printed_value(comparison.metric, *pair) is not None for pair in pairs):
        sentences += [
            "Below: the number printed in the paper and ours less it; better (green) or worse (red) where they lie "
            "more than two standard deviations apart, the larger of the two."
        ]
    faults = [fault for fault in _faults(comparison.metric) if (fault.dataset, fault.method) in pairs]
    if faults:
        sentences += ["A question mark: the printed number can not be right, or is in doubt."]
        sentences += [f"{fault.method} on {fault.dataset}: {fault.reason}." for fault in faults]
    return sentences


def _printed_note(
    comparison: MetricComparison, dataset: str, method: str, ours: Summary
) -> tuple[tuple[str, str], ...]:
    printed = printed_value(comparison.metric, dataset, method)
    if printed is None:
        return ()
    is_faulty = any((fault.dataset, fault.method) == (dataset, method) for fault in _faults(comparison.metric))
    text = f"paper {decimal(printed.mean)}{'?' if is_faulty else ''}"
    if not ours.n:
        return ((text, ""),)
    difference = f"{round(ours.mean - printed.mean, 3) + 0.0:+.3f}".replace("-", "−")
    verdict = verdict_of(comparison, dataset, method, ours)
    return ((f"{text}, {difference}", "" if verdict == "within" else verdict),)


@cache
def _faults(metric: str) -> tuple[Fault, ...]:
    return tuple(fault for fault in find_faults() if fault.metric == metric)


def _rank_heat(ranks: Mapping[str, float], method: str) -> float | None:
    """1 for rank 1, 0 for the last rank there is."""
    return 1 - (ranks[method] - 1) / (len(ranks) - 1) if method in ranks else None


def _number(value: float | None) -> str:
    """A number in full, nothing for what is not known."""
    return "" if value is None or math.isnan(value) else repr(value)
