"""The report of a study as files: whole, the same twice, nothing from outside."""

import csv
import dataclasses
import io
import random
import re
import shutil
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from onepos.bench.statistics import friedman
from onepos.bench.store import Store
from onepos.bench.study import Selection
from onepos.bench.study_file import read_study
from onepos.criteria import CRITERIA
from onepos.metrics import METRICS
from onepos.report.charts.canvas import NARROW, WIDE
from onepos.report.charts.ranks import budget_chart, critical_difference_diagram
from onepos.report.study_page import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUALITY = {"an": 0.3, "crisp": 0.6, "wan": 0.5, "full": 0.8}
VOID = {"meta", "link", "br", "img"}


def make_result(run):
    """Plausible in shape, invented in value."""
    rng = random.Random(run.key())
    good = QUALITY[run.method] + 0.02 * run.configuration

    def scores():
        quality = {name: min(1.0, good + rng.uniform(-0.02, 0.02)) for name in METRICS}
        return {name: q if METRICS[name].greater_is_better else 1 - q for name, q in quality.items()}

    return {
        "test": scores(),
        "validation": scores(),
        "criteria": {name: rng.random() for name in CRITERIA},
        "best_epoch": rng.randrange(4),
        "n_epochs": 4,
        "diverged": False,
        "prior": [0.4, 0.1],
        "true_prior": [0.5, 0.1],
        "n_labels": 2,
        "cardinality": 0.6,
        "prior_error": rng.random(),
        "privileged": ["mean number of labels"] if run.method == "wan" else [],
        "timing": {"seconds_per_epoch": 0.1, "seconds": 0.4, "stack": 8, "device": "a box", "memory_bytes": 1 << 20},
    }


