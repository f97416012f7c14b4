"""Files made to harm: that take much memory, name other files, never end, or are nested without end."""

import gzip
import json
import os
import subprocess
import sys
import time
import zipfile
import zlib

import numpy as np
import pytest

from onepos import SinglePositiveClassifier
from onepos.bench.image_sets import read_coco, read_cub
from onepos.bench.results import read_results
from onepos.bench.store import Store
from onepos.bench.study_file import read_study
from onepos.datasets import open_table, read_dataset, read_mat, read_table
from onepos.images.samples import read_image

CAP = 1 << 30


def in_a_process_with_a_cap(code, *arguments):
    """Run a reader in a process that may take a GiB more than it holds; what it prints."""
    head = (
        "import resource, sys, onepos.datasets as d, numpy\n"
        "import pandas, h5py, pyarrow.parquet\n"
        "held = int(open('/proc/self/statm').read().split()[5]) * resource.getpagesize()\n"
        f"resource.setrlimit(resource.RLIMIT_DATA, (held + {CAP}, -1))\n"
        "path = sys.argv[1]\n"
        "try:\n    "
    )
    tail = "\n    print('read')\nexcept (ValueError, FileNotFoundError) as error:\n    print(error)"
    run = subprocess.run(
        [sys.executable, "-c", head + code + tail, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"},  # another takes a GiB of addresses at once
    )
    assert run.returncode == 0, run.stderr[-500:]
    return run.stdout.strip()


def test_an_unused_variable_of_mat_73_is_not_read(tmp_path):
    import h5py

    with h5py.File(tmp_path / "r.mat", "w", userblock_size=512) as file:
        file["X"], file["Y"] = np.eye(3), np.eye(3)
        file.create_dataset("other", (30_000, 30_000), "f8", chunks=(1000, 1000), compression="gzip")  # 7 GB of nothing
    with (tmp_path / "r.mat").open("r+b") as handle:
        handle.write(b"MATLAB 7.3 MAT-file")
    assert in_a_process_with_a_cap("d.read_mat(path, orientation='rows')", tmp_path / "r.mat") == "read"


def test_a_used_variable_of_mat_73_that_is_too_large_is_refused(tmp_path):
    import h5py

    with h5py.File(tmp_path / "r.mat", "w", userblock_size=512) as file:
        file.create_dataset("X", (30_000, 30_000), "f8", chunks=(1000, 1000), compression="gzip")
        file["Y"] = np.eye(3)
    with (tmp_path / "r.mat").open("r+b") as handle:
        handle.write(b"MATLAB 7.3 MAT-file")
    found = in_a_process_with_a_cap("d.read_mat(path)", tmp_path / "r.mat")
    assert found.startswith("r.mat must unfold to at most 512 MiB in memory")
    assert "ONEPOS_MOST_BYTES" in found


def test_a_compressed_variable_of_mat_5_does_not_unfold_without_end(tmp_path):
    import scipy.io

    scipy.io.savemat(tmp_path / "r.mat", {"Y": np.eye(3)}, do_compression=True)
    size = 36 << 24  # 0.6 GiB of zeros
    whole = (tmp_path / "r.mat").read_bytes()
    for name, expected in ((b"X", "r.mat must unfold to at most 512 MiB"), (b"Z", "r.mat must hold X and Y")):
        parts = [14, 48 + size, 6, 8, 6, 0, 5, 8, size // 24, 3, 1 | 1 << 16, name[0], 9, size]
        packer = zlib.compressobj(9)
        data = packer.compress(np.array(parts, "<u4").tobytes())
        data += b"".join(packer.compress(bytes(1 << 24)) for _ in range(36)) + packer.flush()
        (tmp_path / "r.mat").write_bytes(whole + np.array([15, len(data)], "<u4").tobytes() + data)
        found = in_a_process_with_a_cap("d.read_mat(path, orientation='rows')", tmp_path / "r.mat")
        assert found.startswith(expected)


def test_values_of_mat_73_in_other_files_are_not_read(tmp_path):
    import h5py

    (tmp_path / "secret").write_bytes(np.arange(9.0).tobytes())
    for name, make in (
        ("external", lambda file: file.create_dataset("X", (3, 3), "f8", external=[(tmp_path / "secret", 0, 72)])),
        ("link", lambda file: file.__setitem__("X", h5py.ExternalLink(str(tmp_path / "other.h5"), "X"))),
    ):
        path = tmp_path / f"{name}.mat"
        with h5py.File(tmp_path / "other.h5", "w") as other:
            other["X"] = np.eye(3)
        with h5py.File(path, "w", userblock_size=512) as file:
            make(file)
            file["Y"] = np.eye(3)
        with path.open("r+b") as handle:
            handle.write(b"MATLAB 7.3 MAT-file")
        with pytest.raises(ValueError, match=rf"{name}.mat must hold"):
            read_mat(path)


def test_an_archive_that_unfolds_without_end_is_refused(tmp_path):
    archive = zipfile.ZipFile(tmp_path / "r.npz", "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("X.npy", "w", force_zip64=True) as member:
        for _ in range(36):
            member.write(bytes(1 << 24))
    found = in_a_process_with_a_cap("d.read_dataset(path)", tmp_path / "r.npz")
    assert found.startswith("r.npz must unfold to at most 512 MiB")


@pytest.mark.slow
def test_a_zipped_table_that_unfolds_without_end_is_refused(tmp_path):
    (tmp_path / "r.csv.gz").write_bytes(gzip.compress(b"a,label\n" + b"1,x\n" * 200_000_000, 1))
    found = in_a_process_with_a_cap("d.read_table(path, label='label')", tmp_path / "r.csv.gz")
    assert found.startswith("r.csv.gz")


def test_short_lines_below_many_columns_are_refused_before_they_are_filled_up(tmp_path):
    (tmp_path / "r.csv").write_text(",".join(map(str, range(40_000))) + "\n" + "1\n" * 40_000)
    found = in_a_process_with_a_cap("d.open_table(path)", tmp_path / "r.csv")
    assert found.startswith("r.csv must unfold to at most 512 MiB")


def test_equal_cells_of_parquet_take_no_memory_before_they_are_counted(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    n = 40_000_000
    table = pa.table({"a": pa.array(np.zeros(n, np.int8)), "label": pa.array(np.zeros(n, np.int8))})
    pq.write_table(table, tmp_path / "r.parquet", compression="zstd")
    found = in_a_process_with_a_cap("d.open_table(path)", tmp_path / "r.parquet")
    assert found.startswith("r.parquet must unfold to at most 512 MiB")


def test_lines_of_json_that_each_name_other_columns(tmp_path):
    (tmp_path / "r.jsonl").write_text("".join(f'{{"c{k}": 1}}\n' for k in range(12_000)))
    with pytest.raises(ValueError, match=r"r.jsonl must unfold to at most 512 MiB"):
        open_table(tmp_path / "r.jsonl")


def test_many_columns_are_read_in_a_time_that_grows_with_their_number(tmp_path):
    seconds = []
    for n in (2000, 16_000):
        path = tmp_path / f"{n}.csv"
        path.write_text(",".join(f"c{k}" for k in range(n)) + "\n" + ",".join(["1"] * n) + "\n")
        began = time.process_time()
        open_table(path)
        seconds.append(time.process_time() - began)
    assert seconds[1] < 32 * seconds[0] + 1  # eight times as many; the square would be 64


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "model"
    X = np.random.default_rng(0).normal(size=(20, 3))
    SinglePositiveClassifier("an", epochs=1, hidden=(4,), random_state=0).fit(X, ["cat", "dog"] * 10).save(folder)
    return folder


@pytest.fixture
def facts_with(model_folder, tmp_path):
    import shutil

    def change(**facts):
        folder = tmp_path / "model"
        shutil.copytree(model_folder, folder)
        found = json.loads((folder / "model.json").read_text())
        for name, value in facts.items():
            if isinstance(value, dict):
                found[name] |= value
            else:
                found[name] = value
        (folder / "model.json").write_text(json.dumps(found))
        return folder

    return change


@pytest.mark.parametrize(
    "facts",
    [
        {"parameters": {"hidden": [10_000, 100_000]}},
        {"parameters": {"hidden": [10**12]}},
        {"parameters": {"hidden": [4] * 100_000}},
        {"n_features": 10**9},
        {"thresholds": ["x"]},
        {"classes": ["cat", ["dog"]]},
        {"sha256": [1]},
        {"kind": []},
        {"format": "9" * 5000},
        {"method": []},
        {"min_labels": "²"},
        {"history": {"x": 1}},
    ],
    ids=str,
)
def test_facts_of_a_model_that_do_not_go_with_its_weights(facts_with, facts):
    folder = facts_with(**facts)
    began = time.process_time()
    with pytest.raises(ValueError, match="model") as caught:
        SinglePositiveClassifier.load(folder)
    assert type(caught.value) is ValueError
    assert str(caught.value).endswith(".")
    assert len(str(caught.value)) < 2000
    assert time.process_time() - began < 5


def test_a_model_folder_names_no_folder_to_write_to(facts_with):
    from torch import nn

    from onepos import SinglePositiveImageClassifier

    network = nn.Sequential(nn.Conv2d(3, 4, 8, stride=8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = SinglePositiveImageClassifier("an", network=network, epochs=1, cache=None)
    model.fit(np.zeros((6, 32, 32, 3), np.uint8), ["cat", "dog"] * 3)
    folder = facts_with().parent / "images"
    model.set_params(cache="/somewhere", workers=7)
    model.save(folder)
    facts = json.loads((folder / "model.json").read_text())
    assert facts["parameters"]["cache"] is None
    facts["parameters"] |= {"cache": str(folder / "planted"), "workers": 99}
    (folder / "model.json").write_text(json.dumps(facts))
    loaded = SinglePositiveImageClassifier.load(folder, network=network)
    assert (loaded.cache, loaded.workers) == (None, 0)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"a":' + "9" * 5000 + "}", '{"a": NaN}'])
def test_json_without_end_in_every_place_that_reads_it(tmp_path, model_folder, text):
    for name in ("r.jsonl", "annotations/instances_train2014.json", "model/model.json"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    readers = {
        "r.jsonl": lambda: read_table(tmp_path / "r.jsonl", label="label"),
        "instances_train2014.json": lambda: read_coco(tmp_path, strict=False, check_files=False),
        "model.json": lambda: SinglePositiveClassifier.load(tmp_path / "model"),
    }
    for name, read in readers.items():
        with pytest.raises(ValueError, match=name) as caught:
            read()
        assert type(caught.value) is ValueError


def test_coco_ids_of_any_size_and_a_cub_id_that_is_no_number(tmp_path):
    (tmp_path / "annotations").mkdir()
    content = {
        "images": [{"id": 10**30, "file_name": "a.jpg"}],
        "categories": [{"id": -(10**30), "name": "cat"}],
        "annotations": [{"image_id": 10**30, "category_id": -(10**30)}],
    }
    for part in ("train", "val"):
        (tmp_path / "annotations" / f"instances_{part}2014.json").write_text(json.dumps(content))
    assert read_coco(tmp_path, strict=False, check_files=False).paths == ("train2014/a.jpg", "val2014/a.jpg")
    (tmp_path / "attributes.txt").write_text("1 a\n")
    (tmp_path / "images.txt").write_text("² a.jpg\n")
    with pytest.raises(ValueError, match=r"images.txt, line 1: a line must hold a number"):
        read_cub(tmp_path, strict=False, check_files=False)


def test_a_name_of_megabytes_is_not_repeated_in_a_message(tmp_path):
    name = "x" * 4_000_000
    (tmp_path / "r.csv").write_text(f"a,{name},{name}\n1,2,3\n")
    with pytest.raises(ValueError, match=r"r.csv") as caught:
        read_table(tmp_path / "r.csv", label="label")
    assert len(str(caught.value)) < 2000
    (tmp_path / "r.csv").write_text(f"a,label\n1,{name}\n2,{name.upper()}\n")
    with pytest.raises(ValueError, match=r"r.csv") as caught:
        read_table(tmp_path / "r.csv", label="label", separator=";")
    assert len(str(caught.value)) < 2000


def test_a_quoted_cell_of_200_kb(tmp_path):
    (tmp_path / "r.csv").write_text('a,label\n1,x\n2,"' + "y" * 200_000 + '"\n3,x,\n')
    with pytest.raises(ValueError, match=r"r.csv"):
        read_table(tmp_path / "r.csv", label="label")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    for name in ("p.png", "p.csv", "p.npz", "p.mat", "p.arff"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=r"p.png.* must be a plain file; it is a pipe"):
        read_image(tmp_path / "p.png", 8)
    for name in ("p.csv", "p.npz", "p.mat", "p.arff"):
        with pytest.raises(ValueError, match=f"{name} must be a plain file; it is a pipe"):
            read_dataset(tmp_path / name)


def test_images_that_start_a_program_are_refused(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
    with pytest.raises(ValueError, match=r"a.jpg is not: cannot identify image file"):
        read_image(tmp_path / "a.jpg", 8)


STUDY = """
name = "tiny"
datasets = ["digit-scenes"]
methods = ["an"]
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
selection = {metric = "average_precision", labels = "full"}
threshold = {"*" = 0.5}
[space]
lr = {values = [0.001]}
weight_decay = {values = [0.0]}
batch_size = {values = [32]}
"""


@pytest.mark.parametrize(
    "text",
    [STUDY.replace("trials = 2", "trials = 1000000000"), STUDY + "deep = " + "[" * 50_000, STUDY + f"x = {'9' * 5000}"],
    ids=["runs", "depth", "digits"],
)
def test_studies_without_end(tmp_path, text):
    (tmp_path / "tiny.toml").write_text(text)
    with pytest.raises(ValueError, match=r"tiny.toml") as caught:
        read_study(tmp_path / "tiny.toml")
    assert type(caught.value) is ValueError


@pytest.mark.parametrize("line", ["1", "[]", '{"run": 1}', '{"run": {"dataset": []}}', "[" * 50_000, '"x"'])
def test_lines_of_packed_runs_that_are_none(tmp_path, line):
    content = json.dumps({"study": STUDY}) + "\n" + line + "\n"
    (tmp_path / "r.jsonl.gz").write_bytes(gzip.compress(content.encode()))
    for read in (read_results, Store(tmp_path / "new").unpack):
        with pytest.raises(ValueError, match=r"r.jsonl.gz must be a file written by") as caught:
            read(tmp_path / "r.jsonl.gz")
        assert type(caught.value) is ValueError


def test_a_result_without_its_number_of_labels(tmp_path):
    (tmp_path / "tiny.toml").write_text(STUDY)
    study = read_study(tmp_path / "tiny.toml")
    store = Store(tmp_path / "results")
    store.keep_study(study)
    store.save(study.runs()[0], {"test": {}, "validation": {}, "criteria": {}, "timing": {}, "diverged": False})
    with pytest.raises(ValueError, match=r"results must hold results written by onepos; .* has no 'best_epoch'"):
        read_results(tmp_path / "results")


def test_an_image_sent_to_the_server_starts_no_program():
    pytest.importorskip("fastapi", reason="fastapi is not installed")
    import io

    from onepos.report.items import open_image

    with pytest.raises(ValueError, match=r"this one can not be read \(it is no image\)"):
        open_image(io.BytesIO(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"))


def test_names_do_not_become_html_in_markdown_or_code_in_latex():
    from onepos.report.page import Page, Section, render_latex, render_markdown
    from onepos.report.tables import Cell, Table

    name = "<script>alert(1)</script>\n\\input{/etc/passwd}"
    table = Table("t", name, [name], [[Cell(name)]], name)
    page = Page(title=name, lead=name, sections=[Section("s", name, [name], (table,))])
    assert "<script" not in render_markdown(page)
    for line in render_latex(page).splitlines():
        assert line.startswith("%") or "\\input" not in line
        assert "<script" not in line


def test_a_list_of_studies_names_no_file_elsewhere(tmp_path):
    from onepos.bench.study_file import read_studies

    (tmp_path / "all.toml").write_text('name = "all"\nstudies = ["../../etc/passwd"]\n')
    with pytest.raises(ValueError, match=r"all.toml must be readable to its end; Invalid name"):
        read_studies(tmp_path / "all.toml")


def test_a_column_of_ids_as_labels_is_refused_before_it_fills_the_memory(tmp_path):
    (tmp_path / "r.csv").write_text("a,label\n" + "".join(f"1,id{k}\n" for k in range(40_000)))
    with pytest.raises(ValueError, match=r"r.csv: labels must repeat .* 40,000 rows hold 40,000 different"):
        read_table(tmp_path / "r.csv", label="label")


def test_a_draw_of_more_labels_than_there_is_memory(tmp_path):
    from onepos.datasets import load_draw, save_draw

    path = save_draw(tmp_path / "draw.json", np.eye(3), how="uniform", seed=0)
    path.write_text(path.read_text().replace('"n_labels": 3', '"n_labels": 3000000000'))
    with pytest.raises(ValueError, match=r"draw.json must unfold to at most 512 MiB"):
        load_draw(path)


def test_a_category_of_many_values_in_many_rows(tmp_path):
    values = [f"v{k}" for k in range(30_000)]
    text = f"@relation r\n@attribute a {{{','.join(values)}}}\n@attribute cat {{0,1}}\n@data\n"
    (tmp_path / "r.arff").write_text(text + "".join(f"{value},1\n" for value in values))
    with pytest.raises(ValueError, match=r"r.arff must unfold to at most 512 MiB"):
        read_dataset(tmp_path / "r.arff", labels=-1)
