"""Do the two theorems of the CRISP paper show: prior error and excess risk against the number of rows n.

**Populations.** The rows of a data set are the whole population, each as likely as the others. A sample of n rows is
drawn from them with replacement, and each drawn row names one of its labels. So samples are independent and
identically distributed, as the theorems suppose, and whatever they say of expectations (class priors π, the shares
q, qᵖ, qⁿ, the risk R) is a plain mean over the population: nothing is approximated by held-out rows. What is measured
is the way to this population, not to rows outside of it.

**Theorem 4.1** (class priors). With ε_m = √(ln(4/δ)/2m), and z* the threshold with the smallest qⁿ/qᵖ,

    π − (4+2τ)/(τ·qᵖ(z*)) · (ε_n + (5+2τ)·ε_nj)  ≤  π̂  ≤  π + (1−π)·qⁿ(z*)/qᵖ(z*) + (4+2τ)/qᵖ(z*) · (ε_n + ε_nj)

for a classifier that does not depend on the rows and n_j ≥ 2·ln(4/δ)/qᵖ(z*)². The theorem calls the constants c₁ and
c₂; these are the ones of its proof (Appendix A.1). Where the condition fails both sides are more than 2 away from π,
and so true of anything between 0 and 1: it need not be looked at. What the proof says of the right side holds at any
fixed threshold, so the smallest right side over all of them is a bound as well.

**Theorem 4.2** (risk). R is Eq. (5), the absolute loss on full labels; f̂ minimises Eq. (7) with known priors over a
class; f* minimises R over the same class: σ(w·x̃) for each label, with ‖w‖ ≤ B and x̃ = (x/√d, 1), x standardised. R
is not convex; for R(f*) stands the lowest risk of each label that any minimisation with the same B here has found.

    R(f̂) − R(f*) ≤ 4√2·ρ/C · Σ_j ℜ_n(H_j) + M/min_j n_j · √(ln(4/δ)/2n) + 4√2 · Σ_j ℜ_n(H_j) + M·√(ln(4/δ)/2n)

    ℜ_n(H_j) ≤ B/4 · √(E‖x̃‖²/n)     (a ball, and 1/4, the steepest slope of σ)
    ρ = max_j 2π_j,  C = n · min_j P(j is named),  M = max(ρ, Σ_j (1 − π_j))

Deviation: the terms of the named positives are too small by a factor of about n in print: the proof sums over rows in
one place and averages in the next, and lets one row weigh 1/(n·n_j) in McDiarmid's inequality where it weighs 1/n_j.
`risk_bound` is what the same steps give label by label, the other bound is kept as printed.

Deviation: the proof leaves out the absolute value of Eq. (7). With it, the limit is not f*: it has to predict as many
positives as there are. `gap` is what it can cost at most. So Eq. (7) is minimised with and without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onepos.bench.stacking import train_many
from onepos.datasets import Dataset
from onepos.methods import make_method
from onepos.priors import PriorEstimate, estimate_priors
from onepos.protocol import draw_single_positive
from onepos.training.outcome import predict_rows
from onepos.training.plan import Plan
from onepos.training.samples import as_samples, fit_scaling
from onepos.training.task import TrainingData, make_task

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Indicator = npt.NDArray[np.uint8]

# How a prior is estimated. "halves": the scorer learns from one half of the rows and scores the other, each way, so
# that it does not depend on the rows it scores. "even": the same, but the n_j positives are drawn evenly from all rows
# with label j, as the theorem supposes. "training": one scorer learns from all rows and scores the same rows, as in the
# paper.
SOURCES = ("halves", "even", "training")

# What is minimised, from the theorem to the paper's algorithm. "theorem": Eq. (7) without the absolute value, positives
# drawn evenly, known priors. "absolute": Eq. (7). "single": with the positives that the rows name, one each.
# "estimated": with priors estimated from the scores of the training rows as well.
RISKS = ("theorem", "absolute", "single", "estimated")


@dataclass(frozen=True)
class Consistency:
    """How the study is made.

    Attributes:
        scorer: The method whose scores the priors are estimated from, with a linear network.
        sizes: Numbers of rows n, even.
        repetitions: Samples of each size; a smaller one is the beginning of the larger.
        delta: δ of both theorems.
        tau: τ of Eq. (2).
        norm: B, the largest norm of a label's weights.
        other_norms: Further B, for the risk of the proof only.
        smooth_steps: Steps on the convex stand-in that the minimisation starts with.
        steps: Steps on the risk itself.
        epochs: Of the scorer.
        batch_size: Of the scorer.
        lr: Of the scorer.
        seed: Everything random follows from it.
    """

    scorer: str
    sizes: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16384)
    repetitions: int = 5
    delta: float = 0.01
    tau: float = 0.01
    norm: float = 30.0
    other_norms: tuple[float, ...] = (3.0, 10.0, 100.0)
    smooth_steps: int = 100
    steps: int = 200
    epochs: int = 20
    batch_size: int = 32
    lr: float = 3e-3
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.sizes) < 2 or any(n % 2 or n < 2 for n in self.sizes) or list(self.sizes) != sorted(self.sizes):
            raise ValueError(f"sizes must be even numbers that rise, two at least; got {self.sizes}.")
        if self.repetitions < 2:
            raise ValueError(f"repetitions must be at least 2, to tell their spread; got {self.repetitions}.")
        if not self.other_norms or min(self.other_norms) <= 0 or self.norm in self.other_norms:
            raise ValueError(
                f"other_norms must be above zero, one at least, and none equal to norm, {self.norm:g}; "
                f"got {self.other_norms}."
            )


class Population(NamedTuple):
    """All rows there are: standardised features X (N, d), the same as x̃ (N, d+1), labels Y (N, c)."""

    X: npt.NDArray[np.float32]
    lifted: Tensor
    Y: Indicator

    @property
    def prior(self) -> Floats:
        """π, (c,)."""
        share: Floats = self.Y.mean(0)
        return share

    @property
    def named(self) -> Floats:
        """How likely a row is to name each label, (N, c)."""
        likely: Floats = self.Y / np.maximum(self.Y.sum(1, keepdims=True), 1)
        return likely


class Sample(NamedTuple):
    """Rows drawn from the population, and the label that each names, (n, c)."""

    rows: Indices
    observed: Indicator


class PriorBound(NamedTuple):
    """Theorem 4.1 for one label: how far π̂ may lie above and below π.

    Attributes:
        right: Right side at z*.
        left: Left side.
        best: The smallest right side over all thresholds.
    """

    right: float
    left: float
    best: float


class RiskFacts(NamedTuple):
    """What Theorem 4.2 needs to know of class and population.

    Attributes:
        prior: π, (c,).
        share: P(j is named), (c,).
        norm: B.
        length: √E‖x̃‖².
        length_positive: The same over the rows with label j, (c,).
    """

    prior: Floats
    share: Floats
    norm: float
    length: float
    length_positive: Floats


# The bounds


def dkw_width(delta: float, count: Any) -> Any:
    """ε_m = √(ln(4/δ) / 2m)."""
    return np.sqrt(math.log(4 / delta) / (2 * np.maximum(count, 1)))


def threshold_curve(scores: Floats, labels: Indicator) -> tuple[Floats, Floats]:
    """q and qᵖ of one label at each of its scores, from the highest down to the lowest, where qᵖ > 0."""
    order = np.argsort(-scores, kind="stable")
    falling = scores[order]
    is_last = np.append(falling[1:] != falling[:-1], True)  # tied scores are one threshold
    q = (np.arange(1, len(scores) + 1) / len(scores))[is_last]
    q_pos = np.cumsum(labels[order])[is_last] / labels.sum()
    return q[q_pos > 0], q_pos[q_pos > 0]


def prior_bound(
    q: Floats, q_pos: Floats, prior: float, n: int, n_positive: int, delta: float, tau: float
) -> PriorBound:
    """Theorem 4.1 with the constants of its proof, from a label's shares at all thresholds."""
    eps, eps_pos = dkw_width(delta, n), dkw_width(delta, n_positive)
    ratio = q / q_pos
    # Several thresholds may be best; the lowest has the largest qᵖ, and so the smallest bound.
    star = np.flatnonzero(ratio <= ratio.min() * (1 + 1e-12))[-1]
    right = ratio - prior + (4 + 2 * tau) / q_pos * (eps + eps_pos)
    left = (4 + 2 * tau) / (tau * q_pos[star]) * (eps + (5 + 2 * tau) * eps_pos)
    return PriorBound(float(right[star]), float(left), float(right.min()))


