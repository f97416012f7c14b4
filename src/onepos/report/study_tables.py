"""What every table of a study is made of: its finished runs, those chosen among them, and cells of text.

    results = read_results("results/fair")
    results.chosen["yeast", method, 0]      # the run that counts for trial 0, and what it gave

**Choice.** For every data set, method and trial the configuration is chosen by the rule of the study, from what was
measured on validation rows. Test scores are never looked at to choose. Of a star the centre counts: the rest is there
to be looked at.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from crisp_paper.paper import PaperCell, paper_tables, paper_value

from onepos.bench.statistics import FloatArray, Summary, summarise
from onepos.bench.store import Store, read_packed
from onepos.bench.study import Run, Selection, Study
from onepos.bench.study_file import read_study
from onepos.metrics import METRICS
from onepos.report.tables import MISSING, as_float, csv_table, decimal, latex_table, markdown_table
from onepos.training.criteria import CRITERIA
from onepos.training.selection import choose_epoch, measured_by

Finished = tuple[Run, Mapping[str, Any]]
Chosen = dict[tuple[str, str, int], Finished]

# The five metrics of the paper, then those within labels, where a method may lose what it wins within rows.
SHOWN = ("ranking_loss", "average_precision", "coverage", "hamming_loss", "one_error", "map", "macro_f1")

# How far a printed number may lie from the computed one: three decimals are printed.
_ROUNDING = 0.0005


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: What it says.
        mark: A word or number behind it: a rank, a role.
        notes: Smaller lines below it, each with its tone: "better", "worse", "warning" or "" for none.
        is_best: Whether to set it in bold.
        tone: Of the text, as for the notes.
        heat: From 0 to 1, how strongly the page shades it; None for not at all.
    """

    text: str
    mark: str = ""
    notes: tuple[tuple[str, str], ...] = ()
    is_best: bool = False
    tone: str = ""
    heat: float | None = None

    def flat(self) -> str:
        """All of it in one line; where there is no colour, better and worse are said in words."""
        notes = "; ".join(f"{text} {tone}" if tone in ("better", "worse") else text for text, tone in self.notes)
        return self.text + (f" ({self.mark})" if self.mark else "") + (f" [{notes}]" if notes else "")


@dataclass(frozen=True)
class StudyTable:
    """A table of the report.

    Attributes:
        name: Its identifier, in kebab case.
        title: Its heading.
        header: One text per column.
        rows: The first cell of a row is its heading.
        about: Sentences on how to read it.
        is_prose: Whether the cells hold words that may be broken into lines.
    """

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    about: str = ""
    is_prose: bool = False

    def markdown(self) -> str:
        """The table in Markdown."""
        return markdown_table(self._texts(), self.header, self._bold())

    def latex(self) -> str:
        """The table as a LaTeX tabular."""
        return latex_table(self._texts(), self.header, self._bold())

    def csv(self) -> str:
        """The table as CSV."""
        return csv_table(self._texts(), self.header)

    def _texts(self) -> list[list[str]]:
        return [[cell.flat() for cell in row] for row in self.rows]

    def _bold(self) -> set[tuple[int, int]]:
        return {(i, j) for i, row in enumerate(self.rows) for j, cell in enumerate(row) if cell.is_best}


