"""Tables, charts and self-contained pages from plain, JSON-able results.

The page of the demo is made of a dictionary alone, so it is rebuilt in a second from a result saved long ago. The
report of a study (study_*.py) reads the folder of its results, and with it the rooms that know what a study is.
"""

from onepos.report.figures import prior_chart, prior_convergence, training_curves
from onepos.report.page import render_demo
from onepos.report.tables import (
    best_cells,
    csv_table,
    latex_table,
    markdown_table,
    metrics_table,
    priors_table,
)

__all__ = [
    "best_cells",
    "csv_table",
    "latex_table",
    "markdown_table",
    "metrics_table",
    "prior_chart",
    "prior_convergence",
    "priors_table",
    "render_demo",
    "training_curves",
]
