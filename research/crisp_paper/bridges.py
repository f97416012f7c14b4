"""Why numbers differ, by measurement: studies that differ from the published protocol in one thing each.

A bridge is compared with those runs of the published protocol that differ from its own in that one thing and in nothing
else: same point of the grid, same rows, same single positives, same seed. Points that only one of the two has finished
count for neither.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crisp_paper.paper import ROUNDING
from crisp_paper.printed import VERDICTS, Key, Printed, judge, measure, printed_cells, printed_text
from onepos.bench.comparison import metric_title
from onepos.bench.results import StudyResults
from onepos.bench.statistics import FloatArray, Summary, summarise
from onepos.bench.study import Run, Study
from onepos.metrics import METRICS
from onepos.report.tables import MISSING, Cell, Table, mean_and_std, plain, signed

# What a bridge may change: the field of the study, what to call it, and the fields of its runs.
_CHANGES = {
    "networks": ("network", ("network", "hidden")),
    "scaling": ("scaling", ("scaling",)),
    "selection": ("selection", ("select_metric", "select_labels")),
    "bias_init": ("start", ("bias_init",)),
}

_CONTROL = "the same at the bridges’ points"
OTHER_SPLIT = "another split"
_UNCLEAR = "none is clear"

Scores = Mapping[str, Mapping[str, FloatArray]]


@dataclass(frozen=True)
class Bridge:
    """One change and what it does.

    Attributes:
        change: What it changes, and into what.
        results: Of its study, all of them.
        before: Those of the published protocol that have a counterpart.
        after: The counterparts.
    """

    change: str
    results: StudyResults
    before: StudyResults
    after: StudyResults

    def changes(self, metric: str) -> dict[tuple[str, str], FloatArray]:
        """(Data set, method) → after less before, trial by trial; NaN where one is missing."""
        before, after = self.before.scores(metric), self.after.scores(metric)
        pairs = [(dataset, method) for dataset, row in after.items() for method in row]
        return {
            (dataset, method): trials - before[dataset][method][: len(trials)]
            for dataset, method in pairs
            for trials in [after[dataset][method]]
        }


@dataclass(frozen=True)
class Evidence:
    """The studies a page is made of.

    Attributes:
        published: The published protocol.
        fair: The fair one, which changes everything at once.
        bridges: What changes one thing each.
        readings: Readings of CRISP under the fair protocol; None where they were not run.
    """

    published: StudyResults
    fair: StudyResults
    bridges: tuple[Bridge, ...]
    readings: StudyResults | None = None

    @cached_property
    def datasets(self) -> tuple[str, ...]:
        """Data sets of the paper that the published protocol is run on."""
        printed = {cell.dataset for cell in printed_cells()}
        return tuple(name for name in self.published.study.datasets if name in printed)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The paper's methods, in its order."""
        return tuple(dict.fromkeys(cell.method for cell in printed_cells()))

    @cached_property
    def ours(self) -> Mapping[Key, Summary]:
        """What the published protocol gives."""
        return measure(self.published)

    @cached_property
    def control(self) -> Mapping[Key, Summary]:
        """What it gives at the bridges' points and trials alone, which are fewer."""
        finished = {run.key(): (run, result) for each in self.bridges for run, result in each.before.finished}
        return measure(dataclasses.replace(self.published, finished=tuple(finished.values())))

    @cached_property
    def changed(self) -> dict[str, Mapping[Key, Summary]]:
        """Change → what it gives; last the fair protocol by its name."""
        bridges = {bridge.change: measure(bridge.results) for bridge in self.bridges}
        return {**bridges, self.fair.study.name: measure(self.fair)}

    @cached_property
    def read(self) -> Mapping[Key, Summary]:
        """What the readings give."""
        return measure(self.readings) if self.readings else {}


