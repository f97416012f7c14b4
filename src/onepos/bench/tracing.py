"""The losses of a stack of runs, traced once into a plain list of kernels and replayed step by step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from onepos.methods.base import Method

# A trace of the loss takes as long as it saves in so many steps; the first in a process imports much of torch for it.
_WORTH_A_TRACE, _WORTH_THE_FIRST = 200, 1000


class TracedLoss:
    """A function of a batch and of the state of all runs, called in every step.

    Under vmap and autograd a small kernel takes less time than what surrounds it. A trace is good for batches of one
    length, and as long as the loss is the same function: in all epochs if the method does not ask which it is,
    otherwise within a phase. Where too few steps are ahead to pay for it, and for a last batch that is shorter, the
    loss is called as it is.

    The function is (*batch, *state) → (losses, gradients, what to remember, by the name of a buffer of the method). It
    may read the epoch of the method. `state` names the tensors of the state in their order, `learned` those of them
    that every step moves.
    """

    def __init__(self, function: Callable[..., Any], method: Method, state: list[str], learned: list[str]) -> None:
        self.function, self.method = function, method
        self.state, self.moved = state, set(learned)  # and what the loss remembers, as its first call shows
        self.trace: _Trace | None = None
        self.phase: Any = None
        self.called = False
        _watch_epoch(method)

    def start_epoch(self, epoch: int, n_steps: int, n_epochs: int) -> None:
        """So many steps in this epoch; so many epochs to come, with this one."""
        self.epochs, self.n_steps = range(epoch, epoch + n_epochs), n_steps
        self._look_ahead()
        if self.trace is not None:
            self.trace.known = None

    def _look_ahead(self) -> None:
        """Count the steps that the loss stays as it is, and drop the trace of a phase that is over."""
        phases = [self._phase(epoch) for epoch in reversed(self.epochs)][::-1]
        n_epochs = next((k for k, phase in enumerate(phases) if phase != phases[0]), len(phases))
        self.n_ahead = n_epochs * self.n_steps
        if phases[0] != self.phase:
            self.trace, self.phase = None, phases[0]

    def _phase(self, epoch: int) -> Any:
        """Of this epoch, which is the method's from then on."""
        self.method.epoch = epoch
        return self.method.stacking.phase(self.method) if self.method.epoch_was_read else None

    def __call__(self, *tensors: Tensor) -> Any:
        """The function of these tensors, by a trace where there is one."""
        if not self.called:  # finds out whether the method reads the epoch
            self.called = True
            losses, gradients, memory = self.function(*tensors)
            self.moved.update(f"method.{name}" for name in memory)
            self._look_ahead()
            return losses, gradients, memory
        if self.trace is None and self.n_ahead >= _steps_worth_a_trace():
            self.batch_size = tensors[0].shape[1]
            self.trace = self._make_trace(tensors)
        if self.trace is None or tensors[0].shape[1] != self.batch_size:
            return self.function(*tensors)
        return self.trace(*tensors)

    def _make_trace(self, tensors: Sequence[Tensor]) -> _Trace:
        from torch.fx.experimental.proxy_tensor import make_fx  # not public, so only where it is used

        first = len(tensors) - len(self.state)
        steady = [first + k for k, name in enumerate(self.state) if name not in self.moved]
        return _Trace(make_fx(self.function)(*tensors), steady)


class _Trace:
    """A traced function in two parts: what follows from steady arguments alone is computed once, the rest each time.

    `steady` are the positions of the arguments that stay as they are until `known` is set to None.
    """

    def __init__(self, traced: fx.GraphModule, steady: Sequence[int]) -> None:
        self.known: tuple[Tensor, ...] | None = None
        self.steady = steady
        _drop_detach(traced.graph)
        nodes = list(traced.graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        fixed = {inputs[k] for k in steady}
        for node in nodes:
            if node.op == "get_attr" or (_is_pure(node) and fixed.issuperset(node.all_input_nodes)):
                fixed.add(node)
        handed_on = [
            node for node in nodes if node in fixed and node.op == "call_function" and not fixed.issuperset(node.users)
        ]
        self.once = _part(traced, [inputs[k] for k in steady], [node for node in nodes if node in fixed], handed_on)
        self.each = _part(traced, [*inputs, *handed_on], nodes)

    @torch.no_grad()
    def __call__(self, *tensors: Tensor) -> Any:
        if self.known is None:
            self.known = self.once(*(tensors[k] for k in self.steady))
        return self.each(*tensors, *self.known)


def _drop_detach(graph: fx.Graph) -> None:
    """Nothing is differentiated in a replay."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)


def _is_pure(node: fx.Node) -> bool:
    """Whether it gives the same whenever it is called with the same."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    return not node.target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in node.target.tags


def _part(
    traced: fx.GraphModule, inputs: list[fx.Node], nodes: list[fx.Node], outputs: list[fx.Node] | None = None
) -> fx.GraphModule:
    """A function of `inputs` that computes `nodes` and gives `outputs`, or what the whole gives."""
    graph = fx.Graph()
    copies = {node: graph.placeholder(node.name) for node in inputs}
    for node in nodes:
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    if outputs is not None:
        graph.output(tuple(copies[node] for node in outputs))
    graph.eliminate_dead_code()
    return fx.GraphModule(traced, graph)


def _steps_worth_a_trace() -> int:
    return _WORTH_A_TRACE if "torch._dynamo" in sys.modules else _WORTH_THE_FIRST


def _watch_epoch(method: Method) -> None:
    """Let `method.epoch_was_read` record whether its epoch was read."""

    def read(self: Any) -> int:
        self.epoch_was_read = True
        return int(self.__dict__["epoch"])

    def write(self: Any, epoch: int) -> None:
        self.__dict__["epoch"] = epoch

    watched = {"epoch": property(read, write), "epoch_was_read": False}
    method.__class__ = type(type(method).__name__, (type(method),), watched)
