"""Large JSON files, element by element: the whole file is never in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from onepos.datasets.files import check_file, naming

CHUNK = 1 << 20
# A single element longer than this is taken for a damaged file rather than read into memory.
LONGEST = 1 << 26


def iterate_lists(path: Path) -> Iterator[tuple[str, Any, int]]:
    """Yield (key, element, offset) for each element of each list in the object that a JSON file holds.

    Values that are not lists are read over. The offset counts characters from the start of the file, from 0.
    """
    with naming(check_file(path)), path.open(encoding="utf-8") as handle:
        text = _Text(path, handle)
        text.expect("{")
        if text.skip_if("}"):
            return
        while True:
            key = text.value()
            if not isinstance(key, str):
                raise text.wrong("a name in quotes")
            text.expect(":")
            if text.skip_if("["):
                yield from _elements(text, key)
            else:
                text.value()
            if text.skip_if("}"):
                break
            text.expect(",")
        if text.peek():
            raise text.wrong("nothing behind the closing brace")


def _elements(text: _Text, key: str) -> Iterator[tuple[str, Any, int]]:
    if text.skip_if("]"):
        return
    while True:
        text.peek()
        offset = text.offset
        yield key, text.value(), offset
        if text.skip_if("]"):
            return
        text.expect(",")


class _Text:
    """A window onto a file that moves on as values are taken from it."""

    def __init__(self, path: Path, handle: TextIO) -> None:
        self.path, self.handle = path, handle
        self.window, self.place, self.before, self.ended = "", 0, 0, False
        self.decoder = json.JSONDecoder()

    @property
    def offset(self) -> int:
        return self.before + self.place

    def peek(self) -> str:
        """The next character that is not white; empty at the end of the file."""
        while True:
            while self.place < len(self.window):
                if not self.window[self.place].isspace():
                    return self.window[self.place]
                self.place += 1
            if not self._read_on():
                return ""

    def skip_if(self, mark: str) -> bool:
        """Whether the next character is `mark`, which is then skipped."""
        if self.peek() != mark:
            return False
        self.place += 1
        return True

    def expect(self, mark: str) -> None:
        if not self.skip_if(mark):
            raise self.wrong(f"'{mark}'")

    def value(self) -> Any:
        """The next value as a whole."""
        self.peek()
        while True:
            try:
                value, end = self.decoder.raw_decode(self.window, self.place)
            except json.JSONDecodeError as error:
                # Near the end of the window the rest of the value may just not be read yet.
                unfinished = error.pos > len(self.window) - 16 or error.msg.startswith("Unterminated")
                if unfinished and len(self.window) - self.place < LONGEST and self._read_on():
                    continue
                cut_off = error.msg.startswith("Unterminated") or _begins_literal(self.window[error.pos :])
                self.place = len(self.window) if self.ended and cut_off else error.pos
                raise self.wrong("a JSON value") from None
            rest_of_number = not self.window[end : end + 8].strip("+-.eE0123456789")
            if rest_of_number and end + 8 > len(self.window) and self._read_on():  # 1.5e3 may be cut behind the 1
                continue
            self.place = end
            return value

    def wrong(self, must: str) -> ValueError:
        found = self.window[self.place : self.place + 20]
        is_what = f"'{found}'" if found else "the end of the file: it was cut off"
        return ValueError(
            f"{self.path.name}, character {self.offset}: there must be {must}; there is {is_what}. Get the file again."
        )

    def _read_on(self) -> bool:
        """Drop what is behind, add a chunk; False at the end of the file."""
        more = "" if self.ended else self.handle.read(max(CHUNK, len(self.window) - self.place))
        self.ended = not more
        self.before += self.place
        self.window, self.place = self.window[self.place :] + more, 0
        return bool(more)


def _begins_literal(rest: str) -> bool:
    return any(word.startswith(rest) for word in ("true", "false", "null"))
