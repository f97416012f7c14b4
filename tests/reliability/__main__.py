"""`./test --reliability`: damage, kill and fail for some minutes, and write what came of it as a page.

./test --reliability                              # 20 000 inputs per format, below twenty minutes on two cores
./test --reliability --minutes 1.5                # the slice of CI
./test --reliability --only npz --seed 3 --case 17    # one input again, with its traceback
./test --reliability --coverage-guided --minutes 5    # readers in Python, steered by coverage; needs atheris
"""

import argparse
import os
import sys
import tempfile
import time
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from faults import WRITERS, run_clocks, run_faults, run_writers
from isolation import Files, damage, fuzz
from kills import WORKS, run_kills
from long_runs import LONG, run_long
from numerics import CASES, METHODS, run_numbers
from reliability_page import render
from targets import TARGETS

# Of the time of a short run, what goes to each part.
SHARES = {"inputs": 0.56, "kills": 0.22, "faults": 0.1, "numbers": 0.05, "long": 0.07}
# Of a whole run: inputs per format, made in rounds so that a slow machine has as many of each; seconds of the rest.
INPUTS, ROUNDS = 20_000, 4
WHOLE = {"kills": 150.0, "faults": 45.0, "numbers": 60.0}
# Minutes after which a whole run makes no more inputs.
MOST = 19.0
QUICK = ("fit over an older model", "save", "answers")
NAMES = {
    "inputs": list(TARGETS),
    "kills": list(WORKS),
    "faults": list(WRITERS),
    "numbers": list(METHODS),
    "long": list(LONG),
}


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./test --reliability", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--minutes", type=float, help=f"of the whole [default: until there are {INPUTS} of each format]"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes [default: 2]")
    parser.add_argument("--part", choices=SHARES, help="one part alone")
    parser.add_argument("--only", help="one target alone, such as npz")
    parser.add_argument("--case", type=int, help="with --only: this input alone, with its traceback")
    parser.add_argument("--out", type=Path, help="the page [default: none is written]")
    parser.add_argument("--coverage-guided", action="store_true", help="mutate by coverage; needs atheris")
    return parser.parse_args(arguments)


def main(arguments=None):
    """Returns 1 where something was found."""
    options = parse(arguments)
    torch.set_num_threads(1)
    if os.access("/dev/shm", os.W_OK):
        tempfile.tempdir = "/dev/shm"  # in memory, where a copy of the files costs little
    warnings.simplefilter("ignore")
    if options.coverage_guided:
        from coverage_guided import run_guided

        return run_guided(options.only, options.seed, 60 * (options.minutes or 5.0))
    if options.case is not None:
        return repeat(options)
    began = time.monotonic()
    parts = run_tasks(make_tasks(options, began), options)
    seconds = time.monotonic() - began
    faults = [fault for results in parts.values() for result in results for fault in result["faults"]]
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(render(parts, options, seconds), encoding="utf-8")
        print(f"page: {options.out}")
    print(f"{len(faults)} faults found in {seconds / 60:.1f} minutes, seed {options.seed}")
    return 1 if faults else 0


def make_tasks(options, began):
    """What is done, in this order: part, target, seed, seconds, and of inputs the first and their number."""
    parts = [part for part in SHARES if options.part in (None, part)]
    names = {part: [name for name in NAMES[part] if options.only in (None, name)] for part in parts}
    if options.minutes is not None and options.minutes < 4 and options.only is None and "kills" in names:
        names["kills"] = [name for name in names["kills"] if name in QUICK]  # a round of the others takes too long
    tasks = []
    for part in sorted(parts, key=lambda part: part == "inputs"):  # inputs last: they fill up the time
        for name in names[part]:
            if options.minutes is not None:
                share = 1.0 if options.part or options.only else SHARES[part]
                seconds = 60 * options.minutes * share * options.workers / len(names[part])
                tasks.append((part, name, options.seed, seconds, None, 0, None))
            elif part != "inputs":
                seconds = None if part == "long" else WHOLE[part] / len(names[part])
                tasks.append((part, name, options.seed, seconds, None, 0, None))
    if options.minutes is None and "inputs" in names:
        size, end = INPUTS // ROUNDS, began + 60 * MOST
        rounds = ((turn, name) for turn in range(ROUNDS) for name in names["inputs"])
        tasks += [("inputs", name, options.seed, None, end, turn * size, size) for turn, name in rounds]
    return tasks


