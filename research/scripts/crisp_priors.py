"""How estimated class priors move during a training: the paper's estimator on training scores and on held-out scores.

    python research/scripts/crisp_priors.py [--out FILE.md] [--figure FILE.png]

Four curves by epoch: Eq. (2) on the scores of the rows a network was trained on (CRISP to the letter), Eq. (2) and the
estimator "bracket" on scores of rows that the same network, trained on the other folds with AN, has not seen; and what
`CRISP()` uses, an estimate made once before the training. One draw and one split of five data sets, learning rate 1e-3,
a hidden layer of 256, batches of 32, no weight decay. Some ten minutes on one core.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from onepos.datasets import Dataset, load_dataset
from onepos.files import write_atomically
from onepos.methods import AN, CRISP
from onepos.methods.base import Method
from onepos.methods.crossfit import DEFAULTS, cross_fit
from onepos.priors import estimate_priors
from onepos.protocol import draw_single_positive, train_val_test_split
from onepos.training.loop import predict_logits, train
from onepos.training.plan import Plan
from onepos.training.samples import as_samples, fit_scaling
from onepos.training.task import TrainingData, make_task

SEED, FOLDS = 0, 5
SHORT, LONG = 20, 80
OVER_ALL = ("yeast", "image", "scene", "emotions", "rcv1subset1_top944")
BY_EPOCH = ("yeast", "rcv1subset1_top944", "corel5k")
SHOWN_LABELS = (3, 10, 12)  # of Yeast, counted from one: those of the paper's figure
SHOWN_EPOCHS = (1, 2, 5, 10, 20, 40, 80)
TITLES = {"letter": "Eq. (2), training scores", "held-out": "Eq. (2), held-out scores", "bracket": "bracket, held-out"}
COLOURS = {"letter": "#b3382c", "held-out": "#c98a1b", "bracket": "#2b6ca3"}


@dataclass
class Curves:
    """Priors by epoch, (epochs, c) each, of one data set."""

    true: np.ndarray
    used: np.ndarray  # what CRISP() uses, (c,)
    warned: bool
    by_epoch: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def error(self, prior: np.ndarray) -> float:
        """Σ|π̂−π| / Σπ over the labels that were observed."""
        known = ~np.isnan(prior)
        return float(np.abs(prior - self.true)[known].sum() / self.true[known].sum())


def scores_by_epoch(
    rows: np.ndarray, observed: np.ndarray, method: Method, epochs: int, scored: np.ndarray
) -> list[np.ndarray]:
    """Logits of the rows `scored` after every epoch of a training on `rows`."""
    kept: list[np.ndarray] = []
    samples = as_samples(scored)
    plan = Plan(epochs, 32, lr=1e-3, device="cpu", seed=SEED)
    task = make_task(TrainingData(as_samples(rows)), observed, method, plan, hidden=(256,))
    train(task, on_epoch=lambda *_: kept.append(predict_logits(task.learner, samples).numpy()))
    return kept


def held_out_by_epoch(rows: np.ndarray, observed: np.ndarray, epochs: int) -> list[np.ndarray]:
    """Logits of every row after every epoch, by networks that were trained on the other folds."""
    fold = np.random.default_rng(SEED).permutation(len(rows)) % FOLDS
    logits = [np.empty(observed.shape, np.float32) for _ in range(epochs)]
    for k in range(FOLDS):
        seen = fold != k
        for whole, part in zip(
            logits, scores_by_epoch(rows[seen], observed[seen], AN(), epochs, rows[~seen]), strict=True
        ):
            whole[~seen] = part
    return logits


def normalized(logits: np.ndarray) -> np.ndarray:
    """Probabilities of the observed label: the scores of a row, made to sum to 1."""
    scores = torch.sigmoid(torch.tensor(logits, dtype=torch.float64))
    return (scores / scores.sum(1, keepdim=True)).numpy()


def measure(data: Dataset, epochs: int, with_folds: bool) -> Curves:
    """All curves of a data set; those of held-out scores for at most SHORT epochs."""
    part = data.take(train_val_test_split(data.Y, SEED)[0])
    observed = draw_single_positive(part.Y, SEED)
    samples = as_samples(part.X, fit_scaling(part.X))
    rows = samples.rows(torch.arange(len(samples))).numpy()
    fit = cross_fit(torch.tensor(rows), torch.tensor(observed), SEED, DEFAULTS)
    estimate = estimate_priors(fit.probability, observed, estimator="bracket")
    low, _ = estimate_priors(fit.probability, observed, estimator="bracket", level=0.5).cardinality_interval
    used = estimate_priors(fit.probability, observed, estimator="bracket", cardinality=low).prior
    curves = Curves(part.Y.mean(0), used, bool(estimate.warning))
    letter = scores_by_epoch(rows, observed, CRISP.as_published(), epochs, rows)
    curves.by_epoch["letter"] = [estimate_priors(logits, observed).prior for logits in letter]
    if with_folds:
        held_out = held_out_by_epoch(rows, observed, min(epochs, SHORT))
        curves.by_epoch["held-out"] = [estimate_priors(logits, observed).prior for logits in held_out]
        curves.by_epoch["bracket"] = [
            estimate_priors(normalized(logits), observed, estimator="bracket").prior for logits in held_out
        ]
    return curves


def page(found: dict[str, Curves], command: str) -> str:
    lines = [
        "# Class priors by epoch",
        "",
        "How the estimates move while a network trains. The paper estimates priors from the scores of the rows the "
        "network was trained on, after every epoch. By default `CRISP()` estimates once, before the training, from "
        f"held-out predictions. One draw of each data set. Made by `{command}`, which also draws "
        "docs/images/crisp-priors.png.",
        "",
        "## Error over all labels",
        "",
        "Σ|π̂−π| / Σπ after so many epochs. A network trained on the other folds gives the held-out scores. Last "
        "column: what `CRISP()` uses.",
        "",
        "| data set | estimate | " + " | ".join(f"epoch {k}" for k in SHOWN_EPOCHS if k <= SHORT) + " | `CRISP()` |",
        "|:---|:---|" + "---:|" * (1 + sum(k <= SHORT for k in SHOWN_EPOCHS)),
    ]
    for name in OVER_ALL:
        curves = found[name]
        for kind, title in TITLES.items():
            cells = [f"{curves.error(curves.by_epoch[kind][k - 1]):.2f}" for k in SHOWN_EPOCHS if k <= SHORT]
            lines.append(f"| {name} | {title} | " + " | ".join(cells) + f" | {curves.error(curves.used):.2f} |")
    lines += [
        "",
        "## Mean number of labels per row",
        "",
        "κ̂ = Σπ̂ of CRISP to the letter after so many epochs, and of `CRISP()`. ⚠: it warns that the data leave κ open.",
        "",
        "| data set | true κ | " + " | ".join(f"epoch {k}" for k in SHOWN_EPOCHS) + " | `CRISP()` |",
        "|:---|" + "---:|" * (len(SHOWN_EPOCHS) + 2),
    ]
    for name in BY_EPOCH:
        curves = found[name]
        cells = [f"{np.nansum(curves.by_epoch['letter'][k - 1]):.1f}" for k in SHOWN_EPOCHS]
        used = f"{np.nansum(curves.used):.2f}" + (" ⚠" if curves.warned else "")
        lines.append(f"| {name} | {curves.true.sum():.2f} | " + " | ".join(cells) + f" | {used} |")
    return "\n".join(lines) + "\n"


def draw(found: dict[str, Curves], path: Path) -> None:
    """Three labels of Yeast, the error over all labels, and κ̂ up to 80 epochs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    figure, axes = plt.subplots(3, 3, figsize=(11, 9), constrained_layout=True)
    yeast = found["yeast"]
    for axis, label in zip(axes[0], SHOWN_LABELS, strict=True):
        for kind, title in TITLES.items():
            values = [prior[label - 1] for prior in yeast.by_epoch[kind][:SHORT]]
            axis.plot(range(1, SHORT + 1), values, color=COLOURS[kind], label=title)
        axis.axhline(yeast.used[label - 1], color="#2b6ca3", linestyle=":", label="CRISP(), before the training")
        axis.axhline(yeast.true[label - 1], color="black", linestyle="--", label="truth")
        axis.set(title=f"Yeast, label {label}", xlabel="epoch", ylabel="class prior", ylim=(0, 1))
    for axis, name in zip(axes[1], ("yeast", "scene", "rcv1subset1_top944"), strict=True):
        curves = found[name]
        for kind in TITLES:
            values = [curves.error(prior) for prior in curves.by_epoch[kind][:SHORT]]
            axis.plot(range(1, SHORT + 1), values, color=COLOURS[kind])
        axis.axhline(curves.error(curves.used), color="#2b6ca3", linestyle=":")
        axis.set(title=f"{name}, all labels", xlabel="epoch", ylabel="error Σ|π̂−π| / Σπ", yscale="log")
    for axis, name in zip(axes[2], BY_EPOCH, strict=True):
        curves = found[name]
        kappa = [np.nansum(prior) for prior in curves.by_epoch["letter"]]
        axis.plot(range(1, LONG + 1), kappa, color=COLOURS["letter"])
        axis.axhline(np.nansum(curves.used), color="#2b6ca3", linestyle=":")
        axis.axhline(curves.true.sum(), color="black", linestyle="--")
        axis.set(title=f"{name}: labels per row", xlabel="epoch", ylabel="κ̂ = Σπ̂", xscale="log", yscale="log")
    for axis in axes[1:].flat:
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(ScalarFormatter())
        axis.yaxis.set_minor_formatter(NullFormatter())
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=9, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("research/results/crisp-priors.md"))
    parser.add_argument("--figure", type=Path, default=Path("docs/images/crisp-priors.png"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)
    found = {}
    for name in dict.fromkeys((*OVER_ALL, *BY_EPOCH)):
        began = time.perf_counter()
        epochs = LONG if name in BY_EPOCH else SHORT
        found[name] = measure(load_dataset(name), epochs, with_folds=name in OVER_ALL)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    text = page(found, "python research/scripts/crisp_priors.py")
    write_atomically(options.out, text.encode())
    draw(found, options.figure)
    print(text)


if __name__ == "__main__":
    main()
