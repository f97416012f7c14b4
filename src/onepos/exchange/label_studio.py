"""Label Studio: tasks with pre-annotations and a labeling configuration out, its exports (JSON and JSON-MIN) in.

A project has one choice per label, of yes, no and unsure. What an annotator leaves open stays unknown. The name of a
choice holds its label, so an export needs no other file to be read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote
from xml.etree import ElementTree

import numpy as np

from onepos.exchange.entries import Entries, read_columns
from onepos.exchange.json_text import as_list, as_text
from onepos.files import write_atomically

Line = dict[str, str]

_PREFIX = "label_"
_ITEM = "item"
_WORDS = ("yes", "no", "unsure")
# In the data of a task, beside the columns that are shown.
_OWN = ("item", "image", "reason", "look_at", "expected_errors")
_LABELS_NAMED = 5
_PLACES = 6
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class LabelStudioProject(NamedTuple):
    """What Label Studio needs.

    Attributes:
        tasks: To import; one per item, with predictions and, where all labels of the item are known, an annotation.
        config: The labeling configuration, XML.
    """

    tasks: list[dict[str, Any]]
    config: str

    def save(self, folder: str | Path) -> dict[str, Path]:
        """Write `tasks.json` and `config.xml`."""
        text = json.dumps(self.tasks, ensure_ascii=False, separators=(",", ":"))
        contents = {"tasks": ("tasks.json", text), "config": ("config.xml", self.config)}
        Path(folder).mkdir(parents=True, exist_ok=True)
        return {name: write_atomically(Path(folder) / file, text) for name, (file, text) in contents.items()}


def make_project(
    entries: Entries,
    columns: Any = None,
    *,
    images: Sequence[str] | None = None,
    rows: Sequence[int] | None = None,
    reasons: Sequence[str] | None = None,
) -> LabelStudioProject:
    """Tasks and labeling configuration.

    Args:
        entries: What is known and what was added.
        columns: What an annotator sees of an item: a data frame, or names and lists of cells.
        images: The address of each item's image, as Label Studio opens it.
        rows: The items to make tasks of, in this order; by default all.
        reasons: Of each of these rows, why it was chosen: "doubtful" or "random".
    """
    n = len(entries.items)
    shown = {} if columns is None else read_columns(columns, n, ())
    if images is not None and len(images) != n:
        raise ValueError(f"images must hold an address per item, {n} in all; it holds {len(images)}. Pass all.")
    keys = _name_keys(list(shown))
    chosen = range(n) if rows is None else rows
    errors = entries.expected_errors()
    tasks = []
    for place, row in enumerate(chosen):
        data: dict[str, Any] = {_ITEM: entries.items[row]}
        if images is not None:
            data["image"] = images[row]
        data |= {key: _as_cell(shown[name][row]) for name, key in keys.items()}
        if reasons is not None:
            data["reason"] = str(reasons[place])
        tasks.append(_make_task(entries, row, errors[row], data))
    has_doubts = entries.probability is not None
    return LabelStudioProject(tasks, _make_config(entries.classes, keys, images is not None, has_doubts))


def name_of(label: str) -> str:
    """The name of the choice of a label.

    Example:
        >>> name_of("Café / bar"), label_of(name_of("Café / bar"))
        ('label_Caf%C3%A9%20%2F%20bar', 'Café / bar')
    """
    return _PREFIX + quote(label, safe="")


def label_of(name: str) -> str | None:
    """The label of a choice that `name_of` named; None of other names."""
    return unquote(name.removeprefix(_PREFIX), errors="strict") if name.startswith(_PREFIX) else None


def _name_keys(names: list[str]) -> dict[str, str]:
    """Column → its key in the data of a task, of letters and digits."""
    keys: dict[str, str] = {}
    for k, name in enumerate(names):
        is_plain = re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) and name not in _OWN and not name.startswith(_PREFIX)
        keys[name] = name if is_plain else f"column_{k}"
    if len(set(keys.values())) < len(keys):
        keys = {name: f"column_{k}" for k, name in enumerate(names)}
    return keys


def _as_cell(cell: Any) -> str:
    text = str(cell)
    is_missing = cell is None or (isinstance(cell, float) and math.isnan(cell)) or text in ("<NA>", "NaT")
    return "" if is_missing else _in_xml(text)


def _make_task(entries: Entries, row: int, errors: Any, data: dict[str, Any]) -> dict[str, Any]:
    unknown = entries.unknown[row]
    if entries.probability is not None:
        open_labels = np.flatnonzero(unknown)
        first = open_labels[np.argsort(-errors[open_labels], kind="stable")][:_LABELS_NAMED]
        data["look_at"] = ", ".join(entries.classes[column] for column in first)
        data["expected_errors"] = round(float(errors.sum()), _PLACES)
    if not unknown.any():
        return {"data": data, "annotations": [{"result": _make_result(entries, row), "was_cancelled": False}]}
    prediction: dict[str, Any] = {"model_version": "onepos", "result": _make_result(entries, row)}
    if entries.probability is not None:
        prediction["score"] = round(1 - float(errors[unknown].mean()), _PLACES)
    return {"data": data, "predictions": [prediction]}


def _make_result(entries: Entries, row: int) -> list[dict[str, Any]]:
    """What is known, and yes for what was added."""
    result = []
    for column in np.flatnonzero(~entries.unknown[row] | entries.added[row]).tolist():
        name = name_of(entries.classes[column])
        entry: dict[str, Any] = {"id": f"{row}-{column}", "from_name": name, "to_name": _ITEM, "type": "choices"}
        entry["value"] = {"choices": ["no" if entries.no[row, column] else "yes"]}
        if entries.unknown[row, column] and entries.probability is not None:
            entry["score"] = round(float(entries.probability[row, column]), _PLACES)
        result.append(entry)
    return result


def _make_config(classes: list[str], keys: dict[str, str], has_images: bool, has_doubts: bool) -> str:
    view = ElementTree.Element("View")
    if has_images:
        ElementTree.SubElement(view, "Image", name=_ITEM, value="$image")
    else:
        ElementTree.SubElement(view, "Text", name=_ITEM, value="$item")
    for name, key in keys.items():
        ElementTree.SubElement(view, "Header", value=_in_xml(name), size="5")
        ElementTree.SubElement(view, "Text", name=f"shown_{key}", value=f"${key}")
    if has_doubts:
        ElementTree.SubElement(view, "Header", value="Look at these labels first", size="5")
        ElementTree.SubElement(view, "Text", name="shown_look_at", value="$look_at")
    for label in classes:
        ElementTree.SubElement(view, "Header", value=_in_xml(label), size="5")
        options = {"name": name_of(label), "toName": _ITEM, "choice": "single-radio", "showInline": "true"}
        choices = ElementTree.SubElement(view, "Choices", options)
        for word in _WORDS:
            ElementTree.SubElement(choices, "Choice", value=word)
    ElementTree.indent(view)
    return ElementTree.tostring(view, encoding="unicode") + "\n"


def _in_xml(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)


def is_export(value: Any) -> bool:
    """Whether JSON looks like an export of Label Studio, or like tasks."""
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        return False
    first = value[0]
    return isinstance(first.get("data"), dict) or "annotation_id" in first or "annotator" in first


def read_export(tasks: list[Any], item: str | None = None) -> list[Line]:
    """The answers in an export, a line each: item, label, value, source, time, reviewer, reason.

    Skipped annotations, predictions and drafts are no answers. In projects with other choices than those of
    `make_project`, each choice that is chosen is a label that is present.

    Args:
        tasks: The tasks of an export in the format JSON, or the annotations of one in JSON-MIN.
        item: The entry of the data that names the item; where it is missing, "item" does.
    """
    lines: list[Line] = []
    for number, task in enumerate(as_list(tasks, "tasks", "an export of Label Studio"), start=1):
        where = f"task {number} of the export"
        lines += _read_task(task, item, where) if "data" in task else _read_short(task, item, where)
    if not lines:
        raise ValueError(
            f"an export of Label Studio must hold an annotation with choices; none of its {len(tasks)} tasks does. "
            "Annotate some items, and export as JSON."
        )
    return lines


def _read_task(task: dict[str, Any], item: str | None, where: str) -> list[Line]:
    """A task of the format JSON."""
    data = task["data"]
    if not isinstance(data, dict):
        raise ValueError(f"{where} must hold 'data', an object; it is none. Export the file again.")
    found: list[Line] = []
    for annotation in as_list(task.get("annotations") or [], "annotations", where):
        if annotation.get("was_cancelled"):
            continue
        given = _find_given(annotation, annotation.get("completed_by"))
        for result in as_list(annotation.get("result"), "result", f"an annotation of {where}"):
            if result.get("type") == "choices":
                found += [answer | given for answer in _read_choices(result, where)]
    return _with_item(found, data, item, where)


def _with_item(found: list[Line], data: dict[str, Any], item: str | None, where: str) -> list[Line]:
    """The answers with the item they are about; tasks without an answer need none."""
    if not found:
        return []
    key = item if item is not None and item in data else _ITEM
    if key not in data:
        raise ValueError(
            f"{where} must name its item; its data hold {', '.join(map(repr, list(data)[:5])) or 'nothing'}, and not "
            f"{repr(item) + ' or ' if item else ''}{_ITEM!r}. Name the entry that holds the id (--id)."
        )
    named = {"item": as_text(data[key], key, where), "source": "label-studio"}
    if isinstance(data.get("reason"), str):
        named["reason"] = as_text(data["reason"], "reason", where)
    return [named | line for line in found]


def _find_given(holder: dict[str, Any], reviewer: Any) -> Line:
    """When an answer was given, and by whom."""
    if isinstance(reviewer, dict):
        reviewer = reviewer.get("email") or reviewer.get("id")
    texts = {"time": holder.get("updated_at") or holder.get("created_at"), "reviewer": reviewer}
    return {name: as_text(value, name, "an annotation") for name, value in texts.items() if value is not None}


def _read_choices(result: dict[str, Any], where: str) -> list[Line]:
    value = result.get("value")
    chosen = value.get("choices") if isinstance(value, dict) else None
    if not isinstance(chosen, list):
        raise ValueError(f"a result of {where} must hold 'choices', a list; there is none. Export the file again.")
    return _as_lines(as_text(result.get("from_name"), "from_name", where), chosen, where)


def _as_lines(name: str, chosen: list[Any], where: str) -> list[Line]:
    """A choice as answers: of its label or, where it is not one of `make_project`, of the labels that were chosen."""
    words = [as_text(word, "choices", where) for word in chosen]
    try:
        label = label_of(name)
    except UnicodeDecodeError:
        raise ValueError(
            f"{where} must name a choice as onepos wrote it, label_ and the label; {name[:40]!r} is no such name. "
            "Keep the names of the configuration."
        ) from None
    if label is None:
        return [{"label": word, "value": "yes"} for word in words]
    return [{"label": label, "value": word} for word in words]


def _read_short(entry: dict[str, Any], item: str | None, where: str) -> list[Line]:
    """An annotation of the format JSON-MIN: the data of its task and the choices, side by side."""
    given = _find_given(entry, entry.get("annotator"))
    found: list[Line] = []
    for name, value in entry.items():
        if name.startswith(_PREFIX):
            chosen = value.get("choices") if isinstance(value, dict) else [value]
            if not isinstance(chosen, list):
                raise ValueError(f"{where} must hold a choice under {name[:40]!r}; it does not. Export the file again.")
            found += [answer | given for answer in _as_lines(name, chosen, where)]
    return _with_item(found, entry, item, where)
