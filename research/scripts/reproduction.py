"""Write research/results/reproduction.md: which printed numbers of the CRISP paper are reproduced, and why not.

    PYTHONPATH=research python research/scripts/reproduction.py [--results research/results] [--out FILE]

The script reads NAME/runs.jsonl.gz of the studies as-published, fair (any seed) and bridge-* in the folder of results,
and writes the page as Markdown and, beside it, as HTML.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crisp_paper.reproduction import write_reproduction

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    """Find the runs and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=RESULTS / "reproduction.md")
    options = parser.parse_args()
    published, fair = (sorted(options.results.glob(f"{name}*/runs.jsonl.gz")) for name in ("as-published", "fair"))
    if len(published) != 1 or len(fair) != 1:
        parser.error(f"{options.results} must hold one study as-published and one study fair, each with runs.jsonl.gz.")
    bridges = sorted(options.results.glob("bridge-*/runs.jsonl.gz"))
    for path in write_reproduction(published[0], fair[0], bridges, options.out):
        print(path)


if __name__ == "__main__":
    main()
