"""The report of a study: one page that needs no network, and its tables as Markdown, LaTeX and CSV.

Everything in it comes from the folder of the store, and the same folder gives the same bytes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crisp_paper.shortfall import reach_table, shortfall_table

from onepos import __version__
from onepos.files import write_atomically
from onepos.metrics import METRICS
from onepos.report import study_facts as facts
from onepos.report import study_scores as scores
from onepos.report import study_significance as significance
from onepos.report import study_traces as traced
from onepos.report.canvas import NARROW, WIDE
from onepos.report.study_comparison import MetricComparison, compare_methods
from onepos.report.study_curves import epoch_chart, value_chart
from onepos.report.study_figures import budget_chart, critical_difference_diagram
from onepos.report.study_regret import regret_tables
from onepos.report.study_sensitivity import find_rays, make_panel, sensitivity_table
from onepos.report.study_tables import SHOWN, StudyResults, StudyTable, criterion_of, primary_metric, read_results
from onepos.report.tables import percent
from onepos.training.selection import MAJORITY

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Chart:
    """A chart drawn for a desk and for a phone, and what to say below it."""

    wide: str
    narrow: str
    caption: str


@dataclass(frozen=True)
class Section:
    """A part of the report.

    Attributes:
        name: Its identifier.
        title: Its heading.
        tables: Shown as they are.
        folded: Tables that the page shows when asked to.
        chart: Shown below the tables.
    """

    name: str
    title: str
    tables: tuple[StudyTable, ...] = ()
    folded: tuple[StudyTable, ...] = ()
    chart: Chart | None = None


@dataclass(frozen=True)
class Report:
    """All that is said of a study, before it is put into a format.

    Attributes:
        title: Of the page.
        lead: What was done, in sentences.
        alert: What is missing; "" for a study that is finished.
        told: What methods were told beyond single positives; "" for nothing.
        tiles: Numbers and what they are.
        sections: Of the page.
        cells: Every cell as CSV.
    """

    title: str
    lead: str
    alert: str
    told: str
    tiles: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    cells: str


def write_report(source: str | os.PathLike[str], out_folder: str | os.PathLike[str]) -> list[Path]:
    """Write the report of a study from the folder of its store, or from a file that `onepos bench pack` wrote.

    Args:
        source: Where the results are; the study may be unfinished, which the report says at its top.
        out_folder: Where to write; made if need be.

    Returns:
        The files: report.html, report.md, tables.tex, cells.csv (every cell in long format) and trials.csv (the chosen
        runs).
    """
    results = read_results(source)
    report = make_report(results)
    texts = {
        "report.html": render_html(report),
        "report.md": render_markdown(report),
        "tables.tex": render_latex(report),
        "cells.csv": report.cells,
        "trials.csv": facts.trials_csv(results),
    }
    out = Path(out_folder)
    out.mkdir(parents=True, exist_ok=True)
    return [write_atomically(out / name, text) for name, text in texts.items()]


def make_report(results: StudyResults) -> Report:
    """Compute everything that is shown."""
    comparisons = [compare_methods(results, metric) for metric in METRICS]
    names = dict.fromkeys((*SHOWN, primary_metric(results.study)))
    shown = [each for metric in names for each in comparisons if each.metric == metric]
    return Report(
        title=f"Benchmark: {results.study.name}",
        lead=_lead(results),
        alert=_alert(results),
        told=_told(results),
        tiles=_tiles(results, shown),
        sections=[section for section in _sections(results, shown) if section.tables or section.chart],
        cells=scores.cells_csv(results, comparisons),
    )


def render_html(report: Report) -> str:
    """The page."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("study.html").render(title=report.title, report=report, version=__version__)


def render_markdown(report: Report) -> str:
    """All tables, with the sentences about them."""
    parts = [f"# {report.title}", f"**{report.alert}**" if report.alert else "", report.lead, report.told]
    told: set[str] = set()  # what several tables have to say is said once
    for section in report.sections:
        parts.append(f"## {section.title}")
        for table in (*section.tables, *section.folded):
            parts.append(f"### {table.title}" if table.title != section.title else "")
            parts.append("" if table.about in told else table.about)
            parts.append(table.markdown())
            told.add(table.about)
    return "\n\n".join(part for part in parts if part) + "\n"


