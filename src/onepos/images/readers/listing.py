"""Lists of images: their type, and whether the files are there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from onepos.datasets.dataset import Labels

Part: TypeAlias = tuple[list[str], Labels]
"""Paths, relative to the root of the data, and the labels of each."""


def check_images(root: Path, paths: Sequence[str], list_name: str, place: Callable[[int], str]) -> None:
    """Raise an error that names the first missing image of a list; each folder is listed once.

    `place` gives the place of a path in the file `list_name`, such as "line 7".
    """
    split = [os.path.split(path) for path in paths]
    present = {folder: _list(os.path.join(root, folder)) for folder in {folder for folder, _ in split}}
    missing = [row for row, (folder, name) in enumerate(split) if name not in present[folder]]
    if missing:
        more = f" ({len(missing)} of {len(paths)} images are missing)" if len(missing) > 1 else ""
        raise FileNotFoundError(
            f"{list_name}, {place(missing[0])}: the image must be there; {paths[missing[0]]} is not in "
            f"{root}{more}. Extract the images there, or pass check_files=False to read the labels alone."
        )


def _list(folder: str) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return set()
