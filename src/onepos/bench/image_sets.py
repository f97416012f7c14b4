"""The image benchmarks: their official layouts on disk, and the split and draw that published results share."""

from __future__ import annotations

import json
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onepos.datasets.files import check_file, naming, open_binary
from onepos.datasets.loading import data_root
from onepos.datasets.npz import open_archive
from onepos.images.readers import ImageDataset, Part, check_images, join_parts
from onepos.protocol import cole_split, draw_single_positive
from onepos.reading import check_size
from onepos.validation import Indicator, check_known, suggest


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


Reader = Callable[..., ImageDataset]


def _naming_root(read: Reader) -> Reader:
    """A reader of a folder, whose errors name the folder where they name no file in it."""

    @wraps(read)
    def reader(root: str | os.PathLike[str], *more: Any, **options: Any) -> ImageDataset:
        with naming(root):
            return read(root, *more, **options)

    return reader


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
        found = {part: len(Y) for part, (_, Y) in parts.items()}
        if found == dict(self.rows):
            return
        counts = tuple(found.get(part, 0) for part in self.rows)
        which = f", which is {self.variants[counts]}" if counts in self.variants else ""
        wanted, got = (" and ".join(f"{count} {part}" for part, count in rows.items()) for rows in (self.rows, found))
        raise ValueError(
            f"{self.name} must have {wanted} rows, as in the published benchmark; {root} has {got}{which}. "
            "Give the published variant, or pass strict=False to use this one as it is."
        )


# PASCAL VOC 2012: in its official layout, or scaled down in a ZIP archive beside an archive of labels

# fmt: off
CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on
_VOC = Benchmark(
    "VOC 2012",
    len(CLASSES),
    "classes",
    {"train": 5717, "test": 5823},
    {
        (2501, 2510): "VOC 2007 (train and val)",
        (5011, 4952): "VOC 2007 (trainval and test)",
    },
)
_VOC_LISTS = {"train": "train", "test": "val"}  # the official val images are the test images of the benchmark


@_naming_root
def read_voc(root: str | os.PathLike[str], *, strict: bool = True, check_files: bool = True) -> ImageDataset:
    """Read VOC 2012 as the published single-positive benchmark does.

    A label is positive where its flag is 1; "difficult" (0) counts as absent. An image is kept if it has a positive
    label. Classes are in alphabetical order and images in that of their names: the published draw depends on both.
    `root` holds `VOCdevkit`, or is that folder, or `VOC2012`. With `strict` there must be exactly the classes and
    images of the benchmark, with `check_files` every file.
    """
    folder = find_root(root, "ImageSets/Main", ("VOCdevkit/VOC2012", "VOC2012"), "VOC 2012")
    lists = folder / "ImageSets" / "Main"
    classes = _find_voc_classes(lists, strict)
    parts = {}
    for part, ending in _VOC_LISTS.items():
        flags, lines = _read_voc_flags(lists, classes, ending)
        names = sorted(name for name, row in flags.items() if row.any())
        paths = [f"JPEGImages/{name}.jpg" for name in names]
        if not names:
            raise ValueError(f"{lists} must list images with flag 1; the lists *_{ending}.txt have none. Check them.")
        if check_files:
            places = [f"line {lines[name]}" for name in names]
            check_images(folder, paths, f"{classes[0]}_{ending}.txt", places.__getitem__)
        parts[part] = paths, np.stack([flags[name] for name in names])
    if strict:
        _VOC.check(folder, parts)
    return join_parts("voc", folder, parts, classes, "PASCAL VOC 2012, ImageSets/Main")


def _find_voc_classes(lists: Path, strict: bool) -> list[str]:
    """The classes that have both lists."""
    matches = [re.fullmatch(r"(.+)_(train|val)\.txt", path.name) for path in lists.iterdir()]
    found = {match.groups() for match in matches if match}
    classes = sorted({name for name, _ in found})
    for name in (*classes, *(CLASSES if strict else ())):
        if strict and name not in CLASSES:
            raise ValueError(
                f"{lists}: '{name}' is not a class of VOC 2012; {suggest(name, CLASSES)} Remove its lists, or pass "
                "strict=False to read other classes."
            )
        for ending in _VOC_LISTS.values():
            if (name, ending) not in found:
                raise FileNotFoundError(f"there is no file {lists / f'{name}_{ending}.txt'}. Extract the lists again.")
    if not classes:
        raise FileNotFoundError(f"{lists} must hold lists such as cat_train.txt; it holds none. Check the folder.")
    return classes


