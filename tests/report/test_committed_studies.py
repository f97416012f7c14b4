"""The reports under docs/results are made of the runs beside them, and of nothing else."""

from pathlib import Path

import pytest

from onepos.report.study_page import write_report

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("packed", sorted(RESULTS.glob("*/runs.jsonl.gz")), ids=lambda path: path.parent.name)
def test_report_is_rebuilt_from_its_runs(packed, tmp_path):
    for made in write_report(packed, tmp_path / "report"):
        assert made.read_bytes() == (packed.parent / made.name).read_bytes(), made.name
