"""What the readers of the official layouts share: numbered lines, the folder of the data, counts that must be right."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from onepos.datasets.files import check_file, naming, open_binary
from onepos.images.readers import Part


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


class Benchmark(NamedTuple):
    """The published benchmark of a data set: how many labels and rows it has."""

    name: str
    n_labels: int
    labels: str  # what its labels are called
    rows: Mapping[str, int]  # of each part
    variants: Mapping[tuple[int, ...], str]  # counts of other versions, in the order of `rows`

    def check(self, root: Path, parts: Mapping[str, Part], where: str = "") -> None:
        """Refuse data that are not those of the published benchmark."""
        n_labels = parts["train"][1].shape[1]
        if n_labels != self.n_labels:
            raise ValueError(
                f"{self.name} must have {self.n_labels} {self.labels}; {where or f'{root} has'} {n_labels}. Give the "
                "published variant, or pass strict=False to use this one as it is."
            )
        check_counts(self.name, root, {part: len(Y) for part, (_, Y) in parts.items()}, self.rows, self.variants)


def check_counts(
    name: str,
    root: Path,
    found: Mapping[str, int],
    expected: Mapping[str, int],
    variants: Mapping[tuple[int, ...], str],
) -> None:
    """Refuse rows per part that are not the expected ones; name the variant where it is one, by its counts."""
    if dict(found) == dict(expected):
        return
    counts = tuple(found.get(part, 0) for part in expected)
    which = f", which is {variants[counts]}" if counts in variants else ""
    wanted, got = (" and ".join(f"{count} {part}" for part, count in rows.items()) for rows in (expected, found))
    raise ValueError(
        f"{name} must have {wanted} rows, as in the published benchmark; {root} has {got}{which}. "
        "Give the published variant, or pass strict=False to use this one as it is."
    )
