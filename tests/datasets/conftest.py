import numpy as np
import pytest
import scipy.sparse as sp

from onepos.datasets import Dataset


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
