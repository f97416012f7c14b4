"""GR Loss: give each unobserved label a soft pseudo-label from its own score, weighted by how reliable it is.

With f̄ for a score that gets no gradient, an observed positive costs −log f and any other entry

    V·[ K·(1 − f^q₂)/q₂ + (1 − K)·(1 − (1 − f)^q₃)/q₃ ],   K = sigmoid(w·f̄ + b),   V = exp(−(f̄ − μ)²/2σ²)

mean over all B·c entries. In epoch e = 1…T of T, w and b have gone (e−1)/T, μ and σ e/T of their way.

References:
    Chen et al., Boosting Single Positive Multi-label Classification with Generalized Robust Loss, IJCAI 2024.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from onepos.methods.base import Batch, Method, TrainView


class GR(Method):
    """Generalised robust loss.

    Deviation: the published code adds 1e-7 inside the logarithm; the form on logits needs none.
    Deviation: the published trainer can freeze the network for the first n epochs (`linear_init`, 0 by default) and
    shifts all four schedules by these; here the network is never frozen and the schedules start in the first epoch.
    Deviation: the published training stops when the validation mAP falls more than 2 points below the best; here all
    epochs of the plan run and the best one is kept, as for every method.
    Deviation: the authors let the head learn ten times faster than the network; here that is `backbone_lr=0.1`.

    Deviation: a known negative, which the paper does not have, costs −log(1 − f), as an observed positive costs −log f.

    Args:
        w_start: w at the start: how much the pseudo-label K follows the score.
        w_end: w at the end. The schedule stops one step short of it, as published; likewise b.
        b_start: b at the start: log-odds of the pseudo-label of a score of 0.
        b_end: b at the end.
        mu_start: μ at the start, the score with the largest weight.
        mu_end: μ at the end.
        sigma_start: σ at the start, how far from μ a score still has weight.
        sigma_end: σ at the end.
        q2: q₂, from cross-entropy (towards 0) to absolute error (1), for an entry taken as positive.
        q3: q₃, the same for an entry taken as negative.

    Example:
        >>> from onepos import GR, SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(48))
        >>> observed = draw_single_positive(scenes.Y, random_state=3)
        >>> model = SinglePositiveClassifier(GR(), epochs=2, random_state=0)
        >>> model.fit(scenes.X, observed).predict_proba(scenes.X).shape
        (48, 10)

    References:
        Chen et al., Boosting Single Positive Multi-label Classification with Generalized Robust Loss, IJCAI 2024.
    """

    uses_negatives = True
    n_epochs: Tensor  # T, a scalar; runs of different lengths share a stack

    def __init__(
        self,
        w_start: float = 0.0,
        w_end: float = 2.0,
        b_start: float = -2.0,
        b_end: float = -2.0,
        mu_start: float = 0.5,
        mu_end: float = 0.8,
        sigma_start: float = 2.0,
        sigma_end: float = 0.5,
        q2: float = 0.01,
        q3: float = 1.0,
    ) -> None:
        super().__init__()
        self.w_start, self.w_end, self.b_start, self.b_end = w_start, w_end, b_start, b_end
        self.mu_start, self.mu_end, self.sigma_start, self.sigma_end = mu_start, mu_end, sigma_start, sigma_end
        self.q2, self.q3 = q2, q3

    def setup(self, train: TrainView) -> None:
        """Check the numbers and note how long the schedules run."""
        for name in ("sigma_start", "sigma_end", "q2", "q3"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive; got {getattr(self, name)!r}. Pass a small number for 0.")
        self.register_buffer("n_epochs", torch.tensor(float(train.n_epochs)))

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor:
        """Cross-entropy where observed; elsewhere the expected robust loss under the pseudo-label."""
        logits, observed = self(features[0]), batch.observed
        scores = logits.detach().sigmoid()
        begun, done = (self.epoch / self.n_epochs).clamp(max=1), ((self.epoch + 1) / self.n_epochs).clamp(max=1)
        w, b = _between(self.w_start, self.w_end, begun), _between(self.b_start, self.b_end, begun)
        mu, sigma = _between(self.mu_start, self.mu_end, done), _between(self.sigma_start, self.sigma_end, done)
        pseudo = torch.sigmoid(w * scores + b)  # K
        reliability = torch.exp(-((scores - mu) ** 2) / (2 * sigma**2))  # V
        # (1 − f^q)/q by way of log f: exact for small q, and with a gradient where f underflows.
        log_yes, log_no = F.logsigmoid(logits), F.logsigmoid(-logits)
        if_positive, if_negative = -torch.expm1(self.q2 * log_yes) / self.q2, -torch.expm1(self.q3 * log_no) / self.q3
        unobserved = reliability * (pseudo * if_positive + (1 - pseudo) * if_negative)
        if batch.known_negative is not None:
            unobserved = torch.where(batch.known_negative == 1, -log_no, unobserved)
        return torch.where(observed == 1, -log_yes, unobserved).mean()


def _between(start: float, end: float, progress: Tensor) -> Tensor:
    return start + (end - start) * progress
