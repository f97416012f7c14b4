"""CRISP+: its loss and what `setup` makes of the rows by loops, its limits, and rows and labels out of the ordinary."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
import torch
from onepos.methods.crisp_plus.network import EnsembleNetwork
from scipy.optimize import minimize

from onepos.methods import crossfit
from onepos.methods.base import Batch, TrainView
from onepos.methods.crisp_plus import CRISPPlus
from onepos.methods.crisp_plus import method as crisp_plus
from onepos.methods.crisp_plus.head import RowNormalizedHead
from onepos.methods.crisp_plus.method import _logit_offset
from onepos.methods.losses import assume_negative
from onepos.priors import estimate_priors


@pytest.fixture(scope="module", autouse=True)
def short():
    """A few long steps of narrow models."""
    settings = crossfit.CrossFitSettings(
        linear_rates=(0.05,), layered_rates=(0.02,), hidden=16, most_epochs=15, most_steps=15
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crossfit, "DEFAULTS", settings)
        yield


def cross_fit(rows, observed, seed=0):
    """As the method makes it."""
    return crossfit.cross_fit(rows, observed, seed, crossfit.DEFAULTS, keep_models=True)


@pytest.fixture(scope="module")
def case():
    """80 rows, 5 features, 4 labels of which features tell much; (rows, observed), one label per row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 5))
    label = (X[:, :4] + 0.5 * rng.normal(size=(80, 4))).argmax(1)
    return torch.tensor(X, dtype=torch.float32), torch.eye(4)[label]


def view_of(rows, observed, features=None, logits=None, is_tabular=True, **options):
    def refuse():
        raise AssertionError("this is not needed")

    def ask(positions=None):
        if features is None:
            refuse()
        return features if positions is None else features[positions]

    as_given = refuse if logits is None else lambda: logits
    return TrainView(observed, rows.shape[1], 10, lambda: rows, ask, as_given, is_tabular=is_tabular, **options)


