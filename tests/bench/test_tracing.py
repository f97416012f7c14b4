"""A trace gives what the function gives, and computes what stands still only once."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from onepos.bench.tracing import _Trace


def names(module):
    return [node.name for node in module.graph.nodes if node.op == "call_function"]


def traced(function, steady, *tensors):
    return _Trace(make_fx(function)(*tensors), steady)


def test_what_stands_still_is_computed_once_until_it_is_forgotten():
    def function(x, prior):
        return x.exp() * (1 - prior).log(), prior

    x, prior = torch.rand(3), torch.rand(3)
    trace = traced(function, [1], x, prior)
    assert names(trace.each) == ["exp", "mul"]
    assert "log" in names(trace.once)
    expected = function(x, prior)
    assert all(torch.equal(a, b) for a, b in zip(trace(x, prior), expected, strict=True))
    other = torch.rand(3)
    assert torch.equal(trace(x, other)[0], expected[0])  # it was told that this one stands still
    trace.known = None
    assert torch.equal(trace(x, other)[0], function(x, other)[0])


def test_chance_is_thrown_each_time():
    trace = traced(lambda x, prior: x + prior * torch.rand_like(prior), [1], torch.zeros(4), torch.ones(4))
    assert not torch.equal(trace(torch.zeros(4), torch.ones(4)), trace(torch.zeros(4), torch.ones(4)))


def test_nothing_steady_and_everything_steady():
    x, y = torch.rand(2), torch.rand(2)
    assert torch.equal(traced(torch.add, [], x, y)(x, y), x + y)
    assert torch.equal(traced(torch.add, [0, 1], x, y)(x, y), x + y)


def test_gradients_and_detached_results_go_through():
    def function(x, weight):
        inner = x.detach().requires_grad_()
        loss = (inner.square() * weight.sigmoid()).sum()
        (slope,) = torch.autograd.grad(loss, inner)
        return loss.detach(), slope

    x, weight = torch.rand(5), torch.rand(5)
    trace = traced(function, [1], x, weight)
    assert "detach" not in " ".join(names(trace.each))
    for ours, theirs in zip(trace(x, weight), function(x, weight), strict=True):
        torch.testing.assert_close(ours, theirs)
