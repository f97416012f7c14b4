"""Completion: laws of the probabilities, of the additions, of what is written, and the command."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from onepos import Completion, Labels, complete_labels, draw_single_positive
from onepos.completion import _decide
from onepos.methods.presence import Known, calibrate, presence_at, sigmoid
from onepos.priors import estimate_priors


def world(seed=0, n=1500, c=6):
    """Full labels that the features determine for most rows, one observed label each, P(γ | row) with some doubt."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, c)) < np.linspace(0.6, 0.15, c)).astype(np.uint8)
    Y = Y[Y.any(1)]
    share = np.maximum(Y + rng.normal(0, 0.3, Y.shape), 0.03)
    return Y, draw_single_positive(Y, seed), (share / share.sum(1, keepdims=True)).astype(np.float32)


def known_of(Y, observed, reviewed=()):
    known = np.where(observed == 1, 1.0, np.nan)
    known[list(reviewed)] = Y[list(reviewed)]
    return known


@pytest.fixture(scope="module")
def reviewed():
    Y, observed, held_out = world()
    done = complete_labels(None, known_of(Y, observed, range(60)), held_out=held_out, min_precision=0.8, random_state=0)
    return SimpleNamespace(Y=Y, observed=observed, held_out=held_out, done=done)


class TestProbabilities:
    def test_known_entries_are_known(self, reviewed):
        p, known = reviewed.done.probability, known_of(reviewed.Y, reviewed.observed, range(60))
        assert p.dtype == np.float32
        assert (p[known == 1] == 1).all()
        assert (p[known == 0] == 0).all()
        unknown = p[np.isnan(known)]
        assert ((unknown > 0) & (unknown < 1)).all()

    def test_unknown_entries_hold_what_the_prior_leaves(self):
        Y, observed, held_out = world(1)
        nothing = np.zeros(observed.shape, bool)
        known = Known(observed == 1, nothing, np.zeros(len(Y), bool))
        prior = Y.mean(0)
        p = presence_at(held_out, known, prior)
        left = np.where(known.unknown, p, 0).sum(0)
        np.testing.assert_allclose(left, len(Y) * prior - observed.sum(0), rtol=2e-3)

    def test_higher_priors_mean_higher_probabilities(self):
        Y, observed, held_out = world(2)
        known = Known(observed == 1, np.zeros(observed.shape, bool), np.zeros(len(Y), bool))
        low, high = (presence_at(held_out, known, share * Y.mean(0)) for share in (0.8, 1.1))
        assert (high >= low).all()

    def test_calibration_finds_a_distortion(self):
        """Probabilities of which the logits were halved and moved are put right by many reviewed rows."""
        rng = np.random.default_rng(0)
        z = rng.normal(0, 2, (4000, 5))
        true = (rng.random(z.shape) < sigmoid(z)).astype(bool)
        true[np.arange(4000), rng.integers(0, 5, 4000)] = True
        known = Known(true, ~true, np.ones(4000, bool))
        found = calibrate(sigmoid(z / 2 + 1), known, known.complete)
        weight = 1 - true / true.sum(1, keepdims=True)
        assert found.coefficients[1] > 1.4
        calibrated = found.apply(sigmoid(z / 2 + 1))
        assert abs((weight * (calibrated - true)).sum() / weight.sum()) < 0.005

    def test_one_reviewed_row_changes_little(self):
        Y, _, held_out = world(3)
        known = Known(Y == 1, Y == 0, np.arange(len(Y)) == 0)
        found = calibrate(np.asarray(held_out, float), known, known.complete)
        assert abs(found.coefficients[0]) < 1.5
        assert abs(found.coefficients[1] - 1) < 0.3
        assert np.abs(found.offset).max() < 0.3

    def test_a_row_counts_by_the_labels_that_were_not_drawn(self):
        """A reviewed row with one label says nothing about it: that label was the observed one."""
        positive = np.array([[True, False]])
        known = Known(positive, ~positive, np.ones(1, bool))
        high, low = (calibrate(np.array([[p, 0.3]]), known, known.complete).coefficients for p in (0.9, 0.1))
        np.testing.assert_allclose(high, low)


