"""Two studies side by side, A and B: what a change of the code, or of the protocol, does to every score.

    comparison = compare_studies(read_results("results/before"), read_results("results/after"))
    print(render_comparison(comparison))

Compared is what each study would report: per data set and method the runs chosen by the study's own rule. Trials are
paired where both studies met the same split, single positives and seed of the weights.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import stats

from onepos.bench.statistics import FloatArray, Outcome, Summary, share_closed, summarise
from onepos.bench.study import Study
from onepos.metrics import METRICS
from onepos.report.study_significance import p_value
from onepos.report.study_tables import (
    SHOWN,
    Cell,
    StudyResults,
    StudyTable,
    mean_and_std,
    plain,
    primary_metric,
)
from onepos.report.tables import MISSING

_ALPHA = 0.05

Seeds = tuple[int, int, int]


@dataclass(frozen=True)
class Difference:
    """A score of a method on a data set in two studies.

    Attributes:
        dataset: Name of the data set.
        method: Name of the method.
        metric: A key of METRICS.
        first: A's trials that are compared.
        second: B's.
        n_pairs: How many of them are paired; 0 where they are compared as two samples.
        p: Two-sided; NaN where fewer than two trials leave nothing to test.
    """

    dataset: str
    method: str
    metric: str
    first: Summary
    second: Summary
    n_pairs: int
    p: float

    @property
    def change(self) -> float:
        """B's mean less A's."""
        return self.second.mean - self.first.mean

    @property
    def outcome(self) -> Outcome:
        """B's: better ("win") or worse ("loss") at 0.05; all else is a tie."""
        if not self.p < _ALPHA:
            return "tie"
        return "win" if (self.change > 0) == METRICS[self.metric].greater_is_better else "loss"


@dataclass(frozen=True)
class Comparison:
    """All that two studies have in common, and what they have not.

    Attributes:
        first: A.
        second: B.
        metrics: Those compared.
        differences: By metric, data set and method, in the order of A.
        only_first: (Data set, method) of which only A has results.
        only_second: The same of B.
    """

    first: StudyResults
    second: StudyResults
    metrics: tuple[str, ...]
    differences: tuple[Difference, ...]
    only_first: tuple[tuple[str, str], ...]
    only_second: tuple[tuple[str, str], ...]

    @property
    def changed(self) -> tuple[str, ...]:
        """The fields in which the studies differ, but for their names."""
        names = [each.name for each in dataclasses.fields(Study) if each.name != "name"]
        return tuple(name for name in names if getattr(self.first.study, name) != getattr(self.second.study, name))

    def count(self, outcome: Outcome, metric: str | None = None, dataset: str | None = None) -> int:
        """How many of the differences have an outcome; of one metric or data set, where named."""
        return sum(
            each.outcome == outcome and metric in (None, each.metric) and dataset in (None, each.dataset)
            for each in self.differences
        )

    def to_json(self) -> dict[str, Any]:
        """The comparison in the types of JSON; null for what is not known."""
        return {
            "studies": [{"name": r.study.name, "done": len(r.finished), "runs": len(r.runs)} for r in self._sides()],
            "changed": list(self.changed),
            "counts": {
                metric: {kind: self.count(kind, metric) for kind in ("win", "tie", "loss")} for metric in self.metrics
            },
            "differences": [_plain_difference(each) for each in self.differences],
            "only_first": [list(pair) for pair in self.only_first],
            "only_second": [list(pair) for pair in self.only_second],
        }

    def _sides(self) -> tuple[StudyResults, StudyResults]:
        return self.first, self.second