def _read_voc_flags(lists: Path, classes: list[str], ending: str) -> tuple[dict[str, Indicator], dict[str, int]]:
    """Per image one 0/1 row, and its line in the first list.

    Every list of a part must name the same images, or one of them was cut off.
    """
    rows: dict[str, Indicator] = {}
    lines: dict[str, int] = {}
    for column, name in enumerate(classes):
        path = lists / f"{name}_{ending}.txt"
        seen = 0
        for number, line in numbered_lines(path):
            words = line.split()
            if len(words) != 2 or words[1] not in ("-1", "0", "1"):
                raise bad_line(path, number, "a line must hold an image and a flag (-1, 0 or 1)", line)
            if column == 0 and words[0] in rows:
                raise bad_line(path, number, "an image must be listed once", line, "Remove the second line.")
            if column > 0 and words[0] not in rows:
                raise bad_line(path, number, f"an image must be in {classes[0]}_{ending}.txt too", line)
            row = rows.setdefault(words[0], np.zeros(len(classes), np.uint8))
            row[column] = words[1] == "1"
            lines.setdefault(words[0], number)
            seen += 1
        if seen != len(rows):
            raise ValueError(
                f"{path.name} must list the {len(rows)} images of {classes[0]}_{ending}.txt; it lists {seen}. "
                "It was cut off or has lines twice; get it again."
            )
    return rows, lines


@_naming_root
def read_voc_archive(
    labels: str | os.PathLike[str],
    images: Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    suffix: str = "",
) -> ImageDataset:
    """Read the labels (NPZ), and unpack the images (one ZIP or several) into `folder`, which gives the data its name.

    Classes are in alphabetical order and images in that of the archive of labels, as `read_voc` has them. That archive
    holds `class_names`, and for train and val `Y_…` and `…_images`. Where it holds `train_obs_sizebiased_idx`, these
    are the observed labels of the train rows. The folder appears when it is complete; if it is there, nothing is
    unpacked.

    Args:
        labels: The archive of labels.
        images: The archives of images, each with `train/<name>` and `val/<name>`.
        folder: Where the images are unpacked.
        suffix: In place of that of the names in the archive of labels, such as ".webp".
    """
    label_path, image_paths = check_file(Path(labels)), [check_file(Path(path)) for path in images]
    with open_archive(label_path) as archive:
        order = np.argsort(archive["class_names"])
        names = archive["class_names"][order].tolist()
        parts = {
            part: ([f"{theirs}/{name}" for name in archive[f"{theirs}_images"]], archive[f"Y_{theirs}"][:, order])
            for part, theirs in _VOC_LISTS.items()
        }
        drawn = order.argsort()[archive[_SIZE_BIASED]] if _SIZE_BIASED in archive else None
    if suffix:
        parts = {
            part: ([f"{path.rpartition('.')[0]}{suffix}" for path in paths], Y) for part, (paths, Y) in parts.items()
        }
    if not Path(folder).is_dir():
        _unpack(image_paths, [path for paths, _ in parts.values() for path in paths], Path(folder))
    source = ", ".join(path.name for path in (*image_paths, label_path))
    data = join_parts(Path(folder).name, folder, parts, names, source)
    if drawn is None:
        return data
    observed = np.zeros_like(data.Y)
    observed[np.arange(len(drawn)), drawn] = 1
    return replace(data, observed=observed)


_SIZE_BIASED = "train_obs_sizebiased_idx"  # of each train image a label, of large objects more often


