"""AN: assume every unobserved label is negative, then train as if all labels were known.

    L = −(1/Bc) Σ_ij [ l_ij·log f_ij + (1 − l_ij)·log(1 − f_ij) ]

References:
    Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
"""

from __future__ import annotations

from torch import Tensor

from onepos.methods.base import Batch, Method
from onepos.methods.losses import assume_negative


class AN(Method):
    """Assume negative: the floor every other method must beat; with full labels, plain supervision.

    A known negative is what it assumes of every unobserved label anyway.

    Deviation: the published code adds ε = 1e-5 inside the logarithms; the form on logits needs none.
    Deviation: the published trainer drops the last incomplete batch (`drop_last`), also of validation and test rows, so
    up to B − 1 rows are neither learnt nor scored; here every row counts.

    Example:
        >>> from onepos import AN, SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(48))
        >>> observed = draw_single_positive(scenes.Y, random_state=3)
        >>> model = SinglePositiveClassifier(AN(), epochs=2, random_state=0)
        >>> model.fit(scenes.X, observed).predict_proba(scenes.X).shape
        (48, 10)

    References:
        Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
    """

    uses_negatives = True

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor:
        """Binary cross-entropy against the observed labels."""
        return assume_negative(self(features[0]), batch.observed)
