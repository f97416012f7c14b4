"""The tables on reproduction: verdicts, causes and shortfalls on invented runs."""

import csv
import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
from crisp_paper.bridges import Evidence, account_table, build_bridge, effect_tables, reason_table, verdict_table
from crisp_paper.printed import printed_cells
from crisp_paper.reproduction import find_sources, write_reproduction
from crisp_paper.reproduction_cells import make_cells
from crisp_paper.shortfall import find_shortfalls, predicted_per_true, reach_table, shortfall_table

from onepos.bench.grid import Axis
from onepos.bench.results import StudyResults
from onepos.bench.store import Store
from onepos.bench.study import Budget
from onepos.bench.study_file import read_study
from onepos.metrics import METRICS, evaluate
from onepos.report.page import render_markdown

STUDIES = Path(__file__).parents[2] / "studies"
PRINTED = {cell.key: cell for cell in printed_cells()}
FIVE = tuple(dict.fromkeys(cell.metric for cell in printed_cells()))
BRIDGES = ("bridge-linear", "bridge-scaling", "bridge-selection")
SMALL = {"an": 0.0, "wan": 0.0, "crisp": 0.0}


def read(name):
    """Of the paper, or shipped."""
    path = STUDIES / f"{name}.toml"
    return read_study(path if path.is_file() else name)


def make_study(name, **changes):
    """Image; floor, oracle and two methods; two learning rates, one batch size (published: two)."""
    batches = (16, 32) if name == "as-published" else (16,)
    study = read(name)
    small = {
        "datasets": ("image",),
        "methods": ("full", "an", "wan", "crisp"),
        "space": {
            "lr": Axis("values", (1e-2, 1e-3)),
            "weight_decay": Axis("values", (1e-3,)),
            "batch_size": Axis("values", batches),
        },
        "method_space": {},
        "parameters": {},
        "budgets": {},
        "sampler": "grid",
        "threshold": {"*": 0.5},
        "budget": Budget(study.budget.epochs, 3, None),
    }
    return dataclasses.replace(study, **(small | changes))


def make_result(test, validation=0.5):
    """The greater `validation`, the better by every metric."""
    return {
        "test": test,
        "validation": {
            name: validation if metric.greater_is_better else 1 - validation for name, metric in METRICS.items()
        },
        "criteria": {},
        "diverged": False,
        "privileged": [],
        "n_labels": 5,
        "cardinality": 1.25,
        "best_epoch": 1,
        "timing": {},
    }


def near_paper(offsets, noise=0.0, best=None):
    """Scores that lie `offsets[method]` better than printed in every metric; trials differ by ± noise.

    `best` is a function of the run that says by how much its validation numbers are better than those of others.
    """

    def give(run):
        if run.method not in offsets and run.method != "full":
            return None
        test = dict.fromkeys(METRICS, 0.5)
        for metric in FIVE:
            sign = 1 if METRICS[metric].greater_is_better else -1
            cell = PRINTED.get((metric, run.dataset, run.method))
            test[metric] = (cell.value.mean if cell else 0.5) + sign * offsets.get(run.method, 0.0)
            test[metric] += noise * (run.trial - 1)
        return make_result(test, 0.5 + (best(run) if best else 0.0))

    return give


def make_results(study, give):
    runs = tuple(study.runs())
    finished = tuple((run, result) for run in runs if (result := give(run)) is not None)
    done = {run.key() for run, _ in finished}
    return StudyResults(
        study, runs, finished, {run.key(): "done" if run.key() in done else "waiting" for run in runs}, {}
    )


def make_evidence(published, fair, **bridges):
    base = make_results(make_study("as-published"), near_paper(published))
    others = [
        build_bridge(base, make_results(make_study(f"bridge-{name}"), near_paper(offsets)))
        for name, offsets in bridges.items()
    ]
    return Evidence(base, make_results(make_study("fair", networks=("linear",)), near_paper(fair)), tuple(others))


def text_of(table, row, column):
    (found,) = (cells for cells in table.rows if cells[0].text == row)
    return found[list(table.header).index(column)].flat()


# What is printed.


