"""The command line as a person uses it: files in, files out, one sentence where something is wrong."""

import csv
import io
import json
import os
import re
import resource
import subprocess
import sys
import time
from typing import get_type_hints

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onepos import SinglePositiveClassifier
from onepos.cli.inputs import read_rows
from onepos.cli.options import RowOptions
from onepos.cli.outputs import join_labels
from onepos.datasets import load_dataset, write_npz
from onepos.metrics import micro_f1


@pytest.fixture
def run(onepos, tmp_path, monkeypatch):
    """The command, with no data sets at hand."""
    monkeypatch.setenv("ONEPOS_DATA", str(tmp_path / "data"))
    return onepos


@pytest.fixture
def table(tmp_path):
    """A CSV with one label per row, the same rows with all labels, and a table of features alone."""
    scenes = load_dataset("digit-scenes").take(range(300))
    features = pd.DataFrame(np.asarray(scenes.X)[:, ::8], columns=[f"pixel{k}" for k in range(32)])
    names = np.array(scenes.label_names)
    single = features.assign(tag=names[scenes.Y.argmax(1)])
    single.to_csv(tmp_path / "single.csv", index=False)
    features.assign(tags=[";".join(names[row == 1]) for row in scenes.Y]).to_csv(tmp_path / "full.csv", index=False)
    indicators = pd.DataFrame(scenes.Y, columns=[f"is_{name}" for name in names])
    pd.concat([features, indicators], axis=1).to_csv(tmp_path / "indicators.csv", index=False)
    features.iloc[:7].to_csv(tmp_path / "new.csv", index=False)
    return tmp_path


