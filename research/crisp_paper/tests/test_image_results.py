"""The page on images: scores, shares, and why methods end below the floor, on invented runs."""

import dataclasses
from pathlib import Path

import pytest
from crisp_paper.image_results import below_table, find_below, make_image_results, score_table
from crisp_paper.paper import paper_value

from onepos.bench.results import StudyResults
from onepos.bench.run import run_one
from onepos.bench.study import Budget
from onepos.bench.study_file import read_study
from onepos.datasets import load_dataset
from onepos.metrics import METRICS
from onepos.report.page import render_markdown

VOC, COCO = "voc2012-features", "coco2014-features"
NOISE = (-0.001, 0.001, 0.0)  # of three draws

STUDIES = Path(__file__).parents[2] / "studies"


def make_results(levels, change=lambda run, result: None, n_configurations=2, **fields):
    """Configurations of each method, the first at the level given, others lower on validation and test rows alike."""
    study = dataclasses.replace(
        read_study(STUDIES / "features.toml"),
        methods=tuple(levels),
        budget=Budget(10, 3, n_configurations),
        budgets={},
        **fields,
    )
    runs = tuple(study.runs())
    finished = []
    for run in runs:
        score = levels[run.method] + NOISE[run.trial] - 0.1 * run.configuration
        scores = {name: score if metric.greater_is_better else 1 - score for name, metric in METRICS.items()}
        result = {"test": scores, "validation": dict(scores), "criteria": {}, "diverged": False, "privileged": []}
        result |= {"best_epoch": 7, "prior_error": 0.25, "timing": {}}
        change(run, result)
        finished.append((run, result))
    return StudyResults(study, runs, tuple(finished), {run.key(): "done" for run in runs}, {})


def row_of(table, method):
    (row,) = (cells for cells in table.rows if cells[0].text == method)
    return [cell.flat() for cell in row]


def reasons_of(results, method, variants=()):
    (found,) = (each.reasons for each in find_below(results, VOC, variants) if each.method == method)
    return found


def test_scores_shares_and_the_papers_number():
    results = make_results({"full": 0.85, "an": 0.80, "crisp": 0.82, "wan": 0.79})
    table = score_table(results, VOC)
    printed = paper_value("map", "voc", "crisp")
    assert row_of(table, "crisp") == [
        "crisp",
        "82.00 ± 0.10",
        "40 %",
        "+2.00 better",
        f"{printed.mean:.2f} ± {printed.std:.2f}",
    ]
    assert row_of(table, "wan")[2:4] == ["−20 %", "−1.00 worse"]
    assert row_of(table, "full")[4] == "–"
    assert row_of(score_table(results, COCO), "an")[4] == "64.33 ± 0.20"
    assert [cells[0].text for cells in table.rows if cells[1].is_best] == ["crisp"]
    assert (
        "full reaches 85.00 and an reaches 80.00. Of 2 methods 1 end below an: wan. Clearly below: wan." in table.about
    )
    assert "another backbone and resolution" in table.about
    assert "not comparable" in table.about


def test_only_methods_below_the_floor_are_explained_the_lowest_first():
    results = make_results({"full": 0.85, "an": 0.80, "crisp": 0.82, "wan": 0.79, "em": 0.70})
    assert [each.method for each in find_below(results, VOC)] == ["em", "wan"]
    assert below_table(make_results({"full": 0.85, "an": 0.80, "wan": 0.81}), VOC) is None


def test_a_difference_within_noise_is_even():
    def wobble(run, result):
        if run.method == "wan":
            result["test"]["map"] += (0.03, -0.03, 0.0)[run.trial]

    results = make_results({"full": 0.85, "an": 0.80, "wan": 0.799}, wobble)
    assert reasons_of(results, "wan")[0] == "even"
    assert "None of them clearly." in score_table(results, VOC).about
    assert "even" not in reasons_of(make_results({"full": 0.85, "an": 0.80, "wan": 0.799}), "wan")


def test_choice_where_another_configuration_gets_there():
    def mislead(run, result):
        if run.method == "wan" and run.configuration == 1:
            result["test"]["map"] = 0.9

    levels = {"full": 0.85, "an": 0.80, "wan": 0.79}
    assert "choice" in reasons_of(make_results(levels, mislead), "wan")
    assert "no configuration (of 2)" in reasons_of(make_results(levels), "wan")
    (found,) = find_below(make_results(levels, mislead), VOC)
    assert found.hindsight == pytest.approx(0.9)


def test_a_diverged_run_is_no_hindsight():
    def diverge(run, result):
        if run.method == "wan" and run.configuration == 1:
            result["test"]["map"] = 0.9
            result["diverged"] = True

    results = make_results({"full": 0.85, "an": 0.80, "wan": 0.79}, diverge)
    assert "no configuration (of 2)" in reasons_of(results, "wan")


