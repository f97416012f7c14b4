"""Reading a file that may be damaged, hostile or of another kind: within bounds, and every fault one sentence.

Libraries raise errors of every type for a damaged file (ArrowInvalid, BadZipFile, zlib.error, struct.error, KeyError,
RecursionError, MemoryError ...). Whoever reads a file does so inside `naming`, which turns all of them into one
ValueError, and calls `check_size` before it makes an array that the file alone gives the size of.
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

BinaryFile = io.BufferedReader

LIMIT_VARIABLE = "ONEPOS_MOST_BYTES"
"""The environment variable by which a user allows a file to unfold to more."""

IMAGE_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
"""Those that Pillow decodes by itself: for others, such as EPS, it starts a program that the file is a program for."""

_ADVICE = "The file is damaged or of another kind; get it again."
_MAY_BE_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_FLOOR, _FACTOR, _MOST_MARKS = 1 << 29, 100, 1 << 30
# A message keeps so many characters of its beginning and its end: a name in it may be of any length.
_HEAD, _TAIL = 900, 300
# What the system says about a file that is not damaged, with what to do about it.
_OF_THE_SYSTEM = {
    errno.ENOENT: "Check the name.",
    errno.EACCES: "Change its permissions, or name another.",
    errno.EPERM: "Change its permissions, or name another.",
    errno.EISDIR: "Name a file inside it.",
    errno.ENOTDIR: "Check the name.",
    errno.ENAMETOOLONG: "Check the name.",
    errno.ELOOP: "Check the links on its path.",
    errno.EIO: "Check the disk, and try again.",
    errno.ENOSPC: "Free some room, and try again.",
    errno.EMFILE: "Close other files, and try again.",
}


def shorten(text: str) -> str:
    """A message on one line, without the middle where it is very long."""
    line = " ".join(text.split())
    return line if len(line) <= _HEAD + _TAIL else f"{line[:_HEAD]} … {line[-_TAIL:]}"


@contextmanager
def naming(path: str | os.PathLike[str], advice: str = _ADVICE) -> Iterator[None]:
    """Turn whatever goes wrong while reading a file into one sentence that names the file.

    A sentence of our own stays as it is, with the name before it where it lacks one. What the system refuses (a missing
    or forbidden file, a broken disk) keeps its type; all else becomes a ValueError.

    Args:
        path: The file or folder being read.
        advice: What to do, for errors that do not say it themselves.
    """
    try:
        yield
    except ImportError:
        raise
    except Exception as error:
        _explain(Path(path), advice, error)
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # of a library written in Rust; not an Exception
            _explain(Path(path), advice, error)
        raise


def _explain(path: Path, advice: str, error: BaseException) -> NoReturn:
    """Raise the sentence in place of an error."""
    if isinstance(error, OSError) and error.errno in _OF_THE_SYSTEM:
        place = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else path
        raise type(error)(
            f"{shorten(str(place))} must be readable; {error.strerror or type(error).__name__}. "
            f"{_OF_THE_SYSTEM[error.errno]}"
        ) from error
    text, name = str(error).strip(), path.name or str(path)
    if _is_sentence(error, text):
        if name in text and len(text) <= _HEAD + _TAIL:
            raise error
        kind = type(error) if isinstance(error, OSError) else ValueError
        raise kind(shorten(text if name in text else f"{name}: {text}")) from error
    raise ValueError(f"{name} must be readable to its end; {cause_of(error)}. {advice}") from error


def cause_of(error: BaseException) -> str:
    """What is wrong with a file, without a full stop; what Python says of its own objects says nothing about a file."""
    if isinstance(error, TypeError | AttributeError | IndexError | AssertionError | NameError):
        return "an entry is of another kind"
    of_system = error.strerror if isinstance(error, OSError) else None
    text = shorten(of_system or str(error)).rstrip(".")
    if isinstance(error, KeyError) and " " not in text:
        return f"{text} is missing"
    return text or type(error).__name__


def _is_sentence(error: BaseException, text: str) -> bool:
    """Whether an error is one of ours; those of libraries are of other types or end without a full stop."""
    is_own_type = type(error) in (ValueError, FileNotFoundError) or type(error).__module__.startswith("onepos.")
    return is_own_type and text.endswith((".", "?", "…")) and "\n" not in text


def check_file(path: Path) -> Path:
    """Return the path of a plain file, or raise an error where there is none; a pipe would never end."""
    if path.is_dir():
        raise ValueError(f"{path} must be a file; it is a folder. Name the file inside it.")
    try:
        exists = path.exists()
    except OSError as error:
        raise FileNotFoundError(f"there is no file {shorten(str(path))}; {error.strerror}. Check the name.") from error
    if not exists:
        raise FileNotFoundError(f"there is no file {shorten(str(path))}. Check the name.")
    if not path.is_file():
        raise ValueError(f"{path} must be a plain file; it is a pipe or a device. Copy its content into a file.")
    return path


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a plain file."""
    with naming(path):
        return check_file(Path(path)).read_bytes()


