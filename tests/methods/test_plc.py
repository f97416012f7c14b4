"""PLC: both stages against loops with the queue as a list, their limits, and a training on images."""

import math

import numpy as np
import pytest
import torch

from onepos.methods.base import Batch, TrainView
from onepos.methods.losses import assume_negative
from onepos.methods.plc import PLC, consistency, contrast

N, LABELS, CHANNELS = 16, 5, 8


def ready(method, epoch, seed=0):
    """The method in double precision without dropout, two views of the maps of all rows, and what is observed."""
    generator = torch.Generator().manual_seed(seed)
    weak = 3 * torch.randn(N, CHANNELS, 2, 2, generator=generator, dtype=torch.float64)
    strong = weak + torch.randn(weak.shape, generator=generator, dtype=torch.float64)
    observed = torch.eye(LABELS, dtype=torch.float64)[torch.randint(LABELS, (N,), generator=generator)]
    observed[0], observed[1, :3] = 0, 1  # none and several are fine
    nothing = torch.zeros_like(observed)
    torch.manual_seed(seed)
    method.head = method.make_head(CHANNELS, LABELS)
    method.head.weight.data *= 4  # so that some scores are sure
    method.setup(TrainView(observed, CHANNELS, 10, lambda: nothing, lambda: nothing, lambda: nothing))
    method.head.double().eval()
    method.projector.double()
    method.epoch = epoch
    return method, (weak, strong), observed


def step(method, views, observed, rows):
    """The loss of a batch; what it remembers is written as the loop does."""
    rows = torch.as_tensor(rows)
    result = method.loss([view[rows] for view in views], Batch(views, observed[rows], rows))
    loss, memory = result if isinstance(result, tuple) else (result, {})
    for name, new in memory.items():
        getattr(method, name)[rows] = new.detach()
    return loss.item()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def restated_consistency(strong, sureness, tau):
    losses = []
    for s, g in zip(sureness.ravel(), strong.ravel(), strict=True):
        if s >= tau:
            losses.append(-math.log(sigmoid(g)))
        elif s < 1 - tau:
            losses.append(-math.log(1 - sigmoid(g)))
    return sum(losses) / max(1, len(losses)), len(losses)


def restated_contrast(pairs, temperature):
    """Pairs are (label, weak code, strong code)."""
    codes = [(label, code) for label, *both in pairs for code in both]
    total = 0.0
    for a, (label, anchor) in enumerate(codes):
        weight = {b: math.exp(anchor @ code / temperature) for b, (_, code) in enumerate(codes) if b != a}
        same = [b for b in weight if codes[b][0] == label]
        total -= sum(math.log(weight[b] / sum(weight.values())) for b in same) / len(same)
    return total / max(1, len(codes))


class Restated:
    """The whole method on one batch at a time, its queue a list of (row, label, weak code, strong code)."""

    def __init__(self, method, views, observed):
        self.method, self.views, self.observed, self.queue = method, views, observed, []

    @torch.no_grad()
    def step(self, rows):
        method, stage_2 = self.method, self.method.epoch >= 5
        tau = method.tau if stage_2 else method.tau_first
        weak, strong = (method.head.embed(view[rows]) for view in self.views)
        g, g_strong = (method.head.classify(part).numpy() for part in (weak, strong))
        seen = self.observed.numpy()[rows]
        sureness = sigmoid(g) + seen
        negative_assumed = -np.log(np.where(seen == 1, sigmoid(g), 1 - sigmoid(g))).mean()
        loss = negative_assumed + method.lam_plc * restated_consistency(g_strong, sureness, tau)[0]
        if not stage_2:
            return loss
        new = []
        for i, row in enumerate(rows):
            sure = [j for j in np.argsort(-sureness[i]) if sureness[i, j] >= tau][: method.kept]
            for j in sure:
                both = (method.projector(part[i, j]).numpy() for part in (weak, strong))
                new.append((row, j, *(code / np.linalg.norm(code) for code in both)))
        old = [pair for pair in self.queue if pair[0] not in rows][: max(0, method.queue - len(new))]
        kept = [(row, j, *(np.rint(code * 32767) / 32767 for code in both)) for row, j, *both in new]
        self.queue = sorted(kept, key=lambda pair: pair[0]) + [pair for pair in self.queue if pair[0] not in rows]
        return loss + method.lam_lac * restated_contrast([pair[1:] for pair in new + old], method.temperature)


BATCHES = [[0, 5, 9, 3], [1, 2, 12, 7], [4, 6, 8, 10], [11, 13, 14, 15], [2, 9, 0, 13], [5, 1, 14, 8]]


@pytest.mark.parametrize("seed", range(3))
def test_stage_1_equals_the_loop(seed):
    method, views, observed = ready(PLC(lam_plc=0.7, tau_first=0.7), epoch=4, seed=seed)
    restated = Restated(method, views, observed)
    for rows in BATCHES:
        assert math.isclose(step(method, views, observed, rows), restated.step(rows), rel_tol=1e-9)
    assert (method.written == -1).all(), "nothing is remembered yet"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("queue", [6, 512])
def test_stage_2_equals_the_loop(seed, queue):
    """A queue of 6 ends within what earlier batches left, and is less than some batch brings."""
    parameters = {"lam_plc": 0.7, "lam_lac": 0.3, "tau": 0.6, "temperature": 0.4, "z_dim": 7, "kept": 2}
    method, views, observed = ready(PLC(queue=queue, **parameters), epoch=5, seed=seed)
    restated = Restated(method, views, observed)
    for rows in BATCHES:
        assert math.isclose(step(method, views, observed, rows), restated.step(rows), rel_tol=1e-7)
    assert len(restated.queue) > 12


