"""All pages under research/results, made from the packed runs beside them.

    python -m crisp_paper.pages research/results            # write them
    python -m crisp_paper.pages research/results --check    # list how they differ from what the runs give
    python -m crisp_paper.pages research/results --html out # write them as HTML, with their charts, elsewhere

Per study a report.md, with the paper's figures and numbers in sections of their own; reproduction.md and
reproduction-cells.md; images.md; crisp-readings.md; and consistency/report.md. `onepos bench report` makes the page of
a study without the sections about the paper.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from itertools import count, zip_longest
from pathlib import Path
from typing import NamedTuple

from crisp_paper import consistency_page, image_results, readings_page, reproduction
from crisp_paper.markup import html_with_markup
from crisp_paper.printed_tables import paper_sections
from crisp_paper.reproduction_cells import make_cells
from crisp_paper.reproduction_text import CELLS
from onepos.bench.results import StudyResults, read_results
from onepos.files import write_atomically
from onepos.report.page import Page, render_markdown
from onepos.report.study_page import make_page

SHORT = "reproduction.md"
"""The page whose paragraphs hold numbers of their own, and are compared too."""

_NUMBER = re.compile(r"(?<![\w.])[−+-]?\d+(?:\.\d+)?(?![\w.])(?: %)?")


class MarkdownTable(NamedTuple):
    """A table of a page.

    Attributes:
        header: Of its columns.
        rows: Cells as text.
    """

    header: list[str]
    rows: list[list[str]]


def make_pages(results: Path) -> Iterator[tuple[Path, Page]]:
    """Each page of a folder of results, with the path of its Markdown."""
    of_readings = readings_page.find_sources(results)
    for packed in sorted(set(results.glob("*/runs.jsonl.gz")).difference(of_readings)):
        yield packed.with_name("report.md"), study_page(read_results(packed))
    evidence = reproduction.read_evidence(*reproduction.find_sources(results))
    yield results / SHORT, reproduction.make_reproduction(evidence)
    yield results / CELLS, make_cells(evidence)
    images = [read_results(path) for path in image_results.find_sources(results)]
    yield results / "images.md", image_results.make_image_results(images)
    if of_readings:
        yield results / "crisp-readings.md", readings_page.make_readings(readings_page.read_studies(results))
    consistency = results / "consistency" / "results.json"
    content = json.loads(consistency.read_text(encoding="utf-8"))
    yield consistency.with_name("report.md"), consistency_page.make_report(content)


def study_page(results: StudyResults) -> Page:
    """The page of a study, with the sections about the paper."""
    return make_page(results, extra=paper_sections(results))


def find_differences(committed: str, rebuilt: Page | str, *, with_text: bool = False) -> list[str]:
    """Where the tables of a rebuilt page differ from those of a committed one; further tables there do not matter.

    Texts must be equal but for their numbers; numbers may differ by a rounding of the last printed digit.

    Args:
        committed: Markdown.
        rebuilt: A page, or its Markdown.
        with_text: Whether the paragraphs are compared too.
    """
    made = rebuilt if isinstance(rebuilt, str) else render_markdown(rebuilt)
    kept = read_tables(committed)
    found = list(_text_differences(committed, made)) if with_text else []
    for title, table in read_tables(made).items():
        if title not in kept:
            found.append(f"{title}: is missing")
        else:
            found += [f"{title}: {text}" for text in _table_differences(kept[title], table)]
    return found


def read_tables(markdown: str) -> dict[str, MarkdownTable]:
    """The tables of a page by their headings: "section" or "section / title"; the second of one heading has " (2)"."""
    section = title = name = ""
    in_table = False
    lines: dict[str, list[list[str]]] = {}
    for line in markdown.splitlines():
        if line.startswith("## "):
            section, title = line[3:], ""
        elif line.startswith("### "):
            title = line[4:]
        elif line.startswith("| "):
            if not in_table:
                heading = f"{section} / {title}" if title else section
                name = next(each for each in _numbered(heading) if each not in lines)
            cells = [cell.strip().strip("*") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            lines.setdefault(name, []).append(cells)
        in_table = line.startswith("|")
    return {name: MarkdownTable(rows[0], rows[1:]) for name, rows in lines.items()}


def _text_differences(kept: str, made: str) -> Iterator[str]:
    old, new = ([line for line in text.splitlines() if line and line[0] != "|"] for text in (kept, made))
    for ours, theirs in zip_longest(old, new, fillvalue=""):
        if not is_same(ours, theirs):
            yield f"text: was {ours!r}, is {theirs!r}"


def _numbered(heading: str) -> Iterator[str]:
    yield heading
    yield from (f"{heading} ({number})" for number in count(2))


def _table_differences(kept: MarkdownTable, made: MarkdownTable) -> Iterator[str]:
    if kept.header != made.header:
        yield f"the columns were {kept.header}, and are {made.header}"
        return
    for ours, theirs in zip_longest(kept.rows, made.rows):
        if ours is None or theirs is None:
            yield f"the row {ours or theirs} is {'new' if ours is None else 'gone'}"
            continue
        for name, old, new in zip(made.header, ours, theirs, strict=True):
            if not is_same(old, new):
                yield f"{theirs[0]}, {name}: was {old!r}, is {new!r}"


def is_same(first: str, second: str) -> bool:
    """Whether two cells say the same: equal texts around numbers that are equal but for rounding.

    Decimals and percentages may differ by one in the last digit, whole numbers not at all.

    >>> is_same("0.123 ± 0.04 (2)", "0.124 ± 0.04 (2)"), is_same("0.123 (2)", "0.123 (3)")
    (True, False)
    """
    if _NUMBER.split(first) != _NUMBER.split(second):
        return False
    return all(map(_is_near, _NUMBER.findall(first), _NUMBER.findall(second)))


def _is_near(first: str, second: str) -> bool:
    one, other = (text.replace("−", "-").removesuffix(" %") for text in (first, second))
    digits = len(one.partition(".")[2])
    tolerance = 10.0**-digits if digits or first.endswith("%") else 0.0
    return abs(float(one) - float(other)) <= 1.001 * tolerance


def main() -> None:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the folder research/results")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a page differs")
    parser.add_argument("--html", type=Path, metavar="FOLDER", help="write HTML to this folder instead")
    options = parser.parse_args()
    differences = []
    for path, page in make_pages(options.results):
        if options.check:
            committed = path.read_text(encoding="utf-8") if path.is_file() else ""
            found = find_differences(committed, page, with_text=path.name == SHORT)
            differences += [f"{path}: {each}" for each in found]
        elif options.html:
            target = (options.html / path.relative_to(options.results)).with_suffix(".html")
            target.parent.mkdir(parents=True, exist_ok=True)
            print(write_atomically(target, html_with_markup(page)))
        else:
            print(write_atomically(path, render_markdown(page)))
    for each in differences:
        print(each)
    raise SystemExit(bool(differences))


if __name__ == "__main__":
    main()
