"""ResNets: torchvision's keys, a naive functional network, and stored outputs of torchvision itself."""

from pathlib import Path

import numpy as np
import pytest
import torch
from published_structures import RESNETS, resnet_shapes, seeded_images, seeded_state
from torch import nn
from torch.nn import functional as F

from onepos.images.networks import BACKBONES, load_weights, resnet18, resnet50


@pytest.fixture
def unstarted(monkeypatch):
    """Weights left as the memory has them: drawing a hundred million of them takes seconds."""
    monkeypatch.setattr("onepos.images.networks.initialize_convolutions", lambda network: None)
    monkeypatch.setattr(nn.Conv2d, "reset_parameters", lambda layer: None)


def naive_norm(state, key, x):
    mean, var, scale, shift = (
        state[f"{key}.{name}"].view(1, -1, 1, 1) for name in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / (var + 1e-5).sqrt() * scale + shift


def naive_resnet(state, images, name):
    """Maps straight from the state dict: no modules."""
    depths, bottleneck = RESNETS[name]
    x = F.conv2d(images, state["conv1.weight"], stride=2, padding=3)
    x = F.max_pool2d(naive_norm(state, "bn1", x).clamp(min=0), 3, stride=2, padding=1)
    for stage, depth in enumerate(depths):
        for k in range(depth):
            block, stride = f"layer{stage + 1}.{k}", 2 if k == 0 and stage > 0 else 1
            strides = [1, stride, 1] if bottleneck else [stride, 1]
            out = x
            for j, s in enumerate(strides, start=1):
                weight = state[f"{block}.conv{j}.weight"]
                out = F.conv2d(out, weight, stride=s, padding=weight.shape[-1] // 2)
                out = naive_norm(state, f"{block}.bn{j}", out)
                out = out.clamp(min=0) if j < len(strides) else out
            if f"{block}.downsample.0.weight" in state:
                x = F.conv2d(x, state[f"{block}.downsample.0.weight"], stride=stride)
                x = naive_norm(state, f"{block}.downsample.1", x)
            x = (out + x).clamp(min=0)
    return x


def loaded(name):
    network = BACKBONES[name].make(maps=True).eval()
    state = {key: tensor for key, tensor in seeded_state(name).items() if not key.startswith("fc.")}
    network.load_state_dict(state)
    return network


@pytest.mark.parametrize(
    ("name", "n_keys"), [("resnet18", 122), ("resnet34", 218), ("resnet50", 320), ("resnet101", 626)]
)
@pytest.mark.usefixtures("unstarted")
def test_keys_are_those_of_torchvision(name, n_keys):
    network, expected = BACKBONES[name].make(), resnet_shapes(name)
    assert len(expected) == n_keys
    assert expected["fc.weight"] == (1000, BACKBONES[name].n_features)
    own = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    assert list(own.items()) == list(expected.items())[:-2]  # the classifier comes last
    assert network.unused_keys == tuple(expected)[-2:]


@pytest.mark.usefixtures("unstarted")
def test_round_trip_of_a_file_with_all_320_keys(tmp_path):
    """What torchvision saved comes back out, bit for bit, but for the classifier."""
    state, file = seeded_state("resnet50"), tmp_path / "resnet50.pth"
    torch.save(state, file)
    network = resnet50()
    load_weights(network, file)
    file.unlink()
    again = {**network.state_dict(), "fc.weight": state["fc.weight"], "fc.bias": state["fc.bias"]}
    assert len(state) == 320
    assert again.keys() == state.keys()
    for key, tensor in state.items():
        assert torch.equal(again[key], tensor), key


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
@pytest.mark.usefixtures("unstarted")
@torch.no_grad()
def test_equals_a_naive_network_and_stored_outputs(name):
    """Stored: torchvision 0.28, fc replaced by the identity, with seeded_state(name) on seeded_images()."""
    state, network = seeded_state(name), loaded(name)
    expected = naive_resnet(state, seeded_images(32, 64), name)
    close = {"rtol": 1e-4, "atol": 1e-5 * expected.max().item()}
    maps = network(seeded_images(32, 64))
    assert maps.shape == (2, BACKBONES[name].n_features, 1, 2)
    torch.testing.assert_close(maps, expected, **close)
    network.maps = False
    torch.testing.assert_close(network(seeded_images(32, 64)), expected.flatten(2).mean(2), **close)
    stored = np.load(Path(__file__).parent / "reference_outputs.npz")[name]
    torch.testing.assert_close(network(seeded_images()), torch.from_numpy(stored), **close)


def test_training_uses_and_records_the_statistics_of_the_batch():
    network, images = resnet18().train(), seeded_images(32, 32)
    network(images)
    stem = F.conv2d(images, network.conv1.weight, stride=2, padding=3)
    torch.testing.assert_close(network.bn1.running_mean, 0.1 * stem.mean((0, 2, 3)))
    assert network.bn1.num_batches_tracked == 1


def test_start_is_by_fan_out():
    torch.manual_seed(0)
    network = resnet18()
    assert network.conv1.weight.std().item() == pytest.approx((2 / (49 * 64)) ** 0.5, rel=0.05)
    assert network.layer4[1].conv2.weight.std().item() == pytest.approx((2 / (9 * 512)) ** 0.5, rel=0.01)
    assert (network.bn1.weight == 1).all()
