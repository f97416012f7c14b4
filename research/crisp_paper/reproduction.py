"""Can the paper's tabular numbers be reproduced? A short page, and one with all tables, from the results of studies.

    write_reproduction(*find_sources(Path("research/results")), out="reproduction.md")

Read are as-published, fair (with any seed), every bridge-* and crisp-readings in the folder of the results:
NAME/runs.jsonl.gz.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from crisp_paper import reproduction_text as text
from crisp_paper.bridges import Evidence, build_bridge
from crisp_paper.causes import cause_table
from crisp_paper.markup import html_with_markup
from crisp_paper.printed import as_printed
from crisp_paper.reading_tables import kind_table, number_table, reading_table
from crisp_paper.readings import readings_as_methods
from crisp_paper.reproduction_cells import make_cells
from crisp_paper.verdicts import CLOSE, find_verdicts
from onepos.bench.results import read_results
from onepos.files import write_atomically
from onepos.report.page import Page, Section, render_markdown

Source = str | os.PathLike[str]


def write_reproduction(
    published: Source, fair: Source, bridges: Iterable[Source], readings: Source | None = None, *, out: Source
) -> list[Path]:
    """Write both pages from the results of the studies; they may be unfinished; the pages then state it.

    Args:
        published: Results of the published protocol: a folder, or a file of `onepos bench pack`.
        fair: Those of the fair one.
        bridges: Those of studies that differ from the published one in one thing each.
        readings: Those of the readings of CRISP.
        out: The Markdown file of the short page. The page with all tables is written beside it, and both as HTML.

    Returns:
        The four files.
    """
    evidence = read_evidence(published, fair, bridges, readings)
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = {}
    for file, page in ((path, make_reproduction(evidence)), (path.with_name(text.CELLS), make_cells(evidence))):
        texts |= {file: render_markdown(page), file.with_suffix(".html"): html_with_markup(page)}
    return [write_atomically(file, content) for file, content in texts.items()]


def find_sources(results: Path) -> tuple[Path, Path, list[Path], Path | None]:
    """Packed results in a folder: as-published, fair (with any seed), the bridges, the readings if they are there."""
    published, fair = (sorted(results.glob(f"{name}*/runs.jsonl.gz")) for name in ("as-published", "fair"))
    if len(published) != 1 or len(fair) != 1:
        raise ValueError(
            f"{results} must hold one study as-published and one study fair, each with runs.jsonl.gz; it holds "
            f"{len(published)} and {len(fair)}. Name another folder."
        )
    readings = results / "crisp-readings" / "runs.jsonl.gz"
    bridges = sorted(results.glob("bridge-*/runs.jsonl.gz"))
    return published[0], fair[0], bridges, readings if readings.is_file() else None


def read_evidence(
    published: Source, fair: Source, bridges: Iterable[Source], readings: Source | None = None
) -> Evidence:
    """The results that the pages are made of; arguments as for `write_reproduction`."""
    base = read_results(published)
    with readings_as_methods():
        of_readings = None if readings is None else read_results(readings)
    return Evidence(
        base,
        as_printed(read_results(fair)),
        tuple(build_bridge(base, read_results(each)) for each in bridges),
        of_readings,
    )


def make_reproduction(evidence: Evidence) -> Page:
    """The short page."""
    verdicts, close = find_verdicts(evidence), find_verdicts(evidence, CLOSE)
    tables = (kind_table(verdicts, close), *map(number_table, verdicts.values()))
    return Page(
        title="Can the tables of the CRISP paper be reproduced?",
        lead=text.lead(evidence, verdicts),
        alert=text.alert(verdicts),
        sections=[
            Section("runs", "What was printed, and what we ran", text.about_runs(evidence)),
            Section("numbers", "CRISP and CRISP-val, number by number", text.ABOUT_NUMBERS, tables),
            Section("holds", "What holds, and what does not", text.about_holding(evidence, verdicts)),
            Section("cannot", "What cannot hold", text.about_impossible(evidence, verdicts, close)),
            Section(
                "readings",
                "What depends on the reading",
                text.about_readings(evidence, verdicts["crisp"]),
                (reading_table(evidence),),
            ),
            Section("causes", "Why numbers differ", text.about_causes(evidence), (cause_table(evidence),)),
            Section("limits", "What could not be compared", text.about_limits(evidence)),
            Section("behind", "Behind this page", text.BEHIND),
        ],
    )
