"""Pictures → features that are computed once and kept on disk, for heads trained on a network that stands still."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from onepos.files import replacing, write_atomically
from onepos.images.samples import ImageFiles, ImageTensors
from onepos.training.samples import DenseRows

_KINDS = {torch.float32: "<f4", torch.float16: "<f2"}


def cache_features(
    samples: ImageFiles | ImageTensors,
    backbone: nn.Module,
    folder: str | os.PathLike[str],
    *,
    weights_hash: str | None = None,
    dtype: torch.dtype = torch.float32,
    on_batch: Callable[[int], None] | None = None,
) -> DenseRows:
    """Features of all pictures, un-augmented, from a network in evaluation mode; made once, later read from the disk.

    The file is named after the weights, the structure of the network, the pictures, their size and normalisation, and
    `dtype`: if one of these changes, features are made anew. It appears when it is complete; beside it lies a `.json`
    that says what it holds. The network runs on the device it is on.

    Of a picture that can not be read (`on_error="skip"`) the features are zero. `samples.skipped` lists these rows,
    also where the file was there before: leave them out.

    Args:
        samples: The pictures.
        backbone: A network that gives (B, d).
        folder: Where such files lie.
        weights_hash: Of the weight file, as `make_image_backbone` gives it, provided the weights are still those of the
            file. Without one, the weights themselves are hashed.
        dtype: Of the file. float32 is mapped into memory as it is needed; float16 takes half of the disk, and is
            read as a whole and widened.
        on_batch: Called with the number of pictures done.

    Raises:
        OSError: The disk has not enough room.
    """
    if dtype not in _KINDS:
        raise ValueError(f"dtype must be torch.float32 or torch.float16; got {dtype}.")
    facts = {
        "weights": weights_hash or _hash_weights(backbone),
        "network": hashlib.sha256(str(backbone).encode()).hexdigest(),
        "pictures": samples.sources(),
        "size": samples.size,
        "normalisation": samples.normalisation._asdict(),
        "dtype": _KINDS[dtype],
    }
    name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    path, notes = Path(folder) / f"{name}.npy", Path(folder) / f"{name}.json"
    if not (path.exists() and notes.exists()):
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(samples, backbone, path, dtype, on_batch)
        skipped = {str(row): reason for row, reason in sorted(samples.skipped.items())}
        write_atomically(notes, json.dumps(facts | {"skipped": skipped}, indent=1))
    for row, reason in json.loads(notes.read_bytes())["skipped"].items():
        if samples.on_error == "raise":
            raise ValueError(f"row {row}: {reason} Or pass on_error='skip' to go on without it.")
        samples.skipped[int(row)] = reason
    # Copy on write: torch wants memory it may write to, the file stays as it is.
    return DenseRows(torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False)).float())


def _hash_weights(backbone: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, tensor in backbone.state_dict().items():
        digest.update(repr((name, tuple(tensor.shape), str(tensor.dtype))).encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


@torch.no_grad()
def _write(
    samples: ImageFiles | ImageTensors,
    backbone: nn.Module,
    path: Path,
    dtype: torch.dtype,
    on_batch: Callable[[int], None] | None,
) -> None:
    device = next((tensor.device for tensor in backbone.state_dict().values()), torch.device("cpu"))
    n, size, was_training = len(samples), samples.pass_rows, backbone.training
    backbone.eval()
    done = width = 0
    try:
        with replacing(path) as handle:
            for index, (rows,) in samples.to(device).batches(torch.arange(n), size, 0):
                features = _checked(backbone(rows.contiguous(memory_format=torch.channels_last)), len(index))
                if not width:
                    width = features.shape[1]
                    _check_room(path.parent, n * width * dtype.itemsize)
                    header = {"descr": _KINDS[dtype], "fortran_order": False, "shape": (n, width)}
                    np.lib.format.write_array_header_1_0(handle, header)
                # Up to the end of this step; what is missing since the last one was skipped.
                end = min(n, (int(index[0]) // size + 1) * size)
                block = torch.zeros(end - done, width, dtype=dtype)
                block[index.cpu() - done] = features.to("cpu", dtype)
                handle.write(block.numpy().data)
                done = end
                if on_batch is not None:
                    on_batch(done)
            if not width:
                raise ValueError(f"some pictures must be readable; all {n} were skipped. See samples.skipped.")
            handle.write(bytes((n - done) * width * dtype.itemsize))
    finally:
        backbone.train(was_training)


def _checked(features: Tensor, n_rows: int) -> Tensor:
    if features.ndim != 2 or len(features) != n_rows:
        raise ValueError(
            f"the backbone must give one row of features per picture, (B, d); it gave {tuple(features.shape)} for "
            f"{n_rows} pictures. Make it with maps=False."
        )
    if not features.isfinite().all():
        raise ValueError("the features must be finite; some are not. Check the weights of the backbone.")
    return features


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"the features need {needed / 2**30:.1f} GiB; {folder} has {free / 2**30:.1f} GiB left. Give another "
            "folder, or dtype=torch.float16."
        )
