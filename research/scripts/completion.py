"""How right the labels are that `complete_labels` adds, and how many of the hidden ones it finds.

    python research/scripts/completion.py STORE [--data yeast,scene] [--draws 10] [--baseline-draws 2] [--out FILE]

Each row shows one of its labels, drawn uniformly; the others are hidden, and used only to judge. Each data set has ten
draws, at 90 % and 80 % precision, with none and with 50 reviewed rows. These are drawn at random and get all their
labels. They calibrate; the held-out probabilities are those of the draw and did not learn from the other labels of
these rows, so one cross-fit serves all settings. `one-vs-rest` is what a user would do instead: a logistic regression
per label, with the observed label as the class, and a label is added where its out-of-fold probability exceeds 0.5.

STORE is a folder: a file per cross-fit, which is not made again, and none of it is to be published. Movies are a random
sample of 8000 rows of $ONEPOS_DATA/text/movies.csv.gz.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from table_encoders import SETS
from table_encoders import read as read_table

from onepos import TableEncoder, complete_labels, draw_single_positive, held_out_probabilities, load_dataset
from onepos.files import replacing

DATA = ("digit-scenes", "yeast", "scene", "image", "rcv1subset1_top944", "voc2012-features", "movies")
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
        if name not in data:
            data.clear()
            data[name] = read(name)
        X, Y = data[name]
        observed = draw_single_positive(Y, random_state=FIRST_DRAW + draw)
        probability = held_out_probabilities(X, observed, random_state=FIRST_DRAW + draw).probability.numpy()
        with replacing(file) as handle:
            np.savez_compressed(handle, Y=Y, observed=observed, probability=probability)
        print(name, draw, flush=True)
    with np.load(file) as archive:
        return {key: archive[key] for key in archive.files}


def judge(made: dict[str, np.ndarray], n_reviewed: int, min_precision: float, seed: int) -> dict[str, Any]:
    """What was added in the rows that were not reviewed, and how much of it is right."""
    Y, observed = made["Y"] == 1, made["observed"] == 1
    known = np.where(observed, 1.0, np.nan)
    reviewed = np.random.default_rng(seed).choice(len(Y), n_reviewed, replace=False)
    known[reviewed] = Y[reviewed]
    done = complete_labels(None, known, held_out=made["probability"], min_precision=min_precision, random_state=seed)
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
        "promised": bool(summary["promised"].any()),
        "settled": done.warning == "",
        "cardinality": float(np.nansum(done.prior)),
        "true_cardinality": float(Y.sum(1).mean()),
    }


def main() -> None:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--draws", type=int, default=10)
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    data: dict[str, Any] = {}
    for name in options.data.split(","):
        for draw in range(options.draws):
            cross_fit(options.store, name, draw, data)


if __name__ == "__main__":
    main()
