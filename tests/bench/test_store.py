"""The store: whole files or none, one winner per run, and no run lost to a process that dies."""

import dataclasses
import errno
import json
import multiprocessing
import os
import signal
import tempfile
import time
from contextlib import ExitStack

import pytest

from onepos.bench.store import Status, Store
from onepos.bench.study_file import read_study

RUNS = read_study("smoke").runs()
FORK = multiprocessing.get_context("fork")
LONG_AGO = 1e9


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


def claims_of(store, run):
    return sorted(path.name for path in (store.folder / "claims").glob(f"{run.key()}.*"))


def leave_behind(store, run, number=0):
    """A claim whose process is gone."""
    path = store.folder / "claims" / f"{run.key()}.{number}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def state(store, run):
    return store.states([run])[run.key()]


# Files.


def test_a_result_is_kept_whole(store):
    result = {"scores": {"map": 0.1 + 0.2, "f1": float("nan")}, "loss": [1.0, float("inf")], "name": "ü"}
    store.save(RUNS[0], result)
    assert store.result(RUNS[0]) == {"scores": {"map": 0.1 + 0.2, "f1": None}, "loss": [1.0, None], "name": "ü"}
    assert list(store.results()) == [(RUNS[0], store.result(RUNS[0]))]
    assert [path.name for path in (store.folder / "runs").iterdir()] == [f"{RUNS[0].key()}.json"]


def test_what_is_packed_comes_out_again_skips_too(store, tmp_path):
    store.keep_study(read_study("smoke"))
    store.save(RUNS[0], {"a": 1})
    store.skip(RUNS[1], "no such thing")
    assert store.pack(tmp_path / "all.jsonl.gz") == 1
    other = Store(tmp_path / "other")
    assert other.unpack(tmp_path / "all.jsonl.gz") == 1
    assert other.result(RUNS[0]) == {"a": 1}
    assert other.reason(RUNS[1]) == "no such thing"
    assert other.status(RUNS) == store.status(RUNS)
    other.pack(tmp_path / "again.jsonl.gz")
    assert (tmp_path / "again.jsonl.gz").read_bytes() == (tmp_path / "all.jsonl.gz").read_bytes()


@pytest.mark.parametrize("content", [b"[1]", b"\xff", b"{}", b'{"run": {}, "result": {}}', b"[" * 9000])
def test_a_damaged_run_is_not_packed(store, tmp_path, content):
    store.keep_study(read_study("smoke"))
    store.save(RUNS[0], {"n": 1})
    (store.folder / "runs" / f"{RUNS[0].key()}.json").write_bytes(content)
    with pytest.raises(ValueError, match=f"{RUNS[0].key()}.json must hold the result of the run it is named after"):
        store.pack(tmp_path / "p.jsonl.gz")


@pytest.mark.parametrize("content", ["1", "[]", '{"x": 1}', "null"])
def test_a_packed_file_with_another_line_is_refused(store, tmp_path, content):
    import gzip

    store.keep_study(read_study("smoke"))
    store.pack(tmp_path / "p.jsonl.gz")
    lines = gzip.decompress((tmp_path / "p.jsonl.gz").read_bytes()) + content.encode()
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress(lines))
    with pytest.raises(ValueError, match=r"p\.jsonl\.gz must be .*a line after the first holds no run"):
        Store(tmp_path / "other").unpack(tmp_path / "p.jsonl.gz")


def test_half_of_a_surrogate_pair_is_refused_before_anything_is_written(store, tmp_path):
    import gzip

    store.keep_study(read_study("smoke"))
    store.save(RUNS[0], {"n": "text"})
    store.pack(tmp_path / "p.jsonl.gz")
    lines = gzip.decompress((tmp_path / "p.jsonl.gz").read_bytes()).replace(b'"text"', b'"\\ud800"')
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress(lines))
    with pytest.raises(ValueError, match=r"p\.jsonl\.gz must be .*valid Unicode"):
        Store(tmp_path / "other").unpack(tmp_path / "p.jsonl.gz")


def test_a_failure_without_its_error_is_refused(store):
    store.keep_study(read_study("smoke"))
    store.fail(RUNS[0], ValueError("it must be so."))
    path = store.folder / "failed" / f"{RUNS[0].key()}.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in content.items() if name != "error"}))
    with pytest.raises(ValueError, match="must hold the error of the run it is named after"):
        store.failure(RUNS[0])


