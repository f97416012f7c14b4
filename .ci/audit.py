"""Known vulnerabilities of the packages that are installed here, from a file of advisories; no connection is made.

    python .ci/audit.py --lock lock.txt                     # only write down what is installed, name==version
    python .ci/audit.py --advisories advisories.zip         # and compare it

The advisories are those of OSV, one JSON object each: a ZIP archive (OSV offers one per ecosystem), a folder, or a
file of JSON lines. Without them nothing is compared, and that is printed: an audit that checked nothing is none.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from packaging.version import InvalidVersion, Version
from sbom import normalized

VARIABLE = "ONEPOS_ADVISORIES"


def installed() -> dict[str, str]:
    """Name → version of every package here."""
    found = {
        normalized(each.metadata["Name"]): each.version for each in metadata.distributions() if each.metadata["Name"]
    }
    return dict(sorted(found.items()))


def read_lock(path: Path) -> dict[str, str]:
    """Name → version of a file with a line name==version per package."""
    lines = (line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return {normalized(name): version for line in lines if line for name, _, version in [line.partition("==")]}


def read_advisories(path: Path) -> Iterator[dict[str, Any]]:
    """Every advisory of a ZIP archive, a folder or a file of JSON lines."""
    if path.is_dir():
        yield from (json.loads(file.read_bytes()) for file in sorted(path.rglob("*.json")))
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from (json.loads(archive.read(name)) for name in archive.namelist() if name.endswith(".json"))
    else:
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines if line.strip())


def affects(entry: dict[str, Any], version: str) -> bool:
    """Whether an `affected` entry of OSV covers a version: listed, or between introduced and fixed."""
    if version in entry.get("versions", ()):
        return True
    spans = [each["events"] for each in entry.get("ranges", ()) if each.get("type") == "ECOSYSTEM"]
    return any(_is_within(events, version) for events in spans)


def _is_within(events: list[dict[str, str]], version: str) -> bool:
    try:
        mine, inside = Version(version), False
        for event in events:
            if "introduced" in event and mine >= Version(event["introduced"]):
                inside = True
            if "fixed" in event and mine >= Version(event["fixed"]):
                inside = False
            if "last_affected" in event and mine > Version(event["last_affected"]):
                inside = False
    except InvalidVersion:
        return True  # rather one line too many
    return inside


def audit(packages: dict[str, str], advisories: Iterator[dict[str, Any]]) -> tuple[int, list[str]]:
    """How many advisories were read, and a line per package and advisory that concerns it."""
    count, lines = 0, []
    for advisory in advisories:
        count += 1
        if advisory.get("withdrawn"):
            continue
        for entry in advisory.get("affected", ()):
            package = entry.get("package", {})
            name = normalized(str(package.get("name", "")))
            if package.get("ecosystem") == "PyPI" and name in packages and affects(entry, packages[name]):
                text = str(advisory.get("summary") or advisory.get("details") or "").split("\n")[0][:120]
                lines.append(f"{name} {packages[name]}: {advisory.get('id', '?')}: {text}")
    return count, sorted(set(lines))


def main(arguments: list[str] | None = None) -> int:
    """0 where nothing is known against the packages, or nothing could be compared; 1 otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--advisories", type=Path, default=os.environ.get(VARIABLE), help=f"[default: ${VARIABLE}]")
    parser.add_argument("--lock", type=Path, help="write what is installed to this file; with --read, read it instead")
    parser.add_argument("--read", action="store_true", help="audit the packages of the lock, not those installed here")
    options = parser.parse_args(arguments)
    packages = read_lock(options.lock) if options.read else installed()
    if options.lock is not None and not options.read:
        options.lock.write_text("".join(f"{name}=={version}\n" for name, version in packages.items()), encoding="utf-8")
        print(f"{len(packages)} packages: {options.lock}")
    path = None if options.advisories is None else Path(options.advisories)
    if path is None or not path.exists():
        where = f"{path} is not there" if path else f"none is named with --advisories or ${VARIABLE}"
        print(f"no package was audited: a file of advisories is needed, and {where}.")
        return 0
    count, lines = audit(packages, read_advisories(path))
    print(*lines, sep="\n", end="\n" if lines else "")
    print(f"{len(packages)} packages compared with {count} advisories: {len(lines)} found")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