class TestAdditions:
    def test_what_was_known_is_never_added(self, reviewed):
        known = known_of(reviewed.Y, reviewed.observed, range(60))
        assert not reviewed.done.added[~np.isnan(known)].any()

    def test_additions_are_right_as_often_as_stated(self, reviewed):
        added = reviewed.done.added
        assert added.sum() > 300
        assert reviewed.Y[added].mean() > 0.75

    def test_added_are_those_above_the_threshold(self, reviewed):
        done = reviewed.done
        unknown = np.isnan(known_of(reviewed.Y, reviewed.observed, range(60)))
        expected = unknown & (done.probability > done.thresholds.astype(np.float32))
        assert (expected != done.added).mean() < 1e-3  # single precision

    def test_expected_precision_reaches_what_is_wanted(self, reviewed):
        summary = reviewed.done.summary
        some = summary[summary["added"] > 0]
        assert (some["expected_precision"] >= 0.8).all()
        assert (some["precision_low"] <= some["expected_precision"] + 0.1).all()
        assert (some["precision_low"] <= some["precision_high"]).all()

    def test_more_precision_means_fewer_additions(self, reviewed):
        known = known_of(reviewed.Y, reviewed.observed, range(60))
        counts = [
            complete_labels(None, known, held_out=reviewed.held_out, min_precision=q, random_state=0).added
            for q in (0.6, 0.8, 0.95)
        ]
        assert (counts[0] >= counts[1]).all()
        assert (counts[1] >= counts[2]).all()

    def test_tied_entries_go_together(self):
        p = np.array([[0.95], [0.8], [0.8], [0.1]])
        unknown = np.ones(p.shape, bool)
        _, added = _decide(p, p, unknown, 0.85)
        assert added[:, 0].tolist() == [True, True, True, False]
        _, added = _decide(p, p, unknown, 0.86)
        assert added[:, 0].sum() in (1, 3)

    def test_without_evidence_of_the_scale_nothing_is_promised(self):
        rng = np.random.default_rng(0)
        share = 1 / np.arange(1.0, 21)
        share /= share.sum()
        held_out = np.tile(share, (400, 1)).astype(np.float32)
        y = rng.choice(20, 400, p=share)
        with pytest.warns(UserWarning, match="not promised"):
            done = complete_labels(None, y, held_out=held_out, random_state=0)
        assert done.warning
        assert not done.summary["promised"].any()

    def test_only_reviewed_rows_give_a_promise(self, reviewed):
        assert reviewed.done.warning == ""
        assert reviewed.done.calibrated_on == 60
        assert reviewed.done.summary["promised"].any()
        with pytest.warns(UserWarning, match="checked on 0 reviewed rows"):
            given = complete_labels(
                None, reviewed.observed, held_out=reviewed.held_out, cardinality=2.4, random_state=0
            )
        assert not given.summary["promised"].any()
        np.testing.assert_allclose(np.nansum(given.prior), 2.4, rtol=1e-6)

    def test_only_random_rows_calibrate(self, reviewed):
        known = known_of(reviewed.Y, reviewed.observed, range(60))
        for rows in (np.arange(30), np.arange(len(known)) < 30):
            done = complete_labels(None, known, held_out=reviewed.held_out, random_rows=rows, random_state=0)
            assert done.calibrated_on == 30
        partly = known.copy()
        partly[:30, 0] = np.where(reviewed.observed[:30, 0] == 1, 1, np.nan)
        done = complete_labels(None, partly, held_out=reviewed.held_out, random_rows=np.arange(60), random_state=0)
        assert done.calibrated_on == 60


