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
        ("wide", (6, 4), 9 + 4, 9 * 6 + 6 + 6 * 4 + 4),
        ("bottleneck", (99,), 3, 9 * 3 + 3),
    ],
)
def test_named_networks(network, hidden, width, n_parameters):
    backbone = make_backbone(network, 9, 3, hidden)
    assert n_outputs(backbone, torch.zeros(2, 9)) == width
    assert sum(p.numel() for p in backbone.parameters()) == n_parameters


def test_wide_has_the_rows_beside_the_layers():
    backbone, rows = make_backbone("wide", 9, 3, (6,)), torch.randn(5, 9)
    features = backbone(rows)
    assert torch.equal(features[:, :9], rows)
    layer = next(module for module in backbone.modules() if isinstance(module, nn.Linear))
    torch.testing.assert_close(features[:, 9:], torch.relu(rows @ layer.weight.T + layer.bias))


def test_own_module_is_copied():
    mine = nn.Sequential(nn.Linear(9, 5), nn.Dropout(0.5), nn.Tanh())
    backbone = make_backbone(mine, 9, 3)
    assert n_outputs(backbone, torch.zeros(2, 9)) == 5
    assert backbone.training
    with torch.no_grad():
        backbone[0].weight.zero_()
    assert mine[0].weight.abs().sum() > 0


def test_unknown_network():
    with pytest.raises(ValueError, match=r"unknown network 'mpl'; did you mean 'mlp'\?"):
        make_backbone("mpl", 9, 3)
    with pytest.raises(ValueError, match="choose from linear, mlp, wide, bottleneck"):
        make_backbone("zzz", 9, 3)


def test_output_must_be_a_matrix():
    with pytest.raises(ValueError, match=r"network must map \(B, 9\) to \(B, width\); it gave shape \(2, 3, 3\)"):
        n_outputs(nn.Unflatten(1, (3, 3)), torch.zeros(2, 9))


def test_maps_are_wanted():
    maps = nn.Conv2d(3, 5, 1)
    assert n_outputs(maps, torch.zeros(2, 3, 4, 4), maps=True) == 5
    with pytest.raises(ValueError, match=r"to \(B, width\); it gave shape \(2, 5, 4, 4\) .*pooled and flat"):
        n_outputs(maps, torch.zeros(2, 3, 4, 4))
    with pytest.raises(ValueError, match=r"to \(B, width, h, w\); it gave shape \(2, 48\) .*before pooling"):
        n_outputs(nn.Flatten(), torch.zeros(2, 3, 4, 4), maps=True)
