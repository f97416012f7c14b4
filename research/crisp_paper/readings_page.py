"""The page about the readings of CRISP: what each gives under the fair protocol, from the runs of their studies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crisp_paper.printed import judge, printed_cells
from crisp_paper.readings import READINGS, readings_as_methods
from onepos.bench.comparison import metric_title, rank_methods
from onepos.bench.results import StudyResults, read_results
from onepos.bench.statistics import FloatArray, summarise
from onepos.metrics import METRICS
from onepos.report.page import Page, make_section
from onepos.report.tables import MISSING, Cell, Table, decimal, plain

STUDIES = ("crisp-readings", "crisp-readings-features")

RANKED = ("ranking_loss", "average_precision", "coverage", "hamming_loss", "one_error", "map", "micro_f1", "macro_f1")
_ASSUME_NEGATIVE, _LETTER, _DEFAULT, _TRUE = "an", "crisp-as-published", "crisp", "crisp-true"
_PROPER = "crisp-squared"

Scores = dict[str, dict[str, FloatArray]]


def find_sources(results: Path) -> list[Path]:
    """The packed runs, of those studies that are there."""
    return [path for name in STUDIES if (path := results / name / "runs.jsonl.gz").is_file()]


def read_studies(results: Path) -> list[StudyResults]:
    """Their results."""
    with readings_as_methods():
        return [read_results(path) for path in find_sources(results)]


def make_readings(studies: Sequence[StudyResults]) -> Page:
    """The page."""
    scores = {metric: _complete_scores(studies, metric) for metric in (*RANKED,)}
    methods = (_ASSUME_NEGATIVE, *READINGS)
    everywhere = [
        name for name, row in scores["map"].items() if all(method in row for method in methods)
    ]  # data sets on which each of them was run
    return Page(
        title="Readings of CRISP",
        lead="The CRISP paper leaves choices open. This page shows what each choice gives under the fair protocol: the "
        "same rows, single positives, networks, number of configurations and epochs for all, epoch and configuration "
        "chosen on validation rows, test rows used once. The seed was not used to choose the default. Decisions are "
        "made at 0.5. The runs are made by python research/scripts/crisp_readings.py STORE.",
        sections=[
            make_section("ranks", "Mean ranks", _rank_table(scores, methods, everywhere)),
            make_section("readings", "What each reading is", _reading_table()),
            make_section("printed", "Printed numbers reached", _printed_table(scores, methods)),
            make_section("default", "The default beside AN, the letter and true priors", *_beside_tables(scores)),
            make_section("all", "Every reading", *(_score_table(scores, metric, methods) for metric in RANKED)),
        ],
    )


def _complete_scores(studies: Sequence[StudyResults], metric: str) -> Scores:
    """Data set → method → test score by trial, of methods all of whose runs are there."""
    found: Scores = {}
    for results in studies:
        planned = Counter((run.dataset, run.method) for run in results.study.runs())
        done = Counter((run.dataset, run.method) for run, _ in results.finished)
        for dataset, row in results.scores(metric).items():
            found[dataset] = {
                method: trials for method, trials in row.items() if done[dataset, method] == planned[dataset, method]
            }
    return {dataset: row for dataset, row in found.items() if row}


def _rank_table(scores: dict[str, Scores], methods: Sequence[str], datasets: Sequence[str]) -> Table:
    ranks = {
        method: [
            float(np.mean([_ranks(scores[metric][dataset], methods, metric)[method] for dataset in datasets]))
            for metric in RANKED
        ]
        for method in methods
        if datasets
    }
    rows = [
        [
            Cell(_describe(method), is_best=method == _DEFAULT),
            *(Cell(decimal(value, 1)) for value in (*values, np.mean(values))),
        ]
        for method, values in sorted(ranks.items(), key=lambda item: float(np.mean(item[1])))
    ]
    about = (
        f"Rank among these {len(methods)}, 1 for the best, mean over {len(datasets)} data sets "
        f"({', '.join(datasets)}). Last column: the mean of the row. True priors and AN are for comparison."
    )
    header = ["Reading", *(metric_title(metric).rstrip(" ↑↓") for metric in RANKED), "All"]
    return Table("ranks", "Mean ranks", header, rows, about)


def _reading_table() -> Table:
    rows = [[Cell(name, is_best=name == _DEFAULT), Cell(text)] for name, (text, _) in READINGS.items()]
    return Table("readings", "What each reading is", ["Reading", "what it is"], rows, is_prose=True)


def _ranks(row: dict[str, FloatArray], methods: Sequence[str], metric: str) -> dict[str, float]:
    return rank_methods(
        {method: row[method] for method in methods}, greater_is_better=METRICS[metric].greater_is_better
    )


def _printed_table(scores: dict[str, Scores], methods: Sequence[str]) -> Table:
    cells = [cell for cell in printed_cells() if cell.method == "crisp" and cell.dataset in scores[cell.metric]]
    datasets = list(dict.fromkeys(cell.dataset for cell in cells))
    rows = []
    for method in methods:
        reached = {
            cell.key: judge(cell, summarise(scores[cell.metric][cell.dataset][method])) != "worse"
            for cell in cells
            if method in scores[cell.metric][cell.dataset]
        }
        parts = [[key for key in reached if key[1] == dataset] for dataset in datasets]
        texts = [f"{sum(reached[key] for key in part)} of {len(part)}" if part else MISSING for part in parts]
        rows.append([Cell(_describe(method)), *map(Cell, texts), Cell(f"{sum(reached.values())} of {len(reached)}")])
    about = (
        "How many of the paper's numbers for CRISP (ranking loss, average precision, coverage, Hamming loss, "
        "one-error) a reading reaches under the fair protocol: its mean is better than the printed one, or within "
        f"two standard deviations of it. {MISSING}: not run. The paper's protocol differs; see reproduction.md."
    )
    return Table("printed", "Printed numbers reached", ["Reading", *datasets, "all"], rows, about)


def _beside_tables(scores: dict[str, Scores]) -> list[Table]:
    """Micro-F1, Hamming loss and average precision, with what the default makes of them."""
    names = {_ASSUME_NEGATIVE: "AN", _LETTER: "the letter", _DEFAULT: "default", _TRUE: "true priors"}
    names |= {_PROPER: "squared loss"}
    tables = []
    for metric in ("micro_f1", "hamming_loss", "average_precision"):
        rows = []
        for dataset, row in scores[metric].items():
            if _DEFAULT not in row:
                continue
            cells = [Cell(_mean_text(row.get(method))) for method in names]
            if _TRUE in row:
                ratio = float(row[_DEFAULT].mean() / row[_TRUE].mean())
                cells.append(Cell(decimal(ratio, 2)))
            else:
                cells.append(Cell(MISSING))
            rows.append([Cell(dataset), *cells])
        header = ["Data set", *names.values(), "default / true priors"]
        tables.append(Table(f"beside-{metric}".replace("_", "-"), metric_title(metric), header, rows))
    return tables


def _score_table(scores: dict[str, Scores], metric: str, methods: Sequence[str]) -> Table:
    datasets = list(scores[metric])
    rows = [
        [Cell(_describe(method)), *(Cell(_mean_text(scores[metric][dataset].get(method))) for dataset in datasets)]
        for method in methods
    ]
    about = f"Mean over the trials. {MISSING}: not run."
    return Table(metric.replace("_", "-"), metric_title(metric), ["Reading", *datasets], rows, about)


def _mean_text(trials: FloatArray | None) -> str:
    return MISSING if trials is None else plain(float(trials.mean()), 3 if trials.mean() > 0.05 else 4)


def _describe(method: str) -> str:
    return "AN" if method == _ASSUME_NEGATIVE else method
