"""A training on disk: written after each epoch, taken up again only by the same training.

The file is one line with a checksum, then what `torch.save` writes. torch itself does not notice a flipped bit.
"""

from __future__ import annotations

import glob
import hashlib
import io
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onepos.files import write_atomically

_HEAD = b"onepos checkpoint 1 "
_PART = ".part-"


def save_checkpoint(path: str | os.PathLike[str], identity: str, content: dict[str, Any]) -> None:
    """Write `content` (tensors, numbers, lists, dicts), marked with whose it is."""
    buffer = io.BytesIO()
    torch.save({"identity": _digest(identity), "content": content}, buffer)
    saved = buffer.getvalue()
    write_atomically(path, _HEAD + hashlib.sha256(saved).hexdigest().encode() + b"\n" + saved)


def load_checkpoint(path: str | os.PathLike[str], identity: str, device: torch.device) -> dict[str, Any] | None:
    """What was written, None if there is no such file; refused if it belongs to another training."""
    path = Path(path)
    if not path.exists():
        return None
    try:
        first, _, rest = path.read_bytes().partition(b"\n")
        if first != _HEAD + hashlib.sha256(rest).hexdigest().encode():
            raise ValueError("the checksum differs")
        saved = plain(torch.load(io.BytesIO(rest), map_location=device, weights_only=True))
        owner, content = saved["identity"], saved["content"]
    except Exception as error:  # a damaged file makes torch raise almost anything
        raise ValueError(
            f"{path} must be a checkpoint of onepos; it can not be read or is damaged. Delete it to start afresh."
        ) from error
    if owner != _digest(identity):
        raise ValueError(
            f"{path} must be a checkpoint of this training; it belongs to other data, another plan or another "
            "method. Delete it to start afresh, or name another file."
        )
    return dict(content)


def plain(content: Any) -> Any:
    """The same with tensors that own all of their memory; others are refused.

    A file may hold a tensor whose entries share one place in memory, or a sparse one. An optimizer that writes to its
    memory directly, as fast ones do, would then write beyond it.

    Raises:
        ValueError: A tensor is not dense, or an entry is of another type.
    """
    if isinstance(content, Tensor):
        if content.layout != torch.strided or content.is_quantized or content.is_complex():
            raise ValueError("its tensors must be dense real numbers")
        return content.detach().clone()
    if isinstance(content, dict):
        return {plain(key): plain(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return type(content)(map(plain, content)) if type(content) in (list, tuple) else list(map(plain, content))
    if content is None or isinstance(content, bool | int | float | str):
        return content
    raise ValueError(f"its entries must be tensors, numbers and texts; one is a {type(content).__name__}")


class CheckpointParts:
    """Tensors made before a training, each in a file beside the checkpoint.

    Args:
        path: The checkpoint.
        identity: Of the training; parts of another are refused.
        device: Where tensors are wanted.
    """

    def __init__(self, path: str | os.PathLike[str], identity: str, device: torch.device) -> None:
        self.path, self.identity, self.device = Path(path), identity, device

    def load(self, name: str, shape: tuple[int, ...] | None = None) -> Tensor | None:
        """The tensor of this name, of finite numbers of at least 0 in this shape; None if there is none."""
        path = part_of(self.path, name)
        saved = load_checkpoint(path, self.identity, self.device)
        if saved is None:
            return None
        tensor = saved.get("tensor")
        if (
            isinstance(tensor, Tensor)
            and tensor.is_floating_point()
            and shape in (None, tuple(tensor.shape))
            and bool((tensor.isfinite() & (tensor >= 0)).all())
        ):
            return tensor
        raise ValueError(
            f"{path} must hold what was prepared for this training, shares{f' in the shape {shape}' if shape else ''}; "
            "it holds something else. Delete it, and it is prepared again."
        )

    def save(self, name: str, tensor: Tensor) -> None:
        """Keep it."""
        save_checkpoint(part_of(self.path, name), self.identity, {"tensor": tensor})


def part_of(path: str | os.PathLike[str], name: str) -> Path:
    """A file beside a checkpoint."""
    path = Path(path)
    return path.with_name(f"{path.name}{_PART}{name}")


def remove_checkpoint(path: str | os.PathLike[str]) -> None:
    """Delete a checkpoint and the files beside it."""
    path = Path(path)
    for part in path.parent.glob(f"{glob.escape(path.name)}{_PART}*"):
        part.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _digest(identity: str) -> str:
    return hashlib.sha256(identity.encode()).hexdigest()
