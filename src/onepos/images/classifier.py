"""SinglePositiveImageClassifier: `SinglePositiveClassifier` for images."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from onepos.estimator import (
    FloatArray,
    OnProgress,
    SinglePositiveClassifier,
    as_pair,
    as_probability,
    is_full,
    warn_unobserved,
)
from onepos.images.features import (
    Floats,
    ImageFeatures,
    ImageInput,
    OnImages,
    check_image_parameters,
    check_images,
    find_unreadable,
    judge_unreadable,
    make_image_network,
    open_images,
    run_network,
)
from onepos.images.networks import make_image_backbone
from onepos.images.samples import ImageFiles, Images, pack_images
from onepos.labels import Labels
from onepos.methods.base import Method
from onepos.training.backbones import n_outputs
from onepos.training.loop import History
from onepos.training.plan import Plan
from onepos.training.runtime import NETWORK_STREAM, choose_device, seeded
from onepos.training.samples import Samples, Scaling, as_samples
from onepos.training.task import Task, TrainingData, Validation, make_task, needs
from onepos.validation import check_whole, read_groups


class SinglePositiveImageClassifier(SinglePositiveClassifier):
    """A multi-label classifier of images, learned from one observed positive label per image.

    X is a list of paths or a uint8 array (n, height, width, 3). By default the network is frozen: its features are
    computed once per image (`ImageFeatures`), and a linear layer is trained on them. With `fine_tune=True` the whole
    network is trained. Labels, predictions and the parameters not listed here are as in `SinglePositiveClassifier`;
    `hidden` is not used.

    Args:
        network: "efficientnet-lite0", "resnet50" or another name in `onepos.images.networks.BACKBONES`; or a torch
            module from normalized images (B, 3, H, W) to features. Images for a module are normalized by its attribute
            `normalization` (mean and deviation), by default as for ImageNet.
        scale: "standard" divides the features of a frozen network by one number for all; or "none".
        weights: "pretrained", the path of a weight file, or None for a start at random; "auto" takes the pretrained
            weights of a named network and leaves a module as it is.
        image_size: Side in pixels of the square to which images are scaled. None is the usual one of the network;
            for a module that of square arrays, 224 for files.
        fine_tune: Whether to train the network too, on augmented images. Methods that need feature maps or several
            views of an image need it.
        frozen_epochs: With `fine_tune`, epochs at the start in which only the head is trained.
        backbone_lr: With `fine_tune`, learning rate of the network as a multiple of `lr`. None is 0.1 where a weight
            file was loaded, 1 otherwise.
        on_error: What unreadable files do: "raise" an error that names them before any training, or "skip" them with
            a warning.
        workers: Processes that decode images; 0 decodes in this one.
        cache: A folder to keep the features of images in, with `fine_tune` their pixels (3 · image_size² bytes each),
            so that later fits, or epochs, need not open the files again. None keeps nothing.

    Attributes:
        images_: Size and normalization of the images, and the checksum of the weight file.
        features_: The fitted `ImageFeatures`; None after fine-tuning.
        skipped_: Rows of X whose images were left out, with the reason.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> from onepos import SinglePositiveImageClassifier
        >>> network = nn.Sequential(nn.Conv2d(3, 4, 8, stride=8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> images = np.zeros((6, 32, 32, 3), np.uint8)
        >>> model = SinglePositiveImageClassifier("an", network=network, epochs=1)
        >>> model.fit(images, ["cat", "dog", "cat", "dog", "bird", "cat"]).predict_proba(images).shape
        (6, 3)
    """

    kind: ClassVar[str] = "images"

    images_: ImageInput
    features_: ImageFeatures | None
    skipped_: dict[int, str]

    def __init__(
        self,
        method: str | Method = "crisp-plus",
        *,
        network: str | nn.Module = "efficientnet-lite0",
        hidden: Sequence[int] = (512,),
        scale: str = "standard",
        bias_init: str = "frequency",
        epochs: int | str = "auto",
        early_stopping: bool = True,
        batch_size: int = 32,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        threshold: float | str = "prior",
        min_labels: int | str = "auto",
        positives: str = "single",
        device: str = "auto",
        precision: str = "32",
        random_state: int | np.random.RandomState | None = None,
        weights: str | os.PathLike[str] | None = "auto",
        image_size: int | None = None,
        fine_tune: bool = False,
        frozen_epochs: int = 0,
        backbone_lr: float | None = None,
        on_error: str = "raise",
        workers: int = 0,
        cache: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(
            method,
            network=network,
            hidden=hidden,
            scale=scale,
            bias_init=bias_init,
            epochs=epochs,
            early_stopping=early_stopping,
            batch_size=batch_size,
            lr=lr,
            weight_decay=weight_decay,
            threshold=threshold,
            min_labels=min_labels,
            positives=positives,
            device=device,
            precision=precision,
            random_state=random_state,
        )
        self.weights = weights
        self.image_size = image_size
        self.fine_tune = fine_tune
        self.frozen_epochs = frozen_epochs
        self.backbone_lr = backbone_lr
        self.on_error = on_error
        self.workers = workers
        self.cache = cache

    def fit(
        self,
        X: Any,
        y: Any,
        validation: tuple[Any, Any] | None = None,
        groups: Any = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        time_limit: float | None = None,
        on_epoch: Callable[[int, History], None] | None = None,
        on_progress: OnProgress | None = None,
        on_images: OnImages | None = None,
    ) -> Self:
        """Learn from images with one observed positive each; see `SinglePositiveClassifier.fit`.

        Args:
            X: n paths, or a uint8 array (n, height, width, 3).
            y: The observed label of each image, or any other form of labels (docs/labels.md).
            validation: Images and labels to choose the epoch by, (X, y).
            groups: A value per image; images with equal values are never split.
            checkpoint: A file that keeps finished epochs; the same call continues after the last one.
            time_limit: Seconds after which the fit ends with the model it has.
            on_epoch: Called after each epoch with its number and the history.
            on_progress: Called with what is being done, how much of it is done, and how much there is.
            on_images: Called with what is being done, how many images are done, and how many there are.
        """
        pace = time_limit, on_progress
        return self._fit(X, y, validation, checkpoint, on_epoch, pace, groups=groups, on_images=on_images)

    def decision_function(self, X: Any, *, on_images: OnImages | None = None) -> FloatArray:
        """Logits, (n, c); NaN for images that can not be read where `on_error` is "skip".

        Args:
            X: n paths, or a uint8 array (n, height, width, 3).
            on_images: Called with what is being done, how many images are done, and how many there are.
        """
        check_is_fitted(self)
        if self.features_ is not None:
            return self._logits(self._extract(X, on_images)[0])
        images, device = self._open(X, on_images), choose_device(str(self.device))
        outputs = run_network(self.network_, images, device, "predicting, image", on_images)
        judge_unreadable(images, images.skipped, self.on_error)
        return outputs.astype(np.float64)

    def predict_proba(self, X: Any, *, on_images: OnImages | None = None) -> FloatArray:
        """Marginal probability of each label, (n, c), strictly inside (0, 1); NaN as in `decision_function`.

        Args:
            X: n paths, or a uint8 array (n, height, width, 3).
            on_images: Called with what is being done, how many images are done, and how many there are.
        """
        return as_probability(self.decision_function(X, on_images=on_images))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.two_d_array = False
        tags.input_tags.string = tags.no_validation = True
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_image_parameters(self)
        check_whole("frozen_epochs", self.frozen_epochs, 0)
        if self.backbone_lr is not None:
            self._check_not_negative("backbone_lr")

    def _make_task(
        self, X: Any, y: Any, validation: tuple[Any, Any] | None, method: Method, plan: Plan, **options: Any
    ) -> Task:
        """Check everything that needs no image first, then read the images."""
        on_images: OnImages | None = options["on_images"]
        check_images(X)
        labels = Labels.read(y, len(X), positives=self.positives)
        observed, known_negative, self.classes_ = labels.observed, labels.known_negative, labels.classes
        groups = None if options.get("groups") is None else read_groups(options["groups"], len(X))
        X_val, Y_val = None, None
        if validation is not None:
            X_val, y_val = as_pair(validation)
            Y_val = Labels.read(y_val, len(X_val), classes=self.classes_).to_array()
        if not self.fine_tune:
            _refuse_frozen(method)
        network = self._make_network(X, method, plan)
        samples, kept, self.skipped_ = self._read(X, on_images, is_validation=False)
        held_out = None
        if Y_val is not None:
            val_samples, val_kept, _ = self._read(X_val, on_images, is_validation=True)
            held_out = Validation(val_samples, Y_val[val_kept], is_full(Y_val))
        warn_unobserved(observed[kept], self.classes_)
        if self.fine_tune:
            usual = 1.0 if self.images_.weights_sha256 is None else 0.1
            backbone_lr = usual if self.backbone_lr is None else float(self.backbone_lr)
            plan = replace(plan, frozen_epochs=int(self.frozen_epochs), backbone_lr=backbone_lr)
        known_negative = None if known_negative is None else known_negative[kept]
        groups = None if groups is None else groups[kept]
        at_random = None if labels.at_random is None else labels.at_random[kept]
        data = TrainingData(samples, held_out, self._offers, groups=groups, at_random=at_random)
        return make_task(data, observed[kept], method, plan, network=network, known_negative=known_negative)

    def _make_network(self, X: Any, method: Method, plan: Plan) -> nn.Module:
        """What is trained before the head; sets `images_`, `features_` and `scaling_`."""
        with seeded(plan.seed, NETWORK_STREAM, torch.device("cpu")):
            network, self.images_, n_features = make_image_network(
                self.network, self.weights, self.image_size, X, maps=method.maps, fine_tune=self.fine_tune
            )
        self.scaling_ = None
        return self._place(network, n_features, self.fine_tune)

    def _place(self, network: nn.Module, n_features: int, fine_tune: bool) -> nn.Module:
        """Put a frozen network into `features_`; return what is before the head."""
        self.features_ = None
        if fine_tune:
            return network
        features = ImageFeatures(self.network, weights=self.weights, image_size=self.image_size)
        self.features_ = features.adopt(network, self.images_, n_features)
        return nn.Identity()

    def _read(
        self, X: Any, on_images: OnImages | None, *, is_validation: bool
    ) -> tuple[Samples, npt.NDArray[np.intp], dict[int, str]]:
        """The samples to train on, the rows of X they are, and the skipped rows; the training rows set `scaling_`."""
        if self.fine_tune:
            images = self._open(X, on_images)
            unreadable = find_unreadable(images, on_images)
            judge_unreadable(images, unreadable, self.on_error)
            kept = np.setdiff1d(np.arange(len(images)), list(unreadable))
            return self._take(images, kept, on_images), kept, unreadable
        features, unreadable = self._extract(X, on_images)
        kept = np.setdiff1d(np.arange(len(features)), list(unreadable))
        features = features[kept] if unreadable else features
        if not is_validation and self.scale != "none":
            self.scaling_ = _fit_one_scale(features)
        return as_samples(features, self.scaling_), kept, dict(unreadable)

    def _take(self, images: Images, kept: npt.NDArray[np.intp], on_images: OnImages | None) -> Images:
        """The readable images, to be trained on; their pixels are kept in the folder `cache` where one is given."""
        if not isinstance(images, ImageFiles):
            return images
        taken = copy.copy(images)
        taken.files, taken.skipped, taken.on_error = images.files[kept], {}, self.on_error
        if self.cache is None:
            return taken
        on_batch = None if on_images is None else lambda done: on_images("decoding, image", done, len(kept))
        return pack_images(taken, self.cache, on_batch)

    def _settle(self, network: nn.Module) -> nn.Module:
        """A network for images stays in single precision: in double it would be many times slower."""
        return network.cpu() if self.features_ is None else super()._settle(network)

    def _check_trained(self, samples: Samples) -> None:
        if isinstance(samples, ImageFiles):  # a file that was lost since the images were checked
            judge_unreadable(samples, samples.skipped, self.on_error)

    def _extract(self, X: Any, on_images: OnImages | None) -> tuple[Floats, dict[int, str]]:
        assert self.features_ is not None
        self.features_.set_params(**{name: getattr(self, name) for name in ("on_error", "workers", "cache", "device")})
        return self.features_.extract(X, on_images)

    def _open(self, X: Any, on_images: OnImages | None) -> Images:
        return open_images(X, self.images_, int(self.workers), self.on_error, on_images)

    def _facts(self) -> dict[str, Any]:
        return {"images": {**self.images_.to_json(), "fine_tuned": self.features_ is None}}

    def _restore(self, facts: dict[str, Any], method: Method) -> tuple[nn.Module, int]:
        self.images_, self.skipped_ = ImageInput.from_json(facts["images"]), {}
        network, _, _ = make_image_backbone(self.network, maps=method.maps)
        n_features = n_outputs(network, torch.zeros(2, 3, self.images_.size, self.images_.size), maps=method.maps)
        return self._place(network, n_features, facts["images"]["fine_tuned"]), n_features

    def _parts(self) -> dict[str, nn.Module]:
        """With the weights of a frozen network too, so that the folder predicts where its weight file is missing."""
        return super()._parts() | ({} if self.features_ is None else {"features": self.features_.network_})


def _refuse_frozen(method: Method) -> None:
    """Refuse a method that needs more than one row of features per image."""
    for need in sorted(needs(method) & {"maps", "views"}):
        raise ValueError(
            f"{type(method).__name__} needs {need}; a frozen network gives one row of features per image. "
            "Pass fine_tune=True, on the command line --fine-tune."
        )


def _fit_one_scale(features: Floats) -> Scaling:
    """One number for all features, by which their mean square becomes 1, whatever the network.

    A scale per feature raises the faint ones, and a linear head then overfits: on VOC it cost up to 4 points of mAP
    (docs/images.md).
    """
    size = float(np.sqrt(np.mean(np.square(features, dtype=np.float64))))
    d = features.shape[1]
    return Scaling(np.zeros(d), np.full(d, size if size > 0 else 1.0))
