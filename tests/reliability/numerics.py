"""Numbers at the edge: every fit gives finite probabilities, or one sentence."""

import warnings

import numpy as np
import scipy.sparse as sp

N, D = 40, 4


def _rows(rng):
    return rng.normal(size=(N, D))


def _labels(rng, c=3):
    return rng.integers(c, size=N)


def _case(X=None, y=None, **options):
    def make(rng):
        return (X or _rows)(rng), (y or _labels)(rng), options

    return make


def _scaled(power):
    return lambda rng: _rows(rng) * 10.0**power


def _huge_column(power):
    def make(rng):
        rows = _rows(rng)
        rows[:, 0] *= 10.0**power
        return rows

    return make


def _many(rng):
    X = sp.csr_array(sp.random_array((200, 20), density=0.2, rng=np.random.default_rng(0)))
    return X, np.arange(20_000)


CASES = {
    "constant rows": _case(lambda rng: np.ones((N, D))),
    "constant column": _case(lambda rng: np.c_[np.ones(N), _rows(rng)]),
    "duplicate rows": _case(lambda rng: np.repeat(_rows(rng)[:4], 10, 0)),
    "one row": _case(lambda rng: _rows(rng)[:1], lambda rng: np.array(["a"])),
    "two rows": _case(lambda rng: _rows(rng)[:2], lambda rng: np.array(["a", "b"])),
    "two labels": _case(y=lambda rng: _labels(rng, 2)),
    "one label for all": _case(y=lambda rng: np.full(N, "a")),
    "every row another label": _case(y=lambda rng: np.arange(N)),
    "features of 1e300": _case(_scaled(300)),
    "features of 1e-300": _case(_scaled(-300)),
    "features of 1e308": _case(lambda rng: np.sign(_rows(rng)) * rng.uniform(1.0, 1.7, (N, D)) * 1e308),
    "one column of 1e300": _case(_huge_column(300)),
    "one column of 1e-300": _case(_huge_column(-300)),
    "features of 1e308, unscaled": _case(lambda rng: np.sign(_rows(rng)) * 1.7e308, scale="none"),
    "features of 1e308, standard": _case(lambda rng: np.sign(_rows(rng)) * 1.7e308, scale="standard"),
    "sparse, 1e300": _case(lambda rng: sp.csr_array(np.where(_rows(rng) > 0, _rows(rng) * 1e300, 0))),
    "features of 1e38": _case(_scaled(38)),
    "learning rate 1e3": _case(lr=1e3),
    "learning rate 1e3, unscaled": _case(_scaled(4), lr=1e3, scale="none"),
    "learning rate 1e30": _case(lr=1e30),
    "learning rate 0": _case(lr=0.0),
    "logits of 1e4": _case(_scaled(4), scale="none"),
    "weight decay 1e6": _case(weight_decay=1e6),
    "batch of 1": _case(batch_size=1),
    "batch beyond the rows": _case(batch_size=10**6),
    "sparse": _case(lambda rng: sp.csr_array(np.where(_rows(rng) > 0, _rows(rng), 0))),
    "integers of 2**60": _case(lambda rng: rng.integers(2**60, size=(N, D))),
    "half precision": _case(lambda rng: _rows(rng).astype(np.float16)),
}


def run_numbers(name, method, seed):
    """("result", text), ("sentence", text) or ("foreign", text) of a fit."""
    from onepos import SinglePositiveClassifier
    from onepos.training.loop import Diverged

    X, y, options = CASES[name](np.random.default_rng(seed))
    model = SinglePositiveClassifier(method, **{"epochs": 2, "hidden": (8,), "random_state": seed, **options})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            probability = model.fit(X, y).predict_proba(X)
            model.predict(X)
        except (ValueError, Diverged) as error:
            text = str(error)
            is_ours = "\n" not in text and text.endswith(".") and type(error) in (ValueError, Diverged)
            return ("sentence" if is_ours else "foreign"), f"{type(error).__name__}: {text}"
        except Exception as error:
            return "foreign", f"{type(error).__name__}: {str(error)[:300]}"
    inside = np.isfinite(probability).all() and (probability > 0).all() and (probability < 1).all()
    odd = [str(each.message) for each in caught if issubclass(each.category, RuntimeWarning)]
    if not inside:
        return "foreign", "probabilities outside (0, 1)"
    return "result", "; ".join(odd[:1])


METHODS = ("an", "wan", "em", "gr", "ll-r", "crisp", "crisp-plus", "smile", "mime")
