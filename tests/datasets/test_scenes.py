import time

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score
from sklearn.preprocessing import StandardScaler

from onepos.datasets import digit_scenes, load_dataset
from onepos.datasets.scenes import GRAIN, LABEL_NAMES, PRIORS, _generate, label_set_distribution


def test_set_distribution_has_exactly_the_stated_priors():
    sets, probability = label_set_distribution()
    assert probability.sum() == pytest.approx(1)
    np.testing.assert_allclose(probability @ sets, PRIORS, atol=1e-12)
    assert sets.sum(axis=1).min() == 1
    assert sets.sum(axis=1).max() == 4
    assert sum(PRIORS) == pytest.approx(2)


def test_shape_labels_and_priors_of_the_default():
    scenes = load_dataset("digit-scenes")
    assert scenes.X.shape == (6000, 256)
    assert scenes.image_shape == (16, 16)
    assert scenes.label_names == LABEL_NAMES
    assert scenes.X.min() >= 0
    assert scenes.X.max() <= 1
    assert scenes.Y.any(axis=1).all()
    np.testing.assert_allclose(scenes.prior, PRIORS, atol=0.025)
    assert {part: len(rows) for part, rows in scenes.splits.items()} == {"train": 4800, "val": 600, "test": 600}


def test_labels_are_correlated():
    scenes = digit_scenes()
    correlation = np.corrcoef(scenes.Y.T)
    assert correlation[1, 4] > 0.1
    assert correlation[1, 8] < -0.1


def _glyphs(scenes, rows):
    """Cut the cells out again and take the grain off; one line of pixel levels per digit."""
    cells = scenes.X[rows].reshape(-1, 2, 8, 2, 8).transpose(0, 1, 3, 2, 4).reshape(len(rows), 4, 64)
    levels = np.floor(cells * 16 + 1e-4).astype(int)
    return levels, cells.max(axis=2) > GRAIN


def test_each_scene_holds_one_picture_per_label():
    scenes = digit_scenes(500, 3)
    _, is_used = _glyphs(scenes, np.arange(500))
    np.testing.assert_array_equal(is_used.sum(axis=1), scenes.Y.sum(axis=1))


def test_pictures_show_the_digits_of_the_labels():
    """With one label per scene, the nearest real digit must be that digit."""
    scenes = digit_scenes(500, 3)
    single = np.flatnonzero(scenes.Y.sum(axis=1) == 1)
    digits = load_digits()
    levels, is_used = _glyphs(scenes, single)
    for row in range(len(single)):
        distance = np.abs(digits.data - levels[row][is_used[row]]).sum(axis=1)
        assert digits.target[distance.argmin()] == scenes.Y[single[row]].argmax()


def test_parts_use_different_handwriting():
    scenes = digit_scenes(2000, 1)
    digits = load_digits().data
    used = {}
    for part, rows in scenes.splits.items():
        levels, is_used = _glyphs(scenes, rows)
        pictures = levels[is_used]
        used[part] = {int(np.abs(digits - picture).sum(axis=1).argmin()) for picture in pictures}
    assert not used["train"] & used["test"]
    assert not used["train"] & used["val"]
    assert not used["val"] & used["test"]


def test_same_seed_same_bits_and_cached():
    first = digit_scenes(300, 5)
    assert digit_scenes(n_samples=300, random_state=5) is first
    _generate.cache_clear()
    again = digit_scenes(300, 5)
    assert again is not first
    np.testing.assert_array_equal(again.X, first.X)
    np.testing.assert_array_equal(again.Y, first.Y)
    assert (digit_scenes(300, 6).X != first.X).any()


def test_global_random_state_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    digit_scenes(50, 99)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_generation_is_fast():
    _generate.cache_clear()
    start = time.process_time()
    digit_scenes()
    assert time.process_time() - start < 1.0


def test_too_few_scenes():
    with pytest.raises(ValueError, match="n_samples must be at least 10; got 9"):
        digit_scenes(9)


def test_full_supervision_learns_it():
    """One hidden layer of 256, ten epochs, standardised features."""
    scenes = digit_scenes()
    train, test = scenes.splits["train"], scenes.splits["test"]
    scale = StandardScaler().fit(scenes.X[train])
    X, Y = torch.tensor(scale.transform(scenes.X)), torch.tensor(scenes.Y, dtype=torch.float32)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
        optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
        for _ in range(10):
            for rows in torch.randperm(len(train)).split(64):
                optimiser.zero_grad()
                torch.nn.functional.binary_cross_entropy_with_logits(net(X[rows]), Y[rows]).backward()
                optimiser.step()
    with torch.no_grad():
        scores = net(X[test.copy()])
    assert average_precision_score(scenes.Y[test], scores) > 0.9
