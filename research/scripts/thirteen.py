"""How far CRISP+ gets from AN to full labels, on all thirteen data sets, and how all methods rank in F1.

    python research/scripts/thirteen.py STORE [--seed 22] [--data image,scene] [--methods all] [--trials 5]
                                        [--configurations 8] [--against STORE] [--cardinality] [--device cuda]
                                        [--page] [--out FILE]

The protocol is that of the studies `fair` and `features` (space, epochs, selection on validation rows with all labels,
test rows used once), with AN, CRISP+ and full labels unless --methods names others. Without --trials and
--configurations small data sets have more trials than in those studies. With --cardinality CRISP+ knows the mean number
of labels per row, as two other methods of these studies do; single positives do not determine it. STORE is a folder
that keeps the runs: the command can be stopped and started again, and several processes can share the folder; --page
makes no run and shows what is there. --against is the store of another version of onepos, made by the same command: its
trials have the same rows, labels and configurations, so the two are compared in pairs. The significance test is that of
the reports, paired, at 0.05.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import wilcoxon

from onepos.bench.results import StudyResults, read_results
from onepos.bench.runner import run_study
from onepos.bench.statistics import friedman, share_closed, win_tie_loss
from onepos.bench.store import Store
from onepos.bench.study import Budget, Study
from onepos.bench.study_file import read_study
from onepos.files import write_atomically
from onepos.metrics import METRICS
from onepos.priors import FloatArray

SMALL, MIDDLE, FEW, LARGE = Budget(20, 20, 16), Budget(20, 8, 16), Budget(20, 5, 16), Budget(20, 3, 8)
BUDGETS = {
    "image": SMALL,
    "scene": SMALL,
    "emotions": SMALL,
    "yeast": MIDDLE,
    "yahoo_arts": MIDDLE,
    "reuters_k500": MIDDLE,
    "rcv1subset1_top944": MIDDLE,
    "cal500": MIDDLE,
    "corel5k": FEW,
    "mirflickr_tags": LARGE,
    "delicious": LARGE,
}
NAMES = ("average_precision", "map", "hamming_loss", "ranking_loss", "coverage", "one_error")

# A smaller difference between AN and full labels is no gap to close, nor is one that may be chance.
LEAST_GAP = 0.0005


def studies(options: argparse.Namespace) -> list[Study]:
    """Rows of numbers, and features of images."""
    methods = "full,an,crisp-plus" if options.methods is None else options.methods
    common: dict[str, Any] = {"seed": options.seed}
    if methods != "all":
        common["methods"] = tuple(methods.split(","))
    if options.cardinality:
        common["parameters"] = {"crisp-plus": {"cardinality": "$cardinality"}}
    tables = dataclasses.replace(
        read_study("fair"), name="thirteen", datasets=tuple(BUDGETS), budgets=BUDGETS, **common
    )
    features = dataclasses.replace(read_study("research/studies/features.toml"), name="thirteen-features", **common)
    return [_limit(study, options.trials, options.configurations) for study in (tables, features)]


def _limit(study: Study, trials: int | None, configurations: int | None) -> Study:
    """The study with at most so many trials and configurations."""

    def least(budget: Budget) -> Budget:
        assert budget.configurations is not None
        return dataclasses.replace(
            budget,
            trials=min(budget.trials, trials or budget.trials),
            configurations=min(budget.configurations, configurations or budget.configurations),
        )

    budgets = {name: least(study.budgets.get(name, study.budget)) for name in study.datasets}
    return dataclasses.replace(study, budgets=budgets)


def scores_of(results: StudyResults, metric: str, rule: str | None = None) -> dict[str, dict[str, FloatArray]]:
    """Data set → method → test score in each trial, with decisions by a rule if one is given."""
    if rule is None:
        return results.scores(metric)
    found = {key: result["rules"].get(rule, {}).get(metric) for key, (_, result) in results.chosen.items()}
    return {
        dataset: {
            method: np.array([found.get((dataset, method, k)) for k in range(results.n_trials(dataset))], dtype=float)
            for method in results.study.methods
        }
        for dataset in results.study.datasets
    }


def share(results: StudyResults, dataset: str, metric: str) -> tuple[float, str]:
    """Per cent of the way, NaN without a clear gap; and a mark where CRISP+ is clearly better or worse than AN."""
    rule = "hamming" if metric == "hamming_loss" else None
    scores = scores_of(results, metric, rule)[dataset]
    greater, rows = METRICS[metric].greater_is_better, results.shared_rows
    closed = share_closed(scores, "an", "full", greater_is_better=greater, test_to_train=rows)
    record = win_tie_loss({dataset: scores}, greater_is_better=greater, test_to_train=rows)["crisp-plus", "an"]
    mark = "*" if record.win else " (worse*)" if record.loss else ""
    return (100 * closed.shares["crisp-plus"] if closed.gap.mean >= LEAST_GAP else np.nan), mark


def complete_sets(results: StudyResults) -> list[str]:
    """Data sets of which every method has every trial, but for runs that can not be made."""
    missing = {run.dataset for run in results.runs if results.states[run.key()] not in ("done", "skipped")}
    return [name for name in results.study.datasets if name not in missing]


def share_table(results: list[StudyResults]) -> list[str]:
    """The way from AN to full labels, with means and medians over the sets that have a clear gap."""
    lines = [
        "Per cent of the way from AN (0) to full labels (100) in each metric; Hamming loss with decisions at a "
        "probability of 0.5 for all. –: full labels are not significantly better than AN, or by less than "
        f"{LEAST_GAP}, so there is no way to measure. *: significantly better than AN. Mean and median are over "
        "the data sets with a number.",
        "",
        "| data set | trials | " + " | ".join(METRICS[name].title for name in NAMES) + " |",
        "|---" * (len(NAMES) + 2) + "|",
    ]
    found = []
    for each in results:
        for dataset in complete_sets(each):
            cells = [share(each, dataset, name) for name in NAMES]
            found.append([value for value, _ in cells])
            texts = ["–" + mark if np.isnan(value) else f"{value:.0f}{mark}" for value, mark in cells]
            lines.append(f"| {dataset} | {each.n_trials(dataset)} | " + " | ".join(texts) + " |")
    for title, function in (("mean", np.nanmean), ("median", np.nanmedian)):
        lines.append(f"| {title} | | " + " | ".join(f"{value:.0f}" for value in function(found, axis=0)) + " |")
    return [line.replace("| -", "| −") for line in lines]


def rank_table(results: list[StudyResults]) -> list[str]:
    """Mean ranks of all methods in F1, with the rule that maximises expected F1 for all."""
    columns = {}
    for metric in ("micro_f1", "macro_f1"):
        scores: dict[str, Any] = {}
        for each in results:
            of_all = scores_of(each, metric, "f1")
            for dataset in complete_sets(each):
                scores[dataset] = {name: of_all[dataset][name] for name in each.competitors}
        columns[metric] = friedman(scores, greater_is_better=True).mean_ranks
    lines = [
        f"Mean rank over {len(scores)} data sets in F1, with decisions by the rule `f1` for every method; 1 is best.",
        "",
        "| method | " + " | ".join(METRICS[name].title for name in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    order = sorted(columns["micro_f1"], key=lambda name: columns["micro_f1"][name])
    return lines + [
        f"| {name} | " + " | ".join(f"{ranks[name]:.1f}" for ranks in columns.values()) + " |" for name in order
    ]


def pair_table(results: list[StudyResults], others: list[StudyResults]) -> list[str]:
    """CRISP+ of this version and of another, trial by trial."""
    names = ("average_precision", "map", "ranking_loss")
    lines = [
        "CRISP+ of this version minus that of the other store, same trials; * significant. Of ranking loss less is "
        "better.",
        "",
        "| data set | " + " | ".join(METRICS[name].title for name in names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    means: list[list[float]] = []
    for ours, theirs in zip(results, others, strict=True):
        for dataset in complete_sets(ours):
            if dataset not in complete_sets(theirs):
                continue
            texts, row = [], []
            for name in names:
                pair = {
                    "ours": ours.scores(name)[dataset]["crisp-plus"],
                    "other": theirs.scores(name)[dataset]["crisp-plus"],
                }
                greater = METRICS[name].greater_is_better
                record = win_tie_loss({dataset: pair}, greater_is_better=greater, test_to_train=ours.shared_rows)
                one = record["ours", "other"]
                row.append(float(np.nanmean(pair["ours"] - pair["other"])))
                texts.append(f"{row[-1]:+.4f}" + ("*" if one.win or one.loss else ""))
            means.append(row)
            lines.append(f"| {dataset} | " + " | ".join(texts) + " |")
    lines.append("| mean | " + " | ".join(f"{value:+.4f}" for value in np.mean(means, axis=0)) + " |")
    p_values = [wilcoxon([row[k] for row in means]).pvalue for k in range(len(names))]
    lines.append("| p of Wilcoxon's test over the data sets | " + " | ".join(f"{p:.2f}" for p in p_values) + " |")
    return [line.replace("| -", "| −") for line in lines]


def page(results: list[StudyResults], others: list[StudyResults] | None, command: str) -> str:
    """The tables there are results for."""
    lines = ["# How far CRISP+ gets from AN to full labels", "", f"Made by `{command}`.", "", *share_table(results)]
    if len(results[0].study.methods) > 3:
        lines += ["", "## F1", "", *rank_table(results)]
    if others is not None:
        lines += ["", "## Against another version", "", *pair_table(results, others)]
    return "\n".join(lines) + "\n"


def command_of(options: argparse.Namespace) -> str:
    """The command that makes the same runs."""
    words = [f"python research/scripts/thirteen.py STORE --seed {options.seed}"]
    words += [f"--{name} {value}" for name in ("methods", "trials", "configurations") if (value := vars(options)[name])]
    return " ".join([*words, *(["--cardinality"] if options.cardinality else [])])


def main() -> None:
    """Make what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--data", help="make the runs of these data sets only, and no page")
    parser.add_argument("--methods")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--configurations", type=int)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--cardinality", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chosen = studies(options)
    known = [name for study in chosen for name in study.datasets]
    wanted = known if options.data is None else options.data.split(",")
    if unknown := set(wanted).difference(known):
        parser.error(f"--data must name data sets of {', '.join(known)}; got {', '.join(sorted(unknown))}.")
    for study in () if options.page else chosen:
        if names := [name for name in study.datasets if name in wanted]:
            print(study.name, run_study(study, Store(options.store / study.name), device=options.device, only=names))
    if options.data is None:
        results, *others = (
            [read_results(store / study.name) for study in chosen]
            for store in (options.store, options.against)
            if store is not None
        )
        text = page(results, others[0] if others else None, command_of(options))
        if options.out:
            write_atomically(options.out, text.encode())
        print(text)


if __name__ == "__main__":
    main()