class TestFitPredictEvaluate:
    def test_from_a_csv_to_predictions(self, run, table):
        code, out, _ = run("fit", "single.csv", "--label", "tag", "--epochs", 4, "--out", "model")
        assert code == 0
        assert "read single.csv: 300 rows, 32 features, 10 labels, 1.00 observed labels per row" in out
        assert "trained crisp-plus on 300 rows; share = estimated share of rows with the label" in out
        observed = pd.read_csv(table / "single.csv").tag.value_counts()
        listed = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.split()[:1] > ["a"]}
        assert listed["label"] == ["observed", "rows", "share", "lower", "upper"]
        for label, count in observed.items():
            assert listed[label][0] == str(count)
            share, lower, upper = map(float, listed[label][1:])
            assert lower <= share <= upper
        assert "kept epoch 4 of 4, the last one; with --validation DATA the best epoch is kept" in out
        assert "training rows" not in out, "the model folder holds none of them"
        assert "\nmodel: model\n" in out
        assert out.endswith("\nnext: onepos predict model NEW_ROWS.csv\n")
        code, out, _ = run("predict", "model", "new.csv")
        assert code == 0
        assert "7 rows" in out
        written = pd.read_csv(table / "predictions.csv")
        assert written.shape == (7, 2 + 9 + 1)
        assert set(written.columns) >= {"row", "predicted", "eight"}
        assert written.drop(columns=["row", "predicted"]).to_numpy().max() < 1
        code, out, _ = run("evaluate", "model", "full.csv", "--label", "tags", "--separator", ";", "--json")
        scores = json.loads(out)["scores"]
        assert code == 0
        assert scores["average_precision"] > 0.5

    def test_indicator_columns_a_draw_and_validation(self, run, table):
        code, out, _ = run(
            "fit", "indicators.csv:train", "--label-columns", "is_*", "--draw", "uniform", "--save-draw", "draw.json",
            "--validation", "indicators.csv:val", "--method", "crisp", "--set", "lam=0.5", "--set", "warmup=1",
            "--epochs", 4, "--hidden", "16,8", "--json",
        )  # fmt: skip
        assert code == 0
        summary = json.loads(out)
        assert 0.3 < summary["validation"] <= 1
        assert set(summary["class_prior"]) == {f"is_{name}" for name in load_dataset("digit-scenes").label_names}
        facts = json.loads((table / "onepos-model" / "model.json").read_text())
        assert (facts["method"]["parameters"]["lam"], facts["parameters"]["hidden"]) == (0.5, [16, 8])
        # the same draw, given, gives the same model
        code, again, _ = run(
            "fit", "indicators.csv:train", "--label-columns", "is_*", "--draw-file", "draw.json",
            "--validation", "indicators.csv:val", "--method", "crisp", "--set", "lam=0.5", "--set", "warmup=1",
            "--epochs", 4, "--hidden", "16,8", "--out", "twin", "--json",
        )  # fmt: skip
        assert code == 0
        assert json.loads(again)["class_prior"] == summary["class_prior"]
        code, out, _ = run("evaluate", "twin", "indicators.csv:test", "--label-columns", "is_*", "--per-label")
        assert code == 0
        assert "Ranking loss" in out
        assert "is_nine" in out

    def test_a_named_data_set_and_its_parts(self, run, tmp_path):
        scenes = load_dataset("digit-scenes")
        write_npz(scenes.take(np.arange(400)), tmp_path / "data" / "tabular")
        code, _, err = run("fit", "digit-scenes:train", "--draw", "frequency", "--epochs", 1, "--method", "an")
        assert code == 0
        assert "training, epoch: 1/1" in err
        assert run("evaluate", "onepos-model", "digit-scenes:test", "--json")[0] == 0
        code, out, _ = run("predict", "onepos-model", "digit-scenes:test", "--quiet", "--out", "p.csv")
        assert (code, out) == (0, "")
        assert len(pd.read_csv(tmp_path / "p.csv")) == 600

    def test_a_split_that_comes_with_the_data_is_kept(self, run, tmp_path):
        scenes = load_dataset("digit-scenes").take(np.arange(100))
        rows = {"train": np.arange(50), "test": np.arange(50, 100)}
        np.savez(
            tmp_path / "own.npz",
            X=scenes.X,
            Y=scenes.Y,
            label_names=scenes.label_names,
            **{f"{part}_idx": index for part, index in rows.items()},
        )
        found = {}
        assert (
            "the part after own.npz: must be one of train, val, test; it is 'tset'"
            in run("data", "info", "own.npz:tset")[2]
        )
        run("fit", "own.npz:train", "--draw", "uniform", "--epochs", 1, "--method", "an", "--quiet")
        assert "50 rows" in run("predict", "onepos-model", "own.npz:test")[1]
        (tmp_path / "text.npz").write_text("a,b")
        assert "text.npz must be an NPZ archive" in run("predict", "onepos-model", "text.npz:test")[2]
        assert "there is no file none.npz" in run("predict", "onepos-model", "none.npz:test")[2]
        for part in ("train", "val", "test"):
            assert run("data", "info", f"own.npz:{part}")[0] == 0
            found[part] = read_rows(str(tmp_path / f"own.npz:{part}"), RowOptions()).X
        assert [len(found[part]) for part in found] == [45, 5, 50]
        np.testing.assert_array_equal(found["test"], scenes.X[50:])
        both = np.concatenate([found["train"], found["val"]])
        np.testing.assert_array_equal(np.unique(both, axis=0), np.unique(scenes.X[:50], axis=0))

    def test_labels_that_read_like_lists_bring_a_hint(self, run, tmp_path):
        pd.DataFrame({"x": range(40), "tag": ["a;b", "a", "b", "c"] * 10}).to_csv(tmp_path / "lists.csv", index=False)
        fit = ("fit", "lists.csv", "--label", "tag", "--epochs", 1, "--method", "an", "--quiet")
        code, _, err = run(*fit)
        assert code == 0
        assert "warning: 'a;b' is read as one label." in err
        assert "add --separator ';'" in err
        assert "read as one label" not in run(*fit, "--separator", ";", "--positives", "any")[2]

    def test_a_measurement_as_label_brings_a_hint(self, run, tmp_path):
        rows = pd.DataFrame({"x": np.arange(60) % 7, "y": np.linspace(0, 1, 60), "level": np.arange(60) % 3 + 0.5})
        rows.to_csv(tmp_path / "rows.csv", index=False)
        fit = ("fit", "rows.csv", "--epochs", 1, "--method", "an", "--quiet")
        assert "60 rows hold 60 different labels, such as 0.0" in run(*fit, "--label", "y")[2]
        assert run(*fit, "--label", "level")[2] == ""

    @pytest.mark.parametrize(
        "name", ["", "Unnamed: 0", "index", "id", "ID", "user_id", "user id", "userId", "userID", "id_user", "t"]
    )
    def test_a_column_that_looks_like_an_id_brings_a_warning(self, run, tmp_path, name):
        """Whatever its place; the row numbers that pandas writes; a column that only counts the rows."""
        rng = np.random.default_rng(0)
        ids = np.arange(1, 41) if name == "t" else 10**9 + rng.permutation(40) * 7919
        rows = pd.DataFrame({"x": rng.normal(size=40), name: ids, "tag": ["a", "b"] * 20})
        rows.to_csv(tmp_path / "rows.csv", index=False)
        fit = ("fit", "rows.csv", "--label", "tag", "--epochs", 1, "--method", "an", "--quiet")
        code, _, err = run(*fit)
        assert code == 0
        read = name or "Unnamed: 1"
        quoted = f"'{read}'" if " " in read else read
        assert err == (
            f"warning: column '{read}' looks like a row number or an id but is a feature; if it says nothing about the "
            f"labels, leave it out with --drop {quoted}\n"
        )
        facts = json.loads((tmp_path / "onepos-model" / "model.json").read_text())
        assert facts["feature_names"] == ["x", read], "it is used all the same"
        assert run(*fit, "--drop", read)[2] == ""
        assert run("predict", "onepos-model", "rows.csv", "--quiet")[2] == ""
        rows.head(9).to_csv(tmp_path / "few.csv", index=False)
        assert run("fit", "few.csv", *fit[2:])[2] == ""

    def test_several_columns_like_ids_bring_one_warning(self, run, tmp_path):
        rng = np.random.default_rng(0)
        rows = pd.DataFrame({"user_id": rng.permutation(40) + 100, "x": rng.normal(size=40), "tag": ["a", "b"] * 20})
        rows.to_csv(tmp_path / "rows.csv")
        fit = ("fit", "rows.csv:train", "--label", "tag", "--epochs", 1, "--method", "an", "--quiet")
        assert run(*fit, "--validation", "rows.csv:val")[2] == (
            "warning: columns 'Unnamed: 0', 'user_id' look like row numbers or ids but are features; if they say "
            "nothing about the labels, leave them out with --drop 'Unnamed: 0,user_id'\n"
        )
        assert run(*fit, "--drop", "Unnamed: 0,user_id")[2] == ""

    def test_ordinary_features_bring_no_warning_of_ids(self, run, tmp_path):
        """Names that end alike, an id that repeats, measurements, counts, years, flags, ranks out of order."""
        rng = np.random.default_rng(0)
        whole = rng.permutation(40)
        rows = pd.DataFrame(
            {
                **dict.fromkeys(("humid", "acid", "grid", "idle", "width", "paid", "index_of_mass", "rank"), whole),
                "shop_id": whole // 2,
                "drain.id": rng.normal(size=40),
                "year": 1980 + np.arange(40),
                "depth": np.arange(40) / 10,
                "count": np.sort(rng.poisson(5, 40)),
                "flag": np.arange(40) > 20,
                "tag": ["a", "b"] * 20,
            }
        )
        rows.to_csv(tmp_path / "rows.csv", index=False)
        code, _, err = run("fit", "rows.csv", "--label", "tag", "--epochs", 1, "--method", "an", "--quiet")
        assert (code, err) == (0, "")

    def test_a_raw_table_is_taken_as_it_is(self, run, tmp_path):
        rows = pd.DataFrame({"x": [1.0, 2.0], "city": ["Rome", "Oslo"], "day": ["2024-01-31", "2024-02-01"]})
        rows.assign(age=[3, None], tag=["a", "b"]).to_csv(tmp_path / "rows.csv", index=False)
        fit = ("fit", "rows.csv", "--label", "tag", "--method", "an", "--epochs", 1)
        code, out, _ = run(*fit, "--drop", "city", "--drop", "x")
        assert code == 0
        assert "  city: left out (--drop)\n  x: left out (--drop)\n  day: dates -> " in out
        assert "  age: whole numbers, 50% missing -> standardized, and whether it is missing\n" in out
        assert run(*fit, "--quiet", "--drop", "city,day,age")[0] == 0

    def test_rows_that_can_not_be_read_are_told_by_their_place(self, run, tmp_path):
        rows = pd.DataFrame({"x": np.arange(40.0), "tag": ["a", "b"] * 20})
        rows.assign(tag=rows.tag.where(rows.x != 7)).to_csv(tmp_path / "bare.csv", index=False)
        rows.assign(x=rows.x.where(rows.x != 7, np.inf)).to_csv(tmp_path / "inf.csv", index=False)
        fit = ("--label", "tag", "--epochs", 1, "--method", "an", "--quiet")
        assert "1 of 40 rows hold none, the first is row 7 (counted from 0)" in run("fit", "bare.csv", *fit)[2]
        assert run("fit", "bare.csv", *fit, "--positives", "any")[0] == 0
        assert "inf.csv, line 9: every feature must be finite; column 'x' holds inf" in run("fit", "inf.csv", *fit)[2]

    def test_a_folder_is_no_place_for_a_table(self, run, table):
        run("fit", "single.csv", "--label", "tag", "--epochs", 1, "--method", "an", "--quiet")
        (table / "place").mkdir()
        code, _, err = run("predict", "onepos-model", "single.csv", "--drop", "tag", "--out", "place")
        assert code == 2
        assert "place must be a file, or not exist yet; it is a folder. Name a file in it." in err

    def test_recipe_and_threshold(self, run, table):
        fit = ("fit", "indicators.csv", "--label-columns", "is_*", "--draw", "uniform", "--epochs", 5, "--quiet")
        facts = {}
        for name, options in {
            "plain": ["--method", "epr", "--recipe", "*"],
            "set": ["--method", "em", "--recipe", "yeast", "--set", "alpha=0.3"],
            "given": ["--method", "em", "--recipe", "yeast", "--threshold", "0.4"],
            "prior": ["--threshold", "prior"],
        }.items():
            code, _, err = run(*fit, *options, "--out", name)
            assert code == 0, err
            facts[name] = json.loads((table / name / "model.json").read_text())
        labels = pd.read_csv(table / "indicators.csv").filter(like="is_").to_numpy()
        assert facts["plain"]["method"]["parameters"]["cardinality"] == pytest.approx(labels.sum(1).mean())
        assert facts["set"]["method"]["parameters"]["alpha"] == 0.3
        assert [facts[name]["thresholds"][0] for name in ("plain", "set", "given")] == [0.5, 0.75, 0.4]
        assert len(set(facts["prior"]["thresholds"])) > 5
        code, _, err = run("fit", "single.csv", "--label", "tag", "--method", "epr", "--recipe", "yeast")
        assert code == 2
        assert "the recipe of epr needs the cardinality, which only full labels tell" in err
        assert (
            "threshold must be a number from 0 to 1, 'prior', 'f1', 'hamming' or" in run(*fit, "--threshold", "half")[2]
        )
        code, _, err = run(*fit, "--method", "em", "--recipe", "yeats")
        assert code == 2
        assert "a recipe must be for one of cal500, " in err
        assert (
            "an has no recipe for yeast; its defaults are taken" in run(*fit, "--method", "an", "--recipe", "yeast")[2]
        )

    def test_labels_absent_from_the_test_file_count_as_absent(self, run, table):
        run("fit", "single.csv", "--label", "tag", "--epochs", 1, "--quiet")
        few = pd.read_csv(table / "single.csv").query("tag == 'eight'")
        few.to_csv(table / "few.csv", index=False)
        assert run("evaluate", "onepos-model", "few.csv", "--label", "tag", "--json")[0] == 0
        few.assign(tag="eleven").to_csv(table / "few.csv", index=False)
        code, _, err = run("evaluate", "onepos-model", "few.csv", "--label", "tag")
        assert code == 2
        assert "every label must be one the model was fitted with; few holds 'eleven': did you mean 'seven'?" in err

    def test_columns_go_by_name(self, run, table):
        """Another order, columns too many, a part of the file: the model finds its own columns."""
        assert run("fit", "single.csv", "--label", "tag", "--epochs", 1, "--quiet")[0] == 0
        full = pd.read_csv(table / "full.csv")
        turned = full[full.columns[::-1]].assign(extra=1.5)
        turned.to_csv(table / "turned.csv", index=False)
        labels = ("--label", "tags", "--separator", ";", "--json")
        straight = run("evaluate", "onepos-model", "full.csv", *labels)[1]
        assert run("evaluate", "onepos-model", "turned.csv", *labels)[1] == straight
        validated = ("fit", "single.csv:train", "--label", "tag", "--epochs", 1, "--quiet", "--validation")
        pd.read_csv(table / "single.csv").iloc[:, ::-1].to_csv(table / "back.csv", index=False)
        assert run(*validated, "back.csv")[0] == 0
        assert run("predict", "onepos-model", "full.csv:test", "--drop", "tags", "--quiet")[0] == 0
        assert len(pd.read_csv(table / "predictions.csv")) == 30
        indicator = ("fit", "indicators.csv", "--label-columns", "is_*", "--draw", "uniform", "--epochs", 1, "--quiet")
        assert run(*indicator, "--drop", "pixel0,pixel3*")[0] == 0
        facts = json.loads((table / "onepos-model" / "model.json").read_text())
        assert "pixel0" not in facts["feature_names"]
        assert facts["n_features"] == 32 - 1 - 3

    def test_awkward_label_names(self, run, table):
        frame = pd.read_csv(table / "single.csv")
        frame["tag"] = np.where(np.arange(300) % 2, "predicted", "row")
        frame.to_csv(table / "awkward.csv", index=False)
        assert run("fit", "awkward.csv", "--label", "tag", "--epochs", 1, "--quiet")[0] == 0
        assert run("predict", "onepos-model", "new.csv", "--quiet")[0] == 0
        assert pd.read_csv(table / "predictions.csv").columns.tolist() == ["row_", "predicted_", "predicted", "row"]

    def test_data_that_brings_its_draw(self, run, tmp_path):
        from dataclasses import replace

        from onepos.protocol import draw_single_positive

        scenes = load_dataset("digit-scenes").take(range(200))
        observed = draw_single_positive(scenes.Y, 5)
        write_npz(replace(scenes, name="drawn", observed=observed), tmp_path)
        code, out, err = run("fit", "drawn.npz", "--epochs", 1, "--json", "--quiet")
        assert code == 0, err
        assert set(json.loads(out)["class_prior"]) == set(scenes.label_names)

    def test_stopped_and_resumed(self, run, table, monkeypatch):
        from onepos.training import loop as training

        real, calls = training.save_checkpoint, []

        def stop_at_two(*arguments):
            real(*arguments)
            calls.append(1)
            if len(calls) == 2:
                raise KeyboardInterrupt

        fit = ("fit", "single.csv", "--label", "tag", "--epochs", 4, "--quiet", "--checkpoint", "half")
        monkeypatch.setattr(training, "save_checkpoint", stop_at_two)
        code, _, err = run(*fit, "--out", "first")
        assert code == 1
        assert "stopped. No model was written. With --checkpoint FILE, finished epochs are kept" in err
        assert not (table / "first").exists()
        assert run(*fit, "--out", "first")[0] == 0
        assert len(calls) == 4, "two epochs were left"
        assert not (table / "half").exists(), "the model is saved"
        assert run(*fit[:-2], "--out", "second")[0] == 0
        weights = [(table / name / "model.safetensors").read_bytes() for name in ("first", "second")]
        assert weights[0] == weights[1]

    def test_a_model_that_can_not_be_saved_costs_no_training(self, run, table, monkeypatch):
        """The checkpoint stays, and the same command ends in the model without one more step."""
        from onepos.training import loop as training

        fit = ("fit", "single.csv", "--label", "tag", "--epochs", 3, "--quiet", "--checkpoint", "half")

        def full(*_):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("onepos.model_folder.write_atomically", full)
            code, _, err = run(*fit, "--out", "first")
        assert code != 0
        assert "No space left" in err
        assert (table / "half").exists()
        monkeypatch.setattr(training, "_run_epoch", lambda *_: pytest.fail("trained again"))
        assert run(*fit, "--out", "first")[0] == 0
        assert not (table / "half").exists()

    def test_killed_in_the_middle_and_resumed(self, run, table):
        """kill -9 loses the epoch in flight and nothing else."""
        fit = ["fit", "single.csv", "--label", "tag", "--epochs", "200", "--hidden", "16", "--quiet", "--device", "cpu"]
        command = [sys.executable, "-m", "onepos", *fit, "--checkpoint", "half", "--out", "first"]
        process = subprocess.Popen(command, cwd=table, env={**os.environ, "OMP_NUM_THREADS": "1"})
        while not (table / "half").exists() and process.poll() is None:
            time.sleep(0.005)
        process.kill()
        process.wait()
        assert (table / "half").exists(), "killed before it was done"
        assert not (table / "first").exists()
        assert run(*fit, "--checkpoint", "half", "--out", "first")[0] == 0
        assert run(*fit, "--out", "second")[0] == 0
        weights = [(table / name / "model.safetensors").read_bytes() for name in ("first", "second")]
        assert weights[0] == weights[1]

    def test_a_csv_is_opened_once(self, table):
        """Counted by an audit hook, which sees every open of the process, whatever library makes it."""
        code = """
import os, sys
names = []
def note(event, arguments):
    if event == "open" and isinstance(arguments[0], str | os.PathLike):
        names.append(os.path.basename(arguments[0]))
sys.addaudithook(note)
from onepos.cli import main
try:
    main(sys.argv[1:])
finally:
    print(names.count("single.csv"))
"""
        fit = ["fit", "single.csv", "--label", "tag", "--epochs", "1", "--method", "an", "--quiet", "--device", "cpu"]
        done = subprocess.run([sys.executable, "-c", code, *fit], cwd=table, capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["1"], done.stderr
        assert (table / "onepos-model" / "model.json").is_file()

    def test_a_report_shows_the_fit(self, run, table):
        fit = ("fit", "single.csv:train", "--label", "tag", "--validation", "single.csv:val", "--method", "crisp")
        code, out, err = run(*fit, "--epochs", 3, "--report", "fit.html")
        assert code == 0, err
        assert "report: fit.html" in out
        assert "of 3: it has the best score on the validation rows, " in out
        page = (table / "fit.html").read_text()
        facts = json.loads((table / "onepos-model" / "model.json").read_text())
        for label, prior in zip(facts["classes"], facts["class_prior"], strict=True):
            assert f">{label}<" in page
            assert f"{prior:.3f}" in page
        for text in ("240", "single.csv:train", "onepos-model", "Training", "How common each label is", "lam"):
            assert text in page, text
        assert page.count("<svg") >= 2
        assert "no/fit.html must lie in a folder" in run(*fit, "--report", "no/fit.html")[2]

    def test_a_model_folder_that_can_not_be_written_is_refused_before_any_work(self, run, table, monkeypatch):
        fit = ("fit", "single.csv", "--label", "tag", "--out")
        code, _, err = run(*fit, "new.csv/model")
        assert code == 2
        assert "new.csv/model must be a folder, or not exist yet; " in err

        def refuse(**_):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr("onepos.cli.inputs.TemporaryDirectory", refuse)
        monkeypatch.setattr("onepos.cli.models.read_rows", None)
        code, _, err = run(*fit, "deep/model")
        assert code == 2
        assert f"deep/model must be a folder that can be written to; {table} is not (Permission denied)" in err

    def test_columns_that_the_model_does_not_need_may_hold_text(self, run, table):
        assert run("fit", "single.csv", "--label", "tag", "--epochs", 1, "--method", "an", "--quiet")[0] == 0
        full = pd.read_csv(table / "full.csv")
        full.insert(0, "id", [f"item {k}" for k in range(len(full))])
        full.to_csv(table / "named.csv", index=False)
        labels = ("--label", "tags", "--separator", ";", "--json")
        code, out, err = run("evaluate", "onepos-model", "named.csv", *labels)
        assert code == 0, err
        assert out == run("evaluate", "onepos-model", "full.csv", *labels)[1]


@pytest.fixture
def model(run, table):
    """A model of the table, in the folder onepos-model."""
    fit = ("fit", "single.csv", "--label", "tag", "--epochs", 1, "--method", "an", "--quiet")
    assert run(*fit)[0] == 0
    return SinglePositiveClassifier.load(table / "onepos-model")


def name_rows(table, ids, name="item", source="new.csv", out="named.csv"):
    """A table with a further column of ids."""
    frame = pd.read_csv(table / source)
    frame.insert(3, name, ids)
    frame.to_csv(table / out, index=False)
    return frame


class TestPredictions:
    """What `predict` writes."""

    ids = ("007", "1e3", "0x1F", "NA", "", "8.50", "a b")

    def read(self, path):
        if path.suffix == ".json":
            return json.loads(path.read_text())
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in path.read_text().splitlines()]
        if path.suffix == ".parquet":
            frame = pd.read_parquet(path)
            return [{**row, "predicted": list(row["predicted"])} for row in frame.to_dict("records")]
        frame = pd.read_csv(path, dtype={"item": str}, keep_default_na=False)
        split = [next(csv.reader([cell], delimiter=";")) for cell in frame.predicted]
        return frame.assign(predicted=split).to_dict("records")

    @pytest.mark.parametrize("out", ["p.csv", "p.csv.gz", "p.parquet", "p.json", "p.jsonl", "P.JSON"])
    def test_every_format_holds_the_same(self, run, table, model, out):
        frame = name_rows(table, self.ids)
        code, said, err = run("predict", "onepos-model", "named.csv", "--id", "item", "--top-k", 2, "--out", out)
        assert (code, err) == (0, "")
        assert said == f"7 rows, 2.00 labels predicted per row on average; written to {out}\n"
        X = frame.drop(columns="item")
        probability, predicted = model.predict_proba(X), model.predict_labels(X, top_k=2)
        read = self.read(table / out if out != "P.JSON" else (table / out).rename(table / "q.json"))
        names = model.classes_.tolist()
        assert [list(row) for row in read] == [["item", "predicted", *names]] * 7
        assert [row["item"] for row in read] == list(self.ids), "as they are written"
        assert [row["predicted"] for row in read] == predicted
        found = [[row[name] for name in names] for row in read]
        np.testing.assert_allclose(found, probability, rtol=1e-5 if ".csv" in out else 1e-7)

    def test_without_ids_rows_are_numbered(self, run, table, model):
        for out in ("p.csv", "p.json"):
            assert run("predict", "onepos-model", "new.csv", "--out", out, "--quiet")[0] == 0
            assert [row["row"] for row in self.read(table / out)] == list(range(7))

    def test_ids_go_with_the_part_of_the_rows(self, run, table, model):
        frame = name_rows(table, [f"r{k}" for k in range(300)], source="single.csv").drop(columns="tag")
        frame.to_csv(table / "named.csv", index=False)
        assert run("predict", "onepos-model", "named.csv:test", "--id", "item", "--out", "p.json")[0] == 0
        read = self.read(table / "p.json")
        assert len(read) == 30
        rows = frame.set_index("item").loc[[row["item"] for row in read]]
        np.testing.assert_allclose([row["eight"] for row in read], model.predict_proba(rows)[:, 0], rtol=1e-7)

    def test_ids_of_parquet_are_text_too(self, run, table, model):
        frame = pd.read_csv(table / "new.csv")
        frame.assign(item=[7.0, 8, 9, 10, 11, 10**7 + 1, None]).to_parquet(table / "named.parquet")
        assert run("predict", "onepos-model", "named.parquet", "--id", "item", "--out", "p.csv", "--quiet")[0] == 0
        assert [row["item"] for row in self.read(table / "p.csv")] == ["7", "8", "9", "10", "11", "10000001", ""]

    def test_the_id_is_no_feature_of_a_model_without_column_names(self, run, table):
        frame = pd.read_csv(table / "single.csv")
        X = frame.drop(columns="tag").to_numpy()
        SinglePositiveClassifier("an", epochs=1).fit(X, frame.tag).save(table / "bare")
        name_rows(table, range(7))
        code, _, err = run("predict", "bare", "named.csv", "--id", "item", "--out", "p.json")
        assert code == 0, err
        assert [row["item"] for row in self.read(table / "p.json")] == list("0123456")

    def test_names_that_are_taken(self, run, table):
        frame = pd.read_csv(table / "single.csv")
        frame["tag"] = np.where(np.arange(300) % 2, "predicted", "item")
        frame.to_csv(table / "taken.csv", index=False)
        assert run("fit", "taken.csv", "--label", "tag", "--epochs", 1, "--method", "an", "--quiet")[0] == 0
        name_rows(table, range(7))
        predict = ("predict", "onepos-model", "named.csv", "--id", "item", "--quiet", "--out")
        assert run(*predict, "p.csv")[0] == 0
        assert pd.read_csv(table / "p.csv").columns.tolist() == ["item_", "predicted_", "item", "predicted"]
        assert run(*predict, "p.parquet")[0] == 0
        name_rows(table, range(7), name="predicted_")
        assert run(*predict[:-4], "--id", "predicted_", "--quiet", "--out", "p.jsonl")[0] == 0
        first = json.loads((table / "p.jsonl").read_text().splitlines()[0])
        assert list(first) == ["predicted_", "predicted__", "item", "predicted"]

    def test_labels_with_a_semicolon_can_be_split_again(self, run, table):
        labels = ["salt; pepper", 'the "big" one', "oil", ";", "a|b,c/d"]
        frame = pd.read_csv(table / "single.csv")
        frame.assign(tag=np.resize(labels, 300)).to_csv(table / "marks.csv", index=False)
        fit = ("fit", "marks.csv", "--label", "tag", "--epochs", 1, "--method", "an", "--threshold", "0", "--quiet")
        assert run(*fit)[0] == 0
        code, out, _ = run("predict", "onepos-model", "new.csv", "--out", "p.csv.gz")
        assert code == 0
        assert "7 rows, 5.00 labels predicted per row on average; written to p.csv.gz" in out
        assert "In the column 'predicted' a label that contains ';' or '\"' is in quotation marks, as in CSV." in out
        fitted = SinglePositiveClassifier.load(table / "onepos-model")
        expected = fitted.predict_labels(pd.read_csv(table / "new.csv"))
        assert all(sorted(row) == sorted(labels) for row in expected)
        assert [row["predicted"] for row in self.read(table / "p.csv.gz")] == expected
        code, out, _ = run("predict", "onepos-model", "new.csv", "--out", "p.jsonl")
        assert "quotation marks" not in out
        assert [row["predicted"] for row in self.read(table / "p.jsonl")] == expected

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.text(alphabet="ab;\"\\,| \n\r'ä"), max_size=4))
    def test_any_labels_can_be_split_again(self, labels):
        cell = join_labels(labels)
        assert next(csv.reader(io.StringIO(cell, newline=""), delimiter=";"), []) == labels
        plain = [label for label in labels if not set(label) & set(';"\n\r')]
        if plain and all(plain):
            assert join_labels(plain) == ";".join(plain)

    def test_rules_at_prediction(self, run, table, model):
        X = pd.read_csv(table / "new.csv")
        probability = model.predict_proba(X)
        for options, expected in (
            ((), model.predict(X)),
            (("--threshold", "0.1"), probability > 0.1),
            (("--top-k", "3"), probability >= np.sort(probability, axis=1)[:, [-3]]),
        ):
            code, out, _ = run("predict", "onepos-model", "new.csv", *options, "--out", "p.json")
            assert code == 0
            assert [len(row["predicted"]) for row in self.read(table / "p.json")] == expected.sum(1).tolist()
            assert "Most rows got no label" not in out

    def test_a_word_about_rows_without_a_label(self, run, table, model):
        """Where it is the model's own rule that gives none."""
        model.thresholds_, model.min_labels_ = np.full(len(model.classes_), 0.9999), 0
        model.save(table / "sparing")
        said = run("predict", "sparing", "new.csv", "--out", "p.json")[1]
        assert "7 rows, 0.00 labels predicted per row on average" in said
        assert "Most rows got no label, because few probabilities exceed the threshold. With --threshold prior" in said
        assert "Most rows" not in run("predict", "sparing", "new.csv", "--threshold", "0.9999", "--out", "p.json")[1]

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (
                ["--out", "p.xlsx"],
                "--out must end in one of .csv, .csv.gz, .parquet, .json, .jsonl; it is p.xlsx. Rename",
            ),
            (["--out", "p"], "--out must end in one of .csv, .csv.gz, .parquet, .json, .jsonl; it is p. Rename it."),
            (["--id", "itme"], "named.csv has no column 'itme'; did you mean 'item'?"),
            (["--id", "pixel3"], "the model was fitted with 'pixel3' as a feature. Fit again with --drop pixel3, or"),
            (["--threshold", "half"], "threshold must be a number from 0 to 1"),
            (["--threshold", "0.5", "--top-k", "2"], "threshold and top_k exclude each other"),
            (["--top-k", "99"], "top_k must be at most 10, the number of labels; got 99."),
            (["--top-k", "0"], "--top-k"),
        ],
    )
    def test_what_is_refused(self, run, table, model, arguments, sentence, monkeypatch):
        name_rows(table, range(7))
        before = sorted(table.iterdir())
        if "--id" not in arguments:
            monkeypatch.setattr("onepos.cli.models.read_inputs", None)  # refused before the rows are read
        code, out, err = run("predict", "onepos-model", "named.csv", *arguments)
        assert (code, out) == (2, "")
        assert sentence in err
        assert sorted(table.iterdir()) == before

    def test_ids_come_from_a_table(self, run, table, model):
        np.savez(table / "x.npz", X=pd.read_csv(table / "new.csv").to_numpy())
        code, _, err = run("predict", "onepos-model", "x.npz", "--id", "item")
        assert code == 2
        assert (
            "--id names a column of a table (.csv, .csv.gz, .tsv, .tsv.gz, .parquet, .jsonl, .jsonl.gz); x.npz is none."
            in err
        )

    def test_parquet_needs_a_library(self, run, table, model, monkeypatch):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        code, _, err = run("predict", "onepos-model", "new.csv", "--out", "p.parquet")
        assert code == 1
        assert "p.parquet needs pyarrow, which is not installed. Run: pip install 'onepos[parquet]'" in err
        assert not (table / "p.parquet").exists()


