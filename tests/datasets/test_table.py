import gzip
import re
import shlex
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onepos.datasets import open_table, read_dataset, read_features, read_table, write_npz

ONE = "a,b,kind\n1,2.5,cat\n-3,1e2,dog\n0,0,\n4,5,cat\n"
SEVERAL = "kind,a\ncat; dog,1\n,2\ndog;dog,3\n"
COLUMNS = "id,a,label_cat,label_dog,b\nr1,1,0,1,7\nr2,2,1,1,8\n"


@pytest.fixture
def write(tmp_path):
    def write(text, name="t.csv"):
        path = tmp_path / name
        data = text.encode() if isinstance(text, str) else text
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def test_one_label_per_cell(write):
    data = read_table(write(ONE), label="kind")
    np.testing.assert_array_equal(data.X, [[1, 2.5], [-3, 100], [0, 0], [4, 5]])
    np.testing.assert_array_equal(data.Y, [[1, 0], [0, 1], [0, 0], [1, 0]])
    assert data.label_names == ("cat", "dog")
    assert data.feature_names == ("a", "b")


def test_several_labels_per_cell(write):
    data = read_table(write(SEVERAL), label="kind", separator=";")
    np.testing.assert_array_equal(data.Y, [[1, 1], [0, 0], [0, 1]])


@pytest.mark.parametrize("columns", ["label_*", ["label_cat", "label_dog"], ["*_dog", "label_c*"]])
def test_indicator_columns(write, columns):
    data = read_table(write(COLUMNS), label_columns=columns, drop="id")
    np.testing.assert_array_equal(data.Y, [[0, 1], [1, 1]])
    np.testing.assert_array_equal(data.X, [[1, 7], [2, 8]])
    assert data.label_names == ("label_cat", "label_dog")


def test_lists_may_mix_names_and_patterns(write):
    path = write("id,cold,a,cost,l2,l1,b\nr1,1,2,3,0,1,4\nr2,5,6,7,1,0,8\n")
    data = read_table(path, label_columns=["l1", "l*"], drop=["co*", "id", "cost"])
    assert data.feature_names == ("a", "b")
    assert data.label_names == ("l2", "l1")
    np.testing.assert_array_equal(data.Y, [[0, 1], [1, 0]])


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_time_stamps_keep_their_seconds(tmp_path, name):
    path = tmp_path / name
    stamps = 1_700_000_000 + np.arange(60)
    frame = pd.DataFrame({"time": stamps, "share": stamps / 7e9, "kind": ["x", "y"] * 30})
    frame.to_csv(path, index=False) if name == "t.csv" else frame.to_parquet(path)
    data = read_table(path, label="kind")
    assert data.X.dtype == np.float64
    assert len(np.unique(data.X[:, 0])) == 60
    np.testing.assert_allclose(data.X, frame[["time", "share"]], rtol=1e-15)
    X, _ = read_features(path, columns=["time"])
    np.testing.assert_array_equal(X[:, 0], stamps)
    again = read_dataset(write_npz(data, tmp_path))
    assert again.X.dtype == np.float64
    np.testing.assert_array_equal(again.X, data.X)


