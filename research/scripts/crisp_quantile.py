"""What the quantile of the number of labels costs and gains CRISP: Hamming loss and micro-F1.

    python research/scripts/crisp_quantile.py STORE [--seeds 905,906] [--data yeast,corel5k] [--out FILE]

One observed label per row does not settle how many labels a row has. CRISP takes the priors at a low quantile of that
number. Here they are computed once per draw, and CRISP is fitted to those of several quantiles, to the true priors, and
beside AN. The epoch is chosen by average precision on validation rows; decisions at one half; test rows (10 %).
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

from onepos import CRISP, SinglePositiveClassifier, draw_single_positive, held_out_probabilities, load_dataset
from onepos.files import write_atomically
from onepos.metrics import average_precision, hamming_loss, micro_f1
from onepos.priors import estimate_priors
from onepos.protocol import train_val_test_split

DATA = ("emotions", "image", "yeast", "cal500", "reuters_k500", "corel5k", "rcv1subset1_top944", "yahoo_arts")
QUANTILES = (0.4, 0.25, 0.15, 0.1, 0.05)


def priors_at(probability: Any, observed: Any, quantile: float) -> np.ndarray:
    """The priors that `CRISP(quantile=…)` gives to its risk."""
    level = abs(1 - 2 * quantile)
    low = estimate_priors(probability, observed, estimator="bracket", level=level).cardinality_interval[0]
    prior = estimate_priors(probability, observed, estimator="bracket", cardinality=float(low)).prior
    return np.clip(np.nan_to_num(prior), 1e-6, 1 - 1e-6)


def run(name: str, seed: int) -> list[dict[str, Any]]:
    """The lines of one draw."""
    data = load_dataset(name)
    split = train_val_test_split(data.Y, seed)
    train, val, test = ([i for i in part if data.Y[i].any()] for part in (split.train, split.val, split.test))
    observed = np.asarray(draw_single_positive(data.Y[train], random_state=seed))
    held_out = held_out_probabilities(data.X[train], observed, random_state=seed)
    probability = torch.as_tensor(np.asarray(held_out.probability))
    priors = {"true": np.clip(data.Y[train].mean(0), 1e-6, 1 - 1e-6)}
    priors |= {str(q): priors_at(probability, torch.as_tensor(observed).float(), q) for q in QUANTILES}
    methods: dict[str, Any] = {"an": "an"} | {kind: CRISP(prior=prior.tolist()) for kind, prior in priors.items()}
    lines = []
    for kind, method in methods.items():
        model = SinglePositiveClassifier(method, threshold=0.5, min_labels=0, random_state=seed)
        model.fit(data.X[train], observed, validation=(data.X[val], data.Y[val]))
        scores = model.predict_proba(data.X[test])
        decided = (scores > 0.5).astype(np.uint8)
        lines.append(
            {
                "data": name,
                "seed": seed,
                "kind": kind,
                "cardinality": float(priors[kind].sum()) if kind in priors else None,
                "hamming": float(hamming_loss(data.Y[test], decided)),
                "micro_f1": float(micro_f1(data.Y[test], decided)),
                "ap": float(average_precision(data.Y[test], scores)),
            }
        )
    return lines


def page(lines: list[dict[str, Any]], command: str) -> str:
    """A table of Hamming loss and one of micro-F1."""
    parts = [
        "# The quantile of CRISP: Hamming loss against micro-F1",
        "",
        "CRISP gives its risk the priors at a low quantile of the number of labels per row, by default 0.25. Mean over "
        f"the draws; decisions at one half. κ is the mean number of labels per row. Made by `{command}`.",
    ]
    kinds = ["an", "true", *map(str, QUANTILES)]

    def mean(name: str, kind: str, key: str) -> float:
        return float(np.mean([line[key] for line in lines if (line["data"], line["kind"]) == (name, kind)]))

    names = [name for name in DATA if any(line["data"] == name for line in lines)]
    titles = {
        "hamming": "Hamming loss, divided by that of the true priors",
        "micro_f1": "Micro-F1",
        "cardinality": "κ of the priors",
    }
    for key, title in titles.items():
        of_key = [kind for kind in kinds if key != "cardinality" or kind != "an"]
        heads = [{"an": "AN", "true": "true priors"}.get(kind, kind) for kind in of_key]
        parts += [
            "",
            f"## {title}",
            "",
            "| data set | " + " | ".join(heads) + " |",
            "|:---" + "|---:" * len(of_key) + "|",
        ]
        for name in names:
            base = mean(name, "true", "hamming") if key == "hamming" else 1.0
            digits = 3 if key == "micro_f1" else 2
            cells = " | ".join(f"{mean(name, kind, key) / base:.{digits}f}" for kind in of_key)
            parts.append(f"| {name} | {cells} |")
    return "\n".join(parts) + "\n"


def main() -> None:
    """Make what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--seeds", default="905,906")
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    lines = [json.loads(text) for text in given.store.read_text().splitlines()] if given.store.exists() else []
    done = {(line["data"], line["seed"]) for line in lines}
    with given.store.open("a") as store:
        for name in given.data.split(","):
            for seed in map(int, given.seeds.split(",")):
                if (name, seed) not in done:
                    made = run(name, seed)
                    lines += made
                    store.write("".join(json.dumps(line) + "\n" for line in made))
                    store.flush()
                    print(name, seed, flush=True)
    text = page(lines, f"python research/scripts/crisp_quantile.py STORE --seeds {given.seeds}")
    if given.out:
        write_atomically(given.out, text.encode())
    print(text)


if __name__ == "__main__":
    main()
