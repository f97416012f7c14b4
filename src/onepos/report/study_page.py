"""The report of a study: one page that needs no network, and its tables as Markdown, LaTeX and CSV.

Everything in it comes from the results. Sections of one's own are added behind those of the study:

    page = make_page(results, extra=[Section("mine", "My section", tables=(table,))])
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from onepos import __version__
from onepos.bench.comparison import SHOWN, MetricComparison, compare_methods
from onepos.bench.results import StudyResults, criterion_of, primary_metric, read_results
from onepos.bench.store import Store, find_stores
from onepos.files import write_atomically
from onepos.metrics import METRICS
from onepos.report import study_facts as facts
from onepos.report import study_scores as scores
from onepos.report.charts.ranks import budget_chart, critical_difference_diagram
from onepos.report.page import Chart, Page, Section, make_section, render_html, render_latex, render_markdown
from onepos.report.tables import grouped, markdown_table
from onepos.training.selection import MAJORITY


def write_reports(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[Path]:
    """Write the report of the study in a folder or file, or of every study in the folders within it.

    Args:
        folder: Of `onepos bench run`, or a file of `onepos bench pack`; studies may be unfinished.
        out: Where to write. The reports of several studies go into a folder each, beside `README.md`, which lists them.

    Returns:
        The files.
    """
    there = Path(out)
    if Path(folder).is_file():
        return write_report(folder, there)
    stores = find_stores(folder)
    written = [file for name, store in stores.items() for file in write_report(store.folder, there / name)]
    if "." in stores:
        return written
    return [*written, write_atomically(there / "README.md", _list(stores))]


def write_report(source: str | os.PathLike[str], out_folder: str | os.PathLike[str]) -> list[Path]:
    """Write the report of a study from the folder of its store, or from a file that `onepos bench pack` wrote.

    Args:
        source: Where the results are; the top of the report states whether the study is unfinished.
        out_folder: Where to write; made if need be.

    Returns:
        The files: report.html, report.md, tables.tex, cells.csv (every cell in long format) and trials.csv (the chosen
        runs).
    """
    results = read_results(source)
    page = make_page(results)
    texts = {
        "report.html": render_html(page),
        "report.md": render_markdown(page),
        "tables.tex": render_latex(page),
        "cells.csv": page.downloads["cells.csv"],
        "trials.csv": facts.trials_csv(results),
    }
    out = Path(out_folder)
    out.mkdir(parents=True, exist_ok=True)
    return [write_atomically(out / name, text) for name, text in texts.items()]


def make_page(results: StudyResults, extra: Sequence[Section] = ()) -> Page:
    """The report as a page.

    Args:
        results: Of the study.
        extra: Further sections, behind those of the study; one without tables and chart is left out.
    """
    comparisons = [compare_methods(results, metric) for metric in METRICS]
    names = dict.fromkeys((*SHOWN, primary_metric(results.study)))
    shown = [each for metric in names for each in comparisons if each.metric == metric]
    return Page(
        title=f"Benchmark: {results.study.name}",
        lead=_lead(results),
        alert=_alert(results),
        notes=_privileged(results),
        tiles=_tiles(results, shown),
        sections=[each for each in (*_sections(results, shown), *extra) if each.tables or each.chart],
        downloads={"cells.csv": scores.cells_csv(results, comparisons)},
        footer=f"Made with onepos {__version__} from the results of the study alone.",
    )


def _list(stores: Mapping[str, Store]) -> str:
    rows = []
    for name, store in stores.items():
        runs = store.study().runs()
        rows.append([f"[{name}]({name}/report.md)", f"{store.status(runs).done} of {len(runs)}"])
    return f"# Reports\n\n{markdown_table(rows, ['study', 'finished runs'])}\n"


def _sections(results: StudyResults, shown: Sequence[MetricComparison]) -> list[Section]:
    return [
        make_section("star", "", facts.star_table(results)),
        make_section("overview", "", scores.overview_table(shown)),
        *map(_metric_section, shown),
        make_section("tests", "", scores.friedman_table(shown)),
        make_section("distance", "", scores.share_overview(shown), folded=map(scores.share_table, shown)),
        *([] if results.study.sampler == "star" else [_budget_section(results), _winners_section(results)]),
        make_section("time", "", facts.cost_table(results)),
        make_section("class-priors", "", facts.prior_table(results)),
        make_section("data", "", facts.dataset_table(results)),
        make_section(
            "completeness",
            "What was run",
            facts.state_table(results),
            facts.reason_table(results),
            facts.device_table(results),
        ),
    ]


def _metric_section(each: MetricComparison) -> Section:
    chart = None
    if each.friedman is not None:
        name = each.metric.replace("_", "-")
        caption = "Mean ranks over the data sets. A bar joins methods that do not differ significantly (Nemenyi, 0.05)."
        chart = Chart(partial(critical_difference_diagram, each.friedman, name), caption)
    table = scores.scores_table(each)
    return make_section(f"metric-{table.name}", "", table, folded=[scores.record_table(each)], chart=chart)


def _budget_section(results: StudyResults) -> Section:
    ranks = scores.budget_ranks(results)
    if len(ranks) < 2:
        return Section("rank-by-budget", "Rank by budget")
    table = scores.budget_table(results, ranks)
    draw = partial(budget_chart, ranks, results.study.floor)
    caption = f"{table.about} Where curves cross, the order of the methods depends on how much they are tuned."
    return make_section("rank-by-budget", "Rank by budget", folded=[table], chart=Chart(draw, caption))


def _winners_section(results: StudyResults) -> Section:
    tables = (facts.settings_table(results, dataset) for dataset in results.study.datasets)
    return make_section("winners", "", facts.settings_table(results), folded=tables)


def _has_choice(results: StudyResults) -> bool:
    """Whether there are configurations to choose from; a star is none."""
    return results.study.sampler != "star" and any(run.configuration for run in results.runs)


def _lead(results: StudyResults) -> str:
    """How the study was made."""
    study = results.study
    rule = study.selection.metric
    metric = "a vote of five metrics" if rule == MAJORITY else METRICS[rule].words
    seen = f"by {metric} on fully labelled validation rows"
    if study.selection.labels != "full":
        seen = f"by one label per validation row ({metric}, and {criterion_of(study.selection)})"
    budgets = [study.budgets.get(name, study.budget) for name in study.datasets]
    counts = Counter((run.dataset, run.method) for run in results.runs if run.trial == 0)
    split = "its own split (where the data ship none)" if study.split == "new" else "the same split"
    draw = "its own" if study.draw == "new" else "the same"
    inputs = "Features standardised" if study.scaling == "standard" else "Features as they are"
    if study.images:
        inputs = f"Images of {study.images.size} × {study.images.size} pixels, {study.images.weights} weights"
    chosen = f"Epoch and configuration are chosen {seen}"
    if study.sampler == "star":
        chosen = f"The epoch is chosen {seen}, of the configurations the centre of the star counts"
    elif not _has_choice(results):
        chosen = f"The epoch is chosen {seen}"
    return (
        f"{len(study.methods)} methods on {_range([len(study.datasets)], 'data set')}, each with "
        f"{_range(list(counts.values()), 'configuration')} ({study.sampler}) of "
        f"{_range([b.epochs for b in budgets], 'epoch')} in {_range([b.trials for b in budgets], 'trial')}. "
        f"Every trial has {split} and "
        f"{draw} draw of the single positives. {inputs}, networks {', '.join(study.networks)}. "
        f"{chosen}; the test rows are looked at once. The floor is {study.floor}; the "
        f"oracle, which learns from all labels, is {study.oracle}."
    )


def _range(numbers: Sequence[int], word: str) -> str:
    low, high = min(numbers), max(numbers)
    return (f"{high}" if low == high else f"{low} to {high}") + f" {word}{'s' if high > 1 else ''}"


def _alert(results: StudyResults) -> str:
    counts = Counter(results.states[run.key()] for run in results.runs)
    missing = [f"{count} {state}" for state, count in counts.items() if state != "done"]
    if not missing:
        return ""
    state = "Finished but for what was skipped" if results.is_complete else "Unfinished"
    return (
        f"{state}: {len(results.runs) - counts['done']} of {len(results.runs)} runs are missing "
        f"({', '.join(missing)}). A cell with fewer trials than planned is marked."
    )


def _privileged(results: StudyResults) -> list[str]:
    used = [f"{name}: {', '.join(words)}" for name, words in results.privileged.items() if name != results.study.oracle]
    return [f"† Privileged: uses more than single positives. {'; '.join(used)}."] if used else []


def _tiles(results: StudyResults, shown: Sequence[MetricComparison]) -> list[tuple[str, str]]:
    """The study in four numbers."""
    n_done = sum(state == "done" for state in results.states.values())
    tiles = [(grouped(n_done), f"of {grouped(len(results.runs))} runs are finished")]
    metric = primary_metric(results.study)
    test = next(each.friedman for each in shown if each.metric == metric)
    if test is not None:
        rank = min(test.mean_ranks.values())
        names = [scores.heading(results, name).text for name, each in test.mean_ranks.items() if each == rank]
        text = f"best mean rank in {METRICS[metric].words}: {rank:.2f}, of {len(test.mean_ranks)} methods"
        tiles.append((", ".join(names), text))
    hours, devices = facts.machine_hours(results)
    if devices:
        amount = f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"
        tiles.append((amount, f"of training on {'; '.join(devices)}"))
    return tiles
