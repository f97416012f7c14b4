"""What each rule of decision gives: F1, Hamming loss, rows without a label, labels per row.

    python research/scripts/decisions.py [--data NAMES] [--seeds 2] [--again] [--method crisp-plus]

Each data set is split and drawn anew per seed; the model is `SinglePositiveClassifier(method)` with its defaults. One
fit serves all rules. Rows that the model was not fitted to are judged with all their labels. What was measured is kept
in research/results/decisions.json and not measured again without --again. The page research/results/decisions.md, the
first table of docs/decisions.md and the figure docs/images/decisions.png are made from it; the sentences below that
table are not. `--data` limits what is measured, not what is shown. Some ten minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onepos import SinglePositiveClassifier
from onepos.datasets import Dataset, load_dataset
from onepos.files import write_atomically
from onepos.metrics import METRICS
from onepos.protocol import draw_single_positive, train_val_test_split

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "research" / "results" / "decisions.json"
PAGE = RESULTS.with_suffix(".md")
FIGURE = ROOT / "docs" / "images" / "decisions.png"
GUIDE, MARK = ROOT / "docs" / "decisions.md", "<!-- rules -->"
DATA = (
    "image scene emotions yeast yahoo_arts reuters_k500 rcv1subset1_top944 digit-scenes mirflickr_tags".split()  # noqa: SIM905
)
RULES: dict[str, float | str] = {"0.5": 0.5, "hamming": "hamming", "prior": "prior", "f1": "f1"}
PRECISIONS = (0.7, 0.9)
COLUMNS = {
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "hamming_loss": "Hamming loss",
    "without_label": "rows without a label",
    "labels_per_row": "labels per row",
}
COLOURS = {"0.5": "#9a9a9a", "hamming": "#c98a1b", "prior": "#2b6ca3", "f1": "#b3382c"}


def split(data: Dataset, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to fit to, and all others; the shipped split where validation rows are part of it."""
    shipped = data.splits or {}
    parts = [shipped[name] for name in ("train", "val", "test")] if "val" in shipped else None
    train, val, test = parts or train_val_test_split(data.Y, seed)
    return train, np.concatenate([val, test])


def measure(name: str, seed: int, method: str) -> dict[str, Any]:
    """Fit once and judge every rule."""
    data = load_dataset(name)
    train, rest = (data.take(rows) for rows in split(data, seed))
    began = time.perf_counter()
    model = SinglePositiveClassifier(method, random_state=seed, device="cpu")
    model.fit(train.X, draw_single_positive(train.Y, seed))
    seconds = time.perf_counter() - began
    probability = model.predict_proba(rest.X)
    rules = {title: judge(rest.Y, model.decide(probability, threshold=rule)) for title, rule in RULES.items()}
    return {
        "n_train": train.n_samples,
        "n_judged": rest.n_samples,
        "n_labels": data.n_labels,
        "labels_per_row": float(rest.Y.sum(1).mean()),
        "estimated_labels_per_row": float(np.nansum(model.class_prior_)),
        "seconds": round(seconds, 1),
        "rules": rules,
        "precision": {
            str(wanted): precision_and_recall(rest.Y, model.decide(probability, threshold=f"precision={wanted}"))
            for wanted in PRECISIONS
        },
    }


def judge(Y: np.ndarray, decided: np.ndarray) -> dict[str, float]:
    scores = {name: float(METRICS[name].function(Y, decided)) for name in ("micro_f1", "macro_f1", "hamming_loss")}
    return scores | {
        "without_label": float((decided.sum(1) == 0).mean()),
        "labels_per_row": float(decided.sum(1).mean()),
    }


def precision_and_recall(Y: np.ndarray, decided: np.ndarray) -> dict[str, float | None]:
    """Of all decisions of all labels together; the precision of none is None."""
    right, n = int((Y * decided).sum()), int(decided.sum())
    return {"precision": right / n if n else None, "recall": right / int(Y.sum())}


def mean_of(results: dict[str, Any], name: str, *path: str) -> float:
    """Over the seeds of a data set."""
    values = []
    for key, result in results.items():
        if key.partition("/")[0] == name:
            value = result
            for step in path:
                value = value[step]
            values.append(np.nan if value is None else value)
    return float(np.nanmean(values)) if not np.isnan(values).all() else np.nan


def list_shown(results: dict[str, Any]) -> list[str]:
    return [name for name in DATA if any(key.partition("/")[0] == name for key in results)]


