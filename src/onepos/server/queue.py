"""Which item a reviewer is shown next.

The rule: of five items four are those with the largest expected number of wrong entries that is left, and one is
drawn at random; until 50 random items were shown, every second one is. The random items are the beginning of a fixed
permutation of all rows, whatever the models say: they are a sample from which quality can be estimated, and which
settles the scale of the class priors, without which few labels can be added. A row of that beginning that was
reviewed before its turn counts as part of the sample, without being shown again.

An item is lent to one browser tab at a time. The loan ends when the item is finished, skipped, or after `LEASE` seconds
without an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

LEASE = 600.0
# The share of random items, and that until so many were shown.
RANDOM_SHARE, FIRST_SHARE, N_FIRST = 0.2, 0.5, 50


@dataclass(frozen=True)
class Lease:
    """An item that is lent to a browser tab."""

    row: int
    session: str
    reviewer: str
    expires: float


class Walk:
    """Rows in an order, of which the finished ones at the beginning are passed once."""

    def __init__(self, order: npt.NDArray[np.intp]) -> None:
        self.order: list[int] = order.tolist()
        self.rank = np.empty(len(order), np.intp)
        self.rank[order] = np.arange(len(order))
        self._first = 0

    def rows(self, done: set[int]) -> Iterable[int]:
        """The rows that are not finished."""
        while self._first < len(self.order) and self.order[self._first] in done:
            self._first += 1
        rows = (self.order[place] for place in range(self._first, len(self.order)))
        return (row for row in rows if row not in done)

    def reopen(self, row: int) -> None:
        """A finished row is open again."""
        self._first = min(self._first, int(self.rank[row]))


@dataclass
class Queue:
    """The order of the items, those that are finished, and those that are lent.

    Attributes:
        doubtful: The rows by what an answer is worth.
        random: All rows, in an order that was drawn once.
        done: The finished rows.
        skipped: Reviewer → rows that this person does not want to see.
        leases: Row → loan.
        handed: How many items were lent.
        drawn: How many rows of `random` belong to the sample.
    """

    doubtful: Walk
    random: Walk
    done: set[int] = field(default_factory=set)
    skipped: dict[str, set[int]] = field(default_factory=dict)
    leases: dict[int, Lease] = field(default_factory=dict)
    handed: int = 0
    drawn: int = 0

    @classmethod
    def make(cls, worth: npt.NDArray[np.float64], seed: int) -> Queue:
        """The queue of rows by the worth of their review."""
        return cls(sort_by_worth(worth), Walk(np.random.default_rng(seed).permutation(len(worth))))

    def reorder(self, worth: npt.NDArray[np.float64]) -> None:
        """Take the order of a new judgement; what is finished and lent stays."""
        self.doubtful = sort_by_worth(worth)

    def is_random(self, row: int) -> bool:
        """Whether a row belongs to the random sample."""
        return bool(self.random.rank[row] < self.drawn)

    def sample(self) -> Sequence[int]:
        """The rows of the random sample so far."""
        return self.random.order[: self.drawn]

    def held_by(self, session: str, now: float) -> int | None:
        """The open row that is lent to a tab."""
        found = (row for row, lease in self.leases.items() if lease.session == session and lease.expires > now)
        return next((row for row in found if row not in self.done), None)

    def find_next(self, session: str, reviewer: str, now: float) -> tuple[int, bool] | None:
        """The next row for a tab, and whether it is drawn at random; None where nothing is left."""
        wanted = max(RANDOM_SHARE * self.handed, min(N_FIRST, FIRST_SHARE * self.handed))
        is_random = self.drawn < wanted
        barred = self.skipped.get(reviewer, set())
        for walk in (self.random, self.doubtful) if is_random else (self.doubtful, self.random):
            for row in walk.rows(self.done):
                if row not in barred and self.is_free(row, session, now):
                    return row, walk is self.random
        return None

    def is_free(self, row: int, session: str, now: float) -> bool:
        """Whether no other tab has a row."""
        lease = self.leases.get(row)
        return lease is None or lease.session == session or lease.expires <= now

    def lend(self, row: int, session: str, reviewer: str, now: float) -> list[int]:
        """Lend a row to a tab, which gives back what it had; these rows."""
        back = [other for other, lease in self.leases.items() if lease.session == session and other != row]
        for other in back:
            del self.leases[other]
        self.leases[row] = Lease(row, session, reviewer, now + LEASE)
        return back

    def count_handed(self, row: int, is_random: bool) -> None:
        """A row was lent that was not lent before."""
        self.handed += 1
        if is_random:
            self.drawn = max(self.drawn, int(self.random.rank[row]) + 1)

    def finish(self, row: int) -> None:
        """A row is reviewed."""
        self.done.add(row)
        self.leases.pop(row, None)

    def skip(self, row: int, reviewer: str) -> None:
        """A row is not shown to this person again."""
        self.skipped.setdefault(reviewer, set()).add(row)
        self.leases.pop(row, None)

    def reopen(self, row: int, reviewer: str) -> None:
        """What finished or skipped a row was taken back."""
        self.done.discard(row)
        self.skipped.get(reviewer, set()).discard(row)
        self.doubtful.reopen(row)
        self.random.reopen(row)


def sort_by_worth(worth: npt.NDArray[np.float64]) -> Walk:
    """The rows with the largest worth first; equal ones in their own order."""
    return Walk(np.argsort(-worth, kind="stable"))
