"""Where a training runs: device, precision, and the generators of random numbers."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def choose_device(name: str) -> torch.device:
    """The device of this name; "auto" takes an accelerator where there is one."""
    if name != "auto":
        return _named_device(name)
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _named_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: a torch without CUDA
        raise ValueError(
            f"device must be 'auto', 'cpu', or an accelerator of this machine; got {name!r} "
            f"({str(error).splitlines()[0]}). Use device='auto'."
        ) from error
    return device


class Direct:
    """A CPU in full precision, without a wrapper.

    Fabric costs a batch of 16 rows more than the 5 % it may (benchmarks/loop.py prints the ratio), so the small
    tabular loop goes around it. It answers to the same names.
    """

    device = torch.device("cpu")

    def setup(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """As they are."""
        return module, optimizer

    def autocast(self) -> AbstractContextManager[None]:
        """Nothing: all is in single precision."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """The only backward pass of the library, beside Fabric's."""
        loss.backward()  # type: ignore[no-untyped-call]


def open_runtime(device: str, precision: str) -> Any:
    """`Direct` on a CPU in 32 bits, otherwise a Lightning Fabric of one device: CUDA, MPS, or bf16 anywhere."""
    if precision not in ("32", "bf16"):
        raise ValueError(f"precision must be '32' or 'bf16'; got {precision!r}.")
    place = choose_device(device)
    if place.type == "cpu" and precision == "32":
        return Direct()
    from lightning_fabric import Fabric  # seconds to import: only where it is used

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it tells of each training what was asked for
    where: Any = 1 if place.type == "cpu" else [place.index or 0]
    return Fabric(accelerator=place.type, devices=where, precision="bf16-mixed" if precision == "bf16" else "32-true")


@contextmanager
def seeded(seed: int, stream: int, device: torch.device) -> Iterator[None]:
    """Run with torch's generators set from (seed, stream), and give the caller's state back afterwards."""
    forked: dict[str, Any] = {"devices": []}
    if device.type != "cpu":
        forked = {"devices": [device.index or 0], "device_type": device.type}
    with torch.random.fork_rng(**forked):
        # Not torch.manual_seed: it takes a third of a millisecond to note the seed for accelerators never used.
        torch.default_generator.manual_seed(_seed_of(seed, stream))
        if device.type == "cuda":
            torch.cuda.default_generators[device.index or 0].manual_seed(_seed_of(seed, stream))
        elif device.type != "cpu":
            torch.get_device_module(device).manual_seed(_seed_of(seed, stream))
        yield


def generator(seed: int, stream: int) -> torch.Generator:
    """A generator on the CPU that gives the numbers torch's own gives when `seeded` so."""
    return torch.Generator().manual_seed(_seed_of(seed, stream))


def free_memory(device: torch.device) -> int:
    """Bytes that can still be had there; where the system does not tell, half of what there is."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


def _seed_of(seed: int, stream: int) -> int:
    return int(np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0] >> np.uint64(1))