def rademacher(norm: float, length: Any, n: Any) -> Any:
    """ℜ_n of σ(w·x̃) with ‖w‖ ≤ norm and √E‖x̃‖² = length: at most norm/4 · length/√n."""
    return norm / 4 * length / np.sqrt(n)


def risk_bound_as_printed(facts: RiskFacts, n: int, n_positive: Indices, delta: float) -> float:
    """Theorem 4.2 to the letter."""
    c = len(facts.prior)
    rho = 2 * facts.prior.max()
    largest = max(rho, (1 - facts.prior).sum())
    complexity = c * rademacher(facts.norm, facts.length, n)
    chance = largest * math.sqrt(math.log(4 / delta) / (2 * n))
    named = 4 * math.sqrt(2) * rho / (n * facts.share.min()) * complexity + chance / max(n_positive.min(), 1)
    return float(named + 4 * math.sqrt(2) * complexity + chance)


def risk_bound(facts: RiskFacts, n: int, n_positive: Indices, delta: float) -> float:
    """The steps of Theorem 4.2 label by label: twice the largest distance of Eq. (7) from its expectation.

    Each of the 2c means, over n_j positives or all n rows, is within 2ℜ + √(ln(2/δ')/2m) of its expectation for the
    whole class at once with probability 1 − δ', and δ' = δ/2c. An absolute value brings no two numbers further apart,
    so the distance is the same with it.
    """
    count = np.maximum(n_positive, 1)
    chance = math.log(4 * len(count) / delta) / 2
    named = 2 * rademacher(facts.norm, facts.length_positive, count) + np.sqrt(chance / count)
    everyone = 2 * rademacher(facts.norm, facts.length, n) + math.sqrt(chance / n)
    return float(2 * (2 * facts.prior @ named + len(count) * everyone))