def run_tasks(tasks, options):
    """The results of each part, the rounds of one target put together; faults are printed with their commands."""
    parts = {part: {} for part in SHARES}
    for task, results in zip(tasks, _in_processes(tasks, options.workers), strict=True):
        part, name = task[:2]
        for number, result in enumerate(results):
            kept = parts[part].setdefault((name, number), result)
            if kept is not result:
                _add_to(kept, result)
            print(f"{part}: {result['target']}: {_in_words(result)}", flush=True)
            for fault in result["faults"][:5]:
                repeated = command(part, name, options.seed, fault["case"])
                print(f"  {fault['kind']}, {repeated}\n    {fault['text'][:1500]}")
    return {part: list(results.values()) for part, results in parts.items() if results}


def _in_processes(tasks, workers):
    if workers < 2:
        yield from map(run_task, tasks)
        return
    with ProcessPoolExecutor(workers, get_context("fork")) as pool:
        yield from pool.map(run_task, tasks)


def _add_to(kept, result):
    """Put the counts of a further round to those before."""
    for kind, number in result["counts"].items():
        kept["counts"][kind] = kept["counts"].get(kind, 0) + number
    kept["inputs"] += result["inputs"]
    kept["seconds"] += result["seconds"]
    kept["memory"] = max(kept["memory"], result["memory"])
    kept["slowest"] = max(kept["slowest"], result["slowest"])
    kept["faults"] += result["faults"]


def run_task(task):
    """What came of a target, one or more results."""
    part, name, seed, seconds, end, first, cases = task
    if part == "inputs":
        left = seconds if end is None else max(0.0, end - time.monotonic())
        return [fuzz(TARGETS[name], seed, seconds=left, cases=cases, first=first)]
    if part == "kills":
        return [run_kills(name, seed, seconds=seconds)]
    if part == "faults":
        found = [
            run_faults(name, seed, seconds=0.8 * seconds),
            run_writers(name, seed, rounds=max(1, int(seconds / 4))),
        ]
        return [*found, run_clocks(seed)] if name == list(WRITERS)[-1] else found
    if part == "numbers":
        return [numbers(name, seed, seconds)]
    _, steps, pace = LONG[name]
    return [run_long(name, share=1.0 if seconds is None else min(1.0, seconds * pace / steps))]


def numbers(method, seed, seconds):
    """All cases, and again with further seeds, while there is time."""
    counts, faults, began = {}, [], time.monotonic()
    for turn, name in ((turn, name) for turn in count() for name in CASES):
        if turn + counts.get("result", 0) > 5 and time.monotonic() - began > seconds:
            break
        kind, text = run_numbers(name, method, seed + turn)
        counts[kind] = counts.get(kind, 0) + 1
        if kind == "foreign":
            faults.append({"case": seed + turn, "kind": kind, "text": f"{name}: {text}"})
    return {"target": method, "counts": counts, "faults": faults, "seconds": time.monotonic() - began}


def _in_words(result):
    counts = ", ".join(f"{number} {name}" for name, number in sorted(result["counts"].items()))
    return f"{counts}; {len(result['faults'])} faults, {result['seconds']:.0f} s"


def command(part, name, seed, case):
    """The line that shows a fault again."""
    if part == "inputs":
        return f"./test --reliability --only '{name}' --seed {seed} --case {case}"
    return f"./test --reliability --part {part} --only '{name}' --seed {seed}"


def repeat(options):
    """One damaged input, in this process."""
    target = TARGETS[options.only]
    with tempfile.TemporaryDirectory(prefix="onepos-reliability-") as place:
        if target.run is not None:
            print(*target.run(options.seed, options.case))
            return 0
        source, folder = Path(place, "whole"), Path(place, "case")
        source.mkdir()
        target.make(source)
        damage(target, options.seed, options.case, Files(source, folder))
        try:
            print("result:", repr(target.read(folder))[:500])
        except Exception:
            traceback.print_exc()
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
