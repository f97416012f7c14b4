"""The only loop: a task goes in, the network that predicts comes out. It knows the name of no method.

Many small tasks are trained as one by `onepos.bench.stacking.train_many`, which uses the parts of this module.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from onepos.methods.base import Shared, TrainView, Watch
from onepos.metrics import METRICS
from onepos.reading import naming
from onepos.training.checkpoint import (
    CheckpointParts,
    load_checkpoint,
    part_of,
    remove_checkpoint,
    save_checkpoint,
)
from onepos.training.plan import Plan
from onepos.training.runtime import (
    FIRST_END_STREAM,
    FIRST_EPOCH_STREAM,
    HEAD_STREAM,
    SEARCH_STREAM,
    Runtime,
    fitting_threads,
    generator,
    open_runtime,
    seeded,
)
from onepos.training.samples import DenseRows, Samples, SparseRows
from onepos.training.selection import choose_epoch, measured_by
from onepos.training.task import Learner, Task, Validation
from onepos.validation import check_choice

LISTED_LABELS = 64
"""Labels up to which numbers are noted label by label; of more they would be most of what is kept of a run."""

HELD_OUT = 0.2
"""Share of the rows by which the number of epochs is chosen."""
_FEWEST_HELD_OUT = 10

# What a method prepares is many small products: one thread makes them as fast, and far faster where cores are busy.
_PREPARING_SIZE = 1.0

# Of the time that a training may take, what goes to the preparation at most.
_PREPARING = 0.6

Positions = npt.NDArray[np.intp]

States = dict[int, dict[str, Tensor]]
"""What `state_dict` gave after some epochs, by epoch."""


@dataclass
class History:
    """What happened; every list has one entry per finished epoch, or none where there is nothing to record.

    Attributes:
        loss: Mean training loss.
        seconds: Wall-clock time.
        closing_seconds: Of these, what the method did after the batches. In a stack the first run that needs the logits
            of the training rows pays for all; only the mean over the stack is meaningful.
        validation: The plan's metric on the validation rows.
        mean_score: The mean probability of each label over the validation rows, the class prior that the predictions
            amount to; for at most LISTED_LABELS labels.
        prior: The method's class priors at the end of the epoch; None where unknown.
        other_metrics: By name, further metrics on the validation rows that the choice of the epoch needs.
        n_warmup: Epochs in which the method only prepared itself; they are not chosen.
        search: By epoch of a training on a part of the rows, the mean reciprocal rank of the observed label of the
            others, by which the number of epochs was chosen; empty where it was not.
        best_epoch: The epoch whose weights were kept.
    """

    loss: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    closing_seconds: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    mean_score: list[list[float]] = field(default_factory=list)
    prior: list[list[float | None]] = field(default_factory=list)
    other_metrics: dict[str, list[float]] = field(default_factory=dict)
    n_warmup: int = 0
    best_epoch: int = -1
    search: list[float] = field(default_factory=list)

    @classmethod
    def read(cls, content: Any, *, has_gaps: bool = False) -> History:
        """The history that `dataclasses.asdict` gave, from a file that anybody may have written.

        With `has_gaps` None stands for a number that is not finite, as in JSON.

        Raises:
            ValueError: An entry is unknown, of another kind, or longer than the epochs.
        """
        whole = _with_defaults(cls, content)
        series = {name: whole[name] for name in ("loss", "seconds", "closing_seconds", "validation")}
        series |= {f"other_metrics, {name}": values for name, values in whole["other_metrics"].items()}
        rows = {name: whole[name] for name in ("mean_score", "prior")}
        for name, values in (*series.items(), ("search", whole["search"])):
            _check_numbers(name, values, has_gaps)
        for name, row in ((name, row) for name, of_epochs in rows.items() for row in of_epochs):
            _check_numbers(name, row, True)
        n_epochs = len(whole["loss"])
        longer = [name for name, values in (series | rows).items() if len(values) > n_epochs]
        for name in longer[:1]:
            raise ValueError(f"{name[:60]} in its history must have at most one entry per epoch")
        for name, most in (("n_warmup", n_epochs), ("best_epoch", n_epochs - 1)):
            if type(whole[name]) is not int or not -1 <= whole[name] <= most:
                raise ValueError(f"{name} in its history must be a number of epochs")
        return cls(**whole)


def _with_defaults(cls: type[History], content: Any) -> dict[str, Any]:
    """The entries of a history, those that an earlier version did not write as they are at the start."""
    whole = dataclasses.asdict(cls())
    if not isinstance(content, dict) or not set(content) <= set(whole) or "loss" not in content:
        raise ValueError("its history does not have the entries of a training")
    for name, start in whole.items():
        if isinstance(start, list | dict) and not isinstance(content.get(name, start), type(start)):
            raise ValueError(f"{name} in its history must be a {type(start).__name__}")
    return whole | content


def _check_numbers(name: str, values: Any, has_gaps: bool) -> None:
    """Refuse what is not a list of numbers, in which None may stand for an unknown one."""
    kinds = (int, float, type(None)) if has_gaps else (int, float)
    if not isinstance(values, list) or any(type(value) not in kinds for value in values):
        raise ValueError(f"{name[:60]} in its history must be a list of numbers")
    if any(type(value) is int and abs(value) > sys.float_info.max for value in values):
        raise ValueError(f"{name[:60]} in its history must be numbers of usual size")


class Diverged(FloatingPointError):
    """The loss or the weights are no longer finite; `history` ends with the loss of that epoch."""

    def __init__(self, history: History, plan: Plan) -> None:
        loss = history.loss[-1]
        found = "the weights were not" if math.isfinite(loss) else f"it was {loss}"
        super().__init__(
            f"the loss must stay finite; {found} in epoch {len(history.loss) - 1}. "
            f"Lower lr ({plan.lr}) or scale the features."
        )
        self.history = history


class Trained(NamedTuple):
    """What is left of a task: what happened, the network that predicts, and the training set as the method sees it."""

    history: History
    network: nn.Module
    view: TrainView


def train(
    task: Task,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    on_epoch: Callable[[int, History], None] | None = None,
    watch: Watch | None = None,
    stop_after: int | None = None,
) -> Trained:
    """Train the task's learner in place and leave it at its best epoch, at the last one without validation rows.

    Args:
        task: What to train.
        checkpoint: A file written after each epoch. If it exists, training goes on from there and ends in the same
            weights, bit for bit on a CPU, as if it had never stopped. What the method prepares before the training is
            kept in files beside it. They stay: whoever keeps the result calls `remove_checkpoint`.
        on_epoch: Called with the epoch and the history so far.
        watch: Told how far the preparation is. At its deadline the training ends with the epoch that is running; the
            preparation may take three fifths of the time.
        stop_after: Epochs after which to end, if earlier than the plan, which holds in all else.

    Raises:
        Diverged: The loss was not finite in some epoch; the learner is left at its best epoch before that, if any.
    """
    learner, plan = task.learner, task.plan
    runtime = open_runtime(plan.device, plan.precision)
    device = runtime.device
    task = on_device(task, device)
    labels = torch.tensor(task.observed, device=device)
    watch = watch or Watch()
    whose = identity(task, labels) if checkpoint else ""
    saved = (
        load_checkpoint(checkpoint, whose, device) if checkpoint else None
    )  # a damaged one is refused before any work
    task.shared.disk = CheckpointParts(checkpoint, whose, device) if checkpoint else None
    view = make_view(task, labels, runtime.autocast, watch.part(_PREPARING))
    with seeded(plan.seed, HEAD_STREAM, device), fitting_threads(_PREPARING_SIZE, device):
        prepare(learner.to(device), view, plan)
    task.shared.disk = None  # another training may share the rest
    optimizer = _optimizer(learner, plan)
    keeper = _Keeper(learner, optimizer, checkpoint, whose)
    history, started = keeper.resume(saved), time.perf_counter()
    with _equipped(learner, plan), fitting_threads(task.step_size, device):
        for epoch in range(len(history.loss), min(plan.epochs, stop_after or plan.epochs)):
            began = time.perf_counter()
            learner.method.epoch, learner.frozen = epoch, epoch < plan.frozen_epochs
            with seeded(plan.seed, FIRST_EPOCH_STREAM + epoch, device):
                history.loss.append(_run_epoch(runtime, optimizer, task, view, watch, started))
            if not math.isfinite(history.loss[-1]) or not _are_finite(learner.parameters()):
                keeper.go_back(history)
                if checkpoint:
                    remove_checkpoint(checkpoint)  # it would only diverge again
                raise Diverged(history, plan)
            close_epoch(learner, view, plan, history)
            held_out = task.validation
            logits = predict_logits(learner, held_out.samples, runtime.autocast) if held_out else None
            candidates = judge_epoch(learner, held_out, plan, history, logits)
            if held_out:
                keep_states(keeper.states, candidates, epoch, learner)
            else:
                keeper.remember()
            history.seconds.append(time.perf_counter() - began)
            keeper.save(history)
            if on_epoch is not None:
                on_epoch(epoch, history)
            if watch.is_late():
                break
        keeper.finish(history)
    return finish(task, history, view)


def find_length(
    task: Task, *, checkpoint: str | os.PathLike[str] | None = None, watch: Watch | None = None
) -> History | None:
    """Train on a part of the rows and keep the epoch by the others, of which the observed label is known.

    The task itself is not touched. None where too few rows have a label to hold some out, and for images that are
    trained end to end, whose parts can not be held apart.
    """
    if not isinstance(task.samples, DenseRows | SparseRows):
        return None
    labelled = np.flatnonzero(task.observed.any(1))
    n_held_out = int(len(labelled) * HELD_OUT)
    if n_held_out < _FEWEST_HELD_OUT:
        return None
    order = torch.randperm(len(labelled), generator=generator(task.plan.seed, SEARCH_STREAM)).numpy()
    chosen, rest = _hold_out(labelled[order], n_held_out, task)
    if not task.observed[rest].any() or len(chosen) == 0:
        return None
    inside, outside = (task.samples.take(torch.from_numpy(each)) for each in (rest, chosen))
    watch = watch or Watch()
    probe = dataclasses.replace(
        task,
        learner=copy.deepcopy(task.learner),
        samples=inside,
        observed=task.observed[rest],
        known_negative=None if task.known_negative is None else task.known_negative[rest],
        groups=None if task.groups is None else task.groups[rest],
        at_random=None if task.at_random is None else task.at_random[rest],
        validation=Validation(outside, task.observed[chosen], False),
        shared=Shared(),
    )
    path = None if checkpoint is None else part_of(checkpoint, "search")
    tell = watch.named("choosing the number of epochs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the training on all rows says the same
        return train(
            probe, checkpoint=path, watch=watch, on_epoch=lambda epoch, _: tell.report(epoch + 1, task.plan.epochs)
        ).history


def _hold_out(order: Positions, count: int, task: Task) -> tuple[Positions, Positions]:
    """About so many of the rows in this order, in whole groups, and the rows from which to learn; both ascending."""
    n = len(task.observed)
    if task.groups is None:
        chosen = np.sort(order[:count])
        return chosen, np.setdiff1d(np.arange(n), chosen)
    _, first = np.unique(task.groups[order], return_index=True)
    groups = task.groups[order[np.sort(first)]]  # in the order in which they come
    size = np.bincount(task.groups[order], minlength=int(task.groups.max()) + 1)[groups]
    fits = size <= count  # a group of most of the rows is learnt from
    total = np.cumsum(np.where(fits, size, 0))
    chosen = groups[fits & (total <= count)] if fits.any() else groups[[int(size.argmin())]]
    taken = np.isin(task.groups, chosen)
    return np.intersect1d(order, np.flatnonzero(taken)), np.flatnonzero(~taken)


def finish(task: Task, history: History, view: TrainView | None = None) -> Trained:
    """The network that predicts, made by the method or of backbone and head, of a learner whose training is over."""
    learner = task.learner
    device = next(learner.parameters()).device
    if view is None:
        view = make_view(on_device(task, device), torch.tensor(task.observed, device=device))
    network = learner.method.finish(view) or nn.Sequential(learner.backbone, learner.method.head)
    return Trained(history, network.eval(), view)


def on_device(task: Task, device: torch.device) -> Task:
    """The same task with its samples on the device."""
    held_out = task.validation and task.validation._replace(samples=task.validation.samples.to(device))
    return dataclasses.replace(task, samples=task.samples.to(device), validation=held_out)


@contextmanager
def _equipped(learner: Learner, plan: Plan) -> Iterator[None]:
    """During a training: convolutions channels last, and the backbone compiled where the plan demands it."""
    tries_algorithms = torch.backends.cudnn.benchmark
    _lay_out(learner, torch.channels_last)
    if plan.compile:
        learner.compiled = _Compiled(learner.backbone, plan.batch_size)
        torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = tries_algorithms
        learner.compiled, learner.frozen = None, False
        _lay_out(learner, torch.contiguous_format)


def _lay_out(learner: Learner, layout: torch.memory_format) -> None:
    for parameter in learner.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)


class _Compiled:
    """A backbone compiled for whole batches that it learns from.

    A shorter last batch and passes without gradients would each cost a compilation of their own; they run as they are.
    """

    def __init__(self, backbone: nn.Module, batch_size: int) -> None:
        self.backbone, self.batch_size = backbone, batch_size
        self.fast = torch.compile(backbone.forward, dynamic=False)

    def __call__(self, rows: Tensor) -> Tensor:
        features: Tensor
        whole = len(rows) == self.batch_size and torch.is_grad_enabled()
        features = self.fast(rows) if whole else self.backbone(rows)
        return features


Precision = Callable[[], AbstractContextManager[Any]]
"""Makes a context in which the layers run in the precision of the plan."""


def predict_logits(learner: Learner, samples: Samples, precision: Precision = nullcontext) -> Tensor:
    """Logits of all samples by backbone and head, in evaluation mode and index order, (n, c)."""
    return _pass(learner, samples, learner.logits, precision)


@torch.no_grad()
def run_in_steps(
    output: Callable[[Tensor], Tensor], samples: Samples, device: torch.device, positions: Tensor | None = None
) -> Tensor:
    """`output` of all rows in index order, or of the ascending positions given, as many at a time as fit.

    Rows that `batches` leaves out are taken as `rows` gives them, so that there is one output per row.
    """
    positions = torch.arange(len(samples), device=device) if positions is None else positions
    n = len(positions)
    size = -(-n // -(-n // samples.pass_rows))  # about equal steps, not a last one of a few rows
    index, parts = [], []
    for rows, (view,) in samples.batches(positions, size, 0):
        index.append(rows)
        parts.append(output(view))
    if sum(map(len, index)) == n:
        return torch.cat(parts)
    left_out = torch.zeros(len(samples), dtype=torch.bool, device=device)
    left_out[positions] = True
    for rows in index:
        left_out[rows] = False
    for rows in torch.split(left_out.nonzero().flatten(), size):
        index.append(rows)
        parts.append(output(samples.rows(rows)))
    return torch.cat(parts)[torch.cat(index).argsort()]


def keep_states(states: States, candidates: Set[int], epoch: int, learner: Learner) -> None:
    """Add the state of this epoch if it is a candidate, and forget those that are so no longer."""
    for old in states.keys() - candidates:
        del states[old]
    if epoch in candidates:
        states[epoch] = {name: tensor.clone() for name, tensor in learner.state_dict().items()}


# A weight beyond it would give logits that are not finite.
_LARGEST = 1e18
# What the optimizer remembers of a weight.
_MOMENTS = {"step", "exp_avg", "exp_avg_sq"}


class _Keeper:
    """Holds the states of the epochs that may be chosen, and a copy of the training on disk where a file is given."""

    def __init__(
        self,
        learner: Learner,
        optimizer: torch.optim.Optimizer,
        path: str | os.PathLike[str] | None,
        identity: str,
    ) -> None:
        self.learner, self.optimizer, self.path, self.identity = learner, optimizer, path, identity
        self.states: States = {}
        self.last: dict[str, Tensor] | None = None

    def resume(self, saved: dict[str, Any] | None) -> History:
        """The history to go on from, and with it weights and optimiser; an empty one at the start."""
        if saved is None:
            return History()
        assert self.path is not None
        with naming(self.path, "Delete it to start afresh."):
            self.learner.load_state_dict(saved["learner"])
            groups = _settings(self.optimizer.state_dict())
            self.optimizer.load_state_dict(saved["optimizer"])
            if _settings(self.optimizer.state_dict()) != groups:
                raise ValueError("its optimizer has other settings")
            history = History.read(saved["history"])
            _check_moments(self.optimizer)
            if not _are_usual(self.learner.parameters()):
                raise ValueError("its weights are not finite, or too large")
            self.states = check_states(saved["states"], self.learner, len(history.loss))
        self.remember()
        return history

    def save(self, history: History) -> None:
        """Write the checkpoint, where a file is given."""
        if self.path:
            state = {"learner": self.learner.state_dict(), "optimizer": self.optimizer.state_dict()}
            kept = {"states": self.states, "history": dataclasses.asdict(history)}
            save_checkpoint(self.path, self.identity, state | kept)

    def finish(self, history: History) -> None:
        """Go back to the best weights."""
        if history.best_epoch in self.states:
            self.learner.load_state_dict(self.states[history.best_epoch])
        self.learner.eval()

    def remember(self) -> None:
        """Keep the weights of the last epoch, which are the best without validation rows, in memory alone."""
        self.last = {name: tensor.clone() for name, tensor in self.learner.state_dict().items()}

    def go_back(self, history: History) -> None:
        """The best weights of before the loss was lost; the learner stays as it is where there are none."""
        if history.best_epoch not in self.states and self.last is not None:
            self.learner.load_state_dict(self.last)
        self.finish(history)


def _check_moments(optimizer: torch.optim.Optimizer) -> None:
    """Refuse what an optimizer remembers of a weight where it can not be what Adam left there."""
    known = {weight for group in optimizer.param_groups for weight in group["params"]}
    for weight, state in optimizer.state.items():
        if weight not in known or set(state) != _MOMENTS or not all(map(torch.is_tensor, state.values())):
            raise ValueError("its optimizer is not complete")
        step, *moments = state["step"], state["exp_avg"], state["exp_avg_sq"]
        if step.shape != () or step.dtype != torch.float32 or not all(_is_like(each, weight) for each in moments):
            raise ValueError("its optimizer is not complete")
        if not _are_finite(state.values()) or bool((state["exp_avg_sq"] < 0).any()) or float(state["step"]) < 0:
            raise ValueError("the moments of its optimizer are no such numbers")


def _is_like(moment: Tensor, weight: Tensor) -> bool:
    """Whether a tensor can lie beside a weight in a call that goes through their memory: equal in type and layout."""
    is_dense = moment.is_contiguous() or (weight.ndim == 4 and moment.is_contiguous(memory_format=torch.channels_last))
    return moment.shape == weight.shape and moment.dtype == weight.dtype and is_dense


def check_states(states: Any, learner: nn.Module, n_epochs: int) -> States:
    """The states in a checkpoint that anybody may have written: of finished epochs, and of this learner.

    Raises:
        ValueError: They are of another form.
    """
    wanted = {name: tensor.shape for name, tensor in learner.state_dict().items()}
    parameters = [name for name, _ in learner.named_parameters()]
    if not isinstance(states, dict):
        raise ValueError("its states must be by epoch")
    for epoch, state in states.items():
        if type(epoch) is not int or not 0 <= epoch < n_epochs or not isinstance(state, dict):
            raise ValueError("its states must be of finished epochs")
        if not all(map(torch.is_tensor, state.values())) or {k: v.shape for k, v in state.items()} != wanted:
            raise ValueError("its states must be of this network")
        if not _are_usual(state[name] for name in parameters):
            raise ValueError("the weights of its states must be finite, and not too large")
    return states


def _settings(state: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of each group of parameters, which follow from the plan."""
    return [{key: value for key, value in group.items() if key != "params"} for group in state["param_groups"]]


