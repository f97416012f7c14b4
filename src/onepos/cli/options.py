"""The options that several commands share, alone and in groups.

None stands for the library's default; the help text names it, and a test compares the two.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typer import Argument, Option

from onepos.reading import shorten

Draw = StrEnum("Draw", ["uniform", "frequency", "cole"])
"""How to hide all but one positive label of each row."""
Estimator = StrEnum("Estimator", ["bbe", "bracket"])
"""How class priors are estimated; the names of `onepos.priors.ESTIMATORS`, which would import torch."""
DataArgument = Annotated[
    str,
    Argument(
        metavar="DATA",
        help="A file (.csv .tsv .jsonl .parquet .npz .npy .arff .mat), the name of a data set, or images: a folder "
        "with a folder per class, a table with the columns path and label, or voc:FOLDER, coco:FOLDER, nuswide:FOLDER, "
        "cub:FOLDER. "
        "DATA:train, DATA:val and DATA:test select a part of the split that comes with the data (where it has no val "
        "part, a tenth of the training rows), or else of a seeded 80/10/10 split.",
    ),
]
ModelArgument = Annotated[Path, Argument(metavar="MODEL", help="A folder written by `onepos fit`.")]
DataRoot = Annotated[Path | None, Option(help="Folder of the data sets [default: $ONEPOS_DATA or ~/.cache/onepos].")]
Method = Annotated[str, Option(help="The training method; `onepos list methods` shows all.")]
Epochs = Annotated[
    int | None,
    Option(
        min=1, help="Passes over the training rows; auto is 20, and of crisp-plus on few rows up to 40 [default: auto]."
    ),
]
Positives = Annotated[
    str | None,
    Option(
        help="single: every row must hold exactly one label; any: a row may hold none or several [default: single]."
    ),
]
Seed = Annotated[int, Option(min=0, help="Seed of all random numbers.")]
Device = Annotated[str | None, Option(help="auto, cpu, cuda or mps [default: auto].")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print no progress and no table.")]
Json = Annotated[bool, Option("--json", help="Print the result as JSON.")]


@dataclass(frozen=True)
class InputOptions:
    """Which columns hold the inputs of a fitted model, and which part of the data is meant."""

    image: Annotated[str | None, Option(help="The column of paths of images [default: path, if it holds some].")] = None
    drop: Annotated[
        list[str] | None,
        Option(metavar="COLUMN", help="A column that is not a feature, several by commas, or a pattern; repeatable."),
    ] = None
    group: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="Rows with equal cells in this column, such as one patient or recording, are never split over "
            ":train, :val and :test, folds and held-out rows; it is not a feature.",
        ),
    ] = None
    split_seed: Annotated[int, Option(help="Seed of the split behind :train, :val and :test.")] = 0
    data_root: DataRoot = None


@dataclass(frozen=True)
class RowOptions(InputOptions):
    """Which columns hold labels and inputs, and which part of the data is meant."""

    label: Annotated[str | None, Option(help="The column that holds the label.")] = None
    separator: Annotated[str | None, Option(help="The text between several labels of one cell, such as ';'.")] = None
    label_columns: Annotated[
        str | None,
        Option(
            help="Label columns of 1 (yes), 0 and empty cells (unknown), by commas, or a pattern such as 'tag_*'. If "
            "some cell is empty, 0 is a known no; if none is, a label that is 0 may still be there."
        ),
    ] = None
    yes: Annotated[
        list[str] | None,
        Option(metavar="VALUE", help="A further word for yes in label columns and long tables; repeatable."),
    ] = None
    no: Annotated[
        list[str] | None,
        Option(metavar="VALUE", help="The same for no; such a cell is always a known no. --no 0: zeros are known."),
    ] = None
    unknown: Annotated[list[str] | None, Option(metavar="VALUE", help="The same for unknown.")] = None
    labels: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="A table with the labels, if DATA has none: its rows are those of DATA, or have the same --id. Or a "
            "long table with the columns item, label, value and perhaps source and time; item is the --id of DATA, "
            "or without it the number of the row, from 0. Or an export of Label Studio, JSON of COCO or LVIS, a saved "
            "data set of Hugging Face, with such items.",
        ),
    ] = None
    id_column: Annotated[
        str | None,
        Option("--id", metavar="COLUMN", help="The column that names the rows; it is not a feature."),
    ] = None


@dataclass(frozen=True)
class TableOptions:
    """What columns of a raw table are, where that is not found by itself."""

    text: Annotated[list[str] | None, Option(metavar="COLUMN", help="A column to read as text; repeatable.")] = None
    categorical: Annotated[
        list[str] | None,
        Option(metavar="COLUMN", help="A column to read as categories, such as codes; repeatable."),
    ] = None
    text_model: Annotated[
        str | None,
        Option(
            "--text-model", metavar="NAME", help="Sentence embeddings beside the n-grams of text: wordllama or minilm."
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether an option is given."""
        return bool(self.text or self.categorical or self.text_model)

    def parameters(self) -> dict[str, Any]:
        """The same as parameters of a classifier."""
        if not self.is_given:
            return {}
        from onepos.tables import TableEncoder

        text, categorical = tuple(self.text or ()), tuple(self.categorical or ())
        return {"tables": TableEncoder(text=text, categorical=categorical, text_model=self.text_model)}


@dataclass(frozen=True)
class DrawOptions:
    """Which of the labels of fully labelled rows are observed."""

    draw: Annotated[Draw | None, Option(help="Fully labelled data: keep one label per row, drawn in this way.")] = None
    draw_file: Annotated[Path | None, Option(help="Fully labelled data: keep the labels of this draw file.")] = None


