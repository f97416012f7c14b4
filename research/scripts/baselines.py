"""CRISP+ with its defaults beside what a user would do instead, on development sets and synthetic rows.

    python research/scripts/baselines.py STORE [--seeds 11,12,13] [--data yeast,scene] [--methods …] [--workers 2]
                                         [--out FILE] [--beside PAGE]

Each row of the training part (80 %) shows one of its labels, drawn uniformly. All models see the same rows and the same
draw; nothing is tuned on full labels, and test rows (10 %, or the part that comes with the data) are used once. What a
user would do instead, on standardized features, with the observed label as the class:

    one-vs-rest       OneVsRestClassifier(LogisticRegression())
    softmax           LogisticRegression, C of four by the likelihood of a fifth of the rows, then fitted to all
    extra-trees       ExtraTreesClassifier()
    random-forest     RandomForestClassifier()

Trees are left out where their leaves would not fit into memory (more than 500 labels), one-vs-rest regression there
too. `full-network` and `full-trees` learn from all labels: the better of both is the strongest model with full labels.
STORE is a file of JSON lines; runs that are in it are not made again. With --beside, what is not in the store is taken
from a page of an earlier run with the same seeds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onepos import SinglePositiveClassifier, draw_single_positive, evaluate, load_dataset
from onepos.files import write_atomically
from onepos.protocol import train_val_test_split

DATA = (
    "emotions",
    "image",
    "scene",
    "yeast",
    "cal500",
    "reuters_k500",
    "rcv1subset1_top944",
    "yahoo_arts",
    "corel5k",
    "mirflickr_tags",
    "digit-scenes",
    "voc2012-features",
    "linear-1000",
    "linear-30000",
)
OURS = "crisp-plus"
INSTEAD = ("one-vs-rest", "softmax", "extra-trees", "random-forest")
METHODS = (OURS, "an", "crisp", *INSTEAD, "full-network", "full-trees")
METRICS = ("average_precision", "map", "ranking_loss", "micro_f1", "macro_f1", "hamming_loss")
_DECISIONS = {"labels per row": "true", "predicted": "predicted", "rows without a label": "empty"}


def linear_rows(n: int, seed: int, d: int = 50, c: int = 100) -> tuple[Any, ...]:
    """Rows whose labels are logistic in the features; no row is without a label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 3000, d))
    logits = X @ rng.normal(size=(d, c)) * 2 / np.sqrt(d) + rng.normal(-3.3, 0.7, c)
    Y = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.uint8)
    empty = Y.sum(1) == 0
    Y[empty, logits[empty].argmax(1)] = 1
    return X[:n], Y[:n], X[n:], Y[n:]


def read(name: str, seed: int) -> tuple[Any, ...]:
    """(X, Y) of the training and of the test rows."""
    if name.startswith("linear-"):
        return linear_rows(int(name.removeprefix("linear-")), seed)
    data = load_dataset(name)
    if "test" in (data.splits or {}) and name in ("digit-scenes", "voc2012-features"):
        parts = [np.asarray(data.splits[part]) for part in ("train", "test")]
    else:
        split = train_val_test_split(data.Y, seed)
        parts = [split.train, split.test]
    train, test = ([i for i in part if data.Y[i].any()] for part in parts)
    return data.X[train], data.Y[train], data.X[test], data.Y[test]


def predict(method: str, X: Any, Y: Any, X_test: Any, seed: int) -> tuple[Any, Any]:
    """Scores of the test rows, and decisions."""
    observed = np.asarray(draw_single_positive(Y, random_state=seed))
    if method in (OURS, "an", "crisp", "full-network"):
        name = "an" if method == "full-network" else method
        labels = Y if method == "full-network" else observed
        model = SinglePositiveClassifier(name, positives="any", min_labels=1, random_state=seed)
        model.fit(X, labels)
        probability = model.predict_proba(X_test)
        rule = 0.5 if method == "full-network" else None
        return probability, model.decide(probability, threshold=rule)
    if method == "full-trees":
        from sklearn.ensemble import ExtraTreesClassifier

        trees = ExtraTreesClassifier(random_state=seed).fit(X, Y)
        columns = [p[:, 1] if p.shape[1] == 2 else np.full(len(p), float(k[0])) for p, k in _columns(trees, X_test)]
        probability = np.stack(columns, 1)
        return probability, (probability > 0.5).astype(int)
    probability = _usual(method, X, observed, X_test, seed)
    return probability, (probability > 0.5).astype(int)