class TestEvaluate:
    full = ("evaluate", "onepos-model", "full.csv", "--label", "tags", "--separator", ";")

    def test_single_labels_bring_a_warning_before_the_scores(self, run, table, model):
        single = ("evaluate", "onepos-model", "single.csv", "--label", "tag")
        out = run(*single)[1]
        assert out.startswith("warning: every row holds at most one label, so all other labels count as absent; ")
        assert "Ranking loss" in out
        assert json.loads(run(*single, "--json")[1])["warnings"] == [out.splitlines()[0].removeprefix("warning: ")]
        assert "warning" not in run(*self.full)[1]
        assert json.loads(run(*self.full, "--json")[1])["warnings"] == []

    def test_other_columns_are_left_out(self, run, table, model):
        expected = run(*self.full, "--json")[1]
        name_rows(table, [f"item {k}" for k in range(300)], source="full.csv")
        assert run("evaluate", "onepos-model", "named.csv", *self.full[3:], "--json")[1] == expected
        frame = name_rows(table, range(300), name="id", source="full.csv")
        assert run("evaluate", "onepos-model", "named.csv", *self.full[3:], "--json") == (0, expected, "")
        frame.drop(columns="pixel3").to_csv(table / "named.csv", index=False)
        code, _, err = run("evaluate", "onepos-model", "named.csv", *self.full[3:])
        assert code == 2
        assert "named.csv has no column 'pixel3'; did you mean 'pixel" in err

    def test_labels_that_the_model_does_not_know_are_left_out(self, run, table, model):
        frame = pd.read_csv(table / "full.csv")
        expected = json.loads(run(*self.full, "--json")[1])
        assert (expected["n_unknown_labels"], expected["unknown_labels"]) == (0, [])
        frame.loc[:3, "tags"] += ";owl"
        frame.to_csv(table / "owls.csv", index=False)
        owls = ("evaluate", "onepos-model", "owls.csv", *self.full[3:])
        found = json.loads(run(*owls, "--json")[1])
        assert found["scores"] == expected["scores"]
        assert (found["n_unknown_labels"], found["unknown_labels"]) == (1, ["owl"])
        assert found["n_rows_without_known_label"] == 0
        sentence = (
            "label 'owl' is unknown to the model and left out; 4 of 300 rows hold such a label, each with one that is "
            "known."
        )
        assert found["warnings"] == [sentence]
        assert run(*owls)[1].startswith(f"warning: {sentence}\n\n300 rows, 10 labels\n")

    def test_rows_of_unknown_labels_alone_count_as_rows_without_label(self, run, table, model):
        frame = pd.read_csv(table / "full.csv")
        frame.loc[:6, "tags"] = [*(f"bird {k}" for k in range(6)), "bird 0;bird 1"]
        frame.to_csv(table / "birds.csv", index=False)
        frame.assign(tags=frame.tags.where(frame.index > 6, "")).to_csv(table / "blank.csv", index=False)
        found, blank = (
            json.loads(run("evaluate", "onepos-model", name, *self.full[3:], "--json")[1])
            for name in ("birds.csv", "blank.csv")
        )
        assert found["scores"] == blank["scores"]
        assert found["n_rows"] == 300
        assert (found["n_unknown_labels"], found["n_rows_without_known_label"]) == (6, 7)
        assert found["unknown_labels"] == [f"bird {k}" for k in range(5)]
        assert found["warnings"][0].startswith(
            "6 labels ('bird 0', 'bird 1', 'bird 2', 'bird 3', 'bird 4', …) are unknown to the model and left out; "
            "7 of 300 rows hold such a label, 7 of them no other; these count as rows without a label."
        )

    def test_rules(self, run, table, model):
        frame = pd.read_csv(table / "full.csv")
        Y = np.array([[name in tags.split(";") for name in model.classes_] for tags in frame.tags]).astype(int)
        X = frame.drop(columns="tags")
        for options, decisions in (
            ([], model.predict(X)),
            (["--threshold", "0.2"], model.predict_proba(X) > 0.2),
            (["--top-k", "2"], model.predict(X, top_k=2)),
        ):
            found = json.loads(run(*self.full, *options, "--per-label", "--json")[1])
            assert found["scores"]["micro_f1"] == pytest.approx(micro_f1(Y, decisions), rel=1e-12)
            shares = [label["predicted_share"] for label in found["labels"]]
            np.testing.assert_allclose(shares, decisions.mean(0), atol=1e-9)  # rounded in the JSON
        for wrong in (["--threshold", "half"], ["--top-k", "99"], ["--threshold", "0.5", "--top-k", "2"]):
            code, out, err = run(*self.full, *wrong)
            assert (code, out) == (2, "")
            assert err.count("\n") == 1


