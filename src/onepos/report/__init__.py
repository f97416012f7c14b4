"""Tables, charts and a self-contained page from plain, JSON-able results.

This room reads dictionaries only. It imports no other room and never torch, so a page is rebuilt in a
second from a result saved long ago.
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
