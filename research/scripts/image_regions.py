"""Features of images beside features of their regions, without fine-tuning: mAP on VOC by kind and method.

    PYTHONPATH=src python research/scripts/image_regions.py [--features FOLDER] [--only-features] [--device cuda]
                                                            [--test] [--limit N] [--seeds 1]

EfficientNet-Lite0, frozen; images of voc-256px, the split and the single positives of the published results. A linear
layer is trained on each kind of features by AN, CRISP+ and with full labels, with the defaults of the classifier. mAP
is of the validation rows, with --test of the test rows. Kinds:

    pooled      the image at 224 pixels
    map         beside it the greatest value of each feature over the places of the last map
    crops       beside it the greatest over the image and four crops of three fifths of the side, as with
                ImageFeatures(regions=True)
    crops 9     beside it the greatest over the image and nine crops of half of the side
    crops 13    beside it the greatest over the image and all of these crops

The features are kept in FOLDER, a file of half precision for each kind, and taken from there the next time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onepos import SinglePositiveClassifier
from onepos.bench.image_sets import image_cache, load_images, with_published_protocol
from onepos.images import ImageFiles, ImageTensors, pack_images
from onepos.images.networks import LITE, make_image_backbone
from onepos.images.readers import ImageDataset
from onepos.images.regions import RegionFeatures
from onepos.metrics import METRICS
from onepos.training.runtime import choose_device

SIZE = 224
METHODS = ("an", "crisp-plus", "full")
Rows = dict[str, np.ndarray]


@torch.no_grad()
def find_features(network: nn.Module, images: ImageTensors, device: torch.device) -> Rows:
    """(n, d) each: of the whole image, the greatest of its last map, of four crops and of nine."""
    found: dict[str, list[Tensor]] = {"whole": [], "map": [], "four": [], "nine": []}
    some, more = RegionFeatures(nn.Identity(), SIZE, 2), RegionFeatures(nn.Identity(), SIZE, 3)
    network = network.to(device).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]

    def greatest(crops: list[Tensor]) -> Tensor:
        return torch.stack([network(each).float().mean((2, 3)) for each in crops]).amax(0)

    for index in torch.split(torch.arange(len(images)), 64):
        rows = images.rows(index)
        maps = network(_scaled(rows, SIZE)).float()
        found["whole"].append(maps.mean((2, 3)))
        found["map"].append(maps.amax((2, 3)))
        found["four"].append(greatest(some.crops(_scaled(rows, round(SIZE / 0.6)))))
        found["nine"].append(greatest(more.crops(_scaled(rows, 2 * SIZE))))
    return {name: torch.cat(parts).half().cpu().numpy() for name, parts in found.items()}


def _scaled(images: Tensor, size: int) -> Tensor:
    scaled = F.interpolate(images, size, mode="bilinear", antialias=True)
    return scaled.contiguous(memory_format=torch.channels_last)


def make_kinds(found: Rows) -> Rows:
    """The features of each kind."""
    whole, places, four, nine = (found[name].astype(np.float32) for name in ("whole", "map", "four", "nine"))
    beside = {
        "map": places,
        "crops": np.maximum(whole, four),
        "crops 9": np.maximum(whole, nine),
        "crops 13": np.maximum(np.maximum(whole, four), nine),
    }
    return {"pooled": whole} | {name: np.concatenate([whole, each], 1) for name, each in beside.items()}


def main() -> None:
    """Features of all images, then a classifier for each kind and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--limit", type=int, help="use the first so many rows of each part")
    parser.add_argument("--features", type=Path)
    parser.add_argument("--only-features", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    began = time.time()
    data = with_published_protocol(load_images("voc-256px"))
    splits = data.splits or {}
    parts = [data.take(splits[name][: options.limit]) for name in ("train", "test" if options.test else "val")]
    found = load_features(options.features, sum(len(part.files) for part in parts))
    if found is None:
        found = find_all(parts, choose_device(options.device))
        if options.features:
            options.features.mkdir(parents=True, exist_ok=True)
            for name, rows in found.items():
                np.save(options.features / f"{name}.npy", rows)
    print(f"features after {time.time() - began:.0f} s", flush=True)
    if not options.only_features:
        compare(make_kinds(found), parts, options.seeds)
    print(f"\n{time.time() - began:.0f} s in all")


def compare(kinds: Rows, parts: Sequence[ImageDataset], seeds: int) -> None:
    """Print the table."""
    print(f"\n| features | {' | '.join(METHODS)} |")
    print("|---" * (1 + len(METHODS)) + "|")
    n = len(parts[0].files)
    for kind, rows in kinds.items():
        scores = [
            np.mean([judge(method, rows[:n], rows[n:], parts, seed) for seed in range(seeds)]) for method in METHODS
        ]
        print(f"| {kind} | {' | '.join(f'{value:.2f}' for value in scores)} |", flush=True)


def find_all(parts: Sequence[ImageDataset], device: torch.device) -> Rows:
    """The features of the parts, one below the other."""
    network, _, _ = make_image_backbone("efficientnet-lite0", "pretrained", maps=True)
    found = []
    for part in parts:
        images = pack_images(ImageFiles(part.files, 256, normalization=LITE, workers=8), image_cache()).load()
        found.append(find_features(network, images.to(device), device))
    return {name: np.concatenate([each[name] for each in found]) for name in found[0]}


def load_features(folder: Path | None, n_rows: int) -> Rows | None:
    """Those that were kept, if they are of as many rows."""
    if folder is None or not (folder / "nine.npy").exists():
        return None
    found = {name: np.load(folder / f"{name}.npy") for name in ("whole", "map", "four", "nine")}
    return found if {len(rows) for rows in found.values()} == {n_rows} else None


def judge(method: str, rows: np.ndarray, others: np.ndarray, parts: Sequence[ImageDataset], seed: int) -> float:
    """mAP in percent on the other rows."""
    train, judged = parts
    options = {"network": "linear", "random_state": seed}
    if method == "full":
        model = SinglePositiveClassifier("an", positives="any", **options).fit(rows, train.Y)
    else:
        model = SinglePositiveClassifier(method, **options).fit(rows, train.observed)
    return 100 * float(METRICS["map"].function(judged.Y, model.decision_function(others)))


if __name__ == "__main__":
    main()
