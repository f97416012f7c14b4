"""Tables of a study, on results made by hand."""

import csv
import dataclasses
import io
import math
from collections import Counter

import pytest

from onepos.bench.comparison import compare_methods
from onepos.bench.grid import Axis
from onepos.bench.results import StudyResults, read_results
from onepos.bench.store import Store
from onepos.bench.study_file import read_study
from onepos.metrics import METRICS
from onepos.report import study_facts as facts
from onepos.report import study_scores as scores


def make_study(**changes):
    """Two data sets; floor, oracle and the paper's method; four configurations in two trials."""
    return dataclasses.replace(read_study("smoke"), **changes)


def make_result(validation, test, **more):
    """A number stands for all metrics."""
    if not isinstance(validation, dict):
        validation = dict.fromkeys(METRICS, validation)
    if not isinstance(test, dict):
        test = dict.fromkeys(METRICS, test)
    timing = {"seconds_per_epoch": 0.5, "seconds": 2.0, "stack": 4, "device": "a box", "memory_bytes": 3 << 20}
    plain = {"best_epoch": 1, "n_epochs": 4, "diverged": False, "criteria": {}, "privileged": []}
    priors = {"prior": None, "true_prior": None, "n_labels": 2, "cardinality": 0.75, "prior_error": None}
    return {"validation": validation, "test": test, "timing": timing, **plain, **priors, **more}


def make_results(study, give):
    """`give(run)` is a result, or None for a run that is missing."""
    runs = tuple(study.runs())
    finished = tuple((run, result) for run in runs if (result := give(run)) is not None)
    done = {run.key() for run, _ in finished}
    states = {run.key(): "done" if run.key() in done else "waiting" for run in runs}
    return StudyResults(study, runs, finished, states, {})


def by_method(numbers, validation=0.5):
    """All configurations alike: method → score in trial 0 and 1."""
    return lambda run: make_result(validation, numbers[run.method][run.trial])


def text_of(table, row, column):
    """The flat text of a cell, by the heads of its row and column."""
    (found,) = (cells for cells in table.rows if cells[0].text == row)
    return found[table.header.index(column)].flat()


def cell_of(table, row, column):
    (found,) = (cells for cells in table.rows if cells[0].text == row)
    return found[table.header.index(column)]


# Scores.


def test_cells_hold_mean_std_and_rank():
    results = make_results(make_study(), by_method({"an": (0.3, 0.5), "crisp": (0.16, 0.18), "full": (0.1, 0.1)}))
    table = scores.scores_table(compare_methods(results, "ranking_loss"))
    assert text_of(table, "an", "digit-scenes") == "0.400 ± 0.141 (2)"
    assert text_of(table, "an", "yeast") == "0.400 ± 0.141 (2)"
    assert text_of(table, "crisp", "yeast") == "0.170 ± 0.014 (1)"
    assert text_of(table, "full", "yeast") == "0.100 ± 0.000"
    assert [cell_of(table, name, "yeast").is_best for name in ("an", "crisp", "full")] == [False, True, False]
    assert text_of(table, "crisp", "Mean rank") == "1.00"
    assert [row[0].flat() for row in table.rows] == ["an (floor)", "crisp", "full (oracle)"]


def test_of_one_data_set_the_mean_rank_is_the_rank():
    study = make_study(datasets=("yeast",))
    results = make_results(study, by_method({"an": (0.3, 0.5), "crisp": (0.16, 0.18), "full": (0.1, 0.1)}))
    each = compare_methods(results, "ranking_loss")
    assert each.friedman is None
    assert text_of(scores.scores_table(each), "an", "Mean rank") == "2.00"
    assert text_of(scores.overview_table([each]), "crisp", "All") == "1.00"
    alone = make_results(study, lambda run: None if run.method == "crisp" else make_result(0.5, 0.5))
    each = compare_methods(alone, "ranking_loss")
    assert text_of(scores.overview_table([each]), "an", "All") == "–"  # nobody to compare with


def test_of_a_gain_the_greatest_is_bold_and_equal_as_shown_is_equal():
    results = make_results(make_study(), by_method({"an": (0.7, 0.7), "crisp": (0.7001, 0.7001), "full": (0.7, 0.7)}))
    each = compare_methods(results, "map")
    table = scores.scores_table(each)
    assert [cell_of(table, name, "yeast").is_best for name in ("an", "crisp", "full")] == [True, True, False]
    assert each.ranks["yeast"] == {"crisp": 1.0, "an": 2.0}


