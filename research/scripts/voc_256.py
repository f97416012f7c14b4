"""Make runs of the studies voc-256 on one GPU, by several processes, for a stated time; go on the next time.

    PYTHONPATH=src python research/scripts/voc_256.py --store FOLDER [--study FILE]… [--minutes 8] [--workers 8]
                                                      [--packed FOLDER] [--trials 3] [--methods an,full]

The runs of each study are in FOLDER/NAME, as those of `onepos bench run`. With --packed each study is also read from
FOLDER/NAME.jsonl.gz at the start, where that is, and written there at the end. First come all methods and
configurations of the first trial, then those of the second. A run is begun only if the time left will do for it, as
far as finished runs of its method show; what is not finished at the end is lost, and made the next time.

$ONEPOS_DATA holds the data and $ONEPOS_CACHE what is unpacked and decoded; images are decoded once and lie on the GPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import torch
from gpu_crew import run_crew, settle_in, sharing_gpu

from onepos.bench.run import Trial, image_parts, load_data, make_result, make_trial, task_of
from onepos.bench.stacking import train_many
from onepos.bench.store import Store
from onepos.bench.study import SIZE_BIASED_DRAW, Run, Study
from onepos.bench.study_file import read_study
from onepos.training.runtime import choose_device

STUDIES = Path(__file__).parents[1] / "studies"

_FIRST_GUESS = 60.0  # seconds of a run before one has been timed
_MARGIN = 1.25  # a run may take so many times as long as those of its method before
_UNKNOWN = 1.5  # the same of a method without runs, and those of all methods
_CLOSING = 12.0  # seconds at the end for packing


def order_runs(studies: Sequence[Study], methods: Sequence[str], trials: int | None) -> list[tuple[int, Run]]:
    """The runs with the number of their study: trial by trial, in each all configurations and studies."""
    runs = [
        (k, run)
        for k, study in enumerate(studies)
        for run in study.runs()
        if (not methods or run.method in methods) and (trials is None or run.trial < trials)
    ]
    return sorted(runs, key=lambda each: (each[1].trial, each[0], each[1].configuration))


class Clock:
    """How long runs take, by method, and whether one more fits."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.seconds: dict[str, list[float]] = {}

    def note(self, method: str, seconds: float) -> None:
        """A run has been made."""
        self.seconds.setdefault(method, []).append(seconds)

    def fits(self, method: str) -> bool:
        """Whether there is time for a run of this method."""
        guess = _FIRST_GUESS
        if method in self.seconds:
            guess = _MARGIN * max(self.seconds[method][-4:])
        elif self.seconds:
            guess = _UNKNOWN * fmean(max(each) for each in self.seconds.values())
        return time.time() + guess < self.deadline


def work(
    number: int,
    deadline: float,
    folders: Sequence[str],
    order: Sequence[tuple[int, Run]],
    device: str,
    workers: int,
) -> None:
    """Make the runs that nobody else is making, until none is left that fits into the time."""
    settle_in(workers)
    stores, clock = [Store(folder, stale_after=60.0) for folder in folders], Clock(deadline)
    for store in stores:
        for run, result in store.results():
            clock.note(run.method, result["timing"]["seconds"])
    trials: dict[int, Trial] = {}
    for k, run in order:
        if not clock.fits(run.method):
            continue
        with stores[k].claim([run]) as mine:
            if mine:
                began = time.time()
                make(stores[k], run, trials, device, workers)
                clock.note(run.method, time.time() - began)
                print(f"{number}: {run.method} {run.trial} {run.lr:g}, {time.time() - began:.1f} s", flush=True)


