"""`onepos report`: the page of a model, with and without its data, and what is refused."""

import html as escaping
import json
import re

import numpy as np
import pandas as pd
import pytest

BAD = "<script>alert(1)</script>"
ROWS = ("--data", "items.csv", "--label", "tag", "--id", "key")


@pytest.fixture
def folder(onepos, tmp_path, short_cross_fit):
    """A model of a raw table, and a long table of answers about 30 of its rows."""
    rng = np.random.default_rng(0)
    n = 120
    table = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", BAD]).round(3)
    table["words"] = [f"these are words about item {row} and nothing else, which is text" for row in range(n)]
    table["tag"] = np.where(table["a"] > 0, "cat", np.where(table[BAD] > 0, "dog", BAD))
    table.insert(0, "key", [f"k{row}" for row in range(n)])
    table.to_csv(tmp_path / "items.csv", index=False)
    rows = [
        {"item": f"k{row}", "label": label, "value": int(label == table["tag"][row] or (row + k) % 3 == 0)}
        for row in range(30)
        for k, label in enumerate(("cat", "dog", BAD))
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "answers.csv", index=False)
    options = ("--method", "an", "--epochs", "2", "--no-early-stopping", "-q", "--out", "model", "--report", "fit.html")
    code, _, err = onepos("fit", "items.csv", "--label", "tag", "--id", "key", *options)
    assert code == 0, err
    return tmp_path


def sections_of(path):
    return re.findall(r'<section id="([^"]+)"', path.read_text(encoding="utf-8"))


def test_without_data_the_page_shows_what_the_folder_knows(onepos, folder):
    code, out, err = onepos("report", "model")
    assert (code, err) == (0, "")
    assert "report: report.html" in out
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert sections_of(folder / "report.html") == ["data", "priors", "training", "next"]
    facts = json.loads((folder / "model" / "model.json").read_text(encoding="utf-8"))
    for prior in facts["class_prior"]:
        assert f"<td>{prior:.3f}</td>" in page
    assert "onepos report model --data ROWS --label COLUMN" in page
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_with_data_and_answers(onepos, folder):
    code, out, err = onepos("report", "model", *ROWS, "--labels", "answers.csv", "--out", "page.html", "--quiet")
    assert (code, out, err) == (0, "", "")
    page = escaping.unescape((folder / "page.html").read_text(encoding="utf-8"))
    found = sections_of(folder / "page.html")
    assert found == [
        "data", "priors", "training", "quality", "calibration", "additions", "together", "doubts", "next",
    ]  # fmt: skip
    assert "Checked on 30 fully reviewed rows" in page
    assert "these are words about item" in page  # the text of a doubtful row
    assert "<script" not in (folder / "page.html").read_text(encoding="utf-8")
    assert BAD in page


def test_the_page_of_a_fit_is_the_same_page(onepos, folder):
    assert sections_of(folder / "fit.html") == ["data", "priors", "training", "together", "next"]
    text = (folder / "fit.html").read_text(encoding="utf-8")
    assert "onepos report model --data items.csv --label COLUMN" in text
    _, out, _ = onepos("report", "model", *ROWS, "--json")
    facts = json.loads(out)
    assert facts["n_rows"] == 120
    assert facts["known"]["yes"] == 120
    assert facts["calibration"] is None
    assert "model" not in facts["quality"][0]["scores"]
    for share in facts["predicted_share"]:
        assert f"<td>{share:.3f}</td>" in text


def test_rows_that_the_model_did_not_see(onepos, folder):
    _, out, _ = onepos("report", "model", *ROWS, "--labels", "answers.csv", "--unseen", "--json")
    facts = json.loads(out)
    assert set(facts["quality"][0]["scores"]) == {"model", "held_out", "frequency"}
    assert sum(each["n"] for each in facts["calibration"]["model"]) == 30 * 3


def test_few_rows_leave_out_what_needs_more(onepos, folder):
    pd.read_csv(folder / "items.csv").head(6).to_csv(folder / "items.csv", index=False)
    code, _, err = onepos("report", "model", *ROWS, "-q")
    assert code == 0, err
    assert "judged from 10 rows" in (folder / "report.html").read_text(encoding="utf-8")
    assert sections_of(folder / "report.html") == ["data", "priors", "training", "together", "next"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nothing",), "must hold model.json"),
        (("model", "--label", "tag"), "--label is about the rows of --data, which is missing"),
        (("model", "--id", "key"), "--id is about the rows of --data, which is missing"),
        (("model", "--unseen"), "--unseen is about the rows of --data, which is missing"),
        (("model", "--data", "nothing.csv", "--label", "tag"), "nothing.csv"),
        (("model", "--data", "items.csv", "--label", "nothing"), "nothing"),
        (("model", "--data", "other.csv", "--label", "tag"), "every label must be one the model was fitted with"),
        (("model", *ROWS, "--labels", "strange.csv"), "every label must be one the model was fitted with"),
        (("model", "--out", "no/such/folder/page.html"), "must lie in a folder that can be written to"),
        (("model", "--out", "model"), "it is a folder"),
        (("nothing", *ROWS), "must hold model.json"),
    ],
)
def test_wrong_input_is_one_sentence_and_writes_nothing(onepos, folder, arguments, sentence):
    table = pd.read_csv(folder / "items.csv")
    table.assign(tag="horse").to_csv(folder / "other.csv", index=False)
    pd.DataFrame({"item": ["k1"], "label": ["horse"], "value": [1]}).to_csv(folder / "strange.csv", index=False)
    code, _, err = onepos("report", *arguments)
    assert code == 2
    assert sentence in err
    assert err.strip().count("\n") == 0, err
    assert not list(folder.glob("*.html*")) or {path.name for path in folder.glob("*.html*")} == {"fit.html"}


def test_a_page_that_can_not_be_made_leaves_the_old_one(onepos, folder, monkeypatch):
    from onepos.report import fit_page

    def fail(_):
        raise ValueError("no page.")

    (folder / "report.html").write_text("old")
    monkeypatch.setattr(fit_page, "render_fit", fail)
    assert onepos("report", "model")[0] == 2
    assert (folder / "report.html").read_text() == "old"
