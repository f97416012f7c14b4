import gzip
import hashlib
import re
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from onepos.datasets import DATASETS, download, get_dataset, load_dataset
from onepos.datasets.npz import read_npz
from onepos.datasets.sources import RemoteFile

HEADER = (
    "@relation r\n@attribute f0 numeric\n@attribute f1 numeric\n@attribute cat {0,1}\n@attribute dog {0,1}\n@data\n"
)
FILES = {
    "toy-train.arff": (HEADER + "1,2,1,0\n3,4,0,1\n5,6,1,1\n").encode(),
    "toy-test.arff": (HEADER + "7,8,1,0\n").encode(),
    "toy.xml": b'<labels><label name="cat"/><label name="dog"/></labels>',
}


class Server:
    """A loopback web server that can misbehave: `cut` ends a response early, `status` refuses."""

    def __init__(self):
        self.files, self.requests = dict(FILES), []
        self.cut: dict[str, int] = {}
        self.status: dict[str, int] = {}
        self.has_ranges = True

    def answer(self, handler):
        name = handler.path.strip("/")
        asked = handler.headers.get("Range")
        self.requests.append((name, asked))
        if name in self.status:
            handler.send_error(self.status[name])
            return
        body, start = self.files[name], 0
        if asked and self.has_ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
            if start >= len(body):
                handler.send_error(416)
                return
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(body) - start))
        handler.end_headers()
        handler.wfile.write(body[start : self.cut.pop(name, len(body))])


@contextmanager
def _serving(server):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.answer(self)

        def log_message(self, *_):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}"
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def _toy_source(base):
    files = tuple(RemoteFile(name, f"{base}/{name}", hashlib.sha256(body).hexdigest()) for name, body in FILES.items())
    return replace(DATASETS["yeast"], n_samples=4, n_features=2, n_labels=2, files=files)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    server = Server()
    with _serving(server) as base:
        monkeypatch.setitem(DATASETS, "yeast", _toy_source(base))
        yield server


def test_downloads_reads_and_stores(server, tmp_path):
    seen = []
    path = get_dataset("yeast", root=tmp_path, progress=lambda *step: seen.append(step))
    assert path == tmp_path / "tabular" / "yeast.npz"
    data = load_dataset("yeast", tmp_path)
    np.testing.assert_array_equal(data.X, [[1, 2], [3, 4], [5, 6], [7, 8]])
    np.testing.assert_array_equal(data.Y, [[1, 0], [0, 1], [1, 1], [1, 0]])
    assert data.label_names == ("cat", "dog")
    assert {part: rows.tolist() for part, rows in data.splits.items()} == {"train": [0, 1, 2], "test": [3]}
    assert [name for name, _ in server.requests] == list(FILES)
    assert seen == [(name, len(body), len(body)) for name, body in FILES.items()]
    assert not list(tmp_path.rglob("*.part"))


def test_complete_cache_asks_nobody(server, tmp_path):
    get_dataset("yeast", root=tmp_path)
    server.requests.clear()
    get_dataset("yeast", root=tmp_path)
    assert server.requests == []


def test_damaged_cache_is_made_again_from_the_raw_files(server, tmp_path):
    path = get_dataset("yeast", root=tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    server.requests.clear()
    get_dataset("yeast", root=tmp_path)
    assert load_dataset("yeast", tmp_path).n_samples == 4
    assert server.requests == []


def test_wrong_checksum(server, tmp_path):
    server.files["toy-test.arff"] += b"9,9,1,1\n"
    with pytest.raises(
        ValueError, match=r"toy-test.arff has checksum [0-9a-f]{64}; expected [0-9a-f]{64}. The file at http"
    ):
        get_dataset("yeast", root=tmp_path)
    assert not (tmp_path / "tabular").exists()
    assert sorted(path.name for path in (tmp_path / "raw").iterdir()) == ["toy-train.arff"]


def test_interrupted_transfer_goes_on_where_it_stopped(server, tmp_path):
    server.cut["toy-train.arff"] = 50
    get_dataset("yeast", root=tmp_path)
    assert server.requests[:2] == [("toy-train.arff", None), ("toy-train.arff", "bytes=50-")]
    assert load_dataset("yeast", tmp_path).n_samples == 4


def test_part_of_an_earlier_process_is_used(server, tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "toy-train.arff.part").write_bytes(FILES["toy-train.arff"][:30])
    get_dataset("yeast", root=tmp_path)
    assert server.requests[0] == ("toy-train.arff", "bytes=30-")
    assert (tmp_path / "raw" / "toy-train.arff").read_bytes() == FILES["toy-train.arff"]


@pytest.mark.parametrize("part", [FILES["toy-train.arff"], b"x" * 30, b"x" * 10_000])
@pytest.mark.parametrize("has_ranges", [True, False])
def test_whole_wrong_or_too_long_part(server, tmp_path, part, has_ranges):
    server.has_ranges = has_ranges
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "toy-train.arff.part").write_bytes(part)
    get_dataset("yeast", root=tmp_path)
    assert (tmp_path / "raw" / "toy-train.arff").read_bytes() == FILES["toy-train.arff"]


