"""A fitted model on disk: `model.safetensors` (weights) and `model.json` (all else). No pickle, no code."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

import onepos
from onepos.files import write_atomically
from onepos.methods import METHODS
from onepos.methods.base import Method
from onepos.methods.reduction import Directions
from onepos.priors import DecisionCurve
from onepos.reading import cause_of, naming, parse_json, read_bytes
from onepos.tables.encoder import TableEncoder
from onepos.training.loop import History
from onepos.training.runtime import choose_device, narrow
from onepos.training.samples import Scaling
from onepos.validation import without_nan

if TYPE_CHECKING:
    from onepos.estimator import SinglePositiveClassifier

FORMAT = 1
_CLASSES = {"rows": "SinglePositiveClassifier", "images": "SinglePositiveImageClassifier"}
_WEIGHTS, _FACTS = "model.safetensors", "model.json"
_CURVE, _TABLES, _DIRECTIONS = "decisions.", "tables.", "directions."  # before the names of their tensors
# Parameters that belong to the machine of the fit: a folder from elsewhere must not make this one write to a path.
_OF_THE_MACHINE: dict[str, Any] = {"cache": None, "workers": 0}
_AGAIN = "If an earlier version of onepos wrote it, fit the model again; otherwise save it again."
_NEXT = ".{}.next"  # a file that is written and not yet in its place


def save_model(model: SinglePositiveClassifier, folder: str | os.PathLike[str]) -> None:
    """Write both files beside those of an earlier model, then put them in their place.

    A full disk or a kill leaves the old model or the new one: where only the weights are in place, `load_model` finds
    the new facts beside them.
    """
    from safetensors.torch import save

    folder = Path(folder)
    tensors = {
        f"{part}.{name}": narrow(tensor).cpu().contiguous()
        for part, module in model._parts().items()
        for name, tensor in module.state_dict().items()
    }
    if model.scaling_ is not None:
        tensors["scaling.mean"] = torch.from_numpy(model.scaling_.mean)
        tensors["scaling.scale"] = torch.from_numpy(model.scaling_.scale)
        tensors["scaling.limit"] = torch.tensor(model.scaling_.limit, dtype=torch.float64)
    if model.directions_ is not None:
        parts = model.directions_._replace(axes=model.directions_.axes.astype(np.float16))._asdict()
        tensors |= {f"{_DIRECTIONS}{name}": torch.from_numpy(part) for name, part in parts.items()}
    tensors |= {f"{_CURVE}{name}": torch.as_tensor(values) for name, values in model.decision_curve_._asdict().items()}
    encoder_facts, arrays = _encoder_state(model)
    tensors |= {f"{_TABLES}{name}": torch.tensor(array) for name, array in arrays.items()}
    weights = save(tensors)
    facts = {
        "format": FORMAT,
        "onepos": onepos.__version__,
        "kind": model.kind,
        "sha256": hashlib.sha256(weights).hexdigest(),
        "parameters": _parameters(model),
        "method": {"class": _class_name(model.method_), "parameters": model.method_.get_params()},
        "classes": model.classes_.tolist(),
        **model._facts(),
        **encoder_facts,
        "class_prior": without_nan(model.class_prior_.tolist()),
        "class_prior_interval": without_nan(model.class_prior_interval_.tolist()),
        "thresholds": model.thresholds_.tolist(),
        "min_labels": model.min_labels_,
        "history": without_nan(asdict(model.history_)),
    }
    text = json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False, default=_as_json)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        contents = {_WEIGHTS: weights, _FACTS: (text + "\n").encode()}
        waiting = {name: folder / _NEXT.format(name) for name in contents}
        try:
            for name, content in contents.items():
                write_atomically(waiting[name], content)
        except BaseException:
            for path in waiting.values():
                path.unlink(missing_ok=True)
            raise
        for name, path in waiting.items():
            path.replace(folder / name)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time writes to a folder, where the system has such locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def load_model(
    cls: type[SinglePositiveClassifier],
    folder: str | os.PathLike[str],
    network: nn.Module | None,
    method: Method | None,
) -> SinglePositiveClassifier:
    """Read both files, or raise a sentence on why they are refused.

    The model is of class `cls` where that takes what the model was fitted to, and otherwise of the class that does.
    """
    folder = Path(folder)
    path = folder / _WEIGHTS
    with naming(folder, _AGAIN):
        weights = read_bytes(path) if path.exists() else b""
        checksum = hashlib.sha256(weights).hexdigest()
        facts = _read_facts(folder, checksum)
        tensors = _read_weights(path, weights, checksum, str(facts["sha256"]))
        try:
            if facts["kind"] != cls.kind:
                cls = getattr(onepos, _CLASSES[facts["kind"]])
            return _rebuild(cls, facts, tensors, network, method)
        except (KeyError, TypeError, AttributeError, RuntimeError, OverflowError, MemoryError) as error:
            found = cause_of(error)
            raise ValueError(
                f"{folder} must hold a model written by onepos; its parts do not fit together ({found}). {_AGAIN}"
            ) from error


def read_columns(folder: str | os.PathLike[str]) -> tuple[list[str] | None, bool | None]:
    """The columns of a table that a model takes, and whether it takes raw cells; without loading its weights."""
    facts = _parse_facts(Path(folder) / _FACTS)
    names = facts.get("feature_names")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ValueError(f"{folder} must name its columns as texts in {_FACTS}; it does not. Save the model again.")
    return names, facts.get("table_encoder") is not None


def _read_facts(folder: Path, checksum: str) -> dict[str, Any]:
    """The facts about the weights with this checksum: those in place, or those that a kill left beside them."""
    waiting = folder / _NEXT.format(_FACTS)
    if waiting.is_file():
        facts = _parse_facts(waiting)
        if facts["sha256"] == checksum:
            return facts
    return _parse_facts(folder / _FACTS)


def _parse_facts(path: Path) -> dict[str, Any]:
    folder = path.parent
    if not path.exists():
        raise FileNotFoundError(
            f"{folder} must hold {_FACTS}; there is none. Name a folder written by save() or `onepos fit`."
        )
    try:
        facts = parse_json(read_bytes(path), path)
        version = int(facts["format"])
        _ = facts["sha256"], facts["onepos"]
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(
            f"{path} must be a model file of onepos; it can not be read ({cause_of(error)}). Save the model again."
        ) from error
    if version != FORMAT:
        raise ValueError(
            f"{path} must be of format {FORMAT}; it is of format {version}, written by an unreleased version of onepos "
            f"({facts['onepos']}): fit the model again."
        )
    return dict(facts)


def _read_weights(path: Path, weights: bytes, found: str, expected: str) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    if not path.exists():
        raise FileNotFoundError(f"{path.parent} must hold {_WEIGHTS}; there is none. Copy the whole folder.")
    if found != expected:
        raise ValueError(
            f"{path} must have the checksum written in {_FACTS}, {expected[:12]}…; it has {found[:12]}…. "
            "The file is damaged or from another model: copy the folder again."
        )
    try:
        tensors = dict(load(weights))
        # A curve of decisions and the arrays of an encoder may hold infinity and NaN, weights may not.
        for name, tensor in tensors.items():
            if not name.startswith((_CURVE, _TABLES)) and tensor.is_floating_point():
                _check_finite(path, name, tensor)
        return tensors
    except SafetensorError as error:
        raise ValueError(f"{path} must be a safetensors file; it is not ({error}). Save the model again.") from error


def _check_finite(path: Path, name: str, tensor: torch.Tensor) -> None:
    is_limit = name == "scaling.limit"  # infinite where features are not cut
    if bool(tensor.isnan().any() if is_limit else not tensor.isfinite().all()):
        raise ValueError(f"{path} must hold finite weights; those of {name} are not. Copy the folder again.")


def _rebuild(
    cls: type[SinglePositiveClassifier],
    facts: dict[str, Any],
    tensors: dict[str, torch.Tensor],
    network: nn.Module | None,
    method: Method | None,
) -> SinglePositiveClassifier:
    parameters = dict(facts["parameters"])
    if parameters["network"] is None:
        if network is None:
            raise ValueError("this model has a network of your own; pass it again: load(folder, network=…).")
        parameters["network"] = network
    parameters["hidden"], parameters["device"] = tuple(parameters["hidden"]), _device_here(parameters["device"])
    parameters |= {name: value for name, value in _OF_THE_MACHINE.items() if name in parameters}
    model = cls(_make_method(facts["method"], method), **parameters)
    model.classes_, c = np.array(facts["classes"]), len(facts["classes"])
    if len(set(facts["classes"])) != c:
        raise KeyError("classes must differ from each other")
    model.class_prior_ = _read_numbers(facts, "class_prior", c)
    model.class_prior_interval_ = _read_numbers(facts, "class_prior_interval", c, 2)
    model.thresholds_, model.min_labels_ = _read_numbers(facts, "thresholds", c), int(facts["min_labels"])
    model.decision_curve_ = _read_curve({name: tensors.pop(f"{_CURVE}{name}") for name in DecisionCurve._fields}, c)
    model.history_ = _read_history(facts)
    model.scaling_ = None
    if any(name.startswith("scaling.") for name in tensors):
        mean, scale, limit = (tensors.pop(f"scaling.{name}") for name in Scaling._fields)
        model.scaling_ = Scaling(mean.numpy(), scale.numpy(), float(limit))
    _restore_encoder(model, facts, tensors)
    _restore_directions(model, facts, tensors)
    if method is None and network is None:
        with torch.device("meta"):  # where a network of any size takes no memory
            _check_shapes(model, facts, tensors)
    fitted = _make_method(facts["method"], method)
    backbone, n_features = model._restore(facts, fitted)
    fitted.head = fitted.make_head(n_features, c)
    of_network = {key.removeprefix("network."): t for key, t in tensors.items() if key.startswith("network.")}
    model.method_, model.network_ = fitted, fitted.rebuild(backbone, of_network)
    for name, part in model._parts().items():
        mine = [key for key in tensors if key.startswith(f"{name}.")]
        part.load_state_dict({key.removeprefix(f"{name}."): tensors.pop(key) for key in mine})
        part.eval()
    model.network_ = model._settle(model.network_)
    if tensors:
        raise KeyError(f"{next(iter(tensors))} belongs to no part")
    return model


def _check_shapes(model: SinglePositiveClassifier, facts: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Refuse facts that name a network of other sizes than the weights, before it is made: it may be of any size."""
    if len(model.hidden) > max(1, len(tensors)):
        raise KeyError("there are more hidden layers than weights")
    method = _make_method(facts["method"], None)
    backbone, n_features = model._restore(facts, method)
    method.head = method.make_head(n_features, len(facts["classes"]))
    model.network_ = method.rebuild(backbone, {})
    for name, part in model._parts().items():
        for key, wanted in part.state_dict().items():
            found = tensors.get(f"{name}.{key}")
            if found is None or found.shape != wanted.shape:
                shape = "is missing" if found is None else f"is {tuple(found.shape)}"
                raise KeyError(f"{name}.{key} {shape}, for a network in which it is {tuple(wanted.shape)}")


