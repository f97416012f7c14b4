"""`onepos serve` from the command line: what it refuses before any work, and a whole run."""

import os
import re
import signal
import subprocess
import sys

import httpx
import numpy as np
import pandas as pd
import pytest

from onepos.cli.serving import _read_token


@pytest.fixture
def model(onepos, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"]).round(3)
    table.insert(0, "key", [f"k{row}" for row in range(60)])
    table["tag"] = np.where(table["a"] > 0, "cat", np.where(table["b"] > 0, "dog", "fish"))
    table.to_csv(tmp_path / "items.csv", index=False)
    code, _, err = onepos(
        "fit", "items.csv", "--label", "tag", "--id", "key", "--method", "an", "--epochs", "1", "-q", "--out", "model"
    )
    assert code == 0, err
    return tmp_path / "model"


ROWS = ("--data", "items.csv", "--label", "tag", "--id", "key")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host", "0.0.0.0"), "needs a token"),
        (("--answers", "nowhere/reviews.db"), "must lie in a folder"),
        (("--token-file", "short.txt"), "at least 16"),
        (("--id", "none"), "none"),
        (("--answers", "items.csv"), "must be a file of answers"),
    ],
)
def test_wrong_options_are_refused(onepos, model, options, message):
    (model.parent / "short.txt").write_text("short")
    code, _, err = onepos("serve", "model", *ROWS, *options, "-q")
    assert code == 2, err
    assert err.strip().count("\n") == 0
    assert message in err


def test_a_token_file_is_made_and_kept(tmp_path, capsys):
    made = _read_token("0.0.0.0", tmp_path / "token.txt")
    assert len(made) >= 32
    assert (tmp_path / "token.txt").stat().st_mode & 0o077 == 0
    assert _read_token("0.0.0.0", tmp_path / "token.txt") == made
    assert made not in capsys.readouterr().out
    assert _read_token("127.0.0.1", None) is None


@pytest.mark.slow
def test_a_whole_run(model):
    """Serve, review, try, improve, stop in order, serve again."""
    command = [sys.executable, "-m", "onepos", "serve", str(model), *ROWS, "--port", "0", "-q"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for k in range(2):
        with subprocess.Popen(
            command, cwd=model.parent, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            address = re.search(r"http://\S+", process.stdout.readline())[0]
            with httpx.Client(base_url=address, timeout=30) as client:
                assert client.get("/api/state").json()["counts"]["done"] == k
                who = {"session": "session-1", "reviewer": "Ada"}
                item = client.post("/api/next", json=who).json()["item"]
                assert item["id"].startswith("k")
                body = who | {"id": f"answer-{k:03d}", "item": item["id"], "outcome": "done", "others_absent": True}
                assert client.post("/api/answers", json=body).json()["saved"]
                found = client.post("/api/try", json={"row": {"a": 1, "b": "0.5", "c": -1}}).json()
                assert {line["label"] for line in found["labels"]} == {"cat", "dog", "fish"}
                assert client.post("/api/try", json={"row": {"a": 1, "b": "x", "c": 0}}).status_code == 422
                assert client.get("/api/try/example/0").json()["row"].keys() == {"a", "b", "c"}
                if k == 0:
                    assert client.post("/api/improve").status_code == 202
                    while (progress := client.get("/api/improve").json())["state"] == "running":
                        pass
                    assert progress["state"] == "done", progress["error"]
                    assert client.post("/api/try", json={"row": [1, 0, 0]}).status_code == 200
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=20)
            assert "Traceback" not in err
    assert (model.parent / "model-improved" / "model.json").exists()
