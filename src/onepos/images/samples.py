"""Images as samples: index → uint8 pixels → views, from memory, from a packed file, or decoded as they are needed.

Worker processes decode and scale only and draw no random number, so the views do not depend on their number. The views
are made from a whole batch on the device, with numbers from torch's generator on the CPU, which the loop seeds.
"""

from __future__ import annotations

import copy
import ctypes
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from onepos.files import replacing, write_atomically
from onepos.images.networks import IMAGENET, Normalization
from onepos.images.views import carry, make_views, to_unit
from onepos.reading import IMAGE_FORMATS, check_file, naming, parse_json, read_bytes, shorten
from onepos.validation import check_choice

Batches: TypeAlias = Iterator[tuple[Tensor, tuple[Tensor, ...]]]
"""Row numbers and views, batch by batch."""

# Images decoded at a time where the caller gives no batch size.
_PASS = 64
# Numbers that go through a network at once without gradients, and images at most.
_PASS_NUMBERS, _PASS_IMAGES = 1 << 25, 1024
# Bytes of decoded pixels after which freed memory is returned to the system, which can take tens of milliseconds.
_TRIM_EVERY = 1 << 27


class _Images:
    """What all kinds share: `_stream` gives pixels, the rest follows."""

    offers: frozenset[str] = frozenset({"maps", "views"})

    def __init__(self, size: int, normalization: Normalization) -> None:
        self.size, self.normalization = size, normalization
        self.n_features = 3 * size * size
        self.pass_rows = max(1, min(_PASS_IMAGES, _PASS_NUMBERS // self.n_features))
        self.device = torch.device("cpu")
        self.skipped: dict[int, str] = {}

    def probe(self) -> Tensor:
        """(2, 3, size, size)."""
        return torch.zeros(2, 3, self.size, self.size)

    def rows(self, index: Tensor) -> Tensor:
        """(B, 3, size, size), normalized, un-augmented; a skipped image is of one color, the mean."""
        return self._finish(self._pixels(index), 0)[0]

    def batches(self, order: Tensor, batch_size: int, n_views: int) -> Batches:
        """Go through `order`: (index, views) per batch, the next ones being prepared meanwhile.

        Args:
            order: Row numbers.
            batch_size: Rows per batch; skipped images are left out of it, and of its index.
            n_views: A weak view, then strong ones; 0 gives one tensor of un-augmented rows.
        """
        batches = self._batches(order, batch_size, n_views)
        return _beside(batches, self.device) if self.device.type == "cuda" else batches

    def _batches(self, order: Tensor, batch_size: int, n_views: int) -> Batches:
        for index, pixels in self._stream(torch.split(order.cpu(), batch_size)):
            kept = [place for place, row in enumerate(index.tolist()) if row not in self.skipped]
            if len(kept) < len(index):
                index, pixels = index[kept], pixels[kept]
            if kept:
                yield carry(index, self.device), self._finish(pixels, n_views)

    def to(self, device: torch.device) -> Self:
        """The same images, given out on `device`."""
        moved = copy.copy(self)  # `skipped` stays shared: a row that one copy skips is listed in all
        moved.device = torch.device(device)
        return moved

    def _finish(self, pixels: Tensor, n_views: int) -> tuple[Tensor, ...]:
        pixels = pixels.to(self.device, non_blocking=True)
        if n_views == 0:
            return (self.normalization(to_unit(pixels)),)
        return make_views(pixels, n_views, self.normalization, torch.default_generator)

    def _pixels(self, index: Tensor) -> Tensor:
        return torch.cat([pixels for _, pixels in self._stream(torch.split(index.cpu(), _PASS))])

    def _stream(self, batches: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """(index, uint8 pixels (B, size, size, 3)) of each batch."""
        raise NotImplementedError


class ImageTensors(_Images):
    """Images in memory; `to` moves all of them to a device.

    Args:
        data: uint8, (n, size, size, 3).
        normalization: What the network was trained to see.
    """

    def __init__(self, data: Tensor | npt.NDArray[np.uint8], normalization: Normalization = IMAGENET) -> None:
        self.data = data if isinstance(data, Tensor) else torch.tensor(data)
        shape = tuple(self.data.shape)
        if len(shape) != 4 or shape[1] != shape[2] or shape[3] != 3 or self.data.dtype != torch.uint8:
            raise ValueError(
                f"data must be uint8 of shape (n, size, size, 3); it is {self.data.dtype} of shape {shape}. "
                "Read files with read_image, or scale values in [0, 1] by 255 and round."
            )
        super().__init__(shape[1], normalization)

    def __len__(self) -> int:
        return len(self.data)

    def to(self, device: torch.device) -> Self:
        """The same images with their memory on `device`."""
        moved = super().to(device)
        moved.data = self.data.to(device)
        return moved

    def fingerprint(self) -> str:
        """SHA-256 of shape, bytes and normalization."""
        digest = hashlib.sha256(repr((tuple(self.data.shape), self.normalization)).encode())
        for part in torch.split(self.data, 4096):
            digest.update(np.ascontiguousarray(part.cpu().numpy()).data)
        return digest.hexdigest()

    def sources(self) -> str:
        """A hash under which something computed from the pixels may be kept."""
        return self.fingerprint()

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
    """Decoded images in a file on disk, mapped into memory; see `pack_images`.

    Args:
        path: The file.
        normalization: What the network was trained to see.
        skipped: Rows that could not be decoded, with the reason.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        normalization: Normalization = IMAGENET,
        skipped: dict[int, str] | None = None,
    ) -> None:
        with naming(path, _AGAIN):
            # Copy on write: torch needs memory it may write to, and the file must not change.
            super().__init__(torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False)), normalization)
        self.path = Path(path)
        self.skipped.update(skipped or {})

    def to(self, device: torch.device) -> Self:
        """The same images, given out on `device`; the file stays where it is."""
        return super(ImageTensors, self).to(device)

    def load(self) -> ImageTensors:
        """All of it in memory, for sets that fit there; `to` then takes it to a device as a whole."""
        loaded = ImageTensors(self.data.clone(), self.normalization)
        loaded.skipped = self.skipped
        return loaded

    def fingerprint(self) -> str:
        """The name of the file, which is a hash of its sources, and the normalization."""
        return hashlib.sha256(repr((self.path.stem, tuple(self.data.shape), self.normalization)).encode()).hexdigest()

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


class ImageFiles(_Images):
    """Image files, decoded as they are needed.

    Args:
        files: Paths.
        size: Side of the square to which each is scaled.
        normalization: What the network was trained to see.
        workers: Processes that decode; 0 decodes in this one.
        on_error: What a missing or broken file does: "raise" an error that names it, or "skip" it. Skipped rows are
            listed in `skipped` with the reason; `batches` leaves them out, `rows` gives one color.
    """

    def __init__(
        self,
        files: Sequence[str | os.PathLike[str]],
        size: int,
        *,
        normalization: Normalization = IMAGENET,
        workers: int = 2,
        on_error: str = "raise",
    ) -> None:
        super().__init__(size, normalization)
        check_choice("on_error", on_error, ("raise", "skip"))
        # One block of bytes instead of many objects: counting references in the workers would copy their pages.
        self.files = np.array([os.fsencode(file) for file in files])
        self.workers, self.on_error = workers, on_error

    def __len__(self) -> int:
        return len(self.files)

    def fingerprint(self) -> str:
        """A hash of the paths below their common folder, the length of each file, and how they are read.

        Not of the content, which would mean to read everything; nor of the time of change, which copying alters.
        """
        return self._digest(lambda status: status.st_size, self.normalization)

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
        decoder = _Decoder(self.files, self.size, [round(255 * part) for part in self.normalization.mean])
        n_workers = min(self.workers, len(batches)) if len(batches) > 1 else 0
        loader = DataLoader(
            decoder,
            batch_size=None,
            sampler=[batch.tolist() for batch in batches],
            num_workers=n_workers,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # its own, or starting it would take numbers from the loop's
        )
        given = 0
        for index, (pixels, broken) in zip(batches, loader, strict=True):
            self.skipped.update(broken)
            if self.on_error == "raise":
                _raise_first(broken)
            yield index, pixels
            given += pixels.nbytes
            if given >= _TRIM_EVERY:
                _give_back_freed()
                given = 0

    def _all(self, on_batch: Callable[[int], None] | None) -> Iterator[Tensor]:
        """The pixels of all rows, batch by batch."""
        done = 0
        for index, pixels in self._stream(torch.split(torch.arange(len(self)), _PASS)):
            yield pixels
            done += len(index)
            if on_batch is not None:
                on_batch(done)


Images: TypeAlias = ImageFiles | ImageTensors


def _beside(batches: Batches, device: torch.device) -> Batches:
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


class _Decoder(Dataset[tuple[Tensor, dict[int, str]]]):
    """What runs in a worker: rows → pixels, and the rows that could not be read with the reason."""

    def __init__(self, files: npt.NDArray[np.bytes_], size: int, empty: list[int]) -> None:
        self.files, self.size, self.empty = files, size, empty

    def __getitem__(self, rows: list[int]) -> tuple[Tensor, dict[int, str]]:
        pixels = np.empty((len(rows), self.size, self.size, 3), np.uint8)
        broken = {}
        for place, row in enumerate(rows):
            try:
                pixels[place] = read_image(os.fsdecode(self.files[row]), self.size)
            except (OSError, ValueError) as error:
                pixels[place] = self.empty
                broken[row] = str(error)
        return torch.from_numpy(pixels), broken


def _give_back_freed() -> None:
    """Hand freed memory back to the system.

    Batches of a few megabytes are on the heap. In some runs glibc 2.36 did not reuse the memory of freed batches, and
    the process grew by a batch per batch although nothing was held.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def find_broken(
    files: Sequence[str | os.PathLike[str]], workers: int = 2, on_batch: Callable[[int], None] | None = None
) -> dict[int, str]:
    """Read every image once, small, and list those that can not be: row → reason.

    Args:
        files: Paths.
        workers: Processes that decode; 0 decodes in this one.
        on_batch: Called with the number of images done.
    """
    images = ImageFiles(files, 8, workers=workers, on_error="skip")
    for _ in images._all(on_batch):
        pass
    return dict(sorted(images.skipped.items()))


def pack_images(
    images: ImageFiles, folder: str | os.PathLike[str], on_batch: Callable[[int], None] | None = None
) -> PackedImages:
    """Decode every image once into one file, so that later epochs and runs need not.

    The file is named by a hash of the paths, lengths and times of change of the images and the size: a changed image
    gives another file. It takes 3 · size² bytes per image and appears when it is complete.

    Args:
        images: The files; their `on_error` holds here too.
        folder: Where packed files are kept.
        on_batch: Called with the number of images done.

    Raises:
        OSError: The disk has not enough free space.
    """

    def write(handle: BinaryIO) -> None:
        header = {"descr": "|u1", "fortran_order": False, "shape": (len(images), images.size, images.size, 3)}
        np.lib.format.write_array_header_1_0(handle, header)
        for pixels in images._all(on_batch):
            handle.write(np.ascontiguousarray(pixels.numpy()).data)

    n_bytes = len(images) * images.n_features
    path = keep_file(folder, images.sources(), "packed images", n_bytes, write, images.skipped)
    if images.on_error == "raise":
        _raise_first(images.skipped)
    load_kept(path, (len(images), images.size, images.size, 3), np.uint8)
    return PackedImages(path, images.normalization, images.skipped).to(images.device)


def keep_file(
    folder: str | os.PathLike[str],
    name: str,
    what: str,
    n_bytes: int,
    write: Callable[[BinaryIO], None],
    skipped: dict[int, str],
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """The path of `folder`/`name`.npy, which is written where it is not there.

    Beside it is a JSON file of the facts and of the rows that were skipped; these rows are added to `skipped`.
    """
    path, notes = Path(folder, f"{name}.npy"), Path(folder, f"{name}.json")
    if not (path.exists() and notes.exists()):
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < n_bytes:
            raise OSError(
                f"the {what} need {n_bytes / 2**30:.1f} GiB; {folder} has {free / 2**30:.1f} GiB left. Give another "
                "folder, or a smaller size of images."
            )
        with replacing(path) as handle:
            write(handle)
        write_atomically(notes, json.dumps({**(facts or {}), "skipped": dict(sorted(skipped.items()))}, indent=1))
    skipped.update(_read_notes(notes))
    return path


_AGAIN = "Delete it, and it is made again."


def _read_notes(notes: Path) -> dict[int, str]:
    """The rows that were skipped when a kept file was made."""
    with naming(notes, _AGAIN):
        kept = parse_json(read_bytes(notes), notes, _AGAIN)["skipped"]
        return {int(row): str(reason) for row, reason in kept.items()}


def load_kept(path: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A file of `keep_file`, mapped into memory; one sentence where it is not what was written there."""
    with naming(path, _AGAIN):
        # Copy on write: torch needs memory it may write to, and the file must not change.
        kept: npt.NDArray[Any] = np.load(check_file(path), mmap_mode="c", allow_pickle=False)
        if kept.shape != shape or kept.dtype != dtype:
            raise ValueError(
                f"{path.name} must hold {np.dtype(dtype)} of shape {shape}; it holds {kept.dtype} of shape {kept.shape}"
            )
        return kept


def _raise_first(skipped: Mapping[int, str]) -> None:
    for row, reason in skipped.items():
        raise ValueError(f"row {row}: {reason} Or pass on_error='skip' to go on without it.")


Pixels = npt.NDArray[np.uint8]


def read_image(path: str | os.PathLike[str], size: int) -> Pixels:
    """Decode an image and squash it to a square, as the published image benchmarks do, (size, size, 3).

    The aspect ratio is not kept. A JPEG much larger than needed is decoded at a half, a quarter or an eighth of its
    size, though never below twice `size`. Only the first image of an animation is read; a rotation that
    a camera noted beside the pixels (EXIF) is not applied.

    Deviation: the published code decodes large JPEGs in full before it scales them; with photos from 4 × `size` up
    the pixels differ in rounding, in exchange for several times the speed. Those of VOC, COCO and CUB are smaller.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged or not an image with 8 bits per color.
    """
    try:
        with Image.open(check_file(Path(path)), formats=IMAGE_FORMATS) as image:
            if image.mode.startswith(("I", "F")):
                raise ValueError(f"its pixels are of type {image.mode} instead of 8 bits per color")
            image.draft(None, (2 * size, 2 * size))
            squashed = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no image {path}. Check the list that names it.") from None
    except Exception as error:  # damaged files make Pillow raise errors of every type
        what = shorten(str(error)).rstrip(".") or type(error).__name__
        raise ValueError(
            f"an image must be readable to its end; {os.fspath(path)} is not: {what}. Replace or remove the file."
        ) from error
    return np.asarray(squashed)