class TestPriors:
    def test_table_and_file(self, run, table):
        command = ("priors", "single.csv", "--label", "tag", "--estimator", "bbe")
        code, out, _ = run(*command, "--epochs", 4, "--out", "priors.csv")
        assert code == 0
        assert "too few observed positives" in out
        written = pd.read_csv(table / "priors.csv")
        assert written.columns.tolist() == ["label", "observed", "share", "prior", "lower", "upper", "reliable"]
        assert (written["prior"] >= written["share"] - 1e-4).all()
        code, out, _ = run(*command, "--epochs", 4, "--json", "--quiet")
        rows = json.loads(out)
        assert [row["label"] for row in rows] == written["label"].tolist()
        assert all(isinstance(row["prior"], float) and isinstance(row["reliable"], bool) for row in rows)
        assert run(*command, "--epochs", 1, "--quiet", "--out", "p.csv")[1] == ""
        code, _, err = run(*command, "--epochs", 1, "--quiet")
        assert code == 2
        assert "--quiet prints no table, so the result needs --out FILE or --json" in err

    @pytest.fixture
    def short(self, monkeypatch):
        """Models of the cross-fit that are quick to train."""
        from onepos.methods import crossfit
        from onepos.methods.fold_models import NetworkSettings, TreeSettings

        short = crossfit.CrossFitSettings(
            linear=NetworkSettings(0, ((0.05, 0.0),), most_epochs=12, most_steps=12),
            layered=NetworkSettings(16, ((0.02, 0.0),), most_epochs=12, most_steps=12),
            trees=TreeSettings(n_trees=5),
        )
        monkeypatch.setattr(crossfit, "DEFAULTS", short)

    def test_by_models_that_did_not_see_the_row(self, run, table, short):
        command = ["priors", "single.csv", "--label", "tag", "--estimator", "bracket"]
        code, out, err = run(*command)
        assert code == 0
        assert "cross-fitting" in err
        assert "training" not in err
        assert "300 rows; intervals at 0.9 per label" in out
        assert "all priors scale with it" in out
        assert "an interval that reaches below half or above double" in out
        code, out, _ = run(*command, "--cardinality", 2.5, "--json", "--quiet")
        assert code == 0
        assert sum(row["prior"] for row in json.loads(out)) == pytest.approx(2.5, rel=1e-4)

    def test_a_word_of_warning_where_the_data_can_not_tell(self, run, tmp_path, short):
        rng = np.random.default_rng(0)
        share = 1 / np.arange(1, 21)
        noise = pd.DataFrame(rng.normal(size=(200, 4)), columns=list("abcd"))
        noise.assign(tag=rng.choice(20, 200, p=share / share.sum())).to_csv(tmp_path / "noise.csv", index=False)
        command = ["priors", "noise.csv", "--label", "tag", "--estimator", "bracket", "--quiet", "--json"]
        code, _, err = run(*command)
        assert code == 0
        assert "warning: one observed label per row does not settle how many labels a row has" in err
        assert "onepos priors --cardinality" in err
        assert "warning" not in run(*command, "--cardinality", 1.5)[2]

    def test_the_estimators_are_those_of_the_library(self):
        from onepos.cli.options import Estimator
        from onepos.priors import ESTIMATORS

        assert [each.value for each in Estimator] == list(ESTIMATORS)

    def test_what_does_not_go_together(self, run, table):
        priors = ["priors", "single.csv", "--label", "tag"]
        code, _, err = run(*priors, "--estimator", "bbe", "--cardinality", 2)
        assert code == 2
        assert "--cardinality is not for --estimator bbe" in err
        code, _, err = run(*priors, "--delta", 0.1)
        assert code == 2
        assert "--delta is not for --estimator bracket" in err
        code, _, err = run(*priors, "--estimator", "brackets")
        assert code == 2
        assert "bracket" in err


