"""AN-LS by hand, against the double loop of its equation, and its limit."""

import math

import pytest
import torch

from onepos.methods.an_ls import ANLS
from onepos.methods.losses import assume_negative


@pytest.mark.parametrize("smoothing", [0.1, 0.4])
@pytest.mark.parametrize("is_observed", [True, False])
def test_by_hand(smoothing, is_observed, prepare, loss_of):
    """One score is ¾, the others are ½, which cost log 2 with any target."""
    logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]])
    observed = torch.tensor([[float(is_observed), 0.0], [0.0, 1.0]])
    target = 1 - smoothing if is_observed else smoothing
    expected = (3 * math.log(2) + target * math.log(4 / 3) + (1 - target) * math.log(4)) / 4
    method = prepare(ANLS(smoothing=smoothing), observed)
    assert math.isclose(loss_of(method, logits, observed).item(), expected, rel_tol=1e-6)


@pytest.mark.parametrize(("epsilon", "tolerance"), [(0.0, 1e-6), (1e-5, 1e-4)])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_double_loop(seed, epsilon, tolerance, prepare, loss_of, random_case):
    """Without ε, and with the published ε in the logarithms; rows with none and with all positives among them."""
    logits, observed, _ = random_case(seed)
    observed[0], observed[1] = 0, 1
    total, s = 0.0, 0.1
    for i in range(12):
        for j in range(4):
            f = 1 / (1 + math.exp(-logits[i, j].item()))
            yes, no = -math.log(f + epsilon), -math.log(1 - f + epsilon)
            total += (1 - s) * yes + s * no if observed[i, j] == 1 else (1 - s) * no + s * yes
    method = prepare(ANLS(), observed)
    assert math.isclose(loss_of(method, logits, observed).item(), total / 48, rel_tol=tolerance)


def test_no_smoothing_is_assume_negative(prepare, loss_of, random_case):
    logits, observed, _ = random_case(3)
    assert loss_of(prepare(ANLS(smoothing=0), observed), logits, observed) == assume_negative(logits, observed)
    assert loss_of(prepare(ANLS(smoothing=0.1), observed), logits, observed) > assume_negative(logits, observed)


@pytest.mark.parametrize("smoothing", [-0.1, 0.5, math.nan])
def test_wrong_smoothing(smoothing, prepare):
    with pytest.raises(ValueError, match=rf"smoothing must be at least 0 and below 0\.5.*; got {smoothing}"):
        prepare(ANLS(smoothing=smoothing), torch.eye(2))