def _encoder_state(model: SinglePositiveClassifier) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """The facts and arrays of the encoder of raw tables, where the model has one."""
    encoder = getattr(model, "encoder_", None)
    if encoder is None:
        return {}, {}
    facts, arrays = encoder.to_state()
    return {"table_encoder": facts}, arrays


def _restore_encoder(model: SinglePositiveClassifier, facts: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Give the model the encoder of its folder and take its tensors out of the others; a model may have none."""
    mine = [key for key in tensors if key.startswith(_TABLES)]
    arrays = {key.removeprefix(_TABLES): tensors.pop(key).numpy() for key in mine}
    if facts["kind"] != "rows":
        return
    stored = facts.get("table_encoder")
    model.encoder_ = None if stored is None else TableEncoder.from_state(stored, arrays)
    if model.tables is None:
        if model.encoder_ is None:
            raise KeyError("table_encoder")
        model.tables = TableEncoder(**model.encoder_.get_params())


def _restore_directions(
    model: SinglePositiveClassifier, facts: dict[str, Any], tensors: dict[str, torch.Tensor]
) -> None:
    """Give the model what its wide rows are reduced by, where it has that."""
    mine = {name: f"{_DIRECTIONS}{name}" for name in Directions._fields}
    if not tensors.keys() & set(mine.values()):
        return
    strong, weak, axes = (tensors.pop(key).numpy() for key in mine.values())
    found = Directions(strong, weak, axes.astype(np.float32))
    encoder = getattr(model, "encoder_", None)
    n_columns = int(facts["n_features"]) if encoder is None else encoder.n_outputs_
    columns = np.concatenate([found.strong, found.weak])
    is_fitting = found.axes.ndim == 2 and len(found.axes) == len(found.weak) and columns.dtype == np.int64
    if not is_fitting or not ((columns >= 0) & (columns < n_columns)).all():
        raise KeyError("the directions of wide rows have the wrong size")
    model.directions_ = found


def _device_here(name: str) -> str:
    """The device of the fit; "auto" where this machine has no such device."""
    try:
        choose_device(name)
    except ValueError:
        return "auto"
    return name


def _read_curve(tensors: dict[str, torch.Tensor], c: int) -> DecisionCurve:
    m = len(tensors["rank"])
    wanted = {"rank": (m,), "threshold": (m, c), "total": (m, c), "matched": (c,), "min_labels": ()}
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != wanted or not m:
        raise KeyError("the curve of the decisions has the wrong size")
    rank, threshold, total, matched = (tensors[name].numpy() for name in ("rank", "threshold", "total", "matched"))
    return DecisionCurve(rank, threshold, total, matched, int(tensors["min_labels"]))


def _read_numbers(facts: dict[str, Any], name: str, *shape: int) -> npt.NDArray[np.float64]:
    """A list about the labels; null stands for NaN."""
    try:
        values = np.array(facts[name], np.float64)
    except ValueError as error:
        raise KeyError(f"{name} must be numbers") from error
    if values.shape != shape:
        raise KeyError(f"{name} has the wrong size")
    return values


def _read_history(facts: dict[str, Any]) -> History:
    try:
        return History.read(facts["history"], has_gaps=True)
    except ValueError as error:
        raise KeyError(str(error)) from error


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


def _parameters(model: SinglePositiveClassifier) -> dict[str, Any]:
    """The constructor's parameters but for the method; null for what is the user's own, such as a network."""
    parameters: dict[str, Any] = model.get_params(deep=False)
    del parameters["method"]
    parameters |= {name: value for name, value in _OF_THE_MACHINE.items() if name in parameters}
    for name, kept in (("network", str), ("random_state", int), ("tables", str)):
        if name in parameters and not isinstance(parameters[name], kept):
            parameters[name] = None  # an encoder is stored once, fitted
    return parameters


def _as_json(value: Any) -> Any:
    """Numbers and arrays of NumPy and torch as numbers and lists, paths as text."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic | np.ndarray | torch.Tensor):
        return value.tolist()
    raise TypeError(f"a model folder holds numbers, text, lists and paths; got {value!r}.")
