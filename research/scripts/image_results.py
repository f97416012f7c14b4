"""Write docs/results/images.md: the methods on real pictures, beside floor, oracle and the paper's row.

    python benchmarks/image_results.py [--results docs/results] [--out docs/results/images.md]

Read are runs.jsonl.gz of each study under docs/results, written by `onepos bench pack`, and features/start.jsonl.gz,
the runs of features/start.toml beside it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crisp_paper.image_results import write_image_results

DOCS = Path(__file__).parent.parent / "docs"

# A study each, in the order of the page.
STUDIES = ("features", "pictures-voc", "pictures-scenes")


def main() -> None:
    """Find the runs and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=DOCS / "results")
    parser.add_argument("--out", type=Path, default=DOCS / "results" / "images.md")
    asked = parser.parse_args()
    folders = [asked.results / name for name in STUDIES if (asked.results / name).is_dir()]
    packed = [folder / "runs.jsonl.gz" for folder in folders]
    starts = [path for folder in folders if (path := folder / "start.jsonl.gz").is_file()]
    print(write_image_results(packed, asked.out, starts))


if __name__ == "__main__":
    main()
