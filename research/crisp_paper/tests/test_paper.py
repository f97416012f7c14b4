"""The paper's numbers: made from their source byte for byte, all of them there, and checked against each other."""

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path

import pytest
from crisp_paper import paper
from crisp_paper.paper import (
    PaperCell,
    PaperTest,
    find_faults,
    paper_datasets,
    paper_tables,
    paper_tests,
    paper_value,
    repeat_test,
)

from onepos.datasets import DATASETS
from onepos.methods import METHODS
from onepos.metrics import METRICS

ROOT = Path(__file__).parents[3]
IMAGES = {"voc", "coco", "nus", "cub"}


@pytest.fixture
def source():
    """results.json and crisp.tex of the paper; skips where they are not beside this repository."""
    folder = ROOT.parent / "shared" / "paper"
    if not folder.is_dir():
        pytest.skip("the source of the paper is not beside this repository")
    text = (folder / "results.json").read_text(encoding="utf-8")
    return json.loads(text), (folder / "crisp.tex").read_text(encoding="utf-8")


def test_the_file_is_what_the_script_makes(source):
    spec = importlib.util.spec_from_file_location(
        "make_paper_numbers", ROOT / "research" / "scripts" / "make_paper_numbers.py"
    )
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = script.to_text(script.make_numbers(*source))
    assert made.encode() == Path(paper.__file__).with_name("paper.json").read_bytes()


def test_every_result_is_carried(source):
    """Walk through results.json by another way than the script's."""
    tables = source[0]["tables"]
    metric_of = {"mAP": "map", "ranking": "ranking_loss", "ap": "average_precision", "hamming": "hamming_loss"}
    metric_of |= {"coverage": "coverage", "one_error": "one_error", "crisp-3ep": "map", "crisp-val": "map"}
    expected = {
        (metric, dataset, method): (cell["mean"], cell["std"])
        for table, metric in metric_of.items()
        for method, row in tables[table]["rows"].items()
        for dataset, cell in row.items()
    }
    expected |= {
        (metric, dataset, "crisp-val"): (cell["mean"], cell["std"])
        for metric, row in tables["crisp-val-mll"].items()
        for dataset, cell in row.items()
    }
    prior, epoch = tables["time"]["rows"].values()
    expected |= {("prior_time", dataset, "crisp"): (value, None) for dataset, value in prior.items()}
    expected |= {("epoch_time", dataset, "crisp"): (value, None) for dataset, value in epoch.items()}
    assert set(tables) == {*metric_of, "time", "crisp-val-mll"}
    for (metric, dataset, method), cell in expected.items():
        assert paper_value(metric, dataset, method) == PaperCell(*cell)
    assert sum(len(row) for table in paper_tables() for row in table.rows.values()) == len(expected)
    for table, metric in metric_of.items():
        if "better" in tables[table]:
            assert METRICS[metric].greater_is_better == (tables[table]["better"] == "higher")


def test_every_printed_number_is_carried(source):
    """All mean ± std of the LaTeX source, counted; the tables of the variants repeat the paper's own method."""
    printed = Counter((float(mean), float(std)) for mean, std in re.findall(r"([\d.]+)\$\\pm\$([\d.]+)", source[1]))
    carried = Counter(
        (cell.mean, cell.std)
        for table in paper_tables()
        for row in table.rows.values()
        for cell in row.values()
        if cell.std is not None
    )
    tabular = [(metric, dataset) for metric in paper_tests()[1] for dataset in paper_datasets().keys() - IMAGES]
    for metric, dataset in tabular + 2 * [("map", dataset) for dataset in sorted(IMAGES)]:
        cell = paper_value(metric, dataset, "crisp")
        carried[cell.mean, cell.std] += 1
    assert printed == carried


@pytest.mark.parametrize("table", paper_tables(), ids=lambda table: f"{table.label}-{table.metric}")
def test_names_are_ours(table):
    assert table.metric in METRICS or table.metric in ("prior_time", "epoch_time")
    assert set(table.rows) <= METHODS.keys()
    for row in table.rows.values():
        assert set(row) in (IMAGES, {"image", "scene", "yeast", "corel5k", "mirflickr", "delicious"})
        assert set(row) <= paper_datasets().keys()
    assert table.scale == {"map": 100, "prior_time": None, "epoch_time": None}.get(table.metric, 1)


def test_values():
    assert paper_value("map", "cub", "crisp-3ep") == PaperCell(19.45, 0.389)
    assert paper_value("average_precision", "mirflickr", "smile") == PaperCell(0.629, 0.003)
    assert paper_value("one_error", "delicious", "crisp-val") == PaperCell(0.444, 0.001)
    assert paper_value("epoch_time", "nus", "crisp") == PaperCell(49.09, None)
    assert paper_value("map", "yeast", "crisp") is None
    assert paper_value("coverage", "yeast", "plc") is None
    assert paper_value("micro_f1", "yeast", "crisp") is None


def test_data_sets():
    facts = paper_datasets()
    assert facts["coco"] == {
        "label": "image_ds",
        "n_train": 65665,
        "n_validation": 16416,
        "n_test": 40137,
        "n_labels": 80,
    }
    assert facts["delicious"]["domain"] == "Text"
    for name in facts.keys() - IMAGES:
        source = DATASETS[name]
        counts = (facts[name]["n_samples"], facts[name]["n_features"], facts[name]["n_labels"])
        assert counts == (source.n_samples, source.n_features, source.n_labels)


def test_printed_tests():
    reference, tests = paper_tests()
    assert reference == "crisp"
    assert tests["hamming_loss"]["smile"] == PaperTest("tie", 0.0796)
    assert tests["one_error"]["ll-r"] == PaperTest("tie", 0.625)
    outcomes = Counter(test.outcome for row in tests.values() for test in row.values())
    assert outcomes == {"win": 53, "tie": 7}  # the text of the paper counts 43 wins


def test_faults():
    """Section by section what is wrong with the printed numbers; none else is."""
    found = {(fault.metric, fault.dataset, fault.method): fault for fault in find_faults()}
    wilcoxon = {
        "coverage": {"mime", "ll-r", "ll-cp", "ll-ct"},
        "one_error": {"ll-r"},
        "ranking_loss": {"mime"},
        "hamming_loss": {"mime", "ll-r", "ll-cp", "ll-ct"},
        "average_precision": {"mime"},
    }
    expected = {(metric, None, method) for metric, methods in wilcoxon.items() for method in methods}
    assert set(found) == expected | {("coverage", "scene", "crisp"), ("coverage", "mirflickr", "mime")}
    assert "coverage 0.082 lies below 0.093" in found["coverage", "scene", "crisp"].reason
    assert "deviation 0.331, where the next largest is 0.028" in found["coverage", "mirflickr", "mime"].reason
    assert found["one_error", None, "ll-r"].reason == (
        "tie [0.625] is printed; the printed means, 6 better, 0 equal, 0 worse, give 0.03125"
    )


def test_wins_that_the_exact_test_does_not_give():
    """With six data sets only six wins of six reach the 0.05 level; the approximation hides that."""
    tests = paper_tests()[1]
    outcomes = {
        (metric, method): (printed.outcome, (test := repeat_test(metric, method)).outcome(test.p_exact))
        for metric, row in tests.items()
        for method, printed in row.items()
    }
    assert Counter(outcomes.values()) == {("win", "win"): 44, ("win", "tie"): 9, ("tie", "tie"): 5, ("tie", "win"): 2}
    assert all((exact == "win") == (repeat_test(*key).n_win == 6) for key, (_, exact) in outcomes.items())
