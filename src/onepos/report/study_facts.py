"""Facts of a study beside its scores: states of the runs, costs, chosen settings, class priors, and data."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from onepos.bench.grid import Axis
from onepos.bench.results import Finished, StudyResults, primary_metric, score_of
from onepos.bench.statistics import summarise
from onepos.bench.study import Run
from onepos.datasets import DATASETS
from onepos.metrics import METRICS
from onepos.report.charts.canvas import shorten
from onepos.report.study_scores import heading, summary_cell
from onepos.report.tables import MISSING, Cell, Table, as_float, csv_table, decimal, seconds_text

_STATES = ("done", "running", "waiting", "stale", "failed", "skipped")


def state_table(results: StudyResults) -> Table:
    """Data set × state: how many runs; and how many of the finished ones diverged."""
    rows = []
    for dataset in (*results.study.datasets, "all"):
        states = Counter(results.states[run.key()] for run in results.runs if dataset in (run.dataset, "all"))
        finished = [result for run, result in results.finished if dataset in (run.dataset, "all")]
        n_diverged = sum(bool(result["diverged"]) for result in finished)
        numbers = [sum(states.values()), *(states[state] for state in _STATES), n_diverged]
        hours = _hours(result["timing"] for result in finished)
        rows.append([Cell(dataset), *(Cell(str(number)) for number in numbers), Cell(f"{hours:.2f}")])
    header = ["Data set", "planned", *_STATES, "diverged", "hours"]
    about = (
        "Stale: claimed by a process that has gone. Diverged runs are done, but can not be chosen. Hours: the seconds "
        "of all finished runs in all."
    )
    return Table("runs", "Runs", header, rows, about)


def reason_table(results: StudyResults) -> Table | None:
    """Why runs failed or were skipped: each reason once, with what it concerns."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in results.runs:
        key = run.key()
        if key in results.reasons:
            groups.setdefault((results.states[key], results.reasons[key]), []).append(run)
    if not groups:
        return None
    rows = []
    for (state, reason), runs in sorted(groups.items(), key=lambda each: -len(each[1])):
        where = dict.fromkeys(f"{run.method} on {run.dataset}" for run in runs)
        texts = [str(len(runs)), shorten(reason, 300), ", ".join(where)]
        rows.append([Cell(state), *map(Cell, texts)])
    return Table("reasons", "Why runs are missing", ["State", "Runs", "Reason", "Where"], rows, is_prose=True)


def machine_hours(results: StudyResults) -> tuple[float, list[str]]:
    """Hours of all finished runs, and the devices they ran on."""
    timings = [result["timing"] for _, result in results.finished]
    return _hours(timings), sorted({str(timing["device"]) for timing in timings if timing.get("device")})


def device_table(results: StudyResults) -> Table:
    """Device by device: runs, hours, and how many runs were trained together."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for _, result in results.finished:
        groups.setdefault(str(result["timing"].get("device") or "unknown"), []).append(result["timing"])
    rows = []
    for device, timings in sorted(groups.items()):
        stack = median(timing.get("stack") or 1 for timing in timings)
        rows.append([*map(Cell, [device, str(len(timings)), f"{_hours(timings):.2f}", f"{stack:g}"])])
    about = "Trained together: how many runs shared their steps, in the median."
    return Table("devices", "Devices", ["Device", "Runs", "Hours", "Trained together"], rows, about)


def cost_table(results: StudyResults) -> Table:
    """Method × data set: seconds of a run, the ratio to the floor's, and the memory."""
    timings: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for run, result in results.finished:
        timings.setdefault((run.dataset, run.method), []).append(result["timing"])
    rows = []
    for method in results.study.methods:
        cells = []
        for dataset in results.study.datasets:
            both = [timings.get((dataset, name), []) for name in (method, results.study.floor)]
            (ours, floor), size = (_median(each, "seconds") for each in both), _median(both[0], "memory_bytes")
            devices, floor_devices = ({each.get("device") for each in group} for group in both)
            notes = [f"× {ours / floor:.1f}"] if ours and floor and devices == floor_devices else []
            notes += [f"{size / 2**20:.0f} MiB"] if size else []
            below = ((", ".join(notes), ""),) if notes else ()
            cells.append(Cell(MISSING if ours is None else seconds_text(ours), notes=below))
        rows.append([heading(results, method), *cells])
    about = (
        "Median over the runs; below, times the seconds of the floor, where both ran on the same devices, and the "
        "memory. Runs trained together share the time they took, and others may have been at work beside them: a rough "
        "guide."
    )
    return Table("cost", "Seconds and memory per run", ["Method", *results.study.datasets], rows, about)