def test_all_printed_numbers_are_there():
    assert len(PRINTED) == 5 * 6 * 14 == len(printed_cells())
    doubted = {key for key, cell in PRINTED.items() if cell.doubt}
    assert doubted == {("coverage", "scene", "crisp"), ("coverage", "mirflickr", "mime")}


# Cell by cell.


def test_a_verdict_for_every_number():
    evidence = make_evidence({"an": 0.0, "crisp": -0.3}, SMALL)
    report = make_cells(evidence)
    rows = list(csv.DictReader(io.StringIO(report.downloads["cells.csv"])))
    assert len(rows) == 420
    verdicts = {(row["metric"], row["dataset"], row["method"]): row["verdict"] for row in rows}
    for (metric, dataset, method), verdict in verdicts.items():
        if dataset == "mirflickr":
            expected = "not comparable"
        elif (dataset, method) == ("image", "an"):
            expected = "reproduced"
        elif (dataset, method) == ("image", "crisp"):
            expected = "worse"
        else:
            expected = "not run"
        assert verdict == expected, (metric, dataset, method)
    counted = {section.name: section for section in report.sections}["counts"].tables
    by_method = next(table for table in counted if table.header[0] == "Method")
    assert [cell.text for cell in by_method.rows[0]] == ["an", "5", "0", "0", "20", "5", "100 %"]
    assert [cell.text for cell in by_method.rows[-1]] == ["all", "5", "0", "5", "340", "70", "50 %"]
    text = render_markdown(report)
    assert "| an | 0.534 ± 0.000 (n = 3) [paper 0.534 ± 0.061, 0.000 reproduced] |" in text
    assert "0.449 ± 0.000 (n = 3) [paper 0.749 ± 0.037, −0.300 worse]" in text
    assert "[paper 0.082 ± " in text
    assert "paper 0.329 ± 0.331?" in text
    assert "The paper prints 420 tabular numbers: 5 metrics × 6 data sets × 14 methods." in text
    assert "340 were not run. 70 are not comparable: the paper’s features of mirflickr are not published" in text
    assert "coverage 0.082 lies below 0.093" in text


def test_missing_trials_and_runs_are_said():
    give = near_paper(SMALL)
    published = make_results(make_study("as-published"), lambda run: give(run) if run.trial else None)
    evidence = Evidence(published, make_results(make_study("fair"), give), ())
    text = render_markdown(make_cells(evidence))
    assert "(n = 2 of 3)" in text
    assert "**Not all was run: 16 of 48 runs of as-published are missing.**" in text
    assert "| as-published | 32 of 48 | 32 of 48 |" in text
    assert "network: linear" not in text


# One change at a time.


def test_a_change_is_measured_at_the_same_points():
    """The published study may choose a batch size that the bridge has not; it must not count."""

    def give(run):
        test = dict.fromkeys(METRICS, 0.6 + 0.1 * run.trial if run.batch_size == 16 else 0.95)
        return make_result(test, 0.9 if run.batch_size == 32 else 0.5)

    def give_bridge(run):
        return make_result(dict.fromkeys(METRICS, 0.65 + 0.1 * run.trial + 0.01 * (run.trial == 2)))

    base = make_results(make_study("as-published"), give)
    bridge = build_bridge(base, make_results(make_study("bridge-scaling"), give_bridge))
    assert bridge.change == "scaling: standard"
    changes = bridge.changes("average_precision")["image", "an"]
    np.testing.assert_allclose(changes, [0.05, 0.05, 0.06])
    evidence = Evidence(base, make_results(make_study("fair"), give), (bridge,))
    overview, image = effect_tables(evidence, "average_precision")
    assert text_of(image, "an", "as-published") == "0.950 ± 0.000"
    assert text_of(image, "an", "scaling: standard") == "+0.053 ± 0.006"
    assert text_of(image, "an", "Largest") == "scaling: standard"
    assert text_of(image, "an-ls", "scaling: standard") == "–"
    printed = [PRINTED["average_precision", "image", name].value.mean for name in ("an", "wan", "crisp")]
    assert text_of(overview, "image", "Paper") == f"{np.mean(printed):.3f}"
    assert text_of(overview, "image", "Methods") == "3"
    assert text_of(overview, "image", "scaling: standard") == "+0.053 ± 0.006"


