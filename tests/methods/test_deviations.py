"""What a method does otherwise than published is named in its docstring, and its page repeats the list."""

import re
from pathlib import Path

import pytest

from onepos.methods import AN, ANLS, CRISP, EM, EMAPL, EPR, GR, MIME, PLC, ROLE, SMILE, WAN, BoostLU, Full, LargeLoss

PAGES = Path(__file__).parents[2] / "docs" / "methods"
CLASSES = [AN, ANLS, BoostLU, CRISP, EM, EMAPL, EPR, Full, GR, LargeLoss, MIME, PLC, ROLE, SMILE, WAN]


@pytest.mark.parametrize("method", CLASSES)
def test_the_page_lists_as_many_deviations_as_the_docstring(method):
    page = (PAGES / f"{method.__module__.rsplit('.', 1)[-1]}.md").read_text(encoding="utf-8")
    listed = re.search(r"\*\*Deviations\.\*\*(.*?)\n\*\*Reference", page, re.DOTALL).group(1)
    own = method.__dict__["__doc__"]
    assert len(re.findall(r"^- ", listed, re.MULTILINE)) == own.count("Deviation:")
