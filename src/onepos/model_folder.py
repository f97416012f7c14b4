"""A fitted model on disk: `model.safetensors` (weights) and `model.json` (all else). No pickle, no code."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import nn

from onepos import __version__
from onepos.files import write_atomically
from onepos.images.inputs import LARGEST, SMALLEST, PictureInput, as_normalisation
from onepos.images.networks import make_image_backbone, n_image_features
from onepos.methods import METHODS
from onepos.methods.base import Method
from onepos.training.backbones import make_backbone, n_outputs
from onepos.training.loop import History
from onepos.training.samples import Scaling

if TYPE_CHECKING:
    from onepos.estimator import SinglePositiveClassifier

Model = TypeVar("Model", bound="SinglePositiveClassifier")

FORMAT = 3
_WEIGHTS, _FACTS = "model.safetensors", "model.json"


def save_model(model: SinglePositiveClassifier, folder: str | os.PathLike[str]) -> None:
    """Write both files; the weights first, so that a `model.json` always stands for a whole model.

    The weights of a network for pictures are always among them, also of one that stood still: the folder predicts
    where its weight file is not at hand.
    """
    from safetensors.torch import save

    folder = Path(folder)
    tensors = {f"network.{name}": tensor.contiguous() for name, tensor in model.network_.state_dict().items()}
    if model.extractor_ is not None:
        still = model.extractor_.state_dict()
        tensors |= {f"extractor.{name}": tensor.contiguous() for name, tensor in still.items()}
    if model.scaling_ is not None:
        tensors["scaling.mean"] = torch.from_numpy(model.scaling_.mean)
        tensors["scaling.scale"] = torch.from_numpy(model.scaling_.scale)
    weights = save(tensors)
    facts = {
        "format": FORMAT,
        "onepos": __version__,
        "sha256": hashlib.sha256(weights).hexdigest(),
        "parameters": _parameters(model),
        "method": {"class": _class_name(model.method_), "parameters": _plain(model.method_.get_params())},
        "classes": model.classes_.tolist(),
        "n_features": int(model.n_features_in_) if model.pictures_ is None else None,
        "pictures": None if model.pictures_ is None else _picture_facts(model),
        "feature_names": model.feature_names_in_.tolist() if hasattr(model, "feature_names_in_") else None,
        "class_prior": _with_nulls(model.class_prior_),
        "class_prior_interval": [_with_nulls(pair) for pair in model.class_prior_interval_],
        "thresholds": model.thresholds_.tolist(),
        "history": _without_nan(asdict(model.history_)),
    }
    text = json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / _WEIGHTS, weights)
    write_atomically(folder / _FACTS, text + "\n")


def load_model(
    cls: type[Model], folder: str | os.PathLike[str], network: nn.Module | None, method: Method | None
) -> Model:
    """Read both files, or say in a sentence why this folder is not taken."""
    folder = Path(folder)
    facts = _read_facts(folder)
    tensors = _read_weights(folder, str(facts["sha256"]))
    try:
        return _rebuild(cls, facts, tensors, network, method)
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(
            f"{folder} must hold a model written by onepos; its parts do not fit together ({error}). "
            "If an earlier onepos wrote it, fit it again; otherwise save it again."
        ) from error


def _read_facts(folder: Path) -> dict[str, Any]:
    path = folder / _FACTS
    if not path.exists():
        raise FileNotFoundError(
            f"{folder} must hold {_FACTS}; there is none. Name a folder written by save() or `onepos fit`."
        )
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        version = int(facts["format"])
        _ = facts["sha256"], facts["onepos"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} must be a model file of onepos; it can not be read ({error}). Save the model again."
        ) from error
    if version > FORMAT:
        raise ValueError(
            f"{path} must be of format {FORMAT} or older; it is of format {version}, "
            f"written by onepos {facts['onepos']}. Upgrade onepos."
        )
    return dict(facts)


def _read_weights(folder: Path, expected: str) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    path = folder / _WEIGHTS
    if not path.exists():
        raise FileNotFoundError(f"{folder} must hold {_WEIGHTS}; there is none. Copy the whole folder.")
    weights = path.read_bytes()
    found = hashlib.sha256(weights).hexdigest()
    if found != expected:
        raise ValueError(
            f"{path} must have the checksum written in {_FACTS}, {expected[:12]}…; it has {found[:12]}…. "
            "The file is damaged or from another model: copy the folder again."
        )
    try:
        return dict(load(weights))
    except SafetensorError as error:
        raise ValueError(f"{path} must be a safetensors file; it is not ({error}). Save the model again.") from error


def _rebuild(
    cls: type[Model],
    facts: dict[str, Any],
    tensors: dict[str, torch.Tensor],
    network: nn.Module | None,
    method: Method | None,
) -> Model:
    parameters = dict(facts["parameters"])
    if parameters["network"] is None:
        if network is None:
            raise ValueError("this model has a network of your own; pass it again: load(folder, network=…).")
        parameters["network"] = network
    parameters["hidden"] = tuple(parameters["hidden"])
    model = cls(_make_method(facts["method"], method), **parameters)
    model.classes_ = np.array(facts["classes"])
    model.pictures_ = _read_picture_facts(facts.get("pictures"))  # a model of format 1 has none
    model.extractor_, model.skipped_ = None, {}
    if model.pictures_ is None:
        model.n_features_in_ = int(facts["n_features"])
    if facts["feature_names"] is not None:
        model.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
    if not all(isinstance(value, float | int | None) for value in facts["class_prior"]):
        raise TypeError("class_prior must be numbers")
    model.class_prior_ = np.array(facts["class_prior"], np.float64)
    model.class_prior_interval_ = np.array(facts["class_prior_interval"], np.float64)
    model.thresholds_ = np.array(facts["thresholds"], np.float64)
    model.history_ = History(**facts["history"])
    _check_sizes(model)
    mean, scale = tensors.pop("scaling.mean", None), tensors.pop("scaling.scale", None)
    model.scaling_ = None if mean is None or scale is None else Scaling(mean.numpy(), scale.numpy())

    fitted = _make_method(facts["method"], method)
    backbone, n_features = _make_network(model, fitted, bool(model.pictures_ and facts["pictures"]["fine_tuned"]))
    fitted.head = fitted.make_head(n_features, len(model.classes_))
    of_network = {key.removeprefix("network."): t for key, t in tensors.items() if key.startswith("network.")}
    model.method_, model.network_ = fitted, fitted.rebuild(backbone, of_network)
    parts = {"network": model.network_} | ({} if model.extractor_ is None else {"extractor": model.extractor_})
    for name, part in parts.items():
        mine = [key for key in tensors if key.startswith(f"{name}.")]
        part.load_state_dict({key.removeprefix(f"{name}."): tensors.pop(key) for key in mine})
        part.eval()
    if tensors:
        raise KeyError(f"{next(iter(tensors))} belongs to no part")
    return model


def _make_network(model: SinglePositiveClassifier, method: Method, fine_tuned: bool) -> tuple[nn.Module, int]:
    """The network before the head, without its weights, and how many features it gives."""
    if model.pictures_ is None:
        backbone = make_backbone(model.network, model.n_features_in_, len(model.classes_), model.hidden)
        return backbone, n_outputs(backbone, torch.zeros(2, model.n_features_in_))
    backbone, _, _ = make_image_backbone(model.network, maps=method.maps)
    n_features = n_image_features(backbone, model.pictures_.size, method.maps)
    if fine_tuned:
        return backbone, n_features
    model.extractor_ = backbone
    return nn.Identity(), n_features


def _picture_facts(model: SinglePositiveClassifier) -> dict[str, Any]:
    pictures = model.pictures_
    assert pictures is not None
    return {
        "size": pictures.size,
        "mean": list(pictures.normalisation.mean),
        "deviation": list(pictures.normalisation.deviation),
        "weights_sha256": pictures.weights_sha256,
        "fine_tuned": model.extractor_ is None,
    }


def _read_picture_facts(facts: dict[str, Any] | None) -> PictureInput | None:
    if facts is None:
        return None
    if not (isinstance(facts["size"], int) and SMALLEST <= facts["size"] <= LARGEST):
        raise KeyError(f"the size of pictures is {facts['size']!r}")
    normalisation = as_normalisation((facts["mean"], facts["deviation"]))
    return PictureInput(facts["size"], normalisation, facts["weights_sha256"])


def _make_method(facts: dict[str, Any], given: Method | None) -> Method:
    """A method of the table, made anew from its class and parameters, or the user's own."""
    if given is not None:
        return type(given)(**given.get_params())
    classes = {_class_name(factory()): type(factory()) for factory in METHODS.values()}
    if facts["class"] not in classes:
        raise ValueError(
            f"this model was fitted with a method of your own, {facts['class']}; pass it again: load(folder, method=…)."
        )
    made: Method = classes[facts["class"]](**facts["parameters"])
    return made


