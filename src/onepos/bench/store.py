"""A folder of results that several processes and machines can work on at once.

    study.toml          what the folder is about
    runs/<key>.json     a finished run; it is finished when this file exists
    failed/<key>.json   a run that raised, with its trace
    skipped/<key>.json  a run that can not be made, with the reason
    claims/<key>.<n>    who works on a run; alive while its time of change is recent
    checkpoints/        of unfinished trainings, written by the trainer

**Claims.** Claim n of a run is made by creating the file `<key>.<n>`, which succeeds for one process only (O_EXCL, also
on network file systems). The highest n counts; who finds it without a heartbeat tries to create n + 1. No claim is
removed before the run is finished, so a number is never used twice and two processes never both win. A released claim
gets the time 0 instead, which also needs no room on a full disk.

A process that was asleep for longer than the limit may wake up and go on beside its successor: both come to the same
result, and each writes it as a whole.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from onepos.bench.study import Run, Study
from onepos.bench.study_file import parse_stored, write_study
from onepos.files import write_atomically
from onepos.reading import cause_of, naming, open_binary, parse_json, read_bytes
from onepos.validation import without_nan


@dataclass(frozen=True)
class Status:
    """How many runs are in which state."""

    done: int = 0  # finished
    running: int = 0  # claimed, with a recent heartbeat
    failed: int = 0  # raised an error
    skipped: int = 0  # can not be made
    stale: int = 0  # claimed by a process that has gone; free to take
    waiting: int = 0  # none of these

    @property
    def settled(self) -> int:
        """Runs with which there is nothing left to do."""
        return self.done + self.failed + self.skipped


class Store:
    """The results of a study in a folder, which is made when first written to.

    A claim is free to take after `stale_after` seconds without a heartbeat, the same for all who share the folder. The
    heart beats four times in them.
    """

    def __init__(self, folder: str | os.PathLike[str], *, stale_after: float = 120.0) -> None:
        self.folder = Path(folder)
        self.stale_after = stale_after

    def keep_study(self, study: Study) -> None:
        """Write down what the folder is about; refuse where it is about something else."""
        path = self.folder / "study.toml"
        if not path.exists():
            self._make_folder()
            write_atomically(path, write_study(study))
        kept = self.study()
        if kept != study:
            changed = [each.name for each in fields(Study) if getattr(kept, each.name) != getattr(study, each.name)]
            raise ValueError(
                f"{path} must be the study that is run here, {study.name}; it is {kept.name} and differs in "
                f"{', '.join(changed)}. Use another folder, or delete that file: runs both have are not made again."
            )

    def study(self) -> Study:
        """The study the folder is about."""
        path = self.folder / "study.toml"
        with naming(path):
            return parse_stored(read_bytes(path).decode(), str(path))

    def save(self, run: Run, result: Mapping[str, Any]) -> None:
        """Write down what a run gave, which makes it done. Equal results give equal bytes; NaN and ∞ become null."""
        self._write("runs", run, {"result": result})

    def fail(self, run: Run, error: BaseException) -> None:
        """Write down why a run failed."""
        content = {"error": f"{type(error).__name__}: {error}", "trace": "".join(traceback.format_exception(error))}
        self._write("failed", run, content | {"host": socket.gethostname(), "time": _timestamp()})

    def skip(self, run: Run, reason: str) -> None:
        """Write down why a run is not made."""
        self._write("skipped", run, {"reason": reason})

    def retry(self, runs: Iterable[Run]) -> None:
        """Let runs that failed or were skipped be claimed again."""
        for run in runs:
            for kind in ("failed", "skipped"):
                self._path(kind, run.key()).unlink(missing_ok=True)

    def result(self, run: Run) -> dict[str, Any]:
        """What a finished run gave."""
        return dict(self._read("runs", run.key())[1]["result"])

    def results(self) -> Iterator[tuple[Run, dict[str, Any]]]:
        """All finished runs in the order of their keys, also those of no study."""
        for key in sorted(self._keys("runs")):
            run, content = self._read("runs", key)
            yield run, content["result"]

    def failure(self, run: Run) -> dict[str, str]:
        """Error, trace, host and time of a failed run."""
        return self._read("failed", run.key())[1]

    def reason(self, run: Run) -> str:
        """Why a run was skipped."""
        return str(self._read("skipped", run.key())[1]["reason"])

    def pack(self, path: str | os.PathLike[str], *, compact: bool = False) -> int:
        """Write study, finished and skipped runs into one compressed file of JSON lines, equal for equal ones.

        With `compact` without what no report reads: losses and scores by epoch, class priors by label. Gives the number
        of finished runs.
        """
        if not (self.folder / "study.toml").is_file():
            raise FileNotFoundError(
                f"{self.folder} must hold study.toml; it does not. Give the folder named to `onepos bench run`."
            )
        found = [self._read(folder, key) for folder in ("runs", "skipped") for key in self._keys(folder)]
        contents = sorted(({**content, "run": run.to_json()} for run, content in found), key=_place)
        for content in contents if compact else ():
            _drop_lists(content.get("result", {}))
        self.study()  # refuses one that is damaged
        study = {"study": read_bytes(self.folder / "study.toml").decode()}
        lines = [json.dumps(study, ensure_ascii=False), *map(_json_line, contents)]
        write_atomically(path, gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))
        return sum("result" in content for content in contents)

    def unpack(self, path: str | os.PathLike[str]) -> int:
        """Take over the runs of a file that `pack` wrote, but for those already here; how many are finished."""
        study, contents = read_packed(path)
        self._make_folder()
        if not (self.folder / "study.toml").exists():
            write_atomically(self.folder / "study.toml", study)
        for run, content in contents:
            folder = "runs" if "result" in content else "skipped"
            if not self._path(folder, run.key()).exists():
                self._write(folder, run, content)
        return sum("result" in content for _, content in contents)

    def states(self, runs: Iterable[Run]) -> dict[str, str]:
        """The state of each run by its key, one of the names in `Status`."""
        settled = {key: state for state in ("skipped", "failed", "done") for key in self._keys(_FOLDER[state])}
        claims = self._latest_claims()
        now = self._now() if claims else 0.0
        return {key: settled.get(key) or self._claim_state(claims.get(key), now) for key in (run.key() for run in runs)}

    def status(self, runs: Iterable[Run]) -> Status:
        """How many runs are in which state."""
        states = list(self.states(runs).values())
        return Status(**{each.name: states.count(each.name) for each in fields(Status)})

    @contextmanager
    def claim(self, runs: Iterable[Run]) -> Iterator[list[Run]]:
        """Claim runs together: gives those that were free and are now this process's, until the block is left.

        Runs that are done, failed, skipped or another's are left out. A thread keeps the claims alive.
        """
        won: dict[Path, Run] = {}
        stop = threading.Event()
        heart = threading.Thread(target=_beat, args=(won, stop, self.stale_after / 4), daemon=True)
        try:
            latest, now = self._latest_claims(), self._now()
            for run in runs:
                self._take(run, latest.get(run.key()), now, won)
            heart.start()
            yield list(won.values())
        finally:
            stop.set()
            if heart.is_alive():
                heart.join()
            for path, run in won.items():
                self._release(path, run.key())

    def _take(self, run: Run, latest: Path | None, now: float, won: dict[Path, Run]) -> None:
        key = run.key()
        if self._is_settled(key) or self._claim_state(latest, now) == "running":
            return
        path = self.folder / "claims" / f"{key}.{_number(latest) + 1 if latest else 0}"
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return
        won[path] = run
        with open(descriptor, "w", encoding="utf-8") as handle:
            json.dump({"host": socket.gethostname(), "pid": os.getpid(), "start": _timestamp()}, handle)
        # Another may have come to an end with this run since it was looked up, and removed all of its claims.
        if self._is_settled(key):
            self._release(path, key)
            del won[path]

    def _release(self, path: Path, key: str) -> None:
        if self._path("runs", key).exists():
            for claim in path.parent.glob(f"{key}.*"):
                claim.unlink(missing_ok=True)
        else:
            with suppress(FileNotFoundError):
                os.utime(path, (0, 0))

    def _claim_state(self, claim: Path | None, now: float) -> str:
        """Of a run that is not settled, by its latest claim."""
        try:
            beat = claim.stat().st_mtime if claim else 0
        except FileNotFoundError:  # removed since it was listed: the run has just been finished
            return "running"
        if not beat:
            return "waiting"
        # A beat from the future is of a clock that was wrong; a process that lives beats again by the one of now.
        return "stale" if abs(now - beat) > self.stale_after else "running"

    def _latest_claims(self) -> dict[str, Path]:
        return {path.stem: path for path in sorted((self.folder / "claims").glob("*.*"), key=_number)}

    def _now(self) -> float:
        """The time by the clock that stamps the claims, which on a shared folder is not this machine's."""
        folder = self.folder / "claims"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as probe:
                return os.fstat(probe.fileno()).st_mtime
        except OSError:  # a full disk, or a folder one may only read
            return time.time()

    def _is_settled(self, key: str) -> bool:
        return any(self._path(folder, key).exists() for folder in _FOLDER.values())

    def _path(self, folder: str, key: str) -> Path:
        return self.folder / folder / f"{key}.json"

    def _keys(self, folder: str) -> list[str]:
        return [path.stem for path in (self.folder / folder).glob("*.json")]

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            what = f"{self.folder} must be a folder, or not exist yet; it is a file. Name another."
            raise ValueError(what) from error

    def _write(self, folder: str, run: Run, content: Mapping[str, Any]) -> None:
        path = self._path(folder, run.key())
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, _json_line(without_nan({"run": run.to_json(), **content})) + "\n")

    def _read(self, folder: str, key: str) -> tuple[Run, dict[str, Any]]:
        """The run of a file and what the file holds of it; it must be whole and named after the run."""
        path = self._path(folder, key)
        try:
            content = parse_json(read_bytes(path), path)
            run = Run.from_json(content.pop("run"))
            lacks = [name for name, kind in _CONTENT[folder].items() if not isinstance(content.get(name), kind)]
            if run.key() != key or lacks:
                raise ValueError(f"it holds {', '.join(content) or 'nothing'} of run {run.key()}")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} must hold the {next(iter(_CONTENT[folder]))} of the run it is named after; it is damaged "
                f"({cause_of(error)}). Delete it, and the run is made again."
            ) from error
        return run, content


