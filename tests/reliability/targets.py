"""What is fuzzed: each target makes whole files in a folder, and reads them."""

import gzip
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from server_requests import Server

SERVER = Server()
RNG = np.random.default_rng(0)
N = 14
X = RNG.normal(size=(N, 3)).round(3)
Y = (RNG.random((N, 2)) < 0.5).astype(np.uint8)
Y[:, 0] |= 1 - Y[:, 1]


@dataclass(frozen=True)
class Target:
    """A kind of input."""

    name: str
    make: Callable[[Path], Any]
    read: Callable[[Path], Any]
    is_input: Callable[[Path], bool] = lambda path: True
    mutate: Callable[..., bytes] | None = None
    after: Callable[[Path], Any] | None = None
    run: Callable[[int, int], tuple[str, str]] | None = None
    """Instead of files: makes and judges a case by its seed and number."""


TARGETS: dict[str, Target] = {}


def _add(name, make, read, **options):
    TARGETS[name] = Target(name, make, read, **options)


def _frame():
    frame = pd.DataFrame(X, columns=["a", "b", "width"])
    frame["color"] = ["red", "green", None, "blue"] * 3 + ["red", "blue"]
    frame["day"] = pd.date_range("2026-01-01", periods=N).astype(str)
    frame["on"] = [True, False] * (N // 2)
    return frame.assign(label=np.where(Y[:, 0], "cat", "dog"))


# tables


def _read_table_fully(path):
    from onepos.datasets import open_table

    table = open_table(path, text=["label"])
    return table.to_dataset(label="label", is_raw=None)


def _read_numbers(path):
    from onepos.datasets import read_dataset, read_features

    read_dataset(path, label="label", drop=["color", "day"])
    return read_features(path, drop=["color", "day", "label"])


def _only(folder, pattern="*"):
    return next(path for path in sorted(folder.glob(pattern)) if path.is_file())


def _table(name, write):
    _add(name, lambda folder: write(_frame(), folder / f"rows.{name}"), lambda folder: _read_table_fully(_only(folder)))
    _add(
        f"{name}, numbers",
        lambda folder: write(_frame(), folder / f"rows.{name}"),
        lambda folder: _read_numbers(_only(folder)),
    )


_table("csv", lambda frame, path: frame.to_csv(path, index=False))
_table("tsv", lambda frame, path: frame.to_csv(path, index=False, sep="\t"))
_table("csv.gz", lambda frame, path: path.write_bytes(gzip.compress(frame.to_csv(index=False).encode())))
_table("jsonl", lambda frame, path: path.write_text(frame.to_json(orient="records", lines=True)))
_table("parquet", lambda frame, path: frame.to_parquet(path))


# arrays


def _dataset(X=X):
    from onepos.datasets import Dataset

    splits = {"train": np.arange(8), "val": np.arange(8, 11), "test": np.arange(11, N)}
    return Dataset("rows", X, Y, ("cat", "dog"), ("a", "b", "c"), splits=splits, observed=Y * (np.cumsum(Y, 1) == 1))


def _write_npz(X):
    def write(folder):
        from onepos.datasets import write_npz

        write_npz(_dataset(X), folder)

    return write


def _read_npz(folder):
    from onepos.datasets import read_dataset, read_features

    read_features(folder / "rows.npz")
    return read_dataset(folder / "rows.npz")


_add("npz", _write_npz(X), _read_npz)
_add("npz, sparse", _write_npz(sp.csr_array(np.where(X > 0, X, 0))), _read_npz)


def _read_vectors(folder):
    from onepos.datasets.embeddings import read_embeddings

    found = read_embeddings(_only(folder))
    return np.asarray(found.X).sum()


_add("npy", lambda folder: np.save(folder / "vectors.npy", X.astype(np.float32)), _read_vectors)
_add(
    "npz, vectors",
    lambda folder: np.savez(folder / "vectors.npz", X=X, ids=np.array([f"id{k}" for k in range(N)])),
    _read_vectors,
)
_add(
    "parquet, vectors",
    lambda folder: pd.DataFrame({"id": range(N), "v": list(X)}).to_parquet(folder / "vectors.parquet"),
    _read_vectors,
)


# ARFF


def _write_arff(folder):
    head = "@relation r\n@attribute 'a b' numeric\n@attribute b real\n@attribute c {red,'dark blue'}\n"
    head += "@attribute cat {0,1}\n@attribute dog {0,1}\n@data\n"
    rows = (
        f"{x[0]},{x[1]},{'red' if x[2] > 0 else chr(39) + 'dark blue' + chr(39)},{y[0]},{y[1]}\n"
        for x, y in zip(X, Y, strict=True)
    )
    (folder / "rows.arff").write_text(head + "".join(rows))
    (folder / "rows.xml").write_text(
        '<?xml version="1.0"?>\n<labels xmlns="http://mulan.sourceforge.net/labels">\n<label name="cat"></label>\n'
        '<label name="dog"></label>\n</labels>\n'
    )


def _write_sparse_arff(folder):
    head = "@relation 'r: -C -2'\n@attribute a numeric\n@attribute b real\n@attribute c numeric\n"
    head += "@attribute cat {0,1}\n@attribute dog {0,1}\n@data\n"
    rows = ("{" + ",".join(f"{j} {v}" for j, v in enumerate([*x, *y]) if v) + "}\n" for x, y in zip(X, Y, strict=True))
    (folder / "rows.arff").write_text(head + "".join(rows))


def _read_any(folder, pattern="rows.*"):
    from onepos.datasets import read_dataset

    return read_dataset(_only(folder, pattern))


_add("arff", _write_arff, lambda folder: _read_any(folder, "*.arff"))
_add("arff, sparse", _write_sparse_arff, lambda folder: _read_any(folder, "*.arff"))


# MATLAB


def _write_mat(**options):
    def write(folder):
        import scipy.io

        content = {"X": sp.csc_array(X), "Y": Y, "unused": np.arange(12.0).reshape(3, 4), "note": "text"}
        scipy.io.savemat(folder / "rows.mat", content, **options)

    return write


def _write_mat73(folder):
    import h5py

    with h5py.File(folder / "rows.mat", "w", userblock_size=512) as file:
        file.create_dataset("X", data=X.T, compression="gzip", chunks=(3, 5))
        file["Y"], file["unused"] = Y.T, np.arange(10.0)
    with (folder / "rows.mat").open("r+b") as handle:
        handle.write(b"MATLAB 7.3 MAT-file")


_add("mat 5", _write_mat(do_compression=True), _read_any)
_add("mat 5, plain", _write_mat(do_compression=False), _read_any)
_add("mat 7.3", _write_mat73, _read_any)


# images


def _picture(size=(12, 9), mode="RGB"):
    from PIL import Image

    pixels = np.random.default_rng(1).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def _write_images(folder):
    for suffix, mode in (
        ("jpg", "RGB"),
        ("png", "RGBA"),
        ("gif", "P"),
        ("bmp", "RGB"),
        ("webp", "RGB"),
        ("tif", "L"),
        ("ppm", "RGB"),
    ):
        _picture(mode=mode).save(folder / f"image.{suffix}")


def _read_images(folder):
    from onepos.images.samples import read_image

    for path in sorted(folder.iterdir()):
        read_image(path, 8)


_add("images", _write_images, _read_images)


def _write_image_table(folder):
    (folder / "photos").mkdir()
    names = [f"photos/{k}.png" for k in range(4)]
    for name in names:
        _picture().save(folder / name)
    pd.DataFrame({"path": names, "label": ["cat", "dog", "cat;dog", ""]}).to_csv(folder / "photos.csv", index=False)


def _read_image_table(folder):
    from onepos.images.readers import read_image_table
    from onepos.images.samples import read_image

    for separator in (None, ";"):
        data = read_image_table(folder / "photos.csv", separator=separator)
        for file in data.files:
            try:
                read_image(file, 8)
            except (ValueError, OSError) as error:
                if Path(file).parent != Path("/dev") or file not in str(error):  # it is named, and none of the folder's
                    raise


_add("image table", _write_image_table, _read_image_table)


def _write_voc(folder):
    lists = folder / "VOC2012" / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    for name, column in (("cat", 0), ("dog", 1)):
        for part, rows in (("train", range(8)), ("val", range(8, N))):
            lines = (f"2008_{row:06}  {1 if Y[row, column] else -1}\n" for row in rows)
            (lists / f"{name}_{part}.txt").write_text("".join(lines))


def _read_benchmark(name):
    def read(folder):
        from onepos.bench import image_sets

        return getattr(image_sets, f"read_{name}")(folder, strict=False, check_files=False)

    return read


def _write_voc_archive(folder):
    from PIL import Image

    with zipfile.ZipFile(folder / "images.zip", "w") as packed:
        for part in ("train", "val"):
            for k in range(3):
                out = io.BytesIO()
                Image.new("RGB", (4, 4)).save(out, "PNG")
                packed.writestr(f"{part}/{part}{k}.png", out.getvalue())
    names = {f"{part}_images": np.array([f"{part}{k}.png" for k in range(3)]) for part in ("train", "val")}
    np.savez(folder / "labels.npz", class_names=np.array(["dog", "cat"]), Y_train=Y[:3], Y_val=Y[3:6], **names)


def _read_voc_archive(folder):
    from onepos.bench.image_sets import read_voc_archive

    return read_voc_archive(folder / "labels.npz", [folder / "images.zip"], folder / "unpacked" / "images")


def _write_coco(folder):
    (folder / "annotations").mkdir()
    for part, rows in (("train2014", range(8)), ("val2014", range(8, N))):
        content = {
            "images": [{"id": row, "file_name": f"{row}.jpg", "width": 3} for row in rows],
            "categories": [{"id": 1, "name": "cat"}, {"id": 5, "name": "dog"}],
            "annotations": [
                {"id": 9, "image_id": row, "category_id": (1, 5)[k], "segmentation": [[1.0, 2.0]]}
                for row in rows
                for k in (0, 1)
                if Y[row, k]
            ],
        }
        (folder / "annotations" / f"instances_{part}.json").write_text(json.dumps(content))


def _write_nus_formatted(folder):
    for part, rows in (("train", range(8)), ("val", range(8, N))):
        np.save(folder / f"formatted_{part}_labels.npy", Y[list(rows)].astype(float))
        np.save(folder / f"formatted_{part}_images.npy", np.array([f"{row}.jpg" for row in rows]))


def _write_nus_original(folder):
    lists = folder / "Groundtruth" / "TrainTestLabels"
    lists.mkdir(parents=True)
    (folder / "ImageList").mkdir()
    (folder / "Concepts81.txt").write_text("cat\ndog\n")
    for part, rows in (("Train", range(8)), ("Test", range(8, N))):
        (folder / "ImageList" / f"{part}Imagelist.txt").write_text("".join(f"a\\{row}.jpg\n" for row in rows))
        for name, column in (("cat", 0), ("dog", 1)):
            (lists / f"Labels_{name}_{part}.txt").write_text("".join(f"{Y[row, column]}\n" for row in rows))


def _write_nus_list(folder):
    (folder / "train.txt").write_text("".join(f"a/{row}.jpg {Y[row, 0]} {Y[row, 1]}\n" for row in range(8)))
    lines = "".join(f"a/{row}.jpg {Y[row, 0]} {Y[row, 1]}\n" for row in range(8, N))
    (folder / "test.txt.gz").write_bytes(gzip.compress(lines.encode()))


def _write_cub(folder):
    (folder / "attributes").mkdir()
    (folder / "images.txt").write_text("".join(f"{row + 1} a/{row}.jpg\n" for row in range(N)))
    (folder / "attributes.txt").write_text("1 has_wings::red\n2 has_bill::blue\n")
    (folder / "train_test_split.txt").write_text("".join(f"{row + 1} {int(row < 8)}\n" for row in range(N)))
    lines = (f"{row + 1} {k + 1} {Y[row, k]} 3 1.5\n" for row in range(N) for k in (0, 1))
    (folder / "attributes" / "image_attribute_labels.txt").write_text("".join(lines))


_add("voc", _write_voc, _read_benchmark("voc"))
_add("voc, archive", _write_voc_archive, _read_voc_archive)
_add("coco", _write_coco, _read_benchmark("coco"))
_add("nus-wide, arrays", _write_nus_formatted, _read_benchmark("nuswide"))
_add("nus-wide, lists", _write_nus_original, _read_benchmark("nuswide"))
_add("nus-wide, list", _write_nus_list, _read_benchmark("nuswide"))
_add("cub", _write_cub, _read_benchmark("cub"))


def _cached(folder):
    """The pixels and features of four images, from the cache where it holds them."""
    import torch
    from torch import nn

    from onepos.images.features import ImageFeatures
    from onepos.images.samples import ImageFiles, pack_images

    files = [str(folder / "photos" / f"{k}.png") for k in range(4)]
    images = ImageFiles(files, 8, workers=0)
    pack_images(images, folder / "cache").rows(torch.arange(4))
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 2, 4, stride=4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return ImageFeatures(network, image_size=8, cache=folder / "cache").fit(files).transform(files)


def _write_cache(folder):
    _write_image_table(folder)
    (folder / "photos.csv").unlink()
    _cached(folder)


_add("image cache", _write_cache, _cached, is_input=lambda path: path.parent.name == "cache")


# labels in files of their own, draws


def _write_long(folder):
    pd.DataFrame({"id": [f"i{k}" for k in range(N)], "a": X[:, 0], "b": X[:, 1]}).to_csv(
        folder / "rows.csv", index=False
    )
    lines = [
        {
            "item": f"i{k}",
            "label": ("cat", "dog")[j],
            "value": int(Y[k, j]),
            "time": f"2026-01-01T00:{k:02}:00",
            "reason": "random",
        }
        for k in range(N)
        for j in (0, 1)
    ]
    pd.DataFrame(lines).to_csv(folder / "labels.csv", index=False)


def _read_long(folder):
    from onepos.cli.inputs import read_rows
    from onepos.cli.options import RowOptions

    return read_rows(str(folder / "rows.csv"), RowOptions(labels=folder / "labels.csv", id_column="id"))


def _write_draw(folder):
    from onepos.datasets import save_draw

    save_draw(folder / "draw.json", np.eye(2)[Y.argmax(1)], how="uniform", seed=0)


def _read_draw(folder):
    from onepos.datasets import load_draw

    return load_draw(folder / "draw.json", np.ones_like(Y))


_add("long labels", _write_long, _read_long)
_add("draw", _write_draw, _read_draw)


# model folders, checkpoints, weights


def _fit(X, **options):
    from onepos import SinglePositiveClassifier

    model = SinglePositiveClassifier("an", epochs=2, random_state=0, hidden=(4,), early_stopping=False)
    return model.fit(X, np.where(Y[:, 0], "cat", "dog"), **options)


def _write_model(X):
    def write(folder):
        _fit(X).save(folder / "model")

    return write


def _read_model(X):
    def read(folder):
        from onepos import SinglePositiveClassifier

        model = SinglePositiveClassifier.load(folder / "model")
        try:
            return model.predict(X)
        except ValueError as error:  # about the rows, which the damaged model does not suit
            raise ValueError(f"model: {error}") from error

    return read


def _renew_sha(folder):
    """The checksum of the damaged weights in the facts, as someone would write it who wants them read."""
    import hashlib

    path = folder / "model" / "model.json"
    try:
        facts = json.loads(path.read_bytes())
        facts["sha256"] = hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest()
        path.write_text(json.dumps(facts))
    except (ValueError, TypeError, OSError, RecursionError):
        return


_add("model folder", _write_model(X), _read_model(X), after=_renew_sha)
_RAW = _frame().drop(columns="label")
_add("model folder, tables", _write_model(_RAW), _read_model(_RAW), after=_renew_sha)


def _image_network():
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 2, 4, stride=4), nn.AdaptiveAvgPool2d(1), nn.Flatten())


