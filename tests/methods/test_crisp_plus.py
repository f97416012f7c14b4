"""CRISP+: targets, loss and head by loops, the scale that the priors set, rows and labels out of the ordinary."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from onepos import SinglePositiveClassifier, draw_single_positive
from onepos.datasets.scenes import digit_scenes
from onepos.methods import crossfit
from onepos.methods.base import Batch, Mixing, TrainView
from onepos.methods.crisp_plus import CRISPPlus
from onepos.methods.crisp_plus import method as crisp_plus
from onepos.methods.crisp_plus.head import ObservedLabelHead
from onepos.methods.fold_models import NetworkSettings, TreeSettings
from onepos.metrics import average_precision
from onepos.priors import estimate_priors


@pytest.fixture(scope="module", autouse=True)
def short():
    """A few long steps of narrow models."""
    settings = crossfit.CrossFitSettings(
        linear=NetworkSettings(0, ((0.05, 0.0),), most_epochs=15, most_steps=15),
        layered=NetworkSettings(16, ((0.02, 0.0),), most_epochs=15, most_steps=15),
        trees=TreeSettings(n_trees=5),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crossfit, "DEFAULTS", settings)
        yield


def cross_fit(rows, observed, seed=0):
    """As the method makes it."""
    return crossfit.cross_fit(rows, observed, seed, crossfit.DEFAULTS)


@pytest.fixture(scope="module")
def case():
    """80 rows, 5 features, 4 labels of which features tell much; (rows, observed), one label per row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 5))
    label = (X[:, :4] + 0.5 * rng.normal(size=(80, 4))).argmax(1)
    return torch.tensor(X, dtype=torch.float32), torch.eye(4)[label]


def view_of(rows, observed, features=None, **options):
    def refuse():
        raise AssertionError("this is not needed")

    def ask(positions=None):
        if features is None:
            refuse()
        return features if positions is None else features[positions]

    return TrainView(observed, rows.shape[1], 10, lambda: rows, ask, refuse, **options)