def test_a_compact_file_lacks_the_curves_and_keeps_what_reports_read(store, tmp_path):
    store.keep_study(read_study("smoke"))
    lists = {"loss": [1.0], "curve": [0.5], "prior": [0.1], "true_prior": [0.2]}
    store.save(RUNS[0], {"test": {"map": 0.5}, **lists})
    store.save(RUNS[1], {"trace": {"prior": [[0.1]]}, **lists})
    assert store.pack(tmp_path / "small.jsonl.gz", compact=True) == 2
    other = Store(tmp_path / "other")
    other.unpack(tmp_path / "small.jsonl.gz")
    assert other.result(RUNS[0]) == {"test": {"map": 0.5}}
    assert other.result(RUNS[1]) == {"trace": {"prior": [[0.1]]}, "true_prior": [0.2]}
    assert store.result(RUNS[0])["loss"] == [1.0], "the folder keeps everything"


def test_equal_results_are_equal_bytes(store, tmp_path):
    other = Store(tmp_path / "other")
    store.save(RUNS[0], {"a": 1, "b": {"x": (1, 2), "y": 0.5}})
    parameters = dict(reversed(RUNS[0].parameters.items()))
    other.save(dataclasses.replace(RUNS[0], parameters=parameters), {"b": {"y": 0.5, "x": [1, 2]}, "a": 1})
    first, second = (next((s.folder / "runs").iterdir()).read_bytes() for s in (store, other))
    assert first == second
    assert b" " not in first
    assert first.endswith(b"}\n")


def test_results_come_in_the_order_of_their_keys(store):
    for run in RUNS[:5]:
        store.save(run, {"lr": run.lr})
    found = list(store.results())
    assert [run.key() for run, _ in found] == sorted(run.key() for run in RUNS[:5])
    assert all(run.lr == result["lr"] for run, result in found)


@pytest.mark.parametrize("damage", ["cut", "empty", "list", "other run", "no result", "no field", "bytes"])
def test_a_damaged_file_is_refused_by_name(store, damage):
    for run in RUNS[:2]:
        store.save(run, {"scores": 1})
    path, other = (store.folder / "runs" / f"{run.key()}.json" for run in RUNS[:2])
    content = json.loads(path.read_text())
    path.write_bytes(
        {
            "cut": path.read_bytes()[:-20],
            "empty": b"",
            "list": b"[]",
            "other run": other.read_bytes(),
            "no result": json.dumps({"run": content["run"]}).encode(),
            "no field": json.dumps({"run": {"lr": 1}, "result": {}}).encode(),
            "bytes": b"\xff\xfe",
        }[damage]
    )
    for read in (lambda: store.result(RUNS[0]), lambda: list(store.results())):
        with pytest.raises(
            ValueError, match=rf"{path.name} must hold the result of the run .* Delete it, and the run is"
        ):
            read()
    assert store.result(RUNS[1]) == {"scores": 1}


def test_failures_and_skips_say_why(store):
    try:
        [].pop()
    except IndexError as error:
        store.fail(RUNS[0], error)
    store.skip(RUNS[1], "needs validation labels")
    content = store.failure(RUNS[0])
    assert content["error"] == "IndexError: pop from empty list"
    assert "[].pop()" in content["trace"]
    assert {"host", "time"} < content.keys()
    assert store.reason(RUNS[1]) == "needs validation labels"
    with store.claim(RUNS[:3]) as won:
        assert won == [RUNS[2]]
    store.retry(RUNS[:2])
    with store.claim(RUNS[:3]) as won:
        assert won == RUNS[:3]


# The study.


def test_a_folder_is_about_one_study(store):
    study = read_study("smoke")
    store.keep_study(study)
    store.keep_study(study)
    assert store.study() == study
    longer = dataclasses.replace(study, datasets=("digit-scenes",), seed=1)
    with pytest.raises(
        ValueError, match=r"study\.toml must be .* it is smoke and differs in datasets, seed\. Use another"
    ):
        store.keep_study(longer)
    (store.folder / "study.toml").unlink()
    store.keep_study(longer)
    assert store.study() == longer


# States.


