"""A method on given logits, so that a formula can be compared with a number; and one on a few images."""

import numpy as np
import pytest
import torch
from torch import nn

from onepos.datasets.scenes import as_images, digit_scenes
from onepos.images import ImageTensors
from onepos.methods.base import Batch, TrainView
from onepos.metrics import average_precision
from onepos.protocol import draw_single_positive
from onepos.training.loop import predict_logits, train
from onepos.training.plan import Plan
from onepos.training.task import Learner, Task


@pytest.fixture
def prepare():
    """prepare(method, observed, …): the method set up on `observed`, its head the identity, in the given epoch."""

    def prepare(
        method, observed, logits=None, *, inputs=None, validation_prior=None, n_epochs=10, epoch=9, known_negative=None
    ):
        logits = torch.zeros_like(observed) if logits is None else logits
        view = TrainView(
            observed=observed,
            n_features=observed.shape[1],
            n_epochs=n_epochs,
            inputs=lambda: logits if inputs is None else inputs,
            features=lambda: logits,
            logits=lambda: logits,
            validation_prior=validation_prior,
            known_negative=known_negative,
        )
        method.head = nn.Identity()
        method.setup(view)
        method.epoch = epoch
        return method

    return prepare


@pytest.fixture
def loss_of():
    """loss_of(method, logits, observed, …): the loss alone, whatever the method remembers."""

    def loss_of(method, logits, observed, index=None, known_negative=None):
        index = torch.arange(len(logits)) if index is None else index
        result = method.loss([logits], Batch((logits,), observed, index, known_negative=known_negative))
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


@pytest.fixture
def train_on_images():
    """train_on_images(method, …): losses by epoch, and by how much it ranks better than label frequencies do."""

    def train_on_images(method, *, epochs=10, lr=0.003, precision="32"):
        scenes = digit_scenes(64)
        images = ImageTensors(as_images(scenes))
        torch.manual_seed(0)
        layers = [nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.Conv2d(16, 32, 2, 2), nn.ReLU()]  # 16 px → 2 × 2 places
        pool = [] if method.maps else [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        learner = Learner(nn.Sequential(*layers, *pool), method)
        plan = Plan(epochs=epochs, batch_size=16, lr=lr, device="cpu", precision=precision)
        history = train(Task(learner, images, draw_single_positive(scenes.Y, 0), 32, plan)).history
        reached = average_precision(scenes.Y, predict_logits(learner, images).numpy())
        return history.loss, reached - average_precision(scenes.Y, np.tile(scenes.Y.mean(0), (64, 1)))

    return train_on_images
