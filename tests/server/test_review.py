"""The review as the API offers it, with a judge that stands in for the models."""

import json
import time

import numpy as np
import pandas as pd
import pytest
from standin import LABELS, make_review

from onepos.labels import Labels
from onepos.server.queue import LEASE, Queue
from onepos.server.review import Given, Missing


def give(review, name, item, *answers, outcome="open", session="session-1", reviewer="Ada", others=False):
    return review.answer(Given(name, item, reviewer, session, answers, outcome, others))


def test_the_queue_mixes_in_random_rows_in_a_fixed_order():
    worth = np.linspace(0, 1, 2000)
    queue, chosen = Queue.make(worth, seed=1), []
    for k in range(500):
        row, is_random = queue.find_next(f"s{k}", "Ada", 0.0)
        queue.count_handed(row, is_random)
        queue.lend(row, f"s{k}", "Ada", 0.0)
        queue.finish(row)
        chosen.append((row, is_random))
    doubtful = [row for row, is_random in chosen if not is_random]
    assert 20 <= sum(is_random for _, is_random in chosen[:50]) <= 25  # every second one at first
    assert 80 <= sum(is_random for _, is_random in chosen) <= 100  # a fifth in the end
    assert doubtful == sorted(doubtful, reverse=True)
    other = Queue.make(worth[::-1], seed=1)
    assert other.random.order == queue.random.order  # whatever the models say
    assert set(queue.sample()) <= queue.done
    assert len(queue.sample()) >= 100


def test_rows_reviewed_before_their_turn_count_for_the_sample():
    queue = Queue.make(np.zeros(20), seed=0)
    first = queue.random.order[:3]
    for row in first[:2]:
        queue.finish(row)
    queue.handed = 1
    assert queue.find_next("s", "Ada", 0.0) == (first[2], True)
    queue.count_handed(first[2], True)
    assert list(queue.sample()) == first


def test_an_item_is_lent_to_one_tab_until_the_lease_ends():
    queue = Queue.make(np.array([3.0, 2.0, 1.0]), seed=0)
    queue.lend(0, "one", "Ada", 100.0)
    assert queue.held_by("one", 101.0) == 0
    assert queue.find_next("two", "Bo", 101.0)[0] != 0
    assert queue.is_free(0, "two", 101.0 + LEASE)
    assert queue.held_by("one", 101.0 + LEASE) is None
    assert queue.lend(1, "one", "Ada", 102.0) == [0]


def test_tabs_get_different_items_and_keep_theirs(review):
    shown = {name: review.next(name, "Ada")["item"]["id"] for name in ("session-1", "session-2", "session-3")}
    assert len(set(shown.values())) == 3
    assert review.next("session-2", "Ada")["item"]["id"] == shown["session-2"]


def test_finished_and_skipped_items_do_not_come_again(review):
    first = review.next("session-1", "Ada")["item"]
    give(review, "action-1", first["id"], outcome="done")
    second = review.next("session-1", "Ada")["item"]
    give(review, "action-2", second["id"], outcome="skipped")
    seen = {review.next(f"tab-{k}", "Ada")["item"]["id"] for k in range(20)}
    assert not seen & {first["id"], second["id"]}
    others = {review.next(f"other-{k}", "Bo")["item"]["id"] for k in range(39)}
    assert second["id"] in others  # skipped by one is shown to another


def test_all_items_are_handed_out_once(review):
    seen = []
    while (item := review.next("session-1", "Ada")["item"]) is not None:
        seen.append(item["id"])
        give(review, f"action-{len(seen)}", item["id"], outcome="done")
    assert sorted(seen) == sorted(review.items.ids)


def test_others_absent_fills_what_is_open(review):
    item = review.next("session-1", "Ada")["item"]
    observed = LABELS[item["observed"][0]]
    free = [name for name in LABELS if name != observed]
    give(review, "action-1", item["id"], (free[0], "yes"), (free[1], "unsure"))
    give(review, "action-2", item["id"], outcome="done", others=True)
    after = review.show(item["row"])
    values = {LABELS[int(column)]: value for column, value in after["answers"].items()}
    assert values == {free[0]: "yes", free[1]: "unsure"} | dict.fromkeys(free[2:], "no")


def test_undo_reopens_an_item_and_gives_it_back(review):
    item = review.next("session-1", "Ada")["item"]
    give(review, "action-1", item["id"], ("cat", "yes"))
    give(review, "action-2", item["id"], outcome="done", others=True)
    assert review.counts("Ada") | {"version": 1} == review.counts("Ada")
    assert review.counts("Ada")["mine"] == 1
    n = review.counts()["answers"]
    review.next("session-1", "Ada")
    for _ in range(2):  # the second time changes nothing
        back = review.undo("action-2", "session-1", "Ada")
    assert back["item"]["id"] == item["id"]
    assert back["item"]["answers"] == {str(LABELS.index("cat")): "yes"}
    assert back["counts"]["done"] == back["counts"]["mine"] == 0
    assert back["counts"]["answers"] == 1 < n
    assert review.next("session-1", "Ada")["item"]["id"] == item["id"]
    with pytest.raises(Missing):
        review.undo("nothing-1", "session-1", "Ada")


