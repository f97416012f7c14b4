"""What a default fit costs: seconds, memory, size of the model and time of predictions, beside AN and regression.

    python research/scripts/fit_cost.py [--rows 1000,30000,100000] [--without-regression]

Synthetic rows with 50 features and 100 labels (`baselines.linear_rows`), one observed label each. All timings of a line
are of one process, one after the other. Peak memory is that of the process after the fit of CRISP+, the libraries
included.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from baselines import linear_rows
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from onepos import SinglePositiveClassifier, draw_single_positive


def seconds(run: Any, times: int = 1) -> float:
    """Mean seconds of a call."""
    began = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - began) / times


def measure(n: int, regression: bool) -> list[str]:
    """A line of the table."""
    X, Y, X_test, _ = linear_rows(n, seed=0)
    observed = np.asarray(draw_single_positive(Y, random_state=0))
    SinglePositiveClassifier(epochs=1, random_state=0).fit(X[:200], observed[:200])  # imports
    model, an = SinglePositiveClassifier(random_state=0), SinglePositiveClassifier("an", random_state=0)
    ours = seconds(lambda: model.fit(X, observed))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    floor = seconds(lambda: an.fit(X, observed))
    rows = [f"{n}", f"{ours:.1f}", f"{memory:.0f}", f"{ours / floor:.1f}"]
    if regression:
        usual = OneVsRestClassifier(LogisticRegression(max_iter=1000))
        rows.append(f"{ours / seconds(lambda: usual.fit(X, observed)):.1f}")
    else:
        rows.append("–")
    model.predict_proba(X_test[:1000])
    an.predict_proba(X_test[:1000])
    ratio = seconds(lambda: model.predict_proba(X_test[:1000]), 20) / seconds(
        lambda: an.predict_proba(X_test[:1000]), 20
    )
    one = seconds(lambda: model.predict_proba(X_test[:1]), 200)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    return [*rows, f"{ratio:.2f}", f"{1000 * one:.2f}", f"{size / 1e6:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1000,30000,100000")
    parser.add_argument("--without-regression", action="store_true")
    options = parser.parse_args()
    print(
        "| rows | fit (s) | peak memory (MB) | × AN | × one-vs-rest | 1 000 predictions, × AN | 1 (ms) | model (MB) |"
    )
    print("|---:" * 8 + "|")
    for n in options.rows.split(","):
        print("| " + " | ".join(measure(int(n), not options.without_regression)) + " |", flush=True)


if __name__ == "__main__":
    main()
