"""A small completion, and an annotator who answers in Label Studio."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from onepos import complete_labels, draw_single_positive
from onepos.exchange.label_studio import name_of

CLASSES = ["dog", "Café / bar", '<a> & "b", c', "yes"]


@pytest.fixture(scope="session")
def completed():
    """240 items and 4 labels with odd names; 60 items are fully known."""
    rng = np.random.default_rng(0)
    Y = (rng.random((280, 4)) < [0.6, 0.45, 0.3, 0.3]).astype(np.uint8)
    Y = Y[Y.any(1)][:240]
    share = np.maximum(Y + rng.normal(0, 0.3, Y.shape), 0.03)
    known = np.where(draw_single_positive(Y, 0) == 1, 1.0, np.nan)
    known[:60] = Y[:60]
    items = np.array([f"k{row}" for row in range(len(Y))])
    held_out = (share / share.sum(1, keepdims=True)).astype(np.float32)
    import pandas as pd

    frame = pd.DataFrame(known, columns=CLASSES)
    done = complete_labels(None, frame, held_out=held_out, min_precision=0.7, items=items, random_state=0)
    assert 0 < done.added.sum() < done.added.size / 4
    return SimpleNamespace(done=done, Y=Y, known=known, items=items)


@pytest.fixture
def annotate():
    """What Label Studio exports after somebody answered: tasks in the format JSON, and the same in JSON-MIN.

    `answers` is item → label → word; items without an entry stay without an annotation.
    """

    def export(project, answers, time="2026-01-02T03:04:05.678901Z"):
        full, short = [], []
        for number, task in enumerate(project.tasks, start=1):
            given = answers.get(task["data"]["item"])
            annotations = [] if given is None else [_annotation(number, given, time)]
            full.append(
                {
                    "id": number,
                    "annotations": annotations,
                    "file_upload": "tasks.json",
                    "drafts": [],
                    "predictions": [7],
                    "data": task["data"],
                    "meta": {},
                    "created_at": "2026-01-01T00:00:00.000000Z",
                    "updated_at": time,
                    "inner_id": number,
                    "total_annotations": len(annotations),
                    "cancelled_annotations": 0,
                    "project": 1,
                    "updated_by": 1,
                }
            )
            if given is not None:
                own = {"id": number, "annotator": 1, "annotation_id": number, "created_at": time, "updated_at": time}
                chosen = {name_of(label): word for label, word in given.items()}
                short.append(task["data"] | own | chosen | {"lead_time": 4.2})
        return json.dumps(full).encode(), json.dumps(short, ensure_ascii=False).encode()

    return export


def _annotation(number, given, time):
    return {
        "id": number,
        "completed_by": 1,
        "result": [
            {
                "id": f"r{k}",
                "from_name": name_of(label),
                "to_name": "item",
                "type": "choices",
                "value": {"choices": [word]},
                "origin": "manual",
            }
            for k, (label, word) in enumerate(given.items())
        ],
        "was_cancelled": False,
        "ground_truth": False,
        "created_at": time,
        "updated_at": time,
        "lead_time": 4.2,
        "prediction": {},
        "result_count": len(given),
    }
