"""Neighbours against a sort of all distances, on rows made to defeat a matrix product."""

import pytest
import torch

from onepos.methods import neighbours
from onepos.methods.neighbours import nearest_neighbours


def by_sorting(rows, k):
    """For each row the k smallest (distance, number) of the others."""
    rows = rows.double()
    found = []
    for i in range(len(rows)):
        distance = [((rows[i] - other) ** 2).sum().item() for other in rows]
        found.append(sorted((j for j in range(len(rows)) if j != i), key=lambda j: (distance[j], j))[:k])
    return torch.tensor(found)


def cases(seed):
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(40, 6, generator=generator)
    bits = torch.randint(0, 2, (40, 5), generator=generator).float()
    yield "normal", normal
    yield "ties", bits
    yield "copies", normal[torch.randint(0, 12, (40,), generator=generator)]
    yield "far from the origin", 1e6 + 0.1 * normal.double()
    yield "close pairs", torch.cat([normal[:20], normal[:20] + 1e-6 * normal[20:]])
    yield "one row far away", torch.cat([normal, torch.full((1, 6), 1e8)])
    yield "all the same", torch.ones(10, 3)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("block", [1 << 22, 100])  # 100 distances are two or three rows
def test_equals_sorting_all_distances(seed, block, monkeypatch):
    monkeypatch.setattr(neighbours, "_BLOCK", block)
    monkeypatch.setattr(neighbours, "_CACHED", 50)
    for name, rows in cases(seed):
        for k in (1, 3, 8):
            assert torch.equal(nearest_neighbours(rows, k), by_sorting(rows, k)), name


def test_the_cases_are_hard():
    """A plain float32 matrix product gets some of them wrong, so the test above can fail."""
    wrong = set()
    for name, rows in cases(0):
        rows = rows.float()
        gap = (rows**2).sum(1) - 2 * rows @ rows.T
        gap.fill_diagonal_(torch.inf)
        if not torch.equal(gap.topk(3, largest=False).indices, by_sorting(rows, 3)):
            wrong.add(name)
    assert {"ties", "copies", "close pairs"} <= wrong


def test_copies_are_neighbours_and_a_row_is_not_its_own():
    rows = torch.tensor([[0.3], [0.3], [5.0], [0.3]])
    assert nearest_neighbours(rows, 2).tolist() == [[1, 3], [0, 3], [0, 1], [0, 1]]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_fewer_rows_than_neighbours(n):
    rows = torch.arange(n, dtype=torch.float32).unsqueeze(1)
    found = nearest_neighbours(rows, 3)
    assert found.shape == (n, n - 1)
    assert found.dtype == torch.int64
    assert torch.equal(found, by_sorting(rows, 3).reshape(n, n - 1))


def test_rows_are_left_as_they_are():
    rows = torch.randn(20, 3)
    kept = rows.clone()
    nearest_neighbours(rows, 3)
    assert torch.equal(rows, kept)
