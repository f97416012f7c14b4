"""How well the probabilities hold, by the answers about randomly drawn items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from onepos.report.calibration import bin_entries, measure
from onepos.server.store import Answer


def calibrate(answers: Iterable[Answer], sample: Sequence[str]) -> dict[str, Any]:
    """Stated probability beside the share of yes, over the entries of finished random items.

    Each entry counts with the probability it had when it was answered. Items drawn for doubt are left out: they were
    chosen by that probability.

    Args:
        answers: All that hold, oldest first.
        sample: The finished items of the random sample.
    """
    chosen = set(sample)
    last = {(a.item, a.label): a for a in answers if a.item in chosen and a.value in ("yes", "no")}
    used = [a for a in last.values() if a.probability is not None]
    probability = np.array([a.probability for a in used], np.float64)
    is_yes = np.array([a.value == "yes" for a in used], bool)
    is_suggested = np.array([bool(a.suggested) for a in used], bool)
    return {
        "items": len({a.item for a in used}),
        "entries": len(used),
        "bins": bin_entries(probability, is_yes),
        "suggested": measure(probability[is_suggested], is_yes[is_suggested]) if is_suggested.any() else None,
    }
