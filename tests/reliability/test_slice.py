"""A few inputs of every kind, faults of the disk and numbers at the edge; `./test --reliability` makes many."""

import json

import numpy as np
import pytest
from faults import WRITERS, run_clocks, run_faults, run_writers
from isolation import fuzz, judge_error
from kills import run_kills
from long_runs import LONG, run_long
from mutation import mutate
from numerics import CASES, run_numbers
from targets import TARGETS

SLOW = {"results", "packed results", "model folder, tables"}

pytestmark = pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="this system has no fork")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in TARGETS])
def test_damaged_inputs_give_a_result_or_a_sentence(name):
    found = fuzz(TARGETS[name], seed=1, cases=8)
    assert found["inputs"] == 8
    assert found["faults"] == []


def test_the_harness_sees_what_it_looks_for():
    """A reader that is wrong in each way is found out."""
    from targets import Target

    def read(folder):
        text = (folder / "a.txt").read_text()
        if text != "whole":
            raise KeyError("foreign")

    target = Target("wrong", lambda folder: (folder / "a.txt").write_text("whole"), read)
    found = fuzz(target, seed=0, cases=5)
    assert found["counts"].get("foreign", 0) + found["counts"].get("result", 0) == 5
    assert found["faults"]
    assert judge_error(ValueError("a.txt must be so; it is not. Mend it."), {"a.txt"})[0] == "sentence"
    for error in (
        ValueError("it must be so."),
        KeyError("a.txt"),
        ValueError("a.txt\nis bad."),
        ValueError("a.txt bad"),
    ):
        assert judge_error(error, {"a.txt"})[0] == "foreign"


def test_a_child_that_dies_or_hangs_is_seen(monkeypatch):
    import os
    import signal
    import time

    import isolation
    from targets import Target

    monkeypatch.setattr(isolation, "SECONDS", 0.5)

    def read(folder):
        text = (folder / "a.txt").read_text()
        if text != "whole":
            os.kill(os.getpid(), signal.SIGSEGV) if len(text) % 2 else time.sleep(30)

    target = Target("dies", lambda folder: (folder / "a.txt").write_text("whole"), read, mutate=_longer)
    found = fuzz(target, seed=0, cases=4)
    assert set(found["counts"]) == {"crash", "hang"}


def _longer(rng, name, content):
    return content + b"x" * rng.choice((1, 2))


def test_a_seed_gives_the_same_damage_again():
    import random

    whole = json.dumps({"a": [1, 2, {"b": "c"}]}).encode()
    damaged = [mutate(random.Random(f"3/{k}"), "x.json", whole) for k in range(50)]
    assert damaged == [mutate(random.Random(f"3/{k}"), "x.json", whole) for k in range(50)]
    assert len(set(damaged)) > 30


def test_what_a_reader_writes_or_removes_is_as_before_in_the_next_case(tmp_path):
    from isolation import Files

    source, folder = tmp_path / "whole", tmp_path / "case"
    (source / "inner").mkdir(parents=True)
    (source / "a.txt").write_text("whole")
    (source / "inner" / "b.txt").write_text("inner")
    files = Files(source, folder)
    files.restore()
    times = {path: (folder / path).stat().st_mtime_ns for path in files.whole}
    assert times == {path: (source / path).stat().st_mtime_ns for path in files.whole}
    (folder / "a.txt").write_text("other")
    (folder / "inner" / "b.txt").unlink()
    (folder / "inner" / "b.txt").mkdir()
    (folder / "new").mkdir()
    (folder / "new" / "c.txt").write_text("new")
    files.restore()
    found = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert found == {"a.txt": "whole", "inner/b.txt": "inner"}
    assert not (folder / "new").exists()


def test_a_run_without_minutes_makes_twenty_thousand_inputs_of_each_format_in_rounds():
    import runpy
    from pathlib import Path

    main = runpy.run_path(str(Path(__file__).parent / "__main__.py"), run_name="harness")
    tasks = main["make_tasks"](main["parse"]([]), 0.0)
    inputs = [task for task in tasks if task[0] == "inputs"]
    for name in TARGETS:
        made = sorted((first, cases) for _, each, *_, first, cases in inputs if each == name)
        assert sum(cases for _, cases in made) == 20_000
        assert [first for first, _ in made] == [sum(cases for _, cases in made[:k]) for k in range(len(made))]
    assert {task[0] for task in tasks} == {"inputs", "kills", "faults", "numbers", "long"}
    short = main["make_tasks"](main["parse"](["--minutes", "1.2", "--workers", "2"]), 0.0)
    assert sum(task[3] for task in short) <= 1.2 * 60 * 2 + 1e-6


def test_series_of_inputs_end_at_their_number_and_go_on_from_any():
    from targets import TARGETS

    whole = fuzz(TARGETS["npy"], seed=4, cases=90)
    parts = [fuzz(TARGETS["npy"], seed=4, cases=45, first=first) for first in (0, 45)]
    assert whole["inputs"] == 90
    assert {kind: sum(part["counts"].get(kind, 0) for part in parts) for kind in whole["counts"]} == whole["counts"]