def write_page(results: dict[str, Any], method: str) -> str:
    shown = list_shown(results)
    seeds = len({key.partition("/")[2] for key in results})
    lines = [
        "# Rules of decision",
        "",
        "`python research/scripts/decisions.py` made this page and [the figure](../../docs/images/decisions.png). "
        f"Method `{method}`; means over {seeds} splits and draws; one fit for all rules, which [docs/decisions.md]"
        "(../../docs/decisions.md) explains. `0.5` is the number, by which a row may get no label; by `hamming`, "
        "`prior` and `f1` each row gets at least its most probable label. The judged rows were not used in the fit.",
        "",
        "## Mean over the data sets",
        "",
        *overall(results, shown),
        "",
        "The last column is the mean of |log(predicted / true)| of the labels per row: 0 is right, 0.69 is wrong by a "
        "factor of two.",
        "",
        "## Each data set",
        "",
        f"| data set | rule | {' | '.join(COLUMNS.values())} | true labels per row | estimated |",
        f"|:---|:---|{'---:|' * (len(COLUMNS) + 2)}",
    ]
    for name in shown:
        truth = mean_of(results, name, "labels_per_row")
        estimated = mean_of(results, name, "estimated_labels_per_row")
        for rule in RULES:
            numbers = [mean_of(results, name, "rules", rule, column) for column in COLUMNS]
            cells = [f"{value:.3f}" for value in numbers[:-1]] + [
                f"{value:.2f}" for value in (numbers[-1], truth, estimated)
            ]
            lines.append(f"| {name} | {rule} | {' | '.join(cells)} |")
    lines += [
        "",
        "## Precision wanted and reached",
        "",
        "All decisions of all labels together; – where nothing was predicted.",
        "",
        "| data set | "
        + " | ".join(f"precision at precision={p} | recall at precision={p}" for p in map(str, PRECISIONS))
        + " |",
        f"|:---|{'---:|' * (2 * len(PRECISIONS))}",
    ]
    for name in shown:
        numbers = [
            mean_of(results, name, "precision", str(p), what) for p in PRECISIONS for what in ("precision", "recall")
        ]
        lines.append(f"| {name} | {' | '.join('–' if np.isnan(v) else f'{v:.3f}' for v in numbers)} |")
    return "\n".join(lines) + "\n"


def overall(results: dict[str, Any], shown: list[str]) -> list[str]:
    columns = [name for name in COLUMNS if name != "labels_per_row"]
    lines = [
        f"| rule | {' | '.join(COLUMNS[name] for name in columns)} | error of labels per row |",
        f"|:---|{'---:|' * (len(columns) + 1)}",
    ]
    for rule in RULES:
        means = [np.mean([mean_of(results, name, "rules", rule, column) for name in shown]) for column in columns]
        factor = [
            mean_of(results, name, "rules", rule, "labels_per_row") / mean_of(results, name, "labels_per_row")
            for name in shown
        ]
        error = np.mean(np.abs(np.log(factor)))
        lines.append(f"| {rule} | {' | '.join(f'{value:.3f}' for value in means)} | {error:.2f} |")
    return lines


def draw(results: dict[str, Any], path: Path) -> None:
    """Per data set and rule: F1s, rows without a label, and labels per row against the truth."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = list_shown(results)
    position = np.arange(len(shown))
    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context(style):
        figure, axes = plt.subplots(3, 2, figsize=(10, 8.6), layout="constrained", sharex=True)
        for axis, (column, title) in zip(axes.flat, COLUMNS.items(), strict=False):
            for k, (rule, colour) in enumerate(COLOURS.items()):
                values = [mean_of(results, name, "rules", rule, column) for name in shown]
                axis.bar(position + 0.2 * (k - 1.5), values, 0.19, color=colour, label=rule)
            axis.set_title(title, loc="left")
        truth = [mean_of(results, name, "labels_per_row") for name in shown]
        axes[2, 0].plot(position, truth, "_", color="black", ms=26, mew=1.5, label="truth")
        handles, labels = axes[2, 0].get_legend_handles_labels()
        axes[2, 1].set_axis_off()
        axes[2, 1].legend(handles, labels, loc="center", frameon=False, title="rule")
        names = [name.replace("_top944", "") for name in shown]
        for axis in (axes[1, 1], axes[2, 0]):
            axis.tick_params(labelbottom=True)
            axis.set_xticks(position, names, rotation=35, ha="right")
        figure.savefig(path, dpi=110, metadata={"Software": None})
        plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--method", default="crisp-plus")
    parser.add_argument("--again", action="store_true", help="measure anew what is kept")
    options = parser.parse_args()

    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # uncertain priors are part of what is measured
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    results = kept["results"] if kept.get("method") == options.method else {}
    for seed in range(options.seeds):
        for name in options.data.split(","):
            key = f"{name}/{seed}"
            if key in results and not options.again:
                continue
            results[key] = measure(name, seed, options.method)
            text = json.dumps({"method": options.method, "results": results}, indent=1)
            write_atomically(RESULTS, text + "\n")
            found = results[key]["rules"]
            print(
                key,
                *(f"{rule} {found[rule]['micro_f1']:.3f} {found[rule]['macro_f1']:.3f}" for rule in RULES),
                flush=True,
            )
    write_atomically(PAGE, write_page(results, options.method))
    before, _, after = GUIDE.read_text(encoding="utf-8").split(MARK)
    table = "\n".join(overall(results, list_shown(results)))
    write_atomically(GUIDE, f"{before}{MARK}\n{table}\n{MARK}{after}")
    draw(results, FIGURE)


if __name__ == "__main__":
    main()
