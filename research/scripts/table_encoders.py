"""Raw tables: onepos with its defaults beside what a user would write by hand, on two sets of text and columns.

    python research/scripts/table_encoders.py STORE [--data reuters,movies] [--rows 8000] [--seeds 0] [--models …]
                                              [--out FILE]

Of each row one label is observed, drawn uniformly; 80 % of the rows are for training, and all labels of the other 20 %
are used once, to score. The files are in $ONEPOS_DATA/text. The models:

    onepos            SinglePositiveClassifier(random_state=0) on the table as it is, but for ids
    numbers           (a) the same on the columns of numbers alone, missing cells as the median
    tf-idf            (b) TfidfVectorizer of the text, OneVsRestClassifier(LogisticRegression())
    by-hand           (c) ColumnTransformer: numbers with the median for gaps and standardized, categories one-hot,
                      words and word pairs of the text as TF-IDF; OneVsRestClassifier(LogisticRegression())
    by-hand-trees     the same ColumnTransformer without text; ExtraTreesClassifier
    by-hand+onepos    the matrix of the same ColumnTransformer, SinglePositiveClassifier(scale="none")
    skrub             skrub.TableVectorizer(), StandardScaler(), OneVsRestClassifier(LogisticRegression())
    skrub+onepos      the matrix of skrub.TableVectorizer(), SinglePositiveClassifier(); both where skrub is installed

F1 is that of `predict`. Because one-vs-rest models fitted to one label of several predict too few, `best rule` gives
each model the best of: its own decision, the most probable label of each row, and, for each label, as many rows as full
labels of the training rows would tell (which nobody has who observes one label per row).
STORE is a file of JSON lines; runs that are in it are not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from onepos import SinglePositiveClassifier, draw_single_positive
from onepos.files import write_atomically
from onepos.labels import binarize
from onepos.metrics import mean_average_precision, micro_f1

SETS = {
    "reuters": {"file": "reuters_raw.csv.gz", "label": "topics", "text": "text", "numbers": [], "categories": []},
    "movies": {
        "file": "movies.csv.gz",
        "label": "genres",
        "text": "title",
        "numbers": ["year", "length", "budget", "rating", "votes", *(f"r{k}" for k in range(1, 11))],
        "categories": ["mpaa"],
    },
}
Scores = tuple[np.ndarray, np.ndarray]
"""Scores (n, c) and decisions (n, c) of the test rows."""


def read(name: str, n_rows: int | None) -> tuple[pd.DataFrame, np.ndarray]:
    """The table without its labels, and these."""
    facts = SETS[name]
    folder = Path(os.environ["ONEPOS_DATA"]) / "text"
    table = pd.read_csv(folder / str(facts["file"]))
    if n_rows is not None and n_rows < len(table):
        table = table.sample(n_rows, random_state=0).reset_index(drop=True)
    Y, _ = binarize(table[facts["label"]].astype(str).tolist(), ";")
    return table.drop(columns=facts["label"]), Y


def run_onepos(
    train: pd.DataFrame, observed: np.ndarray, test: pd.DataFrame, facts: dict[str, Any], **options: Any
) -> Scores:
    """The classifier on the tables as they are."""
    model = SinglePositiveClassifier(random_state=0, **options).fit(train, observed)
    return model.predict_proba(test), model.predict(test)


def run_numbers(train: pd.DataFrame, observed: np.ndarray, test: pd.DataFrame, facts: dict[str, Any]) -> Scores | None:
    """The classifier on the columns of numbers."""
    if not facts["numbers"]:
        return None
    middle = train[facts["numbers"]].median()
    rows = [frame[facts["numbers"]].fillna(middle).to_numpy(float) for frame in (train, test)]
    return run_onepos(rows[0], observed, rows[1], facts)


def run_tf_idf(train: pd.DataFrame, observed: np.ndarray, test: pd.DataFrame, facts: dict[str, Any]) -> Scores:
    """TF-IDF of the text alone, and a logistic regression per label."""
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2)
    X = words.fit_transform(train[facts["text"]].fillna(""))
    return regress(X, observed, words.transform(test[facts["text"]].fillna("")))


def by_hand(facts: dict[str, Any], with_text: bool = True) -> ColumnTransformer:
    """What a user would write."""
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    parts: list[Any] = [("numbers", numbers, facts["numbers"])] if facts["numbers"] else []
    if facts["categories"]:
        one_hot = make_pipeline(
            SimpleImputer(strategy="constant", fill_value="none"), OneHotEncoder(handle_unknown="ignore")
        )
        parts.append(("categories", one_hot, facts["categories"]))
    if with_text:
        parts.append(("text", TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2), facts["text"]))
    return ColumnTransformer(parts)


def run_by_hand(train: pd.DataFrame, observed: np.ndarray, test: pd.DataFrame, facts: dict[str, Any]) -> Scores:
    """Columns by hand, and a logistic regression per label."""
    columns = by_hand(facts)
    X = columns.fit_transform(train)
    return regress(X, observed, columns.transform(test))


def run_by_hand_trees(
    train: pd.DataFrame, observed: np.ndarray, test: pd.DataFrame, facts: dict[str, Any]
) -> Scores | None:
    """Columns by hand without text, and trees."""
    if not facts["numbers"]:
        return None
    columns = by_hand(facts, with_text=False)
    trees = ExtraTreesClassifier(200, min_samples_leaf=3, random_state=0)
    trees.fit(columns.fit_transform(train), observed.argmax(1))
    scores = np.zeros((len(test), observed.shape[1]))
    scores[:, trees.classes_] = trees.predict_proba(columns.transform(test))
    return scores, one_per_row(scores)


def run_by_hand_onepos(train: pd.DataFrame, observed: np.ndarray, test: pd.DataFrame, facts: dict[str, Any]) -> Scores:
    """Columns by hand, and the classifier on their numbers."""
    columns = by_hand(facts)
    X = columns.fit_transform(train).tocsr()
    return run_onepos(X, observed, columns.transform(test).tocsr(), facts, scale="none")


def vectorize(train: pd.DataFrame, test: pd.DataFrame) -> list[np.ndarray] | None:
    """Both tables by the defaults of skrub, gaps as medians; None where it is not installed."""
    try:
        from skrub import TableVectorizer
    except ImportError:
        return None
    columns = make_pipeline(TableVectorizer(), SimpleImputer(strategy="median"), StandardScaler())
    return [columns.fit_transform(train), columns.transform(test)]


def run_skrub(train: pd.DataFrame, observed: np.ndarray, test: pd.DataFrame, facts: dict[str, Any]) -> Scores | None:
    """Columns by skrub, and a logistic regression per label."""
    made = vectorize(train, test)
    return None if made is None else regress(made[0], observed, made[1])


def run_skrub_onepos(
    train: pd.DataFrame, observed: np.ndarray, test: pd.DataFrame, facts: dict[str, Any]
) -> Scores | None:
    """Columns by skrub, and the classifier on their numbers."""
    made = vectorize(train, test)
    return None if made is None else run_onepos(made[0], observed, made[1], facts)


def regress(X: Any, observed: np.ndarray, X_test: Any) -> Scores:
    """One logistic regression per label that is observed."""
    seen = np.flatnonzero(observed.any(0))
    model = OneVsRestClassifier(LogisticRegression(C=10, max_iter=1000)).fit(X, observed[:, seen])
    scores = np.zeros((X_test.shape[0], observed.shape[1]))
    decisions = np.zeros(scores.shape, int)
    scores[:, seen], decisions[:, seen] = model.predict_proba(X_test), model.predict(X_test)
    return scores, decisions


MODELS: dict[str, Callable[..., Scores | None]] = {
    "onepos": run_onepos,
    "numbers": run_numbers,
    "tf-idf": run_tf_idf,
    "by-hand": run_by_hand,
    "by-hand-trees": run_by_hand_trees,
    "by-hand+onepos": run_by_hand_onepos,
    "skrub": run_skrub,
    "skrub+onepos": run_skrub_onepos,
}


def one_per_row(scores: np.ndarray) -> np.ndarray:
    """The most probable label of each row."""
    return (scores == scores.max(1, keepdims=True)).astype(int)


def as_often(scores: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Each label in as many rows as its share tells, the most probable ones."""
    rank = (-scores).argsort(0, kind="stable").argsort(0, kind="stable")
    return (rank < np.rint(share * len(scores))).astype(int)


