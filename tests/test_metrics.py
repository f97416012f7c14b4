"""Metrics: hand-computed values, naive loops written from the definitions, and scikit-learn."""

import math
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from onepos import metrics
from onepos.metrics import METRICS, evaluate, per_label

RANKING = ("ranking_loss", "one_error", "coverage", "average_precision", "map")


def random_case(seed, n=40, c=7, tied=False, empty_rows=False):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, c)) < rng.uniform(0.1, 0.8, c)).astype(np.uint8)
    scores = rng.normal(size=(n, c)) + Y
    if empty_rows:
        Y[::5] = 0
        Y[1::7] = 1
    else:
        Y[np.arange(n), rng.integers(c, size=n)] = 1
    return Y, np.round(scores) if tied else scores


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else math.nan


def naive_ranking_loss(Y, scores):
    losses = []
    for y, s in zip(Y, scores, strict=True):
        pairs = [(j, k) for j in range(len(y)) for k in range(len(y)) if y[j] == 1 and y[k] == 0]
        if pairs:
            losses.append(mean(s[j] <= s[k] for j, k in pairs))
    return mean(losses)


def naive_one_error(Y, scores):
    return mean(any(s[j] == max(s) and y[j] == 0 for j in range(len(y))) for y, s in zip(Y, scores, strict=True))


def naive_coverage(Y, scores):
    depths = []
    for y, s in zip(Y, scores, strict=True):
        ranks = [sum(other >= s[j] for other in s) for j in range(len(y)) if y[j] == 1]
        depths.append(max(ranks, default=0))
    return (mean(depths) - 1) / len(Y[0])


def naive_row_precision(y, s):
    terms = []
    for j in range(len(y)):
        if y[j] == 1:
            above = [k for k in range(len(y)) if s[k] >= s[j]]
            terms.append(sum(int(y[k]) for k in above) / len(above))
    return mean(terms)


def naive_average_precision(Y, scores):
    return mean(naive_row_precision(y, s) for y, s in zip(Y, scores, strict=True) if sum(y) > 0)


def naive_map(Y, scores):
    """Area under the steps of the precision-recall curve, one step per distinct score."""
    areas = []
    for y, s in zip(Y.T, scores.T, strict=True):
        if sum(y) == 0:
            continue
        area, recall = 0.0, 0.0
        for threshold in sorted(set(s.tolist()), reverse=True):
            hits = sum(int(y[i]) for i in range(len(y)) if s[i] >= threshold)
            new_recall = hits / sum(int(v) for v in y)
            area += (new_recall - recall) * hits / sum(v >= threshold for v in s)
            recall = new_recall
        areas.append(area)
    return mean(areas)


def naive_hamming_loss(Y, predicted):
    return mean(a != b for y, p in zip(Y, predicted, strict=True) for a, b in zip(y, p, strict=True))


def naive_f1(pairs):
    tp = sum(a == 1 and b == 1 for a, b in pairs)
    fp = sum(a == 0 and b == 1 for a, b in pairs)
    fn = sum(a == 1 and b == 0 for a, b in pairs)
    return 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else math.nan


def naive_macro_f1(Y, predicted):
    columns = zip(Y.T, predicted.T, strict=True)
    return mean(naive_f1(list(zip(y, p, strict=True))) for y, p in columns if sum(y) > 0)


def naive_micro_f1(Y, predicted):
    return naive_f1(list(zip(Y.ravel(), predicted.ravel(), strict=True)))


NAIVE = {
    "ranking_loss": naive_ranking_loss,
    "hamming_loss": naive_hamming_loss,
    "one_error": naive_one_error,
    "coverage": naive_coverage,
    "average_precision": naive_average_precision,
    "map": naive_map,
    "macro_f1": naive_macro_f1,
    "micro_f1": naive_micro_f1,
}


@pytest.mark.parametrize("empty_rows", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", METRICS)
def test_equals_the_naive_loop(name, seed, tied, empty_rows):
    Y, scores = random_case(seed, tied=tied, empty_rows=empty_rows)
    second = scores if METRICS[name].uses == "scores" else (scores > 0.5).astype(int)
    assert METRICS[name].function(Y, second) == pytest.approx(NAIVE[name](Y, second), abs=1e-12)


labels_and_scores = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6).flatmap(
    lambda shape: st.tuples(
        hnp.arrays(np.uint8, shape, elements=st.integers(0, 1)),
        # Few distinct values, so that most cases have ties.
        hnp.arrays(np.float64, shape, elements=st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.0, 3.0])),
    )
)


