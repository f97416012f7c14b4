"""SMILE: the loss by hand and against a dense whole-graph restatement, its limits, its draw, its memory."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import nn

from onepos import SinglePositiveClassifier
from onepos.methods import smile
from onepos.methods.base import Batch, TrainView
from onepos.methods.losses import assume_negative
from onepos.methods.smile import SMILE
from onepos.training.loop import train
from onepos.training.plan import Plan
from onepos.training.samples import as_samples
from onepos.training.task import TrainingData, make_task


@pytest.fixture
def without_noise(monkeypatch):
    """A Gamma draw gives its mean, so ỹ is the mean of its Beta."""
    monkeypatch.setattr(torch, "_standard_gamma", lambda shape: shape)


@pytest.fixture
def ready(prepare):
    """ready(method, seed): the method in double precision on random rows, and logits, inputs, observed of all rows."""

    def ready(method, seed=0, n=14, d=5, c=4):
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.randn(n, d, generator=generator, dtype=torch.float64)
        inputs[-1] *= 10  # a row that nobody lists
        observed = torch.eye(c, dtype=torch.float64)[torch.randint(0, c, (n,), generator=generator)]
        observed[0], observed[1] = 0, 1  # none and several are fine
        torch.manual_seed(seed)
        method = prepare(method, observed, inputs=inputs).double()
        return method, 2 * torch.randn(n, c, generator=generator, dtype=torch.float64), inputs, observed

    return ready


def loss(method, logits, inputs, observed, rows):
    return method.loss([logits[rows]], Batch((inputs[rows],), observed[rows], torch.as_tensor(rows)))


def restated(method, logits, inputs, observed, rows):
    """Both networks over the whole graph with an n × n matrix, then the rows of the batch, in NumPy."""
    weights = {name: value.detach().numpy() for name, value in method.named_parameters()}
    g, x, seen = logits.numpy()[rows], inputs.numpy(), observed.numpy()[rows]
    n, c = len(x), seen.shape[1]
    distance = ((x[:, None] - x) ** 2).sum(2)
    np.fill_diagonal(distance, np.inf)
    lists = np.zeros((n, n))  # lists[i, j]: i has j as a neighbour
    for i in range(n):
        lists[i, np.argsort(distance[i], kind="stable")[: method.k]] = 1
    edges = lists.T if method.as_published else lists + np.eye(n)  # edges[i, j]: j goes into i
    into, out_of = np.maximum(edges.sum(1), 1), np.maximum(edges.sum(0), 1)
    graph = edges / np.sqrt(into)[:, None] / np.sqrt(out_of)

    def layer(name, value):
        return value @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def mlp(name, value):
        return layer(f"{name}.2", np.maximum(layer(f"{name}.0", value), 0))

    hidden = np.maximum(graph @ x @ weights["convolution_1.weight"].T + weights["convolution_1.bias"], 0)
    mixed = graph @ hidden @ weights["convolution_2.weight"].T + weights["convolution_2.bias"]
    soft = special.expit(layer("soft_logits", mixed))[rows]
    x, adjacent = x[rows], lists[np.ix_(rows, rows)]
    eps = 1e-5 if method.as_published else 0.0

    def cross_entropy(score, target, eps=1e-5):
        return -(target * np.log(score + eps) + (1 - target) * np.log(1 - score + eps))

    target = method.mu * soft + (1 - method.mu) * np.where(seen == 1, 1.0, method.p)
    weight = np.where(seen == 1, 1.0, 1 / (c - 1) if method.bias else method.rate)
    classifier = (weight * cross_entropy(special.expit(g), target, eps)).mean()
    drawn = (soft + 1e-5) / (1 + 2e-5)
    decoded = mlp("decoder", np.concatenate([soft, mlp("encoder", np.concatenate([x, soft], 1))], 1))
    rebuilt = (
        ((decoded - x) ** 2).mean() + cross_entropy(drawn, seen).mean() + ((drawn @ drawn.T - adjacent) ** 2).mean()
    )
    a, b = soft + 1e-6, 1 - soft + 1e-6
    log_gamma = special.gammaln(a) + special.gammaln(b)
    divergence = (a - 1) * special.psi(a) + (b - 1) * special.psi(b) + log_gamma
    if not method.as_published:
        divergence += -2 * log_gamma + special.gammaln(a + b) + (2 - a - b) * special.psi(a + b)
    enhancement = cross_entropy(soft, seen, eps).mean() + method.gamma * rebuilt + method.delta * divergence.mean()
    return classifier + enhancement


def test_by_hand(prepare, without_noise):
    inputs = torch.tensor([[0.0], [1.0], [3.0]])
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [0.0, 0.0]])
    observed = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    method = prepare(SMILE(p=0.2, mu=0.5, rate=0.1, bias=False, gamma=1.0, delta=2.0, k=1), observed, inputs=inputs)
    # 0 and 1 list each other, 2 lists 1: one, two and no rows list them.
    assert method.neighbours.tolist() == [[1], [0], [1]]
    torch.testing.assert_close(method.scale, torch.tensor([2 * 2, 2 * 3, 2 * 1.0]) ** -0.5)
    torch.testing.assert_close(method.smoothed[:, 0], torch.tensor([6**-0.5, 6**-0.5, 3 * 2**-0.5 + 6**-0.5]))
    for parameter in method.parameters():
        nn.init.zeros_(parameter)  # so D = ½, ỹ = ½, x̂ = 0
    log2 = math.log(2)
    # Targets ½·½ + ½·0.2 = 0.35 where nothing was observed, else ½·½ + ½ = 0.75; at f = ½ the target does not matter.
    second_row = -0.35 * math.log(0.75) - 0.65 * math.log(0.25)
    classifier = (2 * log2 + 0.1 * (3 * log2 + second_row)) / 6
    rebuilt = (0 + 1 + 9) / 3 - math.log(0.5 + 1e-5) + (3 * 0.5**2 + 6 * 0.5**2) / 9
    divergence = -2 * math.lgamma(0.5) + 2 * -0.5 * special.psi(0.5) + special.psi(1)
    expected = classifier + log2 + rebuilt + 2 * divergence
    value = loss(method, logits, inputs, observed, [0, 1, 2]).item()
    assert math.isclose(value, expected, rel_tol=1e-5)


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_whole_graph_restated(seed, bias, as_published, ready, without_noise):
    given = {"p": 0.07, "mu": 0.6, "rate": 0.3, "gamma": 0.5, "delta": 0.8, "k": 2 + seed}
    method, *data = ready(SMILE(bias=bias, as_published=as_published, **given), seed)
    listed = method.neighbours.flatten().bincount(minlength=14)
    assert listed[13] == 0
    for rows in (list(range(14)), [13, 3, 11], [7]):
        assert math.isclose(loss(method, *data, rows).item(), restated(method, *data, rows), rel_tol=1e-6)


def test_limits_of_the_classifier(ready):
    """With targets 1 and 0 and even weights it learns as AN; with weight 1/(c−1) as WAN."""
    for parameters in ({"bias": False, "rate": 1.0}, {"bias": True}):
        method, logits, inputs, observed = ready(SMILE(p=0.0, mu=0.0, **parameters))
        logits.requires_grad_()
        (found,) = torch.autograd.grad(loss(method, logits, inputs, observed, list(range(14))), logits)
        weight = 1 if parameters["bias"] is False else torch.where(observed == 1, 1.0, 1 / 3)
        (expected,) = torch.autograd.grad(assume_negative(logits, observed), logits)
        torch.testing.assert_close(found, weight * expected)


def test_the_two_losses_share_no_gradient(ready, without_noise):
    """So one Adam on the sum equals the two of the published code: the target is held fixed."""
    method, logits, inputs, observed = ready(SMILE(mu=0.9))
    gradients = [
        torch.autograd.grad(loss(method, scale * logits, inputs, observed, [0, 5, 9]), list(method.parameters()))
        for scale in (1.0, -3.0)
    ]
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second)
    assert all(gradient.abs().sum() > 0 for gradient in gradients[0])


@pytest.mark.parametrize(("soft", "true", "published"), [(0.5, 0.242, 3.108), (0.1, 6.56, 11.78)])
def test_divergence(soft, true, published):
    shape = torch.tensor([soft, 1 - soft], dtype=torch.float64) + 1e-6
    a, b = shape.tolist()

    def integrand(t):  # density × log density at y = σ(t), where the ends of (0, 1) are tame
        y, rest = special.log_expit([t, -t])
        norm = special.betaln(a, b)
        return math.exp(a * y + b * rest - norm) * ((a - 1) * y + (b - 1) * rest - norm)

    integral, _ = integrate.quad(integrand, -400, 400, points=[0], limit=400)
    found = SMILE()._divergence(shape).item()
    assert math.isclose(found, integral, rel_tol=1e-6)
    assert math.isclose(found, true, rel_tol=2e-3)
    assert math.isclose(SMILE(as_published=True)._divergence(shape).item(), published, rel_tol=1e-3)


@pytest.mark.parametrize("soft", [0.5, 0.2, 0.02])
def test_draws_are_beta_and_carry_its_gradient(soft):
    torch.manual_seed(0)
    soft = torch.full((100_000,), soft, dtype=torch.float64, requires_grad=True)
    drawn = smile._draw_beta(torch.stack([soft, 1 - soft]))
    torch.testing.assert_close(drawn.sum(0), torch.ones_like(soft))
    assert stats.kstest(drawn[0].detach().numpy(), stats.beta(soft[0].item(), 1 - soft[0].item()).cdf).pvalue > 0.01
    for moment, slope in ((drawn[0], 1.0), (drawn[0] ** 2, 0.5 + soft[0].item())):  # E[ỹ] = D, E[ỹ²] = D(1 + D)/2
        (gradient,) = torch.autograd.grad(moment.sum(), soft, retain_graph=True)
        assert abs(gradient.mean().item() - slope) < 0.03


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("logit", [-60.0, 60.0])
def test_certain_soft_labels_stay_finite(logit, as_published, ready):
    method, *data = ready(SMILE(as_published=as_published))
    method.float()
    nn.init.constant_(method.soft_logits.bias, logit)
    value = loss(method, *(part.float() for part in data), list(range(14)))
    assert value.isfinite()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(value, list(method.parameters())))


def test_permuted_labels_permute_all_that_has_labels(ready, without_noise):
    """The law of the contract, with the columns of the weights that read D put in the same order."""
    method, logits, inputs, observed = ready(SMILE(gamma=1.0), d=5)
    order = torch.tensor([2, 0, 3, 1])
    before = loss(method, logits, inputs, observed, list(range(14)))
    with torch.no_grad():
        for part in (method.soft_logits.weight, method.soft_logits.bias):
            part.copy_(part[order].clone())
        reads_code, reads_soft = method.encoder[0].weight, method.decoder[0].weight
        reads_code[:, 5:] = reads_code[:, 5:][:, order].clone()
        reads_soft[:, :4] = reads_soft[:, :4][:, order].clone()
    after = loss(method, logits[:, order], inputs, observed[:, order], list(range(14)))
    torch.testing.assert_close(before, after)


def test_float_parameters_stack(ready, without_noise):
    method, *data = ready(SMILE(bias=False))
    names = ("p", "mu", "rate", "gamma", "delta")
    values = torch.rand(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def with_values(row):
        for name, value in zip(names, row, strict=True):
            setattr(method, name, value)
        return loss(method, *data, [1, 4, 8])

    stacked = torch.func.vmap(with_values)(values)
    torch.testing.assert_close(stacked, torch.stack([with_values(row) for row in values]))


def test_draws_stack(ready):
    method, *data = ready(SMILE())
    many = torch.func.vmap(lambda _: loss(method, *data, [1, 4, 8]), randomness="different")(torch.zeros(3))
    assert many.isfinite().all()
    assert many.unique().numel() == 3


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_fewer_rows_than_neighbours(n, as_published):
    X, y = np.random.default_rng(0).normal(size=(n, 3)), np.eye(2, dtype=np.uint8)[np.arange(n) % 2]
    method = SMILE(as_published=as_published)
    task = make_task(TrainingData(as_samples(X)), y, method, Plan(epochs=2, device="cpu"))
    assert np.isfinite(train(task).history.loss).all()
    assert method.neighbours.shape == (n, n - 1)


def test_what_follows_from_the_data_is_not_saved(ready):
    method, *_ = ready(SMILE(as_published=True))
    assert {"neighbours", "smoothed", "scale", "listed_by", "listed_from"} <= dict(method.named_buffers()).keys()
    assert method.state_dict().keys() == dict(method.named_parameters()).keys()


_FIT = """
import resource, sys
import numpy as np, torch
from onepos import SinglePositiveClassifier
from onepos.methods.smile import SMILE

