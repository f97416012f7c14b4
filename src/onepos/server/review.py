"""What the review page does: hands out items, stores answers, and reads what they tell."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy.sparse as sp

from onepos.exchange import parse_answers
from onepos.labels import Labels
from onepos.report.items import Items
from onepos.report.judgement import Judgement
from onepos.server.calibration import calibrate
from onepos.server.improve import Improver
from onepos.server.judgement import Judge, Tell, compare
from onepos.server.queue import LEASE, Queue
from onepos.server.store import (
    Action,
    Answer,
    Store,
    StoreError,
    add_action,
    all_answers,
    answers_of,
    finished_items,
    read_fact,
    undo_action,
    write_fact,
)
from onepos.validation import name_some, suggest

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
VALUES = ("yes", "no", "unsure", "skip")
COLUMNS = ("item", "label", "value", "source", "time", "reviewer", "reason")


class Missing(LookupError):
    """There is no such item or answer."""


class Conflict(RuntimeError):
    """The request does not go with what is there."""


@dataclass(frozen=True)
class Given:
    """What one request stores: answers about one item, by label and value."""

    id: str
    item: str
    reviewer: str
    session: str
    answers: tuple[tuple[str, str], ...]
    outcome: str = "open"
    others_absent: bool = False


class Review:
    """A data set under review.

    Args:
        store: Where answers are.
        items: The rows as they are shown.
        labels: What was known before any answer.
        judge: Makes a judgement of the rows.
        judgement: The first one.
        name: Of the data set.
        seed: Of the random rows.
    """

    def __init__(
        self,
        store: Store,
        items: Items,
        labels: Labels,
        judge: Judge,
        judgement: Judgement,
        *,
        name: str,
        seed: int = 0,
    ) -> None:
        self.store, self.items, self.judgement, self.name = store, items, judgement, name
        self.given, self.classes = labels, [str(label) for label in labels.classes]
        self.row_of = {item: row for row, item in enumerate(items.ids)}
        self.column_of = {label: column for column, label in enumerate(self.classes)}
        self.improver = Improver(judge)
        self._seed, self._judged_with = seed, 0
        self.version = 1
        check_answers(store, items.ids, self.classes)
        self._load()
        self._judged_with = self.n_answers

    @classmethod
    def start(
        cls, store: Store, items: Items, labels: Labels, judge: Judge, *, name: str, seed: int = 0, tell: Tell
    ) -> Review:
        """Judge the rows with the answers that are there, and take up the review."""
        check_answers(store, items.ids, [str(label) for label in labels.classes])
        with store.read() as connection:
            answers = all_answers(connection)
        row_of = {item: row for row, item in enumerate(items.ids)}
        column_of = {str(label): column for column, label in enumerate(labels.classes)}
        known = merge_answers(labels, answers, row_of, column_of, items.ids)
        unjudged = Judgement.unknown(known)
        review = cls(store, items, labels, judge, unjudged, name=name, seed=seed)
        review.judgement = judge(known, review.sample(answers), tell)
        review.queue.reorder(review.judgement.worth)
        return review

    def _load(self) -> None:
        """Take from the file what is finished, skipped and lent."""
        queue = Queue.make(self.judgement.worth, self._seed)
        with self.store.read() as connection:
            for item, outcome, who in finished_items(connection):
                row = self.row_of[item]
                queue.finish(row) if outcome == "done" else queue.skip(row, who)
            for item, session, reviewer, expires in connection.execute("SELECT * FROM leases"):
                if item in self.row_of:
                    queue.lend(self.row_of[item], session, reviewer, expires - LEASE)
            queue.handed = int(read_fact(connection, "handed") or 0)
            queue.drawn = int(read_fact(connection, "drawn") or 0)
            self._n_per_reviewer = Counter(
                dict(
                    connection.execute(
                        "SELECT reviewer, count(DISTINCT item) FROM actions WHERE undone IS NULL AND outcome = 'done' "
                        "GROUP BY reviewer"
                    ).fetchall()
                )
            )
            self.n_answers = int(
                connection.execute(
                    "SELECT count(*) FROM answers JOIN actions ON number = action WHERE undone IS NULL"
                ).fetchone()[0]
            )
        self.queue = queue

    def _write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job; where the file can not be written, forget what only memory has."""
        try:
            return self.store.write(job)
        except StoreError:
            self._load()
            raise

    # Items

    def next(self, session: str, reviewer: str) -> dict[str, Any]:
        """The item a tab has, or the next one for it."""

        def job(connection: sqlite3.Connection) -> int | None:
            now, queue = time.time(), self.queue
            row = queue.held_by(session, now)
            if row is not None and row not in queue.skipped.get(reviewer, set()):
                return row
            found = queue.find_next(session, reviewer, now)
            if found is None:
                return None
            queue.count_handed(*found)
            write_fact(connection, "handed", str(queue.handed))
            write_fact(connection, "drawn", str(queue.drawn))
            self._lend(connection, found[0], session, reviewer)
            return found[0]

        row = self._write(job)
        return {"item": None if row is None else self.show(row), "counts": self.counts(reviewer)}

    def _lend(self, connection: sqlite3.Connection, row: int, session: str, reviewer: str) -> None:
        for other in self.queue.lend(row, session, reviewer, time.time()):
            connection.execute("DELETE FROM leases WHERE item = ?", (self.items.ids[other],))
        connection.execute(
            "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?)",
            (self.items.ids[row], session, reviewer, self.queue.leases[row].expires),
        )

    def show(self, row: int) -> dict[str, Any]:
        """An item as the page takes it: what it looks like, its labels, and the answers so far."""
        self._check_row(row)
        judgement, item = self.judgement, self.items.ids[row]
        with self.store.read() as connection:
            answers = answers_of(connection, item)
        is_random = self.queue.is_random(row)
        doubtful, others = judgement.rank_labels(row, is_random)
        observed = np.flatnonzero(self._observed(row)).tolist()
        absent = np.flatnonzero(np.asarray(self.given.negative[[row]].toarray())[0]).tolist()
        return {
            "row": row,
            "id": item,
            "reason": "random" if is_random else "doubtful",
            "done": row in self.queue.done,
            "shown": self.items.show(row),
            "observed": observed,
            "absent": absent,
            "doubtful": [column for column in doubtful if column not in observed],
            "others": others,
            "probability": [round(float(p), 3) for p in judgement.probability[row]],
            "suggested": np.flatnonzero(judgement.added[row]).tolist(),
            "answers": {str(self.column_of[label]): value for label, value in answers.items()},
        }

    def _observed(self, row: int) -> Any:
        return np.asarray(self.given.positive[[row]].toarray())[0]

    def _check_row(self, row: int) -> None:
        if not 0 <= row < len(self.items.ids):
            raise Missing(f"there is no item in row {row}; the rows are 0 to {len(self.items.ids) - 1}.")

    # Answers

    def answer(self, given: Given) -> dict[str, Any]:
        """Store answers; when this returns they are on the disk. A known id changes nothing."""
        row = self.row_of.get(given.item)
        if row is None:
            raise Missing(f"there is no item {given.item[:80]!r} in this data set.")
        for label, _ in given.answers:
            if label not in self.column_of:
                raise ValueError(f"there is no label {label[:80]!r}; {suggest(label, self.classes)}")
        if len({label for label, _ in given.answers}) < len(given.answers):
            raise ValueError("one request must hold one answer per label; a label comes twice. Send the last one.")

        def job(connection: sqlite3.Connection) -> bool:
            is_new = add_action(connection, self._as_action(connection, row, given), self.store.now())
            if is_new:
                self._apply(connection, row, given)
            return is_new

        is_new = self._write(job)
        return {"saved": True, "repeated": not is_new, "counts": self.counts(given.reviewer)}

    def _as_action(self, connection: sqlite3.Connection, row: int, given: Given) -> Action:
        answers = list(given.answers)
        if given.others_absent:
            earlier = answers_of(connection, given.item)
            named = {label for label, _ in answers} | {label for label, value in earlier.items() if value != "skip"}
            known = self._observed(row)
            answers += [
                (label, "no")
                for column, label in enumerate(self.classes)
                if label not in named and not known[column] and not self.given.negative[row, column]
            ]
        judgement = self.judgement
        stored = []
        for label, value in answers:
            column = self.column_of[label]
            is_open = not judgement.known[row, column]  # of what is known there is nothing to calibrate
            probability = float(judgement.probability[row, column]) if is_open else None
            stored.append((label, value, probability, int(judgement.added[row, column]) if is_open else None))
        reason = "random" if self.queue.is_random(row) else "doubtful"
        return Action(given.id, given.item, given.reviewer, given.session, tuple(stored), given.outcome, reason)

    def _apply(self, connection: sqlite3.Connection, row: int, given: Given) -> None:
        """What an action that was stored means for the queue and the counts."""
        count = "SELECT count(*) FROM answers JOIN actions ON number = action WHERE id = ?"
        self.n_answers += int(connection.execute(count, (given.id,)).fetchone()[0])
        if given.outcome == "open":
            lease = self.queue.leases.get(row)
            if lease is not None and lease.session == given.session:
                self._lend(connection, row, given.session, given.reviewer)
            return
        if given.outcome == "done":
            self._n_per_reviewer[given.reviewer] += row not in self.queue.done
            self.queue.finish(row)
        else:
            self.queue.skip(row, given.reviewer)
        connection.execute("DELETE FROM leases WHERE item = ?", (given.item,))

    def undo(self, action: str, session: str, reviewer: str) -> dict[str, Any]:
        """Take an action back and lend its item again; a second time changes nothing."""

        def job(connection: sqlite3.Connection) -> int:
            found = undo_action(connection, action, self.store.now())
            if found is None or found[0] not in self.row_of:
                raise Missing(f"there is no answer with the id {action!r}.")
            item, held = found
            row = self.row_of[item]
            if held:
                self._take_back(connection, action, row)
            if self.queue.is_free(row, session, time.time()):
                self._lend(connection, row, session, reviewer)
            return row

        row = self._write(job)
        return {"item": self.show(row), "counts": self.counts(reviewer)}

    def _take_back(self, connection: sqlite3.Connection, action: str, row: int) -> None:
        item = self.items.ids[row]
        number, who, outcome = connection.execute(
            "SELECT number, reviewer, outcome FROM actions WHERE id = ?", (action,)
        ).fetchone()
        self.n_answers -= int(
            connection.execute("SELECT count(*) FROM answers WHERE action = ?", (number,)).fetchone()[0]
        )
        other = "SELECT 1 FROM actions WHERE item = ? AND undone IS NULL AND outcome = 'done' LIMIT 1"
        if outcome != "open" and connection.execute(other, (item,)).fetchone() is None:
            self._n_per_reviewer[who] -= row in self.queue.done
            self.queue.reopen(row, who)

    # What the answers tell

    def counts(self, reviewer: str = "") -> dict[str, Any]:
        """Progress, as numbers."""
        return {
            "items": len(self.items.ids),
            "done": len(self.queue.done),
            "answers": self.n_answers,
            "new_answers": self.n_answers - self._judged_with,
            "mine": self._n_per_reviewer[reviewer],
            "version": self.version,
        }

    def labels(self, answers: list[Answer] | None = None) -> Labels:
        """All that is known: what was observed, and over it the answers."""
        if answers is None:
            with self.store.read() as connection:
                answers = all_answers(connection)
        return merge_answers(self.given, answers, self.row_of, self.column_of, self.items.ids)

    def overview(self) -> dict[str, Any]:
        """Numbers for the overview page."""
        judgement = self.judgement
        with self.store.read() as connection:
            answers = all_answers(connection)
            lines = connection.execute("SELECT time, result FROM improvements ORDER BY number").fetchall()
        counted = Counter(answer.value for answer in answers)
        return {
            "name": self.name,
            "counts": self.counts(),
            "values": {value: counted[value] for value in VALUES},
            "reviewers": [{"reviewer": name, "items": n} for name, n in self._n_per_reviewer.most_common() if n > 0],
            "labels": judgement.summary,
            "labels_per_row": float(np.nansum(judgement.prior)),
            "observed_per_row": self.given.positive.nnz / max(1, len(self.items.ids)),
            "added": judgement.n_added,
            "min_precision": judgement.min_precision,
            "expected_precision": judgement.expected_precision,
            "expected_errors": float(judgement.worth.sum()),
            "warning": judgement.warning,
            "calibrated_on": judgement.calibrated_on,
            "calibration": calibrate(answers, [self.items.ids[row] for row in self.sample(answers)]),
            "improvements": [{"time": when, **json.loads(result)} for when, result in lines],
        }

    def sample(self, answers: list[Answer]) -> list[int]:
        """The rows of which every label is known: those of the random sample that are finished, and those given so."""
        answered: dict[str, set[str]] = {}
        for answer in answers:
            if answer.value != "skip":
                answered.setdefault(answer.item, set()).add(answer.label)
        known = np.diff(self.given.positive.indptr) + np.diff(self.given.negative.indptr)
        c = len(self.classes)
        found = set(np.flatnonzero(self.given.is_sample).tolist())
        for row in self.queue.sample():
            item = self.items.ids[row]
            if row in self.queue.done and len(answered.get(item, ())) + known[row] >= c:
                found.add(row)
        return sorted(found)

    # Improve

    def improve(self) -> bool:
        """Judge the rows anew, with the answers, in another process; False where that is being done."""
        if self.improver.progress.state != "running" and self.n_answers == self._judged_with:
            raise Conflict("there is no answer since the last judgement; review some items first.")
        before, n_answers = self.judgement, self.n_answers
        with self.store.read() as connection:
            answers = all_answers(connection)

        def on_done(judgement: Judgement, folder: str | None, seconds: float) -> dict[str, Any]:
            result = compare(before, judgement, self.classes)
            result |= {"answers": n_answers, "seconds": round(seconds, 1), "model": folder}

            def job(connection: sqlite3.Connection) -> None:
                connection.execute(
                    "INSERT INTO improvements (time, result) VALUES (?, ?)", (self.store.now(), json.dumps(result))
                )
                self.judgement, self._judged_with = judgement, n_answers
                self.version += 1
                self.queue.reorder(judgement.worth)

            self._write(job)
            return result

        return self.improver.start(self.labels(answers), self.sample(answers), on_done)

    # Export and import

    def export(self) -> list[dict[str, str]]:
        """The answers that hold as a long table; entries that were skipped are not answers.

        The reason is "random" for all items of the random sample, also for those that were reviewed before their turn.
        """
        with self.store.read() as connection:
            found = [answer for answer in all_answers(connection) if answer.value != "skip"]
        drawn = {self.items.ids[row] for row in self.queue.sample()}
        named = [answer._replace(reason="random") if answer.item in drawn else answer for answer in found]
        return [{name: str(getattr(answer, name)) for name in COLUMNS} for answer in named]

    def read_back(self, content: bytes, is_json: bool) -> dict[str, Any]:
        """Store the answers of a long table or an export of Label Studio; those that are there already are left out."""
        frame = read_table(content, is_json)
        Labels.from_long(frame, self.items.ids, classes=np.array(self.classes))  # says what is wrong with it
        known = {(line["item"], line["label"], line["value"], line["time"]) for line in self.export()}
        grouped: dict[tuple[str, str, str, str], list[tuple[str, str]]] = {}
        n_known = 0
        for line in as_answers(frame):
            if (line.item, line.label, line.value, line.time) in known:
                n_known += 1
                continue
            grouped.setdefault((line.item, line.time, line.reviewer, line.source), []).append((line.label, line.value))

        def job(connection: sqlite3.Connection) -> int:
            now, n = self.store.now(), 0
            for (item, when, reviewer, source), answers in grouped.items():
                n += len(answers) * add_action(connection, _imported(item, when, reviewer, source, answers), now)
            self.n_answers += n
            return n

        n = self._write(job)
        return {"imported": n, "known": n_known + sum(map(len, grouped.values())) - n, "counts": self.counts()}

    def close(self) -> None:
        """End what is running, and close the file."""
        self.improver.stop()
        self.store.close()


