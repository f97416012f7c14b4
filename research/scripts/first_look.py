"""A first look at every method with its default recipe: method × data set × metrics, and the time per epoch.

    python benchmarks/first_look.py [--data yeast,scene] [--methods an,crisp,full] [--seeds 3] [--device cpu]
                                    [--out docs/results/first-look.md] [--keep results.json]

Every seed is a new split, a new draw of the single positives and a new initialisation. All methods get the same
network, epochs and learning rate; the epoch is chosen by average precision on fully labelled validation rows.
With --keep, finished runs are kept in a file and not run again.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onepos.bench.recipes import find_entry
from onepos.bench.run import make_result, make_task, make_trial
from onepos.bench.stacking import train_many
from onepos.bench.study import Run
from onepos.datasets import Dataset, load_dataset
from onepos.files import write_atomically
from onepos.methods import METHODS
from onepos.metrics import METRICS, evaluate
from onepos.protocol import draw_single_positive, train_val_test_split

SHOWN = ["ranking_loss", "average_precision", "coverage", "hamming_loss", "one_error", "map", "macro_f1"]


def chance(data: Dataset, seed: int) -> dict[str, Any]:
    """Every row gets the observed label frequencies for scores: what can be had without looking at the features."""
    parts = train_val_test_split(data.Y, seed)
    frequency = draw_single_positive(data.Y[parts.train], seed).mean(0)
    truth = data.Y[parts.test]
    scores = evaluate(truth, np.tile(frequency, (len(truth), 1)), threshold=0.5)
    return {"scores": scores, "seconds_per_epoch": float("nan"), "prior_error": float("nan"), "best_epoch": -1}


def with_recipe(data: Dataset, method: str, seed: int, epochs: int, device: str) -> dict[str, Any]:
    """One run with the settings that recipes.toml has for the method on this data set."""
    recipe = find_entry(method, data.name)
    plan = {"batch_size": 32, "lr": 1e-3, "weight_decay": 0.0, "threshold": 0.5} | recipe.get("plan", {})
    run = Run(
        dataset=data.name,
        method=method,
        parameters=recipe.get("parameters", {}),
        network="mlp",
        hidden=(256,),
        scaling="standard",
        bias_init="frequency",
        epochs=epochs,
        select_metric="average_precision",
        select_labels="full",
        split_seed=seed,
        draw_seed=seed,
        seed=seed,
        trial=seed,
        configuration=0,
        **plan,
    )
    trial = make_trial(data, run)
    task = make_task(run, trial, device)
    (history,) = train_many([task])
    result = make_result(run, trial, task, history)
    return {
        "scores": result["test"],
        "seconds_per_epoch": float(np.median(history.seconds)),
        "prior_error": result["prior_error"],
        "best_epoch": result["best_epoch"],
    }


def measure(arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    keep = Path(arguments.keep) if arguments.keep else None
    results: dict[str, dict[str, Any]] = json.loads(keep.read_text()) if keep and keep.exists() else {}
    for name in arguments.data.split(","):
        data = load_dataset(name)
        for method in ["chance", *arguments.methods.split(",")]:
            for seed in range(arguments.seeds):
                key = f"{name} {method} {seed}"
                if key in results:
                    continue
                if method == "chance":
                    results[key] = chance(data, seed)
                else:
                    results[key] = with_recipe(data, method, seed, arguments.epochs, arguments.device)
                print(key, {m: round(results[key]["scores"][m], 3) for m in SHOWN}, flush=True)
                if keep:
                    write_atomically(keep, json.dumps(results))
    return results


def table(results: dict[str, dict[str, Any]], name: str, methods: list[str], seeds: int) -> list[str]:
    titles = [f"{METRICS[m].title} {'↑' if METRICS[m].greater_is_better else '↓'}" for m in SHOWN]
    lines = [f"| method | {' | '.join(titles)} | prior error | ms per epoch |", "|---|" + "---|" * (len(SHOWN) + 2)]
    rows: dict[str, list[dict[str, Any]]] = {
        method: [results[f"{name} {method} {seed}"] for seed in range(seeds)] for method in ["chance", *methods]
    }
    best = {
        metric: (max if METRICS[metric].greater_is_better else min)(
            np.mean([r["scores"][metric] for r in rs]) for m, rs in rows.items() if m not in ("full", "chance")
        )
        for metric in SHOWN
    }
    for method, group in rows.items():
        cells = []
        for metric in SHOWN:
            values = [r["scores"][metric] for r in group]
            text = f"{np.mean(values):.3f} ± {np.std(values):.3f}"
            is_best = method not in ("full", "chance") and f"{np.mean(values):.3f}" == f"{best[metric]:.3f}"
            cells.append(f"**{text}**" if is_best else text)
        error = np.mean([r["prior_error"] for r in group])
        time = 1000 * np.median([r["seconds_per_epoch"] for r in group])
        extra = ["–" if np.isnan(error) else f"{error:.2f}", "–" if np.isnan(time) else f"{time:.0f}"]
        lines.append(f"| {method} | {' | '.join(cells + extra)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="yeast,scene,image,corel5k,delicious")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--keep", help="JSON file of finished runs")
    parser.add_argument("--out", help="Markdown file to write; printed where not given")
    parser.add_argument("--notes", help="Markdown file put behind the tables")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = measure(arguments)
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else f"one core of {platform.machine()}"
    lines = [
        "# First look: every method with its default recipe",
        "",
        f"Mean ± standard deviation over {arguments.seeds} seeds; each is a new 80/10/10 split, a new uniform draw of "
        f"the single positives and a new initialisation. MLP-256, standardised features, head started at the observed "
        f"frequencies, Adam 1e-3, batch 32, {arguments.epochs} epochs for every method; the epoch is chosen by average "
        "precision on fully labelled validation rows, the test rows are looked at once. Nothing was tuned per data set "
        "but what a method's recipe says ([`recipes.toml`](../../src/onepos/recipes.toml)). `full` is the oracle, `an` "
        "the floor; `chance` ranks the labels of every row by their observed frequency. Bold: best but for the oracle; "
        "`epr` and `role` are told the mean number of labels per row, `crisp-val` the shares in the validation "
        f"rows. *prior error* is Σ|π̂−π| / Σπ. Times: {where}, in one run. Made by `benchmarks/first_look.py`.",
        "",
    ]
    for name in arguments.data.split(","):
        facts = load_dataset(name).describe()
        lines += [f"## {name}", "", f"{facts['n_samples']} × {facts['n_features']}, {facts['n_labels']} labels, "
                  f"{facts['cardinality']:.2f} per row.", ""]  # fmt: skip
        lines += [*table(results, name, arguments.methods.split(","), arguments.seeds), ""]
    if arguments.notes:
        lines.append(Path(arguments.notes).read_text(encoding="utf-8"))
    text = "\n".join(lines)
    if arguments.out:
        write_atomically(arguments.out, text)
    else:
        print(text)


if __name__ == "__main__":
    main()
