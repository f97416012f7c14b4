"""Damage that is steered by the coverage of the readers written in Python; only where atheris is installed.

`pip install atheris`, then `./test --reliability --coverage-guided --minutes 5`. Each reader runs in a process of its
own, from the whole file of its target on. What reaches new lines is kept and changed further. Readers in C (Parquet,
images, HDF5) gain nothing from it: only Python is watched.
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

SUFFIXES = {
    "csv": ".csv",
    "jsonl": ".jsonl",
    "arff": ".arff",
    "arff, sparse": ".arff",
    "mat 5": ".mat",
    "mat 5, plain": ".mat",
    "npz": ".npz",
    "npy": ".npy",
    "coco": ".json",
    "cub": ".txt",
    "nus-wide, list": ".txt",
    "long labels": ".csv",
    "draw": ".json",
    "model folder": ".json",
    "study": ".toml",
}
"""Target → the suffix of the file that is damaged; where there are several, the last of them by name."""

_MOST_BYTES = 20_000
_FAULTS = "faults.json"


def run_guided(only, seed, seconds):
    """Run each reader for its share of the time; returns 1 where something was found, 2 without atheris."""
    if find_spec("atheris") is None:
        print("--coverage-guided needs atheris, which is not installed. Run: pip install atheris", file=sys.stderr)
        return 2
    names = [name for name in SUFFIXES if only in (None, name)]
    if not names:
        print(f"--only must be one of {', '.join(SUFFIXES)}; it is {only!r}.", file=sys.stderr)
        return 2
    n_faults = 0
    for name in names:
        with tempfile.TemporaryDirectory(prefix="onepos-reliability-") as place:
            command = [sys.executable, __file__, name, place, str(seed), str(max(1, int(seconds / len(names))))]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            path = Path(place, _FAULTS)
            found = json.loads(path.read_text()) if path.exists() else {"inputs": 0, "faults": []}
        if done.returncode not in (0, None):  # libFuzzer ends a process that hangs, or takes too much
            found["faults"].append({"text": done.stderr[-1500:], "content": ""})
        print(f"{name}: {found['inputs']} inputs, {len(found['faults'])} faults", flush=True)
        for fault in found["faults"][:5]:
            print(f"  {fault['text'][:1500]}\n  input: {fault['content'][:400]}")
        n_faults += len(found["faults"])
    return 1 if n_faults else 0


def guide(name, place, seed, seconds):
    """In a process of its own: one reader, until the time is over; libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["onepos"]):
        import onepos.cli.inputs
        import onepos.datasets
        import onepos.datasets.arff
        import onepos.datasets.embeddings
        import onepos.datasets.json_lines
        import onepos.datasets.mat
        import onepos.datasets.npz
        import onepos.datasets.table
        import onepos.exchange
        import onepos.long_labels
        import onepos.model_folder  # noqa: F401
    from isolation import SECONDS, outcome_of
    from targets import TARGETS

    target, folder, corpus = TARGETS[name], Path(place, "case"), Path(place, "corpus")
    folder.mkdir()
    corpus.mkdir()
    target.make(folder)
    path = sorted(path for path in folder.rglob(f"*{SUFFIXES[name]}") if path.is_file())[-1]
    (corpus / "whole").write_bytes(path.read_bytes())
    names = {each.name for each in folder.rglob("*")} | {folder.name}
    found = {"inputs": 0, "faults": []}
    texts = set()

    def read(content):
        found["inputs"] += 1
        path.write_bytes(content)
        kind, text = outcome_of(lambda: target.read(folder), names)
        if kind == "foreign" and text[:80] not in texts and len(texts) < 20:
            texts.add(text[:80])
            found["faults"].append({"text": text, "content": repr(content)})
        if found["inputs"] % 200 == 1 or kind == "foreign":
            Path(place, _FAULTS).write_text(json.dumps(found))

    options = [f"-max_total_time={seconds}", f"-seed={seed + 1}", f"-max_len={_MOST_BYTES}", "-rss_limit_mb=4096"]
    os.chdir(place)  # what libFuzzer leaves
    atheris.Setup([sys.argv[0], *options, f"-timeout={int(SECONDS)}", str(corpus)], read)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    guide(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