def test_points_that_one_side_lacks_count_for_neither():
    def give(run):
        return make_result(dict.fromkeys(METRICS, 0.9 if run.lr == 1e-2 else 0.6), 0.9 if run.lr == 1e-2 else 0.5)

    def half(run):
        return None if run.lr == 1e-2 else make_result(dict.fromkeys(METRICS, 0.7))

    base = make_results(make_study("as-published"), give)
    bridge = build_bridge(base, make_results(make_study("bridge-linear"), half))
    np.testing.assert_allclose(bridge.changes("map")["image", "wan"], [0.1] * 3)
    base = make_results(make_study("as-published"), half)
    bridge = build_bridge(base, make_results(make_study("bridge-linear"), give))
    np.testing.assert_allclose(bridge.changes("map")["image", "wan"], [-0.1] * 3)


def test_the_largest_change_is_named_only_where_it_is_clear():
    def shifted(by, noise):
        def give(run):
            return make_result(dict.fromkeys(METRICS, 0.5 + by + noise * (run.trial - 1)))

        return give

    base = make_results(make_study("as-published"), shifted(0, 0))
    fair = make_results(make_study("fair"), shifted(0.2, 0))

    def largest(**bridges):
        made = [
            build_bridge(base, make_results(make_study(f"bridge-{n}"), shifted(*how))) for n, how in bridges.items()
        ]
        overview, _ = effect_tables(Evidence(base, fair, tuple(made)), "ranking_loss")
        return text_of(overview, "image", "Largest")

    assert largest(linear=(-0.08, 0.03), scaling=(0.05, 0.01)) == "network: linear"
    assert largest(linear=(-0.08, 0.05), scaling=(0.05, 0.01)) == "none is clear"
    assert largest(selection=(0.0004, 0)) == "none is clear"
    assert largest(selection=(0.001, 0)) == "selection: average precision"
    assert largest() == "–"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scaling": "none"}, "differs in none of them. Change one at a time."),
        ({"networks": ("linear",)}, "differs in networks, scaling. Change one at a time."),
        ({"datasets": ("scene",)}, "(full on scene) has no counterpart"),
        ({"seed": 1}, "has no counterpart"),
    ],
)
def test_a_bridge_changes_one_thing(changes, said):
    base = make_results(make_study("as-published"), near_paper(SMALL))
    other = make_results(make_study("bridge-scaling", **changes), near_paper(SMALL))
    with pytest.raises(ValueError, match="bridge-scaling must be as-published with one of") as error:
        build_bridge(base, other)
    assert said in str(error.value)


def test_bridges_that_ship_are_bridges():
    published, *bridges = (read(name) for name in ("as-published", *BRIDGES))
    for study in bridges:
        assert study.datasets == published.datasets
        assert set(study.methods) == {cell.method for cell in printed_cells()} - {"smile"} | {"full"}
        sizes = {dataset: study.budgets[dataset].batch_sizes for dataset in study.datasets}
        assert sizes == {"image": (16,), "scene": (16,), "yeast": (16,), "corel5k": (16,), "delicious": (32,)}
    # Of the data sets with the same budget, which differ in nothing that is matched, one will do.
    base, *others = (dataclasses.replace(study, datasets=("yeast", "delicious")) for study in (published, *bridges))
    base, *others = (StudyResults(study, tuple(study.runs()), (), {}, {}) for study in (base, *others))
    changes = [build_bridge(base, other).change for other in others]
    assert changes == ["network: linear", "scaling: standard", "selection: average precision"]


# What accounts for a number.


