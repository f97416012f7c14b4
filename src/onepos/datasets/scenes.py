"""Digit scenes: the data set that needs no download.

Each row is a 16 × 16 image of two by two cells; one to four different handwritten digits (the real 8 × 8
digits inside scikit-learn) stand in cells chosen at random, the other cells are empty. A faint grain lies
over the image. The labels are the digits present, a set: no digit appears twice in a scene.

The set S of a scene is drawn from  p(S) ∝ exp( Σ_{j∈S} b_j + Σ_{j<k∈S} W_jk ),  1 ≤ |S| ≤ 4.  W makes some
digits attract others; b is solved so that the priors are exactly `PRIORS`.
"""

from functools import lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

from onepos.datasets.dataset import Dataset
from onepos.validation import Indicator

LABEL_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
# In the order of the names. The digits that are hard to read are the frequent ones, so that a rare label is
# hard for its rarity alone.
PRIORS = (0.03, 0.42, 0.11, 0.20, 0.06, 0.15, 0.05, 0.08, 0.60, 0.30)
# (digit, digit, W): positive attracts, negative repels.
ATTRACTIONS = ((8, 1, -1.0), (8, 6, 2.0), (1, 4, 2.0), (9, 2, 1.5), (3, 0, 2.0), (5, 7, 1.5), (9, 3, -1.0))
PARTS = {"train": 0.8, "val": 0.1, "test": 0.1}
MAX_DIGITS = 4
CELL = 8
# Without grain the corner pixels are almost constant, and standardising turns their few marks into outliers.
GRAIN = 0.1


def digit_scenes(n_samples: int = 6000, random_state: int = 0) -> Dataset:
    """Draw digit scenes with known labels, very unequal priors and correlated labels.

    Train, validation and test scenes (80/10/10, in `splits`) are made of different handwritten digits, so
    no pixel of a test scene was seen in training.

    Args:
        n_samples: Number of scenes, at least 10.
        random_state: Seed; the same seed gives the same bits.
    """
    if n_samples < 10:
        raise ValueError(f"n_samples must be at least 10; got {n_samples}. The 80/10/10 split needs a row per part.")
    return _generate(int(n_samples), int(random_state))


def as_images(scenes: Dataset, enlarge: int = 1) -> npt.NDArray[np.uint8]:
    """The rows of a data set of grey images as such, (n, enlarge · height, enlarge · width, 3).

    Args:
        scenes: Its `image_shape` is (height, width), its features are in [0, 1].
        enlarge: Pixels per pixel and side; a network that halves the image five times needs more than 16.
    """
    if scenes.image_shape is None or len(scenes.image_shape) != 2 or scenes.is_sparse:
        raise ValueError(
            f"the rows must be grey images (height, width); {scenes.name} has image_shape {scenes.image_shape}. "
            "Give data such as digit_scenes()."
        )
    grey: npt.NDArray[np.uint8]
    grey = np.rint(np.asarray(scenes.X) * 255).clip(0, 255).astype(np.uint8).reshape(-1, *scenes.image_shape, 1)
    return grey.repeat(enlarge, axis=1).repeat(enlarge, axis=2).repeat(3, axis=3)


@lru_cache(maxsize=4)
def _generate(n_samples: int, random_state: int) -> Dataset:
    rng = np.random.default_rng(random_state)
    sets, probability = label_set_distribution()
    Y = sets[rng.choice(len(sets), size=n_samples, p=probability)]
    bounds = np.round(np.cumsum([0.0, *PARTS.values()]) * n_samples).astype(int)
    splits = {part: np.arange(bounds[i], bounds[i + 1]) for i, part in enumerate(PARTS)}
    pools = _share_digits(rng)
    X = np.concatenate([_draw_scenes(Y[splits[part]], pools[part], rng) for part in PARTS])
    return Dataset(
        name="digit-scenes",
        X=X,
        Y=Y,
        label_names=LABEL_NAMES,
        splits=splits,
        source="generated from sklearn.datasets.load_digits",
        image_shape=(2 * CELL, 2 * CELL),
    )


@lru_cache(maxsize=1)
def label_set_distribution() -> tuple[Indicator, npt.NDArray[np.float64]]:
    """Return every possible label set, (sets, 10), and its probability; the marginals are `PRIORS`."""
    members = [set(s) for k in range(1, MAX_DIGITS + 1) for s in combinations(range(10), k)]
    sets = np.array([[digit in s for digit in range(10)] for s in members], dtype=np.uint8)
    attraction = np.array([sum(w for j, k, w in ATTRACTIONS if {j, k} <= s) for s in members])
    target = np.array(PRIORS)
    bias = np.log(target / (1 - target))
    for _ in range(200):  # converges to 1e-12 in about 30
        weight = np.exp(sets @ bias + attraction)
        probability = weight / weight.sum()
        marginal = probability @ sets
        bias += np.log(target / (1 - target)) - np.log(marginal / (1 - marginal))
    return sets, probability


Pool = tuple[npt.NDArray[np.float32], npt.NDArray[np.intp], npt.NDArray[np.intp]]


def _share_digits(rng: np.random.Generator) -> dict[str, Pool]:
    """Share the handwritten digits out; per part: images sorted by digit, first and count per digit."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)
    order = rng.permutation(len(images))
    share = np.round(np.cumsum([0.0, *PARTS.values()]) * len(order)).astype(int)
    pools = {}
    for i, part in enumerate(PARTS):
        mine = order[share[i] : share[i + 1]]
        mine = mine[np.argsort(digits.target[mine], kind="stable")]
        count = np.bincount(digits.target[mine], minlength=10)
        pools[part] = (images[mine], np.cumsum(count) - count, count)
    return pools


def _draw_scenes(Y: Indicator, pool: Pool, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    images, first, count = pool
    row, digit = np.nonzero(Y)
    per_row = Y.sum(axis=1, dtype=np.intp)
    slot = np.arange(len(row)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
    cell = rng.permuted(np.tile(np.arange(MAX_DIGITS), (len(Y), 1)), axis=1)[row, slot]
    image = images[first[digit] + rng.integers(count[digit])]
    canvas = np.zeros((len(Y), 2, CELL, 2, CELL), dtype=np.float32)
    canvas[row, cell // 2, :, cell % 2, :] = image
    grain = GRAIN * rng.random((len(Y), canvas[0].size), dtype=np.float32)
    return np.minimum(canvas.reshape(len(Y), -1) + grain, np.float32(1))