_PIXELS = np.random.default_rng(2).integers(0, 255, (6, 8, 8, 3), dtype=np.uint8)


def _write_image_model(folder):
    from onepos import SinglePositiveImageClassifier

    model = SinglePositiveImageClassifier("an", network=_image_network(), image_size=8, epochs=1, random_state=0)
    model.fit(_PIXELS, ["cat", "dog"] * 3).save(folder / "model")


def _read_image_model(folder):
    from onepos import SinglePositiveImageClassifier

    model = SinglePositiveImageClassifier.load(folder / "model", network=_image_network())
    try:
        return model.predict(_PIXELS)
    except ValueError as error:
        raise ValueError(f"model: {error}") from error


_add("model folder, images", _write_image_model, _read_image_model, after=_renew_sha)


class _Stop(Exception):
    pass


def _write_checkpoint(folder):
    def stop(epoch, history):
        raise _Stop

    with suppress(_Stop):
        _fit(X, checkpoint=folder / "fit.ckpt", on_epoch=stop)


_EXPECTED: dict[str, Any] = {}


def _read_checkpoint(folder):
    try:
        return _fit(X, checkpoint=folder / "fit.ckpt").predict_proba(X)
    except ValueError as error:
        if "must be finite" in str(error):  # of huge weights behind a checksum that was made anew, which is believed
            raise ValueError(f"fit.ckpt: {error}") from error
        raise