def fill(folder, n_missing=0, **changes):
    study = dataclasses.replace(read_study("smoke"), methods=("an", "crisp", "wan", "full"), **changes)
    store = Store(folder)
    store.keep_study(study)
    runs = study.runs()
    for run in runs[: len(runs) - n_missing]:
        store.save(run, make_result(run))
    return store, study


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished study and its report."""
    path = tmp_path_factory.mktemp("study")
    fill(path / "store")
    write_report(path / "store", path / "report")
    return path


def read(folder, name):
    return (folder / "report" / name).read_text(encoding="utf-8")


class Balance(HTMLParser):
    """Complains of a tag that is closed out of order, or of an identifier that comes twice."""

    def __init__(self):
        super().__init__()
        self.open, self.names = [], []

    def handle_starttag(self, tag, attrs):
        self.names += [value for name, value in attrs if name == "id" and tag == "section"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_files(folder, tmp_path):
    paths = write_report(folder / "store", tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["report.html", "report.md", "tables.tex", "cells.csv", "trials.csv"]
    for path in paths:
        assert path.read_text(encoding="utf-8") == read(folder, path.name)  # the same twice


def test_the_page_is_well_formed_and_needs_nothing_from_outside(folder):
    html = read(folder, "report.html")
    parser = Balance()
    parser.feed(html)
    assert parser.open == []
    assert len(set(parser.names)) == len(parser.names) >= 15
    assert "default-src 'none'" in html
    assert "<script" not in html
    assert not re.search(r"url\((?!#)", html)
    addresses = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert all(address.startswith(("data:", "#")) for address in addresses)
    targets = {address[1:] for address in re.findall(r'<a href="(#[^"]*)"', html)}
    assert targets == set(parser.names)


def test_every_row_is_as_long_as_its_head(folder):
    html = read(folder, "report.html")
    tables = re.findall(r"<table.*?</table>", html, re.DOTALL)
    assert len(tables) > 30
    for table in tables:
        sizes = {len(re.findall("<t[hd][ >]", row)) for row in re.findall("<tr.*?</tr>", table, re.DOTALL)}
        assert len(sizes) == 1, table[:200]


def test_a_finished_study_has_no_alarm_and_an_unfinished_one_has(folder, tmp_path):
    assert "Unfinished" not in read(folder, "report.html")
    store, study = fill(tmp_path / "store", n_missing=3)
    store.fail(study.runs()[-1], RuntimeError("<b>out</b> of memory"))
    write_report(tmp_path / "store", tmp_path / "report")
    for name in ("report.html", "report.md", "tables.tex"):
        assert "Unfinished: 3 of 64 runs are missing (2 waiting, 1 failed)." in read(tmp_path, name)
    assert "RuntimeError: &lt;b&gt;out&lt;/b&gt; of memory" in read(tmp_path, "report.html")


def test_a_study_whose_other_runs_are_skipped_is_finished(tmp_path):
    store, study = fill(tmp_path / "store", n_missing=1, selection=Selection("micro_f1", "full"))
    store.skip(study.runs()[-1], "it needs\n\nmore " + 300 * "x")
    write_report(tmp_path / "store", tmp_path / "report")
    html = read(tmp_path, "report.html")
    assert "Finished but for what was skipped: 1 of 64 runs are missing (1 skipped)." in html
    assert "it needs more xxx" in html
    assert "Micro-F1 ↑" in html  # the metric of the selection is always shown


def test_a_study_without_results_is_a_page(tmp_path):
    fill(tmp_path / "store", n_missing=64)
    write_report(tmp_path / "store", tmp_path / "report")
    html = read(tmp_path, "report.html")
    assert "Unfinished: 64 of 64 runs are missing (64 waiting)." in html
    assert "<svg" not in html
    assert len(list(csv.DictReader(io.StringIO(read(tmp_path, "cells.csv"))))) == 2 * 4 * len(METRICS)


def test_the_page_tells_what_is_in_the_study(folder):
    html = read(folder, "report.html")
    for text in (
        "Benchmark: smoke",
        "4 methods on 2 data sets, each with 4 configurations (sobol) of 4 epochs in 2 trials",
        "† Privileged: uses more than single positives. wan: mean number of labels.",
        "wan †</span>",
        '<span class="badge">oracle</span>',
        "Do the ranks differ at all?",
        "How much of the way to full labels",
        "crisp</strong><span>best mean rank in average precision: 1.00, of 3 methods",
    ):
        assert text in html, text


def test_the_other_formats_hold_every_table(folder):
    html, markdown, latex = (read(folder, name) for name in ("report.html", "report.md", "tables.tex"))
    n_tables = html.count("<table")
    assert len(re.findall(r"^\|:---\|", markdown, re.MULTILINE)) == n_tables
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == n_tables
    for line in latex.splitlines():
        assert line.startswith("%") or not re.search(r"(?<!\\)[_#]", line), line


def test_scores_on_the_page_follow_from_the_csv(folder):
    trials = list(csv.DictReader(io.StringIO(read(folder, "trials.csv"))))
    for cell in csv.DictReader(io.StringIO(read(folder, "cells.csv"))):
        key = cell["dataset"], cell["method"]
        values = [float(row[cell["metric"]]) for row in trials if (row["dataset"], row["method"]) == key]
        assert float(cell["mean"]) == pytest.approx(sum(values) / len(values))
        if cell["metric"] != "micro_f1":
            assert f"{float(cell['mean']):.3f} ± {float(cell['std']):.3f}" in read(folder, "report.md")


# Charts.


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_diagram_names_methods_and_distance(width):
    names = [f"method-{k}" for k in range(9)]
    scores = {dataset: {name: k + 0.1 * len(dataset) for k, name in enumerate(names)} for dataset in ("a", "bb", "c")}
    test = friedman(scores, greater_is_better=False)
    svg = critical_difference_diagram(test, "x", width)
    assert critical_difference_diagram(test, "x", width) == svg
    assert f"critical difference {test.critical_difference:.2f}" in texts(svg)
    for name in names:
        assert sum(name in text for text in texts(svg)) == 1
    if width == WIDE:
        assert "method-0  1.00" in texts(svg)
        assert "9.00  method-8" in texts(svg)


def test_the_budget_chart_has_the_best_on_top():
    svg = budget_chart({1: {"a": 1.0, "b": 2.0}, 2: {"a": 2.0, "b": 1.0}}, "a")
    elements = [each for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("}text")]
    places = {each.text: float(each.get("y")) for each in elements if each.text in ("a", "b")}
    assert places["b"] < places["a"]
    assert budget_chart({1: {"a": 1.0, "b": 2.0}}, "a") == ""


# In a browser, with the network switched off.

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Charts keep to themselves: no text of a chart sticks out of its drawing.
CLIPPED = """[...document.querySelectorAll('svg.chart')].flatMap(svg => {
    const b = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(text => {
        const a = text.getBoundingClientRect();
        return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
    }).map(text => text.textContent);
})"""


@pytest.fixture(scope="module")
def page(folder):
    """The page with everything unfolded; what it complains of is in `page.heard`."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium found; install it with: apt install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(offline=True, color_scheme="light").new_page()
        page.heard = []
        page.on("console", lambda message: page.heard.append(message.text))
        page.goto((folder / "report" / "report.html").as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        yield page
        browser.close()


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_nothing_sticks_out(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate(OVERFLOW) <= 0
    assert page.locator("svg.chart:visible").count() == 8
    assert page.evaluate(CLIPPED) == []
    assert page.heard == []


def test_the_dark_page_is_dark(page):
    colours = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colours[scheme] = [
            page.locator(selector).first.evaluate("e => getComputedStyle(e).backgroundColor")
            for selector in ("body", "section", "tr.reference td", "td[style]")
        ]
    assert all(light != dark for light, dark in zip(colours["light"], colours["dark"], strict=True))
