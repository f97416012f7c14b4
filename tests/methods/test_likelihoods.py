"""The propensity likelihood in a loop, at its limits, at the edge of float32 and in a stack; the scale of logits."""

from decimal import Decimal, getcontext

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from onepos.methods.likelihoods import fit_scale, propensity_likelihood
from onepos.methods.losses import binary_cross_entropy


def random_logits(n_rows, n_labels, seed=0, scale=2.0):
    return torch.from_numpy(np.random.default_rng(seed).normal(-0.5, scale, (n_rows, n_labels)))


def indicator(labels, n_labels):
    row = torch.zeros(n_labels, dtype=torch.float64)
    row[list(labels)] = 1
    return row


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


def test_propensity_one_is_assuming_negatives_and_zero_uses_positives_only():
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


@pytest.mark.parametrize(("slope", "shift"), [(1.0, 0.0), (0.6, -1.5), (1.8, 0.7)])
def test_scale_is_found_again(slope, shift):
    """Probabilities made with β and δ lead back to them; a propensity of 1 is Platt's case."""
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


def test_scale_of_equal_logits():
    """The result is finite and meets the mean."""
    target = torch.full((30, 4), 0.2)
    slope, shift = fit_scale(torch.full((30, 4), 3.0), target, torch.ones(4), torch.tensor(1.0), torch.tensor(0.0))
    assert slope > 0
    np.testing.assert_allclose(torch.sigmoid(slope * 3 + shift), 0.2, atol=1e-3)


def test_gradient():
    observed = torch.stack([indicator(labels, 5) for labels in ((), (0,), (3,), (1, 2), (0, 1, 4))])
    prior = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9], dtype=torch.float64)
    torch.autograd.gradcheck(
        lambda g: propensity_likelihood(g, observed, prior), (random_logits(5, 5).requires_grad_(),)
    )


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_finite_at_the_edge(half):
    """Logits of ±60 and a thousand labels: near the same in float64, and a gradient without a gap."""
    rng = np.random.default_rng(0)
    rows = [np.full(1000, 60), np.full(1000, -60), rng.choice([-60, 60], 1000), rng.normal(0, 20, 1000).clip(-60, 60)]
    rows += [np.r_[np.full(500, -60), np.full(500, 60)], np.zeros(1000)]
    exact = torch.from_numpy(np.array(rows)).to(torch.bfloat16).double()
    observed = torch.stack([indicator(labels, 1000) for labels in ((0,), (999,), (), (1, 2, 3), (0, 999), (5,))])
    prior = torch.linspace(0, 1, 1000, dtype=torch.float64)  # both ends: a propensity of 1, a prior of 0

    logits = exact.to(torch.bfloat16 if half else torch.float32).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        value = propensity_likelihood(logits, observed.float(), prior.float())
        value.sum().backward()
    assert value.dtype == torch.float32
    assert torch.isfinite(value).all()
    assert torch.isfinite(logits.grad).all()
    wide = exact.requires_grad_()
    wanted = propensity_likelihood(wide, observed, prior)
    wanted.sum().backward()
    np.testing.assert_allclose(value.detach(), wanted.detach(), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(logits.grad.double(), wide.grad, rtol=0.01 if half else 1e-4, atol=1e-5)


def test_stacked_and_traced():
    """As in stacked training: the gradient of three runs at once, recorded once, then played with other numbers."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def slope(logits, observed, prior):
        return grad(lambda g: propensity_likelihood(g, observed, prior).mean())(logits)

    def case(seed):
        rng = np.random.default_rng(seed)
        observed = torch.from_numpy((rng.random((3, 4, 5)) < 0.3).astype(np.float64))
        return random_logits(12, 5, seed).view(3, 4, 5), observed, torch.from_numpy(rng.uniform(0.1, 0.9, (3, 5)))

    played = make_fx(vmap(slope))(*case(0))
    for seed in (0, 1):
        one_by_one = torch.stack([slope(*run) for run in zip(*case(seed), strict=True)])
        np.testing.assert_allclose(played(*case(seed)), one_by_one, rtol=1e-9, atol=1e-12)
