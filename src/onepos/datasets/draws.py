"""The draw on disk: which positive label of each row is observed.

A JSON file: `gamma` holds the column of the observed label per row, -1 where there is none; `sha256` is taken over
`gamma` as little-endian 32-bit integers, so a hand-edited or damaged draw does not pass for the original.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onepos.datasets.files import check_file, naming
from onepos.files import write_atomically
from onepos.reading import check_size
from onepos.validation import Indicator, check_indicator, one_hot

FORMAT = 1


def save_draw(path: str | Path, observed: npt.ArrayLike, *, how: str, seed: int | None) -> Path:
    """Write a single-positive draw.

    Args:
        path: File to write; replaced at once, never half-written.
        observed: (n, c), at most one 1 per row.
        how: How it was drawn, for example "uniform".
        seed: Seed of the draw; None when it is not known.
    """
    marks = check_indicator(observed, "observed", allow_empty=False)
    per_row = marks.sum(axis=1, dtype=np.int64)
    if (per_row > 1).any():
        row = int(np.argmax(per_row > 1))
        raise ValueError(
            f"observed must hold at most one positive per row; row {row} holds {per_row[row]}. "
            "Draw one with draw_single_positive()."
        )
    gamma = np.where(per_row == 1, marks.argmax(axis=1), -1)
    content = {
        "format": FORMAT,
        "n_samples": marks.shape[0],
        "n_labels": marks.shape[1],
        "how": how,
        "seed": seed,
        "sha256": _digest(gamma),
        "gamma": gamma.tolist(),
    }
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(path, json.dumps(content))


def load_draw(path: str | Path, Y: npt.ArrayLike | None = None) -> Indicator:
    """Read a draw back as an (n, c) indicator.

    Args:
        path: File written by `save_draw`.
        Y: Full labels; when given, every observed label must be a true one.
    """
    path = check_file(Path(path))
    with naming(path, "Draw again and save it."):
        gamma, n_labels = _check_content(path, json.loads(path.read_bytes()))
        check_size(path, len(gamma) * n_labels)
        observed = one_hot(gamma, n_labels)
    if Y is not None:
        _check_against(path, observed, np.asarray(Y))
    return observed


def _digest(gamma: npt.NDArray[Any]) -> str:
    return hashlib.sha256(gamma.astype("<i4").tobytes()).hexdigest()


def _check_content(path: Path, content: Any) -> tuple[npt.NDArray[np.int64], int]:
    if not isinstance(content, dict) or "format" not in content:
        raise ValueError(f"{path.name} must be a draw written by save_draw(); it is not. Give another file.")
    if content["format"] != FORMAT:
        raise ValueError(
            f"{path.name} must have draw format {FORMAT}; it has {content['format']!r}. Update onepos to read it."
        )
    values: list[Any] = [content.get(key) for key in ("n_samples", "n_labels", "gamma")]
    n_samples, n_labels, gamma = values
    if not isinstance(gamma, list) or any(type(number) is not int for number in (n_samples, n_labels, *gamma)):
        raise ValueError(
            f"{path.name} must hold n_samples, n_labels and gamma as whole numbers; it does not. Draw again."
        )
    if not len(gamma) == n_samples > 0 < n_labels or not all(-1 <= column < n_labels for column in gamma):
        raise ValueError(
            f"{path.name} must hold {n_samples} columns between -1 and {n_labels - 1} in gamma; it does not. "
            "Draw again."
        )
    array = np.array(gamma, dtype=np.int64)
    if _digest(array) != content.get("sha256"):
        raise ValueError(
            f"{path.name} has checksum {_digest(array)[:12]}…; expected {str(content.get('sha256'))[:12]}…. "
            "It was changed after it was drawn; draw again or restore it."
        )
    return array, int(n_labels)


def _check_against(path: Path, observed: Indicator, Y: npt.NDArray[Any]) -> None:
    if Y.shape != observed.shape:
        raise ValueError(
            f"{path.name} must fit Y; it is for {observed.shape[0]} rows and {observed.shape[1]} labels, Y has "
            f"{' × '.join(map(str, Y.shape))}. Use the draw of this data set."
        )
    wrong = np.argwhere((observed == 1) & (Y != 1))
    if len(wrong):
        row, column = wrong[0]
        raise ValueError(
            f"{path.name} must hold only true labels; row {row} holds label {column}, which Y does not hold. "
            "Use the draw of this data set, with its rows in the same order."
        )
