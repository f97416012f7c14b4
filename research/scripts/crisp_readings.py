"""Runs of every reading of CRISP under the fair protocol.

    python research/scripts/crisp_readings.py STORE [--data image,scene] [--device cpu] [--pack]

STORE is a folder that keeps the runs: the command can be stopped and started again, and several processes can share the
folder. Runs that fair-seed-25 and features-seed-25 in research/results already have are taken from there. With --pack
no run is made; those that are there are written to research/results, of which `crisp_paper.pages` makes the page.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import torch
from crisp_paper.readings import readings_as_methods

from onepos.bench.runner import run_study
from onepos.bench.store import Store, read_packed
from onepos.bench.study import Study
from onepos.bench.study_file import read_study

RESULTS = Path("research/results")
EARLIER = {"crisp-readings": "fair-seed-25", "crisp-readings-features": "features-seed-25"}


def open_store(folder: Path, study: Study, earlier: Path) -> Store:
    """The store of a study, with the runs it shares with an earlier one."""
    store = Store(folder)
    store.keep_study(study)
    wanted = {key for key, state in store.states(study.runs()).items() if state == "waiting"}
    for run, content in read_packed(earlier)[1]:
        if run.key() in wanted and "result" in content:
            store.save(run, content["result"])
    return store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--data")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pack", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # that κ is open is on the page
    with readings_as_methods():
        work(options)


def work(options: argparse.Namespace) -> None:
    for name, earlier in EARLIER.items():
        study = read_study(f"research/studies/{name}.toml")
        store = open_store(options.store / name, study, RESULTS / earlier / "runs.jsonl.gz")
        data = [each for each in (options.data or ",".join(study.datasets)).split(",") if each in study.datasets]
        if options.pack:
            (RESULTS / name).mkdir(exist_ok=True)
            print(name, store.pack(RESULTS / name / "runs.jsonl.gz", compact=True), "runs")
        elif data:
            print(name, run_study(study, store, device=options.device, only=data), flush=True)


if __name__ == "__main__":
    main()
