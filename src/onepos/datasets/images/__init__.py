"""Pictures on disk with their labels: readers of the official layouts, of folders and of tables of paths."""

from onepos.datasets.images.coco import read_coco
from onepos.datasets.images.cub import read_cub
from onepos.datasets.images.folders import read_folders
from onepos.datasets.images.image_dataset import ImageDataset
from onepos.datasets.images.image_table import read_image_table
from onepos.datasets.images.nuswide import read_nuswide
from onepos.datasets.images.voc import read_voc

__all__ = [
    "ImageDataset",
    "read_coco",
    "read_cub",
    "read_folders",
    "read_image_table",
    "read_nuswide",
    "read_voc",
]