def score(Y: np.ndarray, share: np.ndarray, found: Scores) -> dict[str, float]:
    """mAP, F1 of the model's own decision, and F1 of the best rule."""
    scores, decisions = found
    rules = {"own": decisions, "one per row": one_per_row(scores), "as often": as_often(scores, share)}
    by_rule = {rule: 100 * micro_f1(Y, each) for rule, each in rules.items()}
    best = max(by_rule, key=lambda rule: by_rule[rule])
    result = {"map": 100 * mean_average_precision(Y, scores), "f1": by_rule["own"], "best_f1": by_rule[best]}
    return result | {"rule": best}  # type: ignore[dict-item]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--data", default="reuters,movies")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--tag", default="", help="A name for a variant of onepos that is being tried.")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    runs = [json.loads(line) for line in given.store.read_text().splitlines()] if given.store.exists() else []
    for name in given.data.split(","):
        table, Y = read(name, given.rows)
        for seed in map(int, given.seeds.split(",")):
            order = np.random.default_rng(seed).permutation(len(Y))
            train, test = order[: int(0.8 * len(Y))], order[int(0.8 * len(Y)) :]
            observed = draw_single_positive(Y[train], seed)
            for model in given.models.split(","):
                key = {"data": name, "rows": len(Y), "seed": seed, "model": model + given.tag}
                if any(all(run.get(k) == v for k, v in key.items()) for run in runs):
                    continue
                started = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = MODELS[model](table.iloc[train], observed, table.iloc[test], SETS[name])
                if found is None:
                    continue
                run = key | score(Y[test], Y[train].mean(0), found)
                run |= {"seconds": time.perf_counter() - started}
                run |= {"peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}
                runs.append(run)
                with given.store.open("a") as file:
                    file.write(json.dumps(run) + "\n")
                print(run, flush=True)
    if given.out is not None:
        write_atomically(given.out, as_table(runs))


def as_table(runs: list[dict[str, Any]]) -> str:
    """Means over the seeds, as Markdown."""
    frame = pd.DataFrame(runs)
    assert __doc__ is not None
    title, command, *rest = __doc__.split("\n\n")
    lines = [f"# {title.splitlines()[0]}", "", *_verdicts(frame), "", "Made by", "", "```", command, "```", ""]
    lines += ["\n\n".join(rest), ""]
    lines += ["| data | rows | seeds | model | mAP | micro-F1 of predict | micro-F1, best rule | seconds |"]
    lines.append("|:---|---:|:---|:---|---:|---:|---:|---:|")
    for (name, rows, model), group in frame.groupby(["data", "rows", "model"], sort=False):
        mean = group[["map", "f1", "best_f1", "seconds"]].mean()
        cells = [name, f"{rows}", ", ".join(map(str, sorted(group["seed"]))), model, f"{mean['map']:.1f}"]
        lines.append("| " + " | ".join([*cells, f"{mean.f1:.1f}", f"{mean.best_f1:.1f}", f"{mean.seconds:.0f}"]) + " |")
    return "\n".join(lines) + "\n"


def _verdicts(frame: pd.DataFrame) -> list[str]:
    """One line per table: onepos beside the best pipeline without it, of those with the same seeds."""
    lines = []
    for (name, rows), group in frame.groupby(["data", "rows"], sort=False):
        by_seed = group.pivot(index="seed", columns="model", values=["map", "f1"])
        if ("map", "onepos") not in by_seed:
            continue
        by_seed = by_seed[by_seed["map", "onepos"].notna()].dropna(axis=1)
        others = [model for model in ("tf-idf", "by-hand", "by-hand-trees", "skrub") if ("map", model) in by_seed]
        if not others:
            continue
        mean = by_seed.mean()
        parts = []
        for metric, title in (("map", "mAP"), ("f1", "micro-F1")):
            best = max(others, key=lambda model: mean[metric, model])
            parts.append(f"{title} {mean[metric, 'onepos']:.1f}, the best other {mean[metric, best]:.1f} ({best})")
        lines.append(f"- {name}, {rows} rows, {len(by_seed)} seed(s): {'; '.join(parts)}.")
    return lines


if __name__ == "__main__":
    main()
