"""Splits and single-positive draws."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from onepos import protocol
from onepos.protocol import as_indicator, cole_split, draw_single_positive, split


def skewed_labels(seed=0, n=3000, c=25, rarest=0.004):
    rng = np.random.default_rng(seed)
    return (rng.random((n, c)) < np.geomspace(0.4, rarest, c)).astype(np.uint8)


def correlated_labels(seed=0, n=3000, c=40):
    """Every label comes with others, as tags do: rows draw their labels from one of six topics."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(c, 0.15), size=6) * 5
    return (rng.random((n, c)) < topics[rng.integers(6, size=n)]).astype(np.uint8)


def excess(Y, parts):
    """Rows of each label in each part, less what the part's size entitles it to; (parts, c)."""
    return np.array([Y[part].sum(axis=0) - Y.sum(axis=0) * len(part) / len(Y) for part in parts])


@pytest.mark.parametrize("stratify", [False, True])
@pytest.mark.parametrize(
    ("n", "sizes"),
    [
        (10, [8, 1, 1]),
        (2000, [1600, 200, 200]),
        (2407, [1926, 241, 240]),
        (2417, [1934, 242, 241]),
        (5000, [4000, 500, 500]),
        (16091, [12873, 1609, 1609]),
        (24581, [19665, 2458, 2458]),
    ],
)
def test_sizes_of_the_paper(n, sizes, stratify):
    parts = split(skewed_labels(n=n, c=6), 0, stratify=stratify)
    assert [len(part) for part in parts] == sizes


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(4, 60),
    c=st.integers(0, 8),
    density=st.floats(0, 1),
    weights=st.tuples(*[st.integers(0, 5)] * 3).filter(any),
    stratify=st.booleans(),
)
def test_parts_hold_every_row_once(seed, n, c, density, weights, stratify):
    Y = (np.random.default_rng(seed).random((n, c)) < density).astype(np.uint8)
    fractions = np.array(weights) / sum(weights)
    try:
        parts = split(Y, seed, fractions, stratify)
    except ValueError as error:
        assert "empty" in str(error)  # noqa: PT017 (few rows may leave a part empty)
        return
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert [len(part) for part in parts] == [len(part) for part in split(Y, 0, fractions)]
    for part, fraction in zip(parts, fractions, strict=True):
        assert part.dtype == np.int64
        assert np.array_equal(part, np.sort(part))
        assert abs(len(part) - n * fraction) < 1
        assert (len(part) == 0) == (fraction == 0)


@pytest.mark.parametrize("stratify", [False, True])
def test_seed_decides(stratify):
    Y = skewed_labels()
    same = [split(Y, seed, stratify=stratify) for seed in (7, 7, np.random.default_rng(7))]
    for parts in same[1:]:
        assert all(map(np.array_equal, same[0], parts))
    assert not np.array_equal(split(Y, 8, stratify=stratify).train, same[0].train)
    generator = np.random.default_rng(7)
    first, second = (split(Y, generator, stratify=stratify) for _ in range(2))
    assert not np.array_equal(first.train, second.train)


def test_plain_split_is_uniform():
    counts = sum(np.bincount(split(np.zeros((10, 1)), seed).test, minlength=10) for seed in range(2000))
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("fractions", [(0.8, 0.1, 0.1), (0.6, 0.2, 0.2), (0.7, 0.3, 0)])
@pytest.mark.parametrize("make", [skewed_labels, correlated_labels])
def test_stratified_labels_reach_every_part_in_the_ratio(make, fractions):
    for seed in range(3):
        Y = make(seed)
        even = excess(Y, split(Y, seed, fractions, stratify=True))
        plain = excess(Y, split(Y, seed, fractions))
        assert np.abs(even).max() < 2  # rows, whatever the label's frequency
        assert np.abs(even).mean() < 0.2 * np.abs(plain).mean()
        n_rows = Y.sum(axis=0)
        frequent = n_rows >= 10
        assert np.abs(even / n_rows)[:, frequent].max() < np.abs(plain / n_rows)[:, frequent].max()


def test_exchanges_never_make_it_worse(monkeypatch):
    Y = correlated_labels(1)
    even = np.square(excess(Y, split(Y, 0, stratify=True))).sum()
    monkeypatch.setattr(protocol, "_MAX_EXCHANGES", 0)
    assert even < np.square(excess(Y, split(Y, 0, stratify=True))).sum()


