"""The published structures restated as lists of keys and shapes, and weights that are the same on every machine."""

from functools import lru_cache

import numpy as np
import torch

RESNETS = {  # blocks per stage, bottlenecks?
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
}
# EfficientNet-Lite0 block by block: kernel, stride, expansion, channels in, channels out.
LITE_BLOCKS = [
    (3, 1, 1, 32, 16),
    (3, 2, 6, 16, 24),
    (3, 1, 6, 24, 24),
    (5, 2, 6, 24, 40),
    (5, 1, 6, 40, 40),
    (3, 2, 6, 40, 80),
    (3, 1, 6, 80, 80),
    (3, 1, 6, 80, 80),
    (5, 1, 6, 80, 112),
    (5, 1, 6, 112, 112),
    (5, 1, 6, 112, 112),
    (5, 2, 6, 112, 192),
    (5, 1, 6, 192, 192),
    (5, 1, 6, 192, 192),
    (5, 1, 6, 192, 192),
    (3, 1, 6, 192, 320),
]


def norm_shapes(key, width):
    tensors = {f"{key}.{name}": (width,) for name in ("weight", "bias", "running_mean", "running_var")}
    return {**tensors, f"{key}.num_batches_tracked": ()}


def resnet_shapes(name):
    """Every key of a torchvision file with its shape, in its order."""
    depths, bottleneck = RESNETS[name]
    shapes = {"conv1.weight": (64, 3, 7, 7), **norm_shapes("bn1", 64)}
    n_in = 64
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        n_out = 4 * width if bottleneck else width
        for k in range(depth):
            block = f"layer{stage + 1}.{k}"
            convolutions = (
                [(width, n_in, 1, 1), (width, width, 3, 3), (n_out, width, 1, 1)]
                if bottleneck
                else [(width, n_in, 3, 3), (width, width, 3, 3)]
            )
            for j, shape in enumerate(convolutions, start=1):
                shapes |= {f"{block}.conv{j}.weight": shape, **norm_shapes(f"{block}.bn{j}", shape[0])}
            if k == 0 and (stage > 0 or bottleneck):
                shapes |= {f"{block}.downsample.0.weight": (n_out, n_in, 1, 1)}
                shapes |= norm_shapes(f"{block}.downsample.1", n_out)
            n_in = n_out
    return {**shapes, "fc.weight": (1000, n_in), "fc.bias": (1000,)}


def lite_shapes():
    """Every key of the package's file with its shape."""
    shapes = {"_conv_stem.weight": (32, 3, 3, 3), **norm_shapes("_bn0", 32)}
    for k, (kernel, _, expansion, n_in, n_out) in enumerate(LITE_BLOCKS):
        block, n_mid = f"_blocks.{k}", n_in * expansion
        if expansion > 1:
            shapes |= {f"{block}._expand_conv.weight": (n_mid, n_in, 1, 1), **norm_shapes(f"{block}._bn0", n_mid)}
        shapes |= {f"{block}._depthwise_conv.weight": (n_mid, 1, kernel, kernel), **norm_shapes(f"{block}._bn1", n_mid)}
        shapes |= {f"{block}._project_conv.weight": (n_out, n_mid, 1, 1), **norm_shapes(f"{block}._bn2", n_out)}
    shapes |= {"_conv_head.weight": (1280, 320, 1, 1), **norm_shapes("_bn1", 1280)}
    return {**shapes, "_fc.weight": (1000, 1280), "_fc.bias": (1000,)}


def shapes_of(name):
    return lite_shapes() if name == "efficientnet-lite0" else resnet_shapes(name)


@lru_cache
def seeded_state(name):
    """Weights from NumPy's frozen generator, scaled so that activations neither vanish nor overflow."""
    rng, state = np.random.RandomState(0), {}
    for key, shape in shapes_of(name).items():
        if key.endswith("num_batches_tracked"):
            state[key] = torch.tensor(7)
            continue
        values = torch.from_numpy(rng.random_sample(shape)).float()  # uniform in [0, 1)
        if len(shape) > 1:  # variance 1 / fan-in
            state[key] = (values - 0.5) * (12 / np.prod(shape[1:])) ** 0.5
        else:
            low, high = (0.5, 1.5) if key.endswith(("running_var", "weight")) else (-0.1, 0.1)
            state[key] = low + (high - low) * values
    return state


def seeded_images(height=64, width=64):
    """Two images of noise, (2, 3, height, width), within ±2."""
    return torch.from_numpy(np.random.RandomState(1).random_sample((2, 3, height, width)) * 4 - 2).float()
