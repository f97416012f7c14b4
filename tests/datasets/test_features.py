"""Features of pictures: parts, class order, the published split and draw; on small archives and on the real ones."""

import hashlib
from functools import cache

import numpy as np
import pytest

from onepos.datasets import DATASETS, load_dataset, read_pooled_features
from onepos.protocol import cole_split, draw_single_positive

NAMES = ("voc2012-features", "coco2014-features")


def write_voc(folder):
    """Ten train and five val rows; the classes are not in alphabetical order."""
    rng = np.random.default_rng(0)
    Y = np.zeros((15, 3), dtype=np.uint8)
    shown = rng.integers(0, 3, 15).astype(np.uint8)
    Y[np.arange(15), shown] = 1
    Y[::4, 1] = 1
    X = rng.normal(size=(15, 4)).astype(np.float16)
    labels, features = (folder / file.name for file in DATASETS[NAMES[0]].files)
    names = np.array(["person", "cat", "bus"])
    parts = {"Y_train": Y[:10], "Y_val": Y[10:], "train_obs_idx": shown[:10], "val_obs_idx": shown[10:]}
    np.savez(labels, class_names=names, **parts)
    np.savez(features, X_train=X[:10], X_val=X[10:])
    return labels, features, X, Y, shown


def write_coco(folder, rows, n_train):
    """The features of some of twelve rows with nine labels."""
    rng = np.random.default_rng(1)
    Y = (rng.random((12, 9)) < 0.3).astype(np.uint8)
    shown = rng.integers(0, 9, 12).astype(np.uint8)
    Y[np.arange(12), shown] = 1
    X = rng.normal(size=(len(rows), 4)).astype(np.float16)
    labels, features = (folder / file.name for file in DATASETS[NAMES[1]].files)
    names = np.array([f"class{9 - j}" for j in range(9)])
    np.savez(labels, class_names=names, Y_packed=np.packbits(Y, axis=1), obs_idx=shown)
    np.savez(
        features, X_train=X[:n_train], X_val=X[n_train:], train_rows=rows[:n_train], val_rows=np.array(rows[n_train:])
    )
    return labels, features, X, Y, shown


def test_voc_classes_are_sorted_with_labels_and_draw(tmp_path):
    labels, features, X, Y, shown = write_voc(tmp_path)
    data = read_pooled_features(labels, features)
    assert data.label_names == ("bus", "cat", "person")
    np.testing.assert_array_equal(data.Y, Y[:, [2, 1, 0]])
    np.testing.assert_array_equal(data.observed.argmax(1), 2 - shown)
    np.testing.assert_array_equal(data.X, X.astype(np.float32))
    assert data.X.dtype == np.float32


def test_parts_are_the_published_ones(tmp_path):
    labels, features, *_ = write_voc(tmp_path)
    splits = read_pooled_features(labels, features).splits
    train, val, _ = cole_split(10)
    assert {part: rows.tolist() for part, rows in splits.items()} == {
        "train": train.tolist(),
        "val": val.tolist(),
        "test": [10, 11, 12, 13, 14],
    }


def test_coco_takes_the_rows_there_are_and_keeps_the_class_order(tmp_path):
    rows = [1, 4, 5, 8, 9, 2, 11]
    labels, features, _, Y, shown = write_coco(tmp_path, rows, 5)
    data = read_pooled_features(labels, features)
    assert data.label_names[0] == "class9"
    np.testing.assert_array_equal(data.Y, Y[rows])
    np.testing.assert_array_equal(data.observed.argmax(1), shown[rows])
    assert {part: len(each) for part, each in data.splits.items()} == {"train": 4, "val": 1, "test": 2}


def test_both_files_in_the_folder_images_are_enough(tmp_path):
    (tmp_path / "images").mkdir()
    write_voc(tmp_path / "images")
    assert load_dataset(NAMES[0], tmp_path).name == NAMES[0]
    (tmp_path / "images" / DATASETS[NAMES[0]].files[0].name).unlink()
    with pytest.raises(
        FileNotFoundError, match=r"run: onepos data get voc2012-features --from FOLDER. These features are not"
    ):
        load_dataset(NAMES[0], tmp_path)


def test_labels_of_other_rows_are_refused(tmp_path):
    labels, features, X, *_ = write_voc(tmp_path)
    np.savez(features, X_train=X[:9], X_val=X[10:])
    with pytest.raises(ValueError, match="X and Y must have the same number of rows; X has 14, Y has 15"):
        read_pooled_features(labels, features)


@pytest.fixture(scope="module")
def real_set(real_file):
    """Each set is read once."""
    return cache(lambda name: load_dataset(name, real_file("images").parent))


@pytest.mark.real_data
@pytest.mark.parametrize("name", NAMES)
def test_real_files_are_the_known_ones(real_file, name):
    for file in DATASETS[name].files:
        assert hashlib.sha256(real_file(f"images/{file.name}").read_bytes()).hexdigest() == file.sha256, file.name


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "parts", "cardinality"),
    [
        (NAMES[0], {"train": 4574, "val": 1143, "test": 5823}, 1.4456),
        (NAMES[1], {"train": 12800, "val": 3200, "test": 8000}, 2.9313),
    ],
)
def test_real_counts(real_set, name, parts, cardinality):
    data = real_set(name)
    source = DATASETS[name]
    assert (*data.X.shape, data.n_labels) == (source.n_samples, source.n_features, source.n_labels)
    assert {part: len(rows) for part, rows in data.splits.items()} == parts
    assert data.cardinality == pytest.approx(cardinality, abs=1e-4)
    assert (data.observed.sum(1) == 1).all()
    # So it makes no difference to mAP whether a class without a positive counts as 0 or not at all.
    assert all(data.Y[rows].any(0).all() for rows in data.splits.values())


@pytest.mark.real_data
def test_real_draw_of_voc_is_the_published_one(real_set):
    """All official rows are there, in their order: the draw follows from its seed."""
    data = real_set(NAMES[0])
    assert data.label_names == tuple(sorted(data.label_names))
    for rows in (np.arange(5717), np.arange(5717, 11540)):
        np.testing.assert_array_equal(data.observed[rows], draw_single_positive(data.Y[rows], 1200, how="cole"))
