"""The results of a study: its finished runs, and which of them count.

    results = read_results("results/fair")
    results.chosen["yeast", "crisp", 0]      # the run that counts for trial 0, and its result

**Choice.** For every data set, method and trial the configuration is chosen by the rule of the study, from numbers
measured on validation rows. Test scores take no part in it. Of a star the centre counts; its other points are there
to be compared, not to be chosen.

Nothing here needs torch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from onepos.bench.statistics import FloatArray
from onepos.bench.store import Store, read_packed
from onepos.bench.study import Run, Selection, Study
from onepos.bench.study_file import parse_stored
from onepos.criteria import CRITERIA
from onepos.metrics import METRICS
from onepos.training.selection import choose_epoch, measured_by

Finished = tuple[Run, Mapping[str, Any]]
Chosen = dict[tuple[str, str, int], Finished]


@dataclass(frozen=True)
class StudyResults:
    """A study and its results so far."""

    study: Study
    runs: tuple[Run, ...]
    finished: tuple[Finished, ...]  # those that are done, each with its result, in the order of the study
    states: Mapping[str, str]  # the state of each run by its key, as `Store.states` has it
    reasons: Mapping[str, str]  # why a run failed or was skipped, by its key

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
    def privileged(self) -> dict[str, tuple[str, ...]]:
        """Method → what it used beyond single positives."""
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
        scores = {key: score_of(result, metric) for key, (_, result) in runs.items()}
        return {
            dataset: {
                method: np.array([scores.get((dataset, method, k), math.nan) for k in range(self.n_trials(dataset))])
                for method in self.study.methods
            }
            for dataset in self.study.datasets
        }

    def n_trials(self, dataset: str) -> int:
        """How many trials are planned."""
        return self.study.budgets.get(dataset, self.study.budget).trials


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
    failed, skipped = ([run for run in runs if states[run.key()] == state] for state in ("failed", "skipped"))
    reasons = {run.key(): store.failure(run)["error"] for run in failed}
    reasons |= {run.key(): store.reason(run) for run in skipped}
    return StudyResults(study, runs, _finished(runs, done, path), states, reasons)


def _read_packed(path: Path) -> StudyResults:
    text, contents = read_packed(path)
    study = parse_stored(text, str(path))
    runs = tuple(study.runs())
    done = {run.key(): content["result"] for run, content in contents if "result" in content}
    reasons = {run.key(): content["reason"] for run, content in contents if "reason" in content}
    settled = dict.fromkeys(reasons, "skipped") | dict.fromkeys(done, "done")
    states = {run.key(): settled.get(run.key(), "waiting") for run in runs}
    return StudyResults(study, runs, _finished(runs, done, path), states, reasons)


def _finished(runs: Iterable[Run], done: Mapping[str, Mapping[str, Any]], source: Path) -> tuple[Finished, ...]:
    finished = tuple((run, done[run.key()]) for run in runs if run.key() in done)
    for run, result in finished:
        wrong = find_wrong(result)
        if wrong:
            raise ValueError(
                f"{source} must hold results written by onepos; that of run {run.key()} has {wrong}. Delete the run's "
                "file, and `onepos bench run` makes it again; a packed file must be packed again."
            )
    return finished


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62


def _are_numbers(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(map(_is_number, value)))


def _are_scores(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


def _is_timing(value: Any) -> bool:
    numbers = {key: entry for key, entry in value.items() if key != "device"} if isinstance(value, dict) else None
    return numbers is not None and _are_scores(numbers) and isinstance(value.get("device", ""), str | None)


def _is_trace(value: Any) -> bool:
    if value is None:
        return True
    rows = [row for part in value.values() for row in part or ()] if isinstance(value, dict) else [0]
    return all(map(_are_numbers, rows)) and all(isinstance(part, list | None) for part in value.values())


# What a result holds; reports read the first ones of every result, and the others where they are there.
_NEEDED: dict[str, Callable[[Any], bool]] = {
    "test": _are_scores,
    "validation": _are_scores,
    "criteria": _are_scores,
    "timing": _is_timing,
    "diverged": lambda value: isinstance(value, bool),
    "best_epoch": _is_whole,
    "n_labels": _is_whole,
    "cardinality": _is_number,
}
_OTHERS: dict[str, Callable[[Any], bool]] = {
    "n_epochs": _is_whole,
    "prior_error": _is_number,
    "loss": _are_numbers,
    "curve": _are_numbers,
    "prior": _are_numbers,
    "true_prior": _are_numbers,
    "privileged": lambda value: isinstance(value, list) and all(isinstance(word, str) for word in value),
    "rules": lambda value: isinstance(value, dict) and all(map(_are_scores, value.values())),
    "trace": _is_trace,
}


def find_wrong(result: Any) -> str:
    """What a stored result lacks, or holds in another form; empty where it is as a run gives it."""
    if not isinstance(result, Mapping):
        return f"a result of another kind, {str(result)[:40]!r}"
    for name, is_right in (_NEEDED | _OTHERS).items():
        if name not in result:
            if name in _NEEDED:
                return f"no {name!r}"
        elif not is_right(result[name]):
            return f"as {name!r} {str(result[name])[:40]!r}"
    return ""


def choose(study: Study, results: Iterable[Finished], selection: Selection | None = None) -> Chosen:
    """The run that counts for each (data set, method, trial): the best configuration on the validation rows.

    A run that diverged, or lacks a number the choice needs, can not be chosen. Of equals the first configuration wins.
    By MAJORITY the configurations are voted for as epochs are. `selection` is a rule in place of the study's.
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
    """The criterion that chooses configurations where one label of each validation row is observed.

    That of the selection's name; average precision where it has none, as for metrics that need all labels.
    """
    return selection.metric if selection.metric in CRITERIA else "average_precision"


def primary_metric(study: Study) -> str:
    """The metric to judge by where only one is used: that of the selection if it is one of METRICS."""
    return study.selection.metric if study.selection.metric in METRICS else "average_precision"


def score_of(result: Mapping[str, Any], metric: str) -> float:
    """The test score of a finished run; NaN where there is none."""
    value = result["test"].get(metric)
    return math.nan if value is None else float(value)


def _selection_numbers(result: Mapping[str, Any], rule: Selection) -> dict[str, float] | None:
    """The numbers that the rule compares; None where the run can not be chosen."""
    if rule.labels == "full":
        measured, names = result["validation"], measured_by(rule.metric)
    else:
        measured, names = result["criteria"], (criterion_of(rule),)
    known = {name: float(measured[name]) for name in names if measured.get(name) is not None}
    is_whole = len(known) == len(names) and all(map(math.isfinite, known.values()))
    return known if is_whole and not result["diverged"] else None


def _best(numbers: Sequence[Mapping[str, float]], rule: Selection) -> int:
    """Position of the best, the first of equals; by the rule that also chooses epochs."""
    series = {name: [each[name] for each in numbers] for name in numbers[0]}
    if rule.labels == "full":
        return choose_epoch(series, rule.metric, 0).best
    ((name, values),) = series.items()
    return values.index(max(values) if CRITERIA[name].greater_is_better else min(values))
