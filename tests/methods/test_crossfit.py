"""cross_fit: what others say about a row's observed label, without having seen it."""

import copy
import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from onepos.methods import crossfit
from onepos.methods.crossfit import RATES, _fit_folds, _fit_model, _mix, _start, _vote, cross_fit


def clusters(n=180, c=3, seed=0):
    """Rows around c centres, and the number of the centre as the observed label."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, c, n)
    return rng.normal(size=(n, 6)) + 2 * np.eye(c, 6)[label], label


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch):
    """No test lives on the fits of another, nor of a training that was cut short."""
    monkeypatch.setattr(crossfit, "_recent", type(crossfit._recent)())


@pytest.fixture
def short(monkeypatch):
    """A few long steps of narrow models, where it does not matter what they learn."""
    monkeypatch.setattr(crossfit, "RATES", {"linear": (0.05,), "layered": (0.02,)})
    for name, value in {"HIDDEN": 16, "_MOST_EPOCHS": 12, "_MOST_STEPS": 12}.items():
        monkeypatch.setattr(crossfit, name, value)


def test_data_frames_are_taken(short):
    rows, label = clusters()
    frames = pd.DataFrame(rows, columns=list("abcdef")), pd.get_dummies(pd.Series(label))
    torch.testing.assert_close(cross_fit(*frames).probability, cross_fit(rows, label).probability)


def test_noise_can_not_be_predicted():
    """Labels drawn without regard to the rows: whoever saw them would beat their entropy."""
    rng = np.random.default_rng(0)
    label = rng.choice(4, 300, p=[0.4, 0.3, 0.2, 0.1])
    fit = cross_fit(rng.normal(size=(300, 20)), label)
    share = np.bincount(label) / 300
    assert fit.cross_entropy > -(share * np.log(share)).sum() - 0.01


def test_signal_is_found(short):
    X, label = clusters()
    fit = cross_fit(X, label)
    assert fit.cross_entropy < 0.7
    assert (fit.probability.argmax(1).numpy() == label).mean() > 0.75
    np.testing.assert_allclose(fit.probability.sum(1), 1, atol=1e-5)
    assert list(fit.weight) == ["linear", "layered", "vote", "frequency"]
    assert math.isclose(sum(fit.weight.values()), 1, abs_tol=1e-9)
    assert fit.weight["frequency"] < 0.2
    np.testing.assert_allclose(fit.peak, [max(row) for row in fit.probability.tolist()])


def test_equals_its_formula(short):
    """Two models, the vote where features stand beside roots of their opinion, the frequency; then the mixture."""
    X, label = clusters(60)
    fit = cross_fit(X, label)
    given = crossfit._as_rows(X)
    rows, target = crossfit._standardise(given, *crossfit._scaling(given)), torch.eye(3)[label]

    def layered():
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))

    opinions = {
        "linear": _fit_folds(rows, target, lambda: nn.Sequential(nn.Linear(6, 3)), (0.05,), 0)[0],
        "layered": _fit_folds(rows, target, layered, (0.02,), 0)[0],
        "frequency": torch.tensor([[np.delete(label == j, i).mean() for j in range(3)] for i in range(60)]).float(),
    }
    first, _, _ = _mix(opinions, target)
    space = [[*(x / np.linalg.norm(x)), *np.sqrt(s)] for x, s in zip(rows.numpy(), first.numpy(), strict=True)]
    opinions["vote"] = torch.tensor(naive_vote(np.array(space), target.numpy(), 60, 20.0)).float()
    expected = sum(fit.weight[name] * opinions[name] for name in opinions)
    np.testing.assert_allclose(fit.probability, expected, atol=1e-5)
    chances = expected[torch.arange(60), torch.tensor(label)].numpy()
    np.testing.assert_allclose(fit.cross_entropy, -np.log(chances).mean(), atol=1e-4)


@pytest.mark.parametrize(("gain", "chosen"), [(0.01, crossfit.DECAY), (-0.01, 0.0)])
def test_every_row_is_judged_by_a_model_that_has_not_seen_it(gain, chosen, monkeypatch):
    """Once; and the rate that does best on the first fold is that of all, with decay if that does better there."""
    asked = []

    def fake(rows, target, seen, unseen, make, seed, rate, decay):
        asked.append((seen.tolist(), unseen.tolist(), rate, decay))
        chance = torch.full((len(unseen), 2), rate + decay)
        return abs(rate - 0.2) - (gain if decay else 0), chance, (rate, decay, len(asked))

    monkeypatch.setattr(crossfit, "_fit_model", fake)
    opinion, models = _fit_folds(torch.zeros(23, 1), torch.zeros(23, 2), nn.Sequential, (0.1, 0.2, 0.5), 0)
    tried = [(0.1, 0.0), (0.2, 0.0), (0.5, 0.0), (0.2, crossfit.DECAY)]
    assert [setting for _, _, *setting in asked] == [list(pair) for pair in [*tried, *[(0.2, chosen)] * 4]]
    assert torch.equal(opinion, torch.full((23, 2), 0.2 + chosen))
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
        rows, target, *parts, lambda: nn.Sequential(nn.Linear(6, 3)), 0, max(RATES["linear"]), 0.0
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

    flat, *_ = _fit_model(rows, target, *parts, lambda: nn.Sequential(nn.Linear(2, 2)), 0, 3e-3, 0.0)
    bent, *_ = _fit_model(rows, target, *parts, layered, 0, 3e-3, 0.0)
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
    monkeypatch.setattr(crossfit, "N_NEIGHBOURS", 5)
    monkeypatch.setattr(crossfit, "_BLOCK", 60)  # several blocks
    vote = _vote(torch.tensor(X), torch.tensor(target))
    np.testing.assert_allclose(vote, naive_vote(X, target, 5, crossfit.TEMPERATURE), atol=1e-12)


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


def test_seeds_decide_and_global_generators_rest(short):
    X, label = clusters(40)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, other = cross_fit(X, label), cross_fit(X, label, seed=1)
    crossfit._recent.clear()
    assert torch.equal(first.probability, cross_fit(X, label).probability)
    assert not torch.equal(first.probability, other.probability)
    assert torch.equal(before, torch.get_rng_state())


class TestAdvisers:
    @pytest.fixture
    def case(self, short):
        """60 rows of which one shows nothing and one two labels; what was fitted to them."""
        X, label = clusters(60)
        observed = torch.eye(3)[label]
        observed[3], observed[4] = 0, torch.tensor([1, 0, 1])
        rows = torch.tensor(X, dtype=torch.float32)
        return rows, observed, cross_fit(rows, observed)

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
            held_out[name], models = _fit_folds(seen, target, make, (rate,), 0)
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
        torch.testing.assert_close(fit.advisers(new), expected, atol=2e-3, rtol=0)  # rows are kept in half precision

    def test_only_the_nearest_vote_in_blocks_of_any_size(self, case, monkeypatch):
        rows, _, fit = case
        monkeypatch.setattr(crossfit, "N_NEIGHBOURS", 5)
        whole = fit.advisers(rows[:20])
        monkeypatch.setattr(crossfit, "_BLOCK", 59 * 7)
        torch.testing.assert_close(fit.advisers(rows[:20]), whole)
        assert fit.advisers(rows[:0]).shape == (0, 3)

    def test_of_their_own_rows_they_say_what_those_said_who_had_not_seen_them(self, case):
        rows, _, fit = case
        assert torch.equal(fit.advisers.about(rows.clone()), fit.probability)
        assert not torch.allclose(fit.advisers(rows), fit.probability, atol=0.05)

    def test_what_was_said_is_remembered_and_not_copied(self, case, monkeypatch):
        rows, _, fit = case
        advisers = copy.deepcopy(fit.advisers)
        torch.testing.assert_close(advisers.about(rows), fit.advisers(rows))
        asked = []
        monkeypatch.setattr(advisers, "_ask", lambda part: asked.append(len(part)) or torch.zeros(len(part), 3))
        advisers.about(rows)
        for n in (10, 11, 12, 12, 10):  # four sets: the first is forgotten
            advisers.about(rows[:n])
        assert asked == [10, 11, 12]
        advisers.about(rows)
        assert asked == [10, 11, 12, 60]
        for n in range(5, 15):
            fit.advisers.about(rows[:n])
        assert torch.equal(fit.advisers.about(rows), fit.probability), "never of their own rows"

    def test_double_precision(self, case):
        rows, _, fit = case
        exact = copy.deepcopy(fit.advisers).double()(rows.double())
        assert exact.dtype == torch.float64
        torch.testing.assert_close(exact.float(), fit.advisers(rows), atol=1e-4, rtol=0)

    def test_arrays_bring_none(self, case):
        rows, observed, _ = case
        assert cross_fit(rows.numpy(), observed.numpy()).advisers is None

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
        tensors = dict(fit.advisers.state_dict())
        crossfit.Advisers.read(dict(tensors), 6, 3)
        with pytest.raises(RuntimeError, match="advisers must"):
            crossfit.Advisers.read(tensors | {name: change(tensors[name])}, 6, 3)


class TestMemo:
    @pytest.fixture
    def trained(self, monkeypatch):
        """Seeds of the fits that were made and not remembered."""
        seeds = []

        def fake(rows, target, seed, advised):
            seeds.append(seed)
            return crossfit.CrossFit(target, {}, 0.0)

        monkeypatch.setattr(crossfit, "_fit", fake)
        return seeds

    def test_the_same_question_is_answered_once(self, trained):
        X, label = clusters(20)
        first = cross_fit(X, label)
        assert cross_fit(X.copy(), label.copy()) is first
        assert cross_fit(X, np.eye(3)[label]) is first, "another way to write the same labels"
        assert len(trained) == 1

    @pytest.mark.parametrize("change", ["rows", "labels", "one label more", "seed"])
    def test_another_question_is_another_fit(self, change, trained):
        X, label = clusters(20)
        first = cross_fit(X, label)
        if change == "rows":
            X = np.vstack([X[:-1], X[-1] + 1])
        elif change == "labels":
            label = np.append(label[:-1], (label[-1] + 1) % 3)
        elif change == "one label more":
            label = np.eye(4)[label]
        assert cross_fit(X, label, seed=int(change == "seed")) is not first
        assert len(trained) == 2

    def test_those_not_asked_for_longest_are_forgotten(self, trained, monkeypatch):
        X, label = clusters(20)
        monkeypatch.setattr(crossfit, "_KEPT", 4 * cross_fit(X, label).probability.nbytes)
        for seed in (0, 1, 2, 3, 0, 100):  # 0 is asked for again, then there is one too many
            cross_fit(X, label, seed)
        assert len(crossfit._recent) == 4
        del trained[:]
        for seed in (0, 2, 100):
            cross_fit(X, label, seed)
        assert trained == []
        cross_fit(X, label, 1)
        assert trained == [1]

    def test_small_fits_of_many_trials_are_all_kept(self, trained):
        X, label = clusters(20)
        for seed in [*range(40), *range(40)]:
            cross_fit(X, label, seed)
        assert trained == list(range(40))

    def test_the_last_one_is_kept_whatever_its_size(self, trained, monkeypatch):
        monkeypatch.setattr(crossfit, "_KEPT", 0)
        X, label = clusters(20)
        assert cross_fit(X, label) is cross_fit(X, label)
        cross_fit(X, label, 1)
        assert len(crossfit._recent) == 1
        assert trained == [0, 1]


def test_form_and_scale_of_the_rows_do_not_matter(short):
    rng = np.random.default_rng(3)
    X = rng.poisson(0.3, (90, 8)).astype(np.float64)
    X[:, 7] = 0.1  # constant, and not a binary fraction
    label = rng.integers(0, 3, 90)
    dense = cross_fit(X, label).probability
    for other in (sp.csr_array(X), torch.tensor(X), X * np.arange(1, 9) + 7):
        crossfit._recent.clear()
        np.testing.assert_allclose(cross_fit(other, label).probability, dense, atol=2e-4)


def test_a_rare_feature_does_not_outweigh_the_rest():
    rows = torch.eye(1000)[:, :2]
    assert crossfit._standardise(rows, *crossfit._scaling(rows)).abs().max() == 5


def test_rows_without_or_with_several_labels(short):
    X, label = clusters()
    observed = np.eye(3, dtype=np.uint8)[label]
    observed[:60] = 0
    observed[60:80] = 1
    fit = cross_fit(torch.tensor(X), torch.tensor(observed))
    assert torch.isfinite(fit.probability).all()
    np.testing.assert_allclose(fit.probability.sum(1), 1, atol=1e-5)
    assert (fit.probability[:60].argmax(1).numpy() == label[:60]).mean() > 0.65, "unlabelled rows are judged"


def test_a_label_nobody_observed_is_all_but_impossible(short):
    X, label = clusters()
    fit = cross_fit(X, np.eye(4)[label])
    assert fit.probability[:, 3].min() >= 0
    assert fit.probability[:, 3].max() < 0.02


def test_inputs_are_left_alone(short):
    X, label = clusters(60)
    rows, observed = torch.tensor(X, dtype=torch.float32), torch.eye(3)[label]
    kept = rows.clone(), observed.clone()
    cross_fit(rows, observed)
    assert torch.equal(rows, kept[0])
    assert torch.equal(observed, kept[1])


@pytest.mark.parametrize(
    ("X", "observed", "sentence"),
    [
        (np.ones((4, 3)), [0, 1, 0, 1], r"X must be a matrix of at least 5 rows; got shape \(4, 3\)"),
        (np.ones(5), [0, 1, 0, 1, 0], r"X must be a matrix of at least 5 rows; got shape \(5,\)"),
        (np.ones((6, 3)), np.eye(5), "X and observed must have as many rows; got 6 and 5"),
        (np.ones((6, 3)), np.zeros((6, 2)), "observed must hold at least one positive label; it holds none"),
    ],
)
def test_bad_input_gets_a_sentence(X, observed, sentence):
    with pytest.raises(ValueError, match=sentence):
        cross_fit(X, np.asarray(observed))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_runs_on_cuda():
    X, label = clusters()
    there = cross_fit(torch.tensor(X).cuda(), torch.tensor(label).cuda())
    assert there.probability.device.type == "cuda"
    np.testing.assert_allclose(there.probability.cpu(), cross_fit(X, label).probability, atol=0.05)