def set_up(method, rows, observed, **options):
    method.head = method.make_head(rows.shape[1], observed.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # priors of so few rows are open
        method.setup(view_of(rows, observed, **options))
    return method


def naive_target(observed, expected, alpha):
    target = observed.clone()
    for i, row in enumerate(observed.tolist()):
        n_observed = int(sum(row))
        for j, seen in enumerate(row):
            if n_observed == 0:
                target[i, j] = expected[i, j]
            else:
                target[i, j] = (1 - alpha) * seen + alpha * min(1, n_observed * expected[i, j])
    return target


def naive_loss(logits, target, ratio, peak, mean_peak, share):
    """−0.4 times the mean over rows of Σ_j w_j·[l̃·log σ(h) + (1 − l̃)·log(1 − e·σ(h))], entry by entry."""
    total = 0.0
    scale = sum(share) / sum(math.sqrt(each) for each in share)
    for i, row in enumerate(logits.tolist()):
        for j, logit in enumerate(row):
            f = 1 / (1 + math.exp(-logit))
            e = min(1, ratio[j] * math.sqrt(peak[i] / mean_peak))
            l = target[i, j].item()  # noqa: E741
            total -= scale / math.sqrt(share[j]) * (l * math.log(f) + (1 - l) * math.log(1 - e * f))
    return 0.4 * total / len(logits)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_equals_the_loops(alpha, case):
    rows, observed = case
    method = set_up(CRISPPlus(alpha, cardinality=1.6), rows, observed)
    fit = cross_fit(rows, observed)
    prior = estimate_priors(fit.probability, observed, estimator="bracket", cardinality=1.6).prior
    target = naive_target(observed, fit.probability, alpha)
    torch.testing.assert_close(method.target, target, atol=1e-6, rtol=0)

    share = [observed[:, j].sum().item() / 80 for j in range(4)]
    ratio = [share[j] / prior[j] for j in range(4)]
    peak = [max(row) for row in fit.probability.tolist()]
    index = torch.tensor([41, 3, 79, 12, 0])
    features = torch.randn(5, 5, generator=torch.Generator().manual_seed(1))
    loss = method.loss([features], Batch((features,), observed[index], index))
    logits = method.head.linear(features)
    arguments = target[index], ratio, [peak[i] for i in index], sum(peak) / 80, share
    assert math.isclose(loss.item(), naive_loss(logits, *arguments), abs_tol=2e-6)


def test_rare_labels_weigh_more():
    """As one over the root of their frequency, of mean 1 over what is observed; one never observed stays finite."""
    share = torch.tensor([0.64, 0.32, 0.04, 0.0])
    weight = crisp_plus._weights(share, 200)
    torch.testing.assert_close(weight[2] / weight[0], torch.tensor(4.0))
    torch.testing.assert_close((weight[:3] * share[:3]).sum(), torch.tensor(1.0), atol=0.03, rtol=0)
    assert weight[2] < weight[3] < 5 * weight[2]
    torch.testing.assert_close(crisp_plus._weights(torch.full((5,), 0.2), 200), torch.ones(5))


def naive_expected(logits, ratio):
    """The norm of exponent 1.25 of the probabilities to be observed, e_j·σ(h_j)."""
    total = 0.0
    for logit, share in zip(logits, ratio, strict=True):
        total += (share / (1 + math.exp(-logit))) ** 1.25
    return total ** (1 / 1.25)


def test_rows_are_moved_so_that_as_many_labels_are_expected_to_be_observed(case):
    """g = x − log(N/N̄), x = β·h + δ, N̄ the geometric mean; no ranking within a row changes."""
    rows, observed = case
    method = set_up(CRISPPlus(cardinality=1.6), rows, observed)
    with torch.no_grad():
        method.head.linear.weight.mul_(8)
    method.end_epoch(view_of(rows, observed, rows))
    free = method.head.linear(rows).detach()
    logits = method.head.slope * free + method.head.shift
    expected = torch.tensor([naive_expected(row, method.head.propensity.tolist()) for row in logits.tolist()])
    mean = math.exp(sum(math.log(each) for each in expected.tolist()) / 80)
    torch.testing.assert_close(method(rows), logits - (expected / mean).log()[:, None], atol=1e-5, rtol=0)
    assert torch.equal(method(rows).argsort(1), free.argsort(1))
    assert expected.max() > 1.3 * expected.min()


def test_logits_are_scaled_to_what_other_rows_expect(case):
    """β and δ as a search finds them; a network twice as sure of itself is brought back."""
    rows, observed = case
    method = set_up(CRISPPlus(cardinality=1.6), rows, observed)
    with torch.no_grad():
        method.head.linear.weight.copy_(torch.eye(4, 5))  # what the labels were made from
    view = view_of(rows, observed, rows)
    for _ in range(3):
        method.end_epoch(view)
    expected = cross_fit(rows, observed).probability.double().numpy()
    e = method.head.propensity.clamp(max=1).double().numpy()
    h = method.head.linear(rows).detach().double().numpy()

    def cost(point):
        f = 1 / (1 + np.exp(-np.exp(point[0]) * h - point[1]))
        return -np.mean(expected * np.log(f) + (1 - expected) * np.log(1 - e * f))

    found = minimize(cost, [0.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12}).x
    assert math.isclose(method.head.slope.item(), math.exp(found[0]), rel_tol=2e-3)
    assert math.isclose(method.head.shift.item(), found[1], abs_tol=2e-3)
    before = method(rows).detach()
    with torch.no_grad():
        method.head.linear.weight.mul_(2)
        method.head.linear.bias.mul_(2)
    for _ in range(4):
        method.end_epoch(view)
    torch.testing.assert_close(method(rows).detach(), before, atol=2e-3, rtol=0)


def test_few_rows_of_many_tell_the_scale(case, monkeypatch):
    """Evenly spread over the set; no others are asked for."""
    rows, observed = case
    monkeypatch.setattr(crisp_plus, "_SCALE_ROWS", 20)
    method = set_up(CRISPPlus(cardinality=1.6), rows, observed)
    assert method.scale_rows.tolist() == list(range(0, 80, 4))
    asked = []

    def features(positions):
        asked.append(positions.tolist())
        return rows[positions]

    method.end_epoch(dataclasses.replace(view_of(rows, observed), features=features))
    assert asked == [list(range(0, 80, 4))]
    torch.testing.assert_close(method.expected, cross_fit(rows, observed).probability[::4])


def test_without_a_cardinality_the_priors_are_those_of_the_bracket():
    """On rows that settle it."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 3))
    rows, observed = torch.tensor(X, dtype=torch.float32), torch.eye(3)[(4 * X).argmax(1)]
    fit = cross_fit(rows, observed)
    estimate = estimate_priors(fit.probability, observed, estimator="bracket")
    assert estimate.warning == ""
    method = CRISPPlus()
    method.head = RowNormalizedHead(3, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method.setup(view_of(rows, observed))
    prior, interval = method.final_prior(None, None)
    np.testing.assert_allclose(prior, estimate.prior, rtol=1e-6)
    np.testing.assert_allclose(interval, np.stack([estimate.lower, estimate.upper], 1), rtol=1e-6)
    assert method.prior_is_given
    assert method.head.logit_offset == 0


def test_with_nothing_expected_and_all_observed_it_is_assume_negative(case):
    rows, observed = case
    method = set_up(CRISPPlus(alpha=0.0), rows, observed)
    method.head.propensity, method.row_factor, method.weight = torch.ones(4), torch.ones(80, 1), torch.ones(4)
    loss = method.loss([rows], Batch((rows,), observed, torch.arange(80)))
    torch.testing.assert_close(loss, 0.4 * 4 * assume_negative(method.head.linear(rows), observed))


def test_what_is_drawn_and_what_is_expected(case):
    rows, observed = case
    assert torch.equal(set_up(CRISPPlus(alpha=0.0), rows, observed).target, observed)
    expected = set_up(CRISPPlus(alpha=1.0), rows, observed).target
    torch.testing.assert_close(expected, cross_fit(rows, observed).probability)
    other = observed.clone()
    other[7] = observed[7].roll(1)  # a row's own label is not in what is expected of it, but for the choice of epochs
    moved = set_up(CRISPPlus(alpha=1.0), rows, other).target
    assert (moved[7] - expected[7]).abs().max() < 0.2


def test_the_head_starts_at_the_priors(case):
    rows, observed = case
    method = CRISPPlus(cardinality=1.6)
    method.head = RowNormalizedHead(5, 4)
    weight = method.head.linear.weight.detach().clone()
    method.setup(view_of(rows, observed))
    torch.testing.assert_close(torch.sigmoid(method.head.linear.bias.detach()), method.class_prior)
    assert torch.equal(method.head.linear.weight, weight)


def test_rows_with_no_observed_label_or_several(case):
    rows, observed = case
    observed = observed.clone()
    observed[:10] = 0
    observed[10:20, 1:3] = 1
    method = set_up(CRISPPlus(alpha=0.3, cardinality=2.0), rows, observed)
    fit = cross_fit(rows, observed)
    torch.testing.assert_close(method.target, naive_target(observed, fit.probability, 0.3), atol=1e-6, rtol=0)
    torch.testing.assert_close(method.target[:10], fit.probability[:10])
    share = observed.sum(0) / 70  # of the rows that have any
    torch.testing.assert_close(method.head.propensity, share / method.class_prior)
    assert method.target.max() <= 1
    assert torch.isfinite(method.loss([rows], Batch((rows,), observed, torch.arange(80))))
    method.end_epoch(view_of(rows, observed, rows))
    assert torch.isfinite(method(rows)).all()


def test_a_label_nobody_observed(case):
    """Its prior stays unknown, it is assumed absent and starts rarer than any that was seen once."""
    rows, observed = case
    wider = torch.cat([observed, torch.zeros(80, 1)], 1)
    method = set_up(CRISPPlus(), rows, wider)
    assert torch.isnan(method.class_prior[4])
    assert torch.isfinite(method.class_prior[:4]).all()
    assert method.head.propensity[4] == 1
    torch.testing.assert_close(torch.sigmoid(method.head.linear.bias[4].detach()), torch.tensor(0.5 / 81))
    assert np.isnan(method.final_prior(None, None)[0][4])
    loss = method.loss([rows], Batch((rows,), wider, torch.arange(80)))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in method.parameters())
    method.end_epoch(view_of(rows, wider, rows))
    assert torch.isfinite(method(rows)).all()


def test_cardinality_is_known(case):
    rows, observed = case
    method = set_up(CRISPPlus(cardinality=2.5), rows, observed)
    assert math.isclose(method.class_prior.sum().item(), 2.5, rel_tol=1e-5)
    assert method.privileged == {"cardinality"}
    assert CRISPPlus().privileged == frozenset()


@pytest.fixture(scope="module")
def open_case():
    """Features that say little of twenty labels: a row may have one of them, or many."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 21)
    rows = torch.tensor(rng.normal(size=(200, 4)), dtype=torch.float32)
    return rows, torch.eye(20)[rng.choice(20, 200, p=share / share.sum())]


def test_a_warning_about_the_priors_is_passed_on(open_case):
    rows, observed = open_case
    method = CRISPPlus()
    method.head = RowNormalizedHead(4, 20)
    with pytest.warns(UserWarning, match=r"does not settle how many labels a row has: .* --set cardinality=…"):
        method.setup(view_of(rows, observed))


def test_then_all_logits_are_lower_by_a_constant(open_case):
    """By log(κ̂/κ₀), with few near ties κ₀ the root of the interval's low end; priors and the head's start stay."""
    rows, observed = open_case
    method = set_up(CRISPPlus(), rows, observed)
    estimate = estimate_priors(cross_fit(rows, observed).probability, observed, estimator="bracket")
    shift = math.log(estimate.cardinality / math.sqrt(estimate.cardinality_interval[0]))
    assert shift > 0.5
    prior = torch.tensor(estimate.prior, dtype=torch.float32)
    torch.testing.assert_close(method.class_prior, prior, equal_nan=True)
    seen = ~torch.isnan(prior)
    torch.testing.assert_close(method.head.linear.bias.detach()[seen], torch.logit(prior)[seen], atol=1e-5, rtol=0)
    view = view_of(rows, observed, rows)
    for _ in range(3):
        method.end_epoch(view)
    lower = method(rows)
    method.head.logit_offset = torch.tensor(0.0)
    torch.testing.assert_close(method(rows) - lower, torch.full((200, 20), shift), atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("tied", "kappa_0"),
    [
        (1, 1.5),  # one label stands out: half of the way from the low end to AN
        (2, 8 / 5),
        (3, 27 / 5),
        (4, 10.0),  # 64/5 is more than κ̂
    ],
)
def test_rows_of_many_near_ties_are_believed_to_have_many_labels(open_case, tied, kappa_0):
    rows, observed = open_case
    estimate = estimate_priors(cross_fit(rows, observed).probability, observed, estimator="bracket")
    assert estimate.warning
    estimate = dataclasses.replace(estimate, cardinality=10.0, cardinality_interval=(2.25, 30.0))
    probability = torch.zeros(50, 20)
    probability[:, :tied] = 1 / tied
    assert math.isclose(_logit_offset(estimate, probability), math.log(10.0 / kappa_0), abs_tol=1e-6)


def test_no_offset_where_the_number_of_labels_is_known(open_case):
    assert set_up(CRISPPlus(cardinality=1.5), *open_case).head.logit_offset == 0


def test_images_are_described_by_the_network(case):
    rows, observed = case
    images = torch.zeros(80, 3, 4, 4)
    rows = rows[:, :3]
    seen = set_up(CRISPPlus(), images, observed, features=rows, is_tabular=False)
    torch.testing.assert_close(seen.target, set_up(CRISPPlus(), rows, observed).target)
    seen.end_epoch(view_of(images, observed, features=rows, is_tabular=False))
    assert (seen.head.slope, seen.head.shift) == (1, 0)  # the network knows more than its first features did
    assert seen.head.level != 0
    assert seen.finish(view_of(images, observed, features=rows, is_tabular=False)) is None


def test_a_propensity_is_at_most_one(case):
    rows, observed = case
    method = set_up(CRISPPlus(cardinality=1.0), rows, observed)  # all that is there is observed
    assert (method.head.propensity * method.row_factor).max() > 1
    features = torch.full((80, 5), 50.0)
    assert torch.isfinite(method.loss([features], Batch((features,), observed, torch.arange(80))))
    method.end_epoch(view_of(rows, observed, features))  # rows that are all alike tell no slope
    assert torch.isfinite(method(features)).all()


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"alpha": 1.5}, "alpha must lie between 0 and 1; got 1.5. The default is 0.5."),
        ({"alpha": -0.1}, "alpha must lie between 0 and 1; got -0.1"),
        ({"alpha": math.nan}, "alpha must lie between 0 and 1; got nan"),
        ({"alpha": "high"}, "alpha must lie between 0 and 1; got 'high'"),
        ({"ensemble_weight": 1.01}, "ensemble_weight must lie between 0 and 1; got 1.01. The default is 0.5."),
        ({"cardinality": 0.5}, "must be a number of at least 1; got 0.5. Leave it out to have it estimated."),
        ({"cardinality": "many"}, "cardinality, the mean number of labels per row, must be a number .* got 'many'"),
        ({"cardinality": 9}, "cardinality must lie between 1 and the number of observed labels, 4; got 9"),
    ],
)
def test_wrong_parameters(parameters, sentence, case):
    with pytest.raises(ValueError, match=sentence):
        set_up(CRISPPlus(**parameters), *case)


