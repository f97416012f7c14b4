"""The XML file that stands beside a Mulan ARFF file and names its labels."""

from pathlib import Path
from typing import Any
from xml.parsers import expat

from onepos.datasets.files import naming, open_binary


def read_label_names(path: Path) -> tuple[str, ...]:
    """Return the label names in the order of the file; nested labels are flattened.

    A file with a document type declaration is refused: Mulan's files have none, and entities declared there
    could grow without bound or point at other files.
    """
    names: list[str] = []
    parser = expat.ParserCreate(namespace_separator=" ")

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag.split(" ")[-1] != "label":
            return
        if "name" not in attributes:
            raise ValueError(
                f"{path.name}, line {parser.CurrentLineNumber}: a label must have a name; this one has none. Add it."
            )
        names.append(attributes["name"])

    def refuse(*_: Any) -> None:
        raise ValueError(
            f"{path.name} must not declare a document type or entities; line {parser.CurrentLineNumber} does. "
            "Remove the declaration."
        )

    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = refuse
    with naming(path), open_binary(path) as handle:
        parser.ParseFile(handle)
    if not names:
        raise ValueError(f"{path.name} must list labels as <label name=…>; it lists none. Get the file again.")
    return tuple(names)


def find_label_xml(arff: Path) -> Path | None:
    """Return the XML beside an ARFF file: the same stem, or the stem less its last words (`-train`, `-sparse`)."""
    stem = arff.name.removesuffix(".gz").removesuffix(".arff")
    while stem:
        for suffix in (".xml", ".xml.gz"):
            candidate = arff.with_name(stem + suffix)
            if candidate.is_file():
                return candidate
        stem = stem.rpartition("-")[0]
    return None
