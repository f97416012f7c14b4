"""AN on a case by hand, against the double loop of its equation, and its limit."""

import math

import torch

from onepos.methods import AN


def test_by_hand(prepare, loss_of):
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [0.0, -math.log(3)]])
    observed = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    # f = ½ ½ / ¾ ½ / ½ ¼, and what is right has probability ½ ½ / ¾ ½ / ½ ¼
    expected = -(4 * math.log(1 / 2) + math.log(3 / 4) + math.log(1 / 4)) / 6
    assert math.isclose(loss_of(prepare(AN(), observed), logits, observed).item(), expected, rel_tol=1e-6)


def test_equals_the_double_loop(prepare, loss_of):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    observed = torch.eye(5, dtype=torch.float64)[torch.randint(0, 5, (7,), generator=generator)]
    total = 0.0
    for i in range(7):
        for j in range(5):
            f = 1 / (1 + math.exp(-logits[i, j].item()))
            total -= math.log(f) if observed[i, j] == 1 else math.log(1 - f)
    assert math.isclose(loss_of(prepare(AN(), observed), logits, observed).item(), total / 35, rel_tol=1e-12)
