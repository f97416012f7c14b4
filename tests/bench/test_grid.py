"""Points of a search space: balanced, the same for all who share an axis, the same for ever."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from onepos.bench.grid import Axis, draw_points, draw_star, hash_bits

LOG, LINEAR = Axis("log", (1e-4, 1e-2)), Axis("linear", (-8.0, -2.0))
SHARED = {"lr": LOG, "decay": LOG, "batch": Axis("values", (32, 128)), "network": Axis("values", ("a", "b"))}


def unit_axes(n_axes):
    return {f"axis {k}": Axis("linear", (0.0, 1.0)) for k in range(n_axes)}


def test_a_grid_is_every_combination_the_first_axis_fastest():
    axes = {"x": Axis("values", (1, 2, 3)), "y": Axis("values", ("a", "b"))}
    assert draw_points(axes, "grid", None, 0) == [{"x": x, "y": y} for y in ("a", "b") for x in (1, 2, 3)]


def test_a_star_sets_one_axis_at_a_time():
    axes = {"x": Axis("values", (1, 2, 3)), "y": Axis("values", ("a", "b"))}
    centre, *rays = draw_star(axes)
    assert centre == {}
    assert rays == [{"x": 1}, {"x": 2}, {"x": 3}, {"y": "a"}, {"y": "b"}]
    assert draw_star({}) == [{}]


@pytest.mark.parametrize("sampler", ["sobol", "random"])
def test_further_axes_and_points_change_nothing(sampler):
    shared = draw_points(SHARED, sampler, 16, 3)
    longer = draw_points(SHARED, sampler, 32, 3)
    wider = draw_points(SHARED | {"own": LINEAR, "more": Axis("values", (1, 2, 3))}, sampler, 16, 3)
    assert longer[:16] == shared
    assert [{name: point[name] for name in SHARED} for point in wider] == shared
    assert draw_points(SHARED, sampler, 16, 4) != shared


@pytest.mark.parametrize("sampler", ["sobol", "random"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_values_are_balanced(sampler, size):
    for count in (8, 16, 32) if sampler == "sobol" else (1, 8, 13, 20):
        for seed in range(4):
            points = draw_points(SHARED | {"x": Axis("values", tuple(range(size)))}, sampler, count, seed)
            times = Counter(point["x"] for point in points)
            assert max(times.values()) - min(times.get(value, 0) for value in range(size)) <= 1


@pytest.mark.parametrize("count", [8, 16, 64])
def test_sobol_points_are_one_per_bin(count):
    points = draw_points(unit_axes(12), "sobol", count, 0)
    for name in points[0]:
        assert sorted(int(point[name] * count) for point in points) == list(range(count))


@pytest.mark.parametrize(("count", "n_axes"), [(8, 4), (16, 8)])
def test_sobol_points_fall_evenly_into_quadrants(count, n_axes):
    """Of any two axes; and within four times as many cells they do not lie on a line."""
    points = np.array([list(point.values()) for point in draw_points(unit_axes(n_axes), "sobol", count, 0)])
    for a, b in combinations(points.T, 2):
        assert set(Counter(zip(a < 0.5, b < 0.5, strict=True)).values()) == {count // 4}
        assert count < 16 or len(set(zip(a * 4 // 1, b * 4 // 1, strict=True))) >= 8


def test_every_cell_of_network_and_batch_size_gets_low_and_high_rates():
    points = draw_points(SHARED, "sobol", 16, 0)
    cells = Counter((point["batch"], point["network"], point["lr"] < 1e-3) for point in points)
    assert set(cells.values()) == {2}
    assert len(cells) == 8


def test_random_values_come_in_ever_new_order():
    points = draw_points({"x": Axis("values", (1, 2, 3, 4))}, "random", 40, 0)
    blocks = {tuple(point["x"] for point in points[k : k + 4]) for k in range(0, 40, 4)}
    assert len(blocks) > 5


def test_random_points_are_spread():
    values = np.array([point["x"] for point in draw_points({"x": Axis("linear", (0.0, 1.0))}, "random", 2000, 0)])
    assert abs(values.mean() - 0.5) < 0.03
    assert abs(values.std() - 12**-0.5) < 0.02


def test_an_axis_from_end_to_end():
    assert LOG.at(0.0) == 1e-4
    assert LOG.at(0.5) == 1e-3
    assert LOG.at(np.nextafter(1, 0)) == 1e-2
    assert LINEAR.at(0.25) == -6.5
    assert LOG.at(1 / 3) == 0.0004642, "four digits, whatever the machine's last one is"
    assert [Axis("values", (8, 16, 32)).at(u) for u in (0.0, 0.33, 0.34, 0.999)] == [8, 8, 16, 32]


def test_seeds_are_for_ever():
    """Results on disk are found by what these numbers were."""
    assert hash_bits(0, "split", 0) == 1053381586
    assert draw_points(SHARED, "sobol", 2, 0) == [
        {"lr": 0.001632, "decay": 0.0007552, "batch": 32, "network": "b"},
        {"lr": 0.0001632, "decay": 0.007552, "batch": 128, "network": "a"},
    ]
    numbers = [hash_bits(0, "split", trial) for trial in range(1000)]
    assert len(set(numbers)) == 1000
    assert max(numbers) < 2**30


def test_a_number_of_points_is_needed():
    with pytest.raises(ValueError, match="the sampler 'sobol' needs the number of points; none was given"):
        draw_points(SHARED, "sobol", None, 0)
