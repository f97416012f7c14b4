"""Held-out probabilities of the observed label, and the ensemble that predicts new rows."""

import copy
import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from onepos.methods.ensemble import Ensemble
from sklearn.linear_model import LogisticRegression
from torch import nn

from onepos.methods import crossfit, ensemble
from onepos.methods.crossfit import (
    CrossFitSettings,
    _fit_folds,
    _fit_model,
    _mix,
    _start,
    _vote,
    cross_fit,
    held_out_probabilities,
)

SHORT = CrossFitSettings(linear_rates=(0.05,), layered_rates=(0.02,), hidden=16, most_epochs=12, most_steps=12)
"""A few long steps of narrow models, where it does not matter what they learn."""


def clusters(n=180, c=3, seed=0):
    """Rows around c centres, and the number of the centre as the observed label."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, c, n)
    return rng.normal(size=(n, 6)) + 2 * np.eye(c, 6)[label], label


def held_out(X, y, seed=0, settings=SHORT):
    return held_out_probabilities(X, y, random_state=seed, settings=settings)


def test_data_frames_are_taken():
    rows, label = clusters()
    frames = pd.DataFrame(rows, columns=list("abcdef")), pd.get_dummies(pd.Series(label))
    torch.testing.assert_close(held_out(*frames).probability, held_out(rows, label).probability)


def test_labels_may_be_words_and_missing():
    rows, label = clusters()
    words = np.array(["ant", "bee", "cat"], object)[label]
    torch.testing.assert_close(held_out(rows, words).probability, held_out(rows, label).probability)
    words[:5] = None
    assert held_out(rows, words).probability.shape == (180, 3)


def test_noise_can_not_be_predicted():
    """Labels drawn without regard to the rows: whoever saw them would beat their entropy."""
    rng = np.random.default_rng(0)
    label = rng.choice(4, 300, p=[0.4, 0.3, 0.2, 0.1])
    fit = held_out_probabilities(rng.normal(size=(300, 20)), label, random_state=0)
    share = np.bincount(label) / 300
    assert fit.cross_entropy > -(share * np.log(share)).sum() - 0.01


def test_signal_is_found():
    X, label = clusters()
    fit = held_out(X, label)
    assert fit.cross_entropy < 0.7
    assert (fit.probability.argmax(1).numpy() == label).mean() > 0.75
    np.testing.assert_allclose(fit.probability.sum(1), 1, atol=1e-5)
    assert list(fit.weight) == ["linear", "layered", "vote", "frequency"]
    assert math.isclose(sum(fit.weight.values()), 1, abs_tol=1e-9)
    assert fit.weight["frequency"] < 0.2
    np.testing.assert_allclose(fit.peak, [max(row) for row in fit.probability.tolist()])


def test_equals_its_formula():
    """Two models, the vote where features stand beside roots of their mixture, the frequency; then the mixture."""
    X, label = clusters(60)
    fit = held_out(X, label)
    given = crossfit._as_rows(X)
    rows, target = ensemble.standardize(given, *ensemble.fit_scaling(given)), torch.eye(3)[label]

    def layered():
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))

    predictions = {
        "linear": _fit_folds(rows, target, lambda: nn.Sequential(nn.Linear(6, 3)), (0.05,), settings=SHORT, seed=0)[0],
        "layered": _fit_folds(rows, target, layered, (0.02,), settings=SHORT, seed=0)[0],
        "frequency": torch.tensor([[np.delete(label == j, i).mean() for j in range(3)] for i in range(60)]).float(),
    }
    first, _, _ = _mix(predictions, target)
    space = [[*(x / np.linalg.norm(x)), *np.sqrt(s)] for x, s in zip(rows.numpy(), first.numpy(), strict=True)]
    predictions["vote"] = torch.tensor(naive_vote(np.array(space), target.numpy(), 60, 20.0)).float()
    expected = sum(fit.weight[name] * predictions[name] for name in predictions)
    np.testing.assert_allclose(fit.probability, expected, atol=1e-5)
    chances = expected[torch.arange(60), torch.tensor(label)].numpy()
    np.testing.assert_allclose(fit.cross_entropy, -np.log(chances).mean(), atol=1e-4)


@pytest.mark.parametrize(("gain", "chosen"), [(0.01, SHORT.decay), (-0.01, 0.0)])
def test_every_row_is_judged_by_a_model_that_has_not_seen_it(gain, chosen, monkeypatch):
    """Once; and the rate that does best on the first fold is that of all, with decay if that does better there."""
    asked = []

    def fake(rows, target, seen, unseen, make, settings, seed, rate, decay):
        asked.append((seen.tolist(), unseen.tolist(), rate, decay))
        chance = torch.full((len(unseen), 2), rate + decay)
        return abs(rate - 0.2) - (gain if decay else 0), chance, (rate, decay, len(asked))

    monkeypatch.setattr(crossfit, "_fit_model", fake)
    predicted, models = _fit_folds(
        torch.zeros(23, 1), torch.zeros(23, 2), nn.Sequential, (0.1, 0.2, 0.5), settings=SHORT, seed=0
    )
    tried = [(0.1, 0.0), (0.2, 0.0), (0.5, 0.0), (0.2, SHORT.decay)]
    assert [setting for _, _, *setting in asked] == [list(pair) for pair in [*tried, *[(0.2, chosen)] * 4]]
    assert torch.equal(predicted, torch.full((23, 2), 0.2 + chosen))
    assert models == [(0.2, chosen, k) for k in (4 if chosen else 2, 5, 6, 7, 8)]
    for seen, unseen, *_ in asked:
        assert sorted(seen + unseen) == list(range(23))
        assert 4 <= len(unseen) <= 5
    assert sorted(i for _, unseen, *_ in asked[3:] for i in unseen) == list(range(23))


def test_linear_is_a_softmax_regression():
    """Against scikit-learn's, with its best penalty: the held-out cross-entropy is as low."""
    X, label = clusters(400)
    rows, target = torch.tensor(X, dtype=torch.float32), torch.eye(3)[label]
    parts = torch.arange(200), torch.arange(200, 400)
    ours, probability, model = _fit_model(
        rows, target, *parts, lambda: nn.Sequential(nn.Linear(6, 3)), CrossFitSettings(), 0, 3e-3, 0.0
    )
    models = [LogisticRegression(C=strength).fit(X[:200], label[:200]) for strength in (0.001, 0.01, 0.1, 1.0)]
    theirs = min(-model.predict_log_proba(X[200:])[range(200), label[200:]].mean() for model in models)
    assert abs(ours - theirs) < 0.03
    np.testing.assert_allclose(ours, -probability[range(200), label[200:]].log().mean(), rtol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(torch.softmax(model(rows[200:]), 1), probability)


def test_layered_sees_what_no_line_parts():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    rows, target = torch.tensor(X, dtype=torch.float32), torch.eye(2)[(X[:, 0] * X[:, 1] > 0).astype(int)]
    parts = torch.arange(480), torch.arange(480, 600)

    def layered():
        return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2))

    flat, *_ = _fit_model(
        rows, target, *parts, lambda: nn.Sequential(nn.Linear(2, 2)), CrossFitSettings(), 0, 3e-3, 0.0
    )
    bent, *_ = _fit_model(rows, target, *parts, layered, CrossFitSettings(), 0, 3e-3, 0.0)
    assert flat > 0.65
    assert bent < 0.4


