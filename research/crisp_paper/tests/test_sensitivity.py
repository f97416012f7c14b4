"""A star: its rays, the centre that counts, the charts, and the pages in a browser."""

import dataclasses
import random
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from crisp_paper.pages import study_page
from crisp_paper.panels import value_chart
from crisp_paper.sensitivity import find_rays, make_panel, sensitivity_table

from onepos.bench.grid import Axis
from onepos.bench.results import StudyResults
from onepos.bench.study_file import read_study
from onepos.criteria import CRITERIA
from onepos.metrics import METRICS
from onepos.report.charts.canvas import NARROW, WIDE
from onepos.report.page import render_html

SENSITIVITY = Path(__file__).parents[2] / "studies" / "sensitivity.toml"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def make_study(**changes):
    """Two data sets; δ over decades, λ over less, and priors that are fixed; two trials."""
    shipped = read_study(SENSITIVITY)
    values = {"delta": (0.001, 0.1), "lam": (0.0, 2.0), "prior": (0.01, 0.1, 0.3)}
    plain = {
        "datasets": ("image", "yeast"),
        "budget": dataclasses.replace(shipped.budget, trials=2),
        "method_space": {"crisp-as-published": {name: Axis("values", entries) for name, entries in values.items()}},
    }
    return dataclasses.replace(shipped, **(plain | changes))


def score(run):
    return round(0.3 + 0.02 * run.configuration + 0.1 * run.trial + (0.3 if run.dataset == "yeast" else 0), 3)


def make_result(run, **more):
    """Validation is best at the last configuration: were one chosen, it would be that."""
    rng = random.Random(run.key())
    tested = dict.fromkeys(METRICS, score(run))
    timing = {"seconds_per_epoch": 0.1, "seconds": 0.4, "stack": 8, "device": "a box", "memory_bytes": 1 << 20}
    return {
        "test": tested,
        "validation": tested,
        "criteria": {name: rng.random() for name in CRITERIA},
        "best_epoch": 3,
        "n_epochs": 4,
        "diverged": False,
        "privileged": [],
        "prior": None,
        "true_prior": None,
        "n_labels": 2,
        "cardinality": 0.6,
        "prior_error": 0.2,
        "timing": timing,
    } | more


def make_results(study, give=make_result):
    runs = tuple(study.runs())
    finished = tuple((run, result) for run in runs if (result := give(run)) is not None)
    return StudyResults(study, runs, finished, {run.key(): "done" for run in runs}, {})


def test_of_a_star_the_centre_counts():
    results = make_results(make_study())
    assert {run.configuration for run, _ in results.chosen.values()} == {0}
    assert len(results.chosen) == 2 * 2 * 3


def test_a_ray_holds_the_scores_of_its_values_and_of_the_centre():
    study = make_study()
    delta, lam, prior = find_rays(make_results(study))
    assert [(ray.method, ray.parameter) for ray in (delta, lam, prior)] == [
        ("crisp-as-published", "delta"),
        ("crisp-as-published", "lam"),
        ("crisp-as-published", "prior"),
    ]
    assert delta.values == [0.001, 0.01, 0.1], "the centre's among them"
    assert lam.values == [0.0, 1.0, 2.0]
    assert prior.values == ["estimate", 0.01, 0.1, 0.3]
    assert (delta.centres["yeast"], lam.centres["yeast"], prior.centres["yeast"]) == (1, 1, 0)
    by_parameters = {}
    for run in study.runs():
        if (run.dataset, run.method) == ("yeast", "crisp-as-published"):
            key = run.parameters["delta"], run.parameters["lam"], run.parameters.get("prior", "estimate")
            by_parameters.setdefault(key, []).append(score(run))
    assert delta.trials["yeast"] == [by_parameters[value, 1.0, "estimate"] for value in delta.values]
    assert lam.trials["yeast"] == [by_parameters[0.01, value, "estimate"] for value in lam.values]
    assert prior.trials["yeast"] == [by_parameters[0.01, 1.0, value] for value in prior.values]


def test_no_star_no_rays():
    assert find_rays(make_results(make_study())) != []
    assert find_rays(make_results(make_study(sampler="grid"), lambda run: None)) == []
    assert find_rays(make_results(make_study(), lambda run: None if run.configuration else make_result(run))) == []


def test_runs_that_diverged_or_are_missing_are_left_out():
    def give(run):
        if run.dataset == "yeast":
            return None
        return make_result(run, diverged=run.configuration == 1 and run.trial == 0)

    delta = find_rays(make_results(make_study(), give))[0]
    assert list(delta.trials) == ["image"]
    assert [len(trials) for trials in delta.trials["image"]] == [1, 2, 2]