def test_rare_labels_reach_every_part():
    Y = skewed_labels(c=60, rarest=0.003)
    frequent = Y.sum(axis=0) >= 10
    assert Y.sum(axis=0)[frequent].min() < 15
    for part in split(Y, 0, stratify=True):
        assert np.all(Y[part][:, frequent].any(axis=0))


def test_stratified_by_one_label_is_exact():
    y = np.repeat([0, 1, 2, -1], [500, 100, 20, 380])
    for parts in (split(y, 0, stratify=True), split(as_indicator(y), 0, stratify=True)):
        counts = [np.bincount(y[part] + 1).tolist() for part in parts]
        assert counts == [[304, 400, 80, 16], [38, 50, 10, 2], [38, 50, 10, 2]]


def test_sparse_labels_split_like_dense_ones():
    Y = skewed_labels()
    expected = split(Y, 3, stratify=True)
    scattered = sparse.coo_array(Y[::-1])
    for matrix in (sparse.csr_matrix(Y), sparse.csc_array(Y), scattered.tocsr()[::-1]):
        assert all(map(np.array_equal, split(matrix, 3, stratify=True), expected))
    assert all(map(np.array_equal, split(sparse.csr_matrix(Y), 3), split(Y, 3)))


def test_plain_split_accepts_anything_with_a_length():
    assert all(map(np.array_equal, split(["a", "b"] * 10, 0), split(np.zeros((20, 3)), 0)))


def test_more_labels_than_sixteen_bits_hold():
    rows = np.arange(200)
    Y = sparse.csr_array((np.ones(400), (np.repeat(rows, 2), np.c_[rows % 2, 70_000 - rows].ravel())))
    parts = split(Y, 0, stratify=True)
    assert [int(Y[part][:, [0]].sum()) for part in parts] == [80, 10, 10]


def test_large_data_is_fast():
    Y = skewed_labels(n=100_000, c=100, rarest=0.0005)
    start = time.process_time()
    split(Y, 0, stratify=True)
    assert time.process_time() - start < 5
    for how in ("uniform", "frequency", np.ones(100), np.ones(Y.shape)):
        start = time.process_time()
        draw_single_positive(Y, 0, how)
        assert time.process_time() - start < 1


def test_cole_split():
    order = np.random.RandomState(1200).permutation(5717).tolist()
    parts = cole_split(5717)
    assert parts.train.tolist() == sorted(order[:4574])
    assert parts.val.tolist() == sorted(order[4574:])
    assert parts.test.tolist() == []
    assert [len(part) for part in cole_split(82081)[:2]] == [65665, 16416]
    assert [len(part) for part in cole_split(5994)[:2]] == [4795, 1199]
    assert len(cole_split(10, val_fraction=0).val) == 0
    assert not np.array_equal(cole_split(100).val, cole_split(100, seed=1).val)


DRAWS = ["uniform", "frequency", "cole", "label propensity", "row propensity"]


def how_of(name, Y):
    if name == "label propensity":
        return np.arange(1, Y.shape[1] + 1)
    if name == "row propensity":
        return np.random.default_rng(0).uniform(0.1, 1, Y.shape)
    return name


@pytest.mark.parametrize("name", DRAWS)
def test_one_positive_per_row(name):
    Y = skewed_labels(1)
    assert not Y.any(axis=1).all()
    before = Y.copy()
    observed = draw_single_positive(Y, 5, how_of(name, Y))
    assert observed.dtype == np.uint8
    assert observed.shape == Y.shape
    assert np.array_equal(observed.sum(axis=1), Y.any(axis=1))
    assert np.all(observed <= Y)
    assert np.array_equal(Y, before)


@pytest.mark.parametrize("name", DRAWS)
def test_draw_is_decided_by_its_seed(name):
    Y = skewed_labels(2)
    how = how_of(name, Y)
    first = draw_single_positive(Y, 5, how)
    assert np.array_equal(first, draw_single_positive(Y, 5, how))
    assert not np.array_equal(first, draw_single_positive(Y, 6, how))
    for other in (Y.astype(bool), Y.astype(float), Y.tolist(), np.asfortranarray(Y), sparse.csr_array(Y)):
        assert np.array_equal(first, draw_single_positive(other, 5, how))


