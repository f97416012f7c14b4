"""`onepos bench` as a person uses it."""

import json
import os

import pytest

from onepos.bench import runner
from onepos.bench.store import Store
from onepos.bench.study_file import read_study
from onepos.metrics import METRICS

STUDY = """
name = "tiny"
datasets = ["digit-scenes"]
methods = ["an"]
floor = "an"
oracle = "full"
networks = ["linear"]
scaling = "standard"
bias_init = "frequency"
epochs = 2
trials = 2
configurations = 2
sampler = "sobol"
split = "new"
draw = "new"
seed = 0
recipes = false

[selection]
metric = "average_precision"
labels = "full"

[threshold]
"*" = 0.5

[space]
lr = { log = [1e-3, 1e-2] }
weight_decay = { log = [1e-6, 1e-3] }
batch_size = { values = [256] }
"""


@pytest.fixture
def run(onepos, tmp_path):
    """The command, in a folder with the file tiny.toml."""
    (tmp_path / "tiny.toml").write_text(STUDY)
    return onepos


def test_several_studies_behind_one_name(run, tmp_path):
    (tmp_path / "small.toml").write_text(STUDY.replace("tiny", "small").replace("trials = 2", "trials = 1"))
    (tmp_path / "both.toml").write_text('name = "both"\nstudies = ["tiny", "small"]')
    code, _, err = run("bench", "run", "both.toml", "--workers", 1)
    assert code == 0
    assert "tiny: 8/8" in err
    assert "small: 4/4" in err
    code, out, _ = run("bench", "status", "results/both")
    assert code == 0
    assert "results/both/small" in out
    code, out, _ = run("bench", "report", "results/both")
    assert code == 0
    written = {line.strip().removeprefix("results/both/report/") for line in out.splitlines()}
    assert {"small/report.html", "tiny/report.html", "README.md"} <= written
    assert "[small](small/report.md) | 4 of 4" in (tmp_path / "results/both/report/README.md").read_text()
    code, _, err = run("bench", "report", "results")
    assert code == 2
    assert "must hold the results of a study" in err


def test_run_status_report_pack(run, tmp_path):
    code, out, err = run("bench", "run", "tiny.toml", "--workers", 1)
    assert code == 0
    assert "tiny: 8/8" in err
    assert out.splitlines()[-1].split() == ["digit-scenes", "8", "0", "0", "0", "0", "0"]
    code, out, _ = run("bench", "status", "results/tiny", "--json")
    assert code == 0
    assert json.loads(out)["runs"]["digit-scenes"]["done"] == 8
    assert run("bench", "status", "results/tiny", "--watch")[0] == 0
    code, out, _ = run("bench", "report", "results/tiny")
    assert code == 0
    assert [line.rpartition("/")[2] for line in out.split()][:2] == ["report.html", "report.md"]
    assert "Benchmark: tiny" in (tmp_path / "results/tiny/report/report.html").read_text(encoding="utf-8")
    assert run("bench", "pack", "results/tiny", "--out", "tiny.jsonl.gz")[1] == "8 runs: tiny.jsonl.gz\n"
    assert run("bench", "unpack", "tiny.jsonl.gz", "again")[1] == "8 runs: again\n"
    assert run("bench", "report", "again", "--json")[0] == 0
    assert (tmp_path / "again/report/report.md").read_bytes() == (
        tmp_path / "results/tiny/report/report.md"
    ).read_bytes()


def test_failed_runs_are_listed_and_made_again(run, monkeypatch):
    def fail(*_):
        raise RuntimeError("out of luck")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "task_of", fail)
        code, out, _ = run("bench", "run", "tiny.toml", "--workers", 1, "--out", "here")
    assert code == 1
    assert "failed, 8 runs (digit-scenes, an," in out
    assert "RuntimeError: out of luck" in out
    code, out, err = run("bench", "run", "tiny.toml", "--workers", 1, "--out", "here", "--quiet")
    assert (code, out) == (1, ""), "not made again unasked"
    assert err == "error: 8 of 8 runs failed. See why: onepos bench status here\n"
    code, out, err = run("bench", "run", "tiny.toml", "--workers", 1, "--out", "here", "--quiet", "--retry")
    assert (code, out, err) == (0, "", "")


def test_another_study_in_the_folder(run, tmp_path):
    run("bench", "run", "tiny.toml", "--workers", 1, "--quiet", "--out", "here", "--data", "digit-scenes")
    (tmp_path / "tiny.toml").write_text(STUDY.replace("epochs = 2", "epochs = 3"))
    code, _, err = run("bench", "run", "tiny.toml", "--workers", 1, "--out", "here")
    assert code == 2
    assert "differs in budget" in err
    assert "Traceback" not in err


def test_without_any_full_label(run):
    code, out, _ = run("bench", "run", "tiny.toml", "--workers", 1, "--labels", "single-positive", "--json")
    assert code == 0
    assert json.loads(out)["runs"]["digit-scenes"]["done"] == 8


