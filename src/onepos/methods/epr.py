"""EPR: learn from the observed positives alone, and hold the mean number of labels per row to a known number k.

    L = −(1/Bc) Σ_ij l_ij·log f_ij  +  [ ((1/B) Σ_ij f_ij − k) / c ]²

References:
    Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from onepos.methods.base import Batch, Method, TrainView
from onepos.methods.losses import check_cardinality, deny, expected_count_penalty


class EPR(Method):
    """Expected positive regularisation.

    Deviation: the published code, followed here, divides the first term by B·c and not the second, whose relative
    weight therefore grows with c; in the paper (recalled, not read again) the first is divided by B only.
    Deviation: the published code adds ε = 1e-5 inside the logarithm; the form on logits needs none.
    Deviation: the published trainer drops the last incomplete batch (`drop_last`), also of validation and test rows, so
    up to B − 1 rows are neither learnt nor scored; here every row counts.

    Deviation: a known negative, which the paper does not have, adds −log(1 − f) to the first term.

    Args:
        cardinality: k, the mean number of labels per row. It can not be derived from single positives: privileged.

    Example:
        >>> from onepos import EPR, SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(48))
        >>> observed = draw_single_positive(scenes.Y, random_state=3)
        >>> model = SinglePositiveClassifier(EPR(cardinality=2.0), epochs=2, random_state=0)
        >>> model.fit(scenes.X, observed).predict_proba(scenes.X).shape
        (48, 10)

    References:
        Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
    """

    privileged = frozenset({"cardinality"})

    uses_negatives = True

    def __init__(self, cardinality: float | None = None) -> None:
        super().__init__()
        self.cardinality = cardinality

    def setup(self, train: TrainView) -> None:
        """Check the number; there is nothing to remember."""
        check_cardinality("EPR", self.cardinality, train.n_labels)

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor:
        """The positives' cross-entropy and the penalty on the expected count."""
        logits = self(features[0])
        certain = deny(logits, batch.known_negative) - batch.observed * F.logsigmoid(logits)
        return certain.mean() + expected_count_penalty(logits.sigmoid(), self.cardinality)
