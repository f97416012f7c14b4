"""Scorers for scikit-learn: the criteria on folds, also where a fold lacks a label."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from onepos import SCORERS, SinglePositiveClassifier
from onepos.criteria import CRITERIA
from onepos.scoring import Scorer

NAMES = np.array(["ant", "bee", "cat", "dog"])


@pytest.fixture
def words(toy):
    """X and one word per row; 'eel' occurs in the first fold alone, 'fly' in the last one alone."""
    X, _, observed = toy
    y = NAMES[observed.argmax(1)].astype(object)
    y[[3, 50]] = "eel", "fly"
    return X, y


def model(**parameters):
    return SinglePositiveClassifier("an", **({"epochs": 3, "lr": 0.01, "random_state": 0} | parameters))


@pytest.mark.parametrize("name", sorted(SCORERS))
def test_a_scorer_gives_the_criterion(toy, name):
    X, Y, observed = toy
    fitted = model().fit(X, observed)
    expected = CRITERIA[name].function(observed, fitted.decision_function(X), None)
    assert SCORERS[name](fitted, X, observed) == expected
    assert SCORERS[name](fitted, X, observed.argmax(1)) == expected
    assert SCORERS[name](fitted, X, Y) != expected, "several known labels count too"
    frame = pd.DataFrame(observed, columns=NAMES)
    named = model().fit(X, frame)
    assert SCORERS[name](named, X, frame[NAMES[::-1]]) == expected, "columns are matched by name"


def test_higher_is_better_for_every_scorer(toy):
    X, _, observed = toy
    fitted = model().fit(X, observed)
    assert all(CRITERIA[name].greater_is_better for name in SCORERS)
    loss = CRITERIA["ranking_loss"].function(observed, fitted.decision_function(X), None)
    assert Scorer("ranking_loss")(fitted, X, observed) == -loss < 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scoring", [None, *SCORERS.values()], ids=str)
def test_folds_that_lack_a_rare_label_have_a_score(words, scoring):
    """An exception in the scorer would give NaN and a warning of scikit-learn."""
    with warnings.catch_warnings():
        if scoring is None:
            warnings.filterwarnings(
                "ignore", "1 of 15 rows hold a label that the model was not fitted with", UserWarning
            )
        scores = cross_val_score(model(), *words, cv=4, scoring=scoring)
    assert np.isfinite(scores).all()


def test_an_unknown_label_is_a_row_without_label(words):
    X, y = words
    fitted = model().fit(X[15:], y[15:])
    known = y != "eel"
    for scorer in (SCORERS["average_precision"], SCORERS["likelihood"]):
        assert scorer(fitted, X, y) == pytest.approx(scorer(fitted, X[known], y[known]), rel=1e-12)
        assert scorer(fitted, X, np.where(known, y, None)) == scorer(fitted, X, y)
    with pytest.warns(UserWarning, match=r"1 of 60 rows hold a label that the model was not fitted with \('eel'\);"):
        score = fitted.score(X, y)
    assert score == pytest.approx(fitted.score(X[known], y[known]), rel=1e-12)


def test_labels_that_are_all_unknown_are_an_error(words):
    X, y = words
    fitted = model().fit(X, y)
    for score in (SCORERS["map"], lambda estimator, *data: estimator.score(*data)):
        with pytest.raises(ValueError, match="every label must be one the model was fitted with; row 0 holds 'dogs'"):
            score(fitted, X, ["dogs"] * 60)


def test_grid_search_with_several_scorers_in_a_pipeline(words):
    pipeline = make_pipeline(MinMaxScaler(), model())
    grid = {"singlepositiveclassifier__lr": [1e-9, 0.05]}
    search = GridSearchCV(pipeline, grid, cv=4, scoring=SCORERS, refit="pooled_precision").fit(*words)
    assert search.best_index_ == search.cv_results_["mean_test_pooled_precision"].argmax()
    for name in SCORERS:
        assert np.isfinite(search.cv_results_[f"mean_test_{name}"]).all()
    assert search.score(*words) == SCORERS["pooled_precision"](search.best_estimator_, *words)


def test_in_several_processes(toy):
    X, _, observed = toy
    found = cross_validate(model(), X, observed.argmax(1), cv=2, scoring=SCORERS, n_jobs=2)
    assert {f"test_{name}" for name in SCORERS} <= found.keys()
    assert pickle.loads(pickle.dumps(SCORERS)) == SCORERS


def test_classifiers_of_scikit_learn_for_comparison(toy):
    X, _, observed = toy
    y = NAMES[observed.argmax(1)]
    fitted = LogisticRegression().fit(X, y)
    expected = CRITERIA["map"].function(observed, fitted.decision_function(X), None)
    assert SCORERS["map"](fitted, X, y) == expected
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)  # has probabilities alone, some of them 0 or 1
    ranks = CRITERIA["average_precision"].function(observed, forest.predict_proba(X), None)
    assert SCORERS["average_precision"](forest, X, y) == ranks
    assert np.isfinite(SCORERS["likelihood"](forest, X, y))
    with pytest.raises(ValueError, match=r"one score per row and label, 2 labels in all; LogisticRegression gives"):
        SCORERS["map"](LogisticRegression().fit(X, y == "ant"), X, y == "ant")
