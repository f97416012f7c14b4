"""Single positives on real images: what each method reaches, and why some end below the floor, from results alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from crisp_paper.hindsight import best_in_hindsight
from crisp_paper.paper import paper_value
from onepos.bench.comparison import SHOWN, compare_methods, share_of
from onepos.bench.results import Finished, StudyResults, read_results
from onepos.bench.statistics import FloatArray, Summary, summarise, win_tie_loss
from onepos.datasets import DATASETS
from onepos.files import write_atomically
from onepos.metrics import METRICS
from onepos.report.page import Page, make_section, render_markdown
from onepos.report.study_scores import heading
from onepos.report.tables import MISSING, Cell, Table, as_float, mean_and_std, percent, plain, signed

Source = str | os.PathLike[str]

STUDIES = ("features", "images-voc", "images-scenes")
"""A study each, in the order of the page."""

METRIC = "map"
PAPER_NAMES = {"voc2012-features": "voc", "coco2014-features": "coco", "voc-128px": "voc", "voc-256px": "voc"}
"""What the paper calls the data that a set is made of."""

_TITLES = {
    "voc-128px": "the 11 540 images of PASCAL VOC 2012 at 128 × 128 pixels, 20 labels",
    "voc-256px": "the 11 540 images of PASCAL VOC 2012 as squares of 256 pixels, 20 labels",
    "digit-scenes": "6 000 images of handwritten digits, 10 labels",
}

_POINTS = 100.0
_DIGITS = 2


@dataclass(frozen=True)
class Below:
    """A method that ends below the floor.

    Attributes:
        method: Its name.
        gap: Its scores less the floor's, trial by trial.
        is_clear: Whether a paired t-test over the trials says so.
        hindsight: The mean of the best test score over the configurations of each trial; a bound, not a result.
        prior_error: Σ|π̂ − π| / Σπ of the chosen runs, in the mean; None where there is none.
        wins: Metrics in which it is clearly better than the floor.
        reasons: What the runs tell, by the rules in `below_table`.
    """

    method: str
    gap: Summary
    is_clear: bool
    hindsight: float
    prior_error: float | None
    wins: tuple[str, ...]
    reasons: tuple[str, ...]


def write_image_results(sources: Iterable[Source], out: Source, variants: Iterable[Source] = ()) -> Path:
    """Write the page; studies may be unfinished, the page then states it.

    Args:
        sources: Results, a section for each data set of each: folders, or files of `onepos bench pack`.
        out: The Markdown file.
        variants: Results of studies that differ from those in where the head starts, for methods below the floor.
    """
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    report = make_image_results([read_results(each) for each in sources], [read_results(each) for each in variants])
    return write_atomically(path, render_markdown(report))


def make_image_results(studies: Sequence[StudyResults], variants: Sequence[StudyResults] = ()) -> Page:
    """The page."""
    sections = []
    for results in studies:
        for dataset in results.study.datasets:
            title = f"{dataset}: {DATASETS[dataset].title if dataset in DATASETS else _TITLES.get(dataset, '')}"
            title = title.removesuffix(": ")
            tables = score_table(results, dataset), below_table(results, dataset, variants)
            sections.append(make_section(dataset, title, *tables))
    open_runs = [
        f"{results.study.name}: {len(results.finished)} of {len(results.runs)} runs are done."
        for results in studies
        if not results.is_complete
    ]
    return Page(
        title="Single positives on real images",
        lead=_METRIC_NOTE,
        alert=" ".join(open_runs),
        notes=[*map(_study_note, studies), _REASON_NOTE, *_privileged_note(studies)],
        sections=sections,
    )


_METRIC_NOTE = (
    "mAP in percent: the average precision of each label over all test rows, averaged over the labels. A label without "
    "a positive among the rows is left out, where the code of Cole et al. counts it as 0; every label has one in every "
    "part of these sets, so both give the same. No row is dropped."
)


_REASON_NOTE = (
    "Why a method ends below the floor follows from rules. Even: a paired t-test over the trials does not distinguish "
    "it from the floor. Choice: in hindsight (the mean of the best test score of each trial, a bound) a configuration "
    "gets to the floor, the chosen one does not. No configuration: none does. Early: in most trials the epoch kept "
    "lies within the warm-up, so the method’s own loss only lowered the score on the validation rows. Unfinished: in "
    "most trials the epoch kept is the last. Least, greatest learning rate: in most trials the one chosen is at that "
    "end of those tried, if there are more than two. Privileged: what a variant gets that uses more. Start: what it "
    "and the floor get where the head starts elsewhere. Prior error: Σ|π̂ − π| / Σπ. Clearly better: by the same test."
)


def _study_note(results: StudyResults) -> str:
    study = results.study
    budgets = {name: study.budgets.get(name, study.budget) for name in study.datasets}
    spent = "; ".join(
        f"{name}: {each.configurations or 'all'} configurations, {each.epochs} epochs, {each.trials} trials"
        for name, each in budgets.items()
    )
    networks = ", ".join(study.networks)
    labels = "all labels" if study.selection.labels == "full" else "one label"
    images = study.images
    trained = f"scaling {study.scaling}"
    if images:
        trained = f"{images.size} px, {images.weights} weights, all layers trained, precision {images.precision}"
    return (
        f"Study `{study.name}` ({networks}; {trained}; head started at: {study.bias_init}; split "
        f"{study.split}, single positives {study.draw} in each trial). Per method on {spent}. Epoch and configuration "
        f"are chosen by {_rule(results)} on validation rows with {labels}; test rows are looked at once."
    )


def _rule(results: StudyResults) -> str:
    metric = results.study.selection.metric
    return METRICS[metric].title if metric in METRICS else metric


def _privileged_note(studies: Sequence[StudyResults]) -> list[str]:
    used = {
        method: ", ".join(words)
        for results in studies
        for method, words in results.privileged.items()
        if method != results.study.oracle
    }
    return [f"† Privileged: {'; '.join(f'{method} {words}' for method, words in used.items())}."] if used else []


def score_table(results: StudyResults, dataset: str) -> Table:
    """Method × what it reaches: mAP, share of the way from floor to oracle, the floor's lead, the paper's number."""
    study = results.study
    comparison = compare_methods(results, METRIC)
    row = comparison.scores[dataset]
    means = {method: summarise(row[method]).mean for method in results.competitors if summarise(row[method]).n}
    best = max(means.values(), default=0.0)
    rows = []
    for method in sorted(study.methods, key=lambda name: (name != study.oracle, name != study.floor)):
        ours = _in_points(summarise(row[method]))
        share = share_of(comparison.shares[dataset], method)
        text = MISSING if share != share else percent(share)
        is_short = 0 < ours.n < results.n_trials(dataset)
        notes = ((f"{ours.n} of {results.n_trials(dataset)} trials", "warning"),) if is_short else ()
        cell = Cell(mean_and_std(ours, _DIGITS), notes=notes, is_best=means.get(method) == best)
        against = MISSING if method == study.floor else _against_text(results, dataset, method, METRIC)
        rows.append([heading(results, method), cell, Cell(text), Cell(against), Cell(_paper_text(dataset, method))])
    header = ["Method", "mAP", "Share of the way", f"Less {study.floor}", "The paper’s (not comparable)"]
    about = (
        f"{_summary(results, dataset)} Mean ± standard deviation over the trials; bold: the best but {study.oracle}. "
        f"Share: 0 % at {study.floor}, 100 % at {study.oracle}. Less {study.floor}: better or worse by a paired t-test "
        "over the trials at 0.05, else even."
    )
    if any(_paper_text(dataset, method) != MISSING for method in study.methods):
        about += (
            " **The paper’s numbers have another backbone and resolution, with all layers trained, and more rows where "
            "this set holds a part of them: not comparable.**"
        )
    return Table(f"scores-{dataset}", "mAP", header, rows, about)


def _summary(results: StudyResults, dataset: str) -> str:
    study = results.study
    row = results.scores(METRIC)[dataset]
    means = {method: summarise(row[method]) for method in study.methods}
    below = find_below(results, dataset)
    clear = [each.method for each in below if each.is_clear]
    others = [name for name in study.methods if name not in (study.floor, study.oracle) and means[name].n]
    ends = " and ".join(
        f"{name} reaches {plain(_POINTS * means[name].mean, _DIGITS)}"
        for name in (study.oracle, study.floor)
        if means[name].n
    )
    names = f": {', '.join(each.method for each in below)}" if below else ""
    clearly = f" Clearly below: {', '.join(clear)}." if clear else " None of them clearly." if below else ""
    first = ends or "Nothing is done yet"
    return f"{first}. Of {len(others)} methods {len(below)} end below {study.floor}{names}.{clearly}"


def find_below(results: StudyResults, dataset: str, variants: Sequence[StudyResults] = ()) -> list[Below]:
    """Every method whose mean lies below the floor's, the lowest first."""
    floor = results.study.floor
    row = results.scores(METRIC)[dataset]
    gaps = {name: summarise(_gap(row, name, floor)) for name in results.competitors if name != floor}
    return [
        _explain(results, dataset, method, gap, variants)
        for method, gap in sorted(gaps.items(), key=lambda each: each[1].mean)
        if gap.n and gap.mean < 0
    ]


