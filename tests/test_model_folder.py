"""A saved model: the same predictions back, no pickle, and a reason for every refusal."""

import copy
import hashlib
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from onepos import CRISP, CRISPPlus, SinglePositiveClassifier
from onepos.methods import AN


@pytest.fixture
def fitted(toy):
    X, Y, observed = toy
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(8)])
    labels = pd.DataFrame(observed, columns=["ant", "bee", "cat", "dog"])
    model = SinglePositiveClassifier(CRISP(delta=0.02, warmup=1), hidden=(12, 5), epochs=3, random_state=1)
    return model.fit(frame, labels, validation=(frame, Y)), frame


def test_round_trip(fitted, tmp_path):
    model, X = fitted
    model.save(tmp_path / "deep" / "model")
    twin = SinglePositiveClassifier.load(tmp_path / "deep" / "model")
    assert sorted(path.name for path in (tmp_path / "deep" / "model").iterdir()) == ["model.json", "model.safetensors"]
    np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(twin.predict(X), model.predict(X))
    for name in ("classes_", "class_prior_", "class_prior_interval_", "thresholds_", "feature_names_in_"):
        np.testing.assert_array_equal(getattr(twin, name), getattr(model, name))
    assert twin.history_ == model.history_
    assert twin.method_.get_params() == model.method_.get_params()
    assert twin.get_params()["hidden"] == (12, 5)
    twin.fit(X, ["a", "b"] * 30)  # a loaded model can be fitted anew


@pytest.mark.parametrize("classes", [[3, 1, 7, 2], [True, False, True, False], [1.0, 2.0, 1.0, 3.0]])
def test_classes_keep_their_type(toy, tmp_path, classes):
    X = toy[0]
    y = np.array(classes)[np.arange(60) % 4]
    model = SinglePositiveClassifier("an", epochs=1, scale="none", network="linear").fit(X, y)
    model.save(tmp_path)
    twin = SinglePositiveClassifier.load(tmp_path)
    assert twin.classes_.dtype == model.classes_.dtype
    assert twin.classes_.tolist() == model.classes_.tolist()
    assert twin.scaling_ is None


def test_unknown_prior_survives(toy, tmp_path):
    X, _, observed = toy
    observed = observed.copy()
    observed[observed[:, 1] == 1] = [1, 0, 0, 0]
    with pytest.warns(UserWarning, match="never observed"):
        SinglePositiveClassifier(epochs=4).fit(X, observed).save(tmp_path)
    assert json.loads((tmp_path / "model.json").read_text())["class_prior"][1] is None
    assert np.isnan(SinglePositiveClassifier.load(tmp_path).class_prior_[1])


class TestCRISPPlus:
    """A plain network, and nothing of the rows."""

    @pytest.fixture
    def fitted(self, toy, short_cross_fit):
        X, Y, observed = toy
        return SinglePositiveClassifier(CRISPPlus(cardinality=1.5), epochs=2).fit(X, observed, validation=(X, Y))

    def test_round_trip(self, fitted, toy, tmp_path):
        fitted.save(tmp_path)
        twin = SinglePositiveClassifier.load(tmp_path)
        assert fitted.method_.head.shift.abs().min() > 0
        np.testing.assert_array_equal(twin.decision_function(toy[0]), fitted.decision_function(toy[0]))
        clone = copy.deepcopy(fitted)
        np.testing.assert_array_equal(clone.decision_function(toy[0]), fitted.decision_function(toy[0]))

    def test_no_row_is_kept(self, fitted, toy, tmp_path):
        fitted.save(tmp_path)
        tensors = load_file(tmp_path / "model.safetensors")
        held = {name: tensor.shape for name, tensor in tensors.items() if not name.startswith("decisions.")}
        assert not any(len(toy[0]) in shape for shape in held.values())
        assert sorted(name for name in tensors if name.startswith("network.")) == [
            "network.0.0.bias",
            "network.0.0.weight",
            "network.1.linear.bias",
            "network.1.linear.weight",
            "network.1.shift",
        ]


