"""`onepos export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from onepos.cli import options
from onepos.cli.inputs import check_folder


def export(
    model: options.ModelArgument,
    onnx: Annotated[Path, Option("--onnx", metavar="FILE", help="The ONNX file to write.")],
    quiet: options.Quiet = False,
) -> None:
    """Write a model as one ONNX file, which other programs can run without onepos."""
    check_folder(onnx)

    from onepos.estimator import SinglePositiveClassifier
    from onepos.export import export_onnx
    from onepos.reading import naming

    fitted = SinglePositiveClassifier.load(model)
    with naming(model):
        export_onnx(fitted, onnx)
    if not quiet:
        side = fitted.images_.size if fitted.kind == "images" else 0
        taken = f"images, uint8 (n, {side}, {side}, 3)" if side else f"rows, float64 (n, {fitted.n_features_in_})"
        print(f"input: {taken}; output: probability, float64 (n, {len(fitted.classes_)})")
        print(f"written to {onnx}, {onnx.stat().st_size / 1e6:.1f} MB")
