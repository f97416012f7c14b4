"""A run: its seed, the oracle, and CRISP on real data."""

import dataclasses

import numpy as np
import pytest

from onepos import SinglePositiveClassifier
from onepos.bench.run import run_one
from onepos.bench.study import Run
from onepos.datasets import load_dataset
from onepos.metrics import average_precision, ranking_loss
from onepos.priors import RULES
from onepos.protocol import draw_single_positive, train_val_test_split


@pytest.fixture(scope="module")
def scenes():
    return load_dataset("digit-scenes").take(range(1200))


def make_run(dataset, method, seed=0, epochs=20):
    return Run(
        dataset=dataset,
        method=method,
        parameters={},
        network="mlp",
        hidden=(256,),
        scaling="standard",
        bias_init="frequency",
        epochs=epochs,
        batch_size=32,
        lr=1e-3,
        weight_decay=0.0,
        threshold=0.5,
        select_metric="average_precision",
        select_labels="full",
        split_seed=seed,
        draw_seed=seed,
        seed=seed,
        trial=0,
        configuration=0,
    )


def test_a_run_is_its_seed(scenes):
    run = make_run("digit-scenes", "crisp", epochs=4, seed=3)
    first, second = run_one(run, scenes), run_one(run, scenes)
    assert first == second
    assert first["best_epoch"] == 3
    assert run_one(dataclasses.replace(run, seed=4), scenes)["test"] != first["test"]


def test_the_oracle_sees_all_labels_and_beats_the_floor(scenes):
    floor, oracle = (run_one(make_run("digit-scenes", name, epochs=6), scenes)["test"] for name in ("an", "full"))
    assert oracle["average_precision"] > floor["average_precision"]
    assert oracle["micro_f1"] > floor["micro_f1"] + 0.1


def test_the_oracle_can_not_be_fitted_by_accident(toy):
    X, Y, observed = toy
    for y, positives in ((observed, "single"), (Y, "any")):
        with pytest.raises(ValueError, match="Full needs full labels; this data has none"):
            SinglePositiveClassifier("full", positives=positives).fit(X, y, validation=(X, Y))


# Average precision must beat a ranking of the labels by their observed frequency, the same for all rows, by this.
MARGIN = {"yeast": 0.02, "scene": 0.25, "image": 0.15}


@pytest.mark.real_data
@pytest.mark.parametrize("name", sorted(MARGIN))
def test_crisp_beats_chance_on_real_data(name, real_data):
    data = real_data(name)
    crisp, by_frequency, by_lot = [], [], []
    for seed in range(3):
        scores = run_one(make_run(name, "crisp", seed), data)["test"]
        parts = train_val_test_split(data.Y, seed)
        frequency = draw_single_positive(data.Y[parts.train], seed).mean(0)
        truth = data.Y[parts.test]
        crisp.append(scores["average_precision"])
        by_frequency.append(average_precision(truth, np.tile(frequency, (len(truth), 1))))
        by_lot.append(average_precision(truth, np.random.default_rng(seed).random(truth.shape)))
        assert scores["ranking_loss"] < ranking_loss(truth, np.tile(frequency, (len(truth), 1)))
    assert np.mean(crisp) > np.mean(by_frequency) + MARGIN[name]
    assert np.mean(crisp) > np.mean(by_lot) + 0.25


def test_a_result_scores_each_rule_of_decision(scenes):
    rules = run_one(make_run("digit-scenes", "an", epochs=6), scenes)["rules"]
    assert set(rules) == set(RULES)
    assert all(set(scores) == {"hamming_loss", "micro_f1", "macro_f1"} for scores in rules.values())
    assert rules["f1"]["micro_f1"] > rules["hamming"]["micro_f1"]
