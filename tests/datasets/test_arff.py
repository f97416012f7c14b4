import gzip
import re
import time

import arff as liac
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from onepos.datasets import read_arff
from onepos.datasets.arff import BLOCK

HEADER = """% a comment
@RELATION "toy data"

@Attribute width NUMERIC
@attribute 'two words, quoted' real
@attribute "it's" integer
@attribute cat {0,1}
@attribute dog {0, 1}
@DATA
"""
DENSE = HEADER + "1.5, -2e3, 3,1,0\n% between\n\n0,\t.5,7,0,1\n"
SPARSE = HEADER + "{0 1.5, 1 -2e3,2 3,3 1}\n% between\n{ }\n{1 .5,2 7, 4 1}\n"


@pytest.fixture
def write(tmp_path):
    def write(text, name="toy.arff", xml=("cat", "dog")):
        path = tmp_path / name
        data = text.encode() if isinstance(text, str) else text
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        if xml:
            labels = "".join(f'<label name="{label}"/>' for label in xml)
            (tmp_path / "toy.xml").write_text(f'<labels xmlns="http://mulan.sourceforge.net/labels">{labels}</labels>')
        return path

    return write


def test_dense(write):
    data = read_arff(write(DENSE))
    assert isinstance(data.X, np.ndarray)
    np.testing.assert_allclose(data.X, [[1.5, -2000, 3], [0, 0.5, 7]])
    np.testing.assert_array_equal(data.Y, [[1, 0], [0, 1]])
    assert data.feature_names == ("width", "two words, quoted", "it's")
    assert data.label_names == ("cat", "dog")
    assert data.name == "toy"


def test_sparse_stays_sparse(write):
    data = read_arff(write(SPARSE))
    assert isinstance(data.X, sp.csr_array)
    assert data.X.nnz == 5
    np.testing.assert_allclose(data.X.toarray(), [[1.5, -2000, 3], [0, 0, 0], [0, 0.5, 7]])
    np.testing.assert_array_equal(data.Y, [[1, 0], [0, 0], [0, 1]])


@pytest.mark.parametrize("text", [DENSE, SPARSE])
def test_windows_lines_bom_and_gzip_change_nothing(write, text):
    plain = read_arff(write(text))
    other = read_arff(write(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(), "toy-train.arff.gz"))
    assert abs(plain.X - other.X).max() == 0
    np.testing.assert_array_equal(plain.Y, other.Y)
    assert other.name == "toy-train"


def test_labels_keep_the_order_of_the_columns(write):
    data = read_arff(write(DENSE, xml=("dog", "cat")))
    assert data.label_names == ("cat", "dog")


def test_labels_by_name_and_number_and_meka(write):
    path = write(DENSE, xml=None)
    np.testing.assert_array_equal(read_arff(path, labels=["dog"]).Y, [[0], [1]])
    assert read_arff(path, labels="dog").label_names == ("dog",)
    assert read_arff(path, labels=-2).label_names == ("cat", "dog")
    meka = DENSE.replace('"toy data"', "'toy: -C -2 -split-percent 50'")
    assert read_arff(write(meka, xml=None)).label_names == ("cat", "dog")
    first = "@relation 'x: -C 1'\n@attribute l {0,1}\n@attribute f numeric\n@data\n1,5\n"
    np.testing.assert_array_equal(read_arff(write(first, xml=None)).X, [[5]])


@pytest.mark.parametrize("name", ["toy-train.arff", "toy-train-sparse.arff", "toy-test.arff.gz"])
def test_finds_the_xml_of_a_part(write, name):
    assert read_arff(write(DENSE, name)).label_names == ("cat", "dog")


def test_gzipped_xml(write, tmp_path):
    path = write(DENSE)
    (tmp_path / "toy.xml.gz").write_bytes(gzip.compress((tmp_path / "toy.xml").read_bytes()))
    (tmp_path / "toy.xml").unlink()
    assert read_arff(path).label_names == ("cat", "dog")


