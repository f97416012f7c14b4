"""EM-APL: keep unknown labels uncertain, then give the least likely ones a soft negative label.

EM maximises the entropy H of unobserved labels. After a warm-up, each epoch ends by giving the lowest-scored of them
their score t as a soft negative label, once and for all; L = (1/Bc) Σ_ij ℓ_ij with

    ℓ = −log f                                   observed
    ℓ = −α·H(f)                                  unannotated,  H(f) = −f·log f − (1 − f)·log(1 − f)
    ℓ = −β·[ t·log f + (1 − t)·log(1 − f) ]      pseudo-labelled

References:
    Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels, ECCV 2022.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from onepos.methods.base import Batch, Memory, Method, TrainView
from onepos.methods.losses import lowest_per_label

_EPSILON = 1e-5  # inside the published logarithms


class EMAPL(Method):
    """Entropy maximisation with asymmetric pseudo-labelling: only negative labels are added.

    After each of the epochs max(1, warmup), …, T − 1 of T, the ⌊proportion·U_j/(T − warmup)⌋ unannotated rows with the
    lowest scores of label j get their score as a soft negative label, ties in row order; U_j is the number of rows
    where label j is not observed. With warmup=0 there are T − 1 rounds, which label the share proportion·(T − 1)/T in
    all.

    Deviation: in the published code a pseudo-label of exactly zero counts as unannotated again, no pseudo-label is
    ever given where one batch holds all rows, and logarithms carry ε = 1e-5; `as_published` brings all three back.
    Deviation: the published training stops at the first epoch that does not improve the validation mAP; here all epochs
    of the plan run and the best one is kept, as for every method.
    Deviation: the published code adds a round after the last epoch, which changes nothing; it is left out.
    Deviation: the published quota is ⌊·⌋ of a product with floating-point error, which can lose one; here it is exact.
    Deviation: the published code scores augmented images for the pseudo-labels; here they are not augmented.
    Deviation: the CRISP group's tabular copy divides by epoch − warmup, which is 0 in the first round; the original's
    T − warmup is used.

    Deviation: a known negative, which the paper does not have, costs −log(1 − f) and gets no pseudo-label.

    Args:
        alpha: α, weight of the entropy.
        beta: β, weight of the pseudo-labels.
        warmup: The first pseudo-labels are given after this many epochs.
        proportion: Share of the unannotated rows of a label that T − warmup rounds label in all.
        as_published: Do as the published code does, see above.

    Example:
        >>> from onepos import EMAPL, SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(48))
        >>> observed = draw_single_positive(scenes.Y, random_state=3)
        >>> model = SinglePositiveClassifier(EMAPL(warmup=1), epochs=2, random_state=0)
        >>> model.fit(scenes.X, observed).predict_proba(scenes.X).shape
        (48, 10)

    References:
        Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive Labels, ECCV 2022.
    """

    uses_negatives = True
    pseudo: Tensor
    batch_rows: Tensor

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 0.2,
        warmup: int = 3,
        proportion: float = 0.9,
        as_published: bool = False,
    ) -> None:
        super().__init__()
        self.alpha, self.beta = alpha, beta
        self.warmup, self.proportion = warmup, proportion
        self.as_published = as_published

    def setup(self, train: TrainView) -> None:
        """No pseudo-label yet: NaN."""
        if not 0 <= self.warmup < train.n_epochs:
            raise ValueError(
                f"warmup must be at least 0 and less than the {train.n_epochs} epochs of the training, since "
                f"pseudo-labels come after it; got {self.warmup!r}. Lower warmup or train longer."
            )
        if not (self.alpha >= 0 and self.beta >= 0):
            raise ValueError(f"alpha and beta must not be negative; got {self.alpha!r} and {self.beta!r}.")
        if not 0 <= self.proportion <= 1:
            raise ValueError(f"proportion must lie between 0 and 1; got {self.proportion!r}. The paper takes 0.9.")
        self.register_buffer("pseudo", torch.full(train.observed.shape, torch.nan, device=train.observed.device))
        if self.as_published:  # how many rows stood in the batch of each row: whether one batch held them all
            self.register_buffer("batch_rows", torch.zeros(train.n_samples, dtype=torch.int64))

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor | tuple[Tensor, Memory]:
        """EM where there is no pseudo-label, soft cross-entropy where there is one."""
        logits = self(features[0])
        pseudo = self.pseudo[batch.index].to(logits.dtype)  # (B, c)
        scores = torch.sigmoid(logits)
        if self.as_published:
            if_present, if_absent = -torch.log(scores + _EPSILON), -torch.log(1 - scores + _EPSILON)
        else:
            if_present, if_absent = -F.logsigmoid(logits), -F.logsigmoid(-logits)
        entropy = scores * if_present + (1 - scores) * if_absent
        target = pseudo.nan_to_num(0.0)  # a NaN would reach the gradient even where it is not chosen
        soft = target * if_present + (1 - target) * if_absent
        unobserved = torch.where(pseudo.isnan(), -self.alpha * entropy, self.beta * soft)
        if batch.known_negative is not None:
            unobserved = torch.where(batch.known_negative > 0, if_absent, unobserved)
        loss = torch.where(batch.observed > 0, if_present, unobserved).mean()
        if self.as_published:
            return loss, {"batch_rows": torch.full_like(batch.index, len(batch.index))}
        return loss

    def end_epoch(self, train: TrainView) -> None:
        """Give the lowest-scored unannotated rows of each label their score as pseudo-label."""
        in_one_batch = self.as_published and bool((self.batch_rows == train.n_samples).all())
        if not self.warmup <= self.epoch + 1 < train.n_epochs or in_one_batch:
            return
        hidden = train.hidden
        share = self.proportion / (train.n_epochs - self.warmup)
        # Rounded, so that a product that is a whole number does not lose one to its floating-point error.
        quota = [math.floor(round(share * u, 9)) for u in hidden.sum(0).tolist()]
        scores = train.scores().to(self.pseudo.dtype)
        chosen = lowest_per_label(scores, hidden & self.pseudo.isnan(), torch.tensor(quota, device=scores.device))
        if self.as_published:
            chosen = chosen & (scores > 0)
        self.pseudo = torch.where(chosen, scores, self.pseudo)
