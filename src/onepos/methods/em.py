"""EM: use no target for unobserved labels, and keep their scores as uncertain as the positives allow.

    L = (1/Bc) Σ_ij [ −l_ij·log f_ij − α·(1 − l_ij)·H(f_ij) ],   H(f) = −f·log f − (1 − f)·log(1 − f)

References:
    Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels, ECCV 2022.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from onepos.methods.base import Batch, Method, TrainView
from onepos.methods.losses import deny


class EM(Method):
    """Entropy maximisation. Its scores gather around one half: decide at 0.75, as its authors do, not at 0.5.

    Deviation: the published code adds ε = 1e-5 inside the logarithms; the form on logits needs none.
    Deviation: the published training stops at the first epoch that does not improve the validation mAP; here all epochs
    of the plan run and the best one is kept, as for every method.

    Deviation: a known negative, which the paper does not have, costs −log(1 − f), as an observed positive costs −log f.

    Args:
        alpha: α, weight of the entropy of unobserved labels. The authors use 0.2 on VOC, 0.1 on COCO and NUS,
            0.01 on CUB.

    Example:
        >>> from onepos import EM, SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(48))
        >>> observed = draw_single_positive(scenes.Y, random_state=3)
        >>> model = SinglePositiveClassifier(EM(alpha=0.1), epochs=2, random_state=0)
        >>> model.fit(scenes.X, observed).predict_proba(scenes.X).shape
        (48, 10)

    References:
        Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels, ECCV 2022.
    """

    uses_negatives = True

    def __init__(self, alpha: float = 0.1) -> None:
        super().__init__()
        self.alpha = alpha

    def setup(self, train: TrainView) -> None:
        """Check the number; there is nothing to remember."""
        if not self.alpha >= 0:
            raise ValueError(f"alpha must not be negative, that would minimise entropy; got {self.alpha!r}.")

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor:
        """The positives' cross-entropy, less the entropy of the rest."""
        observed = batch.observed
        logits: Tensor = self(features[0])
        positive = -F.logsigmoid(logits)
        entropy = -logits.sigmoid() * F.logsigmoid(logits) - (-logits).sigmoid() * F.logsigmoid(-logits)
        certain = observed * positive + deny(logits, batch.known_negative)
        return (certain - self.alpha * batch.unknown * entropy).mean()
