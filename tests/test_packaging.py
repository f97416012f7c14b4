"""What surrounds the code: one version, bounds that are tested, workflow files that name what exists."""

import re
import tomllib
from pathlib import Path

import pytest

import onepos

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_version_has_one_source():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert "version" not in PROJECT["project"]
    assert (ROOT / PROJECT["tool"]["hatch"]["version"]["path"]).samefile(onepos.__file__)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [onepos.__version__]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## \[(.+?)\]", changes, re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert onepos.__version__ in sections


def test_the_lowest_versions_are_those_of_pyproject():
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [*PROJECT["project"]["dependencies"], *(line for lines in extras.values() for line in lines)]
    bounds = dict(line.split(">=") for line in wanted if ">=" in line)
    text = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8")
    pinned = dict(line.split("==") for line in text.splitlines() if "==" in line)
    assert set(pinned) == set(bounds)
    for name, bound in bounds.items():
        assert [int(k) for k in pinned[name].split(".")][: bound.count(".") + 1] == [int(k) for k in bound.split(".")]


def test_pre_commit_runs_the_ruff_of_the_constraints():
    pinned = re.search(r"^ruff==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)[1]
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert re.findall(r"ruff-pre-commit\n +rev: v([\d.]+)", hooks) == [pinned]


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_files_for_github_name_files_that_exist(path):
    for named in re.findall(r"(?:-c |pytest )([\w./-]+\.\w+)", path.read_text(encoding="utf-8")):
        assert (ROOT / named).is_file(), named


def test_every_install_in_a_workflow_has_constraints():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for line in re.findall(r"pip install .*", path.read_text(encoding="utf-8")):
            assert " -c constraints" in line, line


def test_the_wheel_holds_the_files_of_the_pages():
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    builder = wheel.WheelBuilder(str(ROOT))
    held = {file.distribution_path for file in builder.recurse_included_files()}
    for folder in ("server/static", "report/templates"):
        files = list((ROOT / "src" / "onepos" / folder).iterdir())
        assert files
        assert {f"onepos/{folder}/{path.name}" for path in files} <= held
