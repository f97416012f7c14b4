"""Every block of code on every page runs, and what a page shows is what its commands print."""

import re
import shlex

import pytest

from pages import PARSED, ROOT, Step, Walk, blocks, check_installation, compare, hidden_commands, parse, steps

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
        assert any(re.search(pattern, command) for command in commands), pattern


def test_pages_of_methods_hold_no_commands():
    assert not [step for path in METHOD_PAGES for step in steps(path) if step.kind != "python"]


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        ("label   share\ndog   0.41", "label  share\ndog  0.43\n", True),
        ("label   share\ndog   0.41", "label  prior\ndog  0.43\n", False),  # another word
        ("label   share\ndog   0.41", "label  share\ndog  0.61\n", False),  # another number
        ("label   share", "label  share\ndog  0.41\n", False),  # a line that the page does not show
        ("label   share\n...", "label  share\ndog  0.41\n", True),
        ("...\nwritten to a.csv", "label\nwritten to a.csv\n", True),
        ("read a.csv: 80 rows", "read a.csv: 81 rows\n", False),  # what no fit can change is exact
        ("added 80 labels", "added 81 labels\n", True),
    ],
)
def test_words_are_equal_and_numbers_near(shown, printed, is_same):
    step = Step("command", "onepos fit a.csv", tuple(shown.split("\n")))
    if is_same:
        compare(step, printed)
    else:
        with pytest.raises(AssertionError):
            compare(step, printed)


@pytest.mark.parametrize("arguments", ["fit a.csv --labl tag", "bench run fair --seed x", "fitt a.csv"])
def test_a_command_that_is_only_checked_must_still_be_right(arguments):
    with pytest.raises(Exception, match=r"No such|valid"):
        parse(arguments.split())
    parse(["bench", "run", "fair", "--device", "cuda"])


@pytest.mark.parametrize("line", ["install 'onepos[pictures]'", "install -c nothing.txt -e .", "install unknown"])
def test_an_installation_names_what_there_is(line):
    with pytest.raises(AssertionError):
        check_installation(shlex.split(line))
    check_installation(shlex.split("install -c constraints.txt -e '.[images,web]' onnxruntime"))
