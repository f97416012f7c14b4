"""Pages whose paragraphs hold bold words, code and links in Markdown, as HTML."""

from __future__ import annotations

import re

from onepos.report.page import Page, render_html

_MARKS = (
    (re.compile(r"\*\*(.+?)\*\*"), r"<strong>\1</strong>"),
    (re.compile(r"`([^`<>\n]+)`"), r"<code>\1</code>"),
    (re.compile(r"\[([^\]<>\n]+)\]\(([\w./#-]+)\)"), r'<a href="\2">\1</a>'),
)


def html_with_markup(page: Page) -> str:
    """The page as one HTML file; texts were escaped before the marks are replaced."""
    head, body = render_html(page).split("<body", 1)
    for pattern, replacement in _MARKS:
        body = pattern.sub(replacement, body)
    return f"{head}<body{body}"
