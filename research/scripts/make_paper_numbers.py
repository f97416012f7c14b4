"""Write research/crisp_paper/paper.json: the numbers printed in the CRISP paper.

    python research/scripts/make_paper_numbers.py results.json crisp.tex [--out paper.json]

results.json holds the tables of results and of data sets, taken from the paper's source. crisp.tex is that source and
gives what results.json lacks: the table of Wilcoxon tests and the domains of the tabular data sets. No number is typed
here.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from onepos.files import write_atomically

PAPER = "Can Class-Priors Help Single-Positive Multi-Label Learning?"
OUT = Path(__file__).parents[1] / "crisp_paper" / "paper.json"

# Table in results.json → its \label in the paper.
LABELS = {
    "mAP": "mAP",
    "ranking": "ranking",
    "ap": "ap",
    "coverage": "coverage",
    "hamming": "hamming",
    "one_error": "one_error",
    "time": "tab:time",
    "crisp-3ep": "tab:3ep",
    "crisp-val": "Crisp-val",
    "crisp-val-mll": "val-mll",
}
# What results.json or the paper calls a metric → what METRICS calls it.
METRICS = {
    "mAP (percent)": "map",
    "ranking_loss": "ranking_loss",
    "average_precision (per example)": "average_precision",
    "average_precision": "average_precision",
    "coverage / number of classes": "coverage",
    "coverage": "coverage",
    "hamming_loss at 0.5": "hamming_loss",
    "hamming_loss": "hamming_loss",
    "one_error": "one_error",
    "Coverage": "coverage",
    "One-error": "one_error",
    "Ranking loss": "ranking_loss",
    "Hamming loss": "hamming_loss",
    "Average precision": "average_precision",
}
TIMES = {"class-prior estimation": "prior_time", "whole training epoch": "epoch_time"}
COUNTS = {
    "train": "n_train",
    "val": "n_validation",
    "test": "n_test",
    "examples": "n_samples",
    "features": "n_features",
    "classes": "n_labels",
}
DATASET_LABELS = {"images": "image_ds", "mll": "mll_ds"}


def make_tables(tables: dict[str, Any]) -> list[dict[str, Any]]:
    """One table per label and metric: method → data set → [mean, std]."""
    made = []
    for name, table in tables.items():
        label = LABELS[name]
        if name == "time":  # the paper times its own method only
            for row, cells in table["rows"].items():
                rows = {"crisp": {dataset: [value, None] for dataset, value in cells.items()}}
                made.append({"label": label, "metric": TIMES[row], "scale": None, "rows": rows})
        elif "rows" in table:
            scale = 100 if "percent" in table["metric"] else 1
            rows = {method: make_row(cells) for method, cells in table["rows"].items()}
            made.append({"label": label, "metric": METRICS[table["metric"]], "scale": scale, "rows": rows})
        else:
            for metric, cells in table.items():
                rows = {"crisp-val": make_row(cells)}
                made.append({"label": label, "metric": METRICS[metric], "scale": 1, "rows": rows})
    return made


def make_row(cells: dict[str, dict[str, float]]) -> dict[str, list[float]]:
    return {dataset: [cell["mean"], cell["std"]] for dataset, cell in cells.items()}


def make_datasets(families: dict[str, Any], source: str) -> dict[str, dict[str, Any]]:
    domains = dict(re.findall(r"^\s*(\w+)\s*&[^\n]*&\s*(\w+)\s*\\\\", find_table(source, "mll_ds"), re.MULTILINE))
    domains = {name.lower(): domain for name, domain in domains.items()}
    made: dict[str, dict[str, Any]] = {}
    for family, datasets in families.items():
        for name, counts in datasets.items():
            made[name] = {"label": DATASET_LABELS[family]} | {COUNTS[key]: count for key, count in counts.items()}
            if name in domains:
                made[name]["domain"] = domains[name]
    return made


def make_wilcoxon(source: str) -> dict[str, Any]:
    """The paper's method against the others: metric → method → [outcome, p]."""
    names = dict(re.findall(r"\\newcommand\{\\(\w+)\}\[0\]\{\\textsc\{([\w-]+)\}\}", source))
    table = find_table(source, "Wilcoxon")
    head = next(line for line in table.splitlines() if "against" in line)
    reference, *others = [names[macro].lower() for macro in re.findall(r"\{\\(\w+)\}", head)]
    rows = {}
    for metric, line in re.findall(r"^\s*\\textit\{([^}]+)\}(.*)$", table, re.MULTILINE):
        cells = re.findall(r"\\textbf\{(\w+)\}\{\[\}([\d.]+)\{\]\}", line)
        rows[METRICS[metric]] = {other: [outcome, float(p)] for other, (outcome, p) in zip(others, cells, strict=True)}
    return {"label": "Wilcoxon", "reference": reference, "rows": rows}


def find_table(source: str, label: str) -> str:
    start = source.index(rf"\label{{{label}}}")
    return source[source.index(r"\toprule", start) : source.index(r"\bottomrule", start) + len(r"\bottomrule")]


def make_numbers(results: dict[str, Any], source: str) -> dict[str, Any]:
    return {
        "source": PAPER,
        "tables": make_tables(results["tables"]),
        "wilcoxon": make_wilcoxon(source),
        "datasets": make_datasets(results["datasets"], source),
    }


def to_text(numbers: dict[str, Any]) -> str:
    """JSON with one line per row of a table, so that it is small and a change can be read."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    def rows(values: dict[str, Any], indent: str) -> str:
        return ",\n".join(f"{indent}{line(key)}: {line(value)}" for key, value in values.items())

    def block(table: dict[str, Any], indent: str) -> str:
        facts = ", ".join(f"{line(key)}: {line(value)}" for key, value in table.items() if key != "rows")
        return f'{{{facts}, "rows": {{\n{rows(table["rows"], indent + " ")}\n{indent}}}}}'

    tables = ",\n".join(f"  {block(table, '  ')}" for table in numbers["tables"])
    return (
        f'{{\n "source": {line(numbers["source"])},\n "tables": [\n{tables}\n ],\n'
        f' "wilcoxon": {block(numbers["wilcoxon"], " ")},\n'
        f' "datasets": {{\n{rows(numbers["datasets"], "  ")}\n }}\n}}\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="results.json")
    parser.add_argument("source", type=Path, help="crisp.tex")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    results = json.loads(arguments.results.read_text(encoding="utf-8"))
    write_atomically(arguments.out, to_text(make_numbers(results, arguments.source.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
