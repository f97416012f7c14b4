"""Held-out probabilities of the observed label: what other rows tell about a row, from models and from neighbours.

γ is the observed label of a row. The probability that it is label j is the expectation of y_j/|y| given x, which is
what the data can tell of a row without full labels. Predictions that never saw the row's own γ are mixed:

    linear      softmax regression, trained on the other folds
    layered     the same on a hidden layer with dropout
    trees       extremely randomized trees, grown on the other folds
    vote        of the rows nearest in angle, weighted by softmax(temperature · cosine), where a row is its features
                beside the square roots of the mixture without the vote: rows are near if features and labels are alike
    frequency   how often label j is observed among the other rows, ρ_j
    regression  of wide sparse rows, such as text, also a softmax regression that is fitted to the end

    s̃ = Σ λ·prediction,   λ by EM on Σ_i log s̃_{i,γ_i}

Learning rate, weight decay and number of epochs are chosen by the held-out cross-entropy of γ. No full label is used.
The cost grows with the number of rows and not with its square: neighbours are searched among at most `most_voters`
rows, and trees of many rows are grown on samples. Where the time is limited, a prediction that is not ready is left
out of the mixture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from sklearn.utils import check_random_state
from torch import Tensor

from onepos.labels import Labels
from onepos.methods.base import Shared, TrainView, Watch
from onepos.methods.fold_models import (
    NetworkSettings,
    TreeSettings,
    make_folds,
    predict_by_networks,
    predict_by_regression,
    predict_by_trees,
)
from onepos.methods.reduction import WIDE, find_directions
from onepos.validation import read_groups

_EM_STEPS = 100

# Standard deviations at which a feature is cut.
_LIMIT = 5.0

# Chosen on development sets: the research log has them.
_LINEAR = NetworkSettings(0, ((1e-3, 0.0), (1e-3, 1e-3), (3e-3, 1e-2), (3e-3, 3e-2)))
_LAYERED = NetworkSettings(256, ((1e-3, 0.0), (1e-3, 1e-3), (1e-3, 3e-3)))
_TREES = TreeSettings()
_STRENGTHS = (0.1, 1.0, 10.0)
"""Inverse penalties of the regressions of wide sparse rows."""

# Cosines held at a time (64 MiB).
_BLOCK = 1 << 24


@dataclass(frozen=True)
class CrossFitSettings:
    """How held-out predictions are made.

    Attributes:
        n_folds: Parts of the rows; each is predicted by models trained on the others. Three from `many_rows` rows on,
            where two thirds of them teach a model as well as four fifths.
        many_rows: See `n_folds`.
        linear, layered: How the networks of the folds are trained.
        trees: How their trees are grown; None for none.
        n_neighbours: Rows that vote.
        temperature: Factor of the cosine in the softmax of their weights.
        most_voters: Rows among which neighbours are searched, at most; of more a random sample.
    """

    n_folds: int = 5
    many_rows: int = 20_000
    linear: NetworkSettings = _LINEAR
    layered: NetworkSettings = _LAYERED
    trees: TreeSettings | None = _TREES
    n_neighbours: int = 60
    temperature: float = 20.0
    most_voters: int = 20_000


DEFAULTS = CrossFitSettings()


@dataclass(frozen=True)
class CrossFit:
    """Held-out predictions of γ; tensors live where the rows do.

    Attributes:
        probability: s̃, the mixture, (n, c); each row sums to 1.
        weight: λ by the name of the prediction.
        cross_entropy: Mean of −log s̃_{i,γ_i} over the rows with an observed label.
    """

    probability: Tensor
    weight: dict[str, float]
    cross_entropy: float

    @property
    def peak(self) -> Tensor:
        """m_i = max_j s̃_ij, (n,): at most E[1/|y|] of the row, with equality where one of its labels is certain."""
        return self.probability.amax(1)


def held_out_probabilities(
    X: Any,
    y: Any,
    *,
    groups: Any = None,
    random_state: int | np.random.RandomState | None = None,
    settings: CrossFitSettings | None = None,
) -> CrossFit:
    """Probability that each label is the observed one of a row, by models that did not see the row's label.

    Args:
        X: (n, d) features of any scale: a tensor, on whose device the work is done, an array, a data frame or a SciPy
            sparse matrix. One of at most 2048 columns is made dense; of a wider one, such as TF-IDF weights, the main
            directions are taken, without any scaling.
        y: Labels as for `SinglePositiveClassifier.fit` with positives="any": a vector, or an (n, c) indicator. A row
            with several observed labels counts for each of them in equal parts; a row with none is predicted but not
            learnt from. At a known negative the probability is 0.
        groups: One value per row; rows with equal values are in one fold and do not vote for each other.
        random_state: Of the folds, the models and the order of the rows; equal seeds give equal results on a CPU.
        settings: How many folds and neighbours, which models.

    Example:
        >>> X = torch.tensor([[-1.0], [1.0]]).repeat(30, 1)
        >>> fit = held_out_probabilities(X, torch.arange(60) % 2, random_state=0)
        >>> bool((fit.probability[0::2, 0] > 0.9).all())
        True
    """
    labels = Labels.read(y.cpu().numpy() if isinstance(y, Tensor) else y, _count_rows(X))
    fit = judge_rows(X, labels, groups=groups, seed=read_seed(random_state), settings=settings)
    if labels.known_negative is None:
        return fit
    negative = torch.tensor(labels.known_negative, device=fit.probability.device)
    return replace(fit, probability=without_negatives(fit.probability, negative))


def judge_rows(
    X: Any,
    labels: Labels,
    *,
    groups: Any = None,
    seed: int,
    settings: CrossFitSettings | None = None,
    watch: Watch | None = None,
) -> CrossFit:
    """The same at known negatives as elsewhere: what models that did not see the row's labels make of it."""
    is_wide = hasattr(X, "tocsr") and X.shape[1] > WIDE
    rows = torch.as_tensor(_reduce(X.tocsr(), seed)) if is_wide else _as_rows(X)
    return cross_fit(
        rows,
        torch.tensor(labels.observed, device=rows.device),
        seed,
        settings or DEFAULTS,
        groups=None if groups is None else torch.tensor(read_groups(groups, len(rows)), device=rows.device),
        watch=watch,
        is_scaled=is_wide,
    )


