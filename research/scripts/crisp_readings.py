"""What each reading of CRISP gives under the fair protocol: runs, and the page about them.

    python research/scripts/crisp_readings.py run STORE [--data image,scene] [--methods crisp,crisp-true] [--device cpu]
    python research/scripts/crisp_readings.py pack STORE

STORE is a folder that keeps the runs: the command can be stopped and started again, and several processes can share the
folder. Runs that research/results/fair-seed-25 and features-seed-25 already have are taken from there. `pack` writes
research/results/crisp-readings and crisp-readings-features, of which crisp_paper.pages makes the page.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import torch
from crisp_paper import readings  # noqa: F401, adds the readings to METHODS

from onepos.bench.runner import make_block, make_blocks, make_trials
from onepos.bench.store import Store, read_packed
from onepos.bench.study import Study
from onepos.bench.study_file import read_study

RESULTS = Path("research/results")
STUDIES = {"crisp-readings": "fair-seed-25", "crisp-readings-features": "features-seed-25"}


def open_store(folder: Path, study: Study, packed: Path) -> Store:
    """The store of a study, with the runs it shares with an earlier one."""
    store = Store(folder)
    store.keep_study(study)
    wanted = {run.key() for run in study.runs()}
    store.take_over((run, content) for run, content in read_packed(packed)[1] if run.key() in wanted)
    return store
