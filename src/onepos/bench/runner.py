"""Make the runs of a study: in blocks that are trained as one, by one process or several that share the folder.

A block holds runs of one shape, by a rule that depends on the study alone. Whoever makes a block makes all of it, so
its runs always meet the same neighbours in a stack, and a study that was stopped ends in the same bytes as one that was
not.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from onepos.bench.run import Trial, load_data, make_result, make_trial, task_of, why_not
from onepos.bench.stacking import bytes_per_run, train_many
from onepos.bench.store import Status, Store
from onepos.bench.study import SIZE_BIASED_DRAW, Run, Study
from onepos.methods import make_method
from onepos.training.loop import History
from onepos.training.runtime import choose_device

BLOCK = 64
"""Runs in a block, at most."""

_SINGLY = 8
"""Of a method that can not be stacked; a block is what is lost, and what others wait for, when its maker stops."""

# What the runs of a block have in common: all that decides the shape of a stack, and the file the data come from.
_ALIKE = ("dataset", "method", "network", "hidden", "scaling", "bias_init", "batch_size", "epochs")


def make_blocks(study: Study, size: int = BLOCK) -> list[list[Run]]:
    """The runs of a study, in blocks of like ones; small blocks where each is trained by itself all the same."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in study.runs():
        groups.setdefault(tuple(getattr(run, name) for name in _ALIKE), []).append(run)
    blocks = []
    for group in groups.values():
        singly = 1 if study.images else _SINGLY
        step = size if make_method(group[0].method).stacking.possible and not study.images else min(size, singly)
        blocks += [group[first : first + step] for first in range(0, len(group), step)]
    return blocks


def run_study(
    study: Study,
    store: Store,
    *,
    device: str = "cpu",
    workers: int = 1,
    block: int = BLOCK,
    only: Sequence[str] | None = None,
    on_progress: Callable[[Status], None] | None = None,
) -> Status:
    """Make all runs that are not yet made, and count those of each kind; other processes may work on the same store.

    Args:
        study: What to run.
        store: Where the results go.
        device: As in `Plan`.
        workers: Processes at work on this machine; each gets its share of the threads.
        block: Runs trained together, at most. A study that is taken up again should have the same.
        only: Data sets to work on, if not all of the study's; other machines may take the others.
        on_progress: Called now and then with the state of all runs.
    """
    choose_device(device)
    names = check_data(study, only)
    store.keep_study(study)
    share = _Share(names, device, block)
    if workers == 1:
        _work(study, store, share, on_progress)
    else:
        _start_workers(study, store, share, workers, on_progress)
    return store.status(study.runs())


def check_data(study: Study, only: Sequence[str] | None = None) -> tuple[str, ...]:
    """The data sets to work on. A file that is missing is said before the first run, not after hours."""
    names = tuple(study.datasets if only is None else only)
    for name in names:
        if name not in study.datasets:
            raise ValueError(f"{name} must be a data set of the study, one of {', '.join(study.datasets)}; it is not.")
        load_data(name, study.images is not None, study.draw == "size-biased")
    return names


class _Share(NamedTuple):
    """What a process works on, and how."""

    names: tuple[str, ...]
    device: str
    block: int


