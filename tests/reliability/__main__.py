"""`./test --reliability`: damage, kill and fail for some minutes, and write what came of it as a page.

./test --reliability                              # eighteen minutes
./test --reliability --minutes 1.5                # the slice of CI
./test --reliability --only npz --seed 3 --case 17    # one input again, with its traceback
"""

import argparse
import os
import sys
import tempfile
import time
import traceback
import warnings
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from faults import WRITERS, run_clocks, run_faults, run_writers
from isolation import damage, fuzz
from kills import WORKS, run_kills
from long_runs import LONG, run_long
from numerics import CASES, METHODS, run_numbers
from reliability_page import render
from targets import TARGETS

# Of the whole time, what goes to each part.
SHARES = {"inputs": 0.56, "kills": 0.22, "faults": 0.1, "numbers": 0.05, "long": 0.07}
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
    parser.add_argument("--minutes", type=float, default=18.0, help="of the whole [default: 18]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", choices=SHARES, help="one part alone")
    parser.add_argument("--only", help="one target alone, such as npz")
    parser.add_argument("--case", type=int, help="with --only: this input alone, with its traceback")
    parser.add_argument("--out", type=Path, help="the page [default: none is written]")
    return parser.parse_args(arguments)


def main(arguments=None):
    """Returns 1 where something was found."""
    options = parse(arguments)
    torch.set_num_threads(1)
    if os.access("/dev/shm", os.W_OK):
        tempfile.tempdir = "/dev/shm"  # in memory, where a copy of the files costs little
    warnings.simplefilter("ignore")
    if options.case is not None:
        return repeat(options)
    began = time.monotonic()
    parts = {part: run_part(part, options) for part in SHARES if options.part in (None, part)}
    seconds = time.monotonic() - began
    faults = [fault for results in parts.values() for result in results for fault in result["faults"]]
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(render(parts, options.seed, seconds, options.minutes), encoding="utf-8")
        print(f"page: {options.out}")
    print(f"{len(faults)} faults found in {seconds / 60:.1f} minutes, seed {options.seed}")
    return 1 if faults else 0


def run_part(part, options):
    """The results of each target of a part; each fault is printed with the command that shows it again."""
    names = [name for name in NAMES[part] if options.only in (None, name)]
    if part == "kills" and options.minutes < 4 and options.only is None:
        names = [name for name in names if name in QUICK]  # one round of the others takes longer than there is time
    share = 1.0 if options.part or options.only else SHARES[part]
    seconds = 60 * options.minutes * share / max(1, len(names))
    results = []
    for name in names:
        for result in run_target(part, name, options.seed, seconds):
            results.append(result)
            print(f"{part}: {result['target']}: {_in_words(result)}", flush=True)
            for fault in result["faults"][:5]:
                print(
                    f"  {fault['kind']}, {command(part, name, options.seed, fault['case'])}\n    {fault['text'][:1500]}"
                )
    return results


def run_target(part, name, seed, seconds):
    """What came of one target in so many seconds."""
    if part == "inputs":
        yield fuzz(TARGETS[name], seed, seconds=seconds)
    elif part == "kills":
        yield run_kills(name, seed, seconds=seconds)
    elif part == "faults":
        yield run_faults(name, seed, seconds=0.8 * seconds)
        yield run_writers(name, seed, rounds=max(1, int(seconds / 4)))
        if name == list(WRITERS)[-1]:
            yield run_clocks(seed)
    elif part == "numbers":
        yield numbers(name, seed, seconds)
    else:
        _, steps = LONG[name]
        pace = {"epochs of a fit": 100, "studies stored and read": 40, "predictions through the server": 150}[name]
        yield run_long(name, share=min(1.0, seconds * pace / steps))


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
        source, folder = Path(place, "whole"), Path(place, "case")
        source.mkdir()
        target.make(source)
        damage(target, options.seed, options.case, source, folder)
        try:
            print("result:", repr(target.read(folder))[:500])
        except Exception:
            traceback.print_exc()
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