def test_missing_trials_are_marked_and_missing_cells_stay_empty():
    full = by_method({"an": (0.3, 0.5), "crisp": (0.2, 0.2), "full": (0.1, 0.1)})

    def give(run):
        is_gone = run.method == "crisp" and run.dataset == "yeast"
        is_short = run.method == "an" and run.dataset == "yeast" and run.trial == 0
        return None if is_gone or is_short else full(run)

    results = make_results(make_study(), give)
    each = compare_methods(results, "ranking_loss")
    table = scores.scores_table(each)
    assert not results.is_complete
    assert text_of(table, "crisp", "yeast") == "–"
    assert text_of(table, "an", "yeast") == "0.500 (1) [1 of 2 trials]"
    assert each.friedman is None
    assert text_of(table, "an", "Mean rank") == "–"
    assert not any(row[2].is_best for row in table.rows)  # no contest


def test_privileged_methods_are_marked():
    def give(run):
        words = {"an": [], "crisp": ["validation labels"], "full": ["full labels"]}
        return make_result(0.5, 0.5, privileged=words[run.method])

    results = make_results(make_study(), give)
    assert [scores.heading(results, name).flat() for name in results.study.methods] == [
        "an (floor)",
        "crisp †",
        "full (oracle)",
    ]
    assert results.privileged["crisp"] == ("validation labels",)


# Tests, shares, budgets.


def test_wins_are_counted_by_data_set():
    def give(run):
        better = 0.4 if run.dataset == "yeast" else 0.0
        return make_result(0.5, {"an": 0.5, "crisp": 0.5 + better, "full": 0.9}[run.method] + 0.01 * run.trial)

    table = scores.record_table(compare_methods(make_results(make_study(), give), "map"))
    assert text_of(table, "crisp", "an") == "1/1/0"
    assert text_of(table, "an", "crisp") == "0/1/1"
    assert text_of(table, "crisp", "All") == "1/1/0"


@pytest.mark.parametrize(("split", "expected"), [("fixed", "2/0/0"), ("new", "0/2/0")])
def test_splits_that_share_rows_make_wins_harder(split, expected):
    """Differences 0.125 and 0.145: t = 13.5 as they stand, 12.1 corrected, 12.7 needed."""
    numbers = {"an": (0.5, 0.5), "crisp": (0.625, 0.645), "full": (0.9, 0.9)}
    results = make_results(make_study(split=split), by_method(numbers))
    assert text_of(scores.record_table(compare_methods(results, "map")), "crisp", "an") == expected


def test_half_of_the_way():
    results = make_results(make_study(), by_method({"an": (0.5, 0.6), "crisp": (0.3, 0.4), "full": (0.1, 0.2)}))
    each = compare_methods(results, "ranking_loss")
    assert text_of(scores.share_table(each), "crisp", "yeast") == "50 %"
    assert text_of(scores.share_table(each), "Distance", "yeast").startswith("0.400")
    assert text_of(scores.share_overview([each]), "crisp", "Ranking loss") == "50 %"
    upside_down = compare_methods(results, "map")  # here the floor is better than the oracle
    assert text_of(scores.share_overview([upside_down]), "crisp", "mAP") == "–"


def test_a_share_over_fewer_data_sets_says_so_and_is_not_the_best():
    numbers = {"an": (0.5, 0.6), "wan": (0.4, 0.5), "crisp": (0.3, 0.4), "full": (0.1, 0.2)}
    give = by_method(numbers)
    study = make_study(methods=("an", "wan", "crisp", "full"))
    whole, partly = (
        make_results(study, lambda run, k=k: None if (run.method, run.dataset) == ("crisp", k) else give(run))
        for k in ("", "yeast")
    )
    table = scores.share_overview([compare_methods(whole, "ranking_loss")])
    assert cell_of(table, "crisp", "Ranking loss").is_best
    table = scores.share_overview([compare_methods(partly, "ranking_loss")])
    assert cell_of(table, "crisp", "Ranking loss").flat() == "50 % [on 1 of 2]"
    assert not cell_of(table, "crisp", "Ranking loss").is_best


