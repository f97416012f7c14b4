"""Images: readers, decoding, views, networks, the `ImageFeatures` transformer and the image classifier.

The classifier is imported from `onepos` or `onepos.images.classifier`.
"""

from onepos.images.features import ImageFeatures
from onepos.images.samples import ImageFiles, ImageTensors, PackedImages, find_broken, pack_images, read_image
from onepos.images.views import make_views

__all__ = [
    "ImageFeatures",
    "ImageFiles",
    "ImageTensors",
    "PackedImages",
    "find_broken",
    "make_views",
    "pack_images",
    "read_image",
]
