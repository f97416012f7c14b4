"""Images → features: convolutional backbones, their weight files, and any module of the user's."""

from __future__ import annotations

from onepos.images.networks.backbones import BACKBONES, ImageBackbone, make_image_backbone
from onepos.images.networks.efficientnet_lite import EfficientNetLite0
from onepos.images.networks.layers import IMAGENET, LITE, UNIT, Normalization, freeze_batch_norm
from onepos.images.networks.resnet import ResNet, resnet18, resnet34, resnet50, resnet101
from onepos.images.networks.weights import load_weights

__all__ = [
    "BACKBONES",
    "IMAGENET",
    "LITE",
    "UNIT",
    "EfficientNetLite0",
    "ImageBackbone",
    "Normalization",
    "ResNet",
    "freeze_batch_norm",
    "load_weights",
    "make_image_backbone",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
]