class TestScaling:
    """How the rows are scaled is part of the model."""

    @pytest.mark.parametrize(("scale", "limit"), [("clipped", 5.0), ("standard", np.inf)])
    def test_kept_with_its_limit(self, toy, tmp_path, scale, limit):
        X, _, observed = toy
        model = SinglePositiveClassifier("an", epochs=1, scale=scale, random_state=0).fit(X, observed)
        model.save(tmp_path)
        twin = SinglePositiveClassifier.load(tmp_path)
        assert twin.scaling_.limit == limit
        np.testing.assert_array_equal(twin.scaling_.mean, model.scaling_.mean)
        np.testing.assert_array_equal(twin.scaling_.scale, model.scaling_.scale)
        far = 1e6 * X
        np.testing.assert_array_equal(twin.predict_proba(far), model.predict_proba(far))
        same = np.array_equal(model.decision_function(far), model.decision_function(100 * far))
        assert same == (scale == "clipped"), "what lies beyond the limit does not count"

    @pytest.mark.parametrize("missing", ["mean", "scale", "limit"])
    def test_a_part_of_it_is_refused(self, toy, tmp_path, missing):
        """Rows would be taken as they are, and every prediction be wrong."""
        SinglePositiveClassifier("an", epochs=1).fit(toy[0], toy[2]).save(tmp_path)
        tensors = load_file(tmp_path / "model.safetensors")
        del tensors[f"scaling.{missing}"]
        save_file(tensors, tmp_path / "model.safetensors")
        facts = json.loads((tmp_path / "model.json").read_text())
        facts["sha256"] = hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()
        (tmp_path / "model.json").write_text(json.dumps(facts))
        with pytest.raises(ValueError, match=rf"its parts do not fit together .*scaling\.{missing}"):
            SinglePositiveClassifier.load(tmp_path)


class OwnMethod(AN):
    """Someone's own method."""


def test_own_network_and_method_are_passed_again(toy, tmp_path):
    X, _, observed = toy
    mine = nn.Sequential(nn.Linear(8, 4), nn.Tanh())
    model = SinglePositiveClassifier(OwnMethod(), network=mine, epochs=1, random_state=np.random.RandomState(0))
    model.fit(X, observed).save(tmp_path)
    with pytest.raises(
        ValueError, match=r"this model has a network of your own; pass it again: load\(folder, network=…\)"
    ):
        SinglePositiveClassifier.load(tmp_path)
    with pytest.raises(ValueError, match=r"fitted with a method of your own, .*OwnMethod; pass it again"):
        SinglePositiveClassifier.load(tmp_path, network=mine)
    twin = SinglePositiveClassifier.load(tmp_path, network=mine, method=OwnMethod())
    np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))


def test_own_method_is_not_mistaken_for_the_librarys(toy, tmp_path):
    X, _, observed = toy
    twin_name = type("AN", (AN,), {"__module__": __name__})
    SinglePositiveClassifier(twin_name(), epochs=1).fit(X, observed).save(tmp_path)
    with pytest.raises(ValueError, match="fitted with a method of your own"):
        SinglePositiveClassifier.load(tmp_path)


def test_what_json_lacks(toy, tmp_path):
    """NaN in the history (validation rows without labels) and priors given as a tensor."""
    X, Y, observed = toy
    model = SinglePositiveClassifier(CRISP(prior=torch.full((4,), 0.25), warmup=1), epochs=2)
    model.fit(X, observed, validation=(X, 0 * Y)).save(tmp_path)
    twin = SinglePositiveClassifier.load(tmp_path)
    assert twin.history_.validation == [None, None]
    np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))


