"""Results: which runs count, and what reading them gives."""

import dataclasses
import math

import pytest
from crisp_paper.hindsight import best_in_hindsight

from onepos.bench.results import StudyResults, choose, read_results
from onepos.bench.store import Store
from onepos.bench.study import Budget, Selection
from onepos.bench.study_file import read_study
from onepos.metrics import METRICS

FIVE = ("hamming_loss", "coverage", "average_precision", "ranking_loss", "one_error")


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


def chosen_configuration(study, numbers, **options):
    """Of the first data set, floor and trial; `numbers` are results by configuration."""
    runs = [run for run in study.runs() if (run.dataset, run.method, run.trial) == ("digit-scenes", "an", 0)]
    chosen = choose(study, zip(runs, numbers, strict=False), **options)
    return chosen["digit-scenes", "an", 0][0].configuration if chosen else None


def test_validation_decides_and_test_scores_do_not():
    numbers = [make_result(v, t) for v, t in [(0.7, 0.9), (0.8, 0.1), (0.6, 1.0), (0.8, 1.0)]]
    assert chosen_configuration(make_study(), numbers) == 1
    for number in numbers:
        del number["test"]
    assert chosen_configuration(make_study(), numbers) == 1


def test_of_a_loss_the_least_is_the_best():
    study = make_study(selection=Selection("ranking_loss", "full"))
    assert chosen_configuration(study, [make_result(v, 0) for v in (0.4, 0.2, 0.3)]) == 1


def test_what_diverged_or_lacks_its_number_can_not_be_chosen():
    lost = make_result(0.9, 1.0, diverged=True)
    empty = make_result(dict.fromkeys(METRICS), dict.fromkeys(METRICS))
    assert chosen_configuration(make_study(), [lost, empty, make_result(0.1, 0.0)]) == 2
    assert chosen_configuration(make_study(), [lost, empty]) is None


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        ((3, 1, 1, 1, 3), 1),  # most votes
        ((2, 1, 0, 1, 2), 2),  # two each: the one met first
        ((0, 1, 2, 3, 3), 3),
        ((0, 1, 2, 3, 4), 2),  # all differ: average precision
    ],
)
def test_configurations_are_voted_for_as_epochs_are(best, expected):
    study = make_study(selection=Selection("majority", "full"), budget=Budget(4, 2, 8))
    numbers = []
    for configuration in range(5):
        wins = {name: configuration == winner for name, winner in zip(FIVE, best, strict=True)}
        values = {name: 0.9 if wins[name] == METRICS[name].greater_is_better else 0.1 for name in FIVE}
        numbers.append(make_result(values, 0))
    assert chosen_configuration(study, numbers) == expected


def test_a_criterion_is_followed_in_its_direction():
    numbers = [make_result(v, 0, criteria={"pu_risk": r}) for v, r in [(0.9, 0.5), (0.1, 0.3), (0.5, 0.4)]]
    assert chosen_configuration(make_study(), numbers, selection=Selection("pu_risk", "single-positive")) == 1
    for number in numbers:
        number["criteria"] = {"average_precision": number["criteria"]["pu_risk"]}
    # The metric of the study has no criterion of its own: it needs all labels.
    assert chosen_configuration(make_study(selection=Selection("macro_f1", "single-positive")), numbers) == 0


def test_hindsight_is_the_best_test_score_of_each_trial():
    study = make_study()
    scores = {0: [0.1, 0.4, 0.3, 0.9], 1: [0.2, 0.2, 0.6, 0.1]}
    finished = [
        (run, make_result(0, scores[run.trial][run.configuration], diverged=run.configuration == 3))
        for run in study.runs()
        if (run.dataset, run.method) == ("yeast", "an")
    ]
    results = StudyResults(study, tuple(study.runs()), tuple(finished), {}, {})
    assert best_in_hindsight(results, "yeast", "an", "map") == pytest.approx((0.4 + 0.6) / 2)
    assert best_in_hindsight(results, "yeast", "an", "ranking_loss") == pytest.approx((0.1 + 0.2) / 2)
    assert math.isnan(best_in_hindsight(results, "yeast", "crisp", "map"))


def test_a_packed_file_gives_what_its_folder_gives(tmp_path):
    study, store = make_study(), Store(tmp_path / "store")
    store.keep_study(study)
    runs = study.runs()
    for run in runs[:5]:
        store.save(run, make_result(0.5, 0.5))
    store.skip(runs[6], "it needs more")
    store.save(dataclasses.replace(runs[0], seed=99), make_result(1.0, 1.0))  # of no study
    store.pack(tmp_path / "runs.jsonl.gz")
    folder, packed = read_results(tmp_path / "store"), read_results(tmp_path / "runs.jsonl.gz")
    assert [run for run, _ in packed.finished] == runs[:5]
    assert packed == folder


def test_names_that_no_method_has_any_more_stay_readable(tmp_path):
    study, store = make_study(), Store(tmp_path / "store")
    study = dataclasses.replace(study, methods=("gone", "an", "full"), parameters={"gone": {"old": 1.5}})
    store.keep_study(study)
    assert store.study() == study
    store.save(study.runs()[0], make_result(0.5, 0.5))
    assert read_results(tmp_path / "store").finished[0][0].parameters == {"old": 1.5}


def test_what_is_no_result_gets_a_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"must be a folder of results, .*; it does not exist\. Give the folder"):
        read_results(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"it has no study\.toml"):
        read_results(tmp_path)
