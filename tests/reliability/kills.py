"""Work that is killed at random moments, taken up again, and compared with work that was not."""

import hashlib
import json
import os
import random
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

RNG = np.random.default_rng(7)
X = RNG.normal(size=(60, 5))
Y = np.array(["cat", "dog", "bird"])[RNG.integers(3, size=60)]


@dataclass(frozen=True)
class Work:
    """Something that may be killed.

    Attributes:
        do: Does it in a folder, whatever is there from before.
        outcome: What came of it, to be compared with that of work that was not killed.
        check: Raises where something that was there, or was acknowledged, is lost; called after each kill.
    """

    do: Callable[[Path], Any]
    outcome: Callable[[Path], Any]
    check: Callable[[Path], Any] = lambda folder: None


def _fit(method):
    def do(folder):
        from onepos import SinglePositiveClassifier
        from onepos.training.checkpoint import remove_checkpoint

        model = SinglePositiveClassifier(method, epochs=4, hidden=(16,), random_state=0)
        model.fit(X, Y, checkpoint=folder / "fit.ckpt").save(folder / "model")
        remove_checkpoint(folder / "fit.ckpt")

    return do


def _model(folder):
    """Without the seconds."""
    facts = json.loads((folder / "model" / "model.json").read_text())
    facts["history"] = {key: value for key, value in facts["history"].items() if "seconds" not in key}
    left = sorted(path.name for path in folder.rglob("*") if path.is_file())
    return facts, hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest(), left


def _check_model(folder):
    """A model that was saved stays: the old one or the new one."""
    from onepos import SinglePositiveClassifier

    if (folder / "had a model").exists() or (folder / "model" / "model.json").exists():
        (folder / "had a model").touch()
        SinglePositiveClassifier.load(folder / "model").predict(X)


def _fit_again(folder):
    """Fit into a folder that holds an older model."""
    if not (folder / "had a model").exists():
        from onepos import SinglePositiveClassifier

        SinglePositiveClassifier("an", epochs=1, hidden=(16,), random_state=1).fit(X, Y).save(folder / "model")
        (folder / "had a model").touch()
    _fit("an")(folder)


def _save_only(folder):
    """A model that is saved many times over another, so that most kills fall into a save."""
    from onepos import SinglePositiveClassifier

    model = SinglePositiveClassifier("an", epochs=1, hidden=(256,), random_state=0).fit(X, Y)
    for _ in range(8):
        model.save(folder / "model")


def _bench(folder):
    from targets import STUDY

    from onepos.bench.runner import run_study
    from onepos.bench.store import Store
    from onepos.bench.study_file import read_study

    (folder / "tiny.toml").write_text(STUDY)
    run_study(read_study(folder / "tiny.toml"), Store(folder / "results", stale_after=0.2), block=1)
    while Store(folder / "results").status(read_study(folder / "tiny.toml").runs()).settled < 6:
        time.sleep(0.25)  # until the claim of the one who was killed is stale
        run_study(read_study(folder / "tiny.toml"), Store(folder / "results", stale_after=0.2), block=1)


def _results(folder):
    found = {}
    for path in sorted((folder / "results" / "runs").glob("*.json")):
        content = json.loads(path.read_text())
        content["result"].pop("timing")
        found[path.name] = content
    return found


def _complete(folder):
    import pandas as pd

    from onepos.cli import main

    frame = pd.DataFrame(X[:30], columns=list("abcde")).assign(label=Y[:30])
    frame.to_csv(folder / "rows.csv", index=False)
    options = ["--label", "label", "--out", str(folder / "done"), "--quiet", "--min-precision", "0.6"]
    try:
        main(["complete", str(folder / "rows.csv"), *options])
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError(f"onepos complete ended with {stop.code}") from None


def _completed(folder):
    return {path.name: path.read_text() for path in sorted((folder / "done").iterdir()) if path.suffix == ".csv"}


def _check_completed(folder):
    """No table is there in part."""
    import pandas as pd

    for path in folder.glob("done/*.csv"):
        assert path.read_text().endswith("\n")
        pd.read_csv(path)