def check_answers(store: Store, items: list[str], classes: list[str]) -> None:
    """Refuse a file whose answers are about other items or labels."""
    with store.read() as connection:
        answered = {item for (item,) in connection.execute("SELECT DISTINCT item FROM actions")}
        named = {label for (label,) in connection.execute("SELECT DISTINCT label FROM answers")}
    for what, other in (("items", answered - set(items)), ("labels", named - set(classes))):
        if other:
            raise ValueError(
                f"{store.path} must hold answers about these rows; {len(other)} of its {what} are not in the data "
                f"({name_some(sorted(other), 3)}). Name another file with --answers, or the data it belongs to."
            )


def merge_answers(
    given: Labels, answers: list[Answer], row_of: dict[str, int], column_of: dict[str, int], items: list[str]
) -> Labels:
    """Labels with the answers over them; unsure leaves an entry as it was."""
    last = {(row_of[a.item], column_of[a.label]): a.value == "yes" for a in answers if a.value in ("yes", "no")}
    places = np.array(list(last), np.intp).reshape(-1, 2)
    is_yes = np.array(list(last.values()), bool)
    yes, no = (_mark(places[chosen], given.positive.shape) for chosen in (is_yes, ~is_yes))
    positive = sp.csr_array((given.positive > no) + yes)
    negative = sp.csr_array((given.negative > yes) + no)
    return replace(given, positive=positive, negative=negative, items=np.array(items))