def test_not_found_is_not_tried_again(server, tmp_path):
    server.status["toy-train.arff"] = 404
    with pytest.raises(
        ConnectionError, match=r"toy-train.arff could not be downloaded from http.*; HTTP Error 404.*--from"
    ):
        get_dataset("yeast", root=tmp_path)
    assert len(server.requests) == 1


def test_server_trouble_is_tried_again(server, tmp_path):
    server.status["toy-train.arff"] = 503
    with pytest.raises(ConnectionError, match="HTTP Error 503"):
        get_dataset("yeast", root=tmp_path)
    assert len(server.requests) == download.ATTEMPTS


def test_full_disk_is_not_blamed_on_the_network(server, tmp_path, monkeypatch):
    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download.os, "fsync", fail)
    with pytest.raises(OSError, match="No space left") as error:
        get_dataset("yeast", root=tmp_path)
    assert not isinstance(error.value, ConnectionError)
    assert len(server.requests) == 1


def test_nobody_there(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    with _serving(Server()) as base:
        pass
    monkeypatch.setitem(DATASETS, "yeast", _toy_source(base))
    with pytest.raises(ConnectionError, match=r"could not be downloaded .* name its folder with --from"):
        get_dataset("yeast", root=tmp_path)


@pytest.fixture
def supplied(tmp_path):
    folder = tmp_path / "supplied"
    folder.mkdir()
    for name, body in FILES.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(body))
    return folder


def test_from_a_folder_asks_nobody(server, supplied, tmp_path):
    get_dataset("yeast", root=tmp_path, source_folder=supplied)
    assert load_dataset("yeast", tmp_path).n_samples == 4
    assert server.requests == []


def test_from_a_folder_with_other_content(server, supplied, tmp_path):
    (supplied / "toy-test.arff").write_bytes(FILES["toy-test.arff"].replace(b"7,8", b"7,9"))
    with pytest.raises(ValueError, match=r"toy-test.arff has checksum \w+; expected \w+. .* with verify=False"):
        get_dataset("yeast", root=tmp_path, source_folder=supplied)
    assert not (tmp_path / "tabular").exists()
    get_dataset("yeast", root=tmp_path, source_folder=supplied, verify=False)
    assert load_dataset("yeast", tmp_path).X[3, 1] == 9


def test_from_a_folder_without_the_file(server, supplied, tmp_path):
    (supplied / "toy.xml.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no toy.xml \(or toy.xml.gz\) in .*supplied"):
        get_dataset("yeast", root=tmp_path, source_folder=supplied)


def test_another_variant_is_named(server, supplied, tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS, "yeast", replace(DATASETS["yeast"], n_samples=5))
    with pytest.raises(
        ValueError,
        match="yeast must be the variant with 5 rows, 2 features and 2 labels; the files hold 4 rows, 2 features",
    ):
        get_dataset("yeast", root=tmp_path, source_folder=supplied)
    assert not (tmp_path / "tabular").exists()


def test_parts_with_other_columns(server, supplied, tmp_path):
    (supplied / "toy-test.arff").write_bytes(FILES["toy-test.arff"].replace(b"f0", b"g0"))
    with pytest.raises(
        ValueError, match=r"toy-train.arff.gz and toy-test.arff must have the same columns; their feature_names"
    ):
        get_dataset("yeast", root=tmp_path, source_folder=supplied, verify=False)


def test_mirflickr_must_be_supplied(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"mirflickr can not be downloaded. .* Supply mirflickr.mat .* --from FOLDER"):
        get_dataset("mirflickr", root=tmp_path)
    Y = np.array([[1, 0], [1, 1], [0, 1]])
    index = {"tr_idx": [[0]], "va_idx": [[1]], "te_idx": [[2]]}
    scipy.io.savemat(tmp_path / "mirflickr.mat", {"X": np.eye(3), "Y": Y, "Y_obs": np.eye(2)[[0, 1, 1]], **index})
    with pytest.raises(ValueError, match="mirflickr must be the variant with 24581 rows, 1000 features and 38 labels"):
        get_dataset("mirflickr", root=tmp_path, source_folder=tmp_path)
    monkeypatch.setitem(DATASETS, "mirflickr", replace(DATASETS["mirflickr"], n_samples=3, n_features=3, n_labels=2))
    get_dataset("mirflickr", root=tmp_path, source_folder=tmp_path)
    data = load_dataset("mirflickr", tmp_path)
    np.testing.assert_array_equal(data.observed, np.eye(2)[[0, 1, 1]])
    assert data.splits["val"].tolist() == [1]


