"""Heads: where they start, and what chance does in the Gaussian one."""

import pytest
import torch

from onepos.heads import GaussianHead, LinearHead


@pytest.mark.parametrize("head", [LinearHead(6, 3), GaussianHead(6, 3, 4)], ids=["linear", "gaussian"])
def test_starts_at_the_given_logits(head):
    weight = head.weight.detach().clone()
    head.start_at(torch.tensor([-2.0, 0.0, 1.0]), 0.1)
    torch.testing.assert_close(head.weight.detach(), 0.1 * weight)
    head.start_at(torch.tensor([-2.0, 0.0, 1.0]), 0.0)
    torch.testing.assert_close(head(torch.ones(5, 6)), torch.tensor([-2.0, 0.0, 1.0]).expand(5, 3))


def test_mean_path_is_the_mean_code_without_chance():
    head, features = GaussianHead(6, 3, 4), torch.linspace(-2, 2, 30).reshape(5, 6)
    before = torch.get_rng_state()
    mean = features @ head.encoder.weight[:4].T + head.encoder.bias[:4]
    torch.testing.assert_close(head(features), mean @ head.weight.T + head.bias)
    assert torch.equal(before, torch.get_rng_state())


def test_sampled_code_is_moved_by_the_noise():
    """With the identity behind the code, logits are the code: μ + σ·noise."""
    torch.manual_seed(0)
    head = GaussianHead(2, 3, 3)
    with torch.no_grad():
        head.weight.copy_(torch.eye(3))
        head.bias.zero_()
        noise = torch.tensor([[0.0, 1.0, -2.0]])
        logits, mean, log_std = head.sample(torch.tensor([[1.0, -2.0]]), noise)
    torch.testing.assert_close(logits, mean + log_std.exp() * noise)


def test_spread_is_bounded():
    head = GaussianHead(1, 2, 3)
    _, log_std = head.encode(torch.tensor([[1e6], [-1e6]]))
    assert log_std.abs().max() == 6
    assert log_std.min() == -6


def test_code_and_logits_stay_in_full_precision():
    head = GaussianHead(6, 3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert {tensor.dtype for tensor in head.sample(torch.ones(5, 6), torch.ones(5, 4))} == {torch.float32}
