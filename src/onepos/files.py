"""Writing a file so that a reader sees the old content or the new, never half of it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Write to a temporary name beside `path`, flush it to the disk, rename it at the end.

    The name is random and must be new: containers that share a folder may have equal process numbers, and a link of
    that name must not be followed.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    handle = temporary.open("xb")
    try:
        with handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> Path:
    """Replace the content of a file as a whole."""
    with replacing(path) as handle:
        handle.write(content.encode() if isinstance(content, str) else content)
    return Path(path)
