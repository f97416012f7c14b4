"""Answers of reviewers in one SQLite file: an answer is on the disk before it is acknowledged.

One thread writes. What arrives while it writes shares the next transaction (a group commit), so that fifty reviewers
wait for one sync of the disk together and not for fifty one after the other.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from onepos.reading import check_file, naming, shorten

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]

FORMAT = 1
_MOST_AT_ONCE = 256
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS actions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    item TEXT NOT NULL,
    reviewer TEXT NOT NULL,
    session TEXT NOT NULL,
    time TEXT NOT NULL,
    source TEXT NOT NULL,
    reason TEXT NOT NULL,
    outcome TEXT NOT NULL,
    undone TEXT
);
CREATE INDEX IF NOT EXISTS actions_of_item ON actions (item);
CREATE TABLE IF NOT EXISTS answers (
    action INTEGER NOT NULL REFERENCES actions (number),
    label TEXT NOT NULL,
    value TEXT NOT NULL,
    probability REAL,
    suggested INTEGER,
    PRIMARY KEY (action, label)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (
    item TEXT PRIMARY KEY, session TEXT NOT NULL, reviewer TEXT NOT NULL, expires REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS improvements (number INTEGER PRIMARY KEY, time TEXT NOT NULL, result TEXT NOT NULL);
"""
_TABLES = frozenset({"facts", "actions", "answers", "leases", "improvements"})
# The answers that hold, oldest first: of an item and a label the last one counts.
_CURRENT = """
SELECT actions.item, answers.label, answers.value, actions.source, actions.time, actions.reviewer, actions.reason,
       answers.probability, answers.suggested
FROM actions JOIN answers ON answers.action = actions.number
WHERE actions.undone IS NULL {more} ORDER BY actions.time, actions.number
"""


class StoreError(RuntimeError):
    """The file can not be written to; what was to be written is not there."""


class Answer(NamedTuple):
    """One answer that holds, about an item and a label."""

    item: str
    label: str
    value: str
    source: str
    time: str
    reviewer: str
    reason: str
    probability: float | None
    suggested: int | None


@dataclass(frozen=True)
class Action:
    """What one press of a key or button stores, as a whole or not at all.

    Attributes:
        id: Made by the client: the same id a second time changes nothing.
        item: The id of the item.
        reviewer: Name of the person.
        session: The browser tab.
        answers: Label, value ("yes", "no", "unsure", "skip"), probability and whether the label was suggested.
        outcome: "open", "done" (the item is finished) or "skipped".
        reason: Why the item was shown: "doubtful", "random" or "import".
        source: "review", or what an imported file names.
        time: Of an imported answer; by default now.
    """

    id: str
    item: str
    reviewer: str
    session: str
    answers: tuple[tuple[str, str, float | None, int | None], ...]
    outcome: str = "open"
    reason: str = "doubtful"
    source: str = "review"
    time: str = ""


