"""Everything that is taken for a table."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from onepos.tables import TableEncoder, as_frame

COLUMNS = {"pages": [310, 95, None], "cover": ["hard", None, "soft"]}


class Hub:
    """Like `datasets.Dataset`."""

    column_names = ("pages", "cover")

    def to_pandas(self):
        return pd.DataFrame(COLUMNS)


class Lonely:
    """Like polars without pyarrow."""

    columns = ("pages", "cover")

    def to_pandas(self):
        raise ModuleNotFoundError("pyarrow")

    def to_dict(self, as_series):
        assert not as_series
        return COLUMNS


@pytest.mark.parametrize(
    "table",
    [
        COLUMNS,
        [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)],
        Hub(),
        Lonely(),
    ],
    ids=["dictionary", "list of dictionaries", "dataset", "polars without pyarrow"],
)
def test_tables(table):
    frame = as_frame(table)
    assert list(frame.columns) == ["pages", "cover"]
    assert frame["pages"].iloc[:2].tolist() == [310, 95]
    assert frame.isna().sum().tolist() == [1, 1]


def test_a_frame_is_not_copied():
    frame = pd.DataFrame(COLUMNS)
    assert as_frame(frame) is frame


def test_an_array():
    assert list(as_frame(np.eye(3)).columns) == ["0", "1", "2"]


def test_names_become_text_without_changing_the_table():
    frame = pd.DataFrame({0: [1], ("a", "b"): [2]})
    assert list(as_frame(frame).columns) == ["0", "('a', 'b')"]
    assert list(frame.columns) == [0, ("a", "b")]


def test_two_columns_of_one_name():
    with pytest.raises(ValueError, match="'a' is both column 0 and column 2"):
        as_frame(pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]))
    with pytest.raises(ValueError, match="'1' is both column 0 and column 1"):
        as_frame(pd.DataFrame([[1, 2]], columns=[1, "1"]))


def test_what_is_no_table():
    for table in (3, "items.csv", [1, 2], np.zeros(3), None):
        with pytest.raises(ValueError, match="A table must be a DataFrame"):
            as_frame(table)
    with pytest.raises(ValueError, match="lists of equal length"):
        as_frame({"a": [1], "b": [1, 2]})
    with pytest.raises(ValueError, match=r"got 2, under 'train' and others.*table\['train'\]"):
        as_frame({"train": Hub(), "test": Hub()})


def many_types():
    return {
        "number": [1, None, 4, 3],
        "text": ["a", None, "b", "a"],
        "flag": [True, None, False, True],
        "day": [dt.date(2020, 1, 1), None, dt.date(2021, 5, 5), dt.date(2020, 1, 1)],
        "time": [dt.datetime(2020, 1, 1, 5), None, dt.datetime(2021, 5, 5), dt.datetime(2020, 1, 1)],
        "span": [dt.timedelta(days=1), None, dt.timedelta(days=3), dt.timedelta(days=2)],
    }


def expected():
    encoder = TableEncoder().fit(many_types())
    return encoder, encoder.transform(many_types())


def test_arrow():
    pa = pytest.importorskip("pyarrow")
    encoder, X = expected()
    table = pa.table(many_types())
    arrow_backed = table.to_pandas(types_mapper=pd.ArrowDtype)
    coded = table.set_column(1, "text", table["text"].dictionary_encode())
    for given in (table, table.to_batches()[0], arrow_backed, coded, coded.to_pandas(types_mapper=pd.ArrowDtype)):
        np.testing.assert_array_equal(encoder.transform(given), X)
        np.testing.assert_array_equal(TableEncoder().fit_transform(given), X)


def test_polars():
    pl = pytest.importorskip("polars")
    encoder, X = expected()
    for given in (pl.DataFrame(many_types()), pl.LazyFrame(many_types())):
        np.testing.assert_array_equal(encoder.transform(given), X)
        np.testing.assert_array_equal(TableEncoder().fit_transform(given), X)
