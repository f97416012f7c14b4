"""SinglePositiveClassifier: what goes in, what comes out, what is refused."""

import pickle
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.metrics import label_ranking_average_precision_score
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from torch import nn

from onepos import CRISP, CRISPPlus, SinglePositiveClassifier
from onepos.methods import AN, METHODS, make_method
from onepos.metrics import average_precision, evaluate
from onepos.training.task import needs


def classifier(method="crisp", **parameters):
    return SinglePositiveClassifier(method, **({"epochs": 5, "random_state": 0} | parameters))


def test_shapes_and_ranges(toy):
    X, Y, observed = toy
    model = classifier(threshold=0.5).fit(X, observed)
    logits, probability, predicted = model.decision_function(X), model.predict_proba(X), model.predict(X)
    assert logits.shape == probability.shape == predicted.shape == (60, 4)
    assert predicted.dtype == np.int64
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-logits)))
    np.testing.assert_array_equal(predicted, probability > 0.5)
    assert model.score(X, Y) == pytest.approx(label_ranking_average_precision_score(Y, logits))
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.class_prior_.shape == model.thresholds_.shape == (4,)
    assert (model.class_prior_interval_[:, 0] <= model.class_prior_).all()
    assert (model.class_prior_interval_[:, 1] >= model.class_prior_).all()
    assert len(model.history_.loss) == 5


def test_probabilities_stay_strictly_inside(toy):
    X, _, observed = toy
    model = classifier("an", epochs=2).fit(X, observed)
    with torch.no_grad():
        model.method_.head.bias.copy_(torch.tensor([1e4, -1e4, 0, 0]))
    probability = model.predict_proba(X)
    assert ((probability > 0) & (probability < 1)).all()


@pytest.mark.parametrize("form", ["ints", "strings", "series", "categories", "objects", "list"])
def test_a_vector_of_labels(toy, form):
    X, _, observed = toy
    index = observed.argmax(1)
    words = np.array(["ant", "bee", "cat", "dog"])[index]
    y = {
        "ints": index * 10,
        "strings": words,
        "series": pd.Series(words),
        "categories": pd.Series(words, dtype="category"),
        "objects": words.astype(object),
        "list": words.tolist(),
    }[form]
    model = classifier("an").fit(X, y)
    expected = [0, 10, 20, 30] if form == "ints" else ["ant", "bee", "cat", "dog"]
    assert model.classes_.tolist() == expected
    reference = classifier("an").fit(X, observed)
    np.testing.assert_array_equal(model.predict_proba(X), reference.predict_proba(X))
    assert model.score(X, y) == pytest.approx(average_precision(observed, reference.decision_function(X)))


def test_indicator_forms_agree_and_frames_name_the_classes(toy):
    X, _, observed = toy
    reference = classifier("an").fit(X, observed).predict_proba(X)
    for y in (observed.tolist(), sp.csr_array(observed), observed.astype(bool), observed.astype(float)):
        np.testing.assert_array_equal(classifier("an").fit(X, y).predict_proba(X), reference)
    frame = pd.DataFrame(observed, columns=list("wxyz"))
    model = classifier("an").fit(X, frame)
    assert model.classes_.tolist() == list("wxyz")
    turned = frame[["z", "w", "y", "x"]]
    assert model.score(X, turned) == pytest.approx(model.score(X, observed)), "columns are matched by name"


def test_sparse_and_frames_of_features(toy):
    X, _, observed = toy
    X = X * (np.abs(X) > 0.5)
    dense = classifier().fit(X, observed)
    sparse = classifier().fit(sp.csr_array(X), observed)
    np.testing.assert_allclose(sparse.predict_proba(sp.csr_array(X)), dense.predict_proba(X), atol=1e-4)
    frame = pd.DataFrame(X, columns=[f"feature {k}" for k in range(8)])
    named = classifier().fit(frame, observed)
    assert named.feature_names_in_.tolist() == frame.columns.tolist()
    np.testing.assert_allclose(named.predict_proba(frame), dense.predict_proba(X), rtol=1e-6)


