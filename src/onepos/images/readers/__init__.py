"""Images on disk with their labels: readers of the official layouts, of folders and of tables of paths."""

from onepos.images.readers.coco import read_coco
from onepos.images.readers.cub import read_cub
from onepos.images.readers.folders import read_folders
from onepos.images.readers.image_dataset import ImageDataset
from onepos.images.readers.image_table import read_image_table
from onepos.images.readers.loading import IMAGE_SETS, image_cache, load_images, with_published_protocol
from onepos.images.readers.nuswide import read_nuswide
from onepos.images.readers.voc import read_voc, read_voc_archive

__all__ = [
    "IMAGE_SETS",
    "ImageDataset",
    "image_cache",
    "load_images",
    "read_coco",
    "read_cub",
    "read_folders",
    "read_image_table",
    "read_nuswide",
    "read_voc",
    "read_voc_archive",
    "with_published_protocol",
]
