"""The ONNX file gives the probabilities of the library, without the library."""

import ast
import http.client
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from PIL import Image
from torch import nn

import onepos as library
from onepos import METHODS, MIME, SinglePositiveClassifier, SinglePositiveImageClassifier, export_onnx
from onepos.methods import make_method

SERVER = Path(__file__).parent.parent / "examples" / "serve_onnx.py"
OF_MAPS = sorted(name for name in METHODS if METHODS[name]().maps)
OF_ROWS = sorted(set(METHODS) - set(OF_MAPS))


def export(model, folder):
    """A session of the exported model, and what its metadata say."""
    export_onnx(model, folder / "model.onnx")
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    return session, json.loads(session.get_modelmeta().custom_metadata_map["onepos"])


def assert_same(session, model, X, dense=None, sizes=(1, 2, 7)):
    """In batches of several sizes and in one."""
    dense, (given,) = X if dense is None else dense, session.get_inputs()
    expected = model.predict_proba(X)
    for size in (*sizes, len(dense)):
        (found,) = session.run(["probability"], {given.name: dense[:size]})
        np.testing.assert_allclose(found, expected[:size], rtol=0, atol=1e-5)
        assert found.min() > 0
        assert found.max() < 1


def fit(toy, method="an", X=None, **parameters):
    rows, _, observed = toy
    return SinglePositiveClassifier(method, **{"epochs": 2, "random_state": 0} | parameters).fit(
        rows if X is None else X, observed
    )


def method_of(name):
    """With what it can not do without."""
    known = METHODS[name]().get_params()
    needed = {"warmup": 1} | ({} if name.startswith("crisp-") and name != "crisp-plus" else {"cardinality": 1.5})
    return make_method(name, **{key: value for key, value in needed.items() if key in known})