class TestDemo:
    def test_demo_writes_its_report(self, run, tmp_path, monkeypatch, short_cross_fit):
        from onepos.bench import demo

        real, made = demo.run_demo, []

        def once(seed, progress):
            made.extend([] if made else [real(seed, epochs=4, n_samples=600, progress=progress)])
            return made[0]

        monkeypatch.setattr(demo, "run_demo", once)
        code, out, err = run("demo", "--out", "report.html")
        assert code == 0
        assert "fitting CRISP" in err
        assert "Hamming loss" in out
        assert "Hidden labels found" in out
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert page.lower().startswith("<!doctype html>")
        assert "http://" not in page.replace("http://www.w3.org", "")
        code, out, _ = run("demo", "--quiet", "--json")
        result = json.loads(out)
        assert [entry["role"] for entry in result["runs"]] == ["floor", "method", "method", "oracle", "method"]
        assert result["known"]["rows_reviewed"] == 50
        self.check_numbers(result, made[0])

    def check_numbers(self, result, again):
        """The same numbers, counted from the models and the truth."""
        story, train, test = result["story"], again.train, again.test
        done = again.completions[1]
        assert story["completed"][1]["n_added"] == int(done.added.sum())
        assert story["completed"][1]["n_right"] == int((done.added & (train.Y == 1)).sum())
        assert story["completed"][1]["n_hidden"] == int(train.Y.sum()) - int(done.labels.positive.nnz)
        assert story["before"]["class_prior"] == again.before.model.class_prior_.tolist()
        assert result["class_prior"] == again.after.model.class_prior_.tolist()
        assert (done.labels.observed[again.rows] == train.Y[again.rows]).all()
        assert (again.observed.observed.sum(1) == 1).all()
        decided = again.after.model.predict(test.X)
        loss = next(each for each in story["changes"] if each["title"] == "Hamming loss, default decisions")
        assert loss["after"] == pytest.approx(float((decided != test.Y).mean()))

    def test_nowhere_to_write(self, run):
        code, _, err = run("demo", "--out", "no/such/folder/report.html")
        assert code == 2
        assert "must lie in a folder that can be written to" in err


