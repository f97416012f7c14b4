"""Readers of image trees, on small trees in the official layouts."""

import csv
import gzip
import json

import numpy as np
import pytest
from PIL import Image

from onepos.bench.image_sets import Benchmark, read_coco, read_cub, read_nuswide, read_voc
from onepos.images.readers import ImageDataset, read_folders, read_image_table


def put_image(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 3), "red").save(path)


def put_text(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


# ---------------------------------------------------------------------------------------------------------------- VOC


@pytest.fixture
def voc(tmp_path):
    """Three train images (one only "difficult", so left out) and one val image, two classes."""
    folder = tmp_path / "VOCdevkit" / "VOC2012"
    flags = {
        "train": {"2008_000009": (1, 0), "2008_000002": (1, 1), "2008_000001": (-1, 0)},
        "val": {"2009_000001": (-1, 1)},
    }
    for part, images in flags.items():
        for column, name in enumerate(("train", "cat")):  # VOC has a class called "train"
            lines = [f"{image} {row[column]:2d}" for image, row in images.items()]
            put_text(folder / "ImageSets" / "Main" / f"{name}_{part}.txt", *lines)
        put_text(folder / "ImageSets" / "Main" / f"{part}.txt", *images)
        for image in images:
            put_image(folder / "JPEGImages" / f"{image}.jpg")
    return tmp_path


@pytest.mark.parametrize("root", ["", "VOCdevkit", "VOCdevkit/VOC2012"])
def test_voc(voc, root):
    data = read_voc(voc / root, strict=False)
    assert data.label_names == ("cat", "train")
    assert data.paths == ("JPEGImages/2008_000002.jpg", "JPEGImages/2008_000009.jpg", "JPEGImages/2009_000001.jpg")
    np.testing.assert_array_equal(data.Y, [[1, 1], [0, 1], [1, 0]])  # "difficult" (0) is absent
    assert {part: list(rows) for part, rows in data.splits.items()} == {"train": [0, 1], "test": [2]}
    assert Image.open(data.files[0]).size == (4, 3)


def test_voc_strict_names_what_is_wrong(voc):
    with pytest.raises(FileNotFoundError, match=r"aeroplane_train\.txt"):
        read_voc(voc)
    lists = voc / "VOCdevkit" / "VOC2012" / "ImageSets" / "Main"
    for ending in ("train", "val"):
        put_text(lists / f"horze_{ending}.txt", "2008_000001 1")
    with pytest.raises(ValueError, match=r"'horze' is not a class of VOC 2012; did you mean 'horse'\?"):
        read_voc(voc)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("2008_000009 2", r"cat_train\.txt, line 1: a line must hold an image and a flag \(-1, 0 or 1\); it is '2008"),
        ("2008_000009", r"cat_train\.txt, line 1: a line must hold an image and a flag"),
        ("2008_000009 1\n2008_000009 1", r"cat_train\.txt, line 2: an image must be listed once"),
        ("2008_000009 1", r"train_train\.txt, line 2: an image must be in cat_train\.txt too"),
        ("2008_000009 -1\n2008_000002 1\n2008_000001 1\n2008_000003 -1", r"train_train\.txt must list the 4 images"),
    ],
)
def test_voc_bad_lists(voc, line, error):
    put_text(voc / "VOCdevkit" / "VOC2012" / "ImageSets" / "Main" / "cat_train.txt", line)
    with pytest.raises(ValueError, match=error):
        read_voc(voc, strict=False)