def fit_slope(sizes: Sequence[int], values: Floats) -> tuple[float, float]:
    """Slope of log value against log n: mean and standard error over the repetitions; values are (sizes, repetitions).

    Example:
        >>> slope, error = fit_slope([1, 4, 16], np.array([[8.0, 6.0], [4.0, 3.0], [2.0, 1.5]]))
        >>> round(slope, 6), round(error, 6)
        (-0.5, 0.0)
    """
    if not (values > 0).all():
        return math.nan, math.nan
    slopes = np.polyfit(np.log(sizes), np.log(values), 1)[0]
    return float(slopes.mean()), float(slopes.std(ddof=1) / math.sqrt(len(slopes)))


# Samples


def make_population(data: Dataset) -> Population:
    """The rows of a data set as all there are."""
    if not data.Y.any(0).all():
        empty = data.label_names[int(data.Y.any(0).argmin())]
        raise ValueError(f"every label must have a row; {data.name} has none with {empty!r}. Leave that label out.")
    X = np.asarray(data.X, np.float64)
    scaling = fit_scaling(X)
    X = (X - scaling.mean) / scaling.scale
    lifted = np.hstack([X / math.sqrt(X.shape[1]), np.ones((len(X), 1))])
    return Population(X.astype(np.float32), torch.tensor(lifted, dtype=torch.float32), data.Y)


def draw_sample(population: Population, n: int, rng: np.random.Generator) -> Sample:
    """Rows with replacement, and one positive label of each."""
    rows = rng.integers(len(population.Y), size=n)
    return Sample(rows, draw_single_positive(population.Y[rows], rng))


