"""How well the probabilities hold, by the answers about randomly drawn items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from onepos.server.store import Answer

_EDGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0)


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
    place = np.clip(np.digitize(probability, _EDGES) - 1, 0, len(_EDGES) - 2)
    bins = [_measure(probability[place == k], is_yes[place == k]) for k in range(len(_EDGES) - 1) if (place == k).any()]
    return {
        "items": len({a.item for a in used}),
        "entries": len(used),
        "bins": bins,
        "suggested": _measure(probability[is_suggested], is_yes[is_suggested]) if is_suggested.any() else None,
    }


def _measure(probability: Any, is_yes: Any) -> dict[str, Any]:
    n, k = len(is_yes), int(is_yes.sum())
    low, high = interval(k, n)
    return {"n": n, "yes": k, "stated": float(probability.mean()), "share": k / n, "low": low, "high": high}


def interval(k: int, n: int) -> tuple[float, float]:
    """Wilson's 90 % interval of a share of k in n."""
    z = 1.6449
    centre = (k + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * np.sqrt(k * (n - k) / n + z * z / 4)
    return max(0.0, float(centre - half)), min(1.0, float(centre + half))
