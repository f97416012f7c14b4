"""Features of images beside features of their regions, without fine-tuning: mAP on VOC by kind and method.

    PYTHONPATH=src python research/scripts/image_regions.py [--device cuda] [--test] [--limit N] [--features FILE.npz]

EfficientNet-Lite0, frozen; images of voc-256px, the split and the single positives of the published results. A linear
layer is trained on each kind of features by AN, CRISP+ and with full labels, with the defaults of the classifier. mAP
is of the validation rows, with --test of the test rows. Kinds:

    pooled      the image at 224 pixels
    map max     beside it the greatest value of each feature over the places of the last map
    map soft    beside it log mean exp of the values over the places
    crops       beside it the greatest over the image and four crops of three fifths of the side, as with
                ImageFeatures(regions=True)
    crops mean  beside it the mean over the four crops
    crops 9     beside it the greatest over the image and nine crops of half of the side
    crops 13    beside it the greatest over the image and all of these crops
    scores      pooled features; a label has the mean of its logit in the image and of the greatest in the four crops

--features keeps the features in a file.
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
    """Of every image: of the whole (n, d), of its last map (n, d), of four and of nine crops (n, k, d)."""
    found: dict[str, list[Tensor]] = {"whole": [], "map max": [], "map soft": [], "four": [], "nine": []}
    some, more = RegionFeatures(nn.Identity(), SIZE, 2), RegionFeatures(nn.Identity(), SIZE, 3)
    network = network.to(device).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]

    def pool(part: Tensor) -> Tensor:
        return network(part.contiguous(memory_format=torch.channels_last)).float().mean((2, 3))

    for index in torch.split(torch.arange(len(images)), 64):
        rows = images.rows(index)
        maps = network(_scaled(rows, SIZE)).float()
        found["whole"].append(maps.mean((2, 3)))
        found["map max"].append(maps.amax((2, 3)))
        found["map soft"].append(maps.flatten(2).logsumexp(2) - np.log(maps[0, 0].numel()))
        found["four"].append(torch.stack([pool(each) for each in some.crops(_scaled(rows, round(SIZE / 0.6)))], 1))
        found["nine"].append(torch.stack([pool(each) for each in more.crops(_scaled(rows, 2 * SIZE))], 1))
    return {name: torch.cat(parts).cpu().numpy() for name, parts in found.items()}


def _scaled(images: Tensor, size: int) -> Tensor:
    scaled = F.interpolate(images, size, mode="bilinear", antialias=True)
    return scaled.contiguous(memory_format=torch.channels_last)


def make_kinds(found: Rows) -> Rows:
    """The features of each kind."""
    whole, four, nine = found["whole"], found["four"].max(1), found["nine"].max(1)
    beside = {
        "map max": found["map max"],
        "map soft": found["map soft"],
        "crops": np.maximum(whole, four),
        "crops mean": found["four"].mean(1),
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
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    began = time.time()
    data = with_published_protocol(load_images("voc-256px"))
    splits = data.splits or {}
    parts = [data.take(splits[name][: options.limit]) for name in ("train", "test" if options.test else "val")]
    features = _load(options.features, [len(part.files) for part in parts])
    if features is None:
        features = find_all(parts, choose_device(options.device))
        if options.features:
            held = {f"{k} {name}": rows for k, found in enumerate(features) for name, rows in found.items()}
            np.savez(options.features, **{name: rows.astype(np.float16) for name, rows in held.items()})
    print(f"features after {time.time() - began:.0f} s\n\n| features | {' | '.join(METHODS)} |", flush=True)
    print("|---" * (1 + len(METHODS)) + "|")
    kinds = [make_kinds(found) for found in features]
    for kind in kinds[0]:
        rows = [each[kind] for each in kinds]
        crops = features[1]["four"] if kind == "pooled" else None
        found = [judge(method, rows, parts, crops, seed) for method in METHODS for seed in range(options.seeds)]
        means = np.array(found).reshape(len(METHODS), options.seeds, -1).mean(1)
        for name, values in zip((kind, "scores"), means.T, strict=False):
            print(f"| {name} | {' | '.join(f'{value:.2f}' for value in values)} |", flush=True)
    print(f"\n{time.time() - began:.0f} s in all")


def find_all(parts: Sequence[ImageDataset], device: torch.device) -> list[Rows]:
    """The features of each part."""
    network, _, _ = make_image_backbone("efficientnet-lite0", "pretrained", maps=True)
    features = []
    for part in parts:
        images = pack_images(ImageFiles(part.files, 256, normalization=LITE, workers=8), image_cache()).load()
        features.append(find_features(network, images.to(device), device))
    return features


def judge(
    method: str, rows: Sequence[np.ndarray], parts: Sequence[ImageDataset], crops: np.ndarray | None, seed: int
) -> list[float]:
    """mAP of a classifier; with features of crops also that of the scores of image and crops."""
    train, judged = parts
    options = {"network": "linear", "random_state": seed}
    if method == "full":
        model = SinglePositiveClassifier("an", positives="any", **options).fit(rows[0], train.Y)
    else:
        model = SinglePositiveClassifier(method, **options).fit(rows[0], train.observed)
    logits = model.decision_function(rows[1])
    reached = [_score(judged.Y, logits)]
    if crops is not None:
        each = [model.decision_function(np.ascontiguousarray(crops[:, k])) for k in range(crops.shape[1])]
        reached.append(_score(judged.Y, (logits + np.max([logits, *each], axis=0)) / 2))
    return reached


def _score(Y: np.ndarray, logits: np.ndarray) -> float:
    return 100 * float(METRICS["map"].function(Y, logits))


def _load(path: Path | None, counts: list[int]) -> list[Rows] | None:
    """The features of the parts, where they were kept for as many rows."""
    if path is None or not path.exists():
        return None
    with np.load(path) as held:
        found = [
            {name.split(" ", 1)[1]: held[name].astype(np.float32) for name in held if name.startswith(f"{k} ")}
            for k in range(len(counts))
        ]
    return found if [len(rows["whole"]) for rows in found] == counts else None


if __name__ == "__main__":
    main()
