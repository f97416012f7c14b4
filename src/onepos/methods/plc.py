"""PLC: confident pseudo-labels of a weak view are targets of a strong view; embeddings of a label are drawn together.

Each image comes in a weak and a strong view. With g the logits of the weak view, g′ those of the strong one, l the
observed labels, s = σ(ḡ) + l (a bar: no gradient) and a threshold τ,

    target t = 1 where s ≥ τ, else 0;    sure = {s ≥ τ or s < 1 − τ}
    L_plc = Σ_sure BCE(g′, t) / |sure|                            pseudo-label consistency
    L_lac = −mean_a mean_{p ∈ P(a)} log[ exp(a·p/T) / Σ_{b ≠ a} exp(a·b/T) ]    label-aware contrast

    stage 1:  L = AN(g, l) + λ_plc·L_plc                          τ = 0.6
    stage 2:  L = AN(g, l) + λ_plc·L_plc + λ_lac·L_lac            τ = 0.9

a runs over unit codes of (image, label, view) with t = 1, those of this batch and those remembered from earlier ones;
P(a) are the other codes of the same label. A code is projected from the embedding of the label.

References:
    Xie et al., Label-Aware Global Consistency for Multi-Label Learning with Single Positive Labels, NeurIPS 2022.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onepos.methods.base import Batch, Memory, Method, StackRules, TrainView
from onepos.methods.heads import LabelAttentionHead
from onepos.methods.losses import assume_negative, binary_cross_entropy

# Codes lie in [-1, 1] and are remembered as whole numbers of 16 bits: half of the memory, exact to 2e-5.
_UNIT = 32767


class PLC(Method):
    """Pseudo-label consistency and label-aware contrast between two views (LAGC).

    The head is a transformer with a query per label, see `LabelAttentionHead`. What a batch remembers lies with its
    rows: the codes of up to `kept` labels of an image, and when they were written. The queue is the youngest `queue`
    pairs of codes of all rows, this batch's among them; of these only this batch's get gradients.

    Deviation: the published queue starts again at its front when a batch does not fit, leaves what is behind it for
    later, and fails where a batch has more pairs than it holds. Here it always holds the youngest; an image that
    comes again replaces its older codes, and a batch with more pairs than `queue` uses them all.
    Deviation: of an image at most `kept` labels enter the queue, the observed one and those with the highest scores;
    published, all with t = 1. Codes are remembered in 16 bits.
    Deviation: where no entry is sure, L_plc is 0; published, it is not a number.
    Deviation: both stages run in one training: the second starts from the last weights of the first, not its best,
    and keeps the optimizer.
    Deviation: the published training takes AdamW with a one-cycle schedule, averages the weights (0.9997) and stops
    after 8 epochs without improvement; here the loop is the same for every method: Adam at a constant rate, the best
    epoch of stage 2 is kept.
    Deviation: the published trainer drops the last incomplete batch of training rows (`drop_last`); here every row
    counts.
    Deviation: the published images are not normalized and its batch normalization and first layers are frozen; here
    images are normalized as the network's weights expect, and `frozen_norm=True` of the network freezes the former.

    Deviation: a known negative, which the paper does not have, is a sure negative whatever its score: s = 0.

    Args:
        lam_plc: λ_plc, weight of the consistency.
        lam_lac: λ_lac, weight of the contrast.
        tau_first: τ in stage 1; the authors take 0.5 on CUB.
        tau: τ in stage 2.
        temperature: T.
        queue: Pairs of codes to compare with each other.
        kept: Labels of an image that may enter the queue.
        z_dim: Width of a code.
        warmup: Epochs of stage 1; None is half of the training, as the authors give both stages the same number. With
            as many as the training has, stage 2 never comes.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> from onepos import PLC, SinglePositiveImageClassifier
        >>> pixels = np.random.default_rng(0).integers(0, 255, (12, 16, 16, 3), dtype=np.uint8)
        >>> network = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.ReLU())
        >>> model = SinglePositiveImageClassifier(PLC(queue=12), network=network, fine_tune=True, epochs=2)
        >>> model.fit(pixels, ["cat", "dog", "owl"] * 4).predict_proba(pixels).shape
        (12, 3)

    References:
        Xie et al., Label-Aware Global Consistency for Multi-Label Learning with Single Positive Labels, NeurIPS 2022.
    """

    views = 2
    uses_negatives = True
    maps = True
    requires = frozenset({"maps", "views"})
    stacking = StackRules(possible=False)  # a stack holds linear layers only
    head: LabelAttentionHead
    codes: Tensor  # weak and strong, (n, kept, 2, z_dim)
    code_labels: Tensor  # the label of each, -1 for none, (n, kept)
    written: Tensor  # the step in which each row was written, -1 for never, (n,)
    first_stage: int = 0  # epochs of stage 1, known from `setup` on

    def __init__(
        self,
        lam_plc: float = 1.0,
        lam_lac: float = 1.0,
        tau_first: float = 0.6,
        tau: float = 0.9,
        temperature: float = 0.5,
        queue: int = 512,
        kept: int = 4,
        z_dim: int = 128,
        warmup: int | None = None,
    ) -> None:
        super().__init__()
        self.lam_plc, self.lam_lac, self.tau_first, self.tau = lam_plc, lam_lac, tau_first, tau
        self.temperature, self.queue, self.kept, self.z_dim = temperature, queue, kept, z_dim
        self.warmup = warmup

    @property
    def warming_up(self) -> bool:
        """Whether this epoch is of stage 1."""
        return self.epoch < self.first_stage

    def make_head(self, n_features: int, n_labels: int) -> LabelAttentionHead:
        """A query per label over the maps."""
        return LabelAttentionHead(n_features, n_labels)

    def setup(self, train: TrainView) -> None:
        """Make the projector, and an empty memory."""
        self._check()
        self.first_stage = train.n_epochs // 2 if self.warmup is None else self.warmup
        width, n, device = train.n_features, train.n_samples, train.observed.device
        kept = min(self.kept, train.n_labels)
        self.projector = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, self.z_dim))
        empty = torch.zeros(n, kept, 2, self.z_dim, dtype=torch.int16, device=device)
        self.register_buffer("codes", empty)
        self.register_buffer("code_labels", torch.full((n, kept), -1, device=device))
        self.register_buffer("written", torch.full((n,), -1, device=device))

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor | tuple[Tensor, Memory]:
        """AN on the weak view, consistency on the strong one, and in stage 2 the contrast between labels."""
        weak, strong = (self.head.embed(maps) for maps in features)  # (B, c, C)
        logits, observed = self.head.classify(weak), batch.observed
        sureness = torch.sigmoid(logits.detach()) + observed  # s
        if batch.known_negative is not None:
            sureness = sureness * (1 - batch.known_negative)
        tau = self.tau_first if self.warming_up else self.tau
        loss = assume_negative(logits, observed) + self.lam_plc * consistency(self.head.classify(strong), sureness, tau)
        if self.warming_up:
            return loss
        codes, labels = self._make_codes(torch.stack([weak, strong], 2), sureness)
        old_codes, old_labels = self._recall(batch.index, (labels >= 0).sum())
        all_codes, all_labels = torch.cat([codes.flatten(0, 1), old_codes]), torch.cat([labels.flatten(), old_labels])
        step = (self.written.max() + 1).expand(len(labels))
        memory = {"codes": (codes * _UNIT).round().to(torch.int16), "code_labels": labels, "written": step}
        return loss + self.lam_lac * contrast(all_codes, all_labels, self.temperature), memory

    def _make_codes(self, embeddings: Tensor, sureness: Tensor) -> tuple[Tensor, Tensor]:
        """Codes (B, kept, 2, z_dim) of the most certain labels of each image, and which (B, kept); -1 below τ."""
        s, label = sureness.topk(self.codes.shape[1], dim=1)  # the observed label first: its s is above 1
        chosen = torch.take_along_dim(embeddings, label[:, :, None, None], 1)
        codes = F.normalize(self.projector(chosen).to(embeddings.dtype), dim=-1)
        return codes, torch.where(s >= self.tau, label, -1)

    def _recall(self, index: Tensor, n_new: Tensor) -> tuple[Tensor, Tensor]:
        """Pairs of codes of other rows, the youngest first, and their labels: -1 where the queue is full."""
        labels = self.code_labels.flatten()
        place = torch.arange(len(labels), device=labels.device)
        # By step, and within a step by place, so that which ones fit does not hang on how a device breaks ties.
        rank = (self.written + 1).repeat_interleave(self.code_labels.shape[1]) * len(labels) - place
        theirs = (self.code_labels >= 0).index_fill(0, index, False).flatten()
        youngest, place = torch.where(theirs, rank, 0).topk(min(self.queue, len(labels)))
        fits = (youngest > 0) & (torch.arange(len(place), device=place.device) < self.queue - n_new)
        codes = self.codes.flatten(0, 1)[place].to(self.head.weight.dtype) / _UNIT
        return codes, torch.where(fits, labels[place], -1)

    def _check(self) -> None:
        for name in ("tau_first", "tau"):
            if not 0.5 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"{name} must lie between 0.5 and 1; got {getattr(self, name)!r}. Below, an entry would be surely "
                    "positive and surely negative at once."
                )
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0; got {self.temperature!r}. The authors take 0.5.")
        for name, least in {"lam_plc": 0, "lam_lac": 0, "queue": 1, "kept": 1, "z_dim": 1, "warmup": 0}.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{name} must be at least {least}; got {value!r}.")


def consistency(logits: Tensor, sureness: Tensor, tau: float) -> Tensor:
    """L_plc: cross-entropy of the strong view's logits with the sure pseudo-labels, mean over these; 0 without any."""
    positive = sureness >= tau
    sure = (positive | (sureness < 1 - tau)).to(logits.dtype)
    entropy = binary_cross_entropy(logits, positive.to(logits.dtype))
    return (sure * entropy).sum() / sure.sum().clamp(min=1)


def contrast(codes: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """L_lac of unit codes (N, 2, z) of N pairs and their labels (N,), of which those below 0 do not count.

    A code's companions are its other view and both views of all pairs of its label.
    """
    codes, labels = codes.flatten(0, 1), labels.repeat_interleave(2)
    counts = labels >= 0
    likeness = (codes @ codes.T).to(codes.dtype) / temperature
    other = counts & ~torch.eye(len(codes), dtype=torch.bool, device=codes.device)
    # A finite number instead of −∞: a batch without any pair must not turn into NaN.
    log_share = likeness - likeness.masked_fill(~other, -1e9).logsumexp(1, keepdim=True)
    companion = other & (labels.unsqueeze(1) == labels)
    of_code = torch.where(companion, log_share, 0.0).sum(1) / companion.sum(1).clamp(min=1)
    return -torch.where(counts, of_code, 0.0).sum() / counts.sum().clamp(min=1)
