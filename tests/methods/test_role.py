"""ROLE by hand, against the double loop of its equation, its gradients, its start and its limit."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from onepos import SinglePositiveClassifier
from onepos.methods.losses import assume_negative
from onepos.methods.role import ROLE


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x)))


def started_at(method, label_logits):
    method.label_logits = nn.Parameter(label_logits)
    return method


def test_by_hand(prepare, loss_of):
    third = math.log(3)
    logits = torch.tensor([[0.0, 0.0], [third, 0.0], [0.0, -third]])
    observed = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    method = started_at(
        prepare(ROLE(cardinality=1.4), observed), torch.tensor([[third, 0.0], [0.0, 0.0], [0.0, third]])
    )
    # f = ½ ½ / ¾ ½ / ½ ¼ (1 per row) and ŷ = ¾ ½ / ½ ½ / ½ ¾ (7/6 per row)
    quarter, half, much = -math.log(1 / 4), -math.log(1 / 2), -math.log(3 / 4)
    positive = (half + much) + (much + half) + (quarter + much)
    mixed = (much + quarter) / 2  # CE(½, ¾) = CE(½, ¼)
    to_labels = half + half + mixed + half + half + (3 * quarter + much) / 4
    to_scores = mixed + half + half + half + half + (much + 3 * quarter) / 4
    expected = (positive + to_labels + to_scores) / 12 + (((1 - 1.4) / 2) ** 2 + ((7 / 6 - 1.4) / 2) ** 2) / 2
    assert math.isclose(loss_of(method, logits, observed).item(), expected, rel_tol=1e-6)


@pytest.mark.parametrize(("epsilon", "tolerance"), [(0.0, 1e-6), (1e-5, 1e-4)])
@pytest.mark.parametrize("cross", ["all", "unobserved"])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_double_loop(seed, cross, epsilon, tolerance, prepare, loss_of, random_case):
    """On a batch in another order than the rows; without ε, and with the published ε in the logarithms."""
    all_logits, all_observed, _ = random_case(seed)
    all_observed[0], all_observed[1] = 0, 1
    theta, index = random_case(seed + 10)[0], torch.tensor([7, 0, 3, 1, 11])
    method = started_at(prepare(ROLE(cardinality=1.3, cross=cross), all_observed), theta)
    logits, observed = all_logits[index], all_observed[index]

    def nl(x):
        return -math.log(x + epsilon)

    total, counts = 0.0, [0.0, 0.0]
    for i, row in enumerate(index.tolist()):
        for j in range(4):
            f, y, seen = sigmoid(logits[i, j]), sigmoid(theta[row, j]), observed[i, j] == 1
            total += 0.5 * (nl(f) + nl(y)) if seen else 0.0
            total += 0.5 * (y * nl(f) + (1 - y) * nl(1 - f)) if cross == "all" or not seen else 0.0
            total += 0.5 * (f * nl(y) + (1 - f) * nl(1 - y))
            counts = [counts[0] + f / 5, counts[1] + y / 5]
    expected = total / 20 + sum(0.5 * ((count - 1.3) / 4) ** 2 for count in counts)
    assert math.isclose(loss_of(method, logits, observed, index).item(), expected, rel_tol=tolerance)


def test_each_side_takes_the_other_as_given(prepare, loss_of, random_case):
    """∂L/∂g = ½[−l·(1−f) + f − ŷ]/Bc + (count − k)/c²·f(1−f)/B, and the same with f and ŷ changed over."""
    logits, observed, _ = random_case(4)
    method = started_at(prepare(ROLE(cardinality=1.3), observed), random_case(5)[0])
    loss_of(method, logits.requires_grad_(), observed).backward()
    seen, f, y = observed.numpy(), sigmoid(logits.detach()), sigmoid(method.label_logits.detach())
    for gradient, mine, other in ((logits.grad, f, y), (method.label_logits.grad, y, f)):
        count = (mine.sum(1).mean() - 1.3) / 16 * mine * (1 - mine) / 12
        np.testing.assert_allclose(gradient, (-seen * (1 - mine) + mine - other) / 96 + count, rtol=1e-9)


def test_sure_labels_make_it_half_of_assume_negative(prepare, loss_of, random_case):
    """Where ŷ is the observed label and k is met, all that moves the network is AN."""
    logits, observed, _ = random_case(6)
    met = torch.sigmoid(logits).sum(1).mean().item()
    method = started_at(prepare(ROLE(cardinality=met, cross="unobserved"), observed), 40 * (2 * observed - 1))
    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(loss_of(method, logits, observed), logits)
    (expected,) = torch.autograd.grad(assume_negative(logits, observed), logits)
    torch.testing.assert_close(gradient, expected / 2)


def test_start(prepare):
    observed = torch.eye(4).repeat(50, 1)
    y = torch.sigmoid(prepare(ROLE(cardinality=2), observed).label_logits.detach())
    torch.testing.assert_close(y[observed == 1], torch.full((200,), 0.995))
    rest = y[observed == 0]
    assert ((rest > 0.4 - 1e-6) & (rest < 0.6 + 1e-6)).all()
    assert rest.min() < 0.42
    assert rest.max() > 0.58


def test_labels_are_learnt_ten_times_as_fast(toy):
    X, _, observed = toy
    assert ROLE(cardinality=2).lr_factor("label_logits") == 10 * ROLE(cardinality=2).lr_factor("head.weight")
    model = SinglePositiveClassifier(ROLE(cardinality=2), epochs=1, batch_size=60, lr=1e-3, random_state=0)
    after_one = model.fit(X, observed).method_.label_logits.detach()
    still = SinglePositiveClassifier(ROLE(cardinality=2), epochs=1, batch_size=60, lr=0.0, random_state=0)
    moved = (after_one - still.fit(X, observed).method_.label_logits.detach()).abs()
    assert math.isclose(moved.median().item(), 1e-2, rel_tol=1e-2), "Adam's first step is the learning rate"


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        (
            {},
            r"ROLE needs cardinality, .*; none was given\. Pass ROLE\(cardinality=…\) or use a",
        ),
        ({"cardinality": 9}, "cardinality must be above 0 and at most the number of labels, 3; got 9"),
        ({"cardinality": 2, "cross": "none"}, "cross must be 'all' or 'unobserved'; got 'none'"),
    ],
)
def test_wrong_parameters(parameters, sentence, prepare):
    assert ROLE.privileged == {"cardinality"}
    with pytest.raises(ValueError, match=sentence):
        prepare(ROLE(**parameters), torch.eye(3))