def build_bridge(published: StudyResults, results: StudyResults) -> Bridge:
    """Match the runs of a bridge with those of the published protocol; refuse what changes more than one thing."""
    changed = [name for name in _CHANGES if getattr(published.study, name) != getattr(results.study, name)]
    wanted = f"{results.study.name} must be {published.study.name} with one of {', '.join(_CHANGES)} changed"
    if len(changed) != 1:
        raise ValueError(f"{wanted}; it differs in {', '.join(changed) or 'none of them'}. Change one at a time.")
    word, fields = _CHANGES[changed[0]]
    shared = [run for run in published.runs if run.dataset in results.study.datasets]
    known = {_identity(run, fields): run.key() for run in shared}
    stranger = next((run for run in results.runs if _identity(run, fields) not in known), None)
    if stranger is not None:
        raise ValueError(
            f"{wanted} and nothing else; its run {stranger.key()} ({stranger.method} on {stranger.dataset}) has no "
            "counterpart. Take data sets, methods, trials and points of the grid from that study."
        )
    done = {run.key() for run, _ in published.finished}
    partner = {run.key(): known[_identity(run, fields)] for run, _ in results.finished}
    kept = {key for pair in partner.items() if pair[1] in done for key in pair}
    before, after = (
        dataclasses.replace(side, finished=tuple(each for each in side.finished if each[0].key() in kept))
        for side in (published, results)
    )
    return Bridge(f"{word}: {_value(results.study, changed[0])}", results, before, after)


def effect_tables(evidence: Evidence, metric: str) -> list[Table]:
    """What each change does to a metric: a table over the data sets, then one per data set over the methods."""
    changes = {bridge.change: bridge.changes(metric) for bridge in evidence.bridges}
    printed = {cell.key: cell for cell in printed_cells()}
    columns = [*evidence.changed, "Largest"]
    overview, tables = [], []
    for dataset in evidence.datasets:
        effects = {method: _effects(evidence, changes, (metric, dataset, method)) for method in evidence.methods}
        methods, averaged = _average(evidence, changes, dataset, effects)
        means = [
            _mean_text([printed[metric, dataset, method].value.mean for method in methods]),
            _mean_text([evidence.ours[metric, dataset, method].mean for method in methods]),
        ]
        first = [*map(Cell, means), *_effect_cells(evidence, averaged)]
        overview.append([Cell(dataset), Cell(str(len(methods))), *first])
        rows = [[Cell("mean"), *first]]
        for method in evidence.methods:
            key = (metric, dataset, method)
            texts = [
                printed_text(printed[key]) if key in printed else MISSING,
                mean_and_std(evidence.ours[key]) if key in evidence.ours else MISSING,
            ]
            rows.append([Cell(method), *map(Cell, texts), *_effect_cells(evidence, effects[method])])
        about = "The first row is the mean over the methods that were run with every change."
        header = ["Method", "Paper", evidence.published.study.name, *columns]
        name, title = f"effect-{dataset}-{metric.replace('_', '-')}", f"{dataset}: {metric_title(metric)}"
        tables.append(Table(name, title, header, rows, about, is_prose=True))
    header = ["Data set", "Methods", "Paper", evidence.published.study.name, *columns]
    name, title = f"effect-{metric.replace('_', '-')}", f"{metric_title(metric)}: what each change does"
    return [Table(name, title, header, overview, _about_effects(evidence), is_prose=True), *tables]


def verdict_table(evidence: Evidence) -> Table:
    """Data set × protocol: how many numbers are reproduced, better and worse, of those that all of them have."""
    sides = {evidence.published.study.name: evidence.ours}
    if evidence.bridges:
        sides[_CONTROL] = evidence.control
    sides |= evidence.changed
    rows = []
    for dataset in evidence.datasets:
        cells = [cell for cell in printed_cells() if cell.dataset == dataset]
        held = {name: side for name, side in sides.items() if any(cell.key in side for cell in cells)}
        common = [cell for cell in cells if all(cell.key in side for side in held.values())]
        texts = []
        for name, side in sides.items():
            verdicts = [judge(cell, side[cell.key]) for cell in common] if name in held else []
            texts.append(" / ".join(str(verdicts.count(kind)) for kind in VERDICTS) if verdicts else MISSING)
        rows.append([Cell(dataset), Cell(str(len(common))), *map(Cell, texts)])
    about = (
        f"{' / '.join(VERDICTS).capitalize()} than printed, over the numbers that all of them have. –: not run. "
        "Bridges search fewer points in fewer trials; what that alone does stands beside."
    )
    return Table("verdicts", "Verdicts by protocol", ["Data set", "Numbers", *sides], rows, about, is_prose=True)


