"""Recipes: every entry fits its method, every number has a source."""

import numpy as np
import pytest

from onepos.estimator import SinglePositiveClassifier
from onepos.methods import METHODS, make_method
from onepos.recipes import find_recipe, read_recipes

Y = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1]])
ENTRIES = [(method, dataset) for method, entries in read_recipes().items() for dataset in entries]


@pytest.mark.parametrize(("method", "dataset"), ENTRIES)
def test_an_entry_fits_its_method(method, dataset):
    assert method in METHODS
    recipe = find_recipe(method, dataset, Y)
    assert len(recipe.source) > 10
    made = make_method(method, **recipe.parameters)
    for name, value in recipe.parameters.items():
        assert getattr(made, name) == value
    SinglePositiveClassifier(made).set_params(**recipe.plan)


def test_numbers_from_full_labels():
    assert find_recipe("epr", "anything", Y).parameters == {"k": 2.0}
    with pytest.raises(ValueError, match="the recipe of epr needs the cardinality, which only full labels tell"):
        find_recipe("epr", "yeast")


def test_no_entry_means_defaults():
    assert find_recipe("an", "yeast").parameters == {}
    assert find_recipe("an", "yeast").source == "defaults"


def test_own_entry_goes_before_the_general_one():
    assert find_recipe("smile", "yeast").parameters["mu"] == 0.5
    assert find_recipe("smile", "unheard-of").parameters == {}
