"""The page as a browser shows it, with the network switched off."""

import shutil

import pytest

from onepos.files import write_atomically
from onepos.report import render_demo

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Charts keep to themselves: no text of a chart sticks out of its drawing.
CLIPPED = """svg => [...svg.querySelectorAll('text')].filter(text => {
    const a = text.getBoundingClientRect(), b = svg.getBoundingClientRect();
    return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
}).map(text => text.textContent)"""


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium found; install it with: apt install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, tmp_path):
    """Opens a result's page; what the page complains about or asks for is in `page.heard`."""
    contexts = []

    def visit(html, width, scheme="light"):
        path = write_atomically(tmp_path / "page.html", html)
        context = browser.new_context(offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.heard = []
        page.on("console", lambda message: page.heard.append(message.text))
        page.on("pageerror", lambda error: page.heard.append(str(error)))
        page.on("request", lambda request: page.heard.append(request.url))
        page.goto(path.as_uri())
        page.heard = [text for text in page.heard if text != path.as_uri() and not text.startswith("data:")]
        return page

    yield visit
    for context in contexts:
        context.close()


@pytest.mark.parametrize("n_labels", [10, 400])
def test_charts_and_tables_are_visible(visit, make_result, n_labels):
    result = make_result(n_labels)
    html = render_demo(result)
    for width in (360, 800, 1280):
        check_visible(visit(html, width), result)


def check_visible(page, result):
    charts = [chart for chart in page.query_selector_all("svg.chart") if chart.is_visible()]
    assert len(charts) == 5
    for chart in charts:
        box = chart.bounding_box()
        assert box["width"] > 250
        assert box["height"] > 150
        assert sum(text.is_visible() for text in chart.query_selector_all("text")) > 8
        assert chart.evaluate(CLIPPED) == []
        size = chart.evaluate("svg => svg.querySelector('text').getBoundingClientRect().height")
        assert size >= 10
    assert page.locator("#methods tbody tr:visible").count() == 4
    page.locator("#priors summary").click()
    assert page.locator("#priors tbody tr:visible").count() == result["dataset"]["n_labels"]
    assert page.locator("#completed img:visible").count() == len(result["story"]["shown"])
    assert page.locator("img").first.evaluate("image => image.naturalWidth") == 16
    assert page.evaluate(OVERFLOW) <= 0
    assert page.heard == []


def test_long_names_do_not_widen_the_page(visit, result):
    name = "a_rather_long_name_without_any_place_to_break_it_" * 3
    result["title"] = result["runs"][2]["name"] = result["dataset"]["name"] = name
    result["labels"][0] = result["doubts"][0]["item"] = result["doubts"][0]["texts"][0][1] = name
    result["story"]["given"][0] |= {"observed": [name], "hidden": [name]}
    html = render_demo(result)
    for width in (360, 1280):
        page = visit(html, width)
        assert page.evaluate(OVERFLOW) <= 0
        for chart in page.query_selector_all("svg.chart"):
            assert chart.evaluate(CLIPPED) == []


def test_charts_follow_the_dark_theme(visit, result):
    html, colours = render_demo(result), {}
    for scheme in ("light", "dark"):
        page = visit(html, 1280, scheme)
        colours[scheme] = page.locator(".wide .prior-chart text").first.evaluate("e => getComputedStyle(e).fill")
        colours[scheme, "page"] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colours["light"] != colours["dark"]
    assert colours["light", "page"] != colours["dark", "page"]


def test_the_printed_page_shows_the_wide_charts_on_white(visit, result):
    page = visit(render_demo(result), 360, "dark")
    page.emulate_media(media="print")
    assert page.locator(".wide svg:visible").count() == 5
    assert page.locator(".narrow svg:visible").count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
