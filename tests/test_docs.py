"""The documents can not drift: every method has its page, every example runs, every link leads somewhere."""

import doctest
import re
from pathlib import Path

import pytest

from onepos.methods import METHODS

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
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


def test_the_table_in_the_readme_is_the_table():
    """Name, what it is told beyond single positives, the first line about it, its page."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in METHODS:
        method = METHODS[name]()
        privileged = ", ".join(sorted(method.privileged)) or "–"
        about = type(method).__doc__.split("\n")[0]
        assert f"| [`{name}`]({page_of(name).relative_to(ROOT)}) | {privileged} | {about} |" in text


def python_blocks(path):
    return re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


EXAMPLES = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}-{k}")
    for path in [ROOT / "README.md", ROOT / "docs" / "deploy.md", *METHOD_PAGES]
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


def test_the_tree_in_the_readme_is_the_tree():
    """One line per file and folder of the package, no more and no less."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "onepos"
    listed = set(re.findall(r"^[│├└─\s]+([\w./]+)(?=\s{2,})", text, re.MULTILINE))
    real = {p.name for p in source.iterdir() if p.name not in ("__pycache__", "py.typed")}
    assert {name.rstrip("/") for name in listed} >= real
