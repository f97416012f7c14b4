"""The page of a fit, on an invented result."""

import json
import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from onepos.report import render_fit

VOID = {"meta", "link", "br", "img"}


def make_fit(n_labels=6, n_epochs=12):
    names = [f"label {j}" for j in range(n_labels)]
    prior = [0.5 / (j + 1) for j in range(n_labels)]
    return {
        "labels": names,
        "observed": [round(400 * p) for p in prior],
        "n_rows": 1200,
        "class_prior": prior,
        "class_prior_lower": [0.8 * p for p in prior],
        "class_prior_upper": [1.3 * p for p in prior],
        "reliable": [j < n_labels - 1 for j in range(n_labels)],
        "thresholds": [0.5 - 0.01 * j for j in range(n_labels)],
        "predicted_share": [1.05 * p for p in prior],
        "method": "crisp-plus",
        "parameters": {"lam": 1.0, "warmup": 2, "prior": "estimate"},
        "history": {
            "epoch": list(range(n_epochs)),
            "loss": [0.7 * math.exp(-t / 5) for t in range(n_epochs)],
            "validation": [0.8 - 0.3 * math.exp(-t / 4) for t in range(n_epochs)],
        },
        "validation_title": "Average precision",
        "best_epoch": n_epochs - 2,
        "seconds": 12.3,
        "data": "items.csv",
        "model": "my-model",
        "created": "2026-11-15T10:00:00",
        "versions": {"onepos": "0.1.0", "torch": "2.13.0"},
        "warnings": ["label 5 has few positives."],
    }


