"""Tables → numbers: every kind of column, missing cells, streams, and tables that must be refused."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer

from onepos.tables import TableEncoder, terms
from onepos.tables import encoder as encoder_module
from onepos.tables.columns import TEXT_WEIGHT
from onepos.tables.counts import Counts

WORDS = "the a night of love man with two red last dog in city dark war summer ghost story return"


def titles(n, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS.split(), 4)) + f" {k}" for k in range(n)]


def mixed_table(n=210):
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2019-03-01 06:00") + pd.to_timedelta(rng.integers(0, 9000, n), unit="h")
    table = pd.DataFrame(
        {
            "length": rng.normal(90, 20, n),
            "votes": np.exp(rng.normal(5, 3, n)).round(),
            "color": rng.choice(["red", "green", "blue"], n),
            "open": rng.choice([True, False], n),
            "seen": days,
            "title": titles(n),
        }
    )
    table = table.astype({"open": object})
    for k, name in enumerate(table.columns):
        table.loc[table.index[k::11], name] = None
    return table


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else matrix


def kinds_of(encoder):
    return {report.name: report.kind for report in encoder.describe()}


def kind_of(cells, **options):
    """What a column is, beside one that can always be used."""
    encoder = TableEncoder(**options).fit(
        pd.DataFrame({"x": cells, "beside": np.random.default_rng(1).normal(size=len(cells))})
    )
    return kinds_of(encoder)["x"]


def encode(cells, **options):
    """Names and numbers of a single column."""
    encoder = TableEncoder(**options).fit(pd.DataFrame({"x": cells}))
    return encoder.get_feature_names_out().tolist(), dense(encoder.transform(pd.DataFrame({"x": cells})))


class TestNumbers:
    def test_are_standardized_and_clipped(self):
        cells = np.append(np.random.default_rng(0).normal(7, 3, 500), 200.0)
        encoder = TableEncoder().fit({"x": cells[:-1]})
        X = encoder.transform({"x": cells})[:, 0]
        assert X.dtype == np.float32
        assert X[:-1].mean() == pytest.approx(0, abs=1e-3)
        assert X[:-1].std() == pytest.approx(1, abs=1e-3)
        assert X[-1] == 5

    def test_missing_ones_are_the_mean_and_marked(self):
        names, X = encode([1.0, None, 3.0])
        assert names == ["x", "x missing"]
        assert X.tolist() == [[-1, 0], [0, 1], [1, 0]]

    def test_a_skewed_column_is_taken_as_its_logarithm(self):
        rng = np.random.default_rng(0)
        encoder = TableEncoder().fit({"skewed": np.exp(rng.normal(8, 2, 400)), "even": rng.normal(size=400)})
        became = [report.became for report in encoder.describe()]
        assert became == ["logarithm, standardized, and 12 steps", "standardized, and 12 steps"]
        edges = np.quantile(np.log1p(np.exp(np.random.default_rng(0).normal(8, 2, 400))), [0, 1 / 12, 1])
        assert encoder.columns_[0].edges[[0, 1, -1]] == pytest.approx(edges)

    def test_steps_say_between_which_quantiles_a_number_lies(self):
        encoder = TableEncoder().fit({"x": np.linspace(0, 12, 1201)})  # the steps end at 1, 2, …
        names = encoder.get_feature_names_out()
        assert names[[0, 1, 2, 12]].tolist() == ["x", "x 0 to 1", "x 1 to 2", "x 11 to 12"]
        X = encoder.transform({"x": [-5.0, 1.25, 20.0, None]})[:, 1:13]
        assert X[0].tolist() == [-1] * 12
        assert X[1].tolist() == pytest.approx([1, -0.5] + [-1] * 10, abs=1e-6)
        assert X[2].tolist() == [1] * 12
        assert X[3].tolist() == [0] * 12

    @pytest.mark.parametrize("cells", [np.sin(np.arange(99)), [0.0] * 600 + [1.0] * 400, [1, None] * 90])
    def test_few_rows_and_two_values_get_no_steps(self, cells):
        names, _ = encode(list(cells))
        assert names[0] == "x"
        assert all(name in ("x", "x missing") for name in names)

    def test_many_columns_get_no_steps(self):
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(rng.normal(size=(150, 33)), columns=[f"x{k}" for k in range(33)])
        assert TableEncoder().fit(frame).n_outputs_ == 33
        assert TableEncoder().fit(frame.iloc[:, :32]).n_outputs_ == 32 * 13

    def test_steps_do_not_depend_on_the_blocks(self):
        cells = np.random.default_rng(0).gamma(1.0, size=50_000)
        whole = TableEncoder().fit({"x": cells})
        blocks = TableEncoder().fit_blocks(lambda: ({"x": part} for part in np.array_split(cells, 17)))
        np.testing.assert_array_equal(blocks.columns_[0].edges, whole.columns_[0].edges)
        share = (whole.transform({"x": cells})[:, 1:] > 0).mean(0)
        np.testing.assert_allclose(share[:-1], 1 - (np.arange(11) + 0.5) / 12, atol=0.02)  # the last has a long tail

    @pytest.mark.parametrize(
        "cells",
        [
            pd.Series([1, None, 3], dtype="Int64"),
            pd.Series([1, None, 3], dtype="Float32"),
            pd.Series([Decimal("1"), None, Decimal("3")]),
            pd.Series(["1", "", "3"]),
            pd.Series([" 1.0", "NA", "3e0"]),
            pd.Series([1, float("nan"), Decimal("3")], dtype=object),
            pd.to_timedelta(pd.Series([24, None, 72]), unit="h"),
        ],
        ids=str,
    )
    def test_in_every_dress(self, cells):
        assert encode(cells)[1].tolist() == [[-1, 0], [0, 1], [1, 0]]

    def test_huge_ones_do_not_overflow(self):
        _, X = encode([1e300, -1e300, 1e308, 0.0])
        assert np.isfinite(X).all()
        assert X[0] > X[3] > X[1]

    def test_missing_only_after_fit(self):
        X = TableEncoder().fit({"x": [1.0, 2.0]}).transform({"x": [None, 2.0]})
        assert X.tolist() == [[0], [1]]

    def test_infinite_ones_are_refused(self):
        with pytest.raises(ValueError, match=r"Column 'x' must hold finite numbers; it holds inf in row 2 .* drop\.$"):
            TableEncoder().fit({"x": [1.0, 2.0, np.inf]})
        with pytest.raises(ValueError, match=r"column 'x' \(number\) holds -inf in row 0"):
            TableEncoder().fit({"x": [1.0, 2.0]}).transform({"x": [-np.inf]})


class TestBooleans:
    @pytest.mark.parametrize(
        "cells",
        [
            [True, False, None],
            pd.Series([True, False, None], dtype="boolean"),
            ["yes", "No", ""],
            ["TRUE", "false", "NA"],
            ["y", "n", None],
        ],
        ids=str,
    )
    def test_are_plus_and_minus(self, cells):
        names, X = encode(cells)
        assert names == ["x", "x missing"]
        assert X.tolist() == [[1, 0], [-1, 0], [0, 1]]

    def test_0_and_1_may_take_their_place(self):
        encoder = TableEncoder().fit({"x": [True, False]})
        assert encoder.transform({"x": [0, 1]}).tolist() == [[-1], [1]]
        assert encoder.transform({"x": ["1", "no"]}).tolist() == [[1], [-1]]
        with pytest.raises(ValueError, match=r"column 'x' \(boolean\) holds 2 in row 1"):
            encoder.transform({"x": [1, 2]})
        with pytest.raises(ValueError, match=r"column 'x' \(boolean\) holds 'maybe' in row 1"):
            encoder.transform({"x": ["yes", "maybe"]})


class TestCategories:
    def test_are_one_hot_and_rare_ones_are_pooled(self):
        names, X = encode(["a", "b", "a", "b", "c", "a", None])
        assert names == ["x=a", "x=b", "x other", "x missing"]
        assert X[[0, 1, 4, 6]].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]

    def test_unknown_ones_are_other_or_nothing(self):
        with_other = TableEncoder().fit({"x": ["a", "a", "b", "b", "c"]})
        without = TableEncoder().fit({"x": ["a", "a", "b", "b"]})
        assert with_other.transform({"x": ["new"]}).tolist() == [[0, 0, 1]]
        assert without.transform({"x": ["new"]}).tolist() == [[0, 0]]
        assert without.transform({"x": [None]}).tolist() == [[0, 0]]

    def test_only_the_most_frequent_are_kept(self):
        names, _ = encode(["a"] * 4 + ["b"] * 2 + ["c"] * 3, max_categories=2)
        assert names == ["x=a", "x=c", "x other"]

    def test_ten_thousand(self):
        cells = np.random.default_rng(0).integers(0, 10_000, 50_000).astype(str).astype(object) + "x"
        encoder = TableEncoder().fit({"x": cells})
        X = encoder.transform({"x": cells})
        assert kinds_of(encoder) == {"x": "category"}
        assert X.shape == (50_000, 1_001)
        assert sp.issparse(X)
        assert (X.sum(axis=1) == 1).all()

    @pytest.mark.parametrize(
        "cells",
        [
            pd.Series(["a", "b", "a", "b", None], dtype="category"),
            pd.Series(["a", "b", "a", "b", None], dtype="string"),
            pd.Series(["a ", " b", "a", "b", "?"]),
            pd.Series(["ä", "日本", "ä", "日本", None]),
        ],
        ids=str,
    )
    def test_in_every_dress(self, cells):
        names, X = encode(cells)
        assert [name.partition("=")[0] for name in names] == ["x", "x", "x missing"]
        assert X.tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]

    def test_declared_numbers(self):
        encoder = TableEncoder(categorical="x").fit({"x": [1, 2, 1, 2]})
        assert encoder.get_feature_names_out().tolist() == ["x=1", "x=2"]
        assert encoder.transform({"x": [2.0, None]}).tolist() == [[0, 1], [0, 0]]
        assert encoder.transform({"x": ["2", "1"]}).tolist() == [[0, 1], [1, 0]]

    def test_declared_numbers_of_pandas_categories(self):
        assert kind_of(pd.Series([3, 4, 3, 4] * 5).astype("category")) == "category"

    def test_codes_with_leading_zeros(self):
        assert kind_of(["02139", "10001", "02139", "94105"] * 5) == "category"


class TestDates:
    def test_become_days_year_and_circles(self):
        names, X = encode(["2020-01-06", "2021-07-05", None])
        assert names == [
            "x",
            "x year",
            "x month sin",
            "x month cos",
            "x weekday sin",
            "x weekday cos",
            "x missing",
        ]
        assert X[0, :2].tolist() == [-1, -1]
        assert X[1, :2].tolist() == [1, 1]
        np.testing.assert_allclose(X[0, 2:6], np.sqrt(2) * np.array([0, 1, 0, 1]), atol=1e-6)  # January, Monday
        np.testing.assert_allclose(X[1, 2:4], np.sqrt(2) * np.array([0, -1]), atol=1e-6)
        assert X[2].tolist() == [0, 0, 0, 0, 0, 0, 1]

    def test_with_times(self):
        names, X = encode(pd.to_datetime(["2020-01-06 06:00", "2021-07-05 18:00"]))
        assert names[-2:] == ["x hour sin", "x hour cos"]
        np.testing.assert_allclose(X[:, -2], [np.sqrt(2), -np.sqrt(2)], rtol=1e-6)

    @pytest.mark.parametrize(
        "cells",
        [
            ["05.01.2020", "13.02.2021", "28.12.2022"],
            ["05/01/2020", "13/02/2021", "28/12/2022"],
            ["01/05/2020", "02/13/2021", "12/28/2022"],
            ["Jan 5, 2020", "Feb 13, 2021", "Dec 28, 2022"],
            ["5 January 2020", "13 February 2021", "28 December 2022"],
            ["2020-01-05T00:00:00Z", "2021-02-13T00:00:00Z", "2022-12-28T00:00:00Z"],
            pd.to_datetime(["2020-01-05", "2021-02-13", "2022-12-28"]).tz_localize("UTC"),
            pd.to_datetime(["2020-01-05", "2021-02-13", "2022-12-28"]).tz_localize("UTC").tz_convert("Asia/Tokyo"),
            [dt.date(2020, 1, 5), dt.date(2021, 2, 13), dt.date(2022, 12, 28)],
            pd.period_range("2020-01-05", periods=1, freq="D").append(
                pd.PeriodIndex(["2021-02-13", "2022-12-28"], freq="D")
            ),
        ],
        ids=str,
    )
    def test_in_every_dress(self, cells):
        expected = encode(pd.to_datetime(["2020-01-05", "2021-02-13", "2022-12-28"]))
        found = encode(cells)
        assert found[0] == expected[0]
        np.testing.assert_array_equal(found[1], expected[1])

    def test_a_column_that_half_parses_is_refused(self):
        cells = ["2020-01-05", "soon", "2021-02-13", "later", "2022-12-28"] * 4
        message = (
            r"Column 'x' must hold dates or text, not both; 12 of 20 cells are dates, the first other is 'soon' in row "
            r"1 \(counted from 0\). Correct the column, or name it in text, categorical or drop."
        )
        with pytest.raises(ValueError, match=message):
            TableEncoder().fit({"x": cells})
        assert kind_of(cells, categorical=["x"]) == "category"

    def test_a_rare_other_cell_is_missing(self):
        cells = [f"2020-01-{k % 28 + 1:02}" for k in range(99)] + ["soon"]
        names, X = encode(cells)
        assert names[-1] == "x missing"
        assert X[-1].tolist() == [0] * 6 + [1]

    def test_a_column_that_half_parses_in_later_blocks(self):
        blocks = [{"x": ["2020-01-05", "2021-02-13"]}, {"x": ["soon", "2020-01-01"]}]
        encoder = TableEncoder()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encoder_module, "HEAD_ROWS", 2)
            with pytest.raises(ValueError, match="3 of 4 cells are dates, the first other is 'soon' in row 2"):
                encoder.fit_blocks(lambda: blocks)


class TestText:
    def test_is_sparse_and_of_one_length(self):
        cells = [*titles(100), None]
        encoder = TableEncoder().fit({"x": cells})
        X = encoder.transform({"x": cells})
        assert sp.issparse(X)
        assert X.dtype == np.float32
        lengths = np.sqrt((X.toarray() ** 2).sum(axis=1))
        np.testing.assert_allclose(lengths, [TEXT_WEIGHT] * 100 + [1], rtol=1e-5)
        names = encoder.get_feature_names_out()
        assert {"x: night", "x: 'nigh'", "x: ' nig'", "x missing"} <= set(names)

    def test_counts_are_those_of_scikit_learn(self):
        texts = ["A night, of Love…", "love  is\tlove", "ünïcode 日本 語", "!!", "a" * 9]
        expected = CountVectorizer(analyzer="char_wb", ngram_range=terms.CHARACTER_NGRAMS)
        counts, names = terms.count_characters(texts)
        np.testing.assert_array_equal(counts.toarray(), expected.fit_transform(texts).toarray())
        assert list(names) == expected.get_feature_names_out().tolist()

    def test_at_most_so_many_features(self):
        encoder = TableEncoder(max_text_features=30).fit({"x": titles(100)})
        assert len(encoder.get_feature_names_out()) == 30
        assert len(encoder.columns_[0].words) == 15

    def test_characters_take_the_place_of_words_that_are_not_there(self):
        encoder = TableEncoder(text=["x"], max_text_features=30).fit({"x": ["- abcdef", "- abcdex", "+ abcdef"] * 3})
        assert len(encoder.columns_[0].words) < 15
        assert len(encoder.columns_[0].characters) > 15

    @pytest.mark.parametrize("cells", [["!!", "??!"], ["a", "b"], ["🎬 🎬", "🎬"]], ids=str)
    def test_without_words(self, cells):
        X = TableEncoder(text=["x"]).fit_transform({"x": cells * 3})
        assert np.isfinite(dense(X)).all()
        assert dense(X).any()

    def test_in_small_chunks(self, monkeypatch):
        cells = titles(60)
        expected = TableEncoder().fit_transform({"x": cells})
        monkeypatch.setattr(terms, "CHUNK_CHARACTERS", 50)
        np.testing.assert_array_equal(TableEncoder().fit_transform({"x": cells}).toarray(), expected.toarray())

    def test_new_words_are_nothing(self):
        X = TableEncoder(text=["x"]).fit({"x": ["night of love"] * 2 + ["day"] * 2}).transform({"x": ["zzz", "", None]})
        assert not dense(X).any()

    def test_lone_surrogates(self):
        encoder = TableEncoder(text=["x"]).fit({"x": pd.Series(["a \ud800bcd", "abcd"] * 3, dtype=object)})
        restored = TableEncoder.from_state(*encoder.to_state())
        assert restored.get_feature_names_out().tolist() == encoder.get_feature_names_out().tolist()


class TestKinds:
    @pytest.mark.parametrize(
        ("cells", "kind"),
        [
            (titles(40), "text"),
            ([f"The {word}" for word in WORDS.split()] * 1, "text"),
            (["Some college, no degree", "High school and nothing else"] * 20, "category"),
            (["x" * 30 + word for word in WORDS.split()], "text"),
            (["light blue", "dark red"] * 20, "category"),
            (["1984", "2001", "1917"] * 5, "number"),
            (["2020-01-05", "2020-02-05"] * 5, "date"),
            (["yes", "no"] * 5, "boolean"),
            (["robin", "wren", "robin"], "category"),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_of_texts(self, cells, kind):
        assert kind_of(cells) == kind

    @pytest.mark.parametrize(
        ("name", "cells", "reason"),
        [
            ("x", [None] * 30, "all cells are missing"),
            ("x", [""] * 30, "all cells are missing"),
            ("x", [7] * 30, "all cells are the same"),
            ("x", ["a"] * 30, "all cells are the same"),
            ("x", np.arange(100, 130)[::-1], "whole numbers that number the rows"),
            ("user_id", np.arange(30) ** 2, "named like an id, and no value comes twice"),
            ("userId", [f"{word}!" for word in WORDS.split()] + ["y"], "named like an id, and no value comes twice"),
            ("x", [f"AB-{k}" for k in range(30)], "short codes, of which none comes twice"),
        ],
        ids=lambda value: str(value)[:40],
    )
    def test_left_out(self, name, cells, reason):
        encoder = TableEncoder().fit({name: cells, "beside": np.random.default_rng(0).normal(size=len(cells))})
        assert encoder.left_out_ == {name: reason}
        assert encoder.describe()[0].reason == reason
        assert encoder.transform({"beside": [1.0]}).shape == (1, 1)

    @pytest.mark.parametrize("name", ["humid", "valid", "paid", "Madrid"])
    def test_names_that_only_end_like_an_id(self, name):
        encoder = TableEncoder().fit({name: np.arange(30) ** 2})
        assert not encoder.left_out_

    def test_dropped(self):
        encoder = TableEncoder(drop=["b"]).fit({"a": [1, 2], "b": [3, 4]})
        assert encoder.left_out_ == {"b": "named in drop"}

    def test_an_all_missing_column_of_every_dtype(self):
        for dtype in (float, object, "Int64", "boolean", "string", "category", "datetime64[ns]", "timedelta64[ns]"):
            assert kind_of(pd.Series([None] * 3, dtype=dtype)) == "left out"

    def test_one_row(self):
        row = {"number": [3.0], "color": ["red"], "open": [True], "seen": [dt.date(2020, 1, 1)]}
        X = TableEncoder().fit_transform(row)
        assert X.shape == (1, 9)
        assert np.isfinite(X).all()


class TestTables:
    def test_mixed(self):
        table = mixed_table()
        encoder = TableEncoder().fit(table)
        assert kinds_of(encoder) == {
            "length": "number",
            "votes": "number",
            "color": "category",
            "open": "boolean",
            "seen": "date",
            "title": "text",
        }
        X = encoder.transform(table)
        assert isinstance(X, sp.csr_array)
        assert X.dtype == np.float32
        assert X.shape == (210, len(encoder.get_feature_names_out()))
        assert sum(report.n_outputs for report in encoder.describe()) == X.shape[1]
        assert all(report.missing == pytest.approx(0.09, abs=0.01) for report in encoder.describe())

    def test_few_categories_beside_numbers_are_dense(self):
        assert isinstance(TableEncoder().fit_transform({"a": [1.0, 2.0], "b": ["x", "y"]}), np.ndarray)

    def test_columns_are_found_by_name(self):
        table = mixed_table()
        encoder = TableEncoder().fit(table)
        X = encoder.transform(table[table.columns[::-1]].assign(new=1, newer="x"))
        assert encoder.ignored_ == ("new", "newer")
        np.testing.assert_array_equal(X.toarray(), encoder.transform(table).toarray())
        assert encoder.ignored_ == ()

    def test_one_row_at_a_time(self):
        table = mixed_table()
        encoder = TableEncoder().fit(table)
        rows = sp.vstack([encoder.transform(table.iloc[[k]]) for k in range(30)]).toarray()
        np.testing.assert_allclose(rows, encoder.transform(table).toarray()[:30], atol=1e-6)

    def test_no_rows(self):
        encoder = TableEncoder().fit(mixed_table())
        X = encoder.transform(mixed_table().iloc[:0])
        assert X.shape == (0, len(encoder.get_feature_names_out()))

    def test_fit_does_not_change_the_table(self):
        table = mixed_table()
        TableEncoder().fit(table).transform(table)
        pd.testing.assert_frame_equal(table, mixed_table())

    def test_is_an_estimator(self):
        encoder = clone(TableEncoder(text=["title"], max_categories=5))
        assert encoder.get_params()["max_categories"] == 5
        with pytest.raises(NotFittedError):
            encoder.transform(mixed_table())
        assert encoder.fit(mixed_table(), y=None) is encoder

    def test_columns_with_other_names_than_text(self):
        encoder = TableEncoder(categorical=["1"]).fit(pd.DataFrame({0: [1.0, 2.0], 1: [3, 4]}))
        assert encoder.get_feature_names_out().tolist() == ["0", "1=3", "1=4"]


class TestBlocks:
    @pytest.mark.parametrize("size", [1, 30, 1000])
    def test_make_no_difference(self, size):
        table = mixed_table()
        blocks = [table.iloc[start : start + size] for start in range(0, len(table), size)]
        whole, parts = TableEncoder().fit(table), TableEncoder().fit_blocks(lambda: blocks)
        assert parts.n_rows_ == len(table)
        assert whole.describe() == parts.describe()
        assert whole.get_feature_names_out().tolist() == parts.get_feature_names_out().tolist()
        X = sp.vstack(list(parts.transform_blocks(lambda: blocks)))
        np.testing.assert_allclose(X.toarray(), whole.transform(table).toarray(), atol=1e-6)

    def test_after_the_head(self, monkeypatch):
        monkeypatch.setattr(encoder_module, "HEAD_ROWS", 50)
        self.test_make_no_difference(30)

    def test_a_column_that_begins_late(self, monkeypatch):
        monkeypatch.setattr(encoder_module, "HEAD_ROWS", 3)
        table = pd.DataFrame(
            {
                "always": [1.0, 2.0, 4.0, 8.0, 9.0, 3.0],
                "empty": [None, None, None, None, "a", "b"],
                "blank": ["", "", "", "NA", "a", "b"],
                "same": [5, 5, 5, 5, 6, 6],
                "never": [1] * 6,
            }
        )
        blocks = [table.iloc[:2], table.iloc[2:4], table.iloc[4:]]
        encoder = TableEncoder().fit_blocks(lambda: blocks)
        assert kinds_of(encoder) == {
            "always": "number",
            "empty": "category",
            "blank": "category",
            "same": "number",
            "never": "left out",
        }
        assert [round(report.missing * 6) for report in encoder.describe()[:4]] == [0, 4, 4, 0]
        assert encoder.transform(table)[:, -1].mean() == pytest.approx(0, abs=1e-6)

    def test_text_among_numbers_in_a_later_block(self, monkeypatch):
        monkeypatch.setattr(encoder_module, "HEAD_ROWS", 2)
        blocks = [{"x": [1, 2]}, {"x": [3, "four"]}]
        with pytest.raises(ValueError, match="'x' must hold numbers or text, not both; it holds 'four' in row 3"):
            TableEncoder().fit_blocks(lambda: blocks)

    def test_a_block_without_a_column(self):
        blocks = [{"x": [1, 2], "y": [1, 3]}, {"x": [3]}]
        with pytest.raises(ValueError, match="the block that begins with row 2 has no 'y'"):
            TableEncoder().fit_blocks(lambda: blocks)

    def test_rare_texts_are_forgotten_where_there_are_too_many(self):
        counts = Counts(most=10)
        counts.add(["often"], [5])
        for k in range(40):
            counts.add([f"word {k}", "often"], [1, 1])
        assert len(counts.rows) <= 10
        assert counts.rows["often"] == 45
        assert counts.n_forgotten > 20


class TestRefused:
    def test_numbers_among_text(self):
        message = r"'x' must hold numbers or text, not both; 1 of 5 cells are no numbers, the first is 'long' in row 3"
        with pytest.raises(ValueError, match=message):
            TableEncoder().fit({"x": pd.Series([1, 2, 3, "long", 5], dtype=object)})
        assert kind_of(pd.Series([1, 2, 1, "long", 2], dtype=object), categorical=["x"]) == "category"

    def test_lists(self):
        with pytest.raises(ValueError, match=r"'x' must hold single values.*it holds a list in row 1.*name it in drop"):
            TableEncoder().fit({"x": [None, [1, 2]]})
        with pytest.raises(ValueError, match=r"'x' must hold single values"):
            TableEncoder(text=["x"]).fit({"x": [None, [1, 2]]})

    def test_another_table_names_all_that_is_wrong(self):
        encoder = TableEncoder().fit(mixed_table())
        table = mixed_table().drop(columns=["votes", "title"]).assign(length="long", seen=1.5)
        with pytest.raises(ValueError, match="A table must have the columns the encoder was fitted with") as error:
            encoder.transform(table)
        for part in (
            "there is no column 'votes'",
            "there is no column 'title'",
            "column 'length' (number) holds 'long' in row 0",
            "column 'seen' (date) holds '1.5' in row 0",
        ):
            assert part in str(error.value)

    def test_nothing_to_learn_from(self):
        with pytest.raises(ValueError, match=r"all 2 are left out \('a': all cells are the same; 'b': named in drop\)"):
            TableEncoder(drop=["b"]).fit({"a": [1, 1], "b": [1, 2]})

    @pytest.mark.parametrize("table", [{"a": []}, [], {}, pd.DataFrame()], ids=str)
    def test_no_rows(self, table):
        with pytest.raises(ValueError, match="A table must hold at least one row"):
            TableEncoder().fit(table)

    def test_unknown_names(self):
        with pytest.raises(ValueError, match="The table has no column 'titel'; did you mean 'title'"):
            TableEncoder(text=["titel"]).fit({"title": ["a", "b"]})
        with pytest.raises(ValueError, match="'a' is in two"):
            TableEncoder(text=["a"], drop=["a"]).fit({"a": ["a", "b"]})

    @pytest.mark.parametrize("options", [{"max_text_features": 0}, {"max_categories": 0}, {"max_categories": "all"}])
    def test_settings(self, options):
        with pytest.raises(ValueError, match="must be a whole number of at least"):
            TableEncoder(**options).fit({"a": [1, 2]})
