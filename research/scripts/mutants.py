"""Do the tests bite? Small faults are put into a copy of the package; each must make its test file fail.

    python research/scripts/mutants.py

Prints a table and exits with 1 if a fault goes unnoticed. A fault replaces a text that must occur exactly once, so a
mutant whose line has changed is an error, not a silent pass; and the tests must pass on a copy without any fault.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Mutant(NamedTuple):
    """A fault: `old` becomes `new` in `file` (below src/onepos); `tests` must fail, of these only `select`."""

    about: str
    file: str
    old: str
    new: str
    tests: str
    select: str = ""


LOWER, UPPER = "(q - eps) / (q_pos + eps_pos)", "np.divide(q + eps, least"
ENDS = {
    "lower end without ε_n": (LOWER, "q / (q_pos + eps_pos)"),
    "lower end without ε_nj": (LOWER, "(q - eps) / q_pos"),
    "upper end without ε_n": (UPPER, "np.divide(q, least"),
    "upper end without ε_nj": ("np.maximum(q_pos - eps_pos, 0)", "np.maximum(q_pos, 0)"),
}
LOWEST, HIGHEST = "betaincinv(count, total - count + 1, delta / 4 / total)", "betainccinv(count + 1, below,"
BETA = {
    "beta: qᵖ not for all thresholds at once": (LOWEST, "betaincinv(count, total - count + 1, delta / 4)"),
    "beta: qᵖ of the next positive": (LOWEST, "betaincinv(count + 1, np.maximum(total - count, 1), delta / 4 / total)"),
    "beta: q as if z were the last row's score": (HIGHEST, "betainccinv(np.maximum(count, 1), below + 1,"),
}
BEST_BIN, PRIORS = "priors/best_bin.py", "tests/test_priors.py"

MUTANTS = [
    *(Mutant(about, BEST_BIN, *fault, PRIORS, "by_their_formulas") for about, fault in ENDS.items()),
    *(Mutant(f"{about}, by coverage", BEST_BIN, *fault, PRIORS, "interval_holds") for about, fault in ENDS.items()),
    *(Mutant(about, BEST_BIN, *fault, PRIORS, "beta_equals") for about, fault in BETA.items()),
    *(Mutant(f"{about}, by coverage", BEST_BIN, *fault, PRIORS, "beta_bounds") for about, fault in BETA.items()),
    Mutant(
        "beta: q̂ for its bound in the choice of ẑ",
        BEST_BIN,
        "return _highest_share(bins.rows, bins.n, delta) /",
        "return bins.q /",
        PRIORS,
    ),
    Mutant("beta: reliable from q̂ᵖ", BEST_BIN, ">= bins.q_pos / 2", ">= bins.q_pos / 4", PRIORS, "beta_equals"),
    Mutant("reliable: qᵖ for its square", BEST_BIN, "* q_pos**2 >=", "* q_pos >=", PRIORS),
    Mutant(
        "large loss: k not rounded",
        "methods/large_loss.py",
        "math.ceil(round(n_entries * share, 9))",
        "math.ceil(n_entries * share)",
        "tests/methods/test_large_loss.py",
    ),
    Mutant(
        "EM-APL: T − 1 rounds at warmup 0",
        "methods/em_apl.py",
        "(train.n_epochs - self.warmup)",
        "(train.n_epochs - max(self.warmup, 1))",
        "tests/methods/test_em_apl.py",
    ),
    Mutant(
        "MIME: ceiling for floor",
        "methods/mime.py",
        "math.floor(round(n / self",
        "math.ceil(round(n / self",
        "tests/methods/test_mime.py",
    ),
    Mutant(
        "MIME: as published without alternation",
        "methods/mime.py",
        "candidates &= ~self.ignored",
        "candidates &= True",
        "tests/methods/test_mime.py",
    ),
    Mutant(
        "AN-LS: no smoothing",
        "methods/an_ls.py",
        "self.smoothing + (1 - 2 * self.smoothing) * batch.observed",
        "batch.observed",
        "tests/methods/test_an_ls.py",
        "by_hand",
    ),
    Mutant(
        "AN-LS: smoothing of positives only",
        "methods/an_ls.py",
        "self.smoothing + (1 - 2 * self.smoothing) * batch.observed",
        "(1 - self.smoothing) * batch.observed",
        "tests/methods/test_an_ls.py",
        "by_hand",
    ),
    Mutant(
        "label attention: no last normalization",
        "methods/heads.py",
        "normed: Tensor = self.norm(labels)",
        "normed: Tensor = labels",
        "tests/methods/test_heads.py",
    ),
    Mutant(
        "label attention: q, k, v √2 too wide",
        "methods/heads.py",
        "gain=math.sqrt(0.5)",
        "gain=1.0",
        "tests/methods/test_heads.py",
    ),
    Mutant(
        "half precision: no gradient",
        "methods/heads.py",
        "return tensor.float() if",
        "return tensor.float().detach() if",
        "tests/methods/test_plc.py",
        "half_precision",
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run the mutants whose description contains this text")
    chosen = [mutant for mutant in MUTANTS if parser.parse_args().only in mutant.about]
    print("| fault | tests | outcome |\n|---|---|---|")
    for mutant in {(mutant.tests, mutant.select): mutant for mutant in chosen}.values():
        if fails(mutant._replace(new=mutant.old)):
            raise RuntimeError(f"{mutant.tests} must pass without a fault; it fails. Mend it first.")
    survived = 0
    for mutant in chosen:
        killed = fails(mutant)
        survived += not killed
        outcome = "killed" if killed else "**survived**"
        print(f"| {mutant.about} | {mutant.tests} {mutant.select} | {outcome} |", flush=True)
    print(f"\n{len(chosen) - survived} of {len(chosen)} killed")
    sys.exit(bool(survived))


def fails(mutant: Mutant) -> bool:
    """Whether the tests fail on a copy with the fault."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        file = source / "onepos" / mutant.file
        text = file.read_text(encoding="utf-8")
        if text.count(mutant.old) != 1:
            raise ValueError(
                f"{mutant.old!r} must occur once in {mutant.file}; it occurs {text.count(mutant.old)} times."
            )
        file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", mutant.tests]
        command += ["-k", mutant.select] if mutant.select else []
        settings = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # 2 to 5: pytest could not run these tests
        raise RuntimeError(f"the tests of {mutant.about!r} did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 1


if __name__ == "__main__":
    main()
