"""Work that goes on for long: memory and open files must not grow."""

import gc
import os
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

MEMORY = 48 << 20
"""Bytes by which a process may grow between the first fifth of its work and the end."""

HANDLES = 4


def _watched_epochs(steps, watch):
    from onepos import SinglePositiveClassifier

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 8)), rng.integers(4, size=100)
    with tempfile.TemporaryDirectory(prefix="onepos-reliability-") as folder:
        model = SinglePositiveClassifier("crisp", epochs=steps, hidden=(16,), random_state=0)
        held_out = X[:20], np.eye(4)[y[:20]]
        model.fit(X, y, held_out, checkpoint=Path(folder, "fit.ckpt"), on_epoch=lambda epoch, _: watch(epoch))


def _watched_studies(steps, watch):
    """Studies that are stored, filled with results, packed, read and reported on."""
    from targets import _read_packed, _write_packed

    for step in range(steps):
        with tempfile.TemporaryDirectory(prefix="onepos-reliability-") as folder:
            _write_packed(Path(folder))
            _read_packed(Path(folder))
        watch(step)


def _watched_predictions(steps, watch):
    """Rows that are sent to the server one by one."""
    import sys

    import pandas as pd

    sys.path.insert(0, str(Path(__file__).parent.parent / "server"))
    from standin import make_review
    from starlette.testclient import TestClient

    from onepos import SinglePositiveClassifier
    from onepos.server.app import create_app
    from onepos.server.guard import Limits
    from onepos.server.trial import Trial

    X = pd.DataFrame({"width": np.arange(60.0), "height": np.ones(60)})
    model = SinglePositiveClassifier("an", epochs=1, random_state=0).fit(X, ["cat", "dog"] * 30)
    limits = Limits(requests=1e6, burst=10**6, costly=1e6)
    with tempfile.TemporaryDirectory(prefix="onepos-reliability-") as folder:
        review = make_review(Path(folder, "reviews.db"))
        app = create_app(review, Trial(model, X), limits=limits)
        with TestClient(app, base_url="http://127.0.0.1:8765") as client:
            for step in range(steps):
                answer = client.post("/api/try", json={"row": {"width": step % 60, "height": 1}})
                assert answer.status_code == 200, answer.text
                watch(step)


LONG = {
    "epochs of a fit": (_watched_epochs, 500, 100),
    "studies stored and read": (_watched_studies, 2000, 25),
    "predictions through the server": (_watched_predictions, 10_000, 150),
}
"""Name → what is done, how often, and about how often per second."""


def _measure():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))


def run_long(name, *, share=1.0):
    """Do a share of the work; how much memory and how many files were held after a fifth of it and at the end."""
    work, full, _ = LONG[name]
    steps = max(10, int(share * full))
    seen = {}

    def watch(step):
        if step in (steps // 5, steps - 1):
            seen[step] = _measure()

    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work(steps, watch)
    (memory, handles), (memory_after, handles_after) = seen[steps // 5], seen[steps - 1]
    found = []
    if memory_after - memory > MEMORY:
        found.append({"case": 0, "kind": "memory", "text": f"it grew by {(memory_after - memory) >> 20} MiB"})
    if handles_after - handles > HANDLES:
        found.append({"case": 0, "kind": "handles", "text": f"{handles_after - handles} more files are open"})
    counts = {"steps": steps, "MiB more": max(0, memory_after - memory) >> 20, "files more": handles_after - handles}
    return {"target": name, "counts": counts, "faults": found, "seconds": time.monotonic() - began}
