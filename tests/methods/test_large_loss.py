"""LL-R, LL-Ct, LL-Cp: the largest losses by hand and by a loop, the number k, and what LL-Cp remembers."""

import math

import pytest
import torch

from onepos import SinglePositiveClassifier
from onepos.methods.base import Batch
from onepos.methods.large_loss import LargeLoss
from onepos.methods.losses import assume_negative

VARIANTS = ["reject", "correct", "permanent"]


def published(logits, labels, k, variant, touch_observed=False):
    """The loss, and the labels LL-Cp writes by the rules ≥ and >, as loops over sorted losses."""
    n, c = logits.shape
    entries = [(i, j) for i in range(n) for j in range(c)]
    score = {(i, j): 1 / (1 + math.exp(-logits[i, j].item())) for i, j in entries}
    minus = {e: -math.log(score[e] if labels[e] == 1 else 1 - score[e]) for e in entries}
    plus = {e: -math.log(1 - score[e] if labels[e] == 1 else score[e]) for e in entries}
    u = {e: 0.0 if labels[e] == 1 else minus[e] for e in entries}
    threshold = sorted(u.values(), reverse=True)[k - 1]
    large = {e for e in entries if u[e] >= threshold and (touch_observed or labels[e] == 0)}
    total = sum((0.0 if variant == "reject" else plus[e]) if e in large else minus[e] for e in entries)
    weak, strict = labels.clone(), labels.clone()
    for e in large:
        weak[e] = 1
        strict[e] = 1 if u[e] > threshold else labels[e]
    return total / (n * c), weak, strict


