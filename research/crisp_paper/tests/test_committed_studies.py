"""The tables of every committed page of a study follow from the runs beside it: numbers are compared, not bytes."""

from pathlib import Path

import pytest
from crisp_paper import readings_page
from crisp_paper.pages import find_differences, study_page

from onepos.bench.results import read_results

RESULTS = Path(__file__).parents[2] / "results"
SLOW = 1_000_000  # bytes of packed runs


def _studies():
    of_readings = readings_page.find_sources(RESULTS)
    for packed in sorted(set(RESULTS.glob("*/runs.jsonl.gz")).difference(of_readings)):
        marks = [pytest.mark.slow] if packed.stat().st_size > SLOW else []
        yield pytest.param(packed, id=packed.parent.name, marks=marks)


def test_there_are_studies():
    assert list(_studies())


@pytest.mark.parametrize("packed", list(_studies()))
def test_the_page_follows_from_its_runs(packed):
    committed = packed.with_name("report.md").read_text(encoding="utf-8")
    results = read_results(packed)
    assert results.finished, "the runs must be those of the study"
    assert find_differences(committed, study_page(results)) == []
