import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from onepos.datasets import Dataset


@pytest.fixture(scope="session")
def real_file():
    """Return a function that gives a file of the real data, or skips the test with a reason."""
    root = os.environ.get("ONEPOS_DATA")

    def find(name):
        if not root:
            pytest.skip("ONEPOS_DATA is not set")
        path = Path(root) / name
        if not path.exists():
            pytest.skip(f"{name} is not in $ONEPOS_DATA")
        return path

    return find


@pytest.fixture
def small():
    """Six rows, three features, two labels; the last row has no label."""
    rng = np.random.default_rng(0)
    return Dataset(
        name="small",
        X=rng.normal(size=(6, 3)).astype(np.float32),
        Y=np.array([[1, 0], [0, 1], [1, 1], [1, 0], [0, 1], [0, 0]], dtype=np.uint8),
        label_names=("cat", "dog"),
        feature_names=("a", "b", "c"),
        splits={"train": np.array([0, 1, 2, 3]), "test": np.array([5, 4])},
    )


@pytest.fixture
def small_sparse(small):
    return Dataset("thin", sp.csr_array(np.where(small.X > 0, small.X, 0)), small.Y, small.label_names)
