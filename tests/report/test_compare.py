"""Two studies compared, on invented runs; tests re-stated with NumPy and SciPy."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy import stats

from onepos.bench.comparison import Difference, compare_studies
from onepos.bench.results import StudyResults, read_results
from onepos.bench.statistics import Summary
from onepos.bench.store import Store
from onepos.bench.study_file import read_study
from onepos.metrics import METRICS
from onepos.report.compare import count_table, default_metric, difference_table, explain, render_comparison
from onepos.report.tables import signed

BEFORE = [0.50, 0.53, 0.55, 0.52]
AFTER = [0.56, 0.58, 0.64, 0.58]


def make_side(scores, give=None, **changes):
    """A study of digit scenes in which a method has these scores in its trials, by all metrics; None: no result."""
    study = read_study("smoke")
    budget = dataclasses.replace(study.budget, trials=max(map(len, scores.values())), configurations=2)
    plain = {"datasets": ("digit-scenes",), "methods": tuple(scores), "budget": budget, "method_space": {}}
    study = dataclasses.replace(study, **(plain | changes))
    runs = tuple(study.runs())
    finished = []
    for run in runs:
        score = scores[run.method][run.trial] if run.trial < len(scores[run.method]) else None
        if score is not None:
            # The second configuration is chosen; the first would give another score.
            result = {"diverged": False, "validation": dict.fromkeys(METRICS, run.configuration), "criteria": {}}
            result |= {"timing": {}, "best_epoch": 0, "n_labels": 2, "cardinality": 1.5}
            finished.append((run, result | {"test": dict.fromkeys(METRICS, score if run.configuration else 0.0)}))
    done = {run.key() for run, _ in finished}
    states = {run.key(): "done" if run.key() in done else "waiting" for run in runs}
    return StudyResults(study, runs, tuple(finished), states, {})


def compare_one(first, second, metric="map", first_study=None, second_study=None):
    sides = make_side({"an": first}, **(first_study or {})), make_side({"an": second}, **(second_study or {}))
    (difference,) = compare_studies(*sides, [metric]).differences
    return difference


def paired_p(differences, correction):
    """Nadeau and Bengio."""
    d = np.asarray(differences)
    t = d.mean() / math.sqrt(d.var(ddof=1) * (1 / len(d) + correction))
    return 2 * stats.t.sf(abs(t), len(d) - 1)


def test_equal_seeds_are_paired():
    found = compare_one(BEFORE, AFTER)
    assert found.n_pairs == 4
    assert found.change == pytest.approx(np.mean(AFTER) - np.mean(BEFORE))
    assert found.first.mean == pytest.approx(np.mean(BEFORE))
    assert found.second.std == pytest.approx(np.std(AFTER, ddof=1))
    assert found.p == pytest.approx(paired_p(np.subtract(AFTER, BEFORE), 0.125))
    fixed = {"split": "fixed", "draw": "fixed"}
    found = compare_one(BEFORE, AFTER, first_study=fixed, second_study=fixed)
    assert found.p == pytest.approx(stats.ttest_rel(AFTER, BEFORE).pvalue)


def test_of_pairs_only_the_common_trials_count():
    found = compare_one(BEFORE, AFTER[:2])
    assert (found.n_pairs, found.first.n) == (2, 2)
    assert found.first.mean == pytest.approx(np.mean(BEFORE[:2]))
    found = compare_one([None, *BEFORE[1:]], [*AFTER[:3], None])
    assert found.n_pairs == 0, "each has a trial that the other lacks"


def test_other_seeds_are_two_samples():
    fixed = {"split": "fixed", "draw": "fixed"}
    found = compare_one(BEFORE, AFTER[:3], first_study=fixed, second_study=fixed | {"seed": 1})
    assert found.n_pairs == 0
    assert found.p == pytest.approx(stats.ttest_ind(BEFORE, AFTER[:3], equal_var=False).pvalue)
    new = compare_one(BEFORE, AFTER[:3], second_study={"seed": 1})
    assert new.p > found.p, "new splits share rows: less sure"


def test_a_first_trial_in_common_is_no_pairing():
    """Trial 0 of a study with fixed splits meets what trial 0 of one with new splits meets."""
    found = compare_one(BEFORE, AFTER, first_study={"split": "fixed", "draw": "fixed"})
    assert found.n_pairs == 0


@pytest.mark.parametrize(
    ("metric", "first", "second", "outcome"),
    [
        ("map", BEFORE, AFTER, "win"),
        ("map", AFTER, BEFORE, "loss"),
        ("ranking_loss", BEFORE, AFTER, "loss"),
        ("ranking_loss", BEFORE, BEFORE, "tie"),
        ("map", [0.1, 0.9], [0.2, 0.8], "tie"),
        ("map", [0.5], [0.9], "tie"),
    ],
)
def test_outcome(metric, first, second, outcome):
    assert compare_one(first, second, metric).outcome == outcome


@pytest.mark.parametrize("seed", [0, 1])
def test_scores_that_do_not_vary(seed):
    assert compare_one([0.5] * 3, [0.5] * 3, second_study={"seed": seed}).p == 1.0
    assert compare_one([0.5] * 3, [0.75] * 3, second_study={"seed": seed}).p == 0.0


def test_one_trial_can_not_be_tested():
    assert math.isnan(compare_one([0.5], [0.9]).p)
    assert math.isnan(compare_one([0.5], [0.9], second_study={"seed": 1}).p)


def test_what_both_have_and_what_one_has():
    first = make_side({"an": BEFORE, "wan": BEFORE, "em": [None] * 4, "full": BEFORE})
    second = make_side({"an": AFTER, "em": AFTER, "crisp": AFTER, "full": BEFORE}, scaling="none")
    comparison = compare_studies(first, second, ["map", "ranking_loss"])
    assert [(each.metric, each.method) for each in comparison.differences] == [
        ("map", "an"),
        ("map", "full"),
        ("ranking_loss", "an"),
        ("ranking_loss", "full"),
    ]
    assert comparison.only_first == (("digit-scenes", "wan"),)
    assert comparison.only_second == (("digit-scenes", "em"), ("digit-scenes", "crisp"))
    assert comparison.changed == ("methods", "scaling")
    assert [comparison.count(kind) for kind in ("win", "tie", "loss")] == [1, 2, 1]
    assert [comparison.count(kind, "map") for kind in ("win", "tie", "loss")] == [1, 1, 0]
    assert [cell.text for cell in count_table(comparison).rows[0]] == ["mAP ↑", "1/1/0", "1/1/0"]
    text = render_comparison(comparison, ("old", "new"))
    assert "- A: old, study smoke, 24 of 32 runs\n- B: new, study smoke, 32 of 32 runs" in text
    assert "The studies differ in methods, scaling." in text
    assert "Of 4 scores B is significantly better in 1 and worse in 1; without any difference about" in text
    assert "Only A has wan on digit-scenes. Only B has em, crisp on digit-scenes." in text
    p = f"{paired_p(np.subtract(AFTER, BEFORE), 0.125):.4f}"
    numbers = f"{np.mean(AFTER):.3f} ± {np.std(AFTER, ddof=1):.3f} | +0.065 | 4 pairs | {p} | better |"
    assert f"| digit-scenes | an | 0.525 ± 0.021 | {numbers}" in text
    assert default_metric(comparison) == "map"
    assert default_metric(compare_studies(first, second)) == "average_precision"


def test_the_same_study_twice():
    side = make_side({"an": BEFORE})
    comparison = compare_studies(side, side)
    assert explain(comparison)[0] == "The studies are the same."
    assert comparison.count("tie") == len(comparison.differences) == 7
    assert difference_table(comparison, "map").rows[0][-1].text == ""


def test_too_few_trials_are_said():
    comparison = compare_studies(make_side({"an": [0.5]}), make_side({"an": [0.6]}), ["map"])
    assert "1 have too few trials to be tested." in explain(comparison)


def test_nothing_in_common_is_an_error():
    with pytest.raises(ValueError, match="old and new must both have results of one method on one data set") as error:
        compare_studies(make_side({"an": BEFORE}), make_side({"wan": AFTER}), names=("old", "new"))
    assert "the first has an on digit-scenes, the second wan on digit-scenes. Run the same" in str(error.value)


def test_json_has_no_nan():
    comparison = compare_studies(make_side({"an": [0.5]}), make_side({"an": [0.75]}), ["map"])
    content = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert content["counts"] == {"map": {"win": 0, "tie": 1, "loss": 0}}
    assert content["studies"][0] == {"name": "smoke", "done": 2, "runs": 2}
    (difference,) = content["differences"]
    assert difference == {
        "dataset": "digit-scenes",
        "method": "an",
        "metric": "map",
        "first": {"mean": 0.5, "std": None, "n": 1},
        "second": {"mean": 0.75, "std": None, "n": 1},
        "n_pairs": 1,
        "p": None,
        "change": 0.25,
        "outcome": "tie",
    }


def test_signed():
    assert [signed(value) for value in (0.12, -0.12, 0.0, math.nan)] == ["+0.120", "−0.120", "0.000", "–"]
    assert Difference("d", "m", "map", Summary(0.5, 0, 2), Summary(0.4, 0, 2), 0, 0.05).outcome == "tie"


# Where results are read from.


def test_packed_runs_are_read_without_unpacking(tmp_path):
    side = make_side({"an": BEFORE, "full": [*AFTER[:3], None]})
    store = Store(tmp_path / "store")
    store.keep_study(side.study)
    for run, result in side.finished:
        store.save(run, result)
    store.pack(tmp_path / "packed.jsonl.gz")
    folder, packed = read_results(tmp_path / "store"), read_results(tmp_path / "packed.jsonl.gz")
    assert packed == folder
    assert packed.study == side.study
    assert len(packed.finished) == len(side.finished) == 14
    assert sorted(path.name for path in tmp_path.iterdir()) == ["packed.jsonl.gz", "store"]


def test_what_is_no_result(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere must be a folder of results, or a file .*; it does not exist. Give"):
        read_results(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"it has no study\.toml"):
        read_results(tmp_path)
    (tmp_path / "text.gz").write_text("nothing")
    with pytest.raises(ValueError, match=r"text\.gz must be a file written by `onepos bench pack`; it can not be read"):
        read_results(tmp_path / "text.gz")