class TestRows:
    @pytest.mark.parametrize("name", OF_ROWS)
    def test_every_method(self, name, toy, tmp_path, short_cross_fit):
        X, Y, observed = toy
        model = SinglePositiveClassifier(method_of(name), epochs=3, positives="any", random_state=0)
        model._offers = frozenset({"full labels"})  # as in a study
        model.fit(X, Y if name == "full" else observed, validation=(X, Y))
        assert_same(export(model, tmp_path)[0], model, X)

    @pytest.mark.parametrize("network", ["linear", "mlp", "bottleneck"])
    def test_every_network(self, network, toy, tmp_path):
        model = fit(toy, network=network, hidden=(9, 5))
        assert_same(export(model, tmp_path)[0], model, toy[0])

    def test_input_output_and_metadata(self, toy, tmp_path):
        frame = pd.DataFrame(toy[0], columns=[f"größe {k}" for k in range(8)])
        labels = pd.DataFrame(toy[2], columns=["ant", "bee", "cat", "Ärger"])
        model = SinglePositiveClassifier("an", epochs=1, threshold="prior").fit(frame, labels)
        session, facts = export(model, tmp_path)
        (given,), (found,) = session.get_inputs(), session.get_outputs()
        assert (given.name, given.type, given.shape[1:]) == ("rows", "tensor(double)", [8])
        assert (found.name, found.type, found.shape[1:]) == ("probability", "tensor(double)", [4])
        assert given.shape[0] == found.shape[0]
        assert isinstance(given.shape[0], str), "a free number of rows has a name"
        assert facts == {
            "version": library.__version__,
            "kind": "rows",
            "labels": ["ant", "bee", "cat", "Ärger"],
            "thresholds": model.thresholds_.tolist(),
            "min_labels": getattr(model, "min_labels_", 0),
            "feature_names": list(frame.columns),
            "image_size": None,
        }

    @pytest.mark.parametrize("y", [[3, 1, 7, 2], [1.0, 2.0, 3.0, 5.0]])
    def test_labels_keep_their_type(self, y, toy, tmp_path):
        model = SinglePositiveClassifier("an", epochs=1).fit(toy[0], np.array(y)[np.arange(60) % 4])
        _, facts = export(model, tmp_path)
        assert facts["labels"] == sorted(y)
        assert facts["feature_names"] is None

    def test_min_labels_are_told(self, toy, tmp_path):
        model = fit(toy)
        model.min_labels_ = 2
        assert export(model, tmp_path)[1]["min_labels"] == 2

    def test_large_numbers_are_scaled_in_double_precision(self, toy, tmp_path):
        """In single precision all time stamps of a day are one or two numbers."""
        X = toy[0].copy()
        X[:, 0] = 1.7e9 + 20 * X[:, 0]
        model = fit(toy, X=X)
        session, _ = export(model, tmp_path)
        assert_same(session, model, X)
        (rounded,) = session.run(None, {"rows": X.astype(np.float32).astype(np.float64)})
        assert np.abs(rounded - model.predict_proba(X)).max() > 1e-3

    def test_sparse_text(self, toy, tmp_path):
        words = sp.random(60, 500, density=0.02, format="csr", random_state=0)
        model = fit(toy, X=words)
        assert_same(export(model, tmp_path)[0], model, words, words.toarray())

    def test_certain_rows_stay_inside_0_and_1(self, toy, tmp_path):
        model = fit(toy, scale="none", network="linear")
        X = 1e6 * toy[0]
        expected = model.predict_proba(X)
        assert expected.min() < 1e-300
        assert expected.max() > 1 - 1e-15
        assert_same(export(model, tmp_path)[0], model, X)

    def test_a_loaded_model_and_a_network_of_ones_own(self, toy, tmp_path):
        mine = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.GELU(), nn.Dropout(0.5))
        model = fit(toy, network=mine)
        model.save(tmp_path / "folder")
        twin = SinglePositiveClassifier.load(tmp_path / "folder", network=mine)
        assert_same(export(twin, tmp_path)[0], model, toy[0])

    def test_the_model_stays_as_it_was(self, toy, tmp_path):
        model = fit(toy, network=nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.5)))
        model.network_.train()
        before = {name: tensor.clone() for name, tensor in model.network_.state_dict().items()}
        export(model, tmp_path)
        assert model.network_.training
        assert all(torch.equal(before[name], tensor) for name, tensor in model.network_.state_dict().items())

    def test_one_file_that_names_no_other(self, toy, tmp_path):
        """The exporter notes source files of this machine at each node, and may put weights into a second file."""
        export(fit(toy, hidden=(2000,)), tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
        content = (tmp_path / "model.onnx").read_bytes()
        assert b".py" not in content
        assert b"site-packages" not in content

    def test_nothing_is_printed(self, toy, tmp_path, capfd, recwarn):
        export(fit(toy), tmp_path)
        assert capfd.readouterr() == ("", "")
        assert not recwarn.list


class TestImages:
    SIZE = 16

    @pytest.fixture
    def images(self):
        rng = np.random.default_rng(0)
        return rng.integers(0, 256, (20, self.SIZE, self.SIZE, 3)).astype(np.uint8)

    def network(self, maps=False):
        torch.manual_seed(0)
        layers = [nn.Conv2d(3, 8, 4, stride=4), nn.BatchNorm2d(8), nn.ReLU()]
        return nn.Sequential(*layers, *([] if maps else [nn.AdaptiveAvgPool2d(1), nn.Flatten()]))

    def fit(self, images, method="an", **parameters):
        maps = not isinstance(method, str) and method.maps
        chosen = {"network": self.network(maps), "fine_tune": maps, "epochs": 2, "random_state": 0} | parameters
        return SinglePositiveImageClassifier(method, **chosen).fit(images, ["cat", "dog", "cow", "ant"] * 5)

    @pytest.mark.parametrize(("name", "fine_tune"), [("an", False), ("crisp-plus", False), ("an", True)])
    def test_rows_of_features(self, name, fine_tune, images, tmp_path, short_cross_fit):
        model = self.fit(images, method_of(name), fine_tune=fine_tune)
        session, facts = export(model, tmp_path)
        assert_same(session, model, images)
        (given,) = session.get_inputs()
        assert (given.name, given.type, given.shape[1:]) == ("images", "tensor(uint8)", [self.SIZE, self.SIZE, 3])
        assert (facts["kind"], facts["image_size"], facts["labels"]) == ("images", 16, ["ant", "cat", "cow", "dog"])

    @pytest.mark.parametrize("name", [*OF_MAPS, "mime per label"])
    def test_heads_on_maps(self, name, images, tmp_path):
        method = MIME(per_label=True) if name == "mime per label" else method_of(name)
        model = self.fit(images, method)
        assert_same(export(model, tmp_path)[0], model, images)

    def test_files_read_as_the_page_says(self, images, tmp_path):
        model = self.fit(images)
        files = []
        for k, (form, width, height) in enumerate([("png", 40, 30), ("jpg", 50, 16), ("jpg", 300, 200), ("png", 9, 9)]):
            pixels = np.random.default_rng(k).integers(0, 256, (height, width, 3)).astype(np.uint8)
            files.append(tmp_path / f"{k}.{form}")
            Image.fromarray(pixels).save(files[-1])
        session, facts = export(model, tmp_path)
        size = facts["image_size"]
        taken = []
        for file in files:
            image = Image.open(file)
            image.draft(None, (2 * size, 2 * size))
            taken.append(np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)))
        assert_same(session, model, files, np.stack(taken))

    @pytest.mark.slow
    def test_efficientnet(self, tmp_path):
        images = np.random.default_rng(0).integers(0, 256, (8, 224, 224, 3)).astype(np.uint8)
        model = SinglePositiveImageClassifier("an", epochs=1).fit(images, ["cat", "dog"] * 4)
        assert_same(export(model, tmp_path)[0], model, images)


