"""How many threads a step of training can use, and how long the prediction of one row takes.

    python research/scripts/threads.py [--rounds 4]

Steps of an MLP with one hidden layer, from small to large, on one thread and on all that torch has: the tenth
percentile of the times and their median, which differ where other programs use the cores. From these numbers follows
the size below which the library uses one thread (`onepos.training.runtime`).
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from onepos import SinglePositiveClassifier

HIDDEN = 256
SHAPES = ((50, 100, 32), (500, 983, 8), (500, 374, 32), (500, 983, 32), (500, 983, 128), (500, 983, 1000))


def time_calls(call: Callable[[], object], n: int) -> np.ndarray:
    seconds = []
    for _ in range(n):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return np.array(seconds)


def time_steps(d: int, c: int, batch: int, n: int) -> np.ndarray:
    network = nn.Sequential(nn.Linear(d, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, c))
    optimizer = torch.optim.Adam(network.parameters(), fused=True)
    rows, target = torch.randn(batch, d), torch.rand(batch, c)

    def step() -> None:
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(network(rows), target).backward()
        optimizer.step()

    return time_calls(step, n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    torch.manual_seed(0)
    most = torch.get_num_threads()
    print(
        f"| features, labels, batch | million multiply-adds | 1 thread, µs | {most} threads, µs | gain | of medians |"
    )
    print("|:---|---:|---:|---:|---:|---:|")
    for d, c, batch in SHAPES:
        size = batch * HIDDEN * (d + c) / 1e6
        times: dict[int, list[np.ndarray]] = {1: [], most: []}
        for _ in range(options.rounds):
            for threads, found in times.items():
                torch.set_num_threads(threads)
                found.append(time_steps(d, c, batch, int(np.clip(2000 / size, 10, 400))))
        one, all_ = (np.concatenate(found) * 1e6 for found in times.values())
        low = [np.percentile(each, 10) for each in (one, all_)]
        medians = np.median(one) / np.median(all_)
        print(
            f"| {d}, {c}, {batch} | {size:.1f} | {low[0]:.0f} | {low[1]:.0f} | {low[0] / low[1]:.2f} | {medians:.2f} |"
        )

    warnings.simplefilter("ignore", UserWarning)
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(1500, 500)), np.arange(1500) % 983
    print("\n| method | predict one row, ms | a thousand rows, ms |\n|:---|---:|---:|")
    for method in ("an", "crisp-plus"):
        model = SinglePositiveClassifier(method, epochs=1, device="cpu", random_state=0).fit(X, y)
        one_row, thousand = (time_calls(partial(model.predict, X[:n]), k) for n, k in ((1, 220), (1000, 12)))
        print(f"| {method} | {1e3 * np.median(one_row[20:]):.2f} | {1e3 * np.median(thousand[2:]):.1f} |")


if __name__ == "__main__":
    main()