def test_status_counts_every_state(store, monkeypatch):
    assert store.status(RUNS) == Status(waiting=48)
    assert not store.folder.exists(), "looking changes nothing"
    store.save(RUNS[0], {})
    store.fail(RUNS[1], ValueError("x"))
    store.skip(RUNS[2], "x")
    leave_behind(store, RUNS[3])
    with store.claim(RUNS[4:6]):
        with store.claim(RUNS[6:7]):
            pass
        wanted = Status(done=1, failed=1, skipped=1, stale=1, running=2, waiting=42)
        assert store.status(RUNS) == wanted
        monkeypatch.setattr(time, "time", lambda: LONG_AGO * 10)
        assert store.status(RUNS) == wanted, "a wrong clock of this machine does no harm"
        monkeypatch.undo()

        def refuse(**options):
            raise PermissionError

        monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
        assert store.status(RUNS) == wanted, "a folder that can not be written to can be looked at"
    store.save(RUNS[1], {})
    assert store.status(RUNS[:2]) == Status(done=2)


# Claims.


def test_a_claim_lasts_as_long_as_its_block(store):
    with store.claim(RUNS[:2]) as won:
        assert won == RUNS[:2]
        content = json.loads((store.folder / "claims" / f"{RUNS[0].key()}.0").read_text())
        assert content["pid"] == os.getpid()
        assert {"host", "start"} < content.keys()
        with Store(store.folder).claim(RUNS[:3]) as others:
            assert others == [RUNS[2]]
        store.save(RUNS[0], {})
    assert claims_of(store, RUNS[0]) == [], "nothing is left of a finished run"
    with store.claim(RUNS[:3]) as won:
        assert won == RUNS[1:3]


def test_a_run_named_twice_is_claimed_once(store):
    with store.claim([RUNS[0], RUNS[0]]) as won:
        assert won == [RUNS[0]]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_releases(store, kind):
    with pytest.raises(kind), store.claim(RUNS[:2]):
        raise kind
    assert store.status(RUNS[:2]) == Status(waiting=2)
    with store.claim(RUNS[:2]) as won:
        assert won == RUNS[:2]


def test_the_heart_beats(store):
    quick = Store(store.folder, stale_after=0.2)
    with quick.claim(RUNS[:2]):
        paths = [store.folder / "claims" / f"{run.key()}.0" for run in RUNS[:2]]
        for path in paths:
            os.utime(path, (LONG_AGO, LONG_AGO))
        deadline = time.monotonic() + 5
        while min(path.stat().st_mtime for path in paths) <= LONG_AGO and time.monotonic() < deadline:
            time.sleep(0.01)
        assert store.status(RUNS[:2]) == Status(running=2)


def test_a_claim_without_a_heartbeat_is_taken_over_once(store):
    leave_behind(store, RUNS[0])
    assert state(store, RUNS[0]) == "stale"
    with store.claim([RUNS[0]]) as won:
        assert won == [RUNS[0]]
        assert state(store, RUNS[0]) == "running"
        with store.claim([RUNS[0]]) as others:
            assert others == []
        store.save(RUNS[0], {})
    assert claims_of(store, RUNS[0]) == []


def test_the_limit_is_an_argument(store):
    with store.claim([RUNS[0]]):
        path = store.folder / "claims" / f"{RUNS[0].key()}.0"
        os.utime(path, (time.time() - 60, time.time() - 60))
        assert state(store, RUNS[0]) == "running"
        assert state(Store(store.folder, stale_after=30), RUNS[0]) == "stale"


@pytest.mark.parametrize("meanwhile", ["held", "released", "held again", "finished", "failed"])
def test_who_looked_before_the_others_acted_does_not_win_with_them(store, meanwhile):
    """A process finds a dead claim, sleeps, and wakes up when others have taken over, let go, or finished."""
    run = RUNS[0]
    leave_behind(store, run)
    latest, now, won = store._latest_claims()[run.key()], time.time(), {}
    with ExitStack() as stack:
        if meanwhile == "held":
            stack.enter_context(store.claim([run]))
        else:
            with store.claim([run]):
                if meanwhile == "finished":
                    store.save(run, {})
                if meanwhile == "failed":
                    store.fail(run, ValueError("x"))
        if meanwhile == "held again":
            assert stack.enter_context(store.claim([run])) == [run]
        store._take(run, latest, now, won)
        assert won == {}


def test_a_run_that_is_finished_while_it_is_claimed_is_not_made_again(store, monkeypatch):
    create = os.open

    def come_late(path, *options):
        if str(path).endswith(".0"):
            store.save(RUNS[0], {})
        return create(path, *options)

    monkeypatch.setattr(os, "open", come_late)
    with store.claim([RUNS[0]]) as won:
        assert won == []
        assert claims_of(store, RUNS[0]) == []


