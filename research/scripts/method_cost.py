"""Cost of a method: seconds per epoch against AN on the same rows, seconds before the first epoch, memory.

    python research/scripts/method_cost.py [--data delicious] [--methods an,crisp,crisp-plus] [--batch 32] [--rounds 2]

MLP-256 on one thread of the CPU. The table gives the best epoch of several rounds, after the warm-up of the method, the
seconds before the first epoch, the milliseconds to predict a thousand rows, and the memory beside the network: that of
the method during the training, and that of the model afterwards.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from stacked import cpu_name

from onepos.datasets import load_dataset
from onepos.methods import make_method
from onepos.protocol import draw_single_positive, train_val_test_split
from onepos.training.loop import train
from onepos.training.plan import Plan
from onepos.training.samples import Samples, as_samples, fit_scaling
from onepos.training.task import TrainingData, make_task

HIDDEN, EPOCHS = 256, 2


@dataclass
class Cost:
    """Of one training: seconds before the first epoch, of the best epoch and of a prediction; bytes held."""

    before: float
    epoch: float
    predict: float
    during: int
    after: int


def measure(samples: Samples, observed: np.ndarray, name: str, batch_size: int) -> Cost:
    method = make_method(name)
    warmup = method.get_params().get("warmup", 0)
    began = time.perf_counter()
    plan = Plan(EPOCHS + warmup, batch_size, device="cpu")
    history, network, _ = train(make_task(TrainingData(samples), observed, method, plan, hidden=(HIDDEN,)))
    before = time.perf_counter() - began - sum(history.seconds)
    thousand = samples.rows(torch.arange(min(1000, len(samples))))
    began = time.perf_counter()
    with torch.no_grad():
        network(thousand)
    predict = time.perf_counter() - began
    after = sum(buffer.nbytes for buffer in network.buffers())
    during = sum(buffer.nbytes for buffer in method.buffers())
    return Cost(before, min(history.seconds[warmup:]), predict, during, after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="delicious")
    parser.add_argument("--methods", default="an,crisp,crisp-plus")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()

    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # uncertain priors are not what is measured
    data = load_dataset(options.data)
    rows = data.take(train_val_test_split(data.Y, 0).train)
    samples, observed = as_samples(rows.X, fit_scaling(rows.X)), draw_single_positive(rows.Y, 0)
    print(f"{os.cpu_count()} cores, {cpu_name()}; torch {torch.__version__}, one thread\n")
    size = f"{len(samples)} rows × {data.n_features}, {data.n_labels} labels"
    print(f"{data.name}: {size}, MLP-{HIDDEN}, batch {options.batch}\n")
    names = dict.fromkeys(["an", *options.methods.split(",")])
    costs: dict[str, list[Cost]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            costs[name].append(measure(samples, observed, name, options.batch))
    floor = min(cost.epoch for cost in costs["an"])
    titles = ("method", "ms per epoch", "times AN", "s before them, at first and again", "ms to predict 1 000 rows")
    print("| " + " | ".join([*titles, "MB held in training", "MB held for good"]) + " |\n" + "|---" * 7 + "|")
    for name, found in costs.items():
        epoch = min(cost.epoch for cost in found)
        before = f"{found[0].before:.1f}, {min(cost.before for cost in found):.1f}"
        predict = 1e3 * min(cost.predict for cost in found)
        held = f"{found[0].during / 1e6:.1f} | {found[0].after / 1e6:.1f}"
        print(f"| {name} | {1e3 * epoch:.0f} | {epoch / floor:.2f} | {before} | {predict:.0f} | {held} |")


if __name__ == "__main__":
    main()
