"""CRISP: Eq. (8) by hand and by a double loop, its mini-batch forms, its priors, its schedule and its variants."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from onepos import SinglePositiveClassifier
from onepos.bench.recipes import find_recipe
from onepos.methods import CRISP, METHODS, crossfit
from onepos.methods.base import TrainView
from onepos.methods.crossfit import cross_fit
from onepos.methods.heads import shift_to
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
    method = prepare(CRISP.as_published(lam=0.5, prior=[0.6, 0.2]), observed)
    first = 2 * 0.6 / 2 * ((1 - sigmoid(-0.2)) + (1 - sigmoid(1 - 0.2))) + abs((0.5 + sigmoid(1) + 0.5) / 3 - 0.6)
    second = 2 * 0.2 / 1 * (1 - sigmoid(2 - 0.4)) + abs((0.5 + 0.5 + sigmoid(2)) / 3 - 0.2)
    assert math.isclose(loss_of(method, logits, observed).item(), first + second, rel_tol=1e-6)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("normalize", ["dataset", "batch"])
def test_whole_data_set_as_one_batch_is_equation_8(seed, normalize, prepare, loss_of, random_case):
    logits, observed, prior = random_case(seed)
    method = prepare(CRISP.as_published(lam=0.7, prior=prior, normalize=normalize), observed)
    assert math.isclose(loss_of(method, logits, observed).item(), eq8(logits, observed, prior, 0.7), rel_tol=1e-6)


def test_dataset_normalisation_makes_batches_average_to_the_positive_term(prepare, loss_of, random_case):
    """Half of the claim in the Deviation note: the positive terms of equal batches average to Eq. (8)'s."""
    logits, observed, prior = random_case(0)
    method = prepare(CRISP.as_published(prior=prior), observed)

    def positive_term(rows):
        # |mean f − π| is the loss without positives
        return loss_of(method, logits[rows], observed[rows]) - loss_of(method, logits[rows], 0 * observed[rows])

    parts = [positive_term(rows).item() for rows in torch.arange(12).split(3)]
    assert math.isclose(np.mean(parts), positive_term(torch.arange(12)).item(), rel_tol=1e-6)


def test_batch_normalisation_divides_by_the_positives_of_the_batch(prepare, loss_of, random_case):
    logits, observed, prior = random_case(1)
    rows = torch.arange(5)
    method = prepare(CRISP.as_published(prior=prior, normalize="batch"), observed)
    assert math.isclose(
        loss_of(method, logits[rows], observed[rows]).item(),
        eq8(logits[rows], observed[rows], prior, 1.0),
        rel_tol=1e-6,
    )


def naive_risk(logits, observed, prior, risk, align="exact", lam=1.0):
    """Each risk over a whole data set, label by label and row by row."""
    n, c = logits.shape
    loss_of = {
        "logistic": (lambda g: math.log1p(math.exp(-g)), lambda g: math.log1p(math.exp(g))),
        "squared": (lambda g: (1 - sigmoid(g)) ** 2, lambda g: sigmoid(g) ** 2),
    }
    total = 0.0
    for j in range(c):
        g = [logits[i, j].item() for i in range(n)]
        positives = [g[i] for i in range(n) if observed[i, j] == 1]
        if risk in loss_of:
            as_positive, as_negative = loss_of[risk]
            negatives = np.mean([as_negative(x) for x in g]) - prior[j] * np.mean([as_negative(x) for x in positives])
            total += prior[j] * np.mean([as_positive(x) for x in positives]) + max(0.0, negatives)
        else:
            total += 2 * prior[j] * np.mean([1 - sigmoid(x - lam * (1 - prior[j])) for x in positives])
            excess = np.mean([sigmoid(x) for x in g]) - prior[j]
            smooth = math.sqrt(excess**2 + prior[j] * (1 - prior[j]) / n)
            total += excess if risk == "sigmoid" else smooth if align == "smooth" else abs(excess)
    return total


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("risk", "align"),
    [("absolute", "exact"), ("absolute", "smooth"), ("sigmoid", "smooth"), ("logistic", "exact"), ("squared", "exact")],
)
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_every_risk_is_its_formula(seed, risk, align, reduction, prepare, loss_of, random_case):
    logits, observed, prior = random_case(seed)
    method = prepare(CRISP(prior=prior, risk=risk, align=align, reduction=reduction), observed)
    expected = naive_risk(logits, observed, prior, risk, align) / (1 if reduction == "sum" else 4)
    assert math.isclose(loss_of(method, logits, observed).item(), expected, rel_tol=1e-6)


