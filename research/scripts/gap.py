"""What is left of the gap between CRISP+ and full labels: the same training, told more and more of the truth.

    python benchmarks/gap.py [--data yeast,corel5k] [--trials 2] [--first-seed 90] [--device cuda] [--out FILE]

Four rows between the floor and the oracle: CRISP+ as it is; told the mean number of labels per row, `cardinality`; with
the propensity of each row from its true number of labels besides, √(1/|y|) in place of √max s̃; and with the draw made
without chance, every label of a row shown in equal parts, y/|y|. The last is the network alone: those who are asked
about new rows know one draw only. What it still lacks is due to the loss, the proportions of the priors and the budget;
what lies between the last two is the noise of the draw, which no method can tell from the truth by one row alone.

The last column is the Hamming loss at the one threshold that is best for the test rows themselves, and its share of the
same way as in the column before: no better decision can be had from these logits by any number of labels per row.

Tables: MLP-256, 20 epochs; features of pictures: one layer, 10 epochs. Three learning rates, epoch and rate chosen on
validation rows with all labels, by average precision (mAP on features). Runs on all cores.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from onepos.bench.stacking import Task, train_many
from onepos.datasets import Dataset, load_dataset
from onepos.files import write_atomically
from onepos.methods import AN, CRISPPlus, Full
from onepos.methods.base import Method, TrainView
from onepos.metrics import METRICS
from onepos.protocol import draw_single_positive, train_val_test_split
from onepos.training.backbones import make_backbone
from onepos.training.loop import Learner, Plan, Validation, predict_logits
from onepos.training.samples import as_samples, fit_scaling

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


class Told(CRISPPlus):
    """CRISP+ that knows the mean number of labels per row; what the classes below know besides are all labels."""

    labels: torch.Tensor

    def setup(self, train: TrainView) -> None:
        """As ever, at the true scale."""
        self.cardinality = float(self.labels.sum(1, dtype=torch.float64).mean())
        super().setup(train)


class ToldRows(Told):
    """And the number of labels of each row."""

    fair = False

    def setup(self, train: TrainView) -> None:
        """As ever, and then the truth in place of what was estimated."""
        super().setup(train)
        labels = self.labels.to(self.row_factor)
        share = 1 / labels.sum(1, keepdim=True).clamp(min=1)
        self.row_factor = (share / share.mean()).sqrt()
        if self.fair:
            self.target = labels * share


class ToldFair(ToldRows):
    """Of whose rows every label is shown in equal parts; nobody is asked about new ones."""

    fair = True

    def make_advisers(self, train: TrainView) -> None:
        """None."""


KINDS: dict[str, Callable[[], Method]] = {
    "AN": AN,
    "CRISP+": CRISPPlus,
    "told the mean number of labels": Told,
    "and that of each row": ToldRows,
    "and drawn without chance": ToldFair,
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
    samples, unseen = as_samples(rows.X, scaling), as_samples(test.X, scaling)
    validation = Validation(as_samples(held_out.X, scaling), held_out.Y, True)
    observed = draw_single_positive(rows.Y, seed)
    width = data.n_features if is_features else HIDDEN
    found = {}
    for kind, make in KINDS.items():
        tasks = []
        for rate in RATES:
            method = make()
            if isinstance(method, Told):
                method.labels = torch.tensor(rows.Y)
            torch.manual_seed(seed)
            network = make_backbone("linear" if is_features else "mlp", data.n_features, data.n_labels, (HIDDEN,))
            plan = Plan(
                epochs=10 if is_features else 20,
                batch_size=BATCH,
                lr=rate,
                weight_decay=1e-4 if is_features else 1e-5,
                select="map" if is_features else "average_precision",
                device=device,
                seed=seed,
            )
            shown = rows.Y if "full labels" in method.requires else observed
            tasks.append(Task(Learner(network, method), samples, shown, width, plan, validation))
        histories = train_many(tasks)
        best = max(range(len(tasks)), key=lambda k: histories[k].validation[histories[k].best_epoch])
        logits = predict_logits(tasks[best].learner.to("cpu"), unseen).double().numpy()
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

    warnings.simplefilter("ignore", UserWarning)  # of priors that the data leave open
    seeds = range(options.first_seed, options.first_seed + options.trials)
    titles = [*(METRICS[name].title for name in METRICS_SHOWN), "Hamming loss, best threshold"]
    lines = [
        "# What is left of the gap",
        "",
        f"Made by `benchmarks/gap.py`, which says how: means over {options.trials} trials, seed {seeds[0]} on."
        " In brackets the share of the way from AN to full labels.",
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