def test_what_accounts_for_a_number():
    """an: nothing; wan: reproduced with a linear network; crisp: as published."""
    evidence = make_evidence(
        {"an": -0.3, "wan": -0.3, "crisp": 0.0},
        {"an": -0.2, "wan": -0.2, "crisp": 0.3},
        linear={"an": -0.25, "wan": 0.0, "crisp": 0.0},
        scaling={"an": -0.4, "wan": -0.4, "crisp": 0.0},
    )
    reasons = reason_table(evidence, "image")
    title = METRICS["average_precision"].title
    assert text_of(reasons, "crisp", title) == "reproduced"
    assert text_of(reasons, "wan", title) == "worse; network: linear"
    assert text_of(reasons, "an", title) == "worse; nearest with fair (−0.200)"
    assert text_of(reasons, "an-ls", title) == "not run"
    accounts = account_table(evidence, "method")
    header = ["Method", "Not reproduced", "another split", "network: linear", "scaling: standard", "fair", "nothing"]
    assert accounts.header == header
    assert [cell.text for cell in accounts.rows[2]] == ["wan", "5", "0", "5", "0", "0", "0"]
    assert [cell.text for cell in accounts.rows[0]] == ["an", "5", "0", "0", "0", "0", "5"]
    assert [cell.text for cell in accounts.rows[-1]] == ["all", "10", "0", "5", "0", "0", "5"]
    assert text_of(account_table(evidence, "dataset"), "image", "Not reproduced") == "10"
    verdicts = verdict_table(evidence)
    assert text_of(verdicts, "image", "as-published") == "5 / 0 / 10"
    assert text_of(verdicts, "image", "the same at the bridges’ points") == "5 / 0 / 10"
    assert text_of(verdicts, "image", "network: linear") == "10 / 0 / 5"
    assert text_of(verdicts, "image", "fair") == "0 / 5 / 10"


def test_no_change_comes_nearer():
    evidence = make_evidence({"an": 0.3}, {"an": 0.4}, scaling={"an": 0.35})
    assert text_of(reason_table(evidence, "image"), "an", "Coverage") == "better; no change comes nearer"


def test_a_number_whose_single_changes_were_not_run_has_no_single_cause():
    evidence = make_evidence({"an": -0.3, "wan": -0.3}, {"an": 0.0, "wan": 0.0}, scaling={"an": -0.3})
    reasons = reason_table(evidence, "image")
    assert text_of(reasons, "an", "Coverage") == "worse; fair"
    assert text_of(reasons, "wan", "Coverage") == "worse; fair; single changes not run"


def test_fewer_points_are_no_explanation():
    """The published study chooses batch 32; at 16, where the bridge is, the number is reproduced without any change."""

    def give(run):
        return near_paper({"an": -0.3 if run.batch_size == 32 else 0.0}, best=lambda run: run.batch_size / 100)(run)

    base = make_results(make_study("as-published"), give)
    bridge = build_bridge(base, make_results(make_study("bridge-scaling"), near_paper({"an": 0.0})))
    evidence = Evidence(base, make_results(make_study("fair"), near_paper({"an": -0.3})), (bridge,))
    title = METRICS["ranking_loss"].title
    assert text_of(reason_table(evidence, "image"), "an", title) == "worse; no change comes nearer"


def test_another_split_accounts_for_what_splits_move():
    base = make_results(make_study("as-published"), near_paper({"an": -0.3}))
    for noise, said in ((0.16, "worse; another split, fair"), (0.1, "worse; no change comes nearer")):
        fair = make_results(make_study("fair"), near_paper({"an": -0.3}, noise))
        assert text_of(reason_table(Evidence(base, fair, ()), "image"), "an", METRICS["coverage"].title) == said


# Below the paper's row.


