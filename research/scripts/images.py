"""Training on images: a plain loop in single precision against ours, and what the class priors cost.

    python research/scripts/images.py [--batches 64] [--rows 4574] [--cpu-smoke]

ResNet-50 at 448 px with 81 labels (as NUS-WIDE has) and Adam, on random images that lie on the GPU as uint8, as many
as the training images of VOC. Both loops take a batch, normalise it and make a step. The plain loop is what most public
code does: eager, single precision in torch's defaults (which let convolutions use TF32), in batches of 16 as in the
papers and of the sizes of --batches. Ours is `train` itself: bf16, channels last, compiled, fused Adam, flips. The
first epoch, in which it compiles, has a column of its own; of the others the table gives the best.

The priors are estimated at the end of an epoch, from the scores of its batches ("running") or after another pass over
all rows ("fresh"); the share is that of the estimate in an epoch with it.

--cpu-smoke runs all of it in seconds, on a few small images, to see that it works; its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from stacked import cpu_name
from torch import nn

from onepos.images import ImageTensors
from onepos.images.networks import IMAGENET, make_image_backbone
from onepos.methods import CRISP
from onepos.methods.base import TrainView
from onepos.methods.losses import assume_negative
from onepos.training.backbones import n_outputs
from onepos.training.loop import History, train
from onepos.training.plan import Plan
from onepos.training.task import TrainingData, make_task

N_LABELS = 81
PAPERS = 16  # size of a batch in the papers


@dataclass(frozen=True)
class Setting:
    """What is trained, and where."""

    network: str
    size: int
    rows: int
    device: str
    compiled: bool


class Timed(CRISP):
    """Estimates the priors both ways after each epoch and keeps the times."""

    def setup(self, train: TrainView) -> None:
        """Add a list of times for each way."""
        super().setup(train)
        self.times: dict[str, list[float]] = {"running": [], "fresh": []}

    def end_epoch(self, train: TrainView) -> None:
        """Each way ends with priors on the CPU, so the clock stops after the device has finished."""
        for scores in self.times:
            self.scores, began = scores, time.perf_counter()
            super().end_epoch(train)
            self.times[scores].append(time.perf_counter() - began)
        self.scores = "running"


def plain(setting: Setting, pixels: torch.Tensor, observed: np.ndarray, batch_size: int) -> float:
    """Images per second."""
    backbone, _, _ = make_image_backbone(setting.network)
    head = nn.Linear(n_outputs(backbone, torch.zeros(2, 3, setting.size, setting.size)), N_LABELS)
    net = nn.Sequential(backbone, head).to(setting.device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    labels = torch.tensor(observed, device=setting.device)
    order = torch.randperm(len(pixels), device=setting.device)[: min(len(pixels), 100 * batch_size, 1500)]
    batches = [index for index in torch.split(order, batch_size) if len(index) == batch_size]
    n_warmup = min(5, len(batches) // 2)
    for step, index in enumerate(batches):
        if step == n_warmup:
            wait(setting)
            began = time.perf_counter()
        images = IMAGENET(pixels[index].permute(0, 3, 1, 2).contiguous().float() / 255)
        optimizer.zero_grad()
        assume_negative(net(images), labels[index].float()).backward()
        optimizer.step()
    wait(setting)
    return (len(batches) - n_warmup) * batch_size / (time.perf_counter() - began)


def ours(setting: Setting, pixels: torch.Tensor, observed: np.ndarray, batch_size: int) -> tuple[History, Timed]:
    backbone, normalization, _ = make_image_backbone(setting.network)
    method = Timed(warmup=1, scores="running")
    plan = Plan(3, batch_size, lr=1e-4, device=setting.device, precision="bf16", compile=setting.compiled)
    data = TrainingData(ImageTensors(pixels, normalization))
    return train(make_task(data, observed, method, plan, network=backbone)).history, method


def wait(setting: Setting) -> None:
    if setting.device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batches", default="64")
    parser.add_argument("--rows", type=int, default=4574)
    parser.add_argument("--cpu-smoke", action="store_true")
    options = parser.parse_args()
    sizes = [int(size) for size in options.batches.split(",")]
    setting = Setting("resnet50", 448, options.rows, "cuda", compiled=True)
    if options.cpu_smoke:
        setting, sizes = Setting("resnet18", 64, 34, "cpu", compiled=False), [4, 8]
        machine = f"{os.cpu_count()} cores, {cpu_name()}"
    elif torch.cuda.is_available():
        machine = f"{torch.cuda.get_device_name()}, cuDNN {torch.backends.cudnn.version()}"
    else:
        parser.error("this measures a GPU, and torch finds none here. Pass --cpu-smoke to see whether it runs.")

    torch.manual_seed(0)
    shape = (setting.rows, setting.size, setting.size, 3)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, device=setting.device)
    observed = np.eye(N_LABELS, dtype=np.uint8)[np.random.default_rng(0).integers(0, N_LABELS, setting.rows)]
    print(f"{machine}; torch {torch.__version__}\n")
    print(f"{setting.network}, {setting.size} px, {N_LABELS} labels, {setting.rows} random images\n")
    print(f"| loop | batch | images/s | times plain, same batch | times plain, batch {PAPERS} | first epoch (s) |")
    print("|---|---|---|---|---|---|")
    slow = {size: plain(setting, pixels, observed, size) for size in sorted({PAPERS, *sizes})}
    for size, speed in slow.items():
        print(f"| plain, fp32, eager | {size} | {speed:.0f} | 1.00 | {speed / slow[PAPERS]:.2f} | |", flush=True)
    priors = []
    what = "ours, bf16, channels last, compiled, fused Adam" if setting.compiled else "ours, bf16, not compiled"
    for size in sizes:
        history, method = ours(setting, pixels, observed, size)
        steps = [whole - closing for whole, closing in zip(history.seconds, history.closing_seconds, strict=True)]
        epoch = min(steps[1:])
        fast = setting.rows / epoch
        ratios = f"{fast / slow[size]:.2f} | {fast / slow[PAPERS]:.2f}"
        print(f"| {what} | {size} | {fast:.0f} | {ratios} | {steps[0]:.1f} |", flush=True)
        for scores, times in method.times.items():
            seconds = min(times[1:])
            priors.append(f"| {scores} | {size} | {1e3 * seconds:.1f} | {seconds / (epoch + seconds):.2%} |")
    print("\n| priors from scores | batch | ms per epoch | share of the epoch |\n|---|---|---|---|")
    print("\n".join(priors))
    if setting.device == "cuda":
        print(f"\nGPU memory at most: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB, images included.")


if __name__ == "__main__":
    main()