def compare_studies(
    first: StudyResults, second: StudyResults, metrics: Sequence[str] = SHOWN, *, names: tuple[str, str] = ("A", "B")
) -> Comparison:
    """Compare every data set × method × metric that both studies have results of.

    Trials are paired where every trial of one study has a partner in the other: then the corrected paired t-test of
    `onepos.bench.statistics` decides. Otherwise the two are samples of their own, and Welch's t-test does, with the
    same correction where trials have splits of their own.

    Args:
        first: A, such as the results before a change.
        second: B, such as those after it.
        metrics: Keys of METRICS.
        names: What to call the two in an error.
    """
    held = [{(dataset, method): None for dataset, method, _ in side.chosen} for side in (first, second)]
    common = [pair for pair in _pairs(first) if pair in held[0] and pair in held[1]]
    if not common:
        raise ValueError(
            f"{names[0]} and {names[1]} must both have results of one method on one data set; the first has "
            f"{_listed(held[0])}, the second {_listed(held[1])}. Run the same data sets and methods in both."
        )
    differences = []
    for metric in metrics:
        scores = first.scores(metric), second.scores(metric)
        for dataset, method in common:
            ours, theirs = (
                _by_seeds(side, table[dataset][method], dataset, method)
                for side, table in zip((first, second), scores, strict=True)
            )
            if ours and theirs:
                tested = _test(ours, theirs, first.shared_rows, second.shared_rows)
                differences.append(Difference(dataset, method, metric, *tested))
    only_first, only_second = (
        tuple(pair for pair in _pairs(side) if pair in mine and pair not in other)
        for side, mine, other in ((first, held[0], held[1]), (second, held[1], held[0]))
    )
    return Comparison(first, second, tuple(metrics), tuple(differences), only_first, only_second)


def count_table(comparison: Comparison) -> StudyTable:
    """Metric × data set: in how many methods B is better / not to be told from A / worse."""
    datasets = list(dict.fromkeys(each.dataset for each in comparison.differences))
    rows = []
    for metric in comparison.metrics:
        row = []
        for dataset in (*datasets, None):
            counts = [comparison.count(kind, metric, dataset) for kind in ("win", "tie", "loss")]
            row.append(Cell("/".join(map(str, counts)) if any(counts) else MISSING))
        rows.append([Cell(metric_title(metric)), *row])
    about = "Methods in which B is significantly better than, not to be told from, and worse than A."
    return StudyTable("counts", "Win, tie, loss of B", ["Metric", *datasets, "All"], rows, about)


def difference_table(comparison: Comparison, metric: str) -> StudyTable:
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
    return StudyTable(metric.replace("_", "-"), metric_title(metric), header, rows)


def explain(comparison: Comparison) -> list[str]:
    """The outcome in sentences, and what could not be compared."""
    total = len(comparison.differences)
    untested = sum(math.isnan(each.p) for each in comparison.differences)
    changed = ", ".join(comparison.changed)
    sentences = [
        f"The studies differ in {changed}." if changed else "The studies are the same.",
        f"Of {total} scores B is significantly better in {comparison.count('win')} and worse in "
        f"{comparison.count('loss')}; were there no difference at all, chance would tell about "
        f"{_ALPHA * (total - untested):.0f} apart.",
    ]
    if untested:
        sentences.append(f"{untested} have too few trials to be tested.")
    for name, pairs in (("A", comparison.only_first), ("B", comparison.only_second)):
        if pairs:
            sentences.append(f"Only {name} has {_listed(pairs)}.")
    return sentences


def render_comparison(comparison: Comparison, names: tuple[str, str] = ("A", "B")) -> str:
    """The comparison as a page of Markdown."""
    lines = [
        f"- {letter}: {name}, study {side.study.name}, {len(side.finished)} of {len(side.runs)} runs"
        for letter, name, side in zip("AB", names, (comparison.first, comparison.second), strict=True)
    ]
    parts = ["# Two studies compared", "\n".join(lines), " ".join(explain(comparison))]
    counts = count_table(comparison)
    parts += [f"## {counts.title}", counts.about, counts.markdown()]
    for metric in comparison.metrics:
        table = difference_table(comparison, metric)
        parts += [f"## {table.title}", table.markdown()] if table.rows else []
    return "\n\n".join(parts) + "\n"


