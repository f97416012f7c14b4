"""Round trips of labels: files that other tools write and read, and the answers that come back from them.

A writer takes `Entries`, what is known and what was added; a reader gives a long table, which `Labels.from_long` reads.
"""

from onepos.exchange.coco import make_coco as make_coco
from onepos.exchange.entries import Entries as Entries
from onepos.exchange.hugging_face import make_dataset as make_dataset
from onepos.exchange.label_studio import make_project as make_project
from onepos.exchange.reading import parse_answers as parse_answers
from onepos.exchange.reading import read_answers as read_answers
