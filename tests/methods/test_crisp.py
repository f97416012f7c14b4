"""CRISP: Eq. (8) by hand and by a double loop, its mini-batch forms, its schedule and its variants."""

import math

import numpy as np
import pytest
import torch

from onepos import SinglePositiveClassifier
from onepos.methods import CRISP, METHODS
from onepos.methods.base import TrainView
from onepos.methods.losses import assume_negative
from onepos.priors import estimate_priors
from onepos.training.loop import train
from onepos.training.plan import Plan
from onepos.training.samples import as_samples
from onepos.training.task import Learner, Task


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def eq8(logits, observed, prior, lam):
    """Eq. (8) over a whole data set, as two loops."""
    n, c = logits.shape
    total = 0.0
    for j in range(c):
        positives = [i for i in range(n) if observed[i, j] == 1]
        for i in positives:
            total += 2 * prior[j] / len(positives) * (1 - sigmoid(logits[i, j].item() - lam * (1 - prior[j])))
        total += abs(sum(sigmoid(logits[i, j].item()) for i in range(n)) / n - prior[j])
    return total


def test_by_hand(prepare, loss_of):
    logits = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    observed = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    method = prepare(CRISP(lam=0.5, prior=[0.6, 0.2]), observed)
    first = 2 * 0.6 / 2 * ((1 - sigmoid(-0.2)) + (1 - sigmoid(1 - 0.2))) + abs((0.5 + sigmoid(1) + 0.5) / 3 - 0.6)
    second = 2 * 0.2 / 1 * (1 - sigmoid(2 - 0.4)) + abs((0.5 + 0.5 + sigmoid(2)) / 3 - 0.2)
    assert math.isclose(loss_of(method, logits, observed).item(), first + second, rel_tol=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("normalize", ["dataset", "batch"])
def test_whole_data_set_as_one_batch_is_equation_8(seed, normalize, prepare, loss_of, random_case):
    logits, observed, prior = random_case(seed)
    method = prepare(CRISP(lam=0.7, prior=prior, normalize=normalize), observed)
    assert math.isclose(loss_of(method, logits, observed).item(), eq8(logits, observed, prior, 0.7), rel_tol=1e-6)


def test_dataset_normalisation_makes_batches_average_to_the_positive_term(prepare, loss_of, random_case):
    """Half of the claim in the Deviation note: the positive terms of equal batches average to Eq. (8)'s."""
    logits, observed, prior = random_case(0)
    method = prepare(CRISP(prior=prior), observed)

    def positive_term(rows):
        # |mean f − π| is the loss without positives
        return loss_of(method, logits[rows], observed[rows]) - loss_of(method, logits[rows], 0 * observed[rows])

    parts = [positive_term(rows).item() for rows in torch.arange(12).split(3)]
    assert math.isclose(np.mean(parts), positive_term(torch.arange(12)).item(), rel_tol=1e-6)


def test_batch_normalisation_divides_by_the_positives_of_the_batch(prepare, loss_of, random_case):
    logits, observed, prior = random_case(1)
    rows = torch.arange(5)
    method = prepare(CRISP(prior=prior, normalize="batch"), observed)
    assert math.isclose(
        loss_of(method, logits[rows], observed[rows]).item(),
        eq8(logits[rows], observed[rows], prior, 1.0),
        rel_tol=1e-6,
    )


def test_warmup_is_assume_negative(prepare, loss_of, random_case):
    logits, observed, prior = random_case(2)
    method = prepare(CRISP(prior=prior, warmup=2), observed, epoch=1)
    assert method.warming_up
    assert loss_of(method, logits, observed) == assume_negative(logits, observed)
    method.epoch = 2
    assert not method.warming_up
    assert loss_of(method, logits, observed) != assume_negative(logits, observed)


def test_the_warm_up_and_what_follows_are_its_two_phases():
    method = CRISP(warmup=2)
    phases = []
    for method.epoch in range(5):
        phases.append(method.stacking.phase(method))
    assert phases == [phases[0]] * 2 + [phases[2]] * 3
    assert phases[0] != phases[2]


def test_label_without_prior_keeps_assume_negative(prepare, loss_of, random_case):
    logits, observed, prior = random_case(3)
    observed[:, 1] = 0
    prior[1] = math.nan
    method = prepare(CRISP(prior=[0.1, 0.1, 0.1, 0.1]), observed)
    method.class_prior = torch.tensor(prior)
    kept = [0, 2, 3]
    expected = eq8(logits[:, kept], observed[:, kept], [prior[j] for j in kept], 1.0)
    expected += assume_negative(logits[:, [1]], observed[:, [1]]).item()
    assert math.isclose(loss_of(method, logits, observed).item(), expected, rel_tol=1e-6)


@pytest.mark.parametrize(("every", "expected"), [(1, [2, 3, 4, 5, 6, 7]), (3, [2, 5])])
def test_when_priors_are_estimated(every, expected, prepare, random_case):
    """After the last epoch of the warm-up, then after every `every` epochs."""
    logits, observed, _ = random_case(4)
    method = prepare(CRISP(warmup=3, every=every), observed, logits)
    assert method.class_prior.isnan().all()
    renewed = []
    for epoch in range(8):
        method.epoch = epoch
        method.class_prior = torch.full((4,), torch.nan)
        method.end_epoch(TrainView(observed, 4, 8, lambda: logits, lambda: logits, lambda: logits))
        if not method.class_prior.isnan().any():
            renewed.append(epoch)
            np.testing.assert_allclose(method.class_prior, estimate_priors(logits, observed).prior, rtol=1e-6)
    assert renewed == expected


def test_running_scores_are_those_that_the_batches_gave(toy):
    """Without a pass over the rows: the logits of each row when its batch came, before the step."""
    X, _, observed = toy
    gathered, estimates = [], []

    class Watched(CRISP):
        def loss(self, features, batch):
            gathered.append((batch.index, self(features[0]).detach()))
            return super().loss(features, batch)

        def end_epoch(self, train):
            def no_pass():
                raise AssertionError("a pass was made")

            super().end_epoch(TrainView(train.observed, 8, 4, no_pass, no_pass, no_pass))
            logits = torch.empty(60, 4)
            for index, rows in gathered:
                logits[index] = rows
            assert torch.equal(self.running_logits, logits)
            estimates.append((self.class_prior.clone(), estimate_priors(logits, observed, delta=0.05).prior))
            gathered.clear()

    plan = Plan(epochs=4, batch_size=16, lr=0.01, device="cpu")
    method = Watched(delta=0.05, warmup=2, scores="running")
    train(Task(Learner(torch.nn.Identity(), method), as_samples(X), observed, 8, plan))
    assert estimates[0][0].isnan().all()
    for prior, expected in estimates[1:]:
        np.testing.assert_allclose(prior, expected, rtol=1e-6)


@pytest.mark.parametrize("method", [CRISP(), CRISP(scores="running", prior=0.3)])
def test_logits_are_kept_only_where_they_are_needed(method, prepare, loss_of, random_case):
    logits, observed, _ = random_case(0)
    prepare(method, observed)
    assert "running_logits" not in dict(method.named_buffers())
    assert loss_of(method, logits, observed).shape == ()


def test_variants_in_the_table():
    assert METHODS["crisp-3ep"]().every == 3
    assert METHODS["crisp-val"]().requires == {"validation labels"}
    assert METHODS["crisp"]().requires == frozenset()
    assert METHODS["crisp-3ep"](lam=0.3).lam == 0.3


def test_validation_priors_are_taken_and_kept(toy):
    X, Y, observed = toy
    model = SinglePositiveClassifier("crisp-val", epochs=5, random_state=0)
    model.fit(X[:40], observed[:40], validation=(X[40:], Y[40:]))
    np.testing.assert_allclose(model.class_prior_, Y[40:].mean(0), rtol=1e-6)
    assert np.isnan(model.class_prior_interval_).all()


def test_validation_priors_need_full_labels(toy):
    X, _, observed = toy
    model = SinglePositiveClassifier("crisp-val", epochs=5)
    with pytest.raises(ValueError, match=r"CRISP needs validation labels; this data has none\. Pass fit\(X, y, valid"):
        model.fit(X, observed)
    with pytest.raises(ValueError, match="CRISP needs validation labels"):
        model.fit(X[:40], observed[:40], validation=(X[40:], observed[40:]))


@pytest.mark.parametrize("method", [CRISP(delta=0.05, warmup=1), CRISP(every=3, warmup=1), CRISP(warmup=9)])
def test_reported_priors_are_those_of_the_final_scores(toy, method):
    """With its own δ and τ, between two estimates, and when the warm-up was all there was."""
    X, _, observed = toy
    model = SinglePositiveClassifier(method, epochs=5, random_state=0).fit(X, observed)
    expected = estimate_priors(model.decision_function(X), observed, delta=method.delta)
    np.testing.assert_allclose(model.class_prior_, expected.prior, atol=1e-9)
    np.testing.assert_allclose(model.class_prior_interval_[:, 1], expected.upper, atol=1e-9)


def test_fixed_prior_is_one_number_for_all_labels(toy):
    X, _, observed = toy
    model = SinglePositiveClassifier(CRISP(prior=0.3, warmup=1), epochs=3, random_state=0).fit(X, observed)
    np.testing.assert_allclose(model.class_prior_, [0.3] * 4, rtol=1e-6)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"prior": "guess"}, "prior must be 'estimate', 'validation' or numbers; got 'guess'"),
        ({"prior": [0.3, 0.2]}, "prior must be one number, or one for each of the 4 labels; got 2"),
        ({"every": 0}, "every must be a whole number of at least 1; got 0"),
        ({"warmup": 1.5}, "warmup must be a whole number of at least 0; got 1.5"),
        ({"lam": "abc"}, "lam must be a number; got 'abc'"),
        ({"delta": 2}, "delta must lie strictly between 0 and 1; got 2"),
        ({"prior": 1.5}, "prior must lie between 0 and 1; got 1.5"),
        ({"normalize": "row"}, "normalize must be 'dataset' or 'batch'; got 'row'"),
        ({"scores": "stale"}, "scores must be 'fresh' or 'running'; got 'stale'"),
    ],
)
def test_wrong_parameters(toy, parameters, sentence):
    X, _, observed = toy
    with pytest.raises(ValueError, match=sentence):
        SinglePositiveClassifier(CRISP(**parameters), epochs=1).fit(X, observed)
