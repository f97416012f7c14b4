"""A study beside the paper: printed numbers, tests, counts, and the sections that its report gains."""

import dataclasses
import math

import pytest
from crisp_paper.paper import PaperCell, paper_value
from crisp_paper.printed import Printed, judge, measure, printed_cells, printed_value
from crisp_paper.printed_tables import (
    cell_table,
    dataset_table,
    paper_sections,
    time_table,
    verdict_counts,
    wilcoxon_table,
)

from onepos.bench.comparison import compare_methods
from onepos.bench.results import StudyResults
from onepos.bench.statistics import Summary
from onepos.bench.study_file import read_study
from onepos.metrics import METRICS
from onepos.report.page import render_html, render_markdown
from onepos.report.study_page import make_page
from onepos.report.tables import Cell


def make_study(**changes):
    """Two data sets; floor, oracle and the paper's method; four configurations in two trials."""
    return dataclasses.replace(read_study("smoke"), **changes)


def make_results(study, give):
    """`give(run)` is the test score by all metrics, or None for a run that is missing."""
    runs = tuple(study.runs())
    finished = tuple((run, make_result(score)) for run in runs if (score := give(run)) is not None)
    return StudyResults(study, runs, finished, {run.key(): "done" for run in runs}, {})


def make_result(score):
    timing = {"seconds_per_epoch": 0.5, "seconds": 2.0, "stack": 4, "device": "a box", "memory_bytes": 3 << 20}
    plain = {"best_epoch": 1, "n_epochs": 4, "diverged": False, "criteria": {}, "privileged": [], "timing": timing}
    priors = {"prior": None, "true_prior": None, "n_labels": 2, "cardinality": 0.75, "prior_error": None}
    return {"validation": dict.fromkeys(METRICS, 0.5), "test": dict.fromkeys(METRICS, score), **plain, **priors}


def by_method(numbers):
    """All configurations alike: method → score in trial 0 and 1."""
    return lambda run: numbers[run.method][run.trial]


def cell_of(table, row, column):
    (found,) = (cells for cells in table.rows if cells[0].text == row)
    return found[list(table.header).index(column)]


def text_of(table, row, column):
    return cell_of(table, row, column).flat()


def beside(results, metric):
    """The table of a metric as the report has it, and the verdicts."""
    ours = measure(results)
    status = {cell.key: judge(cell, ours[cell.key]) for cell in printed_cells() if cell.key in ours}
    return cell_table(results, ours, status, metric), status


def test_printed_numbers_come_in_our_units():
    assert printed_value("map", "voc", "an").mean == pytest.approx(paper_value("map", "voc", "an").mean / 100)
    assert printed_value("hamming_loss", "yeast", "an") == paper_value("hamming_loss", "yeast", "an")
    assert printed_value("map", "yeast", "an") is None


def test_two_standard_deviations_are_reproduced():
    gain = Printed("average_precision", "yeast", "an", PaperCell(0.5, 0.01), "")
    loss = Printed("ranking_loss", "yeast", "an", PaperCell(0.5, 0.01), "")
    assert judge(gain, Summary(0.52, 0.001, 5)) == "reproduced"
    assert judge(gain, Summary(0.53, 0.001, 5)) == "better"
    assert judge(loss, Summary(0.53, 0.001, 5)) == "worse"
    assert judge(gain, Summary(0.55, 0.03, 5)) == "reproduced"
    single = Printed("average_precision", "yeast", "an", PaperCell(0.5, None), "")
    assert judge(single, Summary(0.47, math.nan, 1)) == "worse"


def test_the_printed_number_stands_below_ours():
    results = make_results(make_study(), by_method({"an": (0.1, 0.1), "crisp": (0.9, 0.9), "full": (0.1, 0.1)}))
    table, status = beside(results, "ranking_loss")
    assert table.header == ["Method", "yeast"]
    assert text_of(table, "an", "yeast") == "0.100 ± 0.000 (n = 2) [paper 0.383 ± 0.066, −0.283 better]"
    assert text_of(table, "crisp", "yeast") == "0.900 ± 0.000 (n = 2) [paper 0.164 ± 0.001, +0.736 worse]"
    of_metric = {key: verdict for key, verdict in status.items() if key[0] == "ranking_loss"}
    assert [row[1].text for row in verdict_counts(of_metric).rows] == ["0", "1", "1", "0"]


def test_a_number_that_can_not_be_right_has_a_question_mark():
    study = make_study(datasets=("scene", "yeast"))
    results = make_results(study, by_method({"an": (0.3, 0.5), "crisp": (0.1, 0.1), "full": (0.1, 0.1)}))
    table, _ = beside(results, "coverage")
    assert "paper 0.082 ± " in text_of(table, "crisp", "scene")
    assert "?" in text_of(table, "crisp", "scene")
    assert "?" not in text_of(table, "crisp", "yeast")
    assert "crisp on scene: coverage 0.082" in table.about


def test_wilcoxon_beside_the_printed_one():
    study = make_study(datasets=("image", "scene", "yeast", "corel5k", "mirflickr", "delicious"))
    shift = {name: 0.01 * k for k, name in enumerate(study.datasets)}
    results = make_results(study, lambda run: {"an": 0.5, "crisp": 0.4 - shift[run.dataset], "full": 0.1}[run.method])
    table = wilcoxon_table([compare_methods(results, "ranking_loss"), compare_methods(results, "map")])
    assert [row[0].text for row in table.rows] == ["an"]
    assert text_of(table, "an", "Ranking loss") == "win 0.0313 [paper win 0.0313]"
    assert text_of(table, "an", "mAP") == "loss 0.0313"  # the same numbers, of which the greatest is the best


def test_without_the_papers_method_there_is_no_such_test():
    study = make_study(methods=("an", "wan", "full"), method_space={}, parameters={})
    results = make_results(study, by_method({"an": (0.3, 0.3), "wan": (0.2, 0.2), "full": (0.1, 0.1)}))
    assert wilcoxon_table([compare_methods(results, "map")]) is None


def test_data_beside_the_papers():
    table = dataset_table(make_results(make_study(), lambda run: 0.5))
    assert text_of(table, "yeast", "Rows") == "2417 [paper 2417]"
    assert cell_of(table, "yeast", "Labels") == Cell("2", notes=(("paper 14", "warning"),))  # two in these results
    assert [row[0].text for row in table.rows] == ["yeast"]


def test_printed_times():
    estimate, epoch = (paper_value(metric, "voc", "crisp").mean for metric in ("prior_time", "epoch_time"))
    first = [cell.text for cell in time_table().rows[0]]
    assert first == ["voc", "crisp", f"{estimate:g}", f"{epoch:g}", f"{100 * estimate / epoch:.0f} %"]
    assert len(time_table().rows) == 4


def test_the_sections_come_behind_those_of_the_study():
    results = make_results(make_study(), by_method({"an": (0.3, 0.5), "crisp": (0.16, 0.18), "full": (0.1, 0.1)}))
    page = make_page(results, extra=paper_sections(results))
    names = [section.name for section in page.sections]
    assert names[-4:] == ["paper-scores", "paper-tests", "below-paper", "paper-data"]
    assert "paper" not in render_markdown(make_page(results))
    for text in (render_markdown(page), render_html(page)):
        assert "0.170 ± 0.014" in text
        assert "paper 0.164 ± 0.001" in text
