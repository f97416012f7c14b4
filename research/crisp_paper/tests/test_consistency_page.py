"""The page of the consistency study: made of results.json alone, true to it, and readable on desk and phone."""

import copy
import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from crisp_paper.consistency_page import (
    BOUND_NAMES,
    PART_NAMES,
    RISK_NAMES,
    SOURCE_NAMES,
    make_report,
    number,
    slope_of,
    write_pages,
)
from crisp_paper.pages import find_differences

from onepos.report.charts.canvas import WIDE
from onepos.report.page import render_markdown
from onepos.report.tables import grouped

FOLDER = Path(__file__).parents[2] / "results" / "consistency"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CLIPPED = """svg => [...svg.querySelectorAll('text')].filter(text => {
    const a = text.getBoundingClientRect(), b = svg.getBoundingClientRect();
    return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
}).map(text => text.textContent)"""


@pytest.fixture(scope="module")
def committed():
    return json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))


@pytest.fixture
def results(committed, monkeypatch):
    """To be changed; its charts are not drawn, which takes longer than all the rest."""
    monkeypatch.setattr("crisp_paper.consistency_page.draw_panels", lambda *_: "<svg/>")
    return copy.deepcopy(committed)


def tables_of(results):
    sections = make_report(results).sections
    return {table.name: table for section in sections for table in (*section.tables, *section.folded)}


def test_the_files(committed, tmp_path, monkeypatch):
    monkeypatch.setattr("crisp_paper.consistency_page.draw_panels", lambda *_: "<svg/>")
    made = write_pages(FOLDER / "results.json", tmp_path / "new")
    assert [path.name for path in made] == ["report.html", "report.md"]
    assert find_differences((FOLDER / "report.md").read_text(encoding="utf-8"), make_report(committed)) == []


def test_results_are_small_and_enough(committed):
    assert (FOLDER / "results.json").stat().st_size < 200_000
    assert [data["name"] for data in committed["datasets"]] == ["digit-scenes", "yeast"]
    assert len(committed["study"]["sizes"]) >= 6
    assert committed["study"]["repetitions"] >= 5


def test_every_name_is_in_the_charts(committed):
    charts = {section.name: section.chart for section in make_report(committed).sections if section.chart}
    names = {
        "prior-error": [*SOURCE_NAMES.values(), *BOUND_NAMES.values()],
        "prior-parts": [*PART_NAMES.values(), "whole error"],
        "excess-risk": [*RISK_NAMES.values(), "best constant"],
    }
    for chart, expected in names.items():
        svg = ElementTree.fromstring(charts[chart].draw(WIDE))
        texts = {"".join(element.itertext()) for element in svg.iter() if element.tag.endswith("text")}
        assert texts >= {*expected, "slope −1/2", "digit-scenes", "yeast", "512", "16\u00a0384"}


def test_numbers_of_the_tables_are_those_of_the_results(results):
    text = render_markdown(make_report(results))
    for data in results["datasets"]:
        for curve in (*data["risk"]["excess"].values(), data["priors"]["errors"]["halves"]["mean"]):
            for value in curve["mean"]:
                assert number(value) in text
            assert slope_of(curve) in text


def test_failures_are_counted_and_marked(results):
    total = sum(c["estimates"] for data in results["datasets"] for c in data["priors"]["checks"].values())
    assert "The theorem's sides fail in 0 of" in render_markdown(make_report(results))
    results["datasets"][0]["priors"]["checks"]["halves"]["best_fails"] = 7
    results["datasets"][1]["risk"]["fails"]["theorem"]["mended"] = 4
    report = make_report(results)
    assert f"The theorem's sides fail in 7 of {grouped(3 * total)} checks" in render_markdown(report)
    assert [tile[0].split()[0] for tile in report.tiles[:2]] == ["7", "4"]
    tables = tables_of(results)
    assert ("7", "worse") in [(cell.text, cell.tone) for cell in tables["prior-checks"].rows[0]]
    assert ("4", "worse") in [(cell.text, cell.tone) for cell in tables["risk-checks"].rows[4]]


@pytest.mark.parametrize(
    ("slope", "words"),
    [(-0.51, "−1/2 within two standard errors"), (-0.9, "steeper than −1/2"), (-0.1, "flatter than −1/2")],
)
def test_slopes_are_put_into_words(results, slope, words):
    results["datasets"][0]["risk"]["excess"]["theorem"] |= {"slope": slope, "slope_error": 0.01}
    curve = results["datasets"][0]["risk"]["excess"]["theorem"]
    assert f"slope {slope_of(curve)} ({words})" in tables_of(results)["risk-digit-scenes"].about


