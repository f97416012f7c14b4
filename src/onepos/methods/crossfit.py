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
here looks at a full label. Rows that come later can be asked about too (`Advisers`).
"""

from __future__ import annotations

import copy
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
from onepos.training.samples import as_samples, fit_scaling

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

# Sets of rows beside their own of which advisers remember what they said: validation and test rows, and one more.
_REMEMBERED = 3

_recent: OrderedDict[str, CrossFit] = OrderedDict()


@dataclass(frozen=True)
class CrossFit:
    """Opinions on γ that never saw it; tensors live where the rows do.

    Attributes:
        probability: s̃, the mixture, (n, c); each row sums to 1.
        weight: λ by opinion.
        cross_entropy: Mean of −log s̃_{i,γ_i} over the rows with an observed label.
        advisers: Who to ask about other rows; None unless X was a tensor.
    """

    probability: Tensor
    weight: dict[str, float]
    cross_entropy: float
    advisers: Advisers | None = None

    @property
    def peak(self) -> Tensor:
        """m_i = max_j s̃_ij, (n,): at most E[1/|y|] of the row, with equality where one of its labels is certain."""
        return self.probability.amax(1)

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        held = [self.probability, *(() if self.advisers is None else self.advisers.buffers())]
        return sum(tensor.nbytes for tensor in held)


class Advisers(nn.Module):
    """The same opinions on rows that come later: of the models of all folds, and of all rows that were learnt from.

    The models of the folds are averaged in their logits, so five of them are one that is five times as wide. Nothing
    here is trained any more. The rows that vote are kept in half precision, each as its features and the roots of what
    the models that had not seen it say of it; both are of length 1, so the mean of their products is the cosine.

    Attributes:
        mean, scale: By which rows are standardised, (d,).
        linear_weight, linear_bias: Of the linear model, (c, d) and (c,).
        hidden_weight, hidden_bias, layered_weight, layered_bias: Of the layered one, (h, d), (h,), (c, h) and (c,).
        frequency: ρ, (c,).
        first, second: Weights of linear, layered, frequency before the vote, and of linear, layered, vote, frequency.
        features, opinion: Of the rows that vote, (n, d) and (n, c).
        label, share: What each of them votes for, (n, r), and by how much: 1/r of r labels, 0 where it has fewer.
    """

    mean: Tensor
    scale: Tensor
    linear_weight: Tensor
    linear_bias: Tensor
    hidden_weight: Tensor
    hidden_bias: Tensor
    layered_weight: Tensor
    layered_bias: Tensor
    frequency: Tensor
    first: Tensor
    second: Tensor
    features: Tensor
    opinion: Tensor
    label: Tensor
    share: Tensor

    def __init__(self, **tensors: Tensor) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)
        self._own: dict[str, Tensor] = {}
        self._said: OrderedDict[str, Tensor] = OrderedDict()

    def __deepcopy__(self, memo: dict[int, Any]) -> Advisers:
        """A copy that remembers nothing."""
        return Advisers(**{name: buffer.clone() for name, buffer in self.named_buffers()})

    @classmethod
    def read(cls, tensors: dict[str, Tensor], n_features: int, n_labels: int) -> Advisers:
        """From the tensors of `state_dict`, whose shapes must fit each other; RuntimeError where they do not."""
        width, (n, r) = len(tensors["hidden_weight"]), tensors["label"].shape
        d, c = n_features, n_labels
        wanted = {
            "mean": (d,),
            "scale": (d,),
            "linear_weight": (c, d),
            "linear_bias": (c,),
            "hidden_weight": (width, d),
            "hidden_bias": (width,),
            "layered_weight": (c, width),
            "layered_bias": (c,),
            "frequency": (c,),
            "first": (3,),
            "second": (4,),
            "features": (n, d),
            "opinion": (n, c),
            "label": (n, r),
            "share": (n, r),
        }
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if found != wanted or tensors["label"].dtype != torch.int64 or not n:
            raise RuntimeError(f"advisers must have the shapes {wanted}; got {found}")
        if tensors["label"].min() < 0 or tensors["label"].max() >= c:
            raise RuntimeError(f"advisers must vote for labels 0 to {c - 1}")
        return cls(**tensors)

    @property
    def n_rows(self) -> int:
        """Rows that vote."""
        return len(self.features)

    def forward(self, rows: Tensor) -> Tensor:
        """Chances of being shown, (B, c), of rows (B, d); they sum to 1."""
        held = max(1, _BLOCK // len(self.features))
        return torch.cat([self._ask(part) for part in torch.split(rows, held)]) if len(rows) else self._ask(rows)

    def about(self, rows: Tensor) -> Tensor:
        """The same for whole sets of rows, asked again and again: what was said is remembered.

        Of the very rows that they learnt from it is what those said who had not seen them.
        """
        name = _digest(rows)
        if name in self._own:
            return self._own[name].to(rows.device)
        if name not in self._said:
            self._said[name] = self(rows)
        self._said.move_to_end(name)
        while len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        return self._said[name].to(rows.device)

    def learnt_from(self, rows: Tensor, opinion: Tensor) -> None:
        """These are their own rows, and what those say of each who have not seen it, (n, c)."""
        self._own = {_digest(rows): opinion}

    def _ask(self, rows: Tensor) -> Tensor:
        rows = _standardise(rows, self.mean, self.scale)
        hidden = torch.relu(F.linear(rows, self.hidden_weight, self.hidden_bias))
        opinions = [
            torch.softmax(F.linear(rows, self.linear_weight, self.linear_bias), 1),
            torch.softmax(F.linear(hidden, self.layered_weight, self.layered_bias), 1),
        ]
        frequency = self.frequency.expand(len(rows), -1)
        opinion = torch.tensordot(self.first, torch.stack([*opinions, frequency]), 1)
        near = F.normalize(rows) @ self.features.to(rows.dtype).T
        near = torch.addmm(near, opinion.sqrt(), self.opinion.to(rows.dtype).T) / 2
        nearest = near.topk(min(N_NEIGHBOURS, len(self.features)))
        vote = _count(nearest.values, nearest.indices, self.label, self.share, len(self.frequency))
        mixture = torch.tensordot(self.second, torch.stack([*opinions, vote, frequency]), 1)
        return F.normalize(mixture, p=1.0)


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
    given = _as_rows(X)
    target = _as_target(observed, given)
    advised = isinstance(X, Tensor)
    name = _digest(given, target, more=(given.device, seed, advised))
    if name not in _recent:
        _recent[name] = _fit(given, target, seed, advised)
    _recent.move_to_end(name)
    while len(_recent) > 1 and sum(fit.nbytes for fit in _recent.values()) > _KEPT:
        _recent.popitem(last=False)
    return _recent[name]


def _fit(given: Tensor, target: Tensor, seed: int, advised: bool) -> CrossFit:
    d, c = given.shape[1], target.shape[1]
    mean, scale = _scaling(given)
    rows = _standardise(given, mean, scale)
    linear, linear_models = _fit_folds(rows, target, lambda: nn.Sequential(nn.Linear(d, c)), RATES["linear"], seed)
    layered, layered_models = _fit_folds(
        rows,
        target,
        lambda: nn.Sequential(nn.Linear(d, HIDDEN), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(HIDDEN, c)),
        RATES["layered"],
        seed,
    )
    models, frequency = {"linear": linear, "layered": layered}, {"frequency": _frequency(target)}
    opinion, first, _ = _mix(models | frequency, target)
    vote = {"vote": _vote(torch.cat([F.normalize(rows), opinion.sqrt()], 1), target)}
    mixture, second, cross_entropy = _mix(models | vote | frequency, target)
    if not advised:
        return CrossFit(mixture, second, cross_entropy)
    votes = target.sum(1) > 0
    label, share = _as_lists(target[votes])
    advisers = Advisers(
        mean=mean,
        scale=scale,
        frequency=target.sum(0) / target.sum(),
        first=rows.new_tensor(list(first.values())),
        second=rows.new_tensor(list(second.values())),
        features=F.normalize(rows[votes]).half(),
        opinion=opinion[votes].sqrt().half(),
        label=label,
        share=share,
        **_average(linear_models, "linear"),
        **_average(layered_models, "layered"),
    )
    advisers.learnt_from(given, mixture)
    return CrossFit(mixture, second, cross_entropy, advisers)


def _average(models: list[nn.Sequential], name: str) -> dict[str, Tensor]:
    """Weights of one model whose logits are the means of theirs."""
    layers = [[layer for layer in model if isinstance(layer, nn.Linear)] for model in models]
    last, n = [each[-1] for each in layers], len(models)
    bias = torch.stack([layer.bias for layer in last]).mean(0)
    if len(layers[0]) == 1:
        return {f"{name}_weight": torch.stack([layer.weight for layer in last]).mean(0), f"{name}_bias": bias}
    return {
        "hidden_weight": torch.cat([each[0].weight for each in layers]),
        "hidden_bias": torch.cat([each[0].bias for each in layers]),
        f"{name}_weight": torch.cat([layer.weight for layer in last], 1) / n,
        f"{name}_bias": bias,
    }


def _digest(*parts: Tensor, more: Any = None) -> str:
    digest = hashlib.blake2b(repr(([part.shape for part in parts], more)).encode())
    for part in parts:
        digest.update(np.ascontiguousarray(part.cpu().numpy()).data)
    return digest.hexdigest()


def _as_rows(X: Any) -> Tensor:
    """Rows of numbers in single precision, (n, d)."""
    if X.ndim != 2 or X.shape[0] < N_FOLDS:
        raise ValueError(
            f"X must be a matrix of at least {N_FOLDS} rows; got shape {tuple(X.shape)}, n_samples={X.shape[0]}. "
            "Give more rows, one per sample."
        )
    if isinstance(X, Tensor):
        return X.detach().float()
    samples = as_samples(X, fit_scaling(X))  # in double precision, which a time stamp needs
    return samples.rows(torch.arange(len(samples)))


def _scaling(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each feature, (d,); infinite where it is constant."""
    mean = rows.mean(0)
    scale = (rows - mean).square().mean(0).sqrt()
    return mean, torch.where(scale > 1e-6 * mean.abs(), scale, torch.inf)  # of a constant only rounding errors are left


