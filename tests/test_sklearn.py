"""scikit-learn's own checks: all of them on two methods, on the others those that a method can break."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from onepos import SinglePositiveClassifier
from onepos.methods import METHODS

pytestmark = pytest.mark.usefixtures("short_cross_fit")

SPARSE = "wants 1-D predictions for a 1-D y; predict gives an (n, c) indicator always (sparse X: see test_estimator)"
EXPECTED_FAILURES = {"check_estimator_sparse_array": SPARSE, "check_estimator_sparse_matrix": SPARSE}

IN_FULL = ("crisp-plus", "crisp")
CANDIDATES = [name for name, factory in METHODS.items() if not factory().requires]

# Parameters and state live in the method; everything else in these checks is the estimator's.
TELLING = {
    "check_estimator_cloneable",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_dict_unchanged",
    "check_fit_idempotent",
    "check_methods_subset_invariance",
    "check_fit2d_1sample",
}


def make(name):
    """With the mean number of labels per row, where a method needs it; small enough for data with one label."""
    method = METHODS[name]()
    return method.set_params(cardinality=0.9) if "cardinality" in method.privileged else method


def cases():
    for name in CANDIDATES:
        for estimator, check in estimator_checks_generator(SinglePositiveClassifier(make(name), epochs=4)):
            about = getattr(check, "func", check).__name__
            if name in IN_FULL or about in TELLING:
                reason = EXPECTED_FAILURES.get(about)
                marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
                yield pytest.param(estimator, check, id=f"{name}-{about}", marks=marks)


@pytest.mark.parametrize(("estimator", "check"), list(cases()))
def test_scikit_learn(estimator, check):
    check(estimator)


def test_every_method_is_checked_or_needs_more():
    assert {name for name in METHODS if name not in CANDIDATES} == {
        "crisp-val",
        "full",
        *(name for name in METHODS if METHODS[name]().requires & {"maps", "views"}),
    }
    names = {
        getattr(check, "func", check).__name__ for _, check in estimator_checks_generator(SinglePositiveClassifier())
    }
    assert names >= TELLING | EXPECTED_FAILURES.keys()
