"""Pooled features of the images of VOC 2012 and COCO 2014: one archive of labels, one of features.

The labels of VOC are stored part by part (`Y_train`, `Y_val`); those of COCO are packed to bits, and the archive of
features lists the rows it has (`train_rows`, `val_rows`). The rows of the official train part come first, then those of
the official val part, which is the test part of all published results.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from onepos.datasets.dataset import Dataset, Labels, Rows
from onepos.datasets.files import check_file, naming
from onepos.validation import one_hot


def read_pooled_features(labels: str | Path, features: str | Path) -> Dataset:
    """Read features with labels, the published single positives, and the split by the published rule.

    Where some of the official rows have no features, the rule is applied to those that have: the split is then not the
    published one.

    Args:
        labels: Archive of all labels, of VOC or of COCO.
        features: Archive of features, `X_train` and `X_val`.
    """
    label_path, feature_path = check_file(Path(labels)), check_file(Path(features))
    with naming(feature_path), np.load(feature_path, allow_pickle=False) as archive:
        X = np.concatenate([archive["X_train"], archive["X_val"]]).astype(np.float32)
        n_official = len(archive["X_train"])
        rows = np.concatenate([archive["train_rows"], archive["val_rows"]]) if "train_rows" in archive else None
    with naming(label_path), np.load(label_path, allow_pickle=False) as archive:
        Y, labels_observed, names = _voc(archive) if rows is None else _coco(archive, rows)
    train, val = cole_rows(n_official)
    with naming(feature_path):
        return Dataset(
            name=feature_path.stem,
            X=X,
            Y=Y,
            label_names=names,
            splits={"train": train, "val": val, "test": np.arange(n_official, len(Y))},
            source=feature_path.name,
            observed=one_hot(labels_observed, Y.shape[1]),
        )


def _voc(archive: Any) -> tuple[Labels, Rows, tuple[str, ...]]:
    """Labels, the observed label of each row, and names, by the alphabet as in all published results."""
    names = archive["class_names"]
    order = np.argsort(names)
    Y = np.concatenate([archive["Y_train"], archive["Y_val"]])[:, order]
    observed = np.concatenate([archive["train_obs_idx"], archive["val_obs_idx"]])
    return Y, np.argsort(order)[observed], tuple(names[order].tolist())


def _coco(archive: Any, rows: Rows) -> tuple[Labels, Rows, tuple[str, ...]]:
    """The same of some rows; the classes are in the order of the annotations, as in all published results."""
    names = tuple(archive["class_names"].tolist())
    Y = np.unpackbits(archive["Y_packed"][rows], axis=1)[:, : len(names)]
    return Y, archive["obs_idx"][rows].astype(np.intp), names


def cole_rows(n: int, seed: int = 1200, val_fraction: float = 0.2) -> tuple[Rows, Rows]:
    """Train and validation rows of the image benchmarks, see `onepos.protocol.cole_split`."""
    order = np.random.RandomState(seed).permutation(n)
    n_train = n - round(val_fraction * n)
    return np.sort(order[:n_train]), np.sort(order[n_train:])