def test_times_are_compared_on_the_same_device_only():
    def give(run):
        where = "another box" if (run.method, run.dataset) == ("crisp", "yeast") else "a box"
        return make_result(0.5, 0.5, timing={"seconds": 2.0, "device": where, "memory_bytes": 3 << 20})

    table = facts.cost_table(make_results(make_study(), give))
    assert text_of(table, "crisp", "digit-scenes") == "2.0 s [× 1.0, 3 MiB]"
    assert text_of(table, "crisp", "yeast") == "2.0 s [3 MiB]"


def test_rank_by_budget():
    """The floor is better at first; the other method has its best configuration third."""

    def give(run):
        good = {"an": [0.6, 0.5, 0.5, 0.5], "crisp": [0.4, 0.4, 0.9, 0.4], "full": [1.0] * 4}
        score = good[run.method][run.configuration]
        return make_result(score, score)

    results = make_results(make_study(), give)
    ranks = scores.budget_ranks(results)
    assert ranks == {1: {"an": 1, "crisp": 2}, 2: {"an": 1, "crisp": 2}, 4: {"an": 2, "crisp": 1}}
    table = scores.budget_table(results, ranks)
    assert [row[0].text for row in table.rows] == ["crisp", "an"]
    assert text_of(table, "crisp", "4") == "1.00"


def test_cells_in_long_format():
    results = make_results(make_study(), by_method({"an": (0.5, 0.6), "crisp": (0.3, 0.4), "full": (0.1, 0.2)}))
    each = compare_methods(results, "ranking_loss")
    rows = list(csv.DictReader(io.StringIO(scores.cells_csv(results, [each]))))
    assert len(rows) == 2 * 3
    (row,) = (row for row in rows if (row["dataset"], row["method"]) == ("yeast", "crisp"))
    assert float(row["mean"]) == pytest.approx(0.35)
    assert float(row["std"]) == pytest.approx(math.sqrt(0.005))
    assert (row["n_trials"], row["rank"], row["role"]) == ("2", "1.0", "method")
    assert float(row["share_closed"]) == pytest.approx(0.5)
    (row,) = (row for row in rows if (row["dataset"], row["method"]) == ("digit-scenes", "full"))
    assert (row["rank"], row["role"]) == ("", "oracle")


# Facts.


def test_states_and_reasons_of_a_store(tmp_path):
    study, store = make_study(), Store(tmp_path)
    store.keep_study(study)
    runs = study.runs()
    for run in runs[:5]:
        store.save(run, make_result(0.5, 0.5, diverged=run.configuration == 1))
    store.fail(runs[5], RuntimeError("out of memory"))
    store.skip(runs[6], "it needs more")
    store.save(dataclasses.replace(runs[0], seed=99), make_result(1.0, 1.0))  # of no study
    results = read_results(tmp_path)
    assert [run for run, _ in results.finished] == runs[:5]
    table = facts.state_table(results)
    numbers = {name: text_of(table, "all", name) for name in table.header[1:]}
    expected = {"planned": 48, "done": 5, "failed": 1, "skipped": 1, "waiting": 41, "running": 0, "stale": 0}
    assert numbers == {name: str(value) for name, value in expected.items()} | {"diverged": "2", "hours": "0.00"}
    reasons = [[cell.text for cell in row] for row in facts.reason_table(results).rows]
    where = f"{runs[5].method} on {runs[5].dataset}"
    assert reasons == [["failed", "1", "RuntimeError: out of memory", where], ["skipped", "1", "it needs more", where]]
    assert text_of(facts.device_table(results), "a box", "Runs") == "5"
    assert facts.machine_hours(results) == (pytest.approx(10 / 3600), ["a box"])


def test_costs_as_ratios():
    def give(run):
        result = make_result(0.5, 0.5)
        result["timing"] |= {"seconds": {"an": 2.0, "crisp": 5.0, "full": 0.25}[run.method]}
        return result

    table = facts.cost_table(make_results(make_study(), give))
    assert text_of(table, "crisp", "yeast") == "5.0 s [× 2.5, 3 MiB]"
    assert text_of(table, "full", "yeast") == "250 ms [× 0.1, 3 MiB]"


