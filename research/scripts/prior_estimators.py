"""Every estimator of class priors on every data set: error, coverage of the intervals, cardinality, seconds.

    python research/scripts/prior_estimators.py [--data scene,yeast] [--trials 3] [--first-seed 0] [--out FILE]

A trial draws a split (80 % of the rows are used; of the image features the shipped training rows) and one label per
row. The error is Σ|π̂−π| / Σπ with π the frequency in these rows; the estimate of a label that no row shows counts as 0.
The estimators use single positives alone, except in two columns: "κ known" uses the mean number of labels per row, and
"50 rows" uses all labels of 50 rows. The script runs on one core; with --out it writes the page there, otherwise it
prints it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from onepos import SinglePositiveClassifier, held_out_probabilities
from onepos.datasets import Dataset, load_dataset
from onepos.files import write_atomically
from onepos.priors import PriorEstimate, estimate_priors
from onepos.protocol import draw_single_positive, train_val_test_split

STRICT = ("scene", "image", "yeast", "voc2012-features", "coco2014-features")
OTHERS = ("emotions", "cal500", "yahoo_arts", "reuters_k500", "rcv1subset1_top944", "mirflickr_tags", "delicious")
DATA = (*STRICT, *OTHERS, "corel5k", "digit-scenes")
HIDDEN, EPOCHS, BATCH = 256, 10, 128
N_LABELLED = 50

OWN, HELD_OUT = "Eq. (2), own rows", "Eq. (2), held out"


@dataclass(frozen=True)
class Trial:
    """One draw: rows, their single positives and all their labels."""

    X: object
    Y: np.ndarray
    observed: np.ndarray
    seed: int


@dataclass(frozen=True)
class Found:
    """The estimate of a trial, and the truth."""

    estimate: PriorEstimate
    truth: np.ndarray

    @property
    def error(self) -> float:
        """Σ|π̂−π| / Σπ."""
        return float(np.abs(np.nan_to_num(self.estimate.prior) - self.truth).sum() / self.truth.sum())

    @property
    def coverage(self) -> float:
        """Share of the labels with an estimate whose interval contains the truth."""
        known = ~np.isnan(self.estimate.prior)
        inside = (self.estimate.lower <= self.truth + 1e-12) & (self.truth <= self.estimate.upper + 1e-12)
        return float(inside[known].mean())


def make_trial(data: Dataset, seed: int) -> Trial:
    shipped = data.splits is not None and data.name.endswith("-features")
    rows = data.take(data.splits["train"] if shipped else train_val_test_split(data.Y, seed).train)
    rows = rows.take(np.flatnonzero(rows.Y.any(1)))
    return Trial(rows.X, np.asarray(rows.Y), draw_single_positive(rows.Y, seed), seed)


def own_rows_logits(trial: Trial) -> np.ndarray:
    """As in the paper: a network trained with assumed negatives scores the rows it was trained on."""
    settings = {"hidden": (HIDDEN,), "epochs": EPOCHS, "batch_size": BATCH, "lr": 1e-3, "device": "cpu"}
    model = SinglePositiveClassifier("an", **settings, random_state=trial.seed)
    return model.fit(trial.X, trial.observed).decision_function(trial.X)


def run(trial: Trial) -> tuple[dict[str, Found], float]:
    """Every estimator on one trial, and the seconds of the held-out probabilities."""
    truth = trial.Y.mean(0)
    began = time.perf_counter()
    probability = held_out_probabilities(trial.X, trial.observed, random_state=trial.seed).probability.numpy()
    seconds = time.perf_counter() - began
    rows = np.random.default_rng(trial.seed).choice(len(trial.Y), min(N_LABELLED, len(trial.Y)), replace=False)
    known = {"κ known": {"cardinality": float(truth.sum())}, "50 rows": {"labelled": trial.Y[rows]}}
    estimates = {
        OWN: estimate_priors(own_rows_logits(trial), trial.observed),
        HELD_OUT: estimate_priors(probability, trial.observed),
    }
    estimates["bracket"] = estimate_priors(probability, trial.observed, estimator="bracket")
    for name, options in known.items():
        estimates[f"bracket, {name}"] = estimate_priors(probability, trial.observed, estimator="bracket", **options)
    return {name: Found(estimate, truth) for name, estimate in estimates.items()}, seconds


def table(
    results: dict[str, list[dict[str, Found]]], value: Callable[[Found], float], columns: list[str]
) -> Iterator[str]:
    """A row per data set: the mean over trials."""
    yield "| data set | " + " | ".join(columns) + " |"
    yield "|---|" + "---|" * len(columns)
    for name, trials in results.items():
        means = [f"{np.mean([value(trial[column]) for trial in trials]):.3f}" for column in columns]
        yield f"| {name} | " + " | ".join(means) + " |"


def cardinality_table(results: dict[str, list[dict[str, Found]]], seconds: dict[str, list[float]]) -> Iterator[str]:
    """Of the recommended estimator: the scale, whether it warns, its worst trial, and the seconds of cross-fitting."""
    yield "| data set | rows | labels | true κ | κ̂ | its interval | contains κ | warns | worst error | seconds |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, trials in results.items():
        found = [trial["bracket"] for trial in trials]
        ends = [each.estimate.cardinality_interval for each in found]
        kappa = [float(each.truth.sum()) for each in found]
        inside = sum(low <= k <= high for (low, high), k in zip(ends, kappa, strict=True))
        warned = sum(bool(each.estimate.warning) for each in found)
        low, high = np.mean(ends, axis=0)
        n = int(found[0].estimate.n_positive.sum())
        yield (
            f"| {name} | {n} | {len(found[0].truth)} | {np.mean(kappa):.2f} "
            f"| {np.mean([each.estimate.cardinality for each in found]):.2f} | {low:.2f} to {high:.2f} "
            f"| {inside} of {len(found)} | {warned} of {len(found)} | {max(each.error for each in found):.3f} "
            f"| {np.mean(seconds[name]):.1f} |"
        )


def make_page(
    results: dict[str, list[dict[str, Found]]], seconds: dict[str, list[float]], trials: int, first_seed: int
) -> str:
    columns = list(next(iter(results.values()))[0])
    lines = [
        "# Estimators of class priors, measured",
        "",
        "How far estimated class priors lie from the true ones, for every estimator and data set. "
        f"{trials} trials, seeds {first_seed} to {first_seed + trials - 1}; each draws a split (80 % of the rows; of "
        "the image features the shipped training rows) and one label per row. One core. [Class "
        "priors](../../docs/priors.md) explains the estimators. Made by `python research/scripts/prior_estimators.py "
        f"--trials {trials} --first-seed {first_seed} --out research/results/priors.md`.",
        "",
        "## Error Σ|π̂−π| / Σπ",
        "",
        f"First column, as in the paper: an assume-negative MLP-{HIDDEN}, {EPOCHS} epochs, scores the rows it was "
        "trained on. Second column: Eq. (2) on held-out probabilities. The last two columns use more than single "
        "positives.",
        "",
        *table(results, lambda found: found.error, columns),
        "",
        "## Share of labels whose interval contains the truth",
        "",
        "90 % intervals; of Eq. (2) those with δ = 0.01 as in the paper.",
        "",
        *table(results, lambda found: found.coverage, columns),
        "",
        '## Labels per row, estimator "bracket"',
        "",
        *cardinality_table(results, seconds),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    try:
        sets = {name: load_dataset(name) for name in options.data.split(",")}  # all now: a typo should not cost hours
    except (OSError, ValueError) as error:
        parser.error(str(error))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # of labels that no row shows, and of uncertain priors
    results: dict[str, list[dict[str, Found]]] = {}
    seconds: dict[str, list[float]] = {}
    for name, data in sets.items():
        for seed in range(options.first_seed, options.first_seed + options.trials):
            found, took = run(make_trial(data, seed))
            results.setdefault(name, []).append(found)
            seconds.setdefault(name, []).append(took)
        print(name, " ".join(f"{each['bracket'].error:.3f}" for each in results[name]), flush=True)
    page = make_page(results, seconds, options.trials, options.first_seed)
    if options.out:
        write_atomically(options.out, page)
    else:
        print(page)


if __name__ == "__main__":
    main()
