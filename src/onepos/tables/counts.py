"""How often texts or terms occur in a stream, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable

MOST_COUNTED = 1_000_000
"""More different texts than this are not remembered: the rarest are forgotten, down to half as many."""


class Counts:
    """Numbers of rows per text; exact until `most` different texts were met.

    Attributes:
        rows: The number of rows of each text.
        n_forgotten: How many texts were forgotten since they were rare.
    """

    def __init__(self, most: int = MOST_COUNTED) -> None:
        self.rows: dict[str, int] = {}
        self.n_forgotten = 0
        self._most = most

    def add(self, texts: Iterable[str], rows: Iterable[int]) -> None:
        """Add the texts of a block, each of them once, and in how many rows it is."""
        known = self.rows
        for text, n in zip(texts, rows, strict=True):
            known[text] = known.get(text, 0) + n
        if len(known) > self._most:
            self._forget()

    def _forget(self) -> None:
        kept = sorted(self.rows.items(), key=_by_rows)[: self._most // 2]
        self.n_forgotten += len(self.rows) - len(kept)
        self.rows = dict(kept)

    def most_frequent(self, at_most: int, min_rows: int) -> list[str]:
        """The texts that are in at least `min_rows` rows, from the most frequent; equal ones by their letters."""
        frequent = [item for item in self.rows.items() if item[1] >= min_rows]
        return [text for text, _ in sorted(frequent, key=_by_rows)[:at_most]]


def _by_rows(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]
