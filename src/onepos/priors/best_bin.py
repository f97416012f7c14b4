"""Class priors from any scores and the observed single positives: Eq. (2) of the CRISP paper.

For label j with observed positives S_j (n_j of them) among n rows:

    q̂(z)  = #{i : s_ij ≥ z} / n                      share of all rows scored at least z
    q̂ᵖ(z) = #{i ∈ S_j : s_ij ≥ z} / n_j              the same share of the observed positives
    ẑ     = argmin_z  q̂(z)/q̂ᵖ(z) + (1+τ)/q̂ᵖ(z) · (ε_n + ε_nj),   ε_m = √(ln(4/δ) / 2m)
    π̂_j   = q̂(ẑ) / q̂ᵖ(ẑ)

The paper searches all n scores of each label. Between the scores of two neighbouring positives q̂ᵖ is constant while q̂
falls, so the minimum is always at the score of an observed positive: n candidates in all instead of n·c. Tied scores
are one threshold. Only the order of the scores matters, so logits can be used like probabilities (better: they do not
saturate into ties).

bound="beta" replaces the two deviations by exact simultaneous bounds. With N = n·q̂(z) rows and k = n_j·q̂ᵖ(z) positives
that reach z, and B(x; a, b) the x-quantile of the Beta distribution,

    Q(z)  = B(1 − δ/4n; N+1, n−N)                    upper bound of q(z), 1 for N = n
    P(z)  = B(δ/4n_j; k, n_j−k+1)                    lower bound of qᵖ(z)
    ẑ     = argmin_z  Q(z)/P(z),   π̂_j = q̂(ẑ)/q̂ᵖ(ẑ) as before

References:
    Can Class-Priors Help Single-Positive Multi-Label Learning? Eq. (2), Theorem 4.1 and Appendix A.1.
    Garg et al., Mixture Proportion Estimation and PU Learning: A Modern Approach, NeurIPS 2021 (best bin).
"""

from __future__ import annotations

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import betainccinv, betaincinv

from onepos.priors.estimate import FloatArray, IntArray, PriorEstimate
from onepos.protocol import as_indicator
from onepos.validation import check_finite, check_known

if TYPE_CHECKING:
    import torch

BOUNDS = ("dkw", "beta")

# Columns sorted at a time. Reading a C-ordered matrix column by column touches every cache line c times, so
# a block is transposed first; the extra memory stays at block/c of the matrix.
_BLOCK = 16

# Scores from which on several threads sort blocks side by side; fewer are sorted before threads have started.
_LARGE = 1 << 20

# Scores that an accelerator sorts at once, whatever that takes: a few megabytes.
_SMALL = 1 << 20


def best_bin_priors(
    scores: Any, observed: Any, delta: float = 0.01, tau: float = 0.01, bound: str = "dkw"
) -> PriorEstimate:
    """Estimate priors by Eq. (2); `estimate_priors` describes the arguments and the interval."""
    check_parameters(delta, tau)
    check_known([bound], BOUNDS, "unknown bound")
    values = read_scores(scores)
    n, c = values.shape
    rows, labels = find_positives(observed, (n, c))
    at_least = (
        _count_numpy(values, rows, labels) if isinstance(values, np.ndarray) else _count_torch(values, rows, labels)
    )
    n_positive = np.bincount(labels, minlength=c).astype(np.int64)
    bins = _make_bins(at_least, labels, n, n_positive)
    objective = _objective_dkw(bins, delta, tau) if bound == "dkw" else _objective_beta(bins, delta)
    best = bins.take(_find_minima(objective, bins.label))

    known = n_positive > 0
    prior, lower, upper, n_effective, threshold = (np.full(c, np.nan) for _ in range(5))
    reliable = np.zeros(c, bool)
    prior[known] = best.q / best.q_pos
    low, high, reliable[known] = (_interval_dkw if bound == "dkw" else _interval_beta)(best, delta)
    lower[known], upper[known] = np.maximum(low, best.n_positive / n), np.minimum(high, 1)
    n_effective[known] = best.positives
    threshold[known] = _pick(values, rows[best.which], labels[best.which])
    total = float(np.nansum(prior))
    return PriorEstimate(prior, lower, upper, n_positive, reliable, n_effective, threshold, cardinality=total)


