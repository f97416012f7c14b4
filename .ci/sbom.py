"""A bill of materials of onepos as it is installed here: CycloneDX JSON, from the metadata of the packages alone.

    python .ci/sbom.py --extras parquet,images --out sbom.json

Needs nothing but the standard library. The same installation gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


def normalized(name: str) -> str:
    """The name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(distribution: metadata.Distribution, extras: set[str]) -> set[str]:
    """Normalized names of what a package requires, with some of its extras; only what is installed counts anyway."""
    names = set()
    for line in distribution.requires or ():
        wanted, _, marker = line.partition(";")
        extra = _EXTRA.search(marker)
        if extra is None or normalized(extra[1]) in extras:
            names.add(normalized(_NAME.match(wanted.strip())[0]))  # type: ignore[index]
    return names


def closure(root: str, extras: set[str]) -> dict[str, tuple[metadata.Distribution, set[str]]]:
    """Every installed package that the root needs, directly or not: its metadata, and what it needs of them."""
    installed = {normalized(each.metadata["Name"]): each for each in metadata.distributions() if each.metadata["Name"]}
    if root not in installed:
        raise SystemExit(f"{root} must be installed in this environment; it is not. Run: pip install {root}")
    found: dict[str, tuple[metadata.Distribution, set[str]]] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name not in found:
            needs = requirements(installed[name], extras if name == root else set()) & installed.keys()
            found[name] = installed[name], needs
            waiting += sorted(needs)
    return dict(sorted(found.items()))


def component(name: str, distribution: metadata.Distribution) -> dict[str, Any]:
    """One package."""
    facts = distribution.metadata
    entry: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}@{distribution.version}",
        "name": name,
        "version": distribution.version,
        "purl": f"pkg:pypi/{name}@{distribution.version}",
    }
    stated = facts.get("License-Expression") or facts.get("License") or ""
    if stated and len(stated) < 100 and "\n" not in stated:
        entry["licenses"] = [{"expression": stated} if "License-Expression" in facts else {"license": {"name": stated}}]
    return entry


def make(root: str, extras: set[str]) -> dict[str, Any]:
    """The bill."""
    found = closure(root, extras)
    components = {name: component(name, distribution) for name, (distribution, _) in found.items()}
    main = components.pop(root) | {"type": "application"}
    refs = {name: each["bom-ref"] for name, each in ({root: main} | components).items()}
    content = {
        "metadata": {"component": main},
        "components": list(components.values()),
        "dependencies": [
            {"ref": refs[name], "dependsOn": sorted(refs[each] for each in needs)} for name, (_, needs) in found.items()
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return head | content


def main(arguments: list[str] | None = None) -> int:
    """Write the bill, or print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--extras", default="", help="extras of onepos that count as needed, by commas")
    parser.add_argument("--out", type=Path, help="the file to write; without it the bill is printed")
    options = parser.parse_args(arguments)
    extras = {normalized(each) for each in options.extras.split(",") if each}
    text = json.dumps(make("onepos", extras), indent=1, ensure_ascii=False) + "\n"
    if options.out is None:
        sys.stdout.write(text)
    else:
        options.out.write_text(text, encoding="utf-8")
        print(f"{len(json.loads(text)['components'])} packages: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
