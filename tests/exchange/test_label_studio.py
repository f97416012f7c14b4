"""Label Studio: what is exported is valid and complete, and answers come back as they were given."""

import copy
import json
import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from onepos import Labels
from onepos.exchange import parse_answers, read_answers
from onepos.exchange.entries import Entries
from onepos.exchange.label_studio import label_of, make_project, name_of

WORDS = {1.0: "yes", 0.0: "no"}


def answers_of(completed, rows):
    """All labels of some items as they are, but one that the annotator is unsure of and one that is left open."""
    found = {}
    for row in rows:
        given = {name: WORDS[float(y)] for name, y in zip(completed.done.classes, completed.Y[row], strict=True)}
        names = list(given)
        given[names[row % 4]] = "unsure"
        del given[names[(row + 1) % 4]]
        found[completed.items[row]] = given
    return found


def expected_of(completed, rows):
    values = np.full(completed.Y.shape, np.nan)
    for row in rows:
        values[row] = completed.Y[row]
        values[row, [row % 4, (row + 1) % 4]] = np.nan
    return values


class TestExport:
    def test_known_and_added_labels_are_filled_in(self, completed):
        done = completed.done
        tasks = done.to_label_studio().tasks
        assert [task["data"]["item"] for task in tasks] == completed.items.tolist()
        for row, task in enumerate(tasks):
            is_known = not np.isnan(completed.known[row]).any()
            assert ("annotations" in task) == is_known
            (entry,) = task["annotations" if is_known else "predictions"]
            filled = {label_of(each["from_name"]): each["value"]["choices"] for each in entry["result"]}
            expected = {
                str(name): ["no" if completed.known[row, column] == 0 else "yes"]
                for column, name in enumerate(done.classes)
                if done.added[row, column] or not np.isnan(completed.known[row, column])
            }
            assert filled == expected

    def test_scores(self, completed):
        """Of an added label its probability; of a task the expected share of right entries among the unknown ones."""
        done = completed.done
        row = int(np.flatnonzero(done.added.any(1))[0])
        (prediction,) = done.to_label_studio().tasks[row]["predictions"]
        column = int(np.flatnonzero(done.added[row])[0])
        of_label = {label_of(each["from_name"]): each.get("score") for each in prediction["result"]}
        assert of_label[done.classes[column]] == pytest.approx(float(done.probability[row, column]), abs=1e-6)
        unknown = np.isnan(completed.known[row])
        right = np.where(done.added[row], done.probability[row], 1 - done.probability[row])[unknown].mean()
        assert prediction["score"] == pytest.approx(float(right), abs=1e-5)

    def test_the_items_worth_a_look_alone(self, completed):
        tasks = completed.done.to_label_studio(review=20).tasks
        listed = completed.done.review(20)
        assert [task["data"]["item"] for task in tasks] == listed["item"].tolist()
        assert [task["data"]["reason"] for task in tasks] == listed["reason"].tolist()

    def test_what_an_annotator_sees(self, completed):
        n = len(completed.items)
        shown = {"title": ["Ä"] + [None] * (n - 1), "item": range(n), "odd $name": range(n), "label_x": range(n)}
        project = completed.done.to_label_studio(shown)
        data = project.tasks[0]["data"]
        assert data["item"] == "k0"
        assert (data["title"], data["column_1"], data["column_2"], data["column_3"]) == ("Ä", "0", "0", "0")
        assert project.tasks[1]["data"]["title"] == ""
        config = ElementTree.fromstring(project.config)
        variables = {each.get("value").removeprefix("$") for each in config.iter("Text")}
        assert variables <= set(data)
        headers = [each.get("value") for each in config.iter("Header")]
        assert headers[:4] == list(shown)
        assert headers[-4:] == [str(name) for name in completed.done.classes]

    def test_images(self, completed):
        urls = [f"/data/local-files/?d={item}.jpg" for item in completed.items]
        project = completed.done.to_label_studio(images=urls)
        assert project.tasks[3]["data"]["image"] == urls[3]
        assert ElementTree.fromstring(project.config)[0].attrib == {"name": "item", "value": "$image"}

    def test_labels_alone(self):
        labels = Labels.read([[1.0, 0.0], [np.nan, 1.0]], 2)
        tasks = make_project(Entries.of(labels)).tasks
        assert tasks[0]["annotations"][0]["result"][1]["value"] == {"choices": ["no"]}
        assert "score" not in tasks[1]["predictions"][0]

    def test_characters_that_xml_does_not_have(self):
        labels = Labels.from_long({"item": ["a"], "label": ["bell\x07"], "value": [1]})
        project = make_project(Entries.of(labels), {"t": ["\x00\ud800"]})
        ElementTree.fromstring(project.config)
        project.config.encode()

    def test_columns_of_other_rows(self, completed):
        with pytest.raises(ValueError, match=r"a cell per item, 240 in all; 't' holds 1\. Pass"):
            completed.done.to_label_studio({"t": [1]})
        with pytest.raises(ValueError, match="an address per item, 240 in all; it holds 1"):
            completed.done.to_label_studio(images=["a"])


