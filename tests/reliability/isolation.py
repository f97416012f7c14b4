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
        where = "".join(traceback.format_exception(error)[-4:])[-1500:]
        return "foreign", f"{', '.join(faults)}: {type(error).__name__}: {text[:300]}\n{where}"
    return "sentence", text


def rng_of(seed, target, case):
    return random.Random(f"{seed}/{target}/{case}")


class Files:
    """The whole files of a target, and a folder with a copy that is brought back to them before each case."""

    def __init__(self, source, folder):
        self.folder = Path(folder)
        paths = sorted(path for path in Path(source).rglob("*") if path.is_file())
        self.whole = {str(path.relative_to(source)): path.read_bytes() for path in paths}
        # A cache knows the files it is of by their times.
        self._times = {str(path.relative_to(source)): path.stat().st_mtime_ns for path in paths}
        self.folders = {str(path.relative_to(source)) for path in Path(source).rglob("*") if path.is_dir()}
        self._marks = {}

    def restore(self):
        """Write again what is damaged or gone, and remove what is new; the rest stays as it is."""
        found = {}
        for path, is_folder in list(_walk(self.folder, "")):
            if is_folder and path not in self.folders:
                shutil.rmtree(self.folder / path, ignore_errors=True)
            elif not is_folder:
                found[path] = _mark(self.folder / path)
        for path in found.keys() - self.whole.keys():
            with suppress(OSError):
                os.unlink(self.folder / path)
        for path, content in self.whole.items():
            if found.get(path) is None or found[path] != self._marks.get(path):
                self.write(path, content)
                os.utime(self.folder / path, ns=(self._times[path], self._times[path]))
                self._marks[path] = _mark(self.folder / path)

    def write(self, path, content):
        """Put a content in the place of a file, whatever is there."""
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):
            os.unlink(place)
        place.write_bytes(content)


def _walk(folder, above):
    with suppress(OSError), os.scandir(folder / above) as entries:
        for entry in entries:
            path = f"{above}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            yield path, is_folder
            if is_folder:
                yield from _walk(folder, f"{path}/")


def _mark(path):
    """By which a change is seen; None where there is no file."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


def damage(target, seed, case, files):
    """Damage one of the whole files, sometimes two."""
    rng = rng_of(seed, target.name, case)
    files.restore()
    paths = [path for path in files.whole if target.is_input(files.folder / path)]
    for path in rng.sample(paths, min(len(paths), rng.choice((1, 1, 1, 1, 2)))):
        files.write(path, (target.mutate or mutate)(rng, Path(path).name, files.whole[path]))
    if target.after is not None and rng.random() < 0.7:
        target.after(files.folder)


def run_case(target, seed, case, files):
    """In this process; a case below 0 is undamaged."""
    if target.run is not None:
        return target.run(seed, case)
    damage(target, seed, case, files) if case >= 0 else files.restore()
    names = {Path(path).name for path, _ in _walk(files.folder, "")} | {files.folder.name}
    return outcome_of(lambda: target.read(files.folder), names)


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
    """A forked process that runs cases of one target, one after the other, and sends what came of each."""

    def __init__(self, target, seed, files):
        self.target, self.seed, self.files = target, seed, files
        self.pid = None

    def start(self):
        to_child, self.to_child = os.pipe()
        self.from_child, from_child = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(to_child)
            os.close(from_child)
            self._unread = b""
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
        while len(sent := os.read(to_child, 16)) == 16:
            first, count = struct.unpack("qq", sent)
            for case in range(first, first + count):
                _reset()
                before, began = _peak(), time.perf_counter()
                kind, text = run_case(self.target, self.seed, case, self.files)
                grown = _peak() - min(before, idle)
                answer = json.dumps([kind, text, grown, time.perf_counter() - began]).encode() + b"\n"
                while answer:
                    answer = answer[os.write(from_child, answer) :]

    def run(self, first, count=1):
        """What came of each case: kind, text, memory and seconds; "hang" and "crash" end the process and the series."""
        if self.pid is None:
            self.start()
        os.write(self.to_child, struct.pack("qq", first, count))
        for _ in range(count):
            answer = self._receive(time.monotonic() + SECONDS)
            if answer in ("hang", "crash"):
                yield answer, "", 0, SECONDS
                return
            kind, text, memory, seconds = json.loads(answer)
            yield ("memory" if memory > MEMORY else kind), text, memory, seconds

    def _receive(self, deadline):
        """The next line, or what happened instead."""
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self.from_child], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self.from_child, 1 << 16) if ready else None
            if not part:
                self.stop()
                return "hang" if part is None else "crash"
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def stop(self):
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self.to_child)
            os.close(self.from_child)
            self.pid = None


_SERIES = 64  # cases that are asked for at once


def fuzz(target, seed, *, seconds=None, cases=None, first=0):
    """Run cases until the time or their number is over: counts by kind, the worst memory and time, and the faults."""
    counts, faults, most, slowest = {}, [], 0, 0.0
    with tempfile.TemporaryDirectory(prefix="onepos-reliability-") as place:
        source, folder = Path(place, "whole"), Path(place, "case")
        source.mkdir()
        target.make(source)
        child = Child(target, seed, Files(source, folder))
        kind, text, _, _ = next(iter(child.run(-1)))  # undamaged it must be read
        if kind != "result":
            raise RuntimeError(f"{target.name}: whole files must be read; {kind}: {text}")
        began, case, last = time.monotonic(), first, None if cases is None else first + cases
        while (last is None or case < last) and (seconds is None or time.monotonic() - began < seconds):
            # A series that would go on for long after the end of the time is a short one.
            count = min(_SERIES, 1 + (case - first) // 8, _SERIES if last is None else last - case)
            for kind, text, memory, spent in child.run(case, count):
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
