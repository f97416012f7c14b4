"""The bracket estimator against plain loops, its laws, and its refusals."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from onepos.priors import estimate_priors
from onepos.protocol import draw_single_positive


def random_case(seed=0, n=120, c=6):
    """Any probabilities and any observed labels; the last label is never observed."""
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(c, 0.5), n), rng.integers(0, c - 1, n)


def world(seed=0, n=3000, c=8):
    """Full labels that the features determine: the observed label is noise, P(γ = j | x) = y_j/|y|."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, c)) < np.linspace(0.6, 0.05, c)).astype(np.uint8)
    Y = Y[Y.any(1)]
    return Y, draw_single_positive(Y, seed), Y / Y.sum(1, keepdims=True)


def naive(scores, label):
    """The formulas of the module's docstring, label by label and row by row, before clipping."""
    n, c = scores.shape
    count = [sum(int(g == j) for g in label) for j in range(c)]
    peak = [max(row) for row in scores]
    best = estimate_priors(scores, label).prior
    lower = sum(sum((s / m) ** 3 for s in row) for row, m in zip(scores, peak, strict=True)) / n
    upper = max(lower, 1 / sum((k / n) ** 2 / b for k, b in zip(count, best, strict=True) if k > 0))
    anchor = 1 / (sum(peak) / n)
    mean_size = sum(1 / m for m in peak) / n
    mean = sum(count) / c
    noise = min(1, mean / (sum((k - mean) ** 2 for k in count) / c))
    proportion = []
    for j in range(c):
        rows = [i for i in range(n) if label[i] == j]
        weight = (sum(1 / peak[i] / mean_size for i in rows) + 5) / (len(rows) + 5)
        calm = (1 - noise) * count[j] + noise * mean
        proportion.append(weight * (calm if count[j] else min(calm, 0.5)))
    scale = upper**0.6 * lower**0.4
    return np.array([scale * p / sum(proportion) for p in proportion]), math.log(max(upper, anchor) / lower)


@pytest.mark.parametrize("seed", range(5))
def test_equals_the_formulas(seed):
    scores, label = random_case(seed, n=300)
    estimate = estimate_priors(scores, label, estimator="bracket")
    expected, _ = naive(scores, label)
    np.testing.assert_allclose(estimate.prior[:-1], expected[:-1], rtol=1e-6)
    assert np.isnan(estimate.prior[-1]), "nobody observed it"
    np.testing.assert_allclose(estimate.cardinality, expected.sum(), rtol=1e-6)


def test_finds_the_truth_where_labels_are_certain():
    """Then as many labels tie as the row has."""
    Y, observed, scores = world()
    truth = Y.mean(0)
    estimate = estimate_priors(scores, observed, estimator="bracket")
    assert np.abs(estimate.prior - truth).sum() / truth.sum() < 0.1
    np.testing.assert_allclose(estimate.cardinality, truth.sum(), rtol=1e-6)
    assert estimate.warning == ""


def test_reweighting_repairs_the_proportions():
    """A label that comes with many others is drawn too seldom."""
    rng = np.random.default_rng(0)
    lonely = rng.random(4000) < 0.5
    Y = np.zeros((4000, 5), np.uint8)
    Y[lonely, 0] = 1
    Y[~lonely, 1:] = 1
    observed, scores = draw_single_positive(Y, 0), Y / Y.sum(1, keepdims=True)
    kappa = Y.sum(1).mean()
    assert abs(observed[:, 0].mean() - 0.5) < 0.02, "observed in half of the rows, as often as the other four together"
    prior = estimate_priors(scores, observed, estimator="bracket", cardinality=kappa).prior
    np.testing.assert_allclose(prior, 0.5, atol=0.07)


@pytest.mark.parametrize("kappa", [1.0, 2.5, 5.0])
def test_a_given_cardinality_is_kept(kappa):
    scores, label = random_case()
    estimate = estimate_priors(scores, label, estimator="bracket", cardinality=kappa)
    np.testing.assert_allclose(estimate.cardinality, kappa, rtol=1e-6)
    assert kappa - kappa / len(label) <= np.nansum(estimate.prior) <= kappa + 1e-6, (
        "the rest is the label nobody observed"
    )
    assert estimate.cardinality_interval == (kappa, kappa)
    share = np.bincount(label, minlength=6)[:-1] / len(label)
    assert (estimate.prior[:-1] >= share - 1e-9).all()
    assert (estimate.prior[:-1] <= 1).all()


def test_intervals_cover_and_tighten():
    """Certain labels, rare ones among them: 90 % intervals hold at least eight times in ten; knowing κ narrows them."""
    inside, width = [], []
    for seed in range(10):
        Y, observed, scores = world(seed, n=400)
        truth = Y.mean(0)
        for options in ({}, {"cardinality": truth.sum()}):
            estimate = estimate_priors(scores, observed, estimator="bracket", **options)
            inside += [(estimate.lower <= truth) & (truth <= estimate.upper)]
            width += [np.log(estimate.upper / estimate.lower).mean()]
            assert (estimate.lower <= estimate.prior).all()
            assert (estimate.prior <= estimate.upper).all()
    assert np.mean(inside) >= 0.8
    assert all(known < unknown for unknown, known in zip(width[::2], width[1::2], strict=True))


