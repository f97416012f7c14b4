"""The likelihoods against enumeration over all label sets, at their limits, at the edge of float32, and in a stack."""

from decimal import Decimal, getcontext
from itertools import combinations, product
from math import comb

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from onepos.methods.likelihoods import fit_scale, prior_alignment, propensity_likelihood, single_positive_likelihood
from onepos.methods.losses import binary_cross_entropy, nn_pu


def random_logits(n_rows, n_labels, seed=0, scale=2.0):
    return torch.from_numpy(np.random.default_rng(seed).normal(-0.5, scale, (n_rows, n_labels)))


def indicator(labels, n_labels):
    row = torch.zeros(n_labels, dtype=torch.float64)
    row[list(labels)] = 1
    return row


def enumerated(scores, shown):
    """P(exactly these labels are shown | as many are shown), by going through all 2^c label sets."""
    joint = at_least = 0.0
    for labels in product((0, 1), repeat=len(scores)):
        chance = np.prod([f if y else 1 - f for f, y in zip(scores, labels, strict=True)])
        if sum(labels) >= len(shown):
            at_least += chance
            if all(labels[j] for j in shown):
                joint += chance / comb(sum(labels), len(shown))
    return joint / at_least


def poisson_binomial(scores):
    """P(S = 0), P(S = 1), … of a sum of independent labels."""
    chance = np.ones(1)
    for f in scores:
        chance = np.convolve(chance, [1 - f, f])
    return chance


# the draw


@pytest.mark.parametrize("n_labels", [1, 2, 3, 5, 8])
def test_draw_is_enumeration_for_one_and_several(n_labels):
    for m in range(1, n_labels + 1):
        sets = list(combinations(range(n_labels), m))[:12]
        logits = random_logits(len(sets), n_labels, seed=m)
        observed = torch.stack([indicator(labels, n_labels) for labels in sets])
        loss = single_positive_likelihood(logits, observed, max_observed=n_labels)
        wanted = [enumerated(row, labels) for row, labels in zip(logits.sigmoid().numpy(), sets, strict=True)]
        np.testing.assert_allclose(torch.exp(-loss), wanted, rtol=1e-9)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_draw_sums_to_one_over_the_sets_of_one_size(m):
    observed = torch.stack([indicator(labels, 6) for labels in combinations(range(6), m)])
    logits = random_logits(1, 6).expand(len(observed), 6)
    assert torch.exp(-single_positive_likelihood(logits, observed, max_observed=3)).sum().item() == pytest.approx(1)


def test_rows_that_show_nothing_cost_nothing_and_pull_nowhere():
    logits = random_logits(3, 4).requires_grad_()
    observed = torch.tensor([[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]])
    loss = single_positive_likelihood(logits, observed, max_observed=2)
    (slope,) = torch.autograd.grad(loss.sum(), logits)
    assert loss[0] == 0
    assert (loss[1:] > 0).all()
    assert (slope[0] == 0).all()
    assert (slope[1:].abs().sum(1) > 0).all()


def test_one_label_is_always_the_one_drawn():
    loss = single_positive_likelihood(torch.tensor([[-60.0], [0.0], [60.0]]), torch.ones(3, 1))
    np.testing.assert_allclose(loss, 0, atol=1e-6)


def test_rare_labels_make_it_a_softmax():
    logits = random_logits(5, 7) - 40
    observed = torch.eye(7, dtype=torch.float64)[[0, 2, 4, 6, 1]]
    wanted = torch.nn.functional.cross_entropy(logits, observed.argmax(1), reduction="none")
    np.testing.assert_allclose(single_positive_likelihood(logits, observed), wanted, rtol=1e-9)


def test_without_the_bound_on_the_count_a_row_costs_more():
    logits, observed = random_logits(6, 6), torch.stack([indicator((0, 3, 4), 6)] * 6)
    costs = [single_positive_likelihood(logits, observed, max_observed=m) for m in (1, 2, 3, 4)]
    assert (costs[0] > costs[1]).all()
    assert (costs[1] > costs[2]).all()
    assert torch.equal(costs[2], costs[3])


