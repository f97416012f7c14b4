"""Many runs trained as one against the same runs one by one, in one process.

    python benchmarks/stacked.py [--data yeast] [--runs 32] [--device cpu] [--methods an,crisp] [--rounds 3]

Every run has its own seed, split, draw of the positives and learning rate, as in a study; each epoch ends with the
validation rows. Times are wall-clock of the whole training, preparation included, per run and epoch; the best of some
rounds, taken in turn. One by one runs on one thread of a CPU, where it is fastest; a stack on all.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time

import numpy as np
import torch
from loop import with_loader

from onepos.backbones import make_backbone
from onepos.datasets import Dataset, load_dataset
from onepos.methods import METHODS
from onepos.protocol import draw_single_positive, split
from onepos.recipes import find_recipe
from onepos.samples import as_samples, fit_scaling
from onepos.stacking import Task, can_stack, train_many
from onepos.training import Learner, Plan, Validation, train

BATCH, HIDDEN, N_SPLITS = 16, 256, 8
RATES = (3e-4, 1e-3, 2e-3, 4e-3)


def make_tasks(data: Dataset, method: str, n_runs: int, epochs: int, device: str) -> list[Task]:
    """Runs as a study would make them: trials share their rows."""
    trials = []
    for seed in range(min(n_runs, N_SPLITS)):
        rows, held_out, _ = (data.take(part) for part in split(data.Y, seed))
        scaling = fit_scaling(rows.X)
        oracle = "full labels" in METHODS[method]().requires
        observed = rows.Y if oracle else draw_single_positive(rows.Y, seed)
        validation = Validation(as_samples(held_out.X, scaling), held_out.Y, True)
        parameters = find_recipe(method, data.name, rows.Y).parameters
        trials.append((as_samples(rows.X, scaling), observed, validation, parameters))
    tasks = []
    for k in range(n_runs):
        samples, observed, validation, parameters = trials[k % N_SPLITS]
        torch.manual_seed(k)
        network = make_backbone("mlp", data.n_features, data.n_labels, (HIDDEN,))
        learner = Learner(network, METHODS[method](**parameters))
        plan = Plan(epochs, BATCH, lr=RATES[k // N_SPLITS % len(RATES)], device=device, seed=k)
        tasks.append(Task(learner, samples, observed, HIDDEN, plan, validation))
    return tasks


def wait_for(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def one_by_one(data: Dataset, method: str, n_runs: int, epochs: int, device: str) -> float:
    tasks = make_tasks(data, method, n_runs, epochs, device)
    began = time.perf_counter()
    for task in tasks:
        train(task.learner, task.samples, task.observed, HIDDEN, task.plan, validation=task.validation)
    wait_for(device)
    return (time.perf_counter() - began) / n_runs / epochs


def stacked(data: Dataset, method: str, n_runs: int, epochs: int, device: str) -> float:
    tasks = make_tasks(data, method, n_runs, epochs, device)
    began = time.perf_counter()
    train_many(tasks, stack_size=n_runs)
    wait_for(device)
    return (time.perf_counter() - began) / n_runs / epochs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="yeast")
    parser.add_argument("--runs", type=int, default=32)
    parser.add_argument("--alone", type=int, default=1, help="how many of them are also trained one by one")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--loader", action="store_true", help="also time a DataLoader of single rows (dense data)")
    options = parser.parse_args()

    data = load_dataset(options.data)
    n_train = len(split(data.Y, 0).train)
    threads = torch.get_num_threads()
    machine = torch.cuda.get_device_name() if options.device == "cuda" else f"{os.cpu_count()} cores, {cpu_name()}"
    print(f"{machine}; torch {torch.__version__}, {threads} threads\n")
    print(
        f"{data.name}: {n_train} rows × {data.n_features}, {data.n_labels} labels, MLP-{HIDDEN}, batch {BATCH}, "
        f"{options.runs} runs, {options.epochs} epochs\n"
    )
    if options.loader:
        torch.set_num_threads(1)
        rows = data.take(split(data.Y, 0).train)
        X = torch.tensor(np.asarray(rows.X), dtype=torch.float32)
        loader = min(with_loader(X, draw_single_positive(rows.Y, 0), 0) for _ in range(options.rounds))
    print("| method | one by one, ms per epoch | stacked, ms per run and epoch | times faster |\n|---|---|---|---|")
    for method in options.methods.split(","):
        if not can_stack(make_tasks(data, method, 1, options.epochs, options.device)[0]):
            print(f"| {method} | can not be stacked | | |")
            continue
        best = {one_by_one: math.inf, stacked: math.inf}
        for _ in range(options.rounds):
            torch.set_num_threads(1)
            seconds = one_by_one(data, method, options.alone, options.epochs, options.device)
            best[one_by_one] = min(best[one_by_one], seconds)
            torch.set_num_threads(threads)
            seconds = stacked(data, method, options.runs, options.epochs, options.device)
            best[stacked] = min(best[stacked], seconds)
        a, b = 1e3 * best[one_by_one], 1e3 * best[stacked]
        print(f"| {method} | {a:.1f} | {b:.2f} | {a / b:.1f} |", flush=True)
        if options.loader:
            print(f"| {method}, a DataLoader of single rows | {1e3 * loader:.1f} | | {1e3 * loader / b:.1f} |")
            options.loader = False


def cpu_name() -> str:
    """As the system calls it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