@pytest.mark.parametrize("name", DRAWS)
def test_draw_of_nothing(name):
    for shape in [(0, 3), (4, 3), (4, 0)]:
        Y = np.zeros(shape, dtype=np.uint8)
        assert np.array_equal(draw_single_positive(Y, 0, how_of(name, Y)), Y)


def test_global_generator_is_left_alone():
    Y = skewed_labels(n=200)
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()  # noqa: NPY002
    for seed in (0, None):
        split(Y, seed)
        split(Y, seed, stratify=True)
        draw_single_positive(Y, seed)
    cole_split(100)
    for name in DRAWS:
        draw_single_positive(Y, 0, how_of(name, Y))
    after = np.random.get_state()  # noqa: NPY002
    assert np.array_equal(before[1], after[1])
    assert before[2] == after[2]


def drawn_counts(Y_row, how, n=30_000):
    return draw_single_positive(np.tile(Y_row, (n, 1)), 3, how).sum(axis=0)


@pytest.mark.parametrize("how", ["uniform", "cole", [1, 1, 1, 1, 1], "frequency"])
def test_uniform_draw_is_uniform(how):
    # Every row is the same, so the frequencies are equal as well.
    counts = drawn_counts([1, 0, 1, 1, 0], how)
    assert counts[[1, 4]].tolist() == [0, 0]
    assert stats.chisquare(counts[[0, 2, 3]]).pvalue > 1e-3


def test_frequency_draw_is_proportional():
    rng = np.random.default_rng(0)
    Y = (rng.random((40_000, 4)) < [0.8, 0.4, 0.2, 0.1]).astype(np.uint8)
    frequency = Y.sum(axis=0)
    observed = draw_single_positive(Y, 1, "frequency")
    for positives in ([0, 1, 2], [1, 3], [0, 1, 2, 3]):
        pattern = np.isin(np.arange(4), positives)
        counts = observed[np.all(pattern == Y, axis=1)].sum(axis=0)[positives]
        expected = frequency[positives] / frequency[positives].sum() * counts.sum()
        assert stats.chisquare(counts, expected).pvalue > 1e-3


@pytest.mark.parametrize("scale", [1, 1e-310, 1e300])
def test_propensity_draw_is_proportional(scale):
    counts = drawn_counts([1, 1, 1, 0], np.array([1, 2, 0, 9]) * scale)
    assert counts[2] == 0
    assert stats.binomtest(int(counts[1]), 30_000, 2 / 3).pvalue > 1e-3


def test_row_propensities_act_row_by_row():
    Y = np.ones((6, 3))
    propensity = np.eye(3)[[0, 2, 1, 1, 0, 2]]
    assert np.array_equal(draw_single_positive(Y, 0, propensity), propensity)


def naive_cole_draw(Y, seed, negatives_too=True):
    generator = np.random.RandomState(seed)
    observed = np.zeros_like(Y)
    for i in range(len(Y)):
        positives = [j for j in range(Y.shape[1]) if Y[i, j] == 1]
        negatives = [j for j in range(Y.shape[1]) if Y[i, j] == 0]
        generator.shuffle(positives)
        if negatives_too:
            generator.shuffle(negatives)
        if positives:
            observed[i, positives[0]] = 1
    return observed


@pytest.mark.parametrize("seed", [1200, 0])
def test_cole_draw_is_the_published_procedure(seed):
    Y = skewed_labels(4, n=500)
    observed = draw_single_positive(Y, seed, "cole")
    assert np.array_equal(observed, naive_cole_draw(Y, seed))
    assert not np.array_equal(observed, naive_cole_draw(Y, seed, negatives_too=False))