def sure_and_spread(n=2000, c=8):
    """Half of the rows are sure of one label, the others spread over all, of which one stands out."""
    rng = np.random.default_rng(0)
    scores = np.zeros((n, c))
    for i in range(n):
        weights = [1.0] if i % 2 else [0.3, *[0.1] * 7]
        scores[i, rng.permutation(c)[: len(weights)]] = weights
    return scores, np.array([rng.choice(c, p=row) for row in scores])


def test_the_interval_reaches_what_rows_of_one_and_more_by_chance_would_have():
    """E|y| of |y| = 1 + Poisson(λ) whose harmonic mean, by a sum over |y|, is the row anchor."""
    scores, label = sure_and_spread()
    estimate = estimate_priors(scores, label, estimator="bracket")
    low, high = estimate.cardinality_interval

    def harmonic_mean(rate):
        return 1 / sum(math.exp(-rate) * rate**k / math.factorial(k) / (k + 1) for k in range(40))

    assert math.isclose(harmonic_mean(high - 1), 1 / scores.max(1).mean(), rel_tol=1e-6)
    width = 0.12 + 0.28 * naive(scores, label)[1]
    alone = estimate.cardinality * math.exp(1.6449 * width)
    assert high > 1.05 * alone
    assert math.isclose(low, max(1, estimate.cardinality**2 / alone), rel_tol=1e-3)
    share = np.bincount(label, minlength=8)
    spread = np.exp(1.6449 * np.sqrt(width**2 + 0.25**2 + 1 / share))
    np.testing.assert_allclose(estimate.upper, estimate.prior * spread * high / alone, rtol=1e-3)


@pytest.mark.parametrize("known", [{"cardinality": 1.2}, {"labelled": np.eye(8)[:5]}])
def test_more_knowledge_shortens_the_reach(known):
    scores, label = sure_and_spread()
    reach = estimate_priors(scores, label, estimator="bracket").cardinality_interval[1]
    assert estimate_priors(scores, label, estimator="bracket", **known).cardinality_interval[1] < 0.9 * reach


def test_certain_labels_leave_nothing_to_reach():
    """1/mean m = 1: rows of one label each."""
    estimate = estimate_priors(np.eye(4)[np.arange(200) % 4], np.arange(200) % 4, estimator="bracket")
    assert estimate.cardinality_interval[0] == 1
    assert estimate.cardinality_interval[1] < 1.3


def test_levels_nest():
    scores, label = random_case()
    found = [estimate_priors(scores, label, estimator="bracket", level=level) for level in (0.5, 0.9, 0.99)]
    for narrow, wide in pairwise(found):
        np.testing.assert_array_equal(narrow.prior, wide.prior)
        assert (wide.lower[:-1] <= narrow.lower[:-1]).all()
        assert (wide.upper[:-1] >= narrow.upper[:-1]).all()


def test_a_classifier_without_a_clue_brings_the_warning():
    Y = (np.random.default_rng(0).random((3000, 60)) < 0.6 / np.arange(1, 61) ** 0.6).astype(np.uint8)
    Y = Y[Y.any(1)]
    observed = draw_single_positive(Y, 0)
    scores = np.tile(observed.mean(0), (len(Y), 1))
    blind = estimate_priors(scores, observed, estimator="bracket")
    low, high = blind.cardinality_interval
    assert f"may lie anywhere from {low:.2g} to {high:.2g}, and all class priors scale with it" in blind.warning
    assert "pass it as cardinality: in Python to estimate_priors" in blind.warning
    assert "onepos priors --cardinality" in blind.warning
    assert not blind.reliable.any()
    assert low < Y.sum(1).mean() < high
    assert estimate_priors(scores, observed, estimator="bracket", cardinality=5).warning == ""
    known = estimate_priors(scores, observed, estimator="bracket", labelled=Y[:50])
    assert known.warning == ""
    assert abs(known.cardinality / Y.sum(1).mean() - 1) < 0.15


def test_labelled_rows_weigh_as_the_formula_says():
    scores, label = random_case(n=300)
    complete = (np.random.default_rng(1).random((40, 6)) < 0.5).astype(np.uint8)
    plain = estimate_priors(scores, label, estimator="bracket")
    known = estimate_priors(scores, label, estimator="bracket", labelled=complete)

    error = 0.12 + 0.28 * naive(scores, label)[1]
    size = complete.sum(1)
    precision, of_rows = error**-2, 40 * size.mean() ** 2 / size.var(ddof=1)
    kappa = (precision + of_rows) / (precision / plain.cardinality + of_rows / size.mean())
    scaled = plain.prior * kappa / plain.cardinality
    assert kappa > 2
    strength = 1 / (0.25**2 + 1 / np.maximum(plain.n_positive, 1))
    expected = (strength + complete.sum(0)) / (strength / scaled + 40)
    # Never observed in 300 rows, in half of 40: the draw would have shown a label in every 300/κ-th of the rows.
    expected[-1], strength[-1] = (0.5 + complete[:, -1].sum()) / (300 / kappa + 40), 0.5
    assert np.isnan(plain.prior[-1])
    np.testing.assert_allclose(known.prior, expected * kappa / expected.sum(), rtol=1e-6)
    n_effective = 1 / (1 / (precision + of_rows) + 1 / (strength + complete.sum(0)))
    np.testing.assert_allclose(known.n_effective, n_effective, rtol=1e-6)