def test_numbers_beyond_float32_are_read(write):
    np.testing.assert_array_equal(read_table(write("a,kind\n1,x\n1e99,y\n"), label="kind").X, [[1], [1e99]])


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("others", [{}, {"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}])
def test_flags_are_features_of_one_and_zero(tmp_path, name, others):
    path = tmp_path / name
    frame = pd.DataFrame({"flag": [True, False, True], **others, "kind": ["x", "y", "x"]})
    frame.to_csv(path, index=False) if name == "t.csv" else frame.to_parquet(path)
    data = read_table(path, label="kind")
    assert data.X.dtype == np.float32
    np.testing.assert_array_equal(data.X, np.column_stack([[1, 0, 1], *others.values()]))


@pytest.mark.parametrize("dtype", [object, "boolean"])
def test_missing_flags_are_told(tmp_path, dtype):
    path = tmp_path / "t.parquet"
    pd.DataFrame({"flag": pd.Series([True, None, False], dtype=dtype), "kind": ["x", "y", "x"]}).to_parquet(path)
    with pytest.raises(ValueError, match=r"t.parquet, row 1: every feature must be known; column 'flag' is empty"):
        read_table(path, label="kind")


def test_number_labels_are_sorted_as_numbers(write):
    data = read_table(write("a,y\n1,10\n2,9\n3,\n"), label="y")
    assert data.label_names == ("9", "10")


def test_missing_markers_are_labels_in_the_label_column(write):
    data = read_table(write("a,y\n1,NA\n2,None\n3,nan\n"), label="y")
    assert data.label_names == ("NA", "None", "nan")
    assert data.Y.sum() == 3


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("t.tsv", lambda text: text.replace(",", "\t")),
        ("t.csv", lambda text: text.replace(",", ";")),
        ("t.csv.gz", lambda text: text),
        ("t.tsv.gz", lambda text: text.replace(",", "\t")),
        ("T.CSV", lambda text: text.replace("\n", "\r\n")),
        ("t.csv", lambda text: "\ufeff" + text),
        ("t.csv", lambda text: text.replace("1,2.5", '"1","2.5"').replace("cat", '"cat"')),
    ],
)
def test_other_ways_to_write_the_same_table(write, name, change):
    expected = read_table(write(ONE, "plain.csv"), label="kind")
    data = read_table(write(change(ONE), name), label="kind")
    np.testing.assert_array_equal(data.X, expected.X)
    np.testing.assert_array_equal(data.Y, expected.Y)
    assert data.feature_names == expected.feature_names


def test_parquet_with_text_lists_and_indicators(tmp_path):
    frame = pd.DataFrame(
        {
            "a": [1, 2, 3],
            "b": pd.array([1.5, 2.5, 3.5], dtype="Float32"),
            "kind": ["x", None, "y"],
            "tags": [["x", "y"], [], ["y"]],
            "number": [3, 1, 3],
            "is_x": [True, False, True],
        }
    )
    path = tmp_path / "t.parquet"
    frame.to_parquet(path)
    others = {"kind", "tags", "number", "is_x"}
    text = read_table(path, label="kind", drop=sorted(others - {"kind"}))
    np.testing.assert_array_equal(text.X, [[1, 1.5], [2, 2.5], [3, 3.5]])
    np.testing.assert_array_equal(text.Y, [[1, 0], [0, 0], [0, 1]])
    lists = read_table(path, label="tags", drop=sorted(others - {"tags"}))
    np.testing.assert_array_equal(lists.Y, [[1, 1], [0, 0], [0, 1]])
    assert read_table(path, label="number", drop=["kind", "tags", "is_x"]).label_names == ("1", "3")
    flags = read_table(path, label_columns=["is_x"], drop=["kind", "tags", "number"])
    np.testing.assert_array_equal(flags.Y, [[1], [0], [1]])


def test_missing_pyarrow_names_the_extra(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"needs pyarrow, .* pip install 'onepos\[parquet\]'"):
        read_table(write("", "t.parquet"), label="kind")


KIND = {"label": "kind"}


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        (
            ONE,
            {},
            "t.csv needs either a label column (label, --label) or label columns (label_columns, --label-columns); "
            "none given. Name one: its columns are a, b, kind",
        ),
        (ONE, KIND | {"label_columns": "a"}, "--label-columns); both given."),
        (ONE, {"label": "knid"}, "t.csv has no column 'knid'; did you mean 'kind'?"),
        (ONE, KIND | {"drop": "zzz"}, "t.csv has no column 'zzz'; choose from a, b, kind."),
        (ONE, {"label_columns": "label_*"}, "t.csv has no column 'label_*'; choose from a, b, kind."),
        (ONE, {"label_columns": "a"}, "t.csv, line 2: features must be numbers; column 'kind' holds 'cat'. Leave the"),
        ("a,kind\n1,x\n1,y\nhigh,x\n", KIND, "t.csv, line 4: features must be numbers; column 'a' holds 'high'."),
        ("a,kind\n1,x\n\n,y\n", KIND, "t.csv, line 4: every feature must be known; column 'a' is empty. Fill it,"),
        ("a,kind\n1,x\nNaN,y\n", KIND, "t.csv, line 3: every feature must be known; column 'a' is empty."),
        ("a,kind\n1,x\ninf,y\n", KIND, "t.csv, line 3: every feature must be finite; column 'a' holds inf."),
        ("a,kind\nTrue,x\n,y\n", KIND, "t.csv, line 3: every feature must be known; column 'a' is empty."),
        ("a,kind\nTrue,x\nmaybe,y\n", KIND, "t.csv, line 2: features must be numbers; column 'a' holds 'True'."),
        (ONE, KIND | {"drop": ["a", "z*"]}, "t.csv has no column 'z*'; choose from a, b, kind."),
        (ONE, {"label_columns": ["a", "knd"]}, "t.csv has no column 'knd'; did you mean 'kind'?"),
        ("a,b,kind\n1,2,x\n1,2\n", KIND, "t.csv, line 3: a row must hold 3 cells like the first line; it holds 2."),
        ("a,kind\n1,x,7\n", KIND, "t.csv, line 2: a row must hold 2 cells like the first line; it holds 3."),
        ("a,kind\n1,x\n1,x,7\n", KIND, "line 3: a row must hold 2 cells like the first line; it holds 3."),
        ('a,kind\n1,"x\n2,y\n', KIND, "t.csv must be readable to its end; "),
        ("a,a,kind\n1,2,x\n", KIND, "t.csv must name its columns differently; 'a' is both column 1 and 2. Rename one."),
        ("", KIND, "t.csv must start with a line of column names; it is empty."),
        ("a,kind\n", KIND, "t.csv must hold at least one row; it holds none."),
        ("a,kind\n1,\n2,\n", KIND, "t.csv: there must be at least one label; every label cell is empty."),
        ("kind\nx\n", KIND, "t.csv must have a column to learn from; its columns ('kind') hold labels or ids"),
        (
            "a,kind\n1,x\n2,Käse\n".encode("latin-1"),
            KIND,
            "t.csv, line 3: the text must be UTF-8; it is in another encoding, such as Latin-1 or UTF-16. Save the",
        ),
        ("Höhe,kind\n1,x\n".encode("latin-1"), {}, "t.csv, line 1: the text must be UTF-8;"),
        ("a,kind\n1,x\n".encode("utf-16"), KIND, "t.csv, line 1: the text must be UTF-8;"),
        (b"a,kind\n" + b"1,x\n" * 9999 + b"1,\xe9\n", KIND, "t.csv, line 10001: the text must be UTF-8;"),
        (
            "a,l\n1,0\n2,3\n",
            {"label_columns": ["l"]},
            "t.csv, line 3: label columns must hold 1 (yes), 0 (no) or nothing (unknown); column 'l' holds '3'.",
        ),
        ("a,l\n1,0\n,1\n2,\n", {"label_columns": ["l"]}, "line 3: every feature must be known"),
    ],
)
def test_wrong_tables_are_told_with_their_line(write, text, options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_table(write(text), **options)


class TestSeveralBadColumns:
    def refused(self, path, **options):
        with pytest.raises(ValueError, match="features must be numbers, known and finite") as error:
            read_table(path, label="kind", **options)
        return str(error.value)

    def test_each_is_named_with_its_first_wrong_cell(self, write):
        text = "a,b,c,d,e,f,kind\n1,cat,,1,2024-03-01,True,x\n2,2,1,inf,02.03.2024,,y\n3,dog,,2,1/2/24,False,x\n"
        assert self.refused(write(text)) == (
            "t.csv: features must be numbers, known and finite; 5 columns are not: 'b' holds text ('cat', line 2), "
            "'c' has missing cells (line 2), 'd' has infinite numbers (inf, line 3), 'e' holds dates ('2024-03-01', "
            "line 2), 'f' has missing cells (line 3). Encode, fill or correct them, or leave them out with drop "
            "(--drop b,c,d,e,f)."
        )
        assert read_table(write(text), label="kind", drop=["b", "c", "d", "e", "f"]).feature_names == ("a",)

    def test_types_of_parquet(self, tmp_path):
        days = pd.to_datetime(["2024-03-01", None, "2024-03-02"])
        lists, none = [["u"], ["v"], []], [None, None, None]
        frame = pd.DataFrame({"day": days, "list": lists, "none": none, "kind": ["x", "y", "x"]})
        frame.to_parquet(tmp_path / "t.parquet")
        assert "3 columns are not: 'day' holds dates ('2024-03-01 00:00:00', row 0), 'list' holds text" in (
            said := self.refused(tmp_path / "t.parquet")
        )
        assert "'none' has missing cells (row 0)" in said

    def test_ten_are_explained_and_all_can_be_left_out(self, write):
        names = [f"c{k}" for k in range(13)]
        path = write(",".join([*names, "n", "kind"]) + "\n" + "u," * 13 + "1,x\n")
        said = self.refused(path)
        assert said.count("holds text") == 10
        assert "'c9' holds text ('u', line 2) and 3 more." in said
        assert f"(--drop {','.join(names)})" in said

    def test_awkward_names_can_be_copied_from_the_message(self, write):
        path = write('"a,b",c d,it\'s,n,kind\nu,u,u,1,x\nu,u,u,2,y\n')
        option = re.search(r"\(--drop (.*)\)\.$", self.refused(path))[1]
        (value,) = shlex.split(option)
        assert read_table(path, label="kind", drop=value.split(",")).feature_names == ("n",)

    def test_what_a_model_needs_can_not_be_left_out(self, write):
        path = write("a,b,c\n1,u,\n2,v,3\n")
        sentence = "The model was fitted with numbers there: encode, fill or correct the cells, or remove their rows."
        for columns in (["b"], ["b", "c"]):
            with pytest.raises(ValueError, match=re.escape(sentence)):
                read_features(path, columns=columns)

    def test_label_columns(self, write):
        path = write("a,l,m\n1,0,no\n2,sure,1\n")
        with pytest.raises(ValueError, match=r"line 3: label columns must hold 1 \(yes\), .* column 'l' holds 'sure'"):
            read_table(path, label_columns=["l", "m"])


def test_the_columns_that_a_model_needs_must_be_there(write):
    table = open_table(write(ONE))
    assert table.to_dataset(label="kind", features=["b"]).feature_names == ("b",)
    with pytest.raises(ValueError, match=r"t.csv has no column 'bb'; did you mean 'b'\?"):
        table.to_dataset(label="kind", features=["a", "bb"])


def test_lines_are_counted_across_quoted_line_breaks(write):
    with pytest.raises(ValueError, match="line 5: every feature must be known"):
        read_table(write('a,kind\n1,"x\ny"\n2,z\n,x\n'), label="kind")


cells = st.lists(st.sampled_from(["red", "blue", "light green", "7", "ä"]), max_size=3)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False), cells), min_size=1, max_size=8))
def test_written_tables_come_back(folder, rows):
    path = folder / "t.csv"
    pd.DataFrame({"f": [row[0] for row in rows], "tags": ["|".join(row[1]) for row in rows]}).to_csv(path, index=False)
    names = sorted({name for _, tags in rows for name in tags})
    if not names:
        with pytest.raises(ValueError, match="every label cell is empty"):
            read_table(path, label="tags", separator="|")
        return
    data = read_table(path, label="tags", separator="|")
    assert sorted(data.label_names) == names
    for row, (value, tags) in enumerate(rows):
        assert np.float32(data.X[row, 0]) == np.float32(value)
        assert {data.label_names[j] for j in np.flatnonzero(data.Y[row])} == set(tags)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("table")
