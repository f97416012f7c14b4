"""The sections that a study's report gains here: the paper's own figures, and the printed numbers beside ours.

page = make_page(results, extra=paper_sections(results))
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from crisp_paper.paper import paper_datasets, paper_tables, paper_tests, paper_value
from crisp_paper.printed import VERDICTS, Key, Printed, deciding_spread, judge, measure, printed_cells, printed_text
from crisp_paper.regret import regret_tables
from crisp_paper.sensitivity import sensitivity_section
from crisp_paper.shortfall import reach_table, shortfall_table
from crisp_paper.signed_ranks import SignedRanks, signed_ranks
from crisp_paper.traces import trace_sections
from onepos.bench.comparison import SHOWN, MetricComparison, compare_methods, metric_title
from onepos.bench.results import StudyResults
from onepos.bench.statistics import Summary, mean_scores
from onepos.datasets import DATASETS
from onepos.report.page import Section, make_section
from onepos.report.study_scores import heading
from onepos.report.tables import MISSING, Cell, Table, mean_and_std, p_value, percent, signed

NOT_RUN = "not run"


def paper_sections(results: StudyResults) -> list[Section]:
    """What the paper has too: rays of a star, curves by epoch, regret, printed numbers, tests, data, times."""
    study, ours = results.study, measure(results)
    cells = [cell for cell in printed_cells() if cell.dataset in study.datasets and cell.method in study.methods]
    status = {cell.key: judge(cell, ours[cell.key]) if cell.key in ours else NOT_RUN for cell in cells}
    metrics = dict.fromkeys(cell.metric for cell in cells)
    has_choice = study.sampler != "star" and any(run.configuration for run in results.runs)
    below = (reach_table(results), shortfall_table(results)) if has_choice else ()
    return [
        sensitivity_section(results),
        *trace_sections(results),
        make_section("selection", "Choosing without full labels", *(regret_tables(results) if has_choice else ())),
        make_section(
            "paper-scores",
            "Beside the paper’s numbers",
            verdict_counts(status),
            *(cell_table(results, ours, status, metric) for metric in metrics),
        ),
        make_section("paper-tests", "", wilcoxon_table([compare_methods(results, metric) for metric in SHOWN])),
        make_section("below-paper", "Below the paper’s row, and why", *below),
        make_section("paper-data", "", dataset_table(results)),
        make_section("paper-times", "", time_table() if study.trace else None),
    ]


def verdict_counts(status: Mapping[Key, str]) -> Table:
    """How many printed numbers are reproduced."""
    counts = Counter(status.values())
    rows = [[Cell(kind), Cell(str(counts[kind]))] for kind in (*VERDICTS, NOT_RUN)] if status else []
    about = (
        "Reproduced: our mean lies within two standard deviations of the printed one, the larger deviation of the two, "
        "rounding allowed for. Better, worse: it does not."
    )
    return Table("verdict-counts", "How many are reproduced", ["Verdict", "Numbers"], rows, about)


def cell_table(results: StudyResults, ours: Mapping[Key, Summary], status: Mapping[Key, str], metric: str) -> Table:
    """Method × data set: ours, the number of trials, the printed number, the difference, the verdict.

    Args:
        results: Of the study.
        ours: What it has measured.
        status: A verdict, or why there is none, for every number to show.
        metric: A key of METRICS.
    """
    cells = {cell.key: cell for cell in printed_cells() if cell.metric == metric and cell.key in status}
    datasets = list(dict.fromkeys(cell.dataset for cell in cells.values()))
    rows = []
    for method in dict.fromkeys(cell.method for cell in cells.values()):
        found = [cells.get((metric, dataset, method)) for dataset in datasets]
        row = [_verdict_cell(results, ours, cell, status[cell.key]) if cell else Cell(MISSING) for cell in found]
        rows.append([Cell(method), *row])
    about = (
        f"Ours in {results.study.name}: mean ± standard deviation, the number of trials; below, the printed number, "
        "ours less it, and the verdict."
    )
    spreads = [deciding_spread(cells[key], ours[key]) for key in cells if status[key] in VERDICTS]
    if spreads:
        about += f" Two standard deviations are {2 * median(spreads):.3f} in the median of these numbers."
    about = " ".join([about, *_doubts(cells.values())])
    return Table(f"cells-{metric.replace('_', '-')}", metric_title(metric), ["Method", *datasets], rows, about)


def wilcoxon_table(comparisons: Sequence[MetricComparison]) -> Table | None:
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
        rows.append([heading(results, other), *cells])
    n = len(results.study.datasets)
    least = f"With {n} data sets the exact p-value is at least {p_value(2 ** (1 - n))}"
    least += ", so nothing can be significant." if 2 ** (1 - n) >= 0.05 else "."
    about = (
        f"{reference} against each method over the means on the data sets, two-sided at 0.05, by the exact p-value. "
        f"{least} Where means are equal, “normal” is the approximation the paper takes then. Below: what is printed."
    )
    header = ["Method", *(each.title.rstrip(" ↑↓") for each in comparisons)]
    return Table("wilcoxon", f"{reference} against the others: Wilcoxon’s signed-ranks test", header, rows, about)


def dataset_table(results: StudyResults) -> Table:
    """Our counts of the data sets, the paper's below."""
    seen = {run.dataset: result for run, result in reversed(results.finished)}
    rows = []
    for dataset in results.study.datasets:
        source, printed = DATASETS.get(dataset), paper_datasets().get(dataset)
        if source and printed:
            n_labels = seen[dataset]["n_labels"] if dataset in seen else source.n_labels
            counts = {"n_samples": source.n_samples, "n_features": source.n_features, "n_labels": n_labels}
            cells = [_count_cell(ours, printed.get(name)) for name, ours in counts.items()]
            rows.append([Cell(dataset), *cells, Cell(str(printed.get("domain") or MISSING))])
    about = "Below: what the paper prints, red where it differs; the domain is the paper’s."
    header = ["Data set", "Rows", "Features", "Labels", "Domain"]
    return Table("paper-data", "Data sets beside the paper’s", header, rows, about)