def _unpack(archives: Sequence[Path], names: Sequence[str], folder: Path) -> None:
    """Unpack these files, each from the archive that holds it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        whole, left = Path(beside) / folder.name, dict.fromkeys(names)
        for archive in archives:
            with naming(archive), zipfile.ZipFile(archive) as packed:
                here = [name for name in packed.namelist() if name in left]
                check_size(archive, sum(packed.getinfo(name).file_size for name in here))
                packed.extractall(whole, here)
            left = {name: None for name in left if name not in set(here)}
        if left:
            raise ValueError(
                f"{', '.join(path.name for path in archives)} must hold every image that is listed; {next(iter(left))} "
                f"is not there, nor are {len(left) - 1} others. Get the archives again."
            )
        with suppress(OSError):  # another process was quicker
            whole.rename(folder)


# MS-COCO 2014: `annotations/instances_{train,val}2014.json`, `train2014` and `val2014`

_COCO = Benchmark(
    "COCO 2014",
    80,
    "categories",
    {"train": 82081, "test": 40137},
    {
        (82783, 40504): "COCO 2014 with the images that have no annotation",
        (117266, 4952): "COCO 2017",
    },
)
_COCO_FOLDERS = {
    "train": "train2014",
    "test": "val2014",
}  # the official val images are the test images of the benchmark
# What is kept of an annotation file; the outlines of the objects, most of the file, are dropped as they are read.
_COCO_KEPT = {"images", "categories", "annotations", "id", "file_name", "name", "image_id", "category_id"}


@_naming_root
def read_coco(root: str | os.PathLike[str], *, strict: bool = True, check_files: bool = True) -> ImageDataset:
    """Read COCO 2014 as the published single-positive benchmark does.

    A label is positive where the image has an annotation of that category, crowds included. Images without any
    annotation are left out. Classes are in the order of the annotation file, images in that of their ids sorted *as
    text* ("1000" before "9"): the published draw depends on both. Reading takes twice the memory of the larger file.
    With `strict` there must be exactly the classes and images of the benchmark, with `check_files` every file.
    """
    folder = find_root(root, "annotations", ("coco", "COCO"), "COCO 2014")
    parts = {}
    classes: dict[int, str] = {}
    for part, images in _COCO_FOLDERS.items():
        path = folder / "annotations" / f"instances_{images}.json"
        content = _read_instances(path)
        of_part = _by_id(path, content, "categories", "name")
        if classes and list(classes.items()) != list(of_part.items()):
            raise ValueError(
                f"{path.name} must list the same categories as the train file; it does not. Get both again."
            )
        classes = of_part
        ids, parts[part] = _label_coco(path, content, classes, images)
        if check_files:
            check_images(folder, parts[part][0], path.name, [f"image {number}" for number in ids].__getitem__)
    if strict:
        _COCO.check(folder, parts, "the annotation files have")
    return join_parts("coco", folder, parts, list(classes.values()), "MS-COCO 2014, instances")


def _read_instances(path: Path) -> dict[str, Any]:
    with naming(check_file(path)):
        try:
            content = json.loads(
                path.read_bytes(),
                object_pairs_hook=lambda pairs: {key: value for key, value in pairs if key in _COCO_KEPT},
            )
        except json.JSONDecodeError as error:
            # The cut may be inside a text, an escape (six characters) or a word such as `true`.
            is_cut = error.msg.startswith("Unterminated") or len(error.doc) - error.pos < 6
            found = "the end of the file: it was cut off" if is_cut else f"'{error.doc[error.pos : error.pos + 20]}'"
            raise ValueError(
                f"{path.name}, character {error.pos}: the JSON must go on ({error.msg}); there is {found}. "
                "Get the file again."
            ) from None
    for name in ("images", "categories", "annotations"):
        if not isinstance(content, Mapping) or not isinstance(content.get(name), list) or not content[name]:
            raise ValueError(f"{path.name} must hold a list '{name}'; it holds none. Give an instances file of COCO.")
    return dict(content)


def _by_id(path: Path, content: dict[str, Any], name: str, key: str) -> dict[int, str]:
    """Images or categories: id → text."""
    ids = _column(path, content, name, "id", int)
    return dict(zip(ids, _column(path, content, name, key, str), strict=True))


def _column(path: Path, content: dict[str, Any], name: str, key: str, kind: type) -> list[Any]:
    """One entry of each element of a list."""
    values = [element.get(key) if isinstance(element, Mapping) else None for element in content[name]]
    for place, value in enumerate(values):
        if type(value) is not kind:
            what = "a whole number" if kind is int else "text"
            raise ValueError(
                f"{path.name}, {name}[{place}]: there must be {what} as '{key}'; it is {value!r}. Get the file again."
            )
    return values


def _label_coco(path: Path, content: dict[str, Any], classes: dict[int, str], folder: str) -> tuple[list[int], Part]:
    """The ids of the labelled images, their paths and labels."""
    files = _by_id(path, content, "images", "file_name")
    images, categories = (_column(path, content, "annotations", f"{what}_id", int) for what in ("image", "category"))
    ids = sorted(set(images), key=str)
    for what, numbers, known in (("category", categories, classes), ("image", images, files)):
        place = next((place for place, number in enumerate(numbers) if number not in known), None)
        if place is not None:
            raise ValueError(
                f"{path.name}, annotations[{place}]: an annotation must be of a listed {what}; it is of {what} "
                f"{numbers[place]}. Get the file again."
            )
    check_size(path, len(ids) * len(classes))
    Y = np.zeros((len(ids), len(classes)), np.uint8)
    row_of, column_of = ({number: place for place, number in enumerate(known)} for known in (ids, classes))
    Y[[row_of[image] for image in images], [column_of[category] for category in categories]] = 1
    return ids, ([f"{folder}/{files[image]}" for image in ids], Y)


# CUB-200-2011 with its 312 attributes as labels

_CUB = Benchmark(
    "CUB-200-2011", 312, "attributes", {"train": 5994, "test": 5794}, {(3000, 3033): "the older CUB-200 of 2010"}
)
_UNKNOWN = 255


@_naming_root
def read_cub(root: str | os.PathLike[str], *, strict: bool = True, check_files: bool = True) -> ImageDataset:
    """Read CUB-200-2011 as the published single-positive benchmark does.

    A label is an attribute with `is_present`, whatever its certainty. Images and attributes are in the order of their
    lists. `root` holds `CUB_200_2011` (and `attributes.txt`, as the archive has it), or is that folder. With `strict`
    there must be exactly the attributes and images of the benchmark, with `check_files` every file.
    """
    folder = find_root(root, "images.txt", ("CUB_200_2011", "CUB_200_2011/CUB_200_2011"), "CUB-200-2011")
    images = _read_numbered(folder / "images.txt")
    names = _read_numbered(_find_cub_attributes(folder))
    in_train = _read_cub_split(folder / "train_test_split.txt", images)
    paths = [f"images/{path}" for path in images.values()]
    if check_files:
        numbers = list(images)
        check_images(folder, paths, "images.txt", lambda row: f"image {numbers[row]}")
    Y = _read_cub_labels(folder / "attributes" / "image_attribute_labels.txt", images, names)
    rows = {"train": np.flatnonzero(in_train), "test": np.flatnonzero(~in_train)}
    parts = {part: ([paths[row] for row in mine], Y[mine]) for part, mine in rows.items()}
    if strict:
        _CUB.check(folder, parts, "attributes.txt has")
    return join_parts("cub", folder, parts, list(names.values()), "CUB-200-2011, image_attribute_labels.txt")


def _find_cub_attributes(folder: Path) -> Path:
    """attributes.txt is beside the folder in the official archive, in `attributes` or the folder itself in others."""
    for path in (folder / "attributes.txt", folder.parent / "attributes.txt", folder / "attributes" / "attributes.txt"):
        if path.is_file():
            return path
    raise FileNotFoundError(f"there is no attributes.txt in {folder} or beside it. It comes with the archive.")


def _read_numbered(path: Path) -> dict[int, str]:
    """Lines of a number and a name."""
    entries: dict[int, str] = {}
    for number, line in numbered_lines(path):
        words = line.split(maxsplit=1)
        if len(words) != 2 or not words[0].isdecimal() or int(words[0]) in entries:
            raise bad_line(path, number, "a line must hold a number of its own and a name", line)
        entries[int(words[0])] = words[1]
    if not entries:
        raise ValueError(f"{path.name} must hold at least one line; it is empty. Get the file again.")
    return entries


def _read_cub_split(path: Path, images: dict[int, str]) -> np.ndarray:
    flags: dict[int, bool] = {}
    for number, line in numbered_lines(path):
        words = line.split()
        if len(words) != 2 or not words[0].isdecimal() or int(words[0]) not in images or words[1] not in ("0", "1"):
            raise bad_line(path, number, "a line must hold a listed image and 0 (test) or 1 (train)", line)
        flags[int(words[0])] = words[1] == "1"
    missing = [image for image in images if image not in flags]
    if missing:
        raise ValueError(f"{path.name} must name every image; image {missing[0]} is missing. Get the file again.")
    return np.array([flags[image] for image in images])


def _read_cub_labels(path: Path, images: dict[int, str], names: dict[int, str]) -> Indicator:
    """(images, attributes); a line is image, attribute, is_present, certainty, time, and a few have a word more."""
    row_of = {str(image): row for row, image in enumerate(images)}
    column_of = {str(attribute): column for column, attribute in enumerate(names)}
    value_of = {"0": 0, "1": 1}
    check_size(path, len(images) * len(names))
    Y = np.full((len(images), len(names)), _UNKNOWN, np.uint8)
    for number, line in numbered_lines(path):
        words = line.split(maxsplit=3)
        try:
            row, column, value = row_of[words[0]], column_of[words[1]], value_of[words[2]]
        except (KeyError, IndexError):
            must = "a line must hold a listed image, a listed attribute and 0 or 1"
            raise bad_line(path, number, must, line) from None
        Y[row, column] = value
    missing = np.argwhere(Y == _UNKNOWN)
    if len(missing):
        row, column = missing[0]
        raise ValueError(
            f"{path.name} must label every image; image {list(images)[row]} has no attribute {list(names)[column]} "
            f"({len(missing)} entries are missing). It was cut off; get it again."
        )
    return Y


# NUS-WIDE with its 81 concepts, in three layouts

_NUS = Benchmark(
    "NUS-WIDE",
    81,
    "labels",
    {"train": 150000, "test": 60260},
    {
        (161789, 107859): "the original NUS-WIDE of 2009, of which many images are no longer on Flickr",
        (10000, 5000): "the lists of a hashing benchmark",
    },
)


@_naming_root
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
    names = _read_nus_concepts(folder)
    if (folder / "formatted_train_labels.npy").exists():
        parts = {part: _read_nus_formatted(folder, name) for part, name in (("train", "train"), ("test", "val"))}
    elif (folder / "ImageList").is_dir():
        names = _find_nus_concepts(folder, names)
        parts = {part: _read_nus_original(folder, part.capitalize(), names) for part in ("train", "test")}
    else:
        parts = {part: _read_nus_list(_find_nus_list(folder, part)) for part in ("train", "test")}
    parts = {part: ([path.replace("\\", "/") for path in paths], Y) for part, (paths, Y) in parts.items()}
    n_labels = parts["train"][1].shape[1]
    if parts["test"][1].shape[1] != n_labels:
        raise ValueError(f"{folder}: train and test must have the same labels; they have not. Get the files again.")
    names = names or [f"concept{column}" for column in range(n_labels)]
    if check_files:
        for part, (paths, _) in parts.items():
            check_images(folder, paths, f"the {part} list", lambda row: f"entry {row}")
    if strict:
        _NUS.check(folder, parts)
    return join_parts("nuswide", folder, parts, names, "NUS-WIDE, 81 concepts")


def _read_nus_formatted(folder: Path, name: str) -> Part:
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


def _find_nus_concepts(folder: Path, known: list[str]) -> list[str]:
    """The concepts that have lists, in alphabetical order."""
    lists = folder / "Groundtruth" / "TrainTestLabels"
    names = sorted(p.name.removeprefix("Labels_").removesuffix("_Train.txt") for p in lists.glob("Labels_*_Train.txt"))
    if not names:
        raise FileNotFoundError(f"{lists} must hold lists such as Labels_airport_Train.txt; there are none there.")
    for name in names:
        if known and name not in known:
            raise ValueError(f"{lists}: '{name}' must be a concept of Concepts81.txt; it is not. Remove its lists.")
    return names


def _read_nus_original(folder: Path, part: str, names: list[str]) -> Part:
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


def _find_nus_list(folder: Path, part: str) -> Path:
    for name in (f"{part}.txt", f"{part}.txt.gz"):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"NUS-WIDE must have formatted_train_labels.npy, ImageList or {part}.txt; {folder} has none of them. Give the "
        "folder that holds one."
    )


def _read_nus_list(path: Path) -> Part:
    paths: list[str] = []
    rows: list[Indicator] = []
    for number, line in numbered_lines(path):
        image, *flags = line.split()
        if not flags or (rows and len(flags) != len(rows[0])) or set(flags) - {"0", "1"}:
            raise bad_line(path, number, "a line must hold a path and as many 0 or 1 as the first line", line)
        paths.append(image)
        rows.append(np.array(flags, np.uint8))
    if not rows:
        raise ValueError(f"{path.name} must hold at least one line; it is empty. Get the file again.")
    return paths, np.stack(rows)


def _read_nus_concepts(folder: Path) -> list[str]:
    for path in (folder / "Concepts81.txt", folder / "ConceptsList" / "Concepts81.txt"):
        if path.is_file():
            return [line for _, line in numbered_lines(path)]
    return []


# All of them by name, and the published protocol

_PUBLISHED_SEED = 1200


def _read_small_voc(folder: Path, size: int, images: Sequence[str], suffix: str = "") -> ImageDataset:
    paths = [folder / name for name in images]
    return read_voc_archive(folder / "voc2012_labels.npz", paths, image_cache() / f"voc-{size}px", suffix)


IMAGE_SETS: dict[str, Callable[[Path], ImageDataset]] = {
    "voc": read_voc,
    "coco": read_coco,
    "nuswide": read_nuswide,
    "cub": read_cub,
    "voc-128px": partial(_read_small_voc, size=128, images=["voc2012_128px.zip"]),
    "voc-256px": partial(
        _read_small_voc, size=256, images=[f"voc2012_256px_{k}of3.zip" for k in (1, 2, 3)], suffix=".webp"
    ),
}
"""By name: folder of images → data set."""


def image_cache() -> Path:
    """Where images that were unpacked or decoded are kept: `$ONEPOS_CACHE`, else `~/.cache/onepos/images`."""
    return Path(os.environ.get("ONEPOS_CACHE") or Path.home() / ".cache" / "onepos" / "images").expanduser()


def load_images(name: str, root: str | Path | None = None) -> ImageDataset:
    """Load the list of images of a data set in `IMAGE_SETS`; never touches the network.

    They are in `<root>/images/<name>`, or in `<root>/images` itself; `root` is the data folder, see `data_root`.
    """
    check_known([name], IMAGE_SETS, "unknown data set of images")
    folder = data_root(root) / "images"
    try:
        return IMAGE_SETS[name](folder / name if (folder / name).is_dir() else folder)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error} {name} is looked for in {folder}; set $ONEPOS_DATA to the folder of the data."
        ) from error


def with_published_protocol(data: ImageDataset, *, size_biased: bool = False) -> ImageDataset:
    """The data with the split and the single positives that all published image results share.

    A fifth of the official train rows becomes "val"; the single positives are drawn from the train and the test rows
    separately, each with a fresh generator, before that split. Rows without a positive get none. The data must have the
    parts "train" and "test" in `splits`, rows and classes in the order of their reader.

    Args:
        data: As its reader gives it.
        size_biased: Take the single positives that come with the data, in which large objects are more frequent.

    References:
        Cole, Mac Aodha, Lorieul, Perona, Morris, Jojic: Multi-label learning from single positive labels, CVPR 2021.
    """
    if data.splits is None or set(data.splits) != {"train", "test"}:
        found = ", ".join(data.splits or ()) or "none"
        raise ValueError(
            f"the published split divides the parts train and test; {data.name} has {found}. Split other data "
            "with onepos.train_val_test_split."
        )
    if size_biased and data.observed is None:
        raise ValueError(
            f'{data.name} must come with a draw for draw = "size-biased"; it has none. voc-256px has one; for other '
            'data write "published" or "fixed".'
        )
    observed = np.zeros_like(data.Y)
    for rows in data.splits.values():
        observed[rows] = draw_single_positive(data.Y[rows], _PUBLISHED_SEED, how="cole")
    official = data.splits["train"]
    parts = cole_split(len(official), _PUBLISHED_SEED)
    splits = {"train": official[parts.train], "val": official[parts.val], "test": data.splits["test"]}
    return replace(data, splits=splits, observed=data.observed if size_biased else observed)