_FOLDER = {"done": "runs", "failed": "failed", "skipped": "skipped"}
_CONTENT: dict[str, dict[str, type]] = {
    "runs": {"result": dict},
    "failed": {"error": str, "trace": str},
    "skipped": {"reason": str},
}


def read_packed(path: str | os.PathLike[str]) -> tuple[str, list[tuple[Run, dict[str, Any]]]]:
    """What `Store.pack` wrote: the text of the study, and of each run its result, or the reason why it was skipped."""
    path = Path(path)
    try:
        with naming(path), open_binary(path) as file:
            content = file.read() if path.suffix == ".gz" else gzip.decompress(file.read())
        first, *lines = content.decode().split("\n")
        study = str(parse_json(first, path)["study"])
        runs = [_read_line(parse_json(line, path)) for line in lines if line]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        what = f"{path} must be a file written by `onepos bench pack`; it can not be read ({cause_of(error)}). "
        raise ValueError(f"{what}Pack the study again.") from error
    return study, runs


def _read_line(content: Any) -> tuple[Run, dict[str, Any]]:
    """A run of a packed file, and its result or reason."""
    if not isinstance(content, dict) or "run" not in content:
        raise ValueError("a line after the first holds no run")
    run = Run.from_json(content.pop("run"))
    run.key()
    if not isinstance(content.get("result", {}), dict) or not isinstance(content.get("reason", ""), str):
        raise ValueError(f"run {run.key()} has a result or a reason of another kind")
    return run, content