def test_numeric_categories_stay_one_column_words_become_several(write):
    text = (
        "@relation r\n@attribute size {1,2,4}\n@attribute colour {red,'light blue',\"it\\'s\"}\n"
        "@attribute cat{0,1}\n@data\n4,'light blue',1\n1,red,0\n2.0,'it\\'s',1\n"
    )
    data = read_arff(write(text, xml=("cat",)))
    assert data.feature_names == ("size", "colour=red", "colour=light blue", "colour=it's")
    np.testing.assert_array_equal(data.X, [[4, 0, 1, 0], [1, 1, 0, 0], [2, 0, 0, 1]])


def test_sparse_rows_leave_out_the_first_category(write):
    text = (
        "@relation r\n@attribute f numeric\n@attribute colour {red,blue}\n@attribute cat {0,1}\n@data\n"
        "{0 3, 1 blue}\n{2 1}\n{}\n"
    )
    data = read_arff(write(text, xml=("cat",)))
    np.testing.assert_array_equal(data.X.toarray(), [[3, 0, 1], [0, 1, 0], [0, 1, 0]])
    np.testing.assert_array_equal(data.Y, [[0], [1], [0]])


def test_old_encoding_is_read(write):
    text = "@relation r\n@attribute f numeric\n@attribute café {0,1}\n@data\n1,0\n2,1\n".encode("latin-1")
    assert read_arff(write(text, xml=None), labels=1 - 2).label_names == ("café",)


def test_rows_beyond_one_block(write):
    n = 2 * BLOCK + 3
    rows = "".join(f"{{0 {row},3 1}}\n" if row % 2 else f"{{0 {row}}}\n" for row in range(n))
    data = read_arff(write(HEADER + rows))
    np.testing.assert_array_equal(data.X[:, [0]].toarray().ravel(), np.arange(n))
    np.testing.assert_array_equal(data.Y[:, 0], np.arange(n) % 2)