def below_table(results: StudyResults, dataset: str, variants: Sequence[StudyResults] = ()) -> Table | None:
    """The methods below the floor, with what their runs tell of the reason; None where there is none."""
    study = results.study
    rows = []
    for each in find_below(results, dataset, variants):
        texts = [
            signed(_POINTS * each.gap.mean, _DIGITS),
            plain(_POINTS * each.hindsight, _DIGITS),
            MISSING if each.prior_error is None else plain(each.prior_error, _DIGITS),
            ", ".join(METRICS[name].title for name in each.wins) or "none",
            "; ".join(each.reasons),
        ]
        rows.append([heading(results, each.method), *map(Cell, texts)])
    if not rows:
        return None
    error = _prior_error(results, dataset, study.floor)
    about = f"The prior error of {study.floor} is {MISSING if error is None else plain(error, _DIGITS)}."
    header = ["Method", f"Less {study.floor}", "Hindsight", "Prior error", "Clearly better in", "Why"]
    return Table(f"below-{dataset}", f"Below {study.floor}, and why", header, rows, about, is_prose=True)


def _explain(results: StudyResults, dataset: str, method: str, gap: Summary, variants: Sequence[StudyResults]) -> Below:
    floor = results.study.floor
    outcome = _outcome(results, dataset, method, METRIC)
    hindsight = best_in_hindsight(results, dataset, method, METRIC)
    target = summarise(results.scores(METRIC)[dataset][floor]).mean
    chosen = [each for (*where, _), each in results.chosen.items() if where == [dataset, method]]
    reasons = [] if outcome == "loss" else ["even"]
    count = len({run.configuration for run in results.runs if run.dataset == dataset})
    reasons.append("choice" if hindsight >= target else f"no configuration (of {count})")
    reasons += _training_reasons(results, chosen)
    reasons += _privileged_reasons(results, dataset, method)
    reasons += [text for each in variants if (text := _start_reason(each, dataset, method))]
    wins = tuple(name for name in SHOWN if _outcome(results, dataset, method, name) == "win")
    error = _prior_error(results, dataset, method)
    return Below(method, gap, outcome == "loss", hindsight, error, wins, tuple(reasons))