def find_stores(folder: str | os.PathLike[str]) -> dict[str, Store]:
    """The results in a folder: its own as ".", or those in the folders within it, by their names."""
    root = Path(folder)
    if (root / "study.toml").exists():
        return {".": Store(root)}
    found = {path.parent.name: Store(path.parent) for path in sorted(root.glob("*/study.toml"))}
    if not found:
        raise FileNotFoundError(
            f"{root} must hold the results of a study; there is no study.toml in it. Give the folder of bench run."
        )
    return found


def _place(content: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where a run stands in a packed file: like ones stand together, which compresses well."""
    run = content["run"]
    return run["dataset"], run["method"], run["configuration"], run["trial"], Run.from_json(run).key()


def _drop_lists(result: dict[str, Any]) -> None:
    """Remove the numbers by epoch and by label; with traces of the priors the true ones are needed."""
    for name in ("loss", "curve", "prior", *(() if result.get("trace") else ("true_prior",))):
        result.pop(name, None)


def _json_line(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _beat(claims: Iterable[Path], stop: threading.Event, seconds: float) -> None:
    while not stop.wait(seconds):
        for path in claims:
            with suppress(OSError):  # a shared folder may be out of reach for a while
                os.utime(path)


def _number(claim: Path) -> int:
    suffix = claim.suffix[1:]
    return int(suffix) if suffix.isdecimal() else -1


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
