"""What fully reviewed rows are worth: quality against their number, with and without their known negatives.

    python research/scripts/known_negatives.py STORE [--seeds 31,32,33] [--data yeast,scene] [--out FILE]
                                               [--figure FILE]

Each row of the training part shows one of its labels, drawn uniformly; of some rows, chosen at random, a person told
every label. `with` takes these rows as yes and no; `without` takes their positives and leaves all else unknown, which
is all that a method without known negatives can do. `an, 0.5` (one label per row, unknown labels absent, decisions at
one half) is the floor, `full` (all labels of all rows, decisions at one half) the top; the share closed is the way
from the one to the other. Defaults for all else; the splits, draws and test rows are those of baselines.py.
STORE is a file of JSON lines; runs that are in it are not made again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from baselines import read

from onepos import SinglePositiveClassifier, draw_single_positive, evaluate
from onepos.files import write_atomically

DATA = ("yeast", "scene", "rcv1subset1_top944", "voc2012-features", "digit-scenes")
COUNTS = (0, 20, 50, 100, 200, 500)
METHODS = ("crisp-plus", "an")
METRICS = {"micro_f1": "micro-F1", "hamming_loss": "Hamming loss", "map": "mAP"}
TITLES = {
    "crisp-plus with": "CRISP+, yes and no",
    "crisp-plus without": "CRISP+, yes only",
    "an with": "assume negative, yes and no",
}


def known_labels(Y: Any, observed: Any, reviewed: Any, use_negatives: bool) -> Any:
    """What is known: one label of each row, of the reviewed ones all (yes and no) or all that are present (yes)."""
    known = observed.astype(float)
    known[reviewed] = Y[reviewed]
    if not use_negatives or len(reviewed) == 0:
        return known.astype(np.uint8)
    unknown = known == 0
    unknown[reviewed] = False
    known[unknown] = np.nan
    return known


def run(name: str, seed: int, kind: str, n_reviewed: int) -> dict[str, Any]:
    """One line of the store."""
    X, Y, X_test, Y_test = read(name, seed)
    observed = np.asarray(draw_single_positive(Y, random_state=seed))
    reviewed = np.random.default_rng(seed).permutation(len(Y))[:n_reviewed]
    began = time.perf_counter()
    if kind in ("full", "floor"):
        model = SinglePositiveClassifier("an", positives="any", threshold=0.5, min_labels=0, random_state=seed)
        model.fit(X, Y if kind == "full" else observed)
        cardinality = None
    else:
        method, use = kind.split()
        model = SinglePositiveClassifier(method, positives="any", random_state=seed)
        model.fit(X, known_labels(Y, observed, reviewed, use == "with"))
        cardinality = float(np.nansum(model.class_prior_))
    scores = evaluate(Y_test, model.predict_proba(X_test), decisions=model.predict(X_test), names=list(METRICS))
    facts = {"data": name, "seed": seed, "kind": kind, "n_reviewed": n_reviewed, "cardinality": cardinality}
    return facts | {"true_cardinality": float(Y.sum(1).mean()), "seconds": time.perf_counter() - began} | scores


def jobs(names: list[str], seeds: list[int]) -> list[tuple[str, int, str, int]]:
    """Every run: floor and top once, the rest at every number of reviewed rows."""
    found = []
    for seed in seeds:
        for name in names:
            found += [(name, seed, "floor", 0), (name, seed, "full", 0)]
            found += [(name, seed, "crisp-plus with", n) for n in COUNTS]
            found += [(name, seed, kind, n) for n in COUNTS[1:] for kind in ("crisp-plus without", "an with")]
    return found


def means(lines: list[dict[str, Any]], name: str, kind: str, n: int, metric: str) -> float:
    """Mean over the seeds; NaN where there is no run."""
    kind = "crisp-plus with" if n == 0 and kind == "crisp-plus without" else kind
    of_kind = [line[metric] for line in lines if (line["data"], line["kind"], line["n_reviewed"]) == (name, kind, n)]
    return float(np.mean(of_kind)) if of_kind else float("nan")


def page(lines: list[dict[str, Any]], command: str) -> str:
    """A table per metric, and the share of the micro-F1 gap that is closed."""
    names = [name for name in DATA if any(line["data"] == name for line in lines)]
    parts = [
        "# What fully reviewed rows are worth",
        "",
        "Every training row shows one of its labels; of some rows, chosen at random, all labels are known. *Yes and "
        "no* uses these rows as they are, *yes only* leaves what is absent from them unknown. The floor assumes "
        "negatives and decides at one half; the top knows all labels of all rows. Defaults for all else; mean over the "
        "draws. "
        f"Made by `{command}`.",
    ]
    for metric, title in METRICS.items():
        parts += ["", f"## {title}", "", "| data set | labels | floor | " + " | ".join(map(str, COUNTS)) + " | top |"]
        parts.append("|:---|:---|" + "---:|" * (len(COUNTS) + 2))
        for name in names:
            ends = [means(lines, name, kind, 0, metric) for kind in ("floor", "full")]
            for kind, words in TITLES.items():
                cells = [f"{means(lines, name, kind, n, metric):.3f}".replace("nan", "–") for n in COUNTS]
                parts.append(f"| {name} | {words} | {ends[0]:.3f} | " + " | ".join(cells) + f" | {ends[1]:.3f} |")
    parts += ["", "## Share of the way from floor to top in micro-F1, per cent", ""]
    parts += ["| data set | labels | " + " | ".join(map(str, COUNTS)) + " |", "|:---|:---|" + "---:|" * len(COUNTS)]
    for name in names:
        low, high = (means(lines, name, kind, 0, "micro_f1") for kind in ("floor", "full"))
        for kind, words in TITLES.items():
            shares = [100 * (means(lines, name, kind, n, "micro_f1") - low) / (high - low) for n in COUNTS]
            parts.append(f"| {name} | {words} | " + " | ".join(f"{s:.0f}".replace("nan", "–") for s in shares) + " |")
    parts += ["", "## Mean number of labels per row as CRISP+ estimates it", ""]
    parts += ["| data set | truth | " + " | ".join(map(str, COUNTS)) + " |", "|:---|---:|" + "---:|" * len(COUNTS)]
    for name in names:
        truth = means(lines, name, "crisp-plus with", 0, "true_cardinality")
        found = [means(lines, name, "crisp-plus with", n, "cardinality") for n in COUNTS]
        parts.append(f"| {name} | {truth:.2f} | " + " | ".join(f"{each:.2f}" for each in found) + " |")
    return "\n".join(parts) + "\n"


def draw_figure(lines: list[dict[str, Any]], path: Path) -> None:
    """Micro-F1 against the number of reviewed rows, a panel per data set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [name for name in DATA if any(line["data"] == name for line in lines)]
    styles = {"crisp-plus with": ("C0", "o-"), "crisp-plus without": ("C0", "o:"), "an with": ("C1", "s-")}
    with plt.rc_context({"svg.hashsalt": "onepos", "font.size": 9}):
        n_rows = -(-len(names) // 3)
        figure, axes = plt.subplots(n_rows, 3, figsize=(8.4, 2.6 * n_rows + 0.3), layout="constrained", squeeze=False)
        for axis in axes.flat[len(names) :]:
            axis.remove()
        for axis, name in zip(axes.flat, names, strict=False):
            for kind, (colour, style) in styles.items():
                values = [means(lines, name, kind, n, "micro_f1") for n in COUNTS]
                axis.plot(COUNTS, values, style, color=colour, label=TITLES[kind], markersize=4, linewidth=1.4)
            for kind, words in (("floor", "floor"), ("full", "all labels of all rows")):
                level = means(lines, name, kind, 0, "micro_f1")
                axis.axhline(level, color="0.5", linewidth=1, linestyle="--" if kind == "full" else ":", label=words)
            axis.set_xscale("symlog", linthresh=20)
            axis.set_xticks(COUNTS, list(map(str, COUNTS)), fontsize=8)
            axis.minorticks_off()
            axis.set_title(name, fontsize=9)
            axis.set_xlabel("fully reviewed rows")
            axis.spines[["top", "right"]].set_visible(False)
        for axis in axes[:, 0]:
            axis.set_ylabel("micro-F1")
        handles, words = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, words, loc="outside lower center", ncols=len(words), frameon=False, fontsize=8)
        figure.savefig(path, dpi=120, metadata={"Software": None})
        plt.close(figure)


def main() -> None:
    """Make what is missing and write page and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--seeds", default="31,32,33")
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = [json.loads(text) for text in given.store.read_text().splitlines()] if given.store.exists() else []
    done = {(line["data"], line["seed"], line["kind"], line["n_reviewed"]) for line in lines}
    with given.store.open("a") as store:
        for job in jobs(given.data.split(","), [int(seed) for seed in given.seeds.split(",")]):
            if job in done:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                lines.append(run(*job))
            store.write(json.dumps(lines[-1]) + "\n")
            store.flush()
            print(lines[-1], flush=True)
    text = page(lines, f"python research/scripts/known_negatives.py STORE --seeds {given.seeds}")
    if given.out:
        write_atomically(given.out, text.encode())
    if given.figure:
        draw_figure(lines, given.figure)
    print(text)


if __name__ == "__main__":
    main()
