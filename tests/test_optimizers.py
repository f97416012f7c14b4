"""LeanAdam is torch's fused Adam, bit for bit."""

import copy

import torch
from torch import nn

from onepos.optimizers import LeanAdam


def networks():
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    return first, copy.deepcopy(first)


def groups(net):
    return [
        {"params": [net[0].weight, net[2].weight], "lr": 0.01, "weight_decay": 0.1},
        {"params": [net[0].bias, net[2].bias], "lr": 0.05, "weight_decay": 0.0},
    ]


def steps(net, optimizer, count, freeze=(), seed=0):
    generator = torch.Generator().manual_seed(seed)
    for k in range(count):
        optimizer.zero_grad()
        net(torch.randn(4, 5, generator=generator)).square().mean().backward()
        if k in freeze:
            net[0].weight.grad = None
        optimizer.step()


def equal(first, second):
    return all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_equals_adam():
    ours, theirs = networks()
    steps(ours, LeanAdam(groups(ours), lr=1e-3), 10)
    steps(theirs, torch.optim.Adam(groups(theirs), lr=1e-3, fused=True), 10)
    assert equal(ours, theirs)


def test_a_parameter_without_gradient_waits():
    for freeze in ({0, 1}, {3, 4}):
        ours, theirs = networks()
        steps(ours, LeanAdam(groups(ours), lr=1e-3), 8, freeze)
        steps(theirs, torch.optim.Adam(groups(theirs), lr=1e-3, fused=True), 8, freeze)
        assert equal(ours, theirs)


def test_state_round_trip():
    straight, resumed = networks()
    optimizer = LeanAdam(groups(straight), lr=1e-3)
    steps(straight, optimizer, 3)
    steps(straight, optimizer, 3, seed=1)
    first = LeanAdam(groups(resumed), lr=1e-3)
    steps(resumed, first, 3)
    second = LeanAdam(groups(resumed), lr=1e-3)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    steps(resumed, second, 3, seed=1)
    assert equal(straight, resumed)
