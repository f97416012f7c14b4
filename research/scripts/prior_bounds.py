"""Eq. (2) where few positives are observed: the paper's bound beside a tighter one, on five data sets.

    python research/scripts/prior_bounds.py [--data corel5k,cal500] [--trials 3] [--out FILE] [--figure FILE]

A trial draws a split (80 % of the rows) and one label per row, as in prior_estimators.py. Two kinds of scores: those of
an assume-negative network on its own training rows, as in the paper, and held-out probabilities (of Delicious in the
first trial only, they take a minute). The script runs on one core, about three minutes in all. With --out it writes the
page there, otherwise it prints it; with --figure it writes the figure, which is about Corel5k.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from prior_estimators import EPOCHS, HIDDEN, Found, Trial, make_trial, own_rows_logits
from scipy.stats import beta

from onepos import held_out_probabilities
from onepos.datasets import load_dataset
from onepos.files import write_atomically
from onepos.priors import BOUNDS, estimate_priors

mpl.use("Agg")
import matplotlib.pyplot as plt

DATA = ("corel5k", "delicious", "cal500", "yeast", "scene")
HELD_OUT_ONCE = ("delicious",)
OWN, HELD_OUT = "own rows", "held out"
RECALLS = tuple(np.arange(1, 11) / 10)
DELTA, TAU = 0.01, 0.01
PAGE = f"""# Eq. (2) with few observed positives

