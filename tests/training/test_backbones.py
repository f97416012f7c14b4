"""Networks by name, and modules of the user's own."""

import pytest
import torch
from torch import nn

from onepos.training.backbones import make_backbone, n_outputs


@pytest.mark.parametrize(
    ("network", "hidden", "width", "n_parameters"),
    [
        ("linear", (), 9, 0),
        ("mlp", (6, 4), 4, 9 * 6 + 6 + 6 * 4 + 4),
        ("mlp", (), 9, 0),
        ("bottleneck", (99,), 3, 9 * 3 + 3),
    ],
)
def test_named_networks(network, hidden, width, n_parameters):
    backbone = make_backbone(network, 9, 3, hidden)
    assert n_outputs(backbone, 9) == width
    assert sum(p.numel() for p in backbone.parameters()) == n_parameters


def test_own_module_is_copied():
    mine = nn.Sequential(nn.Linear(9, 5), nn.Dropout(0.5), nn.Tanh())
    backbone = make_backbone(mine, 9, 3)
    assert n_outputs(backbone, 9) == 5
    assert backbone.training
    with torch.no_grad():
        backbone[0].weight.zero_()
    assert mine[0].weight.abs().sum() > 0


def test_unknown_network():
    with pytest.raises(ValueError, match=r"unknown network 'mpl'; did you mean 'mlp'\?"):
        make_backbone("mpl", 9, 3)
    with pytest.raises(ValueError, match="choose from linear, mlp, bottleneck"):
        make_backbone("zzz", 9, 3)


def test_output_must_be_a_matrix():
    with pytest.raises(ValueError, match=r"network must map \(rows, 9\) to \(rows, width\); it gave shape \(2, 3, 3\)"):
        n_outputs(nn.Unflatten(1, (3, 3)), 9)
