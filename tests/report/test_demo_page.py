"""The page of the demo, on an invented result."""

import base64
import io
import json
import re

import numpy as np
import pytest

from onepos.report.demo_page import image_uri, render_demo, summary_tables


def test_the_page_needs_nothing_from_outside(result):
    html = render_demo(result)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in html
    assert "<script" not in html
    assert not re.search(r"url\((?!#)", html)
    addresses = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert addresses
    assert all(address.startswith(("data:", "#")) for address in addresses)


def test_the_page_is_the_same_twice_and_after_json(result):
    html = render_demo(result)
    assert render_demo(json.loads(json.dumps(result))) == html


def test_every_name_is_escaped(result):
    bad = "<script>alert('1')</script>\"><img src=x onerror=alert(1)>"
    result["title"] = result["dataset"]["name"] = result["runs"][2]["name"] = bad
    result["metrics"][4]["title"] = result["labels"][0] = result["doubts"][0]["item"] = bad
    result["versions"] = {bad: bad}
    result["story"]["given"][0] |= {"observed": [bad], "hidden": [bad]}
    result["story"]["shown"][0]["added"] = [[bad, 0.5, True]]
    html = render_demo(result)
    assert "<script" not in html
    assert "<img src=x" not in html
    assert "&lt;script&gt;alert" in html


def test_the_story_comes_first_and_its_numbers_are_those_of_the_result(result):
    html = render_demo(result)
    sections = re.findall(r'<section id="([^"]+)"', html)
    assert sections[:7] == ["observed", "shares", "review", "completed", "better", "methods", "report"]
    text = re.sub("<[^>]*>", "", html).replace("\u00a0", " ")
    before, after = 0.7 * sum(result["class_prior"]), sum(result["class_prior"])
    assert f"{before:.2f} → {after:.2f}" in text
    assert "Now 12 are added to 11 images. 84 % were expected to be right, 75 % are." in text
    assert "Of all hidden labels 9 % are found" in text
    assert (
        "Better: Micro-F1 (0.700 → 0.800); Worse: Hamming loss (0.700 → 0.800); Unchanged: mAP (0.700 → 0.700)" in text
    )
    assert "5. A better model" in text


def test_what_got_worse_is_not_called_better(result):
    result["story"]["changes"][0] |= {"before": 0.8, "after": 0.7}
    html = render_demo(result)
    assert "5. The model, fitted again" in html
    assert "A better model" not in html


def test_added_labels_are_marked_right_and_wrong_in_words_too(result):
    html = render_demo(result)
    right = result["story"]["shown"][0]["added"][0][0]
    assert f'<span class="unseen">right: </span>{right}' in html
    assert '<span class="unseen">wrong: </span>' in html
    assert re.search(r'<img src="data:image/png[^"]*" alt="Image of handwritten digits: \w', html)


def test_a_run_that_adds_nothing(result):
    result["story"]["completed"][1] = result["story"]["completed"][0]
    result["story"]["shown"] = []
    html = render_demo(result)
    assert "After it there is none either." in html
    assert "missing labels added" not in html


def test_the_best_value_is_bold_and_the_share_stands_below(result):
    result["story"] = None
    result["metrics"] = [metric for metric in result["metrics"] if metric["name"] == "hamming_loss"]
    for run, score in zip(result["runs"], (0.1, 0.5, 0.2, 0.3), strict=True):
        run["scores"] = {"hamming_loss": score}
    html = render_demo(result)
    assert re.findall(r'<td class="best "[^>]*>(\S*?)<', html) == ["0.200"]
    assert "75 %" in html


def test_a_method_worse_than_the_floor_is_marked(result):
    result["runs"][2]["scores"] = {"hamming_loss": 0.9}
    assert re.search(r'<span class="below worse">−\d+ %</span>', render_demo(result))


@pytest.mark.parametrize("section", ["metrics", "runs", "story", "labels", "dataset", "versions", "created", "doubts"])
def test_a_section_that_is_none_is_left_out(section, result):
    if section == "labels":
        result["story"] = None  # it is about labels
    if section == "dataset":
        result["story"] = None
    result[section] = None
    html = render_demo(result)
    gone = {"metrics": ["methods"], "runs": ["methods"], "story": ["observed", "better"], "labels": ["report"]}
    assert not any(f'<section id="{name}"' in html for name in [*gone.get(section, []), section])
    assert "only one of them is written down" in html


def test_what_a_terminal_shows(result):
    changes, completed, methods = summary_tables(result)
    assert changes.texts()[0] == ["Micro-F1 ↑", "0.700", "0.800 [better]", "0.900"]
    assert completed.texts()[1] == ["50 images reviewed", "12", "84 %", "75 %", "9 %", "1.20"]
    assert len(methods.rows) == len(result["metrics"]) + 1


def test_image_is_the_png_of_its_pixels():
    from PIL import Image

    pixels = np.linspace(-0.2, 1.2, 12).reshape(3, 4)
    data = base64.b64decode(image_uri(pixels.tolist()).removeprefix("data:image/png;base64,"))
    decoded = np.asarray(Image.open(io.BytesIO(data)))
    assert (decoded == (pixels.clip(0, 1) * 255).round()).all()