def render_latex(report: Report) -> str:
    """All tables as tabulars, each below a comment that says what it is."""
    parts = [f"% {report.title}. Needs the package booktabs.", f"% {report.alert}" if report.alert else ""]
    for section in report.sections:
        for table in (*section.tables, *section.folded):
            parts.append(f"% {table.name}: {table.title}\n% {table.about}\n{table.latex()}")
    return "\n\n".join(part for part in parts if part) + "\n"


def _sections(results: StudyResults, shown: Sequence[MetricComparison]) -> list[Section]:
    return [
        _sensitivity_section(results),
        *_trace_sections(results),
        _section("overview", "", scores.overview_table(shown)),
        *map(_metric_section, shown),
        _section(
            "tests", "Is it more than chance?", significance.friedman_table(shown), significance.wilcoxon_table(shown)
        ),
        *([_shortfall_section(results)] if _has_choice(results) else []),
        _section("distance", "", significance.share_overview(shown), folded=map(significance.share_table, shown)),
        *([] if results.study.sampler == "star" else [_budget_section(results), _winners_section(results)]),
        _section("time", "", facts.cost_table(results)),
        _section("class-priors", "", facts.prior_table(results)),
        *([_selection_section(results)] if _has_choice(results) else []),
        _section("data", "", facts.dataset_table(results)),
        _section(
            "completeness",
            "What was run",
            facts.state_table(results),
            facts.reason_table(results),
            facts.device_table(results),
        ),
    ]


def _section(
    name: str,
    title: str,
    *tables: StudyTable | None,
    folded: Iterable[StudyTable | None] = (),
    chart: Chart | None = None,
) -> Section:
    """A section of the tables that have something to show; without a title it takes that of the first of them."""
    shown = tuple(table for table in tables if table is not None and table.rows)
    hidden = tuple(table for table in folded if table is not None and table.rows)
    return Section(name, title or (shown[0].title if shown else ""), shown, hidden, chart)


def _metric_section(each: MetricComparison) -> Section:
    chart = None
    if each.friedman is not None:
        name = each.metric.replace("_", "-")
        wide, narrow = (critical_difference_diagram(each.friedman, name, width) for width in (WIDE, NARROW))
        caption = "Mean ranks over the data sets. A bar joins methods that do not differ significantly (Nemenyi, 0.05)."
        chart = Chart(wide, narrow, caption)
    table = scores.scores_table(each)
    return _section(f"metric-{table.name}", "", table, folded=[significance.record_table(each)], chart=chart)


def _budget_section(results: StudyResults) -> Section:
    ranks = scores.budget_ranks(results)
    if len(ranks) < 2:
        return Section("rank-by-budget", "Rank by budget")
    table = scores.budget_table(results, ranks)
    wide, narrow = (budget_chart(ranks, results.study.floor, width) for width in (WIDE, NARROW))
    caption = f"{table.about} Where curves cross, the order of the methods depends on how much they are tuned."
    return _section("rank-by-budget", "Rank by budget", folded=[table], chart=Chart(wide, narrow, caption))


def _winners_section(results: StudyResults) -> Section:
    tables = (facts.settings_table(results, dataset) for dataset in results.study.datasets)
    return _section("winners", "", facts.settings_table(results), folded=tables)


def _selection_section(results: StudyResults) -> Section:
    return _section("selection", "Choosing without full labels", *regret_tables(results))


def _has_choice(results: StudyResults) -> bool:
    """Whether there are configurations to choose from; a star is none."""
    return results.study.sampler != "star" and any(run.configuration for run in results.runs)


def _shortfall_section(results: StudyResults) -> Section:
    tables = reach_table(results), shortfall_table(results)
    return _section("below-paper", "Below the paper’s row, and why", *tables)


