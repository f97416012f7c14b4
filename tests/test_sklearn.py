"""scikit-learn's own checks, on every method that tabular data can run without more than X and y."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from onepos import SinglePositiveClassifier
from onepos.methods import METHODS

pytestmark = pytest.mark.usefixtures("short_cross_fit")

SPARSE = "wants 1-D predictions for a 1-D y; predict gives an (n, c) indicator always (sparse X: see test_estimator)"
EXPECTED_FAILURES = {"check_estimator_sparse_array": SPARSE, "check_estimator_sparse_matrix": SPARSE}

CANDIDATES = [name for name, factory in METHODS.items() if not factory().requires]


def make(name):
    """With the number of labels per row, where a method must be told it; small enough for data with one label."""
    method = METHODS[name]()
    return method.set_params(cardinality=0.9) if "cardinality" in method.privileged else method


@parametrize_with_checks(
    [SinglePositiveClassifier(make(name), epochs=4) for name in CANDIDATES],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
    xfail_strict=True,
)
def test_scikit_learn(estimator, check):
    check(estimator)


def test_every_method_is_checked_or_needs_more():
    assert {name for name in METHODS if name not in CANDIDATES} == {
        "crisp-val",
        "full",
        *(name for name in METHODS if METHODS[name]().requires & {"maps", "views"}),
    }
