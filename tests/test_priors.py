"""estimate_priors against the exhaustive search of the paper, its laws, and its doors."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.stats import beta

from onepos.priors import best_bin, estimate_priors, match_thresholds
from onepos.priors.best_bin import _count_torch


def exhaustive(scores, observed, delta=0.01, tau=0.01):
    """Eq. (2) taken literally: every score of every label is tried as a threshold; π̂, q̂ and q̂ᵖ, (3, c)."""
    n, c = scores.shape
    found = np.full((3, c), np.nan)
    for j in range(c):
        positive = scores[observed[:, j] == 1, j]
        if len(positive) == 0:
            continue
        slack = math.sqrt(math.log(4 / delta) / (2 * n)) + math.sqrt(math.log(4 / delta) / (2 * len(positive)))
        best = math.inf
        for z in sorted(set(scores[:, j]), reverse=True):
            q, q_pos = np.mean(scores[:, j] >= z), np.mean(positive >= z)
            if q_pos == 0:
                continue
            bound = q / q_pos + (1 + tau) / q_pos * slack
            if bound < best:
                best, found[:, j] = bound, (q / q_pos, q, q_pos)
    return found


def random_case(seed):
    rng = np.random.default_rng(seed)
    n, c = int(rng.integers(2, 120)), int(rng.integers(1, 7))
    scores = rng.random((n, c))
    if seed % 2:
        scores = np.round(scores * int(rng.integers(1, 8))) / 8  # many ties
    observed = np.zeros((n, c), np.uint8)
    observed[np.arange(n), rng.integers(0, c, n)] = 1
    if seed % 3 == 0:
        observed[:, rng.integers(0, c)] = 0  # a label nobody observed
    delta, tau = [(0.01, 0.01), (0.1, 0.0), (0.5, 1.0)][seed % 3]
    return scores, observed, delta, tau


@pytest.mark.parametrize("seed", range(200))
def test_equals_exhaustive_search(seed):
    scores, observed, delta, tau = random_case(seed)
    ours = estimate_priors(scores, observed, delta=delta, tau=tau)
    np.testing.assert_allclose(ours.prior, exhaustive(scores, observed, delta, tau)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_torch_gives_the_same_bits(seed):
    scores, observed, delta, tau = random_case(seed)
    scores = scores.astype(np.float32)
    ours = estimate_priors(scores, observed, delta=delta, tau=tau)
    theirs = estimate_priors(torch.as_tensor(scores), torch.as_tensor(observed), delta=delta, tau=tau)
    labels, rows = np.nonzero(observed.T)
    # The path of an accelerator, run on the CPU: it must count what the NumPy path counts.
    counted = _count_torch(torch.as_tensor(scores), rows, labels)
    expected = [(scores[:, j] >= scores[i, j]).sum() for i, j in zip(rows, labels, strict=True)]
    assert counted.tolist() == expected
    for field in ("prior", "lower", "upper", "n_positive", "reliable", "n_effective", "threshold"):
        np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_gives_the_same_bits():
    for seed in range(20):
        scores, observed, delta, tau = random_case(seed)
        scores = scores.astype(np.float32)
        ours = estimate_priors(scores, observed, delta=delta, tau=tau)
        theirs = estimate_priors(torch.as_tensor(scores).cuda(), torch.as_tensor(observed).cuda(), delta=delta, tau=tau)
        np.testing.assert_array_equal(ours.prior, theirs.prior)


@pytest.mark.parametrize("seed", range(10))
def test_invariant_under_increasing_transforms_and_bounded(seed):
    scores, observed, delta, tau = random_case(seed)
    first = estimate_priors(scores, observed, delta=delta, tau=tau)
    second = estimate_priors(np.exp(3 * scores) - 7, observed, delta=delta, tau=tau)
    np.testing.assert_array_equal(first.prior, second.prior)
    known = first.n_positive > 0
    share = first.n_positive / len(scores)
    assert np.isnan(first.prior[~known]).all()
    assert np.isnan(first.upper[~known]).all()
    assert not first.reliable[~known].any()
    for values in (first.prior, first.lower, first.upper):
        assert (values[known] >= share[known] - 1e-15).all()
        assert (values[known] <= 1).all()
    assert (first.lower[known] <= first.prior[known]).all()
    assert (first.prior[known] <= first.upper[known]).all()


def test_perfect_classifier_recovers_the_prior():
    rng = np.random.default_rng(1)
    truth = rng.random((20_000, 3)) < [0.5, 0.2, 0.05]
    scores = truth + 0.01 * rng.random(truth.shape)
    observed = truth & (rng.random(truth.shape) < 0.4)  # positives seen at random, several per row are fine
    estimate = estimate_priors(scores, observed.astype(np.uint8))
    np.testing.assert_allclose(estimate.prior, truth.mean(0), atol=0.012)
    assert (estimate.lower <= truth.mean(0)).all()
    assert (estimate.upper >= truth.mean(0)).all()
    assert estimate.reliable.all()


def test_interval_and_reliability_by_their_formulas():
    """Rows enough that neither end is cut off; labels from many to few positives, with δ = 0.1."""
    rng = np.random.default_rng(2)
    share = np.array([0.5, 0.3, 0.2, 0.1, 0.02, 0.008])
    truth = rng.random((4000, 6)) < share
    scores = np.where(truth, rng.normal(1.5, 1, truth.shape), rng.normal(0, 1, truth.shape)).round(1)
    observed = truth & (rng.random(truth.shape) < 0.4)
    estimate = estimate_priors(scores, observed.astype(np.uint8), delta=0.1)
    _, q, q_pos = exhaustive(scores, observed, delta=0.1)
    n_positive, needed = observed.sum(0), 2 * math.log(40)
    eps, eps_pos = math.sqrt(math.log(40) / 8000), np.sqrt(math.log(40) / 2 / n_positive)
    inside = [0, 1, 2, 3]
    np.testing.assert_allclose(estimate.lower[inside], ((q - eps) / (q_pos + eps_pos))[inside], rtol=1e-12)
    np.testing.assert_allclose(estimate.upper[inside], ((q + eps) / (q_pos - eps_pos))[inside], rtol=1e-12)
    assert (estimate.lower[inside] > n_positive[inside] / 4000).all()
    assert (estimate.upper[inside] < 1).all()
    assert estimate.reliable.tolist() == (n_positive * q_pos**2 >= needed).tolist()
    assert 0 < estimate.reliable.sum() < 6


def test_reliability_takes_the_square_of_the_share_in_the_bin():
    """20 observed positives, 11 of them above all other rows: 20·0.55 = 11 is enough for δ = 0.03, 20·0.55² is not."""
    scores = np.r_[np.full(11, 2.0), np.zeros(100_000)][:, None]
    observed = np.zeros_like(scores, np.uint8)
    observed[:20] = 1
    estimate = estimate_priors(scores, observed, delta=0.03)
    assert estimate.n_effective[0] == 11
    assert 20 * 0.55**2 < 2 * math.log(4 / 0.03) < 20 * 0.55
    assert not estimate.reliable[0]


@pytest.mark.parametrize("sign", [1, -1], ids=["lower end", "upper end"])
def test_interval_holds_up_to_the_deviations_it_allows(sign):
    """q = 0.2 and qᵖ = 0.8, so π = 0.25. A sample with both off by just less than ε, in opposite directions."""
    n, n_positive, delta = 10_000, 1000, 0.1
    eps, eps_pos = (math.sqrt(math.log(4 / delta) / 2 / m) for m in (n, n_positive))
    in_bin, positive_in_bin = round(n * (0.2 + sign * eps) - sign), round(n_positive * (0.8 - sign * eps_pos) + sign)
    scores, observed = np.zeros((n, 1)), np.zeros((n, 1), np.uint8)
    scores[:in_bin] = 1
    observed[:positive_in_bin] = observed[in_bin : in_bin + n_positive - positive_in_bin] = 1
    estimate = estimate_priors(scores, observed, delta=delta)
    assert estimate.n_effective[0] == positive_in_bin
    assert estimate.lower[0] <= 0.25 <= estimate.upper[0]
    assert abs((estimate.lower if sign > 0 else estimate.upper)[0] - 0.25) < 0.002, "no wider than it must be"


def test_upper_end_holds_for_useless_scores():
    rng = np.random.default_rng(3)
    truth = rng.random(2000) < 0.3
    observed = (truth & (rng.random(2000) < 0.3)).astype(np.uint8)
    estimate = estimate_priors(rng.random((2000, 1)), observed[:, None])
    assert estimate.prior[0] > 0.6, "random scores say little, so the estimate is far too high"
    assert estimate.upper[0] >= 0.3


def exhaustive_beta(scores, observed, delta):
    """bound="beta" from its definition, one label and one threshold at a time; a dict per observed label."""
    n, found = len(scores), {}
    for j in np.flatnonzero(observed.any(0)):
        positive = scores[observed[:, j] == 1, j]
        n_positive, best = len(positive), math.inf
        for z in sorted(set(scores[:, j]), reverse=True):
            rows, k = int((scores[:, j] >= z).sum()), int((positive >= z).sum())
            if k == 0:
                continue
            most = 1 if rows == n else beta(rows + 1, n - rows).isf(delta / 4 / n)
            least = beta(k, n_positive - k + 1).ppf(delta / 4 / n_positive)
            if most / least < best * (1 - 1e-12):
                best = most / least
                low = beta(rows, n - rows + 1).ppf(delta / 4 / n)
                high = 1 if k == n_positive else beta(k + 1, n_positive - k).isf(delta / 4 / n_positive)
                found[int(j)] = {
                    "prior": rows / n / (k / n_positive),
                    "lower": max(low / high, n_positive / n),
                    "upper": min(best, 1),
                    "reliable": least >= k / n_positive / 2,
                    "n_effective": k,
                    "threshold": positive[positive >= z].min(),
                }
    return found


@pytest.mark.parametrize("seed", range(60))
def test_beta_equals_its_definition(seed):
    """Odd seeds have ties, every third a label that nobody observed."""
    scores, observed, delta, _ = random_case(seed)
    if seed % 4 < 2:  # a label that stands out, so that `lower` and `upper` are not all cut off
        scores[:, 0] += 2 * observed[:, 0]
    ours = estimate_priors(scores, observed, bound="beta", delta=delta)
    expected = exhaustive_beta(scores, observed, delta)
    for j in range(scores.shape[1]):
        for field in ("prior", "lower", "upper", "reliable", "n_effective", "threshold"):
            nobody = False if field == "reliable" else math.nan
            value = expected[j][field] if j in expected else nobody
            np.testing.assert_allclose(getattr(ours, field)[j], value, rtol=1e-9, err_msg=field)


@pytest.mark.parametrize("n_positive", [5, 10, 30])
def test_beta_covers_with_few_positives(n_positive):
    """`upper` misses π = 0.5 with probability at most δ/4 where q̂ = q; bounds for single thresholds miss too often.

    The rows are scored evenly, so that q̂ = q. The upper half are the positives: q/qᵖ = π in each of their bins, and the
    least of n_j bounds is `upper`. The labels are 1500 draws of n_j observed positives; scores do not depend on them.
    """
    rng, n, draws, delta = np.random.default_rng(0), 5000, 1500, 0.5
    scores = np.repeat(np.arange(n, 0, -1, dtype=np.float32)[:, None], draws, axis=1)
    observed = np.zeros((n, draws), np.uint8)
    observed[np.argsort(rng.random((draws, n // 2)), axis=1)[:, :n_positive].T, np.arange(draws)] = 1
    estimate = estimate_priors(scores, observed, bound="beta", delta=delta)
    missed = np.mean(estimate.upper < 0.5)
    assert 0 < missed <= delta / 4
    assert np.mean(estimate.lower > 0.5) <= delta / 4
    assert (estimate.prior <= estimate.upper).all()


@pytest.mark.parametrize("tied", [False, True], ids=["continuous", "tied"])
@pytest.mark.parametrize("total", [5, 10, 30])
def test_beta_bounds_hold_at_all_thresholds_at_once(total, tied):
    """Both bounds of P(score ≥ z) over all z, for scores from (0, 1) and from {1, 2, 3, 4}."""
    rng, delta = np.random.default_rng(total), 0.8
    if tied:
        draws, z = rng.integers(1, 5, (20_000, total, 1)), np.arange(1, 5)
        count, share = (draws >= z).sum(1), (5 - z) / 4
        reached = count > 0
        low = np.where(reached, best_bin._lowest_share(np.maximum(count, 1), total, delta), 0)
        high = best_bin._highest_share(count, total, delta)
    else:
        share = 1 - np.sort(rng.random((20_000, total)))[:, ::-1]  # of the k-th highest
        k = np.arange(1, total + 1)
        low = best_bin._lowest_share(k, total, delta)
        high = best_bin._highest_share(k - 1, total, delta)  # just above it
    for missed in ((share < low).any(1).mean(), (share > high).any(1).mean()):
        assert missed <= delta / 4
        assert tied or missed >= delta / 40, "no wider than it must be"


def test_beta_does_not_take_the_lowest_of_five_positives():
    """1000 rows, four positives on top and one at rank 150: Eq. (2) takes all five, π̂ = 0.15, although ε_5 = 0.77."""
    scores = np.arange(1000, 0, -1.0)[:, None]
    observed = np.zeros((1000, 1), np.uint8)
    observed[[0, 1, 2, 3, 149]] = 1
    dkw = estimate_priors(scores, observed)
    assert (dkw.n_effective[0], dkw.threshold[0]) == (5, 851)
    assert dkw.prior[0] == pytest.approx(0.15)
    tight = estimate_priors(scores, observed, bound="beta")
    assert (tight.n_effective[0], tight.threshold[0]) == (4, 997)
    assert tight.prior[0] == pytest.approx(0.004 / 0.8)
    assert tight.upper[0] == pytest.approx(beta(5, 996).isf(0.01 / 4000) / beta(4, 2).ppf(0.01 / 20))
    assert tight.upper[0] < dkw.upper[0] / 3


def test_too_few_positives_are_flagged():
    scores = np.random.default_rng(0).random((1000, 2))
    observed = np.zeros((1000, 2), np.uint8)
    observed[:400, 0] = 1
    observed[500:505, 1] = 1
    scores[:400, 0] += 1
    estimate = estimate_priors(scores, observed)
    assert estimate.reliable.tolist() == [True, False]
    assert estimate.n_effective[1] <= 5
    # the bin is the rows that score at least the threshold
    assert (scores[:400, 0] >= estimate.threshold[0]).sum() == estimate.n_effective[0]


def test_vector_of_labels_and_reduced_precision():
    scores = np.random.default_rng(4).random((50, 3)).astype(np.float16)
    labels = np.random.default_rng(5).integers(0, 3, 50)
    first = estimate_priors(scores, labels)
    second = estimate_priors(torch.as_tensor(scores), np.eye(3, dtype=np.uint8)[labels])
    third = estimate_priors(torch.as_tensor(scores).bfloat16().float(), labels)
    np.testing.assert_array_equal(first.prior, second.prior)
    np.testing.assert_array_equal(third.prior, estimate_priors(torch.as_tensor(scores).bfloat16(), labels).prior)


def test_inputs_are_left_alone():
    scores, observed, _, _ = random_case(1)
    kept = scores.copy(), observed.copy()
    estimate_priors(scores, observed)
    np.testing.assert_array_equal(scores, kept[0])
    np.testing.assert_array_equal(observed, kept[1])


@pytest.mark.parametrize(
    ("scores", "observed", "options", "sentence"),
    [
        (np.ones((3, 2)), [0, 1, 0], {"delta": 0}, "delta must lie strictly between 0 and 1; got 0"),
        (np.ones((3, 2)), [0, 1, 0], {"tau": 2}, "tau must lie between 0 and 1; got 2"),
        (np.ones((3, 2)), [0, 1, 0], {"bound": "bet"}, "unknown bound 'bet'; did you mean 'beta'"),
        (np.ones((3, 2)), [0, 1, 0], {"bound": "beta", "tau": 0.1}, "tau must be left out with bound='beta'"),
        (np.ones((3, 2)), [0, 1, 0], {"estimator": "bracket", "bound": "dkw"}, "bound must be left out with estimator"),
        (np.ones((3, 2)), [0, 1, 0], {"estimator": "bbee"}, "unknown estimator 'bbee'; did you mean 'bbe'"),
        (np.ones((0, 2)), [], {}, "scores must be a matrix with a row per sample"),
        (np.ones(3), [0, 1, 0], {}, "scores must be a matrix with a row per sample"),
        (np.ones((3, 2)), np.eye(4)[:, :2], {}, "scores and observed must agree in shape"),
        (np.array([[0.5, 0.5], [0.1, np.nan]]), [0, 1], {}, "scores must be finite; row 1, column 1 holds NaN"),
        (torch.tensor([[0.5, math.inf], [0.1, 0.2]]), [0, 1], {}, "scores must be finite; row 0, column 1 holds inf"),
    ],
)
def test_bad_input_gets_a_sentence(scores, observed, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        estimate_priors(scores, np.asarray(observed), **options)


@pytest.mark.parametrize("seed", range(10))
def test_matched_thresholds_leave_the_share_above(seed):
    rng = np.random.default_rng(seed)
    scores, prior = rng.random((40, 5)), rng.random(5)
    prior[0], prior[1], prior[2] = 0, 1, np.nan
    thresholds = match_thresholds(scores, prior)
    assert np.isnan(thresholds).tolist() == [False, False, True, False, False]
    above = (scores > thresholds).sum(0)
    assert above[[0, 1, 3, 4]].tolist() == np.rint(prior[[0, 1, 3, 4]] * 40).astype(int).tolist()


def test_matched_thresholds_keep_ties_together():
    scores = np.array([[0.9], [0.5], [0.5], [0.5], [0.1]])
    assert [(scores > match_thresholds(scores, [share])).sum() for share in (0.2, 0.4, 0.6, 0.8, 1.0)] == [
        1,
        1,
        4,
        4,
        5,
    ]


def test_threads_change_nothing(monkeypatch):
    rng = np.random.default_rng(5)
    scores, observed = rng.integers(0, 50, (400, 70)).astype(np.float32), rng.integers(-1, 70, 400)
    alone = estimate_priors(scores, observed)
    monkeypatch.setattr(best_bin, "_LARGE", 1)
    monkeypatch.setattr(best_bin, "_threads", lambda: 3)
    together = estimate_priors(scores, observed)
    for each in dataclasses.fields(alone):
        np.testing.assert_array_equal(getattr(alone, each.name), getattr(together, each.name))
