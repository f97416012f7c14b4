"""Whatever bytes a file of labels holds: labels, or one sentence."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onepos import Labels
from onepos.exchange import parse_answers, read_answers
from onepos.exchange.label_studio import name_of

KEYS = [
    *("id", "data", "item", "annotations", "result", "type", "value", "choices", "from_name", "was_cancelled"),
    *("completed_by", "updated_at", "annotator", "reason", "label_dog", "label_%ff", "label", "time", "reviewer"),
    *("images", "categories", "image_id", "category_id", "neg_category_ids", "file_name", "coco_url", "name"),
]
WORDS = ["choices", "yes", "no", "unsure", "dog", "2026-01-01", "http://[", "99999-01-01T00:00", "doubtful", "\ud800"]
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**30),
    st.floats(),
    st.sampled_from(WORDS),
    st.text(max_size=5),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)


def check(content):
    """Labels, or a ValueError of one sentence."""
    try:
        labels = Labels.from_long(parse_answers(content))
    except ValueError as error:
        text = str(error)
        assert text.endswith("."), text
        assert "\n" not in text
        assert len(text) < 1000
        text.encode()
    else:
        assert isinstance(labels, Labels)
        assert labels.classes.size > 0


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(content):
    check(content)


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_any_json(value):
    check(json.dumps(value).encode())


def choice(name, words):
    value = {"choices": words}
    return {"type": "choices", "from_name": name, "to_name": "item", "value": value}


def valid():
    """One file of each kind."""
    result = [choice(name_of("dog"), ["yes"]), choice(name_of("a b"), ["unsure"])]
    annotation = {"result": result, "updated_at": "2026-01-01T00:00:00Z", "completed_by": {"email": "a@b.org"}}
    yield [{"id": 1, "data": {"item": "a", "reason": "random"}, "annotations": [annotation]}]
    yield [{"id": 1, "item": "a", "label_dog": "yes", "label_cat": {"choices": ["no"]}, "annotator": 1}]
    yield {
        "images": [{"id": 1, "file_name": "a", "neg_category_ids": [2]}],
        "annotations": [{"image_id": 1, "category_id": 1}],
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "cat"}],
    }
    yield [{"item": "a", "label": "dog", "value": "yes", "time": "2026-01-01", "reviewer": None, "reason": "import"}]


FILES = list(valid())


def places(value, path=()):
    """The way to every entry."""
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield from places(entry, (*path, key))


def changed(value, path, new):
    """The same with another entry at a place; without the entry where the new one is `...`."""
    if not path:
        return None if new is ... else new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and new is ...:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("value", FILES, ids=["label-studio", "json-min", "coco", "list"])
def test_valid_files_are_read(value):
    assert Labels.from_long(parse_answers(json.dumps(value).encode())).positive.nnz == 1


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_one_entry_replaced_or_gone(data):
    value = data.draw(st.sampled_from(FILES))
    path = data.draw(st.sampled_from(list(places(value))))
    check(json.dumps(changed(value, path, data.draw(st.just(...) | VALUES))).encode())


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FILES), st.data())
def test_one_byte_replaced_or_the_end_cut_off(value, data):
    content = bytearray(json.dumps(value).encode())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] = data.draw(st.integers(0, 255))
    else:
        del content[at:]
    check(bytes(content))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", r"^x\.json: labels in JSON must be complete; Expecting value"),
        (b'{"a": ', r"^x\.json: labels in JSON must be complete"),
        ('[{"item": "Käse"}]'.encode("latin-1"), r"^x\.json: JSON must be UTF-8; byte 12 is of another encoding"),
        ("[]".encode("utf-16"), r"^x\.json: JSON must be UTF-8; byte 0"),
        (b"[" * 200_000, r"^x\.json: JSON of labels is nested a few levels deep; this is nested too deeply"),
        (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, r"nested too deeply to be read"),
        (b"1" * 10_000, r"^x\.json: labels in JSON must be complete; Exceeds the limit"),
        (b"[]", r"^x\.json: .*must hold at least one|must be an export of Label Studio"),
        (b"3", r"^x\.json: labels in JSON must be an export of Label Studio \(JSON or JSON-MIN\), labels of COCO"),
        (b'[{"item": 1, "label": [], "value": 1}]', r"line 1 must hold 'label', a text or a whole number"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path, content, sentence):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match=sentence) as caught:
        read_answers(tmp_path / "x.json")
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_large_files_are_refused(tmp_path, monkeypatch):
    from onepos.exchange import json_text, reading

    monkeypatch.setattr(json_text, "MOST_BYTES", 10)
    monkeypatch.setattr(reading, "MOST_BYTES", 10)
    (tmp_path / "x.json").write_bytes(b" " * 20)
    with pytest.raises(ValueError, match="must not exceed"):
        read_answers(tmp_path / "x.json")


def test_zipped_and_with_a_byte_order_mark(tmp_path):
    content = json.dumps(FILES[3]).encode("utf-8-sig")
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(content))
    table = read_answers(tmp_path / "x.json.gz")
    pd.testing.assert_frame_equal(table, parse_answers(content))
    (tmp_path / "y.json.gz").write_bytes(gzip.compress(content)[:-9])
    with pytest.raises(ValueError, match=r"^y\.json\.gz must be readable to its end"):
        read_answers(tmp_path / "y.json.gz")


def test_there_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_answers(tmp_path / "x.json")


def test_cells_of_a_list_of_answers():
    lines = [{"item": 3, "label": "dog", "value": value} for value in (True, None)]
    lines += [{"item": "4", "label": "dog", "value": 0.0, "more": []}]
    labels = Labels.from_long(parse_answers(json.dumps(lines).encode()), [3, 4])
    np.testing.assert_array_equal(labels.to_array(), [[1], [0]])


def test_times_of_long_ago_and_far_ahead():
    """Outside the years that nanoseconds reach, the order of the answers is still known, or the time is refused."""
    lines = [("yes", "0026-01-01"), ("no", "9999-01-01"), ("yes", "2026-01-01")]
    table = [{"item": "a", "label": "dog", "value": value, "time": time} for value, time in lines]
    try:
        labels = Labels.from_long(parse_answers(json.dumps(table).encode()))
    except ValueError as error:  # pandas 2
        message = str(error)
        assert message.startswith("time must hold dates")
    else:
        assert labels.to_array().tolist() == [[0]]
