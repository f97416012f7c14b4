"""A new judgement, made in a process of its own so that the page keeps answering."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from onepos.report.judgement import Judgement
from onepos.server.judgement import Judge

if TYPE_CHECKING:
    from onepos.labels import Labels

OnDone = Callable[[Judgement, str | None, float], dict[str, Any]]
"""Takes the judgement, the folder of the model that was fitted again, and the seconds; returns what changed."""


@dataclass
class Progress:
    """How far an improvement is, as the page reads it."""

    state: str = "idle"
    step: str = ""
    done: int = 0
    steps: int = 0
    error: str = ""
    started: float = 0.0
    result: dict[str, Any] | None = field(default=None)

    def to_json(self) -> dict[str, Any]:
        """The same in plain numbers."""
        seconds = time.monotonic() - self.started if self.state == "running" else 0.0
        return {
            "state": self.state,
            "step": self.step,
            "done": max(self.done, 0),
            "steps": self.steps,
            "error": self.error,
            "seconds": round(seconds, 1),
            "result": self.result,
        }


class Improver:
    """At most one improvement at a time."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._lock = threading.Lock()
        self._process: Any = None
        self.progress = Progress()

    def start(self, labels: Labels, sample: list[int], on_done: OnDone) -> bool:
        """Begin; False where one is running."""
        with self._lock:
            if self.progress.state == "running":
                return False
            self.progress = Progress("running", "starting", started=time.monotonic())
        context = multiprocessing.get_context("spawn")  # a fork of a process with threads may never end
        mine, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(theirs, self._judge, labels, sample), daemon=True)
        threading.Thread(target=self._follow, args=(mine, theirs, on_done), name="onepos-improve", daemon=True).start()
        return True

    def stop(self) -> None:
        """End the process; the old judgement stays."""
        process = self._process
        if process is not None and process.pid is not None and process.is_alive():
            process.terminate()
            process.join(5)

    def _follow(self, mine: Connection, theirs: Connection, on_done: OnDone) -> None:
        """Read what the process reports until it ends."""
        started = self.progress.started
        try:
            self._process.start()
            theirs.close()
            while True:
                kind, *content = mine.recv()
                if kind == "progress":
                    self.progress.step, self.progress.done, self.progress.steps = content
                elif kind == "failed":
                    self._end("failed", error=content[0])
                    return
                else:
                    judgement, folder = content
                    self._end("done", result=on_done(judgement, folder, time.monotonic() - started))
                    return
        except EOFError:
            self._end("failed", error="the process that judges the rows ended; the former judgement stays.")
        except Exception as error:  # whatever failed, the page shows one sentence
            traceback.print_exc()
            self._end("failed", error=f"{' '.join(str(error).split()) or type(error).__name__}")
        finally:
            mine.close()
            self._process.join(5)

    def _end(self, state: str, *, error: str = "", result: dict[str, Any] | None = None) -> None:
        self.progress = Progress(state, error=error, result=result)


def _work(connection: Connection, judge: Judge, labels: Labels, sample: list[int]) -> None:
    """The process: judge the rows, fit the model again, and send what came out."""
    if hasattr(os, "nice"):
        os.nice(10)  # reviewers come first
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 2) // 2)))

    def tell(what: str, done: int, n: int) -> None:
        connection.send(("progress", what, done + 1, n))

    try:
        judgement = judge(labels, sample, tell)
        fit_again = getattr(judge, "fit_again", None)
        folder = None if fit_again is None else fit_again(labels, sample, tell)
        connection.send(("done", judgement, folder))
    except Exception as error:
        connection.send(("failed", " ".join(str(error).split()) or type(error).__name__))
    finally:
        connection.close()