def _are_finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


def _are_usual(tensors: Iterable[Tensor]) -> bool:
    return all(bool((tensor.abs() <= _LARGEST).all()) for tensor in tensors)  # not so of NaN


def prepare(learner: Learner, view: TrainView, plan: Plan) -> None:
    """Make the head, start it as the plan states, and let the method declare its state."""
    method, device = learner.method, view.observed.device
    method.head = method.make_head(view.n_features, view.n_labels).to(device)
    check_choice("bias_init", plan.bias_init, ("frequency", "zero"))
    if plan.bias_init == "frequency":
        share = (view.observed.sum(0, dtype=torch.float32) + 0.5) / (view.n_samples + 1)
        start, weight_scale = torch.logit(share), 0.1
    else:
        start, weight_scale = torch.zeros(view.n_labels, device=device), 1.0
    start_at: Callable[[Tensor, float], None] | None = getattr(method.head, "start_at", None)
    if start_at is not None:
        start_at(start, weight_scale)
    method.setup(view)
    learner.to(device)


def optimizer_groups(learner: Learner, plan: Plan) -> dict[tuple[float, float], list[str]]:
    """Names of the parameters by their (learning rate, weight decay)."""
    groups: dict[tuple[float, float], list[str]] = {}
    for name, parameter in learner.named_parameters():
        of_method = name.startswith("method.")
        factor = learner.method.lr_factor(name.removeprefix("method.")) if of_method else plan.backbone_lr
        is_network = name.startswith(("backbone.", "method.head."))
        decay = plan.weight_decay if is_network and parameter.ndim > 1 else 0.0
        groups.setdefault((plan.lr * factor, decay), []).append(name)
    return groups