LABELLED = "@relation r\n@attribute f numeric\n@attribute cat {0,1}\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "toy.arff must have a line @data with rows below; it ends at line 0. Get the file again."),
        (LABELLED, "toy.arff must have a line @data with rows below; it ends at line 3."),
        (LABELLED + "@data\n", "toy.arff must have rows below @data; there are none."),
        ("@relation r\n@data\n1\n", "toy.arff, line 2: @attribute lines must come before @data; there is none."),
        ("a,b\n1,2\n", "toy.arff, line 1: a header line must start with @relation, @attribute or @data; it starts"),
        ("@attribute f\n", "toy.arff, line 1: @attribute must give a name and a type; found '@attribute f'. Quote"),
        ("@attribute 'f numeric\n", "toy.arff, line 1: @attribute must give a name and a type"),
        ("@attribute f string\n", "toy.arff, line 1: 'f' must be numeric or {a,b,…}; it is string. Remove or encode"),
        ("@attribute f date 'y-m'\n", "toy.arff, line 1: 'f' must be numeric or {a,b,…}; it is date."),
        ("@attribute f {a,b\n", "toy.arff, line 1: 'f' must list its values as {a,b,…}; found '{a,b'."),
        ("@attribute f {}\n", "toy.arff, line 1: 'f' must list its values as {a,b,…}; found '{}'."),
        (LABELLED + "@data\n1,0\n1\n", "toy.arff, line 6: a row must hold 2 values; it holds 1. Correct the line,"),
        (LABELLED + "@data\n1,0,0\n", "toy.arff, line 5: a row must hold 2 values; it holds 3."),
        (LABELLED + "@data\n1,0\n?,1\n", "toy.arff, line 6: every value must be known; 'f' is missing (?). Fill"),
        (LABELLED + "@data\nx,0\n", "toy.arff, line 5: 'f' must be a number; it is 'x'. Correct the value."),
        (LABELLED + "@data\nnan,0\n", "toy.arff, line 5: 'f' must be a number; it is 'nan'."),
        (LABELLED + "@data\n1_0,0\n", "toy.arff, line 5: 'f' must be a number; it is '1_0'."),
        (LABELLED + "@data\n1e99,0\n", "toy.arff: X must be finite; row 0, column 0 holds inf."),
        (LABELLED + "@data\n1,2\n", "toy.arff, line 5: 'cat' must be one of {0,1}; it is '2'."),
        (LABELLED + "@data\n1 2,0\n", "toy.arff, line 5: values must be separated by commas; cannot read '1 2,0'."),
        (LABELLED + "@data\n1,,0\n", "toy.arff, line 5: values must be separated by commas"),
        (
            LABELLED + "@data\n1,0\n{0 1}\n",
            "toy.arff, line 6: rows must be all dense or all sparse; the first is dense",
        ),
        (
            LABELLED + "@data\n{0 1}\n1,0\n",
            "toy.arff, line 6: rows must be all dense or all sparse; the first is sparse",
        ),
        (LABELLED + "@data\n{0 1,1 1\n", "toy.arff, line 5: a sparse row must end with }; this one does not."),
        (LABELLED + "@data\n{0 1}\n{2 1}\n", "toy.arff, line 6: columns must lie between 0 and 1; found 2."),
        (LABELLED + "@data\n{-1 1}\n", "toy.arff, line 5: a sparse row must read {column value, column value, …}"),
        (LABELLED + "@data\n{0 1 1 1}\n", "toy.arff, line 5: a sparse row must read"),
        (LABELLED + "@data\n{0 1,}\n", "toy.arff, line 5: a sparse row must read"),
        (LABELLED + "@data\n{0 1,0 2}\n", "toy.arff, line 5: a column may occur once per row; column 0 occurs twice."),
        (LABELLED + "@data\n{0 ?}\n", "toy.arff, line 5: every value must be known; 'f' is missing (?)."),
        (LABELLED + "@data\n{1 3}\n", "toy.arff, line 5: 'cat' must be one of {0,1}; it is '3'."),
        (
            LABELLED.replace("{0,1}", "{1,0}") + "@data\n{0 1}\n",
            "toy.arff: a sparse file leaves out the first value of each attribute, which must be 0; 'cat' lists 1",
        ),
        (LABELLED.replace("{0,1}", "{0,1,2}") + "@data\n1,0\n", "toy.arff: a label must be {0,1}; 'cat' is {0,1,2}."),
        (
            LABELLED.replace("{0,1}", "{no,yes}") + "@data\n1,no\n",
            "toy.arff: a label must be {0,1}; 'cat' is {no,yes}.",
        ),
        (
            LABELLED.replace("{0,1}", "numeric") + "@data\n1,0\n1,0.5\n",
            "toy.arff: Y must hold only 0 and 1; row 1, column 0 ('cat') holds 0.5.",
        ),
    ],
)
def test_malformed_files_are_told_with_their_line(write, text, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_arff(write(text, xml=("cat",)))


def test_labels_that_can_not_be_found(write, tmp_path):
    path = write(DENSE, xml=None)
    with pytest.raises(ValueError, match=r"toy.arff must come with its labels; there is no toy.xml beside it"):
        read_arff(path)
    with pytest.raises(ValueError, match=r"'dgo' \(labels\) is not one: did you mean 'dog'\?"):
        read_arff(path, labels=["dgo"])
    with pytest.raises(ValueError, match="must keep at least one label and one feature; 5 of its 5"):
        read_arff(path, labels=5)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none.xml"):
        read_arff(path, tmp_path / "none.xml")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none.arff"):
        read_arff(tmp_path / "none.arff")


def test_cut_off_gzip(write):
    path = write(DENSE * 50, "toy.arff.gz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"toy.arff.gz"):
        read_arff(path)


def test_a_long_broken_line_fails_at_once(write):
    start = time.process_time()
    with pytest.raises(ValueError, match="line 10"):
        read_arff(write(HEADER + "{" + "0 1," * 200_000 + "}"))
    assert time.process_time() - start < 3


names = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="\x85"),
    min_size=1,
    max_size=8,
).filter(lambda name: name.strip() == name)
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


