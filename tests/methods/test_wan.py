"""WAN by hand, against the double loop of its equation, and its limits."""

import math

import pytest
import torch

from onepos.methods.losses import assume_negative
from onepos.methods.wan import WAN


def test_by_hand(prepare, loss_of):
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [0.0, -math.log(3)]])
    observed = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    # f = ½ ½ / ¾ ½ / ½ ¼, and each row has one unobserved entry, of score ½
    expected = -(math.log(1 / 2) + math.log(3 / 4) + math.log(1 / 4) + 0.3 * 3 * math.log(1 / 2)) / 6
    assert math.isclose(loss_of(prepare(WAN(weight=0.3), observed), logits, observed).item(), expected, rel_tol=1e-6)


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
            total += -math.log(f + epsilon) if observed[i, j] == 1 else -math.log(1 - f + epsilon) / (4 - 1)
    assert math.isclose(loss_of(prepare(WAN(), observed), logits, observed).item(), total / 48, rel_tol=tolerance)


def test_weight_one_is_assume_negative(prepare, loss_of, random_case):
    logits, observed, _ = random_case(3)
    assert loss_of(prepare(WAN(weight=1.0), observed), logits, observed) == assume_negative(logits, observed)
    assert loss_of(prepare(WAN(), observed), logits, observed) < assume_negative(logits, observed)


def test_one_label_divides_by_nothing(prepare, loss_of):
    logits, observed = torch.tensor([[0.3], [-1.0]]), torch.tensor([[1.0], [0.0]])
    assert loss_of(prepare(WAN(), observed), logits, observed) == assume_negative(logits, observed)


@pytest.mark.parametrize("weight", [-1.0, math.nan])
def test_wrong_weight(weight, prepare):
    with pytest.raises(ValueError, match=f"weight must not be negative; got {weight}. Pass None"):
        prepare(WAN(weight=weight), torch.eye(2))