def _mark(places: Any, shape: tuple[int, int]) -> sp.csr_array:
    ones = np.ones(len(places), bool)
    return sp.csr_array(sp.coo_array((ones, (places[:, 0], places[:, 1])), shape))


def read_table(content: bytes, is_json: bool) -> pd.DataFrame:
    """A long table in CSV, or labels in JSON as `parse_answers` reads them, all cells as text."""
    import pandas as pd

    if is_json:
        frame = parse_answers(content)
        frame = frame[frame["value"] != ""]  # of these nothing is said
    else:
        try:
            frame = pd.DataFrame(_read_cells(content), dtype=str)
        except (ValueError, csv.Error) as error:
            raise ValueError(
                "answers must be CSV in UTF-8 with item, label and value; this can not be read "
                f"({' '.join(str(error).split()).rstrip('.')[:120]}). Export some answers for an example."
            ) from None
    return frame[[name for name in COLUMNS if name in frame.columns]]


def _read_cells(content: bytes) -> dict[str, list[str]]:
    """The cells of the known columns of a CSV file, by column: others may be very many."""
    lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    header = next((cells for cells in lines if any(cells)), [])
    if not header:
        raise ValueError("it is empty")
    wanted = [(place, name) for place, name in enumerate(header) if name in COLUMNS]
    if len({name for _, name in wanted}) < len(wanted):
        raise ValueError("a column comes twice")
    found: dict[str, list[str]] = {name: [] for _, name in wanted}
    for cells in lines:
        if not any(cells):
            continue
        if len(cells) != len(header):
            raise ValueError(f"line {lines.line_num} holds {len(cells)} cells, the first line {len(header)}")
        for place, name in wanted:
            found[name].append(cells[place])
    return found


