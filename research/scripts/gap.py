"""What separates CRISP+ from full labels: the same training with more and more of the truth known.

    python research/scripts/gap.py [--data yeast,corel5k] [--trials 2] [--first-seed 90] [--device cuda] [--out FILE]

The rows of the table, from the floor to the oracle:

    AN                          the floor
    CRISP+                      single positives alone
    cardinality known           the mean number of labels per row is given
    noise-free draw             and every label of a row is observed in equal parts, y/|y|
    full labels                 the oracle

What "noise-free draw" lacks is due to the loss, the proportions of the priors and the budget. The difference between it
and the row above is the noise of the draw.

The last column is the Hamming loss at the one threshold that is best on the test rows, with its share of the way of the
column before. No other number of labels per row gives a lower Hamming loss with these logits.

Tables: MLP-256, 20 epochs. Features of images: one layer, 10 epochs. Three learning rates; epoch and rate are chosen on
validation rows with all labels, by average precision (mAP on features). The script uses all cores.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from onepos.bench.stacking import train_many
from onepos.datasets import Dataset, load_dataset
from onepos.files import write_atomically
from onepos.methods import AN, CRISPPlus, Full
from onepos.methods.base import Method, TrainView
from onepos.metrics import METRICS
from onepos.protocol import draw_single_positive, train_val_test_split
from onepos.training.outcome import predict_rows
from onepos.training.plan import Plan
from onepos.training.samples import as_samples, fit_scaling
from onepos.training.task import TrainingData, Validation, make_task

DATA = (
    "yeast",
    "rcv1subset1_top944",
    "corel5k",
    "voc2012-features",
    "coco2014-features",
    "mirflickr_tags",
    "delicious",
    "cal500",
    "yahoo_arts",
    "reuters_k500",
)
METRICS_SHOWN = ("average_precision", "map", "ranking_loss", "hamming_loss")
HAMMING = METRICS_SHOWN.index("hamming_loss")
HIDDEN, BATCH = 256, 128
RATES = (1.5e-4, 5e-4, 1.5e-3)


class WithCardinality(CRISPPlus):
    """CRISP+ with the mean number of labels per row of all labels."""

    labels: torch.Tensor

    def setup(self, train: TrainView) -> None:
        """Set the cardinality first."""
        self.cardinality = float(self.labels.sum(1, dtype=torch.float64).mean())
        super().setup(train)


class WithoutNoise(WithCardinality):
    """And with every label of a row observed in equal parts."""

    def setup(self, train: TrainView) -> None:
        """Replace the targets by the shares of the true labels."""
        super().setup(train)
        labels = self.labels.to(self.target)
        self.target = labels / labels.sum(1, keepdim=True).clamp(min=1)


KINDS: dict[str, Callable[[], Method]] = {
    "AN": AN,
    "CRISP+": CRISPPlus,
    "cardinality known": WithCardinality,
    "noise-free draw": WithoutNoise,
    "full labels": Full,
}


def parts_of(data: Dataset, seed: int) -> list[Dataset]:
    """Training, validation and test rows; of features the test rows are those that came with them."""
    if not data.name.endswith("-features"):
        return [data.take(part) for part in train_val_test_split(data.Y, seed)]
    rows = data.take(data.splits["train"])
    order = np.random.default_rng(seed).permutation(len(rows.Y))
    cut = len(order) * 4 // 5
    return [rows.take(order[:cut]), rows.take(order[cut:]), data.take(data.splits["test"])]


def measure(data: Dataset, seed: int, device: str) -> dict[str, list[float]]:
    """Test scores by kind."""
    rows, held_out, test = parts_of(data, seed)
    is_features = data.name.endswith("-features")
    scaling = fit_scaling(rows.X)
    unseen = as_samples(test.X, scaling)
    validation = Validation(as_samples(held_out.X, scaling), held_out.Y, True)
    inputs = TrainingData(as_samples(rows.X, scaling), validation, frozenset({"full labels"}))
    observed = draw_single_positive(rows.Y, seed)
    found = {}
    for kind, make in KINDS.items():
        tasks = []
        for rate in RATES:
            method = make()
            if isinstance(method, WithCardinality):
                method.labels = torch.tensor(rows.Y)
            plan = Plan(
                epochs=10 if is_features else 20,
                batch_size=BATCH,
                lr=rate,
                weight_decay=1e-4 if is_features else 1e-5,
                select="map" if is_features else "average_precision",
                device=device,
                seed=seed,
            )
            given = rows.Y if "full labels" in method.requires else observed
            network = "linear" if is_features else "mlp"
            tasks.append(make_task(inputs, given, method, plan, network=network, hidden=(HIDDEN,)))
        trained = train_many(tasks)
        best = max(trained, key=lambda each: each.history.validation[each.history.best_epoch])
        logits = predict_rows(best.network, unseen).double().cpu().numpy()
        found[kind] = [
            float(METRICS[name].function(test.Y, logits if METRICS[name].uses == "scores" else logits > 0))
            for name in METRICS_SHOWN
        ]
        found[kind].append(least_hamming_loss(test.Y, logits))
    return found


def least_hamming_loss(Y: np.ndarray, scores: np.ndarray) -> float:
    """At the best of all thresholds: with the k highest entries predicted, n₊ + k − 2·TP(k) are wrong."""
    there = Y.ravel()[np.argsort(-scores.ravel(), kind="stable")].astype(np.int64)
    wrong = there.sum() + np.cumsum(1 - 2 * there)
    return float(min(wrong.min(), there.sum()) / Y.size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=90)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.trials < 1:
        parser.error(f"--trials must be at least 1; got {options.trials}.")
    try:
        sets = [load_dataset(name) for name in options.data.split(",")]  # all of them now: a typo should not cost hours
    except (OSError, ValueError) as error:
        parser.error(str(error))

    warnings.simplefilter("ignore", UserWarning)  # of uncertain priors
    seeds = range(options.first_seed, options.first_seed + options.trials)
    titles = [*(METRICS[name].title for name in METRICS_SHOWN), "Hamming loss, best threshold"]
    lines = [
        "# What separates CRISP+ from full labels",
        "",
        "Test scores of CRISP+ with more and more of the truth known, between AN (the floor) and full labels (the "
        "oracle); in brackets the share of the way from AN to full labels. The script explains every row. Means over "
        f"{options.trials} trials. Made by `python research/scripts/gap.py --data {options.data} --trials "
        f"{options.trials} --first-seed {options.first_seed} --out research/results/gap.md`.",
        "",
        "| data set | | " + " | ".join(titles) + " |",
        "|---" * (2 + len(titles)) + "|",
    ]
    for data in sets:
        trials = [measure(data, seed, options.device) for seed in seeds]
        means = {kind: np.mean([trial[kind] for trial in trials], axis=0) for kind in KINDS}
        floor, oracle = means["AN"].copy(), means["full labels"].copy()
        floor[-1], oracle[-1] = floor[HAMMING], oracle[HAMMING]
        for kind, values in means.items():
            cells = [
                f"{v:.4f} ({100 * (v - a) / (f - a) + 0.0:.0f} %)"
                for v, a, f in zip(values, floor, oracle, strict=True)
            ]
            lines.append(f"| {data.name} | {kind} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    if options.out:
        write_atomically(options.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
