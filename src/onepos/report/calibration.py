"""Stated probabilities beside the share that was right, in bins, with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

_EDGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0)


def bin_entries(probability: Any, is_yes: Any) -> list[dict[str, Any]]:
    """`measure` of the entries of each bin of probabilities that holds some, from low to high."""
    stated, yes = np.asarray(probability, np.float64), np.asarray(is_yes, bool)
    place = np.clip(np.digitize(stated, _EDGES) - 1, 0, len(_EDGES) - 2)
    return [measure(stated[place == k], yes[place == k]) for k in range(len(_EDGES) - 1) if (place == k).any()]


def measure(probability: Any, is_yes: Any) -> dict[str, Any]:
    """Number of entries and of yes, mean probability, share of yes and the interval of that share."""
    n, k = len(is_yes), int(is_yes.sum())
    low, high = interval(k, n)
    return {"n": n, "yes": k, "stated": float(probability.mean()), "share": k / n, "low": low, "high": high}


def interval(k: int, n: int) -> tuple[float, float]:
    """Wilson's 90 % interval of a share of k in n."""
    z = 1.6449
    centre = (k + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * np.sqrt(k * (n - k) / n + z * z / 4)
    return max(0.0, float(centre - half)), min(1.0, float(centre + half))
