"""BoostLU: what it makes of the maps, the losses of large loss behind it, and a short training on images."""

import numpy as np
import pytest
import torch
from torch import nn

from onepos import SinglePositiveClassifier
from onepos.methods import METHODS, BoostLU, LargeLoss
from onepos.methods.base import Batch, TrainView
from onepos.methods.losses import assume_negative

VARIANTS = {"boostlu+ll-r": "reject", "boostlu+ll-ct": "correct", "boostlu+ll-cp": "permanent"}


@pytest.fixture
def case():
    """Maps (12, 6, 3, 2) and one observed label of four per row, in double precision."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(12, 6, 3, 2, generator=generator, dtype=torch.float64)
    return maps, torch.eye(4, dtype=torch.float64)[torch.arange(12) % 4]


def ready(method, observed, epoch):
    torch.manual_seed(0)
    method.head = method.make_head(6, 4).double()
    nothing = torch.zeros_like(observed)
    method.setup(TrainView(observed, 6, 10, lambda: nothing, lambda: nothing, lambda: nothing))
    method.epoch = epoch
    return method


def boosted(method, maps):
    """Logits by loops over rows, labels and places."""
    weight, bias = method.head.weight.detach().numpy()[:, :, 0, 0], method.head.bias.detach().numpy()
    logits = np.zeros((len(maps), len(bias)))
    for i, j in np.ndindex(*logits.shape):
        for y, x in np.ndindex(*maps.shape[2:]):
            value = weight[j] @ maps[i, :, y, x].numpy() + bias[j]
            logits[i, j] += value * (method.alpha if value > 0 else 1)
    return torch.tensor(logits / (maps.shape[2] * maps.shape[3]))


@pytest.mark.parametrize("name", VARIANTS)
def test_is_large_loss_on_boosted_maps(name, case, prepare):
    maps, observed = case
    method = ready(METHODS[name](delta_rel=5.0), observed, epoch=3)
    assert method.variant == VARIANTS[name]
    logits = boosted(method, maps)
    plain = prepare(LargeLoss(VARIANTS[name], delta_rel=5.0), observed, epoch=3)
    index = torch.arange(12)
    mine = method.loss([maps], Batch((maps,), observed, index))
    theirs = plain.loss([logits], Batch((logits,), observed, index))
    if name == "boostlu+ll-cp":
        assert torch.equal(mine[1]["labels"], theirs[1]["labels"])
        assert mine[1]["labels"].sum() > 12
        mine, theirs = mine[0], theirs[0]
    torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(method(maps), logits)


def test_without_gain_the_first_epoch_is_assume_negative_on_pooled_features(case):
    maps, observed = case
    method = ready(BoostLU(alpha=1.0), observed, epoch=0)
    pooled = maps.mean((2, 3)) @ method.head.weight[:, :, 0, 0].T + method.head.bias
    torch.testing.assert_close(
        method.loss([maps], Batch((maps,), observed, torch.arange(12))), assume_negative(pooled, observed)
    )


def test_names_carry_the_authors_rates():
    assert {name: METHODS[name]().delta_rel for name in VARIANTS} == dict(zip(VARIANTS, (0.5, 0.2, 0.1), strict=True))
    assert METHODS["boostlu+ll-r"]().alpha == 5


def test_alpha_must_boost(case):
    with pytest.raises(ValueError, match=r"alpha must be at least 1; got 0\.5"):
        ready(BoostLU(alpha=0.5), case[1], epoch=0)


@pytest.mark.parametrize("name", [*VARIANTS, "plc"])
def test_tables_are_refused(name, toy):
    X, _, observed = toy
    with pytest.raises(ValueError, match="needs maps; this data has none"):
        SinglePositiveClassifier(name, epochs=1).fit(X, observed)


def test_learns_from_images(train_on_images):
    losses, gain = train_on_images(METHODS["boostlu+ll-r"](), lr=0.01)
    assert losses[-1] < 0.8 * losses[0]
    assert gain > 0.05


def test_network_of_a_fitted_one_predicts_alone(case):
    """Backbone and head in a row are all that prediction needs."""
    maps, observed = case
    method = ready(BoostLU(), observed, epoch=0)
    torch.testing.assert_close(nn.Sequential(nn.Identity(), method.head)(maps), method(maps))