def check_parameters(delta: float, tau: float) -> None:
    """Refuse δ and τ outside their ranges."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1; got {delta}. The paper uses 0.01.")
    if not 0 <= tau <= 1:
        raise ValueError(f"tau must lie between 0 and 1; got {tau}. The paper uses 0.01.")


def read_scores(scores: Any) -> Any:
    """A matrix of floats: a NumPy array, or the tensor itself where it lives on an accelerator."""
    torch = sys.modules.get("torch")  # without torch imported there are no tensors
    if torch is not None and isinstance(scores, torch.Tensor):
        values = scores.detach()
        if values.dtype in (torch.bfloat16, torch.float16):
            values = values.float()
        values = values.numpy() if values.device.type == "cpu" else values
    else:
        values = np.asarray(scores)
        values = values if values.dtype.kind == "f" else values.astype(np.float64)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(
            f"scores must be a matrix with a row per sample and a column per label; got shape {tuple(values.shape)}."
        )
    check_finite(values, "scores", "Drop or mend the row.")
    return values


def find_positives(observed: Any, shape: tuple[int, int]) -> tuple[IntArray, IntArray]:
    """Row and label of each observed positive, label by label."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(observed, torch.Tensor):
        if observed.device.type != "cpu" and tuple(observed.shape) == shape:  # search on the accelerator
            labels, rows = (found.cpu().numpy() for found in torch.nonzero(observed.t(), as_tuple=True))
            return rows, labels
        observed = observed.cpu().numpy()
    indicator = as_indicator(observed, shape[1])
    if indicator.shape != shape:
        raise ValueError(
            f"scores and observed must agree in shape; got {shape} and {indicator.shape}. "
            "Pass the scores of the same rows and labels."
        )
    rows, labels = np.divmod(np.flatnonzero(np.ascontiguousarray(indicator).view(bool)), shape[1])
    by_label = np.argsort(labels, kind="stable")  # several times faster than nonzero of the transpose
    return rows[by_label], labels[by_label]


def _count_numpy(scores: npt.NDArray[Any], rows: IntArray, labels: IntArray) -> IntArray:
    """For every positive (i, j): how many rows score at least s_ij for label j."""
    n, c = scores.shape
    at_least = np.empty(len(rows), np.int64)
    start = np.searchsorted(labels, np.arange(c + 1))

    def count(first: int) -> None:
        block = np.array(scores[:, first : first + _BLOCK].T, order="C")
        mine = slice(start[first], start[min(first + _BLOCK, c)])
        wanted = block[labels[mine] - first, rows[mine]]
        block.sort(axis=1)
        for k, column in enumerate(block, start=first):
            here = slice(start[k] - start[first], start[k + 1] - start[first])
            at_least[start[k] : start[k + 1]] = n - np.searchsorted(column, wanted[here])

    blocks = range(0, c, _BLOCK)
    threads = _threads() if scores.size >= _LARGE else 1
    if threads == 1:
        for first in blocks:
            count(first)
    else:
        with ThreadPoolExecutor(threads) as pool:  # sorting does not hold the interpreter's lock
            list(pool.map(count, blocks))
    return at_least


def _threads() -> int:
    """As many as torch may use where it is imported, otherwise one."""
    torch = sys.modules.get("torch")
    return 1 if torch is None else int(torch.get_num_threads())


