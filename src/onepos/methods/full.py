"""Full labels: the upper reference of every table; not a method for data with hidden labels.

    L = −(1/Bc) Σ_ij [ y_ij·log f_ij + (1 − y_ij)·log(1 − f_ij) ]

References:
    Ordinary binary relevance with cross-entropy.
"""

from __future__ import annotations

from onepos.methods.an import AN


class Full(AN):
    """Supervision with all labels, the oracle of a benchmark.

    The loss is that of AN on complete labels. It therefore requires "full labels", which `fit` does not have: only a
    benchmark, which holds the true labels, can run it.

    References:
        Ordinary binary relevance with cross-entropy.
    """

    requires = frozenset({"full labels"})
    privileged = frozenset({"full labels"})
