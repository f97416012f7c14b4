"""How far CRISP+ gets from AN to full labels on data sets made from the known ones.

    python benchmarks/derived.py STORE [--seed 23] [--data yeast-rows,corel5k-labels] [--device cuda] [--out FILE]

A method that was developed on thirteen sets may suit their sizes only. Each of them has up to three children, which
differ in the number of rows, of labels and of labels per row. They share rows and labels with their parents, so they
are no data of another kind:

    NAME-labels    a random third of the labels and the rows that have one of them, at most 2 500; of 15 labels or more
    NAME-rows      1 000 random rows; of sets of 1 500 or more
    NAME-crowded   rows with more labels than the median row, at most 2 500; where there are 400

Features of pictures are rows of numbers like the others. The protocol is that of the study `fair`, five trials of eight
configurations, three methods. STORE keeps the children and the runs: the command can be stopped and taken up, and
several processes may work in the same one.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onepos.bench.results import read_results
from thirteen import BUDGETS, page

from onepos.bench.runner import run_study
from onepos.bench.store import Store
from onepos.bench.study import Budget
from onepos.bench.study_file import read_study
from onepos.datasets import Dataset, load_dataset, write_npz
from onepos.files import write_atomically

PARENTS = (*BUDGETS, "voc2012-features", "coco2014-features")
MOST_ROWS, FEW_ROWS = 2500, 1000


def children(name: str) -> Iterator[Dataset]:
    """The sets made from one: the same ones every time."""
    parent = dataclasses.replace(load_dataset(name), splits=None, observed=None).without_unlabelled()
    size = parent.Y.sum(1)
    crowded = np.flatnonzero(size > np.median(size))
    if parent.n_labels >= 15:
        yield _of_labels(parent, np.random.default_rng(_seed(name, "labels")))
    if parent.n_samples >= 1500:
        yield _of_rows(parent, "rows", np.arange(parent.n_samples), FEW_ROWS)
    if len(crowded) >= 400:
        yield _of_rows(parent, "crowded", crowded, MOST_ROWS)


def _of_labels(parent: Dataset, rng: np.random.Generator) -> Dataset:
    kept = np.sort(rng.permutation(parent.n_labels)[: parent.n_labels // 3])
    child = dataclasses.replace(parent, Y=parent.Y[:, kept], label_names=tuple(parent.label_names[j] for j in kept))
    return _of_rows(child, "labels", np.flatnonzero(child.Y.any(axis=1)), MOST_ROWS)


def _of_rows(parent: Dataset, kind: str, rows: np.ndarray, most: int) -> Dataset:
    rng = np.random.default_rng(_seed(parent.name, kind))
    chosen = np.sort(rng.permutation(rows)[:most])
    return dataclasses.replace(parent.take(chosen), name=f"{parent.name}-{kind}")


def _seed(name: str, kind: str) -> int:
    return zlib.crc32(f"{name} {kind}".encode())


def main() -> None:
    """Make what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--data")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    folder = asked.store / "data"
    if not (made := folder / "tabular" / "made").exists():
        names = [write_npz(child, folder / "tabular").stem for parent in PARENTS for child in children(parent)]
        write_atomically(made, "\n".join(names).encode())
    known = made.read_text().split()
    chosen = known if asked.data is None else asked.data.split(",")
    if unknown := set(chosen).difference(known):
        parser.error(f"--data must name data sets of {', '.join(known)}; got {', '.join(sorted(unknown))}.")
    os.environ["ONEPOS_DATA"] = str(folder)
    study = dataclasses.replace(
        read_study("fair"),
        name="derived",
        datasets=tuple(known),
        budgets=dict.fromkeys(known, Budget(20, 5, 8)),
        seed=asked.seed,
        methods=("full", "an", "crisp-plus"),
    )
    print(study.name, run_study(study, Store(asked.store), device=asked.device, only=chosen))
    results = dataclasses.replace(read_results(asked.store), study=dataclasses.replace(study, datasets=tuple(chosen)))
    text = page([results], f"benchmarks/derived.py --seed {asked.seed}")
    if asked.out:
        write_atomically(asked.out, text.encode())
    print(text)


if __name__ == "__main__":
    main()