@pytest.mark.parametrize(("scale", "changes"), [("clipped", False), ("standard", False), ("none", True)])
def test_standardisation(toy, scale, changes):
    X, _, observed = toy
    first = classifier("an", scale=scale).fit(X, observed).predict_proba(X)
    second = classifier("an", scale=scale).fit(1000 * X + 5, observed).predict_proba(1000 * X + 5)
    assert np.allclose(first, second, atol=1e-3) != changes


@pytest.mark.parametrize("network", ["linear", "mlp", "wide", "bottleneck", nn.Sequential(nn.Linear(8, 5), nn.Tanh())])
def test_networks(toy, network):
    X, _, observed = toy
    model = classifier("an", network=network, hidden=(16, 8), lr=0.01, epochs=20).fit(X, observed)
    assert model.score(X, observed) > 0.6
    assert model.network is network, "fit leaves parameters as they are"


def test_a_batch_larger_than_the_data_and_one_row(toy):
    X, _, observed = toy
    assert classifier(batch_size=999).fit(X, observed).predict(X).shape == (60, 4)
    one = classifier("an").fit(X[:1], ["a"])
    assert one.predict_proba(X).shape == (60, 1)


def test_thresholds(toy):
    X, _, observed = toy
    given = classifier(threshold=0.75).fit(X, observed)
    assert given.thresholds_.tolist() == [0.75] * 4
    np.testing.assert_array_equal(given.predict(X), given.predict_proba(X) > 0.75)
    matched = classifier(threshold="prior", epochs=8).fit(X, observed)
    share = matched.predict(X).mean(0)
    np.testing.assert_allclose(share, matched.class_prior_, atol=1 / 60)


class TestNamesInTheOutput:
    @pytest.fixture
    def model(self, toy):
        X, _, observed = toy
        return classifier("an").fit(X, np.array(["ant", "bee", "cat", "dog"])[observed.argmax(1)])

    def test_labels_by_name_the_most_probable_first(self, toy, model):
        X = toy[0]
        probability = model.predict_proba(X)
        for options, chosen in (
            ({}, probability > model.thresholds_),
            ({"threshold": 0.2}, probability > 0.2),
            ({"top_k": 3}, model.predict(X, top_k=3) == 1),
        ):
            labels = model.predict_labels(X, **options)
            assert len(labels) == 60
            for names, p, marks in zip(labels, probability, chosen, strict=True):
                assert names == [model.classes_[j] for j in np.argsort(-p) if marks[j]]
        assert any(len(names) > 1 for names in labels)
        assert type(labels[0][0]) is str
        assert model.predict_labels(X, threshold=1.0) == [[]] * 60

    def test_labels_that_are_numbers_are_plain_numbers(self, toy):
        X, _, observed = toy
        labels = classifier("an").fit(X, observed.argmax(1) * 10).predict_labels(X[:2], top_k=1)
        assert all(type(name) is int and name % 10 == 0 for (name,) in labels)

    def test_data_frames(self, toy, model):
        X = pd.DataFrame(toy[0], index=[f"row {k}" for k in range(60)])
        for values in (model.predict_proba(toy[0]), model.predict(toy[0]), model.decision_function(toy[0])):
            frame = model.to_frame(values, X)
            assert frame.columns.tolist() == ["ant", "bee", "cat", "dog"]
            assert frame.index.tolist() == X.index.tolist()
            np.testing.assert_array_equal(frame.to_numpy(), values)
        assert model.to_frame(values).index.tolist() == list(range(60))
        assert model.to_frame(values, toy[0]).index.tolist() == list(range(60)), "an array has no index"
        with pytest.raises(ValueError, match=r"one column per label, 4 in all; the shape is \(60, 3\)"):
            model.to_frame(values[:, :3])

    def test_a_frame_of_scores_is_matched_with_a_frame_of_labels(self, toy, model):
        X, Y, _ = toy
        probability = model.predict_proba(X)
        labels = pd.DataFrame(Y, columns=["ant", "bee", "cat", "dog"])[["dog", "cat", "bee", "ant"]]
        assert evaluate(labels, model.to_frame(probability)) == evaluate(Y, probability)