def test_a_restart_finds_everything(tmp_path):
    review = make_review(tmp_path / "reviews.db")
    ids = []
    for k in range(7):
        item = review.next("session-1", "Ada")["item"]
        ids.append(item["id"])
        give(review, f"action-{k}", item["id"], ("cat", "no"), outcome="done" if k < 5 else "skipped")
    held = review.next("session-1", "Ada")["item"]["id"]
    before = review.counts("Ada"), review.queue.handed, review.queue.drawn, review.queue.done, review.queue.skipped
    review.close()
    again = make_review(tmp_path / "reviews.db")
    counts = again.counts("Ada")
    after = counts | {"new_answers": 7}, again.queue.handed, again.queue.drawn, again.queue.done, again.queue.skipped
    assert before == after
    assert again.next("session-1", "Ada")["item"]["id"] == held
    again.close()


def test_a_file_about_other_items_is_refused(tmp_path):
    review = make_review(tmp_path / "reviews.db")
    give(review, "action-1", "row-050", ("cat", "no"))
    review.close()
    with pytest.raises(ValueError, match=r"1 of its items are not in the data \('row-050'\)"):
        make_review(tmp_path / "reviews.db", n=20)
    with pytest.raises(ValueError, match="labels are not in the data"):
        make_review(tmp_path / "reviews.db", names=("ball", "dog"))


def test_what_is_known_afterwards(review):
    give(review, "action-1", "row-000", ("cat", "yes"), ("dog", "no"), ("fish", "unsure"))
    give(review, "action-2", "row-000", ("cat", "no"), ("ball", "no"))  # ball was observed: the answer is newer
    known = review.labels()
    row = dict(zip(LABELS, known.to_array()[0], strict=True))
    assert {name for name, value in row.items() if value == 0} == {"ball", "cat", "dog"}
    assert sum(np.isnan(value) for value in row.values()) == len(LABELS) - 3
    assert known.positive.sum() == 59


def test_export_is_a_long_table_that_labels_read(review, tmp_path):
    give(review, "action-1", "row-001", ("cat", "yes"), ("dog", "no"), ("fish", "unsure"), ("ball", "skip"))
    give(review, "action-2", "row-001", ("cat", "no"))
    lines = pd.DataFrame(review.export())
    assert list(lines.columns[:5]) == ["item", "label", "value", "source", "time"]
    assert len(lines) == 4
    read = Labels.from_long(lines, review.items.ids, classes=np.array(LABELS)).to_array()
    assert read[1, LABELS.index("cat")] == read[1, LABELS.index("dog")] == 0
    assert np.isnan(read[1, LABELS.index("fish")])


@pytest.mark.parametrize("is_json", [False, True])
def test_import_reads_an_export_back_once(review, tmp_path, is_json):
    give(review, "action-1", "row-001", ("cat", "yes"), ("dog", "no"))
    frame = pd.DataFrame(review.export())
    content = frame.to_json(orient="records").encode() if is_json else frame.to_csv(index=False).encode()
    assert review.read_back(content, is_json)["imported"] == 0
    other = make_review(tmp_path / "other.db")
    assert other.read_back(content, is_json)["imported"] == 2
    again = other.read_back(content, is_json)
    assert (again["imported"], again["known"]) == (0, 2)
    assert pd.DataFrame(other.export())[list(frame.columns[:6])].equals(frame[list(frame.columns[:6])])
    other.close()


def test_import_reads_an_export_of_label_studio(review):
    """Yes, no and unsure; what was skipped and what is only predicted are no answers; a second time changes nothing."""

    def result(label, word):
        value = {"choices": [word]}
        return {"type": "choices", "from_name": f"label_{label}", "to_name": "item", "value": value}

    given = [result("cat", "yes"), result("dog", "no"), result("fish", "unsure")]
    annotation = {"result": given, "completed_by": 3, "updated_at": "2026-01-02T03:04:05.678901Z"}
    skipped = {"result": [result("ball", "no")], "was_cancelled": True}
    tasks = [
        {"id": 1, "data": {"item": "row-001", "reason": "doubtful"}, "annotations": [annotation]},
        {"id": 2, "data": {"item": "row-002"}, "annotations": [skipped], "predictions": [{"result": given}]},
    ]
    content = json.dumps(tasks).encode()
    assert review.read_back(content, True)["imported"] == 3
    assert review.read_back(content, True)["imported"] == 0
    lines = review.export()
    assert {(line["item"], line["label"], line["value"]) for line in lines} == {
        ("row-001", "cat", "yes"),
        ("row-001", "dog", "no"),
        ("row-001", "fish", "unsure"),
    }
    assert {(line["source"], line["reviewer"]) for line in lines} == {("label-studio", "3")}
    assert lines[0]["time"] == "2026-01-02T03:04:05.678901+00:00"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "labels in JSON must be complete"),
        (b"[" * 99_999, "nested too deeply"),
        (b'[{"data": {"item": "row-001"}, "annotations": []}]', "must hold an annotation with choices"),
        (b'{"images": [], "annotations": [], "categories": []}', "must hold at least one"),
    ],
)
def test_wrong_json_is_refused_whole(review, content, message):
    with pytest.raises(ValueError, match=message):
        review.read_back(content, True)
    assert review.export() == []