@pytest.mark.parametrize("risk", ["logistic", "squared"])
def test_risk_of_the_negatives_does_not_fall_below_zero(risk, prepare, loss_of):
    """Positives that score high and a prior that is too high: without the limit the estimate would be negative."""
    logits = torch.tensor([[4.0], [-4.0]], dtype=torch.float64)
    observed = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    method = prepare(CRISP(prior=0.9, risk=risk, reduction="sum"), observed)
    missed = math.log1p(math.exp(-4)) if risk == "logistic" else (1 - sigmoid(4)) ** 2
    assert math.isclose(loss_of(method, logits, observed).item(), 0.9 * missed, rel_tol=1e-6)


def test_smooth_alignment_has_a_slope_everywhere(prepare, loss_of):
    logits = torch.zeros(4, 1, requires_grad=True)
    method = prepare(CRISP(prior=0.5), torch.tensor([[1.0], [0.0], [0.0], [0.0]]))
    loss_of(method, logits, torch.zeros(4, 1)).backward()
    assert torch.equal(logits.grad, torch.zeros(4, 1))  # the mean score is the prior: nothing to align


@pytest.mark.parametrize("prior", [[0.7, 0.2, 0.5, 0.05], [0.3, float("nan"), 0.4, 0.1]])
def test_shift_makes_mean_scores_the_priors(prior, random_case):
    logits, _, _ = random_case(0)
    shift = shift_to(torch.tensor(prior, dtype=torch.float64), logits)
    known = ~np.isnan(prior)
    mean = torch.sigmoid(logits + shift).mean(0).numpy()
    np.testing.assert_allclose(mean[known], np.array(prior)[known], atol=1e-5)
    assert (shift[torch.tensor(~known)] == 0).all()


@pytest.mark.parametrize("aligned", [True, False])
def test_start_behind_the_warm_up(aligned, toy):
    """After the warm-up the mean score is the prior at once, or still the observed share."""
    X, _, observed = toy
    method = CRISP(prior=0.6, warmup=2, align_start=aligned)
    plan = Plan(epochs=2, batch_size=16, lr=0.01, device="cpu")
    learner = train(Task(Learner(torch.nn.Identity(), method), as_samples(X), observed, 8, plan)).network
    mean = torch.sigmoid(learner(torch.tensor(X, dtype=torch.float32))).mean(0).detach().numpy()
    np.testing.assert_allclose(mean, 0.6 if aligned else observed.mean(0), atol=1e-4 if aligned else 0.1)


def fitted(method, toy):
    X, _, observed = toy
    plan = Plan(epochs=2, batch_size=16, lr=0.01, device="cpu", seed=0)
    train(Task(Learner(torch.nn.Identity(), method), as_samples(X), observed, 8, plan))
    return method


def cross_fitted(toy):
    X, _, observed = toy
    return cross_fit(torch.tensor(X, dtype=torch.float32), torch.tensor(observed), 0, crossfit.DEFAULTS).probability


def test_priors_from_held_out_predictions(toy):
    """The risk gets the lower quartile of the number of labels, the report the estimate."""
    observed = toy[2]
    estimate = partial(estimate_priors, cross_fitted(toy), observed, estimator="bracket")
    method = fitted(CRISP(warmup=1), toy)
    prior, interval = method.final_prior(torch.zeros(60, 4), observed)
    np.testing.assert_allclose(prior, estimate().prior, rtol=1e-6)
    np.testing.assert_allclose(interval, np.stack([estimate().lower, estimate().upper], 1), rtol=1e-6)
    low, _ = estimate(level=0.5).cardinality_interval
    np.testing.assert_allclose(method.class_prior, estimate(cardinality=low).prior, rtol=1e-6)
    assert method.class_prior.sum() < prior.sum()
    np.testing.assert_allclose(fitted(CRISP(quantile=0.5), toy).class_prior, prior, rtol=1e-6)
    assert fitted(CRISP(quantile=0.9), toy).class_prior.sum() > prior.sum()


def test_equation_2_on_held_out_predictions(toy):
    observed = toy[2]
    expected = estimate_priors(cross_fitted(toy), observed, delta=0.05)
    method = fitted(CRISP(prior="held-out", warmup=1, delta=0.05), toy)
    prior, interval = method.final_prior(torch.zeros(60, 4), observed)
    np.testing.assert_allclose(prior, expected.prior, rtol=1e-6)
    np.testing.assert_allclose(method.class_prior, expected.prior, rtol=1e-6)
    np.testing.assert_allclose(interval[:, 1], expected.upper, rtol=1e-6)


