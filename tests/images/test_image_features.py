import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from onepos.images import ImageFiles, ImageTensors
from onepos.images.features import cache_features
from onepos.images.networks import IMAGENET, UNIT
from onepos.methods import AN
from onepos.training.loop import Learner, Plan, predict_logits, train
from onepos.training.samples import DenseRows


class Counting(nn.Module):
    """Three features of a picture; counts the pictures it sees."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.n_seen = 0

    def forward(self, images):
        self.n_seen += len(images)
        return self.layers(images)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    paths = [tmp_path / "pictures" / f"{k}.png" for k in range(7)]
    paths[0].parent.mkdir()
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    return paths


def by_hand(files, network, size=8, normalisation=IMAGENET):
    samples = ImageFiles(files, size, normalisation=normalisation, workers=0)
    with torch.no_grad():
        return torch.cat([network.eval().layers(samples.rows(torch.tensor([k]))) for k in range(len(files))])


def test_features_are_made_once(files, tmp_path):
    network, done = Counting(), []
    network.train()
    samples = ImageFiles(files, 8, workers=0)
    samples.pass_rows = 3
    first = cache_features(samples, network, tmp_path / "cache", on_batch=done.append)
    assert isinstance(first, DenseRows)
    assert (network.n_seen, done, network.training) == (7, [3, 6, 7], True)
    torch.testing.assert_close(first.data, by_hand(files, network))
    again = cache_features(ImageFiles(files, 8, workers=0), network, tmp_path / "cache")
    assert network.n_seen == 7
    assert torch.equal(first.data, again.data)
    assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == [".json", ".npy"]
    (notes,) = (tmp_path / "cache").glob("*.json")
    assert json.loads(notes.read_text())["normalisation"] == {
        "mean": list(IMAGENET.mean),
        "deviation": list(IMAGENET.deviation),
    }


def test_what_is_written_to_does_not_reach_the_file(files, tmp_path):
    samples, network = ImageFiles(files, 8, workers=0), Counting()
    rows = cache_features(samples, network, tmp_path / "cache")
    kept = rows.data.clone()
    rows.data.zero_()
    assert torch.equal(cache_features(samples, network, tmp_path / "cache").data, kept)


def test_each_thing_that_matters_makes_other_features(files, tmp_path):
    def cached(network=None, size=8, normalisation=IMAGENET, **options):
        network = network or Counting()
        rows = cache_features(
            ImageFiles(files, size, normalisation=normalisation, workers=0), network, tmp_path / "cache", **options
        )
        return network.n_seen, rows.data

    assert cached()[0] == 7
    assert cached()[0] == 0
    for changes in ({"size": 9}, {"normalisation": UNIT}, {"network": Counting(1)}, {"dtype": torch.float16}):
        n_seen, rows = cached(**changes)
        assert n_seen == 7, changes
        expected = by_hand(
            files, changes.get("network", Counting()), changes.get("size", 8), changes.get("normalisation", IMAGENET)
        )
        torch.testing.assert_close(rows, expected, atol=1e-3, rtol=1e-3)
        assert rows.dtype == torch.float32
    Image.new("RGB", (8, 8), "red").save(files[2])
    n_seen, rows = cached()
    assert n_seen == 7
    torch.testing.assert_close(rows, by_hand(files, Counting()))


def test_a_given_hash_stands_for_the_weights(files, tmp_path):
    samples = ImageFiles(files, 8, workers=0)
    first, second, third = Counting(0), Counting(1), Counting(1)
    cache_features(samples, first, tmp_path / "cache", weights_hash="abc")
    cache_features(samples, second, tmp_path / "cache", weights_hash="abc")
    cache_features(samples, third, tmp_path / "cache", weights_hash="def")
    assert (first.n_seen, second.n_seen, third.n_seen) == (7, 0, 7)


def test_half_precision_takes_half_of_the_disk(files, tmp_path):
    samples = ImageFiles(files, 8, workers=0)
    for dtype in (torch.float32, torch.float16):
        cache_features(samples, Counting(), tmp_path / str(dtype), dtype=dtype)
    sizes = [next((tmp_path / str(dtype)).glob("*.npy")).stat().st_size for dtype in (torch.float32, torch.float16)]
    assert sizes[0] - sizes[1] == 7 * 3 * 2
    with pytest.raises(ValueError, match=r"dtype must be torch\.float32 or torch\.float16; got torch\.float64"):
        cache_features(samples, Counting(), tmp_path, dtype=torch.float64)


@pytest.mark.parametrize("step", [1, 2, 3, 7])
def test_broken_pictures_are_zero_and_listed(files, tmp_path, step):
    expected = by_hand(files, Counting())
    for k in (0, 3, 6):
        files[k].write_bytes(b"broken")
        expected[k] = 0
    for _ in range(2):  # also when they come from the disk
        samples = ImageFiles(files, 8, workers=0, on_error="skip")
        samples.pass_rows = step
        torch.testing.assert_close(cache_features(samples, Counting(), tmp_path / "cache").data, expected)
        assert sorted(samples.skipped) == [0, 3, 6]
        assert "0.png" in samples.skipped[0]
    with pytest.raises(ValueError, match=r"row 0: .*0\.png is not: .*Or pass on_error='skip'"):
        cache_features(ImageFiles(files, 8, workers=0), Counting(), tmp_path / "cache")
    with pytest.raises(ValueError, match="some pictures must be readable; all 1 were skipped"):
        cache_features(ImageFiles(files[:1], 8, workers=0, on_error="skip"), Counting(), tmp_path / "cache")


def test_nothing_half_written_is_left(files, tmp_path):
    class Stops(Counting):
        def forward(self, images):
            if self.n_seen:
                raise KeyboardInterrupt
            return super().forward(images)

    samples = ImageFiles(files, 8, workers=0)
    samples.pass_rows = 3
    with pytest.raises(KeyboardInterrupt):
        cache_features(samples, Stops(), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (nn.Conv2d(3, 2, 3), r"one row of features per picture, \(B, d\); it gave \(7, 2, 6, 6\) for 7 pictures"),
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 2), nn.Threshold(1e9, torch.nan)), "the features must be finite"),
    ],
)
def test_wrong_networks_are_refused(files, tmp_path, network, sentence):
    with pytest.raises(ValueError, match=sentence):
        cache_features(ImageFiles(files, 8, workers=0), network, tmp_path / "cache")


def test_a_full_disk_is_known_beforehand(files, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 7 * 3 * 4 - 1}))
    with pytest.raises(OSError, match=r"the features need 0\.0 GiB; .*cache has 0\.0 GiB left\. Give another folder"):
        cache_features(ImageFiles(files, 8, workers=0), Counting(), tmp_path / "cache")


def test_linear_probe(tmp_path):
    """Red or green pictures: a linear head on the features of a random network tells them apart."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 100, (40, 8, 8, 3), dtype=np.uint8)
    colour = np.arange(40) % 2
    pixels[np.arange(40), :, :, colour] += 100
    rows = cache_features(ImageTensors(pixels), Counting(), tmp_path)
    learner = Learner(nn.Identity(), AN())
    observed = np.eye(2, dtype=np.uint8)[colour]
    train(learner, rows, observed, rows.n_features, Plan(epochs=30, batch_size=8, lr=0.05, device="cpu"))
    assert (predict_logits(learner, rows).argmax(1).numpy() == colour).all()