def _optimizer(learner: Learner, plan: Plan) -> torch.optim.Optimizer:
    parameters = dict(learner.named_parameters())
    groups = [
        {"params": [parameters[name] for name in names], "lr": lr, "weight_decay": decay}
        for (lr, decay), names in optimizer_groups(learner, plan).items()
    ]
    return torch.optim.Adam(groups, lr=plan.lr, fused=True)


def _run_epoch(
    runtime: Runtime, optimizer: torch.optim.Optimizer, task: Task, view: TrainView, watch: Watch, began: float
) -> float:
    """One pass over the rows in random order, or as far as the time allows, which runs from `began`; the mean loss."""
    learner, plan, labels, negatives = task.learner, task.plan, view.observed, view.known_negative
    method = learner.method
    learner.train()
    if learner.frozen:
        learner.backbone.eval()
    order = torch.randperm(len(task.samples)).to(labels.device)
    total, n_seen = torch.zeros((), device=labels.device), 0
    rates = [group["lr"] for group in optimizer.param_groups]
    for index, views in task.samples.batches(order, plan.batch_size, method.views):
        by_epochs = (method.epoch + n_seen / len(order)) / plan.epochs
        factor = method.lr_at(max(by_epochs, watch.share_spent(began)))  # a limited time may not reach the last epoch
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor
        optimizer.zero_grad()
        with runtime.autocast():
            absent = None if negatives is None else negatives.index_select(0, index).float()
            loss, memory = learner(views, labels.index_select(0, index).float(), index, absent)
        loss.backward()
        optimizer.step()
        for name, rows in memory.items():
            getattr(method, name)[index] = rows.detach()
        total += loss.detach() * len(index)
        n_seen += len(index)
        if watch.is_late():
            break
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    if not n_seen:
        raise ValueError(
            f"some rows must be readable; all {len(task.samples)} were skipped. See `skipped` of the samples."
        )
    return float(total) / n_seen