def _columns(trees: Any, X: Any) -> list[tuple[Any, Any]]:
    return list(zip(trees.predict_proba(X), trees.classes_, strict=True))


def _usual(method: str, X: Any, observed: Any, X_test: Any, seed: int) -> Any:
    """What a user would do instead: probabilities of the observed label."""
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import StandardScaler

    if hasattr(X, "toarray"):
        X, X_test = X.toarray(), X_test.toarray()
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    label = observed.argmax(1)
    if method == "one-vs-rest":
        model = OneVsRestClassifier(LogisticRegression(max_iter=1000)).fit(X, observed)
        return model.predict_proba(X_test)
    if method == "softmax":
        order = np.random.default_rng(seed).permutation(len(X))
        held, rest = order[: len(X) // 5], order[len(X) // 5 :]
        scores = {}
        for C in (1e-3, 1e-2, 1e-1, 1.0):
            tried = LogisticRegression(C=C, max_iter=300).fit(X[rest], label[rest])
            known = np.isin(label[held], tried.classes_)
            column = np.searchsorted(tried.classes_, label[held][known])
            logs = tried.predict_log_proba(X[held][known])[np.arange(known.sum()), column]
            scores[C] = np.maximum(logs, -20).mean()
        model = LogisticRegression(C=max(scores, key=scores.__getitem__), max_iter=300).fit(X, label)
    else:
        kind = ExtraTreesClassifier if method == "extra-trees" else RandomForestClassifier
        model = kind(random_state=seed).fit(X, label)
    probability = np.zeros((X_test.shape[0], observed.shape[1]))
    probability[:, model.classes_] = model.predict_proba(X_test)
    return probability


def run(job: tuple[str, int, str]) -> dict[str, Any]:
    """One line of the store."""
    name, seed, method = job
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    X, Y, X_test, Y_test = read(name, seed)
    if Y.shape[1] > 500 and method in ("one-vs-rest", "extra-trees", "random-forest", "full-trees"):
        return {"data": name, "seed": seed, "method": method, "scores": None}
    began = time.perf_counter()
    probability, decisions = predict(method, X, Y, X_test, seed)
    seconds = time.perf_counter() - began
    scores = evaluate(Y_test, probability, decisions=decisions)
    facts = {
        "empty": float((decisions.sum(1) == 0).mean()),
        "predicted": float(decisions.sum(1).mean()),
        "true": float(Y_test.sum(1).mean()),
    }
    kept = {metric: float(scores[metric]) for metric in METRICS}
    return {"data": name, "seed": seed, "method": method, "seconds": seconds, "scores": kept | facts}


Means = dict[tuple[str, str, str], float]


def read_page(path: Path) -> Means:
    """The means of an earlier page, by title, data set and model."""
    found: Means = {}
    title, header = "", []
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if line.startswith("## "):
            title = line.removeprefix("## ")
        elif cells[0] == "data set":
            header = cells
        elif line.startswith("| ") and not cells[0].startswith("mean of"):
            pairs = zip(header[1:], cells[1:], strict=True)
            kept = (*METHODS, *_DECISIONS)
            found |= {(title, cells[0], k): float(cell.strip(" %")) for k, cell in pairs if k in kept and cell != "–"}
    return found


def page(lines: list[dict[str, Any]], command: str, beside: Means) -> str:
    """Tables of average precision and mAP, the smallest distance from the best of what a user would do instead."""
    parts = [
        "# CRISP+ beside what a user would do instead",
        "",
        "Default settings of all; one observed label per row; mean over the seeds. *Best instead* is the best of the "
        "four usual models on that set. The two on the right learn from all labels; the better of them is the "
        f"strongest model with full labels. Made by `{command}`.",
    ]
    run_sets = {line["data"] for line in lines} | {key[1] for key in beside}
    names = [name for name in DATA if name in run_sets]
    if beside:
        new = ", ".join(name for name in names if any(_is(line, name, OURS) for line in lines))
        parts[-1] += f" The runs of {OURS} on {new} are of the present version; all others were made before and kept."
    run_here = {line["method"] for line in lines}
    methods = [m for m in METHODS if m in run_here or any(key[2] == m for key in beside)]
    for metric, title in (("average_precision", "Average precision"), ("map", "mAP"), ("micro_f1", "Micro-F1")):
        found = {
            (name, method): [line["scores"][metric] for line in lines if _is(line, name, method)]
            for name in names
            for method in methods
        }
        mean = {key: float(np.mean(values)) for key, values in found.items() if values}
        mean = {key[1:]: value for key, value in beside.items() if key[0] == title} | mean
        parts += ["", f"## {title}", "", "| data set | " + " | ".join(methods) + " | CRISP+ − best instead |"]
        parts.append("|:---" + "|---:" * (len(methods) + 1) + "|")
        differences = []
        for name in names:
            cells = [f"{mean[name, m]:.3f}" if (name, m) in mean else "–" for m in methods]
            instead = [mean[name, m] for m in INSTEAD if (name, m) in mean]
            if instead and (name, OURS) in mean:
                differences.append(mean[name, OURS] - max(instead))
                cells.append(f"{differences[-1]:+.3f}")
            else:
                cells.append("–")
            parts.append(f"| {name} | " + " | ".join(cells) + " |")
        complete = [name for name in names if all((name, m) in mean for m in methods)]
        cells = [f"{np.mean([mean[name, m] for name in complete]):.3f}" if complete else "–" for m in methods]
        parts.append(f"| mean of {len(complete)} | " + " | ".join(cells) + f" | {np.mean(differences):+.3f} |")
    title = "Decisions of CRISP+"
    parts += ["", f"## {title}", "", "| data set | " + " | ".join(_DECISIONS) + " |", "|:---|---:|---:|---:|"]
    for name in names:
        of_set = [line["scores"] for line in lines if _is(line, name, OURS)]
        found = {words: np.mean([each[k] for each in of_set]) for words, k in _DECISIONS.items()} if of_set else {}
        found = found or {words: beside[title, name, words] for words in _DECISIONS if (title, name, words) in beside}
        if found:
            true, predicted, empty = found.values()
            share = 100 * empty if of_set else empty
            parts.append(f"| {name} | {true:.2f} | {predicted:.2f} | {share:.1f} % |")
    return "\n".join(parts) + "\n"


def _is(line: dict[str, Any], name: str, method: str) -> bool:
    return line["data"] == name and line["method"] == method and line["scores"] is not None


def main() -> None:
    """Make what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--seeds", default="11,12,13")
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--beside", type=Path)
    options = parser.parse_args()
    lines = [json.loads(text) for text in options.store.read_text().splitlines()] if options.store.exists() else []
    done = {(line["data"], line["seed"], line["method"]) for line in lines}
    jobs = [
        (name, int(seed), method)
        for seed in options.seeds.split(",")
        for name in reversed(options.data.split(","))
        for method in options.methods.split(",")
    ]
    jobs = [job for job in jobs if job not in done]
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool, options.store.open("a") as store:
        for line in pool.imap_unordered(run, jobs):
            lines.append(line)
            store.write(json.dumps(line) + "\n")
            store.flush()
            print(line["data"], line["seed"], line["method"], line.get("scores"), flush=True)
    order = [name for name in DATA if any(line["data"] == name for line in lines)]
    lines.sort(key=lambda line: (order.index(line["data"]), line["seed"], METHODS.index(line["method"])))
    beside = {} if options.beside is None else read_page(options.beside)
    text = page(lines, f"python research/scripts/baselines.py STORE --seeds {options.seeds}", beside)
    if options.out:
        write_atomically(options.out, text.encode())
    print(text)


if __name__ == "__main__":
    main()