def _answer(folder):
    """Store answers as the server does; what is acknowledged is noted beside them, after it was."""
    from onepos.server.store import Action, Store, add_action

    store = Store(folder / "answers.db")
    with (folder / "acknowledged.txt").open("a") as noted:
        start = int((folder / "acknowledged.txt").read_text().count("\n"))
        for k in range(start, start + 200):
            action = Action(
                f"answer-{os.getpid()}-{k}", f"row-{k}", "Ann", "session-1", (("cat", "yes", 0.5, 1),), "done"
            )
            store.write(lambda connection, action=action: add_action(connection, action, store.now()))
            noted.write(f"{action.id}\n")
            noted.flush()
    store.close()


def _check_answers(folder):
    from onepos.server.store import Store

    if not (folder / "answers.db").exists():
        return
    store = Store(folder / "answers.db")
    with store.read() as connection:
        kept = {name for (name,) in connection.execute("SELECT id FROM actions")}
    store.close()
    noted = (folder / "acknowledged.txt").read_text().split("\n")[:-1] if (folder / "acknowledged.txt").exists() else []
    lost = [name for name in noted if name not in kept]
    assert not lost, f"{len(lost)} acknowledged answers are lost"


WORKS = {
    "fit, prepared first": Work(_fit("crisp-plus"), _model, _check_model),
    "fit over an older model": Work(_fit_again, _model, _check_model),
    "save": Work(_save_only, lambda folder: _model(folder)[1], _check_model),
    "bench": Work(_bench, _results),
    "complete": Work(_complete, _completed, _check_completed),
    "answers": Work(_answer, lambda folder: None, _check_answers),
}


def _in_child(do, folder, seconds=None):
    """Whether the work came to its end: in a forked process, which is killed after so many seconds."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            warnings.simplefilter("ignore")
            do(folder)
            status = 0
        finally:
            os._exit(status)
    end = time.monotonic() + (600 if seconds is None else seconds)
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _clean(outcome):
    return json.dumps(outcome, sort_keys=True, default=str).replace('"had a model", ', "")


def run_kills(name, seed, *, kills=None, seconds=None):
    """Kill a work again and again until it is done, then compare; for so many seconds, or until so many kills."""
    work, rng = WORKS[name], random.Random(f"{seed}/{name}")
    counts = {"kills": 0, "rounds": 0, "lost": 0, "different": 0}
    faults: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="onepos-reliability-") as place:
        whole = Path(place, "whole")
        whole.mkdir()
        began = time.monotonic()
        if _in_child(work.do, whole) != 0:
            raise RuntimeError(f"{name}: the work must end when it is not killed; it did not.")
        usual = [time.monotonic() - began]  # the shortest time that the work took so far
        expected, start = _clean(work.outcome(whole)), time.monotonic()
        while (kills is None or counts["kills"] < kills) and (seconds is None or time.monotonic() - start < seconds):
            folder = Path(place, "killed")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            _one_round(work, folder, rng, usual, counts, faults, expected)
    return {"target": name, "counts": counts, "faults": faults, "seconds": time.monotonic() - start}


def _one_round(work, folder, rng, usual, counts, faults, expected):
    for _ in range(rng.randint(2, 8 if usual[0] < 5 else 3)):
        began = time.monotonic()
        ended = _in_child(work.do, folder, rng.uniform(0, 0.9 * usual[0]))
        if ended is None:
            counts["kills"] += 1
        elif ended:
            counts["lost"] += 1
            faults.append({"case": counts["rounds"], "kind": "lost", "text": f"taken up again it ended with {ended}"})
        else:
            usual[0] = min(usual[0], time.monotonic() - began)
        try:
            work.check(folder)
        except Exception as error:
            counts["lost"] += 1
            text = f"after {counts['kills']} kills: {type(error).__name__}: {error}"
            faults.append({"case": counts["rounds"], "kind": "lost", "text": text})
            return
    counts["rounds"] += 1
    if _in_child(work.do, folder) != 0:
        counts["lost"] += 1
        faults.append({"case": counts["rounds"], "kind": "lost", "text": "it could not be taken up again"})
    elif _clean(work.outcome(folder)) != expected:
        counts["different"] += 1
        faults.append({"case": counts["rounds"], "kind": "different", "text": "it came to another result"})