def _count_torch(scores: torch.Tensor, rows: IntArray, labels: IntArray) -> IntArray:
    """The same on an accelerator, one sort and one search per block of columns."""
    import torch

    n, c = scores.shape
    device = scores.device
    at_least = np.empty(len(rows), np.int64)
    start = np.searchsorted(labels, np.arange(c + 1))
    position = np.arange(len(rows)) - start[labels]
    # A sort takes about six times its input (indices, buffers), the search as much again: a few columns at a time
    # keep the peak near the size of the matrix. For a small matrix starting kernels costs more than memory.
    step = max(1, c // 12, _SMALL // n)
    for first in range(0, c, step):
        last = min(first + step, c)
        mine = slice(start[first], start[last])
        width = int(np.diff(start[first : last + 1]).max(initial=0))
        row = torch.as_tensor(labels[mine] - first, device=device)
        column = torch.as_tensor(position[mine], device=device)
        block = scores[:, first:last].t().contiguous()
        wanted = torch.full((last - first, width), math.inf, dtype=scores.dtype, device=device)
        wanted[row, column] = block[row, torch.as_tensor(rows[mine], device=device)]
        below = torch.searchsorted(block.sort(dim=1).values, wanted)
        at_least[mine] = n - below[row, column].cpu().numpy()
    return at_least


@dataclass(frozen=True)
class _Bins:
    """Candidate bins, label by label, from the narrowest to the widest; one entry per bin.

    Attributes:
        which: Index of the positive whose score is the threshold.
        label: Its label.
        rows: Rows in the bin, N.
        positives: Observed positives in the bin, k.
        n_positive: Observed positives of the label, n_j.
        n: Number of rows.
    """

    which: IntArray
    label: IntArray
    rows: IntArray
    positives: IntArray
    n_positive: IntArray
    n: int

    @property
    def q(self) -> FloatArray:
        return self.rows / self.n

    @property
    def q_pos(self) -> FloatArray:
        return self.positives / self.n_positive

    def take(self, chosen: Any) -> _Bins:
        """Some of the bins."""
        columns = self.which, self.label, self.rows, self.positives, self.n_positive
        which, label, rows, positives, n_positive = (column[chosen] for column in columns)
        return _Bins(which, label, rows, positives, n_positive, self.n)


def _make_bins(at_least: IntArray, labels: IntArray, n: int, n_positive: IntArray) -> _Bins:
    """One bin for every score of a positive."""
    order = np.argsort(labels * (n + 1) + at_least, kind="stable")  # by label, then by count; faster than lexsort
    label, reached = labels[order], at_least[order]
    first = np.cumsum(n_positive) - n_positive
    bins = _Bins(order, label, reached, np.arange(len(order)) - first[label] + 1, n_positive[label], n)
    # Of tied scores only the last counts: it has all of its equals behind it.
    return bins.take(_is_last(label) | _is_last(reached))


def _is_last(values: IntArray) -> npt.NDArray[np.bool_]:
    """Whether another value follows, or none."""
    last: npt.NDArray[np.bool_] = np.diff(values, append=-1) != 0
    return last


def _find_minima(objective: FloatArray, label: IntArray) -> IntArray:
    """Index of the least entry of each label; of equal ones the first, that is the highest threshold."""
    if len(label) == 0:
        return np.empty(0, np.int64)
    starts = np.flatnonzero(np.diff(label, prepend=-1))
    smallest = np.repeat(np.minimum.reduceat(objective, starts), np.diff(np.append(starts, len(objective))))
    hits = np.flatnonzero(objective == smallest)
    return hits[np.searchsorted(hits, starts)]


def _objective_dkw(bins: _Bins, delta: float, tau: float) -> FloatArray:
    """What ẑ minimises in Eq. (2)."""
    slack = _deviation(delta, bins.n) + _deviation(delta, bins.n_positive)
    objective: FloatArray = bins.q / bins.q_pos + (1 + tau) / bins.q_pos * slack
    return objective


def _interval_dkw(bins: _Bins, delta: float) -> tuple[FloatArray, FloatArray, npt.NDArray[np.bool_]]:
    """Both ends of the interval of π, and whether the condition of the theorem is met."""
    q, q_pos, eps, eps_pos = bins.q, bins.q_pos, _deviation(delta, bins.n), _deviation(delta, bins.n_positive)
    least = np.maximum(q_pos - eps_pos, 0)
    upper = np.divide(q + eps, least, out=np.ones_like(q), where=least > 0)
    # Deviation: Theorem 4.1 prints n_j ≥ 2·ln(4/δ)/qᵖ(z*), its proof needs and uses qᵖ(z*)²; the proof is followed,
    # with the unknown qᵖ(z*) replaced by q̂ᵖ(ẑ). It says that q̂ᵖ − ε_nj is at least q̂ᵖ/2.
    reliable = bins.n_positive * q_pos**2 >= 2 * math.log(4 / delta)
    return (q - eps) / (q_pos + eps_pos), upper, reliable


def _objective_beta(bins: _Bins, delta: float) -> FloatArray:
    """Q/P, the upper end of the interval in every bin."""
    return _highest_share(bins.rows, bins.n, delta) / _lowest_share(bins.positives, bins.n_positive, delta)


def _interval_beta(bins: _Bins, delta: float) -> tuple[FloatArray, FloatArray, npt.NDArray[np.bool_]]:
    """The same from the exact bounds; the condition says as there that the lower bound of qᵖ is at least q̂ᵖ/2."""
    most = _highest_share(bins.positives, bins.n_positive, delta)
    lower: FloatArray = _lowest_share(bins.rows, bins.n, delta) / most
    reliable = _lowest_share(bins.positives, bins.n_positive, delta) >= bins.q_pos / 2
    return lower, _objective_beta(bins, delta), reliable


def _lowest_share(count: IntArray, total: Any, delta: float) -> FloatArray:
    """Lower bound of P(score ≥ z), for all z at once, where `count` ≥ 1 of `total` draws reach z; misses: δ/4.

    z is at most the count-th highest draw, and the probability of reaching that draw is Beta distributed (ties make it
    larger). The union over the `total` draws gives each the level δ/(4·total).
    """
    return betaincinv(count, total - count + 1, delta / 4 / total).astype(np.float64)


def _highest_share(count: IntArray, total: Any, delta: float) -> FloatArray:
    """Upper bound of the same: z is above the (count+1)-th highest draw, if there is one."""
    below = np.maximum(total - count, 1)
    return np.where(count < total, betainccinv(count + 1, below, delta / 4 / total), 1.0).astype(np.float64)


def _deviation(delta: float, count: Any) -> Any:
    """ε_m = √(ln(4/δ) / 2m), the DKW width of Theorem 4.1."""
    return np.sqrt(math.log(4 / delta) / (2 * np.maximum(count, 1)))


def _pick(values: Any, rows: IntArray, labels: IntArray) -> FloatArray:
    if isinstance(values, np.ndarray):
        return values[rows, labels].astype(np.float64)
    picked: FloatArray = values[list(rows), list(labels)].double().cpu().numpy() if len(rows) else np.empty(0)
    return picked
