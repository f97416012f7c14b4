"""`onepos bench` as a person uses it."""

import json
import os

import pytest

from onepos.benchmark import runner

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


def test_failed_runs_are_told_and_made_again(run, monkeypatch):
    def fail(*_):
        raise RuntimeError("out of luck")

    with monkeypatch.context() as patch:
        patch.setattr(runner, "make_task", fail)
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
    ],
)
def test_wrong_input_is_one_sentence(arguments, said, run):
    code, _, err = run("bench", *arguments)
    assert code == 2
    assert said in err
    assert "Traceback" not in err
    assert not os.path.exists("results"), "nothing half-made is left behind"