def settings_table(results: StudyResults, dataset: str = "") -> Table | None:
    """Which settings won: per method, over the trials of a data set, or of all of them."""
    groups: dict[str, list[Finished]] = {name: [] for name in results.study.methods}
    for (name, method, _), finished in results.chosen.items():
        if dataset in (name, ""):
            groups[method].append(finished)
    rows = [[heading(results, name), *_settings(results, name, runs)] for name, runs in groups.items() if runs]
    if not rows:
        return None
    about = (
        "Of the chosen configurations. Of a choice: how often it was taken. Of a range: the median, and the least and "
        "the greatest. Epoch: the one kept, counted from 0, in the median."
    )
    header = ["Method", "Network", "Learning rate", "Weight decay", "Batch size", "Own parameters", "Epoch"]
    name, title = (f"settings-{dataset}", dataset) if dataset else ("settings", "Settings that won")
    return Table(name, title, header, rows, about, is_prose=True)


def prior_table(results: StudyResults) -> Table | None:
    """Method × data set: error of the class priors of the chosen runs."""
    errors: dict[tuple[str, str], list[float]] = {}
    for (dataset, method, _), (_, result) in results.chosen.items():
        error = as_float(result.get("prior_error"))
        if error is not None:
            errors.setdefault((dataset, method), []).append(error)
    methods = [name for name in results.study.methods if any(name == method for _, method in errors)]
    if not methods:
        return None
    best = {
        dataset: _best_error([errors.get((dataset, name), ()) for name in methods if name in results.competitors])
        for dataset in results.study.datasets
    }
    rows = []
    for method in methods:
        cells = []
        for dataset in results.study.datasets:
            values = errors.get((dataset, method), [])
            cell = summary_cell(values, results.n_trials(dataset))
            is_best = method in results.competitors and decimal(summarise(values).mean) == best[dataset]
            cells.append(dataclasses.replace(cell, is_best=is_best))
        rows.append([heading(results, method), *cells])
    about = (
        "Σ|π̂ − π| / Σπ over the labels with an estimate, π the shares in the training rows; 0 is perfect. A method "
        "that keeps no priors is given those that the estimator reads off its scores."
    )
    return Table("priors", "Error of the class priors", ["Method", *results.study.datasets], rows, about)


def star_table(results: StudyResults) -> Table | None:
    """Point of a star × data set: the test score; None where the study is no star."""
    study, metric = results.study, primary_metric(results.study)
    if study.sampler != "star":
        return None
    scores: dict[tuple[str, str, int], list[float]] = {}
    for run, result in results.finished:
        if not result["diverged"]:
            scores.setdefault((run.dataset, run.method, run.configuration), []).append(score_of(result, metric))
    rows = []
    for method in study.methods:
        for k, point in enumerate(study.star(method)):
            setting = ", ".join(f"{name} {_short(value)}" for name, value in point.items())
            trials = {dataset: scores.get((dataset, method, k), []) for dataset in study.datasets}
            cells = [summary_cell(values, results.n_trials(dataset)) for dataset, values in trials.items()]
            rows.append([heading(results, method), Cell(setting or "centre"), *cells])
    about = (
        f"{METRICS[metric].title} on the test rows, mean ± standard deviation over the trials. One parameter is "
        "varied, all others stay at the centre. Nothing is chosen among the points."
    )
    return Table("star", "One parameter at a time", ["Method", "Point", *study.datasets], rows, about)


