"""GR Loss by hand, against the double loop of its equation, its schedules and its limits."""

import math

import pytest
import torch

from onepos.methods.gr import GR
from onepos.methods.losses import assume_negative

SETTINGS = {
    "w_start": 1.0, "w_end": 3.0, "b_start": -2.0, "b_end": -4.0, "mu_start": 0.5, "mu_end": 0.9,
    "sigma_start": 2.0, "sigma_end": 0.4, "q2": 0.3, "q3": 1.5,
}  # fmt: skip


def published(logits, observed, w, b, mu, sigma, q2, q3, epsilon):
    """The loss entry by entry, on scores."""
    n, c = logits.shape
    total = 0.0
    for i in range(n):
        for j in range(c):
            f = 1 / (1 + math.exp(-logits[i, j].item()))
            if observed[i, j] == 1:
                total -= math.log(f + epsilon)
                continue
            K, V = 1 / (1 + math.exp(-(w * f + b))), math.exp(-((f - mu) ** 2) / (2 * sigma**2))
            total += V * (K * (1 - f**q2) / q2 + (1 - K) * (1 - (1 - f) ** q3) / q3)
    return total / (n * c)


def test_by_hand(prepare, loss_of):
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [0.0, -math.log(3)]])
    observed = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    fixed = {"w_start": 0, "w_end": 0, "b_start": 0, "b_end": 0, "mu_start": 0.5, "mu_end": 0.5}
    method = prepare(GR(**fixed, sigma_start=0.25, sigma_end=0.25, q2=1, q3=2), observed)
    # K = ½ everywhere; V = 1 at f = ½ and exp(−½) at f = ¼, one σ away
    at_half = (1 / 2 + (1 - 1 / 4) / 2) / 2
    at_quarter = math.exp(-1 / 2) * (3 / 4 + (1 - 9 / 16) / 2) / 2
    expected = (-2 * math.log(1 / 2) - math.log(3 / 4) + 2 * at_half + at_quarter) / 6
    assert math.isclose(loss_of(method, logits, observed).item(), expected, rel_tol=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 1e-7])
@pytest.mark.parametrize("epoch", [0, 3, 9])
@pytest.mark.parametrize("parameters", [{}, SETTINGS])
def test_equals_the_double_loop(parameters, epoch, epsilon, prepare, loss_of, random_case):
    """In epoch e = epoch + 1 of T = 10: progress (e−1)/T for w and b, e/T for μ and σ."""
    logits, observed, _ = random_case(epoch)
    observed[0], observed[1] = 0, 1
    p = {**GR().get_params(), **parameters}
    at = {
        name: p[f"{name}_start"] + (p[f"{name}_end"] - p[f"{name}_start"]) * progress
        for name, progress in (
            ("w", epoch / 10),
            ("b", epoch / 10),
            ("mu", (epoch + 1) / 10),
            ("sigma", (epoch + 1) / 10),
        )
    }
    expected = published(logits, observed, **at, q2=p["q2"], q3=p["q3"], epsilon=epsilon)
    method = prepare(GR(**parameters), observed, n_epochs=10, epoch=epoch)
    assert math.isclose(loss_of(method, logits, observed).item(), expected, rel_tol=1e-6)


def test_pseudo_labels_and_trust_get_no_gradient(prepare, loss_of):
    """∂/∂g = V·[−K·f^q₂·(1−f) + (1−K)·(1−f)^q₃·f]/Bc with K, V as constants; finite where f underflows."""
    logits = torch.tensor([[-200.0, -1.0, 0.0, 2.0, 200.0]], dtype=torch.float64, requires_grad=True)
    method = prepare(GR(**SETTINGS), torch.zeros(1, 5), n_epochs=10, epoch=9)
    loss_of(method, logits, torch.zeros(1, 5)).backward()
    f = torch.sigmoid(logits.detach())
    K, V = torch.sigmoid(2.8 * f - 3.8), torch.exp(-((f - 0.9) ** 2) / (2 * 0.4**2))
    torch.testing.assert_close(logits.grad, V * (-K * f**0.3 * (1 - f) + (1 - K) * (1 - f) ** 1.5 * f) / 5)


def test_all_trusted_and_taken_as_negative_is_assume_negative(prepare, loss_of, random_case):
    logits, observed, _ = random_case(4)
    method = prepare(GR(w_end=0, b_start=-50, b_end=-50, sigma_start=1e6, sigma_end=1e6, q3=1e-7), observed)
    torch.testing.assert_close(loss_of(method, logits, observed), assume_negative(logits, observed), rtol=1e-6, atol=0)


def test_schedules_stay_at_their_end(prepare, loss_of, random_case):
    """Past the planned epochs σ would cross 0."""
    logits, observed, _ = random_case(5)
    method = prepare(GR(), observed, n_epochs=3, epoch=3)
    expected = published(logits, observed, w=2, b=-2, mu=0.8, sigma=0.5, q2=0.01, q3=1, epsilon=0)
    assert math.isclose(loss_of(method, logits, observed).item(), expected, rel_tol=1e-6)


@pytest.mark.parametrize("name", ["sigma_start", "sigma_end", "q2", "q3"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan])
def test_wrong_parameters(name, value, prepare):
    with pytest.raises(ValueError, match=f"{name} must be positive; got {value}. Pass a small number for 0"):
        prepare(GR(**{name: value}), torch.eye(2))
