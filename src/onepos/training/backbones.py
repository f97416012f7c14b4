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


class _Wide(nn.Module):
    """The rows themselves beside the hidden layers, so that a linear head has a direct way from every feature."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(B, d + width)."""
        return torch.cat([rows, self.layers(rows)], 1)


def _wide(n_features: int, n_labels: int, hidden: Sequence[int]) -> nn.Module:
    """ReLU layers of the given widths, and the features themselves beside the last one."""
    return _Wide(_mlp(n_features, n_labels, hidden))


def _bottleneck(n_features: int, n_labels: int, hidden: Sequence[int]) -> nn.Module:
    """d → c → ReLU, with the head d → c → c: the hidden width of the public tabular code is the number of labels."""
    return _mlp(n_features, n_labels, (n_labels,))


NETWORKS: dict[str, Callable[[int, int, Sequence[int]], nn.Module]] = {
    "linear": _linear,
    "mlp": _mlp,
    "wide": _wide,
    "bottleneck": _bottleneck,
}


def make_backbone(
    network: str | nn.Module,
    n_features: int,
    n_labels: int,
    hidden: Sequence[int] = (512,),
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
def n_outputs(backbone: nn.Module, probe: torch.Tensor, *, maps: bool = False) -> int:
    """Width of the features that a backbone gives for two inputs; of maps, their channels.

    Args:
        backbone: From rows (B, d) or images (B, 3, H, W) to features (B, width), with `maps` to (B, width, h, w).
        probe: Two inputs.
        maps: Whether maps are wanted.
    """
    was_training = backbone.training
    place = next((p.device for p in backbone.parameters()), probe.device)
    taken = f"({', '.join(['B', *map(str, probe.shape[1:])])})"
    try:
        out = backbone.eval()(probe.to(place))
    except RuntimeError as error:
        raise ValueError(
            f"network must take inputs {taken} in single precision; it fails on two of them ({error})."
        ) from error
    finally:
        backbone.train(was_training)
    if not isinstance(out, torch.Tensor) or out.ndim != (4 if maps else 2) or len(out) != 2:
        found = f"shape {tuple(out.shape)}" if isinstance(out, torch.Tensor) else f"a {type(out).__name__}"
        wanted, remedy = ("(B, width, h, w)", "before pooling") if maps else ("(B, width)", "pooled and flat")
        raise ValueError(
            f"network must map {taken} to {wanted}; it gave {found} for 2 inputs. Wrap it in a module that returns its "
            f"features {remedy}, as one tensor."
        )
    return int(out.shape[1])