def _training_reasons(results: StudyResults, chosen: Sequence[Finished]) -> list[str]:
    """What the chosen runs have in common, each said where it holds in more than half of the trials."""
    rates = {run.lr for run, _ in results.finished if chosen and run.dataset == chosen[0][0].dataset}
    ends = (min(rates), max(rates)) if len(rates) > 2 else (None, None)  # of two, each is an end

    def mostly(holds: Callable[[Finished], bool]) -> str:
        count = sum(map(holds, chosen))
        return f"{count} of {len(chosen)} trials" if 2 * count > len(chosen) else ""

    found = {
        "early": mostly(lambda each: each[1]["best_epoch"] < each[0].parameters.get("warmup", 0)),
        "unfinished": mostly(lambda each: each[1]["best_epoch"] == each[0].epochs - 1),
        "least learning rate": mostly(lambda each: each[0].lr == ends[0]),
        "greatest learning rate": mostly(lambda each: each[0].lr == ends[1]),
    }
    return [f"{name} ({count})" for name, count in found.items() if count]


def _start_reason(variant: StudyResults, dataset: str, method: str) -> str:
    """What the method and the floor reach in a study with another start; nothing where it has no such run."""
    row = variant.scores(METRIC).get(dataset, {})
    ours, floor = (summarise(row.get(name, [])) for name in (method, variant.study.floor))
    if not ours.n or not floor.n:
        return ""
    numbers = [plain(_POINTS * each.mean, _DIGITS) for each in (ours, floor)]
    verdict = "below as well" if ours.mean < floor.mean else "not below"
    return f"start: at {variant.study.bias_init} it gets {numbers[0]}, {variant.study.floor} {numbers[1]}: {verdict}"


