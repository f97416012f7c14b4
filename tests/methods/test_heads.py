"""Heads: where they start, what chance does in the Gaussian ones, and what the maps come to."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from onepos.methods.heads import (
    CAMHead,
    GaussianHead,
    LabelAttention,
    LabelAttentionHead,
    LabelGaussianHead,
    LinearHead,
    shift_to,
    sine_code,
)


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


ON_MAPS = {
    "activation maps": lambda: CAMHead(8, 3, gain=5.0),
    "label attention": lambda: LabelAttentionHead(8, 3),
    "label codes": lambda: LabelGaussianHead(8, 3, 5),
}


@pytest.fixture
def maps():
    return torch.randn(4, 8, 3, 2, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", ON_MAPS)
def test_heads_on_maps_start_at_the_given_logits(kind, maps):
    head, log_odds = ON_MAPS[kind]().eval(), torch.tensor([-2.0, 0.0, 1.5])
    weight = head.weight.detach().clone()
    head.start_at(log_odds, 0.1)
    torch.testing.assert_close(head.weight.detach(), 0.1 * weight)
    head.start_at(log_odds, 0.0)
    torch.testing.assert_close(head(maps), log_odds.expand(4, 3))


@pytest.mark.parametrize("kind", ON_MAPS)
def test_heads_on_maps_give_full_precision(kind, maps):
    with torch.autocast("cpu", torch.bfloat16):
        assert ON_MAPS[kind]()(maps).dtype == torch.float32


def test_activation_maps_without_gain_are_a_linear_head_on_pooled_features(maps):
    head, linear = CAMHead(8, 3), LinearHead(8, 3)
    with torch.no_grad():
        linear.weight.copy_(head.weight[:, :, 0, 0])
        linear.bias.copy_(head.bias)
    torch.testing.assert_close(head(maps), linear(maps.mean((2, 3))))


def test_activation_maps_by_a_loop(maps):
    """Where a map is above zero it counts five times."""
    torch.manual_seed(0)
    head = CAMHead(8, 3, gain=5.0)
    weight, bias = head.weight.detach().numpy()[:, :, 0, 0], head.bias.detach().numpy()
    expected = np.zeros((4, 3))
    for i, j, y, x in np.ndindex(4, 3, 3, 2):
        value = weight[j] @ maps[i, :, y, x].numpy() + bias[j]
        expected[i, j] += max(value, 5 * value) / 6
    np.testing.assert_allclose(head(maps).detach().numpy(), expected, atol=1e-6)
    assert (head.activation(maps) > 0).any()


def as_torch_layer(layer, width):
    """A layer of the library with its weights copied into torch's own modules, with the codes added to q and k."""
    attention = nn.MultiheadAttention(width, 4, batch_first=True).double()
    perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)).double()
    norms = [nn.LayerNorm(width).double(), nn.LayerNorm(width).double()]
    projections = [layer.query, layer.key, layer.value]
    with torch.no_grad():
        attention.in_proj_weight.copy_(torch.cat([each.weight for each in projections]))
        attention.in_proj_bias.copy_(torch.cat([each.bias for each in projections]))
    attention.out_proj.load_state_dict(layer.out.state_dict())
    perceptron[0].load_state_dict(layer.inner.state_dict())
    perceptron[2].load_state_dict(layer.outer.state_dict())
    for norm, ours in zip(norms, (layer.norm_1, layer.norm_2), strict=True):
        norm.load_state_dict(ours.state_dict())

    def forward(x, x_code, source, source_code):
        found, _ = attention(x + x_code, source + source_code, source)
        x = norms[0](x + found)
        return norms[1](x + perceptron(x))

    return forward


def random_attention():
    """Double precision, without dropout; norms and biases away from one and zero, so that leaving one out shows."""
    torch.manual_seed(1)
    attention = LabelAttention(8, 3).double().eval()
    for name, parameter in attention.named_parameters():
        if "norm" in name or "bias" in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
    return attention