def test_another_seed(run):
    code, out, _ = run("bench", "run", "tiny.toml", "--workers", 1, "--seed", 7, "--json")
    assert code == 0
    assert json.loads(out)["runs"]["digit-scenes"]["done"] == 8
    assert Store("results/tiny-seed-7").study().seed == 7
    code, _, err = run("bench", "run", "tiny.toml", "--seed", -1)
    assert code == 2
    assert "--seed" in err


def fill(folder, shift=0.0):
    """Results of tiny.toml that nobody measured."""
    study, store = read_study("tiny.toml"), Store(folder)
    store.keep_study(study)
    for run in study.runs():
        better = shift * (1 + 0.02 * run.trial) if run.method == "an" else 0.0
        scores = dict.fromkeys(METRICS, 0.5 + 0.02 * run.trial + better)
        rest = {"criteria": {}, "diverged": False, "timing": {}, "best_epoch": 0, "n_labels": 3, "cardinality": 1.0}
        store.save(run, {"test": scores, "validation": scores, **rest})
    return store


def test_compare_two_studies(run, tmp_path):
    fill("before")
    fill("after", 0.1).pack("after.jsonl.gz")
    code, out, _ = run("bench", "compare", "before", "after.jsonl.gz", "--out", "compared.md")
    assert code == 0
    assert out.splitlines()[0] == "Average precision ↑"
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert "digit-scenes an 0.510 ± 0.014 0.611 ± 0.016 +0.101 2 pairs 0.0070 better" in rows
    assert "A: before\nB: after.jsonl.gz\nThe studies are the same.\n" in out
    assert "Of 14 scores B is significantly better in 3 and worse in 4" in out
    assert "## Ranking loss ↓" in (tmp_path / "compared.md").read_text(encoding="utf-8")
    code, out, _ = run("bench", "compare", "before", "after", "--metric", "map,ranking_loss", "--json")
    assert code == 0
    assert json.loads(out)["counts"] == {
        "map": {"win": 1, "tie": 1, "loss": 0},
        "ranking_loss": {"win": 0, "tie": 1, "loss": 1},
    }
    out = run("bench", "compare", "before", "after", "--metric", "map,ranking_loss")[1]
    assert [line for line in out.splitlines() if line.endswith(("↑", "↓"))] == ["mAP ↑", "Ranking loss ↓"]


def test_nothing_to_compare(run, tmp_path):
    fill("before")
    text = STUDY.replace('"full"', '"wan"', 1).replace('["an"]', '["em"]').replace('floor = "an"', 'floor = "em"')
    (tmp_path / "tiny.toml").write_text(text)
    fill("other")
    code, _, err = run("bench", "compare", "before", "other")
    assert code == 2
    assert err.startswith("error: before and other must both have results of one method on one data set; the first has")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "fare"], "fair"),
        (["run", "tiny.toml", "--out", "tiny.toml"], "tiny.toml must be a folder, or not exist yet; it is a file."),
        (["run", "tiny.toml", "--device", "no-such"], "device must be 'auto', 'cpu', or an accelerator"),
        (["run", "tiny.toml", "--data", "scene"], "scene must be a data set of the study"),
        (["status", "nowhere"], "nowhere"),
        (["report", "nowhere"], "nowhere"),
        (["unpack", "nowhere.gz", "x"], "nowhere.gz"),
        (["compare", "nowhere", "tiny.toml"], "nowhere must be a folder of results, or a file written by"),
        (["compare", "tiny.toml", "nowhere"], "tiny.toml must be a file written by `onepos bench pack`"),
        (["compare", ".", "."], "it has no study.toml"),
        (["compare", ".", ".", "--metric", "mapp"], "unknown metric 'mapp'; did you mean 'map'?"),
    ],
)
def test_wrong_input_is_one_sentence(arguments, said, run):
    code, _, err = run("bench", *arguments)
    assert code == 2
    assert said in err
    assert "Traceback" not in err
    assert not os.path.exists("results"), "nothing half-made is left behind"


def test_a_folder_without_a_study_is_not_packed(run):
    code, _, err = run("bench", "pack", "nowhere", "--out", "x.gz")
    assert code == 2
    assert "nowhere must hold study.toml; it does not. Give the folder named to `onepos bench run`." in err


def test_runs_that_are_missing_at_the_end_are_not_silent(run, tmp_path):
    """Another process has them, or the folder was deleted meanwhile: 0 means that all runs are there."""
    study, store = read_study("tiny.toml"), Store("results")
    store.keep_study(study)
    with store.claim(study.runs()):
        code, _, err = run("bench", "run", "tiny.toml", "--out", "results", "--workers", 1, "--quiet")
    assert code == 1
    assert f"every run must be finished; {len(study.runs())} of {len(study.runs())} are not" in err