def _quote(name):
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("arff")


@st.composite
def tables(draw):
    columns = draw(st.lists(names, min_size=2, max_size=5, unique=True))
    rows = draw(
        st.lists(st.lists(numbers, min_size=len(columns) - 1, max_size=len(columns) - 1), min_size=1, max_size=5)
    )
    return columns, rows


@settings(max_examples=40, deadline=None)
@given(tables(), st.booleans())
def test_written_rows_come_back(folder, table, is_sparse):
    (*features, label), rows = table
    text = "@relation r\n" + "".join(f"@attribute {_quote(name)} numeric\n" for name in features)
    text += f"@attribute {_quote(label)} {{0,1}}\n@data\n"
    for row in rows:
        cells = [*row, int(row[0] > 0)]
        pairs = ", ".join(f"{j} {value!r}" for j, value in enumerate(cells) if value)
        text += f"{{{pairs}}}\n" if is_sparse else ",".join(map(repr, cells)) + "\n"
    path = folder / "x.arff"
    path.write_text(text, encoding="utf-8")
    data = read_arff(path, labels=-1)
    assert data.feature_names == tuple(features)
    assert data.label_names == (label,)
    X = data.X.toarray() if is_sparse else data.X
    np.testing.assert_array_equal(X, np.array(rows, dtype=np.float32))
    np.testing.assert_array_equal(data.Y[:, 0], [row[0] > 0 for row in rows])


@pytest.mark.parametrize("seed", range(3))
def test_reads_what_liac_arff_writes(tmp_path, seed):
    rng = np.random.default_rng(seed)
    X = sp.csr_array(rng.random((30, 12)) * (rng.random((30, 12)) < 0.3))
    Y = (rng.random((30, 3)) < 0.4).astype(int)
    table = {
        "relation": "oracle",
        "attributes": [(f"f {j}", "REAL") for j in range(12)] + [(f"l,{j}", ["0", "1"]) for j in range(3)],
    }
    dense = table | {"data": [[*x, *map(str, y)] for x, y in zip(X.toarray().tolist(), Y.tolist(), strict=True)]}
    thin = table | {
        "data": [
            {j: v for j, v in enumerate(x) if v} | {12 + j: "1" for j, v in enumerate(y) if v}
            for x, y in zip(X.toarray().tolist(), Y.tolist(), strict=True)
        ]
    }
    for name, content in (("dense", dense), ("thin", thin)):
        path = tmp_path / f"{name}.arff"
        path.write_text(liac.dumps(content))
        data = read_arff(path, labels=-3)
        assert data.label_names == ("l,0", "l,1", "l,2")
        np.testing.assert_array_equal(data.Y, Y)
        X_read = data.X.toarray() if data.is_sparse else data.X
        np.testing.assert_array_equal(X_read, X.toarray().astype(np.float32))
        assert data.is_sparse is (name == "thin")


@pytest.mark.real_data
def test_a_large_sparse_file_is_read_fast(real_file):
    path = real_file("raw/delicious.arff.gz")
    start = time.process_time()
    data = read_arff(path)
    assert time.process_time() - start < 1.5
    assert (data.n_samples, data.n_features, data.n_labels) == (16105, 500, 983)
    assert data.is_sparse


@pytest.mark.real_data
def test_agrees_with_liac_arff_on_a_real_file(real_file):
    path = real_file("raw/reuters-k500-test.arff.gz")
    ours = read_arff(path)
    with gzip.open(path, "rt") as handle:
        rows = liac.load(handle, return_type=liac.LOD, encode_nominal=False)["data"]
    theirs = sp.dok_array((len(rows), 603), dtype=np.float32)
    for i, row in enumerate(rows):
        for j, value in row.items():
            theirs[i, j] = float(value)
    theirs = theirs.tocsr()
    np.testing.assert_array_equal(theirs[:, :103].toarray(), ours.Y)
    assert abs(theirs[:, 103:] - ours.X).max() == 0
