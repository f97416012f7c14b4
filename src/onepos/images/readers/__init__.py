"""Images on disk with their labels: folders, and tables of paths."""

from onepos.images.readers.folders import read_folders
from onepos.images.readers.image_dataset import ImageDataset
from onepos.images.readers.image_table import read_image_table

__all__ = ["ImageDataset", "read_folders", "read_image_table"]
