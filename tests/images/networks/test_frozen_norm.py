"""Batch normalization that stands still."""

import copy

import pytest
import torch
from torch import nn

from onepos.images.networks import freeze_batch_norm


@pytest.fixture
def network():
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, eps=0.1))
    network = nn.Sequential(inner, nn.BatchNorm2d(4, affine=False), nn.ReLU())
    for norm in (inner[1], network[1]):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    nn.init.normal_(inner[1].weight)
    return network


def test_training_equals_evaluation_and_nothing_moves(network):
    x = torch.randn(5, 3, 6, 6)
    expected, before = network.eval()(x), {key: tensor.clone() for key, tensor in network.state_dict().items()}
    freeze_batch_norm(network)
    network.train()
    out = network(x)
    torch.testing.assert_close(out, expected)
    assert [name for name, _ in network.named_parameters()] == ["0.0.weight", "0.0.bias"]
    out.sum().backward()
    assert network[0][0].weight.grad.abs().sum() > 0
    after = network.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[key], before[key]) for key in before)


def test_weights_load_after_freezing(network):
    frozen = copy.deepcopy(network)
    freeze_batch_norm(frozen)
    network[0][1].running_mean.fill_(3)
    frozen.load_state_dict(network.state_dict())
    assert (frozen[0][1].running_mean == 3).all()


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nn.BatchNorm2d(4, track_running_stats=False)])
def test_other_kinds_are_refused(norm):
    with pytest.raises(ValueError, match=r"only nn.BatchNorm2d with running statistics .* Sequential.1 is BatchNorm"):
        freeze_batch_norm(nn.Sequential(nn.Identity(), norm))


def test_without_batch_norm_nothing_happens():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4))
    freeze_batch_norm(network)
    assert isinstance(network[1], nn.GroupNorm)