@pytest.mark.parametrize(("variant", "of_the_largest"), [("reject", 0.0), ("correct", -math.log(3 / 4))])
def test_by_hand(variant, of_the_largest, prepare, loss_of):
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [math.log(3), -math.log(3)]])  # f = ½ ½ / ¾ ½ / ¾ ¼
    observed = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    method = prepare(LargeLoss(variant, delta_rel=1.0), observed, epoch=1)  # k = ⌈6·0.01⌉ = 1: entry (2, 0)
    expected = (3 * math.log(2) + math.log(4 / 3) + math.log(4) + of_the_largest) / 6
    assert math.isclose(loss_of(method, logits, observed).item(), expected, rel_tol=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_the_loop(seed, as_published, variant, prepare, loss_of, random_case):
    logits, observed, _ = random_case(seed)
    logits = logits.round(decimals=1)  # ties
    # Epoch 4: 48 entries, 5 % per epoch, so 20 % or, for a working LL-Cp, 5 %.
    method = prepare(LargeLoss(variant, delta_rel=5.0, as_published=as_published), observed, epoch=4)
    k = 3 if variant == "permanent" and not as_published else 10
    expected, _, _ = published(logits, observed, k, variant)
    assert math.isclose(loss_of(method, logits, observed).item(), expected, rel_tol=1e-9)


@pytest.mark.parametrize(("n_labels", "expected"), [
    (5, [0, 1, 1, 1, 1, 1, 1, 2, 2, 2]),  # Image
    (6, [0, 1, 1, 1, 1, 1, 2, 2, 2, 2]),  # Scene
    (14, [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]),  # Yeast
    (374, [0, 12, 24, 36, 48, 60, 72, 84, 96, 108]),  # Corel5k
    (983, [0, 32, 63, 95, 126, 158, 189, 221, 252, 284]),  # Delicious
])  # fmt: skip
def test_number_of_rejected_entries_per_epoch(n_labels, expected, prepare, loss_of):
    """What is rejected gets no gradient. Batches of 16 rows, Δ = 0.2 %."""
    observed = torch.eye(n_labels, dtype=torch.float64)[torch.arange(16) % n_labels]
    logits = torch.randn(16, n_labels, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    counts = []
    for epoch in range(10):
        method = prepare(LargeLoss(delta_rel=0.2), observed, epoch=epoch)
        given = logits.clone().requires_grad_()
        loss_of(method, given, observed).backward()
        counts.append(int((given.grad == 0).sum()))
    assert counts == expected


@pytest.mark.parametrize(
    ("delta_rel", "epoch", "exact", "published"),
    [(0.2, 1, 2, 3), (5.0, 2, 100, 101), (0.3, 3, 9, 10), (5.0, 3, 150, 151)],
)
@pytest.mark.parametrize("as_published", [False, True])
def test_a_whole_number_of_entries_is_exact(delta_rel, epoch, exact, published, as_published, prepare, loss_of):
    """Of 1000 entries. In floating point 1000·3·0.003 is above 9, and 1 − 0.002 and 1 − 0.05 − 0.05 are inexact."""
    logits = torch.linspace(-3, 3, 1000, dtype=torch.float64).reshape(100, 10).requires_grad_()
    observed = torch.zeros(100, 10, dtype=torch.float64)
    method = prepare(LargeLoss(delta_rel=delta_rel, as_published=as_published), observed, epoch=epoch)
    loss_of(method, logits, observed).backward()
    assert (logits.grad == 0).sum() == (published if as_published else exact)


@pytest.mark.parametrize("as_published", [False, True])
def test_no_more_than_everything_is_rejected(as_published, prepare, loss_of, random_case):
    logits, observed, _ = random_case(7)
    method = prepare(LargeLoss(delta_rel=60, as_published=as_published), observed, epoch=9)
    expected, _, _ = published(logits, observed, 48, "reject", touch_observed=as_published)
    assert math.isclose(loss_of(method, logits, observed).item(), expected, rel_tol=1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("as_published", [False, True])
def test_first_epoch_and_zero_delta_are_assume_negative(variant, as_published, prepare, loss_of, random_case):
    logits, observed, _ = random_case(3)
    for delta_rel, epoch in [(5.0, 0), (0, 7)]:
        method = prepare(LargeLoss(variant, delta_rel, as_published=as_published), observed, epoch=epoch)
        torch.testing.assert_close(loss_of(method, logits, observed), assume_negative(logits, observed))


@pytest.mark.parametrize("strict", [False, True])
def test_permanent_writes_what_it_flips(strict, prepare, random_case):
    """Two steps on the same rows: the second starts from the labels of the first."""
    logits, observed, _ = random_case(4)
    method = prepare(LargeLoss("permanent", delta_rel=10.0, strict=strict), observed, epoch=1)
    rows, labels = torch.tensor([5, 1, 8, 0]), observed.clone()
    for _ in range(2):
        loss, memory = method.loss([logits[rows]], Batch((logits[rows],), observed[rows], rows))
        expected, *written = published(logits[rows], labels[rows], 2, "permanent")  # k = ⌈16·0.1⌉
        assert math.isclose(loss.item(), expected, rel_tol=1e-9)
        labels[rows] = written[strict]
        method.labels[rows] = memory["labels"]
        assert torch.equal(method.labels.double(), labels)
    assert labels.sum() == 12 + (2 if strict else 4)


def test_published_permanent_is_correct(prepare, loss_of, random_case):
    logits, observed, _ = random_case(5)
    permanent = prepare(LargeLoss("permanent", 5.0, as_published=True), observed, epoch=6)
    correct = prepare(LargeLoss("correct", 5.0, as_published=True), observed, epoch=6)
    assert not dict(permanent.named_buffers())
    assert loss_of(permanent, logits, observed) == loss_of(correct, logits, observed)


@pytest.mark.parametrize("as_published", [False, True])
def test_observed_positives_are_safe_where_too_few_others_are_left(as_published, prepare, loss_of, random_case):
    """Half of the 48 entries are to be corrected and 9 are unobserved: R = 0, and the published rule flips all."""
    logits, observed, _ = random_case(6)
    observed = torch.ones_like(observed)
    observed[:3, :3] = 0
    method = prepare(LargeLoss("correct", delta_rel=50, as_published=as_published), observed, epoch=1)
    expected, _, _ = published(logits, observed, 24, "correct", touch_observed=as_published)
    assert math.isclose(loss_of(method, logits, observed).item(), expected, rel_tol=1e-9)
    if not as_published:
        assert loss_of(method, logits, observed) == assume_negative(logits, torch.ones_like(observed))


def test_labels_grow_in_training_and_never_shrink(toy):
    X, _, observed = toy
    sizes = []
    method = LargeLoss("permanent", 1.0)
    model = SinglePositiveClassifier(method, epochs=5, early_stopping=False, batch_size=20, random_state=0)
    for epochs in (1, 3, 5):
        labels = model.set_params(epochs=epochs).fit(X, observed).method_.labels.numpy()
        assert (labels >= observed).all()
        sizes.append(int(labels.sum()) - 60)
    # k = ⌈80·0.01⌉ = 1 for each of three batches, from the second epoch on
    assert sizes == [0, 6, 12]


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"variant": "LL-R"}, "variant must be 'reject', 'correct' or 'permanent'; got 'LL-R'"),
        ({"delta_rel": -0.1}, "delta_rel must lie between 0 and 100, in percent; got -0.1"),
        ({"delta_rel": math.nan}, "delta_rel must lie between 0 and 100, in percent; got nan"),
    ],
)
def test_wrong_parameters(toy, parameters, sentence):
    X, _, observed = toy
    with pytest.raises(ValueError, match=sentence):
        SinglePositiveClassifier(LargeLoss(**parameters), epochs=1).fit(X, observed)