def set_up(method, rows, observed, **options):
    method.head = method.make_head(rows.shape[1], observed.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # priors of so few rows are open
        method.setup(view_of(rows, observed, **options))
    return method


# the targets


def naive_target(observed, expected, alpha):
    """l̃ = (1 − α)·l + α·s̃, entry by entry: l in equal parts of the observed labels; s̃ alone where there are none."""
    target = torch.zeros_like(observed)
    for i, row in enumerate(observed.tolist()):
        n_observed = sum(row)
        for j, seen in enumerate(row):
            s = expected[i, j].item()
            target[i, j] = s if n_observed == 0 else (1 - alpha) * seen / n_observed + alpha * s
    return target


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_targets_equal_the_loop(alpha, case):
    rows, observed = case
    method = set_up(CRISPPlus(alpha), rows, observed)
    expected = naive_target(observed, cross_fit(rows, observed).probability, alpha)
    torch.testing.assert_close(method.target, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(method.target.sum(1), torch.ones(80))


def naive_alpha(observed, expected, kappa):
    """(mean of 1/m − 1/κ)/B between 0 and 1, m the observed labels of a row; B the squared error of the predictions."""
    chance, error, n_known = 0.0, 0.0, 0
    for row, predicted in zip(observed.tolist(), expected.tolist(), strict=True):
        if sum(row):
            n_known += 1
            chance += 1 / sum(row) - 1 / kappa
            error += sum((seen / sum(row) - s) ** 2 for seen, s in zip(row, predicted, strict=True))
    return min(1.0, max(0.0, chance / n_known) / (error / n_known))


@pytest.mark.parametrize("cardinality", [1.0, 1.1, 1.6, 3.9])
def test_the_share_of_what_is_expected_follows_from_the_number_of_labels(cardinality, case):
    """α = (1 − 1/κ)/B; with one label per row the target is the label itself, with many it is what is expected."""
    rows, observed = case
    method = set_up(CRISPPlus(cardinality=cardinality), rows, observed)
    expected = cross_fit(rows, observed).probability
    alpha = naive_alpha(observed, expected, cardinality)
    assert {1.0: alpha == 0, 3.9: alpha == 1}.get(cardinality, 0 < alpha < 1)
    torch.testing.assert_close(method.target, naive_target(observed, expected, alpha), atol=1e-5, rtol=0)


def test_the_number_of_labels_is_estimated(case):
    rows, observed = case
    fit = cross_fit(rows, observed)
    kappa = estimate_priors(fit.probability, observed, estimator="bracket").cardinality
    assert kappa > 1.05
    expected = naive_target(observed, fit.probability, naive_alpha(observed, fit.probability, kappa))
    torch.testing.assert_close(set_up(CRISPPlus(), rows, observed).target, expected, atol=1e-5, rtol=0)


def test_labels_that_are_all_observed_are_not_left_to_chance(case):
    """Two labels in every row, both observed: no part of the target is a guess; with some unobserved, a part is."""
    rows, _ = case
    both = torch.zeros(80, 4).scatter_(1, rows[:, :4].topk(2).indices, 1.0)
    torch.testing.assert_close(set_up(CRISPPlus(cardinality=2.0), rows, both).target, both / 2)
    one = both.clone()
    one[:40] = torch.eye(4)[rows[:40, :4].argmax(1)]
    fit = cross_fit(rows, one)
    alpha = naive_alpha(one, fit.probability, 2.0)
    assert 0 < alpha < 1
    expected = naive_target(one, fit.probability, alpha)
    torch.testing.assert_close(set_up(CRISPPlus(cardinality=2.0), rows, one).target, expected, atol=1e-5, rtol=0)


def test_rows_with_no_observed_label_or_several(case):
    rows, observed = case
    observed = observed.clone()
    observed[:10] = 0
    observed[10:20, 1:3] = 1
    method = set_up(CRISPPlus(0.3, cardinality=2.0), rows, observed)
    fit = cross_fit(rows, observed)
    torch.testing.assert_close(method.target, naive_target(observed, fit.probability, 0.3), atol=1e-6, rtol=0)
    torch.testing.assert_close(method.target[:10], fit.probability[:10])
    torch.testing.assert_close(method.target.sum(1), torch.ones(80))
    assert torch.isfinite(method.loss([rows], Batch((rows,), observed, torch.arange(80))))
    method.end_epoch(view_of(rows, observed, rows))
    assert torch.isfinite(method(rows)).all()


def test_what_is_expected_of_a_row_does_not_hold_its_own_label(case):
    """But for the choice of epochs and the weights of the mixture."""
    rows, observed = case
    other = observed.clone()
    other[7] = observed[7].roll(1)
    before, after = (set_up(CRISPPlus(1.0), rows, labels).target for labels in (observed, other))
    assert (after[7] - before[7]).abs().max() < 0.2


def test_the_seed_reaches_the_held_out_predictions(case):
    rows, observed = case
    first, second, again = (set_up(CRISPPlus(1.0), rows, observed, seed=seed).target for seed in (0, 1, 1))
    assert torch.equal(second, again)
    assert not torch.equal(first, second)


# the loss


def naive_loss(linear, target):
    """−(1/n) Σ_ij l̃_ij log s_ij with s = softmax of the linear logits, entry by entry."""
    total = 0.0
    for row, wanted in zip(linear.tolist(), target.tolist(), strict=True):
        norm = sum(math.exp(h) for h in row)
        for h, t in zip(row, wanted, strict=True):
            total -= t * math.log(math.exp(h) / norm)
    return total / len(linear)


@pytest.mark.parametrize("mixed", [False, True])
def test_loss_equals_the_loop(mixed, case):
    rows, observed = case
    method = set_up(CRISPPlus(0.4), rows, observed)
    nn.init.normal_(method.head.linear.weight, generator=torch.Generator().manual_seed(1))
    index = torch.tensor([41, 3, 79, 12, 0])
    mixing = Mixing(torch.tensor([1, 0, 2, 4, 3]), torch.tensor([0.25, 0.9, 0.5, 0.0, 1.0])) if mixed else None
    views, target = rows[index], method.target[index].clone()
    if mixing is not None:
        pairs = list(zip(mixing.partner.tolist(), mixing.share.tolist(), strict=True))
        views = torch.stack([share * views[k] + (1 - share) * views[p] for k, (p, share) in enumerate(pairs)])
        target = torch.stack([share * target[k] + (1 - share) * target[p] for k, (p, share) in enumerate(pairs)])
    loss = method.loss([views], Batch((views,), observed[index], index, mixing))
    assert math.isclose(loss.item(), naive_loss(method.head.linear(views).detach(), target), abs_tol=2e-6)


def test_loss_is_least_at_the_targets(case):
    """Where the softmax of each row is its target, the slope is zero."""
    _, observed = case
    identity = torch.eye(80)
    method = set_up(CRISPPlus(0.5), identity, observed)
    with torch.no_grad():
        method.head.linear.bias.zero_()
        method.head.linear.weight.copy_(method.target.log().T)
    method.loss([identity], Batch((identity,), observed, torch.arange(80))).backward()
    assert method.head.linear.weight.grad.abs().max() < 1e-7


@pytest.mark.parametrize(
    ("is_tabular", "backbone", "share"),
    [(True, nn.Linear(5, 5), 0.25), (True, nn.Identity(), 0.0), (False, nn.Linear(5, 5), 0.0)],
    ids=["layers", "no layers", "images"],
)
def test_features_that_a_layer_made_are_dropped_at_random(is_tabular, backbone, share, case):
    rows, observed = case
    method = set_up(CRISPPlus(0.5), rows, observed, features=rows, is_tabular=is_tabular, backbone=backbone)
    assert method.drops_features == share


def test_inputs_are_dropped_unless_linear_models_predict_better(case, monkeypatch):
    rows, observed = case
    fit = cross_fit(rows, observed)
    for weight, share in (({"linear": 0.2, "layered": 0.3}, 0.1), ({"linear": 0.3, "layered": 0.2}, 0.0), ({}, 0.0)):
        monkeypatch.setattr(
            "onepos.methods.crisp_plus.method.held_out", lambda train, w=weight: dataclasses.replace(fit, weight=w)
        )
        for backbone, found in ((nn.Linear(5, 5), share), (nn.Identity(), 0.0)):
            method = set_up(CRISPPlus(0.5), rows, observed, features=rows, is_tabular=True, backbone=backbone)
            assert method.drops_inputs == found


@pytest.mark.parametrize(("mix", "is_tabular"), [(True, True), (False, True), (True, False)])
def test_rows_of_numbers_are_mixed_on_demand(mix, is_tabular, case):
    rows, observed = case
    method = set_up(CRISPPlus(0.5, mix=mix), rows, observed, features=rows, is_tabular=is_tabular)
    assert method.mixes_rows == (mix and is_tabular)
    assert not CRISPPlus.mixes_rows


def test_learning_rate_falls_in_the_second_half():
    method = CRISPPlus()
    assert [method.lr_at(progress) for progress in (0.0, 0.3, 0.5, 0.75, 1.0)] == [1.0, 1.0, 1.0, 0.5, 0.0]
    assert not method.stops_early
    assert not method.stacking.possible


def test_start(case):
    """At the frequencies of the labels for every row, a half counted to each."""
    rows, observed = case
    method = set_up(CRISPPlus(), rows, observed)
    count = [sum(column) + 0.5 for column in observed.T.tolist()]
    expected = torch.tensor([each / sum(count) for each in count])
    torch.testing.assert_close(method.head.log_observed(rows).exp().detach(), expected.expand(80, -1))


# the head


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_are_those_of_the_softmax_shifted(dtype):
    torch.manual_seed(0)
    head = ObservedLabelHead(3, 4).to(dtype)
    head.shift = torch.tensor([0.5, -1.0, 0.0, 3.0], dtype=dtype)
    features = torch.randn(6, 3, dtype=dtype)
    logits, log_observed = head(features).detach(), head.log_observed(features).detach()
    assert logits.dtype == log_observed.dtype == dtype
    for i, row in enumerate(head.linear(features).tolist()):
        norm = sum(math.exp(h) for h in row)
        for j, h in enumerate(row):
            s = math.exp(h) / norm
            assert log_observed[i, j].item() == pytest.approx(math.log(s), abs=1e-5)
            assert logits[i, j].item() == pytest.approx(math.log(s / (1 - s)) + head.shift[j].item(), abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", [1.0, 30.0, 1e4])
def test_logits_stay_finite(dtype, size):
    """However sure the softmax is; and the gradient too."""
    head = ObservedLabelHead(3, 3).to(dtype)
    with torch.no_grad():
        head.linear.weight.copy_(torch.eye(3))
        head.linear.bias.zero_()
    features = (size * torch.tensor([[1.0, -1.0, 0.0], [-1.0, -1.0, 1.0], [1.0, 1.0, 1.0]])).to(dtype)
    logits = head(features)
    assert torch.isfinite(logits).all()
    assert logits.dtype == (torch.float32 if dtype == torch.bfloat16 else dtype)
    assert logits[0, 0] > logits[0, 2] > logits[0, 1]
    assert (logits[2] - math.log(1 / 2)).abs().max() < 1e-6, "one of three equal labels"
    logits.sum().backward()
    assert torch.isfinite(head.linear.weight.grad).all()


def test_a_single_label_is_sure():
    logits = ObservedLabelHead(2, 1)(torch.randn(4, 2))
    assert torch.isfinite(logits).all()
    assert (logits > 10).all()


def test_a_shift_keeps_the_order_of_the_rows():
    head, features = ObservedLabelHead(3, 4), torch.randn(50, 3)
    before = head(features).argsort(0)
    head.shift = torch.tensor([5.0, -5.0, 0.1, 20.0])
    assert torch.equal(head(features).argsort(0), before)


# the scale


def test_mean_held_out_probability_is_the_prior(case):
    """b by bisection, label by label; and the decisions follow from the same rows."""
    rows, observed = case
    method = set_up(CRISPPlus(cardinality=1.6), rows, observed)
    expected = cross_fit(rows, observed).probability
    wanted = method.class_prior * expected.mean(0) / method.target.mean(0)
    for j in range(4):
        low, high = -30.0, 30.0
        for _ in range(60):
            middle = (low + high) / 2
            mean = sum(1 / (1 + (1 - s) / s * math.exp(-middle)) for s in expected[:, j].tolist()) / 80
            low, high = (low, middle) if mean > wanted[j] else (middle, high)
        assert method.head.shift[j].item() == pytest.approx(low, abs=1e-3)
        for i in range(80):
            s = expected[i, j].item()
            logit = method.training_logits(view_of(rows, observed))[i, j].item()
            assert logit == pytest.approx(math.log(s / (1 - s)) + method.head.shift[j].item(), abs=1e-4)
    mean = torch.sigmoid(method.training_logits(view_of(rows, observed))).mean(0)
    torch.testing.assert_close(mean, wanted, rtol=1e-3, atol=0)
    assert math.isclose(mean.sum().item(), 1.6, rel_tol=0.05)


def test_sure_predictions_of_another_mean_are_no_reason_for_a_shift(case, monkeypatch):
    """One label per row, each row predicted for sure, and some rows wrongly: the network learns the true means."""
    rows, observed = case
    sure = observed.roll(1, 0) * 0.999 + 0.00025
    sure[:60] = observed[:60] * 0.999 + 0.00025
    monkeypatch.setattr(crisp_plus, "held_out", lambda train: crossfit.CrossFit(sure, {}, 0.0))
    method = set_up(CRISPPlus(cardinality=1.0, alpha=0.0), rows, observed)
    assert method.head.shift.abs().max() < 0.1


def test_some_rows_of_many_set_shifts_and_thresholds(case, monkeypatch):
    """Evenly spread over the set."""
    rows, observed = case
    of_all = set_up(CRISPPlus(cardinality=1.6), rows, observed)
    unshifted = of_all.expected_logits - of_all.head.shift
    monkeypatch.setattr(crisp_plus, "_DECISION_ROWS", 20)
    method = set_up(CRISPPlus(cardinality=1.6), rows, observed)
    torch.testing.assert_close(method.expected_logits - method.head.shift, unshifted[::4])


def test_probabilities_out_of_reach_stay_finite(case, monkeypatch):
    """Held-out predictions of 0 and 1."""
    rows, observed = case
    exact = crossfit.CrossFit(observed.clone(), {}, 0.0)
    monkeypatch.setattr(crisp_plus, "held_out", lambda train: exact)
    method = set_up(CRISPPlus(cardinality=1.0), rows, observed)
    assert torch.isfinite(method.expected_logits).all()
    torch.testing.assert_close(torch.sigmoid(method.expected_logits), observed, atol=1e-3, rtol=0)


def test_priors_are_those_of_the_bracket():
    """On rows that settle them: no warning."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 3))
    rows, observed = torch.tensor(X, dtype=torch.float32), torch.eye(3)[(4 * X).argmax(1)]
    estimate = estimate_priors(cross_fit(rows, observed).probability, observed, estimator="bracket")
    assert estimate.warning == ""
    method = CRISPPlus()
    method.head = method.make_head(3, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method.setup(view_of(rows, observed))
    prior, interval = method.final_prior(None, None)
    np.testing.assert_allclose(prior, estimate.prior, rtol=1e-6)
    np.testing.assert_allclose(interval, np.stack([estimate.lower, estimate.upper], 1), rtol=1e-6)
    assert method.prior_is_given


def test_a_warning_about_the_priors_is_passed_on():
    """Features that say little of twenty labels: a row may have one of them, or many."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 21)
    rows = torch.tensor(rng.normal(size=(200, 4)), dtype=torch.float32)
    method = CRISPPlus()
    method.head = method.make_head(4, 20)
    with pytest.warns(UserWarning, match=r"does not settle how many labels a row has: .* --set cardinality=…"):
        method.setup(view_of(rows, torch.eye(20)[rng.choice(20, 200, p=share / share.sum())]))


def test_cardinality_is_known(case):
    rows, observed = case
    method = set_up(CRISPPlus(cardinality=2.5), rows, observed)
    assert math.isclose(method.class_prior.sum().item(), 2.5, rel_tol=1e-5)
    assert method.privileged == {"cardinality"}
    assert CRISPPlus().privileged == frozenset()


def test_a_label_nobody_observed(case):
    """Its prior stays unknown, and no shift follows from it."""
    rows, observed = case
    wider = torch.cat([observed, torch.zeros(80, 1)], 1)
    method = set_up(CRISPPlus(), rows, wider)
    assert torch.isnan(method.class_prior).tolist() == [False] * 4 + [True]
    assert np.isnan(method.final_prior(None, None)[0]).tolist() == [False] * 4 + [True]
    loss = method.loss([rows], Batch((rows,), wider, torch.arange(80)))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in method.parameters())
    assert method.head.shift[4] == 0
    assert torch.isfinite(method(rows)).all()
    assert torch.sigmoid(method(rows))[:, 4].max() < 0.05


def test_images_are_described_by_the_network(case):
    rows, observed = case
    images = torch.zeros(80, 3, 4, 4)
    seen = set_up(CRISPPlus(), images, observed, features=rows[:, :3], is_tabular=False)
    torch.testing.assert_close(seen.target, set_up(CRISPPlus(), rows[:, :3], observed).target)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"alpha": 1.5}, "alpha must lie between 0 and 1, or be 'auto'; got 1.5. The default is 'auto'."),
        ({"alpha": -0.1}, "alpha must lie between 0 and 1, or be 'auto'; got -0.1"),
        ({"alpha": math.nan}, "alpha must lie between 0 and 1, or be 'auto'; got nan"),
        ({"alpha": "high"}, "alpha must lie between 0 and 1, or be 'auto'; got 'high'"),
        ({"cardinality": 0.5}, "must be a number of at least 1; got 0.5. Leave it out to have it estimated."),
        ({"cardinality": "many"}, "cardinality, the mean number of labels per row, must be a number .* got 'many'"),
        ({"cardinality": 9}, "cardinality must lie between 1 and the number of observed labels, 4; got 9"),
    ],
)
def test_wrong_parameters(parameters, sentence, case):
    with pytest.raises(ValueError, match=sentence):
        set_up(CRISPPlus(**parameters), *case)