def _standardise(rows: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Rows (B, d) of mean 0 and deviation 1, cut at ±_LIMIT."""
    return ((rows - mean) / scale).clamp_(-_LIMIT, _LIMIT)


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
) -> tuple[Tensor, list[nn.Sequential]]:
    """Models, and what each says about the fold it has not seen, (n, c).

    The first fold chooses for all: the learning rate, then whether to decay weights at that rate.
    """
    generator = torch.Generator().manual_seed(seed)
    fold = (torch.randperm(len(rows), generator=generator) % N_FOLDS).to(rows.device)
    opinion, models = torch.empty_like(target), []
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
            _, opinion[unseen], model = fits[setting]
        else:
            _, opinion[unseen], model = fit(*setting)
        models.append(model)
    return opinion, models


def _fit_model(
    rows: Tensor,
    target: Tensor,
    seen: Tensor,
    unseen: Tensor,
    make: Callable[[], nn.Sequential],
    seed: int,
    rate: float,
    decay: float,
) -> tuple[float, Tensor, nn.Sequential]:
    """Train on the rows `seen`; (cross-entropy, probabilities) of those `unseen` and the model, at their best epoch."""
    device = rows.device
    with torch.enable_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        model = _start(make(), target[seen]).to(device)
        optimiser = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay, fused=True)
        n_steps = -(-len(seen) // _BATCH)
        patience = max(_PATIENT_EPOCHS, _PATIENT_STEPS // n_steps)
        lowest, best, kept, waited = torch.inf, target[unseen], model, 0
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
                lowest, best, kept, waited = entropy, logs.exp(), copy.deepcopy(model), 0
            if waited == patience:
                break
    return lowest, best, kept


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
    label, share = _as_lists(target)
    for block in torch.split(torch.arange(n, device=rows.device), max(1, _BLOCK // n)):
        cosine = unit[block] @ unit.T
        cosine[:, ~labelled] = -torch.inf
        cosine[torch.arange(len(block), device=rows.device), block] = -torch.inf
        nearest = cosine.topk(min(N_NEIGHBOURS, n - 1))
        vote[block] = _count(nearest.values, nearest.indices, label, share, target.shape[1])
    return vote


def _as_lists(target: Tensor) -> tuple[Tensor, Tensor]:
    """The labels of each row and their shares, (n, r) each; a row of fewer than r has shares of 0."""
    share, label = target.topk(max(1, int((target > 0).sum(1).amax()) if len(target) else 1))
    return label, share


def _count(near: Tensor, neighbour: Tensor, label: Tensor, share: Tensor, n_labels: int) -> Tensor:
    """Votes (B, c) of the neighbours (B, k), weighted by softmax(TEMPERATURE · cosine)."""
    weight = torch.softmax(TEMPERATURE * near, 1).nan_to_num()
    votes = (weight[..., None] * share[neighbour]).flatten(1)
    return near.new_zeros(len(near), n_labels).scatter_add_(1, label[neighbour].flatten(1), votes)


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
