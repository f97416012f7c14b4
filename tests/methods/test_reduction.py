"""Wide sparse rows: models see their main directions, and nothing of the size of the whole is made."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from onepos import SinglePositiveClassifier, export_onnx, held_out_probabilities
from onepos.methods import crossfit, reduction
from onepos.methods.reduction import WIDE, find_directions


def make_rows(n=300, d=WIDE + 500, seed=0):
    """Two topics of text with own words, and a first column of standardized numbers."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, 2, n)
    words = topic[:, None] * (d // 2) + 1 + rng.integers(0, 40, (n, 12))
    text = sp.csr_array((np.full(n * 12, 0.3), (np.repeat(np.arange(n), 12), words.ravel())), shape=(n, d))
    numbers = sp.csr_array((rng.normal(size=n), (np.arange(n), np.zeros(n, int))), shape=(n, d))
    return sp.csr_array((text + numbers).tocsr().astype(np.float32)), topic


def test_strong_columns_stay_and_rows_keep_their_length():
    rows, _ = make_rows()
    found = find_directions(rows, 0).apply(rows)
    assert found.dtype == np.float32
    assert len(found) == 300
    assert found.shape[1] <= 300 + 1
    np.testing.assert_array_equal(found[:, 0], rows[:, [0]].toarray()[:, 0])
    before, after = (rows.multiply(rows)).sum(), np.square(found).sum()
    np.testing.assert_allclose(after, before, rtol=1e-4)
    np.testing.assert_array_equal(found, find_directions(rows, 0).apply(rows))


def test_rows_of_strong_columns_alone_are_kept():
    rows = sp.csr_array(np.eye(4, dtype=np.float32))
    np.testing.assert_array_equal(find_directions(rows, 0).apply(rows), np.eye(4, dtype=np.float32))


def test_held_out_models_of_wide_rows_find_the_topic():
    rows, topic = make_rows()
    fit = held_out_probabilities(rows, topic, random_state=0)
    assert np.mean(fit.probability.argmax(1).numpy() == topic) > 0.95


@pytest.fixture
def few_directions(monkeypatch):
    monkeypatch.setattr(reduction, "N_DIRECTIONS", 20)


def test_a_model_of_wide_sparse_rows_sees_their_directions(few_directions, monkeypatch):
    """The held-out models and the network alike: nothing of the size of the spread out rows is made."""
    rows, topic = make_rows(n=120)
    widths = []
    original = crossfit.cross_fit
    monkeypatch.setattr(crossfit, "cross_fit", lambda X, *a, **k: widths.append(X.shape) or original(X, *a, **k))
    model = SinglePositiveClassifier(scale="none", epochs=2, random_state=0).fit(rows, topic)
    assert widths == [(120, 21)]
    assert model.network_[0][0].in_features == 21
    assert model.predict_proba(rows).shape == (120, 2)


def test_rows_that_are_scaled_or_narrow_are_taken_as_they_are(few_directions):
    rows, topic = make_rows(n=120)
    assert SinglePositiveClassifier("an", scale="clipped", epochs=1).fit(rows, topic).directions_ is None
    assert SinglePositiveClassifier("an", scale="none", epochs=1).fit(rows[:, :WIDE], topic).directions_ is None


@pytest.mark.parametrize("method", ["an", "crisp-plus"])
def test_a_saved_model_reduces_rows_alike(method, few_directions, tmp_path):
    rows, topic = make_rows(n=150)
    model = SinglePositiveClassifier(method, scale="none", epochs=2, random_state=0).fit(
        rows[:120], topic[:120], validation=(rows[120:], np.eye(2)[topic[120:]])
    )
    model.save(tmp_path / "model")
    again = SinglePositiveClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
    alone = np.vstack([model.predict_proba(rows[[k]]) for k in range(5)])
    np.testing.assert_allclose(alone, model.predict_proba(rows)[:5], atol=1e-6)


def test_a_folder_with_directions_of_another_size_is_refused(few_directions, tmp_path):
    rows, topic = make_rows(n=60)
    model = SinglePositiveClassifier("an", scale="none", epochs=1).fit(rows, topic)
    for change in ({"weak": model.directions_.weak + rows.shape[1]}, {"axes": model.directions_.axes[:-1]}):
        broken = copy.copy(model)
        broken.directions_ = model.directions_._replace(**change)
        broken.save(tmp_path / "model")
        with pytest.raises(ValueError, match="the directions of wide rows have the wrong size"):
            SinglePositiveClassifier.load(tmp_path / "model")


def test_an_onnx_file_reduces_rows_alike(few_directions, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    rows, topic = make_rows(n=60)
    model = SinglePositiveClassifier("an", scale="none", epochs=1, random_state=0).fit(rows, topic)
    export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found = session.run(None, {"rows": rows.toarray().astype(np.float64)})[0]
    np.testing.assert_allclose(found, model.predict_proba(rows), atol=1e-5)


def test_a_checkpoint_knows_wide_rows_by_what_they_were(few_directions, tmp_path):
    """The last bits of the directions differ from machine to machine; a fit that was stopped goes on all the same."""
    rows, topic = make_rows(n=80)
    classifier = SinglePositiveClassifier("an", scale="none", epochs=4, random_state=0, early_stopping=False)
    whole = clone(classifier).fit(rows, topic)

    def stop(epoch, history):
        if epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clone(classifier).fit(rows, topic, checkpoint=tmp_path / "checkpoint", on_epoch=stop)
    resumed = clone(classifier).fit(rows, topic, checkpoint=tmp_path / "checkpoint")
    np.testing.assert_allclose(resumed.predict_proba(rows), whole.predict_proba(rows), atol=1e-6)
    other = rows.copy()
    other.data[0] += 1
    with pytest.raises(ValueError, match="checkpoint"):
        clone(classifier).fit(other, topic, checkpoint=tmp_path / "checkpoint")
