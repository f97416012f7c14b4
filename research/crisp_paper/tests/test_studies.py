"""The studies that serve the paper: each reads, has the runs that were promised, and survives its file."""

from collections import Counter
from pathlib import Path

import pytest
from crisp_paper.readings import readings_as_methods

from onepos.bench.study_file import read_studies, read_study, write_study
from onepos.methods import METHODS, make_method

STUDIES = Path(__file__).parents[2] / "studies"
TABULAR = [name for name in METHODS if not METHODS[name]().requires & {"maps", "views"}]
SHARED = ("network", "hidden", "lr", "weight_decay", "batch_size")


@pytest.fixture
def with_readings():
    with readings_as_methods():
        yield


def read(name):
    return read_study(STUDIES / f"{name}.toml")


@pytest.mark.usefixtures("with_readings")
@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_a_study_holds_together_and_survives_its_file(path, tmp_path):
    name, studies = read_studies(path)
    assert name == path.stem
    for study in studies.values():
        runs = study.runs()
        assert len({run.key() for run in runs}) == len(runs), "no run twice"
        for run in {str(dict(run.parameters)) + run.method: run for run in runs}.values():
            values = {key: 2.0 if value == "$cardinality" else value for key, value in run.parameters.items()}
            make_method(run.method, **values)
        (tmp_path / "copy.toml").write_text(write_study(study), encoding="utf-8")
        assert read_study(tmp_path / "copy.toml") == study


def test_the_papers_tabular_study_names_all_of_them():
    _, studies = read_studies(STUDIES / "paper-mll.toml", seed=3)
    assert next(iter(studies)) == "as-published-seed-3"
    assert "fair-seed-3" in studies, "it ships with onepos"
    assert {study.seed for study in studies.values()} == {3}


def test_as_published_is_the_papers_grid():
    runs = [run for run in read("as-published").runs() if (run.dataset, run.method) == ("scene", "smile")]
    powers = [1e-2, 1e-3, 1e-4, 1e-5]
    wanted = Counter({(b, lr, wd): 5 for b in (8, 16, 32) for lr in powers for wd in powers})
    assert Counter((run.batch_size, run.lr, run.weight_decay) for run in runs) == wanted
    assert {(run.network, run.scaling, run.epochs) for run in runs} == {("bottleneck", "none", 10)}
    assert len({(run.split_seed, run.draw_seed) for run in runs}) == 1
    assert len({run.seed for run in runs}) == 5
    assert {run.select_metric for run in runs} == {"majority"}
    published = {"bias": False, "p": 0.075, "mu": 0.3, "rate": 0.5}
    assert all(run.parameters == published | {"as_published": True} for run in runs)


def test_figures_is_one_setting_for_all_methods_with_traces():
    study = read("figures")
    assert study.trace
    assert study.shown_labels == {"yeast": (3, 10, 12)}
    assert set(study.methods) == set(TABULAR)
    assert {tuple(getattr(run, name) for name in (*SHARED, "configuration")) for run in study.runs()} == {
        ("mlp", (256,), 0.001, 0.0, 32, 0)
    }


def test_sensitivity_is_the_papers_star():
    study = read("sensitivity")
    assert not study.trace
    first = [run for run in study.runs() if (run.dataset, run.method, run.trial) == ("yeast", "crisp-as-published", 0)]
    centre = {"delta": 0.01, "tau": 0.01, "lam": 1.0}
    assert first[0].parameters == centre
    changed = [{name: value for name, value in run.parameters.items() if value != centre.get(name)} for run in first]
    assert [len(each) for each in changed] == [0] + [1] * (len(first) - 1)
    fixed = [each["prior"] for each in changed if "prior" in each]
    assert (fixed[0], fixed[-1], sorted(fixed)) == (0.001, 0.3, fixed)
    assert {0.001, 0.1} <= {each["delta"] for each in changed if "delta" in each}
    others = Counter(run.method for run in study.runs() if run.method != "crisp-as-published")
    assert others == {"an": 15, "full": 15}, "who has no axis has the centre alone"