def _sensitivity_section(results: StudyResults) -> Section:
    rays = find_rays(results)
    if not rays:
        return Section("sensitivity", "Sensitivity")
    panels, metric = [make_panel(ray) for ray in rays], METRICS[primary_metric(results.study)].title
    wide, narrow = (value_chart(panels, metric, width) for width in (WIDE, NARROW))
    caption = (
        f"{metric} on the test rows when one parameter is varied and all others stay at the centre of the star, the "
        "hollow mark: mean over the trials, with a band of one standard deviation to either side. A centre that is no "
        "number stands first; the dotted line carries it on."
    )
    table = sensitivity_table(results, rays)
    return _section("sensitivity", "Sensitivity", folded=[table], chart=Chart(wide, narrow, caption))


def _trace_sections(results: StudyResults) -> Iterator[Section]:
    """Curves by epoch, where the study has traces."""
    traces = traced.read_traces(results)
    if not traces:
        return
    names = traced.make_names(results, traces)
    panels, title = traced.score_panels(traces), "Predicted class priors by epoch"
    wide, narrow = (epoch_chart(panels, names, "predicted-priors", title, width) for width in (WIDE, NARROW))
    caption = (
        "Mean probability of a label over the validation rows: the class prior that the predictions of a method amount "
        "to; mean over the trials. The dashed line named “true” is the true prior, the share in the training rows. "
        "Methods with priors of their own are thick. Labels are counted from one."
    )
    tables = [traced.score_table(results, each) for each in traces]
    yield _section("predicted-priors", title, folded=tables, chart=Chart(wide, narrow, caption))
    panels, title = traced.error_panels(traces), "Convergence of π̂"
    if panels:
        wide, narrow = (epoch_chart(panels, names, "prior-errors", title, width) for width in (WIDE, NARROW))
        caption = (
            "Mean |π̂ − π| over the labels, of methods with priors of their own: mean over the trials. A curve starts "
            "with the first estimate."
        )
        table = traced.error_table(results, [each for each in traces if each.errors])
        yield _section("prior-convergence", title, folded=[table], chart=Chart(wide, narrow, caption))
    yield _section("estimate-time", "", traced.estimate_time_table(results, traces))


def _lead(results: StudyResults) -> str:
    """What was done, told from the study alone."""
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
    if study.pictures:
        inputs = f"Pictures of {study.pictures.size} × {study.pictures.size} pixels, {study.pictures.weights} weights"
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
        f"({', '.join(missing)}). Cells with fewer trials than planned say so."
    )


def _told(results: StudyResults) -> str:
    told = [f"{name}: {', '.join(words)}" for name, words in results.told.items() if name != results.study.oracle]
    return f"† Told more than single positives: {'; '.join(told)}." if told else ""


def _tiles(results: StudyResults, shown: Sequence[MetricComparison]) -> list[tuple[str, str]]:
    """The study in four numbers."""
    n_done = sum(state == "done" for state in results.states.values())
    tiles = [(_grouped(n_done), f"of {_grouped(len(results.runs))} runs are finished")]
    metric = primary_metric(results.study)
    test = next(each.friedman for each in shown if each.metric == metric)
    if test is not None:
        rank = min(test.mean_ranks.values())
        names = [results.heading(name).text for name, each in test.mean_ranks.items() if each == rank]
        text = f"best mean rank in {METRICS[metric].words}: {rank:.2f}, of {len(test.mean_ranks)} methods"
        tiles.append((", ".join(names), text))
    counts = scores.count_verdicts(shown)
    total = sum(counts.values())
    if total:
        text = f"of {total} printed numbers lie within two standard deviations of ours; better here: {counts['better']}"
        tiles.append((percent(counts["within"] / total), f"{text}, worse: {counts['worse']}"))
    hours, devices = facts.machine_hours(results)
    if devices:
        amount = f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"
        tiles.append((amount, f"of training on {'; '.join(devices)}"))
    return tiles


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")