@pytest.mark.parametrize("label", ["dog", "a b", "Größe", "a,b", "$x", "%41", "label_", "日本", "a\nb", ""])
def test_a_label_survives_its_name(label):
    assert label_of(name_of(label)) == label
    assert re.fullmatch(r"[\w.~%-]+", name_of(label), re.ASCII)


class TestRoundTrip:
    @pytest.mark.parametrize("form", [0, 1], ids=["json", "json-min"])
    def test_answers_come_back(self, completed, annotate, form, tmp_path):
        rows = range(80, 140)
        project = completed.done.to_label_studio({"title": completed.items})
        content = annotate(project, answers_of(completed, rows))[form]
        (tmp_path / "export.json").write_bytes(content)
        table = read_answers(tmp_path / "export.json")
        assert set(table["source"]) == {"label-studio"}
        assert set(table["reviewer"]) == {"1"}
        labels = Labels.from_long(table, completed.items, classes=completed.done.classes)
        np.testing.assert_array_equal(labels.to_array(), expected_of(completed, rows))

    def test_what_was_written_and_not_touched(self, completed, tmp_path):
        """Fully known items are annotated already; predictions are no answers."""
        files = completed.done.to_label_studio().save(tmp_path / "project")
        table = read_answers(files["tasks"])
        labels = Labels.from_long(table, completed.items, classes=completed.done.classes)
        expected = completed.known.copy()
        expected[60:] = np.nan
        np.testing.assert_array_equal(labels.to_array(), expected)

    def test_doubtful_items_are_no_random_sample(self, completed, annotate):
        project = completed.done.to_label_studio(review=20)
        given = {task["data"]["item"]: {"dog": "yes"} for task in project.tasks}
        listed = completed.done.review(20)
        for content in annotate(project, given):
            labels = Labels.from_long(parse_answers(content), completed.items)
            doubtful = listed.loc[listed["reason"] == "doubtful", "row"]
            assert set(np.flatnonzero(~labels.at_random)) == set(doubtful)

    def test_the_latest_answer_counts(self, completed, annotate):
        project = completed.done.to_label_studio()
        early, late = "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"
        tasks = json.loads(annotate(project, {"k70": {"dog": "yes", "yes": "no"}}, late)[0])
        older = json.loads(annotate(project, {"k70": {"dog": "no", "yes": "no", CAFE: "yes"}}, early)[0])
        tasks[70]["annotations"] += older[70]["annotations"]
        table = parse_answers(json.dumps(tasks).encode())
        labels = Labels.from_long(table, completed.items, classes=completed.done.classes)
        column = completed.done.classes.tolist().index
        values = labels.to_array()[70]
        assert (values[column("dog")], values[column("yes")], values[column(CAFE)]) == (1, 0, 1)

    def test_unsure_after_yes_is_unknown(self, completed, annotate):
        project = completed.done.to_label_studio()
        first = json.loads(annotate(project, {"k70": {"dog": "yes"}, "k71": {"dog": "yes"}}, "2026-01-01T00:00Z")[1])
        second = json.loads(annotate(project, {"k70": {"dog": "unsure"}}, "2026-01-02T00:00Z")[1])
        labels = Labels.from_long(parse_answers(json.dumps(first + second).encode()), completed.items)
        assert not labels.positive[[70]].nnz
        assert labels.positive[[71]].nnz

    @pytest.mark.parametrize("times", [("2026-01-01T00:00Z",) * 2, (None, None)])
    def test_two_answers_that_differ_at_one_time(self, completed, annotate, times):
        project = completed.done.to_label_studio()
        entries = []
        for word, time in zip(("yes", "no"), times, strict=True):
            entries += json.loads(annotate(project, {"k70": {"dog": word}}, time)[1])
        with pytest.raises(ValueError, match=r"item 'k70', label 'dog' is both yes and no"):
            Labels.from_long(parse_answers(json.dumps(entries).encode()), completed.items)

    def test_skipped_annotations_are_no_answers(self, completed, annotate):
        project = completed.done.to_label_studio()
        tasks = json.loads(annotate(project, {"k70": {"dog": "yes"}, "k71": {"dog": "no"}})[0])
        tasks[70]["annotations"][0]["was_cancelled"] = True
        assert parse_answers(json.dumps(tasks).encode())["item"].tolist() == ["k71"]

    def test_ids_under_another_name(self):
        task = {"id": 3, "data": {"key": 17, "text": "x"}, "annotations": [{"result": [chosen(["dog", "cat"])]}]}
        table = parse_answers(json.dumps([task]).encode(), item="key")
        assert table[["item", "label", "value"]].to_numpy().tolist() == [["17", "dog", "yes"], ["17", "cat", "yes"]]

    def test_other_results_are_left_out(self):
        text = {"type": "textarea", "from_name": "remark", "to_name": "item", "value": {"text": ["?"]}}
        task = {"data": {"item": "a"}, "annotations": [{"result": [text, chosen(["dog"])]}]}
        assert len(parse_answers(json.dumps([task]).encode())) == 1