def draw_evenly(Y: Indicator, n_positive: Indices, rng: np.random.Generator) -> Indicator:
    """Of the rows with label j, n_j drawn evenly, each label by itself: a row may name several labels, or none."""
    observed = np.zeros_like(Y)
    for j, count in enumerate(n_positive):
        observed[rng.choice(np.flatnonzero(Y[:, j]), count, replace=False), j] = 1
    return observed


# Class priors


class PriorRecord(NamedTuple):
    """One estimate of the priors and what became of it, each array (c,).

    The error π̂ − π is the sum of three parts, where ẑ is the chosen threshold and qˢ the share q among rows in
    proportion to how likely they are to name the label:

        negatives  q(ẑ)/qᵖ(ẑ) − π            rows without the label are scored above ẑ; never below zero
        draw       q(ẑ)/qˢ(ẑ) − q(ẑ)/qᵖ(ẑ)   rows with few labels name each of them more often
        chance     π̂ − q(ẑ)/qˢ(ẑ)            the sample is finite, and ẑ was chosen by it
    """

    estimate: PriorEstimate
    negatives: Floats
    draw: Floats
    chance: Floats
    bounds: tuple[PriorBound, ...]


def split_error(population: Population, logits: Floats, estimate: PriorEstimate) -> tuple[Floats, Floats, Floats]:
    """The parts negatives, draw and chance of `PriorRecord`."""
    is_above = logits >= estimate.threshold
    q = is_above.mean(0)
    by_label = q * population.Y.sum(0) / (is_above * population.Y).sum(0)
    by_name = q * population.named.sum(0) / (is_above * population.named).sum(0)
    return by_label - population.prior, by_name - by_label, estimate.prior - by_name


def score_population(population: Population, samples: Sequence[Sample], study: Consistency) -> list[Floats]:
    """Logits (N, c) of the whole population by scorers that each learnt from one of the samples."""
    tasks = [
        make_task(
            TrainingData(as_samples(population.X[sample.rows])),
            sample.observed,
            make_method(study.scorer),
            Plan(study.epochs, study.batch_size, study.lr, device="cpu", seed=study.seed + k),
            network="linear",
        )
        for k, sample in enumerate(samples)
    ]
    everyone = as_samples(population.X)
    return [predict_rows(trained.network, everyone).double().numpy() for trained in train_many(tasks)]


def judge_priors(
    population: Population, logits: Floats, sample: Sample, study: Consistency, *, with_bounds: bool
) -> PriorRecord:
    """Estimate the priors from a sample, and compare them with the population."""
    estimate = estimate_priors(logits[sample.rows], sample.observed, delta=study.delta, tau=study.tau)
    bounds, prior = [], population.prior
    for j, count in enumerate(estimate.n_positive if with_bounds else ()):
        q, q_pos = threshold_curve(logits[:, j], population.Y[:, j])
        bounds.append(prior_bound(q, q_pos, prior[j], len(sample.rows), int(count), study.delta, study.tau))
    with np.errstate(invalid="ignore"):  # of a label nobody named there is no threshold
        return PriorRecord(estimate, *split_error(population, logits, estimate), tuple(bounds))


Records = dict[str, list[list[PriorRecord]]]
"""Source → size → its estimates, those of a repetition side by side."""


