"""Write research/results/images.md: what every method reaches on images, beside floor, oracle and the paper's numbers.

    PYTHONPATH=research python research/scripts/image_results.py [--results research/results] [--out FILE]

The script reads NAME/runs.jsonl.gz of the studies of STUDIES in the folder of results.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crisp_paper.image_results import write_image_results

RESULTS = Path(__file__).parents[1] / "results"
STUDIES = ("features-seed-25", "images-voc", "images-scenes")  # in the order of the page


def main() -> None:
    """Find the runs and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=RESULTS / "images.md")
    options = parser.parse_args()
    print(write_image_results([options.results / name / "runs.jsonl.gz" for name in STUDIES], options.out))


if __name__ == "__main__":
    main()
