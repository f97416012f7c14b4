"""Curves by epoch: means over the trials of what the runs noted, and what is left out where nothing was noted."""

import dataclasses
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from crisp_paper import traces as traced
from crisp_paper.pages import study_page
from crisp_paper.panels import EpochPanel, Names, epoch_chart

from onepos.bench.results import StudyResults
from onepos.bench.study_file import read_study
from onepos.criteria import CRITERIA
from onepos.metrics import METRICS
from onepos.report.charts.canvas import NARROW, WIDE
from onepos.report.page import render_html, render_markdown

FIGURES = Path(__file__).parents[2] / "studies" / "figures.toml"
N_EPOCHS, N_LABELS = 5, 4
TRUE = [0.5, 0.2, 0.1, 0.4]


def make_study(**changes):
    """Two data sets, four methods, one configuration in two trials."""
    figures = read_study(FIGURES)
    budget = dataclasses.replace(figures.budget, epochs=N_EPOCHS, trials=2)
    methods = ("an", "crisp", "crisp-3ep", "full")
    plain = {"datasets": ("yeast", "scene"), "methods": methods, "budget": budget, "shown_labels": {"yeast": (4, 2)}}
    return dataclasses.replace(figures, **(plain | changes))


def number(run, epoch, label):
    """Some number between 0 and 1, another for every run, epoch and label."""
    return math.modf(0.37 + 0.61 * int(run.key()[:4], 16) + 0.173 * epoch + 0.29 * label)[0]


def make_prior(run):
    """Unknown for two epochs; then new after each epoch, or after every third."""
    if run.method not in ("crisp", "crisp-3ep"):
        return []
    kept = [epoch if run.method == "crisp" else epoch - epoch % 3 for epoch in range(N_EPOCHS)]
    return [
        [None] * N_LABELS if epoch < 2 else [0.9 * number(run, kept[epoch], label) for label in range(N_LABELS)]
        for epoch in range(N_EPOCHS)
    ]


def make_result(run, n_epochs=N_EPOCHS, **more):
    scores = [[number(run, epoch, label) for label in range(N_LABELS)] for epoch in range(n_epochs)]
    timing = {"seconds_per_epoch": 0.5, "seconds": 2.0, "stack": 2, "device": "a box", "memory_bytes": 1 << 20}
    return {
        "test": dict.fromkeys(METRICS, 0.5),
        "validation": dict.fromkeys(METRICS, 0.5),
        "criteria": dict.fromkeys(CRITERIA, 0.5),
        "best_epoch": 1,
        "n_epochs": n_epochs,
        "diverged": False,
        "privileged": [],
        "prior": TRUE,
        "true_prior": [p + 0.01 * run.trial for p in TRUE],
        "n_labels": N_LABELS,
        "cardinality": 1.2,
        "prior_error": 0.1,
        "trace": {"mean_score": scores, "prior": make_prior(run)[:n_epochs]},
        "timing": timing | {"closing_seconds": 0.1 if run.trial else 0.02},
    } | more


def make_results(study, give=make_result):
    runs = tuple(study.runs())
    return StudyResults(study, runs, tuple((run, give(run)) for run in runs), {run.key(): "done" for run in runs}, {})


def of(study, dataset, method):
    return [run for run in study.runs() if (run.dataset, run.method) == (dataset, method)]


def test_curves_are_means_over_the_trials():
    study = make_study()
    yeast, scene = traced.read_traces(make_results(study))
    assert (yeast.dataset, scene.dataset) == ("yeast", "scene")
    assert list(yeast.labels) == [4, 2], "as the study says"
    assert list(scene.labels) == [1, 2, 3], "the first three, where it says nothing"
    np.testing.assert_allclose(yeast.true, np.add(TRUE, 0.005))
    for method in study.methods:
        pair = of(study, "yeast", method)
        naive = [[sum(number(run, e, j) for run in pair) / 2 for j in range(N_LABELS)] for e in range(N_EPOCHS)]
        np.testing.assert_allclose(yeast.scores[method], naive)
    panels = traced.score_panels([yeast, scene])
    assert [panel.title for panel in panels] == [
        "yeast, label 4",
        "yeast, label 2",
        *(f"scene, label {label}" for label in (1, 2, 3)),
    ]
    assert panels[1].truth == pytest.approx(0.205)
    np.testing.assert_allclose(panels[1].curves["an"], yeast.scores["an"][:, 1])


def test_the_error_of_the_priors_is_the_mean_over_labels():
    study = make_study()
    yeast, _ = traced.read_traces(make_results(study))
    assert list(yeast.errors) == ["crisp", "crisp-3ep"], "only these have priors"
    errors = []
    for run in of(study, "yeast", "crisp"):
        last = make_prior(run)[-1]
        errors += [abs(last[j] - (TRUE[j] + 0.01 * run.trial)) for j in range(N_LABELS)]
    assert yeast.errors["crisp"][-1] == pytest.approx(sum(errors) / len(errors))
    assert np.isnan(yeast.errors["crisp"]).tolist() == [True, True, False, False, False]
    assert list(yeast.estimating) == ["crisp"], "the other has new priors after fewer than half of its epochs"


