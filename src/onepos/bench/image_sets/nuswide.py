"""NUS-WIDE with its 81 concepts, in three layouts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from onepos.bench.image_sets.lists import Benchmark, bad_line, numbered_lines
from onepos.datasets.dataset import Labels
from onepos.datasets.files import check_file, naming
from onepos.images.readers import ImageDataset, Part, check_images, join_parts

_VARIANTS: dict[tuple[int, ...], str] = {
    (161789, 107859): "the original NUS-WIDE of 2009, of which many images are no longer on Flickr",
    (10000, 5000): "the lists of a hashing benchmark",
}
_BENCHMARK = Benchmark("NUS-WIDE", 81, "labels", {"train": 150000, "test": 60260}, _VARIANTS)


def read_nuswide(root: str | os.PathLike[str], *, strict: bool = True, check_files: bool = True) -> ImageDataset:
    r"""Read NUS-WIDE; rows without a positive label are kept (22 % of the benchmark), `describe` counts them.

    The folder holds one of

    - `formatted_{train,val}_{images,labels}.npy`, the label matrices of the published benchmark, images in `Flickr`;
    - `ImageList/{Train,Test}Imagelist.txt` and `Groundtruth/TrainTestLabels/Labels_<concept>_{Train,Test}.txt`, the
      original lists, images in `Flickr`;
    - `train.txt` and `test.txt` (also gzipped): a path and 81 times 0 or 1 per line.

    Rows keep their order. Columns of the original lists are in the alphabetical order of the concepts, otherwise as in
    the file; their names come from `Concepts81.txt` (also in `ConceptsList`) where it is there. With `strict` there
    must be exactly the labels and images of the benchmark, with `check_files` every file.
    """
    folder = Path(root)
    names = _read_concepts(folder)
    if (folder / "formatted_train_labels.npy").exists():
        parts = {part: _read_formatted(folder, name) for part, name in (("train", "train"), ("test", "val"))}
    elif (folder / "ImageList").is_dir():
        names = _find_concepts(folder, names)
        parts = {part: _read_original(folder, part.capitalize(), names) for part in ("train", "test")}
    else:
        parts = {part: _read_list(_find_list(folder, part)) for part in ("train", "test")}
    parts = {part: ([path.replace("\\", "/") for path in paths], Y) for part, (paths, Y) in parts.items()}
    n_labels = parts["train"][1].shape[1]
    if parts["test"][1].shape[1] != n_labels:
        raise ValueError(f"{folder}: train and test must have the same labels; they have not. Get the files again.")
    names = names or [f"concept{column}" for column in range(n_labels)]
    if check_files:
        for part, (paths, _) in parts.items():
            check_images(folder, paths, f"the {part} list", lambda row: f"entry {row}")
    if strict:
        _BENCHMARK.check(folder, parts)
    return join_parts("nuswide", folder, parts, names, "NUS-WIDE, 81 concepts")


def _read_formatted(folder: Path, name: str) -> Part:
    labels_path, images_path = (check_file(folder / f"formatted_{name}_{what}.npy") for what in ("labels", "images"))
    with naming(labels_path):
        Y = np.load(labels_path, allow_pickle=False)
    with naming(images_path, "Store the names as text: np.array(names, dtype=str)."):
        images = np.load(images_path, allow_pickle=False)
    if Y.ndim != 2 or images.ndim != 1 or len(Y) != len(images):
        raise ValueError(
            f"{labels_path.name} must have one row per name in {images_path.name}; the shapes are {Y.shape} and "
            f"{images.shape}. Get both again."
        )
    if not np.isin(Y, (0, 1)).all():
        row, column = np.argwhere(~np.isin(Y, (0, 1)))[0]
        raise ValueError(
            f"{labels_path.name}, row {row}, column {column}: a label must be 0 or 1; it is {Y[row, column]}. Give the "
            "full labels, not those of a draw."
        )
    return [f"Flickr/{image}" for image in images], Y.astype(np.uint8)


def _find_concepts(folder: Path, known: list[str]) -> list[str]:
    """The concepts that have lists, in alphabetical order."""
    lists = folder / "Groundtruth" / "TrainTestLabels"
    names = sorted(p.name.removeprefix("Labels_").removesuffix("_Train.txt") for p in lists.glob("Labels_*_Train.txt"))
    if not names:
        raise FileNotFoundError(f"{lists} must hold lists such as Labels_airport_Train.txt; there are none there.")
    for name in names:
        if known and name not in known:
            raise ValueError(f"{lists}: '{name}' must be a concept of Concepts81.txt; it is not. Remove its lists.")
    return names


def _read_original(folder: Path, part: str, names: list[str]) -> Part:
    paths = [f"Flickr/{line}" for _, line in numbered_lines(folder / "ImageList" / f"{part}Imagelist.txt")]
    Y = np.zeros((len(paths), len(names)), np.uint8)
    for column, name in enumerate(names):
        path = folder / "Groundtruth" / "TrainTestLabels" / f"Labels_{name}_{part}.txt"
        values = []
        for number, line in numbered_lines(path):
            if line not in ("0", "1"):
                raise bad_line(path, number, "a line must be 0 or 1", line)
            values.append(line == "1")
        if len(values) != len(paths):
            raise ValueError(
                f"{path.name} must have a line per image of {part}Imagelist.txt, {len(paths)}; it has {len(values)}. "
                "It was cut off or belongs to another list; get it again."
            )
        Y[:, column] = values
    return paths, Y


def _find_list(folder: Path, part: str) -> Path:
    for name in (f"{part}.txt", f"{part}.txt.gz"):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"NUS-WIDE must have formatted_train_labels.npy, ImageList or {part}.txt; {folder} has none of them. Give the "
        "folder that holds one."
    )


def _read_list(path: Path) -> Part:
    paths: list[str] = []
    rows: list[Labels] = []
    for number, line in numbered_lines(path):
        image, *flags = line.split()
        if not flags or (rows and len(flags) != len(rows[0])) or set(flags) - {"0", "1"}:
            raise bad_line(path, number, "a line must hold a path and as many 0 or 1 as the first line", line)
        paths.append(image)
        rows.append(np.array(flags, np.uint8))
    if not rows:
        raise ValueError(f"{path.name} must hold at least one line; it is empty. Get the file again.")
    return paths, np.stack(rows)


def _read_concepts(folder: Path) -> list[str]:
    for path in (folder / "Concepts81.txt", folder / "ConceptsList" / "Concepts81.txt"):
        if path.is_file():
            return [line for _, line in numbered_lines(path)]
    return []