def test_says_where_the_number_of_labels_is_open(toy, monkeypatch):
    X, _, observed = toy
    monkeypatch.setattr("onepos.priors.bracket._WIDE", 1.01)
    with pytest.warns(UserWarning, match="does not settle how many labels a row has"):
        SinglePositiveClassifier(CRISP(warmup=1), epochs=2, random_state=0).fit(X, observed)


def test_known_number_of_labels_takes_the_place_of_the_estimate(toy):
    method = fitted(CRISP(cardinality=2.2), toy)
    assert math.isclose(method.class_prior.sum().item(), 2.2, rel_tol=1e-5)
    assert method.privileged == {"cardinality"}


def test_warns_of_a_training_that_ends_with_the_warm_up(toy):
    with pytest.warns(UserWarning, match="it has 2 epochs and a warm-up of 5, so all of them run AN"):
        fitted(CRISP(prior=0.3), toy)


def test_epochs_of_the_warm_up_may_be_kept():
    kept, not_kept = CRISP(keep_warmup=True), CRISP()
    for method in (kept, not_kept):
        method.epoch = 0
    assert not_kept.warming_up
    assert not kept.warming_up


def test_as_published_is_the_letter():
    method = CRISP.as_published(lam=0.5)
    expected = {"prior": "estimate", "align": "exact", "align_start": False, "reduction": "sum", "risk": "absolute"}
    assert expected.items() <= method.get_params().items()
    assert (method.warmup, method.every, method.scores, method.lam) == (3, 1, "fresh", 0.5)
    recipe = find_recipe("crisp", "yeast").parameters
    assert CRISP(**recipe).get_params() == CRISP.as_published().get_params()


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
    method = prepare(CRISP.as_published(prior=[0.1, 0.1, 0.1, 0.1]), observed)
    method.class_prior = torch.tensor(prior)
    kept = [0, 2, 3]
    expected = eq8(logits[:, kept], observed[:, kept], [prior[j] for j in kept], 1.0)
    expected += assume_negative(logits[:, [1]], observed[:, [1]]).item()
    assert math.isclose(loss_of(method, logits, observed).item(), expected, rel_tol=1e-6)


@pytest.mark.parametrize(("every", "expected"), [(1, [2, 3, 4, 5, 6, 7]), (3, [2, 5])])
def test_when_priors_are_estimated(every, expected, prepare, random_case):
    """After the last epoch of the warm-up, then after every `every` epochs."""
    logits, observed, _ = random_case(4)
    method = prepare(CRISP.as_published(warmup=3, every=every), observed, logits)
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
    method = Watched.as_published(delta=0.05, warmup=2, scores="running")
    train(Task(Learner(torch.nn.Identity(), method), as_samples(X), observed, 8, plan))
    assert estimates[0][0].isnan().all()
    for prior, expected in estimates[1:]:
        np.testing.assert_allclose(prior, expected, rtol=1e-6)


@pytest.mark.parametrize("method", [CRISP.as_published(), CRISP(scores="running", prior=0.3)])
def test_logits_are_kept_only_where_they_are_needed(method, prepare, loss_of, random_case):
    logits, observed, _ = random_case(0)
    prepare(method, observed)
    assert "running_logits" not in dict(method.named_buffers())
    assert loss_of(method, logits, observed).shape == ()


def test_variants_in_the_table():
    assert METHODS["crisp-3ep"]().get_params() == CRISP.as_published(every=3).get_params()
    assert METHODS["crisp-val"]().get_params() == CRISP.as_published(prior="validation").get_params()
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


@pytest.mark.parametrize("changes", [{"delta": 0.05, "warmup": 1}, {"every": 3, "warmup": 1}, {"warmup": 9}])
def test_reported_priors_are_those_of_the_final_scores(toy, changes):
    """With its own δ and τ, between two estimates, and when the warm-up was all there was."""
    X, _, observed = toy
    method = CRISP.as_published(**changes)
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
        (
            {"prior": "guess"},
            "prior must be one of 'held-out', 'bracket', 'estimate', 'validation', or numbers; got 'guess'",
        ),
        ({"risk": "hinge"}, "risk must be 'absolute' or 'sigmoid' or 'logistic' or 'squared'; got 'hinge'"),
        ({"align": "row"}, "align must be 'smooth' or 'exact'; got 'row'"),
        ({"reduction": "max"}, "reduction must be 'sum' or 'mean'; got 'max'"),
        ({"cardinality": 2.0, "prior": 0.3}, "cardinality must be left out with prior=0.3, which does not use it"),
        ({"quantile": 1}, "quantile must lie strictly between 0 and 1; got 1"),
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
