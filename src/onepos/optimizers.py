"""Adam for small networks, where the bookkeeping of an optimiser costs more than its arithmetic; alone and stacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class LeanAdam(torch.optim.Adam):
    """torch's fused Adam, bit for bit, with its lists of tensors kept between steps.

    For an MLP of four tensors torch spends about 0.3 ms per step on collecting, grouping and checking them and
    0.05 ms in the kernel; at batch 16 that is a third of an epoch (benchmarks/loop.py). The state lives where
    Adam keeps it, so `state_dict` and resume are unchanged.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float) -> None:
        super().__init__(groups, lr=lr, fused=True)
        self._lists: list[tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]] | None = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        gradients = [[p.grad for p in group["params"]] for group in self.param_groups]
        if self._lists is None or any(g is None for group in gradients for g in group):
            super().step()  # makes the state of new parameters
            self._lists = self._collect()
            return
        for group, grads, (params, means, squares, steps) in zip(
            self.param_groups, gradients, self._lists, strict=True
        ):
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                params,
                grads,
                means,
                squares,
                [],
                steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )

    # torch wraps `step` for its profiler and hooks unless it is marked as wrapped; neither is used here.
    step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def load_state_dict(self, state_dict: Any) -> None:
        """Take up a saved state; the lists are collected anew."""
        super().load_state_dict(state_dict)
        self._lists = None

    def _collect(self) -> list[tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]] | None:
        if any(p not in self.state for group in self.param_groups for p in group["params"]):
            return None  # some have had no gradient yet
        return [
            (
                group["params"],
                [self.state[p]["exp_avg"] for p in group["params"]],
                [self.state[p]["exp_avg_sq"] for p in group["params"]],
                [self.state[p]["step"] for p in group["params"]],
            )
            for group in self.param_groups
        ]


class StackedAdam:
    """Adam over stacked weights, with the learning rate and weight decay of each run.

    All weights lie in one piece of memory, as do gradients and moments: [parameter][run]. There is one call of the
    fused kernel for each pair of learning rate and weight decay, on the slices of all runs that have it; runs with the
    same pair should stand side by side.

    Args:
        weights: By name, (R, ...); copied. The attribute of this name holds them from then on.
        settings: For each run, (learning rate, weight decay) by name.
    """

    def __init__(self, weights: dict[str, Tensor], settings: Sequence[dict[str, tuple[float, float]]]) -> None:
        self.settings = settings
        flat = torch.cat([weight.flatten() for weight in weights.values()])
        self.flat = flat, torch.zeros_like(flat), torch.zeros_like(flat), torch.zeros_like(flat)
        self.count = torch.zeros((), device=flat.device)
        shapes = {name: weight.shape for name, weight in weights.items()}
        self._parts = [_cut(flat, shapes) for flat in self.flat]
        self.weights, self.gradients = self._parts[:2]
        self.move_only(range(len(settings)))

    def move_only(self, live: Sequence[int]) -> None:
        """From now on the other runs stand still."""
        slices: dict[tuple[float, float], list[tuple[str, int, int]]] = {}
        for name in self.weights:
            for k in sorted(live):
                of_setting = slices.setdefault(self.settings[k][name], [])
                if of_setting and of_setting[-1][0] == name and of_setting[-1][2] == k:
                    of_setting[-1] = name, of_setting[-1][1], k + 1
                else:
                    of_setting.append((name, k, k + 1))
        self._calls = [
            (setting, [[part[name].detach()[first:last] for name, first, last in where] for part in self._parts])
            for setting, where in slices.items()
        ]

    @torch.no_grad()
    def step(self) -> None:
        """One update by what lies in `gradients`."""
        self.count += 1
        for (lr, decay), (weights, gradients, means, squares) in self._calls:
            torch._fused_adam_(
                weights,
                gradients,
                means,
                squares,
                [],
                [self.count] * len(weights),
                lr=lr,
                beta1=0.9,
                beta2=0.999,
                weight_decay=decay,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )

    def state(self) -> dict[str, Tensor]:
        """All that a resumed training needs."""
        weights, _, mean, square = self.flat
        return {"weights": weights, "mean": mean, "square": square, "count": self.count}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up a saved state."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


def _cut(flat: Tensor, shapes: dict[str, torch.Size]) -> dict[str, Tensor]:
    """Windows of these shapes on one piece of memory, one behind the other."""
    pieces = torch.split(flat, [shape.numel() for shape in shapes.values()])
    return {name: piece.view(shape) for piece, (name, shape) in zip(pieces, shapes.items(), strict=True)}
