"""Data sets of Hugging Face: what is written, and what is read."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onepos import Labels
from onepos.exchange import read_answers
from onepos.exchange.entries import Entries
from onepos.exchange.hugging_face import make_dataset, read_dataset, save_dataset

datasets = pytest.importorskip("datasets", reason="datasets is not installed")


def test_what_is_written(completed):
    done = completed.done
    made = done.to_datasets({"title": completed.items})
    assert isinstance(made, datasets.Dataset)
    assert made.column_names == ["title", "item", "labels", "absent", "added", "probability"]
    assert made.features["labels"].feature.names == done.classes.tolist()
    assert made["item"] == completed.items.tolist()
    for row, line in enumerate(made):
        known = completed.known[row]
        assert line["labels"] == np.flatnonzero((known == 1) | done.added[row]).tolist()
        assert line["absent"] == np.flatnonzero(known == 0).tolist()
        assert line["added"] == np.flatnonzero(done.added[row]).tolist()
        np.testing.assert_allclose(line["probability"], done.probability[row][done.added[row]])


def test_cells_that_no_column_holds_become_text(completed):
    n = len(completed.items)
    made = completed.done.to_datasets({"": [1] * n, "huge": [10**40, *[None] * (n - 1)], "mixed": ["a", 1] * (n // 2)})
    assert made.column_names[:3] == ["column_0", "huge", "mixed"]
    assert made["huge"][:2] == [str(10**40), None]
    assert made["mixed"][:2] == ["a", "1"]


def test_round_trip(completed, tmp_path):
    done = completed.done
    folder = save_dataset(done.to_datasets(), tmp_path / "set")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set"]
    labels = Labels.from_long(read_answers(folder), completed.items, classes=done.classes)
    np.testing.assert_array_equal(labels.to_array(), np.where(done.added, 1, completed.known))


def test_an_earlier_one_is_replaced(completed, tmp_path):
    two = Labels.from_long({"item": ["a", "a"], "label": ["dog", "cat"], "value": [1, 0]})
    save_dataset(completed.done.to_datasets(), tmp_path / "set")
    save_dataset(make_dataset(Entries.of(two)), tmp_path / "set")
    table = read_answers(tmp_path / "set")
    assert table[["item", "label", "value"]].to_numpy().tolist() == [["a", "dog", "yes"], ["a", "cat", "no"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set"]


def test_another_folder_is_not_replaced(completed, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match="must be a saved data set, which is replaced, or not exist"):
        save_dataset(completed.done.to_datasets(), tmp_path / "photos")
    assert (tmp_path / "photos" / "a.jpg").exists()


def test_progress_bars_stay_as_they_were(completed, tmp_path, capfd):
    datasets.enable_progress_bars()
    save_dataset(completed.done.to_datasets(), tmp_path / "set")
    assert datasets.is_progress_bar_enabled()
    assert capfd.readouterr() == ("", "")


def test_lists_of_texts_and_ids_of_another_name():
    made = datasets.Dataset.from_dict({"key": [1, 2, 3], "labels": [["dog"], [], None]})
    lines = read_dataset(made, "key")
    assert lines == [{"item": "1", "label": "dog", "value": "yes", "source": "datasets"}]


def test_a_label_of_no_item_is_kept():
    kind = datasets.Sequence(datasets.ClassLabel(names=["dog", "cat"]))
    features = datasets.Features({"item": datasets.Value("string"), "labels": kind})
    lines = read_dataset(datasets.Dataset.from_dict({"item": ["a"], "labels": [["dog"]]}, features))
    assert [(line["label"], line["value"]) for line in lines] == [("dog", "yes"), ("cat", "")]


def test_damaged_and_foreign_folders(completed, tmp_path):
    folder = save_dataset(completed.done.to_datasets(), tmp_path / "set")
    next(folder.glob("*.arrow")).write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"^set must be readable; .*Save the data set again"):
        read_answers(folder)
    both = datasets.DatasetDict({"a": completed.done.to_datasets()})
    both.save_to_disk(str(tmp_path / "parts"))
    with pytest.raises(ValueError, match=r"^parts: labels must be in one data set; these are several \('a'\)"):
        read_answers(tmp_path / "parts")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_changed_bytes_give_labels_or_one_sentence(tmp_path_factory, data):
    """Damaged offsets in an Arrow file must not end the process."""
    labels = Labels.from_long({"item": ["a", "a", "b"], "label": ["dog", "cat", "dog"], "value": [1, 0, 1]})
    folder = save_dataset(make_dataset(Entries.of(labels)), tmp_path_factory.mktemp("sets") / "damaged")
    file = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = bytearray(file.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(content)
    try:
        Labels.from_long(read_answers(folder))
    except ValueError as error:
        text = str(error)
        assert text.endswith(".")
        assert "\n" not in text


def test_numbers_of_class_labels():
    """-1 stands for no label; numbers that are none of a label are refused."""
    kind = datasets.Sequence(datasets.ClassLabel(names=["dog", "cat"]))
    features = datasets.Features({"item": datasets.Value("string"), "labels": kind})
    made = datasets.Dataset.from_dict({"item": ["a"], "labels": [[0, -1]]}, features)
    assert [(line["label"], line["value"]) for line in read_dataset(made)] == [("dog", "yes"), ("cat", "")]
    numbers = datasets.Features(
        {"item": datasets.Value("string"), "labels": datasets.Sequence(datasets.Value("int64"))}
    )
    wrong = datasets.Dataset.from_dict({"item": ["a"], "labels": [[7]]}, numbers)
    wrong.info.features = features
    with pytest.raises(ValueError, match="must hold numbers of its class labels, below 2; it holds 7"):
        read_dataset(wrong)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"labels": [["dog"]]}, r"'item' is missing, it has 'labels'\. Rename"),
        ({"item": ["a"]}, r"'labels' is missing"),
        ({"item": ["a"], "labels": ["dog"]}, r"'labels' must hold lists of class labels or of texts"),
        ({"item": ["a"], "labels": [[1.5]]}, r"'labels' must hold lists of class labels or of texts"),
        ({"item": ["a"], "labels": [[]]}, r"'labels' must hold lists|must hold at least one"),
    ],
)
def test_wrong_columns(columns, sentence, tmp_path):
    save_dataset(datasets.Dataset.from_dict(columns), tmp_path / "set")
    with pytest.raises(ValueError, match=sentence):
        read_answers(tmp_path / "set")


def test_columns_that_are_taken(completed):
    with pytest.raises(ValueError, match="columns must not be called 'item' or"):
        completed.done.to_datasets(pd.DataFrame({"item": completed.items}))