def make(store: Store, run: Run, trials: dict[int, Trial], device: str, workers: int) -> None:
    """One run, whose result or error goes to the store."""
    try:
        if run.draw_seed not in trials:
            trials[run.draw_seed] = make_resident(run, device)
        trial = trials[run.draw_seed]
        began = time.perf_counter()
        task = task_of(run, trial, device)
        (trained,) = train_many([task])
        result = make_result(run, trial, task, trained, trace=store.study().trace)
        epochs = sorted(trained.history.seconds)
        name = torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"
        timing = {
            "seconds_per_epoch": float(f"{epochs[len(epochs) // 2]:.4g}") if epochs else None,
            "closing_seconds": float(f"{fmean(trained.history.closing_seconds or [0.0]):.4g}"),
            "seconds": float(f"{time.perf_counter() - began:.4g}"),
            "stack": 1,
            "device": f"{name}, shared by {workers} processes" if workers > 1 else name,
            "memory_bytes": 0,
        }
        store.save(run, result | {"timing": timing})
    except Exception as error:  # the others go on
        store.fail(run, error)
        print(f"{run.method} failed: {error}", flush=True)


def make_resident(run: Run, device: str) -> Trial:
    """The trial with its images on the device."""
    data = load_data(run.dataset, True, run.draw_seed == SIZE_BIASED_DRAW)
    trial = make_trial(data, run, device)
    place = choose_device(device)
    held_out = trial.full.samples.to(place)
    return replace(
        trial,
        samples=trial.samples.to(place),
        full=trial.full._replace(samples=held_out),
        single=trial.single._replace(samples=held_out),
        test=trial.test.to(place),
    )


def main() -> None:
    """Unpack what was made before, start the processes, pack what there is at the end."""
    began = time.time()
    options = read_options()
    deadline = began + 60 * options.minutes - _CLOSING
    studies = [read_study(_find(name)) for name in options.study or ["voc-256"]]
    kept = [Kept(study, Store(options.store / study.name, stale_after=60.0), options.packed) for study in studies]
    for each in kept:
        each.take_up()
    order = order_runs(studies, [name for name in options.methods.split(",") if name], options.trials)
    first = order[0][1]
    image_parts(load_data(first.dataset, True, first.draw_seed == SIZE_BIASED_DRAW), first, first.images)  # type: ignore[arg-type]
    print(f"images are decoded after {time.time() - began:.0f} s", flush=True)

    def show() -> None:
        for each in kept:
            print(f"{time.time() - began:.0f} s, {each.study.name}: {each.store.status(each.study.runs())}", flush=True)

    arguments = [str(each.store.folder) for each in kept], order, options.device, options.workers
    with sharing_gpu() as is_shared:
        print(f"{options.workers} processes, kernels side by side: {is_shared}", flush=True)
        run_crew(work, arguments, options.workers, deadline, show)
    show()
    for each in kept:
        each.close()
    print(f"{time.time() - began:.0f} s in all", flush=True)


def read_options() -> argparse.Namespace:
    """Those of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", action="append", help="file or name in research/studies; may be given several times")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--packed", type=Path)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--trials", type=int)
    parser.add_argument("--methods", default="")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


class Kept(NamedTuple):
    """A study, its store, and the folder of its packed file."""

    study: Study
    store: Store
    folder: Path | None

    def take_up(self) -> None:
        """Put what was made before into the store."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            if (self.folder / self._file).exists():
                print(f"{self.study.name}: {self.store.unpack(self.folder / self._file)} runs of before", flush=True)
        self.store.keep_study(self.study)

    def close(self) -> None:
        """Print the errors and pack the results."""
        for run in self.study.runs():
            if self.store.states([run])[run.key()] == "failed":
                print(f"{run.method}: {self.store.failure(run)['trace']}", flush=True)
        if self.folder is not None:
            print(f"{self.study.name}: {self.store.pack(self.folder / self._file)} runs packed", flush=True)

    @property
    def _file(self) -> str:
        return f"{self.study.name}.jsonl.gz"


def _find(name: str) -> Path:
    return Path(name) if Path(name).is_file() else STUDIES / f"{name}.toml"


if __name__ == "__main__":
    main()
