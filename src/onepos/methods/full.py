"""Full labels: what could be learnt if nothing were hidden. The ceiling of every table, never a method to use.

    L = −(1/Bc) Σ_ij [ y_ij·log f_ij + (1 − y_ij)·log(1 − f_ij) ]

References:
    Ordinary binary relevance with cross-entropy.
"""

from __future__ import annotations

from onepos.methods.an import AN


class Full(AN):
    """Supervision with all labels, the oracle of a benchmark.

    The loss is that of AN; what makes it the oracle is that it is given complete labels. It therefore asks for
    "full labels", which `fit` never offers: only a benchmark, which holds the true labels, can run it.

    References:
        Ordinary binary relevance with cross-entropy.
    """

    requires = frozenset({"full labels"})
    privileged = frozenset({"full labels"})