def _privileged_reasons(results: StudyResults, dataset: str, method: str) -> list[str]:
    """What privileged variants of the method reach; their names begin with the method's."""
    row = results.scores(METRIC)[dataset]
    return [
        f"privileged with {', '.join(words)} ({name}) it gets {plain(_POINTS * summarise(row[name]).mean, _DIGITS)}"
        for name, words in results.privileged.items()
        if name.startswith(f"{method}-") and summarise(row[name]).n
    ]


def _outcome(results: StudyResults, dataset: str, method: str, metric: str) -> str:
    """The method against the floor by a paired t-test over the trials: "win", "tie" or "loss"."""
    floor = results.study.floor
    row = {name: results.scores(metric)[dataset][name] for name in (method, floor)}
    record = win_tie_loss({dataset: row}, greater_is_better=METRICS[metric].greater_is_better)[method, floor]
    return "win" if record.win else "loss" if record.loss else "tie"


def _against_text(results: StudyResults, dataset: str, method: str, metric: str) -> str:
    gap = summarise(_gap(results.scores(metric)[dataset], method, results.study.floor))
    words = {"win": "better", "tie": "even", "loss": "worse"}
    return (
        f"{signed(_POINTS * gap.mean, _DIGITS)} {words[_outcome(results, dataset, method, metric)]}"
        if gap.n
        else MISSING
    )


def _gap(row: Mapping[str, FloatArray], method: str, floor: str) -> FloatArray:
    return row[method] - row[floor]


def _prior_error(results: StudyResults, dataset: str, method: str) -> float | None:
    chosen = [result for (*where, _), (_, result) in results.chosen.items() if where == [dataset, method]]
    errors = [error for result in chosen if (error := as_float(result.get("prior_error"))) is not None]
    return fmean(errors) if errors else None


def _paper_text(dataset: str, method: str) -> str:
    """As printed, in percent."""
    cell = paper_value(METRIC, PAPER_NAMES.get(dataset, dataset), method)
    if cell is None:
        return MISSING
    return plain(cell.mean, _DIGITS) + ("" if cell.std is None else f" ± {cell.std:.{_DIGITS}f}")


def _in_points(summary: Summary) -> Summary:
    return Summary(_POINTS * summary.mean, _POINTS * summary.std, summary.n)


def find_sources(results: Path) -> list[Path]:
    """Packed results of STUDIES in a folder, with any seed."""
    return [path for name in STUDIES for path in sorted(results.glob(f"{name}*/runs.jsonl.gz"))]