class Branching(nn.Module):
    def forward(self, rows):
        return rows if rows.sum() > 0 else -rows


class FixedBatch(nn.Module):
    def forward(self, rows):
        return rows.view(2, 8) if torch.compiler.is_compiling() else rows


class TestRefusals:
    @pytest.mark.parametrize("network", [Branching(), FixedBatch()], ids=["branch", "batch"])
    def test_a_network_that_torch_can_not_export(self, network, toy, tmp_path):
        model = fit(toy, network=network)
        with pytest.raises(ValueError, match=r"^the network must be one that torch.onnx.export takes") as caught:
            export_onnx(model, tmp_path / "model.onnx")
        sentence = str(caught.value)
        assert "\n" not in sentence
        assert len(sentence) < 600
        assert sentence.endswith("fit again.")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("package", ["onnx", "onnxscript"])
    def test_a_missing_package(self, package, toy, tmp_path, monkeypatch):
        model = fit(toy)
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError) as caught:
            export_onnx(model, tmp_path / "model.onnx")
        assert str(caught.value) == (
            f"export to ONNX needs {package}, which is not installed. Run: pip install 'onepos[onnx]'"
        )

    def test_not_fitted(self, tmp_path):
        with pytest.raises(ValueError, match="not fitted yet"):
            export_onnx(SinglePositiveClassifier(), tmp_path / "model.onnx")

    def test_no_folder_is_found_before_the_work(self, toy, tmp_path, monkeypatch):
        model = fit(toy)
        monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: pytest.fail("the work has begun"))
        with pytest.raises(OSError, match=r"could not be written; .* Make its folder first"):
            export_onnx(model, tmp_path / "nowhere" / "model.onnx")

    def test_an_old_file_stays_where_the_export_fails(self, toy, tmp_path):
        (tmp_path / "model.onnx").write_text("old")
        with pytest.raises(ValueError, match="the network must be"):
            export_onnx(fit(toy, network=Branching()), tmp_path / "model.onnx")
        assert (tmp_path / "model.onnx").read_text() == "old"


class TestCommand:
    @pytest.fixture
    def folder(self, toy, tmp_path):
        fit(toy).save(tmp_path / "model")
        return tmp_path / "model"

    def test_writes_the_file(self, onepos, folder, toy, tmp_path):
        code, out, err = onepos("export", "model", "--onnx", "model.onnx")
        assert (code, err) == (0, "")
        assert "input: rows, float64 (n, 8); output: probability, float64 (n, 4)" in out
        assert "written to model.onnx, 0.0 MB" in out
        session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
        assert_same(session, SinglePositiveClassifier.load(folder), toy[0])
        assert onepos("export", "model", "--onnx", "model.onnx", "--quiet") == (0, "", "")

    def test_images(self, onepos, tmp_path, monkeypatch):
        images = np.zeros((4, 64, 64, 3), np.uint8)
        model = SinglePositiveImageClassifier("an", network="resnet18", weights=None, fine_tune=True, image_size=64)
        model.set_params(epochs=1).fit(images, ["a", "b"] * 2).save(tmp_path / "model")
        code, out, _ = onepos("export", "model", "--onnx", "model.onnx")
        assert code == 0
        assert "input: images, uint8 (n, 64, 64, 3); output: probability, float64 (n, 2)" in out

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["nothing", "--onnx", "model.onnx"], "error: nothing must hold model.json; there is none."),
            (["model", "--onnx", "nowhere/model.onnx"], "error: nowhere/model.onnx must lie in a folder"),
            (["nothing", "--onnx", "nowhere/model.onnx"], "error: nowhere/model.onnx must lie in a folder"),
            (["model", "--onnx", "model"], "error: model must be a file, or not exist yet; it is a folder."),
            (["model"], "error: onepos export needs --onnx, which is missing."),
        ],
    )
    def test_wrong_input(self, arguments, sentence, onepos, folder, tmp_path):
        code, out, err = onepos("export", *arguments)
        assert (code, out) == (2, "")
        assert sentence in err
        assert [path.name for path in tmp_path.iterdir()] == ["model"]


