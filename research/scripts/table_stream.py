"""Time and memory of encoding a large table of mixed columns in a stream, beside skrub's TableVectorizer.

    python research/scripts/table_stream.py [--rows 1000000] [--skrub PYTHON] [--out FILE]

Makes a CSV file with 20 columns (numbers, categories, dates, words, short text, gaps) in a temporary folder, reads it
in blocks, fits a `TableEncoder` to them and encodes them, keeping no block. Prints seconds and the peak memory of the
process. With --skrub, a Python that has skrub, the same file is encoded by `TableVectorizer` there, in memory.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from onepos.files import write_atomically
from onepos.tables import TableEncoder

BLOCK = 50_000
WORDS = np.array([f"{a}{b}{c}{d}" for a in "bdkm" for b in "aeo" for c in "rtn" for d in "aio"])

SKRUB = """
import resource, sys, time
import pandas as pd
from skrub import TableVectorizer
started = time.perf_counter()
table = pd.read_csv(sys.argv[1])
read = time.perf_counter()
TableVectorizer().fit_transform(table)
print(f"skrub: read {read - started:.0f} s, fit and transform {time.perf_counter() - read:.0f} s, "
      f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
"""


def make_block(n: int, seed: int) -> pd.DataFrame:
    """Rows of 20 columns."""
    rng = np.random.default_rng(seed)
    block = pd.DataFrame({f"number{k}": rng.normal(size=n).round(3) for k in range(6)})
    for k in range(3):
        block[f"amount{k}"] = np.where(rng.random(n) < 0.2, np.nan, np.exp(rng.normal(size=n) * 3).round(2))
    for k, size in enumerate((3, 10, 50, 400, 5_000)):
        block[f"category{k}"] = np.char.add("c", rng.integers(0, size, n).astype(str))
    for k in range(2):
        days = np.datetime64("2015-01-01") + rng.integers(0, 3000, n).astype("timedelta64[D]")
        block[f"day{k}"] = days.astype(str)
    block["flag"] = np.where(rng.random(n) < 0.5, "yes", "no")
    for k, length in enumerate((4, 8)):
        words = WORDS[rng.integers(0, len(WORDS), (n, length))]
        block[f"text{k}"] = [" ".join(row) for row in words]
    block["constant"] = "same"
    return block


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--skrub", metavar="PYTHON")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.csv"
        for start in range(0, given.rows, BLOCK):
            block = make_block(min(BLOCK, given.rows - start), start)
            block.to_csv(file, mode="a", index=False, header=start == 0)

        def blocks() -> Iterator[pd.DataFrame]:
            return iter(pd.read_csv(file, chunksize=BLOCK))

        started = time.perf_counter()
        encoder = TableEncoder().fit_blocks(blocks)
        fitted = time.perf_counter()
        numbers = sum(getattr(matrix, "nnz", matrix.size) for matrix in encoder.transform_blocks(blocks))
        ended = time.perf_counter()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        lines = [
            f"onepos: {given.rows} rows x {encoder.n_features_in_} columns -> {encoder.n_outputs_} numbers, {numbers} "
            f"of them stored; read and fit {fitted - started:.0f} s, read and transform {ended - fitted:.0f} s, "
            f"peak {peak:.2f} GiB"
        ]
        print(lines[0], flush=True)
        if given.skrub:
            found = subprocess.run([given.skrub, "-c", SKRUB, str(file)], check=True, capture_output=True, text=True)
            lines.append(found.stdout.strip())
            print(lines[1])
    if given.out is not None:
        assert __doc__ is not None
        title, command, rest = __doc__.split("\n\n")
        page = [f"# {title}", "```", command, "```", rest.strip(), "```", "\n".join(lines), "```"]
        write_atomically(given.out, "\n\n".join(page).replace("```\n\n", "```\n").replace("\n\n```", "\n```") + "\n")


if __name__ == "__main__":
    main()