def parse_json(content: bytes | str, path: str | os.PathLike[str], advice: str = _ADVICE) -> Any:
    """JSON of a file; numbers of thousands of digits and lists within thousands of lists are refused."""
    with naming(path, advice):
        try:
            value = json.loads(content)
            is_text = is_unicode(content, value)
        except RecursionError:
            raise ValueError("its lists or tables lie too deep within each other") from None
        if not is_text:
            raise ValueError("its text must be valid Unicode; it has half of a surrogate pair")
        return value


def is_unicode(content: bytes | str, value: Any) -> bool:
    """Whether all text of JSON can be written again: it may hold half of a surrogate pair, which no file can."""
    text = content.decode("latin-1") if isinstance(content, bytes) else content
    if not _MAY_BE_HALF.search(text):
        return True
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def most_bytes(path: str | os.PathLike[str]) -> int:
    """How much memory the content of a file may take: a hundred times its size, and half a GiB in any case."""
    given = os.environ.get(LIMIT_VARIABLE, "")
    return int(given) if given.isdecimal() else max(_FLOOR, _FACTOR * os.stat(path).st_size)


def check_size(path: str | os.PathLike[str], n_bytes: int) -> None:
    """Refuse a file that would unfold to far more than it is, before the memory is taken."""
    most = most_bytes(path)
    if n_bytes > most:
        raise too_large(path, f"{n_bytes / 2**20:,.0f} MiB", most)


def check_label_count(n_rows: int, n_labels: int) -> None:
    """Refuse labels that hardly repeat, such as a column of ids: rows times labels is what they take in memory."""
    given = os.environ.get(LIMIT_VARIABLE, "")
    if n_rows * n_labels > (int(given) if given.isdecimal() else _MOST_MARKS):
        raise ValueError(
            f"labels must repeat from row to row; {n_rows:,} rows hold {n_labels:,} different ones, which would take "
            f"{n_rows * n_labels / 2**30:,.1f} GiB. Name another column, or set {LIMIT_VARIABLE} to the bytes allowed."
        )


def too_large(path: str | os.PathLike[str], found: str, most: int) -> ValueError:
    """The error about a file that unfolds to too much."""
    return ValueError(
        f"{Path(path).name} must unfold to at most {most / 2**20:,.0f} MiB in memory, as files of its size do; it "
        f"unfolds to {found}. If you trust it, set {LIMIT_VARIABLE} to the bytes it may take."
    )


class _Unzipped(io.RawIOBase):
    """The content of a gzip file, which ends in an error where it is far longer than the file."""

    def __init__(self, path: Path) -> None:
        self._path, self._most, self._seen = path, most_bytes(path), 0
        self._file = gzip.GzipFile(path)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._seen = 0
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        content = self._file.read(len(buffer))
        self._seen += len(content)
        if self._seen > self._most:
            raise too_large(self._path, "more", self._most)
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._file.close()
        super().close()


def open_binary(path: Path) -> BinaryFile:
    """Open a plain file, or the content of a `.gz` file, for reading."""
    check_file(path)
    if path.suffix.lower() == ".gz":
        return io.BufferedReader(_Unzipped(path), 1 << 17)
    return path.open("rb")
