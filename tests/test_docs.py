"""The documents can not drift: methods have pages, links lead somewhere, public names explain themselves."""

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import onepos
from onepos.cli import main
from onepos.methods import METHODS

ROOT = Path(__file__).parent.parent
# Pages that are written, not made by the build of the site.
PAGES = sorted(p for p in (ROOT / "docs").rglob("*.md") if not {"generated", "_build"} & set(p.parts))
METHOD_PAGES = sorted((ROOT / "docs" / "methods").glob("*.md"))
SECTIONS = ("**Idea.**", "**Formula.**", "**Parameters.**", "**Deviations.**", "**Reference", "**Example.**")


def page_of(name):
    """The page is named after the file or package of the method's class, so variants share one."""
    module = type(METHODS[name]()).__module__.removeprefix("onepos.methods.").split(".")[0]
    return ROOT / "docs" / "methods" / f"{module}.md"


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_has_a_page(name):
    text = page_of(name).read_text(encoding="utf-8")
    for section in SECTIONS:
        assert section in text, section
    for parameter in METHODS[name]().get_params():
        assert f"`{parameter}`" in text, parameter


def test_every_page_has_a_method():
    assert {page_of(name) for name in METHODS} == set(METHOD_PAGES)


def test_the_table_of_methods_is_the_table():
    """Name, what the method needs beyond single positives, the first line about it, its page."""
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    for name in METHODS:
        method = METHODS[name]()
        privileged = ", ".join(sorted(method.privileged)) or "–"
        about = type(method).__doc__.split("\n")[0]
        assert f"| [`{name}`]({page_of(name).relative_to(ROOT / 'docs')}) | {privileged} | {about} |" in text


BASELINES = {  # row of the table in the README: column of the page of results
    "`crisp-plus`, the default": "crisp-plus",
    "`crisp`, the method of the CRISP paper": "crisp",
    "`an`, unknown labels count as absent": "an",
    "one-vs-rest logistic regression": "one-vs-rest",
    "softmax regression": "softmax",
    "extra trees": "extra-trees",
    "random forest": "random-forest",
    "a network": "full-network",
}


def test_the_numbers_in_the_readme_are_those_of_the_page():
    page = (ROOT / "research" / "results" / "baselines.md").read_text(encoding="utf-8")
    columns = [cell.strip() for cell in re.search(r"^\| data set (.*)", page, re.MULTILINE)[1].split("|")[1:]]
    means = [
        dict(zip(columns, (cell.strip() for cell in line.split("|")), strict=False))
        for line in re.findall(r"^\| mean of 14 \|(.*)", page, re.MULTILINE)
    ]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for row, column in BASELINES.items():
        assert f"| {row} | {' | '.join(mean[column] for mean in means)} |" in text


def python_blocks(path):
    return re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


EXAMPLES = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}-{k}")
    for path in METHOD_PAGES
    for k, block in enumerate(python_blocks(path))
]


@pytest.mark.parametrize("block", EXAMPLES)
def test_examples_run(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "example", "exec"), {})
    assert capsys.readouterr().out, "an example shows something"


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda p: str(p.relative_to(ROOT))
)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        if "://" not in target and not target.startswith("mailto:"):
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", [p for p in PAGES if ">>> " in p.read_text(encoding="utf-8")], ids=lambda p: p.name)
def test_sessions_in_the_pages_are_true(path):
    failed, tried = doctest.testfile(str(path), module_relative=False)
    assert tried > 0
    assert failed == 0


def test_the_tree_of_the_architecture_is_the_tree():
    """One line per file and folder of the package, no more and no less."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "onepos"
    listed = set(re.findall(r"^[│├└─\s]+([\w./]+)(?=\s{2,})", text, re.MULTILINE))
    real = {p.name for p in source.iterdir() if p.name not in ("__pycache__", "py.typed")}
    assert {name.rstrip("/") for name in listed} >= real


def test_the_page_of_the_commands_has_their_help(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_extensions"))
    monkeypatch.setenv("COLUMNS", "120")
    import_module("onepos_site").write_commands(tmp_path / "commands.md")
    page = (tmp_path / "commands.md").read_text(encoding="utf-8")
    for command in (["fit"], ["bench", "run"], ["data", "get"]):
        with pytest.raises(SystemExit):
            main([*command, "--help"])
        assert capsys.readouterr().out.partition("\n")[2].strip() in page
    assert set(re.findall(r"^### onepos (\w+)$", page, re.MULTILINE)) >= {"demo", "fit", "complete", "serve", "list"}


def documented(docstring, section):
    """The names that a section of a Google docstring explains."""
    found = re.search(rf"^{section}:\n(.*?)(?=^\S|\Z)", docstring, re.DOTALL | re.MULTILINE)
    return set(re.findall(r"^    \*{0,2}(\w+)(?: \([^)]*\))?:", found[1], re.MULTILINE)) if found else set()


@pytest.mark.parametrize("name", [n for n in onepos.__all__ if callable(getattr(onepos, n))])
def test_every_public_name_explains_itself(name):
    """Each parameter is explained, in Args or, of a class that only holds data, in Attributes; an example is there."""
    thing = getattr(onepos, name)
    docstrings = [inspect.getdoc(k) or "" for k in (inspect.getmro(thing) if inspect.isclass(thing) else [thing])]
    explained = set().union(*(documented(text, section) for text in docstrings for section in ("Args", "Attributes")))
    assert set(inspect.signature(thing).parameters) <= explained
    assert ">>> " in docstrings[0], "an example, which --doctest-modules runs"


CLASSES = [name for name in onepos.__all__ if inspect.isclass(getattr(onepos, name))]


def own_methods(thing):
    """The public methods that this library writes, not those that scikit-learn and torch add; with who writes them."""
    for name, value in inspect.getmembers(thing, lambda v: inspect.isfunction(v) or inspect.ismethod(v)):
        writers = [k for k in inspect.getmro(thing) if name in vars(k)]
        is_made = re.fullmatch("set_.*_request", name) or name in getattr(thing, "__dataclass_fields__", ())
        if not name.startswith("_") and writers[0].__module__.startswith("onepos") and not is_made:
            yield name, value, writers


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_of_a_public_class_explains_its_arguments(name):
    """Where a method replaces that of a base class, the base class may have explained them."""
    for method, function, writers in own_methods(getattr(onepos, name)):
        docstrings = [inspect.getdoc(vars(writer)[method]) or "" for writer in writers]
        explained = set().union(*(documented(text, "Args") for text in docstrings))
        assert docstrings[0], f"{name}.{method}"
        assert set(inspect.signature(function).parameters) - {"self"} <= explained, f"{name}.{method}"


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_class_lists_what_a_fit_sets(name):
    """Names that end in _, by which scikit-learn knows what is fitted: those that are assigned, and properties."""
    bases = [k for k in inspect.getmro(getattr(onepos, name)) if k.__module__.startswith("onepos")]
    assigned = r"\bself\.([a-z]\w*_)\b(?=[^=\n(]*=(?!=))"
    fitted = set(re.findall(assigned, "".join(inspect.getsource(base) for base in bases)))
    properties = {p for base in bases for p, v in vars(base).items() if p.endswith("_") and isinstance(v, property)}
    listed = set().union(*(documented(inspect.getdoc(base) or "", "Attributes") for base in bases))
    assert fitted | {p for p in properties if not p.startswith("_")} <= listed