@dataclass(frozen=True)
class StudyResults:
    """A study and what has come of it so far.

    Attributes:
        study: The study.
        runs: All its runs.
        finished: Those that are done, each with its result, in the order of the study.
        states: The state of each run by its key, as `Store.states` has it.
        reasons: Why a run failed or was skipped, by its key.
    """

    study: Study
    runs: tuple[Run, ...]
    finished: tuple[Finished, ...]
    states: Mapping[str, str]
    reasons: Mapping[str, str]

    @property
    def shared_rows(self) -> float:
        """Test rows over training rows where every trial is a new split, 10 % and 80 %; such trials share most rows."""
        return 0.125 if self.study.split == "new" else 0.0

    @cached_property
    def chosen(self) -> Chosen:
        """The runs that count, by the rule of the study."""
        return choose(self.study, self.finished)

    @cached_property
    def competitors(self) -> tuple[str, ...]:
        """All methods but the oracle."""
        return tuple(name for name in self.study.methods if name != self.study.oracle)

    @cached_property
    def told(self) -> dict[str, tuple[str, ...]]:
        """Method → what it was told beyond single positives."""
        found: dict[str, dict[str, None]] = {}
        for run, result in self.finished:
            found.setdefault(run.method, {}).update(dict.fromkeys(result.get("privileged") or ()))
        return {method: tuple(words) for method, words in found.items() if words}

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do: every run is done, or was skipped with a reason."""
        return all(state in ("done", "skipped") for state in self.states.values())

    def scores(self, metric: str, chosen: Chosen | None = None) -> dict[str, dict[str, FloatArray]]:
        """Data set → method → its test score in each trial, NaN where there is none."""
        runs = self.chosen if chosen is None else chosen
        return {
            dataset: {
                method: np.array([_test_score(runs.get((dataset, method, k)), metric) for k in range(n_trials)])
                for method in self.study.methods
            }
            for dataset, n_trials in ((name, self.n_trials(name)) for name in self.study.datasets)
        }

    def n_trials(self, dataset: str) -> int:
        """How many trials are planned."""
        return self.study.budgets.get(dataset, self.study.budget).trials

    def heading(self, method: str) -> Cell:
        """The head of a method's row: its name, its role, and a dagger where it was told something."""
        roles = {self.study.floor: "floor", self.study.oracle: "oracle"}
        is_told = method in self.told and method != self.study.oracle
        return Cell(method + (" †" if is_told else ""), mark=roles.get(method, ""))


def read_results(source: str | os.PathLike[str]) -> StudyResults:
    """Read a study and its results from the folder of a store, or from a file that `onepos bench pack` wrote.

    Runs of other studies in them are left out; a file is not unpacked to disk.
    """
    path = Path(source)
    if path.is_file():
        return _read_packed(path)
    if not (path / "study.toml").is_file():
        found = "it has no study.toml" if path.is_dir() else "it does not exist"
        raise ValueError(
            f"{path} must be a folder of results, or a file written by `onepos bench pack`; {found}. Give the folder "
            "named to `onepos bench run`."
        )
    store = Store(path)
    study = store.study()
    runs = tuple(study.runs())
    done = {run.key(): result for run, result in store.results()}
    states = store.states(runs)
    reasons = {}
    for run in runs:
        if states[run.key()] == "failed":
            reasons[run.key()] = store.failure(run)["error"]
        elif states[run.key()] == "skipped":
            reasons[run.key()] = store.reason(run)
    finished = tuple((run, done[run.key()]) for run in runs if run.key() in done)
    return StudyResults(study, runs, finished, states, reasons)


def _read_packed(path: Path) -> StudyResults:
    text, contents = read_packed(path)
    done = {run.key(): content["result"] for run, content in contents if "result" in content}
    reasons = {run.key(): content["reason"] for run, content in contents if "reason" in content}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "study.toml")
        file.write_text(text, encoding="utf-8")
        study = read_study(file)
    runs = tuple(study.runs())
    finished = tuple((run, done[run.key()]) for run in runs if run.key() in done)
    settled = dict.fromkeys(reasons, "skipped") | dict.fromkeys(done, "done")
    states = {run.key(): settled.get(run.key(), "waiting") for run in runs}
    return StudyResults(study, runs, finished, states, reasons)


