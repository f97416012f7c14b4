"""Which functions a fit runs through: `onepos fit items.csv` from the file to the model folder.

    python research/scripts/trace_fit.py [ARGUMENTS OF onepos fit]

One line per function of onepos, as module.function, in the order of the first call. Without arguments a small CSV is
written to a temporary folder and fitted. The table of the architecture page is made from this list.
"""

from __future__ import annotations

import inspect
import sys
import tempfile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import onepos
from onepos.cli import main

ROOT = Path(onepos.__file__).parent


def trace(arguments: list[str]) -> list[str]:
    """The functions of onepos that `onepos ARGUMENTS` calls, each once, in the order of the first call."""
    seen: dict[CodeType, str] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        is_function = code.co_flags & inspect.CO_OPTIMIZED and "<" not in code.co_name  # not the body of a class
        if event == "call" and code not in seen and is_function and path.is_relative_to(ROOT):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            seen[code] = f"{module}.{code.co_qualname.replace('.<locals>', '')}"

    sys.setprofile(note)
    try:
        main(arguments)
    except SystemExit as stop:
        if stop.code:
            raise
    finally:
        sys.setprofile(None)
    return list(dict.fromkeys(seen.values()))


def write_items(path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    lines = [f"{a:.3f},{b:.3f},{c:.3f},{'xyz'[int(np.argmax((a, b, c)))]}" for a, b, c in X]
    path.write_text("\n".join(["a,b,c,category", *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    given = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        if not given:
            write_items(Path(folder) / "items.csv")
            given = [f"{folder}/items.csv", "--label", "category", "--method", "an", "--epochs", "1", "--quiet"]
            given += ["--out", f"{folder}/model"]
        print("\n".join(trace(["fit", *given])))
