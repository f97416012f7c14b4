"""Adam over the stacked weights of many runs, each with its own learning rate and weight decay."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class StackedAdam:
    """Adam over stacked weights, with the learning rate and weight decay of each run.

    All weights lie in one piece of memory, as do gradients and moments: [parameter][run]. There is one call of the
    fused kernel for each pair of learning rate and weight decay, on the slices of all runs that have it; runs with the
    same pair should stand side by side.

    Weights are (R, ...) by name and copied: the attribute `weights` holds them from then on. `settings` has for each
    run (learning rate, weight decay) by name.
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
        """From now on the other runs are not moved."""
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
        """Take up a saved state; one that is no state of these weights is refused.

        Raises:
            ValueError: A tensor is missing, of another size or not finite.
        """
        for name, tensor in self.state().items():
            found = state.get(name)
            if not torch.is_tensor(found) or found.shape != tensor.shape or not bool(found.isfinite().all()):
                raise ValueError(f"{name} of its optimizer must be finite numbers of the size of the weights")
            if name in ("square", "count") and bool((found < 0).any()):
                raise ValueError(f"{name} of its optimizer must not be negative")
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


def _cut(flat: Tensor, shapes: dict[str, torch.Size]) -> dict[str, Tensor]:
    """Windows of these shapes on one piece of memory, one behind the other."""
    pieces = torch.split(flat, [shape.numel() for shape in shapes.values()])
    return {name: piece.view(shape) for piece, (name, shape) in zip(pieces, shapes.items(), strict=True)}