def test_a_new_row_is_predicted_by_network_and_ensemble(case):
    """(1 − weight)·(the network's logit) + weight·logit(s·κ₀/κ̂/e), by a loop."""
    rows, observed = case
    method = set_up(CRISPPlus(cardinality=1.6, ensemble_weight=0.3), rows, observed)
    method.head.logit_offset = torch.tensor(0.4)
    method.end_epoch(view_of(rows, observed, rows))
    network = method.finish(view_of(rows, observed))
    new = torch.randn(7, 5)
    probability, alone, both = network.ensemble(new), method(new).detach(), network(new).detach()
    torch.testing.assert_close(probability, cross_fit(rows, observed).ensemble(new))
    for i in range(7):
        for j in range(4):
            there = min(
                math.exp(-0.4) * probability[i, j].item() / min(1.0, method.head.propensity[j].item()), 1 - 1e-4
            )
            expected = 0.7 * alone[i, j].item() + 0.3 * math.log(there / (1 - there))
            assert math.isclose(both[i, j].item(), expected, abs_tol=1e-3)
    assert network.n_training_rows == 80


def test_training_rows_are_judged_by_models_that_did_not_see_them(case):
    """The ensemble finds a row among its own neighbours; thresholds must not follow from that."""
    rows, observed = case
    method = set_up(CRISPPlus(cardinality=1.6, ensemble_weight=1.0), rows, observed)
    method.end_epoch(view_of(rows, observed, rows))
    view = view_of(rows, observed, logits=method(rows).detach())
    found = method.training_logits(view)
    present = cross_fit(rows, observed).probability / method.head.propensity.clamp(max=1)
    torch.testing.assert_close(found, torch.logit(present.clamp(1e-6, 1 - 1e-4)))
    assert not torch.allclose(found, method.finish(view)(rows), atol=0.1)
    alone = set_up(CRISPPlus(cardinality=1.6, ensemble_weight=0.0), rows, observed)
    assert alone.training_logits(view) is view.logits()


