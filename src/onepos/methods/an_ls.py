"""AN-LS: assume every unobserved label is negative, but not fully: smooth the labels towards each other.

    t = l·(1 − s) + (1 − l)·s        L = −(1/Bc) Σ_ij [ t_ij·log f_ij + (1 − t_ij)·log(1 − f_ij) ]

References:
    Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
"""

from __future__ import annotations

from torch import Tensor

from onepos.methods.base import Batch, Method, TrainView
from onepos.methods.losses import binary_cross_entropy


class ANLS(Method):
    """Assume negative with label smoothing.

    Deviation: the published code adds ε = 1e-5 inside the logarithms; the form on logits needs none.
    Deviation: the published code, followed here, uses s = 0.1 as it is; the paper (recalled, not read again) halves it,
    which is `smoothing=0.05`.
    Deviation: the published trainer drops the last incomplete batch (`drop_last`), also of validation and test rows, so
    up to B − 1 rows are neither learnt nor scored; here every row counts.

    Deviation: a known negative, which the paper does not have, has the target 0: nothing is smoothed where nothing is
    in doubt.

    Args:
        smoothing: s, the probability given to what was not observed; 0 is AN.

    Example:
        >>> from onepos import ANLS, SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(48))
        >>> observed = draw_single_positive(scenes.Y, random_state=3)
        >>> model = SinglePositiveClassifier(ANLS(smoothing=0.1), epochs=2, random_state=0)
        >>> model.fit(scenes.X, observed).predict_proba(scenes.X).shape
        (48, 10)

    References:
        Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
    """

    uses_negatives = True

    def __init__(self, smoothing: float = 0.1) -> None:
        super().__init__()
        self.smoothing = smoothing

    def setup(self, train: TrainView) -> None:
        """Check the number; there is nothing to remember."""
        if not 0 <= self.smoothing < 0.5:
            raise ValueError(
                f"smoothing must be at least 0 and below 0.5, where positives and negatives become one; "
                f"got {self.smoothing!r}. The published value is 0.1."
            )

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor:
        """Binary cross-entropy against the smoothed labels."""
        target = self.smoothing + (1 - 2 * self.smoothing) * batch.observed
        if batch.known_negative is not None:
            target = target * (1 - batch.known_negative)
        return binary_cross_entropy(self(features[0]), target).mean()
