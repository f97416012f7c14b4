"""Every block of code on every page runs, and what a page shows is what its commands print."""

import pytest

import pages
from pages import PARSED, ROOT, Walk, blocks, hidden_commands, steps

METHOD_PAGES = sorted((ROOT / "docs" / "methods").glob("*.md"))  # tests/test_docs.py runs these block by block
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if not {"generated", "_build"} & set(p.parts)),
]


def name(path):
    return str(path.relative_to(ROOT))


def needs_real_fits(path):
    """Whether output of commands is on the page: then no fit is made shorter than a user's."""
    return any(step.shown for step in steps(path))


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in PAGES if any(steps(p)) and p not in METHOD_PAGES], ids=name)
def test_a_page_works_from_beginning_to_end(path, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    if not needs_real_fits(path):
        request.getfixturevalue("short_cross_fit")
    walk = Walk(monkeypatch)
    try:
        for step in steps(path):
            walk.take(step, path)
    finally:
        walk.close()


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_no_command_hides_in_a_block_that_is_not_run(path):
    assert not list(hidden_commands(path))
    assert {kind for kind, _, _ in blocks(path)} <= {
        "",
        "bash",
        "console",
        "python",
        "setup",
        "{eval-rst}",
        "{toctree}",
    }


def test_every_exception_is_needed():
    commands = [step.text for path in PAGES for step in steps(path) if step.kind == "command"]
    commands = [command.replace("./run", "onepos") for command in commands]
    for pattern in PARSED:
        assert any(pages.re.search(pattern, command) for command in commands), pattern
