"""Writing a file so that a reader sees the old content or the new, never half of it."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_ADVICE = {
    errno.ENOSPC: "Free some room, or name a place on another disk",
    errno.EDQUOT: "Free some room, or name a place on another disk",
    errno.EFBIG: "Name a place on another disk",
    errno.EIO: "Check the disk",
    errno.EROFS: "Name a place that can be written to",
    errno.EACCES: "Name a place that can be written to",
    errno.EPERM: "Name a place that can be written to",
    errno.ENOENT: "Make its folder first",
    errno.ENOTDIR: "Name a folder that is there",
    errno.ENAMETOOLONG: "Name it shorter",
    errno.EMFILE: "Close other files",
}
_PART = re.compile(r"\..+\.[0-9a-f]{16}\.part")
_swept: set[Path] = set()


class CannotWrite(OSError):
    """The system refused to write a file; what was there before is unchanged."""

    def __init__(self, path: Path, error: OSError) -> None:
        advice = _ADVICE.get(error.errno or 0, "Try again, or name another place")
        super().__init__(
            f"{path} could not be written; {error.strerror or error}. {advice}; what was there before is unchanged."
        )
        self.errno = error.errno


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write to a temporary name beside `path`, flush it to the disk, rename it at the end.

    The name is random and must be new: containers that share a folder may have equal process numbers, and a link of
    that name must not be followed. A file that is replaced keeps its mode; a new one gets the user's. Where `path` is a
    link, the file it leads to is replaced.

    Raises:
        CannotWrite: One sentence, where the system refuses.
    """
    path = Path(os.path.realpath(path))
    mode = _check_target(path)
    _sweep(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with _explaining(path, temporary):
            handle = _create(temporary, 0o666 if mode is None else 0o600)
        with _explaining(path, temporary), handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
            if mode is not None:
                os.chmod(temporary, mode)
            temporary.replace(path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> Path:
    """Replace the content of a file as a whole."""
    data = content.encode() if isinstance(content, str) else content
    with replacing(path) as handle:
        handle.write(data)
    return Path(path)


def _check_target(path: Path) -> int | None:
    """The mode of the file that is there, None where there is none; only a plain file can be replaced."""
    try:
        found = path.stat().st_mode
    except OSError:
        return None
    if stat.S_ISDIR(found):
        raise IsADirectoryError(f"{path} must be a file, or not exist yet; it is a folder. Name a file in it.")
    if not stat.S_ISREG(found):
        raise ValueError(f"{path} must be a plain file, or not exist yet; it is a pipe or a device. Name another.")
    return stat.S_IMODE(found)


@contextmanager
def _explaining(path: Path, temporary: Path) -> Iterator[None]:
    """Errors of the system about this file become one sentence; others, such as those of a reader, stay."""
    try:
        yield
    except CannotWrite:
        raise
    except OSError as error:
        is_about_it = error.filename is None or os.fspath(error.filename) in (str(path), str(temporary))
        if error.errno is None or not is_about_it or isinstance(error, FileExistsError):
            raise
        raise CannotWrite(path, error) from error


def _create(temporary: Path, mode: int) -> BinaryIO:
    """A new file that this process holds a lock on, by which others see that its writer lives."""
    while True:
        handle = open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode))  # noqa: SIM115
        _lock(handle.fileno(), wait=True)
        if os.fstat(handle.fileno()).st_nlink:
            return handle
        handle.close()  # another process saw it before it was locked, and removed it


def _lock(descriptor: int, *, wait: bool = False) -> bool:
    """Whether nobody else holds the file; False too where the system has no such locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _sweep(folder: Path) -> None:
    """Once per folder, remove the temporary files of writers that were killed: their locks are free."""
    if folder in _swept:
        return
    _swept.add(folder)
    with suppress(OSError):
        for entry in [entry.path for entry in os.scandir(folder) if _PART.fullmatch(entry.name)]:
            _remove_if_left(entry)


def _remove_if_left(path: str) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            if _lock(descriptor):
                os.unlink(path)
        finally:
            os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Put a new name on the disk too, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