def test_a_shortfall_and_its_reasons():
    cell = PRINTED["hamming_loss", "image", "an"]

    def give(run):
        test = near_paper({"an": 0.1, "wan": 0.1, "crisp": 0.1})(run)["test"] | {"micro_f1": 0.0}
        if run.method == "an":  # predicts nothing; only its second configuration would have done
            test["hamming_loss"] = cell.value.mean + (0.1 if run.lr == 1e-2 else -0.1)
        elif run.method == "full":
            test["hamming_loss"] = 0.01
        return make_result(test, 0.9 if run.lr == 1e-2 else 0.1)

    fair = make_results(make_study("fair", networks=("linear",)), give)
    (found,) = find_shortfalls(fair)
    assert found.cell.key == cell.key
    assert found.hindsight == pytest.approx(cell.value.mean - 0.1)
    threshold, choice = found.reasons
    loss = cell.value.mean + 0.1
    assert threshold.startswith(f"threshold 0.5: {loss / 0.25 - 1:.2f} labels predicted for each true one")
    assert threshold.endswith("predicting none would give 0.250")
    assert choice == "choice"
    others = {"before": {cell.key: dataclasses.replace(found.ours, mean=cell.value.mean)}}
    (found,) = find_shortfalls(fair, others)
    assert found.reasons[-1] == f"before gives {cell.value.mean:.3f}"
    table = shortfall_table(fair, others)
    assert [row[1].text for row in table.rows] == ["an"]
    assert [each.text for each in reach_table(fair).rows[0]] == ["image", "15", "14", "0", "1", "55"]
    assert "Of 15 means of fair that the paper prints too, 1 are below" in reach_table(fair).about


def test_within_doubt_and_out_of_reach():
    scene = make_study("fair", networks=("linear",), datasets=("scene",))
    offset = -PRINTED["coverage", "scene", "crisp"].value.std
    found = {each.cell.metric: each for each in find_shortfalls(make_results(scene, near_paper({"crisp": offset})))}
    doubtful = found["coverage"].reasons
    assert doubtful[0].startswith("in doubt: coverage 0.082 lies below 0.093")
    assert doubtful[1:] == ("within two std", "out of reach"), "the oracle has 0.5 everywhere"
    worse = find_shortfalls(make_results(scene, near_paper({"crisp": -0.5})))
    assert {each.reasons[-1] for each in worse} == {"no configuration"}
    assert find_shortfalls(make_results(scene, near_paper({"crisp": 0.0}))) == []
    assert shortfall_table(make_results(scene, near_paper({"crisp": 0.1}))) is None


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_predicted_labels_are_worked_out_from_two_metrics(share):
    rng = np.random.default_rng(0)
    Y = (rng.random((300, 6)) < 0.3).astype(np.uint8)
    Y[:, 0] = 1
    predicted = (rng.random(Y.shape) < share).astype(np.float64)
    test = evaluate(Y, predicted, threshold=0.5)
    result = {"test": test, "cardinality": Y.sum(1).mean(), "n_labels": 6}
    assert predicted_per_true((None, result)) == pytest.approx(predicted.sum() / Y.sum(), abs=1e-9)
    exact = {"test": evaluate(Y, Y.astype(float), threshold=0.5), "cardinality": Y.sum(1).mean(), "n_labels": 6}
    assert predicted_per_true((None, exact)) == 1.0


# The files.


def fill(folder, study, give):
    store = Store(folder)
    store.keep_study(study)
    for run in study.runs():
        result = give(run)
        if result is not None:
            store.save(run, result)
    return store


def test_the_files_are_the_same_from_folders_and_packed(tmp_path):
    give = near_paper({"an": -0.2, "wan": 0.2, "crisp": 0.0}, noise=0.01)
    stores = {name: fill(tmp_path / name, make_study(name), give) for name in ("as-published", "fair", *BRIDGES)}
    for name, store in stores.items():
        (tmp_path / "packed" / name).mkdir(parents=True)
        store.pack(tmp_path / "packed" / name / "runs.jsonl.gz")
    folders = [tmp_path / name for name in stores]
    written = write_reproduction(folders[0], folders[1], folders[2:], out=tmp_path / "new" / "reproduction.md")
    names = ["reproduction.md", "reproduction.html", "reproduction-cells.md", "reproduction-cells.html"]
    assert [path.name for path in written] == names
    again = write_reproduction(*find_sources(tmp_path / "packed"), out=tmp_path / "again" / "reproduction.md")
    for path, other in zip(written, again, strict=True):
        assert path.read_bytes() == other.read_bytes()
    for page in (written[1].read_text(encoding="utf-8"), written[3].read_text(encoding="utf-8")):
        assert "https://" not in page
    assert "Download cells.csv" in page
    text = written[2].read_text(encoding="utf-8")
    assert text.count("### image: ") == 3
    for change in ("network: linear", "scaling: standard", "selection: average precision"):
        assert change in text
