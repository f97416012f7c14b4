"""A training on disk: written after each epoch, taken up again only by the same training."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import torch

from onepos.files import write_atomically

_FORMAT = 1


def save_checkpoint(path: str | os.PathLike[str], identity: str, content: dict[str, Any]) -> None:
    """Write `content` (tensors, numbers, lists, dicts), marked with whose it is."""
    buffer = io.BytesIO()
    torch.save({"format": _FORMAT, "identity": _digest(identity), "content": content}, buffer)
    write_atomically(path, buffer.getvalue())


def load_checkpoint(path: str | os.PathLike[str], identity: str, device: torch.device) -> dict[str, Any] | None:
    """What was written, None if there is no such file; refused if it belongs to another training."""
    path = Path(path)
    if not path.exists():
        return None
    try:
        saved = torch.load(path, map_location=device, weights_only=True)
        version, owner, content = saved["format"], saved["identity"], saved["content"]
    except Exception as error:  # a damaged file makes torch raise almost anything
        raise ValueError(
            f"{path} must be a checkpoint of onepos; it can not be read. Delete it to start afresh."
        ) from error
    if version != _FORMAT or owner != _digest(identity):
        raise ValueError(
            f"{path} must be a checkpoint of this training; it belongs to other data, another plan or another "
            "method. Delete it to start afresh, or name another file."
        )
    return dict(content)


def _digest(identity: str) -> str:
    return hashlib.sha256(identity.encode()).hexdigest()
