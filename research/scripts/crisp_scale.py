"""How close the Hamming loss of CRISP can come to that of true priors, where the number of labels is not known.

    python research/scripts/crisp_scale.py STORE [--seeds 25,26] [--data cal500,reuters_k500,corel5k] [--out FILE]

One observed label per row does not settle how many labels a row has. Of each data set two worlds are made with the same
rows and the same observed labels: in one the labels are the true ones, in the other each row has the observed label
only. A method sees the same in both and so predicts the same. CRISP is fitted with true priors scaled to several mean
numbers of labels; its Hamming loss on test rows is divided by that of the true priors of the world. Whatever number is
chosen, one of the two ratios is at least the smallest maximum of the last column. The number that the default
chooses, and its 90 % interval, stand beside. The epoch is chosen by average precision on validation rows.
STORE is a file of JSON lines; runs that are in it are not made again.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onepos import CRISP, SinglePositiveClassifier, draw_single_positive, load_dataset
from onepos.files import write_atomically
from onepos.metrics import hamming_loss
from onepos.protocol import train_val_test_split

DATA = ("cal500", "reuters_k500", "corel5k")
STEPS = 5
"""Numbers of labels between 1 and the truth, both included, at equal ratios."""


def run(name: str, seed: int, step: int | None) -> dict[str, Any]:
    """One line of the store: losses in both worlds with this number of labels; of None the default's own number."""
    data = load_dataset(name)
    split = train_val_test_split(data.Y, seed)
    train, val, test = ([i for i in part if data.Y[i].any()] for part in (split.train, split.val, split.test))
    observed = np.asarray(draw_single_positive(data.Y[train], random_state=seed))
    test_drawn = np.asarray(draw_single_positive(data.Y[test], random_state=seed))
    truth, rare = data.Y[train].mean(0), observed.mean(0)
    facts: dict[str, Any] = {"data": name, "seed": seed, "step": step, "truth": float(truth.sum())}
    if step is None:
        method = CRISP()
    else:
        weight = step / (STEPS - 1)  # geometric steps from the observed shares to the true priors
        prior = np.clip(rare ** (1 - weight) * np.maximum(truth, rare) ** weight, 1e-6, 1 - 1e-6)
        method = CRISP(prior=prior.tolist())
        facts["cardinality"] = float(prior.sum())
    model = SinglePositiveClassifier(method, threshold=0.5, min_labels=0, random_state=seed)
    model.fit(data.X[train], observed, validation=(data.X[val], data.Y[val]))
    decisions = model.predict(data.X[test])
    if step is None:
        interval = np.nansum(model.class_prior_interval_, axis=0)
        facts |= {"cardinality": float(np.nansum(model.class_prior_)), "interval": interval.tolist()}
    return facts | {
        "true_world": float(hamming_loss(data.Y[test], decisions)),
        "drawn_world": float(hamming_loss(test_drawn, decisions)),
    }


def page(lines: list[dict[str, Any]], command: str) -> str:
    """A table per data set."""
    parts = [
        "# The Hamming loss of CRISP and the number of labels that nobody knows",
        "",
        "Two worlds have the same rows and the same observed labels: in one the labels are the true ones, in the other "
        "each row has its observed label only. A method predicts the same in both. Hamming loss on test rows, divided "
        "by that of CRISP with the true priors of the world; mean over the draws, decisions at one half. The row with "
        f"the smallest maximum is the best that any choice of the number can promise. Made by `{command}`.",
    ]
    for name in dict.fromkeys(line["data"] for line in lines):
        of_set = [line for line in lines if line["data"] == name]
        base = {
            world: np.mean([line[world] for line in of_set if line["step"] == step])
            for world, step in (("true_world", STEPS - 1), ("drawn_world", 0))
        }
        parts += ["", f"## {name}", "", "| labels per row | true labels | observed labels only | larger of both |"]
        parts.append("|:---|---:|---:|---:|")
        for step in [*range(STEPS), None]:
            group = [line for line in of_set if line["step"] == step]
            if not group:
                continue
            ratios = [float(np.mean([line[world] for line in group]) / base[world]) for world in base]
            words = f"{np.mean([line['cardinality'] for line in group]):.2f}"
            if step is None:
                low, high = np.mean([line["interval"] for line in group], axis=0)
                words = f"default: {words}, interval {low:.1f} to {high:.1f}"
            elif step == STEPS - 1:
                words += " (truth)"
            parts.append(f"| {words} | {ratios[0]:.2f} | {ratios[1]:.2f} | {max(ratios):.2f} |")
    return "\n".join(parts) + "\n"


def main() -> None:
    """Make what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--seeds", default="25,26")
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    lines = [json.loads(text) for text in given.store.read_text().splitlines()] if given.store.exists() else []
    done = {(line["data"], line["seed"], line["step"]) for line in lines}
    with given.store.open("a") as store:
        for name in given.data.split(","):
            for seed in map(int, given.seeds.split(",")):
                for step in [*range(STEPS), None]:
                    if (name, seed, step) in done:
                        continue
                    lines.append(run(name, seed, step))
                    store.write(json.dumps(lines[-1]) + "\n")
                    store.flush()
                    print(lines[-1], flush=True)
    text = page(lines, f"python research/scripts/crisp_scale.py STORE --seeds {given.seeds}")
    if given.out:
        write_atomically(given.out, text.encode())
    print(text)


if __name__ == "__main__":
    main()