@settings(deadline=None)
@given(labels_and_scores)
def test_equals_the_naive_loop_on_any_small_case(case):
    Y, scores = case
    found = evaluate(Y, scores)
    for name, metric in METRICS.items():
        second = scores if metric.uses == "scores" else (scores > 0.5).astype(int)
        assert found[name] == pytest.approx(NAIVE[name](Y, second), abs=1e-12, nan_ok=True), name


@settings(deadline=None)
@given(labels_and_scores)
def test_stays_in_its_range(case):
    Y, scores = case
    for name, value in evaluate(Y, scores).items():
        lowest = -1 / Y.shape[1] if name == "coverage" else 0
        assert math.isnan(value) or lowest <= value <= 1 + 1e-12


@settings(deadline=None)
@given(labels_and_scores)
def test_coverage_is_at_least_ranking_loss(case):
    Y, scores = case
    c = Y.shape[1]
    for y, s in zip(Y, scores, strict=True):
        if y.any():
            loss = metrics.ranking_loss([y], [s])
            assert math.isnan(loss) or metrics.coverage([y], [s]) >= loss * (c - 1) / c - 1e-12


@settings(deadline=None)
@given(labels_and_scores)
def test_ranking_metrics_ignore_increasing_transforms(case):
    Y, scores = case
    before = evaluate(Y, scores, names=RANKING)
    for transformed in (np.exp(scores), 1 / (1 + np.exp(-scores)), 5 * scores - 100, scores.astype(np.float32)):
        assert evaluate(Y, transformed, names=RANKING) == pytest.approx(before, nan_ok=True)


@settings(deadline=None)
@given(labels_and_scores, st.randoms(use_true_random=False))
def test_order_of_rows_and_labels_does_not_matter(case, random):
    Y, scores = case
    rows, columns = list(range(Y.shape[0])), list(range(Y.shape[1]))
    random.shuffle(rows)
    random.shuffle(columns)
    permuted = evaluate(Y[rows][:, columns], scores[rows][:, columns])
    assert permuted == pytest.approx(evaluate(Y, scores), nan_ok=True)


@settings(deadline=None)
@given(labels_and_scores)
def test_perfect_and_reversed_scores(case):
    Y, _ = case
    perfect = evaluate(Y, Y.astype(float))
    if Y.sum() > 0:
        assert perfect["average_precision"] == perfect["map"] == perfect["macro_f1"] == perfect["micro_f1"] == 1
    assert perfect["hamming_loss"] == 0
    if np.any((Y.sum(axis=1) > 0) & (Y.sum(axis=1) < Y.shape[1])):
        assert perfect["ranking_loss"] == 0
        assert metrics.ranking_loss(Y, -Y.astype(float)) == 1


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_equals_scikit_learn(seed, tied):
    Y, scores = random_case(seed, n=60, c=9, tied=tied)
    Y[:, 0] = Y[0] = 0
    Y[0, 1] = Y[1, 0] = 1  # no row is empty or full, no label is empty
    Y[Y.all(axis=1), 0] = 0
    c, predicted = Y.shape[1], (scores > 0.5).astype(np.uint8)
    found = evaluate(Y, scores)
    expected = {
        "ranking_loss": sklearn.metrics.label_ranking_loss(Y, scores),
        "coverage": (sklearn.metrics.coverage_error(Y, scores) - 1) / c,
        "average_precision": sklearn.metrics.label_ranking_average_precision_score(Y, scores),
        "map": sklearn.metrics.average_precision_score(Y, scores, average="macro"),
        "hamming_loss": sklearn.metrics.hamming_loss(Y, predicted),
        "macro_f1": sklearn.metrics.f1_score(Y, predicted, average="macro"),
        "micro_f1": sklearn.metrics.f1_score(Y, predicted, average="micro"),
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-12), name


