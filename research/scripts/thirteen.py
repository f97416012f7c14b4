"""How far CRISP+ gets from AN to full labels, on all thirteen data sets, with many trials where sets are small.

    python research/scripts/thirteen.py STORE [--seed 22] [--data image,scene] [--cardinality] [--device cuda]
                                        [--out FILE]

The protocol is that of the studies `fair` and `features` (space, epochs, selection on validation rows with all labels,
test rows used once), with three methods only. With --cardinality CRISP+ knows the mean number of labels per row, as two
other methods of these studies do; single positives do not determine it. STORE is a folder that keeps the runs: the
command can be stopped and started again, and several processes can share the folder. The significance test is that of
the reports, paired, at 0.05.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from onepos.bench.results import StudyResults, read_results
from onepos.bench.runner import run_study
from onepos.bench.statistics import share_closed, win_tie_loss
from onepos.bench.store import Store
from onepos.bench.study import Budget, Study
from onepos.bench.study_file import read_study
from onepos.files import write_atomically
from onepos.metrics import METRICS

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


def studies(seed: int, data: list[str] | None, cardinality: bool = False) -> list[Study]:
    """Rows of numbers, and features of images; of each the requested data sets."""
    common: dict[str, Any] = {"seed": seed, "methods": ("full", "an", "crisp-plus")}
    if cardinality:
        common["parameters"] = {"crisp-plus": {"cardinality": "$cardinality"}}
    tables = dataclasses.replace(
        read_study("fair"), name="thirteen", datasets=tuple(BUDGETS), budgets=BUDGETS, **common
    )
    features = dataclasses.replace(read_study("research/studies/features.toml"), name="thirteen-features", **common)
    found = []
    for study in (tables, features):
        datasets = tuple(name for name in study.datasets if data is None or name in data)
        if datasets:
            budgets = {name: budget for name, budget in study.budgets.items() if name in datasets}
            found.append(dataclasses.replace(study, datasets=datasets, budgets=budgets))
    return found


def share(results: StudyResults, dataset: str, metric: str) -> tuple[float, str]:
    """Per cent of the way, NaN without a clear gap; and a mark where CRISP+ is clearly better or worse than AN."""
    scores = results.scores(metric)[dataset]
    greater, rows = METRICS[metric].greater_is_better, results.shared_rows
    closed = share_closed(scores, "an", "full", greater_is_better=greater, test_to_train=rows)
    record = win_tie_loss({dataset: scores}, greater_is_better=greater, test_to_train=rows)["crisp-plus", "an"]
    mark = "*" if record.win else " (worse*)" if record.loss else ""
    return (100 * closed.shares["crisp-plus"] if closed.gap.mean >= LEAST_GAP else np.nan), mark


def page(results: list[StudyResults], command: str) -> str:
    """The table, with means and medians over the sets that have a clear gap."""
    lines = [
        "# How far CRISP+ gets from AN to full labels on thirteen data sets",
        "",
        "Per cent of the way from AN (0) to full labels (100) in each metric. –: full labels are not significantly "
        f"better than AN, or by less than {LEAST_GAP}, so there is no way to measure. *: significantly better than AN. "
        f"Mean and median are over the data sets with a number. Made by `{command}`.",
        "",
        "| data set | trials | " + " | ".join(METRICS[name].title for name in NAMES) + " |",
        "|---" * (len(NAMES) + 2) + "|",
    ]
    found = []
    for each in results:
        for dataset in each.study.datasets:
            cells = [share(each, dataset, name) for name in NAMES]
            found.append([value for value, _ in cells])
            texts = ["–" + mark if np.isnan(value) else f"{value:.0f}{mark}" for value, mark in cells]
            lines.append(f"| {dataset} | {each.n_trials(dataset)} | " + " | ".join(texts) + " |")
    for title, function in (("mean", np.nanmean), ("median", np.nanmedian)):
        lines.append(f"| {title} | | " + " | ".join(f"{value:.0f}" for value in function(found, axis=0)) + " |")
    return "\n".join(lines).replace("| -", "| −") + "\n"


def main() -> None:
    """Make what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--data")
    parser.add_argument("--cardinality", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chosen = studies(options.seed, None if options.data is None else options.data.split(","), options.cardinality)
    known = [name for study in studies(options.seed, None) for name in study.datasets]
    if options.data is not None and (unknown := set(options.data.split(",")).difference(known)):
        parser.error(f"--data must name data sets of {', '.join(known)}; got {', '.join(sorted(unknown))}.")
    results = []
    for study in chosen:
        folder = options.store / study.name
        print(study.name, run_study(study, Store(folder), device=options.device))
        results.append(read_results(folder))
    flag = " --cardinality" if options.cardinality else ""
    text = page(results, f"python research/scripts/thirteen.py STORE --seed {options.seed}{flag}")
    if options.out:
        write_atomically(options.out, text.encode())
    print(text)


if __name__ == "__main__":
    main()