_add("checkpoint", _write_checkpoint, _read_checkpoint)


def _network():
    from torch import nn

    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def _write_weights(kind):
    def write(folder):
        import torch
        from safetensors.torch import save_file

        state = _network().state_dict()
        save_file(state, folder / "weights.safetensors") if kind == "safetensors" else torch.save(
            state, folder / "weights.pth"
        )

    return write


def _read_weights(folder):
    from onepos.images.weights import load_weights

    return load_weights(_network(), _only(folder))


_add("weights, pth", _write_weights("pth"), _read_weights)
_add("weights, safetensors", _write_weights("safetensors"), _read_weights)


# studies and their results

STUDY = """
name = "tiny"
datasets = ["digit-scenes"]
methods = ["an", "wan"]
floor = "an"
oracle = "full"
networks = ["linear"]
seed = 0
recipes = false
scaling = "standard"
bias_init = "frequency"
split = "new"
draw = "new"
sampler = "grid"
epochs = 1
trials = 2

[selection]
metric = "average_precision"
labels = "full"

[threshold]
"*" = 0.5

[space]
lr = {values = [0.001]}
weight_decay = {values = [0.0]}
batch_size = {values = [32]}

[parameters.wan]
weight = 0.1
"""


def _write_study(folder):
    (folder / "tiny.toml").write_text(STUDY)


