import re
import subprocess
import sys
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest

from onepos.report.charts.canvas import NARROW, SERIES, WIDE, shorten, spread
from onepos.report.charts.fits import convergence_labels, prior_chart, prior_convergence, training_curves

CHARTS = [prior_convergence, prior_chart, training_curves]


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("chart", CHARTS)
def test_charts_are_svg_and_the_same_twice(chart, width, result):
    svg = chart(result, width)
    assert ElementTree.fromstring(svg).get("viewBox").startswith(f"0 0 {width} ")
    assert chart(result, width) == svg
    assert "<metadata" not in svg
    assert "http://purl.org" not in svg


def test_charts_name_what_they_show(result):
    assert set(result["priors"]["label"]) <= set(texts(prior_convergence(result)))
    assert {*result["priors"]["label"], "true prior", "observed share", "estimated"} <= set(texts(prior_chart(result)))
    assert {"CRISP", "AN (floor)", "Training loss", "Validation score"} <= set(texts(training_curves(result)))


def test_colours_follow_the_page_and_fall_back_to_light(result):
    svg = prior_convergence(result)
    assert f"stroke: var(--c0, {SERIES[0]})" in svg
    assert not re.search(r"(fill|stroke): #(?!0{6})", svg)


def test_the_users_matplotlib_settings_do_not_matter(result):
    import matplotlib

    before = prior_chart(result)
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        assert prior_chart(result) == before
        assert matplotlib.rcParams["font.size"] == 30


def test_names_are_text_not_markup_nor_formulas(result):
    result["priors"]["label"][0] = "<script>&"
    result["priors"]["label"][1] = "$x_1$"
    for chart in (prior_convergence, prior_chart):
        svg = chart(result)
        assert "<script" not in svg
        assert {"<script>&", "$x_1$"} <= set(texts(svg))


@pytest.mark.parametrize("unknown", [None, float("nan")])
def test_unknown_priors_are_marked_or_left_out(unknown, result):
    for name in ("estimated", "lower", "upper"):
        result["priors"][name][3] = unknown
    for row in result["runs"][2]["history"]["prior"][3:]:
        row[3] = unknown
    assert texts(prior_chart(result)).count("unknown") == 1
    assert "digit 3" in texts(prior_chart(result))
    assert "digit 3" not in texts(prior_convergence(result))
    assert 3 not in convergence_labels(result)


def test_all_priors_unknown(result):
    for name in ("true", "estimated", "lower", "upper"):
        result["priors"][name] = [None] * 10
    result["runs"][2]["history"]["prior"] = [None] * 20
    assert texts(prior_chart(result)).count("unknown") == 10
    assert prior_convergence(result) == ""


def test_estimates_from_before_stand_beside_the_new_ones(result):
    assert "estimated before" not in texts(prior_chart(result))
    result["priors"] |= {"before": [0.5 * p for p in result["priors"]["estimated"]], "observed_share": None}
    shown = texts(prior_chart(result))
    assert "estimated before" in shown
    assert "observed share" not in shown


def test_unreliable_estimates_have_a_hollow_marker(result):
    result["priors"]["reliable"] = [True] * 10
    assert "wide interval" not in texts(prior_chart(result))
    result["priors"]["reliable"][4] = False
    assert "wide interval" in texts(prior_chart(result))


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_four_hundred_labels(width, make_result):
    many = make_result(400)
    many["priors"]["estimated"][7] = None
    many["priors"]["estimated"][8] = 0.0
    shown = [text for text in texts(prior_convergence(many, width)) if text.startswith("tag-")]
    assert len(shown) == 12
    counts = many["priors"]["n_positive"]
    chosen = [counts[j] for j in convergence_labels(many)]
    assert len(set(convergence_labels(many))) == 12
    assert (max(chosen), min(chosen)) == (max(counts), min(counts))
    scatter = texts(prior_chart(many, width))
    assert {"true prior", "estimated prior", "left out: 2 labels, unknown or zero"} <= set(scatter)
    assert not any(text.startswith("tag-") for text in scatter)
    many["priors"]["true"] = None
    assert "observed share" in texts(prior_chart(many, width))


def test_one_epoch_one_run(make_result):
    one = make_result(n_epochs=4)
    one["runs"] = one["runs"][2:3]
    one["runs"][0]["history"] = {"epoch": [0], "loss": [0.5], "validation": [None], "prior": [[0.1] * 10]}
    assert "digit 9" in texts(prior_convergence(one))
    assert "Validation score" not in texts(training_curves(one))


def test_a_run_without_history_keeps_its_place_in_the_legend(result):
    result["runs"][3]["history"] = None
    assert "WAN" in texts(training_curves(result))
    assert training_curves({"runs": [{"name": "x", "history": None}]}) == ""


@pytest.mark.parametrize("chart", CHARTS)
def test_nothing_to_draw(chart):
    assert chart({"dataset": {"label_names": []}, "runs": None, "priors": None}) == ""


def test_spread_keeps_the_gap_the_order_and_the_limits():
    rng = np.random.default_rng(0)
    for _ in range(50):
        heights = rng.uniform(0, 100, 6) ** rng.uniform(0.2, 1)
        placed = spread(heights, gap=15, low=0, high=100)
        assert np.diff(np.sort(placed)).min() >= 15 - 1e-9
        assert placed.min() >= 0
        assert placed.max() <= 100 + 1e-9
        assert (np.argsort(placed) == np.argsort(heights, kind="stable")).all()


def test_shorten():
    assert shorten("a  long\nname", 6) == "a lon…"
    assert shorten(7, 6) == "7"


def test_importing_the_room_loads_neither_torch_nor_matplotlib():
    code = "import sys, onepos.report; print([m for m in ('torch', 'matplotlib', 'jinja2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