class TestData:
    def test_list_info_get(self, run, tmp_path):
        code, out, _ = run("data", "list")
        assert code == 0
        assert "mirflickr" in out
        listed = json.loads(run("list", "datasets", "--json")[1])
        assert listed["digit-scenes"]["available"]
        assert not listed["yeast"]["available"]
        code, out, _ = run("data", "info", "digit-scenes")
        assert code == 0
        assert "6000" in out
        assert json.loads(run("data", "info", "digit-scenes:val", "--json")[1])["n_samples"] == 600

    def test_get_from_a_folder(self, run, tmp_path, monkeypatch):
        from onepos.datasets import DATASETS
        from onepos.datasets.sources import RemoteFile, Source

        for part, rows in (("train", "1.5,1,0\n2.5,0,1\n"), ("test", "3.5,1,1\n")):
            text = "@relation tiny\n@attribute x numeric\n@attribute a {0,1}\n@attribute b {0,1}\n@data\n" + rows
            (tmp_path / f"tiny-{part}.arff").write_text(text)
        (tmp_path / "tiny.xml").write_text('<labels><label name="a"/><label name="b"/></labels>')
        files = tuple(RemoteFile(name) for name in ("tiny-train.arff", "tiny-test.arff", "tiny.xml"))
        monkeypatch.setitem(DATASETS, "tiny", Source("tiny", 3, 1, 2, files))
        code, out, _ = run("data", "get", "tiny", "--from", tmp_path)
        assert code == 0
        assert out.strip().endswith("tiny.npz")
        assert load_dataset("tiny").Y.tolist() == [[1, 0], [0, 1], [1, 1]]
        code, _, err = run("data", "get", "yeast", "--from", tmp_path)
        assert code == 2
        assert "yeast-train.arff" in err


