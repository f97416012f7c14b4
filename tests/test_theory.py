"""The claims of docs/theory.md, each on a population small enough to enumerate."""

import re
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import root

from onepos.criteria import log_probability
from onepos.methods.heads import shift_to
from onepos.metrics import evaluate
from onepos.priors import estimate_priors
from onepos.protocol import draw_single_positive

TESTS = Path(__file__).parent


class Population:
    """Rows x of equal weight, each with a probability (X, number of sets) of every label set that is not empty."""

    def __init__(self, n_labels, chance):
        self.sets = np.array([y for y in product((0, 1), repeat=n_labels) if any(y)], float)
        self.chance = np.asarray(chance, float)
        self.size = self.sets.sum(1)
        self.present = self.chance @ self.sets  # P(y_j = 1 | x)
        self.observed = self.chance @ (self.sets / self.size[:, None])  # P(γ = j | x), one positive drawn uniformly
        self.prior, self.frequency = self.present.mean(0), self.observed.mean(0)
        self.mean_size = (self.chance @ self.size).mean()
        self.harmonic_size = 1 / (self.chance @ (1 / self.size)).mean()

    @classmethod
    def random(cls, n_rows=6, n_labels=4, seed=0, concentration=0.3):
        rng = np.random.default_rng(seed)
        return cls(n_labels, rng.dirichlet(np.full(2**n_labels - 1, concentration), n_rows))

    @classmethod
    def of(cls, n_labels, *rows):
        """Rows given as {set of labels: chance}."""
        sets = [y for y in product((0, 1), repeat=n_labels) if any(y)]
        chance = np.zeros((len(rows), len(sets)))
        for x, row in enumerate(rows):
            for labels, share in row.items():
                chance[x, sets.index(tuple(int(j in labels) for j in range(n_labels)))] = share
        return cls(n_labels, chance)

    @classmethod
    def independent(cls, scores):
        """Labels independent given x and given that there is one."""
        sets = np.array([y for y in product((0, 1), repeat=len(scores[0])) if any(y)])
        chance = np.array([[np.prod(np.where(y, f, 1 - f)) for y in sets] for f in np.asarray(scores)])
        return cls(len(scores[0]), chance / chance.sum(1, keepdims=True))


def cardinality(drawn):
    """κ̂ of the anchor rule."""
    return 1 / drawn.max(1).mean()


def cross_entropy(target, chance):
    """−Σ_j target_j·log chance_j of each row."""
    return -(target * np.log(chance)).sum(-1)


def logit(chance):
    return np.log(chance / (1 - chance))


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def shift(prior, chance):
    """Probabilities with the logit of `chance`, shifted label by label to the mean of the prior."""
    by = shift_to(torch.as_tensor(prior), torch.from_numpy(logit(chance))).numpy()
    return sigmoid(logit(chance) + by), by


def draw_chances(scores):
    """P(γ = j) of independent labels with these scores, by the library's likelihood."""
    scores = np.asarray(scores)
    labels = np.arange(len(scores))
    return np.exp(log_probability(np.log(scores / (1 - scores))[None], np.zeros_like(labels), labels))


# identities of the draw


