"""A wrong command line gives one sentence: what must hold, what was found, where to look."""

import pytest


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["complete", "x.csv", "--format", "labelstudio"],
            "--format must be one of csv, parquet, label-studio, coco, datasets; it is 'labelstudio'. Did you mean "
            "label-studio?",
        ),
        (
            ["complete", "x.csv", "--format=zz"],
            "--format must be one of csv, parquet, label-studio, coco, datasets; it is 'zz'. See: onepos complete -h.",
        ),
        (["priors", "x.csv", "--estimator", "bb"], "--estimator must be one of bbe, bracket; it is 'bb'."),
        (["fit", "x.csv", "--draw", "cool"], "--draw must be one of uniform, frequency, cole; it is 'cool'."),
        (["fit", "x.csv", "--epochs", "abc"], "--epochs must be a whole number; it is 'abc'. See: onepos fit -h."),
        (["fit", "x.csv", "--lr", "abc"], "--lr must be a number; it is 'abc'. See: onepos fit -h."),
        (["fit", "x.csv", "--nope"], "onepos fit has no option --nope."),
        (["fit"], "onepos fit needs DATA, which is missing. See: onepos fit -h."),
        (["export", "x"], "onepos export needs --onnx, which is missing. See: onepos export -h."),
        (["fit", "x.csv", "--out"], "--out needs a value, which is missing."),
        (["nope"], "onepos has no command 'nope'. See: onepos -h."),
        (["bench", "nope"], "onepos bench has no command 'nope'. See: onepos bench -h."),
        (["fit", "a.csv", "b.csv"], "onepos fit takes no further argument; 'b.csv' is one. See: onepos fit -h."),
    ],
)
def test_one_sentence(onepos, arguments, sentence):
    code, out, err = onepos(*arguments)
    assert code == 2
    assert err.startswith(f"error: {sentence}")
    assert err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize(
    ("arguments", "found"), [(["--epochs=0"], "--epochs must be"), (["--seed", "-1"], "--seed must be")]
)
def test_a_number_out_of_its_range(onepos, arguments, found):
    code, _, err = onepos("fit", "x.csv", *arguments)
    assert code == 2
    assert found in err
    assert "it is '" in err
    assert err.count("\n") == 1


def test_a_group_without_a_command_shows_its_help(onepos):
    code, out, err = onepos("bench")
    assert code == 2
    assert "Usage: onepos bench" in out + err


def test_an_error_that_nothing_explains_asks_for_a_report(onepos, monkeypatch, tmp_path):
    from onepos.cli import models

    def fail(*_, **__):
        raise KeyError("inner")

    monkeypatch.setattr(models, "read_rows", fail)
    code, _, err = onepos("fit", "x.csv")
    assert code == 1
    assert "onepos failed in a way that it should not (KeyError: 'inner'). Run the command again with --debug" in err


@pytest.mark.parametrize("command", ["fit", "priors", "complete"])
def test_what_is_wrong_with_rows_names_their_file(onepos, tmp_path, command):
    (tmp_path / "rows.csv").write_text("a,b,label\n" + "1,2,cat\n" * 9 + "1,2,\n")
    code, _, err = onepos(command, "rows.csv", "--label", "label")
    assert code == 2
    assert "error: rows.csv: the data must hold exactly one positive label per row" in err
