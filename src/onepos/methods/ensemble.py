"""The ensemble of CRISP+ for new rows: models of all folds, a vote of the nearest training rows, label frequencies."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Standard deviations at which a feature is cut.
_LIMIT = 5.0

# Cosines held at a time (64 MiB).
BLOCK = 1 << 24


class Ensemble(nn.Module):
    """Probability that each label is the observed one of a new row.

    The models of the folds are averaged in their logits, so five of them are one that is five times as wide. Nothing
    here is trained any more. The training rows that vote are kept in half precision, each as its features and the
    square roots of its held-out probabilities; both have length 1, so the mean of their products is the cosine.

    Attributes:
        mean, scale: By which rows are standardized, (d,).
        linear_weight, linear_bias: Of the linear model, (c, d) and (c,).
        hidden_weight, hidden_bias, layered_weight, layered_bias: Of the layered one, (h, d), (h,), (c, h) and (c,).
        frequency: Share of each label among the observed ones, (c,).
        first: Mixture weights of linear, layered and frequency, by which neighbours are found.
        second: Mixture weights of linear, layered, vote and frequency, by which rows are predicted.
        features, roots: Of the rows that vote, (n, d) and (n, c).
        label, share: The labels each of them votes for, (n, r), and by how much: 1/r of r labels, 0 where it has fewer.
        vote_settings: How many neighbours vote, and the factor of the cosine in the softmax of their weights.
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
    roots: Tensor
    label: Tensor
    share: Tensor
    vote_settings: Tensor

    def __init__(self, **tensors: Tensor) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)
        n_neighbours, self._temperature = self.vote_settings.tolist()
        self._n_neighbours = min(int(n_neighbours), len(self.features))

    @classmethod
    def read(cls, tensors: dict[str, Tensor], n_labels: int) -> Ensemble:
        """From the tensors of `state_dict`, whose shapes must fit each other; RuntimeError where they do not."""
        (d,), c = tensors["mean"].shape, n_labels
        width, (n, r) = len(tensors["hidden_weight"]), tensors["label"].shape
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
            "roots": (n, c),
            "label": (n, r),
            "share": (n, r),
            "vote_settings": (2,),
        }
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        if found != wanted or tensors["label"].dtype != torch.int64 or not n:
            raise RuntimeError(f"the ensemble must have the shapes {wanted}; got {found}")
        if tensors["label"].min() < 0 or tensors["label"].max() >= c:
            raise RuntimeError(f"the ensemble must vote for labels 0 to {c - 1}")
        return cls(**tensors)

    def forward(self, rows: Tensor) -> Tensor:
        """Probabilities (B, c) of rows (B, d); they sum to 1."""
        held = max(1, BLOCK // len(self.features))
        if torch.compiler.is_compiling() or not len(rows):  # an exported graph has one length for all numbers of rows
            return self._predict(rows)
        return torch.cat([self._predict(part) for part in torch.split(rows, held)])

    def _predict(self, rows: Tensor) -> Tensor:
        rows = standardize(rows, self.mean, self.scale)
        hidden = torch.relu(F.linear(rows, self.hidden_weight, self.hidden_bias))
        models = [
            torch.softmax(F.linear(rows, self.linear_weight, self.linear_bias), 1),
            torch.softmax(F.linear(hidden, self.layered_weight, self.layered_bias), 1),
        ]
        frequency = self.frequency.expand_as(models[0])
        mixture = torch.tensordot(self.first, torch.stack([*models, frequency]), 1)
        cosine = F.normalize(rows) @ self.features.to(rows.dtype).T
        cosine = torch.addmm(cosine, mixture.sqrt(), self.roots.to(rows.dtype).T) / 2
        nearest = cosine.topk(self._n_neighbours)
        votes = count_votes(nearest, self.label, self.share, len(self.frequency), self._temperature)
        mixture = torch.tensordot(self.second, torch.stack([*models, votes, frequency]), 1)
        return F.normalize(mixture, p=1.0)


def fit_scaling(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each feature, (d,); infinite where it is constant."""
    mean = rows.mean(0)
    scale = (rows - mean).square().mean(0).sqrt()
    return mean, torch.where(scale > 1e-6 * mean.abs(), scale, torch.inf)  # of a constant only rounding errors are left


def standardize(rows: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Rows (B, d) of mean 0 and deviation 1, cut at ±_LIMIT."""
    return ((rows - mean) / scale).clamp_(-_LIMIT, _LIMIT)


def as_lists(target: Tensor) -> tuple[Tensor, Tensor]:
    """The labels of each row and their shares, (n, r) each; a row of fewer than r has shares of 0."""
    share, label = target.topk(max(1, int((target > 0).sum(1).amax()) if len(target) else 1))
    return label, share


def count_votes(
    nearest: torch.return_types.topk, label: Tensor, share: Tensor, n_labels: int, temperature: float
) -> Tensor:
    """Votes (B, c) of the nearest rows (B, k), weighted by softmax(temperature · cosine)."""
    cosine, neighbour = nearest
    weight = torch.softmax(temperature * cosine, 1).nan_to_num()
    votes = (weight[..., None] * share[neighbour]).flatten(1)
    return cosine.new_zeros(cosine.shape[0], n_labels).scatter_add_(1, label[neighbour].flatten(1), votes)
