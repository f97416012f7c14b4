"""The consistency study: its bounds against plain loops, its minimiser against a grid, a tiny study end to end."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from crisp_paper.consistency import (
    RISKS,
    SOURCES,
    Consistency,
    Population,
    RiskFacts,
    absolute_risk,
    draw_evenly,
    draw_sample,
    find_risk_facts,
    fit_slope,
    make_population,
    measure_other_norms,
    measure_risk,
    minimise_risk,
    prior_bound,
    rademacher,
    risk_bound,
    risk_bound_as_printed,
    run_consistency,
    split_error,
    summarise_norm,
    threshold_curve,
)

from onepos.datasets.scenes import digit_scenes
from onepos.priors import estimate_priors

DELTA, TAU = 0.05, 0.1
TINY = Consistency("an", sizes=(80, 160), repetitions=2, epochs=2, smooth_steps=5, steps=5)


@pytest.fixture
def scores_and_labels():
    rng = np.random.default_rng(3)
    labels = (rng.random(60) < 0.3).astype(np.uint8)
    return np.round(rng.normal(size=60) + labels, 1), labels  # rounded, so that some are tied


def naive_shares(scores, labels, z):
    above = [s >= z for s in scores]
    positives = [a for a, y in zip(above, labels, strict=True) if y]
    negatives = [a for a, y in zip(above, labels, strict=True) if not y]
    return sum(above) / len(above), sum(positives) / len(positives), sum(negatives) / len(negatives)


def test_threshold_curve_counts(scores_and_labels):
    scores, labels = scores_and_labels
    expected = [naive_shares(scores, labels, z)[:2] for z in sorted(set(scores), reverse=True)]
    expected = [pair for pair in expected if pair[1] > 0]
    np.testing.assert_allclose(np.transpose(threshold_curve(scores, labels)), expected)


@pytest.mark.parametrize(("n", "n_positive"), [(60, 4), (5000, 400)])
def test_prior_bound_is_the_theorem(scores_and_labels, n, n_positive):
    scores, labels = scores_and_labels
    prior = labels.mean()
    eps, eps_pos = (math.sqrt(math.log(4 / DELTA) / (2 * m)) for m in (n, n_positive))
    right = {}
    for z in set(scores):
        _, q_pos, q_neg = naive_shares(scores, labels, z)
        if q_pos:
            slack = (4 + 2 * TAU) / q_pos * (eps + eps_pos)
            right[z] = (q_neg / q_pos, -q_pos), (1 - prior) * q_neg / q_pos + slack, q_pos
    _, at_star, q_star = min(right.values())  # the smallest qⁿ/qᵖ, and of these the largest qᵖ
    left = (4 + 2 * TAU) / (TAU * q_star) * (eps + (5 + 2 * TAU) * eps_pos)
    bound = prior_bound(*threshold_curve(scores, labels), prior, n, n_positive, DELTA, TAU)
    np.testing.assert_allclose(bound, (at_star, left, min(each[1] for each in right.values())))


def test_without_its_condition_the_bound_says_nothing(scores_and_labels):
    """n_j < 2·ln(4/δ)/qᵖ(z*)² lets both sides be more than 2 away, so the condition need not be checked."""
    q, q_pos = threshold_curve(*scores_and_labels)
    for n_positive in (1, 5, 20, 100, 1000):
        for k in range(len(q)):
            if n_positive * q_pos[k] ** 2 < 2 * math.log(4 / DELTA):
                bound = prior_bound(q[k : k + 1], q_pos[k : k + 1], 0.0, 10**6, n_positive, DELTA, TAU)
                assert min(bound) > 2


def test_the_upper_side_holds_for_a_fixed_classifier():
    """Samples of a known population: π̂ stays below the right side far more often than 1 − δ."""
    rng = np.random.default_rng(0)
    Y = (rng.random((2000, 1)) < 0.4).astype(np.uint8)
    scores = rng.normal(size=(2000, 1)) + 2 * Y
    curve = threshold_curve(scores[:, 0], Y[:, 0])
    for _ in range(50):
        rows = rng.integers(2000, size=3000)
        observed = draw_evenly(Y[rows], np.array([600]), rng)
        found = estimate_priors(scores[rows], observed, delta=DELTA, tau=TAU).prior[0]
        bound = prior_bound(*curve, Y.mean(), 3000, 600, DELTA, TAU)
        assert Y.mean() - bound.left <= found <= Y.mean() + bound.best
        assert bound.best < 1 - Y.mean()  # and it says something


def test_rademacher_of_a_ball():
    """The supremum over ‖w‖ ≤ B of the mean of σ_i·w·x_i is B/n·‖Σ σ_i·x_i‖; the sigmoid takes a quarter of it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 5))
    signs = rng.choice([-1, 1], size=(2000, 200))
    linear = 3 / 200 * np.linalg.norm(signs @ x, axis=1).mean()
    bound = rademacher(3, math.sqrt((x**2).sum(1).mean()), 200)
    assert 0.9 * bound < linear / 4 < bound


