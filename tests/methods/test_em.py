"""EM by hand, against the double loop of its equation, its limit and where it pulls."""

import math

import pytest
import torch

from onepos.methods.em import EM


def test_by_hand(prepare, loss_of):
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [0.0, -math.log(3)]])
    observed = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    # f = ½ ½ / ¾ ½ / ½ ¼, of which the first column is observed
    entropy = 2 * math.log(2) - (math.log(1 / 4) / 4 + math.log(3 / 4) * 3 / 4)
    expected = (-(2 * math.log(1 / 2) + math.log(3 / 4)) - 0.3 * entropy) / 6
    assert math.isclose(loss_of(prepare(EM(alpha=0.3), observed), logits, observed).item(), expected, rel_tol=1e-6)


@pytest.mark.parametrize(("epsilon", "tolerance"), [(0.0, 1e-6), (1e-5, 1e-4)])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_double_loop(seed, epsilon, tolerance, prepare, loss_of, random_case):
    """Without ε, and with the published ε in the logarithms; rows with none and with all positives among them."""
    logits, observed, _ = random_case(seed)
    observed[0], observed[1] = 0, 1
    total = 0.0
    for i in range(12):
        for j in range(4):
            f = 1 / (1 + math.exp(-logits[i, j].item()))
            yes, no = -math.log(f + epsilon), -math.log(1 - f + epsilon)
            total += yes if observed[i, j] == 1 else -0.1 * (f * yes + (1 - f) * no)
    assert math.isclose(loss_of(prepare(EM(), observed), logits, observed).item(), total / 48, rel_tol=tolerance)


def test_without_entropy_unobserved_labels_do_not_count(prepare, loss_of, random_case):
    logits, observed, _ = random_case(3)
    method = prepare(EM(alpha=0), observed)
    other = torch.where(observed == 1, logits, 2 - 3 * logits)
    assert loss_of(method, logits, observed) == loss_of(method, other, observed)
    assert loss_of(method, logits, observed) > loss_of(prepare(EM(), observed), logits, observed)


def test_pulls_unobserved_labels_towards_one_half(prepare, loss_of):
    """∂(−αH)/∂g = α·g·f·(1−f): nothing at ½, nothing where the network is sure, finite everywhere."""
    logits = torch.tensor([[-200.0, -2.0, 0.0, 1.0, 200.0]], dtype=torch.float64, requires_grad=True)
    loss_of(prepare(EM(alpha=0.5), torch.zeros(1, 5)), logits, torch.zeros(1, 5)).backward()
    f = torch.sigmoid(logits.detach())
    torch.testing.assert_close(logits.grad, 0.5 * logits.detach() * f * (1 - f) / 5)


@pytest.mark.parametrize("alpha", [-0.1, math.nan])
def test_wrong_alpha(alpha, prepare):
    with pytest.raises(ValueError, match=f"alpha must not be negative, that would minimise entropy; got {alpha}"):
        prepare(EM(alpha=alpha), torch.eye(2))
