"""What every reader of files needs: opening a file, and errors that name it."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

BinaryFile = BufferedReader | gzip.GzipFile


@contextmanager
def naming(path: Path, advice: str = "The file is damaged or of another kind; get it again.") -> Iterator[None]:
    """Turn whatever goes wrong while reading a file into one ValueError that names the file.

    For a damaged file, libraries raise errors of every type (zlib, struct, KeyError, MemoryError ...), which
    do not help the person who named the file. Missing or forbidden files keep their own type.

    Args:
        path: The file being read.
        advice: What to do, for errors that do not say it themselves.
    """
    try:
        yield
    except (ImportError, FileNotFoundError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        if isinstance(error, ValueError) and path.name in str(error):
            raise
        if isinstance(error, ValueError) and str(error).endswith("."):
            raise ValueError(f"{path.name}: {error}") from error
        what = str(error).strip().rstrip(".") or type(error).__name__
        raise ValueError(f"{path.name} must be readable to its end; {what}. {advice}") from error


def check_file(path: Path) -> Path:
    """Return the path of a file, or raise an error where there is none."""
    if path.is_dir():
        raise ValueError(f"{path} must be a file; it is a folder. Name the file inside it.")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}. Check the name.")
    return path


def open_binary(path: Path) -> BinaryFile:
    """Open a file, or the content of a `.gz` file, for reading."""
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")


def strip_suffix(path: Path) -> str:
    """Return the file's name without `.gz` and without its last suffix."""
    return Path(path.name.removesuffix(".gz")).stem