CAFE = "Café / bar"


def chosen(words, name="kind"):
    return {"type": "choices", "from_name": name, "to_name": "item", "value": {"choices": words}}


def task(result, data=None, **annotation):
    return [{"data": {"item": "a"} if data is None else data, "annotations": [{"result": result} | annotation]}]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (task([chosen(["dog"])], {"text": "x"}), r"task 1 of the export must name its item; its data hold 'text', and"),
        (task([chosen(["dog"])], {"item": [1]}), r"task 1 of the export must hold 'item', a text or a whole number;"),
        (task([chosen(["dog"])], 3), r"must be an export of Label Studio"),
        (task([chosen("dog")]), r"a result of task 1 of the export must hold 'choices', a list; there is none"),
        (task([chosen([1.5])]), r"must hold 'choices', a text or a whole number; it is of type float"),
        (task(3), r"an annotation of task 1 of the export must hold 'result', a list of objects; it is of type int"),
        (task([chosen(["yes"], name="label_%ff")]), r"must name a choice as onepos wrote it"),
        (task([chosen(["dog"])], updated_at=[1]), r"an annotation must hold 'time', a text or a whole number"),
        ([{"data": {"item": "a"}, "annotations": []}], r"must hold an annotation with choices; none of its 1 tasks"),
        ([{"data": {"item": "a"}, "annotations": 3}], r"must hold 'annotations', a list of objects"),
        ([{"data": {"item": "a"}}, 3], r"must hold 'tasks', a list of objects"),
        ([{"annotator": 1, "label_dog": {"choices": 3}}], r"must hold a choice under 'label_dog'; it does not"),
    ],
)
def test_wrong_exports(value, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        parse_answers(json.dumps(value).encode())
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"k70": {"dog": "perhaps"}}, r"value must be yes .* 'k70', holds 'perhaps'"),
        ({"elsewhere": {"dog": "yes"}}, r"every item of the labels must be one of the rows; 1 of 1 are not"),
        ({"k70": {"wolf": "yes"}}, r"'wolf' is none of them"),
    ],
)
def test_answers_about_something_else(completed, annotate, given, sentence):
    project = copy.deepcopy(completed.done.to_label_studio())
    project.tasks[0]["data"]["item"] = "elsewhere"
    for content in annotate(project, given):
        with pytest.raises(ValueError, match=sentence):
            Labels.from_long(parse_answers(content), completed.items, classes=completed.done.classes)


class TestBySdk:
    """What the client library of Label Studio says about tasks and configuration."""

    @pytest.fixture
    def sdk(self):
        """It needs an older numpy than this library takes otherwise, so it is in no extra."""
        return pytest.importorskip("label_studio_sdk.label_interface", reason="label-studio-sdk is not installed")

    @pytest.mark.parametrize("kind", ["text", "image"])
    def test_every_task_is_valid(self, sdk, completed, kind):
        options = {"images": [f"{item}.jpg" for item in completed.items]} if kind == "image" else {}
        project = completed.done.to_label_studio({"odd name": completed.items}, **options)
        interface = sdk.LabelInterface(project.config)
        interface.validate()
        n_predictions = 0
        for each in project.tasks:
            assert interface.validate_task({"data": each["data"]})
            for prediction in each.get("predictions", []):
                n_predictions += 1
                assert interface.validate_prediction(prediction, return_errors=True) == []
            for annotation in each.get("annotations", []):
                assert interface.validate_annotation(annotation)
        assert n_predictions == 180

    def test_it_would_find_a_fault(self, sdk, completed):
        project = completed.done.to_label_studio()
        prediction = copy.deepcopy(project.tasks[100]["predictions"][0])
        prediction["result"][0]["value"] = {"choices": ["perhaps"]}
        assert sdk.LabelInterface(project.config).validate_prediction(prediction, return_errors=True)

    def test_its_own_converter_writes_what_we_read(self, sdk, completed, annotate, tmp_path):
        """JSON-MIN made of JSON by Label Studio's converter gives the same labels."""
        converter = pytest.importorskip("label_studio_sdk.converter")
        rows = range(80, 140)
        project = completed.done.to_label_studio({"title": completed.items})
        full = annotate(project, answers_of(completed, rows))[0]
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "export.json").write_bytes(full)
        made = converter.Converter(project.config, str(tmp_path))
        made.convert_to_json_min(str(tmp_path / "in"), str(tmp_path / "out"))
        table = read_answers(tmp_path / "out" / "result.json")
        labels = Labels.from_long(table, completed.items, classes=completed.done.classes)
        np.testing.assert_array_equal(labels.to_array(), expected_of(completed, rows))


def test_a_frame_of_columns(completed):
    frame = pd.DataFrame({"n": range(240)}, index=range(240, 480))
    assert completed.done.to_label_studio(frame).tasks[5]["data"]["n"] == "5"
