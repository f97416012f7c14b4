"""Several processes that share one GPU for a stated time."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

# What a process does to see whether it can use the GPU.
_TRY = "import torch; print(float(torch.ones(8, device='cuda').sum()))"
_TRY_SECONDS = 30.0


@contextmanager
def sharing_gpu() -> Iterator[bool]:
    """Run with NVIDIA's multi-process service, so that kernels of several processes run side by side.

    Without it they take turns. Gives whether it runs; where it can not be started, nothing is changed.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        yield False
        return
    folder = tempfile.mkdtemp(prefix="mps-")  # its path must be short
    before = dict(os.environ)
    os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    works = False
    try:
        # It leaves a process behind, which would hold a pipe open.
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([control, "-d"], check=True, timeout=_TRY_SECONDS, **quiet)
        subprocess.run([sys.executable, "-c", _TRY], check=True, capture_output=True, timeout=_TRY_SECONDS)
        works = True
    except (subprocess.SubprocessError, OSError) as error:
        print(f"no multi-process service: {error}", flush=True)
        _quit(control)
        os.environ.clear()
        os.environ.update(before)
    try:
        yield works
    finally:
        if works:
            _quit(control)


def _quit(control: str) -> None:
    try:
        subprocess.run([control], input=b"quit\n", capture_output=True, timeout=_TRY_SECONDS, check=False)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"the multi-process service did not stop: {error}", flush=True)


def run_crew(
    work: Callable[..., None], arguments: tuple[Any, ...], workers: int, deadline: float, on_look: Callable[[], None]
) -> None:
    """Start so many processes of `work(number, deadline, *arguments)` and end those that are left at the deadline.

    Args:
        work: A function of a module.
        arguments: Its arguments after the number of the process and the deadline.
        workers: How many processes; with 1 the work is done in this one.
        deadline: By `time.time()`.
        on_look: Called every few seconds.
    """
    if workers == 1:
        work(0, deadline, *arguments)
        return
    context = multiprocessing.get_context("spawn")  # a forked torch hangs
    crew = [context.Process(target=work, args=(k, deadline, *arguments)) for k in range(workers)]
    for process in crew:
        process.start()
    looked = time.time()
    while any(process.is_alive() for process in crew) and time.time() < deadline:
        time.sleep(0.2)
        if time.time() > looked + 10:
            looked = time.time()
            on_look()
    for process in crew:
        if process.is_alive():
            process.kill()
        process.join()


def settle_in(workers: int) -> None:
    """In a process of a crew: its share of the threads."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