def _read_study(folder):
    from onepos.bench.study_file import read_studies

    return [study.runs() for study in read_studies(folder / "tiny.toml")[1].values()]


def _write_store(folder):
    from onepos.bench.store import Store
    from onepos.bench.study_file import read_study

    (folder / "tiny.toml").write_text(STUDY)
    study = read_study(folder / "tiny.toml")
    (folder / "tiny.toml").unlink()
    result = _EXPECTED.get("result") or _make_result(study)
    _EXPECTED["result"] = result
    store = Store(folder / "results")
    store.keep_study(study)
    for run in study.runs()[:-1]:
        store.save(run, result)
    store.skip(study.runs()[-1], "no reason")


def _make_result(study):
    """Of a real run, so that the harness follows the format."""
    from onepos.bench.run import make_result, make_trial, task_of
    from onepos.bench.stacking import train_many
    from onepos.datasets import load_dataset

    run = study.runs()[0]
    trial = make_trial(load_dataset("digit-scenes").take(np.arange(200)), run, "cpu")
    task = task_of(run, trial, "cpu")
    (trained,) = train_many([task], stack_size=1)
    timing = {
        "seconds_per_epoch": 0.1,
        "closing_seconds": 0.0,
        "seconds": 0.1,
        "stack": 1,
        "device": "CPU",
        "memory_bytes": 1,
    }
    return make_result(run, trial, task, trained, trace=False) | {"timing": timing}


