"""The demo: a method between its floor (assume negative) and its ceiling (full labels) on digit scenes."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import torch

from onepos import __version__
from onepos.datasets import Dataset, digit_scenes
from onepos.estimator import SinglePositiveClassifier
from onepos.metrics import METRICS, evaluate
from onepos.protocol import draw_single_positive
from onepos.training.loop import History
from onepos.validation import without_nan

# Called with the run's name, the epoch just finished and the number of epochs.
Progress = Callable[[str, int, int], None]


class _Run(NamedTuple):
    name: str
    role: str
    method: str


class Oracle(SinglePositiveClassifier):
    """Given the true labels of training rows, and passes them to a method that requires them."""

    _offers = frozenset({"full labels"})


RUNS = (
    _Run("AN (assume negative)", "floor", "an"),
    _Run("CRISP", "method", "crisp"),
    _Run("CRISP+", "method", "crisp-plus"),
    _Run("full labels (oracle)", "oracle", "full"),
)


def run_demo(
    seed: int = 0, epochs: int = 20, n_samples: int = 6000, progress: Progress | None = None
) -> dict[str, Any]:
    """Train these runs; return all results as a JSON-able dictionary.

    Epochs are chosen on fully labelled validation rows; the test rows are looked at once, at the end.
    """
    data = digit_scenes(n_samples, random_state=seed)
    parts = {part: data.take(rows) for part, rows in (data.splits or {}).items()}
    train, test = parts["train"], parts["test"]
    observed = draw_single_positive(train.Y, seed)
    fitted = {run: _fit(run, parts, observed, seed, epochs, progress) for run in RUNS}
    method = next(model for run, (model, _) in fitted.items() if run.role == "method")  # the paper's
    runs = [_describe(run, model, seconds, test) for run, (model, seconds) in fitted.items()]
    return {
        "title": "onepos demo: digit scenes",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"onepos": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "seed": seed,
        "dataset": {
            "name": data.name,
            **{f"n_{part}": rows.n_samples for part, rows in parts.items()},
            "n_features": data.n_features,
            "n_labels": data.n_labels,
            "cardinality": data.cardinality,
            "label_names": list(data.label_names),
        },
        "metrics": [
            {"name": name, "title": metric.title, "greater_is_better": metric.greater_is_better}
            for name, metric in METRICS.items()
        ],
        "runs": runs,
        "remark": _remark(
            *(next(run["scores"] for run in runs if run["role"] == role) for role in ("floor", "method"))
        ),
        "priors": _priors(method, train, observed),
        "examples": _examples(method, test, draw_single_positive(test.Y, seed)),
    }


def _fit(
    run: _Run, parts: dict[str, Dataset], observed: Any, seed: int, epochs: int, progress: Progress | None
) -> tuple[SinglePositiveClassifier, float]:
    """The model, and the seconds of the fit with all that comes before the first epoch."""

    def report(epoch: int, history: History) -> None:
        if progress is not None:
            progress(run.name, epoch, epochs)

    labels, positives = (parts["train"].Y, "any") if run.role == "oracle" else (observed, "single")
    model = Oracle(run.method, epochs=epochs, positives=positives, device="cpu", random_state=seed)
    began = time.perf_counter()
    model.fit(parts["train"].X, labels, validation=(parts["val"].X, parts["val"].Y), on_epoch=report)
    return model, time.perf_counter() - began


def _describe(run: _Run, model: SinglePositiveClassifier, seconds: float, test: Dataset) -> dict[str, Any]:
    history, probability = model.history_, model.predict_proba(test.X)
    return {
        "name": run.name,
        "role": run.role,
        "scores": evaluate(test.Y, probability, decisions=model.decide(probability)),
        "seconds": seconds,
        "seconds_per_epoch": float(np.median(history.seconds)),
        "best_epoch": history.best_epoch + 1,  # people count from one
        "history": {
            "epoch": list(range(1, len(history.loss) + 1)),
            "loss": history.loss,
            "validation": history.validation,
            "prior": history.prior or None,
        },
    }


def _remark(floor: dict[str, float], method: dict[str, float]) -> str:
    """An explanation of what may surprise in the table, where it applies."""
    if method["hamming_loss"] >= floor["hamming_loss"] or method["average_precision"] >= floor["average_precision"]:
        return ""
    return (
        "CRISP makes far better decisions than its floor (Hamming loss, F1) but ranks labels a little worse: the "
        "absolute loss in its risk favours hard 0/1 scores, so scores saturate. CRISP+, the default method of fit, has "
        "a proper loss."
    )


def _priors(model: SinglePositiveClassifier, train: Dataset, observed: Any) -> dict[str, list[Any]]:
    lower, upper = model.class_prior_interval_.T
    return {
        "label": list(train.label_names),
        "true": train.prior.tolist(),
        "estimated": without_nan(model.class_prior_.tolist()),
        "lower": without_nan(lower.tolist()),
        "upper": without_nan(upper.tolist()),
        "n_positive": observed.sum(0).tolist(),
        "observed_share": observed.mean(0).tolist(),
    }


def _examples(model: SinglePositiveClassifier, test: Dataset, observed: Any, count: int = 6) -> list[dict[str, Any]]:
    """Test scenes of three labels or more, with the label a training set would observe and the predictions."""
    rows = np.flatnonzero(test.Y.sum(1) >= 3)[:count]
    probability = model.predict_proba(test.X[rows])
    names = np.array(test.label_names)
    return [
        {
            "image": np.asarray(test.X[row]).reshape(test.image_shape or (1, -1)).tolist(),
            "true": names[test.Y[row] == 1].tolist(),
            "observed": str(names[observed[row].argmax()]),
            "predicted": [[str(names[j]), float(p[j])] for j in np.argsort(-p)[: int(test.Y[row].sum()) + 1]],
        }
        for row, p in zip(rows, probability, strict=True)
    ]
