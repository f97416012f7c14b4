"""The checks that every layer shares: what passes, and where an error message points."""

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from onepos.reading import naming
from onepos.server.trial import _to_number
from onepos.validation import (
    check_choice,
    check_finite,
    check_indicator,
    check_known,
    check_one_positive,
    one_hot,
    suggest,
)

Y = np.array([[1, 0, 0], [0, 1, 1]])


@pytest.mark.parametrize(
    "values",
    [Y, Y.astype(bool), Y.astype(float), Y.tolist(), sp.csr_array(Y), pd.DataFrame(Y), pd.DataFrame(Y).astype(object)],
    ids=["int", "bool", "float", "list", "sparse", "frame", "objects"],
)
def test_an_indicator_becomes_uint8(values):
    checked = check_indicator(values, "Y")
    assert checked.dtype == np.uint8
    np.testing.assert_array_equal(checked, Y)


def test_an_indicator_of_uint8_is_not_copied():
    given = Y.astype(np.uint8)
    assert check_indicator(given, "Y") is given


def changed(value):
    other = Y.astype(float)
    other[1, 2] = value
    return other


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (changed(2), "tags must hold only 0 and 1; row 1, column 2 holds 2.0. Mark a positive label with 1"),
        (changed(np.nan), "row 1, column 2 holds nan"),
        (sp.csr_array(changed(-1)), "row 1, column 2 holds -1.0"),
        (pd.DataFrame(changed(7), columns=["a", "b", "c"]), "row 1, column 2 ('c') holds 7.0"),
        (np.array([["1", "0"]]), "row 0, column 0 holds '1'"),
        (np.array([[1, None]], dtype=object), "row 0, column 1 holds None"),
        (pd.DataFrame({"a": pd.array([1, pd.NA], dtype="Int64")}), "row 1, column 0 ('a') holds nan"),
        (np.ones(3), "tags must be a 0/1 matrix (rows, labels); its shape is (3,)"),
    ],
)
def test_an_entry_that_is_neither_0_nor_1(values, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        check_indicator(values, "tags")


def test_an_empty_indicator_only_where_allowed():
    assert check_indicator(np.ones((0, 3)), "Y").shape == (0, 3)
    with pytest.raises(ValueError, match=r"with at least one of each; its shape is \(0, 3\)"):
        check_indicator(np.ones((0, 3)), "Y", allow_empty=False)


def test_one_positive_per_row():
    check_one_positive(np.eye(3, dtype=np.uint8))
    several = np.array([[1, 0], [1, 1], [1, 1], [0, 0]], np.uint8)
    with pytest.raises(
        ValueError, match=r"y must hold .*; 2 of 4 rows hold several, the first is row 1 .*--draw uniform"
    ):
        check_one_positive(several)
    with pytest.raises(ValueError, match=r"1 of 2 rows hold none, the first is row 1 .*--positives any"):
        check_one_positive(several[[0, 3]])
    check_one_positive(np.tile(np.uint8(1), (300, 1)))
    with pytest.raises(ValueError, match="1 of 1 rows hold several"):
        check_one_positive(np.ones((1, 257), np.uint8))  # 257 positives are 1 in the arithmetic of uint8


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.array, sp.csr_array])
def test_numbers_that_are_not_finite(kind, value):
    X = np.zeros((4, 3))
    X[0, 1], X[2, 1] = 5, value
    found = {"nan": "NaN"}.get(str(value), str(value))
    with pytest.raises(ValueError, match=rf"X must be finite; row 2, column 1 holds {re.escape(found)}\. Fill in"):
        check_finite(kind(X), "X")


def test_a_sum_that_overflows_is_no_infinite_number():
    check_finite(np.full((2, 2), 1e308), "X")
    check_finite(np.full((2, 2), 3e38, np.float32), "X")


def test_a_tensor_is_checked_too():
    torch = pytest.importorskip("torch")
    check_finite(torch.ones(2, 2), "scores")
    with pytest.raises(ValueError, match=r"scores must be finite; row 0, column 1 holds inf\. Drop it\."):
        check_finite(torch.tensor([[1.0, torch.inf]], dtype=torch.bfloat16), "scores", "Drop it.")


def test_the_closest_name_or_the_choice():
    assert suggest("crips", ["an", "crisp"]) == "did you mean 'crisp'?"
    assert suggest("zzz", ["an", "crisp"]) == "choose from an, crisp."
    assert suggest("zzz", map(str, range(99))).endswith("22, 23, ….")


def test_the_first_unknown_name_is_reported():
    check_known(["b", "a"], iter("abc"), "unknown letter")
    with pytest.raises(ValueError, match=re.escape("unknown letter 'x'; choose from a, b, c.")):
        check_known(["b", "x", "y"], iter("abc"), "unknown letter")


def test_label_numbers_become_an_indicator():
    marks = one_hot([2, -1, 0], 3)
    assert marks.dtype == np.uint8
    assert marks.tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_it_brings_neither_torch_nor_pandas():
    heavy = "[name for name in ('torch', 'pandas', 'sklearn') if name in sys.modules]"
    code = f"import sys, onepos.validation, onepos.labels; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("value", "shown"),
    [("x" * 5000, "xxx…."), (10**999, "000…."), (10**5000, "a number of thousands of digits.")],
    ids=["text", "number", "digits"],
)
def test_a_message_shows_the_beginning_of_a_long_value(value, shown):
    with pytest.raises(ValueError, match=re.escape(shown)) as error:
        check_choice("scale", value, ("none", "standard"))
    assert len(str(error.value)) < 200


def test_a_path_of_thousands_of_characters_is_shortened(tmp_path):
    path = tmp_path / ("x" * 5000)
    with pytest.raises(OSError, match="must be readable") as error, naming(path):
        path.read_bytes()
    assert len(str(error.value)) < 2000


def test_a_number_beyond_double_precision_is_refused():
    with pytest.raises(ValueError, match="'width' holds a larger one"):
        _to_number(pd.Series([10**400], name="width", dtype=object))
