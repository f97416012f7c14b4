"""Two studies side by side, A and B, as tables: what a change of the code, or of the protocol, does to every score.

comparison = compare_studies(read_results("results/before"), read_results("results/after"))
print(render_comparison(comparison))
"""

from __future__ import annotations

import math

from onepos.bench.comparison import ALPHA, Comparison, list_pairs, metric_title
from onepos.bench.results import primary_metric
from onepos.report.page import Page, Section, render_markdown
from onepos.report.tables import MISSING, Cell, Table, mean_and_std, p_value, signed


def count_table(comparison: Comparison) -> Table:
    """Metric × data set: in how many methods B is better / not distinguishable from A / worse."""
    datasets = list(dict.fromkeys(each.dataset for each in comparison.differences))
    rows = []
    for metric in comparison.metrics:
        row = []
        for dataset in (*datasets, None):
            counts = [comparison.count(kind, metric, dataset) for kind in ("win", "tie", "loss")]
            row.append(Cell("/".join(map(str, counts)) if any(counts) else MISSING))
        rows.append([Cell(metric_title(metric)), *row])
    about = "Methods in which B is significantly better than, not distinguishable from, and worse than A."
    return Table("counts", "Win, tie, loss of B", ["Metric", *datasets, "All"], rows, about)


def difference_table(comparison: Comparison, metric: str) -> Table:
    """Every data set and method of a metric: A, B, B − A, the test."""
    words = {"win": "better", "loss": "worse", "tie": ""}
    rows = []
    for each in comparison.differences:
        if each.metric == metric:
            tone = words[each.outcome]
            trials = f"{each.n_pairs} pairs" if each.n_pairs else f"{each.first.n} and {each.second.n}"
            numbers = [mean_and_std(each.first), mean_and_std(each.second), signed(each.change)]
            texts = [each.dataset, each.method, *numbers, trials, p_value(each.p)]
            rows.append([*map(Cell, texts), Cell(tone, tone=tone)])
    header = ["Data set", "Method", "A", "B", "B − A", "Trials", "p", "B is"]
    return Table(metric.replace("_", "-"), metric_title(metric), header, rows)


def explain(comparison: Comparison) -> list[str]:
    """The outcome in sentences, and what could not be compared."""
    total = len(comparison.differences)
    untested = sum(math.isnan(each.p) for each in comparison.differences)
    changed = ", ".join(comparison.changed)
    sentences = [
        f"The studies differ in {changed}." if changed else "The studies are the same.",
        f"Of {total} scores B is significantly better in {comparison.count('win')} and worse in "
        f"{comparison.count('loss')}; without any difference about "
        f"{ALPHA * (total - untested):.0f} would differ by chance.",
    ]
    if untested:
        sentences.append(f"{untested} have too few trials to be tested.")
    for name, pairs in (("A", comparison.only_first), ("B", comparison.only_second)):
        if pairs:
            sentences.append(f"Only {name} has {list_pairs(pairs)}.")
    return sentences


def render_comparison(comparison: Comparison, names: tuple[str, str] = ("A", "B")) -> str:
    """The comparison as a page of Markdown."""
    lines = [
        f"- {letter}: {name}, study {side.study.name}, {len(side.finished)} of {len(side.runs)} runs"
        for letter, name, side in zip("AB", names, (comparison.first, comparison.second), strict=True)
    ]
    tables = [count_table(comparison), *(difference_table(comparison, metric) for metric in comparison.metrics)]
    sections = [Section(table.name, table.title, tables=(table,)) for table in tables if table.rows]
    return render_markdown(
        Page("Two studies compared", "\n".join(lines), notes=(" ".join(explain(comparison)),), sections=sections)
    )


def default_metric(comparison: Comparison) -> str:
    """The metric to show where only one is shown: A's primary one, if it is among those compared."""
    metric = primary_metric(comparison.first.study)
    return metric if metric in comparison.metrics else comparison.metrics[0]
