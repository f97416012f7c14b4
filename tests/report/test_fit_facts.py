"""The facts of the page of a fit: each number is that of the model, its rows, or an independent count."""

import base64
import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from onepos import Labels, SinglePositiveClassifier, complete_labels, draw_single_positive
from onepos.criteria import CRITERIA
from onepos.report import fit_facts, render_fit
from onepos.report.calibration import bin_entries
from onepos.report.items import FeatureItems, ImageItems
from onepos.report.judgement import Judgement

N, C, N_REVIEWED = 600, 5, 60


@pytest.fixture(scope="module")
def world():
    """Rows of which 60 are reviewed, held-out probabilities, and a completion of them."""
    rng = np.random.default_rng(0)
    Y = (rng.random((N, C)) < np.linspace(0.6, 0.2, C)).astype(np.uint8)
    Y[np.arange(N), rng.integers(0, C, N)] = 1
    observed = draw_single_positive(Y, 0)
    known = np.where(observed == 1, 1.0, np.nan)
    known[:N_REVIEWED] = Y[:N_REVIEWED]
    share = np.maximum(Y + rng.normal(0, 0.3, Y.shape), 0.03)
    held_out = (share / share.sum(1, keepdims=True)).astype(np.float32)
    done = complete_labels(None, known, held_out=held_out, min_precision=0.8, random_state=0)
    X = rng.normal(size=(N, 3))
    items = FeatureItems([f"row {k}" for k in range(N)], X, ["a", "b", "c"])
    return SimpleNamespace(Y=Y, known=known, held_out=held_out, done=done, items=items)


@pytest.fixture
def model(toy):
    X, _, observed = toy
    return SinglePositiveClassifier("an", epochs=3, early_stopping=False, random_state=0).fit(X, observed)


def test_the_facts_are_those_of_the_model_also_after_loading(model, tmp_path):
    facts = fit_facts.describe_model(model)
    assert facts["class_prior"] == model.class_prior_.tolist()
    assert facts["thresholds"] == model.thresholds_.tolist()
    assert facts["history"]["loss"] == model.history_.loss
    assert facts["best_epoch"] == model.history_.best_epoch + 1
    assert facts["method"] == "an"
    model.save(tmp_path / "model")
    again = fit_facts.describe_model(SinglePositiveClassifier.load(tmp_path / "model"))
    assert json.dumps(again) == json.dumps(facts)
    page = render_fit(facts)
    for prior in model.class_prior_:
        assert f"<td>{prior:.3f}</td>" in page


@pytest.mark.parametrize("name", ["crisp", "crisp-as-published", "crisp-3ep", "ll-ct", "an"])
def test_a_method_is_named_by_its_class_and_parameters(name):
    from onepos.methods import make_method

    assert fit_facts._name_of(make_method(name)) == name


def test_a_method_of_ones_own_has_the_name_of_its_class():
    class Mine:
        pass

    assert fit_facts._name_of(Mine()) == "Mine"


def test_columns_of_a_raw_table_are_as_the_encoder_describes_them():
    import pandas as pd

    table = pd.DataFrame({"size": [1.0, 2.0, None, 4.0] * 5, "color": ["red", "blue", "red", "green"] * 5})
    model = SinglePositiveClassifier("an", epochs=1, early_stopping=False, random_state=0).fit(table, ["x", "y"] * 10)
    facts = fit_facts.describe_model(model)
    assert facts["n_rows"] == 20
    assert [each["name"] for each in facts["columns"]] == ["size", "color"]
    assert [each["became"] for each in facts["columns"]] == [each.became for each in model.encoder_.describe()]


def test_known_entries_are_counted(world):
    facts = fit_facts.describe_labels(world.done.labels, np.arange(N) // 2)
    assert facts["known"] == {
        "yes": int((world.known == 1).sum()),
        "no": int((world.known == 0).sum()),
        "unknown": int(np.isnan(world.known).sum()),
        "rows": N,
        "rows_reviewed": N_REVIEWED,
    }
    assert facts["observed"] == (world.known == 1).sum(0).tolist()
    assert facts["n_groups"] == N // 2


def test_quality_is_that_of_the_criteria(world):
    labels = world.done.labels
    quality = fit_facts.measure_quality(labels, held_out=np.log(world.held_out))
    for each in quality:
        expected = CRITERIA[each["name"]].function(labels.observed, np.log(world.held_out), None)
        assert each["scores"]["held_out"] == pytest.approx(expected)
        assert each["greater_is_better"] == CRITERIA[each["name"]].greater_is_better
    assert quality[0]["scores"]["held_out"] > quality[0]["scores"]["frequency"] > 0


def test_pairs_are_counted_as_one_would_by_hand():
    Y = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 1], [0, 0, 1]] * 10, float)
    found = fit_facts.count_together(Y.clip(1e-9, 1 - 1e-9))
    order = found["labels"]
    i, j = order.index(0), order.index(1)
    assert found["share"][i][j] == pytest.approx(2 / 3, abs=1e-6)  # of the rows with label 0
    assert found["share"][j][i] == pytest.approx(1, abs=1e-6)
    pair = next(each for each in found["pairs"] if set(each["labels"]) == {0, 1})
    assert pair["share"] == pytest.approx(0.5)
    assert pair["times"] == pytest.approx(0.5 / (0.75 * 0.5))
    assert fit_facts.count_together(Y[:, :1]) is None


