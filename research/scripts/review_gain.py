"""What a person's answers are worth: quality against the number of reviewed items, by the order of the items.

    python research/scripts/review_gain.py STORE [--draws 3] [--data yeast,scene] [--out FILE] [--figure FILE]

Each row shows one of its labels, drawn uniformly. A reviewer, played by the true labels, answers one item after the
other, each completely. The orders:

    queue        that of the review page: the rows with the largest expected number of wrong entries, with random ones
                 in between; the models know which rows were drawn at random
    uncertainty  the rows with the largest entropy of their labels, as in active learning
    random       rows drawn at random
    truth        the queue of the review page, if it knew how many entries of each row are wrong: what no rule can pass
                 by much

After 20, 50, 100, 200 and 500 answers all rows are judged again and the rest of the order is made anew. What is scored
is the completed data set, all rows: the known entries, and of the others those above the threshold that is expected to
give the best micro-F1, from the probabilities alone; mAP is that of the probabilities. A cross-fit per draw serves all
orders: the answers calibrate the probabilities, and the models that made them do not learn from the answers.

STORE is a folder: a file per cross-fit, which is not made again, and none of it is to be published.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from completion import FIRST_DRAW, cross_fit

from onepos import complete_labels
from onepos.files import write_atomically
from onepos.metrics import hamming_loss, mean_average_precision, micro_f1
from onepos.report.judgement import Judgement
from onepos.server.queue import Queue

DATA = ("digit-scenes", "yeast", "scene", "image", "emotions", "rcv1subset1_top944")
ORDERS = {
    "queue": "the queue of the review page",
    "uncertainty": "largest entropy first",
    "random": "random rows",
    "truth": "queue that knows the errors",
}
COUNTS = (0, 20, 50, 100, 200, 500)
METRICS = {"micro_f1": "micro-F1", "hamming_loss": "Hamming loss", "map": "mAP"}
TAB = "the reviewer"


class Review:
    """The answers so far, in one of the orders."""

    def __init__(self, made: dict[str, np.ndarray], order: str, seed: int) -> None:
        self.Y, self.observed, self.held_out = made["Y"] == 1, made["observed"] == 1, made["probability"]
        self.order, self.seed = order, seed
        self.queued = order in ("queue", "truth")
        self.known = np.where(self.observed, 1.0, np.nan)
        self.shuffled = np.random.default_rng(seed).permutation(len(self.Y))
        self.queue = Queue.make(np.zeros(len(self.Y)), seed)
        self.done = np.zeros(len(self.Y), bool)
        self.judge()

    def judge(self) -> None:
        """Judge all rows by what is known."""
        reviewed_sample = np.array([row for row in self.queue.sample() if self.done[row]], np.intp)
        self.completion = complete_labels(
            None,
            self.known,
            held_out=self.held_out,
            random_rows=reviewed_sample if self.queued else None,
            random_state=self.seed,
        )
        worth = Judgement.of(self.completion).worth
        if self.order == "truth":
            wrong = self.decide() != self.Y
            worth = wrong.sum(1) + 1e-6 * worth
        self.queue.reorder(worth)

    def decide(self) -> np.ndarray:
        """What is known to be present, and of the unknown entries as many as are expected to give the best micro-F1."""
        probability, present = self.completion.probability.astype(float), self.known == 1
        unknown = np.isnan(self.known)
        falling = np.sort(probability[unknown])[::-1]
        if not len(falling):
            return present
        right = present.sum() + np.concatenate([[0.0], np.cumsum(falling)])
        f1 = 2 * right / (present.sum() + np.arange(len(right)) + right[-1])
        count = int(f1.argmax())
        return present | (unknown & (probability >= falling[count - 1])) if count else present

    def answer(self, n: int) -> None:
        """Answer so many more items."""
        if self.queued:
            for _ in range(n):
                found = self.queue.find_next(TAB, TAB, 0.0)
                assert found is not None
                self.queue.lend(found[0], TAB, TAB, 0.0)
                self.queue.count_handed(*found)
                self.queue.finish(found[0])
                self.done[found[0]] = True
        else:
            rows = self.shuffled
            if self.order == "uncertainty":
                p = np.clip(self.completion.probability.astype(float), 1e-7, 1 - 1e-7)
                rows = np.argsort((p * np.log(p) + (1 - p) * np.log(1 - p)).sum(1), kind="stable")
            self.done[rows[~self.done[rows]][:n]] = True
        self.known[self.done] = self.Y[self.done]
        self.judge()

    def score(self) -> dict[str, float]:
        """Of the completed data set."""
        probability = self.completion.probability.astype(float)
        decided = self.decide().astype(np.uint8)
        truth = self.Y.astype(np.uint8)
        return {
            "micro_f1": float(micro_f1(truth, decided)),
            "hamming_loss": float(hamming_loss(truth, decided)),
            "map": float(mean_average_precision(truth, probability)),
            "cardinality": float(np.nansum(self.completion.prior)),
            "true_cardinality": float(self.Y.sum(1).mean()),
        }


def curve(made: dict[str, np.ndarray], order: str, seed: int) -> list[dict[str, float]]:
    """The scores at each number of answers."""
    review, scores = Review(made, order, seed), []
    for before, n in zip((0, *COUNTS), COUNTS, strict=False):
        if n:
            review.answer(n - before)
        scores.append(review.score())
    return scores


def answers_needed(counts: tuple[int, ...], scores: np.ndarray, goal: float) -> float:
    """The number of answers at which a curve first reaches a score, between two counts in proportion."""
    for k in range(len(scores)):
        if scores[k] >= goal:
            if k == 0:
                return float(counts[0])
            share = (goal - scores[k - 1]) / (scores[k] - scores[k - 1])
            return float(counts[k - 1] + share * (counts[k] - counts[k - 1]))
    return np.inf


def page(lines: list[dict[str, Any]], command: str) -> str:
    """A table per metric, and how many answers an order needs for the gain of random rows."""
    assert __doc__ is not None
    names = [name for name in DATA if any(line["data"] == name for line in lines)]
    paragraphs = [part.replace("\n", " ") for part in __doc__.split("\n\n")]
    parts = ["# What a person's answers are worth", "", paragraphs[2], "", "```", __doc__.split("\n\n")[3], "```", ""]
    parts += [paragraphs[4], "", f"Made by `{command}`."]
    for metric, title in METRICS.items():
        parts += ["", f"## {title}", "", "| data set | order | " + " | ".join(map(str, COUNTS)) + " |"]
        parts.append("|:---|:---|" + "---:|" * len(COUNTS))
        for name in names:
            for order, words in ORDERS.items():
                values = mean_of(lines, name, order, metric)
                parts.append(f"| {name} | {words} | " + " | ".join(f"{value:.3f}" for value in values) + " |")
    parts += ["", "## Answers needed for the micro-F1 that random rows reach", ""]
    parts.append("Per data set, by the means over the draws. –: not reached with 500 answers.")
    for order in ("queue", "uncertainty", "truth"):
        parts += ["", f"### {ORDERS[order][0].upper()}{ORDERS[order][1:]}", ""]
        parts.append("| data set | " + " | ".join(f"{n} random" for n in COUNTS[1:]) + " |")
        parts.append("|:---|" + "---:|" * (len(COUNTS) - 1))
        shares = []
        for name in names:
            goal, own = (mean_of(lines, name, each, "micro_f1") for each in ("random", order))
            needed = [answers_needed(COUNTS, own, each) for each in goal[1:]]
            shares.append([min(each, 2 * COUNTS[-1]) / n for each, n in zip(needed, COUNTS[1:], strict=True)])
            parts.append(f"| {name} | " + " | ".join(f"{each:.0f}".replace("inf", "–") for each in needed) + " |")
        cells = " | ".join(f"{100 * share:.0f} %" for share in np.mean(shares, 0))
        parts.append(f"| mean share of the answers | {cells} |")
    parts += ["", "## Mean number of labels per row, as estimated", ""]
    parts += ["| data set | truth | order | " + " | ".join(map(str, COUNTS)) + " |"]
    parts.append("|:---|---:|:---|" + "---:|" * len(COUNTS))
    for name in names:
        truth = mean_of(lines, name, "random", "true_cardinality")[0]
        for order, words in ORDERS.items():
            values = " | ".join(f"{value:.2f}" for value in mean_of(lines, name, order, "cardinality"))
            parts.append(f"| {name} | {truth:.2f} | {words} | {values} |")
    return "\n".join(parts) + "\n"


def mean_of(lines: list[dict[str, Any]], name: str, order: str, metric: str) -> np.ndarray:
    """Mean over the draws at each number of answers."""
    of_kind = [line for line in lines if line["data"] == name and line["order"] == order]
    return np.mean([[scores[metric] for scores in line["scores"]] for line in of_kind], axis=0)


def draw_figure(lines: list[dict[str, Any]], path: Path) -> None:
    """Micro-F1 against the number of answers, a panel per data set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [name for name in DATA if any(line["data"] == name for line in lines)]
    styles: dict[str, tuple[str, str]] = {
        "queue": ("C0", "o-"),
        "uncertainty": ("C1", "^--"),
        "random": ("0.5", "s:"),
        "truth": ("C2", "-"),
    }
    with plt.rc_context({"svg.hashsalt": "onepos", "font.size": 9}):
        n_rows = -(-len(names) // 3)
        figure, axes = plt.subplots(n_rows, 3, figsize=(8.4, 2.6 * n_rows + 0.3), layout="constrained", squeeze=False)
        for axis in axes.flat[len(names) :]:
            axis.remove()
        for axis, name in zip(axes.flat, names, strict=False):
            for order, (colour, style) in styles.items():
                values = mean_of(lines, name, order, "micro_f1")
                axis.plot(COUNTS, values, style, color=colour, label=ORDERS[order], markersize=4, linewidth=1.4)
            axis.set_xscale("symlog", linthresh=20)
            axis.set_xticks(COUNTS, list(map(str, COUNTS)), fontsize=8)
            axis.minorticks_off()
            axis.set_title(name, fontsize=9)
            axis.set_xlabel("reviewed items")
            axis.spines[["top", "right"]].set_visible(False)
        for axis in axes[:, 0]:
            axis.set_ylabel("micro-F1 of the data set")
        handles, words = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, words, loc="outside lower center", ncols=len(words), frameon=False, fontsize=8)
        figure.savefig(path, dpi=120, metadata={"Software": None})
        plt.close(figure)


def main() -> None:
    """Make what is missing and write page and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    given.store.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    for name in given.data.split(","):
        data: dict[str, Any] = {}
        for draw in range(given.first, given.first + given.draws):
            made = cross_fit(given.store, name, draw, data)
            for order in ORDERS:
                lines.append(
                    {"data": name, "draw": draw, "order": order, "scores": curve(made, order, FIRST_DRAW + draw)}
                )
                print(name, draw, order, [round(scores["micro_f1"], 3) for scores in lines[-1]["scores"]], flush=True)
    text = page(lines, f"python research/scripts/review_gain.py STORE --draws {given.draws} --first {given.first}")
    if given.out:
        write_atomically(given.out, text.encode())
    if given.figure:
        draw_figure(lines, given.figure)
    print(text)


if __name__ == "__main__":
    main()
