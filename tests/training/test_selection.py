"""Which epoch is kept."""

import math

import numpy as np
import pytest

from onepos.methods import AN
from onepos.metrics import METRICS
from onepos.training.backbones import make_backbone
from onepos.training.loop import train
from onepos.training.plan import Plan
from onepos.training.samples import as_samples
from onepos.training.selection import MAJORITY, choose_epoch, measured_by
from onepos.training.task import Learner, Task, Validation

VOTERS = ("hamming_loss", "coverage", "average_precision", "ranking_loss", "one_error")


def test_one_metric():
    rising, falling = {"average_precision": [0.1, 0.5, 0.5, 0.2]}, {"ranking_loss": [0.4, 0.3, 0.3, 0.6]}
    assert choose_epoch(rising, "average_precision", 0) == (1, {1}), "the earliest of equals"
    assert choose_epoch(falling, "ranking_loss", 0) == (1, {1})
    assert choose_epoch(rising, "average_precision", 2) == (2, {2}), "the first two do not count"
    assert choose_epoch(rising, "average_precision", 4) == (-1, frozenset())
    assert choose_epoch({"average_precision": [math.nan, 0.1]}, "average_precision", 0) == (1, {1})


def series(best):
    """Values of five epochs whose best ones are the given ones, by voter."""
    return {
        name: [1.0 if (k == epoch) == METRICS[name].greater_is_better else 0.0 for k in range(5)]
        for name, epoch in zip(VOTERS, best, strict=True)
    }


@pytest.mark.parametrize(
    ("best", "winner"),
    [
        ((3, 3, 1, 3, 2), 3),  # three votes
        ((4, 1, 2, 1, 4), 4),  # two each: Hamming loss is asked first
        ((0, 1, 2, 2, 1), 1),  # two each, none of them by Hamming loss: coverage comes next
        ((4, 3, 2, 1, 0), 2),  # all differ: average precision
    ],
)
def test_majority(best, winner):
    choice = choose_epoch(series(best), MAJORITY, 0)
    assert choice.best == winner
    assert choice.candidates == set(best)


def test_the_metric_shown_is_average_precision():
    assert measured_by(MAJORITY)[0] == "average_precision"
    assert set(measured_by(MAJORITY)) == set(VOTERS)
    assert measured_by("map") == ("map",)


def test_weights_of_a_candidate_are_kept_until_it_is_chosen(toy, monkeypatch):
    """Epoch 0 leads at first; the last epoch takes votes from it, and epoch 1 wins, which never led."""
    X, Y, observed = toy
    values = {
        "hamming_loss": [0.5, 0.6, 0.6, 0.1],
        "coverage": [0.1, 0.5, 0.5, 0.5],
        "average_precision": [0.1, 0.9, 0.5, 0.5],
        "ranking_loss": [0.5, 0.1, 0.5, 0.5],
        "one_error": [0.5, 0.5, 0.1, 0.5],
    }
    epochs, weights = [], []

    def measured(name, validation, logits):
        return values[name][epochs[-1]]

    monkeypatch.setattr("onepos.training.loop._measure", measured)
    learner = Learner(make_backbone("linear", 8, 4), AN())
    original = AN.end_epoch

    def end_epoch(self, view):
        epochs.append(self.epoch)
        weights.append(self.head.weight.detach().clone())
        original(self, view)

    monkeypatch.setattr(AN, "end_epoch", end_epoch)
    validation = Validation(as_samples(X), Y, True)
    plan = Plan(epochs=4, select=MAJORITY, device="cpu")
    history = train(Task(learner, as_samples(X), observed, 8, plan, validation)).history
    assert history.best_epoch == 1
    assert len(history.other_metrics["coverage"]) == 4
    assert np.array_equal(learner.method.head.weight.detach(), weights[1])
    assert not np.array_equal(weights[1], weights[3])
