"""The bill of materials and the audit of what is installed."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import onepos

CI = Path(__file__).parent.parent / ".ci"
pytestmark = pytest.mark.skipif(not CI.is_dir(), reason="not in the repository")


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, str(CI / script), *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_the_bill_names_every_dependency_with_its_version():
    found = json.loads(run("sbom.py", "--extras", "parquet").stdout)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.5")
    assert found["metadata"]["component"]["name"] == "onepos"
    names = {each["name"]: each for each in found["components"]}
    assert {"torch", "numpy", "pandas", "pyarrow", "python-dateutil"} <= set(names)
    assert "pytest" not in names
    assert names["torch"]["purl"].startswith("pkg:pypi/torch@2.")
    refs = {each["bom-ref"] for each in [*found["components"], found["metadata"]["component"]]}
    assert {each["ref"] for each in found["dependencies"]} == refs
    assert {name for each in found["dependencies"] for name in each["dependsOn"]} <= refs
    assert found == json.loads(run("sbom.py", "--extras", "parquet").stdout)


@pytest.fixture
def advisories(tmp_path):
    def write(*entries):
        lines = [
            {"id": f"A-{k}", "summary": "bad", "affected": [{"package": {"ecosystem": "PyPI", "name": name}, **span}]}
            for k, (name, span) in enumerate(entries)
        ]
        with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
            for line in lines:
                archive.writestr(f"{line['id']}.json", json.dumps(line))
        (tmp_path / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return tmp_path / "all.zip", tmp_path / "all.jsonl"

    return write


def _span(**events):
    return {"ranges": [{"type": "ECOSYSTEM", "events": [{key: value} for key, value in events.items()]}]}


def test_the_audit_finds_what_is_affected_and_nothing_else(advisories, tmp_path):
    (tmp_path / "lock.txt").write_text("Some_Package==1.4.0\nother==2.0  # with a remark\n")
    files = advisories(
        ("some-package", _span(introduced="1.0", fixed="1.5")),
        ("some-package", _span(introduced="0", fixed="1.4.0")),
        ("other", {"versions": ["2.0"]}),
        ("other", _span(introduced="0", last_affected="1.9")),
        ("absent", _span(introduced="0")),
    )
    for file in files:
        found = run("audit.py", "--lock", tmp_path / "lock.txt", "--read", "--advisories", file)
        assert found.stdout.splitlines() == [
            "other 2.0: A-2: bad",
            "some-package 1.4.0: A-0: bad",
            "2 packages compared with 5 advisories: 2 found",
        ]
        assert found.returncode == 1


def test_an_audit_without_advisories_says_that_it_checked_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv("ONEPOS_ADVISORIES", raising=False)
    found = run("audit.py", "--lock", tmp_path / "lock.txt")
    assert found.returncode == 0
    assert found.stdout.splitlines()[-1].startswith("no package was audited: a file of advisories is needed")
    assert f"onepos=={onepos.__version__}" in (tmp_path / "lock.txt").read_text()
    assert "all.zip is not there" in run("audit.py", "--advisories", tmp_path / "all.zip").stdout
