"""Readings of CRISP: their study shares its runs with the fair one, and the page ranks what is complete."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from crisp_paper import readings_page
from crisp_paper.pages import find_differences
from crisp_paper.readings import READINGS, readings_as_methods

from onepos.bench.results import StudyResults
from onepos.bench.study_file import read_study
from onepos.methods import CRISP, METHODS

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def with_readings():
    with readings_as_methods():
        yield


def test_readings_are_methods_only_within():
    with readings_as_methods():  # a second time
        assert "letter-true" in METHODS
    assert "letter-true" in METHODS  # the outer one still holds


@pytest.mark.parametrize(("name", "fair"), [("crisp-readings", "fair"), ("crisp-readings-features", "features")])
def test_runs_are_those_of_the_fair_study_with_its_seed(name, fair):
    """So AN, full labels and the letter need not be run again."""
    study = read_study(ROOT / "studies" / f"{name}.toml")
    other = read_study("fair" if fair == "fair" else ROOT / "studies" / "features.toml")
    keys = {run.key() for run in dataclasses.replace(other, seed=25).runs()}
    shared = [run for run in study.runs() if run.method in ("an", "full", "crisp-as-published", "crisp")]
    shared = [run for run in shared if run.dataset in other.datasets]
    assert shared
    assert all(run.key() in keys for run in shared)


def test_readings_are_what_they_say():
    assert set(READINGS) <= set(METHODS)
    for name, (_, make) in READINGS.items():
        method = make()
        assert isinstance(method, CRISP)
        letter = name.startswith("letter") or name == "crisp-as-published"
        assert (method.align, method.reduction) == (("exact", "sum") if letter else ("smooth", "mean"))
    assert READINGS["crisp"][1]().get_params() == CRISP().get_params()


def fake_results(scores):
    """One data set, one configuration: (method, trial) → test score in every metric."""
    study = read_study(ROOT / "studies" / "crisp-readings.toml")
    budget = dataclasses.replace(study.budget, trials=2, configurations=1)
    study = dataclasses.replace(study, datasets=("yeast",), budget=budget, budgets={})
    finished = []
    for run in study.runs():
        score = scores.get((run.method, run.trial), math.nan)
        if not math.isnan(score):
            each = dict.fromkeys(readings_page.RANKED, score)
            finished.append((run, {"test": each, "validation": each, "criteria": {}, "diverged": False}))
    states = {run.key(): "done" for run, _ in finished}
    return StudyResults(study, tuple(study.runs()), tuple(finished), states, {})


def test_ranks_by_hand():
    """Higher is better for average precision, lower for ranking loss; with two trials the mean counts."""
    methods = ["an", *READINGS]
    scores = {(name, trial): 0.1 * (k + 1) / 2 + 0.01 * trial for k, name in enumerate(methods) for trial in (0, 1)}
    page = readings_page.make_readings([fake_results(scores)])
    table = page.sections[0].tables[0]
    by_name = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    column = table.header[1:].index("Average precision"), table.header[1:].index("Ranking loss")
    n = len(methods)
    for k, name in enumerate(methods):
        row = by_name["AN" if name == "an" else name]
        assert row[column[0]] == f"{n - k:.1f}"
        assert row[column[1]] == f"{k + 1:.1f}"


def test_a_method_with_missing_runs_is_left_out():
    results = fake_results({("an", 0): 0.5, ("an", 1): 0.5, ("crisp", 0): 0.6})
    scores = readings_page._complete_scores([results], "map")
    assert list(scores["yeast"]) == ["an"]
    np.testing.assert_allclose(scores["yeast"]["an"], [0.5, 0.5])


def test_the_committed_page_follows_from_its_runs():
    page = readings_page.make_readings(readings_page.read_studies(ROOT / "results"))
    committed = (ROOT / "results" / "crisp-readings.md").read_text(encoding="utf-8")
    assert find_differences(committed, page) == []


def test_the_table_on_the_page_of_crisp_is_that_of_the_study():
    """docs/methods/crisp.md shows some columns of the ranks and of the printed numbers reached."""
    page = readings_page.make_readings(readings_page.read_studies(ROOT / "results"))
    ranks, _, printed = (section.tables[0] for section in page.sections[:3])
    shown = ("Average precision", "Hamming loss", "Micro-F1", "Macro-F1", "All")
    reached = {row[0].text: row[-1].text for row in printed.rows}
    expected = [
        [
            f"`{row[0].text}`" if row[0].text in READINGS else row[0].text,
            READINGS.get(row[0].text, ("assume negative",))[0],
            *(row[list(ranks.header).index(name)].text for name in shown),
            reached[row[0].text],
        ]
        for row in ranks.rows
    ]
    lines = (ROOT.parent / "docs" / "methods" / "crisp.md").read_text(encoding="utf-8").split("\n")
    start = next(k for k, line in enumerate(lines) if line.startswith("| reading |"))
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines[start + 2 : start + 2 + len(expected)]
    ]
    assert found == expected