def test_a_request_that_breaks_the_server_is_seen(monkeypatch):
    import server_requests

    server = server_requests.Server()
    assert server.run(0, -1)[0] == "result"

    async def broken(scope, receive, send):
        raise KeyError("foreign")

    async def failing(scope, receive, send):
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def wordless(scope, receive, send):
        await send({"type": "http.response.start", "status": 422, "headers": []})
        await send({"type": "http.response.body", "body": b'{"detail": "Value error"}'})

    for app in (broken, failing, wordless):
        server.apps = [app, app]
        kinds = {server.run(0, case)[0] for case in range(20)}
        assert "foreign" in kinds


@pytest.mark.parametrize("name", WRITERS)
def test_a_failing_disk_leaves_the_old_or_the_new(name):
    found = run_faults(name, seed=1, faults=8)
    assert found["counts"]["faults"] == 8
    assert found["faults"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_writers_at_the_same_time_leave_one_content(name):
    assert run_writers(name, seed=1, rounds=1)["faults"] == []


def test_claims_of_clocks_that_jump_are_given_free():
    assert run_clocks(seed=1)["faults"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["save", "answers", "fit over an older model"])
def test_killed_work_is_taken_up_and_ends_the_same(name):
    found = run_kills(name, seed=1, kills=3)
    assert found["counts"]["kills"] >= 3
    assert found["faults"] == []


@pytest.mark.parametrize("name", CASES)
def test_numbers_at_the_edge(name):
    for method in ("an", "smile"):
        kind, text = run_numbers(name, method, seed=1)
        assert kind != "foreign", text


@pytest.mark.slow
def test_numbers_at_the_edge_with_the_default_method():
    assert [text for name in CASES for kind, text in [run_numbers(name, "crisp-plus", 1)] if kind == "foreign"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_memory_and_open_files_stay(name):
    assert run_long(name, share=0.02 if "studies" in name else 0.1)["faults"] == []


@pytest.mark.parametrize("power", [300, -300])
def test_features_of_any_size_are_learnt_from_as_those_of_usual_size(power):
    """They silently became constant predictions."""
    from onepos import SinglePositiveClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = np.where(X[:, 0] > 0, "right", "left")
    usual, extreme = (
        SinglePositiveClassifier("an", epochs=8, hidden=(8,), lr=0.05, random_state=0, early_stopping=False)
        .fit(rows, y)
        .predict_proba(rows)
        for rows in (X, X * 10.0**power)
    )
    assert usual[:, 0].std() > 0.1
    np.testing.assert_allclose(usual, extreme, atol=1e-5)


@pytest.mark.slow
def test_one_thread_and_two_agree():
    """Sums in another order: no more than rounding in single precision over some epochs."""
    import torch

    from onepos import SinglePositiveClassifier

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 30)), rng.integers(5, size=400)
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            model = SinglePositiveClassifier("crisp", epochs=3, random_state=0, early_stopping=False)
            found.append(model.fit(X, y).predict_proba(X))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)


def test_single_precision_rows_and_double_precision_rows_agree():
    from onepos import SinglePositiveClassifier

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 6)).astype(np.float32), rng.integers(3, size=100)
    single, double = (
        SinglePositiveClassifier("crisp", epochs=3, hidden=(8,), random_state=0).fit(rows, y).predict_proba(rows)
        for rows in (X, X.astype(np.float64))
    )
    np.testing.assert_allclose(single, double, atol=1e-4)


@pytest.mark.slow
def test_twenty_thousand_labels():
    import scipy.sparse as sp

    from onepos import SinglePositiveClassifier

    X = np.random.default_rng(0).normal(size=(50, 4))
    y = sp.csr_array((np.ones(50), (np.arange(50), np.arange(50) * 400)), shape=(50, 20_000))
    model = SinglePositiveClassifier("an", epochs=1, hidden=(4,), random_state=0, early_stopping=False)
    assert model.fit(X, y).predict_proba(X).shape == (50, 20_000)


def test_a_loss_that_is_lost_is_reported_and_the_best_model_kept(monkeypatch):
    from onepos import SinglePositiveClassifier
    from onepos.training import loop
    from onepos.training.loop import Diverged

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(3, size=60)
    options = {"epochs": 4, "hidden": (4,), "random_state": 0, "early_stopping": False}
    run_epoch, losses = loop._run_epoch, []

    def lost_in_the_third(*arguments):
        losses.append(run_epoch(*arguments))
        if len(losses) < 3:
            return losses[-1]
        for weights in arguments[2].learner.parameters():
            weights.data.fill_(float("nan"))
        return losses[-1]

    monkeypatch.setattr(loop, "_run_epoch", lost_in_the_third)
    with pytest.warns(UserWarning, match=r"the weights were not in epoch 2\. .* The model is that of epoch 2, before"):
        model = SinglePositiveClassifier("an", **options).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()
    assert model.history_.loss == losses[:2]
    monkeypatch.undo()
    with pytest.raises(Diverged, match=r"the loss must stay finite; it was nan in epoch 0"):
        SinglePositiveClassifier("an", **options | {"lr": 1e30}).fit(X, y)
