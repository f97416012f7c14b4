"""Splits and single-positive draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats

from onepos.protocol import as_indicator, cole_split, draw_single_positive, train_val_test_split


def skewed_labels(seed=0, n=3000, c=25, rarest=0.004):
    rng = np.random.default_rng(seed)
    return (rng.random((n, c)) < np.geomspace(0.4, rarest, c)).astype(np.uint8)


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
def test_sizes_of_the_paper(n, sizes):
    parts = train_val_test_split(skewed_labels(n=n, c=6), 0)
    assert [len(part) for part in parts] == sizes


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(4, 60),
    c=st.integers(0, 8),
    density=st.floats(0, 1),
    weights=st.tuples(*[st.integers(0, 5)] * 3).filter(any),
)
def test_parts_hold_every_row_once(seed, n, c, density, weights):
    Y = (np.random.default_rng(seed).random((n, c)) < density).astype(np.uint8)
    fractions = np.array(weights) / sum(weights)
    try:
        parts = train_val_test_split(Y, seed, fractions)
    except ValueError as error:
        assert "empty" in str(error)  # noqa: PT017 (few rows may leave a part empty)
        return
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert [len(part) for part in parts] == [len(part) for part in train_val_test_split(Y, 0, fractions)]
    for part, fraction in zip(parts, fractions, strict=True):
        assert part.dtype == np.int64
        assert np.array_equal(part, np.sort(part))
        assert abs(len(part) - n * fraction) < 1
        assert (len(part) == 0) == (fraction == 0)


def test_seed_decides():
    Y = skewed_labels()
    same = [train_val_test_split(Y, seed) for seed in (7, 7, np.random.default_rng(7))]
    for parts in same[1:]:
        assert all(map(np.array_equal, same[0], parts))
    assert not np.array_equal(train_val_test_split(Y, 8).train, same[0].train)
    generator = np.random.default_rng(7)
    first, second = (train_val_test_split(Y, generator) for _ in range(2))
    assert not np.array_equal(first.train, second.train)
    assert not np.array_equal(train_val_test_split(Y).train, train_val_test_split(Y).train)
    assert not np.array_equal(draw_single_positive(Y), draw_single_positive(Y))


def test_split_is_uniform():
    counts = sum(np.bincount(train_val_test_split(np.zeros((10, 1)), seed).test, minlength=10) for seed in range(2000))
    assert stats.chisquare(counts).pvalue > 1e-3


def test_split_accepts_anything_with_a_length():
    expected = train_val_test_split(np.zeros((20, 3)), 0)
    for rows in (["a", "b"] * 10, sparse.csr_matrix((20, 3))):
        assert all(map(np.array_equal, train_val_test_split(rows, 0), expected))


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
        train_val_test_split(Y, seed)
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
            lambda: train_val_test_split(np.zeros((9, 2)), 0, (0.8, 0.1, 0.2)),
            r"fractions must be three numbers >= 0 that sum to 1; \(0\.8, 0\.1, 0\.2\) was given\. Use for instance",
        ),
        (lambda: train_val_test_split(np.zeros((9, 2)), 0, (1.2, -0.1, -0.1)), "three numbers >= 0"),
        (lambda: train_val_test_split(np.zeros((9, 2)), 0, (0.9, 0.1)), "three numbers >= 0"),
        (
            lambda: train_val_test_split(np.zeros((5, 2)), 0),
            r"every part must get a row; 5 rows leave test \(fraction 0\.1\) empty\. Give more rows",
        ),
        (lambda: train_val_test_split(np.zeros((0, 2)), 0), "0 rows leave train"),
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
        (lambda: as_indicator([-1, -1]), "the number of labels must be known; no row has a label. Pass n_labels"),
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