class TestResult:
    def test_long_table_can_be_read_again(self, reviewed):
        done = reviewed.done
        long = done.to_long()
        assert list(long.columns) == ["item", "label", "value", "probability", "source"]
        assert set(long["source"]) == {"observed", "completed"}
        assert (long["source"] == "completed").sum() == done.added.sum()
        again = Labels.from_long(long, done.items, classes=done.classes)
        assert (again.positive.toarray() == (done.added | done.labels.positive.toarray())).all()
        assert (again.negative.toarray() == done.labels.negative.toarray()).all()

    def test_table_has_all_labels_the_most_probable_first(self, reviewed):
        done = reviewed.done
        assert done.table["item"].tolist() == done.items.tolist()
        present = done.added | done.labels.positive.toarray()
        assert [len(labels) for labels in done.table["labels"]] == present.sum(1).tolist()
        row = int(np.flatnonzero(done.added.sum(1) > 0)[0])
        p = [done.probability[row, label] for label in done.table["labels"][row]]
        assert p == sorted(p, reverse=True)

    def test_review_lists_doubtful_and_random_items(self, reviewed):
        found = reviewed.done.review(50)
        assert len(found) == found["row"].nunique() == 50
        assert (found["reason"] == "random").sum() == 10
        assert not set(found["row"]) & set(range(60)), "reviewed rows have nothing left to answer"
        doubtful = found[found["reason"] == "doubtful"]["expected_errors"].to_numpy()
        assert (np.diff(doubtful) <= 0).all()
        pd.testing.assert_frame_equal(found, reviewed.done.review(50))
        assert len(reviewed.done.review(10**6)) == len(reviewed.Y) - 60

    @pytest.mark.filterwarnings("ignore:the precision")
    def test_equal_seeds_give_equal_results(self, toy, short_cross_fit):
        X, _, observed = toy
        first, second = (complete_labels(X, observed, min_precision=0.5, random_state=3) for _ in range(2))
        assert isinstance(first, Completion)
        np.testing.assert_array_equal(first.probability, second.probability)
        again = complete_labels(None, observed, held_out=first.held_out, min_precision=0.5, random_state=3)
        np.testing.assert_array_equal(first.added, again.added)

    @pytest.mark.filterwarnings("ignore:the precision")
    def test_any_form_of_rows_and_labels(self, toy, short_cross_fit):
        X, _, observed = toy
        names = np.array(["a", "b", "c", "d"])[observed.argmax(1)]
        frame = pd.DataFrame(X).assign(kind=np.where(X[:, 0] > 0, "up", "down"))
        frame.columns = [str(name) for name in frame.columns]
        ids = [f"row {k}" for k in range(len(X))]
        for rows in (X, sp.csr_array(X), frame):
            done = complete_labels(rows, names, items=ids, random_state=0)
            assert done.classes.tolist() == ["a", "b", "c", "d"]
            assert done.table["item"].tolist() == ids


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"min_precision": 0}, "min_precision must be"),
        ({"min_precision": "high"}, "min_precision must be"),
        ({"items": [1, 2]}, "items must name every row"),
        ({"random_rows": [10**6]}, "random_rows must be"),
        ({"held_out": np.ones((3, 2))}, "held_out|same number of rows"),
        ({"held_out": "times two"}, "rows of held_out must sum to 1"),
        ({"cardinality": 0.5}, "cardinality"),
    ],
)
def test_what_is_refused(reviewed, options, sentence):
    given = {"held_out": reviewed.held_out} | options
    if isinstance(given["held_out"], str):
        given["held_out"] = 2 * reviewed.held_out
    with pytest.raises(ValueError, match=sentence):
        complete_labels(None, reviewed.observed, random_state=0, **given)


def test_estimates_use_the_reviewed_rows(reviewed):
    alone = estimate_priors(
        reviewed.held_out[60:].astype(float) / reviewed.held_out[60:].astype(float).sum(1, keepdims=True),
        reviewed.observed[60:],
        estimator="bracket",
        labelled=reviewed.Y[:60],
    )
    np.testing.assert_allclose(reviewed.done.prior, alone.prior, rtol=1e-4)


