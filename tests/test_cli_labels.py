"""Labels on the command line: yes, no and unknown, files of labels, groups, and one sentence for wrong input."""

import gzip
import json
import shutil

import numpy as np
import pandas as pd
import pytest

from onepos.cli.inputs import read_rows
from onepos.cli.options import RowOptions

N, REVIEWED = 80, 30
NAMES = ("cat", "dog", "owl")
FIT = ("--method", "an", "--epochs", 2, "--no-early-stopping")


@pytest.fixture
def truth():
    """80 rows with a key and a patient; the first 30 reviewed, of the others one label known: 1, 0 and NaN."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 5))
    Y = (X[:, :3] > 0.2).astype(float)
    Y[np.arange(N), rng.integers(0, 3, N)] = 1
    known = Y.copy()
    for row in range(REVIEWED, N):
        kept = rng.choice(np.flatnonzero(Y[row]))
        known[row] = np.nan
        known[row, kept] = 1
    frame = pd.DataFrame(X, columns=list("vwxyz")).round(4)
    frame.insert(0, "key", [f"{k:03d}" for k in range(N)])
    return frame.assign(patient=[f"p{k // 4}" for k in range(N)]), known


@pytest.fixture
def files(truth, tmp_path):
    """items.csv, wide.csv with columns 1/0/blank, long.csv in another order, vectors, labels.csv (a label per item)."""
    frame, known = truth
    frame.to_csv(tmp_path / "items.csv", index=False)
    cells = pd.DataFrame(known, columns=[f"tag_{name}" for name in NAMES]).astype("Int64")
    pd.concat([frame, cells], axis=1).to_csv(tmp_path / "wide.csv", index=False)
    pd.concat([frame[["key"]], cells], axis=1).iloc[::-1].to_csv(tmp_path / "marks.csv", index=False)
    answers = as_long(known, frame["key"])
    answers.to_csv(tmp_path / "long.csv", index=False)
    answers.assign(item=answers["item"].astype(int)).to_csv(tmp_path / "by_row.csv", index=False)
    np.save(tmp_path / "e.npy", frame[list("vwxyz")].to_numpy())
    np.savez(tmp_path / "e.npz", X=frame[list("vwxyz")].to_numpy(), ids=frame["key"].to_numpy(str))
    single = [NAMES[int(np.nanargmax(row))] for row in known]
    pd.DataFrame({"key": frame["key"], "tag": single}).to_csv(tmp_path / "labels.csv", index=False)
    return tmp_path


def as_long(known, ids):
    """A line per known entry, in random order."""
    row, column = np.nonzero(~np.isnan(known))
    order = np.random.default_rng(1).permutation(len(row))
    row, column = row[order], column[order]
    words = np.where(known[row, column] == 1, "yes", "no")
    return pd.DataFrame({"item": np.asarray(ids)[row], "label": np.array(NAMES)[column], "value": words})


def read(folder, name, **options):
    return read_rows(str(folder / name), RowOptions(**options))


class TestForms:
    """Every file that says the same gives the same labels."""

    def known_of(self, rows):
        assert tuple(rows.label_names) in (NAMES, tuple(f"tag_{name}" for name in NAMES))
        return np.where(rows.Y == 1, 1, np.where(rows.known_negative == 1, 0, np.nan))

    @pytest.mark.parametrize("form", ["csv", "csv.gz", "tsv", "jsonl", "jsonl.gz", "parquet"])
    def test_long_tables(self, files, truth, form):
        answers, name = pd.read_csv(files / "long.csv", dtype=str), files / f"answers.{form}"
        if form == "parquet":
            answers.to_parquet(name)
        elif form.startswith("jsonl"):
            answers.to_json(name, orient="records", lines=True)
        else:
            answers.to_csv(name, index=False, sep="\t" if form == "tsv" else ",")
        rows = read(files, "items.csv", labels=name, id_column="key")
        np.testing.assert_array_equal(self.known_of(rows), truth[1])

    def test_by_the_number_of_the_row(self, files, truth):
        for name in ("items.csv", "e.npy"):
            rows = read(files, name, labels=files / "by_row.csv", drop=["key", "patient"] if name != "e.npy" else None)
            np.testing.assert_array_equal(self.known_of(rows), truth[1])

    def test_numbers_as_items_of_parquet(self, files, truth):
        answers = pd.read_csv(files / "by_row.csv")
        answers.to_parquet(files / "numbers.parquet")
        pd.DataFrame({"id": np.arange(N), "x": 0.5}).to_parquet(files / "rows.parquet")
        rows = read(files, "rows.parquet", labels=files / "numbers.parquet", id_column="id")
        np.testing.assert_array_equal(self.known_of(rows), truth[1])

    def test_vectors_with_ids(self, files, truth):
        rows = read(files, "e.npz", labels=files / "long.csv", id_column="item")
        np.testing.assert_array_equal(self.known_of(rows), truth[1])

    def test_columns_of_the_table_and_of_another_file(self, files, truth):
        inside = read(files, "wide.csv", label_columns="tag_*", id_column="key", group="patient")
        beside = read(
            files, "items.csv", labels=files / "marks.csv", label_columns="*", id_column="key", drop=["patient"]
        )
        np.testing.assert_array_equal(self.known_of(inside), truth[1])
        np.testing.assert_array_equal(self.known_of(beside), truth[1])

    def test_words(self, files, truth):
        wide = pd.read_csv(files / "wide.csv", dtype=str)
        tags = [f"tag_{name}" for name in NAMES]
        wide[tags] = wide[tags].replace({"1": "present", "0": "Absent"}).fillna("-1")
        wide.to_csv(files / "words.csv", index=False)
        words = {"yes": ["present"], "no": ["absent"], "unknown": ["-1"]}
        rows = read(files, "words.csv", label_columns="tag_*", id_column="key", drop=["patient"], **words)
        np.testing.assert_array_equal(self.known_of(rows), truth[1])
        answers = pd.read_csv(files / "long.csv", dtype=str).replace({"yes": "present", "no": "Absent"})
        answers.to_csv(files / "words_long.csv", index=False)
        rows = read(files, "items.csv", labels=files / "words_long.csv", id_column="key", **words)
        np.testing.assert_array_equal(self.known_of(rows), truth[1])

    def test_zeros_without_an_empty_cell_are_known_only_if_told(self, files):
        full = pd.read_csv(files / "wide.csv", dtype={"key": str}).head(REVIEWED)
        full.to_csv(files / "full.csv", index=False)
        options = {"label_columns": "tag_*", "id_column": "key", "drop": ["patient"]}
        assert read(files, "full.csv", **options).known_negative is None
        rows = read(files, "full.csv", **options, no=["0"])
        np.testing.assert_array_equal(rows.known_negative, 1 - rows.Y)

    def test_labels_called_by_numbers_are_in_their_order(self, files):
        pd.DataFrame({"item": range(N), "label": [10, 9] * 40, "value": 1}).to_csv(files / "nine.csv", index=False)
        assert read(files, "e.npy", labels=files / "nine.csv").label_names == ("9", "10")

    def test_several_labels_in_a_cell_of_the_file_of_labels(self, files):
        pd.DataFrame({"key": ["001", "000"], "tags": ["dog; cat", "owl"]}).to_csv(files / "some.csv", index=False)
        pd.DataFrame({"key": ["000", "001"], "x": [0.5, 1.5]}).to_csv(files / "two.csv", index=False)
        rows = read(files, "two.csv", labels=files / "some.csv", id_column="key", separator=";")
        assert rows.label_names == NAMES
        assert rows.Y.tolist() == [[0, 0, 1], [1, 1, 0]]

    def test_a_label_file_may_say_no(self, files):
        """One row per item, its columns 1, 0 or blank; ids in another order."""
        rows = read(files, "items.csv", labels=files / "marks.csv", label_columns="tag_*", id_column="key")
        assert rows.known_negative is not None


class TestCommands:
    def test_fit_counts_what_is_known(self, onepos, files, truth):
        known = truth[1]
        code, out, err = onepos("fit", "items.csv", "--labels", "long.csv", "--id", "key", "--group", "patient", *FIT)
        assert code == 0, err
        counts = f"{int((known == 1).sum())} yes, {int((known == 0).sum())} no, {int(np.isnan(known).sum())} unknown"
        assert (
            f"known labels: {counts}; {REVIEWED} of {N} rows are fully reviewed; 20 groups of rows, which are not split"
            in out
        )
        code, out, _ = onepos("fit", "items.csv", "--labels", "labels.csv", "--id", "key", "--drop", "patient", *FIT)
        assert f"known labels: {N} yes, 0 no, {2 * N} unknown; 0 of {N} rows are fully reviewed\n" in out
        code, out, _ = onepos("fit", "items.csv", "--labels", "long.csv", "--id", "key", "--json", "--quiet", *FIT)
        assert json.loads(out)["known"] == {
            "yes": int((known == 1).sum()),
            "no": int((known == 0).sum()),
            "unknown": int(np.isnan(known).sum()),
            "rows": N,
            "rows_reviewed": REVIEWED,
        }

    def test_forms_give_one_model(self, onepos, files):
        written = []
        for source in (
            ("wide.csv", "--label-columns", "tag_*"),
            ("items.csv", "--labels", "long.csv"),
            ("items.csv", "--labels", "marks.csv", "--label-columns", "tag_*"),
        ):
            code, _, err = onepos("fit", *source, "--id", "key", "--drop", "patient", "--quiet", *FIT)
            assert code == 0, err
            assert onepos("predict", "onepos-model", "items.csv", "--id", "key", "--quiet")[0] == 0
            written.append(pd.read_csv(files / "predictions.csv").iloc[:, 2:].to_numpy())
        for each in written[1:]:
            np.testing.assert_allclose(each, written[0], atol=1e-6)

    def test_a_method_that_makes_nothing_of_a_no_says_so(self, onepos, files):
        fit = ("fit", "items.csv", "--labels", "long.csv", "--id", "key", "--drop", "patient", "--quiet", "--epochs", 3)
        assert "labels are known to be absent, and CRISP does not use that" in onepos(*fit, "--method", "crisp")[2]
        assert onepos(*fit, "--method", "wan")[2] == ""

    def test_evaluate_leaves_out_what_is_unknown_and_counts_it(self, onepos, files, truth):
        frame, known = truth
        known = known.copy()
        known[3] = [np.nan, 0, np.nan]
        as_long(known, frame["key"]).to_csv(files / "long.csv", index=False)
        labels = ("--labels", "long.csv", "--id", "key", "--drop", "patient")
        assert onepos("fit", "items.csv", *labels, "--quiet", "--positives", "any", *FIT)[0] == 0
        code, out, err = onepos("evaluate", "onepos-model", "items.csv", *labels)
        assert code == 0, err
        n_unknown = int(np.isnan(known).sum())
        assert (
            f"left out: {n_unknown} of the {known.size} entries, which are unknown; and of the means over rows 1 of"
            in out
        )
        assert f"warning: {N - REVIEWED} of {N} rows hold labels known to be there and none known to be absent" in out
        result = json.loads(onepos("evaluate", "onepos-model", "items.csv", *labels, "--json")[1])
        assert (result["unknown_entries"], result["rows_left_out"]) == (n_unknown, 1)
        assert "unknown_entries" not in result["scores"]
        from onepos import SinglePositiveClassifier
        from onepos.metrics import evaluate

        model = SinglePositiveClassifier.load(files / "onepos-model")
        X = frame[list("vwxyz")]
        expected = evaluate(known, model.predict_proba(X), decisions=model.predict(X))
        assert result["scores"] == pytest.approx({name: expected[name] for name in result["scores"]}, nan_ok=True)

    def test_a_label_nobody_answered_about_is_unknown(self, onepos, files, truth):
        """`evaluate` on a long table without one of the labels of the model: it is not held to be absent."""
        labels = ("--labels", "long.csv", "--id", "key", "--drop", "patient")
        assert onepos("fit", "items.csv", *labels, "--quiet", *FIT)[0] == 0
        answers = pd.read_csv(files / "long.csv", dtype=str).query("label != 'owl'")
        answers.to_csv(files / "long.csv", index=False)
        result = json.loads(onepos("evaluate", "onepos-model", "items.csv", *labels, "--per-label", "--json")[1])
        assert result["unknown_entries"] >= N
        owl = next(each for each in result["labels"] if each["label"] == "owl")
        assert (owl["n_positive"], owl["share"]) == (0, None)

    def test_validation_with_unknown_entries(self, onepos, files):
        fit = ("fit", "wide.csv:train", "--label-columns", "tag_*", "--id", "key", "--group", "patient", *FIT)
        code, out, err = onepos(*fit, "--validation", "wide.csv:val")
        assert code == 0, err
        assert "it has the best score on the validation rows" in out

    def test_priors_take_reviewed_rows(self, onepos, files):
        labels = ("--labels", "long.csv", "--id", "key", "--group", "patient")
        code, out, err = onepos("priors", "items.csv", *labels, "--estimator", "bracket", "--json", "--quiet")
        assert code == 0, err
        with_reviews = {each["label"]: each for each in json.loads(out)}
        assert set(with_reviews) == set(NAMES)
        without = pd.read_csv(files / "long.csv", dtype=str).query("value == 'yes'")
        without.to_csv(files / "long.csv", index=False)
        out = onepos("priors", "items.csv", *labels, "--estimator", "bracket", "--json", "--positives", "any")[1]
        for each in json.loads(out):
            review = with_reviews[each["label"]]
            assert each["observed"] == review["observed"]
            assert review["upper"] - review["lower"] < each["upper"] - each["lower"], "reviews narrow the interval"

    def test_draws_keep_one_label_and_no_negative(self, onepos, files):
        fit = ("fit", "wide.csv", "--label-columns", "tag_*", "--id", "key", "--drop", "patient", "--draw", "uniform")
        out = onepos(*fit, *FIT)[1]
        assert f"known labels: {N} yes, 0 no," in out

    def test_rows_without_an_answer(self, onepos, files):
        answers = pd.read_csv(files / "long.csv", dtype=str).query("item != '050'")
        answers.to_csv(files / "long.csv", index=False)
        fit = ("fit", "items.csv", "--labels", "long.csv", "--id", "key", "--drop", "patient", "--quiet", *FIT)
        code, _, err = onepos(*fit)
        assert code == 2
        assert (
            "1 of 80 rows hold none, the first is row 50 (counted from 0). Label these rows or remove them, or" in err
        )
        assert onepos(*fit, "--positives", "any")[0] == 0


class TestGroups:
    def test_parts_of_a_split_hold_whole_groups(self, files, truth):
        patients = truth[0].set_index("key")["patient"]
        options = {"label_columns": "tag_*", "group": "patient", "drop": ["key"]}
        whole = read(files, "wide.csv", **options)
        found = {part: read(files, f"wide.csv:{part}", **options) for part in ("train", "val", "test")}
        assert sum(rows.n_samples for rows in found.values()) == N
        place = {tuple(row): k for k, row in enumerate(np.asarray(whole.X).tolist())}
        where = {
            part: {patients.iloc[place[tuple(row)]] for row in np.asarray(rows.X).tolist()}
            for part, rows in found.items()
        }
        assert not where["train"] & where["val"] | where["train"] & where["test"] | where["val"] & where["test"]
        assert "patient" not in whole.feature_names

    def test_predict_takes_the_same_part(self, onepos, files):
        fit = (
            "fit",
            "wide.csv:train",
            "--label-columns",
            "tag_*",
            "--id",
            "key",
            "--group",
            "patient",
            "--quiet",
            *FIT,
        )
        assert onepos(*fit)[0] == 0
        group = ("--id", "key", "--group", "patient", "--quiet")
        assert onepos("predict", "onepos-model", "wide.csv:test", *group)[0] == 0
        keys = pd.read_csv(files / "predictions.csv", dtype=str)["key"].tolist()
        rows = read(files, "wide.csv:test", label_columns="tag_*", group="patient", drop=["key"])
        frame = pd.read_csv(files / "wide.csv", dtype={"key": str}).set_index("key").loc[keys]
        np.testing.assert_allclose(frame[list("vwxyz")].to_numpy(), rows.X, atol=1e-6)

    def test_groups_of_raw_tables_of_the_file_of_labels_and_empty_ones(self, onepos, files, truth):
        raw = truth[0].assign(city=["Rome", "Oslo"] * 40, patient=truth[0]["patient"].where(truth[0].index > 7))
        raw.to_csv(files / "raw.csv", index=False)
        labels = ("--labels", "long.csv", "--id", "key", "--group", "patient")
        code, out, err = onepos("fit", "raw.csv", *labels, *FIT)
        assert code == 0, err
        assert "; 26 groups of rows" in out, "eight rows without a patient are alone"
        assert "  patient: left out, the groups (--group)\n" in out
        assert onepos("predict", "onepos-model", "raw.csv:test", "--id", "key", "--group", "patient", "--quiet")[0] == 0
        by_item = pd.read_csv(files / "labels.csv", dtype=str).assign(patient=truth[0]["patient"]).iloc[::-1]
        by_item.to_csv(files / "labels.csv", index=False)
        rows = read(files, "e.npz", labels=files / "labels.csv", label="tag", id_column="key", group="patient")
        np.testing.assert_array_equal(rows.groups == rows.groups[0], truth[0]["patient"] == "p0")


WRONG = {
    "half dates": (
        lambda t: t.assign(day=["2020-01-02", "2020-03-04", "2021-05-06", "soon"] * 20),
        [],
        "items.csv: Column 'day' must hold dates or text, not both; 60 of 80 cells are dates, the first other is",
    ),
    "mixed types": (
        lambda t: t.assign(size=["1", "2", "3", "big"] * 20),
        [],
        "items.csv: Column 'size' must hold numbers or text, not both",
    ),
    "an item that is no row": (
        lambda t: t.assign(key=["zzz", *t["key"][1:]]),
        [],
        "long.csv: every item of the labels must be one of the rows; 1 of 80 are not, the first is '000'",
    ),
    "an id twice": (
        lambda t: t.assign(key=["001", *t["key"][1:]]),
        [],
        "every id must come once; in items.csv '001' is in rows 0 and 1.",
    ),
    "no such id": (lambda t: t.drop(columns="key"), [], "items.csv has no column 'key'; choose from v, w"),
    "no such group": (
        lambda t: t,
        ["--group", "hospital"],
        "--group must name a column of the data or of the labels; items.csv and long.csv have no 'hospital'.",
    ),
    "a word twice": (
        lambda t: t,
        ["--no", "absent", "--yes", "Absent"],
        "a word must mean one of yes, no and unknown; 'absent' is given for two.",
    ),
    "a feature that is the id": (
        lambda t: t,
        ["--text", "key"],
        "--id must name a column that is not a feature; 'key'",
    ),
    "a feature that is the group": (
        lambda t: t,
        ["--group", "patient", "--text", "patient"],
        "--group must name a column that is not a feature; 'patient' is in both.",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_tables_beside_a_long_one(onepos, files, truth, case):
    change, options, sentence = WRONG[case]
    change(truth[0]).to_csv(files / "items.csv", index=False)
    refused(onepos, files, sentence, "fit", "items.csv", "--labels", "long.csv", "--id", "key", *options, *FIT)


def refused(onepos, folder, sentence, *arguments):
    before = sorted(folder.iterdir())
    code, out, err = onepos(*arguments, "--quiet")
    assert code == 2, out + err
    assert sentence in err
    assert err.count("\n") == 1
    assert sorted(folder.iterdir()) == before


LONG = {
    "a word": (
        {"value": ["maybe"]},
        "long.csv: value must be yes (1, true, yes), no (0, false, no) or unknown (empty, unknown, unsure); line 2, "
        "item '007', holds 'maybe'. Write one of these, or say what it means",
    ),
    "a number": ({"value": ["2"]}, "item '007', holds '2'. Write one of these"),
    "two cases": (
        {"label": ["Cat"]},
        "a label must be written in one way; the column 'label' holds 'Cat' and 'cat', which differ in upper and lower "
        "case only.",
    ),
    "disagreement": (
        {"item": ["000", "000"], "label": ["cat", "cat"], "value": ["yes", "no"]},
        "item '000', label 'cat' is both yes and no. Correct one of them, or add a column 'time': the latest counts.",
    ),
    "no item": ({"item": [""]}, "long.csv: every answer must name its item; line 2 has none."),
    "no label": ({"label": [""]}, "long.csv: every answer must name its label; line 2 has a value"),
    "no time": (
        {"time": ["2026-01-31", "yesterday"]},
        "long.csv: time must hold dates or numbers; item '001' has 'yesterday'.",
    ),
}


@pytest.mark.parametrize("case", LONG)
def test_wrong_long_tables(onepos, files, case):
    """The first lines are changed."""
    lines, sentence = LONG[case]
    answers = pd.read_csv(files / "long.csv", dtype=str)
    first = pd.DataFrame({"item": ["007", "001"], "label": "cat", "value": "yes"})
    for name, cells in lines.items():
        first[name] = first.get(name, pd.Series(["", ""], dtype=object)).astype(object)
        first.loc[: len(cells) - 1, name] = cells
    pd.concat([first, answers.query("item not in ['000', '001', '007']")]).to_csv(files / "long.csv", index=False)
    refused(
        onepos, files, sentence, "fit", "items.csv", "--labels", "long.csv", "--id", "key", "--drop", "patient", *FIT
    )


def test_without_ids_an_item_is_a_row_number(onepos, files):
    hint = "Write row numbers, or add --id COLUMN, the column of ids in e.npy."
    sentence = "without --id an item of long.csv must be the number of a row of e.npy, from 0 to 79; it holds "
    for item in ("0x1", "80", "-1", "1.5"):
        pd.DataFrame({"item": [item], "label": "a", "value": 1}).to_csv(files / "long.csv", index=False)
        refused(onepos, files, f"{sentence}'{item}'. {hint}", "fit", "e.npy", "--labels", "long.csv", *FIT)


@pytest.mark.parametrize("where", ["cells", "columns", "another file"])
def test_labels_in_two_cases(onepos, files, where):
    rows = pd.DataFrame({"x": np.arange(20.0), "tag": ["Dog", "dog"] * 10, "Cat": [1, 0] * 10, "cat": [0, 1] * 10})
    rows.to_csv(files / "rows.csv", index=False)
    options = {
        "cells": ["rows.csv", "--label", "tag", "--drop", "Cat,cat"],
        "columns": ["rows.csv", "--label-columns", "Cat,cat", "--drop", "tag"],
        "another file": ["e.npy", "--labels", "rows.csv", "--label", "tag"],
    }[where]
    names = ("'Cat'", "'cat'") if where == "columns" else ("'Dog'", "'dog'")
    refused(
        onepos, files, f"holds {names[0]} and {names[1]}, which differ in upper and lower case", "fit", *options, *FIT
    )


def test_a_label_column_that_is_also_a_feature(onepos, files):
    wide = pd.read_csv(files / "wide.csv", dtype={"key": str})
    wide.assign(is_dog=wide["tag_dog"]).to_csv(files / "twice.csv", index=False)
    fit = ("--label-columns", "tag_*", "--id", "key", "--drop", "patient", *FIT)
    twice = "the columns 'tag_dog' and 'is_dog' hold the same cells. Add --drop 'is_dog'."
    refused(onepos, files, f"the label must not also be a feature; {twice}", "fit", "twice.csv", *fit)
    marks = ("--labels", "marks.csv", *fit)
    refused(onepos, files, "--label names 'tag_cat', and wide.csv holds it too", "fit", "wide.csv", *marks)
    refused(onepos, files, "label", "fit", "labels.csv", "--label", "tag", "--text", "tag", *FIT)
    group = ("--label", "tag", "--group", "tag")
    refused(onepos, files, "--label and --group must name different columns", "fit", "labels.csv", *group, *FIT)


def test_two_files_whose_ids_do_not_match(onepos, files):
    labels = pd.read_csv(files / "labels.csv", dtype=str)
    labels.assign(key=labels["key"].replace({"003": "3"})).to_csv(files / "labels.csv", index=False)
    sentence = (
        "every id must be in both files; 1 of 80 ids of items.csv are not in labels.csv ('003') and 1 of 80 ids of "
        "labels.csv are not in items.csv ('3'). Add or remove these rows."
    )
    refused(onepos, files, sentence, "fit", "items.csv", "--labels", "labels.csv", "--id", "key", *FIT)


def test_a_word_in_label_columns(onepos, files):
    text = (files / "wide.csv").read_text().replace(",p0,1", ",p0,perhaps").replace(",p0,0", ",p0,perhaps")
    (files / "wide.csv").write_text(text)
    fit = ("fit", "wide.csv", "--label-columns", "tag_*", "--id", "key", "--drop", "patient", *FIT)
    sentence = "wide.csv, line 2: label columns must hold 1 (yes), 0 (no) or nothing (unknown); column 'tag_cat' holds "
    refused(onepos, files, sentence, *fit)
    assert onepos(*fit, "--unknown", "perhaps", "--positives", "any")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("labels.csv", "--label", "tag", "--no", "absent"), "--no names a word in label columns or in the values of"),
        (
            ("e.npz", "--no", "absent"),
            "--no is for a table (.csv, .tsv, .jsonl, .parquet); e.npz is none. Leave it out.",
        ),
        (("e.npz", "--group", "patient"), "--group is for a table"),
        (("e.npy", "--labels", "marks.csv"), "Add --label COLUMN, --label-columns '*' if each column is a label, or"),
        (
            ("wide.csv", "--label-columns", "tag_*", "--drop", "tag_*"),
            "must have label columns; all that are named are",
        ),
    ],
)
def test_options_that_do_not_go_together(onepos, files, arguments, sentence):
    refused(onepos, files, sentence, "fit", *arguments, *FIT)


def test_a_predict_table_without_a_text_column(onepos, files, truth):
    truth[0].assign(note=[f"a long note about thing {k % 7} and that" for k in range(N)]).to_csv(
        files / "noted.csv", index=False
    )
    fit = ("fit", "noted.csv", "--labels", "long.csv", "--id", "key", "--text", "note", "--drop", "patient", "--quiet")
    assert onepos(*fit, *FIT)[0] == 0
    before = sorted(files.iterdir())
    code, _, err = onepos("predict", "onepos-model", "items.csv")
    assert code == 2
    assert "error: items.csv: A table must have the columns" in err
    assert "there is no column 'note'" in err
    assert err.count("\n") == 1
    assert sorted(files.iterdir()) == before


def test_images_with_labels_of_another_file(onepos, tmp_path):
    """A long table beside a table of paths; a folder has its labels in its folders."""
    Image = pytest.importorskip("PIL.Image")
    for k in range(4):
        Image.new("RGB", (8, 8), (60 * k, 0, 0)).save(tmp_path / f"{k}.png")
    pd.DataFrame({"path": [f"{k}.png" for k in range(4)], "who": list("aabb")}).to_csv(tmp_path / "p.csv", index=False)
    (tmp_path / "long.csv").write_text("item,label,value\n0.png,cat,1\n0.png,dog,0\n3.png,dog,1\n")
    rows = read(tmp_path, "p.csv", labels=tmp_path / "long.csv", id_column="path", group="who")
    assert rows.Y.tolist() == [[1, 0], [0, 0], [0, 0], [0, 1]]
    assert rows.known_negative.tolist() == [[0, 1], [0, 0], [0, 0], [0, 0]]
    assert rows.groups.tolist() == [0, 0, 1, 1]
    shutil.copy(tmp_path / "0.png", tmp_path / "1.png")
    (tmp_path / "wide.csv").write_text("path,cat,dog\n0.png,1,0\n3.png,,1\n")
    rows = read(tmp_path, "wide.csv", label_columns="cat,dog")
    assert rows.known_negative.tolist() == [[0, 1], [0, 0]]
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    shutil.copy(tmp_path / "0.png", tmp_path / "photos" / "cat" / "0.png")
    refused(onepos, tmp_path, "--labels goes with a table of images", "fit", "photos", "--labels", "long.csv")


def test_gzipped_wide_tables(files, truth):
    (files / "wide.csv.gz").write_bytes(gzip.compress((files / "wide.csv").read_bytes()))
    rows = read(files, "wide.csv.gz", label_columns="tag_*", id_column="key", drop=["patient"])
    np.testing.assert_array_equal(rows.known_negative, truth[1] == 0)


def test_evaluate_does_not_mind_a_copy_of_the_label(onepos, files):
    """Further columns are ignored there; only a fit would learn from it."""
    fit = ("fit", "wide.csv", "--label-columns", "tag_*", "--id", "key", "--drop", "patient", "--quiet", *FIT)
    assert onepos(*fit, "--positives", "any")[0] == 0
    wide = pd.read_csv(files / "wide.csv", dtype={"key": str})
    wide.assign(is_dog=wide["tag_dog"]).to_csv(files / "twice.csv", index=False)
    code, _, err = onepos("evaluate", "onepos-model", "twice.csv", "--label-columns", "tag_*", "--json")
    assert code == 0, err


def test_groups_of_an_npz_file(onepos, files, truth):
    frame, known = truth
    np.savez(files / "own.npz", X=frame[list("vwxyz")], Y=known, groups=frame["patient"].to_numpy(str))
    code, out, err = onepos("fit", "own.npz", *FIT)
    assert code == 0, err
    assert f"{REVIEWED} of {N} rows are fully reviewed; 20 groups of rows, which are not split" in out