def account_table(evidence: Evidence, part: str) -> Table:
    """Data set or method × explanation: how many of the numbers that are not reproduced it accounts for.

    Args:
        evidence: The studies.
        part: "dataset" or "method".
    """
    lost = [
        cell
        for cell in printed_cells()
        if cell.key in evidence.ours and judge(cell, evidence.ours[cell.key]) != "reproduced"
    ]
    rows = []
    for value in (*(evidence.datasets if part == "dataset" else evidence.methods), "all"):
        mine = [cell for cell in lost if value in (getattr(cell, part), "all")]
        found = [explanations(evidence, cell) for cell in mine]
        texts = [
            str(sum(name in names for names in found)) if _was_run(evidence, name, mine) else MISSING
            for name in _accounts(evidence)
        ]
        numbers = [str(len(mine)), *texts, str(sum(not names for names in found))]
        rows.append([Cell(value), *map(Cell, numbers)])
    word = {"dataset": "Data set", "method": "Method"}[part]
    about = (
        f"Numbers that {evidence.published.study.name} does not reproduce, and how many of them would be: with one "
        f"thing changed, or with {OTHER_SPLIT}: the paper’s is not published, and ours differs from the printed "
        f"number by no more than two standard deviations of {evidence.fair.study.name}, whose trials have splits of "
        "their own. A single change counts where the number is not reproduced without it at the same points of the "
        "grid, and where it brings our mean nearer. Several can hold for one number. –: not run, or nothing to account "
        "for."
    )
    header = [word, "Not reproduced", *_accounts(evidence), "nothing"]
    return Table(
        f"accounts-{part}", f"What accounts for the others, by {word.lower()}", header, rows, about, is_prose=True
    )


def reason_table(evidence: Evidence, dataset: str) -> Table:
    """Method × metric on one data set: the verdict, and what accounts for it or comes nearest."""
    cells = {cell.key: cell for cell in printed_cells()}
    metrics = list(dict.fromkeys(cell.metric for cell in printed_cells()))
    rows = []
    for method in evidence.methods:
        found = [cells.get((metric, dataset, method)) for metric in metrics]
        rows.append([Cell(method), *(Cell(_reason(evidence, cell) if cell else MISSING) for cell in found)])
    about = (
        "Of a number that is not reproduced: what accounts for it, by the rules above; where nothing does, the change "
        "that comes nearest to the printed number, if any comes nearer, and what is left. "
        f"{evidence.fair.study.name}: all changes together."
    )
    header = ["Method", *(METRICS[metric].title for metric in metrics)]
    return Table(f"reasons-{dataset}", f"{dataset}: cell by cell", header, rows, about, is_prose=True)


def _identity(run: Run, changed: Sequence[str]) -> str:
    content = run.to_json()
    for name in (*changed, "configuration"):
        del content[name]
    return json.dumps(content, sort_keys=True)


def _value(study: Study, field: str) -> str:
    if field == "networks":
        return ", ".join(study.networks)
    if field == "selection":
        metric = study.selection.metric
        return METRICS[metric].words if metric in METRICS else metric
    return str(getattr(study, field))


def _about_effects(evidence: Evidence) -> str:
    return (
        f"Change against {evidence.published.study.name}, mean ± standard deviation over the trials, averaged over the "
        "paper’s methods that were run with every change. Largest: the single change that moves the score most, either "
        "way; named where it moves it by more than two standard deviations of the change over the trials. "
        f"{evidence.fair.study.name} changes all of it at once, and more: the search, the epochs, and new splits; it "
        "can not be paired. –: not run."
    )


def _effects(
    evidence: Evidence, changes: Mapping[str, Mapping[tuple[str, str], FloatArray]], key: Key
) -> dict[str, Summary]:
    """Change → what it does to one method; without those that were not run."""
    effects = {name: summarise(trials[key[1:]]) for name, trials in changes.items() if key[1:] in trials}
    name = evidence.fair.study.name
    ours, fair = evidence.ours.get(key), evidence.changed[name].get(key)
    if ours and fair:
        effects[name] = Summary(fair.mean - ours.mean, math.nan, min(ours.n, fair.n))
    return {name: summary for name, summary in effects.items() if summary.n}


def _average(
    evidence: Evidence,
    changes: Mapping[str, Mapping[tuple[str, str], FloatArray]],
    dataset: str,
    effects: Mapping[str, Mapping[str, Summary]],
) -> tuple[list[str], dict[str, Summary]]:
    """The methods that were run with every change that was run at all, and change → its effect averaged over them."""
    names = {name for each in effects.values() for name in each}
    methods = [method for method, each in effects.items() if names and names <= set(each)]
    if not methods:
        return [], {}
    found = {
        name: summarise(np.mean([trials[dataset, method] for method in methods], axis=0))
        for name, trials in changes.items()
        if name in names
    }
    fair = evidence.fair.study.name
    if fair in names:
        found[fair] = Summary(float(np.mean([effects[method][fair].mean for method in methods])), math.nan, 1)
    return methods, found


