"""What a writer takes: of each item and label whether it is known to be present or absent, or was added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from onepos.labels import Labels

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Entries:
    """Known and added labels of n items.

    Attributes:
        items: The ids of the items as text, (n,).
        classes: The labels as text, (c,).
        yes: Entries known to be present, (n, c).
        no: Entries known to be absent, (n, c).
        added: Unknown entries that are taken for present, (n, c).
        probability: Probability that a label is present, (n, c); None where none was computed.
    """

    items: list[str]
    classes: list[str]
    yes: Flags
    no: Flags
    added: Flags
    probability: npt.NDArray[Any] | None = None

    @classmethod
    def of(
        cls, labels: Labels, items: Any = None, added: Flags | None = None, probability: npt.NDArray[Any] | None = None
    ) -> Entries:
        """The entries of labels; the items are by default those of the labels, or row numbers."""
        given = labels.items if items is None else items
        ids = range(len(labels)) if given is None else np.asarray(given).tolist()
        yes, no = labels.observed.astype(bool), np.asarray(labels.negative.toarray(), bool)
        empty = np.zeros(yes.shape, bool)
        names = [str(name) for name in labels.classes.tolist()]
        return cls([str(item) for item in ids], names, yes, no, empty if added is None else added, probability)

    @cached_property
    def unknown(self) -> Flags:
        """Entries of which nothing is known, (n, c); those that were added are among them."""
        return ~(self.yes | self.no)

    def expected_errors(self) -> npt.NDArray[np.float64]:
        """Of each unknown entry the chance that it is wrong as it stands, (n, c); 0 of known ones."""
        if self.probability is None:
            return np.zeros(self.yes.shape)
        wrong = np.where(self.added, 1 - self.probability, self.probability)
        return np.asarray(np.where(self.unknown, wrong, 0), np.float64)


def read_columns(columns: Any, n_items: int, taken: Sequence[str]) -> dict[str, list[Any]]:
    """Columns that are written beside the labels, each a list with a cell per item."""
    given = {} if columns is None else {str(name): list(columns[name]) for name in columns}
    for name, cells in given.items():
        if len(cells) != n_items:
            raise ValueError(
                f"columns must hold a cell per item, {n_items} in all; {name!r} holds {len(cells)}. Pass those of the "
                "same rows."
            )
        if name in taken:
            raise ValueError(f"columns must not be called {' or '.join(map(repr, taken))}; one is. Rename it.")
    return given
