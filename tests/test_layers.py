"""The architecture, enforced: imports go upwards only, and each room keeps out what is not its business."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import onepos

ROOT = Path(onepos.__file__).parent

# A room may import from the rooms above it, and from its own.
ROOMS = [
    {"files", "validation"},
    {"labels"},
    {"datasets"},
    {"protocol", "metrics"},
    {"priors"},
    {"methods"},
    {"training"},
    {"images"},
    {"estimator", "model_folder"},
    {"bench"},
    {"report"},
    {"cli", "__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


def room_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path):
    """The modules a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_upwards(path):
    for module in imported(path):
        package, _, rest = module.partition(".")
        if package == "onepos" and rest:
            theirs = rest.split(".")[0]
            assert LEVEL[theirs] <= LEVEL[room_of(path)], f"{room_of(path)} must not import {theirs}"


@pytest.mark.parametrize(
    ("room", "forbidden"),
    [
        ("datasets", {"torch"}),
        ("protocol", {"torch"}),
        ("metrics", {"torch"}),
        ("report", {"torch", "sklearn"}),
        ("training", {"sklearn"}),
    ],
)
def test_rooms_keep_out(room, forbidden):
    for path in FILES:
        if room_of(path) == room:
            assert not {module.split(".")[0] for module in imported(path)} & forbidden, path


def test_the_loop_names_no_method():
    from onepos.methods import METHODS

    classes = {type(factory()).__name__ for factory in METHODS.values()}
    for name in ("training", "runtime", "optimizers", "checkpoint", "method", "samples", "heads", "backbones"):
        words = set(re.findall(r"\w+", (ROOT / f"{name}.py").read_text(encoding="utf-8")))
        assert not words & classes, name


def test_only_the_runtime_goes_backward():
    """And cross_fit, whose small models are no one's network."""
    calls = [path.name for path in FILES if re.search(r"\bloss\.backward\(", path.read_text(encoding="utf-8"))]
    assert calls == ["crossfit.py", "runtime.py"]


@pytest.mark.parametrize("name", ["utils", "helpers", "common"])
def test_no_room_for_odds_and_ends(name):
    assert not list(ROOT.rglob(f"{name}.py"))


def test_import_brings_no_torch():
    code = "import sys, onepos; print([m for m in ('torch', 'sklearn', 'pandas', 'numpy') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_every_public_name_exists():
    for name in onepos.__all__:
        assert getattr(onepos, name) is not None
    assert set(onepos.__all__) <= set(dir(onepos))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = onepos.nothing