def as_answers(frame: pd.DataFrame) -> list[Answer]:
    """The lines of a checked long table."""
    from onepos.long_labels import NO, YES

    def cell(line: dict[Any, Any], name: str, default: str) -> str:
        return str(line.get(name) or default)[:200]

    found = []
    for line in frame.to_dict(orient="records"):
        text = str(line.get("value", "yes")).strip().lower()
        value = "yes" if text in YES else "no" if text in NO else "unsure"
        source = cell(line, "source", "import")
        reviewer = cell(line, "reviewer", source)
        found.append(
            Answer(str(line["item"]), str(line["label"]), value, source, _as_time(line), reviewer, "import", None, None)
        )
    return [answer for answer in found if answer.label]


def _as_time(line: dict[Any, Any]) -> str:
    """The time in the form of the store; empty for now."""
    import pandas as pd

    text = str(line.get("time") or "").strip()
    if not text:
        return ""
    try:
        number = float(text)
    except ValueError:
        when = pd.to_datetime(text, utc=True)
    else:
        when = pd.to_datetime(number, unit="s", utc=True)
    return str(when.isoformat(timespec="microseconds"))


def _imported(item: str, when: str, reviewer: str, source: str, answers: list[tuple[str, str]]) -> Action:
    content = json.dumps([item, when, reviewer, source, sorted(answers)])
    name = f"import-{hashlib.sha256(content.encode()).hexdigest()[:32]}"
    stored = tuple((label, value, None, None) for label, value in dict(answers).items())
    return Action(name, item, reviewer, "import", stored, "open", "import", source, when)