def default_metric(comparison: Comparison) -> str:
    """The metric to show where there is room for one: A's primary one, if it is among those compared."""
    metric = primary_metric(comparison.first.study)
    return metric if metric in comparison.metrics else comparison.metrics[0]


def metric_title(metric: str) -> str:
    """The metric's title with an arrow for the direction that is better."""
    return f"{METRICS[metric].title} {'↑' if METRICS[metric].greater_is_better else '↓'}"


def signed(value: float, digits: int = 3) -> str:
    """A difference with its sign.

    Example:
        >>> signed(-0.25), signed(0.0001), signed(float("nan"))
        ('−0.250', '0.000', '–')
    """
    text = plain(value, digits)
    return f"+{text}" if round(value, digits) > 0 else text


def _pairs(side: StudyResults) -> list[tuple[str, str]]:
    return [(dataset, method) for dataset in side.study.datasets for method in side.study.methods]


def _by_seeds(side: StudyResults, trials: FloatArray, dataset: str, method: str) -> dict[Seeds, float]:
    """The trials with a score, by what they met."""
    found = {}
    for trial, score in enumerate(trials.tolist()):
        if math.isfinite(score):
            run, _ = side.chosen[dataset, method, trial]
            found[run.split_seed, run.draw_seed, run.seed] = score
    return found


def _test(
    first: Mapping[Seeds, float], second: Mapping[Seeds, float], first_correction: float, second_correction: float
) -> tuple[Summary, Summary, int, float]:
    """The trials compared, how many are paired, and the p-value."""
    common = [seeds for seeds in first if seeds in second]
    # Studies with new and with fixed splits share their first trial: such a pair is a chance, not a design.
    if len(common) == min(len(first), len(second)):
        ours, theirs = ([side[seeds] for seeds in common] for side in (first, second))
        # What lies between two methods is tested there; here it lies between two studies.
        trials = {"A": ours, "B": theirs}
        correction = max(first_correction, second_correction)
        p = share_closed(trials, "A", "B", greater_is_better=True, test_to_train=correction).p_gap
        return summarise(ours), summarise(theirs), len(common), p
    before, after = (summarise(list(side.values())) for side in (first, second))
    return before, after, 0, _welch(before, after, first_correction, second_correction)


def _welch(first: Summary, second: Summary, first_correction: float, second_correction: float) -> float:
    """Two-sided p-value of Welch's t-test, the variance of a mean taken as s²·(1/n + correction)."""
    if min(first.n, second.n) < 2:
        return math.nan
    sides = ((first, first_correction), (second, second_correction))
    errors = [side.std**2 * (1 / side.n + correction) for side, correction in sides]
    if sum(errors) == 0:
        return 1.0 if first.mean == second.mean else 0.0
    freedom = sum(errors) ** 2 / sum(e**2 / (side.n - 1) for e, side in zip(errors, (first, second), strict=True))
    return float(2 * stats.t.sf(abs(first.mean - second.mean) / math.sqrt(sum(errors)), freedom))


def _listed(pairs: Iterable[tuple[str, str]]) -> str:
    """Methods by data set, in one line; data sets with the same methods together."""
    methods: dict[str, list[str]] = {}
    for dataset, method in pairs:
        methods.setdefault(dataset, []).append(method)
    datasets: dict[str, list[str]] = {}
    for dataset, names in methods.items():
        datasets.setdefault(", ".join(names), []).append(dataset)
    return "; ".join(f"{names} on {', '.join(where)}" for names, where in datasets.items()) or "none"


def _plain_difference(each: Difference) -> dict[str, Any]:
    content = dataclasses.asdict(each) | {"change": each.change, "outcome": each.outcome}
    for side in ("first", "second"):
        content[side] = {key: None if math.isnan(value) else value for key, value in content[side].items()}
    return content | {"p": None if math.isnan(each.p) else each.p}
