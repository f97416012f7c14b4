"""Index → tensor: rows held in memory, picked by index, never through a per-row loader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from onepos.validation import check_choice


class Samples(Protocol):
    """A set of inputs, as the loop uses it.

    Attributes:
        offers: What a method may require of the data and finds here, such as "views".
        n_features: Numbers per row.
        pass_rows: Rows to go through at once where no gradients are needed: enough to keep the device busy, few
            enough for its memory.
    """

    offers: frozenset[str]
    n_features: int
    pass_rows: int

    def __len__(self) -> int: ...

    def probe(self) -> Tensor:
        """Two inputs of zeros, of the shape that a network must take."""

    def rows(self, index: Tensor) -> Tensor:
        """The rows at `index` as one dense tensor, un-augmented."""

    def batches(self, order: Tensor, batch_size: int, n_views: int) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
        """Go through `order`: (index, views) per batch, the views augmented where the samples know how.

        With n_views = 0 there is one view, the plain rows. A row that can not be had, such as a broken image that is to
        be skipped, is missing from its batch and from the index.
        """

    def to(self, device: torch.device) -> Self:
        """The same samples with their memory on `device`."""

    def fingerprint(self) -> str:
        """A hash of the content, by which a checkpoint knows its data."""

    @property
    def nbytes(self) -> int:
        """Memory it takes, by which a stack of runs is sized."""


SCALES = ("clipped", "standard", "none")
"""Mean 0 and variance 1, cut at ±LIMIT; the same without the cut; as they are."""

# Numbers of sparse rows that are spread out at once in a pass without gradients (128 MB).
_PASS_NUMBERS = 1 << 25

LIMIT = 5.0
"""Standard deviations at which "clipped" scaling cuts a feature."""


class Scaling(NamedTuple):
    """(x − mean) / scale per feature, cut at ±limit.

    In double precision: single would lose a feature such as a time stamp.
    """

    mean: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]
    limit: float = np.inf


class _Table:
    """What dense and sparse rows share: they lie in memory, and there is one view of them."""

    offers: frozenset[str] = frozenset()
    pass_rows: int = 4096
    n_features: int

    def probe(self) -> Tensor:
        """(2, d)."""
        return torch.zeros(2, self.n_features)

    def rows(self, index: Tensor) -> Tensor:
        """(B, d)."""
        raise NotImplementedError

    def batches(self, order: Tensor, batch_size: int, n_views: int) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
        """(index, (rows,)) per batch: tabular rows are not augmented."""
        for index in torch.split(order, batch_size):
            yield index, (self.rows(index),)


class DenseRows(_Table):
    """A dense matrix; a batch is one index_select."""

    def __init__(self, data: Tensor) -> None:
        self.data = data
        self.n_features = data.shape[1]

    def __len__(self) -> int:
        return len(self.data)

    def rows(self, index: Tensor) -> Tensor:
        """(B, d)."""
        return self.data.index_select(0, index)

    def take(self, index: Tensor) -> DenseRows:
        """These rows."""
        return DenseRows(self.data[index])

    def to(self, device: torch.device) -> DenseRows:
        """On `device`."""
        return DenseRows(self.data.to(device))

    def fingerprint(self) -> str:
        """SHA-256 of shape and bytes."""
        return _digest(self.data)

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return self.data.nbytes


class ReducedRows(DenseRows):
    """Dense rows that were computed from others, by which a checkpoint knows them.

    The last bits of a decomposition may differ from run to run; those of its source do not.
    """

    def __init__(self, data: Tensor, source: str) -> None:
        super().__init__(data)
        self.source = source

    def take(self, index: Tensor) -> ReducedRows:
        """These rows."""
        return ReducedRows(self.data[index], f"{self.source} {_digest(index)}")

    def to(self, device: torch.device) -> ReducedRows:
        """On `device`."""
        return ReducedRows(self.data.to(device), self.source)

    def fingerprint(self) -> str:
        """That of the source."""
        return self.source


class SparseRows(_Table):
    """A matrix in compressed rows that stays sparse; only the rows of a batch are spread out.

    Centring would fill the matrix, so what zero becomes (`origin`, one number per feature) is added to a batch. Of P
    matrices of one length behind each other (`join_samples`) each has its own: `origin` is (P, d).
    """

    def __init__(self, start: Tensor, column: Tensor, value: Tensor, origin: Tensor) -> None:
        self.start, self.column, self.value, self.origin = start, column, value, origin
        self.n_features = origin.shape[1]
        self.pass_rows = max(256, min(self.pass_rows, _PASS_NUMBERS // max(1, self.n_features)))

    def __len__(self) -> int:
        return len(self.start) - 1

    def rows(self, index: Tensor) -> Tensor:
        """(B, d), dense."""
        first = self.start[index]
        length = self.start[index + 1] - first
        row = torch.repeat_interleave(torch.arange(len(index), device=index.device), length)
        shift = first - (length.cumsum(0) - length)  # from position in the batch to position in `value`
        entry = torch.arange(len(row), device=index.device) + shift[row]
        dense = self.origin.index_select(0, index // (len(self) // len(self.origin)))
        column = self.column[entry]
        dense[row, column] += self.value[entry]
        return dense

    def to_scipy(self) -> sp.csr_array:
        """What of the rows differs from `origin`, on the CPU."""
        value, column, start = (tensor.cpu().numpy() for tensor in (self.value, self.column, self.start))
        return sp.csr_array((value, column, start), shape=(len(self), self.n_features))

    def take(self, index: Tensor) -> SparseRows:
        """These rows, of one matrix."""
        first = self.start[index]
        length = self.start[index + 1] - first
        start = torch.cat([length.new_zeros(1), length.cumsum(0)])
        entry = torch.arange(int(start[-1])) + torch.repeat_interleave(first - start[:-1], length)
        return SparseRows(start, self.column[entry], self.value[entry], self.origin)

    def to(self, device: torch.device) -> SparseRows:
        """On `device`."""
        return SparseRows(*(t.to(device) for t in (self.start, self.column, self.value, self.origin)))

    def fingerprint(self) -> str:
        """SHA-256 of shape and bytes."""
        return _digest(self.start, self.column, self.value, self.origin)

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return sum(t.nbytes for t in (self.start, self.column, self.value, self.origin))


def make_scaling(X: Any, scale: str) -> Scaling | None:
    """How to scale these rows, by one of SCALES."""
    check_choice("scale", scale, SCALES)
    if scale == "none":
        return None
    return fit_scaling(X)._replace(limit=LIMIT if scale == "clipped" else np.inf)


def fit_scaling(X: Any) -> Scaling:
    """Mean and standard deviation of each column of a dense or sparse matrix; a constant column keeps scale 1."""
    mean: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]
    if hasattr(X, "tocsr"):
        csr = X.tocsr().astype(np.float64)
        csr.sum_duplicates()
        n, d = csr.shape
        unit = _units(np.asarray(abs(csr).max(axis=0).todense() if csr.nnz else np.zeros(d)).ravel())
        csr.data /= unit[csr.indices]
        mean = np.asarray(csr.sum(axis=0), np.float64).ravel() / n
        from_mean = np.bincount(csr.indices, (csr.data - mean[csr.indices]) ** 2, minlength=d)
        n_zeros = n - np.bincount(csr.indices, minlength=d)
        deviation = np.sqrt((from_mean + n_zeros * mean**2) / n)  # in two passes: squares of large numbers cancel badly
    else:
        rows = np.asarray(X)
        unit = _units(np.maximum(np.abs(rows.max(axis=0)), np.abs(rows.min(axis=0))).astype(np.float64))
        rows = rows if (unit == 1).all() else rows / unit
        mean, deviation = np.mean(rows, axis=0, dtype=np.float64), np.std(rows, axis=0, dtype=np.float64)
    mean, deviation = mean * unit, deviation * unit
    constant = deviation <= 1e-12 * np.maximum(np.abs(mean), 1e-300)
    return Scaling(mean, np.where(constant, 1.0, deviation))


def _units(largest: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """By column 1, or where squares of its numbers would leave double precision the power of two near the largest."""
    is_usual = (largest == 0) | ((largest > 1e-100) & (largest < 1e100))
    exponent = np.frexp(np.where(is_usual, 1.0, largest))[1]
    return np.where(is_usual, 1.0, np.ldexp(1.0, np.minimum(exponent, 1023)))


def as_samples(X: Any, scaling: Scaling | None = None, dtype: torch.dtype = torch.float32) -> DenseRows | SparseRows:
    """A NumPy matrix or a SciPy sparse matrix as samples, scaled in double precision, then of the given one."""
    if not hasattr(X, "tocsr"):
        data = np.asarray(X)
        if scaling is not None:
            unit = _units(scaling.scale)  # differences of the largest numbers would be infinite
            if (unit != 1).any():
                data, scaling = data / unit, Scaling(scaling.mean / unit, scaling.scale / unit, scaling.limit)
            data = (data - scaling.mean) / scaling.scale
            if scaling.limit < np.inf:
                np.clip(data, -scaling.limit, scaling.limit, out=data)
        return DenseRows(_as_tensor(data, dtype))
    csr = X.tocsr()
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    column = torch.as_tensor(csr.indices.astype(np.int64))
    value, origin = np.asarray(csr.data), np.zeros(csr.shape[1])
    if scaling is not None:
        origin = -scaling.mean / scaling.scale
        cut = np.clip(origin, -scaling.limit, scaling.limit)
        value = np.clip(origin[csr.indices] + value / scaling.scale[csr.indices], -scaling.limit, scaling.limit)
        value, origin = value - cut[csr.indices], cut
    start = torch.as_tensor(csr.indptr.astype(np.int64))
    return SparseRows(start, column, _as_tensor(value, dtype), torch.tensor(origin[None], dtype=dtype))


def _as_tensor(values: npt.NDArray[Any], dtype: torch.dtype) -> Tensor:
    """The numbers in this precision, which must be able to hold them."""
    with np.errstate(over="ignore"):
        tensor = torch.tensor(values, dtype=dtype)
    if values.size and not bool(tensor.isfinite().all()) and np.isfinite(values).all():
        most = torch.finfo(dtype).max
        raise ValueError(
            f"scaled features must lie within ±{most:.3g}; the largest is {np.abs(values).max():.3g}. Choose another "
            "scale, such as scale='clipped', or divide them by a number of your own."
        )
    return tensor


def join_samples(parts: Sequence[Samples]) -> Samples:
    """The rows of all parts behind each other, as one; the parts are of one kind, length and width."""
    if len(parts) == 1:
        return parts[0]
    dense = [part for part in parts if isinstance(part, DenseRows)]
    if len(dense) == len(parts):
        return DenseRows(torch.cat([part.data for part in dense]))
    sparse = [part for part in parts if isinstance(part, SparseRows)]
    entries = np.cumsum([0, *(len(part.value) for part in sparse)]).tolist()
    first = [part.start[:-1] + before for part, before in zip(sparse, entries[:-1], strict=True)]
    last = torch.tensor(entries[-1:], device=sparse[0].start.device)
    column, value, origin = (
        torch.cat([getattr(part, name) for part in sparse]) for name in ("column", "value", "origin")
    )
    return SparseRows(torch.cat([*first, last]), column, value, origin)


def _digest(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(str(tuple(tensor.shape)).encode())
        digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
    return digest.hexdigest()
