"""Write docs/reproduction.md: are the paper's tables reproduced, cell by cell, and why not.

    python benchmarks/reproduction.py [--results docs/results] [--out docs/reproduction.md]

Read are as-published, fair and every bridge-* under docs/results: NAME/runs.jsonl.gz, written by `onepos bench pack`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crisp_paper.reproduction import write_reproduction

DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    """Find the runs and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=DOCS / "results")
    parser.add_argument("--out", type=Path, default=DOCS / "reproduction.md")
    asked = parser.parse_args()
    published, fair = (asked.results / name / "runs.jsonl.gz" for name in ("as-published", "fair"))
    bridges = sorted(asked.results.glob("bridge-*/runs.jsonl.gz"))
    for path in write_reproduction(published, fair, bridges, asked.out):
        print(path)


if __name__ == "__main__":
    main()
