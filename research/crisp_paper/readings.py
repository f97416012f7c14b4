"""Readings of CRISP: what the paper leaves open, chosen in different ways, as methods of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from onepos.methods import CRISP, METHODS
from onepos.methods.base import Method

_LETTER = CRISP.as_published

READINGS: dict[str, tuple[str, Callable[..., Method]]] = {
    "crisp-as-published": ("to the letter: Eq. (2) on training scores, every epoch", _LETTER),
    "letter-held-out": ("to the letter, but Eq. (2) on held-out scores", partial(_LETTER, prior="held-out")),
    "letter-bracket": (
        "to the letter, but our estimator on held-out scores",
        partial(_LETTER, prior="bracket", quantile=0.5),
    ),
    "letter-true": ("to the letter, but true priors", _LETTER),
    "crisp-estimate": ("default training, Eq. (2) on training scores", partial(CRISP, prior="estimate")),
    "crisp-held-out": ("default training, Eq. (2) on held-out scores", partial(CRISP, prior="held-out")),
    "crisp-middle": ("default, but the estimate itself for the lower quartile", partial(CRISP, quantile=0.5)),
    "crisp": ("the default", CRISP),
    "crisp-true": ("default training, true priors", CRISP),
    "crisp-sigmoid": ("default, sigmoid loss without the absolute value", partial(CRISP, risk="sigmoid")),
    "crisp-logistic": ("default, logistic loss (proper)", partial(CRISP, risk="logistic")),
    "crisp-squared": ("default, squared loss (proper)", partial(CRISP, risk="squared")),
}
"""Name in a study → what it is, and how to make it. Those ending in "-true" get the true priors from the study."""


@contextmanager
def readings_as_methods() -> Iterator[None]:
    """Within it METHODS holds the readings, so that a study can name them."""
    added = {name: make for name, (_, make) in READINGS.items() if name not in METHODS}
    METHODS.update(added)
    try:
        yield
    finally:
        for name in added:
            del METHODS[name]
