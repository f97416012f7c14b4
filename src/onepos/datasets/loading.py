"""Loading a data set by its name."""

import os
from dataclasses import replace
from pathlib import Path

from onepos.datasets.dataset import Dataset
from onepos.datasets.features import read_pooled_features
from onepos.datasets.labels import suggest
from onepos.datasets.npz import read_npz
from onepos.datasets.scenes import digit_scenes
from onepos.datasets.sources import DATASETS, EMBEDDED


def data_root(root: str | Path | None = None) -> Path:
    """Return the data folder: the argument, else `$ONEPOS_DATA`, else `~/.cache/onepos`."""
    chosen = root or os.environ.get("ONEPOS_DATA") or Path.home() / ".cache" / "onepos"
    return Path(chosen).expanduser()


def load_dataset(name: str, root: str | Path | None = None) -> Dataset:
    """Load a data set by name; never touches the network.

    Args:
        name: "digit-scenes" (generated), a key of `DATASETS`, or any `<name>.npz` in `<root>/tabular`. Features of
            pictures are also read from their two files in `<root>/images`.
        root: Data folder, see `data_root`.

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
