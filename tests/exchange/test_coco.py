"""JSON of COCO and LVIS: what is written, and what is read."""

import json

import numpy as np
import pytest

from onepos import Labels
from onepos.exchange import parse_answers, read_answers
from onepos.exchange.coco import make_coco, save_coco
from onepos.exchange.entries import Entries


def content(**changes):
    """Two images, three categories."""
    value = {
        "images": [
            {"id": 7, "file_name": "a.jpg", "neg_category_ids": [20], "not_exhaustive_category_ids": [30]},
            {"id": 8, "file_name": "b.jpg"},
        ],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 10, "bbox": [0, 0, 1, 1]},
            {"id": 2, "image_id": 7, "category_id": 10, "iscrowd": 1},
            {"id": 3, "image_id": 8, "category_id": 20},
        ],
        "categories": [{"id": 10, "name": "dog"}, {"id": 20, "name": "cat"}, {"id": 30, "name": "Vögel, alle"}],
    }
    return json.dumps(value | changes).encode()


def test_what_is_known_of_a_file():
    """Two boxes are one label; what is not exhaustive and has no box is unknown; no category is lost."""
    labels = Labels.from_long(parse_answers(content()), ["a.jpg", "b.jpg", "c.jpg"])
    assert labels.classes.tolist() == ["Vögel, alle", "cat", "dog"]
    np.testing.assert_array_equal(labels.to_array(), [[np.nan, 0, 1], [np.nan, 1, np.nan], [np.nan, np.nan, np.nan]])


def test_images_of_lvis_without_a_file_name():
    images = [{"id": 7, "coco_url": "http://images.example.org/val2017/0007.jpg"}, {"id": 8, "file_name": "b"}]
    assert parse_answers(content(images=images))["item"].tolist()[:2] == ["0007.jpg", "b"]


def test_what_is_written(completed):
    done = completed.done
    value = done.to_coco()
    assert set(value) == {"info", "images", "annotations", "categories"}
    assert [each["name"] for each in value["categories"]] == done.classes.tolist()
    assert [each["file_name"] for each in value["images"]] == completed.items.tolist()
    ids = [each["id"] for each in value["annotations"]]
    assert len(set(ids)) == len(ids) == int(done.added.sum() + (completed.known == 1).sum())
    present = {(each["image_id"] - 1, each["category_id"] - 1): each for each in value["annotations"]}
    for row, image in enumerate(value["images"]):
        assert image["neg_category_ids"] == (np.flatnonzero(completed.known[row] == 0) + 1).tolist()
        of_image = {column + 1 for line, column in present if line == row}
        assert set(image["not_exhaustive_category_ids"]) == of_image
    for place, annotation in present.items():
        if done.added[place]:
            assert annotation["source"] == "completed"
            assert annotation["score"] == pytest.approx(float(done.probability[place]), abs=1e-6)
        else:
            assert annotation["source"] == "observed"
            assert "score" not in annotation


def test_round_trip(completed, tmp_path):
    done = completed.done
    table = read_answers(save_coco(done.entries, tmp_path / "annotations.json"))
    labels = Labels.from_long(table, completed.items, classes=done.classes)
    np.testing.assert_array_equal(labels.to_array(), np.where(done.added, 1, completed.known))
    is_added = (table["source"] == "completed").to_numpy()
    assert is_added.sum() == done.added.sum()


def test_round_trip_of_labels(completed):
    """Without a completion; a label that nobody knows anything of is kept."""
    known = completed.known[60:].copy()
    known[:, 1] = np.nan
    labels = Labels.read(known, len(known))
    back = Labels.from_long(parse_answers(json.dumps(make_coco(Entries.of(labels))).encode()), range(len(known)))
    assert back.classes.tolist() == ["0", "1", "2", "3"]
    np.testing.assert_array_equal(back.observed, labels.observed)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"images": 3}, r"labels of COCO must hold 'images', a list of objects; it is of type int"),
        ({"images": [{"id": 7}]}, r"image 1 of COCO must hold 'name', a text or a whole number; there is none"),
        ({"images": [{"id": 7, "file_name": "a"}] * 2}, r"every image must have an id of its own; two have '7'"),
        ({"images": [{"id": k, "file_name": "a"} for k in (7, 8)]}, r"every image must have a name of its own"),
        ({"categories": [{"id": True, "name": "x"}]}, r"category 1 of COCO must hold 'id', .*it is of type bool"),
        ({"categories": [{"id": k, "name": "x"} for k in (10, 20)]}, r"every category must have a name of its own"),
        ({"annotations": [{"image_id": 9, "category_id": 10}]}, r"annotation 1 must name one of the images; .* is '9'"),
        ({"annotations": [{"image_id": 7, "category_id": 9}]}, r"annotation 1 must name one of the categories"),
        ({"annotations": [{"image_id": 7}]}, r"annotation 1 must hold 'category_id', .*there is none"),
        (
            {"images": [{"id": 7, "file_name": "a", "neg_category_ids": 3}], "annotations": []},
            r"a list; that of 'a'",
        ),
        ({"images": [{"id": 7, "file_name": "a", "neg_category_ids": [3]}], "annotations": []}, r"image 'a' must name"),
        ({"images": [], "annotations": []}, r"must hold at least one; it holds none"),
    ],
)
def test_wrong_files(changes, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        parse_answers(content(**changes))
    assert str(caught.value).endswith(".")


def test_present_and_absent_at_once():
    images = [{"id": 7, "file_name": "a", "neg_category_ids": [10]}, {"id": 8, "file_name": "b"}]
    with pytest.raises(ValueError, match=r"item 'a', label 'dog' is both yes and no"):
        Labels.from_long(parse_answers(content(images=images)))