@dataclass(frozen=True)
class NetworkOptions:
    """The network; for rows of numbers, only its name is used."""

    network: Annotated[
        str | None,
        Option(
            help="For rows mlp, wide, linear or bottleneck [default: mlp]; for images efficientnet-lite0, resnet18, "
            "resnet34, resnet50 or resnet101 [default: efficientnet-lite0]."
        ),
    ] = None
    weights: Annotated[
        str,
        Option(
            metavar="FILE",
            help="Images: a weight file (.pth, .pt, .safetensors), pretrained, or none [default: pretrained].",
            show_default=False,
        ),
    ] = "auto"
    size: Annotated[
        int | None, Option(help="Images: side in pixels to which they are scaled [default: the network's].")
    ] = None


@dataclass(frozen=True)
class ImageOptions:
    """How images are read."""

    workers: Annotated[int, Option(min=0, help="Images: processes that decode them.")] = 2
    skip_broken: Annotated[
        bool, Option("--skip-broken", help="Images: leave out files that cannot be read, and list them.")
    ] = False
    cache: Annotated[Path | None, Option(help="Images: a folder that keeps features for the next command.")] = None

    def parameters(self) -> dict[str, Any]:
        """The same as parameters of a classifier of images."""
        return {"workers": self.workers, "on_error": "skip" if self.skip_broken else "raise", "cache": self.cache}


@dataclass(frozen=True)
class DecisionOptions:
    """How probabilities become labels; by default as the model was fitted."""

    threshold: Annotated[
        str | None,
        Option(
            metavar="RULE",
            help="Predict a label above this probability, or by a rule: prior, f1, hamming or precision=0.9 "
            "[default: the rule given to `onepos fit`].",
        ),
    ] = None
    top_k: Annotated[
        int | None, Option("--top-k", metavar="K", min=1, help="Predict the K most probable labels of each row.")
    ] = None

    def parameters(self) -> dict[str, Any]:
        """The given ones by name, as `SinglePositiveClassifier.decide` takes them."""
        given = {"threshold": _parse_threshold(self.threshold), "top_k": self.top_k}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class TrainOptions:
    """Parameters of a classifier; None leaves the classifier's default."""

    hidden: Annotated[str | None, Option(help="Widths of the hidden layers of mlp, by commas [default: 512].")] = None
    epochs: Epochs = None
    early_stopping: Annotated[
        bool | None,
        Option(
            "--early-stopping/--no-early-stopping",
            help="Without --validation: find the number of epochs by rows held out, then train on all rows "
            "[default: early-stopping].",
        ),
    ] = None
    batch_size: Annotated[int | None, Option(min=1, help="Rows per training step [default: 32].")] = None
    lr: Annotated[float | None, Option(help="Learning rate of Adam [default: 0.001].")] = None
    weight_decay: Annotated[float | None, Option(help="L2 penalty of Adam [default: 0.0].")] = None
    scale: Annotated[
        str | None,
        Option(
            help="clipped: features get mean 0 and variance 1 and are cut at 5 standard deviations; standard: without "
            "the cut; none: as they are. Features of images are never cut [default: clipped]."
        ),
    ] = None
    positives: Positives = None
    threshold: Annotated[
        str | None,
        Option(
            help="How labels are predicted: 'prior', each as often as its estimated share; 'f1', for the best expected "
            "F1; 'hamming', above 0.5; 'precision=0.9', right in nine of ten cases; or above a number from 0 to 1 "
            "[default: prior]."
        ),
    ] = None
    device: Device = None
    precision: Annotated[str | None, Option(help="32 or bf16, which is faster on a GPU [default: 32].")] = None

    def parameters(self) -> dict[str, Any]:
        """The given ones by name."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if self.hidden is not None:
            given["hidden"] = _parse_widths(self.hidden)
        if self.threshold is not None:
            given["threshold"] = _parse_threshold(self.threshold)
        return given


def _parse_threshold(text: str | None) -> float | str | None:
    """A number, or a word, which the estimator checks."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _parse_widths(text: str) -> tuple[int, ...]:
    widths = [width.strip() for width in text.split(",") if width.strip()]
    if not all(width.isdecimal() and int(width) > 0 for width in widths):
        raise ValueError(f"--hidden takes whole widths by commas; got {text!r}. For example: --hidden 256,128")
    return tuple(map(int, widths))


_ABOUT_DATA = re.compile(
    r"(X|y|Y|Column|groups|observed|scores|labels?|an? (entry|label|row)|every (row|label|part|group)|row \d+|"
    r"the (data|labels|columns of Y))\b"
)


@contextmanager
def naming_data(data: str | None) -> Iterator[None]:
    """Put the name of the file before what is wrong with its rows: the library knows them as X and y."""
    try:
        yield
    except ValueError as error:
        name, text = Path(data or "").name, str(error)
        if not name or name in text or not _ABOUT_DATA.match(text):
            raise
        raise ValueError(shorten(f"{name}: {text}")) from error


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: a parameter annotated with one of the classes above becomes its fields."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if is_dataclass(kind):
            groups[name] = kind
            own_first = kind.__annotations__ | get_type_hints(kind, include_extras=True)
            parameters += [
                inspect.Parameter(option, parameter.KEYWORD_ONLY, default=getattr(kind, option), annotation=hint)
                for option, hint in own_first.items()
            ]
        else:
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=kind))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{option: given.pop(option) for option in get_type_hints(group)})
        with naming_data(given.get("data")):
            command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
