"""Images by the name of their data set."""

import dataclasses
import zipfile
from pathlib import Path

import numpy as np
import pytest

from onepos.bench.image_sets import IMAGE_SETS, image_cache, load_images, read_voc_archive, with_published_protocol


@pytest.fixture
def archives(tmp_path):
    """Labels of two train and one val image, classes not in order, and the images in two archives."""
    labels, images = tmp_path / "labels.npz", [tmp_path / "images1.zip", tmp_path / "images2.zip"]
    np.savez(
        labels,
        class_names=np.array(["dog", "cat", "bird"]),
        train_images=np.array(["b.jpg", "a.jpg"]),
        val_images=np.array(["c.jpg"]),
        Y_train=np.array([[1, 0, 0], [1, 1, 0]], np.uint8),
        Y_val=np.array([[0, 1, 0]], np.uint8),
        train_obs_sizebiased_idx=np.array([0, 1], np.uint8),
    )
    for path, names in zip(images, (["train/a.jpg", "val/c.jpg"], ["train/b.jpg", "val/not listed.jpg"]), strict=True):
        with zipfile.ZipFile(path, "w") as packed:
            for name in names:
                packed.writestr(name, name)
    return labels, images


def test_voc_archive(archives, tmp_path):
    folder = tmp_path / "deep" / "folder"
    data = read_voc_archive(*archives, folder)
    assert data.name == "folder"
    assert data.label_names == ("bird", "cat", "dog")
    assert data.paths == ("train/b.jpg", "train/a.jpg", "val/c.jpg")
    assert data.Y.tolist() == [[0, 0, 1], [0, 1, 1], [0, 1, 0]]
    assert data.observed.tolist() == [[0, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert {part: rows.tolist() for part, rows in data.splits.items()} == {"train": [0, 1], "test": [2]}
    assert [Path(file).read_text() for file in data.files] == list(data.paths)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["folder"], "nothing is left beside it"
    for path in archives[1]:
        path.write_bytes(b"no longer needed")
    assert read_voc_archive(*archives, folder).paths == data.paths
    assert read_voc_archive(*archives, folder, ".webp").paths == ("train/b.webp", "train/a.webp", "val/c.webp")


def test_a_damaged_archive_leaves_nothing_behind(archives, tmp_path):
    archives[1][1].write_bytes(archives[1][1].read_bytes()[:60])
    with pytest.raises(ValueError, match=r"images2\.zip must be readable to its end"):
        read_voc_archive(*archives, tmp_path / "folder")
    with pytest.raises(ValueError, match=r"images1\.zip must hold every image.*train/b\.jpg is not there, nor are 0"):
        read_voc_archive(archives[0], archives[1][:1], tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_a_size_biased_draw_comes_with_the_data(archives, tmp_path):
    data = read_voc_archive(*archives, tmp_path / "folder")
    drawn = with_published_protocol(data, size_biased=True)
    np.testing.assert_array_equal(drawn.observed, data.observed)
    assert drawn.splits.keys() == {"train", "val", "test"}
    with pytest.raises(ValueError, match='folder must come with a draw for draw = "size-biased"; it has none'):
        with_published_protocol(dataclasses.replace(data, observed=None), size_biased=True)


def test_names(tmp_path, monkeypatch):
    monkeypatch.setenv("ONEPOS_CACHE", str(tmp_path / "cache"))
    assert image_cache() == tmp_path / "cache"
    with pytest.raises(ValueError, match=r"unknown data set of images 'vok'; did you mean 'voc'"):
        load_images("vok")
    for name in IMAGE_SETS:
        with pytest.raises(FileNotFoundError, match=rf"{name} is looked for in .*images; set \$ONEPOS_DATA"):
            load_images(name, tmp_path)


@pytest.mark.real_data
@pytest.mark.parametrize(("size", "file"), [(128, "voc2012_128px.zip"), (256, "voc2012_256px_3of3.zip")])
def test_small_voc_has_the_published_rows(size, file, real_file, tmp_path, monkeypatch):
    monkeypatch.setenv("ONEPOS_CACHE", str(tmp_path))
    root = real_file(f"images/{file}").parent.parent
    name = f"voc-{size}px"
    loaded = load_images(name, root)
    data = with_published_protocol(loaded)
    assert data.name == name
    assert data.describe()["parts"] == {"train": 4574, "val": 1143, "test": 5823}
    assert all(Path(path).is_file() for path in data.files)
    labels = np.load(root / "images" / "voc2012_labels.npz")
    shown = np.array(data.label_names)[data.observed.argmax(1)]
    published = np.concatenate([labels["train_obs_idx"], labels["val_obs_idx"]])
    np.testing.assert_array_equal(shown, labels["class_names"][published])
    biased = with_published_protocol(loaded, size_biased=True)
    shown = np.array(data.label_names)[biased.observed[:5717].argmax(1)]
    np.testing.assert_array_equal(shown, labels["class_names"][labels["train_obs_sizebiased_idx"]])
    assert (biased.observed <= data.Y).all()
