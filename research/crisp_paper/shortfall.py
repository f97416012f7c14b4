"""Where a study falls below the numbers printed in the paper, and what its runs tell of the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from crisp_paper.hindsight import best_in_hindsight
from crisp_paper.printed import Key, Printed, deciding_spread, is_below, judge, measure, printed_cells, printed_text
from onepos.bench.results import Finished, StudyResults
from onepos.bench.statistics import Summary, summarise
from onepos.metrics import METRICS
from onepos.report.tables import Cell, Table, mean_and_std, plain, signed

# Labels predicted for each true one; outside of these the threshold decides the Hamming loss.
_FEW, _MANY = 0.5, 2.0


@dataclass(frozen=True)
class Shortfall:
    """A mean that is worse than the printed one.

    Attributes:
        cell: What is printed.
        ours: What was measured.
        oracle: What full labels reach in the same protocol.
        hindsight: The mean of the best test score over the configurations of each trial; a bound, not a result.
        reasons: What the runs tell, by the rules in `shortfall_table`.
    """

    cell: Printed
    ours: Summary
    oracle: Summary
    hindsight: float
    reasons: tuple[str, ...]


def find_shortfalls(
    results: StudyResults, others: Mapping[str, Mapping[Key, Summary]] | None = None
) -> list[Shortfall]:
    """Every printed number that the study has too, and does not reach; by data set, then as printed.

    Args:
        results: Of a study.
        others: What other protocols measured, by their names.
    """
    ours = measure(results)
    return [
        _explain(results, cell, ours, others or {})
        for dataset in results.study.datasets
        for cell in printed_cells()
        if cell.dataset == dataset and cell.key in ours and is_below(cell, ours[cell.key].mean)
    ]


def reach_table(results: StudyResults) -> Table | None:
    """Data set × outcome: how many means are at least as good as printed, and how many are not."""
    ours, below = measure(results), find_shortfalls(results)
    counts = {}
    for dataset in dict.fromkeys(cell.dataset for cell in printed_cells() if cell.dataset in results.study.datasets):
        cells = [cell for cell in printed_cells() if cell.dataset == dataset]
        held = [cell for cell in cells if cell.key in ours]
        mine = [each for each in below if each.cell.dataset == dataset]
        clear = sum(judge(each.cell, each.ours) == "worse" for each in mine)
        counts[dataset] = [len(held), len(held) - len(mine), len(mine) - clear, clear, len(cells) - len(held)]
    if not counts:
        return None
    counts["all"] = [sum(column) for column in zip(*counts.values(), strict=True)]
    total, _, near, clear, _ = counts["all"]
    about = (
        f"Of {total} means of {results.study.name} that the paper prints too, {near + clear} are below the printed "
        f"ones, {clear} of them by more than two standard deviations, the larger of the two."
    )
    rows = [[Cell(name), *(Cell(str(number)) for number in numbers)] for name, numbers in counts.items()]
    header = ["Data set", "Numbers", "At least as good", "Below, within two std", "Clearly below", "Not run"]
    return Table("reach", "Is every method at least as good as its row in the paper?", header, rows, about)


def shortfall_table(results: StudyResults, others: Mapping[str, Mapping[Key, Summary]] | None = None) -> Table | None:
    """Every mean below the printed one, with what the runs tell of the reason; None where there is none.

    Args:
        results: Of a study.
        others: What other protocols measured, by their names: some may reach what this one does not.
    """
    rows = []
    for each in find_shortfalls(results, others):
        cell = each.cell
        texts = [cell.method, METRICS[cell.metric].title, printed_text(cell), mean_and_std(each.ours)]
        numbers = [2 * deciding_spread(cell, each.ours), each.oracle.mean, each.hindsight]
        texts += [signed(each.ours.mean - cell.value.mean), *map(plain, numbers)]
        tone = "worse" if judge(cell, each.ours) == "worse" else ""
        rows.append([Cell(cell.dataset), *map(Cell, texts), Cell("; ".join(each.reasons), tone=tone)])
    if not rows:
        return None
    metric, oracle = results.study.selection.metric, results.study.oracle
    rule = METRICS[metric].words if metric in METRICS else "a vote of five metrics"
    about = (
        f"Why, by rules. In doubt: the printed number itself is. Within two std: the difference is not larger. Out of "
        f"reach: {oracle}, which learns from all labels, does not get there either. Threshold: fewer than {_FEW:g} or "
        f"more than {_MANY:g} labels are predicted for each true one, worked out from Hamming loss, micro-F1 and "
        f"labels per row. Of what is more than two std below: choice, where another configuration of the method gets "
        f"there on the test rows, but not the one chosen by {rule}; no configuration, where none does; and which "
        "other protocols do get there. Hindsight: the mean of the best test score of each trial, a bound."
    )
    header = ["Data set", "Method", "Metric", "Paper", "Ours", "Difference", "Two std", oracle, "Hindsight", "Why"]
    return Table("below", "Below the paper’s row, and why", header, rows, about, is_prose=True)


def _explain(
    results: StudyResults,
    cell: Printed,
    ours: Mapping[Key, Summary],
    others: Mapping[str, Mapping[Key, Summary]],
) -> Shortfall:
    mine = ours[cell.key]
    oracle = ours.get((cell.metric, cell.dataset, results.study.oracle), summarise([]))
    hindsight = best_in_hindsight(results, cell.dataset, cell.method, cell.metric)
    is_clear = judge(cell, mine) == "worse"
    reasons = [f"in doubt: {cell.doubt}"] if cell.doubt else []
    reasons += [] if is_clear else ["within two std"]
    reasons += ["out of reach"] if oracle.n and is_below(cell, oracle.mean) else []
    reasons += _threshold_reason(results, cell) if cell.metric == "hamming_loss" else []
    if is_clear:
        reasons.append("no configuration" if is_below(cell, hindsight) else "choice")
        reached = {name: side[cell.key] for name, side in others.items() if cell.key in side}
        reasons += [
            f"{name} gives {plain(each.mean)}" for name, each in reached.items() if not is_below(cell, each.mean)
        ]
    return Shortfall(cell, mine, oracle, hindsight, tuple(reasons))


def _threshold_reason(results: StudyResults, cell: Printed) -> list[str]:
    chosen = [each for (*where, _), each in results.chosen.items() if where == [cell.dataset, cell.method]]
    ratio = fmean(predicted_per_true(each) for each in chosen)
    if _FEW <= ratio <= _MANY:
        return []
    density = fmean(result["cardinality"] / result["n_labels"] for _, result in chosen)
    thresholds = ", ".join(dict.fromkeys(str(run.threshold) for run, _ in chosen))
    return [
        f"threshold {thresholds}: {ratio:.2f} labels predicted for each true one; predicting none would give "
        f"{density:.3f}"
    ]


def predicted_per_true(finished: Finished) -> float:
    """How many labels a run predicts on the test rows for each true one.

    With h the Hamming loss, F the micro-F1 and d the share of ones, F = 2·TP / (2·TP + h) gives 2·TP = F·h / (1 − F),
    and predicted are TP + FP = 2·TP + h − d, all as shares of the entries. The store keeps d of the training rows only,
    so the number is rough.
    """
    _, result = finished
    loss, f1 = float(result["test"]["hamming_loss"]), float(result["test"]["micro_f1"] or 0.0)
    density = result["cardinality"] / result["n_labels"]
    return max(0.0, loss / (1 - f1) / density - 1) if f1 < 1 else 1.0