class Store:
    """The file of answers.

    Args:
        path: Made if there is none.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._last = datetime(2000, 1, 1, tzinfo=UTC)
        self._jobs: queue.SimpleQueue[tuple[Job[Any], Future[Any]] | None] = queue.SimpleQueue()
        self._connection = self._open()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="onepos-store", daemon=True)
        self._thread.start()

    def _open(self) -> sqlite3.Connection:
        complaint = f"{self.path} must be a file of answers written by `onepos serve`"
        if self.path.exists():
            check_file(self.path)
        try:
            connection = self._connect()
            connection.execute("PRAGMA journal_mode = WAL")
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables - _TABLES and "actions" not in tables:
                raise ValueError(f"{complaint}; it is another database. Name another file.")
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")  # whole, or after a kill not at all
            connection.execute("INSERT OR IGNORE INTO facts VALUES ('format', ?)", (str(FORMAT),))
            found = read_fact(connection, "format")
            last = connection.execute("SELECT max(time) FROM actions").fetchone()[0]
        except (sqlite3.Error, UnicodeDecodeError) as error:
            reason = shorten(str(error))
            raise ValueError(
                f"{complaint} in a folder that can be written to ({reason}). Name another file."
            ) from error
        if found != str(FORMAT):
            raise ValueError(f"{complaint} in format {FORMAT}; it is of format {found}. Use that version of onepos.")
        if last is not None:
            with naming(self.path):
                self._last = datetime.fromisoformat(last).astimezone(UTC)
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=10, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def write(self, job: Job[T]) -> T:
        """Run a job in the writing thread; what it returns comes back once the disk has what it wrote."""
        result: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                raise StoreError(f"{self.path} is closed; start the server again.")
            self._jobs.put((job, result))
        return result.result()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection to read by, beside the one that writes."""
        connection = self._connect()
        try:
            connection.execute("PRAGMA query_only = ON")
            yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise StoreError(
                f"{self.path} must be a whole file of answers; it is not ({shorten(str(error))}). Name another."
            ) from error
        finally:
            connection.close()

    def close(self) -> None:
        """Finish what is waiting, and close the file."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._jobs.put(None)
        self._thread.join()

    def now(self) -> str:
        """The time in UTC, later than any time before: the order of answers is the order of their times."""
        self._last = max(datetime.now(UTC), self._last + timedelta(microseconds=1))
        return self._last.isoformat(timespec="microseconds")

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch = [self._jobs.get()]
            while len(batch) < _MOST_AT_ONCE and not self._jobs.empty():
                batch.append(self._jobs.get())
            is_open = None not in batch
            self._commit([entry for entry in batch if entry is not None])
        self._connection.close()

    def _commit(self, batch: list[tuple[Job[Any], Future[Any]]]) -> None:
        """Run the jobs in one transaction; those that fail leave nothing, and do not disturb the others."""
        results: list[tuple[Future[Any], Any]] = []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for job, future in batch:
                self._connection.execute("SAVEPOINT job")
                try:
                    results.append((future, job(self._connection)))
                except sqlite3.Error:
                    raise
                except Exception as error:
                    self._connection.execute("ROLLBACK TO job")
                    future.set_exception(error)
                self._connection.execute("RELEASE job")
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            for _, future in batch:
                if not future.done():
                    future.set_exception(StoreError(f"{self.path.name} can not be written to: {error}."))
            return
        for future, result in results:
            future.set_result(result)


def read_fact(connection: sqlite3.Connection, name: str) -> str | None:
    """A value that `write_fact` stored."""
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def write_fact(connection: sqlite3.Connection, name: str, value: str) -> None:
    """Store a value by name."""
    connection.execute(
        "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value)
    )


def add_action(connection: sqlite3.Connection, action: Action, time: str) -> bool:
    """Store an action; False where its id is there already."""
    known = connection.execute("SELECT item FROM actions WHERE id = ?", (action.id,)).fetchone()
    if known is not None:
        if known[0] != action.item:
            raise ValueError(f"an id names one answer; {action.id!r} was used for another item. Make a new id.")
        return False
    number = connection.execute(
        "INSERT INTO actions (id, item, reviewer, session, time, source, reason, outcome) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            action.id,
            action.item,
            action.reviewer,
            action.session,
            action.time or time,
            action.source,
            action.reason,
            action.outcome,
        ),
    ).lastrowid
    connection.executemany(
        "INSERT INTO answers VALUES (?, ?, ?, ?, ?)", [(number, *answer) for answer in action.answers]
    )
    return True


def undo_action(connection: sqlite3.Connection, action: str, time: str) -> tuple[str, bool] | None:
    """Take an action back; its item, and whether it still held. None where there is no such action."""
    row = connection.execute("SELECT item, undone FROM actions WHERE id = ?", (action,)).fetchone()
    if row is None:
        return None
    connection.execute("UPDATE actions SET undone = ? WHERE id = ? AND undone IS NULL", (time, action))
    return str(row[0]), row[1] is None


def answers_of(connection: sqlite3.Connection, item: str) -> dict[str, str]:
    """Label → the value that holds."""
    found = connection.execute(_CURRENT.format(more="AND actions.item = ?"), (item,))
    return {str(line[1]): str(line[2]) for line in found}


def all_answers(connection: sqlite3.Connection) -> list[Answer]:
    """All answers that hold, in the order of their times."""
    return [Answer(*line) for line in connection.execute(_CURRENT.format(more=""))]


def finished_items(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """Item, outcome and reviewer of what finished or skipped an item."""
    query = "SELECT item, outcome, reviewer FROM actions WHERE undone IS NULL AND outcome != 'open'"
    return [(item, outcome, reviewer) for item, outcome, reviewer in connection.execute(query)]
