"""What the site needs beyond published extensions: formulas without a script, the pages of the commands, llms.txt.

Formulas become MathML, which browsers draw themselves, so that no page loads a script for them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer.main
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

ROOT = Path(__file__).parents[2]
COMMANDS = "docs/generated/commands.md"
# The index of a letter with an accent would be set under it; an empty group between the two keeps it at the side.
ACCENT = re.compile(r"(\\(?:hat|bar|tilde)\s*(?:\{[^{}]*\}|\\[A-Za-z]+|\w)\}?)_")
# What a browser fetches as soon as it opens a page.
FETCHED = re.compile(
    r'<(?:script|img|iframe|source)[^>]+src="(?:https?:)?//[^"]*"|<link[^>]+href="(?:https?:)?//[^"]*"'
)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect each part to the moment of the build at which it runs."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("config-inited", lambda *_: write_commands(ROOT / COMMANDS))
    app.connect("source-read", lead_to_gallery)
    app.connect("doctree-read", note)
    app.connect("build-finished", finish)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def write_formula(translator: Any, node: nodes.Element) -> None:
    """A formula as MathML."""
    as_block = isinstance(node, nodes.math_block)
    formula = tex2mathml(ACCENT.sub(r"\1{}_", node.astext()), as_block=as_block)
    translator.body.append(f'<div class="formula">{formula}</div>' if as_block else formula)
    raise nodes.SkipNode


def write_commands(path: Path) -> None:
    """A page with the --help text of every command, word by word."""
    from onepos.cli import app as commands

    text = ["# Commands", "What `onepos COMMAND --help` prints, for every command."]
    for name, help_text in helps(typer.main.get_command(commands), "onepos"):
        text += ["#" * (1 + len(name.split())) + f" {name}", f"```text\n{help_text.rstrip()}\n```"]
    path.parent.mkdir(parents=True, exist_ok=True)
    page = "\n\n".join(text) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != page:
        path.write_text(page, encoding="utf-8")


def helps(command: Any, name: str, parent: Any = None) -> list[tuple[str, str]]:
    """Each command below this one with its help text."""
    context = command.context_class(
        command,
        info_name=name.split()[-1],
        parent=parent,
        terminal_width=78,  # what a terminal of 80 columns or more gives
        **command.context_settings,
    )
    found = [(name, command.get_help(context))]
    for child in getattr(command, "commands", {}).values():
        found += helps(child, f"{name} {child.name}", context)
    return found


def lead_to_gallery(_app: Sphinx, name: str, source: list[str]) -> None:
    """A link to a script of examples/ leads to its page in the gallery."""
    if "/generated/" not in name:
        text = re.sub(r"\]\([./]*examples/(plot_\w+)\.py\)", r"](/docs/generated/gallery/\1.rst)", source[0])
        source[0] = re.sub(r"\]\([./]*examples/GALLERY_HEADER\.rst\)", "](/docs/generated/gallery/index.rst)", text)


def finish(app: Sphinx, failure: Exception | None) -> None:
    """Write index.html, which leads to the first page, llms.txt and the list of external links."""
    if failure is not None or app.builder.name != "html":
        return
    out = Path(app.outdir)
    start = f"{app.config.root_doc}.html"
    (out / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><title>onepos</title>'
        f'<meta http-equiv="refresh" content="0; url={start}">'
        f'<a href="{start}">onepos</a>\n',
        encoding="utf-8",
    )
    check_offline(out)
    (out / "llms.txt").write_text(llms(app), encoding="utf-8")
    links = sorted({link for facts in app.env.metadata.values() for link in facts.get("links", [])})
    (out / "external-links.txt").write_text("\n".join(links) + "\n", encoding="utf-8")


def check_offline(out: Path) -> None:
    """Refuse a page that would fetch a script, a style, a font or an image from elsewhere."""
    for page in out.rglob("*.html"):
        found = FETCHED.search(page.read_text(encoding="utf-8"))
        if found:
            raise ExtensionError(f"a page must fetch nothing from elsewhere; {page} has {found[0]}. Remove it.")


def note(app: Sphinx, page: nodes.document) -> None:
    """Keep what `finish` needs of a page: its first sentence, and the addresses outside the site that it links to."""
    facts = app.env.metadata[app.env.docname]
    facts["links"] = sorted(
        {node["refuri"] for node in page.findall(nodes.reference) if "://" in node.get("refuri", "")}
    )
    texts = (
        " ".join(paragraph.astext().split())
        for paragraph in page.findall(nodes.paragraph)
        if isinstance(paragraph.parent, nodes.section)
    )
    facts["first"] = next((text.split(". ")[0].rstrip(".:") + "." for text in texts if text), "")


def llms(app: Sphinx) -> str:
    """The pages with their first sentences, in the order of the navigation, for programs that read text."""
    lines = ["# onepos", "", f"> {app.env.metadata[app.config.root_doc]['first']}", ""]
    for section in app.env.toctree_includes.get(app.config.root_doc, []):
        lines += ["", f"## {app.env.titles[section].astext()}", ""]
        lines += [line(app, name) for name in pages_below(app, section)]
    return "\n".join(lines) + "\n"


def pages_below(app: Sphinx, name: str) -> list[str]:
    """A page and those in its tables of contents."""
    below = [page for child in app.env.toctree_includes.get(name, []) for page in pages_below(app, child)]
    return [name, *below]


def line(app: Sphinx, name: str) -> str:
    """One page: its title, its source, its first sentence."""
    source = f"_sources/{app.env.doc2path(name, base=False)}.txt"
    return f"- [{app.env.titles[name].astext()}]({source}): {app.env.metadata[name]['first']}"