FACTS = RiskFacts(
    prior=np.array([0.3, 0.1, 0.6]),
    share=np.array([0.3, 0.1, 0.6]),
    norm=7.0,
    length=1.3,
    length_positive=np.array([1.1, 1.2, 1.6]),
)
COUNTS = np.array([60, 21, 119])


def test_risk_bound_as_printed():
    n, root = 200, math.sqrt(math.log(4 / DELTA) / 400)
    complexity = sum(7 / 4 * 1.3 / math.sqrt(n) for _ in range(3))
    rho, constant, largest = 1.2, n * 0.1, max(1.2, 0.7 + 0.9 + 0.4)
    expected = 4 * math.sqrt(2) * rho / constant * complexity + largest / 21 * root
    expected += 4 * math.sqrt(2) * complexity + largest * root
    assert risk_bound_as_printed(FACTS, n, COUNTS, DELTA) == pytest.approx(expected)


def test_risk_bound_label_by_label():
    n, total = 200, 0.0
    for j in range(3):
        for weight, length, m in ((2 * FACTS.prior[j], FACTS.length_positive[j], COUNTS[j]), (1, 1.3, n)):
            total += weight * (2 * 7 / 4 * length / math.sqrt(m) + math.sqrt(math.log(12 / DELTA) / (2 * m)))
    assert risk_bound(FACTS, n, COUNTS, DELTA) == pytest.approx(2 * total)


def test_bounds_fall_with_the_root_of_n():
    assert risk_bound(FACTS, 800, 4 * COUNTS, DELTA) == pytest.approx(risk_bound(FACTS, 200, COUNTS, DELTA) / 2)
    # As printed, a part falls faster: that is the slip.
    assert risk_bound_as_printed(FACTS, 800, 4 * COUNTS, DELTA) < 0.49 * risk_bound_as_printed(
        FACTS, 200, COUNTS, DELTA
    )


def test_no_slope_through_zero():
    assert np.isnan(fit_slope([1, 2], np.array([[1.0, 1.0], [0.0, 1.0]]))).all()


def test_even_draw():
    Y = np.array([[1, 0], [1, 1], [1, 1], [0, 1]], np.uint8)
    rng = np.random.default_rng(0)
    draws = np.array([draw_evenly(Y, np.array([2, 1]), rng) for _ in range(2000)])
    assert (draws.sum(1) == [2, 1]).all()
    np.testing.assert_allclose(draws.mean(0), [[2 / 3, 0], [2 / 3, 1 / 3], [2 / 3, 1 / 3], [0, 1 / 3]], atol=0.04)


@pytest.fixture
def population():
    data = digit_scenes(400)
    return make_population(data)


def test_population_is_known_exactly(population):
    facts = find_risk_facts(population, 2.0)
    lifted = population.lifted.numpy()
    assert facts.length**2 == pytest.approx(2)  # a standardised row is 1 long on average, and the constant as well
    rows = lifted[population.Y[:, 3] == 1]
    assert facts.length_positive[3] == pytest.approx(math.sqrt((rows**2).sum(1).mean()))
    expected = np.mean([[y / row.sum() for y in row] for row in population.Y], axis=0)
    np.testing.assert_allclose(facts.share, expected)


def test_population_needs_every_label():
    data = digit_scenes(400)
    Y = data.Y.copy()
    Y[:, 4] = 0
    with pytest.raises(ValueError, match="every label must have a row; digit-scenes has none with 'four'"):
        make_population(dataclasses.replace(data, Y=Y))


def test_error_is_the_sum_of_its_parts(population):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=population.Y.shape) + 2 * population.Y
    sample = draw_sample(population, 300, rng)
    estimate = estimate_priors(logits[sample.rows], sample.observed)
    negatives, draw, chance = split_error(population, logits, estimate)
    np.testing.assert_allclose(negatives + draw + chance, estimate.prior - population.prior)
    for j, z in enumerate(estimate.threshold):
        q, q_pos, q_neg = naive_shares(logits[:, j], population.Y[:, j], z)
        prior = population.Y[:, j].mean()
        assert negatives[j] == pytest.approx((1 - prior) * q_neg / q_pos, abs=1e-12)
        weights = [y[j] / y.sum() for y in population.Y]
        q_named = sum(w for w, s in zip(weights, logits[:, j], strict=True) if s >= z) / sum(weights)
        assert draw[j] == pytest.approx(q / q_named - q / q_pos, abs=1e-12)


