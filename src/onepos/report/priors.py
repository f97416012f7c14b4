"""Class priors as a table, of a demo and of a fit."""

from collections.abc import Mapping, Sequence
from typing import Any

from onepos.report.tables import MISSING, UNKNOWN, Cell, Table, column, decimal, signed


def priors_table(priors: Mapping[str, Any], name: str, title: str, about: str = "") -> Table:
    """One row per label: what was observed and estimated and, where known, true prior, predicted share and threshold.

    Args:
        priors: A column per key: `label`; `n_positive` and `observed_share`; `estimated`, `lower`, `upper` and
            `reliable`; `true`, `predicted_share` and `threshold`. None or NaN is unknown.
        name: Identifier of the table.
        title: Its heading.
        about: Sentences on how to read it.
    """
    labels = priors["label"]
    counts, shares, estimated, lower, upper, true, predicted, thresholds = (
        column(priors, key, len(labels))
        for key in (
            "n_positive",
            "observed_share",
            "estimated",
            "lower",
            "upper",
            "true",
            "predicted_share",
            "threshold",
        )
    )
    texts: dict[str, list[str]] = {
        "Label": [str(label) for label in labels],
        "Observed positives": [decimal(value, 0) for value in counts],
        "Observed share": [decimal(value) for value in shares],
        "Estimated prior": [decimal(value, missing=UNKNOWN) for value in estimated],
        "Interval": [_interval(*ends) for ends in zip(lower, upper, strict=True)],
    }
    if _is_known(true):
        texts["True prior"] = [decimal(value) for value in true]
        texts["Error"] = [
            MISSING if value is None or guess is None else signed(guess - value)
            for guess, value in zip(estimated, true, strict=True)
        ]
    if _is_known(predicted):
        texts["Mean predicted"] = [decimal(value) for value in predicted]
    if _is_known(thresholds):
        texts["Threshold"] = [decimal(value) for value in thresholds]
    texts["Enough positives"] = _reliable(priors, estimated)
    tones = {"no": "worse", UNKNOWN: "unknown"}
    rows = [[Cell(text, tone=tones.get(text, "")) for text in row] for row in zip(*texts.values(), strict=True)]
    return Table(name, title, list(texts), rows, about)


def _is_known(values: Sequence[float | None]) -> bool:
    return any(value is not None for value in values)


def _interval(lower: float | None, upper: float | None) -> str:
    return UNKNOWN if lower is None or upper is None else f"{decimal(lower)} to {decimal(upper)}"


def _reliable(priors: Mapping[str, Any], estimated: Sequence[float | None]) -> list[str]:
    """Whether the estimate of each label rests on enough positives: "yes", "no" or "unknown"."""
    flags = priors.get("reliable")
    if flags is None:
        flags = [True] * len(estimated)
    return [UNKNOWN if value is None else "yes" if flag else "no" for value, flag in zip(estimated, flags, strict=True)]
