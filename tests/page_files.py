"""The files that pages start from, made small: `<!-- setup: NAME -->` on a page calls the function NAME."""

import json
import os
import shutil
import socket
import time
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

NAMES = ["ball", "cat", "dog"]


def make_rows(n, seed):
    """Five numbers per row, and three labels that follow from them; each row has at least one."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    Y = X[:, :3] > 0.4
    Y[~Y.any(1), 0] = True
    one = np.array(NAMES)[[rng.choice(np.flatnonzero(row)) for row in Y]]
    return pd.DataFrame(X.round(3), columns=list("abcde")), Y, one


def items_without_key():
    """items.csv: numbers and the column category; new-items.csv; answers.csv: 25 rows, which have numbers as names."""
    table, Y, category = make_rows(80, 0)
    table.assign(category=category).to_csv("items.csv", index=False)
    make_rows(20, 1)[0].to_csv("new-items.csv", index=False)
    answers = pd.DataFrame(Y[:25].astype(int), columns=NAMES).rename_axis("item")
    answers = answers.melt(ignore_index=False, var_name="label").sort_index().reset_index()
    answers.assign(reason="random").to_csv("answers.csv", index=False)


def items():
    """The same with the column key, and new.csv."""
    items_without_key()
    for name in ("items.csv", "new-items.csv"):
        table = pd.read_csv(name)
        table.assign(key=range(len(table))).to_csv(name, index=False)
    pd.read_csv("new-items.csv").to_csv("new.csv", index=False)


def item_features():
    """items.npz: the numbers of items.csv with labels."""
    table, _, category = make_rows(80, 0)
    np.savez("items.npz", X=table.to_numpy(), y=category)


def patients():
    """items.csv with a column patient: four rows of each."""
    items()
    table = pd.read_csv("items.csv")
    table.assign(patient=[f"P{k // 4}" for k in range(len(table))]).to_csv("items.csv", index=False)


def label_columns():
    """items.csv with columns tag_cat …: 1, 0 and empty cells; 30 rows are complete."""
    table, Y, category = make_rows(80, 0)
    for k, name in enumerate(NAMES):
        cells = np.where(category == name, 1, np.nan)
        cells[:30] = Y[:30, k]
        table[f"tag_{name}"] = pd.array(cells, dtype="Int64")
    table.assign(key=range(80)).to_csv("items.csv", index=False)
    answers = pd.DataFrame({"item": range(80), "label": category, "value": 1})
    answers.to_csv("answers.csv", index=False)


def movies():
    """movies.csv and new_movies.csv: text, categories, dates and gaps."""
    rng = np.random.default_rng(0)
    words = {"comedy": "funny wedding laugh", "crime": "murder detective night", "war": "soldier battle army"}
    Y = rng.random((60, 3)) < 0.4
    Y[~Y.any(1), 0] = True
    genres = np.array(list(words))
    table = pd.DataFrame(
        {
            "title": [f"Film {k}" for k in range(60)],
            "plot": [
                "A story of " + " and ".join(rng.choice(words[g].split()) for g in genres[row]) + f" in part {k % 7}"
                for k, row in enumerate(Y)
            ],
            "released": pd.Timestamp("1990-01-01") + pd.to_timedelta(rng.integers(0, 9000, 60), unit="D"),
            "country": rng.choice(["DE", "FR", "US", None], 60),
            "minutes": rng.integers(70, 180, 60),
        }
    )
    table.drop(columns="title").head(10).assign(title=[f"New {k}" for k in range(10)]).to_csv(
        "new_movies.csv", index=False
    )
    table.assign(genre=[rng.choice(genres[row]) for row in Y]).to_csv("movies.csv", index=False)


def embeddings():
    """The vectors of 80 items in the formats that pages name, labels.csv beside them, and new-embeddings.npz."""
    table, _, category = make_rows(80, 0)
    X = table.to_numpy(np.float32)
    np.save("embeddings.npy", X)
    np.savez("embeddings.npz", X=X, y=category, ids=np.arange(80).astype(str))
    np.savez("new-embeddings.npz", X=X[:5])
    pd.DataFrame({"item": range(80), "vector": list(X)}).to_parquet("embeddings.parquet")
    pd.DataFrame({"item": range(80), "genre": category}).to_csv("labels.csv", index=False)


def labels_by_item():
    """items.csv without labels, and labels.csv with a row per item; the column item joins them."""
    table, _, category = make_rows(80, 0)
    table.assign(item=range(80)).to_csv("items.csv", index=False)
    pd.DataFrame({"item": range(80), "genre": category}).to_csv("labels.csv", index=False)


def draw_shapes(rng, names, file):
    image = Image.new("RGB", (64, 64), "white")
    for name in names:
        x, y = (int(v) for v in rng.integers(4, 36, 2))
        shape = {"circle": "ellipse", "square": "rectangle", "line": "line"}[name]
        getattr(ImageDraw.Draw(image), shape)([x, y, x + 22, y + 22], fill="navy")
    file.parent.mkdir(parents=True, exist_ok=True)
    image.save(file)


def photos():
    """photos/ with a folder per label, new/ with others, and new.csv with all labels of these."""
    rng = np.random.default_rng(0)
    names = ["circle", "line", "square"]
    for k in range(60):
        some = rng.choice(names, rng.integers(1, 3), replace=False)
        draw_shapes(rng, some, Path("photos") / some[0] / f"{k:02}.png")
    lines = ["path,label"]
    for k in range(12):
        some = rng.choice(names, 2, replace=False)
        draw_shapes(rng, some, Path("new") / f"{k:02}.png")
        lines.append(f"new/{k:02}.png,{';'.join(some)}")
    Path("new.csv").write_text("\n".join(lines) + "\n")


def yeast():
    """A made-up data set of that name, with as many labels, in the data folder."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 10)).astype(np.float32)
    Y = (X @ rng.normal(size=(10, 14)) > 1).astype(np.uint8)
    Y[~Y.any(1), 0] = 1
    folder = Path(os.environ["ONEPOS_DATA"]) / "tabular"
    folder.mkdir(parents=True)
    names = [f"Class{k}" for k in range(1, 15)]
    np.savez(folder / "yeast.npz", X=X, Y=Y, label_names=names, train_idx=np.arange(80), test_idx=np.arange(80, 120))


