"""The options that several commands share, alone and in groups.

None stands for the library's default; the help text names it, and a test compares the two.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer


class Draw(StrEnum):
    """How to hide all but one positive label of each row."""

    uniform = "uniform"
    frequency = "frequency"
    cole = "cole"


class Estimator(StrEnum):
    """How class priors are estimated; the names of `onepos.priors.ESTIMATORS`, which would import torch."""

    bbe = "bbe"
    bracket = "bracket"


DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file (.csv .tsv .parquet .npz .arff .mat), the name of a data set, or images: a folder with a folder "
        "per class, a table with the columns path and label, or voc:FOLDER, coco:FOLDER, nuswide:FOLDER, cub:FOLDER. "
        "DATA:train, DATA:val and DATA:test select a part of the split that comes with the data (where it has no val "
        "part, a tenth of the training rows), or else of a seeded 80/10/10 split.",
    ),
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder written by `onepos fit`.")]
Label = Annotated[str | None, typer.Option(help="The column that holds the label.")]
Separator = Annotated[str | None, typer.Option(help="The text between several labels of one cell, such as ';'.")]
LabelColumns = Annotated[
    str | None, typer.Option(help="0/1 label columns, separated by commas, or a pattern such as 'tag_*'.")
]
Image = Annotated[
    str | None, typer.Option(help="The column that holds paths of images [default: path, if it holds some].")
]
Drop = Annotated[str | None, typer.Option(help="Columns that are not features, separated by commas; or a pattern.")]
DataRoot = Annotated[
    Path | None, typer.Option(help="Folder of the data sets [default: $ONEPOS_DATA or ~/.cache/onepos].")
]
SplitSeed = Annotated[int, typer.Option(help="Seed of the split behind :train, :val and :test.")]
DrawHow = Annotated[
    Draw | None, typer.Option(help="Fully labelled data: keep one positive label per row, drawn in this way.")
]
DrawFile = Annotated[Path | None, typer.Option(help="Fully labelled data: keep the labels that this draw file lists.")]
SaveDraw = Annotated[Path | None, typer.Option(help="Write the draw to this file.")]
Method = Annotated[str, typer.Option(help="The training method; `onepos list methods` shows all.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method; repeatable.")
]
RecipeOf = Annotated[
    str | None,
    typer.Option("--recipe", metavar="DATASET", help="Use the published settings of the method for this data set."),
]
Threshold = Annotated[
    str | None,
    typer.Option(
        help="Predict a label above this probability; 'prior' chooses one per label so that it is predicted as often "
        "as its estimated share [default: 0.5]."
    ),
]
Network = Annotated[
    str | None,
    typer.Option(
        help="For rows mlp, linear or bottleneck [default: mlp]; for images efficientnet-lite0, resnet18, resnet34, "
        "resnet50 or resnet101 [default: efficientnet-lite0]."
    ),
]
Weights = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="Images: a weight file (.pth, .pt, .safetensors), pretrained, or none [default: pretrained].",
        show_default=False,
    ),
]
Size = Annotated[
    int | None, typer.Option(help="Images: side in pixels to which they are scaled [default: the network's].")
]
FineTune = Annotated[
    bool, typer.Option("--fine-tune", help="Images: train the whole network, not only its last layer; slow on a CPU.")
]
Workers = Annotated[int, typer.Option(min=0, help="Images: processes that decode them.")]
SkipBroken = Annotated[
    bool, typer.Option("--skip-broken", help="Images: leave out files that cannot be read, and list them.")
]
Cache = Annotated[Path | None, typer.Option(help="Images: a folder that keeps their features for the next command.")]
Hidden = Annotated[
    str | None, typer.Option(help="Widths of the hidden layers of mlp, separated by commas [default: 256].")
]
Epochs = Annotated[int | None, typer.Option(min=1, help="Passes over the training rows [default: 20].")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Rows per training step [default: 32].")]
Rate = Annotated[float | None, typer.Option(help="Learning rate of Adam [default: 0.001].")]
Decay = Annotated[float | None, typer.Option(help="L2 penalty of Adam [default: 0.0].")]
Scale = Annotated[
    str | None,
    typer.Option(help="standard: features get mean 0 and variance 1; none: as they are [default: standard]."),
]
Positives = Annotated[
    str | None,
    typer.Option(
        help="single: every row must hold exactly one label; any: a row may hold none or several [default: single]."
    ),
]
ValidationData = Annotated[
    str | None, typer.Option("--validation", metavar="DATA", help="Rows that decide which epoch is kept.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps [default: auto].")]
Precision = Annotated[str | None, typer.Option(help="32 or bf16, which is faster on a GPU [default: 32].")]
Checkpoint = Annotated[
    Path | None, typer.Option(help="A file written after each epoch; the same command continues from it.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no table.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@dataclass(frozen=True)
class InputOptions:
    """Which columns hold the inputs of a fitted model, and which part of the data is meant."""

    image: Image = None
    drop: Drop = None
    split_seed: SplitSeed = 0
    data_root: DataRoot = None


@dataclass(frozen=True)
class RowOptions:
    """Which columns hold labels and inputs, and which part of the data is meant."""

    label: Label = None
    separator: Separator = None
    label_columns: LabelColumns = None
    image: Image = None
    drop: Drop = None
    split_seed: SplitSeed = 0
    data_root: DataRoot = None


@dataclass(frozen=True)
class DrawOptions:
    """Which of the labels of fully labelled rows are observed."""

    draw: DrawHow = None
    draw_file: DrawFile = None
    save_draw: SaveDraw = None


@dataclass(frozen=True)
class ImageOptions:
    """How images are read."""

    workers: Workers = 2
    skip_broken: SkipBroken = False
    cache: Cache = None

    def parameters(self) -> dict[str, Any]:
        """The same as parameters of a classifier of images."""
        return {"workers": self.workers, "on_error": "skip" if self.skip_broken else "raise", "cache": self.cache}


@dataclass(frozen=True)
class TrainOptions:
    """Parameters of a classifier; None leaves the classifier's default."""

    hidden: Hidden = None
    epochs: Epochs = None
    batch_size: BatchSize = None
    lr: Rate = None
    weight_decay: Decay = None
    scale: Scale = None
    positives: Positives = None
    threshold: Threshold = None
    device: Device = None
    precision: Precision = None

    def parameters(self) -> dict[str, Any]:
        """The given ones by name."""
        from onepos.cli.inputs import parse_threshold, parse_widths

        given = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, parse in (("hidden", parse_widths), ("threshold", parse_threshold)):
            if given[name] is not None:
                given[name] = parse(given[name])
        return {name: value for name, value in given.items() if value is not None}


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: a parameter annotated with one of the classes above becomes its fields."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if is_dataclass(kind):
            groups[name] = kind
            kinds = get_type_hints(kind, include_extras=True)
            parameters += [
                inspect.Parameter(each.name, parameter.KEYWORD_ONLY, default=each.default, annotation=kinds[each.name])
                for each in fields(kind)
            ]
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=kind))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
