"""Decisions: each rule against a loop over its definition, and the curve of a model against all rows."""

import pickle

import numpy as np
import pytest
import torch

from onepos import SinglePositiveClassifier
from onepos.priors import decide, decide_top, make_curve, make_thresholds, read_rule


def probabilities(seed, n=60, c=5, tied=False):
    """Labels that are rare and common, certain and uncertain; with `tied` only a few different values."""
    rng = np.random.default_rng(seed)
    scores = rng.beta(rng.uniform(0.05, 2, c), rng.uniform(0.3, 4, c), size=(n, c))
    return np.round(scores * 8) / 10 + 0.05 if tied else scores.clip(1e-9, 1 - 1e-9)


def priors(probability):
    return np.minimum(1, probability.mean(0) * 1.3)


def expected_f1(p, threshold):
    above = [v for v in p if v > threshold]
    return 2 * sum(above) / (len(above) + sum(p)) if above else 0.0


def best_f1(p):
    """Every set of highest probabilities that a threshold can cut off."""
    return max(expected_f1(p, t) for t in [0.0, *p])


def lowest_for_precision(p, precision):
    """How many rows the lowest threshold leaves above it of which the mean is high enough."""
    counts = [0]
    for t in [-1.0, *p]:
        above = [v for v in p if v > t]
        if above and sum(above) / len(above) >= precision:
            counts.append(len(above))
    return max(counts)


def count_labels(probability, thresholds, least):
    """The mean number of labels of a row, each with at least `least`, by hand."""
    total = 0
    for row in probability:
        total += max(least, sum(p > t for p, t in zip(row, thresholds, strict=True)))
    return total / len(probability)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(5))
class TestRulesOfFewRows:
    """Of up to 112 rows the curve holds every point, so the rules are exact but for single precision."""

    def test_f1(self, seed, tied):
        probability = probabilities(seed, tied=tied)
        thresholds, least = make_curve(probability, priors(probability), 1).choose("f1")
        assert least == 1
        for p, threshold in zip(probability.T, thresholds, strict=True):
            assert expected_f1(p.tolist(), threshold) == pytest.approx(best_f1(p.tolist()), rel=1e-6)

    @pytest.mark.parametrize("precision", [0.3, 0.7, 0.9, 0.99])
    def test_precision(self, seed, tied, precision):
        probability = probabilities(seed, tied=tied)
        thresholds, least = make_curve(probability, priors(probability), 1).choose(f"precision={precision}")
        assert least == 0, "labels added would break the promise"
        for p, threshold in zip(probability.T, thresholds, strict=True):
            above = p[p > threshold]
            assert len(above) == lowest_for_precision(p.tolist(), precision)
            assert len(above) == 0 or above.mean() >= precision - 1e-6
            assert (threshold == 1) == (len(above) == 0)

    def test_prior(self, seed, tied):
        probability = probabilities(seed, tied=tied)
        prior = priors(probability)
        thresholds, _ = make_curve(probability, prior, 0).choose("prior")
        np.testing.assert_array_equal(thresholds, make_thresholds("prior", probability, prior))

    def test_prior_counts_the_labels_that_are_added(self, seed, tied):
        probability = probabilities(seed, tied=tied)
        prior = priors(probability)
        thresholds, least = make_curve(probability, prior, 1).choose("prior")
        assert least == 1
        found = count_labels(probability, thresholds, 1)
        best = min(
            abs(count_labels(probability, make_thresholds("prior", probability, s * prior), 1) - prior.sum())
            for s in np.linspace(0, 1, 201)
        )
        assert abs(found - prior.sum()) <= best + 1e-9
        assert decide(probability, thresholds, 1).sum(1).mean() == pytest.approx(found)
        assert (thresholds >= make_thresholds("prior", probability, prior) - 1e-12).all(), "shares only fall"

    def test_numbers_and_hamming(self, seed, tied):
        curve = make_curve(probabilities(seed, tied=tied), np.full(5, 0.2), 2)
        assert [curve.choose(0.3)[0].tolist(), curve.choose(0.3)[1]] == [[0.3] * 5, 0]
        assert [curve.choose("hamming")[0].tolist(), curve.choose("hamming")[1]] == [[0.5] * 5, 2]