def test_the_ensemble_counts_all_observed_labels_of_a_row():
    """Two labels of every row, both observed: both are predicted for a new row."""
    rng = np.random.default_rng(2)
    X, kind = rng.normal(size=(120, 2)), np.arange(120) % 2
    rows = torch.tensor(X + 4 * np.eye(2)[kind], dtype=torch.float32)
    observed = torch.tensor(np.repeat(np.eye(2)[kind], 2, axis=1), dtype=torch.float32)
    method = set_up(CRISPPlus(cardinality=2.0, ensemble_weight=1.0), rows, observed)
    assert method.observed_per_row == 2
    found = torch.sigmoid(method.finish(view_of(rows, observed))(rows))
    assert (found[observed == 1] > 0.5).float().mean() > 0.9
    assert (found[observed == 0] < 0.5).float().mean() > 0.9


def test_without_weight_the_network_predicts_alone(case):
    rows, observed = case
    assert set_up(CRISPPlus(ensemble_weight=0.0), rows, observed).finish(view_of(rows, observed)) is None


def test_a_saved_network_is_rebuilt(case):
    rows, observed = case
    method = set_up(CRISPPlus(cardinality=1.6), rows, observed)
    network = method.finish(view_of(rows, observed))
    twin = CRISPPlus(cardinality=1.6)
    twin.head = twin.make_head(5, 4)
    rebuilt = twin.rebuild(torch.nn.Identity(), network.state_dict())
    assert isinstance(rebuilt, EnsembleNetwork)
    rebuilt.load_state_dict(network.state_dict())
    assert torch.equal(rebuilt(rows), network(rows))


def test_the_seed_reaches_the_held_out_predictions(case):
    rows, observed = case
    targets = []
    for seed in (0, 1, 1):
        method = CRISPPlus(cardinality=1.6)
        method.head = method.make_head(5, 4)
        method.setup(view_of(rows, observed, seed=seed))
        targets.append(method.target)
    assert torch.equal(targets[1], targets[2])
    assert not torch.equal(targets[0], targets[1])


def test_the_head_learns_twice_as_fast():
    method = CRISPPlus()
    assert [method.lr_factor(name) for name in ("head.linear.weight", "head.linear.bias", "target")] == [2.0, 2.0, 1.0]
