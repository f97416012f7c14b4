"""An invented result: plausible in shape and size, measured by nobody."""

import math
import random

import pytest

METRICS = [
    ("ranking_loss", "Ranking loss", False),
    ("hamming_loss", "Hamming loss", False),
    ("one_error", "One-error", False),
    ("coverage", "Coverage", False),
    ("average_precision", "Average precision", True),
    ("map", "mAP", True),
    ("macro_f1", "Macro F1", True),
]
ROLES = {"full labels (oracle)": "oracle", "AN": "floor", "CRISP": "method", "WAN": "method"}
QUALITY = {"full labels (oracle)": 0.9, "AN": 0.3, "CRISP": 0.75, "WAN": 0.55}


def make_result(n_labels=10, n_epochs=20, n_examples=4):
    rng = random.Random(7)
    names = [f"digit {j}" for j in range(n_labels)] if n_labels <= 10 else [f"tag-{j:03d}" for j in range(n_labels)]
    n_train = 4800
    true = [0.52 * math.exp(-3.2 * j / n_labels) + 0.02 if n_labels <= 10 else 1 / (j + 2) for j in range(n_labels)]
    cardinality = sum(true)
    share = [p / max(cardinality, 1.0) * (1 + 0.3 * rng.random()) for p in true]
    estimated = [min(0.99, p * (1 + rng.gauss(0, 0.09))) for p in true]
    half = [0.6 * math.sqrt(p / (n_train * s)) for p, s in zip(true, share, strict=True)]
    runs = [_run(name, n_epochs, rng) for name in ROLES]
    runs[2]["history"]["prior"] = [
        None
        if t < 3
        else [
            e + (s - e) * math.exp(-(t - 2) / 4) + rng.gauss(0, 0.02 * e) for e, s in zip(estimated, share, strict=True)
        ]
        for t in range(n_epochs)
    ]
    return {
        "title": "Digit scenes from one label each",
        "created": "2026-11-15T10:00:00",
        "versions": {"onepos": "0.1.0", "torch": "2.13.0", "python": "3.11.7"},
        "dataset": {
            "name": "digit-scenes",
            "n_train": n_train,
            "n_val": 600,
            "n_test": 600,
            "n_features": 256,
            "n_labels": n_labels,
            "cardinality": cardinality,
            "label_names": names,
        },
        "metrics": [{"name": n, "title": t, "greater_is_better": g} for n, t, g in METRICS],
        "runs": runs,
        "priors": {
            "label": names,
            "true": true,
            "estimated": estimated,
            "lower": [max(0.0, e - h) for e, h in zip(estimated, half, strict=True)],
            "upper": [min(1.0, e + h) for e, h in zip(estimated, half, strict=True)],
            "n_positive": [round(n_train * s) for s in share],
            "observed_share": share,
            "reliable": [n_train * s > 60 for s in share],
        },
        "examples": [_example(names, rng) for _ in range(n_examples)],
    }


def _run(name, n_epochs, rng):
    quality, scores = QUALITY[name], {}
    for metric, _, greater in METRICS:
        value = quality + rng.uniform(-0.05, 0.05)
        scores[metric] = value if greater else 0.4 * (1 - value)
    scale = 1 + len(name) / 20
    return {
        "name": name,
        "role": ROLES[name],
        "scores": scores,
        "seconds": 3 + 6 * rng.random(),
        "seconds_per_epoch": 0.2,
        "best_epoch": n_epochs - 4,
        "history": {
            "epoch": list(range(n_epochs)),
            "loss": [scale * (0.2 + 0.5 * math.exp(-t / 5)) + rng.gauss(0, 0.005) for t in range(n_epochs)],
            "validation": [quality - 0.3 * math.exp(-t / 4) + rng.gauss(0, 0.006) for t in range(n_epochs)],
            "prior": None,
        },
    }


def _example(names, rng):
    shown = rng.sample(names, 2)
    blobs = [(rng.uniform(3, 12), rng.uniform(3, 12)) for _ in shown]
    image = [
        [max(math.exp(-((x - a) ** 2 + (y - b) ** 2) / 5) for a, b in blobs) for x in range(16)] for y in range(16)
    ]
    guesses = [(shown[0], 0.93), (shown[1], 0.71), (rng.choice(names), 0.18)]
    return {
        "image": image,
        "true": shown,
        "observed": shown[0],
        "predicted": [list(guess) for guess in guesses],
    }


@pytest.fixture(name="make_result")
def _make_result():
    return make_result


@pytest.fixture
def result():
    return make_result()