def estimate_all_priors(population: Population, samples: Sequence[Sample], study: Consistency) -> Records:
    """The priors from every sample at every size and from every source."""
    records: Records = {source: [] for source in SOURCES}
    for n in study.sizes:
        wholes = [Sample(sample.rows[:n], sample.observed[:n]) for sample in samples]
        halves = [Sample(rows[k : k + n // 2], seen[k : k + n // 2]) for rows, seen in wholes for k in (0, n // 2)]
        others = [halves[k ^ 1] for k in range(len(halves))]
        by_half, by_whole = (score_population(population, parts, study) for parts in (halves, wholes))
        evened = [
            Sample(other.rows, draw_evenly(population.Y[other.rows], other.observed.sum(0, dtype=np.int64), rng))
            for other, rng in ((other, np.random.default_rng((study.seed, n, k))) for k, other in enumerate(others))
        ]
        for source, logits, scored in (
            ("halves", by_half, others),
            ("even", by_half, evened),
            ("training", by_whole, wholes),
        ):
            pairs = zip(logits, scored, strict=True)
            with_bounds = source != "training"  # the theorem does not speak of rows that were learnt from
            found = [judge_priors(population, each, sample, study, with_bounds=with_bounds) for each, sample in pairs]
            records[source].append(found)
    return records


def summarise_priors(
    population: Population, names: Sequence[str], records: Records, study: Consistency
) -> dict[str, Any]:
    """Errors, parts and bounds against n, and how often the bounds failed."""
    prior, n_sizes = population.prior, len(study.sizes)
    shape = n_sizes, study.repetitions, -1, len(prior)

    def gather(source: str, values: Any) -> Floats:
        """(sizes, repetitions, estimates of a repetition, c)."""
        return np.array([[values(record) for record in found] for found in records[source]], float).reshape(shape)

    found = {source: gather(source, lambda record: record.estimate.prior) for source in SOURCES}
    always = np.isfinite(found["halves"]).all((0, 1, 2))
    if not always.any():
        raise ValueError(
            f"some label must be named in every half of every sample; none is with {study.sizes[0]} rows. "
            "Let the smallest size be larger."
        )
    bounds = {
        side: gather("halves", lambda record, k=k: [bound[k] for bound in record.bounds])
        for k, side in enumerate(PriorBound._fields)
    }
    most = np.maximum(prior, 1 - prior)[always]  # an estimate lies between 0 and 1, so it errs by this at most

    def curves(values: Floats) -> dict[str, Any]:
        """Mean and largest over the labels that are always observed, per size and repetition."""
        kept = values[..., always]
        return {
            name: _curve(study.sizes, over_labels.mean(2))
            for name, over_labels in (("mean", kept.mean(-1)), ("max", kept.max(-1)))
        }

    def signed(values: Floats) -> list[float | None]:
        """Mean over all estimates of the same labels, per size."""
        return [_short(each) for each in values[..., always].mean((1, 2, 3))]

    parts = {name: gather("halves", lambda r, name=name: getattr(r, name)) for name in ("negatives", "draw", "chance")}
    last = {source: values[-1].mean((0, 1)) for source, values in found.items()}
    count = gather("halves", lambda r: r.estimate.n_positive)
    return {
        "always_observed": np.asarray(always).tolist(),
        "errors": {source: curves(np.abs(values - prior)) for source, values in found.items()},
        "bounds": {name: curves(values) for name, values in bounds.items()},
        "trivial": {"mean": _short(most.mean()), "max": _short(most.max())},
        "parts": {name: curves(np.abs(values)) for name, values in parts.items()},
        "signed_errors": {source: signed(values - prior) for source, values in found.items()},
        "signed_parts": {name: signed(values) for name, values in parts.items()},
        "checks": {source: _check_bounds(records[source], prior) for source in ("halves", "even")},
        "labels": [
            {
                "name": str(names[j]),
                "prior": _short(prior[j]),
                "n_positive": _short(count[-1, ..., j].mean()),
                **{source: _short(values[j]) for source, values in last.items()},
                **{name: _short(values[-1, ..., j].mean()) for name, values in parts.items()},
            }
            for j in range(len(prior))
        ],
    }


def _check_bounds(found: Sequence[Sequence[PriorRecord]], prior: Floats) -> dict[str, int]:
    """Over all estimates: how often a bound says more than that a prior is at most 1, and how often it fails.

    "upper" and "lower" are the ends of the interval that `estimate_priors` gives.
    """
    fails = [
        {
            "estimates": 1,
            "right_informs": bound.right < 1 - prior[j],
            "right_fails": estimate.prior[j] > prior[j] + bound.right,
            "left_informs": bound.left < prior[j],
            "left_fails": estimate.prior[j] < prior[j] - bound.left,
            "best_informs": bound.best < 1 - prior[j],
            "best_fails": estimate.prior[j] > prior[j] + bound.best,
            "upper_fails": estimate.upper[j] < prior[j],
            "lower_fails": estimate.lower[j] > prior[j],
        }
        for estimate, bounds in ((record.estimate, record.bounds) for of_size in found for record in of_size)
        for j, bound in enumerate(bounds)
        if estimate.n_positive[j]
    ]
    return {name: int(sum(each[name] for each in fails)) for name in fails[0]}


# Risk


def absolute_risk(scores: Tensor, labels: Tensor) -> Tensor:
    """R of Eq. (5), one number per label: E|f − y|."""
    return (scores - labels).abs().mean(0)


def minimise_risk(
    lifted: Tensor,
    named: Tensor,
    share: Tensor,
    prior: Tensor,
    is_absolute: Tensor,
    norm: Tensor,
    study: Consistency,
) -> Tensor:
    """Weights (d+1, m) that minimise Eq. (7) for m labels at once, each with a norm of at most its B.

        Σ_i named_ij · (1 − f_ij)  +  φ( Σ_i share_i·f_ij − π_j ),      f = σ(x̃·w),  φ the identity or | |

    Projected gradient with momentum; a step has a fixed length, which falls to zero. The risk is not convex, and for a
    rare label it is flat where all is predicted negative. So the first steps go down its convex stand-in, the logistic
    loss in its unbiased form for positives and unlabelled rows, Σ_i share_i·ln(1 + exp g_ij) − named_ij·g_ij/2.

    Args:
        lifted: x̃ of the rows, (n, d+1).
        named: 2π_j/n_j for each time a row is a named positive of label j, (n, m).
        share: Weight of each row, (n,); they sum to one.
        prior: π, (m,).
        is_absolute: Whether φ is the absolute value, (m,).
        norm: B, (m,), in double precision.
        study: Numbers of steps.
    """
    weights = torch.zeros(lifted.shape[1], named.shape[1])
    momentum = torch.zeros_like(weights)
    everyone, radius = share[:, None], norm.float()
    for step in range(study.smooth_steps + study.steps):
        scores = torch.sigmoid(lifted @ weights)
        done = step - study.smooth_steps
        if done < 0:
            slope, left = everyone * scores - named / 2, -done / study.smooth_steps
        else:
            sign = torch.where(is_absolute, torch.sign(share @ scores - prior), 1.0)
            slope, left = (sign * everyone - named) * scores * (1 - scores), 1 - done / study.steps
        gradient = lifted.T @ slope
        momentum = 0.9 * momentum + 0.1 * gradient / gradient.norm(dim=0).clamp(min=1e-12)
        weights = weights - (0.1 * norm * left).float() * momentum
        weights = weights * (radius * weights.norm(dim=0).clamp(min=radius).reciprocal())
    return weights


def measure_risk(
    population: Population,
    lifted: Tensor,
    named: Sequence[Floats],
    share: Floats,
    priors: Sequence[Floats],
    is_absolute: Sequence[bool],
    norms: Sequence[float],
    study: Consistency,
) -> tuple[Floats, Floats]:
    """R and the mean score of each label, both (variants, c), of what minimises each variant of Eq. (7)."""
    c = population.Y.shape[1]
    weights = minimise_risk(
        lifted,
        torch.tensor(np.hstack(named), dtype=torch.float32),
        torch.tensor(share, dtype=torch.float32),
        torch.tensor(np.concatenate(priors), dtype=torch.float32),
        torch.tensor(np.repeat(is_absolute, c)),
        torch.tensor(np.repeat(norms, c), dtype=torch.float64),
        study,
    )
    labels = torch.tensor(population.Y, dtype=torch.float32)
    scores = [torch.sigmoid(population.lifted @ part) for part in torch.split(weights, c, 1)]
    risk = np.array([absolute_risk(each, labels).double().numpy() for each in scores])
    return risk, np.array([each.mean(0).double().numpy() for each in scores])


def risk_of_sample(
    population: Population, sample: Sample, evened: Indicator, estimated: Floats, study: Consistency
) -> tuple[Floats, Floats]:
    """R learnt from one sample: of what each of RISKS gives, (variants, c); of the first with each other norm."""
    n, prior = len(sample.rows), population.prior
    distinct, place = np.unique(sample.rows, return_inverse=True)
    count = np.maximum(sample.observed.sum(0), 1)

    def named(observed: Indicator, prior: Floats) -> Floats:
        weight = np.zeros((len(distinct), len(prior)))
        np.add.at(weight, place, observed * (2 * prior / count))
        return weight

    guess = np.nan_to_num(estimated)
    even, single = named(evened, prior), named(sample.observed, prior)
    lifted, share = population.lifted[torch.as_tensor(distinct)], np.bincount(place) / n
    risks, _ = measure_risk(
        population,
        lifted,
        [even, even, single, named(sample.observed, guess)],
        share,
        [prior, prior, prior, guess],
        [False, True, True, True],
        [study.norm] * 4,
        study,
    )
    return risks, measure_other_norms(population, lifted, even, share, study)


def measure_other_norms(
    population: Population, lifted: Tensor, named: Floats, share: Floats, study: Consistency
) -> Floats:
    """R of what the first of RISKS gives with each of the other norms, (other norms, c)."""
    norms = study.other_norms
    times = len(norms)
    risks, _ = measure_risk(
        population, lifted, [named] * times, share, [population.prior] * times, [False] * times, norms, study
    )
    return risks


def study_risk(
    population: Population, samples: Sequence[Sample], records: Records, study: Consistency
) -> dict[str, Any]:
    """Excess risk of every variant against n, the limits it may have, the bounds, and the first variant for all B."""
    prior, named = population.prior, population.named
    n_rows = len(population.Y)
    known, share = 2 * population.Y / n_rows, np.full(n_rows, 1 / n_rows)
    limits, means = measure_risk(
        population,
        population.lifted,
        [known] * 2 + [2 * prior * named / named.sum(0)],
        share,
        [prior] * 3,
        [False, True, True],
        [study.norm] * 3,
        study,
    )
    other_limits = measure_other_norms(population, population.lifted, known, share, study)
    shape = len(study.sizes), study.repetitions
    risks, others = (np.empty((*shape, times, len(prior))) for times in (len(RISKS), len(study.other_norms)))
    counts = np.empty((*shape, len(prior)), np.int64)
    for i, n in enumerate(study.sizes):
        for k, sample in enumerate(samples):
            part = Sample(sample.rows[:n], sample.observed[:n])
            counts[i, k] = part.observed.sum(0, dtype=np.int64)
            evened = draw_evenly(population.Y[part.rows], counts[i, k], np.random.default_rng((study.seed, n, k)))
            estimated = records["training"][i][k].estimate.prior
            risks[i, k], others[i, k] = risk_of_sample(population, part, evened, estimated, study)
    facts = find_risk_facts(population, study.norm)
    printed, mended = (apply_bound(bound, facts, counts, study) for bound in (risk_bound_as_printed, risk_bound))
    best = np.minimum(limits.min(0), risks.min((0, 1, 2)))  # of each label
    excess = dict(zip(RISKS, np.moveaxis((risks - best).sum(-1), -1, 0), strict=True))
    limit = dict(zip(RISKS, (limits - best).sum(1).tolist(), strict=False))
    by_norm = {study.norm: summarise_norm(facts, risks[:, :, 0], limits[0], best, counts, study)}
    for k, norm in enumerate(study.other_norms):
        lowest = np.minimum(other_limits[k], others[:, :, k].min((0, 1)))
        other = facts._replace(norm=norm)
        by_norm[norm] = summarise_norm(other, others[:, :, k], other_limits[k], lowest, counts, study)
    return {
        "best": _short(best.sum()),
        "constant": _short(_above(best, prior)),
        "gap": _short(2 * np.maximum(prior - means[0], 0).sum()),
        "length": _short(facts.length),
        "limits": {name: _short(value) for name, value in limit.items()},
        "excess": {name: _curve(study.sizes, values) for name, values in excess.items()},
        "above_limit": {name: _curve(study.sizes, excess[name] - value) for name, value in limit.items()},
        "bounds": {"printed": _curve(study.sizes, printed), "mended": _curve(study.sizes, mended)},
        "fails": {
            name: {
                "runs": values.size,
                "printed": int((values > printed).sum()),
                "mended": int((values > mended).sum()),
            }
            for name, values in excess.items()
        },
        "norms": [by_norm[norm] for norm in sorted(by_norm)],
    }


def summarise_norm(
    facts: RiskFacts, risks: Floats, limit: Floats, best: Floats, counts: Indices, study: Consistency
) -> dict[str, Any]:
    """The first of RISKS with one B: what f* gains, the excess risk against n, the mended bound.

    Args:
        facts: Of the population and B.
        risks: (sizes, repetitions, c).
        limit: Risk of what is minimised on the whole population, (c,).
        best: R(f*), (c,).
        counts: n_j, (sizes, repetitions, c).
        study: Sizes and δ.
    """
    excess = (risks - best).sum(-1)
    left = (limit - best).sum()
    bound = apply_bound(risk_bound, facts, counts, study)
    return {
        "norm": facts.norm,
        "best": _short(best.sum()),
        "constant": _short(_above(best, facts.prior)),
        "limit": _short(left),
        "excess": _curve(study.sizes, excess),
        "above_limit": _curve(study.sizes, excess - left),
        "bound": _curve(study.sizes, bound),
        "runs": excess.size,
        "fails": int((excess > bound).sum()),
    }


def apply_bound(
    bound: Callable[[RiskFacts, int, Indices, float], float], facts: RiskFacts, counts: Indices, study: Consistency
) -> Floats:
    """A bound for every sample, (sizes, repetitions); counts are n_j, (sizes, repetitions, c)."""
    sizes = zip(study.sizes, counts, strict=True)
    return np.array([[bound(facts, n, n_positive, study.delta) for n_positive in of_size] for n, of_size in sizes])


def _above(best: Floats, prior: Floats) -> float:
    """How far the best constant prediction, all or none for each label, lies above R(f*); below zero under it."""
    return float((np.minimum(prior, 1 - prior) - best).sum())


def find_risk_facts(population: Population, norm: float) -> RiskFacts:
    """What Theorem 4.2 needs to know."""
    squared = (population.lifted.double().numpy() ** 2).sum(1)
    of_positives = np.sqrt(squared @ population.Y / population.Y.sum(0))
    return RiskFacts(population.prior, population.named.mean(0), norm, math.sqrt(squared.mean()), of_positives)


# The study


def run_consistency(data: Sequence[Dataset], study: Consistency) -> dict[str, Any]:
    """Both theorems on each data set, whose rows are the population; plain numbers, ready for JSON.

    The same data and study give the same numbers on the same machine.
    """
    return {
        "study": {**asdict(study), "sizes": list(study.sizes), "other_norms": list(study.other_norms)},
        "datasets": [_study_one(each, study) for each in data],
    }


def _study_one(data: Dataset, study: Consistency) -> dict[str, Any]:
    population = make_population(data)
    largest = max(study.sizes)
    samples = [
        draw_sample(population, largest, np.random.default_rng((study.seed, k))) for k in range(study.repetitions)
    ]
    records = estimate_all_priors(population, samples, study)
    return {
        "name": data.name,
        "n_rows": len(data.Y),
        "n_features": int(population.X.shape[1]),
        "n_labels": int(data.Y.shape[1]),
        "cardinality": _short(data.Y.sum(1).mean()),
        "priors": summarise_priors(population, data.label_names, records, study),
        "risk": study_risk(population, samples, records, study),
    }


def _curve(sizes: Sequence[int], values: Floats) -> dict[str, Any]:
    """Values (sizes, repetitions) with mean and slope; the slope is None where a value is not above zero."""
    slope, error = fit_slope(sizes, values)
    return {
        "mean": [_short(each) for each in values.mean(1)],
        "runs": [[_short(each) for each in row] for row in values],
        "slope": _short(slope),
        "slope_error": _short(error),
    }


def _short(value: Any) -> float | None:
    """Five digits, more than any of these numbers deserves; None for what is not known."""
    return float(f"{float(value):.5g}") if math.isfinite(value) else None