def _class_name(method: Method) -> str:
    """The bare name of a class of the library, the full one of anybody else's: two may be called alike."""
    kind = type(method)
    return kind.__name__ if kind.__module__.startswith("onepos.methods.") else f"{kind.__module__}.{kind.__qualname__}"


def _check_sizes(model: SinglePositiveClassifier) -> None:
    """Every list about the labels must have one entry per label, and so for the features."""
    c = len(model.classes_)
    sizes = {
        "classes": len(set(model.classes_.tolist())) == c,
        "class_prior": model.class_prior_.shape == (c,),
        "class_prior_interval": model.class_prior_interval_.shape == (c, 2),
        "thresholds": model.thresholds_.shape == (c,),
    }
    if model.pictures_ is None:
        d = model.n_features_in_
        sizes["feature_names"] = len(getattr(model, "feature_names_in_", range(d))) == d
    for name, fits in sizes.items():
        if not fits:
            raise KeyError(f"{name} has the wrong size")


def _parameters(model: SinglePositiveClassifier) -> dict[str, Any]:
    """The constructor's parameters but for the method; a network of the user's own is written as null."""
    parameters = model.get_params(deep=False)
    del parameters["method"]
    if isinstance(parameters["network"], nn.Module):
        parameters["network"] = None
    if not isinstance(parameters["random_state"], int | None):
        parameters["random_state"] = None
    return _plain(parameters)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers and arrays of NumPy and torch as numbers and lists, paths as text."""
    return {
        key: value.tolist()
        if isinstance(value, np.generic | np.ndarray | torch.Tensor)
        else os.fspath(value)
        if isinstance(value, os.PathLike)
        else value
        for key, value in values.items()
    }


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: null in its place."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and np.isnan(value) else value


def _with_nulls(values: Any) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]
