"""The page engine: one structure for the pages of a demo, a fit and a study, rendered as HTML, Markdown or LaTeX.

    page = Page("Title", "What this is.", sections=[Section("scores", "Scores", tables=(table,))])
    render_html(page)

The HTML page is one file that needs no network, no server and no script; it follows the light or dark theme and suits
a phone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from onepos.report.charts.canvas import NARROW, WIDE
from onepos.report.tables import Table

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Chart:
    """A chart, drawn when an HTML page is rendered: once for a desk and once for a phone.

    Attributes:
        draw: Width in pixels → SVG in which every label is escaped.
        caption: Sentences below it.
    """

    draw: Callable[[int], str]
    caption: str = ""


@dataclass(frozen=True)
class Pill:
    """A label of a card.

    Attributes:
        text: Its name.
        kind: "seen" (filled), "" (outlined), "hidden" (dashed), "right" or "wrong".
    """

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Bar:
    """A label of a card with its probability.

    Attributes:
        text: Its name.
        percent: The probability in percent.
        kind: "right" or "wrong" where the truth is known, and otherwise "".
        note: A few words behind the name.
    """

    text: str
    percent: int
    kind: str = ""
    note: str = ""


@dataclass(frozen=True)
class Card:
    """A row of the data, with labels.

    Attributes:
        title: Which row it is.
        image: Its data URI; "" for none.
        alt: What a screen reader reads out for the image.
        texts: Name and content of the columns of text.
        fields: Name and content of the other columns.
        note: A sentence below them.
        pills: Headings, each with its labels.
        bars: Headings, each with its labels and their probabilities.
        below: As `pills`, but below the bars.
    """

    title: str = ""
    image: str = ""
    alt: str = ""
    texts: Sequence[tuple[str, str]] = ()
    fields: Sequence[tuple[str, str]] = ()
    note: str = ""
    pills: Sequence[tuple[str, Sequence[Pill]]] = ()
    bars: Sequence[tuple[str, Sequence[Bar]]] = ()
    below: Sequence[tuple[str, Sequence[Pill]]] = ()


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Attributes:
        name: Its identifier.
        title: Its heading.
        text: Paragraphs at its start.
        tables: Shown as they are.
        folded: Tables that the page shows on a click.
        chart: Shown below the tables.
        code: Lines of commands.
        cards: Rows with their labels, shown last.
        is_divider: Whether it is only a heading above the sections that follow.
    """

    name: str
    title: str
    text: Sequence[str] = ()
    tables: tuple[Table, ...] = ()
    folded: tuple[Table, ...] = ()
    chart: Chart | None = None
    code: Sequence[str] = ()
    cards: Sequence[Card] = ()
    is_divider: bool = False


@dataclass(frozen=True)
class Page:
    """A page, before it is put into a format.

    Attributes:
        title: Its heading.
        lead: What it is about, in sentences.
        alert: What is missing or wrong; "" for nothing.
        notes: Paragraphs below the lead.
        tiles: Numbers and what they are.
        sections: Its parts; `make_section` leaves out what has no rows.
        downloads: File name → text, for links at the end of the HTML page.
        footer: How the page was made; in HTML only.
    """

    title: str
    lead: str = ""
    alert: str = ""
    notes: Sequence[str] = ()
    tiles: Sequence[tuple[str, str]] = ()
    sections: Sequence[Section] = ()
    downloads: Mapping[str, str] = field(default_factory=dict)
    footer: str = ""


def make_section(
    name: str, title: str, *tables: Table | None, folded: Iterable[Table | None] = (), chart: Chart | None = None
) -> Section:
    """A section of the tables that have rows; without a title it takes that of the first of them."""
    shown = tuple(table for table in tables if table is not None and table.rows)
    hidden = tuple(table for table in folded if table is not None and table.rows)
    return Section(name, title or (shown[0].title if shown else ""), tables=shown, folded=hidden, chart=chart)


def render_html(page: Page) -> str:
    """The page as one self-contained HTML file."""
    return str(_template().render(page=page, wide=WIDE, narrow=NARROW))


@cache
def _template() -> Any:
    """The page without its content; it is compiled once."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["keep"] = lambda text: str(text).replace(" %", "\u00a0%")  # no line ends before the sign
    return environment.get_template("page.html")


def render_markdown(page: Page) -> str:
    """All texts and tables as Markdown; charts are in the HTML page alone."""
    parts = [f"# {page.title}", f"**{page.alert}**" if page.alert else "", page.lead, *page.notes]
    said: set[str] = set()  # a sentence about several tables is written once
    for section in page.sections:
        parts += [f"## {section.title}", *section.text]
        for table in (*section.tables, *section.folded):
            parts.append(f"### {table.title}" if table.title != section.title else "")
            parts += ["" if table.about in said else table.about, table.markdown()]
            said.add(table.about)
        parts.append("```\n" + "\n".join(section.code) + "\n```" if section.code else "")
    return without_tags("\n\n".join(part for part in parts if part) + "\n")


def without_tags(markdown: str) -> str:
    """The same text to a reader, in which nothing is HTML: names of labels and studies may be anything.

    >>> without_tags("p < 0.05 for <b>cat</b>")
    'p < 0.05 for &lt;b>cat&lt;/b>'
    """
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", markdown)


def _comment(text: str) -> str:
    """A line of a LaTeX file that is not set, whatever the text."""
    return "% " + " ".join(text.split()).replace("<", "‹")


def render_latex(page: Page) -> str:
    """All tables as tabulars, each below a comment with its name, title and explanation."""
    parts = [_comment(f"{page.title}. Needs the package booktabs."), _comment(page.alert) if page.alert else ""]
    for section in page.sections:
        for table in (*section.tables, *section.folded):
            parts.append(f"{_comment(f'{table.name}: {table.title}')}\n{_comment(table.about)}\n{table.latex()}")
    return "\n\n".join(part for part in parts if part) + "\n"
