"""Wide sparse rows: held-out models see their main directions, and nothing of the size of the whole is made."""

import numpy as np
import scipy.sparse as sp

from onepos import SinglePositiveClassifier, held_out_probabilities
from onepos.methods import crossfit, reduction
from onepos.methods.reduction import WIDE, reduce_rows


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
    found = reduce_rows(rows, 0)
    assert found.dtype == np.float32
    assert len(found) == 300
    assert found.shape[1] <= 300 + 1
    np.testing.assert_array_equal(found[:, 0], rows[:, [0]].toarray()[:, 0])
    before, after = (rows.multiply(rows)).sum(), np.square(found).sum()
    np.testing.assert_allclose(after, before, rtol=1e-4)
    np.testing.assert_array_equal(found, reduce_rows(rows, 0))


def test_rows_of_strong_columns_alone_are_kept():
    rows = sp.csr_array(np.eye(4, dtype=np.float32))
    np.testing.assert_array_equal(reduce_rows(rows, 0), np.eye(4, dtype=np.float32))


def test_held_out_models_of_wide_rows_find_the_topic():
    rows, topic = make_rows()
    fit = held_out_probabilities(rows, topic, random_state=0)
    assert np.mean(fit.probability.argmax(1).numpy() == topic) > 0.95


def test_a_fit_on_wide_sparse_rows_makes_no_dense_matrix(monkeypatch):
    rows, topic = make_rows(n=120)
    seen = []
    monkeypatch.setattr(crossfit, "_standardize", lambda rows: seen.append(rows.shape) or rows)
    monkeypatch.setattr(reduction, "N_DIRECTIONS", 20)
    widths = []
    original = crossfit.cross_fit
    monkeypatch.setattr(
        crossfit, "cross_fit", lambda rows, *a, **k: widths.append(rows.shape) or original(rows, *a, **k)
    )
    model = SinglePositiveClassifier(scale="none", epochs=2, random_state=0).fit(rows, topic)
    assert widths == [(120, 21)]
    assert not seen
    assert model.predict_proba(rows).shape == (120, 2)