@pytest.mark.parametrize("tied", [False, True])
def test_rows_without_labels_against_scikit_learn(tied):
    Y, scores = random_case(3, tied=tied, empty_rows=True)
    n_labels = Y.sum(axis=1)
    some, mixed = n_labels > 0, (n_labels > 0) & (n_labels < Y.shape[1])
    assert not some.all()
    assert mixed.sum() < some.sum()
    # Coverage agrees on all rows; the others once the rows they skip are dropped (scikit-learn counts them as
    # perfect).
    assert metrics.coverage(Y, scores) * Y.shape[1] + 1 == pytest.approx(sklearn.metrics.coverage_error(Y, scores))
    assert metrics.average_precision(Y, scores) == pytest.approx(
        sklearn.metrics.label_ranking_average_precision_score(Y[some], scores[some])
    )
    assert metrics.ranking_loss(Y, scores) == pytest.approx(sklearn.metrics.label_ranking_loss(Y[mixed], scores[mixed]))
    full = sklearn.metrics.label_ranking_loss(Y, scores)
    assert metrics.ranking_loss(Y, scores) * mixed.sum() == pytest.approx(full * len(Y))


def test_label_without_positives_against_scikit_learn():
    Y, scores = random_case(5)
    Y[:, 2] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns that it takes 0
        cole = sklearn.metrics.average_precision_score(Y, scores, average=None)
    assert metrics.mean_average_precision(Y, scores, empty="zero") == pytest.approx(cole.mean())
    assert metrics.mean_average_precision(Y, scores) == pytest.approx(np.delete(cole, 2).mean())


Y_HAND = [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
SCORES_HAND = [[0.9, 0.6, 0.4, 0.1], [0.3, 0.2, 0.8, 0.2], [0.7, 0.1, 0.2, 0.3]]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # Row 1: of its four pairs only (third, second) is wrong. Row 2: (second, first), (second, third) and
        # the tie with the fourth are wrong. Row 3 is skipped.
        ("ranking_loss", (1 / 4 + 3 / 3) / 2),
        ("one_error", (0 + 1 + 1) / 3),
        ("coverage", ((3 + 4 + 0) / 3 - 1) / 4),
        ("average_precision", ((1 / 1 + 2 / 3) / 2 + 1 / 4) / 2),
        # Label 1 ranks its only row first; label 2 second; label 3 second; label 4 has no row.
        ("map", (1 + 1 / 2 + 1 / 2) / 3),
        # Above 0.5: row 1 {1, 2}, row 2 {3}, row 3 {1}. Wrong: (1,2) (1,3), (2,2) (2,3), (3,1).
        ("hamming_loss", 5 / 12),
        ("macro_f1", (2 / 3 + 0 + 0) / 3),
        ("micro_f1", 2 / (3 + 4)),
    ],
)
def test_by_hand(name, value):
    assert evaluate(Y_HAND, SCORES_HAND)[name] == pytest.approx(value)


def test_all_scores_tied_is_the_worst_case():
    Y, scores = [[1, 0, 0, 1]], np.zeros((1, 4))
    assert metrics.ranking_loss(Y, scores) == 1
    assert metrics.one_error(Y, scores) == 1
    assert metrics.coverage(Y, scores) == 3 / 4
    assert metrics.average_precision(Y, scores) == 2 / 4


def test_tied_top_labels_that_are_all_relevant_are_no_error():
    assert metrics.one_error([[1, 1, 0]], [[2, 2, 1]]) == 0


def test_zero_and_minus_zero_tie():
    assert metrics.ranking_loss([[1, 0], [0, 1]], [[0.0, -0.0], [0.0, -0.0]]) == 1


def test_hits_at_the_threshold_are_not_decided():
    assert evaluate([[0, 1]], [[0.5, 0.51]], names=["hamming_loss"]) == {"hamming_loss": 0}


def test_no_label_anywhere():
    found = evaluate(np.zeros((3, 4)), np.arange(12).reshape(3, 4) - 100)
    assert found.pop("one_error") == 1
    assert found.pop("coverage") == -1 / 4
    assert found.pop("hamming_loss") == 0
    assert len(found) == 5
    assert all(math.isnan(value) for value in found.values())


def test_every_label_everywhere():
    found = evaluate(np.ones((3, 4)), np.arange(12).reshape(3, 4))
    assert math.isnan(found["ranking_loss"])
    assert found["coverage"] == 3 / 4
    assert found["one_error"] == 0
    assert found["average_precision"] == found["map"] == 1


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_no_rows_or_no_labels(shape):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = evaluate(np.zeros(shape), np.zeros(shape))
    assert all(math.isnan(value) for value in found.values())
    assert len(per_label(np.zeros(shape), np.zeros(shape))) == shape[1]


