"""Seconds of one epoch of the tabular loop: ours, and a DataLoader of single rows.

    python research/scripts/loop.py [DATA]

All train the same network (one hidden layer of 256) with Adam and the assume-negative loss at batch 16. DATA is
the name of a data set (default: yeast if it is on this machine, otherwise digit-scenes).
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from onepos.datasets import load_dataset
from onepos.methods import AN, CRISP
from onepos.methods.base import Method
from onepos.methods.losses import assume_negative
from onepos.metrics import METRICS
from onepos.protocol import draw_single_positive, train_val_test_split
from onepos.training.loop import train
from onepos.training.plan import Plan
from onepos.training.samples import as_samples, fit_scaling
from onepos.training.task import TrainingData, make_task

BATCH, ROUNDS, EPOCHS = 16, 6, 2


class SingleRows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """What most public code does: the loader collects batches row by row."""

    def __init__(self, X: torch.Tensor, observed: torch.Tensor) -> None:
        self.X, self.observed = X, observed

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.X[index], self.observed[index]


def with_loader(
    X: torch.Tensor, observed: np.ndarray, workers: int, held_out: tuple[torch.Tensor, np.ndarray] | None = None
) -> float:
    """The best epoch in seconds; with `held_out` each epoch ends with the average precision of these rows."""
    net = nn.Sequential(nn.Linear(X.shape[1], 256), nn.ReLU(), nn.Linear(256, observed.shape[1]))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    rows = SingleRows(X, torch.as_tensor(observed, dtype=torch.float32))
    loader = DataLoader(rows, batch_size=BATCH, shuffle=True, num_workers=workers)
    judged = DataLoader(SingleRows(held_out[0], torch.as_tensor(held_out[1])), BATCH) if held_out else ()
    times = []
    for _ in range(EPOCHS):
        began = time.perf_counter()
        for x, y in loader:
            optimizer.zero_grad()
            assume_negative(net(x), y).backward()
            optimizer.step()
        if held_out:
            with torch.no_grad():
                scores = torch.cat([net(x) for x, _ in judged])
            METRICS["average_precision"].function(held_out[1], scores.double().numpy())
        times.append(time.perf_counter() - began)
    return min(times)


def with_onepos(X: torch.Tensor, observed: np.ndarray, method: Method) -> float:
    plan = Plan(epochs=EPOCHS + method.get_params().get("warmup", 0), batch_size=BATCH, device="cpu")
    task = make_task(TrainingData(as_samples(X.numpy())), observed, method, plan)
    return min(train(task).history.seconds[-EPOCHS:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="yeast")
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        data = load_dataset(options.data)
    except FileNotFoundError:
        data = load_dataset("digit-scenes")
    rows = train_val_test_split(data.Y, 0).train
    dense = data.X[rows].toarray() if data.is_sparse else np.asarray(data.X)[rows]
    X = as_samples(dense, fit_scaling(dense)).data
    observed = draw_single_positive(data.Y[rows], 0)
    loops = {
        "ours, AN": lambda: with_onepos(X, observed, AN()),
        "ours, CRISP (estimation of the priors included)": lambda: with_onepos(X, observed, CRISP()),
        "DataLoader of single rows": lambda: with_loader(X, observed, 0),
        "DataLoader of single rows, 2 workers": lambda: with_loader(X, observed, 2),
    }
    best = dict.fromkeys(loops, float("inf"))
    for _ in range(ROUNDS):  # in turn, so that a busy moment of the machine hits all alike
        for what, loop in loops.items():
            best[what] = min(best[what], loop())
    ours = best["ours, AN"]
    print(f"{data.name}: {len(X)} rows × {X.shape[1]}, {observed.shape[1]} labels, MLP-256, batch {BATCH}, best epoch")
    print("\n| loop | ms per epoch | times ours |\n|---|---|---|")
    for what, value in best.items():
        print(f"| {what} | {1000 * value:.0f} | {value / ours:.2f} |")


if __name__ == "__main__":
    main()
