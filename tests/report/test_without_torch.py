"""Reading results and writing their report needs neither torch nor scikit-learn, not even through another module."""

import pkgutil
import subprocess
import sys

import pytest

import onepos.report
from onepos.bench.store import Store
from onepos.bench.study_file import read_study
from onepos.metrics import METRICS

MODULES = [module.name for module in pkgutil.walk_packages(onepos.report.__path__, "onepos.report.")]
HEAVY = "sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'sklearn', 'lightning_fabric'})"


def heavy_after(code):
    """Which of the heavy packages are imported in a process that runs the code."""
    script = f"import sys\n{code}\nprint({HEAVY})"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_the_check_can_fail():
    assert heavy_after("import torch") == "['torch']"


def test_no_module_of_the_report_imports_torch():
    assert len(MODULES) > 10
    names = [*MODULES, "onepos.bench.results", "onepos.bench.comparison", "onepos.bench.store"]
    assert heavy_after("\n".join(f"import {name}" for name in names)) == "[]"


def pack_smoke(tmp_path):
    """The smoke study with invented results, in one file."""
    study, store = read_study("smoke"), Store(tmp_path / "store")
    store.keep_study(study)
    for run in study.runs():
        scores = dict.fromkeys(METRICS, 0.5 + 0.01 * run.configuration + 0.1 * run.trial)
        result = {"test": scores, "validation": scores, "criteria": {}, "diverged": False, "privileged": []}
        result |= {"best_epoch": 1, "n_labels": 2, "cardinality": 0.75, "timing": {"seconds": 2.0, "device": "a box"}}
        store.save(run, result)
    store.pack(tmp_path / "runs.jsonl.gz")
    return tmp_path / "runs.jsonl.gz"


def test_the_report_of_a_packed_study_imports_no_torch(tmp_path):
    paths = str(pack_smoke(tmp_path)), str(tmp_path / "report")
    assert heavy_after(f"from onepos.report.study_page import write_report\nwrite_report(*{paths!r})") == "[]"
    assert (tmp_path / "report" / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["onepos.criteria", "onepos.training.plan"])
def test_what_the_results_take_from_training_is_light(name):
    assert heavy_after(f"import {name}") == "[]"
