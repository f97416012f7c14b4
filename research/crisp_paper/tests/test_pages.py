"""Committed pages against rebuilt ones: numbers, not bytes."""

from pathlib import Path

import pytest
from crisp_paper import image_results, reproduction
from crisp_paper.pages import find_differences, is_same, read_tables

from onepos.bench.results import read_results

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


@pytest.mark.slow
def test_the_page_on_reproduction_follows_from_its_runs():
    page = reproduction.make_reproduction(reproduction.read_evidence(*reproduction.find_sources(RESULTS)))
    assert find_differences((RESULTS / "reproduction.md").read_text(encoding="utf-8"), page) == []


@pytest.mark.slow
def test_the_page_on_images_follows_from_its_runs():
    page = image_results.make_image_results([read_results(path) for path in image_results.find_sources(RESULTS)])
    assert find_differences((RESULTS / "images.md").read_text(encoding="utf-8"), page) == []