def choose(study: Study, results: Iterable[Finished], selection: Selection | None = None) -> Chosen:
    """The run that counts for each (data set, method, trial): the best configuration on the validation rows.

    A run that diverged, or lacks a number the choice needs, can not be chosen. Of equals the first configuration wins.

    Args:
        study: Whose selection decides; by MAJORITY the configurations are voted for as epochs are.
        results: Finished runs.
        selection: Another rule, in place of the study's.
    """
    rule = selection or study.selection
    candidates: dict[tuple[str, str, int], list[tuple[dict[str, float], Finished]]] = {}
    for run, result in sorted(results, key=lambda each: each[0].configuration):
        numbers = _selection_numbers(result, rule)
        counts = study.sampler != "star" or run.configuration == 0
        if counts and numbers is not None:
            candidates.setdefault((run.dataset, run.method, run.trial), []).append((numbers, (run, result)))
    return {key: found[_best([numbers for numbers, _ in found], rule)][1] for key, found in candidates.items()}


def criterion_of(selection: Selection) -> str:
    """The criterion that chooses configurations where one label of each validation row is seen.

    That of the selection's name; average precision where it has none, as for metrics that need all labels.
    """
    return selection.metric if selection.metric in CRITERIA else "average_precision"


def primary_metric(study: Study) -> str:
    """The metric to judge by where there is room for one: that of the selection if it is one of METRICS."""
    return study.selection.metric if study.selection.metric in METRICS else "average_precision"


def printed_value(metric: str, dataset: str, method: str) -> PaperCell | None:
    """The number printed in the paper, in the units of METRICS."""
    cell = paper_value(metric, dataset, method)
    scale = next((table.scale for table in paper_tables() if table.metric == metric), None)
    if cell is None or scale is None:
        return None
    return PaperCell(cell.mean / scale, None if cell.std is None else cell.std / scale)


def compare(ours: Summary, printed: PaperCell, *, greater_is_better: bool) -> str:
    """Whether our mean lies within two standard deviations of the printed one: "within", else "better" or "worse".

    The larger deviation of the two counts, since the paper's trials and ours need not vary alike.
    """
    spread = float(np.nanmax([ours.std, printed.std or 0.0]))
    if abs(ours.mean - printed.mean) <= 2 * spread + _ROUNDING:
        return "within"
    return "better" if (ours.mean > printed.mean) == greater_is_better else "worse"


def plain(value: float, digits: int = 3) -> str:
    """As `decimal`, but without the sign of a zero.

    Example:
        >>> plain(-0.0001)
        '0.000'
    """
    return decimal(round(value, digits) + 0.0, digits)


def mean_and_std(summary: Summary, digits: int = 3) -> str:
    """Mean ± std, the mean alone for a single trial."""
    if not summary.n:
        return MISSING
    spread = "" if math.isnan(summary.std) else f" ± {summary.std:.{digits}f}"
    return plain(summary.mean, digits) + spread


def summary_cell(values: Sequence[float] | FloatArray, n_wanted: int, digits: int = 3) -> Cell:
    """Mean ± std of the trials, with a note where some are missing."""
    summary = summarise(values)
    is_short = 0 < summary.n < n_wanted
    notes = ((f"{summary.n} of {n_wanted} trials", "warning"),) if is_short else ()
    return Cell(mean_and_std(summary, digits), notes=notes)


def _selection_numbers(result: Mapping[str, Any], rule: Selection) -> dict[str, float] | None:
    """What the rule compares; None where the run can not be chosen."""
    if rule.labels == "full":
        measured, names = result["validation"], measured_by(rule.metric)
    else:
        measured, names = result["criteria"], (criterion_of(rule),)
    numbers = {name: as_float(measured.get(name)) for name in names}
    known = {name: value for name, value in numbers.items() if value is not None}
    return None if result["diverged"] or len(known) < len(names) else known


def _best(numbers: Sequence[Mapping[str, float]], rule: Selection) -> int:
    """Position of the best, the first of equals; by the rule that also chooses epochs."""
    series = {name: [each[name] for each in numbers] for name in numbers[0]}
    if rule.labels == "full":
        return choose_epoch(series, rule.metric, 0).best
    ((name, values),) = series.items()
    return values.index(max(values) if CRITERIA[name].greater_is_better else min(values))


def _test_score(finished: Finished | None, metric: str) -> float:
    value = None if finished is None else as_float(finished[1]["test"].get(metric))
    return math.nan if value is None else value
