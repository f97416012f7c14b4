"""Every estimator of class priors on every data set: error, coverage of the intervals, cardinality, seconds.

    python benchmarks/prior_estimators.py [--data scene,yeast] [--trials 3] [--first-seed 0] [--out FILE]

A trial draws a split (80 % of the rows are used; of the image features the shipped training rows) and one label per
row. The error is Σ|π̂−π| / Σπ with π the frequency in these rows; a label nobody observed counts as estimated 0. No
estimator sees a full label but where the column says so: "κ known" is told the mean number of labels per row, "50 rows"
all labels of 50 of the rows. Runs on one core; with --out the page is written there, else printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from onepos.datasets import Dataset, load_dataset
from onepos.files import write_atomically
from onepos.methods import make_method
from onepos.methods.crossfit import cross_fit
from onepos.priors import PriorEstimate, estimate_priors
from onepos.protocol import draw_single_positive, train_val_test_split
from onepos.training.backbones import make_backbone
from onepos.training.loop import Learner, Plan, predict_logits, train
from onepos.training.samples import as_samples, fit_scaling

STRICT = ("scene", "image", "yeast", "voc2012-features", "coco2014-features")
OTHERS = ("emotions", "cal500", "yahoo_arts", "reuters_k500", "rcv1subset1_top944", "mirflickr_tags", "delicious")
DATA = (*STRICT, *OTHERS, "corel5k", "digit-scenes")
HIDDEN, EPOCHS, BATCH = 256, 10, 128
N_LABELLED = 50

OWN, HELD_OUT = "Eq. (2), own rows", "Eq. (2), held out"


@dataclass(frozen=True)
class Trial:
    """One draw: rows, what is seen of them, and what there was to see."""

    X: object
    Y: np.ndarray
    observed: np.ndarray
    seed: int


@dataclass(frozen=True)
class Found:
    """What an estimator made of a trial."""

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
    torch.manual_seed(trial.seed)
    samples = as_samples(trial.X, fit_scaling(trial.X))
    network = make_backbone("mlp", samples.n_features, trial.Y.shape[1], (HIDDEN,))
    learner = Learner(network, make_method("an"))
    train(learner, samples, trial.observed, HIDDEN, Plan(EPOCHS, BATCH, lr=1e-3, device="cpu", seed=trial.seed))
    return predict_logits(learner, samples).numpy()


def run(trial: Trial) -> tuple[dict[str, Found], float]:
    """Every estimator on one trial, and the seconds of the cross-fitting."""
    truth = trial.Y.mean(0)
    began = time.perf_counter()
    probability = cross_fit(trial.X, trial.observed, trial.seed).probability.numpy()
    seconds = time.perf_counter() - began
    rows = np.random.default_rng(trial.seed).choice(len(trial.Y), min(N_LABELLED, len(trial.Y)), replace=False)
    told = {"κ known": {"cardinality": float(truth.sum())}, "50 rows": {"labelled": trial.Y[rows]}}
    estimates = {
        OWN: estimate_priors(own_rows_logits(trial), trial.observed),
        HELD_OUT: estimate_priors(probability, trial.observed),
    }
    estimates["bracket"] = estimate_priors(probability, trial.observed, estimator="bracket")
    for name, options in told.items():
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
        f"Made by `benchmarks/prior_estimators.py`: {trials} trials, seeds {first_seed} to {first_seed + trials - 1}; "
        "each draws a split (80 % of the rows; of the image features the shipped training rows) and one label per row. "
        "One core. What the estimators are: [priors.md](../priors.md).",
        "",
        "## Error Σ|π̂−π| / Σπ",
        "",
        f"The first column is the paper's way: an assume-negative MLP-{HIDDEN}, {EPOCHS} epochs, scores the rows it "
        "was trained on; the second asks Eq. (2) of cross-fitted probabilities. The last two columns are told more.",
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
