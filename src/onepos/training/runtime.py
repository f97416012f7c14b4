"""Where a training runs: device, precision, and the generators of random numbers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onepos.validation import check_choice

# Streams of random numbers under one seed. Epoch e takes FIRST_EPOCH_STREAM + e for its batches, FIRST_END_STREAM + e
# for what the method does after them, which thus does not depend on how many numbers the batches took.
NETWORK_STREAM, HEAD_STREAM, FIRST_EPOCH_STREAM, FIRST_END_STREAM, SEARCH_STREAM = 0, 1, 2, 1 << 20, 1 << 30


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


@dataclass(frozen=True)
class Runtime:
    """One device, and the precision in which layers run on it; weights are always in single precision."""

    device: torch.device
    half: bool

    def autocast(self) -> AbstractContextManager[Any]:
        """A context in which layers run in the precision of the plan."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.half else nullcontext()


def open_runtime(device: str, precision: str) -> Runtime:
    """The device of this name in "32" or "bf16"."""
    check_choice("precision", precision, ("32", "bf16"))
    return Runtime(choose_device(device), precision == "bf16")


_ROUNDED = (torch.float32, torch.float64)  # half precision stays: a module that keeps it knows why


def widen(module: nn.Module) -> nn.Module:
    """Round the weights to single precision, as a model folder keeps them, and hold them in double, on the CPU.

    In double precision the output of a row does not depend on which rows are beside it in the batch.
    """
    _convert(module, lambda t: t.to("cpu", torch.float32).double() if t.dtype in _ROUNDED else t.cpu())
    return module


def _convert(module: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    """Change all parameters and buffers, as `module.to` does."""
    module._apply(change)  # type: ignore[no-untyped-call]


def narrow(tensor: Tensor) -> Tensor:
    """Undo `widen` for a file."""
    return tensor.float() if tensor.dtype == torch.float64 else tensor


def place(module: nn.Module, device: torch.device) -> torch.dtype:
    """Move a module that `widen` gave to the device; the precision it has there, single on one without double."""
    dtype = torch.float32 if device.type == "mps" else torch.float64
    device = torch.empty(0, device=device).device  # with its number
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.device != device or (tensor.dtype in _ROUNDED and tensor.dtype != dtype):
            _convert(module, lambda t: t.to(device, dtype) if t.dtype in _ROUNDED else t.to(device))
            break
    return dtype


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


# Multiply-adds of a step up to which one thread is enough. On two x86-64 cores a second thread makes a step of training
# 1.1 times faster at 1 million, 1.3 times at 3 million and 1.4 times at 7 million; where other programs use the cores
# too, it makes steps many times slower, since the threads wait for each other.
_ONE_THREAD = 1 << 22


class _Limits(threading.local):
    """Whether this Python thread is in such a context; for all of them, how many are, and what the caller has set."""

    inside = False
    lock = threading.Lock()
    n_inside = 0
    callers = 1


_limits = _Limits()


@contextmanager
def fitting_threads(multiply_adds: float, device: torch.device) -> Iterator[None]:
    """Run with as many of torch's threads as work of this size can use, and never more than the caller has set.

    Small work gets one thread, large work all. Accelerators have threads of their own; for them nothing is changed.

    Args:
        multiply_adds: Of one step: rows times weights.
        device: Where the work is done.
    """
    if device.type != "cpu" or multiply_adds > _ONE_THREAD or _limits.inside:
        yield
        return
    with _limits.lock:  # a Python thread that begins meanwhile would take the 1 of another for the caller's number
        if not _Limits.n_inside:
            _Limits.callers = torch.get_num_threads()
        _Limits.n_inside += 1
    _limits.inside = True
    torch.set_num_threads(1)
    try:
        yield
    finally:
        with _limits.lock:
            _Limits.n_inside -= 1
            torch.set_num_threads(_Limits.callers)
        _limits.inside = False


def count_weights(module: nn.Module) -> int:
    """Multiply-adds of one row in the matrix products of a module without convolutions."""
    return sum(t.numel() for t in (*module.parameters(), *module.buffers()) if t.ndim > 1 and t.is_floating_point())


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
