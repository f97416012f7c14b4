"""The architecture, enforced: a layer imports only from layers above it, and some layers stay light."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import onepos

ROOT = Path(onepos.__file__).parent

# A module may import from its own layer and from those above it. A path names a module or a whole package.
LAYERS = [
    ["files", "reading", "validation"],
    ["labels", "long_labels"],
    ["datasets"],
    ["exchange"],
    ["tables"],
    ["protocol", "metrics", "criteria", "scoring"],
    ["priors"],
    ["methods"],
    ["training"],
    ["images"],
    ["estimator", "model_folder", "images.classifier"],
    ["completion"],
    ["export"],
    ["bench"],
    ["report"],
    ["server"],
    ["cli", "__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


def module_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def level_of(module):
    """Of the longest name in the table that the module's begins with."""
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return LEVEL[next(name for name in names if name in LEVEL)]


def imported(path):
    """The modules a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_go_upwards(path):
    for module in imported(path):
        package, _, rest = module.partition(".")
        if package == "onepos" and rest and not rest.startswith("__version__"):
            assert level_of(rest) <= level_of(module_of(path)), f"{module_of(path)} must not import {rest}"


@pytest.mark.parametrize(
    ("modules", "forbidden"),
    [
        (["files", "reading", "validation"], ["torch", "sklearn", "pandas"]),
        (["datasets", "exchange", "tables", "protocol", "metrics", "criteria", "scoring"], ["torch"]),
        (["bench.results", "bench.study", "bench.store", "bench.statistics"], ["torch", "sklearn"]),
        (["report"], ["torch", "sklearn"]),
        (["server"], ["torch", "sklearn", "pandas"]),
        (["cli"], ["torch", "sklearn", "pandas", "matplotlib", "fastapi"]),
    ],
    ids=lambda names: names[0],
)
def test_light_layers_stay_light_whatever_they_import(modules, forbidden):
    """In a process of its own: what is there after all modules of a layer were imported, directly or not."""
    found = [module_of(path) for path in FILES if any(within(module_of(path), name) for name in modules)]
    names = [f"onepos.{name.removesuffix('.__init__')}" for name in found]
    assert names
    code = (
        "import importlib, sys\n"
        f"[importlib.import_module(name) for name in {names}]\n"
        f"print([name for name in {forbidden} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def within(module, name):
    return module == name or module.startswith(f"{name}.")


def test_no_method_is_named_outside_its_own_layer():
    """The loop, the estimator, the bench and the pages know METHODS, and none of its entries."""
    from onepos.methods import METHODS

    classes = {type(factory()).__name__ for factory in METHODS.values()}
    for path in FILES:
        if level_of(module_of(path)) not in (LEVEL["methods"], LEVEL["cli"]):
            words = set(re.findall(r"\w+", _code(path)))
            assert not words & classes, path


def _code(path):
    """The file without strings and comments."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.unparse(tree)


def test_one_loop():
    """Gradients are computed by the loop, and by the small models of the held-out predictions."""
    calls = [module_of(path) for path in FILES if re.search(r"\bloss\.backward\(", path.read_text(encoding="utf-8"))]
    assert calls == ["methods.fold_models", "training.loop"]


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


def test_the_library_stays_small():
    """Without bench, exchange of labels, reports and review server: what a user of a model has to trust."""
    apart = ("bench", "exchange", "report", "server")
    library = [path for path in FILES if path.relative_to(ROOT).parts[0] not in apart]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in library) <= 22_000