def test_settings_that_won():
    """Trial 0 takes configuration 0, trial 1 takes configuration 2."""
    study = make_study()
    results = make_results(study, lambda run: make_result(float(run.configuration == 2 * run.trial), 0.5))
    runs = [run for run, _ in results.chosen.values() if (run.dataset, run.method) == ("yeast", "crisp")]
    assert sorted(run.configuration for run in runs) == [0, 2]
    table = facts.settings_table(results, "yeast")
    low, high = sorted(run.lr for run in runs)
    assert text_of(table, "crisp", "Learning rate") == f"{(low + high) / 2:.2g} [{low:.2g} to {high:.2g}]"
    sizes = Counter(run.batch_size for run in runs)
    first, *others = (f"{size} ×{count}" for size, count in sizes.most_common())
    assert text_of(table, "crisp", "Batch size") == (f"{first} [{others[0]}]" if others else first.split()[0])
    assert text_of(table, "crisp", "Own parameters").startswith("lam ")
    assert text_of(table, "an", "Own parameters") == "–"
    assert text_of(table, "an", "Epoch") == "1 [of 4]"
    assert facts.settings_table(make_results(study, lambda run: None)) is None


def test_prior_errors_of_methods_that_have_them():
    def give(run):
        return make_result(
            0.5, 0.5, prior_error={"an": None, "crisp": 0.1 + 0.2 * run.trial, "wan": 0.4, "full": 0.2}[run.method]
        )

    study = make_study(methods=("an", "crisp", "wan", "full"))
    table = facts.prior_table(make_results(study, give))
    assert [row[0].text for row in table.rows] == ["crisp", "wan", "full"]
    assert text_of(table, "crisp", "yeast") == "0.200 ± 0.141"
    assert [row[2].is_best for row in table.rows] == [True, False, False]  # the oracle has no part in the contest
    assert facts.prior_table(make_results(make_study(), lambda run: make_result(0.5, 0.5))) is None


def test_data_sets_and_their_budget():
    table = facts.dataset_table(make_results(make_study(), lambda run: make_result(0.5, 0.5)))
    assert text_of(table, "yeast", "Rows") == "2417"
    assert text_of(table, "yeast", "Labels") == "2"  # as in the results
    assert text_of(table, "yeast", "Labels per row") == "0.75"
    assert text_of(table, "digit-scenes", "Rows") == "6000"
    assert (text_of(table, "yeast", "Configurations"), text_of(table, "yeast", "Trials")) == ("4", "2")


def test_the_test_of_the_ranks():
    study = make_study(datasets=("image", "scene", "yeast", "corel5k", "mirflickr", "delicious"))
    numbers = {"an": (0.5, 0.5), "crisp": (0.4, 0.4), "full": (0.1, 0.1)}
    each = compare_methods(make_results(study, by_method(numbers)), "ranking_loss")
    assert text_of(scores.friedman_table([each]), "Ranking loss ↓", "Chi-square") == "6.00"
    assert text_of(scores.overview_table([each]), "crisp", "All") == "1.00"


def test_points_of_a_star():
    """The centre, and two values of one parameter; one run of the first diverged."""
    axes = {name: Axis("values", (value,)) for name, value in (("lr", 0.01), ("weight_decay", 0.0), ("batch_size", 8))}
    space = {"crisp": {"lam": Axis("values", (0.5, 2.0))}}
    study = make_study(sampler="star", networks=("linear",), space=axes, method_space=space)

    def give(run):
        is_lost = run.configuration == 1 and run.trial == 1
        return make_result(0.5, 0.1 * run.configuration + 0.1 * run.trial, diverged=is_lost)

    table = facts.star_table(make_results(study, give))
    rows = [[cell.flat() for cell in row] for row in table.rows]
    assert table.header == ["Method", "Point", *study.datasets]
    assert [row[:2] for row in rows] == [
        ["an (floor)", "centre"],
        ["crisp", "centre"],
        ["crisp", "lam 0.5"],
        ["crisp", "lam 2"],
        ["full (oracle)", "centre"],
    ]
    assert [row[2] for row in rows[1:4]] == ["0.050 ± 0.071", "0.100 [1 of 2 trials]", "0.250 ± 0.071"]
    assert facts.star_table(make_results(make_study(), give)) is None


def test_chosen_runs_one_by_one():
    results = make_results(make_study(), by_method({"an": (0.5, 0.6), "crisp": (0.3, 0.4), "full": (0.1, 0.2)}))
    rows = list(csv.DictReader(io.StringIO(facts.trials_csv(results))))
    assert len(rows) == 2 * 3 * 2
    found = {(row["dataset"], row["method"], row["trial"]): float(row["map"]) for row in rows}
    assert found["yeast", "crisp", "1"] == 0.4
    assert {row["configuration"] for row in rows} == {"0"}
