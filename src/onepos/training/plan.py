"""How to train, whatever the method."""

from __future__ import annotations

from dataclasses import dataclass

USUAL_EPOCHS = 20


@dataclass(frozen=True)
class Plan:
    """How to train, whatever the method.

    Attributes:
        epochs: Passes over the training rows.
        batch_size: Rows per step; the last batch of an epoch may be smaller.
        lr: Learning rate of Adam.
        weight_decay: L2 weight of Adam, on the weight matrices of the network only. A bias holds how common its label
            is, and decay would pull that towards one half; parameters of a method are not decayed either.
        bias_init: "frequency" starts the head at the log-odds of the observed label frequencies with small
            weights, "zero" at zero with the usual weights.
        select: The metric in METRICS by which the best epoch on the validation rows is kept, or selection.MAJORITY.
        device: "auto", or a torch device such as "cpu", "cuda", "mps".
        precision: "32" or "bf16".
        seed: Every random number of the training follows from it.
        frozen_epochs: Epochs at the start in which the backbone is frozen, the statistics of its batch normalization
            too, and only the method learns.
        backbone_lr: Learning rate of the backbone, as a multiple of `lr`; a tenth is usual for pretrained weights.
        compile: Compile the backbone (`torch.compile`) and let cuDNN try its algorithms. Both cost up to some minutes
            at the start.
    """

    epochs: int = USUAL_EPOCHS
    batch_size: int = 32
    lr: float = 1e-3
    weight_decay: float = 0.0
    bias_init: str = "frequency"
    select: str = "average_precision"
    device: str = "auto"
    precision: str = "32"
    seed: int = 0
    frozen_epochs: int = 0
    backbone_lr: float = 1.0
    compile: bool = False