torch.set_num_threads(1)
def peak(n, d, c):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(n, d)).astype(np.float32), np.eye(c, dtype=np.uint8)[random.integers(0, c, n)]
    SinglePositiveClassifier(SMILE(), epochs=1, batch_size=256, device="cpu", random_state=0).fit(X, y)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
small = peak(300, 60, 8)
print(peak(9000, 60, 8) - small)
"""


def test_memory_stays_below_one_dense_graph():
    """9 000 rows: an n × n matrix in single precision alone would take 324 MB."""
    pytest.importorskip("resource")
    growth = int(subprocess.run([sys.executable, "-c", _FIT], capture_output=True, text=True, check=True).stdout)
    assert growth < 9000 * 9000 * 4


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"p": 1.5}, "p must lie between 0 and 1; got 1.5"),
        ({"mu": -0.1}, "mu must lie between 0 and 1; got -0.1"),
        ({"rate": -1.0}, "rate must not be negative; got -1.0. Use 0 to leave it out"),
        ({"gamma": float("nan")}, "gamma must not be negative; got nan"),
        ({"k": 0}, "k must be at least 1; got 0. The authors use 3"),
    ],
)
def test_wrong_parameters(toy, parameters, sentence):
    X, _, observed = toy
    with pytest.raises(ValueError, match=sentence):
        SinglePositiveClassifier(SMILE(**parameters), epochs=1).fit(X, observed)


def test_graph_of_features_is_the_graph_of_inputs_on_them(ready, prepare, without_noise):
    """Rows stand for what the network makes of images: the images themselves are then never asked for."""
    method, logits, inputs, observed = ready(SMILE())
    torch.manual_seed(0)
    other = SMILE(graph="features")
    other.head = nn.Identity()

    def never():
        raise AssertionError("inputs were asked for")

    other.setup(TrainView(observed, 5, 10, never, lambda: inputs, lambda: logits))
    other.double().load_state_dict(method.state_dict())
    rows = [3, 0, 13, 7]
    images = torch.zeros(len(inputs), 3, 2, 2)
    torch.testing.assert_close(
        loss(other, logits, images, observed, rows), loss(method, logits, inputs, observed, rows)
    )
    assert "rows" not in other.state_dict(), "what follows from the data is not saved"


def test_learns_from_images(train_on_images):
    losses, gain = train_on_images(SMILE(graph="features"), lr=0.01)
    assert losses[-1] < losses[0]
    assert gain > 0.02


def test_images_have_no_graph_of_inputs(train_on_images):
    with pytest.raises(
        ValueError, match=r"its inputs have the shape \(64, 3, 16, 16\)\. For images pass graph='features'"
    ):
        train_on_images(SMILE())