def test_order_of_the_labels_does_not_matter():
    logits, observed = random_logits(4, 9), torch.stack([indicator((1, 5, 8), 9)] * 4)
    order = torch.from_numpy(np.random.default_rng(1).permutation(9))
    for m in (1, 3):
        permuted = single_positive_likelihood(logits[:, order], observed[:, order], max_observed=m)
        np.testing.assert_allclose(permuted, single_positive_likelihood(logits, observed, max_observed=m), rtol=1e-12)


def test_n_nodes_are_exact_for_2n_labels_and_no_more():
    def error(n_labels, nodes):
        # Λ stays below 1.5·n, beyond which the nodes no longer span the whole interval.
        logits = random_logits(1, n_labels) - 1
        loss = single_positive_likelihood(logits, indicator((0,), n_labels)[None], nodes=nodes)
        return abs(loss.item() + np.log(enumerated(logits[0].sigmoid().numpy(), (0,))))

    assert error(8, 4) < 1e-13
    assert error(6, 3) < 1e-13
    assert error(10, 4) > 1e-12
    assert error(8, 3) > 1e-12


@pytest.mark.parametrize(
    ("m", "nodes", "bound"), [(1, 8, 7e-6), (1, 12, 2e-8), (2, 8, 1e-5), (2, 12, 4e-8), (3, 12, 3e-7), (5, 16, 5e-8)]
)
def test_error_of_few_nodes_with_many_labels(m, nodes, bound):
    rows = [np.full(1000, share) for share in (0.005, 0.014, 0.02, 0.04, 0.1, 0.5, 0.99)]
    rows += [np.r_[np.full(k, 1 - 1e-9), np.full(1000 - k, 1e-4)] for k in (1, 10, 16, 24, 64, 900)]
    rows += [np.linspace(1e-3, 1 - 1e-3, 1000)]
    scores = np.array(rows)
    observed = torch.stack([indicator(range(m), 1000)] * len(rows))
    loss = single_positive_likelihood(torch.from_numpy(scores).logit(), observed, nodes=nodes, max_observed=m)
    for row, cost in zip(scores, loss, strict=True):
        others, everyone = poisson_binomial(row[m:]), poisson_binomial(row)
        inverse = np.array([1 / comb(m + s, m) for s in range(len(others))])
        wanted = row[:m].prod() * (others * inverse).sum() / everyone[m:].sum()
        assert torch.exp(-cost).item() == pytest.approx(wanted, rel=bound)


# each entry by itself


