"""Class priors three ways in one run: the paper's exhaustive search, a best-bin loop, ours.

    python research/scripts/priors.py [--cuda]

Exhaustive search takes every score of every label as a threshold and counts again each time; the loop walks down
the sorted scores of a label, as the code the estimator descends from does; ours sorts and looks up only the
observed positives. Exhaustive search at NUS size would take hours, so its time there is measured on one label
and multiplied.
"""

from __future__ import annotations

import argparse
import math
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import torch

from onepos.priors import estimate_priors

SIZES = {"VOC": (4_574, 20), "COCO": (65_665, 80), "NUS-WIDE": (120_000, 81)}


def make(n: int, c: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    label = rng.choice(c, n, p=(weights := 1 / np.arange(1, c + 1)) / weights.sum())
    scores = rng.normal(size=(n, c)).astype(np.float32)
    scores[np.arange(n), label] += 2
    return scores, np.eye(c, dtype=np.uint8)[label]


def slack(n: int, n_positive: int, delta: float = 0.01, tau: float = 0.01) -> float:
    return (1 + tau) * (math.sqrt(math.log(4 / delta) / (2 * n)) + math.sqrt(math.log(4 / delta) / (2 * n_positive)))


def exhaustive(scores: np.ndarray, observed: np.ndarray) -> np.ndarray:
    prior = np.full(scores.shape[1], np.nan)
    for j in range(scores.shape[1]):
        column, positive = scores[:, j], scores[observed[:, j] == 1, j]
        width, best = slack(len(column), len(positive)), math.inf
        for z in column:
            q, q_positive = (column >= z).mean(), (positive >= z).mean()
            if q_positive > 0 and (bound := (q + width) / q_positive) < best:
                best, prior[j] = bound, q / q_positive
    return prior


def best_bin_loop(scores: np.ndarray, observed: np.ndarray) -> np.ndarray:
    n = len(scores)
    prior = np.full(scores.shape[1], np.nan)
    for j in range(scores.shape[1]):
        order = np.argsort(-scores[:, j], kind="stable")
        column, is_positive = scores[order, j], observed[order, j]
        n_positive = int(is_positive.sum())
        width, best, reached = slack(n, n_positive), math.inf, 0
        for i in range(n):
            reached += int(is_positive[i])
            if (i + 1 < n and column[i + 1] == column[i]) or reached == 0:
                continue
            q, q_positive = (i + 1) / n, reached / n_positive
            if (bound := (q + width) / q_positive) < best:
                best, prior[j] = bound, q / q_positive
    return prior


def ours(scores: object, observed: object) -> np.ndarray:
    return estimate_priors(scores, observed).prior


def seconds(function: Callable[..., np.ndarray], *data: object, repeat: int = 1) -> tuple[float, np.ndarray]:
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        result = function(*data)
        times.append(time.perf_counter() - began)
    return min(times), result


def extra_memory(scores: np.ndarray, observed: np.ndarray) -> float:
    tracemalloc.start()
    estimate_priors(scores, observed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / scores.nbytes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuda", action="store_true", help="also on the GPU")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| scores | exhaustive (s) | best-bin loop (s) | ours (s) | exhaustive / ours | loop / ours | extra memory |")
    print("|---|---|---|---|---|---|---|")
    for name, (n, c) in SIZES.items():
        scores, observed = make(n, c)
        quick, prior = seconds(ours, scores, observed, repeat=5)
        loop, reference = seconds(best_bin_loop, scores, observed)
        np.testing.assert_allclose(prior, reference, atol=1e-12)
        if name == "VOC":
            full, search = seconds(exhaustive, scores, observed)
            np.testing.assert_allclose(prior, search, atol=1e-12)
        else:
            full = seconds(some_thresholds, scores, observed, n // 40)[0] * 40 * c
        mark = "" if name == "VOC" else " (extrapolated)"
        memory = extra_memory(scores, observed)
        print(
            f"| {name} {n} × {c} | {full:.2f}{mark} | {loop:.2f} | {quick:.4f} | {full / quick:,.0f} × "
            f"| {loop / quick:,.0f} × | {memory:.2f} × scores |"
        )
        if arguments.cuda:
            fast, memory = on_gpu(scores, observed, prior)
            where = torch.cuda.get_device_name()
            print(f"| … on {where} | | | {fast:.4f} | {full / fast:,.0f} × | | {memory:.2f} × scores |")


def on_gpu(scores: np.ndarray, observed: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    data = torch.as_tensor(scores).cuda(), torch.as_tensor(observed).cuda()
    ours(*data)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    fast, prior = seconds(ours, *data, repeat=5)
    np.testing.assert_array_equal(prior, expected)
    return fast, (torch.cuda.max_memory_allocated() - before) / scores.nbytes


def some_thresholds(scores: np.ndarray, observed: np.ndarray, count: int) -> np.ndarray:
    """The work of the exhaustive search for the first `count` thresholds of one label."""
    column, positive = scores[:, 0], scores[observed[:, 0] == 1, 0]
    return np.array([(column >= z).mean() / max((positive >= z).mean(), 1e-9) for z in column[:count]])


if __name__ == "__main__":
    main()
