"""What a command is given → what the library takes: data by name or file, observed labels, parameters."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onepos.cli.image_inputs import PARTS, cut_part, list_images, names_images, read_image_rows

if TYPE_CHECKING:
    from onepos.datasets import Dataset
    from onepos.estimator import SinglePositiveClassifier
    from onepos.images.readers import ImageDataset


def read_rows(data: str, columns: dict[str, str | None], root: Path | None, split_seed: int) -> Dataset | ImageDataset:
    """A file, a folder of pictures, or a named data set; with `:part` behind it, one part of its split."""
    from onepos.datasets import load_dataset, read_dataset

    name, part = cut_part(data)
    _check_part(data)
    image = columns.get("image")
    if names_images(name, image):
        return read_image_rows(name, part, columns, split_seed)
    if image is not None:
        raise ValueError(f"--image names a column of paths in a table (.csv, .tsv); {name} is none. Leave it out.")
    options = _column_options(name, columns)
    if "/" in name and not Path(name).exists():
        raise FileNotFoundError(f"there is no file or folder {name}. Name one that is there, or a data set.")
    is_file = Path(name).suffix != "" or Path(name).exists()
    dataset = read_dataset(name, **options) if is_file else load_dataset(name, root)
    if columns.get("label") and not columns.get("separator"):
        _hint_at_separator(dataset.label_names)
        _hint_at_numbers(dataset.label_names, dataset.n_samples)
    return dataset.take(_parts(dataset, split_seed)[part]) if part else dataset


def _check_part(data: str) -> None:
    name, _, part = data.rpartition(":")
    if name and part not in PARTS and Path(name).exists() and not Path(data).exists():
        raise ValueError(f"what stands behind {name}: must be one of {', '.join(PARTS)}; it is '{part}'. Correct it.")


def _parts(dataset: Dataset, seed: int) -> dict[str, Any]:
    """The rows of each part: as they come with the data, where they do, and otherwise by the seed."""
    import numpy as np

    from onepos.protocol import train_val_test_split

    shipped = dict(dataset.splits or {})
    if not {"train", "test"} <= set(shipped):
        return train_val_test_split(dataset.Y, seed)._asdict()
    if "val" not in shipped:
        rows = np.random.default_rng(seed).permutation(shipped["train"])
        shipped["val"], shipped["train"] = (np.sort(each) for each in np.split(rows, [len(rows) // 10]))
    return shipped


def _hint_at_separator(names: Sequence[str]) -> None:
    """Where one label reads like a list of others."""
    known = set(names)
    for separator in ";|,":
        for name in names:
            if separator in name and known.intersection(each.strip() for each in name.split(separator)):
                warnings.warn(
                    f"'{name}' is taken for one label. If '{separator}' stands between labels of a row, add "
                    f"--separator '{separator}'.",
                    UserWarning,
                    stacklevel=2,
                )
                return


def _hint_at_numbers(names: Sequence[str], n_rows: int) -> None:
    """Where labels read like a measurement, which hardly ever has the same value twice."""
    numbers = [name for name in names if _is_fraction(name)]
    if 2 * len(numbers) > len(names) > n_rows / 4:
        warnings.warn(
            f"{n_rows} rows hold {len(names)} different labels, such as {numbers[0]}: each is taken for a label of its "
            "own. If this column holds measurements, name another one with --label.",
            UserWarning,
            stacklevel=2,
        )


def _is_fraction(text: str) -> bool:
    try:
        return float(text) % 1 != 0
    except ValueError:
        return False


def _column_options(name: str, columns: dict[str, str | None]) -> dict[str, Any]:
    """Which columns are labels, as the reader of this kind of file wants to hear it."""
    options: dict[str, Any] = {key: value for key, value in columns.items() if value}
    for key in ("label_columns", "drop"):
        if key in options:
            options[key] = options[key].split(",")
    kind = Path(name.removesuffix(".gz")).suffix
    if kind not in (".arff", ".mat"):
        return options
    labels = options.pop("label_columns", None)
    if options:
        raise ValueError(
            f"{kind} files name their labels themselves; --{next(iter(options))} is for tables. "
            "Leave it out, or give --label-columns."
        )
    return {} if labels is None else {"labels": labels if kind == ".arff" else labels[0]}


def observe(
    rows: Dataset | ImageDataset,
    draw: str | None,
    draw_file: Path | None,
    save_draw: Path | None,
    seed: int,
    positives: str,
) -> Any:
    """The observed labels: as they are where each row shows one, otherwise by the draw that was asked for."""
    from onepos.datasets import load_draw
    from onepos.datasets import save_draw as write_draw
    from onepos.protocol import draw_single_positive

    if save_draw is not None and draw is None:
        raise ValueError(
            "--save-draw writes what --draw drew; there is no --draw. Add --draw uniform, or leave it out."
        )
    if draw is not None and draw_file is not None:
        raise ValueError("--draw and --draw-file both name a draw; give one of them.")
    if draw_file is not None:
        return load_draw(draw_file, rows.Y)
    if draw is not None:
        observed = draw_single_positive(rows.Y, seed, how=str(draw))
        if save_draw is not None:
            write_draw(save_draw, observed, how=str(draw), seed=seed)
        return observed
    if rows.observed is not None:  # the data brings its own draw
        return rows.observed
    if positives == "single":
        _check_single(rows.Y.sum(1))
    return rows.Y


def _check_single(n_shown: Any) -> None:
    """Each row must show one label, as it stands."""
    for wrong, what, remedy in (
        (n_shown > 1, "several", "Hide all but one with --draw uniform, or take them all with --positives any."),
        (n_shown == 0, "none", "Label or remove such rows, or take them as they are with --positives any."),
    ):
        if wrong.any():
            raise ValueError(
                f"each row must show one positive label; {int(wrong.sum())} of {len(wrong)} show {what}, first row "
                f"{int(wrong.argmax())} (counted from 0). {remedy}"
            )


def as_inputs(rows: Dataset | ImageDataset, model: SinglePositiveClassifier | None = None) -> Any:
    """The features, with their names where there are any and the model wants them; the files of pictures."""
    import numpy as np
    import pandas as pd

    from onepos.images.readers import ImageDataset

    if isinstance(rows, ImageDataset):
        return rows.files
    wanted = None if model is None else getattr(model, "feature_names_in_", None)
    if rows.feature_names is None or rows.is_sparse or (model is not None and wanted is None):
        return rows.X
    frame = pd.DataFrame(np.asarray(rows.X), columns=list(rows.feature_names))
    if wanted is not None and set(wanted) <= set(frame.columns):
        return frame[list(wanted)]  # by name, whatever the order and whatever else there is
    return frame


def spread_labels(rows: Dataset | ImageDataset, names: list[str]) -> Any:
    """Y of `rows` with one column per name; a label that does not occur in `rows` is absent everywhere."""
    import numpy as np

    unknown = [name for name in rows.label_names if name not in names]
    if unknown:
        raise ValueError(
            f"every label must be one the model knows; {rows.name} holds {unknown[0]!r}. Drop or rename it."
        )
    Y = np.zeros((rows.n_samples, len(names)), np.uint8)
    Y[:, [names.index(name) for name in rows.label_names]] = rows.Y
    return Y


def read_inputs(
    model: SinglePositiveClassifier,
    data: str,
    drop: str | None,
    image: str | None,
    root: Path | None,
    split_seed: int,
) -> Any:
    """What to predict: the model's own columns of a table, the features of a data set, or files of pictures."""
    from onepos.datasets import read_features

    name, part = cut_part(data)
    if model.kind == "images":
        return list_images(name, part, image, split_seed)
    if Path(name).is_dir():
        raise ValueError(f"the model takes rows of numbers; {name} is a folder. Name a table or a data set.")
    kind = Path(name.removesuffix(".gz")).suffix
    if kind in ("", ".arff", ".mat"):
        return as_inputs(read_rows(data, {"drop": drop}, root, split_seed), model)
    import numpy as np
    import pandas as pd

    from onepos.protocol import train_val_test_split

    names = getattr(model, "feature_names_in_", None)
    X, found = read_features(
        name, columns=None if names is None else list(names), drop=drop.split(",") if drop else None
    )
    if part and kind == ".npz" and _holds_labels(name):
        return as_inputs(read_rows(data, {"drop": drop}, root, split_seed), model)
    if part:
        X = X[train_val_test_split(np.ones((X.shape[0], 1)), split_seed)._asdict()[part]]
    return pd.DataFrame(np.asarray(X), columns=list(found)) if names is not None and found is not None else X


