"""Features → logits."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# A mean score is shifted by at most so much, in so many steps, to within this share of its odds.
_FARTHEST, _SHIFT_STEPS, _SHIFT_ERROR = 30.0, 60, 1e-4

# Least mean score that is aimed at; the largest is as far from 1.
_LEAST_MEAN = 1e-6


class LinearHead(nn.Linear):
    """One logit per label, linear in the features."""

    @torch.no_grad()
    def start_at(self, log_odds: Tensor, weight_scale: float) -> None:
        """Start near the given logits (c,) for every row: they become the bias, the weights are scaled down."""
        self.bias.copy_(log_odds)
        self.weight.mul_(weight_scale)


@torch.no_grad()
def shift_to(prior: Tensor, logits: Tensor, start: Tensor | None = None) -> Tensor:
    """By how much to shift each label's logits (n, c) for a mean score of π (c,); 0 where π is unknown.

    Newton's steps on the log-odds of the mean, which rise with the shift; where a step leaves what is left of the
    range, the middle is taken.

    Args:
        prior: π, (c,); NaN where unknown.
        logits: (n, c).
        start: Where to begin, (c,): a shift that was right before.
    """
    wanted = torch.logit(prior.clamp(_LEAST_MEAN, 1 - _LEAST_MEAN))
    low, high = torch.full_like(wanted, -_FARTHEST), torch.full_like(wanted, _FARTHEST)
    shift = torch.zeros_like(wanted) if start is None else start
    for _ in range(_SHIFT_STEPS):
        score = torch.sigmoid(logits + shift)
        mean = score.mean(0).clamp(1e-12, 1 - 1e-7)
        error = wanted - torch.logit(mean)
        if not bool((error.abs() > _SHIFT_ERROR).any()):
            break
        low, high = torch.where(error > 0, shift, low), torch.where(error > 0, high, shift)
        slope = (score * (1 - score)).mean(0) / (mean * (1 - mean))
        step = shift + error / slope.clamp(min=1e-6)
        step = torch.where((step > low) & (step < high), step, (low + high) / 2)
        shift = torch.where(error.abs() > _SHIFT_ERROR, step, shift)
    return torch.where(prior.isnan(), 0.0, shift)


class GaussianHead(LinearHead):
    """A Gaussian code per row, N(μ, σ²) with μ and log σ linear in the features; logits linear in the code.

    Args:
        n_features: Width of the features.
        n_labels: Number of labels.
        z_dim: Width of the code.
    """

    def __init__(self, n_features: int, n_labels: int, z_dim: int) -> None:
        super().__init__(z_dim, n_labels)
        self.encoder = nn.Linear(n_features, 2 * z_dim)

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, c) of the mean code: without chance."""
        return super().forward(self.encode(features)[0])

    def encode(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ, each (B, z_dim); log σ stays within ±6."""
        mean, double_log_std = _full_precision(self.encoder(features)).chunk(2, dim=-1)
        return mean, (double_log_std / 2).clamp(-6, 6)

    def sample(self, features: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the code μ + σ·noise, for noise (B, z_dim), with its μ and log σ."""
        mean, log_std = self.encode(features)
        return _full_precision(super().forward(mean + log_std.exp() * noise)), mean, log_std


class CAMHead(nn.Conv2d):
    """One class activation map per label, linear in the channels at each place; the logit is the mean of its map.

    Args:
        n_features: Channels of the maps that come in.
        n_labels: Number of labels.
        gain: Values above zero are multiplied by it before the mean; 1 makes this a linear head on pooled features.
    """

    def __init__(self, n_features: int, n_labels: int, gain: float = 1.0) -> None:
        super().__init__(n_features, n_labels, kernel_size=1)
        self.gain = gain

    def forward(self, maps: Tensor) -> Tensor:
        """Logits (B, c) of maps (B, C, H, W)."""
        return self.activation(maps).mean((2, 3))

    def activation(self, maps: Tensor) -> Tensor:
        """The class activation maps (B, c, H, W), those above zero already multiplied."""
        values = _full_precision(super().forward(maps))
        return torch.where(values > 0, self.gain * values, values)

    @torch.no_grad()
    def start_at(self, log_odds: Tensor, weight_scale: float) -> None:
        """Start near the given logits (c,) for every row, as seen behind the gain."""
        assert self.bias is not None
        self.bias.copy_(torch.where(log_odds > 0, log_odds / self.gain, log_odds))
        self.weight.mul_(weight_scale)


class LabelLinear(nn.Module):
    """One logit per label from one embedding per label: ⟨w_j, h_j⟩ + b_j.

    Args:
        n_features: Width of the embeddings.
        n_labels: Number of labels.
    """

    def __init__(self, n_features: int, n_labels: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_features)
        self.weight = nn.Parameter(torch.empty(n_labels, n_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n_labels).uniform_(-bound, bound))

    def classify(self, embeddings: Tensor) -> Tensor:
        """Logits (B, c) of embeddings (B, c, width)."""
        return (_full_precision(embeddings) * self.weight).sum(-1) + self.bias

    @torch.no_grad()
    def start_at(self, log_odds: Tensor, weight_scale: float) -> None:
        """Start near the given logits (c,) for every row."""
        self.bias.copy_(log_odds)
        self.weight.mul_(weight_scale)


class LabelAttentionHead(LabelLinear):
    """Label attention over the maps: maps → one embedding per label → logits.

    Args:
        n_features: Channels C of the maps, which is also the width of the embeddings; a multiple of 4.
        n_labels: Number of labels.
    """

    def __init__(self, n_features: int, n_labels: int) -> None:
        super().__init__(n_features, n_labels)
        self.attention = LabelAttention(n_features, n_labels)

    def forward(self, maps: Tensor) -> Tensor:
        """Logits (B, c) of maps (B, C, H, W)."""
        return self.classify(self.embed(maps))

    def embed(self, maps: Tensor) -> Tensor:
        """One embedding per label, (B, c, C)."""
        return _full_precision(self.attention(maps))


class LabelGaussianHead(LabelLinear):
    """A Gaussian code per row and label, N(μ, σ²) from the label's embedding; logits linear in its code.

    Args:
        n_features: Channels of the maps, as for `LabelAttentionHead`.
        n_labels: Number of labels.
        z_dim: Width of the codes.
    """

    def __init__(self, n_features: int, n_labels: int, z_dim: int) -> None:
        super().__init__(z_dim, n_labels)
        self.attention = LabelAttention(n_features, n_labels)
        self.encoder = nn.Sequential(nn.Linear(n_features, n_features), nn.ReLU(), nn.Linear(n_features, 2 * z_dim))

    def forward(self, maps: Tensor) -> Tensor:
        """Logits (B, c) of the mean codes: without chance."""
        return self.classify(self.encode(maps)[0])

    def encode(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ, each (B, c, z_dim); log σ stays within ±6."""
        mean, double_log_std = _full_precision(self.encoder(self.attention(maps))).chunk(2, dim=-1)
        return mean, (double_log_std / 2).clamp(-6, 6)

    def sample(self, maps: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of the codes μ + σ·noise, for noise (B, c, z_dim), with their μ and log σ."""
        mean, log_std = self.encode(maps)
        return self.classify(mean + log_std.exp() * noise), mean, log_std


class LabelAttention(nn.Module):
    """Maps (B, C, H, W) → one embedding per label, (B, c, C), by a small transformer.

    The places of the maps, each with a fixed sine code of where it is, go through one encoder layer; then a learnt
    query per label gathers from them in two decoder layers, and a last normalization follows. Labels do not attend to
    each other. A layer ends in its own normalization, has four heads, an inner width of 4·C, and a dropout of 0.1.

    Args:
        n_features: Channels C; a multiple of 4.
        n_labels: Number of labels.
    """

    def __init__(self, n_features: int, n_labels: int) -> None:
        super().__init__()
        if n_features % _HEADS:
            raise ValueError(
                f"the maps must have a number of channels that {_HEADS} divides; they have {n_features}. Put a 1×1 "
                "convolution to another number behind the network."
            )
        self.queries = nn.Parameter(torch.randn(n_labels, n_features))
        self.encoder = _AttentionLayer(n_features)
        self.decoders = nn.ModuleList(_AttentionLayer(n_features) for _ in range(2))
        self.norm = nn.LayerNorm(n_features)

    def forward(self, maps: Tensor) -> Tensor:
        """(B, c, C)."""
        batch, channels, height, width = maps.shape
        places = maps.flatten(2).transpose(1, 2)  # (B, H·W, C)
        code = sine_code(height, width, channels, maps.device).to(places.dtype)
        places = self.encoder(places, code, places, code)
        labels: Tensor = places.new_zeros(batch, *self.queries.shape)
        for decoder in self.decoders:
            labels = decoder(labels, self.queries, places, code)
        normed: Tensor = self.norm(labels)
        return normed


# Heads and dropout of the published network.
_HEADS, _DROPOUT = 4, 0.1


class _AttentionLayer(nn.Module):
    """Attention to a source and a two-layer perceptron, each added to its input and normalized.

    It starts as the authors' does: query, key and value are drawn as one matrix (3·C, C), so their bound is
    sqrt(6/4C), not sqrt(6/2C); biases of the attention are zero, those of the perceptron as `nn.Linear` draws them.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        for layer in (self.out, self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)
        for layer in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(layer.weight, gain=math.sqrt(0.5))
        for layer in (self.query, self.key, self.value, self.out):
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, x_code: Tensor, source: Tensor, source_code: Tensor) -> Tensor:
        """x (B, T, C) after attention to `source` (B, S, C); the codes are added to queries and keys only."""
        query, key, value = self.query(x + x_code), self.key(source + source_code), self.value(source)
        query, key, value = (part.unflatten(2, (_HEADS, -1)).transpose(1, 2) for part in (query, key, value))
        share = _DROPOUT if self.training else 0.0
        found = F.scaled_dot_product_attention(query, key, value, dropout_p=share).transpose(1, 2).flatten(2)
        x = self.norm_1(x + self._drop(self.out(found)))
        normed: Tensor = self.norm_2(x + self._drop(self.outer(self._drop(F.relu(self.inner(x))))))
        return normed

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, _DROPOUT, self.training)


def sine_code(height: int, width: int, channels: int, device: torch.device | None = None) -> Tensor:
    """Where a place lies: (height·width, channels), half of the channels for its row, half for its column.

    Rows and columns run up to 2π over the maps; their sines and cosines come at channels/4 frequencies, from 1 on down
    towards 1/10000.
    """
    quarter = channels // 4
    frequency = 10000.0 ** (-torch.arange(quarter, device=device) / quarter)

    def along(n: int) -> Tensor:
        angle = 2 * math.pi / n * torch.arange(1, n + 1, device=device).unsqueeze(1) * frequency
        return torch.cat([angle.sin(), angle.cos()], 1)  # (n, channels/2)

    return torch.cat([along(height).repeat_interleave(width, 0), along(width).repeat(height, 1)], 1)


def _full_precision(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
