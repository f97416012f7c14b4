"""What other rows say about a row's observed label: held-out P(γ = j | x), from models and from neighbours.

γ is the label that was observed of a row. The chance that it is label j is the expectation of y_j/|y| given x, which
is what the data can tell of a row without full labels. Four opinions that never saw the row's own γ are mixed:

    linear      softmax regression, trained on the other folds
    layered     the same on a hidden layer with dropout
    vote        of the rows nearest in angle, weighted by softmax(TEMPERATURE · cosine), where a row is its features
                beside the square roots of what the first two say of it: rows are near if they look alike and mean alike
    frequency   how often label j is observed among the other rows, ρ_j

    s̃ = Σ λ·opinion,   λ by EM on Σ_i log s̃_{i,γ_i}

Learning rates, whether to decay weights and the number of epochs are chosen by the held-out cross-entropy of γ. Nothing
here looks at a full label.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onepos.protocol import as_indicator
from onepos.samples import as_samples, fit_scaling

N_FOLDS, N_NEIGHBOURS, TEMPERATURE = 5, 60, 20.0
HIDDEN, DROPOUT = 256, 0.5
RATES = {"linear": (3e-4, 1e-3, 3e-3), "layered": (3e-4, 1e-3)}
DECAY = 1e-3

# Adam on batches of the training folds. It stops when some epochs and steps in a row bring the held-out rows nothing;
# an epoch of few rows is few steps, hence both.
_BATCH = 128
_PATIENT_EPOCHS, _PATIENT_STEPS = 3, 30
_MOST_EPOCHS, _MOST_STEPS = 60, 600
_EM_STEPS = 100

# Standard deviations at which a feature is cut.
_LIMIT = 5.0

# Cosines held at a time (64 MiB).
_BLOCK = 1 << 24

# Runs that differ in their settings ask for the same fit, and a stack has runs of many trials: the last fits are kept,
# by what went into them, as many as take this many bytes.
_KEPT = 1 << 29
_recent: OrderedDict[str, CrossFit] = OrderedDict()


@dataclass(frozen=True)
class CrossFit:
    """Opinions on γ that never saw it; tensors live where the rows do.

    Attributes:
        probability: s̃, the mixture, (n, c); each row sums to 1.
        weight: λ by opinion.
        cross_entropy: Mean of −log s̃_{i,γ_i} over the rows with an observed label.
    """

    probability: Tensor
    weight: dict[str, float]
    cross_entropy: float

    @property
    def peak(self) -> Tensor:
        """m_i = max_j s̃_ij, (n,): at most E[1/|y|] of the row, with equality where one of its labels is certain."""
        return self.probability.amax(1)


@torch.no_grad()
def cross_fit(X: Any, observed: Any, seed: int = 0) -> CrossFit:
    """Held-out probabilities of the observed label.

    Args:
        X: (n, d) features of any scale: a tensor, on whose device the work is done, an array, a data frame or a SciPy
            sparse matrix, which is spread out (4·n·d bytes).
        observed: (n, c) 0/1 array or tensor, or a vector of n label indices with −1 for none, where c is the largest
            plus one. A row with several observed labels counts for each of them in equal parts; one with none is judged
            but not learnt from.
        seed: Of the folds, the models and the order of the rows; equal seeds give equal results on a CPU.

    Example:
        >>> X = torch.tensor([[-1.0], [1.0]]).repeat(30, 1)
        >>> fit = cross_fit(X, torch.arange(60) % 2)
        >>> bool((fit.probability[0::2, 0] > 0.9).all())
        True
    """
    X, observed = (each.to_numpy() if hasattr(each, "to_numpy") else each for each in (X, observed))
    rows = _as_rows(X)
    target = _as_target(observed, rows)
    name = _digest(rows, target, seed)
    if name not in _recent:
        _recent[name] = _fit(rows, target, seed)
    _recent.move_to_end(name)
    while len(_recent) > 1 and sum(fit.probability.nbytes for fit in _recent.values()) > _KEPT:
        _recent.popitem(last=False)
    return _recent[name]


def _fit(rows: Tensor, target: Tensor, seed: int) -> CrossFit:
    d, c = rows.shape[1], target.shape[1]
    makers: dict[str, Callable[[], nn.Sequential]] = {
        "linear": lambda: nn.Sequential(nn.Linear(d, c)),
        "layered": lambda: nn.Sequential(nn.Linear(d, HIDDEN), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(HIDDEN, c)),
    }
    models = {name: _fit_folds(rows, target, make, RATES[name], seed) for name, make in makers.items()}
    frequency = {"frequency": _frequency(target)}
    opinion, _, _ = _mix(models | frequency, target)
    vote = {"vote": _vote(torch.cat([F.normalize(rows), opinion.sqrt()], 1), target)}
    return CrossFit(*_mix(models | vote | frequency, target))


def _digest(rows: Tensor, target: Tensor, seed: int) -> str:
    digest = hashlib.blake2b(repr((rows.shape, target.shape, rows.device, seed)).encode())
    for part in (rows, target):
        digest.update(np.ascontiguousarray(part.cpu().numpy()).data)
    return digest.hexdigest()


def _as_rows(X: Any) -> Tensor:
    """Standardised rows, cut at ±_LIMIT, (n, d)."""
    if X.ndim != 2 or X.shape[0] < N_FOLDS:
        raise ValueError(
            f"X must be a matrix of at least {N_FOLDS} rows; got shape {tuple(X.shape)}, n_samples={X.shape[0]}. "
            "Give more rows, one per sample."
        )
    if isinstance(X, Tensor):
        rows = X.detach().float()
        mean = rows.mean(0)
        rows = rows - mean
        scale = rows.square().mean(0).sqrt()
        rows /= torch.where(scale > 1e-6 * mean.abs(), scale, torch.inf)  # of a constant only rounding errors are left
    else:
        samples = as_samples(X, fit_scaling(X))
        rows = samples.rows(torch.arange(len(samples)))
    return rows.clamp_(-_LIMIT, _LIMIT)


def _as_target(observed: Any, rows: Tensor) -> Tensor:
    """Observed labels as shares of the row, (n, c): each row sums to 1, or to 0 where nothing was observed."""
    if isinstance(observed, Tensor) and observed.ndim == 2:
        target = observed.to(rows.device, torch.float32)
    else:
        indicator = as_indicator(observed.cpu().numpy() if isinstance(observed, Tensor) else observed)
        target = torch.as_tensor(indicator, dtype=torch.float32, device=rows.device)
    if len(target) != len(rows):
        raise ValueError(
            f"X and observed must have as many rows; got {len(rows)} and {len(target)}. Give both of the same rows."
        )
    if not bool(target.any()):
        raise ValueError("observed must hold at least one positive label; it holds none. Give rows that were labelled.")
    return target / target.sum(1, keepdim=True).clamp(min=1)


def _fit_folds(
    rows: Tensor, target: Tensor, make: Callable[[], nn.Sequential], rates: tuple[float, ...], seed: int
) -> Tensor:
    """Models each asked about the fold it has not seen, (n, c).

    The first fold chooses for all: the learning rate, then whether to decay weights at that rate.
    """
    generator = torch.Generator().manual_seed(seed)
    fold = (torch.randperm(len(rows), generator=generator) % N_FOLDS).to(rows.device)
    opinion = torch.empty_like(target)
    setting = (rates[0], 0.0)
    for k in range(N_FOLDS):
        seen, unseen = (fold != k).nonzero()[:, 0], (fold == k).nonzero()[:, 0]
        fit = partial(_fit_model, rows, target, seen, unseen, make, seed)
        if k == 0:
            fits = {(rate, 0.0): fit(rate, 0.0) for rate in rates}
            setting = min(fits, key=lambda s: fits[s][0])
            decayed = (setting[0], DECAY)
            fits[decayed] = fit(*decayed)
            setting = min(setting, decayed, key=lambda s: fits[s][0])
            opinion[unseen] = fits[setting][1]
        else:
            opinion[unseen] = fit(*setting)[1]
    return opinion


def _fit_model(
    rows: Tensor,
    target: Tensor,
    seen: Tensor,
    unseen: Tensor,
    make: Callable[[], nn.Sequential],
    seed: int,
    rate: float,
    decay: float,
) -> tuple[float, Tensor]:
    """Train on the rows `seen`; (cross-entropy, probabilities) of those `unseen` at their best epoch."""
    device = rows.device
    with torch.enable_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        model = _start(make(), target[seen]).to(device)
        optimiser = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay, fused=True)
        n_steps = -(-len(seen) // _BATCH)
        patience = max(_PATIENT_EPOCHS, _PATIENT_STEPS // n_steps)
        lowest, best, waited = torch.inf, target[unseen], 0
        for _ in range(max(_MOST_EPOCHS, _MOST_STEPS // n_steps)):
            model.train()
            for index in torch.split(seen[torch.randperm(len(seen)).to(device)], _BATCH):
                optimiser.zero_grad()
                loss = -(torch.log_softmax(model(rows[index]), 1) * target[index]).sum() / len(index)
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            with torch.no_grad():
                logs = torch.log_softmax(model.eval()(rows[unseen]), 1)
                entropy = -float((logs * target[unseen]).sum()) / max(1.0, float(target[unseen].sum()))
            waited += 1
            if entropy < lowest - 1e-4:
                lowest, best, waited = entropy, logs.exp(), 0
            if waited == patience:
                break
    return lowest, best


@torch.no_grad()
def _start(model: nn.Sequential, target: Tensor) -> nn.Sequential:
    """Start at the frequencies of the labels, none of which differs from the others in anything else."""
    last = model[-1]
    assert isinstance(last, nn.Linear)
    last.weight.zero_()
    last.bias.copy_(((target.sum(0) + 0.5) / (target.sum() + 0.5 * target.shape[1])).log())
    return model


def _vote(rows: Tensor, target: Tensor) -> Tensor:
    """Labels of the nearest other rows in angle, weighted by softmax(TEMPERATURE · cosine), (n, c)."""
    n = len(rows)
    unit = F.normalize(rows)
    vote = torch.zeros_like(target)
    labelled = target.sum(1) > 0
    for block in torch.split(torch.arange(n, device=rows.device), max(1, _BLOCK // n)):
        cosine = unit[block] @ unit.T
        cosine[:, ~labelled] = -torch.inf
        cosine[torch.arange(len(block), device=rows.device), block] = -torch.inf
        near, neighbour = cosine.topk(min(N_NEIGHBOURS, n - 1))
        weight = torch.softmax(TEMPERATURE * near, 1).nan_to_num()
        for k in range(neighbour.shape[1]):
            vote[block] += weight[:, k : k + 1] * target[neighbour[:, k]]
    return vote


def _frequency(target: Tensor) -> Tensor:
    """Share of each label among the other rows, (n, c)."""
    others = target.sum(0) - target
    return others / others.sum(1, keepdim=True).clamp(min=1)


def _mix(opinions: dict[str, Tensor], target: Tensor) -> tuple[Tensor, dict[str, float], float]:
    """The mixture, the weights by expectation maximisation, and the cross-entropy."""
    known = target.sum(1) > 0
    likelihood = torch.stack([(each * target).sum(1)[known] for each in opinions.values()], 1)
    likelihood = likelihood.cpu().double().clamp(min=1e-30)  # float64 is not for an Apple GPU, and this is small
    weight = likelihood.new_full((len(opinions),), 1 / len(opinions))
    for _ in range(_EM_STEPS):
        blame = likelihood * weight
        weight = (blame / blame.sum(1, keepdim=True)).mean(0)
    weights = dict(zip(opinions, weight.tolist(), strict=True))
    mixture = torch.zeros_like(target)
    for name, opinion in opinions.items():
        mixture.add_(opinion, alpha=weights[name])
    mixture /= mixture.sum(1, keepdim=True)
    return mixture, weights, -float((likelihood @ weight).log().mean())
