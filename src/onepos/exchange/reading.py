"""A file of another tool → a long table, whatever tool it is of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onepos.datasets.files import check_file, naming, open_binary
from onepos.exchange import coco, hugging_face, label_studio
from onepos.exchange.json_text import MOST_BYTES, as_text, parse

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".json", ".json.gz")
_LONG = {"item", "label", "value"}
_KINDS = (
    "an export of Label Studio (JSON or JSON-MIN), labels of COCO or LVIS (images, annotations, categories), or a list "
    "of objects with item, label and value"
)


def is_foreign(path: Path) -> bool:
    """Whether a path may name labels of another tool: JSON, or the folder of a data set."""
    return path.name.lower().endswith(SUFFIXES) or (path.is_dir() and hugging_face.is_saved(path))


def read_answers(path: str | Path, *, item: str | None = None) -> pd.DataFrame:
    """A long table of the labels in a file: item, label, value and, where there are, source, time, reviewer, reason.

    Args:
        path: An export of Label Studio, labels of COCO or LVIS, a list of answers (JSON), or the folder of a saved
            `datasets.Dataset`.
        item: In an export of Label Studio the entry of the data, in a data set the column, that names the item; by
            default "item".
    """
    path = Path(path)
    if path.is_dir() and hugging_face.is_saved(path):
        dataset = hugging_face.load_saved(path)
        with naming(path, "Save the data set again with save_to_disk."):
            return _as_frame(hugging_face.read_dataset(dataset, item))
    with naming(check_file(path), "Export the file again."), open_binary(path) as file:
        return parse_answers(file.read(MOST_BYTES + 1), item=item)


def parse_answers(content: bytes, *, item: str | None = None) -> pd.DataFrame:
    """The same of the content of a JSON file."""
    value = parse(content)
    if coco.is_coco(value):
        return _as_frame(coco.read_coco(value))
    if label_studio.is_export(value):
        return _as_frame(label_studio.read_export(value, item))
    if isinstance(value, list) and all(isinstance(line, dict) and set(line) >= _LONG for line in value):
        return _as_frame([_read_line(line, f"line {number}") for number, line in enumerate(value, start=1)])
    raise ValueError(f"labels in JSON must be {_KINDS}; these are none of them. Export the file again.")


def _read_line(line: dict[str, Any], where: str) -> dict[str, str]:
    known = ("item", "label", "value", "source", "time", "reviewer", "reason")
    return {name: _as_word(line[name], name, where) for name in known if name in line}


def _as_word(value: Any, name: str, where: str) -> str:
    """A cell as text; a missing one is empty."""
    if value is None:
        return ""
    return str(value) if isinstance(value, bool | float) else as_text(value, name, where)


def _as_frame(lines: list[dict[str, str]]) -> pd.DataFrame:
    """A frame of text; what no line has is no column."""
    import pandas as pd

    if not lines:
        raise ValueError("a file of labels must hold at least one; it holds none. Check that it is the right file.")
    return pd.DataFrame(lines).fillna("")