def close_epoch(learner: Learner, view: TrainView, plan: Plan, history: History) -> None:
    """After the batches of an epoch: the method's turn."""
    began = time.perf_counter()
    method, epoch = learner.method, len(history.loss) - 1
    method.epoch = epoch
    with seeded(plan.seed, FIRST_END_STREAM + epoch, view.observed.device):
        method.end_epoch(view)
    history.closing_seconds.append(time.perf_counter() - began)
    if method.class_prior is not None:
        history.prior.append([None if math.isnan(p) else p for p in method.class_prior.tolist()])


def judge_epoch(
    learner: Learner, validation: Validation | None, plan: Plan, history: History, logits: Tensor | None = None
) -> Set[int]:
    """Score the epoch on the validation rows, whose logits may be given, and note the best epoch so far.

    Returns the epochs whose weights must be kept. Without validation rows the last epoch is the best.
    """
    epoch = len(history.loss) - 1
    if validation is None:
        history.best_epoch = epoch
        return {epoch}
    logits = (predict_logits(learner, validation.samples) if logits is None else logits).double().cpu()
    scores = logits.numpy()
    if scores.shape[1] <= LISTED_LABELS:
        history.mean_score.append(torch.sigmoid(logits).mean(0).tolist())
    first, *others = measured_by(plan.select)
    history.validation.append(_measure(first, validation, scores))
    for name in others:
        history.other_metrics.setdefault(name, []).append(_measure(name, validation, scores))
    # An epoch of the warm-up is chosen only if there are no others.
    history.n_warmup += learner.method.warming_up and epoch + 1 < plan.epochs
    series = {first: history.validation, **history.other_metrics}
    history.best_epoch, candidates = choose_epoch(series, plan.select, history.n_warmup)
    return candidates