def _read_store(folder):
    from onepos.report.study_page import write_report

    return write_report(folder / "results", folder / "report")


def _write_packed(folder):
    from onepos.bench.store import Store

    _write_store(folder)
    Store(folder / "results").pack(folder / "tiny.jsonl.gz")
    shutil.rmtree(folder / "results")


def _read_packed(folder):
    from onepos.bench.store import Store
    from onepos.report.study_page import write_report

    write_report(folder / "tiny.jsonl.gz", folder / "report")
    return Store(folder / "unpacked").unpack(folder / "tiny.jsonl.gz")


_add("study", _write_study, _read_study)
_add("results", _write_store, _read_store)
_add("packed results", _write_packed, _read_packed)


# the review server: its API and its file of answers


def _read_nothing(folder):
    raise NotImplementedError("requests are no files")


_add("server API", lambda folder: (folder / "none").touch(), _read_nothing, run=SERVER.run)


def _write_answers(folder):
    from onepos.server.store import Action, Store, add_action

    store = Store(folder / "answers.db")
    for k in range(30):
        action = Action(f"answer-{k:04}", f"row-{k}", "Ann", "session-1", (("cat", "yes", 0.5, 1),), "done")
        store.write(lambda connection, action=action: add_action(connection, action, store.now()))
    store.close()


def _read_answers(folder):
    from onepos.server.store import Store, all_answers, finished_items

    store = Store(folder / "answers.db")
    try:
        with store.read() as connection:
            return all_answers(connection), finished_items(connection)
    finally:
        store.close()


_add("answers", _write_answers, _read_answers)
