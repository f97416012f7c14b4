import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onepos.images.readers import json_lists
from onepos.images.readers.json_lists import iterate_lists

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(
    content=st.dictionaries(st.text(), VALUES, max_size=5), chunk=st.integers(1, 40), indent=st.sampled_from([None, 1])
)
def test_equals_reading_it_whole(tmp_path_factory, content, chunk, indent):
    path = tmp_path_factory.mktemp("json") / "x.json"
    text = json.dumps(content, indent=indent, ensure_ascii=False)
    path.write_text(text, encoding="utf-8", newline="")
    expected = [(key, element) for key, value in content.items() if isinstance(value, list) for element in value]
    before, json_lists.CHUNK = json_lists.CHUNK, chunk
    try:
        found = list(iterate_lists(path))
    finally:
        json_lists.CHUNK = before
    assert [(key, element) for key, element, _ in found] == expected
    # The offset is where the element stands.
    for _, element, offset in found:
        assert json.JSONDecoder().raw_decode(text, offset)[0] == element


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_every_truncation_is_an_error_with_its_place(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(json_lists, "CHUNK", chunk)
    text = json.dumps(
        {"info": {"a": [1, "x"]}, "list": [{"id": 12, "name": "é\n"}, 345], "last": 7}, ensure_ascii=False
    )
    path = tmp_path / "x.json"
    for length in range(len(text)):
        path.write_text(text[:length], encoding="utf-8")
        with pytest.raises(ValueError, match=r"x\.json, character \d+: .* the end of the file: it was cut off"):
            list(iterate_lists(path))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"list": [1 2]}', 12),
        ('{"list": [1, }', 13),
        ('{"list" [1]}', 8),
        ("{3: [1]}", 1),
        ("[1]", 0),
        ('{"list": []} x', 13),
        ('{"list": [{"a": 1 "b": 2}]' + " " * 200 + "}", 18),
    ],
)
def test_malformed(tmp_path, text, place):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"x\.json, character (\d+): ") as error:
        list(iterate_lists(path))
    assert abs(int(str(error.value).split("character ")[1].split(":")[0]) - place) <= 1


def test_an_endless_value_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lists, "CHUNK", 64)
    monkeypatch.setattr(json_lists, "LONGEST", 1000)
    path = tmp_path / "x.json"
    path.write_text('{"list": ["' + "x" * 100_000)
    with pytest.raises(ValueError, match=r"character 10: there must be a JSON value; there is '\"xxx"):
        list(iterate_lists(path))


def test_the_window_stays_small(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lists, "CHUNK", 1000)
    longest = 0

    class Watched(json_lists._Text):
        def _read_on(self):
            nonlocal longest
            more = super()._read_on()
            longest = max(longest, len(self.window))
            return more

    monkeypatch.setattr(json_lists, "_Text", Watched)
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"list": [{"id": k, "points": [0.5] * 20} for k in range(5000)]}))
    assert sum(1 for _ in iterate_lists(path)) == 5000
    assert path.stat().st_size > 500_000
    assert longest < 2500