@pytest.mark.parametrize("n", [113, 3000, 20000])
def test_the_curve_is_nearly_as_good_as_all_rows(n):
    probability = probabilities(n, n, 8)
    curve = make_curve(probability, priors(probability), 0)
    assert curve.rank[0] == 0
    assert curve.rank[-1] == n
    assert (np.diff(curve.rank) > 0).all()
    assert len(curve.rank) <= 113
    ordered = -np.sort(-probability, axis=0)
    sums, counts = ordered.cumsum(0), np.arange(1, n + 1)[:, None]
    exact = (2 * sums / (counts + sums[-1])).max(0)
    thresholds = curve.choose("f1")[0]
    np.testing.assert_allclose(2 * thresholds, exact, rtol=2e-3)
    reached = [2 * p[p > t].sum() / ((p > t).sum() + p.sum()) for p, t in zip(probability.T, thresholds, strict=True)]
    np.testing.assert_allclose(reached, exact, rtol=1e-4)
    for precision in (0.6, 0.8, 0.95):
        wanted = (sums / counts >= precision).sum(0)
        found = (probability > curve.choose(f"precision={precision}")[0]).sum(0)
        np.testing.assert_allclose(found, wanted, rtol=0.05, atol=1.5)
        for p, t in zip(probability.T, curve.choose(f"precision={precision}")[0], strict=True):
            assert not (p > t).any() or p[p > t].mean() >= precision - 0.005


def test_the_curve_is_small():
    probability = np.random.default_rng(0).uniform(size=(2000, 983))
    curve = make_curve(probability, np.full(983, 0.1), 1)
    assert sum(np.asarray(part).nbytes for part in curve) < 1_000_000


def test_constant_probabilities():
    """A network that tells rows nothing apart: all rows get the label, or none."""
    for value in (0.3, 0.95, 1 / 3):
        probability = np.full((5000, 1), value)
        curve = make_curve(probability, np.array([0.2]), 0)
        assert not decide(probability, *curve.choose("prior")).any()
        assert decide(probability, *curve.choose("f1")).all()
        assert decide(probability, *curve.choose("precision=0.9")).all() == (value > 0.9)
    mixed = np.full((5000, 1), 0.85)
    mixed[0] = 0.99
    found = decide(mixed, *make_curve(mixed, np.array([0.2]), 0).choose("precision=0.9"))
    assert found.sum() == 1


def test_a_label_of_unknown_prior_is_decided_at_one_half():
    probability = probabilities(0)
    curve = make_curve(probability, np.array([0.2, np.nan, 0.2, 0.2, np.nan]), 1)
    for rule in ("prior", "f1"):
        thresholds = curve.choose(rule)[0]
        assert thresholds[[1, 4]].tolist() == [0.5, 0.5]
        assert (thresholds[[0, 2, 3]] != 0.5).all()
    assert make_curve(probability, np.full(5, np.nan), 1).choose("prior")[0].tolist() == [0.5] * 5


def test_one_row():
    curve = make_curve(np.array([[0.2, 0.9]]), np.array([1.0, 0.0]), 1)
    assert decide(np.array([[0.2, 0.9]]), *curve.choose("prior")).sum() == 1
    assert decide(np.array([[0.2, 0.9]]), *curve.choose("f1")).tolist() == [[1, 1]]