def test_label_without_positives():
    Y, scores = [[1, 0], [0, 0]], [[2.0, 1.0], [1.0, 2.0]]
    assert metrics.mean_average_precision(Y, scores) == 1
    assert metrics.mean_average_precision(Y, scores, empty="zero") == 0.5
    assert math.isnan(metrics.mean_average_precision(np.zeros((2, 2)), scores))
    assert metrics.mean_average_precision(np.zeros((2, 2)), scores, empty="zero") == 0
    assert metrics.macro_f1(Y, [[1, 1], [0, 1]]) == 1
    assert metrics.micro_f1(Y, [[1, 1], [0, 1]]) == 2 / 4


def test_metrics_table():
    assert list(METRICS) == list(NAIVE)
    assert all(metric.name == name for name, metric in METRICS.items())
    down = {name for name, metric in METRICS.items() if not metric.greater_is_better}
    assert down == {"ranking_loss", "hamming_loss", "one_error", "coverage"}


def test_evaluate_keeps_the_order_asked_for_and_gives_plain_floats():
    Y, scores = random_case(0)
    found = evaluate(Y, scores, names=["map", "coverage"])
    assert list(found) == ["map", "coverage"]
    assert all(type(value) is float for value in evaluate(Y, scores).values())
    assert all(type(value) is float for value in evaluate(np.zeros((2, 2)), np.zeros((2, 2))).values())


def test_threshold_per_label():
    Y, scores = random_case(1)
    limit = np.linspace(-1, 1, Y.shape[1])
    shifted = evaluate(Y, scores - limit, threshold=0)
    assert evaluate(Y, scores, threshold=limit)["macro_f1"] == shifted["macro_f1"]
    assert evaluate(Y, scores, threshold=np.inf)["hamming_loss"] == pytest.approx(Y.mean())


def test_per_label():
    Y = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 0, 0]])
    scores = np.array([[3, -1, -1], [-1, -2, 2], [1, -3, -1], [2, -1, -2]])
    table = per_label(Y, scores, threshold=0, label_names=["a", "b", "c"])
    assert table.index.tolist() == ["a", "b", "c"]
    nan = math.nan
    expected = {
        "n_positive": [3, 2, 0],
        "share": [0.75, 0.5, 0],
        "predicted_share": [0.75, 0, 0.25],
        # a: positives ranked 1, 2, 4. b: ranked 3 and 4 after two tied negatives.
        "average_precision": [(1 + 1 + 3 / 4) / 3, (1 / 3 + 2 / 4) / 2, nan],
        "precision": [2 / 3, nan, 0],
        "recall": [2 / 3, 0, nan],
        "f1": [2 / 3, 0, nan],
    }
    assert list(table.columns) == list(expected)
    for column, values in expected.items():
        assert table[column].tolist() == pytest.approx(values, nan_ok=True), column


def test_per_label_means_are_the_metrics():
    Y, scores = random_case(2, tied=True)
    Y[:, 3] = 0
    table, found = per_label(Y, scores), evaluate(Y, scores)
    assert table.index.tolist() == list(range(7))
    assert table["average_precision"].mean() == pytest.approx(found["map"])
    assert table["f1"].mean() == pytest.approx(found["macro_f1"])


def test_blocks_do_not_show(monkeypatch):
    Y, scores = random_case(4, tied=True, empty_rows=True)
    before = evaluate(Y, scores)
    monkeypatch.setattr(metrics, "_BLOCK", 15)
    assert evaluate(Y, scores) == pytest.approx(before)


def test_kinds_of_input_give_one_answer():
    Y, scores = random_case(6)
    before = evaluate(Y, scores)
    for labels in (Y.tolist(), Y.astype(bool), Y.astype(float), np.asfortranarray(Y), sparse.csr_array(Y)):
        assert evaluate(labels, np.asfortranarray(scores)) == before
    halves = np.round(scores * 2).astype(np.int8)
    assert evaluate(Y, halves) == evaluate(Y, halves.astype(np.float16)) == evaluate(Y, halves.tolist())


