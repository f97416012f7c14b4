"""Small JPEGs streamed from disk: images per second, and memory that does not grow with their number.

    python research/scripts/image_stream.py [--images 5000,50000] [--workers 2] [--size 64] [--batch 64]

The files are made in a temporary folder. Each number of images is streamed in a fresh process: decoded in workers,
flipped and normalised in batches in the parent. Memory is read from /proc while it runs (Linux only): the highest
resident size of the parent and of the largest worker, and the highest sum of what is theirs alone or shared by them
(PSS). At the end the smallest number is packed and streamed without decoding; the resident size then counts the
pages of the packed file, which the system takes back when it needs them.
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from onepos.images import ImageFiles, pack_images
from onepos.images.samples import ImageTensors

DISTINCT, PER_FOLDER, LOOK_EVERY = 500, 1000, 10


def make_files(folder: Path, n: int) -> list[str]:
    """`n` JPEGs of 96 × 72 pixels with `DISTINCT` different contents."""
    rng = np.random.default_rng(0)
    contents = []
    for _ in range(DISTINCT):
        handle = io.BytesIO()
        coarse = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
        coarse.resize((96, 72), Image.Resampling.BICUBIC).save(handle, "jpeg")
        contents.append(handle.getvalue())
    files = []
    for k in range(n):
        path = folder / f"{k // PER_FOLDER:04d}" / f"{k:06d}.jpg"
        if k % PER_FOLDER == 0:
            path.parent.mkdir()
        path.write_bytes(contents[k % DISTINCT])
        files.append(str(path))
    return files


def memory_of(pid: int) -> tuple[float, float]:
    """(RSS, PSS) in MiB; zero for a process that has just ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0, 0.0
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("Rss", "Pss:"))}
    return kilobytes["Rss"] / 1024, kilobytes["Pss"] / 1024


def children() -> Iterator[int]:
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def stream(samples: ImageFiles | ImageTensors, batch_size: int) -> dict[str, float]:
    """One epoch in random order with one view."""
    peak = {"parent": 0.0, "worker": 0.0, "together": 0.0}
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(0))
    began, seen = time.perf_counter(), 0
    for k, (index, views) in enumerate(samples.batches(order, batch_size, 1)):
        seen += len(index)
        assert views[0].shape[1:] == (3, samples.size, samples.size)
        if k % LOOK_EVERY == 0:
            parent, workers = memory_of(os.getpid()), [memory_of(pid) for pid in children()]
            found = parent[0], max((rss for rss, _ in workers), default=0.0), parent[1] + sum(pss for _, pss in workers)
            peak = {name: max(old, new) for (name, old), new in zip(peak.items(), found, strict=True)}
    assert seen == len(samples)
    return {"rate": seen / (time.perf_counter() - began), **peak}


def run(files: list[str], size: int, workers: int, batch_size: int) -> dict[str, float]:
    torch.set_num_threads(1)
    return stream(ImageFiles(files, size, workers=workers), batch_size)


def run_packed(files: list[str], size: int, workers: int, batch_size: int, folder: str) -> dict[str, float]:
    torch.set_num_threads(1)
    return stream(pack_images(ImageFiles(files, size, workers=workers), folder), batch_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", default="5000,50000")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    counts = sorted(map(int, options.images.split(",")))
    with tempfile.TemporaryDirectory() as folder:
        files = make_files(Path(folder), counts[-1])
        print(f"{options.workers} workers, {options.size} px, batches of {options.batch}; memory in MiB\n")
        print("| images | | images/s | parent RSS | worker RSS | all together PSS |\n|---|---|---|---|---|---|")
        settings = options.size, options.workers, options.batch
        packed = str(Path(folder) / "packed")
        jobs = [(count, "decoded", run, ()) for count in counts] + [(counts[0], "packed", run_packed, (packed,))]
        for count, kind, job, more in jobs:
            with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as fresh:
                found = fresh.submit(job, files[:count], *settings, *more).result()
            cells = found["rate"], found["parent"], found["worker"], found["together"]
            print(f"| {count} | {kind} | " + " | ".join(f"{cell:.0f}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