def dataset_table(results: StudyResults) -> Table:
    """The data sets, and the budget of a method on each."""
    seen = {run.dataset: result for run, result in reversed(results.finished)}
    rows = []
    for dataset in results.study.datasets:
        source, result = DATASETS.get(dataset), seen.get(dataset)
        n_labels = result["n_labels"] if result else source.n_labels if source else None
        budget = results.study.budgets.get(dataset, results.study.budget)
        count = len({run.configuration for run in results.runs if run.dataset == dataset})
        sizes = (getattr(source, "n_samples", None), getattr(source, "n_features", None), n_labels)
        texts = [dataset, *(decimal(size, 0) for size in sizes), decimal(result["cardinality"] if result else None, 2)]
        rows.append([*map(Cell, texts), *(Cell(str(each)) for each in (budget.trials, count, budget.epochs))])
    header = ["Data set", "Rows", "Features", "Labels", "Labels per row", "Trials", "Configurations", "Epochs"]
    about = "Labels per row: in the training rows of the first trial. Configurations: per method."
    return Table("datasets", "Data sets", header, rows, about)


def trials_csv(results: StudyResults) -> str:
    """The chosen runs one by one: where they stand, their settings and every test score, unrounded."""
    header = ["dataset", "method", "trial", "configuration", "key", "network", "lr", "weight_decay", "batch_size"]
    header += ["best_epoch", "prior_error", "seconds", *METRICS]
    rows = []
    for run, result in results.chosen.values():
        words = [run.dataset, run.method, run.trial, run.configuration, run.key(), network_name(run)]
        words += [run.lr, run.weight_decay, run.batch_size, result["best_epoch"], result.get("prior_error")]
        words += [result["timing"].get("seconds"), *(result["test"].get(name) for name in METRICS)]
        rows.append(["" if word is None else str(word) for word in words])
    return csv_table(rows, header)


def network_name(run: Run) -> str:
    """The network as a study names it, widths and all."""
    return "-".join([run.network, *map(str, run.hidden)])


def _settings(results: StudyResults, method: str, runs: Sequence[Finished]) -> list[Cell]:
    study = results.study
    own = study.method_space.get(method, {})
    named = [_values([run.parameters[name] for run, _ in runs], own[name]).flat() for name in sorted(own)]
    epochs = dict.fromkeys(run.epochs for run, _ in runs)
    return [
        _values([network_name(run) for run, _ in runs]),
        _values([run.lr for run, _ in runs], study.space["lr"]),
        _values([run.weight_decay for run, _ in runs], study.space["weight_decay"]),
        _values([run.batch_size for run, _ in runs]),
        Cell("; ".join(f"{name} {text}" for name, text in zip(sorted(own), named, strict=True)) or MISSING),
        Cell(f"{median(result['best_epoch'] for _, result in runs):g}", notes=((f"of {max(epochs)}", ""),)),
    ]


def _values(values: Sequence[Any], axis: Axis | None = None) -> Cell:
    """Choices with their counts, the commonest first; of a range the median, and both ends below."""
    counts = Counter(map(_short, values))
    if len(counts) == 1:
        return Cell(_short(values[0]))
    if axis is not None and axis.kind != "values":
        return Cell(_short(median(values)), notes=((f"{_short(min(values))} to {_short(max(values))}", ""),))
    (first, *others) = (f"{text} ×{count}" for text, count in counts.most_common())
    return Cell(first, notes=((", ".join(others), ""),))


def _short(value: Any) -> str:
    """Two digits of a number.

    Example:
        >>> _short(0.00000234), _short(True), _short(32)
        ('2.3e-6', 'True', '32')
    """
    return f"{value:.2g}".replace("e-0", "e-") if isinstance(value, float) else str(value)


def _best_error(trials: Sequence[Sequence[float]]) -> str:
    """The least mean as printed; nothing where there is no contest."""
    means = [summarise(values).mean for values in trials if values]
    return decimal(min(means)) if len(means) > 1 else ""


def _median(timings: Iterable[Mapping[str, Any]], name: str) -> float | None:
    known = [value for timing in timings if (value := as_float(timing.get(name))) is not None]
    return float(median(known)) if known else None


def _hours(timings: Iterable[Mapping[str, Any]]) -> float:
    return sum(as_float(timing.get("seconds")) or 0.0 for timing in timings) / 3600
