"""Tables, charts and self-contained pages from plain results.

`page` holds the page engine, `tables` and `charts` what a page is made of. The page of a fit and that of the demo,
which holds the same sections, are made of a dictionary alone, which `fit_facts` makes of a model; the report of a study
(study_*.py) reads the folder of its results. `items`, `judgement` and `calibration` are shared with the review page.
Nothing here imports torch.
"""

from onepos.report.demo_page import render_demo
from onepos.report.fit_page import render_fit
from onepos.report.page import Chart, Page, Section, render_html, render_latex, render_markdown
from onepos.report.tables import Cell, Table

__all__ = [
    "Cell",
    "Chart",
    "Page",
    "Section",
    "Table",
    "render_demo",
    "render_fit",
    "render_html",
    "render_latex",
    "render_markdown",
]
