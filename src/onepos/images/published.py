"""Split and draw of the published image benchmarks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from onepos.images.readers import ImageDataset
from onepos.protocol import cole_split, draw_single_positive

SEED = 1200


def with_published_protocol(data: ImageDataset) -> ImageDataset:
    """The data with the split and the single positives that all published image results share.

    A fifth of the official train rows becomes "val"; the single positives are drawn from the train and the test rows
    separately, each with a fresh generator, before that split. Rows without a positive get none.

    Args:
        data: With the parts "train" and "test" in `splits`, rows and classes in the order of their reader.

    References:
        Cole, Mac Aodha, Lorieul, Perona, Morris, Jojic: Multi-label learning from single positive labels, CVPR 2021.
    """
    if data.splits is None or set(data.splits) != {"train", "test"}:
        found = ", ".join(data.splits or ()) or "none"
        raise ValueError(
            "the published split divides the parts train and test; "
            f"{data.name} has {found}. Use onepos.train_val_test_split "
            "for other data."
        )
    observed = np.zeros_like(data.Y)
    for rows in data.splits.values():
        observed[rows] = draw_single_positive(data.Y[rows], SEED, how="cole")
    official = data.splits["train"]
    parts = cole_split(len(official), SEED)
    splits = {"train": official[parts.train], "val": official[parts.val], "test": data.splits["test"]}
    return replace(data, splits=splits, observed=observed)