def test_any_number_of_positives(toy):
    X, Y, _observed = toy
    partial = Y.copy()
    partial[::3] = 0
    model = classifier(positives="any").fit(X, partial)
    assert np.isfinite(model.predict_proba(X)).all()
    labels = np.array(["a", "b", None, "c"], dtype=object)[np.arange(60) % 4]
    model = classifier(positives="any").fit(X, labels)
    assert model.classes_.tolist() == ["a", "b", "c"]
    numbers = np.where(np.arange(60) % 4 == 0, np.nan, np.arange(60) % 4)
    assert classifier(positives="any").fit(X, numbers).classes_.tolist() == [1, 2, 3]


def test_full_and_single_validation(toy):
    X, Y, observed = toy
    full = classifier(epochs=8).fit(X[:40], observed[:40], validation=(X[40:], Y[40:]))
    single = classifier(epochs=8).fit(X[:40], observed[:40], validation=(X[40:], observed[40:].argmax(1)))
    assert full.history_.validation != single.history_.validation
    for model, labels in ((full, Y), (single, observed)):
        best = model.history_.best_epoch
        assert model.history_.validation[best] == pytest.approx(
            average_precision(labels[40:], model.decision_function(X[40:])), abs=1e-6
        )


def test_resume_through_the_estimator(toy, tmp_path):
    X, _, observed = toy

    def stop(epoch, _):
        if epoch == 2:
            raise KeyboardInterrupt

    straight = classifier(epochs=6).fit(X, observed)
    with pytest.raises(KeyboardInterrupt):
        classifier(epochs=6).fit(X, observed, checkpoint=tmp_path / "c", on_epoch=stop)
    resumed = classifier(epochs=6).fit(X, observed, checkpoint=tmp_path / "c")
    np.testing.assert_array_equal(straight.decision_function(X), resumed.decision_function(X))


def test_never_observed_label_warns_and_its_prior_is_unknown(toy):
    X, _, observed = toy
    observed = observed.copy()
    observed[observed[:, 2] == 1] = [1, 0, 0, 0]
    frame = pd.DataFrame(observed, columns=["ant", "bee", "cat", "dog"])
    with pytest.warns(UserWarning, match=r"1 of 4 labels are never observed \('cat'\): their class prior is unknown"):
        model = classifier().fit(X, frame)
    assert np.isnan(model.class_prior_).tolist() == [False, False, True, False]
    assert np.isnan(model.class_prior_interval_[2]).all()
    assert np.isfinite(model.predict_proba(X)).all()


class TestScikitLearn:
    def test_clone_and_pickle(self, toy):
        X, _, observed = toy
        model = classifier(CRISP(delta=0.05), network=nn.Linear(8, 3)).fit(X, observed)
        twin = clone(model)
        assert not hasattr(twin, "network_")
        assert twin.method.delta == 0.05
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))

    def test_grid_search_over_a_parameter_of_the_method_in_a_pipeline(self, toy):
        X, _, observed = toy
        pipeline = make_pipeline(MinMaxScaler(), classifier(CRISP(warmup=1), epochs=2))
        search = GridSearchCV(pipeline, {"singlepositiveclassifier__method__delta": [0.01, 0.1]}, cv=2)
        search.fit(pd.DataFrame(X), observed)
        assert search.best_params_["singlepositiveclassifier__method__delta"] in (0.01, 0.1)
        assert search.predict(pd.DataFrame(X)).shape == (60, 4)

    def test_parameters_of_a_method_given_by_name(self, toy):
        X, _, observed = toy
        search = GridSearchCV(classifier("crisp", epochs=2), {"method__delta": [0.01, 0.1]}, cv=2).fit(X, observed)
        assert search.best_estimator_.method_.delta in (0.01, 0.1)
        model = classifier("crisp").set_params(method="crisp-3ep", method__lam=0.5)
        assert (model.method.every, model.method.lam) == (3, 0.5)
        with pytest.raises(ValueError, match="Invalid parameter 'lambda'"):
            classifier("crisp").set_params(method__lambda=1)

    def test_cross_val_predict(self, toy):
        X, _, observed = toy
        out = cross_val_predict(classifier("an", epochs=2), X, observed, cv=3, method="predict_proba")
        assert out.shape == (60, 4)

    def test_seeds(self, toy):
        X, _, observed = toy

        def fitted(state):
            return classifier("an", random_state=state, epochs=2).fit(X, observed).predict_proba(X)

        np.testing.assert_array_equal(fitted(3), fitted(3))
        assert not np.array_equal(fitted(3), fitted(4))
        assert not np.array_equal(fitted(None), fitted(None))
        np.testing.assert_array_equal(fitted(np.random.RandomState(0)), fitted(np.random.RandomState(0)))

    def test_not_fitted(self):
        with pytest.raises(NotFittedError):
            classifier().predict(np.ones((2, 3)))
        with pytest.raises(NotFittedError):
            classifier().save("nowhere")


