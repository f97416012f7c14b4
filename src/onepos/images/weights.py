"""Weight files: they hold plain tensors, and no code in them is run."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor, nn


def load_weights(module: nn.Module, file: str | os.PathLike[str], checksum: str = "") -> str:
    """Load a weight file into a module, whole or not at all.

    The file holds a state dict, or `{"state_dict": …}` around one; a prefix `module.` on all keys (from
    `DataParallel`) is taken off. Keys named in the module's `unused_keys`, if it has that attribute, may be there or
    not and are left unread. The counter `num_batches_tracked`, which old files lack, may be missing.

    Args:
        module: Receives the weights; its own dtype and device stay.
        file: A .pth, .pt or .safetensors file.
        checksum: The first digits of its SHA-256, where they are known.

    Returns:
        The SHA-256 of the file.
    """
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(f"weights must be a file; there is none at {path}. Check the path.")
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
        if not digest.startswith(checksum):
            raise ValueError(f"{path} must have a checksum beginning {checksum}; it has {digest[:8]}…. Get it again.")
        handle.seek(0)
        content = _read(handle, path)
    unused = getattr(module, "unused_keys", ())
    found = {key: tensor for key, tensor in _state_dict(content, path).items() if key not in unused}
    expected = module.state_dict()
    for key in expected.keys() - found.keys():
        if key.endswith("num_batches_tracked"):
            found[key] = expected[key]
    _check_fit(found, expected, f"{path.name} must hold the {len(expected)} tensors of {type(module).__name__}")
    module.load_state_dict(found)
    return digest


def _read(handle: BinaryIO, path: Path) -> Any:
    if path.suffix == ".safetensors":
        try:
            return load_safetensors(handle.read())
        except SafetensorError as error:
            raise ValueError(f"{path} must be a safetensors file; it is not ({error}). Get it again.") from error
    if path.suffix not in (".pth", ".pt"):
        raise ValueError(f"weights must be a .pth, .pt or .safetensors file; got {path.name}. Rename or convert it.")
    try:
        return torch.load(handle, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail anywhere in the unpickler
        code = re.search(r"GLOBAL (\S+)", str(error))
        if code or "TorchScript" in str(error):
            what = code[1] if code else "a TorchScript program"
            raise ValueError(
                f"{path} must hold plain tensors; it holds {what}, and reading that could run code. "
                "Save the network's state_dict() instead of the network."
            ) from error
        raise ValueError(
            f"{path} must be a file of torch.save; it can not be read ({type(error).__name__}: it may be damaged). "
            "Get it again."
        ) from error


def _state_dict(content: Any, path: Path) -> dict[str, Tensor]:
    """The tensors by key, out of their wrapper and without prefix."""
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not content:
        what = "no entry" if isinstance(content, Mapping) else f"an object of type {type(content).__name__}"
        raise ValueError(
            f"{path} must hold a state dict, keys with their tensors; it holds {what}. Save the network's state_dict()."
        )
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise ValueError(
                f"{path} must hold a state dict, keys with their tensors; under {key!r} it holds an object "
                f"of type {type(value).__name__}. Save the network's state_dict(), alone or under 'state_dict'."
            )
        if value.layout != torch.strided or value.is_quantized:
            raise ValueError(
                f"{path} must hold dense tensors; that under {key[:80]!r} is none. Save the network's state_dict()."
            )
    prefix = "module." if all(key.startswith("module.") for key in content) else ""
    return {key.removeprefix(prefix): tensor for key, tensor in content.items()}


def _check_fit(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], rule: str) -> None:
    faults = {
        "missing": [repr(key) for key in expected if key not in found],
        "unexpected": [repr(key) for key in found if key not in expected],
        "of another shape": [
            f"{key!r} is {tuple(found[key].shape)} and should be {tuple(tensor.shape)}"
            for key, tensor in expected.items()
            if key in found and found[key].shape != tensor.shape
        ],
    }
    if any(faults.values()):
        listed = "; ".join(f"{what}: {first_few(keys, 3)}" for what, keys in faults.items() if keys)
        raise ValueError(f"{rule}; {listed}. Pass a file made for this network.")


def first_few(items: list[str], n: int) -> str:
    """The first n of a list, and how many more there are."""
    return ", ".join(items[:n]) + (f" and {len(items) - n} more" if len(items) > n else "")