def test_contrast_by_hand():
    """Two pairs of different labels at right angles: each code has one companion, equal to it, and two others."""
    codes = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    expected = -math.log(math.exp(2) / (math.exp(2) + 2))
    assert math.isclose(contrast(codes, torch.tensor([3, 1]), 0.5).item(), expected, rel_tol=1e-6)
    same_label = contrast(codes, torch.tensor([1, 1]), 0.5).item()
    assert math.isclose(same_label, -(2 - 3 * math.log(math.exp(2) + 2)) / 3, rel_tol=1e-6)


def test_what_does_not_count_is_not_seen_and_nothing_at_all_is_zero():
    codes = torch.nn.functional.normalize(torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0)), dim=-1)
    labels = torch.tensor([2, -1, 0, 2, -1])
    torch.testing.assert_close(contrast(codes, labels, 0.5), contrast(codes[[0, 2, 3]], labels[[0, 2, 3]], 0.5))
    codes.requires_grad_()
    nothing = contrast(codes, torch.full((5,), -1), 0.5)
    nothing.backward()
    assert nothing == 0
    assert (codes.grad == 0).all()


def test_unsure_entries_do_not_count_and_without_sure_ones_it_is_zero():
    logits = torch.tensor([[2.0, -1.0, 0.5]], requires_grad=True)
    loss = consistency(logits, torch.tensor([[0.95, 0.05, 0.5]]), 0.9)
    assert math.isclose(loss.item(), (math.log1p(math.exp(-2)) + math.log1p(math.exp(-1))) / 2, rel_tol=1e-6)
    loss.backward()
    assert logits.grad[0, 2] == 0
    assert consistency(logits, torch.full((1, 3), 0.5), 0.9) == 0


def test_without_its_terms_it_is_assume_negative_on_the_weak_view():
    for epoch in (0, 9):
        method, views, observed = ready(PLC(lam_plc=0.0, lam_lac=0.0), epoch)
        expected = assume_negative(method(views[0]), observed).item()
        assert math.isclose(step(method, views, observed, range(N)), expected, rel_tol=1e-9)


def test_gradients_reach_the_codes_of_this_batch_and_pseudo_labels_have_none():
    method, views, observed = ready(PLC(tau=0.6), epoch=5)
    step(method, views, observed, range(8))
    rows = torch.arange(8, 16)
    weak, strong = (view[rows].clone().requires_grad_() for view in views)
    loss, _ = method.loss([weak, strong], Batch(views, observed[rows], rows))
    loss.backward()
    assert weak.grad.abs().sum() > 0
    assert strong.grad.abs().sum() > 0
    assert method.projector[0].weight.grad.abs().sum() > 0
    assert method.codes.grad is None
    # In stage 1 the weak view is taught by AN alone, however the strong view looks.
    method.epoch, grads = 0, []
    for other in (strong, strong + 1):
        weak.grad = None
        method.loss([weak, other], Batch(views, observed[rows], rows)).backward()
        grads.append(weak.grad)
    assert torch.equal(*grads)


@pytest.mark.parametrize(("warmup", "n_first"), [(None, 5), (2, 2), (0, 0), (12, 10)])
def test_stages(warmup, n_first):
    """Of ten epochs the first half, unless it is said how many."""
    stages = []
    for epoch in range(10):
        method, _, _ = ready(PLC(warmup=warmup), epoch)
        stages.append(method.warming_up)
    assert stages == [True] * n_first + [False] * (10 - n_first)


def test_two_views_of_maps():
    assert PLC.views == 2
    assert PLC.maps
    assert PLC.requires == {"maps", "views"}


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"tau": 0.4}, r"tau must lie between 0\.5 and 1; got 0\.4"),
        ({"tau_first": 1.1}, r"tau_first must lie between 0\.5 and 1; got 1\.1"),
        ({"lam_lac": -1}, "lam_lac must be at least 0; got -1"),
        ({"temperature": 0}, "temperature must be above 0; got 0"),
        ({"queue": 0}, "queue must be at least 1; got 0"),
        ({"warmup": -1}, "warmup must be at least 0; got -1"),
    ],
)
def test_wrong_parameters(parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        ready(PLC(**parameters), epoch=0)


def test_learns_from_images(train_on_images):
    method = PLC(warmup=4, queue=64)
    losses, gain = train_on_images(method, epochs=12)
    assert losses[3] < losses[0]
    assert (
        losses[-1] < 0.95 * losses[5]
    )  # in the first epoch of stage 2 the queue fills, and with it the contrast grows
    assert gain > 0.03
    assert (method.written >= 0).all(), "every row was seen in stage 2"


def test_learns_in_half_precision(train_on_images):
    """As far as in full precision, and what is remembered keeps its types."""
    method = PLC(warmup=4, queue=64)
    losses, gain = train_on_images(method, epochs=12, precision="bf16")
    full, _ = train_on_images(PLC(warmup=4, queue=64), epochs=5)
    assert losses[:5] != full
    np.testing.assert_allclose(losses[:5], full, rtol=0.02)
    assert losses[-1] < 0.95 * losses[5]
    assert gain > 0.03
    assert [method.codes.dtype, method.code_labels.dtype, method.written.dtype] == [torch.int16, *[torch.int64] * 2]
