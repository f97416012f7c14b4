"""LeanAdam is torch's fused Adam, bit for bit."""

import copy

import torch
from torch import nn

from onepos.training.optimizers import LeanAdam


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


def test_kernels_in_channels_last():
    """Gradients, moments and weights lie alike, so the fused kernel may walk over them; the update is plain Adam's."""
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 1), nn.Conv2d(5, 6, 3, groups=1))
    plain = copy.deepcopy(ours)
    ours.to(memory_format=torch.channels_last)
    lean = LeanAdam([{"params": list(ours.parameters()), "lr": 0.01, "weight_decay": 0.1}], lr=0.01)
    adam = torch.optim.Adam(plain.parameters(), lr=0.01, weight_decay=0.1, foreach=False)
    for seed in range(4):
        rows = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        for net, optimizer in ((ours, lean), (plain, adam)):
            optimizer.zero_grad()
            net(rows.contiguous(memory_format=torch.channels_last)).square().mean().backward()
            optimizer.step()
    for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


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