def contend(folder, everyone, won):
    everyone.wait()
    with Store(folder).claim(RUNS) as mine:
        won.put([run.key() for run in mine])
        everyone.wait()  # nobody lets go before all have claimed


@pytest.mark.parametrize("left_behind", [False, True])
def test_of_many_processes_one_wins_each_run(store, left_behind):
    if left_behind:
        for run in RUNS:
            leave_behind(store, run)
    everyone, won = FORK.Barrier(4), FORK.SimpleQueue()
    processes = [FORK.Process(target=contend, args=(store.folder, everyone, won)) for _ in range(4)]
    for process in processes:
        process.start()
    keys = [key for _ in processes for key in won.get()]
    for process in processes:
        process.join()
    assert sorted(keys) == sorted(run.key() for run in RUNS), "each run once, and none left out"
    assert store.status(RUNS) == Status(waiting=48)


# Processes that die, disks that are full.


def result_of(run):
    return {"lr": run.lr, "loss": [run.lr / k for k in range(1, 500)]}


def work(folder, progress):
    store = Store(folder)
    with store.claim(RUNS) as won:
        for run in won:
            store.save(run, result_of(run))
            progress.send(run.key())


def test_killed_and_resumed_equals_never_killed(store, tmp_path):
    for n_more in (1, 9, 17):
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=work, args=(store.folder, theirs))
        process.start()
        done = [ours.recv() for _ in range(n_more)]
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        states = store.states(RUNS)
        assert all(states[key] == "done" for key in done)
        assert "running" in states.values(), "nobody knows yet that it is dead"
        assert all(result == result_of(run) for run, result in store.results())
        for claim in (store.folder / "claims").iterdir():
            os.utime(claim, (LONG_AGO, LONG_AGO))
        assert "stale" in store.states(RUNS).values()
    for folder in (store.folder, tmp_path / "other"):
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=work, args=(folder, theirs))
        process.start()
        process.join()
    assert store.status(RUNS) == Status(done=48)
    for path in (tmp_path / "other" / "runs").iterdir():
        assert (store.folder / "runs" / path.name).read_bytes() == path.read_bytes()


def hang_while_writing(folder, progress):
    def hang(descriptor):
        progress.send(os.fstat(descriptor).st_size)
        signal.pause()

    os.fsync = hang
    Store(folder).save(RUNS[0], result_of(RUNS[0]))


def test_killed_in_the_middle_of_a_write(store):
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=hang_while_writing, args=(store.folder, theirs))
    process.start()
    assert ours.recv() > 0, "something was written"
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert list(store.results()) == []
    assert state(store, RUNS[0]) == "waiting"
    store.save(RUNS[0], result_of(RUNS[0]))
    assert list(store.results()) == [(RUNS[0], result_of(RUNS[0]))]


def no_room(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_nothing_half_written(store, monkeypatch):
    store.save(RUNS[0], result_of(RUNS[0]))
    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(OSError, match="No space left"), store.claim(RUNS[:2]) as won:
        store.save(won[0], result_of(won[0]))
    assert [path.name for path in (store.folder / "runs").iterdir()] == [f"{RUNS[0].key()}.json"]
    assert store.status(RUNS[:2]) == Status(done=1, waiting=1)


@pytest.mark.parametrize("what", ["create", "write"])
def test_a_disk_that_fills_up_while_claiming(store, monkeypatch, what):
    create, dump, count = os.open, json.dump, iter(range(100))

    def fill_up(path, *options):
        return no_room() if str(path).endswith(".0") and next(count) >= 2 else create(path, *options)

    if what == "create":
        monkeypatch.setattr(os, "open", fill_up)
    else:
        monkeypatch.setattr(json, "dump", lambda *args: dump(*args) if next(count) < 2 else no_room())
    with pytest.raises(OSError, match="No space left"), store.claim(RUNS[:4]):
        pytest.fail("the block must not be entered")
    monkeypatch.undo()
    assert len(list((store.folder / "claims").iterdir())) == (2 if what == "create" else 3)
    assert store.status(RUNS) == Status(waiting=48)
    with store.claim(RUNS[:4]) as won:
        assert won == RUNS[:4]
