from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onepos.datasets import DATASETS, data_root, digit_scenes, load_dataset, write_npz


def test_root_argument_then_environment_then_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONEPOS_DATA", str(tmp_path / "env"))
    assert data_root(tmp_path / "given") == tmp_path / "given"
    assert data_root() == tmp_path / "env"
    monkeypatch.delenv("ONEPOS_DATA")
    assert data_root() == Path.home() / ".cache" / "onepos"
    assert data_root("~/x") == Path.home() / "x"


def test_embedded_set_needs_no_folder(tmp_path):
    assert load_dataset("digit-scenes", tmp_path / "none") is digit_scenes()


def test_known_but_not_fetched(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"yeast is not in .*tabular; run: onepos data get yeast$"):
        load_dataset("yeast", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"run: onepos data get mirflickr --from FOLDER. .* mirflickr.mat"):
        load_dataset("mirflickr", tmp_path)


def test_unknown_name_suggests_known_and_stored_ones(small, tmp_path):
    write_npz(replace(small, name="my_birds"), tmp_path / "tabular")
    with pytest.raises(ValueError, match=r"unknown data set 'yeats'; did you mean 'yeast'\?"):
        load_dataset("yeats", tmp_path)
    with pytest.raises(ValueError, match=r"unknown data set 'my_bird'; did you mean 'my_birds'\?"):
        load_dataset("my_bird", tmp_path)
    with pytest.raises(ValueError, match=r"unknown data set '../tabular/my_birds'"):
        load_dataset("../tabular/my_birds", tmp_path)


def test_any_stored_set_loads(small, small_sparse, tmp_path):
    for data in (small, small_sparse):
        write_npz(data, tmp_path / "tabular")
        assert abs(load_dataset(data.name, tmp_path).X - data.X).max() == 0


def test_rows_without_label_are_dropped_only_where_the_table_says_so(small, tmp_path, monkeypatch):
    write_npz(replace(small, name="delicious"), tmp_path / "tabular")
    write_npz(small, tmp_path / "tabular")
    assert load_dataset("delicious", tmp_path).n_samples == 5
    assert load_dataset("small", tmp_path).n_samples == 6


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "cardinality"),
    [("image", 1.236), ("scene", 1.074), ("yeast", 4.237), ("corel5k", 3.522), ("delicious", 19.037)],
)
def test_real_sets_have_the_papers_size(real_file, name, cardinality):
    source = DATASETS[name]
    data = load_dataset(name, real_file(f"tabular/{name}.npz").parent.parent)
    assert data.X.shape == (source.n_samples, source.n_features)
    assert data.Y.shape == (source.n_samples, source.n_labels)
    assert data.cardinality == pytest.approx(cardinality, abs=6e-4)
    assert data.Y.any(axis=1).all()
    assert np.isfinite(data.X.data if data.is_sparse else data.X).all()
