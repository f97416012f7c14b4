"""Many small runs trained as one: their weights are stacked, and each step moves them all.

A run on tabular data spends its time in Python and in starting kernels, not in arithmetic. So runs that share the shape
of their data, network, method and batch are laid on top of each other: every parameter and buffer becomes one tensor
with a first axis over the runs. A step is then

    rows of each run's own batch → linear layers, one batched product each → `torch.func.vmap` of the method's own
    `loss` → back through the layers → one call of the fused Adam kernel

Nothing of a method is written twice. Each run keeps its own learner, whose parameters and buffers become windows on
its slice of the stack; so what follows the batches of an epoch (`end_epoch`, validation, choice of the best) is the
very code of `onepos.training.loop`, run by run.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onepos.bench.stacked_adam import StackedAdam
from onepos.bench.tracing import TracedLoss
from onepos.methods.base import Batch, Memory, Method
from onepos.methods.heads import LinearHead
from onepos.reading import naming
from onepos.training import loop
from onepos.training.checkpoint import load_checkpoint, remove_checkpoint, save_checkpoint
from onepos.training.loop import Diverged, History, States, Trained
from onepos.training.runtime import FIRST_EPOCH_STREAM, HEAD_STREAM, choose_device, free_memory, generator, seeded
from onepos.training.samples import DenseRows, Samples, SparseRows, join_samples
from onepos.training.task import Learner, Task

# Layers that act on each number by itself and keep nothing, so that they take a further axis as they are.
_ELEMENTWISE = (nn.Identity, nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.Sigmoid, nn.LeakyReLU, nn.ELU, nn.Softplus)

# More runs than this gain nothing (research/scripts/stacked.py): a CPU is then bound by memory, an accelerator is full.
_LARGEST_STACK = {"cpu": 64, "cuda": 512}

# Numbers looked up at once for the next batches: enough that looking up costs nothing, few enough to stay in the cache.
_LOOKED_UP = 1 << 21

# Numbers that a layer makes at once in a pass over all rows: on a CPU fewer, which stay in its cache.
_PASSED = {"cpu": 1 << 19}

# Entries of a gradient below this move no weight by as much as its last bit: the ε of Adam, 1e-8, swallows them. A CPU
# multiplies numbers near the smallest it can hold a hundred times slower than others, so they are taken for zero.
_NEGLIGIBLE = 1e-20


def train_many(
    tasks: Sequence[Task],
    *,
    stack_size: int | None = None,
    checkpoints: str | os.PathLike[str] | None = None,
) -> list[Trained]:
    """Train every task in place, as `train` would one by one, stacked wherever they can be.

    Runs are stacked if they agree in the shape of the data, the network, the method and its parameters that are not
    floats, and in batch size and device; what can not be stacked is trained by itself.

    Args:
        tasks: The runs, in any mix and order.
        stack_size: At most so many runs in a stack; by default as many as half of the free memory holds.
        checkpoints: A folder where each stack is written after each epoch, to go on from there; the same tasks with
            the same stack size end in the same weights as if they had never stopped.

    Returns:
        What is left of each task. A run whose loss is no longer finite is not moved from there on and leaves the others
        undisturbed: its history ends with that loss, and its learner is left at its best epoch before, if any.
    """
    if len({id(task.learner) for task in tasks}) < len(tasks):
        raise ValueError("each task must have a learner of its own; one is in two tasks. Copy it with copy.deepcopy.")
    if stack_size is not None and stack_size < 1:
        raise ValueError(f"stack_size must be at least 1; got {stack_size}. Leave it out to fit the memory.")
    trained: dict[int, Trained] = {}
    for chunk in _stacks(tasks, stack_size):
        members = [tasks[k] for k in chunk]
        done = _Stack(members, checkpoints).train() if len(chunk) > 1 else [_train_alone(members[0], checkpoints)]
        for k, each in zip(chunk, done, strict=True):
            trained[k] = each
    return [trained[k] for k in range(len(tasks))]


def can_stack(task: Task) -> bool:
    """Whether the method allows it, and data, plan and network are of a kind that can be stacked."""
    method, chain = task.learner.method, list(_chain("backbone", task.learner.backbone))
    plain_network = all(type(layer) in (nn.Linear, *_ELEMENTWISE) for _, layer in chain)
    each_once = len({id(layer) for _, layer in chain}) == len(chain)
    all_learn = all(p.requires_grad and p.dtype == torch.float32 for p in task.learner.backbone.parameters())
    plain_data = isinstance(task.samples, DenseRows | SparseRows) and method.views == 1 and not method.maps
    plain_data = plain_data and task.known_negative is None
    plain_plan = task.plan.precision == "32" and task.plan.frozen_epochs == 0 and not task.plan.compile
    as_they_are = not (method.mixes_rows or method.drops_inputs or method.drops_features)
    plain_steps = as_they_are and type(method).lr_at is Method.lr_at
    plain = plain_data and plain_plan and plain_network and plain_steps
    return method.stacking.possible and plain and each_once and all_learn


def _stacks(tasks: Sequence[Task], size: int | None) -> Iterator[list[int]]:
    """Positions of the tasks to be trained together, the most alike side by side."""
    groups: dict[Any, list[int]] = {}
    for k, task in enumerate(tasks):
        groups.setdefault(_shape(task) if can_stack(task) else k, []).append(k)
    for group in groups.values():
        largest = len(group) if len(group) == 1 else size or _fitting_size(tasks[group[0]])
        n_stacks = -(-len(group) // largest)
        group.sort(key=lambda k: (tasks[k].plan.epochs, tasks[k].plan.lr, tasks[k].plan.weight_decay))
        for part in np.array_split(group, n_stacks):  # of equal size, not one of a few left over
            yield part.tolist()


def _shape(task: Task) -> str:
    """What must be the same in a stack. Float parameters of the method may differ, but for those it names as fixed."""
    method, plan = task.learner.method, task.plan
    fixed = {
        name: type(value) if isinstance(value, float) and name not in method.stacking.fixed else value
        for name, value in method.get_params().items()
    }
    data = type(task.samples), len(task.samples), task.samples.n_features, task.observed.shape
    network = str(task.learner.backbone), task.n_features
    return repr((type(method), sorted(fixed.items()), network, data, plan.batch_size, plan.device))


def _fitting_size(task: Task) -> int:
    """How many runs like this one half of the free memory holds."""
    device = choose_device(task.plan.device)
    fitting = free_memory(device) // 2 // bytes_per_run(task)
    return int(max(1, min(fitting, _LARGEST_STACK.get(device.type, 64))))


def bytes_per_run(task: Task) -> int:
    """Memory of one run in a stack, found by preparing a copy of it."""
    device = choose_device(task.plan.device)
    learner = copy.deepcopy(task.learner).to(device)
    labels = torch.tensor(task.observed, device=device)
    there = loop.on_device(dataclasses.replace(task, learner=learner), device)
    with seeded(task.plan.seed, HEAD_STREAM, device):
        loop.prepare(learner, loop.make_view(there, labels), task.plan)
    weights = sum(p.nbytes for p in learner.parameters())
    buffers = sum(b.nbytes for b in learner.buffers())
    batch = 8 * 4 * task.plan.batch_size * (there.samples.n_features + task.n_features + labels.shape[1])
    # Weights, gradient, two moments, step and best; data and labels; the order of the rows and a pass over them.
    passes = len(there.samples) * (8 + 8 * labels.shape[1])
    return 6 * weights + 2 * buffers + there.samples.nbytes + labels.nbytes + passes + batch


def _train_alone(task: Task, checkpoints: str | os.PathLike[str] | None) -> Trained:
    path = None if checkpoints is None else _file(checkpoints, loop.identity(task, torch.tensor(task.observed)))
    try:
        trained = loop.train(task, checkpoint=path)
    except Diverged as error:
        return loop.finish(task, error.history)
    if path is not None:
        remove_checkpoint(path)
    return trained


def _file(folder: str | os.PathLike[str], content: str) -> Path:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder) / f"{hashlib.sha256(content.encode()).hexdigest()[:24]}.pt"


class _Stack:
    """Tasks of one shape, trained together."""

    def __init__(self, tasks: Sequence[Task], checkpoints: str | os.PathLike[str] | None = None) -> None:
        self.tasks, self.plans = tasks, [task.plan for task in tasks]
        self.learners = [task.learner for task in tasks]
        self.device = choose_device(self.plans[0].device)
        self._join_data()
        for learner, view, plan in zip(self.learners, self.views, self.plans, strict=True):
            with seeded(plan.seed, HEAD_STREAM, self.device):
                loop.prepare(learner.to(self.device), view, plan)
        self._stack_state()
        self.histories = [History() for _ in tasks]
        self.logits: Tensor | None = None  # of the training rows, while methods ask for them after an epoch
        self.states: list[States] = [{} for _ in tasks]  # of each run after the epochs that may be chosen
        whole = zip(tasks, self.views, strict=True)
        self.identity = repr([loop.identity(task, view.observed) for task, view in whole]) if checkpoints else ""
        self.path = _file(checkpoints, self.identity) if checkpoints else None

    def train(self) -> list[Trained]:
        """All epochs of all runs; a run that is done or diverged is not moved while the others go on."""
        for epoch in range(self._resume(), max(plan.epochs for plan in self.plans)):
            live = [k for k, plan in enumerate(self.plans) if epoch < plan.epochs and not self._diverged(k)]
            if not live:
                break
            began = time.perf_counter()
            self._close_epoch(live, self._run_epoch(epoch, live))
            for k in live:
                self.histories[k].seconds.append((time.perf_counter() - began) / len(live))
            self._save(epoch + 1)
        for k in range(len(self.tasks)):
            self._close_window(k)
        if self.path:
            self.path.unlink(missing_ok=True)
        return [loop.finish(task, history) for task, history in zip(self.tasks, self.histories, strict=True)]

    def _run_epoch(self, epoch: int, live: list[int]) -> list[float]:
        """One pass of every run over its rows, in its own order; the mean loss of each."""
        n_steps = -(-self.rows.n_rows // self.plans[0].batch_size)
        self.loss.start_epoch(epoch, n_steps, max(plan.epochs for plan in self.plans) - epoch)
        self.adam.move_only(live)
        state = self._state()
        total: list[Tensor] = []
        for rows, seen, index in self._batches(epoch):
            features = self.layers.forward(rows)
            losses, gradients, memory = self.loss(features, rows, seen, index, *state)
            self.layers.backward(gradients[0])
            for name, gradient in zip(self.own, gradients[1:], strict=True):
                self.adam.gradients[name].copy_(gradient)
            self.adam.step()
            for name, new in memory.items():
                self.buffers[f"method.{name}"][self.runs, index] = new
            total.append(losses * (index.shape[1] / self.rows.n_rows))
        return torch.stack(total).sum(0).tolist()

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Rows (R, B, d), labels (R, B, c) and positions (R, B) of each step; several steps are looked up at once."""
        batch_size = self.plans[0].batch_size
        generators = [generator(plan.seed, FIRST_EPOCH_STREAM + epoch) for plan in self.plans]
        order = torch.stack([torch.randperm(self.rows.n_rows, generator=g) for g in generators]).to(self.device)
        n_steps = max(1, _LOOKED_UP // (len(order) * batch_size * self.tasks[0].samples.n_features))
        for index in torch.split(order, n_steps * batch_size, dim=1):
            whole = self.rows.rows(index), self.labels.rows(index).float(), index
            yield from zip(*(torch.split(part, batch_size, dim=1) for part in whole), strict=True)

    def _loss_of_each(
        self, features: Tensor, rows: Tensor, seen: Tensor, index: Tensor, *state: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...], Memory]:
        """The losses (R,), their gradients to the features and the method's own parameters, and what to remember."""
        n_own = len(self.own)
        learned = [tensor.detach().requires_grad_() for tensor in (features, *state[:n_own])]
        losses, memory = torch.func.vmap(self._loss_of_one)(learned[0], rows, seen, index, *learned[1:], *state[n_own:])
        gradients = torch.autograd.grad(losses, learned, torch.ones(losses.shape, device=losses.device))
        return losses.detach(), gradients, {name: new.detach() for name, new in memory.items()}

    def _loss_of_one(
        self, features: Tensor, rows: Tensor, seen: Tensor, index: Tensor, *state: Tensor
    ) -> tuple[Tensor, Memory]:
        """The method's own loss, with the state of one run put into it; vmap makes it that of all."""
        self._put_state(state)
        result = self.method.loss([features], Batch((rows,), seen, index))
        return result if isinstance(result, tuple) else (result, {})

    def _state(self) -> list[Tensor]:
        """All that the method may know of each run: its own parameters, buffers and float parameters, (R, ...)."""
        return [*self.own.values(), *self.buffers.values(), *self.floats.values()]

    def _put_state(self, state: Sequence[Tensor]) -> None:
        """Let the method have the state of one run."""
        for (place, name), tensor in zip(self.slots, state, strict=True):
            place[name] = tensor

    def _close_epoch(self, live: list[int], losses: list[float]) -> None:
        """What follows the batches, run by run; passes over the rows are made for all runs at once."""
        for k in live:
            self.histories[k].loss.append(losses[k])
        live = [k for k in live if not self._diverged(k)]
        for k in live:
            loop.close_epoch(self.learners[k], self.views[k], self.plans[k], self.histories[k])
            self._write_back(k)
        self.logits = None
        scored = self._pass(self.held_out) if self.held_out else None
        for k in live:
            learner, validation, history = self.learners[k], self.validations[k], self.histories[k]
            logits = None if scored is None else scored[k]
            candidates = loop.judge_epoch(learner, validation, self.plans[k], history, logits)
            if validation or len(history.loss) == self.plans[k].epochs:
                loop.keep_states(self.states[k], candidates, len(history.loss) - 1, learner)

    @torch.no_grad()
    def _pass(self, rows: _RowsOfRuns) -> Tensor:
        """Logits of each run on all of its rows, (R, n, c)."""
        index = torch.arange(rows.n_rows, device=self.device).expand(len(self.tasks), -1)
        step = max(32, _PASSED.get(self.device.type, _LOOKED_UP) // (len(self.tasks) * self.layers.width))
        self.method.eval()
        logits = torch.func.vmap(self._logits_of_one)
        batches = (self.layers.forward(rows.rows(part)) for part in torch.split(index, step, 1))
        parts = [logits(features, *self._state()) for features in batches]
        self.method.train()
        return torch.cat(parts, 1)

    def _logits_of_one(self, features: Tensor, *state: Tensor) -> Tensor:
        self._put_state(state)
        logits: Tensor = self.method(features)
        return logits

    def _training_logits(self, k: int) -> Tensor:
        """Of run k; the first call makes them for all."""
        if self.logits is None:
            self.logits = self._pass(self.rows)
        return self.logits[k]

    def _diverged(self, k: int) -> bool:
        return bool(self.histories[k].loss) and not math.isfinite(self.histories[k].loss[-1])

    # Data and state of the runs, put together

    def _join_data(self) -> None:
        """Rows and labels of all runs, and for each run its view of them."""
        labels = {id(task.observed): task.observed for task in self.tasks}
        as_rows = {key: DenseRows(torch.tensor(observed, device=self.device)) for key, observed in labels.items()}
        self.rows = _RowsOfRuns([task.samples for task in self.tasks], self.device)
        self.labels = _RowsOfRuns([as_rows[id(task.observed)] for task in self.tasks], self.device)
        self.runs = torch.arange(len(self.tasks), device=self.device)[:, None]
        held_out = [task.validation.samples for task in self.tasks if task.validation]
        alike = len({(type(samples), len(samples)) for samples in held_out}) == 1 and len(held_out) == len(self.tasks)
        self.held_out = _RowsOfRuns(held_out, self.device) if alike else None
        self.validations = [
            task.validation and task.validation._replace(samples=task.validation.samples.to(self.device))
            for task in self.tasks
        ]
        self.views = [
            loop.make_view(dataclasses.replace(task, samples=rows), as_rows[id(task.observed)].data)
            for task, rows in zip(self.tasks, self.rows.of_run, strict=True)
        ]

    def _stack_state(self) -> None:
        """Parameters and buffers with a first axis over the runs; the learners become windows on them."""
        self.method = copy.deepcopy(self.learners[0].method)  # whose loss is called, with the state of all runs in it
        self.layers = _Layers(self.learners[0])
        if self.layers.hold_entry:
            self.method.set_submodule(self.method.stacking.entry, nn.Identity())
        states = [dict(learner.named_parameters()) for learner in self.learners]
        stacked = {
            name: torch.stack([self._turn(name, state[name].detach()) for state in states]) for name in states[0]
        }
        groups = [loop.optimizer_groups(*pair) for pair in zip(self.learners, self.plans, strict=True)]
        by_name = [{name: setting for setting, names in each.items() for name in names} for each in groups]
        self.adam = StackedAdam(stacked, by_name)
        self.layers.bind(self.adam.weights, self.adam.gradients)
        # What the layers do not hold is the method's: estimated labels, or the weights of a head of its own.
        self.own = {name: tensor for name, tensor in self.adam.weights.items() if name not in self.layers.names}
        buffers = [dict(learner.named_buffers()) for learner in self.learners]
        self.buffers = {name: torch.stack([state[name] for state in buffers]) for name in buffers[0]}
        self.floats = self._differing_floats()
        self.slots = [*self._slots("_parameters", self.own), *self._slots("_buffers", self.buffers)]
        self.slots += [(self.method.__dict__, name) for name in self.floats]
        self.loss = TracedLoss(self._loss_of_each, self.method, [*self.own, *self.buffers, *self.floats], [*self.own])
        for k in range(len(self.tasks)):
            self._open_window(k)
            self.views[k] = dataclasses.replace(self.views[k], logits=partial(self._training_logits, k))

    def _turn(self, name: str, tensor: Tensor) -> Tensor:
        """A layer's weight lies in the stack as (in, out), so that its gradient comes in the layout of the weight."""
        return tensor.T if name in self.layers.turned else tensor

    def _slots(self, kind: str, names: Iterable[str]) -> Iterator[tuple[dict[str, Any], str]]:
        """Where in the method, whose name is "method", the tensors of these names are kept."""
        for name in names:
            owner, _, leaf = name.rpartition(".")
            yield getattr(self.method.get_submodule(owner[len("method.") :]), kind), leaf

    def _differing_floats(self) -> dict[str, Tensor]:
        """Float parameters of the method with another value in some run, one number per run."""
        values = [learner.method.get_params() for learner in self.learners]
        return {
            name: torch.tensor([v[name] for v in values], device=self.device)
            for name, first in values[0].items()
            if isinstance(first, float) and any(v[name] != first for v in values)
        }

    def _open_window(self, k: int) -> None:
        """Let the parameters and buffers of learner k be its slice of the stack."""
        for name, parameter in self.learners[k].named_parameters():
            parameter.data = self._turn(name, self.adam.weights[name][k])
        for name, buffer in self.buffers.items():
            _put_buffer(self.learners[k], name, buffer[k])

    def _write_back(self, k: int) -> None:
        """A buffer that `end_epoch` put another tensor in goes back into the stack."""
        for name, buffer in self.learners[k].named_buffers():
            if name not in self.buffers:
                raise ValueError(
                    f"{name} must be a buffer made in setup; it is new after end_epoch. Register it there."
                )
            window = self.buffers[name][k]
            if buffer.data_ptr() != window.data_ptr():
                window.copy_(buffer)
                _put_buffer(self.learners[k], name, window)

    def _close_window(self, k: int) -> None:
        """Give learner k its state for its own: the best, or as it stands."""
        learner, kept = self.learners[k], self.states[k].get(self.histories[k].best_epoch, {})
        for name, parameter in learner.named_parameters():
            parameter.data = kept.get(name, parameter.data).clone(memory_format=torch.contiguous_format)
        for name, buffer in learner.named_buffers():
            _put_buffer(learner, name, kept.get(name, buffer).clone())
        learner.eval()

    # Stop and resume

    def _save(self, next_epoch: int) -> None:
        if self.path:
            content = {
                "next_epoch": next_epoch,
                "adam": self.adam.state(),
                "buffers": self.buffers,
                "states": self.states,
                "histories": [dataclasses.asdict(history) for history in self.histories],
            }
            save_checkpoint(self.path, self.identity, content)

    def _resume(self) -> int:
        """The epoch to go on with."""
        saved = load_checkpoint(self.path, self.identity, self.device) if self.path else None
        if saved is None:
            return 0
        with naming(str(self.path), "Delete it to start afresh."):
            if len(saved["states"]) != len(self.learners) or len(saved["histories"]) != len(self.learners):
                raise ValueError("it must hold as many runs as are trained together")
            histories = [History.read(history) for history in saved["histories"]]
            lengths = [len(history.loss) for history in histories]
            states = [
                loop.check_states(each, learner, n)
                for each, learner, n in zip(saved["states"], self.learners, lengths, strict=True)
            ]
            next_epoch = saved["next_epoch"]
            if type(next_epoch) is not int or next_epoch != max(lengths):
                raise ValueError("it must go on after its last epoch")
            tensors = [(buffer, saved["buffers"][name]) for name, buffer in self.buffers.items()]
            for mine, other in tensors:
                if not torch.is_tensor(other) or other.shape != mine.shape:
                    raise ValueError("its buffers must be of these runs")
            self.adam.load(saved["adam"])
            for mine, other in tensors:
                mine.copy_(other)
        self.states, self.histories = states, histories
        return next_epoch


class _RowsOfRuns:
    """The rows of every run, on the device; a set that several runs use is held once."""

    def __init__(self, sets: Sequence[Samples], device: torch.device) -> None:
        distinct = {id(samples): samples for samples in sets}
        there = {key: samples.to(device) for key, samples in distinct.items()}
        self.of_run = [there[id(samples)] for samples in sets]
        self.n_rows = len(sets[0])
        self.joined = join_samples(list(there.values()))
        place = {key: number * self.n_rows for number, key in enumerate(there)}
        self.first = torch.tensor([[place[id(samples)]] for samples in sets], device=device)

    def rows(self, index: Tensor) -> Tensor:
        """The rows (R, B, d) at each run's own positions (R, B)."""
        return self.joined.rows((index + self.first).flatten()).view(*index.shape, -1)


class _Layers:
    """The backbone, with the method's entry where it is linear, for all runs at once: (R, B, d) → (R, B, width)."""

    def __init__(self, learner: Learner) -> None:
        first = learner.method.stacking.entry
        entry = learner.method.get_submodule(first)
        self.hold_entry = type(entry) in (nn.Linear, LinearHead)
        chain = list(_chain("backbone", learner.backbone))
        if self.hold_entry:
            chain.append((f"method.{first}", entry))
        self.chain = [(name, layer) for name, layer in chain if not isinstance(layer, nn.Identity)]
        self.turned = {f"{name}.weight" for name, layer in self.chain if isinstance(layer, nn.Linear)}
        self.names = {f"{name}.{leaf}" for name, layer in self.chain for leaf, _ in layer.named_parameters()}
        self.width = max([layer.out_features for _, layer in self.chain if isinstance(layer, nn.Linear)], default=1)

    def bind(self, weights: dict[str, Tensor], gradients: dict[str, Tensor]) -> None:
        """Where the weights lie and the gradients go, by name; a weight as (R, in, out)."""
        self.layers: list[_Linear | _ReLU | _Elementwise] = []
        for name, layer in self.chain:
            if isinstance(layer, nn.Linear):
                weight, bias = f"{name}.weight", f"{name}.bias"
                self.layers.append(_Linear(weights[weight], weights.get(bias), gradients[weight], gradients.get(bias)))
            elif isinstance(layer, nn.ReLU):
                self.layers.append(_ReLU(in_place=bool(self.layers) and isinstance(self.layers[-1], _Linear)))
            else:
                self.layers.append(_Elementwise(layer))
        self.first = next((layer for layer in self.layers if isinstance(layer, _Linear)), None)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Features, or what the method's entry makes of them."""
        for layer in self.layers:
            x = layer.forward(x)
        return x

    @torch.no_grad()
    def backward(self, gradient: Tensor) -> None:
        """From the gradient of what `forward` gave to those of the weights."""
        if gradient.device.type == "cpu":
            gradient = F.hardshrink(gradient, _NEGLIGIBLE)
        for layer in reversed(self.layers):
            if layer is self.first:
                self.first.backward_to_weights(gradient)
                return
            gradient = layer.backward(gradient)


class _Linear:
    """Written out, so that gradients land where the optimiser reads them, in memory that serves every step.

    (Fresh memory for the gradients of each step takes longer than the products that fill it.)
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, to_weight: Tensor, to_bias: Tensor | None) -> None:
        self.weight, self.to_weight, self.to_bias = weight, to_weight, to_bias
        self.bias = None if bias is None else bias.unsqueeze(1)
        self.turned = weight.transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        y = torch.bmm(x, self.weight)
        return y if self.bias is None else y.add_(self.bias)  # baddbmm would write the bias first and read it again

    def backward_to_weights(self, gradient: Tensor) -> None:
        torch.bmm(self.x.transpose(1, 2), gradient, out=self.to_weight)
        if self.to_bias is not None:
            torch.sum(gradient, 1, out=self.to_bias)

    def backward(self, gradient: Tensor) -> Tensor:
        self.backward_to_weights(gradient)
        return torch.bmm(gradient, self.turned)


class _ReLU:
    """In place where it follows a linear layer, which does not need what it gave."""

    def __init__(self, in_place: bool) -> None:
        self.function = torch.relu_ if in_place else torch.relu

    def forward(self, x: Tensor) -> Tensor:
        self.y = self.function(x)
        return self.y

    def backward(self, gradient: Tensor) -> Tensor:
        slope: Tensor = torch.ops.aten.threshold_backward(gradient, self.y, 0)
        return slope


class _Elementwise:
    """Any other function of each number by itself; autograd knows its slope."""

    def __init__(self, function: nn.Module) -> None:
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            self.x = x.detach().requires_grad_()
            self.y = self.function(self.x)
        result: Tensor = self.y.detach()
        return result

    def backward(self, gradient: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(self.y, self.x, gradient)
        return slope


def _chain(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers of nested sequences, one after the other, with their names."""
    if type(module) is not nn.Sequential:
        yield name, module
        return
    for child, layer in module._modules.items():
        if layer is not None:
            yield from _chain(f"{name}.{child}", layer)


def _put_buffer(learner: Learner, name: str, tensor: Tensor) -> None:
    owner, _, leaf = name.rpartition(".")
    learner.get_submodule(owner)._buffers[leaf] = tensor