class TestRefused:
    @pytest.fixture
    def folder(self, fitted, tmp_path):
        fitted[0].save(tmp_path / "model")
        return tmp_path / "model"

    def load(self, folder, sentence, kind=ValueError):
        with pytest.raises(kind, match=sentence):
            SinglePositiveClassifier.load(folder)

    def change(self, folder, **facts):
        path = folder / "model.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | facts))

    def test_not_a_model(self, folder, tmp_path):
        self.load(tmp_path, "must hold model.json; there is none", FileNotFoundError)
        (folder / "model.safetensors").unlink()
        self.load(folder, "must hold model.safetensors; there is none. Copy the whole folder", FileNotFoundError)

    @pytest.mark.parametrize("version", [0, 2, 3, 99])
    def test_another_format(self, folder, version):
        self.change(folder, format=version, onepos="9.9")
        sentence = (
            rf"must be of format 1; it is of format {version}, written by an unreleased version of onepos \(9.9\)"
        )
        self.load(folder, f"{sentence}: fit the model again")

    def test_an_unknown_kind(self, folder):
        self.change(folder, kind="sounds")
        self.load(folder, "its parts do not fit together .*'sounds'")

    @pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "x"}', "\udcff"])
    def test_corrupt_facts(self, folder, text):
        (folder / "model.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        self.load(folder, "must be a model file of onepos; it can not be read")

    def test_corrupt_weights(self, folder):
        weights = folder / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        self.load(folder, "must have the checksum written in model.json, .*; it has .* damaged or from another model")

    def test_parts_that_do_not_fit(self, folder):
        self.change(folder, n_features=5)
        self.load(folder, "its parts do not fit together")

    @pytest.mark.parametrize(
        "facts",
        [
            {"thresholds": [0.5]},
            {"class_prior": ["x", 1, 1, 1]},
            {"feature_names": ["f"]},
            {"classes": ["a", "a", "b", "c"]},
            {"history": []},
            {"history": {"loss": ["x"]}},
            {"history": {"loss": [1.0], "seconds": [1.0, 2.0]}},
            {"history": {"loss": [1.0], "best_epoch": 7}},
            {"history": {"loss": [1.0], "prior": [1.0]}},
            {"history": {"loss": [1.0], "x": 1}},
        ],
    )
    def test_facts_that_do_not_fit(self, folder, facts):
        self.change(folder, **facts)
        self.load(folder, "its parts do not fit together")

    def test_unknown_method_runs_no_code(self, folder):
        self.change(folder, method={"class": "os.system", "parameters": {"command": "touch /tmp/pwned"}})
        self.load(folder, "fitted with a method of your own, os.system")

    def test_pickle_is_never_read(self, folder):
        import hashlib
        import pickle

        evil = pickle.dumps({"network.0.weight": 1})
        (folder / "model.safetensors").write_bytes(evil)
        self.change(folder, sha256=hashlib.sha256(evil).hexdigest())
        self.load(folder, "model.safetensors must be a safetensors file; it is not")


def test_a_failed_save_leaves_the_old_model(fitted, tmp_path, monkeypatch):
    model, _X = fitted
    model.save(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "copy")
    import os

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        model.save(tmp_path / "model")
    for path in (tmp_path / "copy").iterdir():
        assert (tmp_path / "model" / path.name).read_bytes() == path.read_bytes()
    assert len(list((tmp_path / "model").iterdir())) == 2


@pytest.mark.parametrize("n_moved", [0, 1, 2])
def test_killed_while_a_new_model_takes_the_place_of_the_old(n_moved, fitted, toy, tmp_path, monkeypatch):
    """Whatever file was moved last, the folder holds one whole model."""
    old, X = fitted
    new = SinglePositiveClassifier("an", epochs=1, random_state=7).fit(toy[0], toy[2])
    old.save(tmp_path / "model")
    real, moved = Path.replace, []

    def replace(path, target):
        if path.suffix == ".next":
            if len(moved) == n_moved:
                raise KeyboardInterrupt
            moved.append(path)
        return real(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        try:
            new.save(tmp_path / "model")
        except KeyboardInterrupt:
            assert n_moved < 2
    expected = old if n_moved == 0 else new
    found = SinglePositiveClassifier.load(tmp_path / "model").predict_proba(X)
    np.testing.assert_array_equal(found, expected.predict_proba(X))
    new.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["model.json", "model.safetensors"]


def test_simultaneous_saves_leave_one_whole_model(fitted, toy, tmp_path):
    models = [fitted[0], SinglePositiveClassifier("an", epochs=1, random_state=7).fit(toy[0], toy[2])]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: models[k % 2].save(tmp_path / "model"), range(24)))
    found = SinglePositiveClassifier.load(tmp_path / "model").predict_proba(fitted[1])
    assert any(np.array_equal(found, model.predict_proba(fitted[1])) for model in models)