class TestServer:
    def test_it_is_short(self):
        """At most 20 lines of code; a line of the docstring or a comment is none."""
        lines = SERVER.read_text(encoding="utf-8").splitlines()
        docstring = ast.parse("\n".join(lines)).body[0].end_lineno
        code = [line for line in lines[docstring:] if line.strip() and not line.strip().startswith("#")]
        assert len(code) <= 20
        assert "\n".join(lines[docstring:]).strip() in (SERVER.parent.parent / "docs" / "deploy.md").read_text("utf-8")

    @pytest.fixture
    def serve(self, tmp_path):
        """serve(model) → (ask, modules): a function that posts JSON, and one that stops it and tells what it imported.

        Bounded: 60 seconds to start, 10 for an answer.
        """
        started = []

        def start(model):
            export_onnx(model, tmp_path / "model.onnx")
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            command = [sys.executable, "-X", "importtime", SERVER, tmp_path / "model.onnx", str(port)]
            log = tmp_path / "log"
            with log.open("w") as stderr:
                process = subprocess.Popen(command, stderr=stderr, cwd=tmp_path)
            started.append(process)
            wait_for(port, process, log)

            def ask(rows):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request("POST", "/", json.dumps(rows))
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())

            def modules():
                process.terminate()
                process.wait(10)
                lines = [line for line in log.read_text().splitlines() if line.startswith("import time:")]
                return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}

            return ask, modules

        yield start
        for process in started:
            process.kill()
            process.wait(10)

    @pytest.mark.parametrize("threshold", [0.5, "prior"])
    def test_gives_the_labels_of_the_library(self, threshold, toy, serve):
        X, names = toy[0], np.array(["ant", "bee", "cat", "dog"])
        model = SinglePositiveClassifier("an", epochs=20, lr=0.01, threshold=threshold, random_state=0)
        model.fit(X, names[toy[2].argmax(1)])
        ask, modules = serve(model)
        status, answer = ask(X.tolist())
        probability, chosen = model.predict_proba(X), model.predict(X)
        assert status == 200
        assert 0 < chosen.sum() < chosen.size
        for row, found in enumerate(answer):
            assert sorted(found) == sorted(names[chosen[row] == 1])
            for name, value in found.items():
                assert value == pytest.approx(probability[row, names.tolist().index(name)], abs=1e-5)
        assert len(answer) == 60
        assert ask(X[:1].tolist()) == (200, [pytest.approx(answer[0], abs=1e-6)])
        imported = modules()
        assert "onnxruntime" in imported
        assert not imported & {"torch", "onepos", "sklearn", "scipy", "pandas"}

    def test_fills_up_to_the_least_number_of_labels(self, toy, serve):
        model = fit(toy)
        model.thresholds_, model.min_labels_ = np.array([0.0, 1.0, 1.0, 1.0]), 2
        ask, _ = serve(model)
        X = toy[0]
        probability = model.predict_proba(X)
        for row, found in enumerate(ask(X.tolist())[1]):
            assert list(found) == ["0", str(1 + probability[row, 1:].argmax())]

    def test_wrong_input_is_answered(self, toy, serve):
        ask, _ = serve(fit(toy))
        for wrong in ([[1.0, 2.0]], [], {"rows": 1}, [["a"] * 8], [[float("nan")] * 8]):
            status, answer = ask(wrong)
            assert status == 400
            assert answer["error"]
        assert ask(toy[0][:3].tolist())[0] == 200


def wait_for(port, process, log):
    """Until the server answers, 60 seconds at most."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    pytest.fail("the server does not answer")
