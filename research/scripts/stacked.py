"""Many runs trained as one against the same runs one by one, in one process.

    python research/scripts/stacked.py [--data yeast] [--runs 32] [--device cpu] [--methods an,crisp] [--rounds 3]
                                       [--floor]

Every run has its own seed, split, draw of the positives and learning rate, as in a study; each epoch ends with the
validation rows. The table gives the best epoch (after the warm-up of the method) of several rounds; that
of a stack is divided by the number of runs. One by one runs on one thread of a CPU, where it is fastest; a stack runs
on all.

With --floor the script also times the products of the layers and the step of Adam alone, on memory of the same size
and as the stack does them, without loss, batches and validation: an upper bound of what a stack can gain.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import math
import os
import platform
import time
from unittest.mock import patch

import numpy as np
import torch
from loop import with_loader
from torch import nn

from onepos.bench.recipes import find_recipe
from onepos.bench.stacked_adam import StackedAdam
from onepos.bench.stacking import can_stack, train_many
from onepos.datasets import Dataset, load_dataset
from onepos.methods import METHODS
from onepos.protocol import draw_single_positive, train_val_test_split
from onepos.training.loop import History, train
from onepos.training.plan import Plan
from onepos.training.samples import as_samples, fit_scaling
from onepos.training.task import Task, TrainingData, Validation, make_task

BATCH, HIDDEN, N_SPLITS = 16, 256, 8
RATES = (3e-4, 1e-3, 2e-3, 4e-3)


def make_tasks(data: Dataset, method: str, n_runs: int, epochs: int, device: str) -> list[Task]:
    """Runs as a study would make them: trials share their rows."""
    trials = []
    for seed in range(min(n_runs, N_SPLITS)):
        rows, held_out, _ = (data.take(part) for part in train_val_test_split(data.Y, seed))
        scaling = fit_scaling(rows.X)
        oracle = "full labels" in METHODS[method]().requires
        observed = rows.Y if oracle else draw_single_positive(rows.Y, seed)
        validation = Validation(as_samples(held_out.X, scaling), held_out.Y, True)
        parameters = find_recipe(method, data.name, rows.Y).parameters
        inputs = TrainingData(as_samples(rows.X, scaling), validation, frozenset({"full labels"}))
        trials.append((inputs, observed, parameters))
    tasks = []
    for k in range(n_runs):
        inputs, observed, parameters = trials[k % N_SPLITS]
        plan = Plan(epochs, BATCH, lr=RATES[k // N_SPLITS % len(RATES)], device=device, seed=k)
        tasks.append(make_task(inputs, observed, METHODS[method](**parameters), plan, hidden=(HIDDEN,)))
    return tasks


def one_by_one(task: Task) -> float:
    """Each epoch ends with a metric on the CPU, so the clock stops after the accelerator has finished."""
    return best_epoch(task, train(task).history)


def stacked(tasks: list[Task]) -> float:
    return best_epoch(tasks[0], train_many(tasks, stack_size=len(tasks))[0].history)


def best_epoch(task: Task, history: History) -> float:
    return min(history.seconds[task.learner.method.get_params().get("warmup", 0) :])


def products_and_adam(tasks: list[Task], rounds: int) -> float:
    """Seconds per run and epoch of these alone; the learners must have been trained, so that their heads are there."""
    device, n_runs = tasks[0].plan.device, len(tasks)
    shapes = [layer.weight.shape for layer in tasks[0].learner.modules() if isinstance(layer, nn.Linear)]
    weights = {str(k): torch.randn(n_runs, i, o, device=device) for k, (o, i) in enumerate(shapes)}
    adam = StackedAdam(weights, [dict.fromkeys(weights, (RATES[0], 0.0))] * n_runs)
    layers = list(zip(adam.weights.values(), adam.gradients.values(), strict=True))  # the memory that Adam moves
    batches = [tuple(torch.randn(n_runs, BATCH, size, device=device) for size in (i, o)) for o, i in shapes]

    def step() -> None:
        for k, ((x, gradient), (weight, to_weight)) in enumerate(zip(batches, layers, strict=True)):
            torch.bmm(x, weight)
            torch.bmm(x.transpose(1, 2), gradient, out=to_weight)
            if k > 0:  # the gradient of the rows is not needed
                torch.bmm(gradient, weight.transpose(1, 2))
        adam.step()

    best, n_steps = math.inf, -(-len(tasks[0].samples) // BATCH)
    for _ in range(1 + 6 * rounds):
        began = time.perf_counter()
        for _ in range(n_steps):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    return best / n_runs


def time_loaders(data: Dataset, rounds: int) -> dict[int, float]:
    """Seconds per epoch with a DataLoader of single rows, by its number of workers."""
    torch.set_num_threads(1)
    rows, held_out, _ = (data.take(part) for part in train_val_test_split(data.Y, 0))
    X, V = (torch.tensor(np.asarray(part.X), dtype=torch.float32) for part in (rows, held_out))
    observed = draw_single_positive(rows.Y, 0)
    return {n: min(with_loader(X, observed, n, (V, held_out.Y)) for _ in range(rounds)) for n in (0, 8)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="yeast")
    parser.add_argument("--runs", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--loader", action="store_true", help="also time a DataLoader of single rows (dense data)")
    parser.add_argument("--floor", action="store_true", help="also time products and Adam alone")
    options = parser.parse_args()
    if unknown := set(options.methods.split(",")).difference(METHODS):
        parser.error(f"--methods must name methods of {', '.join(METHODS)}; got {', '.join(sorted(unknown))}.")

    data = load_dataset(options.data)
    n_train = len(train_val_test_split(data.Y, 0).train)
    threads = torch.get_num_threads()
    machine = torch.cuda.get_device_name() if options.device == "cuda" else f"{os.cpu_count()} cores, {cpu_name()}"
    print(f"{machine}; torch {torch.__version__}, {threads} threads\n")
    print(
        f"{data.name}: {n_train} rows × {data.n_features}, {data.n_labels} labels, MLP-{HIDDEN}, batch {BATCH}, "
        f"{options.runs} runs, {options.epochs} epochs\n"
    )
    loaders = time_loaders(data, options.rounds) if options.loader else {}
    titles = ("method", "one by one, ms per epoch", "stacked, ms per run and epoch", "times faster")
    titles += ("stacked without traces", "a trace gains")
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    for method in options.methods.split(","):
        if not can_stack(make_tasks(data, method, 1, options.epochs, options.device)[0]):
            print(f"| {method} | can not be stacked | | | | |")
            continue
        alone = together = untraced = math.inf
        for _ in range(options.rounds):
            tasks = make_tasks(data, method, options.runs, options.epochs, options.device)
            plain = [dataclasses.replace(task, learner=copy.deepcopy(task.learner)) for task in tasks]
            torch.set_num_threads(1)
            alone = min(alone, one_by_one(dataclasses.replace(tasks[0], learner=copy.deepcopy(tasks[0].learner))))
            torch.set_num_threads(threads)
            together = min(together, stacked(tasks))
            with patch("onepos.bench.tracing._steps_worth_a_trace", lambda: math.inf):
                untraced = min(untraced, stacked(plain))
        a, b, c = 1e3 * alone, 1e3 * together, 1e3 * untraced
        print(f"| {method} | {a:.1f} | {b:.2f} | {a / b:.1f} | {c:.2f} | {c / b:.2f} |", flush=True)
        if options.floor:
            least = 1e3 * products_and_adam(tasks, options.rounds)
            print(f"| {method}, products and Adam alone | | {least:.2f} | at most {a / least:.1f} | | |", flush=True)
        for n_workers, seconds in loaders.items():
            what = f"{method}, a DataLoader of single rows, {n_workers} workers"
            print(f"| {what} | {1e3 * seconds:.1f} | | {1e3 * seconds / b:.1f} | | |", flush=True)
        loaders = {}  # beside the first method only


def cpu_name() -> str:
    """As the system calls it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
