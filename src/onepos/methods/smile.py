"""SMILE: a second network recovers soft labels from a row and its nearest neighbours; the classifier learns those.

    D = σ(Linear(Â·ReLU(Â·X·W₁ + b₁)·W₂ + b₂))             soft labels; Â is the normalized graph with self-loops
    T = μ·D + (1−μ)·D₂,  D₂ = 1 where l = 1, else p        what the classifier f learns; D is held fixed there
    L = mean w·CE(T, f)                                    w = 1 where l = 1, else 1/(c−1) or `rate`
      + AN(D, l) + γ·[MSE(x̂, x) + AN(ỹ, l) + MSE(ỹỹᵀ, A)] + δ·mean KL(Beta(D, 1−D) ‖ Beta(1, 1))

ỹ is drawn from Beta(D, 1−D); x̂ is decoded from D and z, z = MLP([x, D]); A is the graph of neighbours.

References:
    Xu et al., One Positive Label is Sufficient: Single-Positive Multi-Label Learning with Label Enhancement,
    NeurIPS 2022.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onepos.methods.base import Batch, Method, StackRules, TrainView
from onepos.methods.neighbours import nearest_neighbours

# The authors': inside a logarithm, beside D in the Beta that is drawn from, beside D in the KL term.
_LOG_EPS, _DRAW_EPS, _KL_EPS = 1e-5, 1e-5, 1e-6


class SMILE(Method):
    """Single-positive multi-label learning with label enhancement.

    Each row aggregates itself and its k nearest training rows: Â_ij = ((k+1)·(1 + listed_j))^-½ for j = i or j a
    neighbour of i, where listed_j counts the rows that have j as a neighbour. This is D_in^-½·(A + I)·D_out^-½ on
    the whole graph. The published code convolves all n rows at every batch; Â·X is fixed and the second layer
    needs k+1 rows of it per row, so the same numbers come from B·(k+1) rows.

    Deviation: in the published code a row aggregates the rows that list it, not those it lists, and not itself; one
    that nobody lists gets the bias only. `as_published=True` does so.
    Deviation: the published code flips the sign of lnΓ(a) + lnΓ(b) in the KL term and leaves out its constant; both
    are minimal at D = ½, the flipped one pulls harder. `as_published=True` does so.
    Deviation: cross-entropies of f and D are taken on logits and need no ε = 1e-5; `as_published=True` adds it. That
    of ỹ, a draw without logits, has it in both forms.
    Deviation: the classifier is the library's network of any kind, in the published code d → c → ReLU → c
    (network="bottleneck").
    Deviation: the graph is built on the rows as the network gets them, scaled unless scale="none"; the authors do not
    scale.
    Deviation: ỹ is a ratio of two Gamma draws, equal in law to the Beta draw; torch's own is slower, and not for
    torch.func.
    Deviation: images have no x to compare and to decode. With graph="features" the network's features at the start of
    the training stand for it. (What others have run on images under this name has no graph and has parts of other
    methods; it is not this method, and not here.)

    Deviation: a known negative, which the paper does not have, has the target 0 and the weight 1 in the loss of
    the classifier.

    Args:
        p: Soft label of an unobserved entry before enhancement; the authors set 0.001 to 0.1 by data set.
        mu: μ, share of the recovered soft labels in the classifier's target; the authors set 0.01 to 0.9.
        rate: Weight of unobserved entries in the classifier's loss where `bias` is False; the authors set 0.1 to 0.7.
        bias: Weigh them by 1/(c−1) instead, so that all of a row's weigh together as much as its observed one.
        gamma: γ, weight of the three reconstructions.
        delta: δ, weight of the KL term.
        k: Neighbours per row.
        graph: What x is in the second network: "inputs", the rows themselves, or "features", what the network makes of
            them at the start of the training; for images, where a pretrained network finds similar ones.
        as_published: Follow the published code where it differs, see above. Its fan-in varies from row to row, so
            the shapes in a batch depend on the data, and torch.func can not stack it.

    Example:
        >>> from onepos import SMILE, SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes").take(range(48))
        >>> observed = draw_single_positive(scenes.Y, random_state=3)
        >>> model = SinglePositiveClassifier(SMILE(), epochs=2, random_state=0)
        >>> model.fit(scenes.X, observed).predict_proba(scenes.X).shape
        (48, 10)

    References:
        Xu et al., One Positive Label is Sufficient: Single-Positive Multi-Label Learning with Label Enhancement,
        NeurIPS 2022.
    """

    uses_negatives = True
    stacking = StackRules(possible=False)  # the draws of stacked runs would not be those of each alone
    neighbours: Tensor  # (n, k)
    rows: Tensor  # x where it is not the input, (n, d)
    smoothed: Tensor  # Â·X, (n, d)
    scale: Tensor  # Â_ij as a factor of the row it comes from; of the row it goes to as published, (n,)
    listed_by: Tensor  # as published: the rows that list row 0, those that list row 1, …, (n·k,)
    listed_from: Tensor  # where in `listed_by` each row's begin, (n + 1,)

    def __init__(
        self,
        p: float = 0.05,
        mu: float = 0.1,
        rate: float = 0.1,
        bias: bool = True,
        gamma: float = 0.001,
        delta: float = 1.0,
        k: int = 3,
        graph: str = "inputs",
        as_published: bool = False,
    ) -> None:
        super().__init__()
        self.p, self.mu, self.rate, self.bias = p, mu, rate, bias
        self.gamma, self.delta, self.k, self.graph = gamma, delta, k, graph
        self.as_published = as_published

    def setup(self, train: TrainView) -> None:
        """Link the rows, smooth them once, and make the enhancing networks."""
        self._check()
        # Buffers that follow from the data are not saved: they would be most of a checkpoint.
        if self.graph == "features":
            inputs = train.features()
            inputs = inputs.to(torch.promote_types(inputs.dtype, torch.float32))  # also where the network ran in half
            self.register_buffer("rows", inputs, persistent=False)
        else:
            inputs = train.inputs()
        if inputs.ndim != 2:
            raise ValueError(
                f"SMILE needs rows of numbers to find neighbours among; its {self.graph} have the shape "
                f"{tuple(inputs.shape)}. For images pass graph='features' and a network with pooled features."
            )
        d, c = inputs.shape[1], train.n_labels
        self.register_buffer("neighbours", nearest_neighbours(inputs, self.k), persistent=False)
        if self.as_published:
            self._aggregate_listing(inputs)
        else:
            self._aggregate_listed(inputs)
        self.convolution_1, self.convolution_2, self.soft_logits = nn.Linear(d, c), nn.Linear(c, c), nn.Linear(c, c)
        for layer in (self.convolution_1, self.convolution_2):  # as graph convolutions are started
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.encoder = nn.Sequential(nn.Linear(d + c, c), nn.ReLU(), nn.Linear(c, c))
        self.decoder = nn.Sequential(nn.Linear(2 * c, d), nn.ReLU(), nn.Linear(d, d))

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor:
        """The classifier's loss and the enhancement's. They share no gradient: one optimizer equals their two."""
        observed = batch.observed
        around = self.neighbours.index_select(0, batch.index)  # (B, k)
        soft_logits = self._enhance(batch.index, around)
        soft = torch.sigmoid(torch.stack([soft_logits, -soft_logits]))  # D and 1 − D, neither rounded to 0
        first = self.p + (1 - self.p) * observed  # D₂
        rest = 1 / max(1, observed.shape[1] - 1) if self.bias else self.rate
        weight = rest + (1 - rest) * observed
        target = self.mu * soft[0].detach() + (1 - self.mu) * first
        if batch.known_negative is not None:
            weight = weight + (1 - rest) * batch.known_negative
            target = target * (1 - batch.known_negative)
        linked = (around.unsqueeze(2) == batch.index).any(1)  # A, (B, B)
        return (
            self._cross_entropy(self(features[0]), target, weight)
            + self._cross_entropy(soft_logits, observed)
            + self.gamma * self._reconstruction(soft, linked, batch)
            + self.delta * self._divergence(soft + _KL_EPS)
        )

    def _enhance(self, index: Tensor, around: Tensor) -> Tensor:
        """Logits of D, (B, c)."""
        if self.as_published:
            end = self.listed_from[index + 1]
            count = end - self.listed_from[index]
            row = torch.repeat_interleave(torch.arange(len(index), device=index.device), count)
            place = torch.arange(len(row), device=index.device) + (end - count.cumsum(0))[row]
            hidden = torch.relu(self.convolution_1(self.smoothed[self.listed_by[place]]))
            mixed = hidden.new_zeros(len(index), hidden.shape[1]).index_add(0, row, hidden)
            mixed = mixed * self.scale[index].unsqueeze(1)
        else:
            sources = torch.cat([index.unsqueeze(1), around], 1)  # (B, k + 1)
            hidden = torch.relu(self.convolution_1(F.embedding(sources, self.smoothed)))
            mixed = (self.scale[sources].unsqueeze(1) @ hidden).squeeze(1)
        logits: Tensor = self.soft_logits(self.convolution_2(mixed))
        return logits.to(torch.promote_types(logits.dtype, torch.float32))  # no half: ψ and lnΓ are steep near 0

    def _reconstruction(self, soft: Tensor, linked: Tensor, batch: Batch) -> Tensor:
        """How far x, l and A are from what D, z and ỹ make of them."""
        x = self.rows.index_select(0, batch.index) if self.graph == "features" else batch.views[0]
        code = self.encoder(torch.cat([x, soft[0]], 1))
        decoded = self.decoder(torch.cat([soft[0], code], 1))
        drawn = _draw_beta(soft + _DRAW_EPS)  # ỹ and 1 − ỹ
        fitting = torch.where(batch.observed > 0, drawn[0], drawn[1])
        return (
            F.mse_loss(decoded, x)
            - torch.log(fitting + _LOG_EPS).mean()
            + F.mse_loss(drawn[0] @ drawn[0].T, linked.to(drawn.dtype))
        )

    def _cross_entropy(self, logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Mean over all entries, weighted."""
        if not self.as_published:
            return F.binary_cross_entropy_with_logits(logits, target, weight)
        scores = torch.sigmoid(logits)
        entropy = -(target * torch.log(scores + _LOG_EPS) + (1 - target) * torch.log(1 - scores + _LOG_EPS))
        return entropy.mean() if weight is None else (weight * entropy).mean()

    def _divergence(self, shape: Tensor) -> Tensor:
        """KL(Beta(a, b) ‖ Beta(1, 1)), mean over all entries; `shape` holds a and b, which add to 1 + 2ε."""
        slope, log_gamma = (shape - 1) * torch.digamma(shape), torch.lgamma(shape)
        if self.as_published:
            return 2 * (slope + log_gamma).mean()  # 2: the terms of a and of b
        return 2 * (slope - log_gamma).mean() + _KL_CONSTANT

    def _aggregate_listed(self, inputs: Tensor) -> None:
        """Keep Â and Â·X where a row gathers itself and the rows it lists."""
        n, k = self.neighbours.shape
        scale = ((k + 1) * (1 + self.neighbours.flatten().bincount(minlength=n))).to(inputs.dtype).rsqrt()
        weighted = inputs * scale.unsqueeze(1)
        smoothed = weighted.clone()
        for column in self.neighbours.T:  # one neighbour at a time: no (n, k, d)
            smoothed += weighted[column]
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("smoothed", smoothed, persistent=False)

    def _aggregate_listing(self, inputs: Tensor) -> None:
        """Keep Â and Â·X where a row gathers the rows that list it, as published."""
        n, k = self.neighbours.shape
        listed = self.neighbours.flatten().bincount(minlength=n)
        scale = (max(1, k) * listed.clamp(min=1)).to(inputs.dtype).rsqrt()
        smoothed = torch.zeros_like(inputs)
        for column in self.neighbours.T:
            smoothed.index_add_(0, column, inputs)
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("smoothed", smoothed.mul_(scale.unsqueeze(1)), persistent=False)
        by_target = self.neighbours.flatten().argsort(stable=True)
        self.register_buffer("listed_by", by_target // max(1, k), persistent=False)
        self.register_buffer("listed_from", F.pad(listed.cumsum(0), (1, 0)), persistent=False)

    def _check(self) -> None:
        for name in ("p", "mu"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1; got {getattr(self, name)}.")
        for name in ("rate", "gamma", "delta"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative; got {getattr(self, name)}. Use 0 to leave it out.")
        if self.graph not in ("inputs", "features"):
            raise ValueError(f"graph must be 'inputs' or 'features'; got {self.graph!r}.")
        if self.k < 1:
            raise ValueError(f"k must be at least 1; got {self.k}. The authors use 3.")


def _draw_beta(shape: Tensor) -> Tensor:
    """ỹ from Beta(a, b) and 1 − ỹ, for `shape` of a and b, with gradients: G_a and G_b over their sum.

    The private name is the draw behind torch's Gamma; the class around it would cost as much again.
    """
    parts = torch._standard_gamma(shape)
    return parts / parts.sum(0)


def _constant_of_divergence() -> float:
    """lnΓ(a+b) + (2−a−b)·ψ(a+b), the part of KL(Beta(a, b) ‖ Beta(1, 1)) that is the same for every D."""
    total = torch.tensor(1 + 2 * _KL_EPS, dtype=torch.float64)
    return float(torch.lgamma(total) + (2 - total) * torch.digamma(total))


_KL_CONSTANT = _constant_of_divergence()
