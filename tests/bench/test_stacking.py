"""The purity rule pays: runs of one method, stacked by torch.func, give the losses and gradients of each alone."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from onepos.methods import METHODS
from onepos.protocol import draw_single_positive
from onepos.training.loop import train
from onepos.training.plan import Plan
from onepos.training.samples import as_samples
from onepos.training.task import Learner, Task

pytestmark = pytest.mark.usefixtures("short_cross_fit")


def make(name):
    method = METHODS[name]()
    return method.set_params(cardinality=1.9) if "cardinality" in method.privileged else method


def three_runs(name, toy):
    """Three runs with their own draws, seeds and networks, and a batch of each."""
    X, Y, _ = toy
    learners, batches = [], []
    for seed in range(3):
        observed = draw_single_positive(Y, seed)
        torch.manual_seed(seed)
        learner = Learner(nn.Sequential(nn.Linear(8, 6), nn.ReLU()), make(name))
        plan = Plan(epochs=4, batch_size=16, lr=0.01, device="cpu", seed=seed)
        train(Task(learner, as_samples(X), observed, 6, plan))
        index = torch.as_tensor(np.random.default_rng(seed).permutation(60)[:16])
        rows = torch.tensor(X, dtype=torch.float32)[index]
        learners.append(learner)
        batches.append((rows, torch.tensor(observed, dtype=torch.float32)[index], index))
    return learners, batches


@pytest.mark.parametrize("epoch", [0, 5])
@pytest.mark.parametrize(
    "name", [name for name in METHODS if METHODS[name]().stacking.possible and not METHODS[name]().requires]
)
def test_stacked_equals_one_by_one(name, epoch, toy):
    learners, batches = three_runs(name, toy)
    for learner in learners:
        learner.method.epoch = epoch
    parameters, buffers = stack_module_state(learners)
    skeleton = learners[0]

    def loss(parameters, buffers, rows, observed, index):
        value, _ = functional_call(skeleton, (parameters, buffers), ((rows,), observed, index))
        return value

    stacked = [torch.stack(part) for part in zip(*batches, strict=True)]
    gradients, losses = vmap(grad_and_value(loss))(parameters, buffers, *stacked)

    assert losses.unique().numel() == 3, "three different runs"
    for k, (learner, (rows, observed, index)) in enumerate(zip(learners, batches, strict=True)):
        learner.zero_grad()
        alone, _ = learner((rows,), observed, index)
        alone.backward()
        torch.testing.assert_close(losses[k], alone.detach())
        for key, parameter in learner.named_parameters():
            torch.testing.assert_close(gradients[key][k], parameter.grad)


def test_float_parameters_stack_too(toy):
    """A float parameter is used in arithmetic only, so three values of λ are three runs of one stack."""
    learners, batches = three_runs("crisp", toy)
    skeleton, (rows, observed, index) = learners[0], batches[0]
    skeleton.method.epoch = 5

    def loss(lam):
        skeleton.method.lam = lam
        return skeleton((rows,), observed, index)[0]

    lams = torch.tensor([0.1, 0.5, 2.0])
    stacked = vmap(loss)(lams)
    for lam, value in zip(lams.tolist(), stacked, strict=True):
        torch.testing.assert_close(loss(lam), value)