@pytest.mark.parametrize(
    ("epoch", "said"), [(1, "early (3 of 3 trials)"), (9, "unfinished (3 of 3 trials)"), (7, None), (5, None)]
)
def test_the_epoch_kept(epoch, said):
    """The first configuration of the study has a warm-up of five epochs, and there are ten."""

    def keep(run, result):
        result["best_epoch"] = epoch

    results = make_results({"full": 0.85, "an": 0.80, "crisp": 0.79}, keep)
    assert results.chosen[VOC, "crisp", 0][0].parameters["warmup"] == 5
    words = ("early", "unfinished")
    assert [text for text in reasons_of(results, "crisp") if text.startswith(words)] == ([said] if said else [])


def test_the_end_of_the_range_of_learning_rates():
    """The last of four configurations has the greatest; of two, one is the greatest whatever is chosen."""

    def prefer_last(run, result):
        result["validation"]["map"] += 0.5 * (run.configuration == 3)

    levels = {"full": 0.85, "an": 0.80, "wan": 0.79}
    results = make_results(levels, prefer_last, n_configurations=4)
    assert max(results.finished, key=lambda each: each[0].lr)[0].configuration == 3
    assert "greatest learning rate (3 of 3 trials)" in reasons_of(results, "wan")
    for other in (make_results(levels, n_configurations=4), make_results(levels)):
        assert not [text for text in reasons_of(other, "wan") if "learning rate" in text]


def test_what_another_start_gives():
    results = make_results({"full": 0.85, "an": 0.80, "wan": 0.79})
    variant = make_results({"full": 0.85, "an": 0.81, "wan": 0.82}, bias_init="zero", datasets=(VOC,))
    assert reasons_of(results, "wan", [variant])[-1] == "start: at zero it gets 82.00, an 81.00: not below"
    worse = make_results({"full": 0.85, "an": 0.81, "wan": 0.80}, bias_init="zero", datasets=(VOC,))
    assert reasons_of(results, "wan", [worse])[-1] == "start: at zero it gets 80.00, an 81.00: below as well"
    others = make_results({"full": 0.85, "an": 0.81, "em": 0.82}, bias_init="zero", datasets=(VOC,))
    assert reasons_of(results, "wan", [others]) == reasons_of(results, "wan")
    assert below_table(results, COCO, [variant]).rows[0][-1].text == below_table(results, COCO).rows[0][-1].text


def test_a_privileged_variant():
    def tell(run, result):
        result["privileged"] = ["validation labels"] if run.method == "crisp-val" else []

    levels = {"full": 0.85, "an": 0.80, "crisp": 0.78, "crisp-3ep": 0.77, "crisp-val": 0.79}
    said = "privileged with validation labels (crisp-val) it gets 79.00"
    assert said in reasons_of(make_results(levels, tell), "crisp")
    assert said not in reasons_of(make_results(levels, tell), "crisp-val")
    assert not [text for text in reasons_of(make_results(levels), "crisp") if text.startswith("privileged")]


def test_metrics_in_which_it_is_better_all_the_same():
    def better(run, result):
        if run.method == "wan":
            result["test"]["hamming_loss"] -= 0.1

    results = make_results({"full": 0.85, "an": 0.80, "wan": 0.79}, better)
    row = row_of(below_table(results, VOC), "wan")
    assert row[1:5] == ["−1.00", "79.00", "0.25", "Hamming loss"]


def test_an_unfinished_study_says_so():
    results = make_results({"full": 0.85, "an": 0.80, "wan": 0.79})
    kept = tuple(each for each in results.finished if each[0].trial < 2 or each[0].method != "wan")
    states = dict.fromkeys(results.states, "waiting") | {run.key(): "done" for run, _ in kept}
    partial = dataclasses.replace(results, finished=kept, states=states)
    text = render_markdown(make_image_results([partial]))
    assert f"features: {len(kept)} of {len(results.runs)} runs are done." in text
    assert row_of(score_table(partial, VOC), "wan")[1].endswith("[2 of 3 trials]")
    nothing = dataclasses.replace(results, finished=(), states=dict.fromkeys(results.states, "waiting"))
    assert "Nothing is done yet." in render_markdown(make_image_results([nothing]))


def test_every_study_has_its_sections():
    """A study of the images themselves comes behind that of their features."""
    results = make_results({"full": 0.85, "an": 0.80, "wan": 0.79})
    pixels = make_results({"full": 0.85, "an": 0.80}, name="pixels", datasets=("voc-images",))
    text = render_markdown(make_image_results([results, pixels]))
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert [heading.split(":")[0] for heading in headings] == [f"## {VOC}", f"## {COCO}", "## voc-images"]
    assert "Study `pixels`" in text


@pytest.mark.real_data
def test_full_labels_reach_83_on_voc():
    """One run of the study: a linear layer on the features, every label seen."""
    try:
        data = load_dataset(VOC)
    except FileNotFoundError:
        pytest.skip(f"{VOC} is not on this machine: set ONEPOS_DATA to a folder that holds it")
    study = read_study(STUDIES / "features.toml")
    run = next(run for run in study.runs() if (run.dataset, run.method) == (VOC, study.oracle))
    assert run_one(run, data)["test"]["map"] > 0.83
