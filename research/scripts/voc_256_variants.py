"""Variants of CRISP+ on images, trained end to end, beside AN and others: mAP on the validation rows of VOC by epoch.

    PYTHONPATH=src python research/scripts/voc_256_variants.py --results FILE.jsonl [--minutes 5] [--workers 8]
                                                               [--only NAME,…] [--draw published] [--device cuda]

Data, network and plan are those of research/studies/voc-256.toml; no test row is looked at. FILE holds one line per
job; jobs in it are not made again. Beside it FILE.npz holds the logits of the validation rows and the held-out
predictions. The variants differ in what the held-out predictions s̃ of the observed label follow from, and in what the
network learns from them:

    plus        as the library does it: features of the network before the training
    plus-map    these, their greatest value over the places of the last map beside the mean
    plus-grid   the greatest value over the image and a grid of crops beside that of the image
    plus-folds  a network for each half of the rows, fine-tuned on the other half, mixed with plus
    plus-again  from features in the middle of the training; the mean with plus
    plus-mix    as plus, on mixtures of two images
    plus-pool   as plus; the score of a label is the mean over places and the soft maximum, in equal parts
    presence    from s̃ and the priors to the probability of each label (onepos.methods.presence), learned by sigmoids
    -folds      after one of these: with the predictions of plus-folds

Names may end in -zero or -frequency for where the head starts, then in -compiled, and in @ and a learning rate.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from gpu_crew import run_crew, settle_in, sharing_gpu
from torch import Tensor, nn

from onepos.bench.run import ImagePart, image_parts, load_data, make_image_network
from onepos.bench.study import PUBLISHED_DRAW, SIZE_BIASED_DRAW, Run
from onepos.bench.study_file import read_study
from onepos.files import replacing, write_atomically
from onepos.images import ImageTensors
from onepos.methods import make_method
from onepos.methods.base import Batch, Method, TrainView
from onepos.methods.crisp_plus import CRISPPlus
from onepos.methods.crisp_plus import method as crisp_plus
from onepos.methods.crossfit import DEFAULTS, CrossFit, _mix, cross_fit, held_out
from onepos.methods.heads import LinearHead
from onepos.methods.presence import Known, presence
from onepos.metrics import METRICS
from onepos.priors import estimate_priors
from onepos.training.loop import Trained, train
from onepos.training.outcome import predict_rows
from onepos.training.plan import Plan
from onepos.training.runtime import NETWORK_STREAM, choose_device, seeded
from onepos.training.task import TrainingData, Validation, make_task

STUDY = Path(__file__).parents[1] / "studies" / "voc-256.toml"

DRAWS = {"published": PUBLISHED_DRAW, "size-biased": SIZE_BIASED_DRAW}
JOBS = (
    *(("published", name) for name in ("an", "full", "plus", "plus-folds", "presence", "an@3e-4", "plus@3e-4")),
    *(
        ("published", name)
        for name in ("plus-mix", "plus-grid", "plus-map", "presence-folds", "plus-pool", "full@3e-4")
    ),
    *(("published", name) for name in ("plus-again", "ll-r", "em", "an-frequency", "em-frequency", "ll-r@3e-4")),
    *(("published", name) for name in ("presence@3e-4", "plus-mix-folds", "plus-pool-folds", "presence-mix")),
    ("published", "an-compiled"),
    *(("size-biased", name) for name in ("an", "full", "plus", "plus-folds", "presence", "presence-folds")),
)
"""Draw and name, the more urgent first."""

_FOLD_EPOCHS = 0.7  # of the epochs of a training, those of the networks of the folds
_PATIENCE = 120.0  # seconds to wait for what another process makes
_GUESS = 45.0  # seconds of a job before one has been timed

Source = Callable[[TrainView], CrossFit]
Arrays = dict[str, np.ndarray]


@dataclass
class Setting:
    """What all jobs of a draw share.

    Attributes:
        run: A run of the study; its plan holds for all.
        train, val: The images on the device, with their labels.
        place: The device.
        folder: Where held-out predictions are kept for all processes; None where they are not.
    """

    run: Run
    train: ImagePart
    val: ImagePart
    place: torch.device
    folder: Path | None

    def kept(self, name: str, make: Callable[[], CrossFit]) -> CrossFit:
        """What `make` gives, made by one of the processes; the others wait for it."""
        if self.folder is None:
            return make()
        path = self.folder / f"{self.run.draw_seed} {name}.pt"
        if begin(path):
            made = make()
            with replacing(path) as handle:
                torch.save([made.probability.cpu(), made.weight, made.cross_entropy], handle)
        waited = time.time()
        while not path.exists():
            if time.time() > waited + _PATIENCE:
                return make()
            time.sleep(0.1)
        probability, weight, cross_entropy = torch.load(path, weights_only=True)
        return CrossFit(probability.to(self.place), weight, cross_entropy)


class ImagePlus(CRISPPlus):
    """CRISP+ with held-out predictions from a source, and options of the table above.

    Args:
        source: Training set → held-out predictions.
        mix_images: Whether pairs of images are mixed.
        again: The epoch after which features are predicted from once more; None for never.
    """

    def __init__(self, source: Source, mix_images: bool = False, again: int | None = None) -> None:
        super().__init__()
        self.source, self.mix_images, self.again = source, mix_images, again

    def setup(self, train: TrainView) -> None:
        """As CRISP+ does it, with the predictions of the source."""
        with patch.object(crisp_plus, "held_out", self._keep_fit):
            super().setup(train)
        self.mixes_rows = self.mix_images

    def _keep_fit(self, train: TrainView) -> CrossFit:
        self.fit = self.source(train)
        return self.fit

    @torch.no_grad()
    def end_epoch(self, train: TrainView) -> None:
        """Shift, and revise the targets where it is time."""
        super().end_epoch(train)
        if self.epoch == self.again:
            new = cross_fit(train.features().float(), train.observed, train.seed + 1, DEFAULTS)
            expected = (new.probability + self.fit.probability) / 2
            assert self.class_prior is not None
            share = 1 / float(self.class_prior.nan_to_num().sum().clamp(min=1))
            self.target = self._make_target(expected.to(self.target), train, share)


class PooledHead(nn.Module):
    """Maps (B, d, h, w) → logits (B, c): half of the mean over the places, half of the soft maximum."""

    def __init__(self, n_features: int, n_labels: int) -> None:
        super().__init__()
        self.linear = LinearHead(n_features, n_labels)

    def forward(self, maps: Tensor) -> Tensor:
        """The soft maximum is the logarithm of the mean of e^z."""
        places = self.linear(maps.flatten(2).transpose(1, 2)).float()
        soft = torch.logsumexp(places, 1) - np.log(places.shape[1])
        return (places.mean(1) + soft) / 2

    def start_at(self, log_odds: Tensor, weight_scale: float) -> None:
        """As a linear head."""
        self.linear.start_at(log_odds, weight_scale)


class PooledPlus(ImagePlus):
    """The softmax of pooled scores of places."""

    maps = True

    def make_head(self, n_features: int, n_labels: int) -> Any:
        """With the pooled scores in the place of the linear ones."""
        head = super().make_head(n_features, n_labels)
        head.linear = PooledHead(n_features, n_labels)  # type: ignore[assignment]
        return head


class Presence(Method):
    """Learns the probability that a label is present, which follows from held-out predictions and priors."""

    stops_early = False
    target: Tensor

    def __init__(self, source: Source, mix_images: bool = False) -> None:
        super().__init__()
        self.source, self.mix_images = source, mix_images

    def setup(self, train: TrainView) -> None:
        """Targets: 1 where a label is observed, else the probability."""
        self.fit = self.source(train)
        estimate = estimate_priors(self.fit.probability, train.observed, estimator="bracket")
        seen = train.observed.cpu().numpy().astype(bool)
        known = Known(seen, np.zeros_like(seen), np.zeros(len(seen), bool))
        probability = presence(self.fit.probability.float().cpu().numpy(), known, estimate)
        target = torch.as_tensor(np.where(seen, 1.0, probability), dtype=torch.float32, device=train.observed.device)
        self.register_buffer("target", target, persistent=False)
        self.register_buffer("class_prior", torch.as_tensor(estimate.prior, dtype=torch.float32).to(target.device))
        self.mixes_rows = self.mix_images
        self.head.start_at(torch.logit(target.mean(0).clamp(1e-4, 1 - 1e-4)), 0.0)

    def loss(self, features: list[Tensor], batch: Batch) -> Tensor:
        """Binary cross-entropy."""
        target = batch.mix(self.target[batch.index])
        return nn.functional.binary_cross_entropy_with_logits(self(features[0]), target)

    def lr_at(self, progress: float) -> float:
        """As CRISP+."""
        return min(1.0, 2 * (1 - progress))


def frozen(setting: Setting) -> Source:
    """Predictions from the features before the training; of maps from their mean."""

    def source(train: TrainView) -> CrossFit:
        def make() -> CrossFit:
            if not getattr(train.backbone, "maps", False):
                return held_out(train)
            pooled = replace(train, features=lambda positions=None: train.features(positions).mean((2, 3)))
            return held_out(pooled)

        return setting.kept("frozen", make)

    return source


def by_regions(setting: Setting, kind: str) -> Source:
    """Predictions from features of regions beside those of the image."""

    def source(train: TrainView) -> CrossFit:
        def make() -> CrossFit:
            rows = region_rows(train.backbone, setting.train.samples, kind)
            return cross_fit(rows, train.observed, train.seed, DEFAULTS)

        return setting.kept(kind, make)

    return source


@torch.no_grad()
def region_rows(network: nn.Module, samples: ImageTensors, kind: str) -> Tensor:
    """Features of the image beside the greatest over its regions, (n, 2d): places of the last map, or crops."""
    was, rows = getattr(network, "maps", False), []
    network.eval()
    for index in torch.split(torch.arange(len(samples)), 128):
        images = samples.rows(index).contiguous(memory_format=torch.channels_last)
        try:
            network.maps = True  # type: ignore[assignment]
            maps = [network(each).float() for each in ([images] if kind == "map" else [images, *crops(images)])]
        finally:
            network.maps = was  # type: ignore[assignment]
        means = torch.stack([each.mean((2, 3)) for each in maps])
        greatest = maps[0].amax((2, 3)) if kind == "map" else means.amax(0)
        rows.append(torch.cat([means[0], greatest], 1))
    return torch.cat(rows)


def crops(images: Tensor) -> list[Tensor]:
    """Four crops of three fifths of the side, in the corners, scaled up to the size of the image."""
    side = images.shape[2]
    size = round(0.6 * side)
    return [
        nn.functional.interpolate(
            images[:, :, top : top + size, left : left + size], side, mode="bilinear", antialias=True
        ).contiguous(memory_format=torch.channels_last)
        for top in (0, side - size)
        for left in (0, side - size)
    ]


def by_folds(setting: Setting, plan: Plan) -> Source:
    """Predictions of networks that were fine-tuned on the other half of the rows, mixed with those of `frozen`."""

    def source(train_view: TrainView) -> CrossFit:
        return setting.kept(f"folds {plan.lr:g}", lambda: make(train_view))

    def make(train_view: TrainView) -> CrossFit:
        first = frozen(setting)(train_view)
        n = len(setting.train.samples)
        order = torch.randperm(n, generator=torch.Generator().manual_seed(plan.seed))
        predicted = torch.zeros_like(first.probability)
        short = replace(
            plan, epochs=max(1, round(_FOLD_EPOCHS * plan.epochs)), frozen_epochs=min(1, plan.frozen_epochs)
        )
        for k in (0, 1):
            seen, unseen = order[k::2].sort().values, order[1 - k :: 2].sort().values
            there = replace(first, probability=first.probability[seen.to(first.probability.device)])
            part = replace_rows(setting, seen)
            trained = fit(part, ImagePlus(lambda view, there=there: there), short, None)
            rows = torch.split(unseen, 256)
            predicted[unseen.to(predicted.device)] = torch.cat(
                [observed_probability(trained, setting, i) for i in rows]
            )
        target = train_view.observed.float()
        return CrossFit(*_mix({"frozen": first.probability, "network": predicted}, target))

    return source


@torch.no_grad()
def observed_probability(trained: Trained, setting: Setting, index: Tensor) -> Tensor:
    """Softmax of a trained network, the mean of the image and its mirror image."""
    backbone, head = trained.network[0], trained.network[1]
    images = setting.train.samples.rows(index)
    views = [each.contiguous(memory_format=torch.channels_last) for each in (images, images.flip(3))]
    return torch.stack([head.log_observed(backbone(view)).exp() for view in views]).mean(0)


def replace_rows(setting: Setting, rows: Tensor) -> Setting:
    """The same with these training rows."""
    samples, labels, observed = setting.train
    some = ImageTensors(samples.data[rows.to(samples.data.device)], samples.normalization).to(setting.place)
    return replace(setting, train=ImagePart(some, labels[rows.numpy()], observed[rows.numpy()]), folder=None)


def fit(setting: Setting, method: Method, plan: Plan, validation: Validation | None) -> Trained:
    """Train a method by a plan."""
    images = setting.run.images
    assert images is not None
    with seeded(plan.seed, NETWORK_STREAM, torch.device("cpu")):
        network = make_image_network(setting.run, images, maps=method.maps)
    data = TrainingData(setting.train.samples, validation, frozenset({"full labels"}))
    observed = setting.train.labels if "full labels" in method.requires else setting.train.observed
    return train(make_task(data, observed, method, plan, network=network))


def make_variant(name: str, setting: Setting, plan: Plan, parameters: dict[str, Any]) -> Method:
    """The method of a name in the table above, or of the library."""
    kind, _, options = name.partition("-")
    if kind not in ("plus", "presence"):
        return make_method(name, **parameters)
    chosen = set(options.split("-")) if options else set()
    source = frozen(setting)
    if "folds" in chosen:
        source = by_folds(setting, plan)
    for regions in chosen & {"map", "grid"}:
        source = by_regions(setting, regions)
    if kind == "presence":
        return Presence(source, "mix" in chosen)
    if "pool" in chosen:
        return PooledPlus(source, "mix" in chosen)
    return ImagePlus(source, "mix" in chosen, plan.epochs // 2 - 1 if "again" in chosen else None)


def make_job(draw: str, job: str, setting: Setting) -> tuple[dict[str, Any], Arrays]:
    """Train, and what it gave on the validation rows; its logits there, and the held-out predictions."""
    name, _, rate = job.partition("@")
    run, start = setting.run, setting.run.bias_init
    is_compiled = name.endswith("-compiled")
    name = name.removesuffix("-compiled")
    for word in ("zero", "frequency"):
        if name.endswith(f"-{word}"):
            name, start = name.removesuffix(f"-{word}"), word
    images = run.images
    assert images is not None
    plan = Plan(
        epochs=run.epochs,
        batch_size=run.batch_size,
        lr=float(rate) if rate else run.lr,
        weight_decay=run.weight_decay,
        bias_init=start,
        select="map",
        device=str(setting.place),
        precision=images.precision,
        seed=run.seed,
        frozen_epochs=images.frozen_epochs,
        backbone_lr=images.backbone_lr,
        compile=images.compile or is_compiled,
    )
    parameters = read_study(STUDY).parameters.get(name, {})
    validation = Validation(setting.val.samples, setting.val.labels, full=True)
    began = time.perf_counter()
    method = make_variant(name, setting, plan, parameters)
    trained = fit(setting, method, plan, validation)
    history = trained.history
    arrays = {f"{draw} {job} logits": predict_rows(trained.network, setting.val.samples).cpu().numpy()}
    result = {
        "draw": draw,
        "job": job,
        "map": [round(100 * value, 2) for value in history.validation],
        "best": round(100 * max(history.validation), 2),
        "last": round(100 * history.validation[-1], 2),
        "seconds": round(time.perf_counter() - began, 1),
        "seconds_per_epoch": round(sorted(history.seconds)[len(history.seconds) // 2], 2),
    }
    found = getattr(method, "fit", None)
    if isinstance(found, CrossFit):
        probability = found.probability.float().cpu().numpy()
        arrays[f"{draw} {job} held-out"] = probability.astype(np.float16)
        result["held_out_cross_entropy"] = round(found.cross_entropy, 4)
        result["held_out_map"] = round(100 * METRICS["map"].function(setting.train.labels, probability), 2)
        result["weight"] = {each: round(value, 3) for each, value in found.weight.items()}
    return result, arrays


def open_setting(draw: str, run: Run, device: str, folder: Path) -> Setting:
    """The images of a draw on the device."""
    run = replace(run, draw_seed=DRAWS[draw])
    assert run.images is not None
    parts = image_parts(load_data(run.dataset, True, draw == "size-biased"), run, run.images)
    place = choose_device(device)
    held = {name: part._replace(samples=part.samples.to(place)) for name, part in parts.items() if name != "test"}
    return Setting(run, held["train"], held["val"], place, folder)


def work(number: int, deadline: float, folder: str, jobs: Sequence[tuple[str, str]], run: Run, *more: Any) -> None:
    """Make the jobs that nobody else has begun, as long as there is time."""
    device, workers = more
    settle_in(workers)
    settings: dict[str, Setting] = {}
    longest = _GUESS
    for draw, job in jobs:
        path = Path(folder) / f"{draw} {job}.json"
        if time.time() + longest > deadline or not begin(path):
            continue
        if draw not in settings:
            settings[draw] = open_setting(draw, run, device, Path(folder))
        try:
            result, arrays = make_job(draw, job, settings[draw])
            np.savez(path.with_suffix(".npz"), **arrays)
        except Exception as error:  # the others go on
            result = {"draw": draw, "job": job, "error": f"{type(error).__name__}: {error}"}
        else:
            longest = max(longest if longest != _GUESS else 0.0, 1.3 * result["seconds"])
        write_atomically(path, json.dumps(result))
        print(f"{number}: {json.dumps(result)}", flush=True)


def begin(path: Path) -> bool:
    """Whether nobody had begun to make this file."""
    try:
        path.with_name(f"{path.name}.begun").touch(exist_ok=False)
    except FileExistsError:
        return False
    return not path.exists()


def main() -> None:
    """Start the processes, and gather what they made."""
    began = time.time()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--only", default="")
    parser.add_argument("--draw", default="published", choices=sorted(DRAWS))
    parser.add_argument("--study", default=str(STUDY))
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    run = read_study(options.study).runs()[0]
    folder = options.results.with_suffix(".jobs")
    folder.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    made = {(each["draw"], each["job"]) for each in done if "error" not in each}
    only = [name for name in options.only.split(",") if name]
    wanted = [(options.draw, name) for name in only] or list(JOBS)
    jobs = [job for job in wanted if job not in made]
    for old in folder.iterdir():
        old.unlink()
    assert run.images is not None
    image_parts(load_data(run.dataset, True), run, run.images)  # decoded once, before the processes begin
    print(f"images are decoded after {time.time() - began:.0f} s; {len(jobs)} jobs", flush=True)
    with sharing_gpu() as is_shared:
        print(f"{options.workers} processes, kernels side by side: {is_shared}", flush=True)
        arguments = str(folder), jobs, run, options.device, options.workers
        run_crew(work, arguments, options.workers, began + 60 * options.minutes - 8, lambda: None)
    new = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    lines = [each for each in done if "error" not in each] + new
    write_atomically(options.results, "".join(f"{json.dumps(each)}\n" for each in lines))
    keep_arrays(options.results.with_suffix(".npz"), sorted(folder.glob("*.npz")))
    show(lines)
    print(f"{time.time() - began:.0f} s in all", flush=True)


def keep_arrays(path: Path, parts: Sequence[Path]) -> None:
    """Add the arrays of the parts to a file."""
    arrays: Arrays = {}
    for each in [path, *parts]:
        if each.exists():
            with np.load(each) as held:
                arrays.update(held)
    with replacing(path) as handle:
        np.savez_compressed(handle, **arrays)


def show(results: Sequence[dict[str, Any]]) -> None:
    """The table."""
    print("| draw | variant | mAP, best epoch | last | of s̃ on training rows | cross-entropy of s̃ | seconds |")
    print("|---|---|---|---|---|---|---|")
    for each in sorted(results, key=lambda each: (each["draw"], -each.get("best", 0.0))):
        names = ("best", "last", "held_out_map", "held_out_cross_entropy", "seconds")
        values = [str(each.get(name, "")) for name in names]
        print(f"| {each['draw']} | {each['job']} | {' | '.join(values)} | {each.get('error', '')}".rstrip(" |") + " |")


if __name__ == "__main__":
    main()
