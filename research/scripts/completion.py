"""How right the labels are that `complete_labels` adds, and how many of the hidden ones it finds.

    python research/scripts/completion.py STORE [--data yeast,scene] [--draws 10] [--baseline-draws 1] [--out FILE]

Each row shows one of its labels, drawn uniformly; the others are hidden, and used only to judge. Each data set has ten
draws, at 90 % and 80 % precision: with nothing else known, with the true mean number of labels per row given as
`cardinality`, and with 50 reviewed rows. These are drawn at random and get all their labels. They calibrate; the
held-out probabilities are those of the draw and did not learn from the other labels of these rows, so one cross-fit
serves all settings. `one-vs-rest` is what a user would do instead: a logistic regression per label, with the observed
label as the class, and a label is added where its out-of-fold probability exceeds 0.5.

STORE is a folder: a file per cross-fit, which is not made again, and none of it is to be published. Movies are a random
sample of 8000 rows of $ONEPOS_DATA/text/movies.csv.gz. The draws were not looked at while the rules were made, with one
exception: that only reviewed rows give a promise, and that intervals are wider without them, was decided after a look.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import StandardScaler
from table_encoders import SETS
from table_encoders import read as read_table

from onepos import TableEncoder, complete_labels, draw_single_positive, held_out_probabilities, load_dataset
from onepos.files import replacing, write_atomically

DATA = ("digit-scenes", "yeast", "scene", "image", "rcv1subset1_top944", "voc2012-features", "movies")
BASES = {
    "nothing": "Nothing but one label per row",
    "cardinality": "The mean number of labels per row",
    "reviewed": "All labels of 50 rows",
}
SETTINGS = tuple((basis, precision) for basis in BASES for precision in (0.9, 0.8))
N_REVIEWED = 50
N_FOLDS = 5
FIRST_DRAW = 2100
"""Draws 901 to 903 were looked at while the rules were made."""


def read(name: str) -> tuple[Any, np.ndarray]:
    """Features, and all labels; rows without a label are left out."""
    if name in SETS:
        table, Y = read_table(name, 8000)
        X: Any = TableEncoder().fit(table).transform(table)
    else:
        data = load_dataset(name)
        X, Y = data.X, np.asarray(data.Y)
    kept = np.flatnonzero(Y.any(1))
    return X[kept], Y[kept].astype(np.uint8)


def cross_fit(store: Path, name: str, draw: int, data: dict[str, Any]) -> dict[str, np.ndarray]:
    """All labels Y, the observed ones, and the held-out probabilities of a draw."""
    file = store / f"{name}-{draw}.npz"
    if not file.exists():
        X, Y = _rows(name, data)
        observed = draw_single_positive(Y, random_state=FIRST_DRAW + draw)
        probability = held_out_probabilities(X, observed, random_state=FIRST_DRAW + draw).probability.numpy()
        with replacing(file) as handle:
            np.savez_compressed(handle, Y=Y, observed=observed, probability=probability)
        print(name, draw, flush=True)
    with np.load(file) as archive:
        return {key: archive[key] for key in archive.files}


def judge(made: dict[str, np.ndarray], basis: str, min_precision: float, seed: int) -> dict[str, Any]:
    """What was added in the rows that were not reviewed, and how much of it is right."""
    Y, observed = made["Y"] == 1, made["observed"] == 1
    known = np.where(observed, 1.0, np.nan)
    n_reviewed = N_REVIEWED if basis == "reviewed" else 0
    reviewed = np.random.default_rng(seed).choice(len(Y), n_reviewed, replace=False)
    known[reviewed] = Y[reviewed]
    done = complete_labels(
        None,
        known,
        held_out=made["probability"],
        min_precision=min_precision,
        cardinality=float(Y.sum(1).mean()) if basis == "cardinality" else None,
        random_state=seed,
    )
    summary, right = done.summary, (done.added & Y).sum(0)
    hidden = Y & ~observed
    hidden[reviewed] = False
    return {
        "added": summary["added"].tolist(),
        "right": right.tolist(),
        "hidden": hidden.sum(0).tolist(),
        "low": summary["precision_low"].round(4).tolist(),
        "high": summary["precision_high"].round(4).tolist(),
        "expected": summary["expected_precision"].round(4).tolist(),
        "promised": summary["promised"].tolist(),
        "settled": done.warning == "",
        "cardinality": float(np.nansum(done.prior)),
        "true_cardinality": float(Y.sum(1).mean()),
    }


def judge_regression(name: str, made: dict[str, np.ndarray], data: dict[str, Any]) -> dict[str, Any]:
    """What a user would do instead: out-of-fold probabilities of a regression per label, above 0.5."""
    X = _rows(name, data)[0]
    X = X if hasattr(X, "tocsr") else StandardScaler().fit_transform(X)
    observed = made["observed"]
    model = LogisticRegression(max_iter=200, tol=1e-2)
    added, hidden = np.zeros(observed.shape, bool), (made["Y"] == 1) & (observed == 0)
    for j in np.flatnonzero(observed.sum(0) >= N_FOLDS):
        found = cross_val_predict(model, X, observed[:, j], cv=N_FOLDS, method="predict_proba")[:, 1]
        added[:, j] = (found > 0.5) & (observed[:, j] == 0)
    right = added & hidden
    return {"added": added.sum(0).tolist(), "right": right.sum(0).tolist(), "hidden": hidden.sum(0).tolist()}


def _rows(name: str, data: dict[str, Any]) -> tuple[Any, np.ndarray]:
    """The data set, which stays in memory until the next one."""
    if name not in data:
        data.clear()
        data[name] = read(name)
    found: tuple[Any, np.ndarray] = data[name]
    return found


def page(lines: list[dict[str, Any]], command: str) -> str:
    """The results as Markdown."""
    names = [name for name in DATA if any(line["data"] == name for line in lines)]
    parts = [
        "# How right the labels are that onepos adds",
        "",
        *(__doc__.split("\n\n")[k].replace("\n", " ") + "\n" for k in (2, 3)),
    ]
    parts += [
        "*true precision*: share of all added labels that are right. *of labels*: the mean of that share over labels "
        "and draws with additions, and their number. *in interval*: of these, how many have a true precision inside "
        "the 90 % interval of the summary; *width*: its mean width. *recall*: share of the hidden labels that are "
        "added. *promised*: as *of labels*, of those of which the summary promises the precision. κ is the mean number "
        "of labels per row. The last line has the mean over data sets, and over all labels.",
        "",
        f"Made by `{command}`.",
    ]
    header = (
        "| data set | κ, estimated (true) | added per draw | true precision | of labels | promised | in interval | "
    )
    for basis, precision in SETTINGS:
        parts += ["", f"## {BASES[basis]} known, precision {precision}", ""]
        parts += [header + "width | recall |", "|:---|---:|---:|---:|---:|---:|---:|---:|---:|"]
        rows = [_row(name, _of(lines, name, f"{basis}/{precision}")) for name in names]
        parts += [row for row, _ in rows]
        parts.append(_mean_row([facts for _, facts in rows]))
    if any(line["rule"] == "one-vs-rest" for line in lines):
        parts += ["", "## One-vs-rest regression above 0.5", ""]
        parts += ["| data set | draws | added per draw | true precision | recall |", "|:---|---:|---:|---:|---:|"]
        for name in names:
            of_set = _of(lines, name, "one-vs-rest")
            if of_set:
                added, right, hidden = (sum(sum(each[k]) for each in of_set) for k in ("added", "right", "hidden"))
                cells = f"{len(of_set)} | {added / len(of_set):.0f} | {_ratio(right, added)} | {right / hidden:.3f}"
                parts.append(f"| {name} | {cells} |")
    return "\n".join(parts) + "\n"


def _of(lines: list[dict[str, Any]], name: str, rule: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["data"] == name and line["rule"] == rule]


def _ratio(part: float, whole: float) -> str:
    return f"{part / whole:.3f}" if whole else "–"


def _row(name: str, of_set: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """A line of the table, and what the line of means needs."""
    added, right, hidden, low, high, promised = (
        np.array([each[k] for each in of_set], np.float64)
        for k in ("added", "right", "hidden", "low", "high", "promised")
    )
    some = added > 0
    share = right[some] / added[some]
    inside = (share >= low[some] - 1e-3) & (share <= high[some] + 1e-3)
    kappa = f"{np.mean([each['cardinality'] for each in of_set]):.2f} ({of_set[0]['true_cardinality']:.2f})"
    facts = {
        "share": share,
        "inside": inside,
        "promised": share[promised[some] > 0],
        "precision": right.sum() / added.sum() if some.any() else np.nan,
        "recall": right.sum() / hidden.sum(),
    }
    cells = [
        name,
        kappa,
        f"{added.sum() / len(of_set):.1f}",
        _ratio(right.sum(), added.sum()),
        _mean_and_count(share),
        _mean_and_count(facts["promised"]),
        f"{inside.mean():.2f}" if some.any() else "–",
        f"{(high - low)[some].mean():.2f}" if some.any() else "–",
        f"{facts['recall']:.3f}",
    ]
    return "| " + " | ".join(cells) + " |", facts


def _mean_and_count(share: np.ndarray) -> str:
    return f"{share.mean():.3f} ({len(share)})" if len(share) else "–"


def _mean_row(facts: list[dict[str, Any]]) -> str:
    share, inside, promised = (np.concatenate([each[k] for each in facts]) for k in ("share", "inside", "promised"))
    if not len(share):
        return "| all | | | – | – | – | – | | 0.000 |"
    mean = np.nanmean([each["precision"] for each in facts])
    recall = np.mean([each["recall"] for each in facts])
    cells = [
        f"{mean:.3f}",
        _mean_and_count(share),
        _mean_and_count(promised),
        f"{inside.mean():.2f}",
        "",
        f"{recall:.3f}",
    ]
    return "| all | | | " + " | ".join(cells) + " |"


def main() -> None:
    """Make what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--baseline-draws", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    data: dict[str, Any] = {}
    lines = []
    for name in options.data.split(","):
        for draw in range(options.draws):
            made = cross_fit(options.store, name, draw, data)
            for basis, precision in SETTINGS:
                key = {"data": name, "draw": draw, "rule": f"{basis}/{precision}"}
                lines.append(key | judge(made, basis, precision, FIRST_DRAW + draw))
            if draw < options.baseline_draws:
                lines.append(_kept_baseline(options.store, name, draw, made, data))
    text = page(lines, f"python research/scripts/completion.py STORE --baseline-draws {options.baseline_draws}")
    if options.out:
        write_atomically(options.out, text)
    print(text)


def _kept_baseline(
    store: Path, name: str, draw: int, made: dict[str, np.ndarray], data: dict[str, Any]
) -> dict[str, Any]:
    """The scores of one-vs-rest regression, made once."""
    file = store / f"{name}-{draw}-one-vs-rest.json"
    if not file.exists():
        write_atomically(file, json.dumps(judge_regression(name, made, data)))
    return {"data": name, "draw": draw, "rule": "one-vs-rest", **json.loads(file.read_text())}


if __name__ == "__main__":
    main()
