"""NPZ: the layout onepos writes, plain archives that hold `X` and `y`, and pooled features of images.

`<name>.npz` holds `Y` (n × c, 0/1), `label_names`, and where known `train_idx`, `val_idx`, `test_idx`,
`feature_names`, `observed`, `image_shape`, `source`. Dense features are in the same file as `X`; sparse ones
in `<name>_X.npz` beside it, as `scipy.sparse.save_npz` writes them. Pickled content is never read.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from onepos.datasets.dataset import Dataset, Features, Rows, check_features
from onepos.datasets.files import check_file, naming
from onepos.files import replacing
from onepos.labels import binarize
from onepos.reading import check_size
from onepos.validation import Indicator, check_truth, one_hot, read_groups

PART_KEYS = {"train": "train_idx", "val": "val_idx", "test": "test_idx"}
TEXT_KEYS = ("y", "label_names", "feature_names", "source")
Arrays = Mapping[str, Any]


def read_npz(path: str | Path, **options: Any) -> Dataset:
    """Read a data set from an NPZ file; it has no columns to choose from, so every option is refused."""
    path = check_file(Path(path))
    if options:
        raise ValueError(
            f"{path.name} must hold its labels as Y or y; {', '.join(options)} is for tables with named columns. "
            "Leave it out."
        )
    arrays = _load_arrays(path)
    X = _find_features(path, arrays)
    with naming(path):
        marks, label_names = _find_labels(path, arrays)
        Y, known = check_truth(marks, "Y", columns=label_names)
        negative = arrays.get("known_negative") if known is None else known & (Y == 0)
        return Dataset(
            name=path.stem,
            X=X,
            Y=Y,
            label_names=label_names,
            feature_names=_names(arrays, "feature_names"),
            splits={part: arrays[key] for part, key in PART_KEYS.items() if key in arrays} or None,
            source=str(arrays["source"]) if "source" in arrays else path.name,
            image_shape=tuple(map(int, arrays["image_shape"])) if "image_shape" in arrays else None,
            observed=arrays.get("observed"),
            known_negative=negative,
            at_random=arrays.get("at_random"),
            groups=None if "groups" not in arrays else read_groups(arrays["groups"], len(Y)),
        )


def read_npz_features(path: Path) -> tuple[Features, tuple[str, ...] | None]:
    """Read only the features of an NPZ file: `X`, a sparse matrix, or the file beside it."""
    arrays = _load_arrays(check_file(path))
    X = _find_features(path, arrays)
    with naming(path):
        return check_features(X), _names(arrays, "feature_names")


def write_npz(dataset: Dataset, folder: str | Path) -> Path:
    """Write `<name>.npz` (and `<name>_X.npz` for sparse features) into a folder.

    Each file is written to a temporary name and renamed, the labels last: where `<name>.npz` exists, the
    data set is complete. Returns its path.
    """
    if Path(dataset.name).name != dataset.name:
        raise ValueError(f"the name must do as a file name; it is '{dataset.name}'. Rename the data set.")
    path = Path(folder) / f"{dataset.name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    sparse_path = _sparse_path(path)
    arrays: dict[str, Any] = {"Y": dataset.Y, "label_names": np.array(dataset.label_names, dtype=np.str_)}
    for part, rows in (dataset.splits or {}).items():
        arrays[f"{part}_idx"] = rows.astype(np.int32)
    for key in ("feature_names", "image_shape", "observed", "known_negative", "groups", "at_random", "source"):
        value = getattr(dataset, key)
        if value is not None and len(value):
            arrays[key] = np.array(value)
    if isinstance(dataset.X, sp.csr_array):
        with replacing(sparse_path) as handle:
            sp.save_npz(handle, dataset.X)
    else:
        arrays["X"] = dataset.X
    with replacing(path) as handle:
        np.savez_compressed(handle, **arrays)
    if not dataset.is_sparse:
        sparse_path.unlink(missing_ok=True)
    return path


def _sparse_path(path: Path) -> Path:
    return path.with_name(f"{path.stem}_X.npz")


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """The arrays of an NPZ file by name, each read when it is taken; pickles are refused, and arrays without end."""
    with naming(path):
        with check_file(path).open("rb") as handle:
            start = handle.read(4)
        if start not in (b"PK\x03\x04", b"PK\x05\x06"):
            found = "holds a single array" if start == b"\x93NUM" else "is of another kind"
            raise ValueError(f"{path.name} must be an NPZ archive; it {found}. Use numpy.savez.")
        with zipfile.ZipFile(path) as packed:
            check_size(path, sum(member.file_size for member in packed.infolist()))
        with np.load(path, allow_pickle=False) as archive:
            yield Archive(path, archive)


class Archive:
    """What is in an NPZ file."""

    def __init__(self, path: Path, archive: Any) -> None:
        self.path, self.files, self._archive = path, list(archive.files), archive

    def __contains__(self, key: str) -> bool:
        return key in self.files

    def __getitem__(self, key: str) -> npt.NDArray[Any]:
        if key not in self.files:
            held = ", ".join(self.files[:12]) or "nothing"
            raise ValueError(f"{self.path.name} must hold the array '{key}'; it holds {held}. Get the file again.")
        array = _load_array(self.path, self._archive, key)
        if not isinstance(array, np.ndarray):  # NumPy gives the bytes of what is no array
            raise ValueError(f"{self.path.name}: '{key}' must be an array; it is of another kind. Use numpy.savez.")
        return array


def _load_arrays(path: Path) -> dict[str, Any]:
    with open_archive(path) as archive:
        return {key: archive[key] for key in archive.files}


def _load_array(path: Path, archive: Any, key: str) -> Any:
    try:
        return archive[key]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        advice = "text as a str array: np.array(names, dtype=str)" if key in TEXT_KEYS else "numbers as a numeric array"
        raise ValueError(
            f"{path.name}: '{key}' must not be an object array; it is one, and pickles are never read. Store {advice}."
        ) from None


def _find_features(path: Path, arrays: Arrays) -> Any:
    if "X" in arrays:
        return arrays["X"]
    sparse_path = path if "indptr" in arrays else _sparse_path(path)
    if sparse_path.exists():
        with open_archive(sparse_path):
            matrix = sp.load_npz(sparse_path)
            check_size(sparse_path, 8 * max(matrix.shape))
            return matrix
    raise ValueError(
        f"{path.name} must hold features as X, or have {sparse_path.name} beside it; it holds "
        f"{', '.join(arrays) or 'nothing'}. Add the features."
    )


def _find_labels(path: Path, arrays: Arrays) -> tuple[Any, tuple[str, ...]]:
    key = "Y" if "Y" in arrays else "y"
    if key not in arrays:
        raise ValueError(
            f"{path.name} must hold labels as Y (0/1 matrix) or y (vector); it holds {', '.join(arrays)}. Add them."
        )
    labels = arrays[key]
    if labels.ndim == 1:
        if labels.dtype.kind == "f":
            if not (np.floor(labels) == labels).all():
                raise ValueError(
                    "y must name one label per row; it holds fractions or NaN. Give whole numbers or text."
                )
            labels = labels.astype(np.int64)
        return binarize(labels.astype(str))
    names = _names(arrays, "label_names")
    if names is None and labels.ndim == 2:
        names = tuple(f"label{column}" for column in range(labels.shape[1]))
    return labels, names or ()


def _names(arrays: Arrays, key: str) -> tuple[str, ...] | None:
    return tuple(arrays[key].astype(str).ravel().tolist()) if key in arrays else None


def read_pooled_features(labels: str | Path, features: str | Path) -> Dataset:
    """Read pooled features of the images of VOC 2012 or COCO 2014, with labels, published single positives and split.

    The labels of VOC are stored part by part (`Y_train`, `Y_val`); those of COCO are packed to bits, and the archive of
    features lists the rows it has (`train_rows`, `val_rows`). The rows of the official train part come first, then
    those of the official val part, which is the test part of all published results.

    Where some of the official rows have no features, the rule is applied to those that have: the split is then not the
    published one.

    Args:
        labels: Archive of all labels, of VOC or of COCO.
        features: Archive of features, `X_train` and `X_val`.
    """
    label_path, feature_path = check_file(Path(labels)), check_file(Path(features))
    with open_archive(feature_path) as archive:
        X = np.concatenate([archive["X_train"], archive["X_val"]]).astype(np.float32)
        n_official = len(archive["X_train"])
        rows = np.concatenate([archive["train_rows"], archive["val_rows"]]) if "train_rows" in archive else None
    with open_archive(label_path) as archive:
        Y, labels_observed, names = _voc(archive) if rows is None else _coco(archive, rows)
    train, val = cole_rows(n_official)
    with naming(feature_path):
        return Dataset(
            name=feature_path.stem,
            X=X,
            Y=Y,
            label_names=names,
            splits={"train": train, "val": val, "test": np.arange(n_official, len(Y))},
            source=feature_path.name,
            observed=one_hot(labels_observed, Y.shape[1]),
        )


def _voc(archive: Any) -> tuple[Indicator, Rows, tuple[str, ...]]:
    """Labels, the observed label of each row, and names, by the alphabet as in all published results."""
    names = archive["class_names"]
    order = np.argsort(names)
    Y = np.concatenate([archive["Y_train"], archive["Y_val"]])[:, order]
    observed = np.concatenate([archive["train_obs_idx"], archive["val_obs_idx"]])
    return Y, np.argsort(order)[observed], tuple(names[order].tolist())


def _coco(archive: Any, rows: Rows) -> tuple[Indicator, Rows, tuple[str, ...]]:
    """The same of some rows; the classes are in the order of the annotations, as in all published results."""
    names = tuple(archive["class_names"].tolist())
    Y = np.unpackbits(archive["Y_packed"][rows], axis=1)[:, : len(names)]
    return Y, archive["obs_idx"][rows].astype(np.intp), names


def cole_rows(n: int, seed: int = 1200, val_fraction: float = 0.2) -> tuple[Rows, Rows]:
    """Train and validation rows of the image benchmarks, see `onepos.protocol.cole_split`."""
    order = np.random.RandomState(seed).permutation(n)
    n_train = n - round(val_fraction * n)
    return np.sort(order[:n_train]), np.sort(order[n_train:])