def test_risk_is_equation_five():
    rng = np.random.default_rng(0)
    f, y = rng.random((50, 2)), (rng.random((50, 2)) < 0.4).astype(float)
    for j, risk in enumerate(absolute_risk(torch.tensor(f), torch.tensor(y)).tolist()):
        prior = y[:, j].mean()
        positive = (1 - f[y[:, j] == 1, j]).mean()
        assert risk == pytest.approx(2 * prior * positive + f[:, j].mean() - prior)


@pytest.mark.parametrize("is_absolute", [False, True])
def test_minimiser_finds_the_bottom(is_absolute):
    """A feature and a constant: all weights of the ball can be tried."""
    rng = np.random.default_rng(1)
    y = (rng.random(80) < 0.3).astype(float)
    x = np.c_[rng.normal(size=80) + 1.5 * y, np.ones(80)]
    named, prior = 2 * y / 80, y.mean()
    study = Consistency("an")

    def objective(weights):  # (2, any number)
        f = 1 / (1 + np.exp(-x @ weights))
        gap = f.mean(0) - prior
        return named @ (1 - f) + (np.abs(gap) if is_absolute else gap)

    found = minimise_risk(
        *(torch.tensor(each, dtype=torch.float32) for each in (x, named[:, None], np.full(80, 1 / 80), [prior])),
        torch.tensor([is_absolute]),
        torch.tensor([6.0], dtype=torch.float64),
        study,
    )
    radius, angle = np.meshgrid(np.linspace(0, 6, 121), np.linspace(0, 2 * math.pi, 721))
    grid = np.stack([(radius * np.cos(angle)).ravel(), (radius * np.sin(angle)).ravel()])
    assert found.norm() <= 6 + 1e-4
    assert objective(found.double().numpy())[0] <= objective(grid).min() + 0.003


def test_norm_binds_every_label():
    """Separable: the longer the better, so that each label ends at the norm of its own."""
    x = torch.tensor([[3.0, 1.0], [-3.0, 1.0]])
    named = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    norm, study = torch.tensor([0.5, 3.0], dtype=torch.float64), Consistency("an")
    found = minimise_risk(
        x, named, torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5]), torch.tensor([False, True]), norm, study
    )
    np.testing.assert_allclose(found.norm(dim=0), norm, rtol=1e-4)


def test_labels_are_minimised_apart(population):
    """Norms side by side give what each gives alone."""
    n = len(population.Y)
    share, known = np.full(n, 1 / n), 2 * population.Y / n
    together = measure_other_norms(population, population.lifted, known, share, TINY)
    assert together.shape == (3, 10)
    for norm, risk in zip(TINY.other_norms, together, strict=True):
        alone, _ = measure_risk(
            population, population.lifted, [known], share, [population.prior], [False], [norm], TINY
        )
        np.testing.assert_allclose(alone[0], risk, rtol=1e-4)


@pytest.fixture(scope="module")
def tiny():
    return run_consistency([digit_scenes(400)], TINY)


def test_tiny_study(tiny):
    (data,) = tiny["datasets"]
    assert tiny["study"]["sizes"] == [80, 160]
    assert set(data["priors"]["errors"]) == set(SOURCES)
    assert set(data["risk"]["excess"]) == set(RISKS)
    curves = [*data["risk"]["excess"].values(), *(each["mean"] for each in data["priors"]["errors"].values())]
    for curve in curves:
        assert np.shape(curve["runs"]) == (2, 2)
        np.testing.assert_allclose(curve["mean"], np.mean(curve["runs"], axis=1), rtol=1e-3)
        assert min(curve["mean"]) >= 0
    check = data["priors"]["checks"]["halves"]
    assert check["right_fails"] == check["best_fails"] == check["left_fails"] == 0
    assert 0 < check["estimates"] <= 2 * 2 * 2 * 10
    assert all(0 < each < 1 for each in data["priors"]["errors"]["training"]["max"]["mean"])
    assert data["risk"]["fails"]["theorem"] == {"runs": 4, "printed": 0, "mended": 0}
    assert len(data["priors"]["labels"]) == 10
    assert data["priors"]["labels"][0]["halves"] is None  # zeros are rare: some half names none


def test_norms_of_the_tiny_study(tiny):
    risk, prior = tiny["datasets"][0]["risk"], digit_scenes(400).Y.mean(0)
    norms = risk["norms"]
    assert [each["norm"] for each in norms] == [3, 10, 30, 100]
    assert tiny["study"]["other_norms"] == [3, 10, 100]
    for each in norms:
        assert each["constant"] == pytest.approx(sum(min(p, 1 - p) for p in prior) - each["best"], abs=1e-4)
        assert np.shape(each["excess"]["runs"]) == (2, 2)
        assert each["runs"] == 4
        assert np.min(each["excess"]["runs"]) >= 0  # no run beats f* of its own class
        np.testing.assert_allclose(
            each["above_limit"]["mean"], np.subtract(each["excess"]["mean"], each["limit"]), atol=1e-4
        )


