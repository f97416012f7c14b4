import csv
import io
import math

import pytest

from onepos.report.tables import (
    best_cells,
    csv_table,
    latex_table,
    markdown_table,
    metric_cells,
    metrics_table,
    priors_table,
    run_title,
)


def small(*runs, greater_is_better=False):
    metric = {"name": "m", "title": "M", "greater_is_better": greater_is_better}
    return {"metrics": [metric], "runs": [{"name": r, "role": r, "scores": {"m": s}} for r, s in runs]}


def test_metrics_table_has_a_row_per_metric_and_a_column_per_run(result):
    header, rows = metrics_table(result)
    assert header == ["Metric", "full labels (oracle)", "AN (floor)", "CRISP", "WAN"]
    assert [row[0] for row in rows[:2]] == ["Ranking loss ↓", "Hamming loss ↓"]
    assert "mAP ↑" in [row[0] for row in rows]
    assert rows[-1][0] == "Training time (s)"
    assert len(rows) == len(result["metrics"]) + 1
    assert all(len(row) == len(header) for row in rows)


@pytest.mark.parametrize(("greater_is_better", "scores"), [(False, (0.1, 0.5, 0.2)), (True, (0.9, 0.5, 0.8))])
def test_share_of_the_distance_closed(greater_is_better, scores):
    runs = zip(("oracle", "floor", "method"), scores, strict=True)
    oracle, floor, method = metric_cells(small(*runs, greater_is_better=greater_is_better))[0]
    assert oracle.share is None
    assert floor.share is None
    assert method.share == pytest.approx(0.75)


def test_share_is_left_out_where_the_floor_is_not_worse_than_the_oracle():
    cells = metric_cells(small(("oracle", 0.5), ("floor", 0.5), ("method", 0.2)))[0]
    assert [cell.share for cell in cells] == [None] * 3


def test_a_method_worse_than_the_floor_has_a_negative_share():
    _, rows = metrics_table(small(("oracle", 0.1), ("floor", 0.5), ("method", 0.6)))
    assert rows == [["M ↓", "0.100", "0.500", "0.600 (−25 %)"]]


def test_best_leaves_the_oracle_out_and_counts_what_looks_equal_as_equal():
    assert best_cells(small(("oracle", 0.1), ("floor", 0.5), ("method", 0.2))) == {(0, 3)}
    tied = small(("oracle", 0.1), ("floor", 0.5), ("method", 0.2001), ("method", 0.2002))
    assert best_cells(tied) == {(0, 3), (0, 4)}
    assert best_cells(small(("oracle", 0.1), ("method", 0.2))) == set()


@pytest.mark.parametrize("missing", [None, math.nan])
def test_missing_scores_are_dashes(missing):
    assert metrics_table(small(("oracle", 0.1), ("method", missing)))[1] == [["M ↓", "0.100", "–"]]
    del (without := small(("method", 0.1)))["runs"][0]["scores"]
    assert metrics_table(without)[1] == [["M ↓", "–"]]


def test_run_title_names_the_role_once():
    assert run_title({"name": "full labels (oracle)", "role": "oracle"}) == "full labels (oracle)"
    assert run_title({"name": "AN", "role": "floor"}) == "AN (floor)"


def test_priors_table(result):
    priors = {name: values[:2] for name, values in result["priors"].items()}
    priors |= {"label": ["a", "b"], "true": [0.5, 0.1], "estimated": [0.48, math.nan], "lower": [0.4, None]}
    priors |= {"upper": [0.6, None], "n_positive": [900, 0], "observed_share": [0.3, 0.0], "reliable": [False, False]}
    header, rows = priors_table({"priors": priors})
    assert header[0] == "Label"
    assert rows[0] == ["a", "900", "0.300", "0.480", "0.400 to 0.600", "0.500", "−0.020", "no"]
    assert rows[1] == ["b", "0", "0.000", "unknown", "unknown", "0.100", "–", "unknown"]


def test_priors_table_without_truth_has_no_error_column(result):
    result["priors"]["true"] = None
    header, rows = priors_table(result)
    assert "True prior" not in header
    assert "Error" not in header
    assert all(len(row) == len(header) for row in rows)


def test_priors_table_without_priors_is_empty():
    assert priors_table({"priors": None})[1] == []


def test_markdown_escapes_the_bar_and_marks_the_best(result):
    assert markdown_table([["a|b", "1\n2"]], ["x", "y"], bold={(0, 0)}).splitlines()[-1] == r"| **a\|b** | 1 2 |"
    header, rows = metrics_table(result)
    assert markdown_table(rows, header, best_cells(result)).count("**") == 2 * len(result["metrics"])


def test_csv_reads_back():
    rows = [['say "hi", you', "1"], ["two\nlines", "2"]]
    assert list(csv.reader(io.StringIO(csv_table(rows, ["a", "b"])))) == [["a", "b"], *rows]


def test_latex_escapes_and_marks():
    text = latex_table([["50 % of a_b & {c}\\", "−1"]], ["x ↓", "y"], bold={(0, 1)})
    assert r"50 \% of a\_b \& \{c\}\textbackslash{} & \textbf{$-$1} \\" in text
    assert r"x $\downarrow$ & y \\" in text
    assert text.startswith(r"\begin{tabular}{lr}")
