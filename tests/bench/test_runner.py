"""A study made: in blocks, by several processes, stopped and taken up again; what each run says."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from onepos.bench import runner
from onepos.bench.run import make_result, make_trial, run_one, task_of, why_not
from onepos.bench.runner import make_blocks, run_study
from onepos.bench.stacking import train_many
from onepos.bench.store import Store
from onepos.bench.study_file import read_study
from onepos.criteria import CRITERIA
from onepos.datasets import load_dataset
from onepos.methods import make_method
from onepos.metrics import METRICS, evaluate
from onepos.protocol import train_val_test_split
from onepos.training.loop import predict_logits


@pytest.fixture(scope="module")
def scenes():
    return load_dataset("digit-scenes")


@pytest.fixture
def study():
    """Twelve runs on the data set that needs no file."""
    smoke = read_study("smoke")
    budget = dataclasses.replace(smoke.budget, epochs=2)
    return dataclasses.replace(smoke, datasets=("digit-scenes",), networks=("linear", "mlp-8"), budget=budget)


def results(store):
    """Everything but how long it took."""
    return {run.key(): {k: v for k, v in result.items() if k != "timing"} for run, result in store.results()}


def test_blocks_hold_each_run_once_and_only_like_ones(study):
    blocks = make_blocks(study, 3)
    assert sorted(run.key() for block in blocks for run in block) == sorted(run.key() for run in study.runs())
    for block in blocks:
        assert len(block) <= 3
        assert len({(run.method, run.network, run.batch_size) for run in block}) == 1


def test_what_a_run_says(study, scenes):
    run = study.runs()[0]
    trial = make_trial(scenes, run)
    result = run_one(run, scenes)
    assert set(result["test"]) == set(result["validation"]) == set(METRICS)
    assert set(result["criteria"]) == set(CRITERIA)
    assert result["n_epochs"] == len(result["loss"]) == len(result["curve"]) == 2
    assert not result["diverged"]
    assert result["curve"][result["best_epoch"]] == result["validation"]["average_precision"]
    np.testing.assert_allclose(result["true_prior"], trial.labels.mean(0), rtol=1e-5)
    error = np.abs(np.array(result["prior"]) - result["true_prior"]).sum() / np.sum(result["true_prior"])
    assert result["prior_error"] == pytest.approx(error, rel=1e-4)


def test_methods_that_do_not_stack_come_in_small_blocks():
    sizes = {}
    for block in make_blocks(read_study("fair"), 64):
        sizes[block[0].method] = max(sizes.get(block[0].method, 0), len(block))
    assert {name for name, size in sizes.items() if size <= 8} == {
        name for name in sizes if not make_method(name).stacking.possible
    }


def test_common_priors_come_from_single_positives_and_are_the_same_for_all_runs(study, scenes):
    first, last = (make_trial(scenes, run) for run in (study.runs()[0], study.runs()[-2]))
    assert study.runs()[-2].method == "full"
    np.testing.assert_array_equal(first.prior, last.prior)
    labels = scenes.Y.copy()
    labels[scenes.splits["train"]] = first.observed  # what was not observed is gone
    np.testing.assert_array_equal(make_trial(dataclasses.replace(scenes, Y=labels), study.runs()[0]).prior, first.prior)
    true = first.labels.mean(0)
    assert np.abs(first.prior - true).sum() < 0.5 * np.abs(first.observed.mean(0) - true).sum()


def test_criteria_that_ask_for_priors_get_the_common_ones(study, scenes):
    run = study.runs()[0]
    trial = make_trial(scenes, run)
    task = task_of(run, trial)
    (trained,) = train_many([task])
    held_out = predict_logits(task.learner, trial.full.samples).double().numpy()
    wanted = CRITERIA["pu_risk"].function(trial.single.Y, held_out, trial.prior)
    assert make_result(run, trial, task, trained)["criteria"]["pu_risk"] == pytest.approx(wanted, rel=1e-5)
    assert wanted != pytest.approx(CRITERIA["pu_risk"].function(trial.single.Y, held_out, None), rel=1e-3)


def test_a_trace_tells_each_epoch_label_by_label(study, scenes):
    run = next(run for run in study.runs() if run.method == "crisp")
    trial = make_trial(scenes, run)
    task = task_of(run, trial)
    (trained,) = train_many([task])
    plain, traced = (make_result(run, trial, task, trained, trace=trace) for trace in (False, True))
    trace = traced.pop("trace")
    assert traced == plain
    assert np.shape(trace["mean_score"]) == np.shape(trace["prior"]) == (2, plain["n_labels"])
    np.testing.assert_allclose(trace["mean_score"], trained.history.mean_score, rtol=1e-5)
    logits = predict_logits(task.learner, trial.full.samples).double()
    np.testing.assert_allclose(trace["mean_score"][plain["best_epoch"]], torch.sigmoid(logits).mean(0), rtol=1e-5)
    np.testing.assert_allclose(trace["prior"], trained.history.prior, rtol=1e-5)
    unknown = dataclasses.replace(trained.history, prior=[[None] * plain["n_labels"]] * 2)
    assert (
        make_result(run, trial, task, trained._replace(history=unknown), trace=True)["trace"]["prior"] == unknown.prior
    )
    many = dataclasses.replace(trained.history, mean_score=[])  # as for hundreds of labels
    assert make_result(run, trial, task, trained._replace(history=many), trace=True)["trace"] is None


def test_only_a_study_that_asks_for_traces_keeps_them(study, tmp_path):
    for trace in (False, True):
        store = Store(tmp_path / str(trace))
        budget = dataclasses.replace(study.budget, trials=1, configurations=1)
        asked = dataclasses.replace(study, trace=trace, methods=("an", "full"), budget=budget)
        run_study(asked, store)
        for _, result in store.results():
            assert ("trace" in result) == trace
            assert 0 < result["timing"]["closing_seconds"] < result["timing"]["seconds_per_epoch"]


def test_the_oracle_and_only_the_oracle_gets_all_labels(study, scenes):
    for run in study.runs():
        trial = make_trial(scenes, run)
        task = task_of(run, trial)
        assert (task.observed is trial.labels) == (run.method == study.oracle)
        assert trial.observed.sum(1).tolist() == [1] * len(trial.observed)


def test_runs_of_a_trial_share_rows_and_labels_and_trials_differ(study, scenes):
    same, other = (next(run for run in study.runs() if run.trial == k) for k in (0, 1))
    first, second = make_trial(scenes, same), make_trial(scenes, other)
    assert not np.array_equal(first.observed, second.observed)
    assert np.array_equal(first.test_labels, second.test_labels), "digit scenes ship their test rows"
    assert task_of(same, first).samples is task_of(same, first).samples


def test_rows_are_split_anew_where_the_data_set_ships_no_three_parts(study, scenes):
    plain = dataclasses.replace(scenes, splits=None)
    run = study.runs()[0]
    parts = train_val_test_split(plain.Y, run.split_seed)
    assert np.array_equal(make_trial(plain, run).test_labels, plain.Y[parts.test])


def test_selection_without_full_labels_sees_one_label_per_row(study, scenes):
    run = dataclasses.replace(study.runs()[0], select_labels="single-positive")
    task = task_of(run, make_trial(scenes, run))
    assert not task.validation.full
    assert task.validation.Y.sum(1).max() == 1


def test_threshold_is_the_runs(study, scenes):
    run = study.runs()[0]
    low, high = (run_one(dataclasses.replace(run, threshold=t), scenes)["test"] for t in (0.1, 0.9))
    assert low["average_precision"] == high["average_precision"]
    assert low["hamming_loss"] != high["hamming_loss"]


def test_what_can_not_be_run_says_why(study):
    run = dataclasses.replace(study.runs()[0], method="crisp-val", parameters={})
    assert why_not(run) is None
    assert "crisp-val needs validation labels" in why_not(dataclasses.replace(run, select_labels="single-positive"))


def test_one_process(study, tmp_path):
    seen = []
    status = run_study(study, Store(tmp_path), on_progress=seen.append)
    assert status.done == 24
    assert len(seen) == len(make_blocks(study))
    timings = [result["timing"] for _, result in Store(tmp_path).results()]
    assert {t["stack"] for t in timings} == {len(block) for block in make_blocks(study)}
    assert all(t["seconds_per_epoch"] > 0 and t["memory_bytes"] > 1000 for t in timings)
    assert not list((tmp_path / "checkpoints").iterdir())
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    run_study(study, Store(tmp_path))
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}, "nothing is made twice"


def test_only_some_data_sets(study, tmp_path):
    with pytest.raises(ValueError, match=r"scene must be a data set of the study, one of digit-scenes; it is not\."):
        run_study(study, Store(tmp_path), only=["scene"])
    assert run_study(study, Store(tmp_path), only=[]).waiting == 24


def test_a_run_that_raises_does_not_take_its_block_along(study, tmp_path, monkeypatch):
    broken = make_blocks(study)[0][0].key()
    make = runner.task_of

    def make_or_break(run, *arguments):
        if run.key() == broken:
            raise ZeroDivisionError("on purpose")
        return make(run, *arguments)

    monkeypatch.setattr(runner, "task_of", make_or_break)
    store = Store(tmp_path)
    status = run_study(study, store)
    assert (status.done, status.failed) == (23, 1)
    failed = next(run for run in study.runs() if run.key() == broken)
    assert store.failure(failed)["error"] == "ZeroDivisionError: on purpose"
    monkeypatch.undo()
    store.retry([failed])
    assert run_study(study, store).done == 24


def test_a_run_that_can_not_be_made_is_skipped(study, tmp_path):
    only = dataclasses.replace(
        study,
        methods=("an", "crisp-val", "full"),
        method_space={},
        parameters={},
        selection=dataclasses.replace(study.selection, labels="single-positive"),
    )
    status = run_study(only, Store(tmp_path))
    assert (status.done, status.skipped) == (16, 8)


def test_a_diverged_run_is_a_result(study, scenes):
    run = dataclasses.replace(study.runs()[0], lr=1e30, weight_decay=1e30)
    result = run_one(run, scenes)
    assert result["diverged"]
    assert result["n_epochs"] == 1
    assert set(result["test"].values()) == {None}


def test_several_processes_come_to_the_same(study, tmp_path):
    assert run_study(study, Store(tmp_path / "one")).done == 24
    assert run_study(study, Store(tmp_path / "two"), workers=2).done == 24
    assert results(Store(tmp_path / "one")) == results(Store(tmp_path / "two"))


def test_killed_three_times_it_ends_in_the_same_bytes(tmp_path):
    """kill -9 at random moments; timings aside, the files are those of a study that was never stopped."""
    script = (
        "import sys, dataclasses, torch\n"
        "from onepos.bench.runner import run_study\n"
        "from onepos.bench.store import Store\n"
        "from onepos.bench.study_file import read_study\n"
        "torch.set_num_threads(1)\n"
        "smoke = dataclasses.replace(read_study('smoke'), datasets=('digit-scenes',))\n"
        "print('ready', flush=True)\n"
        "run_study(smoke, Store(sys.argv[1], stale_after=0.2))\n"
    )

    def start():
        command = [sys.executable, "-c", script, str(tmp_path / "killed")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        return process

    moments = random.Random(0)
    for _ in range(3):
        process = start()
        time.sleep(moments.uniform(0.2, 1.0))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        time.sleep(0.3)  # until its claims are stale
    assert start().wait(timeout=60) == 0
    smoke = dataclasses.replace(read_study("smoke"), datasets=("digit-scenes",))
    run_study(smoke, Store(tmp_path / "straight"))
    assert len(results(Store(tmp_path / "killed"))) == 24
    assert results(Store(tmp_path / "killed")) == results(Store(tmp_path / "straight"))


def test_a_block_belongs_to_who_has_its_first_run(study, tmp_path):
    """Workers made the same block twice where one looked while another had just begun."""
    store = Store(tmp_path)
    store.keep_study(study)
    blocks = make_blocks(study)
    with store.claim([block[0] for block in blocks]):
        status = run_study(study, store)
    assert status.done == 0
    assert run_study(study, store).done == len(study.runs())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_the_process_that_started_them(tmp_path, number):
    script = (
        "import sys, dataclasses\n"
        "from onepos.bench.runner import run_study\n"
        "from onepos.bench.store import Store\n"
        "from onepos.bench.study_file import read_study\n"
        "if __name__ == '__main__':\n"
        "    study = dataclasses.replace(read_study('smoke'), datasets=('digit-scenes',))\n"
        "    study = dataclasses.replace(study, budget=dataclasses.replace(study.budget, epochs=1000))\n"
        "    run_study(study, Store(sys.argv[1]), workers=2)\n"
    )
    (tmp_path / "study.py").write_text(script)
    process = subprocess.Popen([sys.executable, str(tmp_path / "study.py"), str(tmp_path / "store")])
    claims, until = tmp_path / "store" / "claims", time.monotonic() + 120
    while not list(claims.glob("*.*")) and time.monotonic() < until and process.poll() is None:
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) >= 2
    os.kill(process.pid, number)
    process.wait()
    until = time.monotonic() + 30
    while any(Path(f"/proc/{child}/cmdline").exists() for child in children) and time.monotonic() < until:
        time.sleep(0.1)
    assert not [child for child in children if Path(f"/proc/{child}/cmdline").exists()]


def test_stopped_by_ctrl_c_it_can_go_on_at_once(tmp_path):
    """The workers give their claims back: nothing is left that looks as if someone were at work."""
    script = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run with it ignored\n"
        "from onepos.bench.runner import run_study\n"
        "from onepos.bench.store import Store\n"
        "from onepos.bench.study_file import read_study\n"
        "import dataclasses\n"
        "if __name__ == '__main__':\n"
        "    smoke = dataclasses.replace(read_study('smoke'), datasets=('digit-scenes',))\n"
        "    run_study(smoke, Store(sys.argv[1]), workers=2)\n"
    )
    (tmp_path / "study.py").write_text(script)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "study.py"), str(tmp_path / "store")],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    claims = tmp_path / "store" / "claims"
    until = time.monotonic() + 120
    while not list(claims.glob("*.*")) and time.monotonic() < until and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) != 0
    store = Store(tmp_path / "store")
    status = store.status(store.study().runs())
    assert status.waiting > 0
    assert (status.running, status.stale) == (0, 0)


def test_packed_and_unpacked(study, tmp_path):
    store = Store(tmp_path / "a")
    run_study(study, store)
    assert store.pack(tmp_path / "a.jsonl.gz") == 24
    other = Store(tmp_path / "b")
    assert other.unpack(tmp_path / "a.jsonl.gz") == 24
    assert other.study() == study
    for path in (tmp_path / "a" / "runs").iterdir():
        assert (tmp_path / "b" / "runs" / path.name).read_bytes() == path.read_bytes()
    other.pack(tmp_path / "b.jsonl.gz")
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
    kept = next((tmp_path / "b" / "runs").iterdir())
    kept.write_text("mine")
    other.unpack(tmp_path / "a.jsonl.gz")
    assert kept.read_text() == "mine"


@pytest.mark.parametrize("content", [b"", b"no gzip", json.dumps({}).encode()])
def test_a_damaged_pack(content, tmp_path):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=r"x must be a file written by `onepos bench pack`; it can not be read"):
        Store(tmp_path / "store").unpack(tmp_path / "x")
    assert not (tmp_path / "store").exists()


def test_scores_are_those_of_the_classifier(scenes, study):
    """The same training as `fit`, so the benchmark tells what a user gets."""
    from onepos import SinglePositiveClassifier
    from onepos.methods import make_method

    run = next(run for run in study.runs() if run.method == "crisp" and run.network == "mlp")
    trial, (train, val, test) = (
        make_trial(scenes, run),
        (scenes.take(scenes.splits[k]) for k in ("train", "val", "test")),
    )
    model = SinglePositiveClassifier(
        make_method(run.method, **run.parameters),
        network=run.network,
        hidden=run.hidden,
        scale=run.scaling,
        epochs=run.epochs,
        batch_size=run.batch_size,
        lr=run.lr,
        weight_decay=run.weight_decay,
        threshold=0.5,
        device="cpu",
        random_state=run.seed,
    ).fit(train.X, trial.observed, validation=(val.X, val.Y))
    scores = evaluate(test.Y, model.predict_proba(test.X), threshold=model.thresholds_)
    for name, value in run_one(run, scenes)["test"].items():
        assert value == pytest.approx(scores[name], abs=1e-4)
