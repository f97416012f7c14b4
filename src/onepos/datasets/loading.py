"""Loading a data set by its name or from a file."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onepos.datasets.arff import read_arff
from onepos.datasets.dataset import Dataset, Features, check_features
from onepos.datasets.mat import read_mat
from onepos.datasets.npz import read_npz, read_npz_features, read_pooled_features
from onepos.datasets.scenes import digit_scenes
from onepos.datasets.sources import DATASETS, EMBEDDED
from onepos.datasets.table import TABLE_SUFFIXES, open_table, read_table
from onepos.validation import check_known, suggest

READERS: dict[str, Callable[..., Dataset]] = {
    ".arff": read_arff,
    ".arff.gz": read_arff,
    ".mat": read_mat,
    **dict.fromkeys(TABLE_SUFFIXES, read_table),
    ".npz": read_npz,
}


def data_root(root: str | Path | None = None) -> Path:
    """Return the data folder: the argument, else `$ONEPOS_DATA`, else `~/.cache/onepos`."""
    chosen = root or os.environ.get("ONEPOS_DATA") or Path.home() / ".cache" / "onepos"
    return Path(chosen).expanduser()


def load_dataset(name: str, root: str | Path | None = None) -> Dataset:
    """Load a data set by name; never touches the network.

    Args:
        name: "digit-scenes" (generated), a key of `DATASETS`, or any `<name>.npz` in `<root>/tabular`. Features of
            images are also read from their two files in `<root>/images`.
        root: Data folder, see `data_root`.

    Example:
        >>> from onepos import load_dataset
        >>> scenes = load_dataset("digit-scenes")
        >>> scenes.X.shape, scenes.label_names[:3]
        ((6000, 256), ('zero', 'one', 'two'))

    Raises:
        FileNotFoundError: When the data set is known but was not fetched yet.
        ValueError: When the name is unknown or the file is damaged.
    """
    if name == EMBEDDED:
        return digit_scenes()
    folder = data_root(root) / "tabular"
    path = folder / f"{name}.npz"
    source = DATASETS.get(name)
    if path.name == f"{name}.npz" and path.is_file():
        dataset = read_npz(path)
        return dataset.without_unlabelled() if source and source.drop_unlabelled else dataset
    if source is None:
        raise ValueError(f"unknown data set '{name}'; {suggest(name, _known_names(folder))}")
    if source.kind == "features":
        labels, features = (data_root(root) / "images" / file.name for file in source.files)
        if labels.is_file() and features.is_file():
            return replace(read_pooled_features(labels, features), name=name)
    extra = "" if source.files[0].url else f" --from FOLDER. {source.note}"
    raise FileNotFoundError(f"{name} is not in {folder}; run: onepos data get {name}{extra}")


def _known_names(folder: Path) -> list[str]:
    stored = {path.stem for path in folder.glob("*.npz")}
    return sorted(DATASETS.keys() | {name for name in stored if name.removesuffix("_X") not in stored - {name}})


def read_dataset(path: str | Path, **options: Any) -> Dataset:
    """Read a data set from a file; its suffix decides how.

    Args:
        path: `.arff`, `.mat`, `.csv`, `.tsv`, `.parquet` or `.npz`; the text formats also gzipped.
        **options: Passed to `read_arff`, `read_mat` or `read_table`.
    """
    return _find_reader(Path(path))(path, **options)


def read_features(
    path: str | Path, *, columns: Sequence[str] | None = None, drop: str | Sequence[str] | None = None
) -> tuple[Features, tuple[str, ...] | None]:
    """Read features alone, to predict for rows whose labels are unknown.

    Args:
        path: Any file `read_dataset` reads; tables and NPZ files need not hold labels.
        columns: The features wanted, in this order; all other columns are left out. By default every column.
        drop: Columns of a table to leave out, for example the label: names or patterns.

    Returns:
        The features, and their names where they are known.
    """
    path = Path(path)
    reader = _find_reader(path)
    if reader is read_table:
        return open_table(path).to_features(columns, drop)
    if reader is read_npz:
        X, names = read_npz_features(path)
    else:
        dataset = reader(path)
        X, names = dataset.X, dataset.feature_names
    return (X, names) if columns is None else _select_columns(path, X, names, columns)


def _find_reader(path: Path) -> Callable[..., Dataset]:
    for suffix, reader in READERS.items():
        if path.name.lower().endswith(suffix):
            return reader
    raise ValueError(f"{path.name} must end in one of {', '.join(READERS)}; it does not. Rename or convert the file.")


def _select_columns(
    path: Path, X: Features, names: tuple[str, ...] | None, columns: Sequence[str]
) -> tuple[Features, tuple[str, ...] | None]:
    """Keep the wanted columns, in the wanted order."""
    if names is not None:
        place = {name: j for j, name in enumerate(names)}
        check_known(columns, place, f"{path.name} has no column")
        return check_features(X[:, [place[name] for name in columns]]), tuple(columns)
    if X.shape[1] != len(columns):
        raise ValueError(
            f"{path.name} must hold {len(columns)} features; it holds {X.shape[1]} without names. "
            "Give the features the model was trained on."
        )
    return X, tuple(columns)