def time_table() -> Table:
    """The times of the prior estimate and of an epoch that the paper prints."""
    rows = []
    for table in paper_tables():
        for method, row in table.rows.items() if table.metric == "prior_time" else ():
            for dataset, estimate in row.items():
                epoch = paper_value("epoch_time", dataset, method)
                if epoch is not None:
                    texts = [method, f"{estimate.mean:g}", f"{epoch.mean:g}", percent(estimate.mean / epoch.mean)]
                    rows.append([Cell(dataset), *map(Cell, texts)])
    header = ["Data set", "Method", "Estimate", "Epoch", "Share"]
    return Table("paper-times", "Times that the paper prints", header, rows, "The paper states no unit.")


def _verdict_cell(results: StudyResults, ours: Mapping[Key, Summary], cell: Printed, status: str) -> Cell:
    paper = f"paper {printed_text(cell)}"
    if status not in VERDICTS:
        return Cell(status, notes=((paper, ""),))
    summary = ours[cell.key]
    planned = results.n_trials(cell.dataset)
    trials = f"n = {summary.n}" + (f" of {planned}" if summary.n < planned else "")
    difference = signed(summary.mean - cell.value.mean)
    if status == "reproduced":
        return Cell(mean_and_std(summary), trials, ((f"{paper}, {difference} {status}", ""),))
    return Cell(mean_and_std(summary), trials, ((f"{paper}, {difference}", status),))


def _doubts(cells: Iterable[Printed]) -> list[str]:
    """What is wrong with the printed numbers of a table."""
    found = [f"{cell.method} on {cell.dataset}: {cell.doubt}." for cell in cells if cell.doubt]
    return ["A question mark: the printed number can not be right, or is in doubt.", *found] if found else []


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


def _count_cell(ours: int | None, printed: int | None) -> Cell:
    notes = ((f"paper {printed}", "" if printed == ours else "warning"),) if printed is not None else ()
    return Cell(MISSING if ours is None else str(ours), notes=notes)
