import json
import re

import numpy as np
import pytest

from onepos.datasets import load_draw, save_draw

Y = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 1]])
OBSERVED = np.array([[0, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0]])


@pytest.fixture
def path(tmp_path):
    return save_draw(tmp_path / "draw.json", OBSERVED, how="uniform", seed=7)


def test_round_trip(path):
    for observed in (load_draw(path), load_draw(path, Y)):
        np.testing.assert_array_equal(observed, OBSERVED)
        assert observed.dtype == np.uint8


def test_content(path):
    content = json.loads(path.read_text())
    assert content["gamma"] == [1, 1, -1, 0]
    assert (content["format"], content["n_samples"], content["n_labels"]) == (1, 4, 3)
    assert (content["how"], content["seed"]) == ("uniform", 7)


def test_true_labels_are_checked(path):
    wrong = Y.copy()
    wrong[3] = [0, 1, 1]
    with pytest.raises(
        ValueError, match=r"draw.json must hold only true labels; row 3 holds label 0, which Y does not"
    ):
        load_draw(path, wrong)
    with pytest.raises(ValueError, match=r"draw.json must fit Y; it is for 4 rows and 3 labels, Y has 3 × 3"):
        load_draw(path, Y[:3])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"gamma": [1, 1, -1, 2]}, "expected"),
        ({"sha256": "0" * 64}, "draw.json has checksum"),
        ({"format": 2}, "draw.json must have draw format 1; it has 2. Update onepos to read it."),
        ({"gamma": [1, 1, -1]}, "draw.json must hold 4 columns between -1 and 2 in gamma; it does not."),
        ({"gamma": [1, 1, -1, 3]}, "draw.json must hold 4 columns between -1 and 2 in gamma; it does not."),
        ({"gamma": [1, 1, -2, 0]}, "draw.json must hold 4 columns between -1 and 2"),
        ({"gamma": [1, 1, -1, 0.5]}, "draw.json must hold n_samples, n_labels and gamma as whole numbers"),
        ({"gamma": "1110"}, "draw.json must hold n_samples, n_labels and gamma as whole numbers"),
        ({"n_labels": None}, "draw.json must hold n_samples, n_labels and gamma as whole numbers"),
        ({"n_labels": 10**15}, "draw.json must unfold to at most 512 MiB"),
        ({"n_samples": 0, "gamma": []}, "draw.json must hold 0 columns"),
    ],
)
def test_changed_files_are_refused(path, change, sentence):
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=re.escape(sentence)):
        load_draw(path)


@pytest.mark.parametrize("text", ["[]", "{}", '"draw"', "{", "", "[" * 100_000])
def test_other_files_are_refused(path, text):
    path.write_text(text)
    with pytest.raises(ValueError, match=r"^draw.json must be"):
        load_draw(path)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load_draw(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("observed", "sentence"),
    [
        (Y, "observed must hold at most one positive per row; row 0 holds 2. Draw one with draw_single_positive()."),
        (Y[0], "observed must be a 0/1 matrix (rows, labels) with at least one of each; its shape is (3,)"),
        (2 * OBSERVED, "observed must hold only 0 and 1; row 0, column"),
    ],
)
def test_only_a_draw_is_saved(tmp_path, observed, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        save_draw(tmp_path / "draw.json", observed, how="uniform", seed=0)
    assert not (tmp_path / "draw.json").exists()
