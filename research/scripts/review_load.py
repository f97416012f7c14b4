"""Fifty reviewers at once: every acknowledged answer stored exactly once, how long they wait, how memory grows.

    python research/scripts/review_load.py --reviewers 50 --seconds 100

Serves digit scenes with `onepos serve` on 127.0.0.1, lets reviewers answer at the pace of fast people, starts "Improve"
after a third of the time, and compares at the end what was acknowledged with the file of answers.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np


@dataclass
class Load:
    """What was acknowledged and how long it took."""

    address: str
    until: float
    pace: tuple[float, float]
    acknowledged: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    waits: list[tuple[float, float, str]] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    improving: list[tuple[float, float]] = field(default_factory=list)

    async def post(self, client: httpx.AsyncClient, path: str, body: dict | None) -> dict | None:
        """The answer to a request; None where it failed."""
        began = time.perf_counter()
        try:
            response = await client.post(path, json=body)
        except httpx.HTTPError as error:
            self.failed[type(error).__name__] += 1
            return None
        self.waits.append((began, time.perf_counter() - began, path))
        if response.status_code >= 400:
            self.failed[str(response.status_code)] += 1
            return None
        return response.json()


async def review(load: Load, number: int) -> None:
    """One person: takes an item, answers its doubtful labels, goes on."""
    rng = random.Random(number)
    who = {"session": f"session-{number:04d}", "reviewer": f"reviewer {number}"}
    async with httpx.AsyncClient(base_url=load.address, timeout=30) as client:
        state = (await client.get("/api/state")).json()
        count = 0
        while time.perf_counter() < load.until:
            found = await load.post(client, "/api/next", who)
            if found is None or found["item"] is None:
                await asyncio.sleep(0.2)
                continue
            item = found["item"]
            for column in [*item["doubtful"][:3], None]:
                await asyncio.sleep(rng.uniform(*load.pace))
                count += 1
                name = f"load-{number:04d}-{count:06d}"
                body = who | {"id": name, "item": item["id"]}
                if column is None:
                    body["outcome"] = "done"
                else:
                    value = rng.choice(["yes", "no", "no", "unsure"])
                    body["answers"] = [{"label": state["labels"][column], "value": value}]
                if await load.post(client, "/api/answers", body) is not None:
                    load.acknowledged.append(name)
                    if column is None:
                        load.finished.append(item["id"])
                    if rng.random() < 0.05:  # a repeated request changes nothing
                        await load.post(client, "/api/answers", body)


async def improve(load: Load, after: float) -> None:
    """Start an improvement and see how long it takes."""
    await asyncio.sleep(after)
    async with httpx.AsyncClient(base_url=load.address, timeout=30) as client:
        began = time.perf_counter()
        answer = await client.post("/api/improve")
        print("improve:", answer.status_code)
        while time.perf_counter() < load.until + 120:
            await asyncio.sleep(1)
            progress = (await client.get("/api/improve")).json()
            if progress["state"] != "running":
                print("improve:", progress["state"], progress["error"])
                break
        load.improving.append((began, time.perf_counter()))


async def watch(load: Load, pid: int, sizes: list[tuple[float, float]]) -> None:
    """Memory of the server in MiB, every five seconds."""
    began = time.perf_counter()
    while time.perf_counter() < load.until:
        text = Path(f"/proc/{pid}/status").read_text()
        size = int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024
        sizes.append((time.perf_counter() - began, size))
        await asyncio.sleep(5)


async def run(load: Load, reviewers: int, seconds: float, pid: int) -> list[tuple[float, float]]:
    sizes: list[tuple[float, float]] = []
    await asyncio.gather(
        *(review(load, number) for number in range(reviewers)), improve(load, seconds / 3), watch(load, pid, sizes)
    )
    return sizes


def serve(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """A fitted model behind `onepos serve`; the process and its address."""
    onepos = [sys.executable, "-m", "onepos"]
    fit = [*onepos, "fit", "digit-scenes:train", "--draw", "uniform", "--method", "an", "--epochs", "3", "-q"]
    subprocess.run([*fit, "--out", folder / "model"], check=True)
    command = [*onepos, "serve", folder / "model", "--data", "digit-scenes:train", "--draw", "uniform", "-q"]
    process = subprocess.Popen(
        [*command, "--port", "0", "--answers", folder / "reviews.db"], stdout=subprocess.PIPE, text=True
    )
    line = process.stdout.readline()
    return process, re.search(r"http://\S+", line)[0].rstrip("/")


def check(load: Load, path: Path) -> list[str]:
    """What is wrong with the file, in sentences; nothing if all is well."""
    with sqlite3.connect(path) as connection:
        stored = Counter(name for (name,) in connection.execute("SELECT id FROM actions"))
        done = Counter(item for (item,) in connection.execute("SELECT item FROM actions WHERE outcome = 'done'"))
    connection.close()
    lost = [name for name in load.acknowledged if stored[name] != 1]
    faults = [f"{len(lost)} acknowledged answers are not stored exactly once"] if lost else []
    unknown = set(stored) - set(load.acknowledged)
    faults += [f"{len(unknown)} stored answers were not acknowledged"] if unknown and not load.failed else []
    twice = [item for item, n in done.items() if n > 1]
    return faults + ([f"{len(twice)} items were reviewed twice"] if twice else [])


def quantiles(waits: list[float]) -> str:
    """Milliseconds."""
    if not waits:
        return "–"
    return " | ".join(f"{1000 * q:.0f}" for q in np.quantile(waits, [0.5, 0.95, 0.99, 1.0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reviewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--pace", type=float, nargs=2, default=(0.4, 1.2), help="seconds between two keys, from and to")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        process, address = serve(Path(name))
        load = Load(address, time.perf_counter() + given.seconds, tuple(given.pace))
        try:
            sizes = asyncio.run(run(load, given.reviewers, given.seconds, process.pid))
            faults = check(load, Path(name) / "reviews.db")
        finally:
            process.terminate()
            process.wait()
    inside = [wait for began, wait, _ in load.waits if any(a <= began <= b for a, b in load.improving)]
    outside = [wait for began, wait, _ in load.waits if not any(a <= began <= b for a, b in load.improving)]
    print(f"{given.reviewers} reviewers, {given.seconds:.0f} s, {len(load.waits)} requests")
    print(f"{len(load.acknowledged)} acknowledged, {len(load.finished)} items finished, failed: {dict(load.failed)}")
    print("stored exactly once: " + ("; ".join(faults) or "all"))
    print("\n| requests | n | p50 ms | p95 ms | p99 ms | longest |\n|---|---:|---:|---:|---:|---:|")
    print(f"| while improving | {len(inside)} | {quantiles(inside)} |")
    print(f"| otherwise | {len(outside)} | {quantiles(outside)} |")
    print("\nmemory, MiB: " + ", ".join(f"{second:.0f} s {size:.0f}" for second, size in sizes[::4]))
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