def test_voc_missing_images(voc, tmp_path):
    (voc / "VOCdevkit" / "VOC2012" / "JPEGImages" / "2008_000002.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"cat_train\.txt, line 2: .*JPEGImages/2008_000002\.jpg is not in"):
        read_voc(voc, strict=False)
    assert read_voc(voc, strict=False, check_files=False).n_samples == 3
    with pytest.raises(FileNotFoundError, match="VOC 2012 must hold ImageSets/Main"):
        read_voc(tmp_path / "nowhere")


def test_counts_name_the_variant(tmp_path):
    benchmark = Benchmark("VOC 2012", 1, "classes", {"train": 5717, "test": 5823}, {(2501, 2510): "2007"})

    def rows(**counts):
        return {part: ([], np.zeros((count, 1), np.uint8)) for part, count in counts.items()}

    with pytest.raises(
        ValueError, match=r"must have 5717 train and 5823 test rows.*has 2501 train and 2510 test, wh.*2007"
    ):
        benchmark.check(tmp_path, rows(train=2501, test=2510))
    with pytest.raises(ValueError, match=r"has 7 train\. Give the published variant, or pass strict=False"):
        benchmark.check(tmp_path, rows(train=7))


# --------------------------------------------------------------------------------------------------------------- COCO

CATEGORIES = [{"id": 18, "name": "dog"}, {"id": 1, "name": "person"}]


def instances(part, labels, categories=CATEGORIES):
    """labels: image id → category ids; the categories come last, as in the official files."""
    return {
        "info": {"year": 2014, "note": 'a } in text, a " quote and an é'},
        "images": [{"file_name": f"COCO_{part}2014_{i:012d}.jpg", "id": i} for i in labels],
        "licenses": [],
        "annotations": [
            {"segmentation": [[1.5, 2, 3]], "image_id": i, "category_id": c, "iscrowd": c % 2, "id": 10 * i + c}
            for i, own in labels.items()
            for c in own
        ],
        "categories": categories,
    }


@pytest.fixture
def coco(tmp_path):
    labels = {"train": {9: [1, 1], 1000: [18], 25: [1, 18], 30: []}, "val": {7: [18]}}
    for part, own in labels.items():
        path = tmp_path / "annotations" / f"instances_{part}2014.json"
        put_text(path, json.dumps(instances(part, own), indent=1 if part == "val" else None))
        for image in own:
            put_image(tmp_path / f"{part}2014" / f"COCO_{part}2014_{image:012d}.jpg")
    return tmp_path


def test_coco(coco):
    data = read_coco(coco, strict=False)
    assert data.label_names == ("dog", "person")  # the order of the file, not of the ids
    assert [path[-8:-4] for path in data.paths] == ["1000", "0025", "0009", "0007"]  # ids as text; 30 has nothing
    assert data.paths[0] == "train2014/COCO_train2014_000000001000.jpg"
    np.testing.assert_array_equal(data.Y, [[1, 0], [1, 1], [0, 1], [1, 0]])
    assert {part: list(rows) for part, rows in data.splits.items()} == {"train": [0, 1, 2], "test": [3]}
    with pytest.raises(ValueError, match="must have 80 categories; the annotation files have 2"):
        read_coco(coco)


def test_coco_wrong_content(coco):
    path = coco / "annotations" / "instances_val2014.json"
    content = instances("val", {7: [18]})

    def read(**changes):
        path.write_text(json.dumps(content | changes))
        read_coco(coco, strict=False)

    with pytest.raises(
        ValueError, match=r"instances_val2014\.json, annotations\[0\]: .* listed category; .* category 99\."
    ):
        read(annotations=[{"image_id": 7, "category_id": 99}])
    with pytest.raises(ValueError, match=r"must be of a listed image; it is of image 8\."):
        read(annotations=[{"image_id": 8, "category_id": 1}])
    with pytest.raises(ValueError, match=r"there must be a whole number as 'image_id'; it is '7'"):
        read(annotations=[{"image_id": "7", "category_id": 1}])
    with pytest.raises(ValueError, match="must hold a list 'annotations'; it holds none"):
        read(annotations=[])
    with pytest.raises(ValueError, match="must list the same categories as the train file"):
        read(categories=CATEGORIES[::-1])
    text = json.dumps(content)
    for length in range(len(text)):
        path.write_text(text[:length])
        with pytest.raises(
            ValueError, match=r"instances_val2014\.json, character \d+: .* the end of the file: it was cut off"
        ):
            read_coco(coco, strict=False)
    path.write_text(text.replace(":", "", 1))
    with pytest.raises(
        ValueError, match=r"instances_val2014\.json, character 8: .*Expecting ':' .* there is '\{\"year"
    ):
        read_coco(coco, strict=False)
    path.write_text("[1]")
    with pytest.raises(ValueError, match=r"instances_val2014\.json must hold a list 'images'; it holds none"):
        read_coco(coco, strict=False)


def test_coco_missing_image(coco):
    (coco / "val2014" / "COCO_val2014_000000000007.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"instances_val2014\.json, image 7: .*val2014/COCO_val2014_0+7\.jpg"):
        read_coco(coco, strict=False)


# ----------------------------------------------------------------------------------------------------------- NUS-WIDE

NUS = {
    "train": (["actor\\0001_2.jpg", "zoo\\0002_1.jpg"], [[0, 1], [0, 0]]),
    "test": (["zoo\\0003_9.jpg"], [[1, 1]]),
}


def put_nus_images(folder):
    for paths, _ in NUS.values():
        for path in paths:
            put_image(folder / path.replace("\\", "/"))


def put_formatted(root):
    for (images, Y), name in zip(NUS.values(), ("train", "val"), strict=True):
        np.save(root / f"formatted_{name}_images.npy", np.array(images))
        np.save(root / f"formatted_{name}_labels.npy", np.array(Y, float))
    put_nus_images(root / "Flickr")
    put_text(root / "ConceptsList" / "Concepts81.txt", "airport", "zebra")


def put_original(root):
    for part, (images, Y) in NUS.items():
        put_text(root / "ImageList" / f"{part.capitalize()}Imagelist.txt", *images)
        for column, name in enumerate(("airport", "zebra")):
            path = root / "Groundtruth" / "TrainTestLabels" / f"Labels_{name}_{part.capitalize()}.txt"
            put_text(path, *(row[column] for row in Y))
    put_nus_images(root / "Flickr")


def put_lists(root):
    for part, (images, Y) in NUS.items():
        lines = [" ".join(["Flickr\\" + image, *map(str, row)]) for image, row in zip(images, Y, strict=True)]
        if part == "train":
            with gzip.open(root / "train.txt.gz", "wt") as handle:
                handle.write("\n".join(lines))
        else:
            put_text(root / "test.txt", *lines)
    put_nus_images(root / "Flickr")
    put_text(root / "Concepts81.txt", "airport", "zebra")


@pytest.mark.parametrize("put", [put_formatted, put_original, put_lists])
def test_nuswide(tmp_path, put):
    put(tmp_path)
    data = read_nuswide(tmp_path, strict=False)
    assert data.paths == ("Flickr/actor/0001_2.jpg", "Flickr/zoo/0002_1.jpg", "Flickr/zoo/0003_9.jpg")
    assert data.label_names == ("airport", "zebra")
    np.testing.assert_array_equal(data.Y, [[0, 1], [0, 0], [1, 1]])
    assert data.describe()["rows_without_label"] == 1
    assert data.describe()["parts"] == {"train": 2, "test": 1}
    with pytest.raises(ValueError, match=r"NUS-WIDE must have 81 labels; .* has 2"):
        read_nuswide(tmp_path)


def test_nuswide_bad_lists(tmp_path):
    put_original(tmp_path)
    labels = tmp_path / "Groundtruth" / "TrainTestLabels" / "Labels_zebra_Train.txt"
    put_text(labels, 1)
    with pytest.raises(
        ValueError, match=r"Labels_zebra_Train\.txt must have a line per image of TrainImagelist\.txt, 2; it has 1"
    ):
        read_nuswide(tmp_path, strict=False)
    put_text(labels, 1, 2)
    with pytest.raises(ValueError, match=r"Labels_zebra_Train\.txt, line 2: a line must be 0 or 1; it is '2'"):
        read_nuswide(tmp_path, strict=False)
    put_text(tmp_path / "ConceptsList" / "Concepts81.txt", "airport")
    with pytest.raises(ValueError, match="'zebra' must be a concept of Concepts81"):
        read_nuswide(tmp_path, strict=False)


def test_nuswide_bad_matrices(tmp_path):
    put_formatted(tmp_path)
    np.save(tmp_path / "formatted_train_labels.npy", np.array([[0, -1], [0, 1]]))
    with pytest.raises(
        ValueError, match=r"formatted_train_labels\.npy, row 0, column 1: a label must be 0 or 1; it is -1"
    ):
        read_nuswide(tmp_path, strict=False)
    np.save(tmp_path / "formatted_train_labels.npy", np.zeros((3, 2)))
    with pytest.raises(ValueError, match="must have one row per name"):
        read_nuswide(tmp_path, strict=False)
    np.save(tmp_path / "formatted_train_images.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"formatted_train_images\.npy"):
        read_nuswide(tmp_path, strict=False)


def test_nuswide_bad_text(tmp_path):
    put_lists(tmp_path)
    put_text(tmp_path / "test.txt", "a.jpg 0 1", "b.jpg 0")
    with pytest.raises(ValueError, match=r"test\.txt, line 2: a line must hold a path and as many 0 or 1"):
        read_nuswide(tmp_path, strict=False)
    put_text(tmp_path / "test.txt", "Flickr/gone.jpg 0 1")
    with pytest.raises(FileNotFoundError, match=r"the test list, entry 0: .*Flickr/gone\.jpg is not in"):
        read_nuswide(tmp_path, strict=False)
    (tmp_path / "train.txt.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"must have formatted_train_labels\.npy, ImageList or train\.txt"):
        read_nuswide(tmp_path, strict=False)


# ---------------------------------------------------------------------------------------------------------------- CUB


@pytest.fixture
def cub(tmp_path):
    folder = tmp_path / "CUB_200_2011"
    put_text(tmp_path / "attributes.txt", "1 has_bill_shape::curved_(up_or_down)", "2 has_bill_shape::dagger")
    put_text(folder / "images.txt", "1 001.A/a.jpg", "2 001.A/b.jpg", "3 002.B/c.jpg")
    put_text(folder / "train_test_split.txt", "1 0", "2 1", "3 1")
    lines = ["1 1 0 3 27.7", "1 2 1 1 27.7", "2 1 1 4 0 7.8", "2 2 0 1 5", "3 1 1 1 5", "3 2 1 3 5"]
    put_text(folder / "attributes" / "image_attribute_labels.txt", *lines)
    for name in ("001.A/a.jpg", "001.A/b.jpg", "002.B/c.jpg"):
        put_image(folder / "images" / name)
    return tmp_path


def test_cub(cub):
    data = read_cub(cub, strict=False)
    assert data.label_names[0] == "has_bill_shape::curved_(up_or_down)"
    assert data.paths == ("images/001.A/b.jpg", "images/002.B/c.jpg", "images/001.A/a.jpg")
    np.testing.assert_array_equal(data.Y, [[1, 0], [1, 1], [0, 1]])  # however sure the annotator was
    assert {part: list(rows) for part, rows in data.splits.items()} == {"train": [0, 1], "test": [2]}
    with pytest.raises(ValueError, match="must have 312 attributes"):
        read_cub(cub)


@pytest.mark.parametrize(
    ("file", "lines", "error"),
    [
        ("attributes/image_attribute_labels.txt", ["1 1 0", "1 3 0"], r"_labels\.txt, line 2: .*it is '1 3 0'"),
        ("attributes/image_attribute_labels.txt", ["1 1 2"], r"_labels\.txt, line 1: .*listed attribute and 0 or 1"),
        ("attributes/image_attribute_labels.txt", ["1 1 0"], r"image 1 has no attribute 2 \(5 entries are missing\)"),
        ("train_test_split.txt", ["1 0", "2 5"], r"train_test_split\.txt, line 2: .*0 \(test\) or 1 \(train\)"),
        ("train_test_split.txt", ["1 0"], "must name every image; image 2 is missing"),
        ("images.txt", ["1 a.jpg", "1 b.jpg"], r"images\.txt, line 2: a line must hold a number of its own"),
        ("images.txt", [], r"images\.txt must hold at least one line"),
    ],
)
def test_cub_bad_lists(cub, file, lines, error):
    put_text(cub / "CUB_200_2011" / file, *lines)
    with pytest.raises(ValueError, match=error):
        read_cub(cub, strict=False)


def test_cub_missing(cub):
    (cub / "CUB_200_2011" / "images" / "002.B" / "c.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"images\.txt, image 3: .*images/002\.B/c\.jpg is not in"):
        read_cub(cub, strict=False)
    (cub / "attributes.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"no attributes\.txt"):
        read_cub(cub, strict=False)


# ---------------------------------------------------------------------------------------------- folders and CSV tables


def test_folders_are_single_positive(tmp_path):
    for name in ("dog/b.JPG", "dog/a.png", "cat/deep/c.jpeg", "cat/notes.txt", ".git/d.jpg", "cat/.hidden.jpg"):
        put_any(tmp_path / name)
    data = read_folders(tmp_path)
    assert data.paths == ("cat/deep/c.jpeg", "dog/a.png", "dog/b.JPG")
    assert data.label_names == ("cat", "dog")
    np.testing.assert_array_equal(data.Y, [[1, 0], [0, 1], [0, 1]])
    np.testing.assert_array_equal(data.observed, data.Y)
    assert data.splits is None
    assert data.name == tmp_path.name


def put_any(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def test_folders_with_parts(tmp_path):
    for name in ("train/cat/1.jpg", "train/dog/2.jpg", "val/dog/3.jpg"):
        put_any(tmp_path / name)
    data = read_folders(tmp_path)
    assert data.label_names == ("cat", "dog")
    assert {part: list(rows) for part, rows in data.splits.items()} == {"train": [0, 1], "val": [2]}
    np.testing.assert_array_equal(data.Y, [[1, 0], [0, 1], [0, 1]])


def test_folders_refuse(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        read_folders(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="must hold a folder per class; it holds none"):
        read_folders(tmp_path)
    put_any(tmp_path / "dog" / "a.jpg")
    (tmp_path / "cat").mkdir()
    with pytest.raises(ValueError, match=r"must hold images \(\.jpg.*cat holds none"):
        read_folders(tmp_path)
    put_any(tmp_path / "stray.jpg")
    with pytest.raises(ValueError, match=r"must be in the folder of its class; .*stray\.jpg is not"):
        read_folders(tmp_path)


def put_table(path, *rows, delimiter=","):
    with path.open("w", newline="") as handle:
        csv.writer(handle, delimiter=delimiter).writerows(rows)
    return path


def test_image_table(tmp_path):
    for name in ("a.jpg", "sub/b, c.jpg", "d.jpg"):
        put_any(tmp_path / name)
    rows = [
        ("label", "when", "path"),
        ("dog", 1, "a.jpg"),
        ("", 2, "sub/b, c.jpg"),
        ("cat;dog", 3, str(tmp_path / "d.jpg")),
    ]
    data = read_image_table(put_table(tmp_path / "pets.csv", *rows), separator=";")
    assert data.name == "pets"
    assert data.paths == ("a.jpg", "sub/b, c.jpg", str(tmp_path / "d.jpg"))
    assert data.files[0] == str(tmp_path / "a.jpg")
    assert data.files[2] == str(tmp_path / "d.jpg")
    np.testing.assert_array_equal(data.Y, [[0, 1], [0, 0], [1, 1]])
    assert data.observed is None
    single = read_image_table(
        put_table(tmp_path / "one.tsv", ("file", "kind"), ("a.jpg", "x"), delimiter="\t"), image="file", label="kind"
    )
    np.testing.assert_array_equal(single.observed, [[1]])


@pytest.mark.parametrize(
    ("rows", "kind", "error"),
    [
        ([("paths", "label"), ("a.jpg", "x")], ValueError, r"pets\.csv has no column 'path'; did you mean 'paths'\?"),
        ([("path", "label"), ("a.jpg",)], ValueError, r"pets\.csv, line 2: a row must hold 2 cells"),
        ([("path", "label"), ("", "x")], ValueError, r"pets\.csv, line 2: a row must hold a path"),
        ([("path", "label")], ValueError, r"pets\.csv must hold at least one row"),
        ([("path", "label"), ("a.jpg", "")], ValueError, "there must be at least one label"),
        ([("path", "label"), ("a.jpg", "x"), ("a.jpg", "y")], ValueError, r"rows 0 and 1 are both a\.jpg"),
        (
            [("path", "label"), ("a.jpg", "x"), ("b.jpg", "y")],
            FileNotFoundError,
            r"pets\.csv, line 3: .*b\.jpg is not in",
        ),
    ],
)
def test_image_table_refuses(tmp_path, rows, kind, error):
    put_any(tmp_path / "a.jpg")
    with pytest.raises(kind, match=error):
        read_image_table(put_table(tmp_path / "pets.csv", *rows))


# --------------------------------------------------------------------------------------------------------- the class


def make(**changes):
    fields = {
        "name": "x",
        "root": "/data",
        "paths": ("a", "b", "c"),
        "Y": np.array([[1, 0], [0, 0], [1, 1]]),
        "label_names": ("k", "l"),
        "splits": {"train": [2, 0], "test": [1]},
        "observed": np.array([[1, 0], [0, 0], [0, 1]]),
    }
    return ImageDataset(**fields | changes)


def test_take_moves_everything_along():
    part = make().take([2, 1])
    assert part.paths == ("c", "b")
    np.testing.assert_array_equal(part.Y, [[1, 1], [0, 0]])
    np.testing.assert_array_equal(part.observed, [[0, 1], [0, 0]])
    assert {name: list(rows) for name, rows in part.splits.items()} == {"train": [0], "test": [1]}
    assert make().without_unlabelled().paths == ("a", "c")
    assert not part.Y.flags.writeable
    assert repr(make()) == "ImageDataset('x', 3 images, 2 labels)"


def test_describe():
    facts = make().describe()
    assert facts["cardinality"] == 1
    assert facts["density"] == 0.5
    assert (facts["rows_without_label"], facts["rows_with_one_label"]) == (1, 1)
    assert facts["parts"] == {"train": 2, "test": 1}
    assert facts["prior_max"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"paths": ("a", "b")}, "2 paths and 3 rows"),
        ({"paths": ("a", "b", "a")}, "rows 0 and 2 are both a"),
        ({"observed": np.ones((3, 2))}, "mark only true positives"),
        ({"splits": {"train": [0, 3]}}, "must lie between 0 and 2"),
        ({"Y": np.full((3, 2), 2)}, "Y must hold only 0 and 1"),
    ],
)
def test_wrong_fields(changes, error):
    with pytest.raises(ValueError, match=error):
        make(**changes)