def test_a_run_that_ended_early_and_unknown_labels_leave_the_mean_to_the_others():
    study = make_study(datasets=("yeast",))

    def give(run):
        result = make_result(run, n_epochs=3 if run.trial else N_EPOCHS)
        for row in result["trace"]["prior"]:
            row[2] = None
        return result

    (yeast,) = traced.read_traces(make_results(study, give))
    first, second = of(study, "yeast", "crisp")
    np.testing.assert_allclose(yeast.scores["crisp"][4], [number(first, 4, label) for label in range(N_LABELS)])
    assert yeast.scores["crisp"][2, 0] == pytest.approx((number(first, 2, 0) + number(second, 2, 0)) / 2)
    known = [abs(make_prior(first)[4][j] - TRUE[j]) for j in (0, 1, 3)]
    assert yeast.errors["crisp"][4] == pytest.approx(sum(known) / 3)


def test_labels_that_are_not_there_are_not_shown():
    study = make_study(datasets=("yeast",), shown_labels={"yeast": (1, 12)})
    assert list(traced.read_traces(make_results(study))[0].labels) == [1]


def test_the_tables_hold_the_numbers_of_the_curves():
    study = make_study()
    results = make_results(study)
    traces = traced.read_traces(results)
    table = traced.score_table(results, traces[0])
    assert table.header == ["Method", "Label", "1", "2", "3", "4", "5"]
    rows = {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in table.rows}
    assert len(rows) == 2 * (4 + 1)
    assert rows["true prior", "4"] == ["0.405"] * 5
    assert rows["an", "2"] == [f"{value:.3f}" for value in traces[0].scores["an"][:, 1]]
    table = traced.error_table(results, traces)
    rows = {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in table.rows}
    assert set(rows) == {(method, dataset) for method in ("crisp", "crisp-3ep") for dataset in ("yeast", "scene")}
    assert rows["crisp", "scene"][:2] == ["–", "–"]
    assert rows["crisp", "scene"][4] == f"{traces[1].errors['crisp'][4]:.3f}"


def test_the_time_of_the_estimate_is_shared_by_the_stack():
    results = make_results(make_study())
    table = traced.estimate_time_table(results, traced.read_traces(results))
    texts = [[cell.text for cell in row] for row in table.rows]
    assert texts == [[name, "crisp", "60 ms", "500 ms", "12 %", "2"] for name in ("yeast", "scene")]


def test_results_of_old_have_no_time_of_the_estimate():
    def give(run):
        result = make_result(run)
        del result["timing"]["closing_seconds"]
        return result

    results = make_results(make_study(), give)
    assert traced.estimate_time_table(results, traced.read_traces(results)) is None


@pytest.mark.parametrize("trace", [None, "absent"])
def test_a_study_without_traces_has_nothing_to_show(trace):
    def give(run):
        result = make_result(run, trace=None)
        return result if trace is None else {key: value for key, value in result.items() if key != "trace"}

    assert traced.read_traces(make_results(make_study(), give)) == []


def test_priors_that_are_never_known_are_no_curve():
    def give(run):
        unknown = [[None] * N_LABELS] * N_EPOCHS if run.method == "crisp" else []
        return make_result(run, trace={"mean_score": [[0.5] * N_LABELS] * N_EPOCHS, "prior": unknown})

    traces = traced.read_traces(make_results(make_study(), give))
    assert all(each.errors == {} for each in traces)
    assert traced.error_panels(traces) == []


# Charts.


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_every_curve_is_named_in_every_panel(width):
    names = [f"method-{k}" for k in range(17)]
    curves = {name: np.linspace(0.1, 0.2 + k / 20, 6) for k, name in enumerate(names)}
    panels = [EpochPanel(f"data, label {k}", curves, 0.3) for k in range(2)]
    svg = epoch_chart(panels, Names(names, names[0], names[1], names[5:7]), "x", "what it is", width)
    shown = texts(svg)
    for name in (*names, "true"):
        assert shown.count(name) == 2
    assert [text for text in shown if text and text.startswith("data")] == [panel.title for panel in panels]
    assert 'aria-label="what it is"' in svg


def test_everyone_is_drawn_in_a_way_of_their_own():
    names = Names([f"m{k}" for k in range(18)], "m0", "m1", ("m7", "m9"))
    styles = {name: names.style(name) for name in names.all}
    assert len({(style["color"], str(style["ls"]), style["lw"]) for style in styles.values()}) == 18
    assert {name for name, style in styles.items() if style["lw"] > 2} == {"m7", "m9"}
    assert styles["m7"]["ls"] == styles["m9"]["ls"] == "-"


# The page.


def test_the_page_has_the_sections_and_the_tables():
    results = make_results(make_study())
    page = study_page(results)
    html, markdown = render_html(page), render_markdown(page)
    sections = re.findall(r'<section id="([^"]*)"', html)
    place = sections.index("predicted-priors")
    assert sections[place : place + 4] == ["predicted-priors", "prior-convergence", "estimate-time", "paper-scores"]
    assert "selection" not in sections, "one configuration leaves nothing to choose"
    assert html.count('class="chart predicted-priors"') == html.count('class="chart prior-errors"') == 2
    assert "each with 1 configuration (grid) of 5 epochs in 2 trials" in html
    assert "The epoch is chosen by average precision" in html
    assert "## Predicted class priors by epoch" in markdown
    assert "| Method | Label | 1 | 2 | 3 | 4 | 5 |" in markdown