@pytest.mark.parametrize("shape", [(3,), (4, 3)])
def test_propensity_likelihood_in_a_loop(shape):
    rng = np.random.default_rng(0)
    logits, target, e = rng.normal(size=(4, 3)), rng.random((4, 3)), rng.uniform(0.05, 0.99, shape)
    target[0] = [0, 1, 0]
    wanted = np.zeros((4, 3))
    for i in range(4):
        for j in range(3):
            f, e_ij = 1 / (1 + np.exp(-logits[i, j])), e[j] if e.ndim == 1 else e[i, j]
            wanted[i, j] = -target[i, j] * np.log(f) - (1 - target[i, j]) * np.log(1 - e_ij * f)
    got = propensity_likelihood(*map(torch.from_numpy, (logits, target, e)))
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_propensity_one_is_assuming_negatives_and_zero_hears_positives_only():
    logits, observed = torch.linspace(-60, 60, 24).view(4, 6), torch.eye(6)[[0, 2, 4, 5]]
    assert torch.equal(propensity_likelihood(logits, observed, torch.ones(6)), binary_cross_entropy(logits, observed))
    nothing_else = propensity_likelihood(logits, observed, torch.zeros(6))
    np.testing.assert_allclose(nothing_else, observed * torch.nn.functional.softplus(-logits), atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_propensity_likelihood_to_fifty_digits(dtype):
    getcontext().prec = 50
    logits = torch.tensor([-60, -10, -1, 0, 1, 10, 30, 60], dtype=dtype)
    propensity = torch.tensor([1e-3, 0.1, 0.5, 0.97, 1 - 1e-6, 1.0], dtype=dtype)
    got = propensity_likelihood(logits[:, None], torch.zeros(8, 6), propensity.expand(8, 6))
    for i, g in enumerate(logits.tolist()):
        for j, e in enumerate(propensity.tolist()):
            wanted = -float((1 - Decimal(e) / (1 + Decimal(-g).exp())).ln())
            # softplus takes log(1 + eᵍ) for g from g = 20 on, which is off by 2e-9.
            assert got[i, j].item() == pytest.approx(wanted, abs=max(2.1e-9, 64 * torch.finfo(dtype).eps))


# the priors


def test_alignment_in_a_loop_and_its_minimum():
    logits, prior = random_logits(5, 3), torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    mean = logits.sigmoid().mean(0).numpy()
    wanted = [-p * np.log(m) - (1 - p) * np.log(1 - m) for p, m in zip(prior.numpy(), mean, strict=True)]
    np.testing.assert_allclose(prior_alignment(logits, prior), wanted, rtol=1e-12)

    met = torch.from_numpy(mean)
    logits.requires_grad_()
    (slope,) = torch.autograd.grad(prior_alignment(logits, met).sum(), logits)
    np.testing.assert_allclose(slope, 0, atol=1e-15)
    entropy = -met * met.log() - (1 - met) * (1 - met).log()
    np.testing.assert_allclose(prior_alignment(logits, met).detach(), entropy, rtol=1e-12)
    assert (prior_alignment(logits + 0.1, met) > entropy).all()


def test_alignment_of_one_row_is_cross_entropy_with_the_prior():
    logits, prior = random_logits(1, 3), torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    np.testing.assert_allclose(prior_alignment(logits, prior), binary_cross_entropy(logits, prior[None])[0])


@pytest.mark.parametrize(("slope", "shift"), [(1.0, 0.0), (0.6, -1.5), (1.8, 0.7)])
def test_scale_is_found_again(slope, shift):
    """Chances made with β and δ lead back to them; a propensity of 1 is Platt's case."""
    logits = random_logits(50, 6, scale=2)
    e = torch.linspace(0.1, 1, 6, dtype=torch.float64)
    target = e * torch.sigmoid(slope * logits + shift)
    found = torch.tensor(1.0).double(), torch.tensor(0.0).double()
    for _ in range(2):
        found = fit_scale(logits, target, e, *found)
    np.testing.assert_allclose(found, (slope, shift), atol=1e-5)


@pytest.mark.parametrize("unlike", [False, True], ids=["soft", "one label per row"])
def test_scale_is_where_the_likelihood_is_least(unlike):
    """Also where no scale fits: the slope of the likelihood in both numbers is zero there."""
    logits, e = random_logits(80, 6, scale=3), torch.tensor([0.2, 0.5, 1.0, 0.7, 0.3, 0.9], dtype=torch.float64)
    target = torch.softmax(logits + random_logits(80, 6, scale=1).flip(0), 1)
    target = torch.eye(6, dtype=torch.float64)[target.argmax(1)] if unlike else target
    found = torch.tensor(1.0).double(), torch.tensor(0.0).double()
    for _ in range(9):  # each call is done when a step is small
        found = fit_scale(logits, target, e, *found)
    slope, shift = (number.clone().requires_grad_() for number in found)
    cost = propensity_likelihood(slope * logits + shift, target, e).mean()
    assert all(abs(part.item()) < 1e-6 for part in torch.autograd.grad(cost, (slope, shift)))
    assert propensity_likelihood(1.2 * slope * logits + shift, target, e).mean() > cost + 1e-5


def test_scale_stays_within_bounds():
    """Logits that are wrong throughout, or right and far too small."""
    logits = random_logits(80, 6, scale=3)
    for target, bound in ((-logits, 0.5), (10 * logits, 2.0)):
        found = torch.tensor(1.0).double(), torch.tensor(0.0).double()
        for _ in range(4):
            found = fit_scale(logits, torch.sigmoid(target), torch.ones(6).double(), *found)
        assert found[0] == pytest.approx(bound)


def test_scale_of_logits_that_say_nothing():
    """All alike: what comes out is finite and meets the mean."""
    target = torch.full((30, 4), 0.2)
    slope, shift = fit_scale(torch.full((30, 4), 3.0), target, torch.ones(4), torch.tensor(1.0), torch.tensor(0.0))
    assert slope > 0
    np.testing.assert_allclose(torch.sigmoid(slope * 3 + shift), 0.2, atol=1e-3)


# all of them


def draw(logits, observed, prior):
    return single_positive_likelihood(logits, observed, max_observed=3)


def propensity(logits, observed, prior):
    return propensity_likelihood(logits, observed, prior)


def alignment(logits, observed, prior):
    return prior_alignment(logits, prior)


def pu(logits, observed, prior):
    return nn_pu(logits, observed, prior)


ALL = [draw, propensity, alignment, pu]


@pytest.mark.parametrize("loss", ALL)
def test_gradient(loss):
    observed = torch.stack([indicator(labels, 5) for labels in ((), (0,), (3,), (1, 2), (0, 1, 4))])
    prior = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9], dtype=torch.float64)
    torch.autograd.gradcheck(lambda g: loss(g, observed, prior), (random_logits(5, 5).requires_grad_(),))


