"""MIME: its bottleneck loss by hand and by a loop, and both of its published pseudo-label rules."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from onepos import SinglePositiveClassifier
from onepos.methods.base import Batch, TrainView
from onepos.methods.heads import GaussianHead
from onepos.methods.losses import assume_negative
from onepos.methods.mime import MIME


def view_of(logits, observed):
    return TrainView(observed, 5, 10, lambda: logits, lambda: logits, lambda: logits)


def with_head(method, n_features, n_labels, seed=0):
    """The method with a random Gaussian head in double precision."""
    torch.manual_seed(seed)
    method.head = method.make_head(n_features, n_labels).double()
    return method


def test_by_hand(prepare):
    """One feature x is its own code with σ = 1; logits x and −x; noise one half."""
    observed = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    method = prepare(MIME(beta=0.3, z_dim=1, samples=4), observed)
    method.head = GaussianHead(1, 2, 1)
    for parameter in method.head.parameters():
        torch.nn.init.zeros_(parameter)
    method.head.weight.data = torch.tensor([[1.0], [-1.0]])
    method.head.encoder.weight.data = torch.tensor([[1.0], [0.0]])
    method.noise.fill_(0.5)
    method.ignored[1, 1] = True
    method.labels[2, 0] = True
    features = torch.tensor([[0.0], [1.0], [2.0]])
    loss = method.loss([features], Batch((features,), observed, torch.arange(3)))
    s = [1 / (1 + math.exp(-x - 0.5)) for x in range(3)]  # σ(logit) of label 0; label 1 has 1 − s
    entropy = -2 * math.log(s[0]) - math.log(s[1]) - math.log(s[2]) - math.log(1 - s[2])  # (1, 1) is ignored
    divergence = 0.5 * (0 + 1 + 4) / 3
    assert math.isclose(loss.item(), entropy / 6 + 0.3 * divergence, rel_tol=1e-6)


def published(features, head, noise, labels, ignored, beta, epsilon):
    """The loss in NumPy, with the codes drawn one by one."""
    encoded = features @ head.encoder.weight.T.numpy() + head.encoder.bias.numpy()
    mean, s = np.split(encoded, 2, axis=1)
    sigma = np.exp(np.clip(s / 2, -6, 6))
    z = np.mean([mean + sigma * draw for draw in noise], axis=0)
    f = 1 / (1 + np.exp(-(z @ head.weight.T.numpy() + head.bias.numpy())))
    total = 0.0
    for i, j in np.ndindex(*f.shape):
        if not ignored[i, j]:
            total -= math.log((f[i, j] if labels[i, j] else 1 - f[i, j]) + epsilon)
    divergence = -0.5 * np.mean(1 + 2 * np.log(sigma) - mean**2 - sigma**2)
    return total / f.size + beta * divergence


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_loop(seed, prepare, random_case):
    _, observed, _ = random_case(seed)
    method = with_head(prepare(MIME(beta=0.2, z_dim=7, samples=6), observed), 5, 4, seed)
    rng = np.random.default_rng(seed)
    method.labels |= torch.tensor(rng.random((12, 4)) < 0.2)
    method.ignored |= torch.tensor(rng.random((12, 4)) < 0.2)
    rows = torch.tensor([3, 9, 0, 7])
    features, noise = torch.tensor(3 * rng.normal(size=(4, 5))), rng.normal(size=(6, 4, 7))
    method.noise = torch.full((12, 7), torch.nan).double()
    method.noise[rows] = torch.tensor(noise.mean(0))  # one draw of N(0, 1/6) stands for the mean of six of N(0, 1)
    with torch.no_grad():
        loss = method.loss([features], Batch((features,), observed[rows], rows)).item()
        given = features.numpy(), method.head, noise, method.labels[rows], method.ignored[rows], 0.2
        assert math.isclose(loss, published(*given, epsilon=0.0), rel_tol=1e-9)
        assert math.isclose(loss, published(*given, epsilon=1e-5), abs_tol=1e-4)
        method.as_published = True
        loss = method.loss([features], Batch((features,), observed[rows], rows)).item()
        assert math.isclose(loss, published(*given, epsilon=1e-5), rel_tol=1e-9)


def test_without_noise_and_divergence_it_is_assume_negative(prepare, random_case):
    _, observed, _ = random_case(1)
    method = with_head(prepare(MIME(beta=0.0, z_dim=7), observed), 5, 4)
    features = torch.linspace(-2, 2, 60, dtype=torch.float64).reshape(12, 5)
    method.noise.zero_()
    loss = method.loss([features], Batch((features,), observed, torch.arange(12)))
    torch.testing.assert_close(loss, assume_negative(method(features), observed))


def test_threshold_rule_adds_for_good_after_the_warm_up(prepare, random_case):
    _, observed, _ = random_case(2)
    method = prepare(MIME(theta=0.5, warmup=3), observed)
    expected = observed.numpy() == 1
    for epoch in range(6):
        logits = torch.randn(12, 4, generator=torch.Generator().manual_seed(epoch))
        logits[epoch] = 0.0  # a score of θ itself
        if epoch + 1 >= 3:
            expected = expected | (1 / (1 + np.exp(-logits.numpy())) > 0.5)
        method.epoch = epoch
        method.end_epoch(view_of(logits, observed))
        np.testing.assert_array_equal(method.labels.numpy(), expected)
        assert not method.ignored.any()
    assert observed.sum() < expected.sum() < 48


def test_as_published_pseudo_labels_come_from_drawn_codes(prepare, random_case):
    """Wide codes make the draw decide: another seed, other labels; without it they would be the same twice."""
    _, observed, _ = random_case(2)
    features = torch.linspace(-2, 2, 60, dtype=torch.float64).reshape(12, 5)
    made = []
    for as_published, seed in ((True, 0), (True, 1), (True, 1), (False, 0), (False, 1)):
        method = with_head(prepare(MIME(theta=0.5, z_dim=7, samples=1, as_published=as_published), observed), 5, 4)
        with torch.no_grad():
            method.head.encoder.bias[7:] += 4  # σ near e²
        view = dataclasses.replace(view_of(method(features).detach(), observed), features=lambda: features)
        torch.manual_seed(seed)
        method.end_epoch(view)
        made.append(method.labels.clone())
    assert not torch.equal(made[0], made[1])
    assert torch.equal(made[1], made[2])
    assert torch.equal(made[3], made[4])


@pytest.mark.parametrize("as_published", [False, True])
def test_published_tabular_prior_rule_alternates(as_published, prepare):
    """One of 8 rows is observed and E = 1/3, so 3 are ignored: always the same, or others every second time."""
    observed = torch.zeros(8, 1, dtype=torch.float64)
    observed[0] = 1
    logits = torch.arange(8.0).double()[:, None]
    method = prepare(MIME(rule="prior", inverse_cardinality=1 / 3, warmup=1, as_published=as_published), observed)
    method._score = lambda train: train.logits()
    ignored = []
    for epoch in range(3):
        method.epoch = epoch
        method.end_epoch(view_of(logits, observed))
        ignored.append(method.ignored[:, 0].nonzero()[:, 0].tolist())
    assert ignored == ([[5, 6, 7], [2, 3, 4], [5, 6, 7]] if as_published else 3 * [[5, 6, 7]])


def test_prior_rule_ignores_anew_after_each_epoch(prepare):
    """Label 0: tied scores, and 33/0.55 is less than 60 in floating point; label 1: not observed; label 2: too few rows
    are left; label 3: 20/0.55 = 36.4."""
    rng = np.random.default_rng(0)
    observed = (torch.tensor(rng.random((150, 4)).argsort(0)) < torch.tensor([33, 0, 120, 20])).double()
    method = prepare(MIME(rule="prior", inverse_cardinality=0.55, warmup=2), observed)
    assert method.privileged
    assert not MIME().privileged
    np.testing.assert_allclose(method.class_prior, [60 / 150, np.nan, 1.0, 20 / 0.55 / 150], rtol=1e-6)
    for epoch in range(4):
        logits = torch.tensor(rng.normal(size=(150, 4)))
        logits[:, 0] = logits[:, 0].round()
        expected = np.zeros((150, 4), dtype=bool)
        for j in range(4 if epoch + 1 >= 2 else 0):
            hidden = [i for i in range(150) if observed[i, j] == 0]
            count = math.floor(int(observed[:, j].sum()) / Fraction(55, 100))
            for i in sorted(hidden, key=lambda i: -logits[i, j].item())[:count]:
                expected[i, j] = True
        method.epoch = epoch
        method.end_epoch(view_of(logits, observed))
        np.testing.assert_array_equal(method.ignored.numpy(), expected)
        assert torch.equal(method.labels.double(), observed)
    assert expected.sum(0).tolist() == [60, 0, 30, 36]


@pytest.mark.parametrize("method", [MIME(theta=0.6), MIME(rule="prior", inverse_cardinality=0.5)], ids=["2024", "2023"])
def test_fits_and_predicts_without_chance(method, toy):
    X, Y, observed = toy
    model = SinglePositiveClassifier(method, epochs=6, early_stopping=False, lr=0.01, random_state=0).fit(X, observed)
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(X))
    assert model.score(X, Y) > 0.8
    assert model.method_.labels.sum() > 60 or model.method_.ignored.any()


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"rule": "both"}, "rule must be 'threshold' or 'prior'; got 'both'"),
        ({"rule": "prior"}, "rule='prior' needs inverse_cardinality, .* got None. Give it, or take rule='threshold'"),
        ({"rule": "prior", "inverse_cardinality": 2.0}, "above 0 and at most 1; got 2.0"),
        ({"samples": 0}, "samples must be at least 1; got 0"),
        ({"z_dim": 0}, "z_dim must be at least 1; got 0"),
        ({"theta": 1.0}, "theta must lie between 0 and 1; got 0.0001 and 1.0"),
        ({"beta": -1.0}, "beta must not be negative and theta must .* got -1.0 and 0.95"),
    ],
)
def test_wrong_parameters(toy, parameters, sentence):
    X, _, observed = toy
    with pytest.raises(ValueError, match=sentence):
        SinglePositiveClassifier(MIME(**parameters), epochs=1).fit(X, observed)


def test_codes_per_label_by_a_loop(monkeypatch):
    """Logit of label j from its own code, drawn for each row and label; the mean of six draws is one of N(0, 1/6)."""
    rng = np.random.default_rng(0)
    maps, draws = torch.tensor(rng.normal(size=(4, 8, 2, 2))), rng.normal(size=(4, 3, 5))
    observed = torch.eye(3, dtype=torch.float64)[[0, 2, 1, 1, 0]]
    torch.manual_seed(0)
    method = MIME(beta=0.2, z_dim=5, samples=6, per_label=True)
    method.head = method.make_head(8, 3).double().eval()
    method.setup(view_of(torch.zeros(5, 3), observed))
    method.labels[1, 0] = method.ignored[3, 0] = True
    rows = torch.tensor([3, 1, 0, 4])
    monkeypatch.setattr(torch, "randn", lambda *size, **_: torch.tensor(draws).reshape(size))
    with torch.no_grad():
        loss = method.loss([maps], Batch((maps,), observed[rows], rows)).item()
        encoded = method.head.encoder(method.head.attention(maps)).numpy()
    weight, bias = method.head.weight.detach().numpy(), method.head.bias.detach().numpy()
    entropy = divergence = 0.0
    for i, j in np.ndindex(4, 3):
        mean, sigma = encoded[i, j, :5], np.exp(np.clip(encoded[i, j, 5:] / 2, -6, 6))
        f = 1 / (1 + math.exp(-(weight[j] @ (mean + sigma * draws[i, j] / math.sqrt(6)) + bias[j])))
        if not method.ignored[rows[i], j]:
            entropy -= math.log(f if method.labels[rows[i], j] else 1 - f)
        divergence -= 0.5 * np.mean(1 + 2 * np.log(sigma) - mean**2 - sigma**2)
    assert math.isclose(loss, entropy / 12 + 0.2 * divergence / 12, rel_tol=1e-9)


def test_codes_per_label_need_maps_and_hold_no_noise(prepare, random_case):
    _, observed, _ = random_case(0)
    method = prepare(MIME(per_label=True), observed)
    assert method.maps
    assert method.requires == {"maps"}
    assert not method.stacking.possible
    assert "noise" not in dict(method.named_buffers())
    assert not MIME().maps
    assert MIME().stacking.possible
    assert not MIME().requires


@pytest.mark.parametrize("per_label", [False, True])
def test_learns_from_images(per_label, train_on_images):
    """On pooled features as on rows, and on maps with a code per label."""
    losses, gain = train_on_images(MIME(z_dim=16, per_label=per_label), epochs=8)
    assert losses[-1] < losses[0]
    assert gain > 0.0