class Content(HTMLParser):
    """The tags in order and the texts of a page; fails where tags are not balanced."""

    def __init__(self, html):
        super().__init__()
        self.open, self.sections, self.texts = [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag == "section":
            self.sections.append(dict(attrs)["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data.strip())


def rows_of(html, section):
    """The cells of the table of a section, as texts."""
    part = html[html.index(f'<section id="{section}"') :]
    body = part[part.index("<tbody>") : part.index("</tbody>")]
    return [
        [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
        for row in re.findall("<tr.*?</tr>", body, re.DOTALL)
    ]


def test_the_page_says_what_was_learnt_and_what_to_do_next():
    html = render_fit(make_fit())
    page = Content(html)
    assert page.sections == ["priors", "training", "parameters", "next"]
    assert rows_of(html, "priors")[0] == [
        "label 0", "200", "0.167", "0.500", "0.400 to 0.650", "0.525", "0.500", "yes",
    ]  # fmt: skip
    assert rows_of(html, "priors")[-1][-1] == "no"
    assert rows_of(html, "parameters") == [["lam", "1"], ["warmup", "2"], ["prior", "estimate"]]
    text = " ".join(page.texts)
    assert "The method crisp-plus was trained from 1\u00a0200 rows of items.csv to predict 6 labels." in text
    assert "label 5 has few positives." in text
    assert "onepos predict my-model NEW_ROWS --out predictions.csv" in text
    assert "onepos evaluate my-model" in text
    tiles = dict(
        zip(re.findall("<strong>(.*?)</strong>", html), re.findall("</strong><span>(.*?)<", html), strict=True)
    )
    assert tiles["1\u00a0200"] == "training rows"
    observed = sum(make_fit()["observed"]) / 1200
    assert tiles[f"{observed:.2f}"] == "observed labels per row"
    prior = make_fit()["class_prior"]
    assert tiles[f"{sum(prior):.2f}"].endswith(f"probably {0.8 * sum(prior):.2f} to {1.3 * sum(prior):.2f}")
    assert "12.3 s" in tiles
    assert "Made 2026-11-15 10:00:00 with onepos 0.1.0, torch 2.13.0." in text


def test_everything_about_the_rows_is_on_the_page(result):
    html = render_fit(result)
    page = Content(html)
    assert page.sections == [
        "data", "priors", "training", "quality", "calibration", "additions", "together", "doubts", "next",
    ]  # fmt: skip
    assert rows_of(html, "data")[0][:2] == ["Rows", "4\u00a0800"]
    assert rows_of(html, "quality") == [["Mean reciprocal rank of the known label ↑", "0.750", "0.550"]]
    assert rows_of(html, "calibration")[1] == ["models without the row, about 80 %", "9", "78 %", "50 % to 93 %"]
    assert rows_of(html, "additions")[0] == ["digit 0", "40", "12", "84 %", "70 % to 95 %", "20 %"]
    assert rows_of(html, "together")[0][:2] == ["digit 0", ""]
    doubt = html[html.index('<section id="doubts"') :]
    for text in ("row 7", "A long text about it", "1999", "would be added", "52 %", "and 2 more"):
        assert text in doubt, text


def test_columns_of_a_raw_table():
    column = {
        "name": "color",
        "kind": "category",
        "read_as": "3 texts",
        "became": "one of 3",
        "missing": 0.25,
        "reason": "",
    }
    left_out = {"name": "id", "kind": "left out", "read_as": "", "became": "", "missing": None, "reason": "all differ"}
    html = render_fit(make_fit() | {"columns": [column, left_out]})
    assert rows_of(html, "data") == [["color", "25 %", "3 texts", "one of 3"], ["id", "–", "–", "left out: all differ"]]


def test_priors_that_are_open_are_called_open():
    prior = make_fit()["class_prior"]
    html = render_fit(make_fit() | {"class_prior_lower": [0.5 * p for p in prior], "class_prior_upper": [1.0] * 6})
    assert "How many labels a row has is open" in html
    assert "How many labels a row has is open" not in render_fit(make_fit())


def test_answers_that_the_model_does_not_know_are_named(result):
    result["additions"]["labels_per_row"] = [2 * sum(result["class_prior"]), 1.0, 9.0]
    assert "fit the model again with these answers" in render_fit(result)


def test_the_search_for_the_number_of_epochs_is_shown():
    history = {"epoch": [1, 2], "loss": [0.5, 0.4], "validation": None, "search": [0.1, 0.3, 0.2]}
    html = render_fit(make_fit() | {"history": history, "best_epoch": 2, "validation_title": None})
    assert "Search for the number of epochs" in html


def test_the_charts_hold_the_labels_and_the_curves():
    svgs = re.findall(r"<svg.*?</svg>", render_fit(make_fit()), re.DOTALL)
    assert len(svgs) == 4, "two charts, each for a desk and for a phone"
    priors, _, training, _ = (
        ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("}text")]
        for svg in svgs
    )
    assert {"label 0", "label 5", "estimated", "observed share", "interval"} <= set(priors)
    assert "true prior" not in priors, "a fit does not know it"
    assert {"Training loss", "Average precision", "crisp-plus"} <= set(training)


def test_the_page_needs_nothing_from_outside_and_follows_the_theme():
    html = render_fit(make_fit())
    assert "default-src 'none'" in html
    assert "<script" not in html
    assert not re.search(r"url\((?!#)", html)
    assert all(each.startswith(("data:", "#")) for each in re.findall(r'(?:src|href)="([^"]*)"', html))
    assert "prefers-color-scheme: dark" in html
    assert "width=device-width" in html
    assert "var(--ink" in html


def test_the_page_is_the_same_after_json():
    result = make_fit()
    assert render_fit(json.loads(json.dumps(result))) == render_fit(result)


def test_every_text_is_escaped():
    bad = "<script>alert('1')</script>\"><img src=x onerror=alert(1)>"
    result = make_fit() | {name: bad for name in ("title", "method", "data", "model", "validation_title")}
    result["labels"][0] = bad
    result |= {"parameters": {bad: bad}, "versions": {bad: bad}, "warnings": [bad], "more": [bad, bad]}
    result["columns"] = [dict.fromkeys(("name", "kind", "read_as", "became", "reason"), bad) | {"missing": 0.5}]
    result["together"] = {"labels": [0, 1], "share": [[1, 0.5], [0.5, 1]], "pairs": []}
    result["doubts"] = [
        {"item": bad, "texts": [[bad, bad]], "fields": [[bad, bad]], "image": "", "note": bad, "present": [bad],
         "absent": [bad], "n_absent": 1, "doubtful": [[bad, 0.5, True]], "expected_errors": 1}
    ]  # fmt: skip
    html = render_fit(result)
    assert "<script" not in html
    assert "<img src=x" not in html


@pytest.mark.parametrize("missing", [key for key in make_fit() if key != "labels"])
def test_what_is_missing_is_left_out(missing):
    sections = Content(render_fit(make_fit() | {missing: None})).sections
    gone = {"history": "training", "parameters": "parameters"}.get(missing)
    assert gone not in sections
    assert ("labels" if missing == "class_prior" else "priors") in sections
    assert len(sections) == (4 if gone is None else 3)


def test_labels_alone_are_a_page():
    html = render_fit({"labels": ["only"]})
    assert Content(html).sections == ["labels", "next"]
    assert rows_of(html, "labels") == [["only", "unknown", "unknown"]]


def test_unknown_priors_and_one_threshold_for_all():
    result = make_fit() | {"thresholds": 0.75, "class_prior": [None, math.nan, 0.1, 0.1, 0.1, 0.1]}
    rows = rows_of(render_fit(result), "priors")
    assert [row[3] for row in rows[:3]] == ["unknown", "unknown", "0.100"]
    assert {row[-2] for row in rows} == {"0.750"}


def test_a_page_of_many_labels():
    html = render_fit(make_fit(n_labels=300))
    assert len(rows_of(html, "priors")) == 300
    assert "One dot per label" in html
