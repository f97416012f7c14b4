"""Prior error and excess risk against the number of rows, with the bounds of the paper's two theorems.

    PYTHONPATH=research python research/scripts/consistency.py [--out research/results/consistency] [--pages]

The script writes results.json and, from it, report.md, report.html and the charts; with --pages it only writes the
pages again, from the results.json that is there. The repository holds results.json and report.md. Of digit scenes the
script takes the 32 768 training scenes of 40 960, since the parts of that data set share no handwritten digit and would
be populations of their own; of Yeast it takes all rows. It takes about three minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from crisp_paper.consistency import Consistency, run_consistency
from crisp_paper.consistency_page import write_pages

from onepos.datasets import load_dataset
from onepos.datasets.scenes import digit_scenes
from onepos.files import write_atomically

OUT = Path(__file__).parents[1] / "results" / "consistency"
SCORER = "an"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--pages", action="store_true", help="only write the pages again")
    options = parser.parse_args()

    began = time.perf_counter()
    path = options.out / "results.json"
    if not options.pages:
        options.out.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(run(), indent=1, allow_nan=False) + "\n")
    for written in (path, *write_pages(path, options.out)):
        print(written)
    print(f"{time.perf_counter() - began:.0f} s on one core")


def run() -> dict[str, Any]:
    torch.set_num_threads(1)
    scenes = digit_scenes(40960)
    data = [scenes.take((scenes.splits or {})["train"]), load_dataset("yeast")]
    return run_consistency(data, Consistency(SCORER))


if __name__ == "__main__":
    main()
