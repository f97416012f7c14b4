"""What every reader of a data file needs; the rest of it is in `onepos.reading`, for files of every kind."""

from pathlib import Path

from onepos.reading import BinaryFile, check_file, naming, open_binary

__all__ = ["BinaryFile", "check_file", "naming", "open_binary", "strip_suffix"]


def strip_suffix(path: Path) -> str:
    """Return the file's name without `.gz` and without its last suffix."""
    return Path(path.name.removesuffix(".gz")).stem
