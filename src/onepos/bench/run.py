"""One run of a study: data as its trial sees them, the task to train, and the result read off the trained learner."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from onepos.bench.image_sets import IMAGE_SETS, image_cache, load_images, with_published_protocol
from onepos.bench.recipes import resolve
from onepos.bench.stacking import train_many
from onepos.bench.study import PUBLISHED_DRAW, SIZE_BIASED_DRAW, ImageSettings, Run
from onepos.criteria import CRITERIA
from onepos.datasets import Dataset, load_dataset
from onepos.datasets.scenes import as_images
from onepos.images import ImageFiles, ImageTensors, pack_images
from onepos.images.features import run_network
from onepos.images.networks import BACKBONES, make_image_backbone
from onepos.images.readers import ImageDataset
from onepos.methods import make_method
from onepos.methods.base import Shared
from onepos.metrics import METRICS, evaluate
from onepos.priors import RULES, DecisionCurve, FloatArray, decide, estimate_priors
from onepos.protocol import draw_single_positive, train_val_test_split
from onepos.training.loop import LISTED_LABELS, History, Trained
from onepos.training.outcome import predict_rows, read_curve, read_outcome, training_logits
from onepos.training.plan import Plan
from onepos.training.runtime import NETWORK_STREAM, choose_device, seeded
from onepos.training.samples import Samples, as_samples, fit_scaling, make_scaling
from onepos.training.task import Task, TrainingData, Validation, make_task, needs
from onepos.validation import Indicator

# What a study of images sets in the plan.
_OF_IMAGES = ("precision", "frozen_epochs", "backbone_lr", "compile")

# Decoded images that are held in memory, in bytes; of more the files are read in every epoch.
_IN_MEMORY = 4 << 30

_DECODERS = max(2, min(16, os.cpu_count() or 1))  # processes

_PENALTY = 100.0  # of the ridge regression; between 10 and 1000 it hardly matters


@dataclass(frozen=True)
class Trial:
    """A data set as one trial sees it; its runs share these objects, so that they can be trained together."""

    samples: Samples  # training rows
    observed: Indicator  # one positive label of each
    labels: Indicator  # all of them, for the oracle and for judging priors
    full: Validation  # validation rows with all labels
    single: Validation  # the same rows with one label each
    test: Samples
    test_labels: Indicator  # all their labels
    prior: FloatArray  # class priors for criteria that need them, from single positives alone; the same for all runs
    shared: Shared = field(default_factory=Shared)  # what the methods of all runs share


def load_data(name: str, images: bool, size_biased: bool = False) -> Dataset | ImageDataset:
    """A data set of a study; images in the published split with one draw or the other, or rows of small images."""
    if images and name in IMAGE_SETS:
        return with_published_protocol(load_images(name), size_biased=size_biased)
    return load_dataset(name)


def make_trial(data: Dataset | ImageDataset, run: Run, device: str = "cpu") -> Trial:
    """The data as a run sees them; on images the device makes a pass for the common priors."""
    parts: Iterable[tuple[Samples, Indicator, Indicator]]
    if run.images is not None:
        images = image_parts(data, run, run.images)
        parts, features = images.values(), start_features(run, run.images, images["train"].samples, device)
    elif isinstance(data, ImageDataset):
        raise ValueError(f"{data.name} holds images; the study must have a table [images]. It has none.")
    else:
        parts, features = _row_parts(data, run)
    (samples, labels, observed), (held_out, val_labels, val_observed), (test, test_labels, _) = parts
    return Trial(
        samples=samples,
        observed=observed,
        labels=labels,
        full=Validation(held_out, val_labels, full=True),
        single=Validation(held_out, val_observed, full=False),
        test=test,
        test_labels=test_labels,
        prior=common_prior(features, observed),
    )


def _row_parts(data: Dataset, run: Run) -> tuple[list[tuple[Samples, Indicator, Indicator]], Tensor]:
    """Samples, labels and single positives of the three parts, and the training rows standardised.

    A data set that ships training, validation and test rows is split so in every trial: its parts may be apart for a
    reason, as those of digit scenes are, which share no digit.
    """
    shipped = data.splits or {}
    names = ("train", "val", "test")
    ships_all = all(len(shipped.get(name, ())) for name in names)
    split = [shipped[name] for name in names] if ships_all else train_val_test_split(data.Y, run.split_seed)
    taken = [data.take(rows) for rows in split]
    rows = taken[0].X
    scaling = make_scaling(rows, run.scaling)
    standardised = as_samples(rows, scaling or fit_scaling(rows))
    parts: list[tuple[Samples, Indicator, Indicator]] = [
        (as_samples(each.X, scaling), each.Y, draw_single_positive(each.Y, run.draw_seed)) for each in taken
    ]
    return parts, standardised.rows(torch.arange(len(standardised)))


def common_prior(rows: Tensor, observed: Indicator) -> FloatArray:
    """Class priors by Eq. (2) of the CRISP paper, from the fit of a ridge regression of the single positives.

    With priors of its own each run would be judged by another measure. A regression takes a second and has nothing to
    choose; that its scores are those of the rows it was fitted to makes them too good, where Eq. (2) would be too high.
    The rows (n, d) must be standardised.
    """
    rows = rows.double()
    rows = torch.cat([rows, torch.ones(len(rows), 1)], dim=1)
    penalty = _PENALTY * torch.eye(rows.shape[1], dtype=torch.float64)
    labels = torch.as_tensor(observed, dtype=torch.float64)
    weights = torch.linalg.solve(rows.T @ rows + penalty, rows.T @ labels)
    return estimate_priors(rows @ weights, observed).prior


def task_of(run: Run, trial: Trial, device: str = "cpu") -> Task:
    """The run as something to train. This is the one place where a method may be given the labels of training rows."""
    parameters = {name: resolve(value, run.method, trial.labels) for name, value in run.parameters.items()}
    method = make_method(run.method, **parameters)
    images = {name: getattr(run.images, name) for name in _OF_IMAGES} if run.images else {}
    plan = Plan(
        epochs=run.epochs,
        batch_size=run.batch_size,
        lr=run.lr,
        weight_decay=run.weight_decay,
        bias_init=run.bias_init,
        select=run.select_metric,
        device=device,
        seed=run.seed,
        **images,
    )
    network: str | nn.Module = run.network
    if run.images:
        with seeded(run.seed, NETWORK_STREAM, torch.device("cpu")):
            network = make_image_network(run, run.images, maps=method.maps)
    validation = trial.full if run.select_labels == "full" else trial.single
    data = TrainingData(trial.samples, validation, frozenset({"full labels"}), trial.shared)
    observed = trial.labels if "full labels" in method.requires else trial.observed
    return make_task(data, observed, method, plan, network=network, hidden=run.hidden)


def why_not(run: Run) -> str | None:
    """Why a run can not be made, in a sentence; None if it can."""
    missing = needs(make_method(run.method, **run.parameters)) - {"full labels"}
    if run.select_labels == "full":
        missing -= {"validation labels"}
    if run.images:
        missing -= {"maps", "views"}
    return f"{run.method} needs {', '.join(sorted(missing))}; this study has none." if missing else None


def make_result(run: Run, trial: Trial, task: Task, trained: Trained, *, trace: bool = False) -> dict[str, Any]:
    """What a trained run gave, with `trace` also after each epoch. The test rows are looked at here, once."""
    history, method = trained.history, task.learner.method
    logits = training_logits(task, trained)
    held_out, test = (predict_rows(trained.network, rows).double().cpu() for rows in (trial.full.samples, trial.test))
    finite = history.best_epoch >= 0 and all(bool(part.isfinite().all()) for part in (logits, held_out, test))
    result: dict[str, Any] = {
        "best_epoch": history.best_epoch,
        "n_epochs": len(history.loss),
        "diverged": not np.isfinite(history.loss[-1]),
        "loss": [_short(value) for value in history.loss],
        "curve": [_short(value) for value in history.validation],
        "privileged": sorted(method.privileged | (method.requires & {"full labels"})),
        "n_labels": trial.labels.shape[1],
        "cardinality": _short(trial.labels.sum(1).mean()),
        "true_prior": _listed(trial.labels.mean(0)),
    }
    if trace:
        result["trace"] = _trace(history)
    if not finite:
        empty = dict.fromkeys(METRICS)
        return result | {
            "test": empty,
            "validation": empty,
            "rules": {},
            "criteria": {},
            "prior": None,
            "prior_error": None,
        }
    prior, _, thresholds = read_outcome(task, logits, run.threshold)
    known = ~np.isnan(prior)
    true = trial.labels.mean(0)
    scored = [(trial.test_labels, test), (trial.full.Y, held_out)]
    tested, validated = (evaluate(Y, torch.sigmoid(part).numpy(), threshold=thresholds) for Y, part in scored)
    return result | {
        "test": {name: _short(value) for name, value in tested.items()},
        "validation": {name: _short(value) for name, value in validated.items()},
        "rules": _score_rules(trial.test_labels, torch.sigmoid(test).numpy(), read_curve(task, logits, prior, "auto")),
        "criteria": {
            name: _short(criterion.function(trial.single.Y, held_out.numpy(), trial.prior))
            for name, criterion in CRITERIA.items()
        },
        "prior": _listed(prior),
        "prior_error": _short(np.abs(prior - true)[known].sum() / true[known].sum()),
    }


def _score_rules(Y: Indicator, probability: FloatArray, curve: DecisionCurve) -> dict[str, dict[str, float]]:
    """By rule of decision, the test scores that depend on decisions."""
    names = [name for name, metric in METRICS.items() if metric.uses == "decisions"]
    scores = {}
    for rule in RULES:
        decisions = decide(probability, *curve.choose(rule))
        scores[rule] = {name: _short(METRICS[name].function(Y, decisions)) for name in names}
    return scores


def run_one(run: Run, data: Dataset | ImageDataset, device: str = "cpu") -> dict[str, Any]:
    """Train and judge a single run."""
    trial = make_trial(data, run, device)
    task = task_of(run, trial, device)
    (trained,) = train_many([task])
    return make_result(run, trial, task, trained)


def _trace(history: History) -> dict[str, Any] | None:
    """Label by label after each epoch: mean score on the validation rows, and priors of a method that has them."""
    if not history.mean_score:
        return None
    prior = [[None if value is None else _short(value) for value in row] for row in history.prior]
    return {"mean_score": [[_short(value) for value in row] for row in history.mean_score], "prior": prior}


def _listed(values: npt.NDArray[Any]) -> list[float] | None:
    """Numbers per label; of many labels only `prior_error` is kept, or they would be most of a study's results."""
    return [_short(value) for value in values] if len(values) <= LISTED_LABELS else None