@torch.no_grad()
def test_label_attention_equals_torch_modules(maps):
    """One encoder layer, two decoder layers that attend to the places alone, one last normalisation."""
    attention = random_attention()
    code = sine_code(3, 2, 8).double()
    places = maps.double().flatten(2).transpose(1, 2)
    places = as_torch_layer(attention.encoder, 8)(places, code, places, code)
    labels = torch.zeros(4, 3, 8, dtype=torch.float64)
    for decoder in attention.decoders:
        labels = as_torch_layer(decoder, 8)(labels, attention.queries, places, code)
    expected = nn.functional.layer_norm(labels, (8,), attention.norm.weight, attention.norm.bias)
    torch.testing.assert_close(attention(maps.double()), expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_encoder_layer_equals_torch_encoder_layer(maps):
    layer = random_attention().encoder
    theirs = nn.TransformerEncoderLayer(8, 4, 32, dropout=0.0, batch_first=True).double().eval()
    state = layer.state_dict()
    theirs.load_state_dict(
        {f"self_attn.in_proj_{kind}": torch.cat([state[f"{part}.{kind}"] for part in ("query", "key", "value")])
         for kind in ("weight", "bias")}
        | {f"{name}.{kind}": state[f"{ours}.{kind}"] for kind in ("weight", "bias") for name, ours in {
            "self_attn.out_proj": "out", "linear1": "inner", "linear2": "outer", "norm1": "norm_1", "norm2": "norm_2",
        }.items()}
    )  # fmt: skip
    places = maps.double().flatten(2).transpose(1, 2)
    none = torch.zeros(6, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(places, none, places, none), theirs(places), rtol=0, atol=1e-12)


def test_label_attention_starts_as_the_authors_does():
    """Xavier's bound of each matrix as it is drawn there: query, key and value as one (3·C, C)."""
    torch.manual_seed(0)
    width = 256
    layer = LabelAttention(width, 3).decoders[0]
    bounds = {"query": 4 * width, "key": 4 * width, "value": 4 * width, "out": 2 * width}
    for name, fans in (bounds | {"inner": 5 * width, "outer": 5 * width}).items():
        largest = getattr(layer, name).weight.abs().max().item()
        assert math.isclose(largest, math.sqrt(6 / fans), rel_tol=1e-3), name
    for name in ("query", "key", "value", "out"):
        assert not getattr(layer, name).bias.any(), name
    assert math.isclose(layer.inner.bias.abs().max().item(), 1 / math.sqrt(width), rel_tol=0.02)
    assert math.isclose(layer.outer.bias.abs().max().item(), 1 / math.sqrt(4 * width), rel_tol=0.02)


def test_sine_code_by_a_loop():
    code = sine_code(3, 2, 8)
    for place, (y, x) in enumerate(np.ndindex(3, 2)):
        for k, (at, n) in enumerate([(y, 3), (x, 2)]):
            for i in range(2):
                angle = 2 * math.pi * (at + 1) / n / 10000 ** (i / 2)
                assert math.isclose(code[place, 4 * k + i], math.sin(angle), abs_tol=1e-6)
                assert math.isclose(code[place, 4 * k + 2 + i], math.cos(angle), abs_tol=1e-6)


def test_a_label_is_found_by_its_own_query(maps):
    """Labels do not attend to each other: alone a label is as it is among others."""
    torch.manual_seed(0)
    attention = LabelAttention(8, 3).eval()
    among = attention(maps)
    attention.queries.data = attention.queries.data[1:2]
    torch.testing.assert_close(attention(maps), among[:, 1:2])


def test_dropout_is_for_training_alone(maps):
    attention = LabelAttention(8, 3)
    assert not torch.equal(attention(maps), attention(maps))
    attention.eval()
    assert torch.equal(attention(maps), attention(maps))


def test_embeddings_become_logits_label_by_label(maps):
    head = LabelAttentionHead(8, 3).eval()
    embeddings = head.embed(maps)
    assert embeddings.shape == (4, 3, 8)
    for j in range(3):
        torch.testing.assert_close(head(maps)[:, j], embeddings[:, j] @ head.weight[j] + head.bias[j])


def test_codes_per_label_are_moved_by_the_noise(maps):
    torch.manual_seed(0)
    head, noise = LabelGaussianHead(8, 3, 5).eval(), torch.randn(4, 3, 5)
    logits, mean, log_std = head.sample(maps, noise)
    torch.testing.assert_close(logits, head.classify(mean + log_std.exp() * noise))
    torch.testing.assert_close(head.sample(maps, torch.zeros(4, 3, 5))[0], head(maps))


def test_number_of_channels_must_fit():
    with pytest.raises(ValueError, match="the maps must have a number of channels that 4 divides; they have 6"):
        LabelAttentionHead(6, 3)


class TestShiftTo:
    """The mean score of each label becomes its prior."""

    @staticmethod
    def check(prior, logits, start=None, rtol=1e-3):
        prior = torch.as_tensor(prior, dtype=logits.dtype)
        shift = shift_to(prior, logits, start)
        assert shift.shape == prior.shape
        assert shift.dtype == logits.dtype
        for j in range(len(prior)):
            mean = np.mean([1 / (1 + math.exp(-(g + shift[j].item()))) for g in logits[:, j].tolist()])
            assert abs(mean - prior[j].item()) < rtol * min(prior[j].item(), 1 - prior[j].item()), (mean, prior[j])
        return shift

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("prior", [1e-5, 1e-3, 0.2, 0.5, 0.99, 0.999])
    @pytest.mark.parametrize("spread", [0.1, 1.0, 6.0])
    def test_rare_and_common_labels(self, prior, spread, dtype):
        logits = spread * torch.randn(300, 2, dtype=dtype, generator=torch.Generator().manual_seed(0))
        self.check([prior, 0.3], logits)

    @pytest.mark.parametrize("level", [-15.0, 0.0, 15.0])
    def test_constant_logits(self, level):
        shift = self.check([0.3, 1e-5], torch.full((50, 2), level))
        assert shift[0].item() == pytest.approx(math.log(0.3 / 0.7) - level, abs=1e-3)

    def test_no_shift_is_larger_than_thirty(self):
        assert shift_to(torch.tensor([0.5, 0.5]), torch.tensor([[100.0, -100.0]])).abs().tolist() == [30, 30]

    def test_two_steps_of_sure_scores(self):
        """Where the mean hardly changes with the shift, Newton's step leaves the range."""
        logits = torch.cat([torch.full((70, 1), -14.0), torch.full((30, 1), 14.0)])
        self.check([0.3], logits)
        self.check([0.65], logits)

    @pytest.mark.parametrize("start", [-100.0, -29.0, 5.0, 29.0, 100.0])
    def test_from_far_away(self, start):
        logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        self.check([0.01, 0.5, 0.9], logits, torch.full((3,), start))

    def test_a_start_that_is_right_stays(self):
        logits, prior = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0.01, 0.5, 0.9])
        right = self.check(prior, logits)
        assert torch.equal(shift_to(prior, logits, right), right)
        mixed = torch.stack([right[0], right[1] + 4, right[2]])  # one of three is not
        again = self.check(prior, logits, mixed)
        assert torch.equal(again[[0, 2]], right[[0, 2]])

    def test_an_unknown_prior_shifts_nothing(self):
        logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        for start in (None, torch.tensor([1.0, 2.0, 3.0])):
            shift = shift_to(torch.tensor([math.nan, 0.2, math.nan]), logits, start)
            assert shift[[0, 2]].tolist() == [0, 0]
            self.check([0.2], logits[:, 1:2], shift[1:2])

    @pytest.mark.parametrize("prior", [0.0, 1.0])
    def test_a_prior_at_the_end_stays_finite(self, prior):
        mean = torch.sigmoid(torch.randn(50, 1) + shift_to(torch.tensor([prior]), torch.randn(50, 1))).mean()
        assert abs(mean - prior) < 1e-4

    def test_inputs_are_left_alone(self):
        logits, prior, start = torch.randn(20, 2), torch.tensor([0.1, math.nan]), torch.ones(2)
        kept = logits.clone(), prior.clone(), start.clone()
        shift_to(prior, logits, start)
        for tensor, before in zip((logits, prior, start), kept, strict=True):
            assert torch.equal(tensor.nan_to_num(-1), before.nan_to_num(-1))