# a fit


@pytest.fixture(scope="module")
def fitted():
    """A model of 600 scenes, these scenes, and 400 others."""
    scenes = digit_scenes(1000)
    train, new = scenes.take(range(600)), scenes.take(range(600, 1000))
    observed = draw_single_positive(train.Y, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = SinglePositiveClassifier(epochs=8, random_state=0).fit(train.X, observed)
    return model, train, new


def test_probabilities_and_decisions_on_new_rows_agree_with_the_priors(fitted):
    """Within 15 per cent for each label, which is chance of 400 rows, and within 10 for all together."""
    model, _, new = fitted
    probability = model.predict_proba(new.X)
    np.testing.assert_allclose(probability.mean(0), model.class_prior_, rtol=0.15, atol=0.005)
    total = model.class_prior_.sum()
    assert probability.sum(1).mean() == pytest.approx(total, rel=0.1)
    assert model.predict(new.X).sum(1).mean() == pytest.approx(total, rel=0.1)


def test_a_model_has_learnt(fitted):
    model, _, new = fitted
    by_frequency = np.tile(new.Y.mean(0), (400, 1))
    assert model.score(new.X, new.Y) > average_precision(new.Y, by_frequency) + 0.04


def test_a_model_is_backbone_and_head_and_holds_no_rows(fitted):
    model, train, _ = fitted
    shapes = {name: tuple(tensor.shape) for name, tensor in model.network_.state_dict().items()}
    d, c = train.X.shape[1], train.Y.shape[1]
    assert sorted(shapes.values()) == sorted([(512, d), (512,), (c, 512), (c,), (c,)])
    assert model.method_.target is None
    assert model.method_.expected_logits is None
    held = [t for t in [*model.method_.parameters(), *model.method_.buffers()] if t.ndim and len(t) == 600]
    assert held == []


def test_without_mixtures_and_with_one_label_per_row_it_is_softmax_regression(case):
    """α = 0, no mixtures, a linear network: the loss is the cross-entropy of the label."""
    rows, observed = case
    method = set_up(CRISPPlus(cardinality=1.0, mix=False), rows, observed)
    nn.init.normal_(method.head.linear.weight, generator=torch.Generator().manual_seed(1))
    loss = method.loss([rows], Batch((rows,), observed, torch.arange(80)))
    torch.testing.assert_close(loss, F.cross_entropy(method.head.linear(rows), observed.argmax(1)))
