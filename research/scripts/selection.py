"""Which criterion chooses best where one label of each validation row is known, against the choice by full labels.

    python research/scripts/selection.py [--data image,scene,yeast,digit-scenes] [--methods an,wan,em,role,gr,crisp]
                                   [--seeds 3] [--first-seed 0] [--draws 5]

Each criterion chooses three things: the configuration of a method (learning rate and number of epochs), method and
configuration together, and the epoch of a run. The tables give the regret in hundredths: how much worse the chosen
model is on the test rows than the one with the best full-label average precision on the validation rows. Mean ±
standard error over trials; a trial is a data set and a seed, which draws split, single positives and weights. The known
labels of the validation rows are drawn several times. Criteria that use class priors get them "estimated" on the
training rows from the scores of an assume-negative model, or "known": the shares in the training rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import torch

from onepos.bench.recipes import find_recipe
from onepos.bench.stacking import train_many
from onepos.criteria import CRITERIA
from onepos.datasets import Dataset, load_dataset
from onepos.methods import make_method
from onepos.metrics import METRICS
from onepos.priors import estimate_priors
from onepos.protocol import draw_single_positive, train_val_test_split
from onepos.training.loop import predict_logits, train
from onepos.training.plan import Plan
from onepos.training.samples import Samples, as_samples, fit_scaling
from onepos.training.task import Learner, Task, TrainingData, make_task

BATCH, HIDDEN, MOST_ROWS = 128, 64, 2500
CONFIGURATIONS = list(product((3e-4, 1e-3, 3e-3, 1e-2), (5, 20)))  # learning rate, epochs
USUAL = (1e-3, 20)
SHOWN = ("average_precision", "map")
USE_PRIOR = ("aligned_likelihood", "pu_risk")


@dataclass(frozen=True)
class Candidate:
    """A model to choose: its logits of the validation rows, and its test scores."""

    method: str
    logits: np.ndarray
    test: dict[str, float]


@dataclass
class Trial:
    """A data set and a seed: rows, and the models trained on them."""

    data: Dataset
    seed: int
    configurations: list[Candidate] = field(default_factory=list)
    epochs: list[list[Candidate]] = field(default_factory=list)
    prior: np.ndarray | None = None

    def __post_init__(self) -> None:
        split = train_val_test_split(self.data.Y, self.seed)
        self.rows, self.validation, self.test = (self.data.take(part) for part in split)
        scaling = fit_scaling(self.rows.X)
        parts = (self.rows, self.validation, self.test)
        self.samples, self.held_out, self.unseen = (as_samples(part.X, scaling) for part in parts)
        self.observed = draw_single_positive(self.rows.Y, self.seed)

    def task(self, method: str, lr: float, epochs: int) -> Task:
        """A run on these rows, not yet trained."""
        parameters = find_recipe(method, self.data.name, self.rows.Y).parameters
        plan = Plan(epochs, BATCH, lr=lr, device="cpu", seed=self.seed)
        made = make_method(method, **parameters)
        return make_task(TrainingData(self.samples), self.observed, made, plan, hidden=(HIDDEN,))

    def candidate(self, method: str, learner: Learner) -> Candidate:
        """The learner after the epochs so far."""
        test = logits_of(learner, self.unseen)
        scores = {name: METRICS[name].function(self.test.Y, test) for name in SHOWN}
        return Candidate(method, logits_of(learner, self.held_out), scores)


def logits_of(learner: Learner, samples: Samples) -> np.ndarray:
    return predict_logits(learner, samples).double().numpy()


def train_configurations(trials: Sequence[Trial], method: str) -> None:
    """All configurations of a method, for all seeds of a data set."""
    wanted = list(product(trials, CONFIGURATIONS))
    tasks = [trial.task(method, *configuration) for trial, configuration in wanted]
    train_many(tasks)
    for (trial, configuration), task in zip(wanted, tasks, strict=True):
        trial.configurations.append(trial.candidate(method, task.learner))
        if method == "an" and configuration == USUAL:
            trial.prior = estimate_priors(logits_of(task.learner, trial.samples), trial.observed).prior


def train_epochs(trial: Trial, method: str) -> None:
    """One run, kept after every epoch that may be chosen."""
    task, kept = trial.task(method, *USUAL), []

    def keep(*_: object) -> None:
        if not task.learner.method.warming_up:
            kept.append(trial.candidate(method, task.learner))

    train(task, on_epoch=keep)
    trial.epochs.append(kept)


def rules(trial: Trial) -> Iterator[tuple[str, str, np.ndarray | None]]:
    """Name in the table, criterion, and the priors it gets."""
    for name in CRITERIA:
        if name in USE_PRIOR:
            yield f"{name}, priors estimated", name, trial.prior
            yield f"{name}, priors known", name, trial.rows.Y.mean(0)
        else:
            yield name, name, None


def regrets(trial: Trial, candidates: Sequence[Candidate], n_draws: int) -> dict[str, np.ndarray]:
    """Of every rule, on average over the draws, for each metric of SHOWN."""
    truth = trial.validation.Y
    test = 100 * np.array([[candidate.test[name] for name in SHOWN] for candidate in candidates])
    by_full = {name: np.argmax([METRICS[name].function(truth, each.logits) for each in candidates]) for name in SHOWN}
    regret = test[by_full["average_precision"]] - test
    found = {
        "at random": regret.mean(0),
        "best on the test rows": regret[regret[:, 0].argmin()],
        "full-label mAP": regret[by_full["map"]],
    }
    draws = [draw_single_positive(truth, np.random.default_rng((trial.seed, k))) for k in range(n_draws)]
    for title, name, prior in rules(trial):
        function, greater_is_better, _ = CRITERIA[name]
        values = np.array([[function(known, each.logits, prior) for each in candidates] for known in draws])
        chosen = values.argmax(1) if greater_is_better else values.argmin(1)
        found[title] = regret[chosen].mean(0)
    return found


def judge(trial: Trial, n_draws: int) -> dict[tuple[str, str], np.ndarray]:
    """Mean regret of every choice and rule."""
    methods = dict.fromkeys(each.method for each in trial.configurations)
    choices = {
        "configuration": [[each for each in trial.configurations if each.method == method] for method in methods],
        "method and configuration": [trial.configurations],
        "epoch": trial.epochs,
    }
    result = {}
    for choice, sets in choices.items():
        each = [regrets(trial, candidates, n_draws) for candidates in sets]
        result |= {(choice, rule): np.mean([found[rule] for found in each], axis=0) for rule in each[0]}
    return result


def print_table(title: str, results: Sequence[dict[tuple[str, str], np.ndarray]]) -> None:
    choices = list(dict.fromkeys(choice for choice, _ in results[0]))
    print(f"\n## {title}\n")
    print("| chosen by | " + " | ".join(f"{choice}: AP | mAP" for choice in choices) + " |")
    print("|---|" + "---|" * (2 * len(choices)))
    for rule in dict.fromkeys(rule for _, rule in results[0]):
        cells = []
        for choice in choices:
            values = np.array([result[choice, rule] for result in results])
            cells += [mean_and_error(column) for column in values.T]
        print(f"| {rule} | {' | '.join(cells)} |")


def mean_and_error(values: np.ndarray) -> str:
    error = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="image,scene,yeast,digit-scenes")
    parser.add_argument("--methods", default="an,wan,em,role,gr,crisp", help="with an, which estimates the priors")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=5)
    options = parser.parse_args()

    torch.set_num_threads(1)
    began = time.perf_counter()
    results = {}
    for name in options.data.split(","):
        data = load_dataset(name)
        data = data.take(np.arange(min(MOST_ROWS, data.n_samples)))
        trials = [Trial(data, options.first_seed + k) for k in range(options.seeds)]
        for method in options.methods.split(","):
            train_configurations(trials, method)
            for trial in trials:
                train_epochs(trial, method)
        results[name] = [judge(trial, options.draws) for trial in trials]
    print(
        f"{options.seeds} seeds from {options.first_seed}, {options.draws} draws of the known validation labels; "
        f"methods {options.methods}; {len(CONFIGURATIONS)} configurations, {USUAL[1]} epochs; MLP-{HIDDEN}, batch "
        f"{BATCH}. Regret in hundredths. {time.perf_counter() - began:.0f} s on one core."
    )
    print_table("all data sets", [each for some in results.values() for each in some])
    for name, some in results.items():
        print_table(name, some)


if __name__ == "__main__":
    main()
