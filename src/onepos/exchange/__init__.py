"""Round trips of labels: files that other tools write and read, and the answers that come back from them.

A writer takes `Entries`, what is known and what was added; a reader gives a long table, which `Labels.from_long` reads.
"""

from onepos.exchange.reading import parse_answers as parse_answers
from onepos.exchange.reading import read_answers as read_answers