def test_an_older_answer_of_a_file_does_not_replace_a_newer_one(review):
    give(review, "action-1", "row-001", ("cat", "yes"))
    review.read_back(b"item,label,value,time\nrow-001,cat,no,2020-01-01\n", False)
    assert review.labels().to_array()[1, LABELS.index("cat")] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"item,label,value\nnowhere,cat,yes\n", "nowhere"),
        (b"item,label,value\nrow-001,cow,yes\n", "cow"),
        (b"item,label,value\nrow-001,cat,perhaps\n", "perhaps"),
        (b"label,value\ncat,yes\n", "'item' is missing"),
        (b"toPandas\n1\n", "'item' is missing"),
        (b"item,label,value,time\nrow-001,cat,yes,soon\n", "soon"),
        (b"\xff\xfe\x00", "can not be read"),
        (b"", "can not be read"),
    ],
)
def test_a_wrong_file_is_refused_whole(review, content, message):
    with pytest.raises(ValueError, match=message):
        review.read_back(content, False)
    assert review.export() == []


def wait(review):
    deadline = time.monotonic() + 30
    while review.improver.progress.state == "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    return review.improver.progress


def test_improve_takes_the_answers_and_says_what_changed(review):
    before = review.judgement
    give(review, "action-1", "row-001", ("cat", "yes"), ("dog", "no"), outcome="done")
    assert review.improve()
    assert not review.improve()  # one at a time
    give(review, "action-2", "row-002", ("ball", "no"))  # meanwhile
    progress = wait(review)
    assert progress.state == "done", progress.error
    assert review.judgement is not before
    assert review.judgement.known[1, LABELS.index("dog")]
    assert progress.result["labels"][2]["label"] == "cat"
    assert progress.result["added"][0] == before.n_added
    assert review.counts()["version"] == 2
    assert review.counts()["new_answers"] == 1
    assert 1 in review.queue.done
    assert review.overview()["improvements"][0]["answers"] == 2


def test_improve_that_fails_leaves_the_former_judgement(tmp_path):
    review = make_review(tmp_path / "reviews.db")
    review.improver._judge.seconds = -1.0
    before = review.judgement
    give(review, "action-1", "row-001", ("cat", "yes"))
    review.improve()
    progress = wait(review)
    assert (progress.state, progress.error) == ("failed", "the rows must be judged; they can not be.")
    assert review.judgement is before
    review.close()


def test_calibration_counts_fully_reviewed_random_items_alone(review):
    n_random = 0
    for k in range(30):
        item = review.next("session-1", "Ada")["item"]
        is_random = item["reason"] == "random"
        n_random += is_random
        give(review, f"action-{k}", item["id"], outcome="done", others=is_random and n_random % 2 == 0)
    calibration = review.overview()["calibration"]
    assert 0 < calibration["items"] < n_random
    assert calibration["entries"] == (len(LABELS) - 1) * calibration["items"]
    assert all(one["yes"] == 0 and one["low"] < 1e-9 < one["high"] for one in calibration["bins"])


def test_a_file_that_can_not_be_written_leaves_no_trace_in_memory(review, monkeypatch):
    import onepos.server.review as module
    from onepos.server.store import StoreError

    def broken(connection, *_):
        connection.execute("INSERT INTO nothing VALUES (1)")

    item = review.next("session-1", "Ada")["item"]
    monkeypatch.setattr(module, "write_fact", broken)
    with pytest.raises(StoreError):
        review.next("session-2", "Bo")
    monkeypatch.undo()
    assert review.queue.handed == 1
    assert review.next("session-1", "Ada")["item"]["id"] == item["id"]


def test_the_export_names_the_random_sample(review):
    for k in range(12):
        item = review.next("session-1", "Ada")["item"]
        give(review, f"action-{k}", item["id"], outcome="done", others=True)
    drawn = {review.items.ids[row] for row in review.queue.sample()}
    lines = review.export()
    assert {line["item"] for line in lines if line["reason"] == "random"} == drawn
    assert {line["reason"] for line in lines} == {"random", "doubtful"}
