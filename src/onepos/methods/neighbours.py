"""Nearest neighbours, exactly, without an n × n matrix: a block of rows against all rows at a time.

‖x‖² + ‖y‖² − 2x·y is one matrix product but cancels where rows are close, so it only rules out: whatever comes
within its rounding error of the k-th smallest is measured again as Σ(x − y)². That also makes a copy of a row lie
at distance 0 and distinguishes ties from near ties.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Distances held at a time (32 MiB), and differences (512 KiB).
_USUAL = 300  # powers of two up to which squares of numbers are finite and not zero
_BLOCK, _CACHED = 1 << 22, 1 << 16


@torch.no_grad()
def nearest_neighbours(rows: Tensor, k: int) -> Tensor:
    """The k other rows nearest to each row in Euclidean distance, nearest first, of ties the lower index first.

    Distances are those of float64. Time is that of n²·d multiplications; memory is that of two copies of the rows in
    float64 and a block.

    Args:
        rows: (n, d), finite.
        k: How many; with fewer than k other rows all of them are neighbours.

    Returns:
        Row numbers, (n, min(k, n − 1)), int64.

    Example:
        >>> nearest_neighbours(torch.tensor([[0.0], [1.0], [3.0], [1.0]]), 2)
        tensor([[1, 3],
                [3, 0],
                [1, 3],
                [1, 0]])
    """
    n, d = rows.shape
    k = min(k, n - 1)
    found = torch.empty((n, k), dtype=torch.int64, device=rows.device)
    if k == 0:
        return found
    # Float64 is not for an Apple GPU; this runs once, so it may run on the CPU.
    points = (rows.cpu() if rows.device.type == "mps" else rows).double()
    exponent = torch.frexp(points.abs().max())[1]
    if abs(int(exponent)) > _USUAL:  # squares would leave the range; a power of two changes no comparison
        points = torch.ldexp(points, -exponent)
    centred = points - points.mean(0)  # any shift will do; this one keeps the norms, and so the errors, small
    square = (centred * centred).sum(1)
    # Twice the textbook bound of rounding errors in ‖x‖² + ‖y‖² − 2x·y, (d + 4)·2⁻⁵³·(‖x‖ + ‖y‖)².
    error = (d + 4) * torch.finfo(torch.float64).eps * (square.sqrt() + square.max().sqrt()) ** 2
    kind = torch.unique(points, dim=0, return_inverse=True)[1]  # copies of a row have one number
    for block in torch.split(torch.arange(n, device=points.device), max(1, _BLOCK // n)):
        gap = torch.addmm(square, centred[block], centred.T, alpha=-2)  # squared distance − ‖x‖²
        gap[torch.arange(len(block), device=points.device), block] = torch.inf
        limit = gap.topk(k, largest=False).values[:, -1:] + 2 * error[block].unsqueeze(1)
        row, other = (gap <= limit).nonzero(as_tuple=True)
        found[block] = _k_smallest(row, other, _distances(points, kind, block[row], other), k).to(rows.device)
    return found


def _distances(points: Tensor, kind: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Σ(x − y)² of the given pairs of rows; among copies of the same two rows one pair stands for all."""
    pair, stands_for = torch.unique(kind[first] * len(points) + kind[second], return_inverse=True)
    some = torch.empty_like(pair).scatter_(0, stands_for, torch.arange(len(first), device=pair.device))
    distance = points.new_empty(len(pair))
    step = max(1, _CACHED // max(1, points.shape[1]))
    for pairs, out in zip(torch.split(some, step), torch.split(distance, step), strict=True):
        torch.sum((points[first[pairs]] - points[second[pairs]]).square_(), 1, out=out)
    return distance[stands_for]


def _k_smallest(row: Tensor, other: Tensor, distance: Tensor, k: int) -> Tensor:
    """Of pairs sorted by (row, other) with k or more of each row: the k nearest of each, (rows, k)."""
    order = distance.argsort(stable=True)
    order = order[row[order].argsort(stable=True)]  # by row, then distance, then number of the other
    count = row.bincount()
    first = count.cumsum(0) - count
    return other[order[first.unsqueeze(1) + torch.arange(k, device=row.device)]]
