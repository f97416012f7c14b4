"""The reports of the studies in a folder, and where there are several a list of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from onepos.bench.store import Store, find_stores
from onepos.files import write_atomically
from onepos.report.study_page import write_report
from onepos.report.tables import markdown_table


def write_reports(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> list[Path]:
    """Write the report of the study in a folder or file, or of every study in the folders within it.

    Args:
        folder: Of `onepos bench run`, or a file of `onepos bench pack`; studies may be unfinished.
        out: Where to write. The reports of several studies go into a folder each, beside `README.md`, which lists them.

    Returns:
        The files.
    """
    there = Path(out)
    if Path(folder).is_file():
        return write_report(folder, there)
    stores = find_stores(folder)
    written = [file for name, store in stores.items() for file in write_report(store.folder, there / name)]
    if "." in stores:
        return written
    return [*written, write_atomically(there / "README.md", _list(stores))]


def _list(stores: Mapping[str, Store]) -> str:
    rows = []
    for name, store in stores.items():
        runs = store.study().runs()
        rows.append([f"[{name}]({name}/report.md)", f"{store.status(runs).done} of {len(runs)}"])
    return f"# Reports\n\n{markdown_table(rows, ['study', 'finished runs'])}\n"