def read_seed(random_state: int | np.random.RandomState | None) -> int:
    """The number itself, or one drawn from a generator."""
    is_seed = isinstance(random_state, int | np.integer)
    return int(random_state) if is_seed else int(check_random_state(random_state).randint(2**31 - 1))  # type: ignore[arg-type]


def _count_rows(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def without_negatives(probability: Tensor, known_negative: Tensor) -> Tensor:
    """Probabilities of the observed label (n, c), given that it is none of the known negatives.

    Where they leave nothing, the other labels have equal parts; a row without other labels is 0.
    """
    possible = (known_negative == 0).to(probability.dtype)
    left = probability * possible
    total = left.sum(1, keepdim=True)
    return torch.where(total > 0, left / total.clamp(min=1e-30), possible / possible.sum(1, keepdim=True).clamp(min=1))


@torch.no_grad()
def cross_fit(
    rows: Tensor,
    observed: Tensor,
    seed: int,
    settings: CrossFitSettings,
    *,
    groups: Tensor | None = None,
    watch: Watch | None = None,
    shared: Shared | None = None,
    is_scaled: bool = False,
) -> CrossFit:
    """Held-out probabilities of rows (n, d) with observed labels (n, c).

    Args:
        rows: Any scale.
        observed: 0/1.
        seed: Of folds, models and order of the rows.
        settings: How many folds and neighbours, which models.
        groups: Equal numbers for rows that must not be split, (n,).
        watch: Where to report progress, and until when to be done.
        shared: Where the single predictions are kept.
        is_scaled: Whether the rows are taken as they are, without standardizing.
    """
    if len(rows) < settings.n_folds:
        raise ValueError(
            f"X must have at least {settings.n_folds} rows; got {len(rows)}, n_samples={len(rows)}. Give more rows."
        )
    watch, shared = watch or Watch(), shared or Shared()
    target = _as_target(observed, rows)
    rows = rows if is_scaled else _standardize(rows)
    n_folds = min(3, settings.n_folds) if len(rows) >= settings.many_rows else settings.n_folds
    folds = make_folds(len(rows), n_folds, seed, groups)
    makers: dict[str, Callable[[Watch], Tensor | None]] = {
        "linear": partial(predict_by_networks, rows, target, folds, settings.linear, seed),
        "layered": partial(predict_by_networks, rows, target, folds, settings.layered, seed),
    }
    if is_scaled:
        makers["regression"] = partial(predict_by_regression, rows, target, folds, _STRENGTHS)
    if settings.trees is not None:
        makers["trees"] = partial(predict_by_trees, rows, target, folds, settings.trees, seed)
    frequency, shape = _frequency(target, groups), tuple(target.shape)
    found: dict[str, Tensor] = {}
    for name, make in makers.items():
        part = watch.named(f"preparing, {name} models" if name != "trees" else "preparing, trees").part(0.5)
        made = shared.kept(name, partial(make, part), part.has_time, shape)
        if made is not None:
            found[name] = made.to(rows.device)
    without_vote, _, _ = _mix({**found, "frequency": frequency}, target)
    watch = watch.named("preparing, neighbours")
    near = torch.cat([F.normalize(rows), without_vote.sqrt()], 1)
    vote = shared.kept("vote", lambda: _vote(near, target, settings, seed, groups, watch), shape=shape)
    if vote is not None:
        found["vote"] = vote.to(rows.device)
    return CrossFit(*_mix({**found, "frequency": frequency}, target))


def held_out(train: TrainView) -> CrossFit:
    """Held-out predictions of the training rows, made once for all methods that share them.

    Images are predicted from what the network makes of them before the training, wide sparse rows from their main
    directions.
    """

    def make() -> CrossFit:
        wide = train.sparse_inputs() if train.is_tabular else None
        if wide is not None and wide.shape[1] > WIDE:
            rows, is_scaled = torch.as_tensor(_reduce(wide, train.seed), device=train.observed.device), True
        else:
            rows, is_scaled = (train.inputs() if train.is_tabular else train.features()).float(), False
        options = {"groups": train.groups, "watch": train.watch, "shared": train.shared, "is_scaled": is_scaled}
        return cross_fit(rows, train.observed, train.seed, DEFAULTS, **options)  # type: ignore[arg-type]

    return train.shared.once(("held-out", train.seed), make)


def _reduce(rows: Any, seed: int) -> npt.NDArray[np.float32]:
    return find_directions(rows, seed).apply(rows)


def _as_rows(X: Any) -> Tensor:
    """Rows of numbers in single precision, (n, d); arrays are standardized in double, which a time stamp needs."""
    if isinstance(X, Tensor):
        return X.detach().float()
    values = X.to_numpy() if hasattr(X, "to_numpy") else X
    dense = np.asarray(values.toarray() if hasattr(values, "toarray") else values, np.float64)
    if dense.ndim != 2:
        raise ValueError(f"X must be a matrix, one row per sample; got shape {dense.shape}.")
    deviation = dense.std(0)
    return torch.tensor((dense - dense.mean(0)) / np.where(deviation > 0, deviation, 1.0), dtype=torch.float32)


def _as_target(observed: Tensor, rows: Tensor) -> Tensor:
    """Observed labels as shares of the row, (n, c): each row sums to 1, or to 0 where nothing was observed."""
    target = observed.to(rows.device, torch.float32)
    if not bool(target.any()):
        raise ValueError("y must hold at least one positive label; it holds none. Give rows that were labelled.")
    return target / target.sum(1, keepdim=True).clamp(min=1)


def _standardize(rows: Tensor) -> Tensor:
    """Rows (n, d) of mean 0 and deviation 1, cut at ±_LIMIT; a constant feature becomes 0."""
    mean = rows.mean(0)
    scale = (rows - mean).square_().mean(0).sqrt()
    scale = torch.where(scale > 1e-6 * mean.abs(), scale, torch.inf)  # of a constant only rounding errors are left
    return ((rows - mean) / scale).clamp_(-_LIMIT, _LIMIT)


def _vote(
    rows: Tensor, target: Tensor, settings: CrossFitSettings, seed: int, groups: Tensor | None, watch: Watch
) -> Tensor | None:
    """Labels of the nearest rows of other groups in angle, weighted by softmax(temperature · cosine), (n, c)."""
    n, device = len(rows), rows.device
    unit = F.normalize(rows)
    voters = (target.sum(1) > 0).nonzero()[:, 0]
    if len(voters) > settings.most_voters:
        chosen = torch.randperm(len(voters), generator=torch.Generator().manual_seed(seed))[: settings.most_voters]
        voters = voters[chosen.sort().values.to(device)]
    place = torch.full((n,), -1, device=device)  # of each row among the voters
    place[voters] = torch.arange(len(voters), device=device)
    labels, shares = _as_lists(target[voters])
    pool, vote = unit[voters], torch.zeros_like(target)
    for block in torch.split(torch.arange(n, device=device), max(1, _BLOCK // len(pool))):
        if watch.is_late():
            return None
        cosine = unit[block] @ pool.T
        own = place[block]
        cosine[(own >= 0).nonzero()[:, 0], own[own >= 0]] = -torch.inf
        if groups is not None:
            cosine[groups[block, None] == groups[voters]] = -torch.inf
        nearest = cosine.topk(max(1, min(settings.n_neighbours, len(pool) - 1)))
        vote[block] = _count_votes(nearest, labels, shares, target.shape[1], settings.temperature)
        watch.report(int(block[-1]) + 1, n)
    return vote


def _as_lists(target: Tensor) -> tuple[Tensor, Tensor]:
    """The labels of each row and their shares, (n, r) each; a row of fewer than r has shares of 0."""
    share, label = target.topk(max(1, int((target > 0).sum(1).amax()) if len(target) else 1))
    return label, share


def _count_votes(
    nearest: torch.return_types.topk, label: Tensor, share: Tensor, n_labels: int, temperature: float
) -> Tensor:
    """Votes (B, c) of the nearest rows (B, k), weighted by softmax(temperature · cosine)."""
    cosine, neighbour = nearest
    weight = torch.softmax(temperature * cosine, 1).nan_to_num()
    votes = (weight[..., None] * share[neighbour]).flatten(1)
    return cosine.new_zeros(len(cosine), n_labels).scatter_add_(1, label[neighbour].flatten(1), votes)


def _frequency(target: Tensor, groups: Tensor | None = None) -> Tensor:
    """Share of each label among the other rows, with groups among those of other groups, (n, c)."""
    own = target
    if groups is not None:
        own = target.new_zeros(int(groups.max()) + 1, target.shape[1]).index_add_(0, groups, target)[groups]
    others = target.sum(0) - own
    return others / others.sum(1, keepdim=True).clamp(min=1)


def _mix(predictions: dict[str, Tensor], target: Tensor) -> tuple[Tensor, dict[str, float], float]:
    """The mixture, the weights by expectation maximisation, and the cross-entropy."""
    known = target.sum(1) > 0
    likelihood = torch.stack([(each * target).sum(1)[known] for each in predictions.values()], 1)
    likelihood = likelihood.cpu().double().clamp(min=1e-30)  # float64 is not for an Apple GPU, and this is small
    weight = likelihood.new_full((len(predictions),), 1 / len(predictions))
    for _ in range(_EM_STEPS):
        responsibility = likelihood * weight
        weight = (responsibility / responsibility.sum(1, keepdim=True)).mean(0)
    weights = dict(zip(predictions, weight.tolist(), strict=True))
    mixture = torch.zeros_like(target)
    for name, prediction in predictions.items():
        mixture.add_(prediction, alpha=weights[name])
    total = mixture.sum(1, keepdim=True)
    mixture = torch.where(total > 0, mixture / total, 1 / target.shape[1])
    return mixture, weights, -float((likelihood @ weight).log().mean())
