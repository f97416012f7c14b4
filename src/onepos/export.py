"""A fitted model as one ONNX file: what `predict_proba` does, as a graph that runs without onepos and torch."""

from __future__ import annotations

import copy
import io
import json
import logging
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

import onepos
from onepos.estimator import SinglePositiveClassifier, to_probability
from onepos.files import replacing
from onepos.training.samples import Scaling

if TYPE_CHECKING:
    from onepos.images.classifier import SinglePositiveImageClassifier

# Of the operators; every release of onnxruntime since 2023 runs it.
_OPSET = 18


def export_onnx(model: SinglePositiveClassifier, file: str | os.PathLike[str]) -> None:
    """Write a fitted model as one ONNX file, for any program with an ONNX runtime.

    The graph does all that `predict_proba` does. Its input is `rows`, float64 (n, d), unscaled; of a model of images it
    is `images`, uint8 (n, size, size, 3), RGB. Its output is `probability`, float64 (n, c). The number of rows n is
    free. The file's metadata hold, under the key "onepos", a JSON object with the names of the labels, their
    thresholds and more; docs/deploy.md lists it.

    Args:
        model: A fitted SinglePositiveClassifier or SinglePositiveImageClassifier.
        file: The file to write; it is written completely or not at all.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from onepos import SinglePositiveClassifier, export_onnx
        >>> model = SinglePositiveClassifier("an", epochs=1).fit([[0.0], [1.0], [2.0]], ["cat", "dog", "cat"])
        >>> file = Path(tempfile.mkdtemp()) / "model.onnx"
        >>> export_onnx(model, file)
        >>> file.exists()
        True

    Raises:
        ImportError: A package is missing: pip install 'onepos[onnx]'.
        ValueError: The network is one that torch can not export, or the model was fitted to a raw table.
    """
    check_is_fitted(model)
    if getattr(model, "encoder_", None) is not None:
        raise ValueError(
            "a model for ONNX must take numbers; this one was fitted to a raw table, and an ONNX graph can not hold "
            "its encoder. Keep the model folder, or encode the table yourself (onepos.tables.TableEncoder), fit to the "
            "numbers with scale='none', and export that model."
        )
    for package in ("onnx", "onnxscript"):
        try:
            import_module(package)
        except ImportError:
            raise ImportError(
                f"export to ONNX needs {package}, which is not installed. Run: pip install 'onepos[onnx]'"
            ) from None
    with replacing(file) as handle:
        handle.write(_to_onnx(model))


def _to_onnx(model: SinglePositiveClassifier) -> bytes:
    import onnx
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    graph, name, probe = _make_graph(model)
    try:
        with _silence():
            shapes = ({0: torch.export.Dim("n")},)
            # First by itself: torch.onnx.export would fall back to a fixed number of rows where n can not be free.
            traced = torch.export.export(graph.cpu().eval(), (probe,), dynamic_shapes=shapes, strict=False)
            program = torch.onnx.export(
                traced,
                input_names=[name],
                output_names=["probability"],
                dynamic_shapes=shapes,
                opset_version=_OPSET,
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # the exporter's own, or whatever a network of the user's raises
        raise ValueError(
            "the network must be one that torch.onnx.export takes, for any number of rows; it failed "
            f"({_reason(error)}). Write it without branches on the values of tensors, without a fixed number of rows, "
            "and with operations that ONNX has; then fit again."
        ) from error
    assert program is not None
    ClearMetadataAndDocStringPass()(program.model)  # names of source files on this machine
    proto = program.model_proto
    onnx.helper.set_model_props(proto, {"onepos": json.dumps(_facts(model), ensure_ascii=False, allow_nan=False)})
    return bytes(proto.SerializeToString())


def _make_graph(model: SinglePositiveClassifier) -> tuple[nn.Module, str, Tensor]:
    """The module to export, the name of its input, and two inputs."""
    if model.kind == "rows":
        return _FromRows(model), "rows", torch.zeros(2, model.n_features_in_, dtype=torch.float64)
    size = model.images_.size
    return _FromImages(model), "images", torch.zeros(2, size, size, 3, dtype=torch.uint8)


class _FromRows(nn.Module):
    """Rows (n, d) in double precision → probabilities (n, c); the network itself runs in single precision."""

    mean: Tensor
    scale: Tensor
    strong: Tensor
    weak: Tensor
    axes: Tensor

    def __init__(self, model: SinglePositiveClassifier) -> None:
        super().__init__()
        scaling: Scaling | None = model.scaling_
        self.is_scaled = scaling is not None
        self.limit = math.inf if scaling is None else scaling.limit
        if scaling is not None:
            self.register_buffer("mean", torch.from_numpy(scaling.mean))
            self.register_buffer("scale", torch.from_numpy(scaling.scale))
        self.is_reduced = model.directions_ is not None
        if model.directions_ is not None:
            strong, weak, axes = map(torch.from_numpy, model.directions_)
            self.register_buffer("strong", strong)
            self.register_buffer("weak", weak)
            self.register_buffer("axes", axes)
        self.network = copy.deepcopy(model.network_).float()

    def forward(self, rows: Tensor) -> Tensor:
        if self.is_reduced:
            rows = torch.cat([rows[:, self.strong].float(), rows[:, self.weak].float() @ self.axes], 1)
        if self.is_scaled:
            rows = ((rows.double() - self.mean) / self.scale).clamp(-self.limit, self.limit)
        return to_probability(self.network(rows.float()).double())


class _FromImages(_FromRows):
    """Pixels (n, size, size, 3) in 8 bits → probabilities (n, c)."""

    def __init__(self, model: SinglePositiveImageClassifier) -> None:
        super().__init__(model)
        self.normalization = model.images_.normalization
        self.features = nn.Identity() if model.features_ is None else copy.deepcopy(model.features_.network_)

    def forward(self, images: Tensor) -> Tensor:
        from onepos.images.views import to_unit

        return super().forward(self.features(self.normalization(to_unit(images))))


def _facts(model: SinglePositiveClassifier) -> dict[str, Any]:
    """What a program needs to know beside the graph."""
    facts = model._facts()
    return {
        "version": onepos.__version__,
        "kind": model.kind,
        "labels": model.classes_.tolist(),
        "thresholds": model.thresholds_.tolist(),
        "min_labels": int(getattr(model, "min_labels_", 0)),
        "feature_names": facts.get("feature_names"),
        "image_size": facts["images"]["size"] if "images" in facts else None,
    }


@contextmanager
def _silence() -> Iterator[None]:
    """Without the exporter's remarks, which are not for a user of this library."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _reason(error: BaseException) -> str:
    """The first line of what went wrong; the exporter wraps it in pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