def test_the_norm_table_is_that_of_the_results(results):
    tables = tables_of(results)
    for data in results["datasets"]:
        table = tables[f"norms-{data['name']}"]
        for row, each in zip(table.rows, data["risk"]["norms"], strict=True):
            curve, bound = each["excess"], each["bound"]["mean"]
            expected = ["30 (main)" if each["norm"] == 30 else number(each["norm"])]
            expected += [number(each[key]) for key in ("best", "constant")]
            expected += [number(curve["mean"][0]), number(curve["mean"][-1]), number(each["limit"])]
            expected += [slope_of(curve), slope_of(each["above_limit"])]
            expected += [number(bound[i] / curve["mean"][i]) for i in (0, -1)]
            assert [cell.text for cell in row] == expected
        assert "B = 30 was not fixed beforehand: the study was first made with B = 10" in table.about


def test_every_norm_is_among_the_cells(results):
    cells = make_report(results).downloads["cells.csv"]
    assert all(f'"risk excess theorem, B = {norm}"' in cells for norm in (3, 10, 100))
    assert "theorem, B = 30" not in cells  # it is the main one, there already


@pytest.mark.parametrize(
    ("slopes", "words"),
    [
        (
            (-0.9, -0.8, -0.7, -0.6),
            "the larger the class, the flatter the curve; it is steeper than −1/2 at B = 3, 10, 30",
        ),
        (
            (-0.1, -0.2, -0.3, -0.4),
            "the larger the class, the steeper the curve; it is flatter than −1/2 at B = 3, 10, 30",
        ),
        (
            (-0.9, -0.1, -0.7, -0.6),
            "nor always steeper with a larger class; it is steeper than −1/2 at B = 3, 30, 100 and",
        ),
        ((None, -0.8, -0.7, -0.6), "steeper than −1/2 at B = 10, 30, 100."),
        ((None, None, None, -0.6), "There are no slopes to compare."),
    ],
)
def test_slopes_over_the_norms_are_put_into_words(results, slopes, words):
    for each, slope in zip(results["datasets"][0]["risk"]["norms"], slopes, strict=True):
        each["excess"] |= {"slope": slope, "slope_error": 0.01}
    about = tables_of(results)["norms-digit-scenes"].about
    assert words in about
    if None not in slopes:
        steepest, flattest = (f"{choose(slopes):.3f} ± 0.010".replace("-", "−") for choose in (min, max))
        assert f"The slope lies between {steepest} (B = " in about
        assert f" and {flattest} (B = " in about


def test_a_class_that_gains_nothing_is_said_to(results):
    norms = results["datasets"][0]["risk"]["norms"]
    for each, gain in zip(norms, (-0.2, -0.1, 0.3, 0.4), strict=True):
        each["constant"] = gain
    norms[1]["best"] = norms[0]["best"] + 1
    norms[1]["fails"] = 3
    table = tables_of(results)["norms-digit-scenes"]
    assert "At B = 3, 10 nothing is found in the class that is as good as a constant." in table.about
    assert "not lower with every larger class" in table.about
    assert "it fails in 3 of 120 runs" in table.about
    assert [row[2].tone for row in table.rows] == ["worse", "worse", "", ""]
    norms[0]["constant"] = norms[1]["constant"] = 0.1
    assert "nothing is found" not in tables_of(results)["norms-digit-scenes"].about


def test_what_is_not_known_is_a_dash(results):
    results["datasets"][0]["priors"]["labels"][0]["halves"] = None
    results["datasets"][0]["risk"]["above_limit"]["theorem"] |= {"slope": None, "slope_error": None}
    tables = tables_of(results)
    assert [cell.text for cell in tables["labels-digit-scenes"].rows[0]][3] == "–"
    assert [cell.text for cell in tables["risk-digit-scenes"].rows[-1]][1] == "–"


def test_the_largest_part_is_named(results):
    parts = results["datasets"][0]["priors"]["parts"]
    parts["chance"]["mean"]["mean"][-1] = 0.777
    assert "the largest is: chance (0.777)" in render_markdown(make_report(results))


def test_the_page_in_a_browser(tmp_path):
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium found; install it with: apt install chromium")
    write_pages(FOLDER / "results.json", tmp_path)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width in (360, 1280):
            page = browser.new_context(offline=True, viewport={"width": width, "height": 900}).new_page()
            page.goto((tmp_path / "report.html").as_uri())
            charts = [chart for chart in page.query_selector_all("svg.chart") if chart.is_visible()]
            assert len(charts) == 3
            assert page.evaluate(OVERFLOW) <= 0
            for chart in charts:
                assert chart.evaluate(CLIPPED) == []
                assert chart.bounding_box()["width"] > 250
        browser.close()