class TestList:
    def test_methods_and_metrics(self, run):
        from onepos.methods import METHODS
        from onepos.metrics import METRICS

        methods = json.loads(run("list", "methods", "--json")[1])
        assert [row["name"] for row in methods] == list(METHODS)
        assert next(row for row in methods if row["name"] == "crisp-val")["needs"] == "validation labels"
        assert {row["name"]: row["known no"] for row in methods}.items() >= {"crisp": "–", "crisp-plus": "used"}.items()
        assert [row["name"] for row in json.loads(run("list", "metrics", "--json")[1])] == list(METRICS)
        assert "crisp-3ep" in run("list", "methods")[1]


class TestWrongInput:
    """Exit code 2, one sentence on standard error, no traceback, nothing written."""

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["fit", "nothing.csv", "--label", "tag"], "there is no file nothing.csv"),
            (["fit", "yeats"], "unknown data set 'yeats'; did you mean"),
            (["fit", "yeast"], "run: onepos data get yeast"),
            (["fit", "single.csv"], "label"),
            (["fit", "single.csv", "--label", "tga"], "tga"),
            (
                ["fit", "single.csv", "--label", "tag", "--method", "crips"],
                "unknown method 'crips'; did you mean 'crisp'?",
            ),
            (
                ["fit", "single.csv", "--label", "tag", "--method", "crisp", "--set", "lambda=1"],
                "unknown parameter 'lambda' of crisp; did you mean 'lam'?",
            ),
            (["fit", "single.csv", "--label", "tag", "--set", "lam"], "--set takes NAME=VALUE; got 'lam'"),
            (
                ["fit", "single.csv", "--label", "tag", "--hidden", "a,b"],
                "--hidden takes whole widths by commas; got 'a,b'",
            ),
            (
                ["fit", "single.csv", "--label", "tag", "--scale", "min"],
                "scale must be 'clipped' or 'standard' or 'none'; got 'min'",
            ),
            (
                ["fit", "single.csv", "--label", "tag", "--device", "gpu"],
                "device must be 'auto', 'cpu', or an accelerator of this machine; got 'gpu'",
            ),
            (
                ["fit", "full.csv", "--label", "tags", "--separator", ";"],
                "full.csv: the data must hold exactly one positive label per row; ",
            ),
            (["fit", "digit-scenes:train"], "(on the command line --draw uniform)"),
            (["fit", "x.arff", "--label", "tag"], ".arff files name their labels themselves; --label is for tables"),
            (["fit", "single.csv", "--label", "tag", "--out", "new.csv"], "new.csv must be a folder, or not exist yet"),
            (["fit", "single.csv", "--label", "tag", "--checkpoint", "no/c"], "no/c must lie in a folder"),
            (["priors", "single.csv", "--label", "tag", "--out", "no/p.csv"], "no/p.csv must lie in a folder"),
            (
                ["fit", "single.csv", "--label", "tag", "--save-draw", "d"],
                "--save-draw writes the draw of --draw, which is missing",
            ),
            (
                ["fit", "digit-scenes", "--draw", "uniform", "--draw-file", "d"],
                "--draw and --draw-file exclude each other",
            ),
            (["fit", "single.csv", "--label", "tag", "--seed", "-1"], "--seed"),
            (["predict", "nothing", "new.csv"], "must hold model.json; there is none"),
            (["fit", "single.csv", "--lable", "tag"], "onepos fit has no option --lable. Did you mean"),
            (["fti", "single.csv"], "onepos has no command 'fti'"),
            (["data", "get", "digit-scene"], "unknown data set 'digit-scene'; did you mean"),
        ],
    )
    def test_sentence(self, run, table, arguments, sentence):
        before = sorted(table.iterdir())
        code, out, err = run(*arguments)
        assert code == 2, err
        assert sentence in err
        assert "Traceback" not in err + out
        assert sorted(table.iterdir()) == before

    def test_a_number_that_is_none(self, run, table):
        broken = (table / "single.csv").read_text().replace("\n0", "\noops", 1)
        (table / "broken.csv").write_text(broken)
        code, _, err = run("fit", "broken.csv", "--label", "tag")
        assert code == 2
        assert "broken.csv" in err
        assert "pixel0" in err

    def test_missing_column_at_prediction(self, run, table):
        run("fit", "single.csv", "--label", "tag", "--epochs", 1, "--quiet")
        pd.read_csv(table / "new.csv").drop(columns="pixel3").to_csv(table / "less.csv", index=False)
        code, _, err = run("predict", "onepos-model", "less.csv")
        assert code == 2
        assert "pixel3" in err

    def test_debug_shows_the_traceback(self, run, table):
        with pytest.raises(ValueError, match="unknown data set"):
            run("--debug", "fit", "yeats")
        with pytest.raises(ValueError, match="unknown data set"):
            run("fit", "yeats", "--debug")

    def test_failure_of_the_work_is_code_1(self, run, table, monkeypatch):
        from onepos.estimator import SinglePositiveClassifier

        def fail(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(SinglePositiveClassifier, "save", fail)
        code, _, err = run("fit", "single.csv", "--label", "tag", "--epochs", 1, "--quiet")
        assert code == 1
        assert "No space left on device" in err
        assert "Traceback" not in err


def seconds(*arguments):
    """Processor time of the best of three starts: other tests run beside this one, so the clock would tell of them."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def test_quick_to_start():
    assert seconds("-c", "import onepos") < 0.3
    assert seconds("-m", "onepos", "--help") < 0.5


def test_the_defaults_in_the_help_are_those_of_the_library():
    """On the command line None stands for the default of the classifier; the help text repeats its value."""
    import inspect

    from onepos import SinglePositiveClassifier
    from onepos.cli.options import TrainOptions

    library = inspect.signature(SinglePositiveClassifier).parameters
    for name, option in get_type_hints(TrainOptions, include_extras=True).items():
        default = library[name].default
        told = re.search(r"\[default: (.*?)\]", option.__metadata__[0].help)[1].split("; images: ")[0]
        if isinstance(default, bool):
            default = name.replace("_", "-") if default else f"no-{name.replace('_', '-')}"
        assert told == (",".join(map(str, default)) if isinstance(default, tuple) else str(default)), name


def test_version_and_help(run):
    import onepos

    assert run("--version")[1].strip() == f"onepos {onepos.__version__}"
    for command in ("demo", "fit", "predict", "evaluate", "priors", "data", "list"):
        assert command in run("--help")[1]
        assert run(command, "--help")[0] == 0
