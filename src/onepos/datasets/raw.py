"""Rows of a table as they are: text, categories, dates and gaps, beside checked labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onepos.datasets.dataset import LabelledRows, Rows
from onepos.validation import Indicator

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd


@dataclass(frozen=True, eq=False)
class RawDataset(LabelledRows):
    """A table whose features are not numbers yet; `SinglePositiveClassifier` takes `frame` as it is.

    Attributes:
        name: Its name.
        frame: The cells of the features.
        Y: Labels, (n, c) of 0 and 1.
        label_names: Their names.
        splits, source, observed, known_negative, groups, at_random: As in `Dataset`.
    """

    name: str
    frame: pd.DataFrame
    Y: Indicator
    label_names: tuple[str, ...]
    splits: Mapping[str, Rows] | None = None
    source: str = ""
    observed: Indicator | None = None
    known_negative: Indicator | None = None
    groups: Rows | None = None
    at_random: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        """Check and freeze the labels."""
        self._check_labels()
        if len(self.frame) != self.n_samples:
            raise ValueError(
                f"a table and its labels must have the same number of rows; they have {len(self.frame)} and "
                f"{self.n_samples}. Check that both are of the same items."
            )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.frame.columns)

    def _take_inputs(self, rows: Rows) -> dict[str, Any]:
        return {"frame": self.frame.iloc[rows].reset_index(drop=True)}
