"""Labels of images in the JSON of COCO and LVIS: what is there, and what is known not to be there.

A category of an image is known to be present where there is an annotation of both, and known to be absent where the
image names it in `neg_category_ids`, as in LVIS. Of all others nothing is known. Labels are of whole images: no boxes,
no masks.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from onepos.exchange.entries import Entries
from onepos.exchange.json_text import as_list, as_text
from onepos.files import write_atomically

Line = dict[str, str]

_PLACES = 6


def make_coco(entries: Entries) -> dict[str, Any]:
    """Images, categories and annotations.

    - `images`: `id`, `file_name` (the id of the item), `neg_category_ids` (known to be absent) and
      `not_exhaustive_category_ids` (all that are present, since no annotation marks a single object).
    - `annotations`: one per image and label, `id`, `image_id`, `category_id`, `source` ("observed" or "completed") and,
      of completed ones, `score`, the probability.
    - `categories`: `id`, from 1, and `name`.
    """
    present = entries.yes | entries.added
    images = [
        {
            "id": row + 1,
            "file_name": item,
            "neg_category_ids": (np.flatnonzero(entries.no[row]) + 1).tolist(),
            "not_exhaustive_category_ids": (np.flatnonzero(present[row]) + 1).tolist(),
        }
        for row, item in enumerate(entries.items)
    ]
    annotations = []
    for number, (row, column) in enumerate(np.argwhere(present).tolist(), start=1):
        is_added = bool(entries.added[row, column])
        annotation: dict[str, Any] = {"id": number, "image_id": row + 1, "category_id": column + 1}
        annotation["source"] = "completed" if is_added else "observed"
        if is_added and entries.probability is not None:
            annotation["score"] = round(float(entries.probability[row, column]), _PLACES)
        annotations.append(annotation)
    return {
        "info": {"description": "Labels of whole images, written by onepos"},
        "images": images,
        "annotations": annotations,
        "categories": [{"id": column + 1, "name": name} for column, name in enumerate(entries.classes)],
    }


def save_coco(entries: Entries, path: str | Path) -> Path:
    """Write `make_coco` to a file."""
    return write_atomically(path, json.dumps(make_coco(entries), ensure_ascii=False, separators=(",", ":")))


def is_coco(value: Any) -> bool:
    """Whether JSON looks like labels of COCO or LVIS."""
    return isinstance(value, dict) and {"images", "annotations", "categories"} <= set(value)


def read_coco(value: dict[str, Any]) -> list[Line]:
    """The labels, a line per image and category: item, label, value, source.

    An image is named by its `file_name`, in files of LVIS without it by the last part of `coco_url`. Categories of
    which nothing is known come with an empty value, so that none is lost.
    """
    where = "labels of COCO"
    categories = _by_id(as_list(value["categories"], "categories", where), "category", lambda each: each.get("name"))
    images = as_list(value["images"], "images", where)
    files = _by_id(images, "image", _find_file)
    found: dict[tuple[str, str, str], str] = {}
    for number, annotation in enumerate(as_list(value["annotations"], "annotations", where), start=1):
        name = f"annotation {number}"
        item = _find(files, annotation.get("image_id"), "image_id", name)
        label = _find(categories, annotation.get("category_id"), "category_id", name)
        source = annotation.get("source")
        found.setdefault((item, label, "yes"), as_text("coco" if source is None else source, "source", name))
    for image in images:
        item = files[as_text(image["id"], "id", "an image")]
        absent = image.get("neg_category_ids")
        if absent is not None and not isinstance(absent, list):
            raise ValueError(
                f"an image must hold 'neg_category_ids', a list; that of {item[:80]!r} is none. Correct the file."
            )
        for category in absent or []:
            found[item, _find(categories, category, "neg_category_ids", f"image {item[:80]!r}"), "no"] = "coco"
    seen = {label for _, label, _ in found}
    if files:
        first = next(iter(files.values()))
        found |= {(first, label, ""): "coco" for label in categories.values() if label not in seen}
    return [
        {"item": item, "label": label, "value": word, "source": source} for (item, label, word), source in found.items()
    ]


def _by_id(entries: list[dict[str, Any]], what: str, find: Any) -> dict[str, str]:
    """Id → name; both must be there once."""
    found: dict[str, str] = {}
    for number, entry in enumerate(entries, start=1):
        where = f"{what} {number} of COCO"
        key, name = as_text(entry.get("id"), "id", where), as_text(find(entry), "name", where)
        if key in found:
            raise ValueError(f"every {what} must have an id of its own; two have {key[:80]!r}. Correct the file.")
        found[key] = name
    if len(set(found.values())) < len(found):
        names = list(found.values())
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"every {what} must have a name of its own; two have {repeated[:80]!r}. Correct the file.")
    return found


def _find_file(image: dict[str, Any]) -> Any:
    name, url = image.get("file_name"), image.get("coco_url")
    if name is not None or not isinstance(url, str):
        return name
    try:
        return PurePosixPath(urlsplit(url).path).name or None
    except ValueError:
        return None


def _find(known: dict[str, str], key: Any, name: str, where: str) -> str:
    found = known.get(as_text(key, name, where))
    if found is None:
        what = "images" if name == "image_id" else "categories"
        raise ValueError(f"{where} must name one of the {what}; its {name} is {str(key)[:40]!r}. Correct the file.")
    return found