def test_additions_and_doubts_are_those_of_the_completion(world):
    facts = fit_facts.describe_completion(world.done, world.items)
    added = facts["additions"]
    assert added["n_added"] == int(world.done.added.sum()) > 0
    assert [line["added"] for line in added["labels"]] == world.done.added.sum(0).tolist()
    assert added["expected_precision"] == pytest.approx(float(world.done.probability[world.done.added].mean()))
    assert added["labels_per_row"][0] == pytest.approx(np.nansum(world.done.prior))
    worth = Judgement.of(world.done).worth
    assert [each["expected_errors"] for each in facts["doubts"]] == sorted(worth, reverse=True)[:12]
    first = facts["doubts"][0]
    row = int(first["item"].removeprefix("row "))
    assert first["fields"][0] == ["a", f"{world.items.X[row, 0]:.4g}"]
    for name, probability, is_added in first["doubtful"]:
        assert probability == pytest.approx(float(world.done.probability[row, int(name)]))
        assert is_added == world.done.added[row, int(name)]
    assert json.loads(json.dumps(facts)) == facts


def test_calibration_leaves_out_the_answers_of_the_rows_it_judges(world):
    found = fit_facts.describe_completion(world.done, world.items)["calibration"]
    assert found["rows"] == N_REVIEWED
    assert found["model"] == []
    n_open = N_REVIEWED * C - N_REVIEWED  # one label of each row stays known
    assert sum(each["n"] for each in found["held_out"]) == n_open
    n_yes = int(world.Y[:N_REVIEWED].sum()) - N_REVIEWED
    assert sum(each["yes"] for each in found["held_out"]) == n_yes
    probability, is_open = fit_facts._judge_again(world.done, np.arange(N_REVIEWED))
    assert ((probability[is_open] > 0) & (probability[is_open] < 1)).all()
    assert (probability[~is_open] == 1).all()


def test_calibration_of_a_model_that_did_not_learn_from_the_rows(world):
    unseen = np.full((N, C), 0.3)
    facts = fit_facts.describe_completion(world.done, world.items, unseen)
    assert facts["calibration"]["model"] == bin_entries(unseen[:N_REVIEWED].ravel(), world.Y[:N_REVIEWED].ravel())
    assert {"model", "held_out", "frequency"} == set(facts["quality"][0]["scores"])


def test_without_reviewed_rows_there_is_no_calibration(world):
    known = np.where(world.known == 1, 1.0, 0.0)
    with pytest.warns(UserWarning, match="not promised"):
        done = complete_labels(None, known, held_out=world.held_out, random_state=0)
    facts = fit_facts.describe_completion(done, world.items)
    assert facts["calibration"] is None
    assert facts["additions"]["warning"].startswith("the precision of the added labels is not promised")


def test_images_are_made_small_and_lost_ones_are_named(tmp_path):
    Image.new("RGB", (1600, 800), "red").save(tmp_path / "a.png")
    items = ImageItems(["a.png", "b.png"], [str(tmp_path / "a.png"), str(tmp_path / "b.png")], tmp_path)
    uri, note = fit_facts._read_image(items, 0)
    assert note == ""
    kind, _, content = uri.partition(";base64,")
    assert kind == "data:image/jpeg"
    assert Image.open(io.BytesIO(base64.b64decode(content))).size == (320, 160)
    assert fit_facts._read_image(items, 1) == ("", "image 'b.png' is no longer there.")


def test_a_label_that_is_a_script_stays_text(world):
    bad = "<script>alert(1)</script>"
    labels = Labels.from_arrays(world.Y[:50], 1 - world.Y[:50], [bad, *"abcd"])
    done = complete_labels(None, labels, held_out=world.held_out[:50], random_state=0)
    facts = fit_facts.describe_completion(done, world.items) | fit_facts.describe_labels(labels)
    html = render_fit(facts | {"labels": [bad, *"abcd"]} | fit_facts.describe_probabilities(np.full((50, 5), 0.3)))
    assert "<script" not in html
    assert "&lt;script&gt;" in html
