"""Committed pages against rebuilt ones: numbers, not bytes."""

from pathlib import Path

import pytest
from crisp_paper import image_results, reproduction
from crisp_paper.markup import html_with_markup
from crisp_paper.pages import SHORT, find_differences, is_same, read_tables
from crisp_paper.printed import printed_cells
from crisp_paper.reproduction_cells import make_cells
from crisp_paper.reproduction_text import CELLS
from crisp_paper.verdicts import KINDS, METHODS, find_verdicts

from onepos.bench.results import read_results
from onepos.report.page import Page, Section

RESULTS = Path(__file__).parents[2] / "results"
PAGE = """# Title

## First

| Method | yeast |
|:---|---:|
| an | **0.100 ± 0.010 (2)** |
| crisp | 84 % |

## Second

### Part

About it.

| Data set | Rows |
|:---|---:|
| yeast | 2417 |
"""


def test_tables_are_found_by_their_headings():
    tables = read_tables(PAGE)
    assert list(tables) == ["First", "Second / Part"]
    assert tables["First"].header == ["Method", "yeast"]
    assert tables["First"].rows == [["an", "0.100 ± 0.010 (2)"], ["crisp", "84 %"]]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("0.100", "0.101", []),
        ("84 %", "85 %", []),
        ("**0.100 ± 0.010 (2)**", "0.100 ± 0.010 (2)", []),
        ("0.100", "0.102", ["First: an, yeast: was '0.100 ± 0.010 (2)', is '0.102 ± 0.010 (2)'"]),
        ("(2)", "(1)", ["First: an, yeast: was '0.100 ± 0.010 (2)', is '0.100 ± 0.010 (1)'"]),
        ("84 %", "86 %", ["First: crisp, yeast: was '84 %', is '86 %'"]),
        ("2417", "2418", ["Second / Part: yeast, Rows: was '2417', is '2418'"]),
        ("| crisp | 84 % |\n", "", ["First: the row ['crisp', '84 %'] is gone"]),
        (
            "| Rows |",
            "| Lines |",
            ["Second / Part: the columns were ['Data set', 'Rows'], and are ['Data set', 'Lines']"],
        ),
        ("### Part", "### Other", ["Second / Other: is missing"]),
    ],
)
def test_differences_are_named(old, new, found):
    assert find_differences(PAGE, PAGE.replace(old, new)) == found


def test_minus_signs_and_words():
    assert is_same("−0.100 worse", "−0.101 worse")
    assert not is_same("−0.100", "0.100")
    assert not is_same("win 0.05", "loss 0.05")


def test_paragraphs_are_compared_where_asked():
    other = PAGE.replace("About it.", "About 3 of it.")
    assert find_differences(PAGE, other) == []
    assert find_differences(PAGE, other, with_text=True) == ["text: was 'About it.', is 'About 3 of it.'"]
    assert find_differences(other, other.replace("3", "4"), with_text=True)
    assert find_differences(other, other, with_text=True) == []


@pytest.fixture(scope="module")
def evidence():
    return reproduction.read_evidence(*reproduction.find_sources(RESULTS))


@pytest.mark.slow
def test_the_pages_on_reproduction_follow_from_their_runs(evidence):
    short, cells = ((RESULTS / name).read_text(encoding="utf-8") for name in (SHORT, CELLS))
    assert find_differences(short, reproduction.make_reproduction(evidence), with_text=True) == []
    assert find_differences(cells, make_cells(evidence)) == []


@pytest.mark.slow
def test_every_printed_number_of_crisp_has_one_verdict(evidence):
    found = [(each.cell.key, each.kind) for mine in find_verdicts(evidence).values() for each in mine]
    assert sorted(key for key, _ in found) == sorted(cell.key for cell in printed_cells() if cell.method in METHODS)
    assert {kind for _, kind in found} <= set(KINDS)
    kinds = dict(found)
    assert kinds["coverage", "scene", "crisp"] == "impossible"
    strange = {key for key, kind in found if kind == "not comparable"}
    assert strange == {key for key in kinds if key[1] == "mirflickr"}
    tables = read_tables((RESULTS / SHORT).read_text(encoding="utf-8"))
    shown = [tables[f"CRISP and CRISP-val, number by number / {name}"].rows for name in ("CRISP", "CRISP-val")]
    assert [[len(row) for row in rows] for rows in shown] == [[7] * 5] * 2


@pytest.mark.slow
def test_the_short_page_is_short():
    """Three screens: lines as they stand, and as they are broken at 120 characters but for the rows of tables."""
    lines = (RESULTS / SHORT).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 130
    assert sum(1 if line.startswith("|") else -(-len(line) // 120) or 1 for line in lines) <= 175


@pytest.mark.slow
def test_the_page_on_images_follows_from_its_runs():
    page = image_results.make_image_results([read_results(path) for path in image_results.find_sources(RESULTS)])
    assert find_differences((RESULTS / "images.md").read_text(encoding="utf-8"), page) == []


def test_marks_of_markdown_are_html():
    text = "**Bold** words, `a_b < c`, `x*y` and [a page](other-page.md#part); 2 < 3."
    html = html_with_markup(Page("Title", sections=[Section("one", "One", text=(text,))]))
    assert "<strong>Bold</strong> words" in html
    assert "<code>x*y</code>" in html
    assert '<a href="other-page.md#part">a page</a>' in html
    assert "2 &lt; 3" in html