def test_each_positive_is_equally_likely_to_be_observed():
    """E[l_j | y] = y_j/|y|, of the library's own draw."""
    Y = np.repeat(Population.random().sets.astype(int), 4000, axis=0)
    drawn = draw_single_positive(Y, 0).reshape(-1, 4000, 4).mean(1)
    wanted = (Y / Y.sum(1, keepdims=True))[::4000]
    assert np.abs(drawn - wanted).max() < 4 * 0.5 / np.sqrt(4000)
    assert (drawn[wanted == 0] == 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_prior_follows_from_the_size_of_the_rows_where_the_label_is_observed(seed):
    people = Population.random(seed=seed)
    size_times_drawn, drawn = np.zeros(4), np.zeros(4)
    for row in people.chance:
        for share, y in zip(row, people.sets, strict=True):
            for j in np.flatnonzero(y):  # γ = j with chance 1/|y|
                drawn[j] += share / y.sum() / len(people.chance)
                size_times_drawn[j] += y.sum() * share / y.sum() / len(people.chance)
    np.testing.assert_allclose(size_times_drawn, people.prior)  # π_j = E[|y|·l_j]
    np.testing.assert_allclose(drawn, people.frequency)
    # e_j = ρ_j/π_j is the mean of 1/|y| over the positives, and 1/e_j that of |y| over the rows where it is observed.
    joint = people.chance.mean(0)
    for j in range(4):
        has = people.sets[:, j] == 1
        inverse = (joint[has] / people.size[has]).sum() / joint[has].sum()
        assert people.frequency[j] / people.prior[j] == pytest.approx(inverse)
    assert (people.frequency <= people.prior).all()
    assert people.frequency.sum() == pytest.approx(1)
    assert people.prior.sum() == pytest.approx(people.mean_size)


def test_one_factor_for_all_labels_needs_sizes_that_do_not_depend_on_the_label():
    """π = κ·ρ where all rows have two labels; not where label 2 comes alone and the others in threes."""
    alike = Population.of(4, {(0, 1): 0.7, (2, 3): 0.3}, {(0, 2): 1.0})
    np.testing.assert_allclose(alike.mean_size * alike.frequency, alike.prior)
    apart = Population.of(4, {(2,): 0.5, (0, 1, 3): 0.5})
    np.testing.assert_allclose(apart.prior, 0.5)
    np.testing.assert_allclose(apart.mean_size * apart.frequency, [1 / 3, 1 / 3, 1, 1 / 3])


# the anchor


@pytest.mark.parametrize("seed", range(5))
def test_no_label_is_drawn_more_often_than_one_over_the_size(seed):
    people = Population.random(seed=seed)
    inverse_size = people.chance @ (1 / people.size)
    assert (people.observed <= inverse_size[:, None] + 1e-12).all()
    certain = Population(4, people.chance * people.sets[:, 0])  # only sets that hold label 0
    certain = Population(4, certain.chance / certain.chance.sum(1, keepdims=True))
    np.testing.assert_allclose(certain.observed[:, 0], certain.chance @ (1 / certain.size))
    assert cardinality(certain.observed) == pytest.approx(certain.harmonic_size)


@pytest.mark.parametrize("seed", range(5))
def test_anchor_bounds_the_harmonic_size_from_above_and_coarser_is_looser(seed):
    people = Population.random(seed=seed)
    pairs = np.repeat(people.observed.reshape(3, 2, 4).mean(1), 2, axis=0)  # sees only which pair a row belongs to
    nothing = np.repeat(people.observed.mean(0, keepdims=True), 6, axis=0)
    fine, coarse, blind = (cardinality(drawn) for drawn in (people.observed, pairs, nothing))
    assert people.harmonic_size <= fine <= coarse <= blind == pytest.approx(1 / people.frequency.max())


def test_anchor_may_lie_on_either_side_of_the_mean_size():
    """It aims at the harmonic mean, which is below; uncertainty pushes it up."""
    sure = Population.of(4, {(0,): 1.0}, {(0, 1, 2): 1.0})
    assert cardinality(sure.observed) == pytest.approx(1.5)
    assert sure.mean_size == 2
    unsure = Population.of(4, {(0,): 0.25, (1,): 0.25, (2,): 0.25, (3,): 0.25})
    assert cardinality(unsure.observed) == pytest.approx(4)
    assert unsure.mean_size == 1
    np.testing.assert_allclose(Population.of(4, {(0, 1, 2, 3): 1.0}).observed, unsure.observed)  # here 4 is right


def test_an_overconfident_classifier_breaks_the_anchor_bound():
    people = Population.of(3, {(0, 1): 0.9, (1, 2): 0.1}, {(0, 1, 2): 1.0})
    sharp = people.observed**4 / (people.observed**4).sum(1, keepdims=True)
    assert cardinality(people.observed) >= people.harmonic_size
    sharpest = people.observed**40 / (people.observed**40).sum(1, keepdims=True)
    assert cardinality(sharpest) < cardinality(sharp)
    assert cardinality(sharpest) < people.harmonic_size


def test_a_draw_that_is_not_uniform_breaks_identity_and_bound():
    """Always the first label: γ is certain, though rows have two; weights that are known mend the identity."""
    people = Population.of(3, {(0, 1): 1.0}, {(0, 2): 0.5, (1, 2): 0.5})
    always_first = np.array([people.chance[x] @ np.eye(3)[people.sets.argmax(1)] for x in range(2)])
    frequency = always_first.mean(0)
    assert np.abs(people.mean_size * frequency - people.prior).max() > 0.5  # E[|y|·l] is not π
    assert cardinality(always_first) < people.harmonic_size == 2
    assert (frequency <= people.prior).all()  # true of any draw from the positives

    salience = np.array([5.0, 2.0, 1.0])
    total = people.sets @ salience
    drawn = people.chance @ (people.sets * salience / total[:, None])
    assert not np.allclose(people.mean_size * drawn.mean(0), people.prior)
    mended = (people.chance @ (total[:, None] / salience * (people.sets * salience / total[:, None]))).mean(0)
    np.testing.assert_allclose(mended, people.prior)


# what one positive can tell


def test_two_label_distributions_with_one_draw():
    """One of two labels, or both: γ is a fair coin in both; the priors differ by a factor of two."""
    either, both = Population.of(2, {(0,): 0.5, (1,): 0.5}), Population.of(2, {(0, 1): 1.0})
    np.testing.assert_allclose(either.observed, both.observed)
    np.testing.assert_allclose(either.prior, 0.5)
    np.testing.assert_allclose(both.prior, 1)


SCORES = np.array([0.9, 0.5, 0.2, 0.05])


def same_draw(condition):
    """Scores of independent labels that are drawn as often as SCORES, and for which condition(scores) is 0."""

    def miss(logits):
        other = 1 / (1 + np.exp(-logits))
        return np.r_[(draw_chances(other) - draw_chances(SCORES))[1:], condition(other)]

    found = root(miss, np.log(SCORES), tol=1e-12)
    assert found.success
    return 1 / (1 + np.exp(-found.x))


@pytest.mark.parametrize("total", [0.2, 0.8, 1.8])
def test_independent_labels_of_another_scale_have_the_same_likelihood(total):
    """A family with one parameter per row; not even the ratios of its scores are the same, their order is."""
    other = same_draw(lambda scores: scores.sum() - total)
    assert other.sum() == pytest.approx(total) != SCORES.sum()
    np.testing.assert_allclose(draw_chances(other), draw_chances(SCORES), atol=1e-9)
    assert abs(other[0] / other[1] / (SCORES[0] / SCORES[1]) - 1) > 0.02
    assert (np.argsort(other) == np.argsort(SCORES)).all()


def test_anchor_takes_the_largest_scale_of_a_row():
    """Where the top label is all but certain, the family ends, and there 1/max P(γ = j) is the harmonic size."""
    rule = 1 / draw_chances(SCORES).max()
    end = same_draw(lambda scores: scores[0] - (1 - 1e-6))
    others = [same_draw(lambda scores, total=total: scores.sum() - total) for total in (0.2, 0.8, SCORES.sum(), 1.8)]
    sizes = [Population.independent([scores]).harmonic_size for scores in others]
    assert sizes == sorted(sizes)
    assert sizes[-1] < rule
    assert Population.independent([end]).harmonic_size == pytest.approx(rule, rel=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_order_within_a_row_is_that_of_the_draw_if_labels_are_independent(seed):
    scores = np.random.default_rng(seed).uniform(0.01, 0.99, 7)
    assert (np.argsort(draw_chances(scores)) == np.argsort(scores)).all()


def test_order_within_a_row_may_turn_if_labels_depend_on_each_other():
    people = Population.of(4, {(0,): 0.4, (1, 2, 3): 0.6})
    assert people.present[0, 0] < people.present[0, 1]
    assert people.observed[0, 0] > people.observed[0, 1]


def test_truth_is_stationary_for_the_draw_if_labels_are_independent():
    def slope(people, scores):
        def expected(logits):
            return people.observed[0] @ np.log(draw_chances(1 / (1 + np.exp(-logits))))

        logits, step = np.log(scores / (1 - scores)), 1e-5 * np.eye(4)
        return max(abs(expected(logits + up) - expected(logits - up)) / 2e-5 for up in step)

    assert slope(Population.independent([SCORES]), SCORES) < 1e-9
    dependent = Population.of(4, {(0,): 0.4, (1, 2, 3): 0.6})
    assert slope(dependent, dependent.present[0]) > 0.05


def test_priors_do_not_fix_the_scale_of_each_row():
    """Labels of equal score are drawn alike at any scale, so two rows with the same mean score look the same."""
    same, other = np.array([[0.5, 0.5], [0.5, 0.5]]), np.array([[0.2, 0.2], [0.8, 0.8]])
    for first, second in zip(same, other, strict=True):
        np.testing.assert_allclose(draw_chances(first), draw_chances(second))
    np.testing.assert_allclose(same.mean(0), other.mean(0))


# what a loss is least at


@pytest.mark.parametrize("shift", [0.0, 1.0], ids=["Eq. (7)", "Eq. (8)"])
def test_absolute_loss_is_least_at_hard_scores(shift):
    """All scores but at most one are 0 or 1, with the true prior and all positives known."""
    present = np.array([0.9, 0.7, 0.4, 0.1])
    prior = present.mean()
    scores = np.array(list(product(np.linspace(0, 1, 21), repeat=4)))
    with np.errstate(divide="ignore"):
        shifted = 1 / (1 + (1 / scores - 1) * np.exp(shift * (1 - prior)))  # σ(g − λ(1−π))
    risk = 2 * ((1 - shifted) * present).mean(1) + np.abs(scores.mean(1) - prior)  # Eq. (8)
    best = scores[risk.argmin()]
    assert ((best > 0) & (best < 1)).sum() <= 1
    assert risk.min() < risk[np.abs(scores - present).max(1) < 1e-9] - 0.05  # the truth costs more
    np.testing.assert_array_equal(best[[0, 3]], [1, 0])

    linear = 2 * ((1 - scores) * present).mean(1) + scores.mean(1) - prior  # Eq. (5), without the bars
    np.testing.assert_array_equal(scores[linear.argmin()], present > 0.5)


@pytest.mark.parametrize("seed", range(3))
def test_softmax_regression_is_least_at_the_probability_of_the_draw(seed):
    """The mean over the draw of −log s_γ, for any dependence between the labels."""
    people = Population.random(seed=seed, concentration=1)
    drawn = torch.from_numpy(people.observed)
    logits = torch.zeros(people.observed.shape, dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([logits], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-15)

    def loss():
        solver.zero_grad()
        mean = sum(-(drawn[:, j] * torch.log_softmax(logits, 1)[:, j]).sum() for j in range(4))
        mean.backward()
        return mean

    solver.step(loss)
    found = torch.softmax(logits, 1).detach().numpy()
    np.testing.assert_allclose(found, people.observed, atol=1e-6)
    by_size = np.zeros_like(people.observed)
    for x, row in enumerate(people.chance):
        for share, y in zip(row, people.sets, strict=True):
            by_size[x] += share * y / y.sum()
    np.testing.assert_allclose(found, by_size, atol=1e-6)  # E[y_j/|y| | x]
    rng = np.random.default_rng(seed)
    for _ in range(50):
        other = rng.dirichlet(np.ones(4), 6)
        assert (cross_entropy(people.observed, other) > cross_entropy(people.observed, people.observed)).all()


def test_a_mixed_target_moves_the_minimum_by_the_error_of_the_prediction():
    """The loss is linear in the target: over the draw of γ it is that of (1 − α)·P(γ | x) + α·s̃."""
    people = Population.random(seed=0, concentration=1)
    rng = np.random.default_rng(0)
    prediction, s = rng.dirichlet(np.ones(4), 6), rng.dirichlet(np.ones(4), 6)
    for alpha in (0.0, 0.3, 1.0):
        over_the_draw = np.zeros(6)
        for x in range(6):
            for j in range(4):
                target = (1 - alpha) * np.eye(4)[j] + alpha * prediction[x]
                over_the_draw[x] += people.observed[x, j] * cross_entropy(target, s[x])
        least = (1 - alpha) * people.observed + alpha * prediction
        np.testing.assert_allclose(over_the_draw, cross_entropy(least, s))
        np.testing.assert_allclose(least - people.observed, alpha * (prediction - people.observed))


def errors(people, prediction, alpha, leak=0.0):
    """E‖l̃ − y/|y|‖² over labels and draw; with a leak the prediction has seen a part of the row's own l."""
    found = 0.0
    for x, row in enumerate(people.chance):
        for share, y in zip(row, people.sets, strict=True):
            even = y / y.sum()
            for j in np.flatnonzero(y):
                drawn = np.eye(len(y))[j]
                seen = prediction[x] + leak * (drawn - even)
                found += share / y.sum() * (((1 - alpha) * drawn + alpha * seen - even) ** 2).sum()
    return found / len(people.chance)


@pytest.mark.parametrize("quality", [0.0, 0.5, 3.0])
def test_the_best_share_of_a_held_out_prediction(quality):
    """(1 − α)²·D + α²·F is least at D/(D + F); D = 1 − E[1/|y|], and D + F is the squared error against l."""
    people = Population.random(seed=0, concentration=0.3)
    rng = np.random.default_rng(0)
    prediction = people.observed * np.exp(quality * rng.normal(size=people.observed.shape))
    prediction /= prediction.sum(1, keepdims=True)
    noise, error = errors(people, prediction, 0.0), errors(people, prediction, 1.0)
    assert noise == pytest.approx(1 - 1 / people.harmonic_size)
    grid = np.linspace(0, 1, 501)
    cost = np.array([errors(people, prediction, alpha) for alpha in grid])
    np.testing.assert_allclose(cost, (1 - grid) ** 2 * noise + grid**2 * error)
    seen = 0.0  # what can be computed without full labels
    for x, chance in enumerate(people.observed):
        for j, weight in enumerate(chance):
            seen += weight * ((np.eye(4)[j] - prediction[x]) ** 2).sum() / len(people.observed)
    assert seen == pytest.approx(noise + error)
    assert grid[cost.argmin()] == pytest.approx(noise / seen, abs=2e-3)


def test_a_prediction_that_has_seen_the_label_takes_out_less_noise():
    """Its error goes along with that of the draw, and both are left in the target."""
    people = Population.random(seed=0, concentration=1)
    even = Population.of(4, {(0, 1): 1.0}, {(1, 2, 3): 1.0})  # labels are certain: the prediction can be right
    for alpha in (0.3, 0.6, 0.9):
        costs = [errors(even, even.observed, alpha, leak) for leak in (0.0, 0.3, 0.6, 1.0)]
        assert costs == sorted(costs)
        assert costs[-1] == pytest.approx(errors(even, even.observed, 0.0)), "nothing is taken out"
        assert errors(people, people.observed, alpha, 0.5) > errors(people, people.observed, alpha)


@pytest.mark.parametrize("seed", range(4))
def test_the_mean_size_bounds_the_noise_of_the_draw(seed):
    """1 − E[1/|y|] is at most 1 − 1/κ, and equal where all rows are of one size; 0 with one label per row."""
    people = Population.random(seed=seed, concentration=0.3)
    assert 1 - 1 / people.harmonic_size < 1 - 1 / people.mean_size
    for alike in (Population.of(4, {(0,): 0.3, (1,): 0.7}, {(2,): 1.0}), Population.of(4, {(0, 1): 0.3, (2, 3): 0.7})):
        assert alike.mean_size == pytest.approx(alike.harmonic_size)
        assert errors(alike, alike.observed, 0.0) == pytest.approx(1 - 1 / alike.mean_size)


@pytest.mark.parametrize("n_observed", [1, 2, 3])
def test_several_observed_labels_leave_less_to_chance(n_observed):
    """m of |y| labels in equal parts: E‖l − y/|y|‖² = 1/m − 1/|y|, and 0 if all are observed."""
    labels = np.array([1, 1, 0, 1, 0])
    even, found = labels / 3, []
    for drawn in combinations(np.flatnonzero(labels), n_observed):
        indicator = np.zeros(5)
        indicator[list(drawn)] = 1 / n_observed
        found.append(((indicator - even) ** 2).sum())
    assert np.mean(found) == pytest.approx(1 / n_observed - 1 / 3)


# the scale


def test_one_label_per_row_needs_no_shift():
    people = Population.of(4, {(0,): 0.5, (1,): 0.2, (3,): 0.3}, {(1,): 0.1, (2,): 0.6, (0,): 0.2, (3,): 0.1})
    chance = np.clip(people.observed, 1e-9, None)
    found, by = shift(people.prior, chance)
    np.testing.assert_allclose(found, people.present, atol=1e-4)
    assert np.abs(by).max() < 1e-3


def test_a_shift_divides_small_probabilities_by_the_propensity():
    """σ(logit s − log e) = (s/e)/(1 + s·(1 − e)/e): between s and s/e, and never above 1."""
    s, e = np.meshgrid([1e-6, 1e-3, 0.1, 0.5, 0.9, 0.999], [0.05, 0.3, 0.7, 1.0])
    found = sigmoid(logit(s) - np.log(e))
    np.testing.assert_allclose(found, (s / e) / (1 + s * (1 - e) / e))
    assert (found >= s - 1e-12).all()
    assert (found <= np.minimum(1, s / e) + 1e-12).all()
    np.testing.assert_allclose(found[s < 1e-5], (s / e)[s < 1e-5], rtol=1e-4)


def test_the_mean_sets_the_shift_and_rows_keep_their_order():
    people = Population.random(n_rows=40, seed=2, concentration=0.3)
    chance = np.clip(people.observed, 1e-6, 1 - 1e-6)
    means = [sigmoid(logit(chance) + by).mean(0) for by in np.linspace(-8, 8, 33)]
    assert (np.diff(means, axis=0) > 0).all()  # one shift for each mean
    found, _ = shift(people.prior, chance)
    np.testing.assert_allclose(found.mean(0), people.prior, rtol=1e-3)
    np.testing.assert_array_equal(found.argsort(0, kind="stable"), chance.argsort(0, kind="stable"))
    assert np.abs(found - people.present).mean() < np.abs(chance - people.present).mean()


def test_a_shift_makes_sure_labels_less_than_sure():
    """All rows have two labels, so s = ½ where one is certain; with the right mean others come out too high for it."""
    people = Population.of(4, {(0, 1): 1.0}, {(0, 2): 0.5, (0, 3): 0.5}, {(1, 2): 0.5, (2, 3): 0.5})
    chance = np.clip(people.observed, 1e-6, 1 - 1e-6)
    found, _ = shift(people.prior, chance)
    np.testing.assert_allclose(people.present[:, 1], [1, 0, 0.5])
    np.testing.assert_allclose(found.mean(0), people.prior, rtol=1e-3)
    assert found[0, 1] < 0.9
    assert found[2, 1] > 0.6


def test_the_best_order_for_coverage_is_that_of_the_draw():
    """A label that comes alone, or two that come together and are likelier."""
    world = Population.of(3, {(0,): 0.4, (1, 2): 0.6})
    there, drawn = world.present[0], world.observed[0]
    assert there.argmax() > 0 == drawn.argmax()

    def score(scores):
        found = [(p, evaluate(y[None], scores[None])) for p, y in zip(world.chance[0], world.sets, strict=True) if p]
        return {name: sum(p * each[name] for p, each in found) for name in ("coverage", "ranking_loss")}

    by_presence, by_draw = score(there - [0, 0, 1e-6]), score(drawn - [0, 0, 1e-6])
    assert by_presence["ranking_loss"] < by_draw["ranking_loss"]
    assert by_presence["coverage"] > by_draw["coverage"]


# a wrong scale


def test_a_wrong_cardinality_scales_small_scores_alike():
    """All are multiplied by κ̂/κ where they are small, by less near 1; rows stay in order."""
    rng = np.random.default_rng(0)
    rare, chance = rng.uniform(1e-5, 1e-3, (200, 3)), rng.uniform(0.01, 0.9, (200, 3))
    for factor in (0.5, 0.8, 1.3):  # κ̂/κ
        (right, _), (wrong, _) = shift(rare.mean(0), rare), shift(factor * rare.mean(0), rare)
        np.testing.assert_allclose(wrong, factor * right, rtol=2e-3)
        (right, _), (wrong, _) = shift(chance.mean(0), chance), shift(factor * chance.mean(0), chance)
        assert np.abs(wrong[right > 0.8] / right[right > 0.8] - 1).max() < abs(factor - 1)
        np.testing.assert_array_equal(wrong.argsort(0), right.argsort(0))


RANKING = ["ranking_loss", "one_error", "coverage", "average_precision", "map"]


def test_scale_moves_decisions_and_not_the_ranking():
    rng = np.random.default_rng(0)
    present = rng.uniform(0.05, 0.7, (60, 5))
    Y = (rng.random((60, 5)) < present).astype(int)
    right, low = (
        evaluate(Y, scores, names=[*RANKING, "hamming_loss", "micro_f1"]) for scores in (present, present / 2)
    )
    assert {name: right[name] for name in RANKING} == {name: low[name] for name in RANKING}
    assert low["hamming_loss"] > right["hamming_loss"]
    assert low["micro_f1"] == 0 < right["micro_f1"]
    cut = evaluate(Y, np.minimum(3 * present, 1), names=RANKING)  # labels that tie at 1 are no longer ranked
    assert cut["average_precision"] < right["average_precision"]


def test_a_scale_per_label_moves_rows_and_not_columns():
    rng = np.random.default_rng(0)
    present = rng.uniform(0.05, 0.7, (60, 5))
    Y = (rng.random((60, 5)) < present).astype(int)
    right, bent = (evaluate(Y, scores, names=RANKING) for scores in (present, present * [0.2, 1, 0.6, 1.3, 0.4]))
    assert right["map"] == bent["map"]
    assert bent["average_precision"] < right["average_precision"]


# the paper's estimator


@pytest.mark.parametrize(
    ("n_observed", "estimate", "with_beta"),
    [(4, 0.43, 0.43), (6, 0.43, 0.05), (26, 0.43, 0.05), (28, 0.05, 0.05), (60, 0.05, 0.05)],
)
def test_few_positives_make_the_estimator_choose_too_wide_a_bin(n_observed, estimate, with_beta):
    """2000 rows, π = 0.05; a pure bin holds half the positives, the next one the rest and 40 % of the negatives.

    The pure bin gives π exactly and is chosen once (1+τ)(ε_n + ε_nj)(1/0.5 − 1) < 0.4·0.95, from n_j = 27 on; with
    exact bounds from n_j = 6 on.
    """
    score = np.r_[np.full(50, 2.0), np.full(50, 1.0), np.full(760, 1.0), np.full(1140, 0.0)]
    observed = np.zeros(2000, int)
    observed[: n_observed // 2] = observed[50 : 50 + n_observed // 2] = 1
    got = estimate_priors(score[:, None], observed[:, None])
    assert got.prior[0] == pytest.approx(estimate)
    tighter = estimate_priors(score[:, None], observed[:, None], bound="beta")
    assert tighter.prior[0] == pytest.approx(with_beta)
    width = np.sqrt(np.log(400) / 2 / 2000) + np.sqrt(np.log(400) / 2 / n_observed)
    assert (1.01 * width * (1 / 0.5 - 1) > 0.4 * 0.95) == (estimate > 0.05)


# the page


def test_every_test_the_page_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (TESTS.parent / "docs" / "theory.md").read_text(encoding="utf-8")))
    others = ("test_criteria.py", "test_priors_held_out.py")

    def tests_in(file):
        return set(re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.MULTILINE))

    assert named <= tests_in(Path(__file__)).union(*(tests_in(TESTS / name) for name in others))
    assert tests_in(Path(__file__)) - named == {"test_every_test_the_page_names_exists"}
