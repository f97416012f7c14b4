import re

import pytest

from onepos.datasets.arff import find_label_xml, read_label_names

NESTED = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="animal"><label name="cat &amp; dog"/><label name="bird"></label></label>
<label name="plant"> </label>
</labels>"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_nested_labels_are_flattened(tmp_path, encoding):
    path = tmp_path / "x.xml"
    path.write_bytes(NESTED.replace("utf-8", encoding).encode(encoding))
    assert read_label_names(path) == ("animal", "cat & dog", "bird", "plant")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "x.xml must be readable to its end; no element found"),
        ("<labels><label name='a'/>", "x.xml must be readable to its end; no element found"),
        ("<labels><label/></labels>", "x.xml, line 1: a label must have a name; this one has none."),
        ("<labels></labels>", "x.xml must list labels as <label name=…>; it lists none."),
        (
            "<!DOCTYPE l [<!ENTITY a 'aaaa'>]>\n<labels><label name='&a;'/></labels>",
            "x.xml must not declare a document type or entities; line 1 does. Remove the declaration.",
        ),
    ],
)
def test_refused_files(tmp_path, text, sentence):
    path = tmp_path / "x.xml"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read_label_names(path)


def test_entities_are_refused_in_any_encoding(tmp_path):
    path = tmp_path / "x.xml"
    path.write_bytes(
        "<?xml version='1.0' encoding='utf-16'?><!DOCTYPE l SYSTEM 'http://e/x.dtd'><labels/>".encode("utf-16")
    )
    with pytest.raises(ValueError, match="must not declare a document type"):
        read_label_names(path)


def test_the_closest_name_wins(tmp_path):
    (tmp_path / "set.xml").touch()
    assert find_label_xml(tmp_path / "set-train-sparse.arff").name == "set.xml"
    (tmp_path / "set-train.xml.gz").touch()
    assert find_label_xml(tmp_path / "set-train-sparse.arff.gz").name == "set-train.xml.gz"
    assert find_label_xml(tmp_path / "other.arff") is None
