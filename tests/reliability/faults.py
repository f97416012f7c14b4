"""A disk that fails: short writes, no room, input and output errors, a rename or a sync that is refused."""

import errno
import io
import json
import os
import random
import shutil
import tempfile
import time
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from isolation import judge_error

from onepos import files

KINDS = ("short write", "no room", "write error", "sync refused", "rename refused", "open refused", "interrupt")


class _Raw(io.RawIOBase):
    """A file of which writes may be short, or fail after some bytes."""

    def __init__(self, handle, kind, after):
        self._handle, self._kind, self._left, self.name = handle, kind, after, handle.name

    def writable(self):
        return True

    def seekable(self):
        return True

    def seek(self, *where):
        return self._handle.seek(*where)

    def tell(self):
        return self._handle.tell()

    def fileno(self):
        return self._handle.fileno()

    def write(self, data):
        size = len(data)
        if self._kind == "short write":
            size = max(1, size // 3)
        elif self._left - size < 0:
            number = errno.ENOSPC if self._kind == "no room" else errno.EIO
            raise OSError(number, os.strerror(number))
        self._left -= size
        return self._handle.raw.write(bytes(data[:size]))

    def close(self):
        if not self.closed:
            self._handle.close()
        super().close()


class _Fault:
    """When the fault is due, and what it is."""

    def __init__(self, kind, at, after):
        self.kind, self.at, self.after, self.count = kind, at, after, 0

    def is_due(self, *kinds):
        if self.kind not in kinds:
            return False
        self.count += 1
        return self.count == self.at + 1

    def refuse(self, number, *where):
        if self.kind == "interrupt":
            raise KeyboardInterrupt
        raise OSError(number, os.strerror(number), *where)


@contextmanager
def failing(kind, at, after):
    """The layer `onepos.files` on such a disk; the fault comes with the `at`th file, counted from 0."""
    fault = _Fault(kind, at, after)
    create, sync, replace = files._create, os.fsync, Path.replace

    def faulty_create(temporary, mode):
        if fault.is_due("open refused"):
            fault.refuse(errno.EROFS, str(temporary))
        handle = create(temporary, mode)
        if fault.is_due("short write", "no room", "write error"):
            return io.BufferedWriter(_Raw(handle, kind, after))
        return handle

    def faulty_sync(descriptor):
        if fault.is_due("sync refused"):
            fault.refuse(errno.EIO)
        sync(descriptor)

    def faulty_replace(self, target):
        if fault.is_due("interrupt", "rename refused"):
            fault.refuse(errno.EACCES, str(self))
        return replace(self, target)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(files, "_create", faulty_create))
        stack.enter_context(mock.patch.object(os, "fsync", faulty_sync))
        stack.enter_context(mock.patch.object(Path, "replace", faulty_replace))
        yield fault


# What is written: each takes a folder and a number by which contents differ.

_MADE: dict[Any, Any] = {}


def _model(number):
    from onepos import SinglePositiveClassifier

    if ("model", number) not in _MADE:
        X = np.random.default_rng(number).normal(size=(30, 3))
        y = np.array(["cat", "dog"])[(X[:, 0] > 0).astype(int)]
        _MADE["model", number] = SinglePositiveClassifier("an", epochs=1, hidden=(4,), random_state=number).fit(X, y)
    return _MADE["model", number]


def _write_model(folder, number):
    _model(number).save(folder / "model")


def _read_model(folder):
    from onepos import SinglePositiveClassifier

    return SinglePositiveClassifier.load(folder / "model").predict_proba(np.ones((2, 3))).tolist()


def _write_checkpoint(folder, number):
    import torch

    from onepos.training.checkpoint import save_checkpoint

    save_checkpoint(folder / "fit.ckpt", "whose", {"number": number, "weights": torch.full((3000,), float(number))})


def _read_checkpoint(folder):
    import torch

    from onepos.training.checkpoint import load_checkpoint

    return load_checkpoint(folder / "fit.ckpt", "whose", torch.device("cpu"))["number"]


def _write_table(folder, number):
    import pandas as pd

    from onepos.cli.outputs import write_table

    write_table(folder / "out.csv", pd.DataFrame({"a": np.full(400, number)}))


def _write_data(folder, number):
    from onepos.datasets import Dataset, write_npz

    write_npz(Dataset("rows", np.full((50, 3), float(number)), np.ones((50, 1)), ("cat",)), folder)


def _read_data(folder):
    from onepos.datasets import read_dataset

    return float(read_dataset(folder / "rows.npz").X[0, 0])


def _write_draw(folder, number):
    from onepos.datasets import save_draw

    save_draw(folder / "draw.json", np.eye(3)[np.arange(300) % (2 + number)], how="uniform", seed=number)


def _read_draw(folder):
    from onepos.datasets import load_draw

    return load_draw(folder / "draw.json").sum(0).tolist()


def _store(folder):
    from targets import STUDY

    from onepos.bench.store import Store
    from onepos.bench.study_file import read_study

    if "study" not in _MADE:
        (folder / "tiny.toml").write_text(STUDY)
        _MADE["study"] = read_study(folder / "tiny.toml")
        (folder / "tiny.toml").unlink()
    store = Store(folder / "results")
    return store, _MADE["study"].runs()[0]


def _write_result(folder, number):
    store, run = _store(folder)
    store.save(run, {"score": float(number), "loss": [float(number)] * 500})


def _read_result(folder):
    store, run = _store(folder)
    return store.result(run)["score"]


