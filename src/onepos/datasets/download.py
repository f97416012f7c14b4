"""Getting data sets: from their publishers, or from files the user already has.

An interrupted download continues where it stopped, by ranges of bytes; pooch, the usual library, begins again.
"""

import hashlib
import http.client
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from onepos.datasets.arff import read_arff
from onepos.datasets.dataset import Dataset, stack_rows
from onepos.datasets.files import naming, open_binary
from onepos.datasets.loading import data_root, load_dataset
from onepos.datasets.mat import read_mat
from onepos.datasets.npz import read_pooled_features, write_npz
from onepos.datasets.sources import DATASETS, RemoteFile, Source
from onepos.validation import check_known

TIMEOUT = 30.0
ATTEMPTS = 3
PAUSE = 1.0
CHUNK = 1 << 18
# Not OSError as such: a full disk is no reason to try again, and keeps its own message.
NETWORK_ERRORS = (urllib.error.URLError, ConnectionError, TimeoutError, ssl.SSLError, http.client.HTTPException)

# progress(file name, bytes so far, bytes in all or None)
Progress = Callable[[str, int, int | None], None]


def get_dataset(
    name: str,
    *,
    root: str | Path | None = None,
    source_folder: str | Path | None = None,
    progress: Progress | None = None,
    verify: bool = True,
) -> Path:
    """Fetch a data set into `<root>/tabular`; a complete copy there is left alone, without any request.

    Args:
        name: A key of `DATASETS`.
        root: Data folder, see `data_root`.
        source_folder: Folder with the publisher's files (also `.gz`), used instead of the network.
        progress: Called with file name, bytes so far and bytes in all (None when unknown).
        verify: Whether files from `source_folder` must have the known checksum.

    Returns:
        The path of `<name>.npz`; of the features, where they lie in `<root>/images` as they are.

    Raises:
        ConnectionError: When a file can not be downloaded.
        ValueError: When the name is unknown, or a file is not what it should be.
    """
    check_known([name], sorted(DATASETS), "unknown data set")
    source = DATASETS[name]
    if source.kind == "generated":
        raise ValueError(f"{name} is generated, not downloaded; nothing is missing. Use load_dataset('{name}').")
    folder = data_root(root)
    path = folder / "tabular" / f"{name}.npz"
    if source_folder is None:
        with suppress(FileNotFoundError, ValueError):
            _check_variant(name, source, load_dataset(name, folder))
            return path if path.is_file() else folder / "images" / source.files[-1].name
        files = [_fetch(name, source, file, folder / "raw", progress) for file in source.files]
    else:
        files = [_find(file, Path(source_folder).expanduser(), verify) for file in source.files]
    dataset = replace(_read_files(source, files), name=name, source=source.files[0].url or files[0].name)
    _check_variant(name, source, dataset)
    return write_npz(dataset, folder / "tabular")


def _check_variant(name: str, source: Source, dataset: Dataset) -> None:
    kept = dataset.without_unlabelled() if source.drop_unlabelled else dataset
    expected, found = (
        f"{one.n_samples} rows, {one.n_features} features and {one.n_labels} labels" for one in (source, kept)
    )
    if found != expected:
        raise ValueError(
            f"{name} must be the variant with {expected}; the files hold {found}. This is another "
            "variant of the data set: read it under its own name with read_dataset()."
        )


def _read_files(source: Source, files: list[Path]) -> Dataset:
    if source.kind == "mat":
        return read_mat(files[0])
    if source.kind == "features":
        return read_pooled_features(*files)
    *parts, xml = files
    train, test = (read_arff(part, xml) for part in parts)
    for what in ("label_names", "feature_names"):
        if getattr(train, what) != getattr(test, what):
            raise ValueError(
                f"{parts[0].name} and {parts[1].name} must have the same columns; their {what} differ. "
                "Get both from the same place."
            )
    n = train.n_samples
    return replace(
        train,
        X=stack_rows([train.X, test.X]),
        Y=np.concatenate([train.Y, test.Y]),
        splits={"train": np.arange(n), "test": np.arange(n, n + test.n_samples)},
    )


def _find(file: RemoteFile, folder: Path, verify: bool) -> Path:
    for path in (folder / file.name, folder / f"{file.name}.gz"):
        if path.is_file():
            found = _hash_file(path) if verify and file.sha256 else file.sha256
            if found != file.sha256:
                raise ValueError(
                    f"{path.name} has checksum {found}; expected {file.sha256}. Get the publisher's file again, or "
                    "take this one as it is with verify=False (--no-verify)."
                )
            return path
    raise FileNotFoundError(f"there is no {file.name} (or {file.name}.gz) in {folder}. Put it there.")


def _hash_file(path: Path) -> str:
    with naming(path), open_binary(path) as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _fetch(name: str, source: Source, file: RemoteFile, folder: Path, progress: Progress | None) -> Path:
    """Return the file in the folder, downloading what is missing of it."""
    path = folder / file.name
    if path.is_file() and _hash_file(path) == file.sha256:
        return path
    if not file.url:
        raise ValueError(f"{name} can not be downloaded. {source.note} Then run: onepos data get {name} --from FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{file.name}.part"
    # The beginning of a resumed file may stem from another version of it.
    for _ in range(2 if part.exists() else 1):
        _download(file, part, progress)
        found = _hash_file(part)
        if found == file.sha256:
            return part.replace(path)
        part.unlink()
    raise ValueError(
        f"{file.name} has checksum {found}; expected {file.sha256}. The file at {file.url} changed or was damaged "
        "on the way: try again, or take a copy you trust with --from."
    )


def _download(file: RemoteFile, part: Path, progress: Progress | None) -> None:
    """Download to `part`, going on where an earlier attempt stopped."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _transfer(file, part, progress)
            break
        except NETWORK_ERRORS as error:
            gone = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if gone or attempt == ATTEMPTS:
                raise ConnectionError(
                    f"{file.name} could not be downloaded from {file.url}; {error}. Try again later, or get the file "
                    "another way and name its folder with --from."
                ) from error
            time.sleep(PAUSE * attempt)


def _transfer(file: RemoteFile, part: Path, progress: Progress | None) -> None:
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(file.url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        # Nothing is left to get: the part is whole, or wrong, which its checksum shows.
        return
    with response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        with part.open("ab" if start else "wb") as handle:
            done = start
            while block := response.read(CHUNK):
                handle.write(block)
                done += len(block)
                if progress is not None:
                    progress(file.name, done, total)
            handle.flush()
            os.fsync(handle.fileno())
    if total is not None and done < total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")