def test_models_start_at_the_frequencies():
    target = torch.eye(3)[torch.tensor([0, 0, 0, 1])]
    model = _start(nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)), target)
    start = torch.softmax(model(torch.randn(2, 5)), 1).detach()
    np.testing.assert_allclose(start, np.array([[3.5, 1.5, 0.5]] * 2) / 5.5, rtol=1e-5)


def naive_vote(X, target, k, temperature):
    vote = np.zeros(target.shape)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    for i in range(len(X)):
        others = [(unit[i] @ unit[j], j) for j in range(len(X)) if j != i and target[j].any()]
        near = sorted(others, reverse=True)[:k]
        total = sum(math.exp(temperature * cosine) for cosine, _ in near)
        for cosine, j in near:
            vote[i] += math.exp(temperature * cosine) / total * target[j]
    return vote


def test_vote_equals_a_loop(monkeypatch):
    rng = np.random.default_rng(1)
    X, target = rng.normal(size=(25, 4)), np.eye(3)[rng.integers(0, 3, 25)]
    target[7] = 0  # not labelled: gets votes, has none
    monkeypatch.setattr(crossfit, "BLOCK", 60)  # several blocks
    vote = _vote(torch.tensor(X), torch.tensor(target), CrossFitSettings(n_neighbours=5, temperature=7.0))
    np.testing.assert_allclose(vote, naive_vote(X, target, 5, 7.0), atol=1e-12)


