import csv
import io
import math

import pytest

from onepos.report.charts.fits import run_title
from onepos.report.demo_page import metrics_table
from onepos.report.tables import Cell, Table, csv_table, latex_table, markdown_table, priors_table


def small(*runs, greater_is_better=False):
    metric = {"name": "m", "title": "M", "greater_is_better": greater_is_better}
    return {"metrics": [metric], "runs": [{"name": r, "role": r, "scores": {"m": s}} for r, s in runs]}


def scores_of(result):
    """The cells of the first metric, one per run."""
    return metrics_table(result).rows[0][1:]


def test_metrics_table_has_a_row_per_metric_and_a_column_per_run(result):
    table = metrics_table(result)
    assert table.header == ["Metric", "full labels (oracle)", "AN (floor)", "CRISP", "WAN"]
    assert [row[0].text for row in table.rows[:2]] == ["Ranking loss ↓", "Hamming loss ↓"]
    assert "mAP ↑" in [row[0].text for row in table.rows]
    assert table.rows[-1][0].text == "Time of the fit (s)"
    assert len(table.rows) == len(result["metrics"]) + 1
    assert all(len(row) == len(table.header) for row in table.rows)


@pytest.mark.parametrize(("greater_is_better", "scores"), [(False, (0.1, 0.5, 0.2)), (True, (0.9, 0.5, 0.8))])
def test_share_of_the_distance_closed(greater_is_better, scores):
    runs = zip(("oracle", "floor", "method"), scores, strict=True)
    oracle, floor, method = scores_of(small(*runs, greater_is_better=greater_is_better))
    assert (oracle.heat, floor.heat) == (None, None)
    assert method.heat == pytest.approx(0.75)
    assert method.notes == (("75 %", ""),)


def test_share_is_left_out_where_the_floor_is_not_worse_than_the_oracle():
    cells = scores_of(small(("oracle", 0.5), ("floor", 0.5), ("method", 0.2)))
    assert [cell.notes for cell in cells] == [()] * 3


def test_a_method_worse_than_the_floor_has_a_negative_share():
    table = metrics_table(small(("oracle", 0.1), ("floor", 0.5), ("method", 0.6)))
    assert table.texts() == [["M ↓", "0.100", "0.500", "0.600 [−25 % worse]"]]


def test_best_leaves_the_oracle_out_and_counts_what_looks_equal_as_equal():
    def best(*runs):
        return [cell.is_best for cell in scores_of(small(*runs))]

    assert best(("oracle", 0.1), ("floor", 0.5), ("method", 0.2)) == [False, False, True]
    tied = best(("oracle", 0.1), ("floor", 0.5), ("method", 0.2001), ("method", 0.2002))
    assert tied == [False, False, True, True]
    assert best(("oracle", 0.1), ("method", 0.2)) == [False, False]


@pytest.mark.parametrize("missing", [None, math.nan])
def test_missing_scores_are_dashes(missing):
    assert metrics_table(small(("oracle", 0.1), ("method", missing))).texts() == [["M ↓", "0.100", "–"]]
    del (without := small(("method", 0.1)))["runs"][0]["scores"]
    assert metrics_table(without).texts() == [["M ↓", "–"]]


def test_run_title_names_the_role_once():
    assert run_title({"name": "full labels (oracle)", "role": "oracle"}) == "full labels (oracle)"
    assert run_title({"name": "AN", "role": "floor"}) == "AN (floor)"


def test_priors_table(result):
    priors = {name: values[:2] for name, values in result["priors"].items()}
    priors |= {"label": ["a", "b"], "true": [0.5, 0.1], "estimated": [0.48, math.nan], "lower": [0.4, None]}
    priors |= {"upper": [0.6, None], "n_positive": [900, 0], "observed_share": [0.3, 0.0], "reliable": [False, False]}
    table = priors_table(priors, "priors", "Priors")
    assert table.header[0] == "Label"
    first, second = table.texts()
    assert first == ["a", "900", "0.300", "0.480", "0.400 to 0.600", "0.500", "−0.020", "no"]
    assert second == ["b", "0", "0.000", "unknown", "unknown", "0.100", "–", "unknown"]
    assert [row[-1].tone for row in table.rows] == ["worse", "unknown"]


def test_priors_table_without_truth_has_no_error_column(result):
    result["priors"]["true"] = None
    table = priors_table(result["priors"], "priors", "Priors")
    assert not {"True prior", "Error"} & set(table.header)
    assert all(len(row) == len(table.header) for row in table.rows)


def test_priors_table_leaves_out_what_nobody_knows():
    table = priors_table({"label": ["a"], "estimated": [0.5], "lower": [0.4], "upper": [0.6]}, "priors", "Priors")
    assert table.header == ["Label", "Estimated prior", "Interval"]
    assert table.texts() == [["a", "0.500", "0.400 to 0.600"]]


def test_markdown_escapes_the_bar_and_marks_the_best(result):
    assert markdown_table([["a|b", "1\n2"]], ["x", "y"], bold={(0, 0)}).splitlines()[-1] == r"| **a\|b** | 1 2 |"
    assert metrics_table(result).markdown().count("**") == 2 * len(result["metrics"])


def test_csv_reads_back():
    rows = [['say "hi", you', "1"], ["two\nlines", "2"]]
    assert list(csv.reader(io.StringIO(csv_table(rows, ["a", "b"])))) == [["a", "b"], *rows]


def test_latex_escapes_and_marks():
    text = latex_table([["50 % of a_b & {c}\\", "−1"]], ["x ↓", "y"], bold={(0, 1)})
    assert r"50 \% of a\_b \& \{c\}\textbackslash{} & \textbf{$-$1} \\" in text
    assert r"x $\downarrow$ & y \\" in text
    assert text.startswith(r"\begin{tabular}{lr}")


def test_a_table_in_three_formats():
    notes = (("once 0.1", "worse"), ("1 of 2 trials", "warning"))
    table = Table("x", "X", ["Method", "a_b"], [[Cell("m", "floor"), Cell("0.5", "1", notes, is_best=True)]])
    flat = "0.5 (1) [once 0.1 worse; 1 of 2 trials]"
    assert table.markdown().splitlines()[-1] == f"| m (floor) | **{flat}** |"
    assert rf"m (floor) & \textbf{{{flat}}} \\" in table.latex()
    assert r"a\_b" in table.latex()
    assert list(csv.reader(io.StringIO(table.csv()))) == [["Method", "a_b"], ["m (floor)", flat]]