def test_the_place_of_a_value():
    delta, lam, prior = map(make_panel, find_rays(make_results(make_study())))
    assert (delta.is_log, lam.is_log, prior.is_log) == (True, False, True)
    assert (delta.is_apart, lam.is_apart, prior.is_apart) == (False, False, True)
    assert delta.places.tolist() == [0.001, 0.01, 0.1]
    assert prior.places[1:].tolist() == [0.01, 0.1, 0.3]
    assert 0 < prior.places[0] < 0.01
    assert prior.ticks == ["estimate", "0.01", "0.1", "0.3"]
    np.testing.assert_allclose(lam.curves["image"][0], [0.41, 0.35, 0.43])
    np.testing.assert_allclose(lam.curves["image"][1], [0.1 / np.sqrt(2)] * 3)


def test_values_that_are_words_stand_side_by_side():
    space = {"crisp-as-published": {"normalize": Axis("values", ("batch",)), "every": Axis("values", (2,))}}
    centre = {"crisp-as-published": {"normalize": "dataset", "every": 1}}
    every, normalize = map(make_panel, find_rays(make_results(make_study(method_space=space, centre=centre))))
    assert normalize.ticks == ["dataset", "batch"]
    assert normalize.places.tolist() == [0, 1]
    assert not normalize.is_log
    assert not normalize.is_apart
    assert every.ticks == ["1", "2"]
    assert "batch" in texts(value_chart([every, normalize], "score"))


def test_a_centre_that_the_study_does_not_know_is_called_default():
    panels = map(make_panel, find_rays(make_results(make_study(centre={}))))
    assert [panel.ticks[0] for panel in panels] == ["0.001", "0", "default"]


def test_the_table_says_which_is_the_centre():
    results = make_results(make_study())
    table = sensitivity_table(results, find_rays(results))
    assert table.header == ["Parameter", "Value", "image", "yeast"]
    rows = [[cell.flat() for cell in row] for row in table.rows]
    assert rows[1] == ["crisp-as-published: delta", "0.01", "0.350 ± 0.071 (centre)", "0.650 ± 0.071 (centre)"]
    assert rows[6][:2] == ["crisp-as-published: prior", "estimate"]
    assert [row[0] for row in rows[-2:]] == ["an (floor)", "full (oracle)"]
    assert len(rows) == 3 + 3 + 4 + 2


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_chart_names_data_sets_parameters_and_values(width):
    panels = [make_panel(ray) for ray in find_rays(make_results(make_study()))]
    shown = texts(value_chart(panels, "score", width))
    for text in (
        "image",
        "yeast",
        "crisp-as-published: delta",
        "crisp-as-published: lam",
        "crisp-as-published: prior",
        "0.001",
        "estimate",
        "0.3",
        "score",
    ):
        assert text in shown, text


def test_a_chart_of_one_trial_and_of_a_missing_centre():
    study = make_study(budget=dataclasses.replace(make_study().budget, trials=1))
    give = lambda run: None if run.configuration == 0 and run.dataset == "yeast" else make_result(run)  # noqa: E731
    panels = [make_panel(ray) for ray in find_rays(make_results(study, give))]
    assert np.isnan(panels[0].curves["yeast"]).sum() == 4
    assert "nan" not in value_chart(panels, "score")


# The page, also in a browser.


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    results = make_results(make_study())
    path = tmp_path_factory.mktemp("star") / "report.html"
    path.write_text(render_html(study_page(results)), encoding="utf-8")
    return path


def test_the_page_shows_the_star_and_chooses_nothing(report):
    html = report.read_text(encoding="utf-8")
    sections = re.findall(r'<section id="([^"]*)"', html)
    assert sections[:2] == ["star", "overview"]
    assert "sensitivity" in sections
    assert not {"rank-by-budget", "winners", "selection", "predicted-priors"} & set(sections)
    assert "each with 1 to 8 configurations (star) of 20 epochs in 2 trials" in html
    assert "of the configurations the centre of the star counts" in html


OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CLIPPED = """[...document.querySelectorAll('svg.chart')].flatMap(svg => {
    const b = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(text => {
        const a = text.getBoundingClientRect();
        return a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
    }).map(text => text.textContent);
})"""


def test_nothing_sticks_out(report):
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium found; install it with: apt install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(offline=True).new_page()
        page.goto(report.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        for width in (360, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(OVERFLOW) <= 0
            assert page.locator("svg.sensitivity:visible").count() == 1
            assert page.evaluate(CLIPPED) == []
        browser.close()
