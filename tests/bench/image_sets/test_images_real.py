"""The readers on the real lists: true counts, class order, rows, and the published draw."""

import tarfile

import numpy as np
import pytest

from onepos.bench.image_sets import read_cub, read_nuswide, read_voc, with_published_protocol
from onepos.images.readers import ImageDataset

pytestmark = pytest.mark.real_data


@pytest.fixture(scope="module")
def voc(real_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("voc")
    with tarfile.open(real_file("raw/VOC2012_ImageSets_Main.tar.gz")) as archive:
        archive.extractall(folder, filter="data")
    return read_voc(folder, check_files=False)


@pytest.fixture(scope="module")
def voc_labels(real_file):
    return np.load(real_file("images/voc2012_labels.npz"))


def test_voc_rows_and_classes(voc, voc_labels):
    assert list(voc.label_names) == sorted(voc_labels["class_names"].tolist())
    order = [voc_labels["class_names"].tolist().index(name) for name in voc.label_names]
    for part, theirs in (("train", "train"), ("test", "val")):
        rows = voc.splits[part]
        names = [voc.paths[row].removeprefix("JPEGImages/") for row in rows]
        assert names == voc_labels[f"{theirs}_images"].tolist()
        np.testing.assert_array_equal(voc.Y[rows], voc_labels[f"Y_{theirs}"][:, order])


def test_voc_published_split_and_draw(voc, voc_labels):
    ready = with_published_protocol(voc)
    assert ready.describe()["parts"] == {"train": 4574, "val": 1143, "test": 5823}
    assert ready.observed.sum(axis=1).tolist() == [1] * 11540
    seen = np.array(voc.label_names)[ready.observed.argmax(axis=1)]
    for part, theirs in (("train", "train"), ("test", "val")):
        published = voc_labels["class_names"][voc_labels[f"{theirs}_obs_idx"]]
        np.testing.assert_array_equal(seen[voc.splits[part]], published)
    assert set(ready.splits["train"]) | set(ready.splits["val"]) == set(range(5717))


def test_coco_published_split_and_draw(real_file):
    """Of COCO the labels are here, not the annotation files: rows are put into the reader's order by hand."""
    labels = np.load(real_file("images/coco2014_labels.npz"))
    Y = np.unpackbits(labels["Y_packed"], axis=1)[:, :80]
    text = labels["image_id"].astype(str)
    order = np.concatenate(
        [np.flatnonzero(mask)[np.argsort(text[mask])] for mask in (labels["is_train"], ~labels["is_train"])]
    )
    n_train = int(labels["is_train"].sum())
    data = ImageDataset(
        name="coco",
        root="",
        paths=tuple(text[order]),
        Y=Y[order],
        label_names=tuple(labels["class_names"]),
        splits={"train": np.arange(n_train), "test": np.arange(n_train, len(Y))},
    )
    ready = with_published_protocol(data)
    assert ready.describe()["parts"] == {"train": 65665, "val": 16416, "test": 40137}
    np.testing.assert_array_equal(ready.observed.argmax(axis=1), labels["obs_idx"][order])


def test_nuswide_lists(real_file):
    folder = real_file("raw/nuswide_81_m/train.txt.gz").parent
    data = read_nuswide(folder, strict=False, check_files=False)
    assert data.describe()["parts"] == {"train": 10000, "test": 5000}
    assert data.n_labels == 81
    assert data.paths[0] == "images/227529_2414887877_8dfb4fd1c1_m.jpg"
    assert np.flatnonzero(data.Y[0]).tolist() == [42]
    with pytest.raises(ValueError, match="has 10000 train and 5000 test, which is the lists of a hashing benchmark"):
        read_nuswide(folder, check_files=False)


def test_cub_lists(real_file, tmp_path):
    """The attributes of single images are not here: those of the species, over 50 %, stand in for them."""
    with tarfile.open(real_file("raw/CUB_200_2011_lists.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    facts = np.load(real_file("images/cub200_class_attributes.npz"))
    some = slice(0, 11788, 40)  # all 3.7 million lines would take seconds
    for name in ("images", "train_test_split"):
        lines = (tmp_path / f"{name}.txt").read_text().splitlines(keepends=True)
        (tmp_path / f"{name}.txt").write_text("".join(lines[some]))
    present = (facts["class_attribute_percent"] > 50).astype(int)[facts["class_id"] - 1][some]
    (tmp_path / "attributes").mkdir()
    (tmp_path / "attributes" / "image_attribute_labels.txt").write_text(
        "".join(
            f"{1 + 40 * row} {1 + column} {value} 3 1.0\n"
            for row, values in enumerate(present.tolist())
            for column, value in enumerate(values)
        )
    )
    data = read_cub(tmp_path, strict=False, check_files=False)
    is_train = facts["is_train"][some]
    order = np.concatenate([np.flatnonzero(is_train), np.flatnonzero(~is_train)])
    assert data.n_labels == 312
    assert data.label_names[1] == "has_bill_shape::dagger"
    assert list(data.paths) == [f"images/{path}" for path in facts["image_path"][some][order]]
    np.testing.assert_array_equal(data.Y, present[order])
    with pytest.raises(ValueError, match=r"CUB-200-2011 must have 5994 train and 5794 test rows"):
        read_cub(tmp_path, check_files=False)
    assert (int(facts["is_train"].sum()), int((~facts["is_train"]).sum())) == (5994, 5794)
