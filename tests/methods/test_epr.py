"""EPR by hand, against the double loop of its equation, its limits, and what it must be told."""

import math

import pytest
import torch

from onepos.methods.em import EM
from onepos.methods.epr import EPR


def test_by_hand(prepare, loss_of):
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [0.0, -math.log(3)]])
    observed = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    # f = ½ ½ / ¾ ½ / ½ ¼: row sums 1, 5/4, 3/4, on average 1
    expected = -(math.log(1 / 2) + math.log(3 / 4) + math.log(1 / 4)) / 6 + ((1 - 1.4) / 2) ** 2
    assert math.isclose(
        loss_of(prepare(EPR(cardinality=1.4), observed), logits, observed).item(), expected, rel_tol=1e-6
    )


@pytest.mark.parametrize(("epsilon", "tolerance"), [(0.0, 1e-6), (1e-5, 1e-4)])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_double_loop(seed, epsilon, tolerance, prepare, loss_of, random_case):
    """Without ε, and with the published ε in the logarithm; rows with none and with all positives among them."""
    logits, observed, _ = random_case(seed)
    observed[0], observed[1] = 0, 1
    total = count = 0.0
    for i in range(12):
        for j in range(4):
            f = 1 / (1 + math.exp(-logits[i, j].item()))
            total -= math.log(f + epsilon) if observed[i, j] == 1 else 0.0
            count += f / 12
    expected = total / 48 + ((count - 2.9) / 4) ** 2
    assert math.isclose(
        loss_of(prepare(EPR(cardinality=2.9), observed), logits, observed).item(), expected, rel_tol=tolerance
    )


def test_a_right_count_leaves_the_positives_alone(prepare, loss_of, random_case):
    """With k met there is no penalty: EM without entropy. With nothing observed the penalty is all there is."""
    logits, observed, _ = random_case(3)
    met = torch.sigmoid(logits).sum(1).mean().item()
    torch.testing.assert_close(
        loss_of(prepare(EPR(cardinality=met), observed), logits, observed),
        loss_of(prepare(EM(alpha=0), observed), logits, observed),
    )
    assert math.isclose(
        loss_of(prepare(EPR(cardinality=met + 1), observed), logits, 0 * observed).item(), 1 / 16, rel_tol=1e-9
    )


def test_cardinality_is_privileged_and_needed(prepare):
    assert EPR.privileged == {"cardinality"}
    with pytest.raises(
        ValueError, match=r"EPR needs cardinality, .*; none was given\. Pass EPR\(cardinality=…\) or use a"
    ):
        prepare(EPR(), torch.eye(3))


@pytest.mark.parametrize("cardinality", [0, 3.5, math.nan])
def test_wrong_cardinality(cardinality, prepare):
    with pytest.raises(ValueError, match=f"cardinality must be above 0 and at most .* labels, 3; got {cardinality}"):
        prepare(EPR(cardinality=cardinality), torch.eye(3))
