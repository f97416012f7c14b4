"""Pictures → tensors: decoding, views, and the samples the loop reads them from."""

from onepos.images.decoding import read_image
from onepos.images.features import cache_features
from onepos.images.published import with_published_protocol
from onepos.images.samples import ImageFiles, ImageTensors, PackedImages, find_broken, pack_images
from onepos.images.transforms import make_views

__all__ = [
    "ImageFiles",
    "ImageTensors",
    "PackedImages",
    "cache_features",
    "find_broken",
    "make_views",
    "pack_images",
    "read_image",
    "with_published_protocol",
]
