"""One run of a study: a data set, a method, a plan and a seed in; test scores out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onepos.datasets import Dataset, load_dataset
from onepos.estimator import SinglePositiveClassifier
from onepos.methods import make_method
from onepos.metrics import evaluate
from onepos.protocol import draw_single_positive, split
from onepos.recipes import find_recipe


@dataclass(frozen=True)
class Run:
    """What makes a run; every random number follows from `seed`, which draws the split, the positives and the weights.

    Attributes:
        dataset: Name of the data set.
        method: Name in METHODS.
        parameters: Of the method, on top of its recipe.
        network: Of the classifier, as are the rest.
    """

    dataset: str
    method: str
    parameters: dict[str, Any] = field(default_factory=dict)
    network: str = "mlp"
    epochs: int = 20
    batch_size: int = 32
    lr: float = 1e-3
    weight_decay: float = 0.0
    bias_init: str = "frequency"
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True)
class Result:
    """What a run gave.

    Attributes:
        scores: Every metric on the test rows, looked at once.
        best_epoch: The epoch kept, chosen by average precision on the fully labelled validation rows.
        seconds_per_epoch: Median.
        prior_error: Σ|π̂−π| / Σπ over the labels with a known prior, against the shares in the training rows.
        parameters: The method's, all of them.
    """

    scores: dict[str, float]
    best_epoch: int
    seconds_per_epoch: float
    prior_error: float
    parameters: dict[str, Any]


class Oracle(SinglePositiveClassifier):
    """The one place that holds the true labels of training rows, and may hand them to a method that asks for them."""

    _offers = frozenset({"full labels"})


def run_one(run: Run, dataset: Dataset | None = None) -> Result:
    """Split 80/10/10, hide all but one positive per training row, train, choose the epoch, look at the test rows."""
    data = load_dataset(run.dataset) if dataset is None else dataset
    parts = split(data.Y, run.seed)
    train, val, test = (data.take(rows) for rows in parts)
    recipe = find_recipe(run.method, run.dataset, train.Y)
    method = make_method(run.method, **(recipe.parameters | run.parameters))
    needs_all = "full labels" in method.requires
    model = Oracle(
        method,
        network=run.network,
        epochs=run.epochs,
        batch_size=run.batch_size,
        lr=run.lr,
        weight_decay=run.weight_decay,
        bias_init=run.bias_init,
        positives="any" if needs_all else "single",
        device=run.device,
        random_state=run.seed,
    ).set_params(**recipe.plan)
    observed = train.Y if needs_all else draw_single_positive(train.Y, run.seed)
    model.fit(train.X, observed, validation=(val.X, val.Y))
    true = train.Y.mean(0)
    known = ~np.isnan(model.class_prior_)
    return Result(
        scores=evaluate(test.Y, model.predict_proba(test.X), threshold=model.thresholds_),
        best_epoch=model.history_.best_epoch,
        seconds_per_epoch=float(np.median(model.history_.seconds)),
        prior_error=float(np.abs(model.class_prior_ - true)[known].sum() / true[known].sum()),
        parameters=method.get_params(),
    )
