"""Recipes: every entry fits its method, every number has a source."""

import numpy as np
import pytest

from onepos.bench.recipes import find_recipe, read_recipes
from onepos.images.classifier import SinglePositiveImageClassifier
from onepos.methods import METHODS, make_method

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
    SinglePositiveImageClassifier(made).set_params(**recipe.plan)


def test_numbers_from_full_labels():
    assert find_recipe("epr", "anything", Y).parameters == {"cardinality": 2.0}
    with pytest.raises(ValueError, match="the recipe of epr needs the cardinality, which only full labels tell"):
        find_recipe("epr", "yeast")


def test_no_entry_means_defaults():
    assert find_recipe("an", "yeast").parameters == {}
    assert find_recipe("an", "yeast").source == "defaults"


def test_own_entry_goes_before_the_general_one():
    assert find_recipe("smile", "yeast").parameters["mu"] == 0.5
    assert find_recipe("smile", "unheard-of").parameters == {}


# The rows of the paper's table of images.
TABLE_1 = ["an", "an-ls", "wan", "epr", "role", "em", "em-apl", "smile", "mime", "plc"]
TABLE_1 += [f"{boost}ll-{kind}" for boost in ("", "boostlu+") for kind in ("r", "ct", "cp")]
TABLE_1 += ["crisp", "crisp-3ep", "crisp-val"]


@pytest.mark.parametrize("dataset", ["voc", "coco", "nuswide", "cub"])
@pytest.mark.parametrize("method", TABLE_1)
def test_images_have_recipes(method, dataset):
    """How long to train is known of all, and no full labels are needed."""
    recipe = find_recipe(method, dataset)
    assert recipe.plan["epochs"] >= 10
    assert "*" in read_recipes()[method] or dataset in read_recipes()[method]


@pytest.mark.parametrize(
    ("method", "dataset", "name", "value"),
    [
        ("role", "cub", "cardinality", 31.4),
        ("epr", "coco", "cardinality", 2.9),
        ("em", "voc", "alpha", 0.2),
        ("em-apl", "cub", "warmup", 3),
        ("em-apl", "coco", "beta", 0.9),
        ("ll-r", "nuswide", "delta_rel", 0.4),
        ("ll-cp", "voc", "delta_rel", 0.1),
        ("boostlu+ll-ct", "cub", "delta_rel", 0.2),
        ("plc", "cub", "tau_first", 0.5),
        ("plc", "voc", "tau_first", 0.6),
        ("mime", "cub", "warmup", 5),
    ],
)
def test_numbers_of_the_image_sets(method, dataset, name, value):
    assert find_recipe(method, dataset).parameters[name] == value


def test_features_of_images_are_rows_like_others():
    """What is for feature maps is for the images alone."""
    assert find_recipe("mime", "voc").parameters["per_label"]
    assert "per_label" not in find_recipe("mime", "voc2012-features").parameters
    assert "graph" not in find_recipe("smile", "voc2012-features").parameters