class TestDataFrames:
    """Columns are matched by name."""

    names = ("sky", "sea", "sun", "sand", "surf", "sail", "salt")
    turned = names[::-1]

    @pytest.fixture
    def case(self):
        Y, scores = random_case(5)
        return Y, scores, pd.DataFrame(Y, columns=self.names), pd.DataFrame(scores, columns=self.names)

    @pytest.mark.parametrize("name", METRICS)
    def test_another_order_of_columns(self, case, name):
        Y, scores, labels, frame = case
        metric = METRICS[name]
        given, named = (scores, frame) if metric.uses == "scores" else (scores > 0, frame > 0)
        expected = metric.function(Y, given)
        assert metric.function(Y[:, ::-1], given) != expected, "the order matters"
        assert metric.function(labels[list(self.turned)], named) == expected
        assert metric.function(labels, named[list(self.turned)]) == pytest.approx(expected, rel=1e-12)

    def test_evaluate_thresholds_and_decisions(self, case):
        Y, scores, labels, frame = case
        limit = np.linspace(-1, 2, 7)
        expected = evaluate(Y, scores, limit)
        assert evaluate(labels[list(self.turned)], frame, limit) == expected, "thresholds go with the scores"
        decisions = (frame > limit)[list(self.turned)]
        assert evaluate(labels[list(self.turned)], frame, decisions=decisions) == expected
        assert evaluate(Y, scores, decisions=scores > limit) == expected != evaluate(Y, scores, decisions=scores > 0)

    def test_per_label_takes_the_names(self, case):
        Y, scores, labels, frame = case
        expected = per_label(Y, scores, 0, self.names)
        turned = labels[list(self.turned)]
        for table in (
            per_label(turned, frame, 0),
            per_label(labels, scores, 0),
            per_label(labels, pd.DataFrame(scores), 0),
            per_label(Y, frame, decisions=scores > 0),
            per_label(turned, frame[list(self.turned)], 0).loc[list(self.names)],
        ):
            pd.testing.assert_frame_equal(table, expected)

    def test_columns_without_names_go_by_their_place(self, case):
        Y, scores, labels, frame = case
        expected = evaluate(Y, scores)
        for first, second in ((labels, pd.DataFrame(scores)), (pd.DataFrame(Y), frame), (labels, scores), (Y, frame)):
            assert evaluate(first, second) == expected

    def test_numbers_as_names(self, case):
        Y, scores, _, _ = case
        turned = pd.DataFrame(scores)[[6, 5, 4, 3, 2, 1, 0]]
        assert evaluate(pd.DataFrame(Y), turned, 0) == pytest.approx(evaluate(Y, scores, 0), rel=1e-12)
        with pytest.raises(ValueError, match="'0' only in Y and '7' only in scores"):
            evaluate(pd.DataFrame(Y), pd.DataFrame(scores, columns=range(1, 8)).rename(columns=int))

    @pytest.mark.parametrize(
        ("columns", "found"),
        [
            (["sky", "sea", "sun", "sand", "surf", "sail", "sole"], "'salt' only in Y and 'sole' only in scores"),
            (list("abcdefg"), "'sand', 'surf', … only in Y and 'a', 'b', 'c', 'd', 'e', … only in scores"),
            (["sky", "sky", "sun", "sand", "surf", "sail", "salt"], "'sea' only in Y"),
        ],
    )
    def test_other_names_are_refused(self, case, columns, found):
        _, scores, labels, _ = case
        frame = pd.DataFrame(scores, columns=columns)
        with pytest.raises(ValueError, match=found) as error:
            evaluate(labels, frame)
        assert str(error.value).startswith("the columns of Y and scores must have the same names, each once; ")
        with pytest.raises(ValueError, match="the columns of Y and predicted must have the same names"):
            metrics.macro_f1(labels, frame > 0)

    def test_a_repeated_name_is_refused(self):
        frame = pd.DataFrame([[1, 0, 0]], columns=["a", "a", "b"])
        with pytest.raises(ValueError, match="each once; 'a' is there twice"):
            evaluate(frame, frame[["b"]].join(pd.DataFrame([[0.5]], columns=["a"])))

    def test_decisions_of_another_shape_are_refused(self, case):
        Y, scores, _, _ = case
        with pytest.raises(
            ValueError, match=r"decisions and scores must have one shape \(n, c\); theirs are \(40, 6\)"
        ):
            evaluate(Y, scores, decisions=Y[:, :6])


