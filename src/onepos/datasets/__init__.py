"""From bytes to arrays: readers, known data sets, and the frozen `Dataset` they all give."""

from onepos.datasets.arff import read_arff
from onepos.datasets.dataset import Dataset
from onepos.datasets.download import get_dataset
from onepos.datasets.draws import load_draw, save_draw
from onepos.datasets.loading import data_root, load_dataset, read_dataset, read_features
from onepos.datasets.mat import read_mat
from onepos.datasets.npz import read_pooled_features, write_npz
from onepos.datasets.scenes import digit_scenes
from onepos.datasets.sources import DATASETS, Source
from onepos.datasets.table import open_table, read_table

__all__ = [
    "DATASETS",
    "Dataset",
    "Source",
    "data_root",
    "digit_scenes",
    "get_dataset",
    "load_dataset",
    "load_draw",
    "open_table",
    "read_arff",
    "read_dataset",
    "read_features",
    "read_mat",
    "read_pooled_features",
    "read_table",
    "save_draw",
    "write_npz",
]