def test_mixture_maximises_the_likelihood():
    rng = np.random.default_rng(2)
    parts = {name: torch.tensor(rng.dirichlet(np.ones(4), 50)) for name in "abc"}
    target = torch.eye(4, dtype=torch.float64)[rng.integers(0, 4, 50)]
    mixture, weight, cross_entropy = _mix(parts, target)
    likelihood = np.stack([(part * target).sum(1) for part in parts.values()], 1)
    grid = [(a, b, 1 - a - b) for a in np.linspace(0, 1, 41) for b in np.linspace(0, 1, 41) if a + b <= 1]
    best = min(-np.log(likelihood @ np.array(each)).mean() for each in grid)
    assert cross_entropy <= best + 1e-3
    np.testing.assert_allclose(mixture, sum(weight[name] * part for name, part in parts.items()), atol=1e-9)
    np.testing.assert_allclose(cross_entropy, -(mixture * target).sum(1).log().mean(), atol=1e-9)


def test_seeds_decide_and_global_generators_rest():
    X, label = clusters(40)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, other = held_out(X, label), held_out(X, label, seed=1)
    assert torch.equal(first.probability, held_out(X, label).probability)
    assert not torch.equal(first.probability, other.probability)
    assert torch.equal(before, torch.get_rng_state())


class TestEnsemble:
    @pytest.fixture
    def case(self):
        """60 rows, one without an observed label and one with two; what was fitted to them."""
        X, label = clusters(60)
        observed = torch.eye(3)[label]
        observed[3], observed[4] = 0, torch.tensor([1, 0, 1])
        rows = torch.tensor(X, dtype=torch.float32)
        return rows, observed, cross_fit(rows, observed, 0, SHORT, keep_models=True)

    def test_new_rows_by_a_loop(self, case):
        """The models of the folds by the mean of their logits, the vote of all rows, the frequency."""
        rows, observed, fit = case
        target = observed / observed.sum(1, keepdim=True).clamp(min=1)
        mean, scale = rows.mean(0), rows.std(0, unbiased=False)
        seen, new = (rows - mean) / scale, torch.randn(9, 6)
        asked = (new - mean) / scale

        def layered():
            return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))

        held_out, said = {}, {}
        for name, make, rate in (("linear", lambda: nn.Sequential(nn.Linear(6, 3)), 0.05), ("layered", layered, 0.02)):
            held_out[name], models = _fit_folds(seen, target, make, (rate,), settings=SHORT, seed=0)
            with torch.no_grad():
                said[name] = torch.softmax(torch.stack([model(asked) for model in models]).mean(0), 1)
        held_out["frequency"] = crossfit._frequency(target)
        said["frequency"] = (target.sum(0) / 59).expand(9, -1)
        first, weight, _ = _mix(held_out, target)
        before = sum(weight[name] * said[name] for name in weight)
        vote = torch.zeros(9, 3)
        for i in range(9):
            near = {}
            for j in range(60):
                if target[j].any():
                    features = torch.cosine_similarity(asked[i], seen[j], dim=0)
                    near[j] = math.exp(20 * (features.item() + (before[i] * first[j]).sqrt().sum().item()) / 2)
            for j, w in near.items():  # no more than 60 of them
                vote[i] += w / sum(near.values()) * target[j]
        said["vote"] = vote
        expected = sum(w * said[name] for name, w in fit.weight.items())
        torch.testing.assert_close(fit.ensemble(new), expected, atol=2e-3, rtol=0)  # rows are kept in half precision

    def test_only_the_nearest_vote_in_blocks_of_any_size(self, case, monkeypatch):
        rows, observed, _ = case
        few = dataclasses.replace(SHORT, n_neighbours=5)
        fitted = cross_fit(rows, observed, 0, few, keep_models=True).ensemble
        whole = fitted(rows[:20])
        monkeypatch.setattr(ensemble, "BLOCK", 59 * 7)
        torch.testing.assert_close(fitted(rows[:20]), whole)
        assert fitted(rows[:0]).shape == (0, 3)
        fitted.vote_settings[0] = 60
        assert not torch.allclose(fitted(rows[:20]), whole)

    def test_double_precision(self, case):
        rows, _, fit = case
        exact = copy.deepcopy(fit.ensemble).double()(rows.double())
        assert exact.dtype == torch.float64
        torch.testing.assert_close(exact.float(), fit.ensemble(rows), atol=1e-4, rtol=0)

    def test_models_are_kept_on_demand(self, case):
        rows, observed, _ = case
        assert cross_fit(rows, observed, 0, SHORT).ensemble is None

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("features", lambda t: t[:-1]),
            ("label", lambda t: t + 2),
            ("label", lambda t: t.float()),
            ("first", lambda t: t[:2]),
        ],
    )
    def test_tensors_that_do_not_fit_are_refused(self, name, change, case):
        _, _, fit = case
        tensors = dict(fit.ensemble.state_dict())
        Ensemble.read(dict(tensors), 3)
        with pytest.raises(RuntimeError, match="the ensemble must"):
            Ensemble.read(tensors | {name: change(tensors[name])}, 3)


