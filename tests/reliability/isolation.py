"""One input at a time in a child process with caps on memory and time; what came of it."""

import json
import os
import random
import resource
import select
import shutil
import signal
import struct
import tempfile
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path

from mutation import mutate

SECONDS = 10.0
"""A case that takes longer hangs."""

MEMORY = 2 << 30
"""Bytes beyond those of an idle process that a case may take."""

_HARD = 4 << 30  # where the system ends it, so that the machine lives on
_SENTENCE_TYPES = (
    ValueError,
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    OSError,
    ImportError,
)
_LONGEST = 2000


def outcome_of(work, names):
    """Run `work()`: ("result", ""), ("sentence", text) or ("foreign", what is wrong with the error)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            work()
        except Exception as error:
            return judge_error(error, names)
        except BaseException as error:  # such as the panic of a library written in Rust
            return "foreign", f"{type(error).__name__}: {str(error)[:200]}"
    return "result", ""


def judge_error(error, names):
    """Whether an error is a sentence of ours with the name of a file."""
    text = str(error)
    where = "".join(traceback.format_exception(error)[-4:])[-1500:]
    faults = []
    if type(error) not in _SENTENCE_TYPES and not type(error).__module__.startswith("onepos"):
        faults.append("type")
    if not any(name in text for name in names):
        faults.append("no name of a file")
    if "\n" in text or not text.rstrip().endswith((".", "…", "?", ")")):
        faults.append("no sentence")
    if len(text) > _LONGEST:
        faults.append("too long")
    if faults:
        return "foreign", f"{', '.join(faults)}: {type(error).__name__}: {text[:300]}\n{where}"
    return "sentence", text


def rng_of(seed, target, case):
    return random.Random(f"{seed}/{target}/{case}")


def damage(target, seed, case, source, folder):
    """Copy the whole files and damage one of them, sometimes two; its name."""
    rng = rng_of(seed, target.name, case)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and target.is_input(path))
    for path in rng.sample(files, min(len(files), rng.choice((1, 1, 1, 1, 2)))):
        path.write_bytes((target.mutate or mutate)(rng, path.name, path.read_bytes()))
    if target.after is not None and rng.random() < 0.7:
        target.after(folder)


def run_case(target, seed, case, source, folder):
    """In this process."""
    if case >= 0:
        damage(target, seed, case, source, folder)
    names = {path.name for path in folder.rglob("*")} | {folder.name}
    return outcome_of(lambda: target.read(folder), names)


def _peak():
    """The most memory this process has held since `_reset`, or ever where the system does not count."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _reset():
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


class Child:
    """A forked process that runs cases of one target on demand."""

    def __init__(self, target, seed, source, folder):
        self.target, self.seed, self.source, self.folder = target, seed, source, folder
        self.pid = None

    def start(self):
        to_child, self.to_child = os.pipe()
        self.from_child, from_child = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(to_child)
            os.close(from_child)
            return
        try:
            os.close(self.to_child)
            os.close(self.from_child)
            with open(os.devnull, "w") as nowhere:  # what libraries print about damage
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            self._serve(to_child, from_child)
        finally:
            os._exit(0)

    def _serve(self, to_child, from_child):
        idle = _peak()
        _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (idle + _HARD, hard))
        while len(sent := os.read(to_child, 8)) == 8:
            _reset()
            before, began = _peak(), time.perf_counter()
            kind, text = run_case(self.target, self.seed, struct.unpack("q", sent)[0], self.source, self.folder)
            grown = _peak() - min(before, idle)
            answer = json.dumps([kind, text, grown, time.perf_counter() - began]).encode()
            os.write(from_child, struct.pack("q", len(answer)))
            while answer:
                answer = answer[os.write(from_child, answer) :]

    def run(self, case):
        """What came of a case: kind, text, memory and seconds; "hang" and "crash" end the process."""
        if self.pid is None:
            self.start()
        os.write(self.to_child, struct.pack("q", case))
        length = self._receive(8, time.monotonic() + SECONDS)
        if isinstance(length, str):
            return length, "", 0, SECONDS
        content = self._receive(struct.unpack("q", length)[0], time.monotonic() + SECONDS)
        if isinstance(content, str):
            return content, "", 0, SECONDS
        kind, text, memory, seconds = json.loads(content)
        return ("memory" if memory > MEMORY else kind), text, memory, seconds

    def _receive(self, n, deadline):
        parts = b""
        while len(parts) < n:
            ready, _, _ = select.select([self.from_child], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self.from_child, n - len(parts)) if ready else None
            if not part:
                self.stop()
                return "hang" if part is None else "crash"
            parts += part
        return parts

    def stop(self):
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self.to_child)
            os.close(self.from_child)
            self.pid = None


def fuzz(target, seed, *, seconds=None, cases=None, first=0):
    """Run cases until the time or their number is over: counts by kind, the worst memory and time, and the faults."""
    counts, faults, most, slowest = {}, [], 0, 0.0
    with tempfile.TemporaryDirectory(prefix="onepos-reliability-") as place:
        source, folder = Path(place, "whole"), Path(place, "case")
        source.mkdir()
        target.make(source)
        shutil.copytree(source, folder)
        child = Child(target, seed, source, folder)
        kind, text, _, _ = child.run(-1)  # undamaged it must be read
        if kind != "result" and not (kind == "sentence" and target.may_refuse):
            raise RuntimeError(f"{target.name}: whole files must be read; {kind}: {text}")
        began, case = time.monotonic(), first
        while (cases is None or case < first + cases) and (seconds is None or time.monotonic() - began < seconds):
            kind, text, memory, spent = child.run(case)
            counts[kind] = counts.get(kind, 0) + 1
            most, slowest = max(most, memory), max(slowest, spent)
            if kind not in ("result", "sentence"):
                faults.append({"case": case, "kind": kind, "text": text})
            case += 1
        child.stop()
    return {
        "target": target.name,
        "inputs": case - first,
        "counts": counts,
        "memory": most,
        "slowest": slowest,
        "seconds": time.monotonic() - began,
        "faults": faults,
    }
