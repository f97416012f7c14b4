"""Inputs → features: the linear and multi-layer networks, or any module of the user's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import nn

from onepos.validation import suggest


def _linear(n_features: int, n_labels: int, hidden: Sequence[int]) -> nn.Module:
    """The features themselves: with a linear head on top, one layer in all."""
    return nn.Identity()


def _mlp(n_features: int, n_labels: int, hidden: Sequence[int]) -> nn.Module:
    """ReLU layers of the given widths."""
    widths = [n_features, *hidden]
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers)


def _bottleneck(n_features: int, n_labels: int, hidden: Sequence[int]) -> nn.Module:
    """d → c → ReLU, with the head d → c → c: the hidden width of the public tabular code is the number of labels."""
    return _mlp(n_features, n_labels, (n_labels,))


NETWORKS: dict[str, Callable[[int, int, Sequence[int]], nn.Module]] = {
    "linear": _linear,
    "mlp": _mlp,
    "bottleneck": _bottleneck,
}


def make_backbone(
    network: str | nn.Module,
    n_features: int,
    n_labels: int,
    hidden: Sequence[int] = (256,),
) -> nn.Module:
    """The network that turns rows into features.

    Args:
        network: A name in NETWORKS, or a module from (B, d) to (B, any width), which is copied.
        n_features: Width d of the rows.
        n_labels: Number of labels c.
        hidden: Widths of the hidden layers, for "mlp".
    """
    if isinstance(network, nn.Module):
        return copy.deepcopy(network)
    if network in NETWORKS:
        return NETWORKS[network](n_features, n_labels, hidden)
    raise ValueError(f"unknown network {network!r}; {suggest(str(network), NETWORKS)} A torch module is also accepted.")


@torch.no_grad()
def n_outputs(backbone: nn.Module, n_features: int) -> int:
    """Width of the features a backbone gives, found by sending two rows through it."""
    was_training = backbone.training
    probe = next((p for p in backbone.parameters()), torch.empty(0))
    try:
        out = backbone.eval()(torch.zeros(2, n_features, dtype=torch.float32, device=probe.device))
    except RuntimeError as error:
        raise ValueError(
            f"network must take rows of {n_features} features in single precision; it fails on two such rows ({error})."
        ) from error
    backbone.train(was_training)
    if not isinstance(out, torch.Tensor) or out.ndim != 2 or len(out) != 2:
        found = f"shape {tuple(out.shape)}" if isinstance(out, torch.Tensor) else f"a {type(out).__name__}"
        raise ValueError(
            f"network must map (rows, {n_features}) to (rows, width); it gave {found} for 2 rows. Flatten its output."
        )
    return int(out.shape[1])