def _effect_cells(evidence: Evidence, effects: Mapping[str, Summary]) -> list[Cell]:
    """One per change, and the largest."""
    texts = []
    for name in evidence.changed:
        summary = effects.get(name)
        if summary is None or not summary.n:
            texts.append(MISSING)
        else:
            texts.append(signed(summary.mean) + ("" if math.isnan(summary.std) else f" ± {summary.std:.3f}"))
    single = {bridge.change: effects[bridge.change] for bridge in evidence.bridges if bridge.change in effects}
    return [*map(Cell, texts), Cell(_largest(single))]


def _largest(effects: Mapping[str, Summary]) -> str:
    """The change that moves most, either way, if it is clear of the noise and shows in three decimals."""
    if not effects:
        return MISSING
    name = max(effects, key=lambda change: abs(effects[change].mean))
    summary = effects[name]
    return name if summary.n > 1 and abs(summary.mean) > max(2 * summary.std, ROUNDING) else _UNCLEAR


def _mean_text(values: Sequence[float]) -> str:
    return plain(float(np.mean(values))) if values else MISSING


def _accounts(evidence: Evidence) -> list[str]:
    return [OTHER_SPLIT, *evidence.changed]


def _was_run(evidence: Evidence, name: str, cells: Sequence[Printed]) -> bool:
    side = evidence.changed[evidence.fair.study.name if name == OTHER_SPLIT else name]
    return any(cell.key in side for cell in cells)


def _baseline(evidence: Evidence, name: str) -> Mapping[Key, Summary]:
    """What a change starts from: a bridge searches fewer points, so that its baseline does too."""
    return evidence.ours if name == evidence.fair.study.name else evidence.control


def explanations(evidence: Evidence, cell: Printed) -> list[str]:
    """Of a number that is not reproduced: which of `_accounts` hold.

    A single change must also bring the mean nearer: one that only makes the trials differ more accounts for nothing.
    """
    found, nearer, whole = [], remaining_gaps(evidence, cell), evidence.fair.study.name
    for name, side in evidence.changed.items():
        before = _baseline(evidence, name).get(cell.key)
        if before and judge(cell, before) != "reproduced" and (name in nearer or name == whole) and cell.key in side:
            found += [name] if judge(cell, side[cell.key]) == "reproduced" else []
    fair = evidence.changed[whole].get(cell.key)
    if fair is None or fair.n < 2 or evidence.fair.study.split != "new":
        return found
    gap = abs(evidence.ours[cell.key].mean - cell.value.mean)
    return [OTHER_SPLIT, *found] if gap <= 2 * fair.std + ROUNDING else found


def remaining_gaps(evidence: Evidence, cell: Printed) -> dict[str, float]:
    """Changes that come nearer to a printed number than without them → by how much they still miss it."""
    found = {}
    for name, side in evidence.changed.items():
        before = _baseline(evidence, name).get(cell.key)
        if before and cell.key in side:
            gap, left = (each.mean - cell.value.mean for each in (before, side[cell.key]))
            found |= {name: left} if abs(left) < abs(gap) - ROUNDING else {}
    return found


def single_changes(evidence: Evidence, cell: Printed) -> list[str]:
    """Of `explanations` those that change one thing."""
    names = {bridge.change for bridge in evidence.bridges}
    return [name for name in explanations(evidence, cell) if name in names]


def is_measured(evidence: Evidence, cell: Printed) -> bool:
    """Whether any single change was run on the data set with the method of a number."""
    return any(cell.key in evidence.changed[bridge.change] for bridge in evidence.bridges)


def _reason(evidence: Evidence, cell: Printed) -> str:
    doubt = "; the printed number is in doubt" if cell.doubt else ""
    if cell.key not in evidence.ours:
        return f"not run{doubt}"
    ours = evidence.ours[cell.key]
    verdict = judge(cell, ours)
    if verdict == "reproduced":
        return verdict + doubt
    if evidence.bridges and not is_measured(evidence, cell):
        doubt = f"; single changes not run{doubt}"
    found = explanations(evidence, cell)
    if found:
        return f"{verdict}; {', '.join(found)}{doubt}"
    if not any(cell.key in side for side in evidence.changed.values()):
        return f"{verdict}; no change was run{doubt}"
    left = remaining_gaps(evidence, cell)
    if not left:
        return f"{verdict}; no change comes nearer{doubt}"
    nearest = min(left, key=lambda name: abs(left[name]))
    return f"{verdict}; nearest with {nearest} ({signed(left[nearest])}){doubt}"
