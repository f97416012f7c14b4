"""What a checkpoint saves when a fit is killed while it prepares.

    python research/scripts/resume_cost.py [--rows 10000]

Fits linear synthetic rows (50 features, 100 labels) three times by the command line: to the end; killed (SIGKILL) when
the last step of the preparation begins; and again with the same checkpoint. Prints the seconds of each, and whether
the model is the same as that of the fit that was left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from baselines import linear_rows

from onepos import draw_single_positive

LAST_STEP = "preparing, neighbours"


def fit(folder: Path, out: str, checkpoint: str, kill_at: str | None = None) -> float:
    """Seconds of a fit, to its end or until it says that it has come to a step."""
    command = [sys.executable, "-m", "onepos", "fit", str(folder / "rows.csv"), "--label", "label"]
    command += ["--out", str(folder / out), "--checkpoint", str(folder / checkpoint)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if kill_at is not None and kill_at in line:
            process.kill()
    process.wait()
    if kill_at is None and process.returncode:
        raise RuntimeError(f"the fit ended with {process.returncode}")
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    given = parser.parse_args()
    X, Y, _, _ = linear_rows(given.rows, 0)
    label = np.asarray(draw_single_positive(Y, random_state=0)).argmax(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
        table.assign(label=[f"label {k}" for k in label]).to_csv(folder / "rows.csv", index=False)
        alone = fit(folder, "alone", "alone.pt")
        killed = fit(folder, "resumed", "killed.pt", LAST_STEP)
        resumed = fit(folder, "resumed", "killed.pt")
        files = [folder / out / "model.safetensors" for out in ("alone", "resumed")]
        same = len({hashlib.sha256(file.read_bytes()).hexdigest() for file in files}) == 1
    print(
        f"to the end {alone:.1f} s; killed after {killed:.1f} s; resumed {resumed:.1f} s, {alone - resumed:.1f} s saved"
    )
    print("the models are the same, bit for bit" if same else "the models differ")


if __name__ == "__main__":
    main()