WRITERS = {
    "model folder": (_write_model, _read_model),
    "checkpoint": (_write_checkpoint, _read_checkpoint),
    "table": (_write_table, lambda folder: (folder / "out.csv").read_text()),
    "data set": (_write_data, _read_data),
    "draw": (_write_draw, _read_draw),
    "result": (_write_result, _read_result),
}


def run_faults(name, seed, *, faults=None, seconds=None):
    """Write over an old content while the disk fails; what is there afterwards is the old or the new, whole."""
    write, read = WRITERS[name]
    rng = random.Random(f"{seed}/{name}")
    counts = {"faults": 0, "sentences": 0, "written all the same": 0, "lost": 0, "different": 0, "left behind": 0}
    found: list[dict[str, Any]] = []
    start, case = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="onepos-reliability-") as place:
        contents = []
        for number in (0, 1):
            folder = Path(place, str(number))
            folder.mkdir()
            write(folder, number)
            contents.append(json.dumps(read(folder)))
        start = time.monotonic()
        while (faults is None or counts["faults"] < faults) and (seconds is None or time.monotonic() - start < seconds):
            folder = Path(place, "case")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(Path(place, "0"), folder)
            files._swept.clear()
            kind = rng.choice(KINDS)
            text = _one_fault(folder, write, read, contents, kind, rng, counts)
            if text:
                found.append({"case": case, "kind": "fault", "text": f"{kind}: {text}"})
            case += 1
    return {"target": name, "counts": counts, "faults": found, "seconds": time.monotonic() - start}


def _one_fault(folder, write, read, contents, kind, rng, counts):
    """What is wrong after one fault; empty where nothing is."""
    names = {path.name for path in folder.rglob("*")} | {folder.name}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with failing(kind, rng.randrange(2), rng.choice((0, 10, 1000))) as fault:
            error = _attempt(write, folder)
    counts["faults"] += fault.count > fault.at  # not where the write ended before it was due
    counts["sentences" if error else "written all the same"] += 1
    if isinstance(error, Exception):
        verdict, text = judge_error(error, names)
        if verdict == "foreign":
            return text
    if left := [path.name for path in folder.rglob("*.part")]:
        counts["left behind"] += 1
        return f"{left[0]} is left behind"
    return _compare(folder, write, read, contents if error else contents[1:], contents[1], counts)


def _attempt(write, folder):
    """The error of a write, if there is one."""
    try:
        write(folder, 1)
    except (Exception, KeyboardInterrupt) as error:
        return error
    return None


def _compare(folder, write, read, allowed, new, counts):
    """What is there now, and once the disk is well again and the write was made anew."""
    try:
        there = json.dumps(read(folder))
    except Exception as lost:
        counts["lost"] += 1
        return f"nothing can be read: {type(lost).__name__}: {lost}"
    if there not in allowed:
        counts["different"] += 1
        return "what is there is neither the old content nor the new"
    write(folder, 1)
    if json.dumps(read(folder)) != new:
        counts["different"] += 1
        return "after the fault, another content was written"
    return ""


# Writers at the same time, with equal process numbers, and clocks that jump


def run_writers(name, seed, *, rounds=3, writers=4):
    """Forked processes write to one place at once, all with the same number. One content is there, whole."""
    write, read = WRITERS[name]
    counts, found = {"writes": 0, "lost": 0, "different": 0}, []
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="onepos-reliability-") as place:
        contents = []
        for number in (0, 1):
            folder = Path(place, str(number))
            folder.mkdir()
            write(folder, number)
            contents.append(json.dumps(read(folder)))
        folder = Path(place, "0")
        for turn in range(rounds):
            children = [_fork(write, folder, k % 2, seed) for k in range(writers)]
            ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
            counts["writes"] += writers
            counts["lost"] += sum(map(bool, ended))
            if any(ended):
                found.append({"case": turn, "kind": "lost", "text": f"{sum(map(bool, ended))} writers failed"})
            if json.dumps(read(folder)) not in contents:
                counts["different"] += 1
                found.append({"case": turn, "kind": "different", "text": "a mixture of two contents"})
    return {"target": name, "counts": counts, "faults": found, "seconds": time.monotonic() - start}


def _fork(write, folder, number, seed):
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        random.seed(seed)
        with mock.patch.object(os, "getpid", return_value=1):
            for _ in range(5):
                write(folder, number)
        status = 0
    finally:
        os._exit(status)


def run_clocks(seed):
    """Claims from a clock that ran far ahead or behind are free to take after the usual time; nobody waits for ever."""
    rng, found = random.Random(seed), []
    counts = {"claims": 0, "lost": 0}
    with tempfile.TemporaryDirectory(prefix="onepos-reliability-") as place:
        folder = Path(place)
        for case in range(40):
            store, run = _store(folder)
            store.stale_after = 5.0
            shutil.rmtree(folder / "results", ignore_errors=True)
            with store.claim([run]) as mine:
                counts["claims"] += 1
                if not mine:
                    found.append({"case": case, "kind": "lost", "text": "a free run could not be claimed"})
                    continue
                (claim,) = (folder / "results" / "claims").glob("*.*")
                jump = rng.choice((-1, 1)) * 10 ** rng.uniform(1, 8)
                now = time.time()
                os.utime(claim, (now + jump, now + jump))
                with store.claim([run]) as others:
                    if not others:
                        counts["lost"] += 1
                        text = f"a claim {jump:.0f} s off the clock is never given free"
                        found.append({"case": case, "kind": "lost", "text": text})
    return {"target": "claims, clocks that jump", "counts": counts, "faults": found, "seconds": 0.0}
