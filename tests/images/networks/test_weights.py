"""Weight files: every form that loads, and a sentence for every form that does not."""

import hashlib
import pickle
import re
from argparse import Namespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from onepos.images.networks import load_weights


class Small(nn.Sequential):
    unused_keys = ("old.weight",)

    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))


@pytest.fixture
def state():
    torch.manual_seed(1)
    return {key: torch.randn(t.shape) if t.ndim else torch.tensor(9) for key, t in Small().state_dict().items()}


def untracked(state):
    return {key: tensor for key, tensor in state.items() if not key.endswith("num_batches_tracked")}


FORMS = {
    "plain": lambda state: state,
    "with unused": lambda state: {**state, "old.weight": torch.zeros(7)},
    "wrapped": lambda state: {"state_dict": state, "epoch": 3, "best": 0.5},
    "parallel": lambda state: {"state_dict": {f"module.{key}": tensor for key, tensor in state.items()}},
    "old": untracked,
    "half": lambda state: {key: t.half() if t.is_floating_point() else t for key, t in state.items()},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("suffix", ["pth", "pt"])
def test_forms_of_torch_files(state, tmp_path, form, suffix):
    file, module = tmp_path / f"weights.{suffix}", Small()
    torch.save(FORMS[form](state), file)
    assert load_weights(module, file) == hashlib.sha256(file.read_bytes()).hexdigest()
    loaded = module.state_dict()
    assert loaded["1.num_batches_tracked"] == (0 if form == "old" else 9)
    for key, tensor in untracked(state).items():
        assert loaded[key].dtype == torch.float32
        assert torch.equal(loaded[key], tensor.half().float() if form == "half" else tensor)


def test_legacy_format(state, tmp_path):
    """Files older than torch 1.6, such as many a published one, are no zip archives."""
    torch.save(state, tmp_path / "weights.pth", _use_new_zipfile_serialization=False)
    module = Small()
    load_weights(module, tmp_path / "weights.pth")
    assert torch.equal(module[0].weight, state["0.weight"])


def test_safetensors(state, tmp_path):
    file, module = tmp_path / "weights.safetensors", Small()
    save_file(state, file)
    assert load_weights(module, str(file)) == hashlib.sha256(file.read_bytes()).hexdigest()
    assert torch.equal(module[1].running_var, state["1.running_var"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: {"0.bias": s["0.bias"]}, "missing: '0.weight', '1.weight', '1.bias' and 2 more."),
        (lambda s: {**s, "fc.weight": s["0.bias"]}, "unexpected: 'fc.weight'."),
        (
            lambda s: {**s, "0.weight": torch.zeros(4, 3, 5, 5), "1.bias": torch.zeros(2)},
            "of another shape: '0.weight' is (4, 3, 5, 5) and should be (4, 3, 3, 3), '1.bias' is (2,) and should be",
        ),
        (
            lambda s: {f"net.{key}": tensor for key, tensor in s.items()},
            "missing: '0.weight', '0.bias', '1.weight' and 3 more; unexpected: 'net.0.weight',",
        ),
    ],
)
def test_keys_that_do_not_fit(state, tmp_path, change, sentence):
    file, module = tmp_path / "weights.pth", Small()
    before = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    torch.save(change(state), file)
    with pytest.raises(ValueError, match=re.escape("weights.pth must hold the 7 tensors of Small; " + sentence)):
        load_weights(module, file)
    assert all(torch.equal(tensor, before[key]) for key, tensor in module.state_dict().items())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (Small(), r"must hold plain tensors; it holds test_weights\.Small, .* Save the network's state_dict\(\)"),
        ({"state_dict": {}, "arguments": Namespace(lr=1)}, r"must hold plain tensors; it holds argparse\.Namespace"),
        ([torch.zeros(2)], "must hold a state dict, keys with their tensors; it holds an object of type list"),
        ({}, "must hold a state dict, keys with their tensors; it holds no entry"),
        ({"a": torch.zeros(2), "epoch": 3}, "under 'epoch' it holds an object of type int"),
    ],
    ids=["module", "arguments", "list", "empty", "numbers"],
)
def test_contents_that_are_no_state_dict(tmp_path, content, sentence):
    torch.save(content, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=sentence):
        load_weights(Small(), tmp_path / "weights.pth")


class Intruder:
    def __reduce__(self):
        return (open, ("intruder-was-here", "w"))


@pytest.mark.parametrize("save", [torch.save, lambda what, file: file.write_bytes(pickle.dumps(what, protocol=2))])
def test_nothing_is_executed(tmp_path, monkeypatch, save):
    monkeypatch.chdir(tmp_path)
    save({"0.weight": Intruder()}, tmp_path / "weights.pt")
    with pytest.raises(
        ValueError, match=r"weights\.pt must hold plain tensors; it holds (_?io|__builtin__|builtins)\.open"
    ):
        load_weights(Small(), tmp_path / "weights.pt")
    assert not (tmp_path / "intruder-was-here").exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_damaged_files(state, tmp_path, zipped):
    """Cut anywhere: one sentence, never another error, never a network with half the weights."""
    whole, cut = tmp_path / "whole.pth", tmp_path / "cut.pth"
    torch.save(state, whole, _use_new_zipfile_serialization=zipped)
    content = whole.read_bytes()
    for length in range(0, len(content) - 1, 97):
        cut.write_bytes(content[:length])
        with pytest.raises(
            ValueError, match=r"cut\.pth must (be a file of torch.save; it can not be read .* Get it again|hold plain)"
        ):
            load_weights(Small(), cut)


def test_damaged_safetensors(state, tmp_path):
    save_file(state, tmp_path / "w.safetensors")
    (tmp_path / "w.safetensors").write_bytes((tmp_path / "w.safetensors").read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"w\.safetensors must be a safetensors file; it is not"):
        load_weights(Small(), tmp_path / "w.safetensors")


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"weights must be a file; there is none at .*nowhere\.pth"):
        load_weights(Small(), tmp_path / "nowhere.pth")
    with pytest.raises(FileNotFoundError, match="weights must be a file"):
        load_weights(Small(), tmp_path)
    (tmp_path / "weights.h5").touch()
    with pytest.raises(ValueError, match=r"a \.pth, \.pt or \.safetensors file; got weights\.h5"):
        load_weights(Small(), tmp_path / "weights.h5")