def test_input_is_not_modified():
    Y, scores = random_case(7, tied=True)
    copies = Y.copy(), scores.copy()
    Y.setflags(write=False)
    scores.setflags(write=False)
    evaluate(Y, scores)
    per_label(Y, scores)
    assert np.array_equal(Y, copies[0])
    assert np.array_equal(scores, copies[1])


def test_extra_memory_stays_below_the_scores():
    rng = np.random.default_rng(0)
    Y, scores = (rng.random((2000, 983)) < 0.02).astype(np.uint8), rng.normal(size=(2000, 983))
    metrics.average_precision(Y[:10], scores[:10])
    tracemalloc.start()
    evaluate(Y, scores)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < scores.nbytes


def value_with(array, place, value):
    array = np.array(array, dtype=float)
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: metrics.ranking_loss(np.zeros((3, 2)), np.zeros((2, 3))),
            r"Y and scores must have one shape \(n, c\); theirs are \(3, 2\) and \(2, 3\)\. Give the same rows",
        ),
        (
            lambda: metrics.hamming_loss(np.zeros((3, 2)), np.zeros((3, 1))),
            r"Y and predicted must have one shape \(n, c\); theirs are \(3, 2\) and \(3, 1\)\.",
        ),
        (lambda: metrics.coverage([1, 0], [1, 0]), r"Y must be a 0/1 matrix \(rows, labels\); its shape is \(2,\)"),
        (
            lambda: metrics.one_error(value_with(Y_HAND, (1, 2), -1), SCORES_HAND),
            r"Y must hold only 0 and 1; row 1, column 2 holds -1\.0\. Mark a positive",
        ),
        (lambda: metrics.one_error(value_with(Y_HAND, (0, 3), np.inf), SCORES_HAND), "row 0, column 3 holds inf"),
        (lambda: metrics.one_error(np.array([[0, 2]], dtype=np.uint8), [[0, 1]]), "row 0, column 1 holds 2"),
        (lambda: metrics.one_error([["a", "b"]], [[0, 1]]), "row 0, column 0 holds 'a'"),
        (
            lambda: metrics.average_precision(Y_HAND, value_with(SCORES_HAND, (2, 1), np.inf)),
            r"scores must be finite; row 2, column 1 holds inf\. Give logits",
        ),
        (lambda: evaluate(Y_HAND, value_with(SCORES_HAND, (2, 0), np.nan)), "row 2, column 0 holds NaN"),
        (
            lambda: metrics.macro_f1(Y_HAND, SCORES_HAND),
            r"predicted must hold only 0 and 1; row 0, column 0 holds 0\.9",
        ),
        (
            lambda: evaluate(Y_HAND, SCORES_HAND, threshold=[0.5, 0.5]),
            r"threshold must be one number, or one for each of the 4 labels; its shape is \(2,\)\.",
        ),
        (lambda: evaluate(Y_HAND, SCORES_HAND, threshold=[0, 0, np.nan, 0]), "that of label 2 is NaN"),
        (lambda: evaluate(Y_HAND, SCORES_HAND, threshold=np.nan), "threshold must be a number; it is NaN. Use inf"),
        (
            lambda: evaluate(Y_HAND, SCORES_HAND, names=["rank_loss"]),
            "unknown metric 'rank_loss'; did you mean 'ranking_loss'",
        ),
        (lambda: evaluate(Y_HAND, SCORES_HAND, names=["xyz"]), "unknown metric 'xyz'; choose from ranking_loss, "),
        (
            lambda: metrics.mean_average_precision(Y_HAND, SCORES_HAND, empty="nan"),
            "empty must be 'skip' or 'zero'; 'nan'",
        ),
        (lambda: per_label(Y_HAND, SCORES_HAND, label_names=["a"]), "one name per label, 4; 1 were given"),
    ],
)
def test_wrong_input_gets_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_titles_within_a_sentence():
    words = {name: metric.words for name, metric in METRICS.items()}
    assert words["average_precision"] == "average precision"
    assert (words["map"], words["macro_f1"], words["one_error"]) == ("mAP", "macro-F1", "one-error")