**What for.** Eq. (2) of the CRISP paper estimates the prior of a label from the share of rows, and of observed
positives, above a threshold. With few positives its confidence term outweighs everything else, and it tends to take the
bin that holds all of them. `bound="beta"` replaces the term (DKW) by exact bounds. This page shows whether the sum of
the priors, the estimated number of labels per row κ̂, is then right. [Class
priors](../../docs/priors.md#few-observed-positives) explains the two bounds.

**How to read it.** κ is the true number of labels per row; κ̂ should equal it. The error is Σ|π̂−π| / Σπ: 0 is right, and
an estimate of 0 for every label would have 1. *Own rows*: as in the paper, an assume-negative MLP-{HIDDEN} after
{EPOCHS} epochs scores the rows it was trained on. The theorem does not cover this, since the scores depend on the
sample. *Held out*: `held_out_probabilities`, where no model saw the label of the row that it scores. Means over trials;
seeds {{{{seeds}}}}, each draws a split (80 % of the rows are used) and one label per row. δ = {DELTA}, τ = {TAU}.

**Made by** `{{{{command}}}}`.

## κ̂, error, and how often the bin holds all positives

*Lowest*: the share of labels for which ẑ is the lowest positive, of those with two observed positives or more.

{{{{kappa}}}}

## The upper end

*Holds*: share of the labels whose `upper` is at least the true prior. *Is 1*: share for which it says nothing. One
label drawn uniformly from each row, as here, is not quite the sample of the theorem.

{{{{upper}}}}

## Pooled over labels

κ̂ as 1/Σρ²/π̂, with ρ the observed shares. Frequent labels dominate it. With "dkw" on held-out probabilities it is the
upper one of the two estimates behind "bracket".

{{{{pooled}}}}

## The bound, or the scores?

*Best common q̂ᵖ*: the bins of all labels hold the same share of positives, one of 0.1 to 1.0, chosen **with the true
priors** for the least error. A bound pooled over labels that chooses one share for all can at best find this one.

*Σ least q/qᵖ*: for each label the least ratio with **all labels known**, over the bins with at least half of its
positives. Here positives are not few, and no bound is needed. What it has above κ is the fault of the scores: each such
bin holds many rows without the label. It counts labels that nobody observed as well; κ̂ does not.

{{{{limits}}}}
"""
COLOURS = {"dkw": "tab:orange", "beta": "tab:blue"}


@dataclass(frozen=True)
class Scored:
    """One trial with one kind of scores: what each bound makes of it, and two numbers that need the truth."""

    found: dict[str, Found]
    recall: tuple[float, float, float]
    floor: float


@dataclass(frozen=True)
class Curve:
    """The bins of one label: rows N and positives k in each, n and n_j."""

    rows: np.ndarray
    positives: np.ndarray
    n: int
    n_positive: int

    @property
    def ratio(self) -> np.ndarray:
        """q̂/q̂ᵖ, what each bin gives as π̂."""
        return self.rows / self.n / self.recall

    @property
    def recall(self) -> np.ndarray:
        """q̂ᵖ."""
        return self.positives / self.n_positive

    def objective(self, bound: str) -> np.ndarray:
        """What ẑ minimises, from the definition."""
        n, m = self.n, self.n_positive
        if bound == "dkw":
            return self.ratio + (1 + TAU) / self.recall * sum(np.sqrt(np.log(4 / DELTA) / 2 / size) for size in (n, m))
        most = np.where(self.rows < n, beta.isf(DELTA / 4 / n, self.rows + 1, np.maximum(n - self.rows, 1)), 1)
        return most / beta.ppf(DELTA / 4 / m, self.positives, m - self.positives + 1)


def make_curve(scores: np.ndarray, positive: np.ndarray) -> Curve:
    """The bins of one label, from its column of scores and its 0/1 column of positives."""
    candidates = np.unique(scores[positive > 0])[::-1]
    rows = len(scores) - np.searchsorted(np.sort(scores), candidates)
    hits = scores[positive > 0]
    return Curve(rows, len(hits) - np.searchsorted(np.sort(hits), candidates), len(scores), len(hits))


def best_common_recall(curves: list[Curve | None], truth: np.ndarray) -> tuple[float, float, float]:
    """One q̂ᵖ for all labels, chosen by the true priors: its level, κ̂ and error."""
    tried = []
    for level in RECALLS:
        prior = np.array([0.0 if c is None else c.ratio[np.argmax(c.recall >= level - 1e-9)] for c in curves])
        tried.append((float(np.abs(prior - truth).sum() / truth.sum()), float(prior.sum()), float(level)))
    error, total, level = min(tried)
    return level, total, error


def least_ratio(scores: np.ndarray, Y: np.ndarray) -> float:
    """Σ_j of the least q/qᵖ with all labels known, over bins with at least half of the positives."""
    total = 0.0
    for j in np.flatnonzero(Y.any(0)):
        curve = make_curve(scores[:, j], Y[:, j])
        total += curve.ratio[curve.recall >= 0.5].min()
    return total


def evaluate(trial: Trial, scores: np.ndarray) -> Scored:
    truth = trial.Y.mean(0)
    found = {bound: Found(estimate_priors(scores, trial.observed, bound=bound), truth) for bound in BOUNDS}
    known = found["dkw"].estimate.n_positive > 0
    curves = [make_curve(scores[:, j], trial.observed[:, j]) if known[j] else None for j in range(len(truth))]
    return Scored(found, best_common_recall(curves, truth), least_ratio(scores, trial.Y))


def lowest(found: Found) -> float:
    """Share of the labels with two positives or more for which the bin holds all of them."""
    several = found.estimate.n_positive > 1
    return float(np.mean(found.estimate.n_effective[several] == found.estimate.n_positive[several]))


def pooled(found: Found) -> float:
    """1 / Σρ²/π̂: the mean number of labels from all labels together."""
    share = found.estimate.n_positive / found.estimate.n_positive.sum()
    known = share > 0
    return float(1 / np.sum(share[known] ** 2 / found.estimate.prior[known]))


def held(found: Found) -> float:
    """Share of the labels with an estimate whose `upper` is at least the true prior."""
    known = found.estimate.n_positive > 0
    return float(np.mean(found.estimate.upper[known] >= found.truth[known]))


def vacuous(found: Found) -> float:
    """Share of the labels with an estimate whose `upper` is 1."""
    return float(np.mean(found.estimate.upper[found.estimate.n_positive > 0] == 1))


Results = dict[tuple[str, str], list[Scored]]
Column = tuple[str, str, Callable[[Found], float]]


def compare(results: Results, columns: list[Column]) -> Iterator[str]:
    """A row per data set and kind of scores; a pair of columns, dkw and beta, per quantity; means over trials."""
    names = [f"{title}, {bound}" for title, _, _ in columns for bound in BOUNDS]
    yield "| data set | scores | trials | κ | " + " | ".join(names) + " |"
    yield "|---|---|---|---|" + "---|" * len(names)
    for (data, kind), trials in results.items():
        cells = [
            format(np.mean([value(trial.found[bound]) for trial in trials]), form)
            for _, form, value in columns
            for bound in BOUNDS
        ]
        kappa = np.mean([trial.found["dkw"].truth.sum() for trial in trials])
        yield f"| {data} | {kind} | {len(trials)} | {kappa:.2f} | " + " | ".join(cells) + " |"


def limits(results: Results) -> Iterator[str]:
    yield "| data set | scores | κ | best common q̂ᵖ | its κ̂ | its error | Σ least q/qᵖ, all labels known |"
    yield "|---|---|---|---|---|---|---|"
    for (data, kind), trials in results.items():
        kappa = np.mean([trial.found["dkw"].truth.sum() for trial in trials])
        levels = sorted({trial.recall[0] for trial in trials})
        span = f"{levels[0]:.1f}" if len(levels) == 1 else f"{levels[0]:.1f} to {levels[-1]:.1f}"
        _, total, error = np.mean([trial.recall for trial in trials], axis=0)
        floor = np.mean([trial.floor for trial in trials])
        yield f"| {data} | {kind} | {kappa:.2f} | {span} | {total:.2f} | {error:.2f} | {floor:.1f} |"


def make_page(results: Results, command: str, seeds: str) -> str:
    kappa: list[Column] = [
        ("κ̂", ".2f", lambda found: found.estimate.cardinality),
        ("error", ".2f", lambda found: found.error),
        ("lowest", ".2f", lowest),
    ]
    tables = {
        "{{kappa}}": compare(results, kappa),
        "{{upper}}": compare(results, [("holds", ".3f", held), ("is 1", ".2f", vacuous)]),
        "{{pooled}}": compare(results, [("pooled κ̂", ".2f", pooled)]),
        "{{limits}}": limits(results),
    }
    page = PAGE.replace("{{command}}", command).replace("{{seeds}}", seeds)
    for place, table in tables.items():
        page = page.replace(place, "\n".join(table))
    return page


def pick_label(estimates: dict[str, Found], n_positive: int) -> int:
    """Of the labels with so many positives the one where the two estimates differ most."""
    ratio = np.log(estimates["dkw"].estimate.prior / estimates["beta"].estimate.prior)
    return int(np.argmax(np.where(estimates["dkw"].estimate.n_positive == n_positive, ratio, -np.inf)))


def draw_figure(trial: Trial, scores: np.ndarray, found: dict[str, Found], file: Path) -> str:
    """Left: both objectives of one label; right: q̂ᵖ(ẑ) of all labels. Returns a line on the label."""
    j = pick_label(found, n_positive=10)
    curve, truth = make_curve(scores[:, j], trial.observed[:, j]), trial.Y[:, j].mean()
    with plt.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.5), layout="constrained")
        left.plot(curve.recall, curve.ratio, ".:", color="grey", label="q̂/q̂ᵖ, the estimate")
        for bound in BOUNDS:
            objective = curve.objective(bound)
            best = int(np.argmin(objective))
            left.plot(curve.recall, objective, ".-", color=COLOURS[bound], label=f'"{bound}", what is minimised')
            left.plot(curve.recall[best], objective[best], "o", ms=9, mfc="none", mew=2, color=COLOURS[bound])
            left.plot(curve.recall[best], curve.ratio[best], "*", ms=10, color=COLOURS[bound])
        left.axhline(truth, color="black", lw=0.8)
        left.annotate("true prior", (0.1, truth), (0, 3), textcoords="offset points", fontsize=8)
        left.set(yscale="log", xlabel="q̂ᵖ, share of the 10 positives in the bin", ylabel="objective; ratio (log)")
        left.set_title("One label: ○ least objective, ★ its π̂", fontsize=9)
        left.legend(fontsize=7.5, frameon=False, loc="upper right")
        for bound, marker, size in (("dkw", "o", 5.5), ("beta", "x", 3.5)):
            estimate = found[bound].estimate
            share = estimate.n_effective / estimate.n_positive
            several = estimate.n_positive > 1
            right.plot(
                estimate.n_positive[several],
                share[several],
                marker,
                ms=size,
                mfc="none",
                mew=0.9,
                color=COLOURS[bound],
                label=f'"{bound}", in {lowest(found[bound]):.0%} at 1',
            )
        right.set(
            xscale="log", ylim=(0, 1.05), xlabel="observed positives $n_j$ (log)", ylabel="q̂ᵖ(ẑ), share in the bin"
        )
        right.set_title("All labels of Corel5k with $n_j$ ≥ 2", fontsize=9)
        right.legend(fontsize=8, frameon=False, loc="lower right")
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=150, metadata={"Software": None})
        plt.close(figure)
    ends = ", ".join(f"{bound} {found[bound].estimate.prior[j]:.3f}" for bound in BOUNDS)
    return f"figure: label {j}, true prior {truth:.4f}, {ends}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    try:
        sets = {name: load_dataset(name) for name in options.data.split(",")}
    except (OSError, ValueError) as error:
        parser.error(str(error))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # of labels that no row shows
    results: Results = {}
    for name, data in sets.items():
        for seed in range(options.trials):
            trial = make_trial(data, seed)
            results.setdefault((name, OWN), []).append(evaluate(trial, own_rows_logits(trial)))
            if seed == 0 or name not in HELD_OUT_ONCE:
                held_out = held_out_probabilities(trial.X, trial.observed, random_state=seed).probability.numpy()
                results.setdefault((name, HELD_OUT), []).append(evaluate(trial, held_out))
                if options.figure and name == "corel5k" and seed == 0:
                    print(draw_figure(trial, held_out, results[name, HELD_OUT][0].found, options.figure))
        print(name, "done", flush=True)
    command = "python research/scripts/prior_bounds.py"
    command += "" if options.data == ",".join(DATA) else f" --data {options.data}"
    command += (
        f" --trials {options.trials} --out research/results/prior-bounds.md --figure docs/images/few-positives.png"
    )
    page = make_page(results, command, f"0 to {options.trials - 1}" if options.trials > 1 else "0")
    if options.out:
        write_atomically(options.out, page)
    else:
        print(page)


if __name__ == "__main__":
    main()