def test_the_main_norm_is_the_main_study(tiny):
    risk = tiny["datasets"][0]["risk"]
    main = risk["norms"][2]
    assert main["best"] == risk["best"]
    assert main["constant"] == risk["constant"]
    assert main["limit"] == risk["limits"]["theorem"]
    assert main["excess"] == risk["excess"]["theorem"]
    assert main["above_limit"] == risk["above_limit"]["theorem"]
    assert main["bound"] == risk["bounds"]["mended"]
    assert main["fails"] == risk["fails"]["theorem"]["mended"]


def test_bound_of_a_norm_counts_its_failures():
    """By hand: two sizes, two samples, three labels, and a bound that one run exceeds."""
    counts = np.tile(COUNTS, (2, 2, 1))
    best, limit = np.array([0.1, 0.05, 0.2]), np.array([0.1, 0.06, 0.2])
    risks = np.tile(best + 0.25, (2, 2, 1))
    risks[1, 0] = 1000.0
    study = dataclasses.replace(TINY, sizes=(200, 800), delta=DELTA)
    found = summarise_norm(FACTS, risks, limit, best, counts, study)
    assert found["norm"] == 7
    assert found["best"] == pytest.approx(0.35)
    assert found["constant"] == pytest.approx(0.3 + 0.1 + 0.4 - 0.35)
    assert found["limit"] == pytest.approx(0.01)
    assert found["excess"]["runs"][0] == [0.75, 0.75]
    assert found["above_limit"]["runs"][0] == [0.74, 0.74]
    expected = [[risk_bound(FACTS, n, COUNTS, DELTA)] * 2 for n in (200, 800)]
    np.testing.assert_allclose(found["bound"]["runs"], expected, rtol=1e-4)
    assert (found["runs"], found["fails"]) == (4, 1)


def test_parts_add_up_in_the_summary(tiny):
    priors = tiny["datasets"][0]["priors"]
    for i, total in enumerate(priors["signed_errors"]["halves"]):
        assert sum(part[i] for part in priors["signed_parts"].values()) == pytest.approx(total, abs=1e-4)


def test_the_same_again(tiny):
    again = run_consistency([digit_scenes(400)], TINY)
    assert json.dumps(again, allow_nan=False) == json.dumps(tiny)


def test_halves_are_scored_by_the_other(population, monkeypatch):
    """A scorer that knows only the rows it learnt from: none of them may be scored by it."""
    from crisp_paper import consistency

    learnt, scored = [], []

    def score(population, samples, study):
        learnt.append([sample.rows for sample in samples])
        return [np.full(population.Y.shape, float(k)) for k in range(len(samples))]

    def judge(population, logits, sample, study, *, with_bounds):
        scored.append((int(logits[0, 0]), sample.rows, with_bounds))

    monkeypatch.setattr(consistency, "score_population", score)
    monkeypatch.setattr(consistency, "judge_priors", judge)
    sample = draw_sample(population, 160, np.random.default_rng(0))
    consistency.estimate_all_priors(population, [sample], TINY)
    halves = [learnt[0][k] for k in (0, 1)]  # of the smaller size
    for which, rows, with_bounds in scored[:4]:
        np.testing.assert_array_equal(rows, halves[1 - which])
        assert with_bounds
    which, rows, with_bounds = scored[4]
    np.testing.assert_array_equal(rows, sample.rows[:80])
    assert not with_bounds


@pytest.mark.parametrize("sizes", [(81, 160), (160, 80), (80,)])
def test_sizes_are_checked(sizes):
    with pytest.raises(ValueError, match="sizes must be even numbers that rise, two at least"):
        Consistency("an", sizes=sizes)


def test_one_repetition_has_no_spread():
    with pytest.raises(ValueError, match="repetitions must be at least 2"):
        Consistency("an", repetitions=1)


@pytest.mark.parametrize("norms", [(), (0.0, 10.0), (10.0, 30.0)])
def test_other_norms_are_checked(norms):
    with pytest.raises(ValueError, match="other_norms must be above zero, one at least, and none equal to norm, 30"):
        Consistency("an", other_norms=norms)


def test_a_sample_too_small_to_see_anything():
    with pytest.raises(ValueError, match=r"none is with 2 rows\. Let the smallest size be larger"):
        run_consistency([digit_scenes(400)], dataclasses.replace(TINY, sizes=(2, 80)))


def test_lifted_rows_are_the_rows(population):
    d = population.X.shape[1]
    expected = np.c_[population.X / math.sqrt(d), np.ones(len(population.X))]
    np.testing.assert_allclose(population.lifted.numpy(), expected, atol=1e-6)
    assert isinstance(population, Population)