def test_gradient_where_the_nodes_are_cut_off():
    logits = random_logits(2, 60, scale=0.5) + 2  # Λ about 45, beyond 1.5·16
    observed = torch.stack([indicator((0,), 60), indicator((1, 2), 60)])
    fine = logits.clone().requires_grad_()
    coarse = logits.clone().requires_grad_()
    single_positive_likelihood(fine, observed, nodes=32, max_observed=2).sum().backward()
    single_positive_likelihood(coarse, observed, nodes=12, max_observed=2).sum().backward()
    np.testing.assert_allclose(coarse.grad, fine.grad, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("loss", ALL)
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_finite_at_the_edge(loss, half):
    """Logits of ±60 and a thousand labels: near the same in float64, and a gradient without a gap."""
    rng = np.random.default_rng(0)
    rows = [np.full(1000, 60), np.full(1000, -60), rng.choice([-60, 60], 1000), rng.normal(0, 20, 1000).clip(-60, 60)]
    rows += [np.r_[np.full(500, -60), np.full(500, 60)], np.zeros(1000)]
    exact = torch.from_numpy(np.array(rows)).to(torch.bfloat16).double()
    observed = torch.stack([indicator(labels, 1000) for labels in ((0,), (999,), (), (1, 2, 3), (0, 999), (5,))])
    prior = torch.linspace(0, 1, 1000, dtype=torch.float64)  # both ends: a propensity of 1, a prior of 0

    logits = exact.to(torch.bfloat16 if half else torch.float32).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        value = loss(logits, observed.float(), prior.float())
        value.sum().backward()
    assert value.dtype == torch.float32
    assert torch.isfinite(value).all()
    assert torch.isfinite(logits.grad).all()
    wide = exact.requires_grad_()
    wanted = loss(wide, observed, prior)
    wanted.sum().backward()
    np.testing.assert_allclose(value.detach(), wanted.detach(), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(logits.grad.double(), wide.grad, rtol=0.01 if half else 1e-4, atol=1e-5)


@pytest.mark.parametrize("loss", ALL)
def test_stacked_and_traced(loss):
    """As in stacked training: the gradient of three runs at once, recorded once, then played with other numbers."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def slope(logits, observed, prior):
        return grad(lambda g: loss(g, observed, prior).mean())(logits)

    def case(seed):
        rng = np.random.default_rng(seed)
        observed = torch.from_numpy((rng.random((3, 4, 5)) < 0.3).astype(np.float64))
        return random_logits(12, 5, seed).view(3, 4, 5), observed, torch.from_numpy(rng.uniform(0.1, 0.9, (3, 5)))

    played = make_fx(vmap(slope))(*case(0))
    for seed in (0, 1):
        one_by_one = torch.stack([slope(*run) for run in zip(*case(seed), strict=True)])
        np.testing.assert_allclose(played(*case(seed)), one_by_one, rtol=1e-9, atol=1e-12)