def with_value(matrix, row, column, value):
    changed = np.array(matrix, dtype=float)
    changed[row, column] = value
    return changed


class TestBadInput:
    """Every row of the design's table of bad input that reaches `fit`: one sentence, asserted."""

    def refused(self, sentence, X, y, kind=ValueError, fit=None, **parameters):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(kind, match=sentence):
                classifier(**parameters).fit(X, y, **(fit or {}))

    def test_features(self, toy):
        X, _, observed = toy
        self.refused(
            r"X must be finite; row 3, column 7 holds NaN\. Fill in or drop", with_value(X, 3, 7, np.nan), observed
        )
        self.refused(r"X must be finite; row 0, column 1 holds -inf\.", with_value(X, 0, 1, -np.inf), observed)
        bad = sp.csr_array(with_value(X * (X > 0), 5, 2, np.nan))
        self.refused(r"X must be finite; row 5, column 2 holds NaN\.", bad, observed)
        self.refused("Expected 2D array, got 1D array", X[:, 0], observed)
        self.refused("Found array with 0 sample", X[:0], observed[:0])
        self.refused("Found array with 0 feature", X[:, :0], observed)

    def test_huge_but_finite_features_are_fine(self, toy):
        X, _, observed = toy
        assert np.isfinite(classifier("an").fit(X * 1e300, observed).predict_proba(X * 1e300)).all()

    def test_number_of_features_at_prediction(self, toy):
        X, _, observed = toy
        with pytest.raises(ValueError, match="X has 7 features, but SinglePositiveClassifier is expecting 8 features"):
            classifier("an").fit(X, observed).predict(X[:, :7])

    def test_labels(self, toy):
        X, Y, observed = toy
        crowded = int(np.argmax(Y.sum(1) > 1))
        self.refused(
            rf"y must hold exactly one positive label per row; .* rows hold several, the first is row {crowded} .* "
            r"draw_single_positive\(\) .*, or accept any number with positives='any'",
            X,
            np.where(np.arange(60)[:, None] < crowded, observed, Y),
        )
        self.refused("1 of 60 rows hold none, the first is row 4 ", X, with_value(observed, 4, slice(None), 0))
        self.refused(r"y must hold only 0 and 1; row 2, column 1 holds .*-1", X, with_value(observed, 2, 1, -1))
        self.refused(
            "row 6 holds none \\(NaN\\). Drop the row", X, with_value(np.arange(60)[:, None] % 3, 6, 0, np.nan).ravel()
        )
        self.refused("X and y must have the same number of rows; X has 60, y has 59", X, observed[:59])
        self.refused("requires y to be passed, but the target y is None", X, None)
        self.refused("Unknown label type: continuous", X, np.linspace(0, 1, 60))
        self.refused("y must be a vector of labels or an indicator matrix; got 3 dimensions", X, np.ones((60, 2, 2)))
        self.refused("every row is without", X, np.full(60, np.nan), positives="any")
        self.refused(r"with at least one of each; its shape is \(60, 0\)", X, np.ones((60, 0)))
        self.refused("its rows differ in length", X, [[1, 0]] * 59 + [[1]])
        self.refused("all ints or all strings; it mixes int, str", X, np.array([1, "a"] * 30, dtype=object))
        self.refused("a label must be an int or a string; y holds a frozenset", X, [{frozenset("a")}] * 60)
        missing = pd.Series(["a", "b", None] * 20, dtype="string")
        self.refused("row 2 holds none", X, missing)
        assert classifier("an", positives="any").fit(X, missing).classes_.tolist() == ["a", "b"]
        assert classifier("an").fit(X, pd.DataFrame({"tag": ["a", "b"] * 30})).classes_.tolist() == ["a", "b"]
        named = classifier("an").fit(X, np.array(list("abcd"))[observed.argmax(1)])
        with pytest.raises(
            ValueError, match="the columns of Y must be the labels the model was fitted with; 'A' is none"
        ):
            named.score(X, pd.DataFrame(Y, columns=list("ABCD")))

    def test_column_vector_warns(self, toy):
        X, _, observed = toy
        with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
            classifier("an", epochs=1).fit(X, observed.argmax(1)[:, None])

    def test_validation(self, toy):
        X, Y, observed = toy
        self.refused("validation must be a pair", X, observed, fit={"validation": X})
        self.refused(
            "Y must have one column per label, 4 in all; it has 3", X, observed, fit={"validation": (X, Y[:, :3])}
        )
        words = np.array(["ant", "bee", "cat", "dog"])[observed.argmax(1)]
        wrong = words.copy()
        wrong[7] = "eel"
        self.refused(
            r"every label must be one the model was fitted with; row 7 holds .*eel",
            X,
            words,
            fit={"validation": (X, wrong)},
        )

    @pytest.mark.parametrize(
        ("parameters", "sentence"),
        [
            ({"method": "cirsp"}, "unknown method 'cirsp'; did you mean 'crisp'?"),
            ({"method": "zzzz"}, "unknown method 'zzzz'; choose from full, an"),
            ({"network": "mpl"}, "unknown network 'mpl'; did you mean 'mlp'?"),
            ({"scale": "minmax"}, "scale must be 'clipped' or 'standard' or 'none'; got 'minmax'"),
            ({"positives": "many"}, "positives must be 'single' or 'any'; got 'many'"),
            ({"bias_init": "prior"}, "bias_init must be 'frequency' or 'zero'; got 'prior'"),
            ({"epochs": 0}, "epochs must be a whole number of at least 1; got 0"),
            ({"batch_size": 2.5}, "batch_size must be a whole number of at least 1; got 2.5"),
            ({"threshold": 1.5}, "threshold must be a number from 0 to 1, 'prior', 'f1', 'hamming' or .*; got 1.5"),
            ({"threshold": "precision=2"}, "'precision=P' with P from 0 to 1; got 'precision=2'"),
            ({"min_labels": -1}, "min_labels must be a whole number of at least 0; got -1"),
            ({"min_labels": "one"}, "min_labels must be a whole number of at least 0; got 'one'"),
            ({"min_labels": 5}, "min_labels must be at most 4, the number of labels; got 5"),
            ({"lr": -1}, "lr must be a number and not negative; got -1"),
            ({"lr": "fast"}, "lr must be a number and not negative; got 'fast'"),
            ({"hidden": 16}, "hidden must be whole widths of at least 1"),
            ({"hidden": (0,)}, "hidden must be whole widths of at least 1"),
            ({"method": CRISP}, "method must be a name or a Method object"),
            ({"network": nn.Linear(7, 3)}, r"network must take inputs \(B, 8\) in single precision"),
            ({"precision": "16"}, "precision must be '32' or 'bf16'; got '16'"),
        ],
    )
    def test_parameters(self, toy, parameters, sentence):
        self.refused(sentence, toy[0], toy[2], **parameters)


