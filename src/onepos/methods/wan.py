"""WAN: assume every unobserved label is negative, and let all of a row's negatives weigh as much as its positive.

    L = −(1/Bc) Σ_ij [ l_ij·log f_ij + w·(1 − l_ij)·log(1 − f_ij) ],   w = 1/(c − 1)

References:
    Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
"""

from __future__ import annotations

from torch import Tensor

from onepos.methods.base import Batch, Method, TrainView
from onepos.methods.losses import binary_cross_entropy


class WAN(Method):
    """Weak assume negative: the labels not observed weigh together as much as the one that was.

    Deviation: the published code adds ε = 1e-5 inside the logarithms; the form on logits needs none.
    Deviation: with a single label 1/(c − 1) is infinite; the weight is then 1, as in AN.
    Deviation: the published trainer drops the last incomplete batch (`drop_last`), also of validation and test rows, so
    up to B − 1 rows are neither learnt nor scored; here every row counts.

    Deviation: a known negative, which the paper does not have, has the weight 1 of an observed positive.

    Args:
        weight: w, the weight of an unobserved label. None is the published 1/(c − 1); 1 is AN.

    Example:
        >>> from onepos import WAN, SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(48))
        >>> observed = draw_single_positive(scenes.Y, random_state=3)
        >>> model = SinglePositiveClassifier(WAN(weight=0.2), epochs=2, random_state=0)
        >>> model.fit(scenes.X, observed).predict_proba(scenes.X).shape
        (48, 10)

    References:
        Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
    """

    uses_negatives = True

    def __init__(self, weight: float | None = None) -> None:
        super().__init__()
        self.weight = weight

    def setup(self, train: TrainView) -> None:
        """Check the number; there is nothing to remember."""
        if self.weight is not None and not self.weight >= 0:
            raise ValueError(f"weight must not be negative; got {self.weight!r}. Pass None for 1/(c − 1).")

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor:
        """Binary cross-entropy with unobserved labels weighed down."""
        n_labels = batch.observed.shape[1]
        # With a single label there is no other one to share the weight with: 1, as in AN.
        weight = 1 / max(n_labels - 1, 1) if self.weight is None else self.weight
        weights = (1 - batch.unknown) + weight * batch.unknown
        return (weights * binary_cross_entropy(self(features[0]), batch.observed)).mean()
