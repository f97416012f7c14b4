"""Studies of images: their files, their data, and runs of them."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from PIL import Image

from onepos.bench.run import ImagePart, image_parts, make_trial, run_one, why_not
from onepos.bench.runner import make_blocks
from onepos.bench.study import PUBLISHED_DRAW, SIZE_BIASED_DRAW, Run
from onepos.bench.study_file import STUDIES, parse_stored, read_study, write_study
from onepos.datasets import digit_scenes
from onepos.images import ImageFiles
from onepos.images.readers import ImageDataset
from onepos.methods import METHODS

SCENES = (STUDIES / "images-scenes.toml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def scenes():
    data = digit_scenes(160)
    return dataclasses.replace(data, splits={"train": range(32), "val": range(128, 136), "test": range(144, 152)})


@pytest.fixture(scope="module")
def runs():
    """One of each method, short and in single precision."""
    first = {run.method: run for run in reversed(read_study("images-scenes").runs())}
    settings = next(iter(first.values())).images
    short = {"epochs": 1, "images": dataclasses.replace(settings, precision="32")}
    return {method: dataclasses.replace(run, **short) for method, run in first.items()}


@pytest.fixture
def edit(tmp_path):
    def change(*pairs):
        text = SCENES
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "edited.toml"
        path.write_text(text, encoding="utf-8")
        return read_study(path)

    return change


def test_all_methods_can_run_on_images(runs):
    assert runs.keys() == METHODS.keys()
    assert {why_not(run) for run in runs.values()} == {None}
    assert "maps" in why_not(dataclasses.replace(runs["plc"], images=None))


def test_a_run_on_images_survives_json(runs):
    run = runs["crisp"]
    assert Run.from_json(json.loads(json.dumps(run.to_json()))) == run
    assert "images" not in dataclasses.replace(run, images=None).to_json()
    larger = dataclasses.replace(run, images=dataclasses.replace(run.images, size=64))
    assert larger.key() != run.key()


def test_each_image_run_is_a_block_of_its_own():
    study = read_study("images-scenes")
    assert {len(block) for block in make_blocks(study)} == {1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('scaling = "none"', 'scaling = "standard"'), r"scaling must be 'none' with \[images\]; got 'standard'"),
        (("size = 32", "size = 4"), r"images\.size must be a whole number of at least 8; got 4"),
        (("backbone_lr = 1.0", "backbone_lr = -1"), r"images\.backbone_lr must be a number of at least 0; got -1"),
        (("compile = false\n", ""), r"images\.compile must be stated; it is missing"),
        (('precision = "bf16"', 'precision = "16"'), r"unknown name '16' in images\.precision"),
        (('["resnet18"]', '["mlp-256"]'), r"unknown name 'mlp-256' in networks"),
    ],
)
def test_wrong_image_settings(edit, change, message):
    with pytest.raises(ValueError, match=message):
        edit(change)


def test_the_published_draw_is_of_images(edit):
    study = edit(('draw = "new"', 'draw = "published"'))
    assert {run.draw_seed for run in study.runs()} == {PUBLISHED_DRAW}
    cut = SCENES[SCENES.index("[images]") : SCENES.index("[selection]")]
    with pytest.raises(ValueError, match=r"draw must be 'new' or 'fixed' without \[images\]; got 'published'"):
        edit(('draw = "new"', 'draw = "published"'), (cut, ""), ('["resnet18"]', '["linear"]'))


def test_a_size_biased_draw_is_of_images(edit):
    study = edit(('draw = "new"', 'draw = "size-biased"'))
    assert {run.draw_seed for run in study.runs()} == {SIZE_BIASED_DRAW}
    assert parse_stored(write_study(study)) == study
    cut = SCENES[SCENES.index("[images]") : SCENES.index("[selection]")]
    with pytest.raises(ValueError, match=r"draw must be 'new' or 'fixed' without \[images\]; got 'size-biased'"):
        edit(('draw = "new"', 'draw = "size-biased"'), (cut, ""), ('["resnet18"]', '["linear"]'))


def test_batch_sizes_of_a_budget(edit):
    grid = (
        ('sampler = "sobol"', 'sampler = "grid"'),
        ("configurations = 2\n", ""),
        ("lr = { log = [3e-4, 3e-3] }", "lr = { values = [1e-3] }"),
        ("weight_decay = { log = [1e-6, 1e-3] }", "weight_decay = { values = [0, 1] }"),
        ("batch_size = { values = [64] }", "batch_size = { values = [16, 64] }"),
    )
    whole = edit(*grid)
    some = edit(*grid, ("[images]", "[budget.digit-scenes]\nbatch_sizes = [16]\n\n[images]"))
    assert [run.key() for run in some.runs()] == [run.key() for run in whole.runs() if run.batch_size == 16]
    assert {run.configuration for run in some.runs()} < {run.configuration for run in whole.runs()}
    with pytest.raises(ValueError, match=r"batch_sizes must be left out with a sampler other than 'grid'"):
        edit(("[images]", "[budget.digit-scenes]\nbatch_sizes = [64]\n\n[images]"))
    with pytest.raises(ValueError, match=r"batch_sizes must be a list in which each entry is a whole number"):
        edit(*grid, ("[images]", "[budget.digit-scenes]\nbatch_sizes = [0]\n\n[images]"))


def test_scenes_become_images(scenes, runs):
    run = runs["an"]
    parts = image_parts(scenes, run, run.images)
    assert {name: len(part.samples) for name, part in parts.items()} == {"train": 32, "val": 8, "test": 8}
    assert isinstance(parts["train"], ImagePart)
    assert parts["train"].samples.size == 32
    assert parts["train"].observed.sum(1).tolist() == [1] * 32
    assert (parts["val"].observed <= parts["val"].labels).all()
    with pytest.raises(ValueError, match=r"must be a multiple of that of digit-scenes, 16 pixels; it is 40"):
        image_parts(scenes, run, dataclasses.replace(run.images, size=40))
    with pytest.raises(ValueError, match=r"must come with a draw for draw = \"published\"; it has none"):
        image_parts(scenes, dataclasses.replace(run, draw_seed=PUBLISHED_DRAW), run.images)
    with pytest.raises(ValueError, match=r"must come with a part 'val'; it does not"):
        image_parts(dataclasses.replace(scenes, splits={"train": range(9)}), run, run.images)


def test_files_are_decoded_once_unless_they_are_too_many(runs, tmp_path, monkeypatch):
    monkeypatch.setenv("ONEPOS_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for k in range(6):
        Image.fromarray(rng.integers(0, 256, (10, 12, 3), dtype=np.uint8)).save(tmp_path / f"{k}.png")
    Y = np.eye(3, dtype=np.uint8)[[0, 1, 2] * 2]
    splits = {"train": range(2), "val": range(2, 4), "test": range(4, 6)}
    data = ImageDataset("few", str(tmp_path), [f"{k}.png" for k in range(6)], Y, "abc", splits=splits, observed=Y)
    run = dataclasses.replace(runs["an"], draw_seed=PUBLISHED_DRAW)
    parts = image_parts(data, run, run.images)
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 3
    np.testing.assert_array_equal(parts["val"].observed, Y[2:4])
    assert parts["val"].samples.rows(torch.arange(2)).shape == (2, 3, 32, 32)
    monkeypatch.setattr("onepos.bench.run._IN_MEMORY", 1)
    assert isinstance(image_parts(data, run, run.images)["test"].samples, ImageFiles)


def test_runs_on_images(scenes, runs):
    results = {method: run_one(runs[method], scenes) for method in ("an", "plc", "full")}
    for result in results.values():
        assert 0 < result["test"]["map"] <= 1
        assert len(result["true_prior"]) == 10
        assert result["criteria"]["pu_risk"] > 0
    assert results["full"]["privileged"] == ["full labels"]
    again = run_one(runs["an"], scenes)
    assert all(again[part] == results["an"][part] for part in ("test", "validation", "criteria", "loss"))


def test_images_need_a_study_of_images(runs):
    data = ImageDataset("few", "", ["a.png"], np.ones((1, 2), np.uint8), "ab")
    with pytest.raises(ValueError, match=r"few holds images; the study must have a table \[images\]"):
        make_trial(data, dataclasses.replace(runs["an"], images=None))
