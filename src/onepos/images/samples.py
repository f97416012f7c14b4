"""Pictures as samples: index → uint8 pixels → views, from memory, from a packed file, or decoded as they are needed.

Worker processes decode and scale, nothing else: no random number is drawn there, so the views do not depend on how many
there are. The views are made from a whole batch on the device, with numbers from torch's generator on the CPU, which
the loop seeds.
"""

from __future__ import annotations

import copy
import ctypes
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from onepos.files import replacing
from onepos.images.decoding import read_image
from onepos.images.networks.normalisation import IMAGENET, Normalisation
from onepos.images.transforms import carry, make_views, to_unit

# Pictures decoded at a time where nobody asks for batches.
_PASS = 64
_CPU = torch.device("cpu")
# Numbers that go through a network at once without gradients, and pictures at most.
_PASS_NUMBERS, _PASS_PICTURES = 1 << 25, 1024
# Bytes of decoded pixels after which freed memory is given back to the system, which can take tens of milliseconds.
_TRIM_EVERY = 1 << 27


class _Pictures:
    """What all kinds share: `_stream` gives pixels, the rest follows."""

    offers: frozenset[str] = frozenset({"maps", "views"})
    size: int
    normalisation: Normalisation
    on_error: str = "skip"  # in memory nothing breaks; of packed pictures some may have been skipped before
    skipped: dict[int, str]

    def __init__(self, size: int, normalisation: Normalisation) -> None:
        self.size, self.normalisation = size, normalisation
        self.n_features = 3 * size * size
        self.pass_rows = max(1, min(_PASS_PICTURES, _PASS_NUMBERS // self.n_features))
        self.device = _CPU
        self.skipped = {}

    def probe(self) -> Tensor:
        """(2, 3, size, size)."""
        return torch.zeros(2, 3, self.size, self.size)

    def rows(self, index: Tensor) -> Tensor:
        """(B, 3, size, size), normalised, un-augmented; a skipped picture is of one colour, the mean."""
        return self._finish(self._pixels(index), 0)[0]

    def views(self, index: Tensor, n_views: int) -> tuple[Tensor, ...]:
        """A weak view, then strong ones."""
        return self._finish(self._pixels(index), n_views)

    def batches(self, order: Tensor, batch_size: int, n_views: int) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
        """Go through `order`: (index, views) per batch, the next ones being prepared meanwhile.

        Args:
            order: Row numbers.
            batch_size: Rows per batch; skipped pictures are left out of it, and of its index.
            n_views: As in `views`; 0 gives one tensor of un-augmented rows.
        """
        batches = self._batches(order, batch_size, n_views)
        return _beside(batches, self.device) if self.device.type == "cuda" else batches

    def _batches(self, order: Tensor, batch_size: int, n_views: int) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
        for index, pixels in self._stream(torch.split(order.cpu(), batch_size)):
            kept = [place for place, row in enumerate(index.tolist()) if row not in self.skipped]
            if len(kept) < len(index):
                index, pixels = index[kept], pixels[kept]
            if kept:
                yield carry(index, self.device), self._finish(pixels, n_views)

    def to(self, device: torch.device) -> Self:
        """The same pictures, given out on `device`."""
        moved = copy.copy(self)  # `skipped` stays shared: what any copy meets, all know
        moved.device = torch.device(device)
        return moved

    def fingerprint(self) -> str:
        """A hash by which a checkpoint knows its data."""
        raise NotImplementedError

    def sources(self) -> str:
        """A hash under which something computed from the pixels may be kept."""
        return self.fingerprint()

    def _finish(self, pixels: Tensor, n_views: int) -> tuple[Tensor, ...]:
        pixels = pixels.to(self.device, non_blocking=True)
        if n_views == 0:
            return (self.normalisation(to_unit(pixels)),)
        return make_views(pixels, n_views, self.normalisation, torch.default_generator)

    def _pixels(self, index: Tensor) -> Tensor:
        return torch.cat([pixels for _, pixels in self._stream(torch.split(index.cpu(), _PASS))])

    def _stream(self, batches: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """(index, uint8 pixels (B, size, size, 3)) of each batch."""
        raise NotImplementedError


class ImageTensors(_Pictures):
    """Pictures in memory; on a device they lie there as a whole.

    Args:
        data: uint8, (n, size, size, 3).
        normalisation: What the network was trained to see.
    """

    def __init__(self, data: Tensor | npt.NDArray[np.uint8], normalisation: Normalisation = IMAGENET) -> None:
        self.data = data if isinstance(data, Tensor) else torch.tensor(data)
        shape = tuple(self.data.shape)
        if len(shape) != 4 or shape[1] != shape[2] or shape[3] != 3 or self.data.dtype != torch.uint8:
            raise ValueError(
                f"data must be uint8 of shape (n, size, size, 3); it is {self.data.dtype} of shape {shape}. "
                "Read files with read_image, or scale values in [0, 1] by 255 and round."
            )
        super().__init__(shape[1], normalisation)

    def __len__(self) -> int:
        return len(self.data)

    def to(self, device: torch.device) -> Self:
        """The same pictures with their memory on `device`."""
        moved = super().to(device)
        moved.data = self.data.to(device)
        return moved

    def fingerprint(self) -> str:
        """SHA-256 of shape, bytes and normalisation."""
        digest = hashlib.sha256(repr((tuple(self.data.shape), self.normalisation)).encode())
        for part in torch.split(self.data, 4096):
            digest.update(np.ascontiguousarray(part.cpu().numpy()).data)
        return digest.hexdigest()

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return self.data.nbytes

    def _pixels(self, index: Tensor) -> Tensor:
        return self.data.index_select(0, carry(index, self.data.device))

    def _stream(self, batches: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        for index in batches:
            yield index, self._pixels(index)


class PackedImages(ImageTensors):
    """Decoded pictures in a file on disk, of which the system keeps in memory what it has room for; see `pack_images`.

    Args:
        path: The file.
        normalisation: What the network was trained to see.
        skipped: Rows that could not be decoded, with the reason.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        normalisation: Normalisation = IMAGENET,
        skipped: dict[int, str] | None = None,
    ) -> None:
        # Copy on write: torch wants memory it may write to, the file stays as it is.
        super().__init__(torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False)), normalisation)
        self.path = Path(path)
        self.skipped = dict(skipped or {})

    def to(self, device: torch.device) -> Self:
        """The same pictures, given out on `device`; the file stays where it is."""
        return super(ImageTensors, self).to(device)

    def load(self) -> ImageTensors:
        """All of it in memory, for sets that fit there; `to` then takes it to a device as a whole."""
        loaded = ImageTensors(self.data.clone(), self.normalisation)
        loaded.skipped = self.skipped
        return loaded

    def fingerprint(self) -> str:
        """The name of the file, which is a hash of its sources, and the normalisation."""
        return hashlib.sha256(repr((self.path.stem, tuple(self.data.shape), self.normalisation)).encode()).hexdigest()

    @property
    def nbytes(self) -> int:
        """Memory that can not be given back: none."""
        return 0

    def _stream(self, batches: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """One batch ahead, since the pages of the next may have to come from the disk."""
        with ThreadPoolExecutor(max_workers=1) as reader:
            ahead = None
            for index in (*batches, None):
                behind, ahead = ahead, None if index is None else (index, reader.submit(self._fetch, index))
                if behind is not None:
                    yield behind[0], behind[1].result()

    def _fetch(self, index: Tensor) -> Tensor:
        pixels = self._pixels(index)
        return pixels.pin_memory() if self.device.type == "cuda" else pixels


class ImageFiles(_Pictures):
    """Picture files, decoded as they are needed.

    Args:
        files: Paths.
        size: Side of the square to which each is scaled.
        normalisation: What the network was trained to see.
        workers: Processes that decode; 0 decodes in this one.
        prefetch: Batches each of them prepares ahead.
        on_error: What a missing or broken file does: "raise" an error that names it, or "skip" it. Skipped rows are
            listed in `skipped` with the reason; `batches` leaves them out, `rows` and `views` give one colour.
    """

    def __init__(
        self,
        files: Sequence[str | os.PathLike[str]],
        size: int,
        *,
        normalisation: Normalisation = IMAGENET,
        workers: int = 2,
        prefetch: int = 2,
        on_error: str = "raise",
    ) -> None:
        super().__init__(size, normalisation)
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error must be 'raise' or 'skip'; got {on_error!r}.")
        # One block of bytes instead of many objects: counting references in the workers would copy their pages.
        self.files = np.array([os.fsencode(file) for file in files])
        self.workers, self.prefetch, self.on_error = workers, prefetch, on_error

    def __len__(self) -> int:
        return len(self.files)

    def fingerprint(self) -> str:
        """A hash of the paths below their common folder, the length of each file, and how they are read.

        Not of the content, which would mean to read everything; nor of the time of change, which copying alters.
        """
        return self._digest(lambda status: status.st_size, self.normalisation)

    def sources(self) -> str:
        """A hash that also changes when a file is written again: the name of the packed file."""
        return self._digest(lambda status: (status.st_size, status.st_mtime_ns))

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return self.files.nbytes

    def _digest(self, facts: Callable[[os.stat_result], object], *more: object) -> str:
        paths = [os.fsdecode(file) for file in self.files]
        folder = os.path.commonpath([os.path.dirname(path) or "." for path in paths]) if len(paths) else ""
        digest = hashlib.sha256(repr((self.size, *more)).encode())
        for path in paths:
            try:
                found = facts(os.stat(path))
            except OSError:
                found = None
            digest.update(repr((os.path.relpath(path, folder or None), found)).encode())
        return digest.hexdigest()

    def _stream(self, batches: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        decoder = _Decoder(self.files, self.size, self._empty())
        n_workers = min(self.workers, len(batches)) if len(batches) > 1 else 0
        loader = DataLoader(
            decoder,
            batch_size=None,
            sampler=[batch.tolist() for batch in batches],
            num_workers=n_workers,
            prefetch_factor=self.prefetch if n_workers else None,
            collate_fn=_as_it_is,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # its own, or starting it would take numbers from the loop's
        )
        given = 0
        for index, decoded in zip(batches, loader, strict=True):
            self.skipped.update(decoded.broken)
            if decoded.broken and self.on_error == "raise":
                raise ValueError(
                    f"row {decoded.broken[0][0]}: {decoded.broken[0][1]} Or pass on_error='skip' to go on without it."
                )
            yield index, decoded.pixels
            given += decoded.pixels.nbytes
            if given >= _TRIM_EVERY:
                _give_back_freed()
                given = 0

    def _empty(self) -> list[int]:
        return [round(255 * part) for part in self.normalisation.mean]


def _beside(
    batches: Iterator[tuple[Tensor, tuple[Tensor, ...]]], device: torch.device
) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
    """Have the batches made on a stream of their own.

    Making views means small copies to the device, and each waits for its stream. Were it that of the training step, the
    next step could not be queued before the last one is done.
    """
    stream, used_on = torch.cuda.Stream(device=device), torch.cuda.current_stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(used_on)
    while True:
        with torch.cuda.stream(stream):
            batch = next(batches, None)
        if batch is None:
            return
        used_on.wait_stream(stream)
        for tensor in (batch[0], *batch[1]):
            tensor.record_stream(used_on)
        yield batch


class _Decoded(NamedTuple):
    pixels: Tensor
    broken: list[tuple[int, str]]


class _Decoder(Dataset[_Decoded]):
    """What runs in a worker: rows → pixels, and which could not be had."""

    def __init__(self, files: npt.NDArray[np.bytes_], size: int, empty: list[int]) -> None:
        self.files, self.size, self.empty = files, size, empty

    def __getitem__(self, rows: list[int]) -> _Decoded:
        pixels = np.empty((len(rows), self.size, self.size, 3), np.uint8)
        broken = []
        for place, row in enumerate(rows):
            try:
                pixels[place] = read_image(os.fsdecode(self.files[row]), self.size)
            except (OSError, ValueError) as error:
                pixels[place] = self.empty
                broken.append((row, str(error)))
        return _Decoded(torch.from_numpy(pixels), broken)


def _give_back_freed() -> None:
    """Hand freed memory back to the system.

    Batches of a few megabytes lie on the heap, and in some runs glibc 2.36 was seen to leave the hole of each behind
    unused, so that the process grew by a batch per batch although nothing was held.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _as_it_is(decoded: Any) -> Any:
    return decoded


def find_broken(files: Sequence[str | os.PathLike[str]], workers: int = 2) -> dict[int, str]:
    """Read every picture once, small, and list those that can not be: row → reason."""
    pictures = ImageFiles(files, 8, workers=workers, on_error="skip")
    for _ in pictures._stream(torch.split(torch.arange(len(pictures)), _PASS)):
        pass
    return dict(sorted(pictures.skipped.items()))


def pack_images(
    pictures: ImageFiles, folder: str | os.PathLike[str], on_batch: Callable[[int], None] | None = None
) -> PackedImages:
    """Decode every picture once into one file, so that later epochs and runs need not.

    The file is named after the paths, lengths and times of change of the pictures and the size: what was packed before
    is opened, a changed picture is packed anew. It takes 3 · size² bytes per picture and appears when it is complete.

    Args:
        pictures: The files; their `on_error` holds here too.
        folder: Where packed files lie.
        on_batch: Called with the number of pictures done.

    Raises:
        OSError: The disk has not enough room.
    """
    name = pictures.sources()
    path, notes = Path(folder) / f"{name}.npy", Path(folder) / f"{name}.json"
    if not (path.exists() and notes.exists()):
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_room(path.parent, len(pictures) * pictures.n_features)
        _write_packed(pictures, path, on_batch)
        with replacing(notes) as handle:
            handle.write(json.dumps({str(row): reason for row, reason in pictures.skipped.items()}).encode())
    skipped = {int(row): reason for row, reason in json.loads(notes.read_bytes()).items()}
    if skipped and pictures.on_error == "raise":
        row, reason = next(iter(skipped.items()))
        raise ValueError(f"row {row}: {reason} Or pass on_error='skip' to go on without it.")
    return PackedImages(path, pictures.normalisation, skipped).to(pictures.device)


def _write_packed(pictures: ImageFiles, path: Path, on_batch: Callable[[int], None] | None) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(pictures), pictures.size, pictures.size, 3)}
    done = 0
    with replacing(path) as handle:
        np.lib.format.write_array_header_1_0(handle, header)
        for index, pixels in pictures._stream(torch.split(torch.arange(len(pictures)), _PASS)):
            handle.write(np.ascontiguousarray(pixels.numpy()).data)
            done += len(index)
            if on_batch is not None:
                on_batch(done)


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"the packed pictures need {needed / 2**30:.1f} GiB; {folder} has {free / 2**30:.1f} GiB left. Give "
            "another folder, a smaller size, or use the files as they are."
        )
