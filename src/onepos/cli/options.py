"""What commands are asked with: the options that several of them share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Draw(StrEnum):
    """How to hide all but one positive of each row."""

    uniform = "uniform"
    frequency = "frequency"
    cole = "cole"


class Estimator(StrEnum):
    """How class priors are estimated; the names of `onepos.priors.ESTIMATORS`, which would bring torch."""

    bbe = "bbe"
    bracket = "bracket"


DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file (.csv .tsv .parquet .npz .arff .mat), the name of a data set, or pictures: a folder with a folder "
        "per class, a table with the columns path and label, or voc:FOLDER, coco:FOLDER, nuswide:FOLDER, cub:FOLDER. "
        "With :train, :val or :test behind it, that part of the split it brings (a tenth of the training rows for :val "
        "where it brings none), or of a seeded 80/10/10 one.",
    ),
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder written by `onepos fit`.")]
Label = Annotated[str | None, typer.Option(help="The column that holds the label.")]
Separator = Annotated[str | None, typer.Option(help="The label column holds several labels with this between them.")]
LabelColumns = Annotated[str | None, typer.Option(help="0/1 label columns, by commas, or a pattern such as 'tag_*'.")]
Image = Annotated[str | None, typer.Option(help="The column that holds paths of pictures [default: path, if it does].")]
Drop = Annotated[str | None, typer.Option(help="Columns that are no features, by commas.")]
DataRoot = Annotated[
    Path | None, typer.Option(help="Folder of the data sets [default: $ONEPOS_DATA or ~/.cache/onepos].")
]
SplitSeed = Annotated[int, typer.Option(help="Seed of the split behind :train, :val and :test.")]
DrawHow = Annotated[Draw | None, typer.Option(help="Fully labelled data: keep one positive per row, drawn like this.")]
DrawFile = Annotated[Path | None, typer.Option(help="Fully labelled data: keep the positives named in this draw file.")]
SaveDraw = Annotated[Path | None, typer.Option(help="Write the draw to this file.")]
Method = Annotated[str, typer.Option(help="See `onepos list methods`.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method; repeatable.")
]
RecipeOf = Annotated[
    str | None, typer.Option("--recipe", metavar="DATASET", help="The method's settings for this data set.")
]
Threshold = Annotated[
    str | None, typer.Option(help="A probability, or 'prior' to match the class priors [default: 0.5].")
]
Network = Annotated[
    str | None,
    typer.Option(
        help="For rows mlp, linear or bottleneck [default: mlp]; for pictures efficientnet-lite0, resnet18, resnet34, "
        "resnet50 or resnet101 [default: efficientnet-lite0]."
    ),
]
Weights = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="Pictures: a weight file (.pth, .pt, .safetensors), pretrained, or none [default: pretrained].",
        show_default=False,
    ),
]
Size = Annotated[
    int | None, typer.Option(help="Pictures: side in pixels to which they are scaled [default: the network's].")
]
FineTune = Annotated[
    bool, typer.Option("--fine-tune", help="Pictures: train the whole network, not only its last layer; slow on a CPU.")
]
Workers = Annotated[int, typer.Option(min=0, help="Pictures: processes that decode them.")]
SkipBroken = Annotated[
    bool, typer.Option("--skip-broken", help="Pictures: go on without files that can not be read, and list them.")
]
Cache = Annotated[Path | None, typer.Option(help="Pictures: a folder that keeps their features for the next command.")]
Hidden = Annotated[str, typer.Option(help="Widths of the hidden layers of mlp, by commas.")]
Epochs = Annotated[int, typer.Option(min=1)]
BatchSize = Annotated[int, typer.Option(min=1)]
Rate = Annotated[float, typer.Option(help="Learning rate of Adam.")]
Decay = Annotated[float, typer.Option(help="L2 weight of Adam.")]
Scale = Annotated[str, typer.Option(help="standard or none.")]
BiasInit = Annotated[str, typer.Option(help="frequency or zero: where the head's bias starts.")]
Positives = Annotated[str, typer.Option(help="single: exactly one positive per row; any: none or several are fine.")]
ValidationData = Annotated[
    str | None, typer.Option("--validation", metavar="DATA", help="Rows to choose the epoch by.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Precision = Annotated[str, typer.Option(help="32 or bf16.")]
Checkpoint = Annotated[Path | None, typer.Option(help="Written after each epoch; the same command goes on from it.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