def test_every_random_number_follows_from_random_state(toy, short_cross_fit):
    """Also those of the held-out predictions, from which the priors of the default method follow."""
    X, _, observed = toy
    method = CRISPPlus(cardinality=1.8)

    def fit(seed):
        return SinglePositiveClassifier(method, epochs=1, device="cpu", random_state=seed).fit(X, observed)

    first, again, other = fit(0), fit(0), fit(1)
    np.testing.assert_array_equal(first.class_prior_, again.class_prior_)
    np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))
    assert not np.allclose(first.class_prior_, other.class_prior_, atol=1e-6)


def test_a_fitted_model_keeps_no_targets_of_its_rows(toy, short_cross_fit):
    X, _, observed = toy
    method = CRISPPlus(cardinality=1.8)
    fitted = SinglePositiveClassifier(method, epochs=1, random_state=0).fit(X, observed)
    held = [*fitted.method_.buffers(), *fitted.network_.buffers(), *fitted.network_.parameters()]
    assert not any(len(X) in tensor.shape for tensor in held)
    twin = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(twin.predict_proba(X), fitted.predict_proba(X))


class TestEarlyStopping:
    """Without validation rows `fit` looks for the number of epochs by itself."""

    @pytest.fixture(scope="class")
    def noisy(self):
        """150 rows of 40 features, of which three tell something of the label: whoever trains on learns the rest."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(150, 40))
        return X, (X[:, :3] + rng.normal(size=(150, 3))).argmax(1)

    def fit(self, data, method="an", fit=None, **parameters):
        return classifier(method, **({"epochs": 30, "lr": 0.01} | parameters)).fit(*data, **(fit or {}))

    def test_a_method_that_overfits_gets_fewer_epochs(self, noisy):
        model = self.fit(noisy)
        search = model.history_.search
        assert len(search) == 30
        assert len(model.history_.loss) == np.argmax(search) + 1 < 20
        assert model.history_.best_epoch == np.argmax(search)
        assert model.epochs == 30, "fit leaves parameters as they are"

    def test_the_model_is_that_of_a_training_on_all_rows_that_ends_there(self, noisy):
        """With the schedules of the whole plan: nothing but the end is different."""
        snapshots = []

        class Watched(AN):
            def end_epoch(self, train):
                snapshots.append((train.n_epochs, train.n_samples, self.head.weight.detach().clone()))

        self.fit(noisy, Watched(), early_stopping=False)
        whole, snapshots[:] = list(snapshots), []
        model = self.fit(noisy, Watched())
        n_epochs = len(model.history_.loss)
        searched, trained = snapshots[:30], snapshots[30:]
        assert {(n, rows) for n, rows, _ in searched} == {(30, 120)}
        assert {(n, rows) for n, rows, _ in trained} == {(30, 150)}
        assert len(trained) == n_epochs
        assert torch.equal(trained[-1][2], whole[n_epochs - 1][2])

    def test_validation_rows_choose_in_its_place(self, noisy):
        X, y = noisy
        model = self.fit((X[:100], y[:100]), fit={"validation": (X[100:], y[100:])})
        assert model.history_.search == []
        assert len(model.history_.loss) == 30

    @pytest.mark.parametrize("method", ["an", "crisp-plus"])
    def test_not_where_it_is_not_wanted(self, noisy, method, short_cross_fit):
        """Switched off, or not of use to the method."""
        model = self.fit(noisy, method, epochs=3, early_stopping=method == "crisp-plus")
        assert model.history_.search == []
        assert len(model.history_.loss) == 3

    @pytest.mark.parametrize(("n_rows", "searched"), [(49, False), (50, True)])
    def test_few_rows_are_all_trained_on(self, noisy, n_rows, searched):
        """Of fewer than fifty a fifth is too few to choose by."""
        X, y = noisy
        model = self.fit((X[:n_rows], y[:n_rows]), epochs=3)
        assert (len(model.history_.search) == 3) == searched
        assert searched or len(model.history_.loss) == 3

    def test_rows_without_a_label_are_not_held_out(self, noisy):
        X, y = noisy
        labels = np.where(np.arange(150) < 49, y.astype(float), np.nan)
        model = self.fit((X, labels), epochs=3, positives="any")
        assert model.history_.search == []

    @pytest.mark.parametrize("method", [name for name in METHODS if not needs(make_method(name))])
    def test_of_every_method(self, method, toy, short_cross_fit):
        """Schedules and warm-ups are not cut short by the end that was found."""
        X, _, observed = toy
        method = make_method(method)
        if "cardinality" in method.privileged:
            method.set_params(cardinality=1.9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = self.fit((X, observed), method, epochs=6)
        assert np.isfinite(model.predict_proba(X)).all()
        assert len(model.history_.search) == (6 if method.stops_early else 0)

    def test_it_is_told(self, noisy):
        told = []
        self.fit(noisy, epochs=4, fit={"on_progress": lambda *report: told.append(report)})
        assert told == [("choosing the number of epochs", epoch, 4) for epoch in (1, 2, 3, 4)]

    def test_a_fit_that_was_stopped_goes_on(self, noisy, tmp_path):
        """In the search, and in the training."""
        straight = self.fit(noisy)
        for n_reports in (5, 31):
            file, told = tmp_path / f"{n_reports}", []

            def stop(*_, told=told, n_reports=n_reports):
                told.append(1)
                if len(told) == n_reports:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                self.fit(noisy, fit={"checkpoint": file, "on_progress": stop, "on_epoch": stop})
            resumed = self.fit(noisy, fit={"checkpoint": file})
            assert resumed.history_.search == straight.history_.search
            np.testing.assert_array_equal(resumed.predict_proba(noisy[0]), straight.predict_proba(noisy[0]))


class TestTimeLimit:
    """Limits are of seconds, and what is asserted of minutes: no test needs a machine of its own."""

    @pytest.fixture(scope="class")
    def many(self):
        """Enough rows, features and labels for minutes of preparation."""
        rng = np.random.default_rng(0)
        return rng.normal(size=(6000, 100)), rng.integers(0, 60, 6000)

    @pytest.mark.parametrize("method", ["an", "crisp-plus", "crisp"])
    def test_a_fit_that_would_take_hours_ends(self, method, many):
        X, y = many
        began = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model = classifier(method, epochs=10**5).fit(X, y, time_limit=2)
        assert time.monotonic() - began < 90
        assert 1 <= len(model.history_.loss) < 10**5
        probability = model.predict_proba(X[:50])
        assert ((probability > 0) & (probability < 1)).all()

    def test_no_time_at_all_still_gives_a_model(self, toy):
        X, _, observed = toy
        for method in ("an", "crisp-plus"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                model = classifier(method, epochs=10**5).fit(X, observed, time_limit=1e-9)
            assert len(model.history_.loss) == 1
            assert np.isfinite(model.predict_proba(X)).all()

    def test_a_limit_that_is_not_reached_changes_nothing(self, toy, short_cross_fit):
        X, _, observed = toy
        for method in ("an", "crisp-plus"):
            limited, free = (classifier(method).fit(X, observed, time_limit=t).predict_proba(X) for t in (3600, None))
            np.testing.assert_array_equal(limited, free)

    def test_a_fit_that_ran_out_of_time_goes_on(self, toy, tmp_path):
        X, _, observed = toy
        for _ in range(3):
            model = classifier("an", epochs=10**5).fit(X, observed, time_limit=0.5, checkpoint=tmp_path / "c")
            assert np.isfinite(model.predict_proba(X)).all()

    @pytest.mark.parametrize("limit", [0, -1, "1h", float("nan")])
    def test_wrong_limits(self, limit, toy):
        with pytest.raises(ValueError, match=r"time_limit must be a number of seconds above 0; got .* Leave it out"):
            classifier("an").fit(toy[0], toy[2], time_limit=limit)

    def test_progress_of_the_preparation_is_told(self, toy, short_cross_fit):
        told = []
        X, _, observed = toy
        classifier("crisp-plus").fit(X, observed, on_progress=lambda *report: told.append(report))
        names = list(dict.fromkeys(what for what, _, _ in told))
        networks = [f"{kind} models{step}" for kind in ("linear", "layered") for step in (", settings", "")]
        assert names == [f"preparing, {part}" for part in (*networks, "trees", "neighbours")]
        assert all(0 <= done <= total for _, done, total in told)
