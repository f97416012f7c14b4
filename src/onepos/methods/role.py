"""ROLE: estimate the missing labels as free numbers, one per row and label, while the network learns from them.

With ŷ = sigmoid(θ), CE(t, p) = −t·log p − (1 − t)·log(1 − p), and t̄ for a t that gets no gradient,

    L = (1/2Bc) Σ_ij [ −l·(log f + log ŷ) + CE(ŷ̄, f) + CE(f̄, ŷ) ]  +  ½·[ R(f) + R(ŷ) ]

where R is EPR's penalty [((1/B) Σ_ij f_ij − k)/c]².

References:
    Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onepos.methods.base import Batch, Method, TrainView
from onepos.methods.losses import binary_cross_entropy, check_cardinality, deny, expected_count_penalty


class ROLE(Method):
    """Regularised online label estimation.

    Deviation: the published code adds ε = 1e-5 inside the logarithms; the form on logits needs none.
    Deviation: the paper's variant that first trains a linear layer on frozen features (LinearInit) is not offered.
    Deviation: the published trainer drops the last incomplete batch (`drop_last`), also of validation and test rows, so
    up to B − 1 rows are neither learnt nor scored; here every row counts.

    Deviation: a known negative, which the paper does not have, starts at ŷ = 0.005 and adds −log(1 − f) − log(1 − ŷ).

    Args:
        cardinality: k, the mean number of labels per row. It can not be derived from single positives: privileged.
        cross: "all" holds the network to the estimated labels everywhere, as published; "unobserved" only
            where no positive was observed, as the CRISP group's tabular code has it.

    Example:
        >>> from onepos import ROLE, SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(48))
        >>> observed = draw_single_positive(scenes.Y, random_state=3)
        >>> model = SinglePositiveClassifier(ROLE(cardinality=2.0), epochs=2, random_state=0)
        >>> model.fit(scenes.X, observed).predict_proba(scenes.X).shape
        (48, 10)

    References:
        Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021.
    """

    privileged = frozenset({"cardinality"})
    uses_negatives = True
    label_logits: Tensor  # θ, (n, c); a parameter made in setup

    def __init__(self, cardinality: float | None = None, cross: str = "all") -> None:
        super().__init__()
        self.cardinality, self.cross = cardinality, cross

    def setup(self, train: TrainView) -> None:
        """Start ŷ at 0.995 where observed and at random in [0.4, 0.6] elsewhere."""
        check_cardinality("ROLE", self.cardinality, train.n_labels)
        if self.cross not in ("all", "unobserved"):
            raise ValueError(f"cross must be 'all' or 'unobserved'; got {self.cross!r}.")
        sure, bound = torch.logit(torch.tensor([0.995, 0.6], dtype=torch.float64)).tolist()
        # Drawn on the CPU like the head's weights, so that one seed is one start on every device.
        unsure = torch.empty(train.observed.shape).uniform_(-bound, bound).to(train.observed.device)
        start = torch.where(train.observed == 1, sure, unsure)
        if train.known_negative is not None:
            start = torch.where(train.known_negative == 1, -sure, start)
        self.label_logits = nn.Parameter(start)

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor:
        """Network and label estimate, each held to the observed positives, to the other, and to k."""
        logits, label_logits, observed = self(features[0]), self.label_logits[batch.index], batch.observed
        scores, labels = logits.sigmoid(), label_logits.sigmoid()
        certain = -observed * (F.logsigmoid(logits) + F.logsigmoid(label_logits))
        certain = certain + deny(logits, batch.known_negative) + deny(label_logits, batch.known_negative)
        to_labels = binary_cross_entropy(logits, labels.detach())
        to_scores = binary_cross_entropy(label_logits, scores.detach())
        if self.cross == "unobserved":
            to_labels = batch.unknown * to_labels
        penalty = expected_count_penalty(scores, self.cardinality) + expected_count_penalty(labels, self.cardinality)
        return ((certain + to_labels + to_scores).mean() + penalty) / 2

    def lr_factor(self, name: str) -> float:
        """Ten times the plan's for the label estimate, as published."""
        return 10.0 if name == "label_logits" else 1.0