class TestCommand:
    @pytest.fixture
    def run(self, onepos):
        """The command as a person types it."""

        def call(*arguments):
            code, out, err = onepos(*arguments)
            return SimpleNamespace(code=code, out=out, err=err)

        return call

    @pytest.fixture
    def items(self, tmp_path, toy):
        X, Y, observed = toy
        names = np.array(["cat", "dog", "bird", "fish"])
        table = pd.DataFrame(X, columns=[f"f{k}" for k in range(X.shape[1])])
        table.insert(0, "tag", names[observed.argmax(1)])
        table.insert(0, "key", [f"item {k}" for k in range(len(X))])
        answers = [(f"item {i}", names[j], int(Y[i, j])) for i in range(12) for j in range(4)]
        table.to_csv(tmp_path / "items.csv", index=False)
        table.drop(columns="tag").to_csv(tmp_path / "bare.csv", index=False)
        pd.DataFrame(answers, columns=["item", "label", "value"]).to_csv(tmp_path / "answers.csv", index=False)
        shown = table[["key", "tag"]].rename(columns={"key": "item", "tag": "label"}).assign(value=1)
        shown.to_csv(tmp_path / "shown.csv", index=False)
        return SimpleNamespace(folder=tmp_path, Y=Y, observed=observed)

    def test_tables_of_a_completion(self, run, items, short_cross_fit):
        data, out = items.folder / "items.csv", items.folder / "out"
        answers = str(items.folder / "answers.csv")
        found = run("complete", str(data), "--label", "tag", "--id", "key", "--labels", answers, "--review", "7",
                       "--out", str(out), "--min-precision", "0.5")  # fmt: skip
        assert found.code == 0, found.err
        assert "calibrated on" in found.out
        assert {path.name for path in out.iterdir()} == {
            "completed.csv", "labels.csv", "summary.csv", "review.csv"
        }  # fmt: skip
        assert len(pd.read_csv(out / "completed.csv")) == len(items.Y)
        assert len(pd.read_csv(out / "review.csv")) == 7
        long = Labels.from_long(pd.read_csv(out / "labels.csv", keep_default_na=False))
        assert long.negative.sum() == (items.Y[:12] == 0).sum()
        assert set(pd.read_csv(out / "summary.csv")["label"]) == {"cat", "dog", "bird", "fish"}

    def test_only_the_sample_calibrates(self, run, items, short_cross_fit):
        listed = pd.DataFrame({"item": [f"item {k}" for k in range(12)], "reason": ["random"] * 5 + ["doubtful"] * 7})
        listed.to_csv(items.folder / "review.csv", index=False)
        arguments = ["complete", str(items.folder / "items.csv"), "--label", "tag", "--id", "key", "--json", "--labels",
                     str(items.folder / "answers.csv"), "--sample", str(items.folder / "review.csv")]  # fmt: skip
        found = run(*arguments)
        assert found.code == 0, found.err
        assert json.loads(found.out)["calibrated_on"] <= 5
        listed.assign(item="nobody").to_csv(items.folder / "review.csv", index=False)
        found = run(*arguments)
        assert found.code == 2
        assert "'nobody'" in found.err

    def test_json_and_parquet(self, run, items, short_cross_fit):
        pytest.importorskip("pyarrow")
        out = items.folder / "out"
        found = run("complete", str(items.folder / "items.csv"), "--label", "tag", "--drop", "key", "--json",
                       "--format", "parquet", "--out", str(out))  # fmt: skip
        assert found.code == 0, found.err
        facts = json.loads(found.out)
        assert facts["n_rows"] == len(items.Y)
        assert len(facts["labels"]) == 4
        assert isinstance(pd.read_parquet(out / "completed.parquet")["labels"][0][0], str)

    def test_all_labels_may_be_in_the_long_table(self, run, items, short_cross_fit):
        out = items.folder / "out"
        found = run("complete", str(items.folder / "bare.csv"), "--id", "key", "--positives", "any",
                       "--labels", str(items.folder / "shown.csv"), "--out", str(out), "-q")  # fmt: skip
        assert found.code == 0, found.err
        assert pd.read_csv(out / "completed.csv")["item"][0] == "item 0"

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["--label", "tag", "--min-precision", "1.5"], "--min-precision"),
            (["--label", "tag", "--out", "items.csv"], "must be a folder"),
            (["--label", "tga"], "did you mean|no column"),
            (["--label", "tag", "--labels", "answers.csv"], "every item of the labels must be one of the rows"),
        ],
    )
    def test_wrong_input_is_refused_in_one_sentence(self, run, items, arguments, sentence, monkeypatch):
        monkeypatch.chdir(items.folder)
        found = run("complete", "items.csv", *arguments)
        assert found.code == 2
        assert any(part in found.err for part in sentence.split("|")), found.err
        assert not (items.folder / "completed").exists()

    def test_an_answer_against_an_observed_label(self, run, items):
        name = ["cat", "dog", "bird", "fish"][int(items.observed[0].argmax())]
        wrong = items.folder / "wrong.csv"
        pd.DataFrame({"item": ["item 0"], "label": [name], "value": [0]}).to_csv(wrong, index=False)
        found = run("complete", str(items.folder / "items.csv"), "--label", "tag", "--id", "key", "--labels",
                       str(wrong), "--out", str(items.folder / "out"))  # fmt: skip
        assert found.code == 2
        assert "'item 0'" in found.err