def test_form_and_scale_of_the_rows_do_not_matter():
    rng = np.random.default_rng(3)
    X = rng.poisson(0.3, (90, 8)).astype(np.float64)
    X[:, 7] = 0.1  # constant, and not a binary fraction
    label = rng.integers(0, 3, 90)
    dense = held_out(X, label).probability
    for other in (sp.csr_array(X), torch.tensor(X), X * np.arange(1, 9) + 7):
        np.testing.assert_allclose(held_out(other, label).probability, dense, atol=2e-4)


def test_a_rare_feature_does_not_outweigh_the_rest():
    rows = torch.eye(1000)[:, :2]
    assert ensemble.standardize(rows, *ensemble.fit_scaling(rows)).abs().max() == 5


def test_rows_without_or_with_several_labels():
    X, label = clusters()
    observed = np.eye(3, dtype=np.uint8)[label]
    observed[:60] = 0
    observed[60:80] = 1
    fit = held_out(torch.tensor(X), torch.tensor(observed))
    assert torch.isfinite(fit.probability).all()
    np.testing.assert_allclose(fit.probability.sum(1), 1, atol=1e-5)
    assert (fit.probability[:60].argmax(1).numpy() == label[:60]).mean() > 0.65, "unlabelled rows are judged"


def test_a_label_nobody_observed_is_all_but_impossible():
    X, label = clusters()
    fit = held_out(X, np.eye(4)[label])
    assert fit.probability[:, 3].min() >= 0
    assert fit.probability[:, 3].max() < 0.02


def test_inputs_are_left_alone():
    X, label = clusters(60)
    rows, observed = torch.tensor(X, dtype=torch.float32), torch.eye(3)[label]
    kept = rows.clone(), observed.clone()
    held_out(rows, observed)
    assert torch.equal(rows, kept[0])
    assert torch.equal(observed, kept[1])


@pytest.mark.parametrize(
    ("X", "observed", "sentence"),
    [
        (np.ones((4, 3)), [0, 1, 0, 1], "X must have at least 5 rows; got 4"),
        (np.ones(5), [0, 1, 0, 1, 0], r"X must be a matrix, one row per sample; got shape \(5,\)"),
        (np.ones((6, 3)), np.eye(5), "X and y must have the same number of rows; X has 6, y has 5"),
        (np.ones((6, 3)), np.zeros((6, 2)), "y must hold at least one positive label; it holds none"),
    ],
)
def test_bad_input_gets_a_sentence(X, observed, sentence):
    with pytest.raises(ValueError, match=sentence):
        held_out(X, np.asarray(observed))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_runs_on_cuda():
    X, label = clusters()
    there = held_out(torch.tensor(X).cuda(), torch.tensor(label).cuda(), settings=CrossFitSettings())
    assert there.probability.device.type == "cuda"
    here = held_out(X, label, settings=CrossFitSettings())
    assert abs(there.cross_entropy - here.cross_entropy) < 0.03  # dropout draws other numbers on a GPU
    assert (there.probability.cpu().argmax(1) == here.probability.argmax(1)).float().mean() > 0.9