def _holds_labels(name: str) -> bool:
    """Whether an NPZ file is a data set, with the split that may come with it, and not features alone."""
    import numpy as np

    with np.load(name) as archive:
        return "Y" in archive or "y" in archive


def parse_parameters(texts: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE, with VALUE as JSON where it is JSON (numbers, true, lists) and as text otherwise."""
    parsed: dict[str, Any] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes NAME=VALUE; got {text!r}. For example: --set lam=0.5")
        try:
            parsed[name] = json.loads(value)
        except json.JSONDecodeError:
            parsed[name] = value
    return parsed


def parse_threshold(text: str) -> float | str:
    """A number, or the word that the estimator will judge."""
    try:
        return float(text)
    except ValueError:
        return text


def parse_widths(text: str) -> tuple[int, ...]:
    """Widths by commas: "256,128"."""
    try:
        widths = tuple(int(width) for width in text.split(",") if width.strip())
    except ValueError:
        widths = (0,)
    if any(width < 1 for width in widths):
        raise ValueError(f"--hidden takes whole widths by commas; got {text!r}. For example: --hidden 256,128")
    return widths


def name_columns(
    label: str | None, separator: str | None, label_columns: str | None, drop: str | None, image: str | None
) -> dict[str, str | None]:
    """The options that say which columns hold what, as `read_rows` takes them."""
    return {"label": label, "separator": separator, "label_columns": label_columns, "drop": drop, "image": image}


def check_folder(path: Path) -> None:
    """Before any work: can the result be written there?"""
    if path.is_dir():
        raise IsADirectoryError(f"{path} must be a file, or not exist yet; it is a folder. Name a file in it.")
    folder = path.resolve().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise FileNotFoundError(f"{path} must lie in a folder that can be written to; {folder} is none. Make it first.")
