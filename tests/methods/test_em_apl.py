"""EM-APL: the three branches of its loss by hand and by a loop, its rounds of pseudo-labels, and its published form."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from onepos import SinglePositiveClassifier
from onepos.methods.base import TrainView
from onepos.methods.em import EM
from onepos.methods.em_apl import EMAPL
from onepos.methods.losses import assume_negative


def view_of(logits, observed, n_epochs=10):
    return TrainView(observed, observed.shape[1], n_epochs, lambda: logits, lambda: logits, lambda: logits)


def published(logits, observed, pseudo, alpha, beta, epsilon):
    """The loss as two loops."""
    total = 0.0
    for i, row in enumerate(logits.tolist()):
        for j, logit in enumerate(row):
            f = 1 / (1 + math.exp(-logit))
            t = pseudo[i, j].item()
            present, absent = -math.log(f + epsilon), -math.log(1 - f + epsilon)
            if observed[i, j] == 1:
                total += present
            elif math.isnan(t):
                total -= alpha * (f * present + (1 - f) * absent)
            else:
                total += beta * (t * present + (1 - t) * absent)
    return total / logits.numel()


def test_by_hand(prepare, loss_of):
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [0.0, -math.log(3)]])  # f = ½ ½ / ¾ ½ / ½ ¼
    observed = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    method = prepare(EMAPL(alpha=0.5, beta=0.4), observed)
    method.pseudo[1, 1] = 0.25
    # observed ½, ¾, ¼; unannotated ½ twice, each with entropy log 2; pseudo-labelled ½
    expected = (math.log(2) + math.log(4 / 3) + math.log(4) - 2 * 0.5 * math.log(2) + 0.4 * math.log(2)) / 6
    assert math.isclose(loss_of(method, logits, observed).item(), expected, rel_tol=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("as_published", "epsilon"), [(False, 0.0), (True, 1e-5)])
def test_equals_the_double_loop(seed, as_published, epsilon, prepare, loss_of, random_case):
    logits, observed, _ = random_case(seed)
    method = prepare(EMAPL(alpha=0.3, beta=0.7, as_published=as_published), observed)
    method.pseudo = torch.rand(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    method.pseudo[::2] = torch.nan
    rows = torch.tensor([7, 0, 4, 11, 2])
    arguments = logits[rows], observed[rows], method.pseudo[rows], 0.3, 0.7
    loss = loss_of(method, logits[rows], observed[rows], rows).item()
    assert math.isclose(loss, published(*arguments, epsilon), rel_tol=1e-9)
    assert math.isclose(loss, published(*arguments, 1e-5), abs_tol=1e-4)


def test_without_pseudo_labels_it_is_em(prepare, loss_of, random_case):
    logits, observed, _ = random_case(1)
    em = loss_of(prepare(EM(alpha=0.3), observed), logits, observed)
    torch.testing.assert_close(loss_of(prepare(EMAPL(alpha=0.3), observed), logits, observed), em)


def test_with_all_negatives_named_for_certain_it_is_assume_negative(prepare, loss_of, random_case):
    logits, observed, _ = random_case(2)
    method = prepare(EMAPL(beta=1.0), observed)
    method.pseudo = torch.zeros_like(method.pseudo)
    torch.testing.assert_close(loss_of(method, logits, observed), assume_negative(logits, observed))


def test_gradient_is_finite_where_there_is_no_pseudo_label(prepare, loss_of, random_case):
    logits, observed, _ = random_case(3)
    logits = (100 * logits).requires_grad_()
    loss_of(prepare(EMAPL(), observed), logits, observed).backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("as_published", [False, True])
def test_rounds_equal_a_loop_over_labels(as_published, prepare):
    """Label 0: tied scores; label 1: nobody observed it; the rows of some have two positives or none."""
    rng = np.random.default_rng(0)
    observed = torch.tensor(rng.random((53, 3)) < [0.3, 0, 0.4]).double()
    method = prepare(EMAPL(warmup=2, proportion=0.9, as_published=as_published), observed, n_epochs=8)
    expected = np.full((53, 3), np.nan)
    for epoch in range(8):
        logits = torch.tensor(rng.normal(size=(53, 3)))
        logits[:, 0] = logits[:, 0].round()
        logits[:5, 2] = -1000.0  # a score of exactly 0
        scores = torch.sigmoid(logits).float().numpy()
        for j in range(3 if 2 <= epoch + 1 < 8 else 0):
            hidden = [i for i in range(53) if observed[i, j] == 0]
            quota = math.floor(Fraction(9, 10) * len(hidden) / (8 - 2))
            left = sorted((i for i in hidden if np.isnan(expected[i, j])), key=lambda i: scores[i, j])
            for i in left[:quota]:
                if scores[i, j] > 0 or not as_published:
                    expected[i, j] = scores[i, j]
        method.epoch = epoch
        method.end_epoch(view_of(logits, observed, 8))
        np.testing.assert_array_equal(method.pseudo.numpy(), expected.astype(np.float32))
    assert np.isnan(expected[observed == 1]).all()


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize(("warmup", "n_named"), [(0, 4 * 18), (1, 4 * 22), (2, 3 * 30)])
def test_rounds_divide_by_the_epochs_after_the_warm_up(warmup, n_named, as_published, prepare):
    """T = 5, 100 rows, proportion 0.9. Warm-up 0 and 1: rounds after epochs 1 to 4; warm-up 2: after 2 to 4."""
    observed = torch.zeros(100, 1)
    method = prepare(EMAPL(warmup=warmup, proportion=0.9, as_published=as_published), observed, n_epochs=5)
    for epoch in range(5):
        method.epoch = epoch
        method.end_epoch(view_of(torch.linspace(-2, 2, 100)[:, None], observed, 5))
    assert method.pseudo.isfinite().sum() == n_named


def test_a_quota_that_is_a_whole_number_is_exact(prepare):
    observed = torch.zeros(90, 1)  # in floating point 0.7·90 is less than 63
    method = prepare(EMAPL(warmup=1, proportion=0.7), observed, n_epochs=2, epoch=0)
    method.end_epoch(view_of(torch.zeros(90, 1), observed, 2))
    assert method.pseudo.isfinite().sum() == 63


@pytest.mark.parametrize(
    ("as_published", "batch_size", "found"), [(True, 60, False), (True, 32, True), (False, 60, True)]
)
def test_published_code_finds_nothing_in_a_single_batch(as_published, batch_size, found, toy):
    X, _, observed = toy
    options = {"epochs": 5, "early_stopping": False, "batch_size": batch_size, "random_state": 0}
    model = SinglePositiveClassifier(EMAPL(as_published=as_published), **options)
    assert bool(model.fit(X, observed).method_.pseudo.isfinite().any()) == found


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"warmup": 4}, "warmup must be at least 0 and less than the 4 epochs .* got 4. Lower warmup or train longer"),
        ({"warmup": -1}, "warmup must be at least 0"),
        ({"proportion": 1.5}, "proportion must lie between 0 and 1; got 1.5"),
        ({"alpha": -0.1}, "alpha and beta must not be negative; got -0.1 and 0.2"),
        ({"beta": math.nan}, "alpha and beta must not be negative; got 0.1 and nan"),
    ],
)
def test_wrong_parameters(toy, parameters, sentence):
    X, _, observed = toy
    with pytest.raises(ValueError, match=sentence):
        SinglePositiveClassifier(EMAPL(**parameters), epochs=4).fit(X, observed)
