"""The paragraphs of the short page on reproduction; every number in them is counted from the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from crisp_paper.bridges import OTHER_SPLIT, Evidence, single_changes
from crisp_paper.causes import (
    ALL_CHANGES,
    NEARER,
    NO_CAUSE,
    ONE_CHANGE,
    cause_of,
    find_lost,
    is_weak,
    needs_no_change,
    unmeasured,
)
from crisp_paper.paper import find_faults, paper_tests
from crisp_paper.printed import Key, Printed, has_features, is_below, judge, printed_cells
from crisp_paper.reading_tables import TITLES
from crisp_paper.verdicts import (
    CLOSE,
    IMPOSSIBLE,
    NOT_REACHED,
    OPEN,
    REACHED,
    TRUE_ONLY,
    WIDE,
    YES,
    Reading,
    Verdict,
    count_kinds,
    find_readings,
    how,
    reached_by_other_losses,
)
from onepos.bench.statistics import Summary
from onepos.metrics import METRICS
from onepos.report.tables import plain

Verdicts = Mapping[str, Sequence[Verdict]]

CELLS = "reproduction-cells.md"

BEHIND = (
    f"[All tables]({CELLS}): every printed number of every method beside ours, what each reading gives, one change at "
    "a time, and where numbers fall short. [CRISP and its parameters](../../docs/methods/crisp.md). "
    "[The studies and their runs](../README.md).",
    "All numbers come from the stored runs. `PYTHONPATH=research python -m crisp_paper.pages research/results` makes "
    "both pages; with `--check` it compares them with the runs.",
)

ABOUT_NUMBERS = (
    "Each cell: printed mean / our mean, verdict, number of the reading (listed under “What depends on the reading”; "
    "for CRISP-val the numbers stand for the same protocols). Of several readings that are at least as good as "
    "printed, the one nearest to the text is shown; otherwise the one with the best mean.",
    "**yes**: our mean is at least as good as the printed one. **near**: it is worse, but within two printed standard "
    "deviations. **wide**: it is further off, but within two of our own standard deviations, which are larger (in the "
    "fair protocol every trial has its own split); weak evidence. These three count as reached; the first table also "
    "counts without the wide ones. **true**: reached only if the true class priors are given, which single positives "
    "do not tell. **no**: not reached even then.",
)


def lead(evidence: Evidence, verdicts: Verdicts) -> str:
    """The answer in short."""
    parts = ["In part."]
    for method, mine in verdicts.items():
        counts = count_kinds(mine)
        wide = counts[f"{REACHED}, {WIDE}"]
        texts = [
            f"{counts[REACHED]} are reached ({wide} of them only within our own wide spread)",
            f"{counts[TRUE_ONLY]} only with true class priors",
            f"{counts[NOT_REACHED]} not even with true class priors",
        ]
        texts += [f"{counts[kind]} {'is' if counts[kind] == 1 else 'are'} {kind}" for kind in (IMPOSSIBLE, OPEN)]
        said = ", ".join(each for each in texts if not each.startswith("0 "))
        parts.append(f"Of {len(_compared(mine))} printed numbers of {TITLES[method]} that can be compared, {said}.")
    printed = _compared(verdicts["crisp"])
    parts.append(
        "The paper’s text followed word by word, in the protocol it describes, reaches "
        f"{_n_reached(printed, find_readings(evidence)[0])} of CRISP’s {len(printed)}."
    )
    return " ".join(parts)


def alert(verdicts: Verdicts) -> str:
    """What is missing."""
    n_open = sum(count_kinds(mine)[OPEN] for mine in verdicts.values())
    return f"Not all was run: {n_open} verdicts are open until the runs with true priors are made." if n_open else ""


def about_runs(evidence: Evidence) -> list[str]:
    """What the paper states, and the protocols."""
    cells = printed_cells()
    sizes = [len({cell.key[part] for cell in cells}) for part in range(3)]
    fair, published = evidence.fair.study, evidence.published.study
    changes = "; ".join(each.change for each in evidence.bridges) or "none was run"
    run = {name for each in evidence.bridges for name in each.results.study.methods}
    left_out = ", ".join(name for name in evidence.methods if name not in run)
    if evidence.bridges:
        trials = max(each.results.n_trials(name) for each in evidence.bridges for name in each.results.study.datasets)
        changes += f" (at one batch size, in up to {trials} trials{f', without {left_out}' if left_out else ''})"
    return [
        f"The paper prints {sizes[0]} metrics on {sizes[1]} data sets for {sizes[2]} methods, each as mean and "
        f"standard deviation of five trials: {len(cells)} numbers. It does not state the network for tables, the "
        "scaling of the features, the length of the warm-up, how the epoch is selected, the split, or which labels "
        "were observed. We know of no public code of CRISP.",
        f"**Published protocol** ({published.name}): {published.budget.epochs} epochs of Adam, the paper’s grid of "
        "learning rates, weight decays and batch sizes, λ = 1, unscaled features, one hidden layer as wide as there "
        "are labels (the network of the authors’ group’s public code for tables), one split for all trials. The epoch "
        f"is selected by a majority of five metrics on validation rows. **One change each**: {changes}.",
        f"**Fair protocol** ({fair.name}): {fair.budget.epochs} epochs, {fair.budget.configurations} configurations "
        "for every method, standardized features, a linear network or one hidden layer of 256, selection by average "
        "precision, a new split in every trial. λ, the warm-up and batches of up to 128 rows are searched; this goes "
        f"beyond what the paper describes. Trials: {_trials(evidence)}.",
    ]


def about_holding(evidence: Evidence, verdicts: Verdicts) -> list[str]:
    """The numbers and the order of the methods."""
    fair = evidence.changed[evidence.fair.study.name]
    held = [cell for cell in printed_cells() if cell.key in fair]
    above = sum(not is_below(cell, fair[cell.key].mean) for cell in held)
    clear = sum(judge(cell, fair[cell.key]) == "worse" for cell in held)
    good = Counter(
        each.cell.dataset for mine in verdicts.values() for each in mine if each.kind == REACHED and each.how == YES
    )
    yes = ", ".join(f"{name} {good[name]}" for name in evidence.datasets)
    others = tuple(dict.fromkeys(cell.method for cell in printed_cells() if cell.method not in TITLES))
    sides = _sides(evidence)
    best = [f"{_n_best(side, others)} {name}" for name, side in sides.items()]
    val = [f"{_n_best(side, ('crisp-val',))} {name}" for name, side in sides.items()]
    return [
        f"**Numbers.** At least as good as printed, of ten of CRISP and CRISP-val per data set: {yes}. Of all methods’ "
        f"numbers the fair protocol is at least as good as printed in {above} of {len(held)}, and worse by more than "
        f"two standard deviations in {clear}. In the published protocol, of "
        f"{_counts(evidence, others, 'the other methods')}; of "
        f"{_counts(evidence, tuple(TITLES), 'CRISP and CRISP-val')}.",
        f"**Order.** CRISP is at least as good as all {len(others)} other methods in {'; '.join(best)}. It "
        f"is at least as good as CRISP-val in {'; '.join(val)}.",
    ]


def about_impossible(evidence: Evidence, verdicts: Verdicts, close: Verdicts) -> list[str]:
    """Numbers that contradict others, and numbers that true priors do not reach."""
    everything = [each for mine in verdicts.values() for each in mine]
    texts = [_impossible(each) for each in everything if each.kind == IMPOSSIBLE]
    lost = {method: _of_kind(mine, NOT_REACHED) for method, mine in verdicts.items()}
    wide = {
        method: [cell for cell in _of_kind(mine, NOT_REACHED) if cell not in lost[method]]
        for method, mine in close.items()
    }
    for words, found in (("Not reached with true priors", lost), ("Only wide, and no closer with true priors", wide)):
        listed = [f"{TITLES[method]} on {_listed(cells)}" for method, cells in found.items() if cells]
        texts += [f"**{words}**: {'. '.join(listed)}."] if listed else []
    both = [cell for mine in close.values() for cell in _of_kind(mine, NOT_REACHED)]
    texts += [_with_full_labels(evidence, both)] if both else []
    tests = [fault for fault in find_faults() if fault.dataset is None]
    n_tests = sum(map(len, paper_tests()[1].values()))
    texts.append(
        f"**Tests**: {len(tests)} of the {n_tests} printed Wilcoxon tests do not follow from the printed means; "
        f"[all tables]({CELLS}) lists them."
    )
    return texts


def about_readings(evidence: Evidence, verdicts: Sequence[Verdict]) -> list[str]:
    """What the readings are, and how much depends on them."""
    printed, readings = _compared(verdicts), find_readings(evidence)
    first, fair = (_n_reached(printed, readings[index]) for index in (0, len(evidence.bridges) + 1))
    texts = [
        f"The same text reaches {first} of {len(printed)} numbers of CRISP in the published protocol and {fair} in the "
        "fair one. The verdicts above take the best of all readings for each number: they are the answer most "
        "favourable to the paper.",
        "Table: how many of five numbers per data set a reading reaches; in parentheses those at least as good as "
        "printed; – where it was not run. “Word by word” takes Algorithm 1 and Eq. (8) as written. “Our default” "
        "chooses differently what the paper leaves open: the mean over labels in place of the sum, a smoothed absolute "
        "value in mini-batches, logits shifted to the priors after the warm-up. “Lower quartile”: Eq. (8) gets a low "
        "quantile of the estimated number of labels per row.",
    ]
    others = reached_by_other_losses(evidence, verdicts)
    if others:
        found = " ".join(f"{loss[0].upper()}{loss[1:]}: {_listed(cells)}." for loss, cells in others.items())
        texts.append(
            "Another loss in place of Eq. (8) is no reading of the paper, but reaches from single positives what no "
            f"reading does. {found}"
        )
    return texts


def about_causes(evidence: Evidence) -> list[str]:
    """What is known of the numbers that the published protocol does not reproduce."""
    causes = {cell: cause_of(evidence, cell) for cell in find_lost(evidence)}
    caused = [cell for cell, cause in causes.items() if cause == ONE_CHANGE]
    others = [cell for cell, cause in causes.items() if cause != ONE_CHANGE]
    counts = Counter(causes.values())
    found = Counter(name for cell in caused for name in single_changes(evidence, cell))
    by_change = "; ".join(f"{bridge.change} {found[bridge.change]}" for bridge in evidence.bridges)
    first = (
        f"{len(causes)} numbers of all methods differ from the printed ones in the published protocol. "
        f"**{len(caused)} have a measured single cause**: one change alone reproduces them"
    )
    first += f" ({by_change}; several can hold for one number)." if caused else "."
    weak = sum(is_weak(evidence, cell) for cell in caused)
    if weak:
        first += (
            f" For {weak} of them this is weak evidence: the mean comes nearer, but the trials also differ more with "
            "the change, and without this larger spread the number would not count as reproduced."
        )
    none = [cell for cell in others if causes[cell] == NO_CAUSE]
    better = sum(not is_below(cell, evidence.ours[cell.key].mean) for cell in none)
    second = (
        f"**{len(others)} have no measured single cause.** Of these, {counts[OTHER_SPLIT]} differ by no more than "
        f"splits do; {counts[ALL_CHANGES]} are reproduced with network, scaling, selection, search and split changed "
        f"together; {counts[NEARER]} come nearer, with one change or all together, but not near enough; "
        f"{counts[NO_CAUSE]} come no nearer with any change that was run, and {better} of those are better than "
        "printed."
    )
    same = sum(needs_no_change(evidence, cell) for cell in others)
    if same:
        second += (
            f" For {same} of the {len(others)} no change can be named: at the fewer points and trials of the single "
            "changes the published protocol already reproduces them."
        )
    return [first, second, *_without_runs(evidence, len(others))]


def _without_runs(evidence: Evidence, n_others: int) -> list[str]:
    """What is known of the numbers for which no single change was run, of all without a single cause."""
    without = unmeasured(evidence)
    if not without:
        return []
    causes = Counter(cause_of(evidence, cell) for cells in without.values() for cell in cells)
    names = ", ".join(f"{name} {len(cells)}" for name, cells in without.items())
    return [
        f"For {causes.total()} of the {n_others} no single change was run ({names}). What is known of them: within the "
        f"spread of splits {causes[OTHER_SPLIT]}; with all changes together reproduced {causes[ALL_CHANGES]}, nearer "
        f"{causes[NEARER]}, no nearer {causes[NO_CAUSE]}."
    ]


def about_limits(evidence: Evidence) -> list[str]:
    """What has no counterpart."""
    strange = dict.fromkeys(cell.dataset for cell in printed_cells() if not has_features(cell.dataset))
    n = sum(cell.dataset in strange for cell in printed_cells())
    texts = [
        f"The paper’s features of {', '.join(strange)} are not published, so its {n} numbers have no counterpart. The "
        "splits and the observed labels are not published either: another split alone can move a number by more than "
        "a small printed standard deviation.",
    ]
    missing = []
    for dataset in evidence.datasets:
        numbers = [each.number for each in find_readings(evidence) if not _has(each, dataset)]
        missing += [f"{dataset} {_ranges(numbers)}"] if numbers else []
    return [*texts, f"Readings that were not run, or not to the end: {'; '.join(missing)}."] if missing else texts


def _of_kind(verdicts: Iterable[Verdict], kind: str) -> list[Printed]:
    return [each.cell for each in verdicts if each.kind == kind]


def _compared(verdicts: Iterable[Verdict]) -> list[Printed]:
    return [each.cell for each in verdicts if has_features(each.cell.dataset)]


def _reaches(cell: Printed, reading: Reading) -> str:
    ours = reading.measured.get((cell.metric, cell.dataset))
    return how(cell, ours) if ours else ""


def _n_reached(cells: Iterable[Printed], reading: Reading) -> int:
    return sum(bool(_reaches(cell, reading)) for cell in cells)


def _has(reading: Reading, dataset: str) -> bool:
    return any(name == dataset for _, name in reading.measured)


def _trials(evidence: Evidence) -> str:
    """On each data set, in the published protocol and the fair one."""
    sides = (evidence.published, evidence.fair)
    found: dict[str, list[str]] = {}
    for dataset in evidence.datasets:
        numbers = [str(side.n_trials(dataset)) for side in sides if dataset in side.study.datasets]
        found.setdefault(" and ".join(dict.fromkeys(numbers)), []).append(dataset)
    return "; ".join(f"{numbers} ({', '.join(names)})" for numbers, names in found.items())


def _sides(evidence: Evidence) -> dict[str, Mapping[Key, Summary]]:
    """Where → what every method gives."""
    fair = evidence.changed[evidence.fair.study.name]
    default = next(each for each in reversed(find_readings(evidence)) if not each.has_true_priors)
    sides = {
        "as printed": {cell.key: Summary(cell.value.mean, 0.0, 1) for cell in printed_cells()},
        "word by word in the published protocol": evidence.ours,
        "word by word in the fair one": fair,
    }
    if default.measured:
        without = {key: summary for key, summary in fair.items() if key[2] != "crisp"}
        ours = {(*key, "crisp"): summary for key, summary in default.measured.items()}
        sides[f"with reading {default.number} there"] = {**without, **ours}
    return sides


def _n_best(side: Mapping[Key, Summary], others: Sequence[str]) -> str:
    """In how many numbers CRISP is at least as good as all of the others: "4 of 30"."""
    wins = []
    for cell in printed_cells():
        keys = [(cell.metric, cell.dataset, name) for name in others]
        if cell.method == "crisp" and cell.key in side and all(key in side for key in keys):
            wins.append(all(cell.sign * (side[cell.key].mean - side[key].mean) >= 0 for key in keys))
    return f"{sum(wins)} of {len(wins)}"


def _counts(evidence: Evidence, methods: Sequence[str], which: str) -> str:
    """How many numbers of some methods the published protocol reproduces."""
    cells = [cell for cell in printed_cells() if cell.method in methods and cell.key in evidence.ours]
    counts = Counter(judge(cell, evidence.ours[cell.key]) for cell in cells)
    return (
        f"{len(cells)} numbers of {which} {counts['reproduced']} agree within two standard deviations, "
        f"{counts['better']} are better, {counts['worse']} worse"
    )


def _impossible(verdict: Verdict) -> str:
    cell = verdict.cell
    reached = verdict.how and verdict.ours
    alone = f" By itself the number is reached (ours: {plain(verdict.ours.mean)})." if reached else ""
    name = METRICS[cell.metric].title.lower()
    return f"**Impossible, {TITLES[cell.method]}, {name} on {cell.dataset}**: {cell.doubt}.{alone}"


def _with_full_labels(evidence: Evidence, lost: Sequence[Printed]) -> str:
    """Whether training on all labels reaches what true priors do not."""
    fair, oracle = evidence.changed[evidence.fair.study.name], evidence.fair.study.oracle
    full = [(cell, fair.get((cell.metric, cell.dataset, oracle))) for cell in lost]
    reached = sum(bool(summary) and how(cell, summary) in CLOSE for cell, summary in full)
    return (
        f"Training on all labels in the fair protocol gets {reached} of these {len(lost)} (yes or near): there the "
        "networks can reach the number, and Eq. (8) with the true priors does not."
    )


def _listed(cells: Iterable[Printed]) -> str:
    """By data set: the metrics."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        found.setdefault(cell.dataset, []).append(METRICS[cell.metric].title.lower())
    return "; ".join(f"{dataset} ({', '.join(names)})" for dataset, names in found.items())


def _ranges(numbers: Sequence[int]) -> str:
    """Rising numbers in short.

    >>> _ranges([2, 3, 4, 6, 8, 9])
    '2–4, 6, 8, 9'
    """
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    texts = [f"{each[0]}–{each[-1]}" if len(each) > 2 else ", ".join(map(str, each)) for each in groups]
    return ", ".join(texts)
