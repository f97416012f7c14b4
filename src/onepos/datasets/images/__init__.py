"""Pictures on disk with their labels: readers of the official layouts, of folders and of tables of paths."""

from onepos.datasets.images.coco import read_coco
from onepos.datasets.images.cub import read_cub
from onepos.datasets.images.folders import read_folders
from onepos.datasets.images.image_dataset import ImageDataset
from onepos.datasets.images.image_table import read_image_table
from onepos.datasets.images.loading import IMAGE_SETS, load_images, picture_cache
from onepos.datasets.images.nuswide import read_nuswide
from onepos.datasets.images.voc import read_voc
from onepos.datasets.images.voc_archive import read_voc_archive

__all__ = [
    "IMAGE_SETS",
    "ImageDataset",
    "load_images",
    "picture_cache",
    "read_coco",
    "read_cub",
    "read_folders",
    "read_image_table",
    "read_nuswide",
    "read_voc",
    "read_voc_archive",
]
