"""Bytes of JSON that anybody may have written → lists and dictionaries, and checks of what they hold."""

from __future__ import annotations

import json
from typing import Any

MOST_BYTES = 2 << 30


def parse(content: bytes) -> Any:
    """The value of a JSON text in UTF-8."""
    if len(content) > MOST_BYTES:
        raise ValueError(f"labels in JSON must not exceed {MOST_BYTES >> 30} GiB; these are larger. Split the file.")
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"JSON must be UTF-8; byte {error.start} is of another encoding. Save the file as UTF-8."
        ) from None
    except RecursionError:
        raise ValueError(
            "JSON of labels is nested a few levels deep; this is nested too deeply to be read. Check the file."
        ) from None
    except ValueError as error:
        what = " ".join(str(error).split()).rstrip(".")[:120]
        raise ValueError(f"labels in JSON must be complete; {what}. Export the file again.") from None


def as_list(value: Any, name: str, where: str) -> list[Any]:
    """A list of objects, or an error that says where there is none."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ValueError(f"{where} must hold {name!r}, a list of objects; {_kind(value)}. Export the file again.")
    return value


def as_text(value: Any, name: str, where: str) -> str:
    """A name or an id: text, or a whole number, as text."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{where} must hold {name!r}, a text or a whole number; {_kind(value)}. Correct the file.")
    if isinstance(value, int):
        if abs(value) >= 1 << 63:
            raise ValueError(
                f"{where} must hold {name!r}, a number of at most 64 bits; it is larger. Correct the file."
            )
        return str(value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{where} must hold {name!r}, a valid text; it has half of a surrogate pair. Correct the file."
        ) from None
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "there is none"
    if isinstance(value, list):
        return "it holds something else"
    return f"it is of type {type(value).__name__}"
