"""Write reproduction.md and reproduction-cells.md: which printed numbers of the CRISP paper are reached.

    PYTHONPATH=research python research/scripts/reproduction.py [--results research/results] [--out FILE]

The script reads NAME/runs.jsonl.gz of the studies as-published, fair (any seed), bridge-* and crisp-readings in the
folder of results, and writes the pages as Markdown and, beside them, as HTML.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crisp_paper.reproduction import find_sources, write_reproduction

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    """Find the runs and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=RESULTS / "reproduction.md", help="the short page")
    options = parser.parse_args()
    try:
        sources = find_sources(options.results)
    except ValueError as error:
        parser.error(str(error))
    for path in write_reproduction(*sources, out=options.out):
        print(path)


if __name__ == "__main__":
    main()
