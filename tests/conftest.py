"""Small data for all tests; one thread per process, since pytest-xdist runs one process per core."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from onepos.protocol import draw_single_positive

torch.set_num_threads(1)


@pytest.fixture
def toy():
    """60 rows, 8 features, 4 labels that depend on the features; (X, Y, observed)."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8))
    Y = (X @ rng.normal(size=(8, 4)) > 0.3).astype(np.uint8)
    Y[np.arange(60), rng.integers(0, 4, 60)] = 1
    return X, Y, draw_single_positive(Y, 0)


@pytest.fixture
def short_cross_fit(monkeypatch):
    """Two epochs in place of sixty, for tests that ask for many fits and not for good ones."""
    from onepos.methods import crossfit
    from onepos.methods.fold_models import NetworkSettings, TreeSettings

    network = {"grid": ((1e-3, 0.0),), "most_epochs": 2, "most_steps": 2}
    short = crossfit.CrossFitSettings(
        linear=NetworkSettings(0, **network), layered=NetworkSettings(16, **network), trees=TreeSettings(n_trees=2)
    )
    monkeypatch.setattr(crossfit, "DEFAULTS", short)


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
def real_data():
    """A loader of real data sets; skips where they are not on this machine."""
    folder = os.environ.get("ONEPOS_DATA")

    def load(name):
        from onepos.datasets import load_dataset

        if not folder or not (Path(folder) / "tabular" / f"{name}.npz").is_file():
            pytest.skip(f"{name} is not on this machine: set ONEPOS_DATA to a folder that holds it")
        return load_dataset(name)

    return load


@pytest.fixture
def onepos(capsys, tmp_path, monkeypatch):
    """onepos("fit", …) → (exit code, standard output, standard error), in an empty folder."""
    from onepos import cli

    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = 0
        try:
            cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run
