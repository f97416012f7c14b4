"""Models of the folds of a cross-fit: networks of all folds trained as one stack, and forests of random trees.

Each takes rows (n, d) with target shares of labels (n, c) and gives for every row what a model trained on the other
folds predicts: the probability of each label to be the observed one, (n, c).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from onepos.methods.base import Watch, drop

Setting = tuple[float, float]
"""Learning rate and weight decay."""


@dataclass(frozen=True)
class NetworkSettings:
    """How the networks of the folds are trained, by Adam on the cross-entropy of the observed label.

    Attributes:
        hidden: Width of the hidden layer; 0 for a linear model.
        dropout: Share of the hidden layer that is dropped in training.
        grid: Learning rates and weight decays to choose from, by the first fold.
        batch_size: Rows per step; four times as many from `many_rows` rows on.
        many_rows: See `batch_size`.
        choose_rows: Rows that the choice from the grid is made by, at most.
        patient_epochs, patient_steps: Training stops when so many epochs and steps in a row do not lower the
            cross-entropy of the held-out rows. An epoch of few rows is few steps, hence both.
        most_epochs, most_steps: At most the larger of these.
    """

    hidden: int
    grid: tuple[Setting, ...]
    dropout: float = 0.5
    batch_size: int = 128
    many_rows: int = 20_000
    choose_rows: int = 4096
    patient_epochs: int = 3
    patient_steps: int = 30
    most_epochs: int = 60
    most_steps: int = 600


@dataclass(frozen=True)
class TreeSettings:
    """How the forests of the folds are grown.

    Attributes:
        n_trees: Trees per fold.
        min_rows: Rows in a leaf, at least.
        most_entries: Rows of a tree times labels, at most; a tree of more rows is grown on a sample of them, since
            every node holds a number per label.
        most_labels: With more labels no trees are grown.
    """

    n_trees: int = 60
    min_rows: int = 2
    most_entries: int = 1_000_000
    most_labels: int = 400


def make_folds(n: int, n_folds: int, seed: int, groups: Tensor | None = None) -> list[Tensor]:
    """Positions of the rows of each fold, in random order; sizes differ by one row at most.

    With groups (n,) the rows of a group are in one fold: the largest groups first, each goes to the smallest fold.
    """
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    if groups is None:
        return [order[k::n_folds] for k in range(n_folds)]
    _, group, size = map(torch.from_numpy, np.unique(groups.cpu().numpy(), return_inverse=True, return_counts=True))
    n_folds = min(n_folds, len(size))
    if n_folds < 2:
        raise ValueError(
            "groups must hold at least two different values, so that rows can be predicted from others; it holds one. "
            "Leave groups out, or pass finer ones."
        )
    shuffled = torch.randperm(len(size), generator=torch.Generator().manual_seed(seed))
    sizes, fold_of = [0] * n_folds, torch.empty(len(size), dtype=torch.long)
    for g in shuffled[size[shuffled].argsort(descending=True, stable=True)].tolist():
        k = sizes.index(min(sizes))
        fold_of[g] = k
        sizes[k] += int(size[g])
    place = fold_of[group][order]
    return [order[place == k] for k in range(n_folds)]


def predict_by_networks(
    rows: Tensor, target: Tensor, folds: Sequence[Tensor], settings: NetworkSettings, seed: int, watch: Watch
) -> Tensor | None:
    """What networks trained on the other folds predict, (n, c); None if the time is up before they are trained."""
    device = rows.device
    # On a CPU a generator of the caller's is left as it was; fork_rng needs the device's number elsewhere.
    with torch.enable_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        largest, smallest, n = max(map(len, folds)), min(map(len, folds)), len(rows)
        others = [torch.cat([*folds[:k], *folds[k + 1 :]]) for k in range(len(folds))]
        few = others[0][: settings.choose_rows], folds[0][: settings.choose_rows // 4]
        choosing = watch.part(0.4).named(f"{watch.what}, settings")
        tried = _train(rows, target, [few] * len(settings.grid), settings.grid, settings, choosing)
        if tried is None:
            return None
        best = settings.grid[int(tried.cross_entropy.argmin())]
        # All lists of a stack have one length: of unequal folds a row is left out here and comes twice there. Folds of
        # groups may differ by many rows, and none is left out.
        n_seen = n - (largest if largest - smallest <= 1 else smallest)
        pairs = [
            (seen[torch.arange(n_seen) % len(seen)], fold[torch.arange(largest) % len(fold)])
            for seen, fold in zip(others, folds, strict=True)
        ]
        trained = _train(rows, target, pairs, (best,) * len(folds), settings, watch)
    if trained is None:
        return None
    predicted = torch.empty_like(target)
    for (_, unseen), each in zip(pairs, trained.predicted, strict=True):
        predicted[unseen.to(device)] = each
    return predicted


@dataclass
class _Best:
    """The best epoch of each network of a stack so far: cross-entropy (S,) and predictions (S, u, c)."""

    cross_entropy: Tensor
    predicted: Tensor


def _train(
    rows: Tensor,
    target: Tensor,
    pairs: Sequence[tuple[Tensor, Tensor]],
    settings_of: Sequence[Setting],
    settings: NetworkSettings,
    watch: Watch,
) -> _Best | None:
    """Train a network for each pair of (rows to learn from, rows to predict), all as one stack.

    Weights have a first axis over the networks, so a step costs as many kernels as that of one network.
    """
    device = rows.device
    seen, unseen = (torch.stack([pair[k] for pair in pairs]).to(device) for k in (0, 1))
    parts = [_start(rows.shape[1], target[index], settings.hidden) for index in seen]
    for part in parts:  # no network differs from the others in anything but its rows and setting
        part[:-1] = [tensor.clone() for tensor in parts[0][:-1]]
    one_setting = len(set(settings_of)) == 1
    groups = [[torch.stack(each).requires_grad_() for each in zip(*parts, strict=True)]] if one_setting else parts
    optimiser = torch.optim.Adam(
        [
            {"params": [tensor.requires_grad_() for tensor in group], "lr": rate, "weight_decay": decay}
            for group, (rate, decay) in zip(groups, settings_of, strict=False)
        ],
        fused=True,
    )
    rows_unseen, target_unseen = rows[unseen], target[unseen]
    n_unseen = target_unseen.sum((1, 2)).clamp(min=1)
    best = _Best(torch.full((len(pairs),), torch.inf, device=device), torch.zeros_like(target_unseen))
    waited = torch.zeros(len(pairs), dtype=torch.long, device=device)
    size = settings.batch_size * (4 if len(rows) >= settings.many_rows else 1)
    n_steps = -(-seen.shape[1] // size)
    patience = max(settings.patient_epochs, settings.patient_steps // n_steps)
    n_epochs = max(settings.most_epochs, settings.most_steps // n_steps)
    for epoch in range(n_epochs):
        order = torch.stack([index[torch.randperm(len(index)).to(device)] for index in seen])
        for index in torch.split(order, size, 1):
            if watch.is_late():
                return None if epoch == 0 else best
            optimiser.zero_grad()
            logits = _forward(_stacked(groups, one_setting), rows[index], settings.dropout)
            loss = -(torch.log_softmax(logits, 2) * target[index]).sum() / index.shape[1]
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        with torch.no_grad():
            logs = torch.log_softmax(_forward(_stacked(groups, one_setting), rows_unseen), 2)
            entropy = -(logs * target_unseen).sum((1, 2)) / n_unseen
            is_better = entropy < best.cross_entropy - 1e-4
            best.cross_entropy = torch.where(is_better, entropy, best.cross_entropy)
            best.predicted[is_better] = logs[is_better].exp()
            waited = torch.where(is_better, 0, waited + 1)
        watch.report(epoch + 1, n_epochs)
        if bool((waited >= patience).all()):
            break
    watch.report(n_epochs, n_epochs)
    return best


def _start(n_features: int, target: Tensor, hidden: int) -> list[Tensor]:
    """Weights and biases, layer by layer, of a network that gives the frequencies of the labels for every row."""
    c = target.shape[1]
    bias = ((target.sum(0) + 0.5) / (target.sum() + 0.5 * c)).log()[None]
    if not hidden:
        return [target.new_zeros(n_features, c), bias]
    bound = 1 / math.sqrt(max(1, n_features))
    first = [target.new_empty(*shape).uniform_(-bound, bound) for shape in ((n_features, hidden), (1, hidden))]
    return [*first, target.new_zeros(hidden, c), bias]


def _stacked(groups: list[list[Tensor]], one_setting: bool) -> list[Tensor]:
    """Tensors with a first axis over the networks; with one setting they are kept that way."""
    return groups[0] if one_setting else [torch.stack(each) for each in zip(*groups, strict=True)]


def _forward(layers: list[Tensor], rows: Tensor, dropout: float = 0.0) -> Tensor:
    """Logits (S, B, c) of rows (S, B, d)."""
    if len(layers) == 2:
        return torch.baddbmm(layers[1], rows, layers[0])
    hidden = torch.relu(torch.baddbmm(layers[1], rows, layers[0]))
    if dropout:
        hidden = drop(hidden, dropout)
    return torch.baddbmm(layers[3], hidden, layers[2])


def predict_by_regression(
    rows: Tensor, target: Tensor, folds: Sequence[Tensor], grid: Sequence[float], watch: Watch
) -> Tensor | None:
    """What softmax regressions fitted to the other folds predict, (n, c); None if the time is up before.

    They are fitted to the end, by a method of second order: rows of text lie along many weak directions, on which a
    network of few epochs learns little of rare labels. The penalty is chosen from the grid by the first fold.
    """
    values = rows.cpu().numpy()
    shares = target.cpu().numpy()
    row, label = np.nonzero(shares)
    predicted = np.zeros(shares.shape, np.float32)
    strengths = list(grid)
    for k, fold in enumerate(folds):
        unseen = np.zeros(len(rows), bool)
        unseen[fold.numpy()] = True
        seen = ~unseen[row]
        if len(np.unique(label[seen])) < 2:
            return None
        best = -np.inf
        for strength in strengths:
            if watch.is_late():
                return None
            model = LogisticRegression(C=strength, max_iter=100, tol=1e-3)
            model.fit(values[row[seen]], label[seen], sample_weight=shares[row[seen], label[seen]])
            made = np.zeros((len(fold), shares.shape[1]), np.float32)
            made[:, model.classes_] = model.predict_proba(values[unseen]) if len(fold) else 0.0
            likelihood = float(np.log(np.maximum((made * shares[unseen]).sum(1), 1e-6)).sum())
            if likelihood > best:
                best, chosen = likelihood, strength
                predicted[unseen] = made
        strengths = [chosen]
        watch.report(k + 1, len(folds))
    return torch.as_tensor(predicted, device=rows.device)


def predict_by_trees(
    rows: Tensor, target: Tensor, folds: Sequence[Tensor], settings: TreeSettings, seed: int, watch: Watch
) -> Tensor | None:
    """What extremely randomized trees grown on the other folds predict, (n, c); None if the time is up before.

    A row with several observed labels is given to the trees once for each, weighted by its share.
    """
    c = target.shape[1]
    if c > settings.most_labels:
        return None
    values = rows.cpu().numpy()
    row, label = np.nonzero(target.cpu().numpy())
    share = target.cpu().numpy()[row, label]
    predicted = np.zeros((len(rows), c), np.float32)
    for k, fold in enumerate(folds):
        if watch.is_late():
            return None
        unseen = np.zeros(len(rows), bool)
        unseen[fold.numpy()] = True
        seen = ~unseen[row]
        if not seen.any():
            return None
        most = max(1, settings.most_entries // c)
        forest = ExtraTreesClassifier(
            settings.n_trees,
            min_samples_leaf=settings.min_rows,
            bootstrap=int(seen.sum()) > most,
            max_samples=most if int(seen.sum()) > most else None,
            n_jobs=torch.get_num_threads(),
            random_state=(seed + k) % (1 << 32),
        )
        forest.fit(values[row[seen]], label[seen], sample_weight=share[seen])
        predicted[np.ix_(unseen, forest.classes_)] = forest.predict_proba(values[unseen])
        watch.report(k + 1, len(folds))
    return torch.as_tensor(predicted, device=rows.device)
