"""From the columns of a raw table to numbers: numbers, booleans, categories, dates and text, with missing cells."""

from onepos.tables.encoder import ColumnReport, TableEncoder
from onepos.tables.frames import as_frame

__all__ = ["ColumnReport", "TableEncoder", "as_frame"]