def test_labelled_rows_move_no_label_below_its_observed_share():
    """Where rows have one label each, the priors are the observed shares, and a few rows say little about them."""
    rng = np.random.default_rng(0)
    label = np.sort(rng.integers(0, 6, 3000))
    scores = np.full((3000, 6), 0.01)
    scores[np.arange(3000), label] = 0.95
    complete = np.eye(6, dtype=np.uint8)[rng.choice(6, 50, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.1])]
    known = estimate_priors(scores, np.eye(6, dtype=np.uint8)[label], estimator="bracket", labelled=complete)
    share = np.bincount(label, minlength=6) / 3000
    assert (known.prior >= share - 1e-9).all()
    assert np.abs(known.prior / share - 1).max() < 0.1


def test_a_label_that_nobody_has_stays_unknown():
    scores, label = random_case()
    complete = np.tile([1, 0, 1, 0, 0, 0], (20, 1))
    estimate = estimate_priors(scores, label, estimator="bracket", labelled=complete)
    assert np.isnan([estimate.prior[-1], estimate.lower[-1], estimate.upper[-1]]).all()
    assert not np.isnan(estimate.prior[:-1]).any()


def test_rows_without_a_label_do_not_count():
    """Every other row unlabelled at random: the priors stay about the same."""
    _, observed, scores = world()
    half = observed.copy()
    half[::2] = 0
    whole, part = (estimate_priors(scores, each, estimator="bracket").prior for each in (observed, half))
    np.testing.assert_allclose(part, whole, rtol=0.25)


def test_several_observed_labels_of_a_row_share_it():
    """With a cardinality of 1 the priors are at least, so exactly, the shares of the rows."""
    scores, label = random_case(n=4000)
    observed = np.eye(6, dtype=np.uint8)[label]
    observed[:300, 0] = 1
    both = (observed.sum(1) == 2).sum()
    estimate = estimate_priors(scores, observed, estimator="bracket", cardinality=1.0)
    share = np.bincount(label, minlength=6)[0] + 0.5 * both
    np.testing.assert_allclose(estimate.prior[0], share / len(label), rtol=1e-6)


def test_tensors_are_taken():
    scores, label = random_case()
    scores = scores.astype(np.float32)
    ours = estimate_priors(scores, label, estimator="bracket")
    theirs = estimate_priors(torch.tensor(scores), torch.tensor(label), estimator="bracket")
    np.testing.assert_array_equal(ours.prior, theirs.prior)


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        (lambda s: 2 * s, {}, "needs probabilities of the observed label, in rows that sum to 1; row 0 sums to 2"),
        (lambda s: s - s[:, :1] * [2, -2, 0, 0, 0, 0], {}, "its smallest entry is -"),
        (lambda s: s, {"cardinality": 0.5}, "cardinality must lie between 1 and .* 5; got 0.5"),
        (lambda s: s, {"cardinality": 5.5}, "cardinality must lie between 1 and .* 5; got 5.5"),
        (lambda s: s, {"labelled": np.ones((20, 5))}, r"labelled must hold at least 2 rows with 6 labels.*\(20, 5\)"),
        (lambda s: s, {"labelled": np.full((20, 6), 2)}, "labelled must hold only 0 and 1; row 0, column 0 holds 2"),
        (lambda s: s, {"level": 1.0}, "level must lie strictly between 0 and 1; got 1.0"),
        (lambda s: s, {"estimator": "braket"}, "unknown estimator 'braket'; did you mean 'bracket'"),
        (lambda s: s, {"estimator": "anchor"}, "unknown estimator 'anchor'; choose from bbe, bracket"),
        *(
            (lambda s: s, {"estimator": "bbe", name: value}, f"{name} must be left out with estimator='bbe'.*'bracket'")
            for name, value in {"cardinality": 2, "labelled": np.ones((20, 6)), "level": 0.9}.items()
        ),
        *(
            (lambda s: s, {name: 0.01}, f"{name} must be left out with estimator='bracket', .* pass estimator='bbe'")
            for name in ("delta", "tau")
        ),
    ],
)
def test_bad_input_gets_a_sentence(change, options, sentence):
    scores, label = random_case()
    with pytest.raises(ValueError, match=sentence):
        estimate_priors(change(scores), label, **{"estimator": "bracket", **options})


def test_nothing_observed_gets_a_sentence():
    with pytest.raises(ValueError, match="observed must hold at least one positive label; it holds none"):
        estimate_priors(random_case()[0], np.full(120, -1), estimator="bracket")
