"""Large loss: assumed negatives with the largest losses are probably hidden positives; do not learn from them.

The network learns clean labels before it memorises false ones. With u the AN losses of the unobserved entries of a
batch and R the k-th largest of them, entries with u ≥ R are

    LL-R   rejected:                 ℓ = 0
    LL-Ct  corrected for this step:  ℓ = −log f
    LL-Cp  corrected for good:       ℓ = −log f, and observed from now on

and the others keep ℓ of AN; L = (1/Bc) Σ_ij ℓ_ij. In epoch t = 1, 2, …, k = ⌈Bc·(t − 1)·Δ⌉ for LL-R and LL-Ct, and
k = ⌈Bc·Δ⌉ from t = 2 on for LL-Cp.

References:
    Kim et al., Large Loss Matters in Weakly Supervised Multi-Label Classification, CVPR 2022.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onepos.methods.base import Batch, Memory, Method, StackRules, TrainView
from onepos.methods.losses import binary_cross_entropy


class LargeLoss(Method):
    """Large losses of unobserved labels are rejected (LL-R) or corrected (LL-Ct, LL-Cp): they may be missing labels.

    Entries that tie with the k-th largest loss share its fate, so more than k may be touched.

    Deviation: the authors' repository compares the name of the variant by identity, which fails, so its LL-Cp is
    LL-Ct; it sums up t·Δ with floating-point error, which can raise k by one; and where R = 0 it touches observed
    positives too. `as_published` brings these back. Default: LL-Cp writes, k is exact, observed entries are safe.
    Deviation: where LL-Cp did work in the authors' code, it kept only u > R, thus nothing at all where k = 1, while
    the loss flipped u ≥ R. `strict` keeps u > R; the default keeps what the loss flipped (as BoostLU's code does).
    Deviation: the published training stops when the validation mAP falls more than 3 points below the best; here all
    epochs of the plan run and the best one is kept, as for every method.
    Deviation: the authors let the head learn ten times faster than the network; here that is `backbone_lr=0.1`.

    Deviation: a known negative, which the paper does not have, is never rejected or corrected, nor counted among the
    largest.

    Args:
        variant: "reject" (LL-R), "correct" (LL-Ct) or "permanent" (LL-Cp).
        delta_rel: Δ in percent: by how much the share of touched entries grows per epoch (LL-R, LL-Ct), or the
            share itself (LL-Cp). It sets the whole number k, so runs with different values can not be stacked.
        strict: LL-Cp writes entries with u > R only.
        as_published: Do as the authors' repository does today, see above.

    Example:
        >>> from onepos import LargeLoss, SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(48))
        >>> observed = draw_single_positive(scenes.Y, random_state=3)
        >>> model = SinglePositiveClassifier(LargeLoss("correct", delta_rel=1.0), epochs=2, random_state=0)
        >>> model.fit(scenes.X, observed).predict_proba(scenes.X).shape
        (48, 10)

    References:
        Kim et al., Large Loss Matters in Weakly Supervised Multi-Label Classification, CVPR 2022.
    """

    stacking = StackRules(fixed=frozenset({"delta_rel"}))
    uses_negatives = True
    labels: Tensor

    def __init__(
        self, variant: str = "reject", delta_rel: float = 0.2, strict: bool = False, as_published: bool = False
    ) -> None:
        super().__init__()
        self.variant, self.delta_rel = variant, delta_rel
        self.strict, self.as_published = strict, as_published

    def setup(self, train: TrainView) -> None:
        """LL-Cp remembers the labels, observed or corrected."""
        if self.variant not in ("reject", "correct", "permanent"):
            raise ValueError(f"variant must be 'reject', 'correct' or 'permanent'; got {self.variant!r}.")
        if not 0 <= self.delta_rel <= 100:
            raise ValueError(
                f"delta_rel must lie between 0 and 100, in percent; got {self.delta_rel!r}. The paper tries 0.1 to 0.5."
            )
        if self._keeps_labels:
            self.register_buffer("labels", train.observed > 0)

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor | tuple[Tensor, Memory]:
        """AN, but for the k largest losses of unobserved entries."""
        logits = self(features[0])
        labels = self.labels[batch.index].to(logits.dtype) if self._keeps_labels else batch.observed
        assumed = binary_cross_entropy(logits, labels)  # (B, c)
        k = self._n_large(labels.numel())
        if k == 0:
            return assumed.mean()
        unobserved = assumed.detach() * (1 - labels)
        if batch.known_negative is not None:
            unobserved = unobserved * (1 - batch.known_negative)
        threshold = torch.topk(unobserved.flatten(), k).values[-1]  # R
        large = unobserved >= threshold
        if not self.as_published:
            large = large & (labels == 0)
        if batch.known_negative is not None:
            large = large & (batch.known_negative == 0)
        if self.variant == "reject":
            return torch.where(large, 0.0, assumed).mean()
        loss = binary_cross_entropy(logits, torch.where(large, 1 - labels, labels)).mean()
        if not self._keeps_labels:
            return loss
        written = large & (unobserved > threshold) if self.strict else large
        return loss, {"labels": written | (labels > 0)}

    @property
    def _keeps_labels(self) -> bool:
        return self.variant == "permanent" and not self.as_published

    def _n_large(self, n_entries: int) -> int:
        """The paper's k in this epoch; the first one is plain AN."""
        step = self.delta_rel / 100
        if self.as_published:
            clean_rate = 1.0
            for _ in range(self.epoch):
                clean_rate -= step
            return min(math.ceil(n_entries * (1 - clean_rate)), n_entries)
        share = step * (min(self.epoch, 1) if self._keeps_labels else self.epoch)
        # Rounded, so that a product that is a whole number is not pushed over it by its floating-point error.
        return min(math.ceil(round(n_entries * share, 9)), n_entries)
