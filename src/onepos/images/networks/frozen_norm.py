"""Batch normalisation that stands still: the stored statistics in training as in evaluation, nothing learnt."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class FrozenBatchNorm2d(nn.Module):
    """A batch normalisation whose five tensors are buffers.

    No optimiser sees them, no switch between training and evaluation reaches them, and the state dict has the
    keys of `nn.BatchNorm2d`, so that weight files load before and after freezing alike.
    """

    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.eps = norm.eps
        for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            tensor = getattr(norm, name)
            self.register_buffer(name, tensor if tensor is None else tensor.detach())

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (B, d, h, w) → the same shape."""
        return F.batch_norm(maps, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


def freeze_batch_norm(network: nn.Module) -> None:
    """Replace every `nn.BatchNorm2d` inside the network by its frozen form, in place.

    A network without any is left as it is. Kinds of batch normalisation other than `nn.BatchNorm2d` are refused
    rather than silently left to learn.
    """
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if not isinstance(child, nn.modules.batchnorm._BatchNorm):
                continue
            if type(child) is not nn.BatchNorm2d or child.running_mean is None:
                raise ValueError(
                    f"only nn.BatchNorm2d with running statistics can be frozen; {type(parent).__name__}.{name} is "
                    f"{child}. Freeze it in your own module."
                )
            setattr(parent, name, FrozenBatchNorm2d(child))
