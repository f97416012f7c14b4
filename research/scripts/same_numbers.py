"""Does a change leave the numbers as they were? Losses of every method over a few epochs on a fixed seed.

    python research/scripts/same_numbers.py save before.json      in the old version
    python research/scripts/same_numbers.py compare before.json   in the new one

Every method is fitted to digit scenes; one that needs feature maps or several views is fitted end to end to the same
scenes as images, by a small convolutional network. Only public names are used, so that old and new versions can run
this very file.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import onepos
from onepos import METHODS, draw_single_positive, load_dataset

ROWS, EPOCHS, TOLERANCE = 400, 3, 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["save", "compare"])
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = {name: losses(name) for name in METHODS}
    if arguments.action == "save":
        arguments.file.write_text(json.dumps(found, indent=1), encoding="utf-8")
        return
    before = json.loads(arguments.file.read_text(encoding="utf-8"))
    print(f"| method | loss of epochs 1 to {EPOCHS} | largest difference, loss | largest difference, probability |")
    print("|---|---|---|---|")
    worst = 0.0
    for name, now in found.items():
        then = before[name]
        loss = max(abs(a - b) for a, b in zip(now["loss"], then["loss"], strict=True))
        proba = max(abs(a - b) for a, b in zip(now["probability"], then["probability"], strict=True))
        worst = max(worst, loss)
        print(f"| {name} | {', '.join(f'{value:.6f}' for value in now['loss'])} | {loss:.1e} | {proba:.1e} |")
    print(f"\nonepos {onepos.__version__}, torch {torch.__version__}: largest difference of a loss {worst:.1e}")
    sys.exit(worst > TOLERANCE)


def losses(name: str) -> dict[str, list[float]]:
    """Training losses, and the probabilities of a few rows after the last epoch."""
    scenes = load_dataset("digit-scenes").take(np.arange(ROWS + 100))
    method = METHODS[name]()
    changed = {known: 2.0 for known in method.privileged & {"k", "cardinality"}}
    if "warmup" in method.get_params():
        changed["warmup"] = 1  # so that what comes after it is seen
    method = METHODS[name](**changed)
    observed = draw_single_positive(scenes.Y[:ROWS], random_state=0)
    given = scenes.Y[:ROWS] if "full labels" in method.requires else observed
    end_to_end = method.maps or method.views > 1 or bool(method.requires & {"maps", "views"})
    X = images(scenes.X) if end_to_end else np.asarray(scenes.X)
    model = make_model(method, end_to_end)
    type(model)._offers = frozenset({"full labels"})
    if end_to_end:  # without validation rows: the last epoch is kept
        model.fit(X[:ROWS], given)
    else:
        model.fit(X[:ROWS], given, validation=(X[ROWS:], scenes.Y[ROWS:]))
    return {"loss": model.history_.loss, "probability": model.predict_proba(X[:20]).ravel().tolist()}


def images(X: Any) -> np.ndarray:
    """Scenes of 16 × 16 numbers as 32 × 32 pixels."""
    scale = 255 / np.max(X)
    pixels = (np.asarray(X).reshape(len(X), 16, 16) * scale).astype(np.uint8)
    return np.repeat(np.kron(pixels, np.ones((1, 2, 2), np.uint8))[..., None], 3, axis=3)


def make_model(method: Any, end_to_end: bool) -> Any:
    settings = {"epochs": EPOCHS, "device": "cpu", "random_state": 0, "positives": "any"}
    if not end_to_end:
        return onepos.SinglePositiveClassifier(method, **settings)
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()]
    if not method.maps:
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    classifier = getattr(onepos, "SinglePositiveImageClassifier", onepos.SinglePositiveClassifier)
    return classifier(method, network=nn.Sequential(*layers), fine_tune=True, **settings)


if __name__ == "__main__":
    main()