def _short(value: Any) -> float:
    """Six digits: more than any of these numbers deserves, and files stay small."""
    return float(f"{float(value):.6g}")


class ImagePart(NamedTuple):
    """Some images, all their labels, and the observed one of each."""

    samples: ImageTensors | ImageFiles
    labels: Indicator
    observed: Indicator


def image_parts(data: Dataset | ImageDataset, run: Run, settings: ImageSettings) -> dict[str, ImagePart]:
    """Training, validation and test images, in the size and normalization that the network takes."""
    parts = {}
    for name in ("train", "val", "test"):
        if not len((data.splits or {}).get(name, ())):
            raise ValueError(f"{data.name} must come with a part {name!r}; it does not. Images are not split again.")
        part = data.take((data.splits or {})[name])
        parts[name] = ImagePart(_samples(part, run, settings), part.Y, _draw(part, run))
    return parts


def _samples(part: Dataset | ImageDataset, run: Run, settings: ImageSettings) -> ImageTensors | ImageFiles:
    normalization = BACKBONES[run.network].normalization
    if isinstance(part, Dataset):
        height = (part.image_shape or (0,))[0]
        if height == 0 or settings.size % height:
            raise ValueError(
                f"the size of the images must be a multiple of that of {part.name}, {height} pixels; it is "
                f"{settings.size}. Change images.size of the study."
            )
        return ImageTensors(as_images(part, settings.size // height), normalization)
    files = ImageFiles(part.files, settings.size, normalization=normalization, workers=_DECODERS)
    if len(files) * files.n_features > _IN_MEMORY:
        return files
    return pack_images(files, image_cache()).load()


def _draw(part: Dataset | ImageDataset, run: Run) -> Indicator:
    if run.draw_seed not in (PUBLISHED_DRAW, SIZE_BIASED_DRAW):
        return draw_single_positive(part.Y, run.draw_seed)
    if part.observed is None:
        raise ValueError(f'{part.name} must come with a draw for draw = "published"; it has none. Write "fixed".')
    return part.observed


def make_image_network(run: Run, settings: ImageSettings, *, maps: bool) -> nn.Module:
    """The network at its start."""
    weights = None if settings.weights == "random" else settings.weights
    return make_image_backbone(run.network, weights, maps)[0]


def start_features(run: Run, settings: ImageSettings, samples: ImageTensors | ImageFiles, device: str) -> Tensor:
    """Features of the network before training, each with mean 0 and variance 1; the same for all runs of a trial."""
    with seeded(0, NETWORK_STREAM, torch.device("cpu")):
        network = make_image_network(run, settings, maps=False)
    features = run_network(network, samples, choose_device(device))
    spread = features.std(axis=0)
    return torch.from_numpy((features - features.mean(axis=0)) / np.where(spread > 0, spread, 1))
