"""BoostLU: make the few places where a label is seen count for more, and reject or correct large losses on top.

A network trained with false negatives keeps the shape of its class activation maps M, but their high values shrink.
With M_j the map of label j, linear in the channels of the features at each place, and a gain α > 1,

    logit_j = mean over the places of BoostLU(M_j),    BoostLU(x) = max(x, α·x)

in training and in prediction alike; the loss is that of LL-R, LL-Ct or LL-Cp.

References:
    Kim et al., Bridging the Gap Between Model Explanations in Partially Annotated Multi-Label Classification,
    CVPR 2023.
"""

from __future__ import annotations

from onepos.methods.base import StackRules, TrainView
from onepos.methods.heads import CAMHead
from onepos.methods.large_loss import LargeLoss


class BoostLU(LargeLoss):
    """BoostLU on class activation maps, with LL-R, LL-Ct or LL-Cp.

    Deviation: as in `LargeLoss`, k is exact where the published code sums it up with floating-point error, and
    observed positives are never touched, as they are in the published code where R = 0.
    Deviation: the authors let the 1 × 1 convolution learn ten times faster than the network; here that is
    `backbone_lr=0.1`.

    Args:
        variant: "reject" (LL-R), "correct" (LL-Ct) or "permanent" (LL-Cp).
        delta_rel: Δ in percent, see `LargeLoss`; the authors take 0.5, 0.2 and 0.1 for the three on all data sets.
        alpha: α, by which values above zero are multiplied; 1 leaves them as they are.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> from onepos import BoostLU, SinglePositiveImageClassifier
        >>> pixels = np.random.default_rng(0).integers(0, 255, (12, 16, 16, 3), dtype=np.uint8)
        >>> network = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.ReLU())
        >>> model = SinglePositiveImageClassifier(BoostLU(alpha=5.0), network=network, fine_tune=True, epochs=2)
        >>> model.fit(pixels, ["cat", "dog", "owl"] * 4).predict_proba(pixels).shape
        (12, 3)

    References:
        Kim et al., Bridging the Gap Between Model Explanations in Partially Annotated Multi-Label Classification,
        CVPR 2023.
    """

    maps = True
    requires = frozenset({"maps"})
    stacking = StackRules(possible=False)  # a stack holds linear layers only
    head: CAMHead

    def __init__(self, variant: str = "reject", delta_rel: float = 0.5, alpha: float = 5.0) -> None:
        super().__init__(variant, delta_rel)
        self.alpha = alpha

    def make_head(self, n_features: int, n_labels: int) -> CAMHead:
        """Class activation maps, boosted."""
        return CAMHead(n_features, n_labels, gain=self.alpha)

    def setup(self, train: TrainView) -> None:
        """As large loss does."""
        super().setup(train)
        if not self.alpha >= 1:  # max(x, α·x) would make less of what is above zero, not more
            raise ValueError(f"alpha must be at least 1; got {self.alpha!r}. The authors take 5.")