def test_as_indicator_from_indices():
    expected = [[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert as_indicator([2, 0, -1], 4).tolist() == expected
    assert as_indicator(np.array([2, 0, -1], dtype=np.int8)).tolist() == [row[:3] for row in expected]
    assert as_indicator(np.array([1, 0], dtype=np.uint64)).tolist() == [[0, 1], [1, 0]]
    assert as_indicator(np.array([], dtype=int), 2).shape == (0, 2)
    assert as_indicator([-1, -1], 2).tolist() == [[0, 0], [0, 0]]


def test_as_indicator_from_an_indicator_is_a_copy():
    Y = skewed_labels(n=10)
    copy = as_indicator(Y, Y.shape[1])
    assert np.array_equal(copy, Y)
    assert copy.dtype == np.uint8
    assert not np.shares_memory(copy, Y)
    assert not np.shares_memory(as_indicator(Y.astype(bool)), Y)
    assert np.array_equal(as_indicator(sparse.csr_array(Y)), Y)


@settings(deadline=None)
@given(st.lists(st.integers(-1, 5), min_size=1))
def test_as_indicator_round_trip(labels):
    indicator = as_indicator(labels, 6)
    assert np.where(indicator.any(axis=1), indicator.argmax(axis=1), -1).tolist() == labels
    assert indicator.sum(axis=1).max() <= 1


Y_SMALL = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: split(np.zeros((9, 2)), 0, (0.8, 0.1, 0.2)),
            r"fractions must be three numbers >= 0 that sum to 1; \(0\.8, 0\.1, 0\.2\) was given\. Use for instance",
        ),
        (lambda: split(np.zeros((9, 2)), 0, (1.2, -0.1, -0.1)), "three numbers >= 0"),
        (lambda: split(np.zeros((9, 2)), 0, (0.9, 0.1)), "three numbers >= 0"),
        (
            lambda: split(np.zeros((5, 2)), 0),
            r"every part must get a row; 5 rows leave test \(fraction 0\.1\) empty\. Give more rows",
        ),
        (lambda: split(np.zeros((0, 2)), 0), "0 rows leave train"),
        (lambda: split([[0, 3]] * 10, 0, stratify=True), "Y must hold only 0 and 1; row 0, column 1 holds 3"),
        (lambda: split(np.zeros((2, 2, 2)), 0, stratify=True), r"its shape is \(2, 2, 2\)"),
        (
            lambda: draw_single_positive([[1, 0], [1, -1]], 0),
            r"Y must hold only 0 and 1; row 1, column 1 holds -1\. Mark a positive",
        ),
        (
            lambda: draw_single_positive(sparse.csr_array([[1, 0], [1, 7]]), 0),
            "Y must hold only 0 and 1; row 1, column 1 holds 7",
        ),
        (lambda: draw_single_positive([1, 0], 0), r"Y must be a 0/1 matrix \(rows, labels\); its shape is \(2,\)"),
        (lambda: draw_single_positive(Y_SMALL, 0, "random"), "how must be 'uniform', .*; 'random' was given"),
        (
            lambda: draw_single_positive(Y_SMALL, 0, [1, 2]),
            r"propensities must have shape \(3,\) or \(3, 3\); theirs is \(2,\)\. Give one per label",
        ),
        (lambda: draw_single_positive(Y_SMALL, 0, [1, -2, 1]), r">= 0; label 1 has -2\.0\. Use 0 for labels"),
        (
            lambda: draw_single_positive(Y_SMALL, 0, np.where(np.eye(3), np.nan, 1)[::-1]),
            "row 0, column 2 has nan",
        ),
        (
            lambda: draw_single_positive(Y_SMALL, 0, [1, 0, 1]),
            "one of propensity > 0; all positives of row 1 have 0. Raise one of them or drop the row",
        ),
        (lambda: draw_single_positive(Y_SMALL, None, "cole"), "needs its integer seed; None was given. Use 1200"),
        (lambda: as_indicator([0, 3], 3), "must be -1 .none. or 0 to 2; row 1 holds 3. Number the labels from 0"),
        (lambda: as_indicator([0, -2]), "row 1 holds -2"),
        (lambda: as_indicator([-1, -1]), "the number of labels must be known; no row names one. Give n_labels"),
        (lambda: as_indicator([[0, 1]], 3), "one column per label, 3; it has 2. Give all labels a column"),
        (lambda: as_indicator([[0, 2]]), "observed must hold only 0 and 1; row 0, column 1 holds 2"),
        (lambda: as_indicator(1), r"observed must be a 0/1 matrix \(rows, labels\); its shape is \(\)"),
    ],
)
def test_wrong_input_gets_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize("labels", [[0.0, 1.0], ["a", "b"], [True, False]])
def test_label_vectors_hold_integers(labels):
    with pytest.raises(TypeError, match="a vector of labels must hold integers, -1 for none; its type is"):
        as_indicator(labels)
