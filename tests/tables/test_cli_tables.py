"""`onepos fit` on raw tables, embeddings and labels in a file of their own, and what is refused."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from onepos.cli import main

N = 60
FIT = ("--method", "an", "--epochs", "2", "--no-early-stopping")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a command in a folder of its own: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main([str(each) for each in arguments])
        said = capsys.readouterr()
        return stopped.value.code or 0, said.out, said.err

    return call


@pytest.fixture
def table(tmp_path):
    """Films with gaps, text and categories; one label per row."""
    rng = np.random.default_rng(0)
    is_sad = rng.random(N) < 0.5
    frame = pd.DataFrame(
        {
            "title": [f"film number {k}" for k in range(N)],
            "plot": [f"a {'sad story of loss' if each else 'funny tale of luck'} again" for each in is_sad],
            "year": rng.integers(1950, 2000, N).astype(float),
            "rated": np.where(rng.random(N) < 0.5, "PG", "R"),
            "country": "USA",
            "film_id": rng.permutation(N) * 7 + 1000,
            "genre": np.where(is_sad, "drama", "comedy"),
        }
    )
    frame.loc[::5, "year"] = np.nan
    frame.to_csv(tmp_path / "films.csv", index=False)
    return frame


def test_priors_of_a_raw_table(run, table):
    code, out, err = run("priors", "films.csv", "--label", "genre", "--id", "title", "--json", "--quiet")
    assert code == 0, err
    found = {each["label"]: each for each in json.loads(out)}
    assert set(found) == {"comedy", "drama"}
    assert all(each["share"] <= each["prior"] <= 1 for each in found.values())


def test_fit_says_what_became_of_each_column(run, table):
    code, out, _ = run("fit", "films.csv", "--label", "genre", "--id", "title", *FIT)
    assert code == 0
    for line in (
        "  title: left out, the ids (--id)\n",
        "  plot: ",
        "  year: whole numbers, 20% missing -> standardized, and whether it is missing\n",
        "  rated: ",
        "  country: left out, all cells are the same\n",
        "  film_id: left out, named like an id, and no value comes twice\n",
    ):
        assert line in out


@pytest.mark.parametrize("form", ["csv.gz", "jsonl", "parquet"])
def test_forms_of_a_table_give_the_same_predictions(run, table, tmp_path, form):
    file = tmp_path / f"same.{form}"
    if form == "csv.gz":
        file.write_bytes(gzip.compress((tmp_path / "films.csv").read_bytes()))
    elif form == "jsonl":
        table.to_json(file, orient="records", lines=True)
    else:
        pytest.importorskip("pyarrow")
        table.to_parquet(file)
    written = []
    for name in ("films.csv", file.name):
        assert run("fit", name, "--label", "genre", "--id", "title", "--quiet", *FIT)[0] == 0
        assert run("predict", "onepos-model", name, "--id", "title", "--quiet", "--out", "p.csv")[0] == 0
        written.append(pd.read_csv("p.csv"))
    assert written[0]["title"].tolist() == table["title"].tolist()
    pd.testing.assert_frame_equal(*written, atol=1e-6)


def test_evaluate_and_validation_apply_the_encoder(run, table, tmp_path):
    fit = ("fit", "films.csv:train", "--label", "genre", "--id", "title", "--validation", "films.csv:val")
    assert run(*fit, "--quiet", *FIT)[0] == 0
    code, out, _ = run("evaluate", "onepos-model", "films.csv:test", "--label", "genre", "--json")
    assert code == 0
    assert json.loads(out)["n_rows"] == 6


def test_declared_columns(run, table):
    code, out, _ = run(
        "fit", "films.csv", "--label", "genre", "--text", "title", "--categorical", "film_id", "--drop", "year", *FIT
    )
    assert code == 0
    assert "  title: text, as declared" in out
    assert "  film_id: category, as declared" in out
    assert "  year: left out (--drop)\n" in out


def test_numbers_alone_can_be_declared_categories(run, tmp_path):
    frame = pd.DataFrame({"code": [1, 2] * 20, "x": np.arange(40) / 7, "tag": ["a", "b"] * 20})
    frame.to_csv(tmp_path / "numbers.csv", index=False)
    assert "code: " not in run("fit", "numbers.csv", "--label", "tag", *FIT)[1]
    assert (
        "  code: category, as declared" in run("fit", "numbers.csv", "--label", "tag", "--categorical", "code", *FIT)[1]
    )


def write_embeddings(tmp_path, table):
    """Vectors in four forms, the last two in another order than the labels."""
    X = np.column_stack([table["genre"] == "drama", np.random.default_rng(0).normal(size=N)]).astype(np.float32)
    order = np.random.default_rng(1).permutation(N)
    np.save(tmp_path / "e.npy", X)
    np.savez(tmp_path / "e.npz", X=X[order], ids=table["title"].to_numpy(dtype=str)[order])
    table[["title", "genre"]].to_csv(tmp_path / "labels.csv", index=False)
    return X, order


def test_embeddings_by_row_and_by_id_give_the_same_labels(run, table, tmp_path):
    from onepos.cli.inputs import read_rows
    from onepos.cli.options import RowOptions

    X, order = write_embeddings(tmp_path, table)
    by_row = read_rows(str(tmp_path / "e.npy"), RowOptions(labels=tmp_path / "labels.csv", label="genre"))
    by_id = read_rows(str(tmp_path / "e.npz"), RowOptions(labels=tmp_path / "labels.csv", id_column="title"))
    np.testing.assert_array_equal(by_row.Y[order], by_id.Y)
    np.testing.assert_array_equal(by_row.X, X)
    assert by_row.label_names == ("comedy", "drama")
    assert run("fit", "e.npy", "--labels", "labels.csv", "--label", "genre", "--quiet", *FIT)[0] == 0
    assert run("predict", "onepos-model", "e.npy", "--quiet")[0] == 0
    assert run("fit", "e.npz", "--labels", "labels.csv", "--id", "title", "--quiet", *FIT)[0] == 0


def test_embeddings_in_a_column_of_lists(run, table, tmp_path):
    pytest.importorskip("pyarrow")
    X, order = write_embeddings(tmp_path, table)
    lists = pd.DataFrame({"title": table["title"].to_numpy()[order], "vector": list(X[order])})
    lists.to_parquet(tmp_path / "e.parquet")
    assert run("fit", "e.parquet", "--labels", "labels.csv", "--id", "title", "--quiet", *FIT)[0] == 0
    assert run("predict", "onepos-model", "e.parquet", "--id", "title", "--quiet")[0] == 0
    assert pd.read_csv("predictions.csv")["title"].tolist() == lists["title"].tolist()


def test_a_table_and_its_labels_in_another_file(run, table, tmp_path):
    write_embeddings(tmp_path, table)
    table.drop(columns="genre").iloc[::-1].to_csv(tmp_path / "bare.csv", index=False)
    code, out, _ = run("fit", "bare.csv", "--labels", "labels.csv", "--id", "title", *FIT)
    assert code == 0
    assert f"read bare.csv: {N} rows" in out


def test_an_npy_file_stays_on_the_disk(tmp_path):
    from onepos.datasets.embeddings import read_embeddings

    np.save(tmp_path / "e.npy", np.zeros((4, 3), np.float32))
    assert isinstance(read_embeddings(tmp_path / "e.npy").X, np.memmap)


WRONG = {
    "half dates": (
        lambda t: t.assign(day=["2020-01-02", "2020-03-04", "soon"] * 20),
        ["--label", "genre"],
        "films.csv: Column 'day' must hold dates or text, not both; 40 of 60 cells are dates, the first other is",
    ),
    "mixed types": (
        lambda t: t.assign(size=["1", "2", "big"] * 20),
        ["--label", "genre"],
        "films.csv: Column 'size' must hold numbers or text, not both",
    ),
    "decimal commas": (
        lambda t: t.assign(price=[f"{k},50" for k in range(N)]),
        ["--label", "genre"],
        "films.csv: Column 'price' must hold numbers written like 1234.5; 60 of 60 cells are numbers written "
        "otherwise, the first is '0,50' in row 0",
    ),
    "separated thousands": (
        lambda t: t.assign(price=["1,200.00", "1,234.50", "7"] * 20),
        ["--label", "genre"],
        "must hold numbers written like 1234.5; 40 of 60 cells are numbers written otherwise, the first is '1,200.00'",
    ),
    "a currency": (
        lambda t: t.assign(price=["5 €", "7.50 €", ""] * 20),
        ["--label", "genre"],
        "must hold numbers written like 1234.5; 40 of 40 cells are numbers written otherwise, the first is '5 €'",
    ),
    "nothing to learn from": (
        lambda t: t[["title", "genre"]],
        ["--label", "genre", "--id", "title"],
        "films.csv must have a column to learn from; its columns ('title', 'genre') hold labels or ids, or are left",
    ),
    "label twice in two cases": (
        lambda t: t.assign(kind=t["genre"].str.upper() + " "),
        ["--label", "genre"],
        "the label must not also be a feature; the columns 'genre' and 'kind' hold the same cells. Add --drop 'kind'.",
    ),
    "label twice": (
        lambda t: t.assign(kind=t["genre"]),
        ["--label", "genre"],
        "the label must not also be a feature; the columns 'genre' and 'kind' hold the same cells. Add --drop 'kind'.",
    ),
    "label as text": (
        lambda t: t,
        ["--label", "genre", "--text", "genre"],
        "the label must not also be a feature; --label names 'genre', and --text or --categorical names it too.",
    ),
    "label as id": (lambda t: t, ["--label", "genre", "--id", "genre"], "--label and --id must name different columns"),
    "label in both files": (
        lambda t: t,
        ["--labels", "labels.csv", "--label", "genre"],
        "the label must not also be a feature; --label names 'genre', and films.csv holds it too. Add --drop genre.",
    ),
    "no such column": (
        lambda t: t,
        ["--label", "genre", "--text", "plott"],
        "has no column 'plott'; did you mean 'plot'?",
    ),
    "ids that do not match": (
        lambda t: t.drop(columns="genre").assign(title=[f"film number {k}" for k in range(2, N + 2)]),
        ["--labels", "labels.csv", "--id", "title"],
        "every id must be in both files; 2 of 60 ids of films.csv are not in labels.csv ('film number 60', "
        "'film number 61') and 2 of 60 ids of labels.csv are not in films.csv ('film number 0', 'film number 1').",
    ),
    "an id twice": (
        lambda t: t.drop(columns="genre").assign(title=["same", *t["title"][1:-1], "same"]),
        ["--labels", "labels.csv", "--id", "title"],
        "every id must come once; in films.csv 'same' is in rows 0 and 59.",
    ),
    "labels without ids": (
        lambda t: t.drop(columns="genre"),
        ["--labels", "labels.csv", "--label", "genre", "--id", "film_id"],
        "both files must have the ids of --id; labels.csv has no column 'film_id'.",
    ),
    "which column": (
        lambda t: t.drop(columns="genre"),
        ["--labels", "labels.csv"],
        "labels.csv must have one column of labels, or --label names it; it has 2 columns ('title', 'genre').",
    ),
    "fewer rows": (
        lambda t: t.drop(columns="genre").iloc[:50],
        ["--labels", "labels.csv", "--label", "genre"],
        "must have the same number of rows; they have 50 and 60.",
    ),
    "a long table": (
        lambda t: t.drop(columns="genre"),
        ["--labels", "long.csv"],
        "without --id an item of long.csv must be the number of a row of films.csv, from 0 to 59; it holds 'a'.",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused(run, table, tmp_path, case):
    write_embeddings(tmp_path, table)
    (tmp_path / "long.csv").write_text("item,label,value\na,x,1\n")
    change, options, sentence = WRONG[case]
    change(table).to_csv(tmp_path / "films.csv", index=False)
    before = sorted(tmp_path.iterdir())
    code, out, err = run("fit", "films.csv", *options, "--quiet", *FIT)
    assert code == 2, out
    assert sentence in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_predict_names_a_missing_text_column(run, table, tmp_path):
    assert run("fit", "films.csv", "--label", "genre", "--id", "title", "--quiet", *FIT)[0] == 0
    table.drop(columns="plot").to_csv(tmp_path / "less.csv", index=False)
    code, _, err = run("predict", "onepos-model", "less.csv")
    assert code == 2
    assert "there is no column 'plot'" in err
    assert not (tmp_path / "predictions.csv").exists()
    code, _, err = run("predict", "onepos-model", "films.csv", "--id", "plot")
    assert "the model was fitted with 'plot' as a feature" in err
    np.save(tmp_path / "e.npy", np.zeros((4, 3)))
    assert "the model was fitted to a raw table; e.npy is none" in run("predict", "onepos-model", "e.npy")[2]


@pytest.mark.parametrize(
    ("name", "write", "sentence"),
    [
        ("e.npy", lambda file: np.save(file, np.zeros(5)), "must hold vectors of numbers, an array (n, d)"),
        ("e.npy", lambda file: file.write_bytes(b"nothing"), "must hold an array of numbers"),
        ("e.npz", lambda file: np.savez(file, Z=np.zeros((5, 2))), "must hold the vectors as X"),
        ("e.npz", lambda file: np.savez(file, X=np.zeros((5, 2)), ids=np.arange(4)), "must hold an id per row of X"),
        (
            "e.jsonl",
            lambda file: file.write_text('{"a": 1}\n[1]\n'),
            "e.jsonl, line 2: every line must be a JSON object",
        ),
        (
            "e.jsonl",
            lambda file: file.write_text('{"a": 1}\n{"a":'),
            "e.jsonl, line 2: every line must be a JSON object",
        ),
    ],
)
def test_damaged_files(run, table, tmp_path, name, write, sentence):
    write_embeddings(tmp_path, table)
    write(tmp_path / name)
    code, _, err = run("fit", name, "--labels", "labels.csv", "--label", "genre", "--quiet", *FIT)
    assert code == 2
    assert sentence in err
    assert not (tmp_path / "onepos-model").exists()


SEPARATED = {";": "film;price;tag\n", "\t": "film\tprice\ttag\n", "|": '"film, all";price;tag\n'.replace(";", "|")}


@pytest.mark.parametrize("mark", SEPARATED)
def test_a_file_from_a_spreadsheet_of_another_language(tmp_path, mark):
    from onepos.datasets.table import open_table

    rows = [mark.join((f"a, {k}", ("1.234,50", "-7", "0,25", "")[k % 4], "1,5" if k % 2 else "x")) for k in range(8)]
    (tmp_path / "t.csv").write_text(SEPARATED[mark] + "\n".join(rows))
    frame = open_table(tmp_path / "t.csv").frame
    assert frame["price"].iloc[:4].tolist()[:3] == [1234.5, -7, 0.25]
    assert frame["price"].isna().tolist() == [False, False, False, True] * 2
    assert frame["tag"].tolist() == ["x", "1,5"] * 4
    assert open_table(tmp_path / "t.csv", text=["price"]).frame["price"].iloc[0] == "1.234,50"


def test_codes_that_are_no_numbers_stay_texts(tmp_path):
    from onepos.tables import TableEncoder

    for cells in (
        ["192.168.1.1", "10.0.0.1"],
        ["1.2.3", "1.2.4"],
        ["12:30", "7:15"],
        ["00,12", "a"],
        ["10 ml", "5 ml"],
    ):
        assert TableEncoder().fit({"a": cells * 10, "b": range(20)}).describe()[0].kind == "category"


def test_warnings_about_labels(run, table, tmp_path):
    table.assign(code=(table["genre"] == "drama").astype(int) + 3).to_csv(tmp_path / "films.csv", index=False)
    code, _, err = run("fit", "films.csv", "--label", "genre", "--id", "title", "--quiet", *FIT)
    assert code == 0
    assert "each value of column 'code' goes with one label of 'genre' and the other way round" in err
    assert "--drop 'code'" in err
    table.assign(genre="drama").to_csv(tmp_path / "films.csv", index=False)
    code, _, err = run("fit", "films.csv", "--label", "genre", "--id", "title", "--quiet", *FIT)
    assert code == 0
    assert "'drama' is the only label" in err
    _, _, err = run("evaluate", "onepos-model", "films.csv", "--label", "genre")
    assert "only label" not in err


def test_damaged_and_odd_parquet(run, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "t.parquet").write_bytes(b"nothing of the kind")
    code, _, err = run("fit", "t.parquet", "--label", "tag", *FIT)
    assert code == 2
    assert err.startswith("error: t.parquet must be readable to its end; ")
    assert err.endswith("The file is damaged or of another kind; get it again.\n")
    pd.DataFrame({"a": range(5), "tag": [{"name": "x"}] * 5}).to_parquet(tmp_path / "t.parquet")
    code, _, err = run("fit", "t.parquet", "--label", "tag", *FIT)
    assert code == 2
    assert "a label or an id must be text or a number; column 'tag' holds a dict in row 0." in err