class TestDecide:
    def test_by_hand(self):
        rng = np.random.default_rng(0)
        probability, thresholds = rng.uniform(size=(200, 6)).round(1), rng.uniform(0.5, 1, 6)
        probability[7] = np.nan
        for least in (0, 1, 3, 6):
            found = decide(probability, thresholds, least)
            assert found.dtype == np.int64
            for row, chosen in zip(probability, found, strict=True):
                expected = {j for j in range(6) if row[j] > thresholds[j]}
                others = sorted((j for j in range(6) if j not in expected), key=lambda j: -row[j])
                if not np.isnan(row).any():
                    expected |= set(others[: max(0, least - len(expected))])
                assert set(np.flatnonzero(chosen)) == expected

    def test_top(self):
        probability = np.array([[0.1, 0.5, 0.5, 0.5], [np.nan] * 4, [0.9, 0.8, 0.1, 0.85]])
        assert decide_top(probability, 2).tolist() == [[0, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 1]]
        assert decide_top(probability, 4).sum(1).tolist() == [4, 0, 4]


@pytest.mark.parametrize(
    "rule",
    ["half", "precision", "precision=", "precision=2", "precision=nan", "f1=2", "0.5", -0.1, np.nan, None, [0.5]],
)
def test_no_rule(rule):
    with pytest.raises(
        ValueError, match=r"threshold must be a number from 0 to 1, 'prior', 'f1', 'hamming' or 'prec.*got"
    ):
        read_rule(rule)


class TestModel:
    @pytest.fixture
    def model(self, toy):
        X, _, observed = toy
        return SinglePositiveClassifier("an", epochs=5, random_state=0, device="cpu").fit(X, observed)

    def test_any_rule_without_another_fit(self, model, toy):
        X, _, observed = toy
        probability = model.predict_proba(X)
        for rule in (0.3, "prior", "f1", "hamming", "precision=0.6"):
            fitted = SinglePositiveClassifier("an", epochs=5, random_state=0, device="cpu", threshold=rule)
            expected = fitted.fit(X, observed).predict(X)
            np.testing.assert_array_equal(model.predict(X, threshold=rule), expected)
            np.testing.assert_array_equal(model.decide(probability, threshold=rule), expected)
        np.testing.assert_array_equal(model.predict(X), model.predict(X, threshold="prior"))
        assert (model.predict(X, top_k=2).sum(1) == 2).all()

    def test_a_row_has_a_label_where_the_training_rows_have(self, model, toy):
        X, _, observed = toy
        assert model.min_labels_ == 1
        assert (model.predict(X).sum(1) >= 1).all()
        assert (model.predict(X, threshold="hamming").sum(1) >= 1).all()
        assert not model.predict(X, threshold=1.0).any()
        partial = observed.copy()
        partial[3] = 0
        for parameters, expected in (
            ({"positives": "any"}, 0),
            ({"positives": "any", "min_labels": 2}, 2),
            ({"positives": "any", "min_labels": 2, "threshold": 0.5}, 0),
        ):
            other = SinglePositiveClassifier("an", epochs=1, random_state=0, **parameters).fit(X, partial)
            assert other.min_labels_ == expected
            assert (other.predict(X).sum(1) >= expected).all()
            assert other.decision_curve_.min_labels == parameters.get("min_labels", 0)

    def test_as_many_labels_as_the_priors_state(self, model, toy):
        X, _, _ = toy
        assert model.predict(X).sum(1).mean() == pytest.approx(max(1, model.class_prior_.sum()), abs=2 / 60)

    def test_saved_and_pickled(self, model, toy, tmp_path):
        X, _, _ = toy
        model.save(tmp_path)
        for twin in (SinglePositiveClassifier.load(tmp_path), pickle.loads(pickle.dumps(model))):
            for mine, theirs in zip(model.decision_curve_, twin.decision_curve_, strict=True):
                np.testing.assert_array_equal(mine, theirs)
            for rule in (None, "f1", "precision=0.7"):
                np.testing.assert_array_equal(twin.predict(X, threshold=rule), model.predict(X, threshold=rule))

    def test_refused(self, model, toy):
        X, _, _ = toy
        for arguments, sentence in (
            ({"threshold": "precision=2"}, "with P from 0 to 1; got 'precision=2'"),
            ({"threshold": 0.5, "top_k": 2}, "threshold and top_k exclude each other; got 0.5 and 2"),
            ({"top_k": 0}, "top_k must be a whole number of at least 1; got 0"),
            ({"top_k": 5}, "top_k must be at most 4, the number of labels; got 5"),
        ):
            with pytest.raises(ValueError, match=sentence):
                model.predict(X, **arguments)
        with pytest.raises(ValueError, match=r"one column per label, 4 in all; its shape is \(60, 3\)"):
            model.decide(np.ones((60, 3)))

    def test_rows_of_nan_get_no_labels(self, model):
        probability = np.array([[0.9, 0.1, 0.1, 0.1], [np.nan] * 4])
        for arguments in ({}, {"threshold": "f1"}, {"threshold": 0.0}, {"top_k": 3}):
            assert model.decide(probability, **arguments)[1].sum() == 0


