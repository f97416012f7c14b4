"""Tables of scores: per metric, mean ranks over all, ranks by budget, every cell as CSV; and cells of other tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from onepos.bench.comparison import MetricComparison, known_mean, rank_methods, share_of
from onepos.bench.results import Chosen, StudyResults, choose, primary_metric
from onepos.bench.statistics import FloatArray, summarise
from onepos.metrics import METRICS
from onepos.report.tables import MISSING, Cell, Table, csv_table, decimal, mean_and_std


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
