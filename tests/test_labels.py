"""Labels in every form: what is read, what is refused, laws, long tables, and one model from all forms."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from onepos import Labels, SinglePositiveClassifier
from onepos.long_labels import Answers

NAN = np.nan


def entries(labels):
    """Every entry as 1, 0 or NaN, also where there is no known negative."""
    return np.where(labels.positive.toarray(), 1, np.where(labels.negative.toarray(), 0, NAN))


# forms

SINGLE = np.array(["owl", "cat", "dog", "cat", "owl", "dog"])
TRUTH = (SINGLE[:, None] == np.array(["cat", "dog", "owl"])).astype(int)
"""One positive per row: every form below must say just this."""

ONE_PER_ROW = {
    "array of str": SINGLE,
    "array of objects": SINGLE.astype(object),
    "list": SINGLE.tolist(),
    "series": pd.Series(SINGLE),
    "categories": pd.Series(SINGLE).astype("category"),
    "nullable strings": pd.Series(SINGLE, dtype="string"),
    "column": pd.DataFrame({"label": SINGLE}),
    "lists": [[name] for name in SINGLE],
    "tuples": [(name,) for name in SINGLE],
    "sets": [{name} for name in SINGLE],
    "frozen sets": [frozenset({name}) for name in SINGLE],
    "series of lists": pd.Series([[name] for name in SINGLE]),
    "array of lists": np.array([*([name] for name in SINGLE), ["x", "y"]], object)[:6],
    "lists and names": [SINGLE[0], [SINGLE[1]], *SINGLE[2:]],
    "long": Labels.from_long({"item": range(6), "label": SINGLE}),
}


@pytest.mark.parametrize("form", ONE_PER_ROW)
def test_one_label_per_row(form):
    found = Labels.read(ONE_PER_ROW[form], 6, positives="single")
    np.testing.assert_array_equal(found.observed, TRUTH)
    assert found.classes.tolist() == ["cat", "dog", "owl"]
    assert found.known_negative is None
    assert not found.is_reviewed.any()


KNOWN = np.array([[1, 0, NAN], [NAN, 1, 1], [0, 0, 0], [NAN, NAN, NAN], [1, 0, 1], [0, 1, NAN]])
NAMES = ["ant", "bee", "cat"]


def nullable(dtype):
    return pd.DataFrame(
        {name: pd.array([None if np.isnan(v) else bool(v) for v in KNOWN[:, j]], dtype="boolean").astype(dtype)
         for j, name in enumerate(NAMES)}
    )  # fmt: skip


def known_forms():
    row, column = np.nonzero(~np.isnan(KNOWN))
    words = np.where(KNOWN[row, column] == 1, "yes", "no")
    names = np.array(NAMES)
    as_none = np.where(np.isnan(KNOWN), None, KNOWN.astype(object))
    return {
        "array": KNOWN,
        "float32": KNOWN.astype(np.float32),
        "list": KNOWN.tolist(),
        "list with None": as_none.tolist(),
        "objects with None": as_none,
        "objects with NA": np.where(np.isnan(KNOWN), pd.NA, KNOWN.astype(object)),
        "True and False": np.where(np.isnan(KNOWN), None, KNOWN == 1),
        "frame": pd.DataFrame(KNOWN, columns=NAMES),
        "frame of objects": pd.DataFrame(as_none, columns=NAMES, dtype=object),
        "Int64": nullable("Int64"),
        "boolean": nullable("boolean"),
        "Float64": nullable("Float64"),
        "long": Labels.from_long({"item": row, "label": names[column], "value": words}, range(6)),
        "long, any order": Labels.from_long(
            pd.DataFrame({"item": row, "label": names[column], "value": words}).sample(frac=1, random_state=0), range(6)
        ),
        "Labels": Labels.from_arrays(KNOWN == 1, KNOWN == 0, NAMES),
    }


@pytest.mark.parametrize("form", known_forms())
def test_yes_no_and_unknown(form):
    found = Labels.read(known_forms()[form], 6)
    np.testing.assert_array_equal(entries(found), KNOWN)
    assert found.classes.tolist() in (NAMES, [0, 1, 2])
    assert found.is_reviewed.tolist() == [True, False, True, False, True, True]
    assert found.is_complete.tolist() == [False, False, True, False, True, False]
    np.testing.assert_array_equal(found.to_array(), KNOWN)


PLAIN = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 0]])


@pytest.mark.parametrize(
    "form",
    [
        PLAIN,
        PLAIN.tolist(),
        PLAIN.astype(bool),
        PLAIN.astype(float),
        PLAIN.astype(object),
        sp.csr_matrix(PLAIN),
        sp.coo_array(PLAIN),
        sp.csc_array(PLAIN.astype(bool)),
        pd.DataFrame(PLAIN),
        pd.DataFrame(PLAIN).astype("Int64"),
        pd.DataFrame(PLAIN).astype("boolean"),
        [np.array(row) for row in PLAIN],
    ],
    ids=lambda form: type(form).__name__,
)
def test_without_a_gap_nothing_is_known_to_be_absent(form):
    found = Labels.read(form, 4)
    np.testing.assert_array_equal(found.observed, PLAIN)
    assert found.known_negative is None
    np.testing.assert_array_equal(found.to_array(), PLAIN)


def test_lists_of_several_or_no_labels():
    for rows in (
        [["b", "a"], [], ["c"]],
        [{"b", "a"}, set(), {"c"}],
        [("b", "a"), None, "c"],
        [["a", "b", "a"], [], ["c"]],
    ):
        found = Labels.read(rows, 3)
        assert (found.classes.tolist(), found.observed.tolist()) == (["a", "b", "c"], [[1, 1, 0], [0, 0, 0], [0, 0, 1]])
    equal = Labels.read([["a", "b"], ["b", "c"]], 2)
    assert equal.observed.tolist() == [[1, 1, 0], [0, 1, 1]], "names, though the rows are of equal length"
    numbers = Labels.read([{0, 7}, {1}], 2)
    assert (numbers.classes.tolist(), numbers.observed.tolist()) == ([0, 1, 7], [[1, 0, 1], [0, 1, 0]])
    assert Labels.read([[3, 7], [9]], 2).classes.tolist() == [3, 7, 9]


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([[0, 1], [1]], "its rows differ in length"),
        ([[0, 1], [np.int64(1)]], "its rows differ in length"),
        ([[1.0], [0.0, 1.0]], "its rows differ in length"),
        ([["0", "1"], ["1", "0"]], "row 0, column 0 holds '0'"),
        ([["a", 1], ["b", 0]], "y must hold labels of one kind"),
        ([[None], []], "every row is without"),
        ([[None], [None, None]], "every row is without"),
        ([["Dog"], ["dog", "cat"]], "holds 'Dog' and 'dog', which differ in upper and lower case only"),
        (["Dog", "dog"], "holds 'Dog' and 'dog'"),
        ([[1.0, 2.0], [NAN, 0.0]], "row 0, column 1 holds 2"),
        ([[[0, 1]], [[1, 0]]], "got 3 dimensions"),
        (["a", "b", "c"], "X has 2, y has 3"),
        ([["a", {"b": 1}], ["c"]], "mixes dict, str"),
        (pd.DataFrame({"item": [1, 2], "label": ["a", "b"]}), "it is a long table with a row per answer"),
    ],
)
def test_refused(y, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Labels.read(y, 2)


def test_one_positive_is_demanded_of_rows_without_review():
    Labels.read([[1, 0, 1], [1, NAN, NAN]], 2, positives="single")  # the first row is reviewed
    Labels.read([[1, 1], [0, NAN], [NAN, 1]], 3, positives="single")  # and of the first every label is known
    for rows in ([[1, 1, NAN], [1, 0, NAN]], [[NAN, NAN, NAN], [1, 0, NAN]], [[1, 1, 1], [1, NAN, NAN]]):
        with pytest.raises(ValueError, match=r"1 of 2 rows hold (several|none), the first is row 0"):
            Labels.read(rows, 2, positives="single")
        Labels.read(rows, 2)


# laws

cells = st.sampled_from([1.0, 0.0, NAN])
matrices = st.integers(1, 6).flatmap(
    lambda n: st.integers(2, 4).flatmap(
        lambda c: st.lists(st.lists(cells, min_size=c, max_size=c), min_size=n, max_size=n).map(np.array)
    )
)


@settings(max_examples=60, deadline=None)
@given(matrices)
def test_reading_and_writing_are_inverse(Y):
    Y = np.vstack([Y, np.full(Y.shape[1], NAN)])  # with a gap, 0 is a known no
    found = Labels.read(Y, len(Y))
    np.testing.assert_array_equal(entries(found), Y)
    assert not found.positive.multiply(found.negative).nnz
    assert len(found) == len(Y)
    again = Labels.read(found, len(Y))
    np.testing.assert_array_equal(entries(again), Y)
    if (Y == 0).any():
        np.testing.assert_array_equal(found.to_array(), Y)
        np.testing.assert_array_equal(entries(Labels.read(found.to_array(), len(Y))), Y)
        np.testing.assert_array_equal(found.known_negative, Y == 0)
    else:
        np.testing.assert_array_equal(found.to_array(), Y == 1)
        assert found.known_negative is None


@settings(max_examples=60, deadline=None)
@given(matrices, st.randoms(use_true_random=False))
def test_rows_and_columns_may_be_taken_in_any_order(Y, random):
    Y = np.vstack([Y, np.full(Y.shape[1], NAN)])
    rows, columns = list(range(len(Y))), list(range(Y.shape[1]))
    random.shuffle(rows)
    random.shuffle(columns)
    names = np.array([f"l{j}" for j in columns])
    found = Labels.from_arrays(Y[:, columns] == 1, Y[:, columns] == 0, names).take(rows)
    back = Labels.read(found, len(Y), classes=np.array([f"l{j}" for j in range(Y.shape[1])]))
    np.testing.assert_array_equal(entries(back), Y[rows])


@settings(max_examples=60, deadline=None)
@given(matrices, st.randoms(use_true_random=False))
def test_a_long_table_says_the_same_in_any_order(Y, random):
    lines = [
        (f"i{i}", f"l{j}", {1: "yes", 0: "no"}.get(v, random.choice(["", "unsure", "?"])))
        for i, row in enumerate(Y)
        for j, v in enumerate(row)
    ]
    lines += [line for line in lines if random.random() < 0.3]  # the same answer twice is one
    random.shuffle(lines)
    table = pd.DataFrame(lines, columns=["item", "label", "value"])
    found = Labels.from_long(table, [f"i{i}" for i in range(len(Y))])
    np.testing.assert_array_equal(entries(found), Y)


def test_an_entry_is_not_both():
    both = np.eye(2, dtype=bool)
    with pytest.raises(ValueError, match="row 0 has both for the label 'a'"):
        Labels.from_arrays(both, both, ["a", "b"])
    with pytest.raises(ValueError, match="must have one shape, with a column per class"):
        Labels.from_arrays(both, None, ["a"])


# long tables


def long(*lines, columns=("item", "label", "value", "time")):
    return pd.DataFrame(lines, columns=columns[: len(lines[0])])


def test_the_latest_answer_counts():
    table = long(("a", "x", "no", "2026-03-01"), ("a", "x", "yes", "2026-01-31T12:00"), ("b", "x", "yes", "2025-01-01"))
    assert entries(Labels.from_long(table)).ravel().tolist() == [0, 1]
    assert entries(Labels.from_long(table.iloc[::-1], ["a", "b"])).ravel().tolist() == [0, 1]
    numbers = table.assign(time=[2, 10, 1])
    assert entries(Labels.from_long(numbers)).ravel().tolist() == [1, 1], "10 is later than 2"
    without = table.assign(time=[None, "2026-01-01", None])
    assert entries(Labels.from_long(without)).ravel().tolist() == [1, 1], "an answer without a time is the oldest"
    zones = table.assign(time=["2026-01-01T00:30+02:00", "2026-01-01T00:00+00:00", "2026-01-01"])
    assert entries(Labels.from_long(zones)).ravel().tolist() == [1, 1]


def test_a_later_unknown_takes_an_answer_back():
    table = long(("a", "x", "yes", 1), ("a", "x", "unsure", 2), ("b", "x", "no", 1))
    np.testing.assert_array_equal(entries(Labels.from_long(table)).ravel(), [NAN, 0])
    at_once = long(("a", "x", "yes", 1), ("a", "x", "unsure", 1))
    assert entries(Labels.from_long(at_once)).ravel().tolist() == [1], "at one time, an answer counts"


def test_answers_that_disagree():
    lines = ("a", "x", "yes"), ("b", "x", "no"), ("a", "x", "no")
    with pytest.raises(
        ValueError, match=r"item 'a', label 'x' is both yes and no\. Correct one of them, or add a column"
    ):
        Labels.from_long(long(*lines))
    with pytest.raises(ValueError, match="is both yes and no at one time"):
        Labels.from_long(long(*((*line, 3) for line in lines)))
    assert entries(Labels.from_long(long(("a", "x", "yes"), ("a", "x", "")))).ravel().tolist() == [1]


def test_ids_of_the_rows():
    table = long(("c", "x", "yes"), ("a", "y", "no"))
    np.testing.assert_array_equal(entries(Labels.from_long(table, ["a", "b", "c"])), [[NAN, 0], [NAN, NAN], [1, NAN]])
    assert Labels.from_long(table).items.tolist() == ["c", "a"]
    with pytest.raises(ValueError, match=r"1 of 2 are not, the first is 'c', the rows are 'a', 'b'\."):
        Labels.from_long(table, ["a", "b"])
    with pytest.raises(ValueError, match="rows 0 and 2 are both 'a'"):
        Labels.from_long(table, ["a", "c", "a"])
    with pytest.raises(
        ValueError, match=re.escape("every answer must name its item; line 1 (counted from 0) has none")
    ):
        Labels.from_long(long(("a", "x", "yes"), (None, "x", "yes")))


@pytest.mark.parametrize("items", [[10, 2, 7], [10.0, 2.0, 7.0], ["10", "2", "7"], np.array([10, 2, 7], np.uint8)])
def test_numbers_as_ids(items):
    for written in ([7, 10], ["7", "10"]):
        if isinstance(items[0], float) and isinstance(written[0], str):
            continue  # "7" and 7.0 are not the same text
        table = pd.DataFrame({"item": written, "label": ["x", "y"], "value": [1, 0]})
        np.testing.assert_array_equal(entries(Labels.from_long(table, items)), [[NAN, 0], [NAN, NAN], [1, NAN]])


def test_labels_of_a_long_table():
    numbers = pd.DataFrame({"item": [0, 1], "label": [10, 9]})
    assert Labels.from_long(numbers).classes.tolist() == [9, 10]
    gaps = pd.DataFrame({"item": [0, 1, 2], "label": ["b ", None, "a"], "value": ["yes", "", "no"]})
    found = Labels.from_long(gaps)
    assert found.classes.tolist() == ["a", "b"], "a line without label and value says nothing"
    np.testing.assert_array_equal(entries(found), [[NAN, 1], [NAN, NAN], [0, NAN]])
    known = Labels.from_long(gaps, classes=np.array(["c", "b", "a"]))
    np.testing.assert_array_equal(entries(known), [[NAN, 1, NAN], [NAN, NAN, NAN], [NAN, NAN, 0]])
    for wrong, sentence in (
        (pd.DataFrame({"item": [0], "label": [None], "value": ["yes"]}), "must hold at least one label"),
        (pd.DataFrame({"item": [0, 1], "label": ["a", None]}), "every answer must name its label; line 1"),
        (pd.DataFrame({"item": [0], "tag": ["a"]}), "'label' is missing, found are 'item', 'tag'. Rename the columns."),
        (pd.DataFrame({"item": [0, 1], "label": ["a", "A"]}), "the column 'label' holds 'A' and 'a'"),
    ):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            Labels.from_long(wrong)
    with pytest.raises(ValueError, match="'b' is none of them"):
        Labels.from_long(gaps, classes=np.array(["a", "c"]))


@pytest.mark.parametrize(
    "words", [("yes", "no", ""), (1, 0, None), (1.0, 0.0, NAN), (True, False, None), ("Y", " N ", "?")]
)
def test_words_of_answers(words):
    table = pd.DataFrame({"item": list("abc"), "label": "x", "value": pd.Series(words, dtype=object)})
    np.testing.assert_array_equal(entries(Labels.from_long(table)).ravel(), [1, 0, NAN])


def test_own_words():
    answers = Answers.with_words(yes=["Present"], no=["absent", "1"], unknown=[-1])
    read = answers.read(pd.Series(["present ", "ABSENT", "1", -1.0, "yes", "0", None, "huh"], dtype=object))
    assert read.tolist() == [1, 0, 0, -1, 1, 0, -1, -2]
    with pytest.raises(ValueError, match="'absent' is given for two"):
        Answers.with_words(yes=["Absent"], no=["absent"])


def test_other_tables_become_frames():
    pl = pytest.importorskip("polars")
    table = pl.DataFrame({"item": ["a", "b"], "label": ["x", "x"], "value": [1, 0]})
    assert entries(Labels.from_long(table)).ravel().tolist() == [1, 0]


# one model


def fit(X, y, method="an", **options):
    model = SinglePositiveClassifier(method, epochs=2, random_state=0, early_stopping=False, positives="any", **options)
    return model.fit(X, y)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(48, 4))
    known = np.tile(KNOWN, (8, 1))
    return X, known


@pytest.mark.parametrize("method", ["an", "crisp-plus"])
@pytest.mark.parametrize("form", [form for form in known_forms() if form not in ("long, any order", "float32", "list")])
def test_every_form_gives_the_same_model(rows, form, method, short_cross_fit):
    """That of the matrix with NaN, to 1e-6: probabilities, priors and thresholds."""
    X, known = rows
    y = known_forms()[form]
    if isinstance(y, Labels):
        y = y.take(np.tile(np.arange(6), 8))
    elif isinstance(y, pd.DataFrame):
        y = pd.concat([y] * 8, ignore_index=True)
    else:
        y = list(y) * 8 if isinstance(y, list) else np.tile(y, (8, 1))
    expected, model = fit(X, known, method), fit(X, y, method)
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(model.class_prior_, expected.class_prior_, atol=1e-6)
    np.testing.assert_allclose(model.thresholds_, expected.thresholds_, atol=1e-6)


@pytest.mark.parametrize("form", ONE_PER_ROW)
def test_one_label_per_row_gives_the_model_of_the_indicator(rows, form):
    X, y = rows[0][:6], ONE_PER_ROW[form]
    expected = fit(X, pd.DataFrame(TRUTH, columns=["cat", "dog", "owl"]))
    model = fit(X, y)
    assert model.classes_.tolist() == expected.classes_.tolist()
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=1e-6)


def test_sparse_and_dense_indicators_give_one_model(rows):
    X = rows[0][:4]
    expected = fit(X, PLAIN).predict_proba(X)
    for y in (sp.csr_array(PLAIN), pd.DataFrame(PLAIN), PLAIN.tolist(), Labels.read(PLAIN, 4)):
        np.testing.assert_allclose(fit(X, y).predict_proba(X), expected, atol=1e-6)


def test_a_known_no_is_not_an_unknown(rows, short_cross_fit):
    """The forms would agree as well if the zeros were dropped: they are not."""
    X, known = rows
    for method in ("wan", "crisp-plus"):
        one, other = fit(X, known, method), fit(X, (known == 1).astype(int), method)
        assert np.abs(one.predict_proba(X) - other.predict_proba(X)).max() > 1e-3
