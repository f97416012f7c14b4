"""Images by the name of their data set."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from onepos.bench.image_sets import IMAGE_SETS, image_cache, load_images, read_voc_archive


@pytest.fixture
def archives(tmp_path):
    """Labels of two train and one val image, classes not in order, and the images."""
    labels, images = tmp_path / "labels.npz", tmp_path / "images.zip"
    np.savez(
        labels,
        class_names=np.array(["dog", "cat"]),
        train_images=np.array(["b.jpg", "a.jpg"]),
        val_images=np.array(["c.jpg"]),
        Y_train=np.array([[1, 0], [1, 1]], np.uint8),
        Y_val=np.array([[0, 1]], np.uint8),
    )
    with zipfile.ZipFile(images, "w") as packed:
        for name in ("train/a.jpg", "train/b.jpg", "val/c.jpg", "val/not listed.jpg"):
            packed.writestr(name, name)
    return labels, images


def test_voc_archive(archives, tmp_path):
    folder = tmp_path / "deep" / "folder"
    data = read_voc_archive(*archives, folder)
    assert data.label_names == ("cat", "dog")
    assert data.paths == ("train/b.jpg", "train/a.jpg", "val/c.jpg")
    assert data.Y.tolist() == [[0, 1], [1, 1], [1, 0]]
    assert {part: rows.tolist() for part, rows in data.splits.items()} == {"train": [0, 1], "test": [2]}
    assert [Path(file).read_text() for file in data.files] == list(data.paths)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["folder"], "nothing is left beside it"
    archives[1].write_bytes(b"no longer needed")
    assert read_voc_archive(*archives, folder).paths == data.paths


def test_a_damaged_archive_leaves_nothing_behind(archives, tmp_path):
    with zipfile.ZipFile(archives[1], "w") as packed:
        packed.writestr("train/a.jpg", "a")
    with pytest.raises(ValueError, match=r"images\.zip must be readable to its end.*train/b\.jpg"):
        read_voc_archive(*archives, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_names(tmp_path, monkeypatch):
    monkeypatch.setenv("ONEPOS_CACHE", str(tmp_path / "cache"))
    assert image_cache() == tmp_path / "cache"
    with pytest.raises(ValueError, match=r"unknown data set of images 'vok'; did you mean 'voc'"):
        load_images("vok")
    for name in IMAGE_SETS:
        with pytest.raises(FileNotFoundError, match=rf"{name} is looked for in .*images; set \$ONEPOS_DATA"):
            load_images(name, tmp_path)


@pytest.mark.real_data
def test_small_voc_has_the_published_rows(real_file, tmp_path, monkeypatch):
    from onepos.bench.image_sets import with_published_protocol

    monkeypatch.setenv("ONEPOS_CACHE", str(tmp_path))
    root = real_file("images/voc2012_128px.zip").parent.parent
    data = with_published_protocol(load_images("voc-128px", root))
    assert data.describe()["parts"] == {"train": 4574, "val": 1143, "test": 5823}
    labels = np.load(root / "images" / "voc2012_labels.npz")
    shown = np.array(data.label_names)[data.observed.argmax(1)]
    published = np.concatenate([labels["train_obs_idx"], labels["val_obs_idx"]])
    np.testing.assert_array_equal(shown, labels["class_names"][published])
