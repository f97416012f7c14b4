import base64
import io
import json
import re

import numpy as np
import pytest

from onepos.report.fit_page import image_uri, render_demo


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
    result["priors"]["label"][0] = result["metrics"][0]["title"] = bad
    result["versions"] = {bad: bad}
    result["examples"][0] |= {"true": [bad], "observed": bad, "predicted": [[bad, 0.5]]}
    html = render_demo(result)
    assert "<script" not in html
    assert "<img src=x" not in html
    assert "&lt;script&gt;alert" in html


def test_the_best_value_is_bold_and_the_share_stands_below(result):
    result["metrics"] = result["metrics"][:1]
    for run, score in zip(result["runs"], (0.1, 0.5, 0.2, 0.3), strict=True):
        run["scores"] = {"ranking_loss": score}
    html = render_demo(result)
    assert re.findall(r'<td class="best "[^>]*>(\S*?)<', html) == ["0.200"]
    assert "75 %" in html
    assert "of the ranking loss gap to full labels closed by CRISP" in html


def test_a_method_worse_than_the_floor_is_called_so(result):
    result["runs"] = result["runs"][:3]
    result["runs"][2]["scores"] = {"ranking_loss": 0.9}
    html = render_demo(result)
    assert "closed by CRISP, worse than the floor" in html
    assert re.search(r'<span class="below worse">−\d+ %</span>', html)


def test_unknown_priors_are_called_unknown(result):
    result["priors"]["estimated"][2] = None
    assert '<td class="unknown">unknown</td>' in render_demo(result)


@pytest.mark.parametrize("section", ["metrics", "runs", "priors", "examples", "dataset", "versions", "created"])
def test_a_section_that_is_none_is_left_out(section, result):
    result[section] = None
    html = render_demo(result)
    gone = {"metrics": ["metrics"], "runs": ["metrics", "convergence", "training"], "examples": ["examples"]}
    gone["priors"] = ["priors", "prior-table"]
    assert not any(f'<section id="{name}"' in html for name in gone.get(section, []))
    assert "In single-positive learning" in html


def test_a_result_without_any_section_still_is_a_page():
    html = render_demo({})
    assert "<section" not in html
    assert html.rstrip().endswith("</html>")


def test_image_is_the_png_of_its_pixels():
    from PIL import Image

    pixels = np.linspace(-0.2, 1.2, 12).reshape(3, 4)
    data = base64.b64decode(image_uri(pixels.tolist()).removeprefix("data:image/png;base64,"))
    decoded = np.asarray(Image.open(io.BytesIO(data)))
    assert (decoded == (pixels.clip(0, 1) * 255).round()).all()
