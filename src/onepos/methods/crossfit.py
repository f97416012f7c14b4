"""Held-out probabilities of the observed label: what other rows tell about a row, from models and from neighbours.

γ is the observed label of a row. The probability that it is label j is the expectation of y_j/|y| given x, which is
what the data can tell of a row without full labels. Four predictions that never saw the row's own γ are mixed:

    linear      softmax regression, trained on the other folds
    layered     the same on a hidden layer with dropout
    vote        of the rows nearest in angle, weighted by softmax(temperature · cosine), where a row is its features
                beside the square roots of the mixture without the vote: rows are near if features and labels are alike
    frequency   how often label j is observed among the other rows, ρ_j

    s̃ = Σ λ·prediction,   λ by EM on Σ_i log s̃_{i,γ_i}

Learning rates, whether to decay weights and the number of epochs are chosen by the held-out cross-entropy of γ. No full
label is used. `Ensemble` predicts rows that come later.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.utils import check_random_state
from torch import Tensor, nn

from onepos.labels import read_labels
from onepos.methods.base import TrainView
from onepos.methods.ensemble import BLOCK, Ensemble, as_lists, count_votes, fit_scaling, standardize

_EM_STEPS = 100


@dataclass(frozen=True)
class CrossFitSettings:
    """How held-out predictions are made.

    Attributes:
        n_folds: Parts of the rows; each is predicted by models trained on the others.
        n_neighbours: Rows that vote.
        temperature: Factor of the cosine in the softmax of their weights.
        hidden: Width of the hidden layer of the layered model.
        dropout: Share of it that is dropped in training.
        linear_rates, layered_rates: Learning rates to choose from.
        decay: Weight decay to try at the chosen rate.
        batch_size: Rows per step.
        patient_epochs, patient_steps: Training stops when so many epochs and steps in a row do not lower the
            cross-entropy of the held-out rows. An epoch of few rows is few steps, hence both.
        most_epochs, most_steps: At most the larger of these.
    """

    n_folds: int = 5
    n_neighbours: int = 60
    temperature: float = 20.0
    hidden: int = 256
    dropout: float = 0.5
    linear_rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    layered_rates: tuple[float, ...] = (3e-4, 1e-3)
    decay: float = 1e-3
    batch_size: int = 128
    patient_epochs: int = 3
    patient_steps: int = 30
    most_epochs: int = 60
    most_steps: int = 600


DEFAULTS = CrossFitSettings()


@dataclass(frozen=True)
class CrossFit:
    """Held-out predictions of γ; tensors live where the rows do.

    Attributes:
        probability: s̃, the mixture, (n, c); each row sums to 1.
        weight: λ by the name of the prediction.
        cross_entropy: Mean of −log s̃_{i,γ_i} over the rows with an observed label.
        ensemble: Predicts other rows; None where the models were not kept.
    """

    probability: Tensor
    weight: dict[str, float]
    cross_entropy: float
    ensemble: Ensemble | None = None

    @property
    def peak(self) -> Tensor:
        """m_i = max_j s̃_ij, (n,): at most E[1/|y|] of the row, with equality where one of its labels is certain."""
        return self.probability.amax(1)


def held_out_probabilities(
    X: Any, y: Any, *, random_state: int | np.random.RandomState | None = None, settings: CrossFitSettings | None = None
) -> CrossFit:
    """Probability that each label is the observed one of a row, by models that did not see the row's label.

    Args:
        X: (n, d) features of any scale: a tensor, on whose device the work is done, an array, a data frame or a SciPy
            sparse matrix, which is made dense (4·n·d bytes).
        y: Labels as for `SinglePositiveClassifier.fit` with positives="any": a vector, or an (n, c) indicator. A row
            with several observed labels counts for each of them in equal parts; a row with none is predicted but not
            learnt from.
        random_state: Of the folds, the models and the order of the rows; equal seeds give equal results on a CPU.
        settings: How many folds and neighbours, which models.

    Example:
        >>> X = torch.tensor([[-1.0], [1.0]]).repeat(30, 1)
        >>> fit = held_out_probabilities(X, torch.arange(60) % 2, random_state=0)
        >>> bool((fit.probability[0::2, 0] > 0.9).all())
        True
    """
    rows = _as_rows(X)
    values = y.cpu().numpy() if isinstance(y, Tensor) else y
    observed, _ = read_labels(values, len(rows), "any")
    is_seed = isinstance(random_state, int | np.integer)
    seed = int(random_state) if is_seed else int(check_random_state(random_state).randint(2**31 - 1))  # type: ignore[arg-type]
    return cross_fit(rows, torch.tensor(observed, device=rows.device), seed, settings or DEFAULTS)


@torch.no_grad()
def cross_fit(
    rows: Tensor, observed: Tensor, seed: int, settings: CrossFitSettings, *, keep_models: bool = False
) -> CrossFit:
    """Held-out probabilities of rows (n, d) with observed labels (n, c), and with `keep_models` the ensemble."""
    if len(rows) < settings.n_folds:
        raise ValueError(
            f"X must have at least {settings.n_folds} rows; got {len(rows)}, n_samples={len(rows)}. Give more rows."
        )
    target = _as_target(observed, rows)
    d, c = rows.shape[1], target.shape[1]
    mean, scale = fit_scaling(rows)
    rows = standardize(rows, mean, scale)
    fit = partial(_fit_folds, rows, target, settings=settings, seed=seed)
    linear, linear_models = fit(lambda: nn.Sequential(nn.Linear(d, c)), settings.linear_rates)
    layered, layered_models = fit(partial(_layered, d, c, settings), settings.layered_rates)
    models, frequency = {"linear": linear, "layered": layered}, {"frequency": _frequency(target)}
    without_vote, first, _ = _mix(models | frequency, target)
    vote = {"vote": _vote(torch.cat([F.normalize(rows), without_vote.sqrt()], 1), target, settings)}
    mixture, second, cross_entropy = _mix(models | vote | frequency, target)
    if not keep_models:
        return CrossFit(mixture, second, cross_entropy)
    votes = target.sum(1) > 0
    label, share = as_lists(target[votes])
    ensemble = Ensemble(
        mean=mean,
        scale=scale,
        frequency=target.sum(0) / target.sum(),
        first=rows.new_tensor(list(first.values())),
        second=rows.new_tensor(list(second.values())),
        features=F.normalize(rows[votes]).half(),
        roots=without_vote[votes].sqrt().half(),
        label=label,
        share=share,
        vote_settings=rows.new_tensor([settings.n_neighbours, settings.temperature]),
        **_average(linear_models, "linear"),
        **_average(layered_models, "layered"),
    )
    return CrossFit(mixture, second, cross_entropy, ensemble)


def held_out(train: TrainView) -> CrossFit:
    """Held-out predictions of the training rows, made once for all methods that share them.

    Of rows of numbers the ensemble is kept too. Images are predicted from what the network makes of them before the
    training, and their ensemble would be of no use after it.
    """

    def make() -> CrossFit:
        rows = (train.inputs() if train.is_tabular else train.features()).float()
        return cross_fit(rows, train.observed, train.seed, DEFAULTS, keep_models=train.is_tabular)

    return train.shared.once(("held-out", train.seed), make)


def _layered(n_features: int, n_labels: int, settings: CrossFitSettings) -> nn.Sequential:
    hidden = settings.hidden
    return nn.Sequential(
        nn.Linear(n_features, hidden), nn.ReLU(), nn.Dropout(settings.dropout), nn.Linear(hidden, n_labels)
    )


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


def _fit_folds(
    rows: Tensor,
    target: Tensor,
    make: Callable[[], nn.Sequential],
    rates: tuple[float, ...],
    *,
    settings: CrossFitSettings,
    seed: int,
) -> tuple[Tensor, list[nn.Sequential]]:
    """What each model predicts for the fold it has not seen, (n, c), and the models.

    The first fold chooses for all: the learning rate, then whether to decay weights at that rate.
    """
    generator = torch.Generator().manual_seed(seed)
    fold = (torch.randperm(len(rows), generator=generator) % settings.n_folds).to(rows.device)
    predicted, models = torch.empty_like(target), []
    setting = (rates[0], 0.0)
    for k in range(settings.n_folds):
        seen, unseen = (fold != k).nonzero()[:, 0], (fold == k).nonzero()[:, 0]
        fit = partial(_fit_model, rows, target, seen, unseen, make, settings, seed)
        if k == 0:
            fits = {(rate, 0.0): fit(rate, 0.0) for rate in rates}
            setting = min(fits, key=lambda s: fits[s][0])
            decayed = (setting[0], settings.decay)
            fits[decayed] = fit(*decayed)
            setting = min(setting, decayed, key=lambda s: fits[s][0])
            _, predicted[unseen], model = fits[setting]
        else:
            _, predicted[unseen], model = fit(*setting)
        models.append(model)
    return predicted, models


def _fit_model(
    rows: Tensor,
    target: Tensor,
    seen: Tensor,
    unseen: Tensor,
    make: Callable[[], nn.Sequential],
    settings: CrossFitSettings,
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
        n_steps = -(-len(seen) // settings.batch_size)
        patience = max(settings.patient_epochs, settings.patient_steps // n_steps)
        lowest, best, kept, waited = torch.inf, target[unseen], model, 0
        for _ in range(max(settings.most_epochs, settings.most_steps // n_steps)):
            model.train()
            for index in torch.split(seen[torch.randperm(len(seen)).to(device)], settings.batch_size):
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


def _vote(rows: Tensor, target: Tensor, settings: CrossFitSettings) -> Tensor:
    """Labels of the nearest other rows in angle, weighted by softmax(temperature · cosine), (n, c)."""
    n = len(rows)
    unit = F.normalize(rows)
    vote = torch.zeros_like(target)
    labelled = target.sum(1) > 0
    label, share = as_lists(target)
    for block in torch.split(torch.arange(n, device=rows.device), max(1, BLOCK // n)):
        cosine = unit[block] @ unit.T
        cosine[:, ~labelled] = -torch.inf
        cosine[torch.arange(len(block), device=rows.device), block] = -torch.inf
        nearest = cosine.topk(min(settings.n_neighbours, n - 1))
        vote[block] = count_votes(nearest, label, share, target.shape[1], settings.temperature)
    return vote


def _frequency(target: Tensor) -> Tensor:
    """Share of each label among the other rows, (n, c)."""
    others = target.sum(0) - target
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
    mixture /= mixture.sum(1, keepdim=True)
    return mixture, weights, -float((likelihood @ weight).log().mean())
