"""Answers: on the disk before they are acknowledged, once each, in the order of their times."""

import sqlite3
import threading

import pytest

from onepos.server.store import Action, Store, StoreError, add_action, all_answers, answers_of, undo_action


def act(name, item="a", value="yes", **more):
    return Action(name, item, "Ada", "session-1", (("cat", value, 0.4, 0),), **more)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "reviews.db")
    yield store
    store.close()


def put(store, action):
    return store.write(lambda connection: add_action(connection, action, store.now()))


def test_an_action_is_stored_once(store):
    assert put(store, act("action-1"))
    assert not put(store, act("action-1"))
    with store.read() as connection:
        assert len(all_answers(connection)) == 1
    with pytest.raises(ValueError, match="used for another item"):
        put(store, act("action-1", item="b"))


def test_the_latest_answer_holds_and_undo_brings_the_former_back(store):
    put(store, act("action-1", value="yes"))
    put(store, act("action-2", value="no"))
    with store.read() as connection:
        assert answers_of(connection, "a") == {"cat": "no"}
    assert store.write(lambda connection: undo_action(connection, "action-2", store.now())) == ("a", True)
    assert store.write(lambda connection: undo_action(connection, "action-2", store.now())) == ("a", False)
    assert store.write(lambda connection: undo_action(connection, "nothing", store.now())) is None
    with store.read() as connection:
        assert answers_of(connection, "a") == {"cat": "yes"}


def test_times_increase_strictly_over_a_restart(tmp_path):
    first = Store(tmp_path / "reviews.db")
    first.write(lambda connection: add_action(connection, act("action-1", time="2999-01-01T00:00:00.000000+00:00"), ""))
    first.close()
    second = Store(tmp_path / "reviews.db")
    times = [second.write(lambda _: second.now()) for _ in range(50)]
    second.close()
    assert times == sorted(set(times))
    assert times[0] > "2999"


def test_a_job_that_fails_disturbs_no_other(store):
    """They share a transaction: the writing thread is held up until all wait."""
    gate = threading.Event()
    outcomes = {}

    def send(name, action):
        try:
            outcomes[name] = put(store, action)
        except ValueError as error:
            outcomes[name] = str(error)

    put(store, act("action-0"))
    held = threading.Thread(target=lambda: store.write(lambda _: gate.wait(5)))
    wrong = act("action-0", item="other")
    threads = [threading.Thread(target=send, args=(k, wrong if k == 3 else act(f"action-{k + 1}"))) for k in range(8)]
    for thread in [held, *threads]:
        thread.start()
    gate.set()
    for thread in [held, *threads]:
        thread.join()
    assert "another item" in outcomes.pop(3)
    assert all(outcomes.values())
    with store.read() as connection:
        assert len(all_answers(connection)) == 8


def test_what_can_not_be_written_is_not_acknowledged(store):
    def job(connection):
        connection.execute("INSERT INTO nothing VALUES (1)")

    with pytest.raises(StoreError, match="can not be written to"):
        store.write(job)
    assert put(store, act("action-1"))


def test_every_transaction_is_synced(store):
    modes = store.write(
        lambda connection: [
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")
        ]
    )
    assert modes == [2, "wal"]


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text.db").write_text("no database, but long enough to be read as one" * 40)
    with pytest.raises(ValueError, match="must be a file of answers"):
        Store(tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(ValueError, match="another database"):
        Store(tmp_path / "other.db")
    with pytest.raises(ValueError, match="folder that can be written"):
        Store(tmp_path / "nowhere" / "reviews.db")


def test_a_closed_store_says_so(tmp_path):
    store = Store(tmp_path / "reviews.db")
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.write(lambda _: None)


def test_a_file_whose_making_was_killed_is_made_to_its_end(tmp_path):
    """Only the first table was there; it was taken for another database."""
    import sqlite3

    connection = sqlite3.connect(tmp_path / "answers.db")
    connection.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
    connection.close()
    store = Store(tmp_path / "answers.db")
    with store.read() as found:
        assert all_answers(found) == []
    store.close()