def _start_workers(
    study: Study, store: Store, share: _Share, workers: int, on_progress: Callable[[Status], None] | None
) -> None:
    threads = max(1, torch.get_num_threads() // workers)
    context = multiprocessing.get_context("spawn")  # a forked torch hangs
    arguments = (str(store.folder), store.stale_after, share, threads)
    crew = [context.Process(target=_worker, args=arguments) for _ in range(workers)]
    for process in crew:
        process.start()
    try:
        while any(process.is_alive() for process in crew):
            time.sleep(0.5)
            if on_progress is not None:
                on_progress(store.status(study.runs()))
    except BaseException:
        for process in crew:
            process.terminate()
        raise
    finally:
        for process in crew:
            process.join()
    failed = [process.exitcode for process in crew if process.exitcode]
    if failed:
        raise RuntimeError(
            f"{len(failed)} of {workers} workers stopped early; see above. Run again to go on from there."
        )


def _worker(folder: str, stale_after: float, share: _Share, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who started this, and who ends it by SIGTERM
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    store = Store(folder, stale_after=stale_after)
    _work(store.study(), store, share, None)


def _end_with_parent() -> None:
    """End this worker when the process that started it has gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def _leave(*_: Any) -> None:
    """End as a program does by itself, so that this worker gives its runs free."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(143)


class _Trials:
    """The trials of the data set at work, so that all its blocks share them."""

    def __init__(self, device: str) -> None:
        self._name, self._device = "", device
        self._made: dict[tuple[int, int, str, str], Trial] = {}

    def of(self, run: Run) -> Trial:
        if run.dataset != self._name:
            self._made.clear()
            size_biased = run.draw_seed == SIZE_BIASED_DRAW  # that of a study is one draw or the other
            self._name, self._data = run.dataset, load_data(run.dataset, run.images is not None, size_biased)
        key = run.split_seed, run.draw_seed, run.scaling, run.network if run.images else ""
        if key not in self._made:
            self._made[key] = make_trial(self._data, run, self._device)
        return self._made[key]


def _work(study: Study, store: Store, share: _Share, on_progress: Callable[[Status], None] | None) -> None:
    """Go through the blocks and make those that nobody else is making."""
    trials = _Trials(share.device)
    for runs in make_blocks(study, share.block):
        if runs[0].dataset not in share.names:
            continue
        states = store.states(runs)
        open_runs = [run for run in runs if states[run.key()] in ("waiting", "stale", "running")]
        with store.claim(open_runs[:1]) as first:  # who has the first one has the block, also if others seem free yet
            if first:
                with store.claim(open_runs[1:]):
                    _make_block(store, runs, trials, share.device, study.trace)
        if first and on_progress is not None:
            on_progress(store.status(study.runs()))


def _make_block(store: Store, runs: Sequence[Run], trials: _Trials, device: str, trace: bool) -> None:
    """Train a block and write down its results; if one run breaks it, each by itself."""
    reasons = {run: why_not(run) for run in runs}
    for run, reason in reasons.items():
        if reason is not None:
            store.skip(run, reason)
    possible = [run for run in runs if reasons[run] is None]
    try:
        _train_block(store, possible, trials, device, trace)
    except Exception:
        for run in possible:
            try:
                _train_block(store, [run], trials, device, trace)
            except Exception as error:  # whatever it is: the other runs go on
                store.fail(run, error)


def _train_block(store: Store, runs: Sequence[Run], trials: _Trials, device: str, trace: bool) -> None:
    if not runs:
        return
    of_run = [trials.of(run) for run in runs]
    tasks = [task_of(run, trial, device) for run, trial in zip(runs, of_run, strict=True)]
    memory = bytes_per_run(tasks[0])
    began = time.perf_counter()
    trained = train_many(tasks, stack_size=len(tasks), checkpoints=store.folder / "checkpoints")
    seconds = (time.perf_counter() - began) / len(tasks)
    done = {key for key, state in store.states(runs).items() if state == "done"}
    for run, trial, task, each in zip(runs, of_run, tasks, trained, strict=True):
        if run.key() not in done:
            timing = _timing(each.history, seconds, len(tasks), device, memory)
            store.save(run, make_result(run, trial, task, each, trace=trace) | {"timing": timing})


def _timing(history: History, seconds: float, n_stacked: int, device: str, memory: int) -> dict[str, Any]:
    threads = torch.get_num_threads()
    on_cpu = f"CPU, {threads} thread{'s' if threads > 1 else ''}"
    return {
        "seconds_per_epoch": _median(history.seconds),
        "closing_seconds": _median(history.closing_seconds),
        "seconds": float(f"{seconds:.4g}"),
        "stack": n_stacked,
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else on_cpu,
        "memory_bytes": memory,
    }


def _median(seconds: Sequence[float]) -> float | None:
    """Of the epochs; of an even number the upper one in the middle."""
    return float(f"{sorted(seconds)[len(seconds) // 2]:.4g}") if seconds else None