def _measure(name: str, validation: Validation, logits: npt.NDArray[np.float64]) -> float:
    metric = METRICS[name]
    return float(metric.function(validation.Y, logits if metric.uses == "scores" else logits > 0))


def _pass(
    learner: Learner,
    samples: Samples,
    output: Callable[[Tensor], Tensor],
    precision: Precision = nullcontext,
    positions: Tensor | None = None,
) -> Tensor:
    """`output` of all rows, or of the positions given, in full precision; the learner is in evaluation mode."""
    was_training = learner.training
    learner.eval()
    with torch.no_grad(), precision():
        result = run_in_steps(output, samples, next(learner.parameters()).device, positions)
    learner.train(was_training)
    return result.float() if result.dtype == torch.bfloat16 else result


def make_view(task: Task, labels: Tensor, precision: Precision = nullcontext, watch: Watch | None = None) -> TrainView:
    """What the method may see of the whole training set; passes are made in `precision`."""
    learner, samples, validation = task.learner, task.samples, task.validation
    return TrainView(
        observed=labels,
        n_features=task.n_features,
        n_epochs=task.plan.epochs,
        inputs=lambda: run_in_steps(lambda rows: rows, samples, labels.device),
        features=lambda positions=None: _pass(learner, samples, learner.embed, precision, positions),
        logits=lambda: predict_logits(learner, samples, precision),
        backbone=learner.backbone,
        validation_prior=_shares(validation.Y) if validation and validation.full else None,
        is_tabular="views" not in samples.offers,
        seed=task.plan.seed,
        shared=task.shared,
        watch=watch or Watch(),
        sparse_inputs=lambda: samples.to_scipy() if isinstance(samples, SparseRows) else None,
        known_negative=None if task.known_negative is None else torch.tensor(task.known_negative, device=labels.device),
        groups=None if task.groups is None else torch.tensor(task.groups, device=labels.device),
        at_random=None if task.at_random is None else torch.tensor(task.at_random, device=labels.device),
    )


def _shares(Y: npt.NDArray[Any]) -> Tensor:
    """The share of each label among the rows where it is known, (c,)."""
    known = ~np.isnan(Y)
    return torch.as_tensor(np.where(known, Y, 0).sum(0) / np.maximum(known.sum(0), 1))


def identity(task: Task, labels: Tensor) -> str:
    """What must be the same for a checkpoint to be taken up: everything but the device."""
    learner, validation = task.learner, task.validation
    kept = {key: value for key, value in dataclasses.asdict(task.plan).items() if key != "device"}
    data = task.samples.fingerprint(), labels.shape, hashlib.sha256(labels.cpu().numpy().tobytes()).hexdigest()
    held_out = validation and (validation.samples.fingerprint(), hashlib.sha256(validation.Y.tobytes()).hexdigest())
    method = type(learner.method).__name__, sorted(learner.method.get_params().items())
    further = [
        hashlib.sha256(np.ascontiguousarray(each).tobytes()).hexdigest() if each is not None else ""
        for each in (task.known_negative, task.groups, task.at_random)
    ]
    parts = method, str(learner.backbone), sorted(kept.items()), data, held_out
    return repr((*parts, further) if any(further) else parts)  # those of before stay as they were