def test_names(tmp_path):
    with pytest.raises(ValueError, match=r"unknown data set 'yeasts'; did you mean 'yeast'\?"):
        get_dataset("yeasts", root=tmp_path)
    with pytest.raises(ValueError, match="digit-scenes is generated, not downloaded"):
        get_dataset("digit-scenes", root=tmp_path)


def test_table_of_sources():
    paper = ["image", "scene", "yeast", "corel5k", "mirflickr", "delicious"]
    assert list(DATASETS) == ["digit-scenes", *paper, "voc2012-features", "coco2014-features"]
    for name, source in DATASETS.items():
        if source.kind == "arff":
            assert len(source.files) == 3, name
            for file in source.files:
                assert file.url.startswith("https://")
                assert file.url.endswith("/" + file.name)
                assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)


def _write_features(folder, monkeypatch):
    """Archives of three rows in the layout of VOC, and a source that says so."""
    folder.mkdir(parents=True)
    Y, X = np.array([[1, 0], [0, 1]], dtype=np.uint8), np.eye(3, 4, dtype=np.float16)
    source = replace(DATASETS["voc2012-features"], n_samples=3, n_features=4, n_labels=2)
    labels, features = (folder / file.name for file in source.files)
    parts = {"train_obs_idx": np.array([0, 1]), "val_obs_idx": np.array([0])}
    np.savez(labels, class_names=np.array(["dog", "cat"]), Y_train=Y, Y_val=Y[:1], **parts)
    np.savez(features, X_train=X[:2], X_val=X[2:])
    files = [
        replace(file, sha256=hashlib.sha256((folder / file.name).read_bytes()).hexdigest()) for file in source.files
    ]
    monkeypatch.setitem(DATASETS, "voc2012-features", replace(source, files=tuple(files)))
    return features


def test_features_are_taken_from_a_folder_and_never_downloaded(tmp_path, monkeypatch):
    features = _write_features(tmp_path / "mine", monkeypatch)
    with pytest.raises(ValueError, match=r"voc2012-features can not be downloaded\. These features .*--from FOLDER"):
        get_dataset("voc2012-features", root=tmp_path)
    path = get_dataset("voc2012-features", root=tmp_path, source_folder=tmp_path / "mine")
    assert path == tmp_path / "tabular" / "voc2012-features.npz"
    data = load_dataset("voc2012-features", tmp_path)
    assert data.label_names == ("cat", "dog")
    assert data.observed.argmax(1).tolist() == [1, 0, 1]
    assert sorted(data.splits) == ["test", "train", "val"]
    features.write_bytes(features.read_bytes() + b"x")
    with pytest.raises(ValueError, match=r"voc2012_effnetlite0\.npz has checksum"):
        get_dataset("voc2012-features", root=tmp_path, source_folder=tmp_path / "mine")


def test_features_in_the_data_folder_are_complete(tmp_path, monkeypatch):
    features = _write_features(tmp_path / "images", monkeypatch)
    assert get_dataset("voc2012-features", root=tmp_path) == features


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["image", "scene", "yeast", "corel5k", "delicious"])
def test_publishers_files_give_the_stored_sets(real_file, tmp_path, name):
    source = DATASETS[name]
    raw = real_file("raw")
    stored = read_npz(real_file(f"tabular/{name}.npz"))
    built = read_npz(get_dataset(name, root=tmp_path, source_folder=raw))
    np.testing.assert_array_equal(built.Y, stored.Y)
    assert built.label_names == stored.label_names
    assert built.is_sparse is stored.is_sparse
    assert abs(built.X - stored.X).max() == 0
    for part in ("train", "test"):
        np.testing.assert_array_equal(built.splits[part], stored.splits[part])
    loaded = load_dataset(name, tmp_path)
    assert (loaded.n_samples, loaded.n_features, loaded.n_labels) == (
        source.n_samples,
        source.n_features,
        source.n_labels,
    )
    assert sp.issparse(loaded.X) is (name in ("corel5k", "delicious"))
