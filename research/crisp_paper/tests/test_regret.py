"""What it costs to choose configurations without full labels, on results made by hand."""

import dataclasses

from crisp_paper.regret import regret_tables

from onepos.bench.results import StudyResults
from onepos.bench.study import Selection
from onepos.bench.study_file import read_study
from onepos.metrics import METRICS


def make_results(give, **changes):
    """Two data sets; floor, oracle and the paper's method; four configurations in two trials; `give(run)` a result."""
    study = dataclasses.replace(read_study("smoke"), **changes)
    runs = tuple(study.runs())
    return StudyResults(study, runs, tuple((run, give(run)) for run in runs), {run.key(): "done" for run in runs}, {})


def make_result(validation, test, criteria=None, diverged=False):
    """A number stands for all metrics."""
    scores = {"validation": dict.fromkeys(METRICS, validation), "test": dict.fromkeys(METRICS, test)}
    return {**scores, "criteria": criteria or {}, "diverged": diverged, "privileged": []}


def cell_of(table, row, column):
    (found,) = (cells for cells in table.rows if cells[0].text == row)
    return found[table.header.index(column)]


def text_of(table, row, column):
    return cell_of(table, row, column).flat()


def test_regret_of_a_criterion():
    """Full labels choose configuration 0; the risk chooses 1 in trial 0, and right in trial 1."""

    def give(run):
        test = [0.8, 0.7, 0.6, 0.5][run.configuration]
        wrong = abs(run.configuration - (1 - run.trial))
        return make_result(1.0 - run.configuration / 10, test, criteria={"pu_risk": wrong, "likelihood": test})

    first, second = regret_tables(make_results(give))
    assert [row[0].text for row in first.rows] == ["likelihood", "pu_risk", "at random"]
    assert text_of(first, "likelihood", "All") == "0.00 ± 0.00"
    assert text_of(first, "pu_risk", "yeast") == "5.00 ± 5.77"  # 10 and 0 points, in two methods each
    assert text_of(first, "at random", "All") == "15.00 ± 0.00"
    assert cell_of(first, "likelihood", "yeast").is_best
    assert "average precision" in first.title
    assert "mAP" in second.title
    assert regret_tables(make_results(lambda run: make_result(0.5, 0.5))) == []


def test_regret_of_a_loss_and_without_what_diverged():
    """Configuration 3 diverged, and is not among those to take at random."""

    def give(run):
        test = [0.2, 0.3, 0.4, 0.9][run.configuration]
        return make_result(test, test, criteria={"likelihood": run.configuration}, diverged=run.configuration == 3)

    first, _ = regret_tables(make_results(give, selection=Selection("ranking_loss", "full")))
    assert text_of(first, "likelihood", "All") == "20.00 ± 0.00"
    assert text_of(first, "at random", "All") == "10.00 ± 0.00"
