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
        **_facts(names, true, estimated, n_train, rng),
        "story": _story(names, true, estimated, n_examples, rng),
    }


def _facts(names, true, estimated, n_train, rng):
    """What the page of a fit shows."""
    c = len(names)
    shown = list(range(min(c, 5)))
    bins = [
        {"n": 40, "yes": 8, "stated": 0.2, "share": 0.2, "low": 0.1, "high": 0.3},
        {"n": 9, "yes": 7, "stated": 0.8, "share": 0.78, "low": 0.5, "high": 0.93},
    ]
    doubt = {
        "item": "row 7", "texts": [["title", "A long text about it"]], "fields": [["year", "1999"]], "image": "",
        "note": "", "present": [names[0]], "absent": [names[1]], "n_absent": 3,
        "doubtful": [[names[2], 0.52, False], [names[3], 0.91, True]], "expected_errors": 0.6,
    }  # fmt: skip
    summary = {
        "observed": 40, "prior": 0.3, "prior_low": 0.2, "prior_high": 0.4, "expected_recall": 0.2, "promised": True,
    }  # fmt: skip
    lines = [
        {"label": name, "added": 12 * (j == 0), "expected_precision": 0.84 if j == 0 else None,
         "precision_low": 0.7 if j == 0 else None, "precision_high": 0.95 if j == 0 else None} | summary
        for j, name in enumerate(names)
    ]  # fmt: skip
    return {
        "labels": names,
        "observed": [round(n_train * p / sum(true)) for p in true],
        "n_rows": n_train,
        "known": {"yes": n_train, "no": 300, "unknown": n_train * c - 300, "rows": n_train, "rows_reviewed": 50},
        "class_prior": estimated,
        "class_prior_lower": [0.8 * p for p in estimated],
        "class_prior_upper": [min(1.0, 1.3 * p) for p in estimated],
        "true_prior": true,
        "method": "crisp-plus",
        "history": {"epoch": [1, 2, 3], "loss": [0.9, 0.5, 0.4], "validation": None},
        "best_epoch": 3,
        "quality": [
            {"name": "average_precision", "title": "mean reciprocal rank of the known label",
             "greater_is_better": True, "scores": {"held_out": 0.75, "frequency": 0.55}}
        ],
        "calibration": {"rows": 50, "model": [], "held_out": bins},
        "additions": {
            "labels": lines, "n_added": 12, "n_rows": 11, "min_precision": 0.8, "expected_precision": 0.84,
            "calibrated_on": 50, "labels_per_row": [sum(estimated), 1.0, 3.0], "warning": "",
        },
        "together": {
            "labels": shown,
            "share": [[1.0 if i == j else 0.1 + 0.1 * rng.random() for j in shown] for i in shown],
            "pairs": [{"labels": [0, 1], "share": 0.1, "times": 1.5}],
        },
        "doubts": [doubt],
    }  # fmt: skip


def _story(names, true, estimated, n_examples, rng):
    """What the demo adds."""
    before = {
        "labels": names,
        "observed": [round(4800 * p / sum(true)) for p in true],
        "n_rows": 4800,
        "class_prior": [0.7 * p for p in estimated],
        "class_prior_lower": [0.4 * p for p in estimated],
        "class_prior_upper": [min(1.0, 1.3 * p) for p in estimated],
    }
    done = {
        "n_added": 12, "n_rows": 11, "expected_precision": 0.84, "precision": 0.75, "n_right": 9, "n_hidden": 100,
        "labels_per_row": 1.2,
    }  # fmt: skip
    nothing = {
        "n_added": 0, "n_rows": 0, "expected_precision": None, "precision": None, "n_right": 0, "n_hidden": 100,
        "labels_per_row": 1.0,
    }  # fmt: skip
    scores = {"before": 0.7, "after": 0.8, "full": 0.9}
    shown = [_example(names, rng) for _ in range(n_examples)]
    return {
        "n_reviewed": 50,
        "before": before,
        "given": shown,
        "completed": [nothing, done],
        "shown": [each | {"added": [[names[3], 0.91, True], [names[4], 0.77, False]]} for each in shown],
        "changes": [
            {"title": "Micro-F1", "name": "micro_f1", "greater_is_better": True, **scores},
            {"title": "Hamming loss", "name": "hamming_loss", "greater_is_better": False, **scores},
            {"title": "mAP", "name": "map", "greater_is_better": True, "before": 0.7, "after": 0.7, "full": 0.9},
            {"title": "Labels predicted per image", "name": "labels_per_row", "true": 2.0, **scores},
        ],
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
    return {"item": "image 1", "image": image, "observed": shown[:1], "hidden": shown[1:]}


@pytest.fixture(name="make_result")
def _make_result():
    return make_result


@pytest.fixture
def result():
    return make_result()
