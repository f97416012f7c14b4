"""What the readers of image lists share: numbered lines, files that must be there, counts that must be right."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from onepos.datasets.dataset import Labels
from onepos.datasets.files import check_file, naming, open_binary

Part: TypeAlias = tuple[list[str], Labels]
"""Paths, relative to the root of the data, and the labels of each."""


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file (also gzipped) that are not blank, stripped, with their numbers from 1."""
    with naming(check_file(path)), open_binary(path) as handle:
        for number, line in enumerate(handle, start=1):
            if text := line.decode().strip():
                yield number, text


def bad_line(path: Path, number: int, must: str, found: str, advice: str = "Get the file again.") -> ValueError:
    """An error that names which line of a list is wrong."""
    return ValueError(f"{path.name}, line {number}: {must}; it is '{found[:60]}'. {advice}")


def find_root(root: str | os.PathLike[str], inside: str, folders: Sequence[str], name: str) -> Path:
    """The folder that holds `inside`: `root` itself or one of `folders` below it."""
    tried = [Path(root) / folder for folder in ("", *folders)]
    for folder in tried:
        if (folder / inside).exists():
            return folder
    raise FileNotFoundError(
        f"{name} must hold {inside}; it is neither in {root} nor in {', '.join(folders)} below it. "
        f"Give the folder into which {name} was extracted."
    )


def check_images(
    root: Path, paths: Sequence[str], list_name: str, unit: str, places: Sequence[int] | Callable[[int], int]
) -> None:
    """Raise an error that names the first missing image of a list; each folder is listed once.

    `places` gives the place of each path in the file `list_name`, counted in `unit`, for example "line".
    """
    split = [os.path.split(path) for path in paths]
    present = {folder: _list(os.path.join(root, folder)) for folder in {folder for folder, _ in split}}
    missing = [row for row, (folder, name) in enumerate(split) if name not in present[folder]]
    if missing:
        more = f" ({len(missing)} of {len(paths)} images are missing)" if len(missing) > 1 else ""
        place = places(missing[0]) if callable(places) else places[missing[0]]
        raise FileNotFoundError(
            f"{list_name}, {unit} {place}: the image must be there; {paths[missing[0]]} is not in "
            f"{root}{more}. Extract the images there, or pass check_files=False to read the labels alone."
        )


def check_counts(
    name: str,
    root: Path,
    found: Mapping[str, int],
    expected: Mapping[str, int],
    variants: Mapping[tuple[int, ...], str],
) -> None:
    """Refuse rows per part that are not those of the published benchmark.

    The error names the variant where it is one of `variants`, whose counts are in the order of `expected`.
    """
    if dict(found) == dict(expected):
        return
    counts = tuple(found.get(part, 0) for part in expected)
    which = f", which is {variants[counts]}" if counts in variants else ""
    wanted, got = (" and ".join(f"{count} {part}" for part, count in rows.items()) for rows in (expected, found))
    raise ValueError(
        f"{name} must have {wanted} rows, as in the published benchmark; {root} has {got}{which}. "
        "Give the published variant, or pass strict=False to use this one as it is."
    )


def _list(folder: str) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return set()
