"""A method on given logits: no network, no loop, so that a formula can be compared with a number."""

import pytest
import torch
from torch import nn

from onepos.method import Batch, TrainView


@pytest.fixture
def prepare():
    """prepare(method, observed, …): the method set up on `observed`, its head the identity, in the given epoch."""

    def prepare(method, observed, logits=None, *, inputs=None, validation_prior=None, n_epochs=10, epoch=9):
        logits = torch.zeros_like(observed) if logits is None else logits
        view = TrainView(
            observed=observed,
            n_features=observed.shape[1],
            n_epochs=n_epochs,
            inputs=lambda: logits if inputs is None else inputs,
            features=lambda: logits,
            logits=lambda: logits,
            validation_prior=validation_prior,
        )
        method.head = nn.Identity()
        method.setup(view)
        method.epoch = epoch
        return method

    return prepare


@pytest.fixture
def loss_of():
    """loss_of(method, logits, observed, index): the loss alone, whatever the method remembers."""

    def loss_of(method, logits, observed, index=None):
        index = torch.arange(len(logits)) if index is None else index
        result = method.loss([logits], Batch((logits,), observed, index))
        return result[0] if isinstance(result, tuple) else result

    return loss_of


@pytest.fixture
def random_case():
    """random_case(seed): logits, observed (one positive per row) and priors in double precision."""

    def random_case(seed, n=12, c=4):
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(n, c, generator=generator, dtype=torch.float64)
        observed = torch.eye(c, dtype=torch.float64)[torch.arange(n) % c][torch.randperm(n, generator=generator)]
        return logits, observed, torch.rand(c, generator=generator).tolist()

    return random_case