class TestPrecision:
    """A fitted network is held in double precision and saved in single, with the same answers."""

    def test_held_in_double(self, toy, tmp_path):
        X, _, observed = toy
        model = SinglePositiveClassifier("an", epochs=2, random_state=0).fit(X, observed)
        before = list(model.network_.parameters())
        assert {p.dtype for p in before} == {torch.float64}
        assert all(torch.equal(p, p.float().double()) for p in before)
        model.predict_proba(X)
        assert all(p is q for p, q in zip(before, model.network_.parameters(), strict=True))
        model.save(tmp_path)
        twin = SinglePositiveClassifier.load(tmp_path)
        assert {p.dtype for p in twin.network_.parameters()} == {torch.float64}
        np.testing.assert_array_equal(twin.decision_function(X), model.decision_function(X))
        from safetensors.torch import load_file

        saved = load_file(tmp_path / "model.safetensors")
        assert {t.dtype for name, t in saved.items() if name.startswith("network.")} == {torch.float32}

    def test_steps(self, toy, monkeypatch):
        """The answer for a row does not depend on how the rows are cut into steps, nor on sparseness."""
        import scipy.sparse as sp

        from onepos import estimator

        X, _, observed = toy
        X = X * (np.abs(X) > 0.5)
        model = SinglePositiveClassifier("an", epochs=2, random_state=0).fit(X, observed)
        whole = model.predict_proba(X)
        monkeypatch.setattr(estimator, "_STEP_ROWS", 7)
        for rows in (X, sp.csr_array(X), sp.csc_array(X)):
            np.testing.assert_allclose(model.predict_proba(rows), whole, rtol=1e-12)
        monkeypatch.setattr(estimator, "_STEP_NUMBERS", 8)
        np.testing.assert_allclose(model.predict_proba(X), whole, rtol=1e-12)

    def test_a_device_of_another_machine(self, toy, tmp_path):
        import json

        X, _, observed = toy
        model = SinglePositiveClassifier("an", epochs=1, random_state=0).fit(X, observed)
        model.save(tmp_path)
        facts = json.loads((tmp_path / "model.json").read_text())
        facts["parameters"]["device"] = "xpu"
        (tmp_path / "model.json").write_text(json.dumps(facts))
        twin = SinglePositiveClassifier.load(tmp_path)
        assert twin.device == "auto"
        np.testing.assert_allclose(twin.predict_proba(X), model.predict_proba(X))

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    def test_on_an_accelerator(self, toy):
        X, _, observed = toy
        model = SinglePositiveClassifier("an", epochs=2, random_state=0, device="cuda").fit(X, observed)
        there = model.predict_proba(X)
        assert {p.device.type for p in model.network_.parameters()} == {"cuda"}
        twin = pickle.loads(pickle.dumps(model))
        assert {p.device.type for p in [*twin.network_.parameters(), *twin.method_.parameters()]} == {"cpu"}
        assert twin.network_[1] is twin.method_.head
        np.testing.assert_allclose(twin.set_params(device="cpu").predict_proba(X), there, rtol=1e-9)