def two_studies():
    """Copies of results/smoke and smoke.jsonl.gz under the names of two studies."""
    for name in ("before", "after"):
        shutil.copytree("results/smoke", f"results/{name}")
    for name in ("as-published", "fair"):
        shutil.copy("smoke.jsonl.gz", f"{name}.jsonl.gz")


def export_of_label_studio():
    """export.json, in JSON-MIN: the answers about 25 items."""
    _, Y, _ = make_rows(80, 0)
    tasks = [
        {"annotation_id": k, "item": str(k)}
        | {f"label_{name}": ("no", "yes")[int(v)] for name, v in zip(NAMES, row, strict=True)}
        for k, row in enumerate(Y[:25])
    ]
    Path("export.json").write_text(json.dumps(tasks))


def long_table():
    """items.csv with the column item_id and no label; answers.csv: a label of each item, all of the first 30."""
    table, Y, category = make_rows(80, 0)
    table.insert(0, "item_id", [f"a{k}" for k in range(1, 81)])
    table.to_csv("items.csv", index=False)
    lines = ["item,label,value"]
    for k in range(80):
        known = zip(NAMES, Y[k], strict=True) if k < 30 else [(category[k], True)]
        lines += [f"a{k + 1},{name},{'yes' if value else 'no'}" for name, value in known]
    Path("answers.csv").write_text("\n".join(lines) + "\n")


def label_words():
    """xrays.csv: columns finding_… with -1 for unknown; items.csv and survey.csv with the words present and absent."""
    table, Y, category = make_rows(80, 0)
    xrays, survey = table.assign(patient=[f"P{k // 2}" for k in range(80)]), pd.DataFrame({"key": range(80)})
    for k, name in enumerate(NAMES):
        cells = np.where(category == name, 1, -1)
        cells[:30] = Y[:30, k]
        xrays[f"finding_{name}"] = cells
        survey[name] = np.select([cells == 1, cells == 0], ["present", "absent"], "")
    xrays.to_csv("xrays.csv", index=False)
    survey.to_csv("survey.csv", index=False)
    table.assign(key=range(80)).to_csv("items.csv", index=False)


def recordings():
    """recordings.csv: two rows of each recording, one species of each row."""
    table, _, category = make_rows(80, 0)
    species = pd.Series(category).map({"ball": "robin", "cat": "thrush", "dog": "wren"})
    table.assign(recording=[f"R{k // 2}" for k in range(80)], species=species).to_csv("recordings.csv", index=False)


def photo_answers():
    """answers.csv about 30 of the photos in photos/, as the review page exports it."""
    rng = np.random.default_rng(0)
    files = sorted(Path("photos").rglob("*.png"))
    names = sorted({file.parent.name for file in files})
    lines = ["item,label,value,reason"]
    for file in rng.choice(files, 30, replace=False):
        for name in names:
            value = "yes" if name == Path(file).parent.name or rng.random() < 0.3 else "no"
            lines.append(f"{Path(file).as_posix()},{name},{value},random")
    Path("answers.csv").write_text("\n".join(lines) + "\n")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, seconds=30):
    """Wait until something listens on the port."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
