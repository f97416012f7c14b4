"""An encoder that was stored is the same encoder; one that was damaged is refused."""

import copy
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onepos.tables import TableEncoder


def small_table():
    return pd.DataFrame(
        {
            "pages": [310, 95, None, 120],
            "cover": ["hard", "soft", "soft", "hard"],
            "out": ["yes", "no", "no", None],
            "day": pd.to_datetime(["2020-01-01 05:00", "2021-05-05 00:00", None, "2022-01-01 00:00"]),
            "title": ["A night of love", "Love – a story", "日本 night", ""],
            "same": [1] * 4,
        }
    )


ENCODER = TableEncoder(text=["title"], drop=["same"]).fit(small_table())
FACTS, ARRAYS = ENCODER.to_state()


def test_round_trip_is_exact():
    facts = json.loads(json.dumps(FACTS))
    restored = TableEncoder.from_state(facts, ARRAYS)
    X, again = ENCODER.transform(small_table()), restored.transform(small_table())
    assert X.dtype == again.dtype
    assert X.tobytes() == again.tobytes()
    assert restored.describe() == ENCODER.describe()
    assert restored.get_params() == ENCODER.get_params() | {"text": ("title",), "drop": ("same",)}
    assert restored.get_feature_names_out().tolist() == ENCODER.get_feature_names_out().tolist()
    assert restored.to_state()[0] == facts


def test_round_trip_of_a_sparse_encoder():
    table = {"title": [f"{a}{b} {b}{a} {a}" for a in "abcdefgh" for b in "uvwxyzäß"], "votes": np.arange(64.0) ** 3}
    encoder = TableEncoder().fit(table)
    X, again = encoder.transform(table), TableEncoder.from_state(*encoder.to_state()).transform(table)
    for part in ("data", "indices", "indptr"):
        assert getattr(X, part).tobytes() == getattr(again, part).tobytes()


def test_arrays_are_plain():
    assert {array.dtype for array in ARRAYS.values()} == {np.dtype(np.uint8), np.dtype(np.float32)}
    assert set(ARRAYS) == {"4.words", "4.characters", "4.idf"}


def test_a_restored_encoder_can_be_fitted_again():
    restored = TableEncoder.from_state(FACTS, ARRAYS)
    assert restored.fit(small_table()).to_state()[0] == FACTS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda facts, arrays: facts.update(format=1), "the format 2; got '1'"),
        (lambda facts, arrays: facts.pop("columns"), "the entry 'columns'"),
        (lambda facts, arrays: facts.update(columns=[]), "at least one column"),
        (lambda facts, arrays: facts["columns"][0].update(kind="code"), "as 'kind' one of number, boolean"),
        (lambda facts, arrays: facts["columns"][0].update(mean="0"), "as 'mean' a finite number"),
        (lambda facts, arrays: facts["columns"][0].update(mean=10**400), "as 'mean' a finite number"),
        (lambda facts, arrays: facts["columns"][0].update(deviation=0), "as 'deviation' a finite positive number"),
        (lambda facts, arrays: facts["columns"][0].update(n_missing=-1), "as 'n_missing' a whole number from 0"),
        (lambda facts, arrays: facts["columns"][0].update(is_log=1), "as 'is_log' true or false"),
        (lambda facts, arrays: facts["columns"][1].update(categories=["a", "a"]), "as 'categories' texts that differ"),
        (lambda facts, arrays: facts["columns"][1].update(categories=[1]), "as 'categories' a list of texts"),
        (lambda facts, arrays: facts["columns"][1].update(name="pages"), "columns with different names"),
        (lambda facts, arrays: facts["columns"][3].update(written="%H"), "as 'written' one of ISO8601"),
        (lambda facts, arrays: facts.update(names=["x"]), "as 'names' those of its columns"),
        (lambda facts, arrays: facts.update(left_out=["same"]), "'left_out' a dictionary"),
        (lambda facts, arrays: arrays.pop("4.idf"), "the entry 'idf'"),
        (
            lambda facts, arrays: arrays.update({"4.idf": np.ones(3, np.float32)}),
            "in the array 'idf' .* finite numbers",
        ),
        (lambda facts, arrays: arrays.update({"4.idf": arrays["4.idf"] * np.nan}), "finite numbers"),
        (lambda facts, arrays: arrays.update({"4.words": np.array(["a"], dtype=object)}), "the array 'words' with one"),
        (lambda facts, arrays: arrays.update({"4.words": np.array([255], np.uint8)}), "in the array 'words' UTF-8"),
        (lambda facts, arrays: arrays.update({"4.words": np.array([10, 10], np.uint8)}), "texts that differ"),
    ],
)
def test_damage_is_named(change, message):
    facts, arrays = copy.deepcopy(FACTS), dict(ARRAYS)
    change(facts, arrays)
    with pytest.raises(ValueError, match=message):
        TableEncoder.from_state(facts, arrays)


def places(node, path=()):
    """Every place in nested dictionaries and lists."""
    for key, entry in node.items() if isinstance(node, dict) else enumerate(node):
        yield (*path, key)
        if isinstance(entry, dict | list):
            yield from places(entry, (*path, key))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
BYTES = st.binary(max_size=40).map(lambda raw: np.frombuffer(raw, dtype=np.uint8))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.sampled_from(list(places(FACTS))), ANYTHING), max_size=2),
    st.dictionaries(st.sampled_from(sorted(ARRAYS)), BYTES | ANYTHING, max_size=2),
)
def test_mutated_facts_are_refused_or_work(changes, new_arrays):
    facts = copy.deepcopy(FACTS)
    for path, value in changes:
        node = facts
        try:
            for key in path[:-1]:
                node = node[key]
            node[path[-1]] = value
        except (KeyError, IndexError, TypeError):  # the place is gone
            pass
    try:
        encoder = TableEncoder.from_state(facts, ARRAYS | new_arrays)
    except ValueError:
        return
    assert len(encoder.describe()) == len(encoder.feature_names_in_)
    try:
        X = encoder.transform(small_table())
    except ValueError:
        return  # other columns, or cells of another kind
    assert X.shape == (4, len(encoder.get_feature_names_out()))
    stored = X.data if hasattr(X, "indptr") else X
    assert np.isfinite(stored).all()
