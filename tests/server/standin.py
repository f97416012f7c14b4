"""A data set of made-up rows and a judge that needs no training; `python standin.py ANSWERS PORT` serves it."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp

from onepos.labels import Labels
from onepos.report.items import TableItems
from onepos.report.judgement import Judgement
from onepos.server.review import Review
from onepos.server.store import Store

LABELS = ("ball", "bird", "cat", "dog", "fish", "house", "river", "sky", "tree")
WORDS = "A long enough sentence about the things that are seen on the image, with number"


@dataclass
class Standin:
    """Probabilities that depend on the seed, and on how many entries are known."""

    n: int = 60
    seconds: float = 0.0
    seed: int = 0

    def __call__(self, labels, sample, tell):
        for step in range(10):
            tell("judging the rows", step, 10)
            busy_until = time.perf_counter() + self.seconds / 10
            while time.perf_counter() < busy_until:
                np.linalg.svd(np.ones((30, 30)))
        if self.seconds < 0:
            raise ValueError("the rows must be judged; they can not be.")
        positive, negative = labels.positive.toarray(), labels.negative.toarray()
        known = positive | negative
        p = np.random.default_rng(self.seed).random(positive.shape) ** 5
        p = np.where(positive, 1, np.where(negative, 0, p)).astype(np.float32)
        added = ~known & (p > 0.7)
        worth = np.where(known, 0, np.where(added, 1 - p, p)).sum(1).astype(np.float64)
        prior = p.mean(0).astype(np.float64)
        summary = [
            {
                "label": name,
                "observed": int(positive[:, j].sum()),
                "prior": float(prior[j]),
                "prior_low": float(prior[j] / 2),
                "prior_high": float(min(1, prior[j] * 1.5)),
                "added": int(added[:, j].sum()),
                "expected_precision": float(p[added[:, j], j].mean()) if added[:, j].any() else None,
                "precision_low": 0.5,
                "precision_high": 1.0,
                "expected_recall": 0.5,
            }
            for j, name in enumerate(labels.classes.tolist())
        ]
        interval = np.stack([prior / 2, prior * 1.5], 1)
        return Judgement(p, known, added, prior, interval, summary, worth, 0.9, "", len(sample))


def make_review(path, n=60, seconds=0.0, names=LABELS):
    ids = [f"row-{k:03d}" for k in range(n)]
    frame = pd.DataFrame({"text": [f"{WORDS} {k}." for k in range(n)], "width": np.arange(n) / 7})
    column = np.arange(n) % len(names)
    shape = n, len(names)
    positive = sp.csr_array(sp.coo_array((np.ones(n, bool), (np.arange(n), column)), shape))
    labels = Labels(positive, sp.csr_array(shape, dtype=bool), np.array(names), np.array(ids))
    return Review.start(
        Store(path), TableItems(ids, frame), labels, Standin(n, seconds), name="things", tell=lambda *_: None
    )


if __name__ == "__main__":
    from onepos.server.app import create_app
    from onepos.server.listen import listen

    path, port, n, seconds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    listen(create_app(make_review(path, n, seconds)), "127.0.0.1", port, lambda address: print(address, flush=True))
