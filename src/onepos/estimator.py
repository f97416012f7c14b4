"""SinglePositiveClassifier: the scikit-learn face of the library."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from onepos.images import ImageFiles, ImageTensors
from onepos.images.inputs import (
    LARGEST,
    SMALLEST,
    OnPictures,
    PictureInput,
    choose_size,
    compute_features,
    find_unreadable,
    fit_feature_scaling,
    holds_pictures,
    judge_unreadable,
    make_picture_network,
    read_pictures,
    run_network,
    some_are_missing,
    take_pictures,
    takes_pictures,
)
from onepos.images.networks import n_image_features
from onepos.labels import read_full_labels, read_labels
from onepos.methods import make_method
from onepos.methods.base import Method
from onepos.metrics import average_precision
from onepos.priors import make_thresholds
from onepos.training.backbones import make_backbone, n_outputs
from onepos.training.loop import (
    NETWORK_STREAM,
    History,
    Learner,
    Network,
    Plan,
    Validation,
    predict_logits,
    run_in_steps,
    train,
)
from onepos.training.runtime import choose_device, seeded
from onepos.training.samples import Samples, as_samples, fit_scaling
from onepos.validation import check_finite

FloatArray = npt.NDArray[np.float64]
Indicator = npt.NDArray[np.uint8]


class _Job(NamedTuple):
    """What `train` needs of the data."""

    samples: Samples
    observed: Indicator
    backbone: nn.Module
    n_features: int
    validation: Validation | None
    plan: Plan


class SinglePositiveClassifier(BaseEstimator):  # type: ignore[misc]  # BaseEstimator is untyped
    """A multi-label classifier learnt from one observed positive label per row.

    `fit` takes a vector of labels (ints or strings) or an (n, c) indicator with one 1 per row; `predict` always
    gives an (n, c) indicator and `predict_proba` (n, c) marginals strictly inside (0, 1), one column per entry of
    `classes_`. It is not a scikit-learn classifier by tag: what goes in (one label) and what comes out (a set of
    labels) differ in shape, which is not what scikit-learn means by the word.

    X is a matrix of rows, or pictures: paths or a uint8 array (n, height, width, 3). By default the network for
    pictures stands still: its features are computed once per picture, and a linear head is trained on them.

    Args:
        method: A name in METHODS or a Method object; its parameters are reached as `method__alpha`.
        network: For rows "mlp", "linear", "bottleneck" (hidden width = number of labels); for pictures
            "efficientnet-lite0", "resnet50" or another in `onepos.images.networks.BACKBONES`; or a torch module from rows or
            normalised pictures (B, 3, H, W) to features. Pictures for a module are normalised as its attribute
            `normalisation` says, by default as for ImageNet.
        hidden: Widths of the hidden layers of "mlp".
        scale: "standard" (zero mean, unit variance on the training rows; features of pictures are divided by one number
            for all instead) or "none".
        bias_init: "frequency" or "zero", see `Plan`.
        epochs: Passes over the training rows.
        batch_size: Rows per step.
        lr: Learning rate of Adam.
        weight_decay: L2 weight of Adam.
        threshold: Probability above which `predict` sets a label: a number for all labels, or "prior", which gives
            each label the threshold that as many training rows exceed as carry it by `class_prior_`.
        positives: "single" (each row holds exactly one positive, checked) or "any" (none or several are fine).
        device: "auto", "cpu", "cuda", "mps".
        precision: "32" or "bf16".
        random_state: Seed of everything random.
        weights: For pictures. "pretrained", the path of a weight file, or None for a start at random; "auto" takes
            the pretrained weights of a named network and leaves a module as it is.
        image_size: Side in pixels of the square to which pictures are scaled. None is the usual one of the network;
            for a module that of square arrays, 224 for files.
        fine_tune: Whether the network for pictures learns too, from augmented pictures. Methods that look at maps or
            compare views need it.
        frozen_epochs: With `fine_tune`, epochs at the start in which only the head learns.
        backbone_lr: With `fine_tune`, learning rate of the network as a multiple of `lr`. None is a tenth where a
            weight file was loaded, 1 otherwise.
        on_error: What missing or broken picture files do: "raise" an error that names them before any training, or
            "skip" them with a warning.
        workers: Processes that decode pictures; 0 decodes in this one.
        cache: A folder to keep the features of pictures in, with `fine_tune` their pixels (3 · image_size² bytes each),
            so that later fits, or epochs, need not open the files again. None keeps nothing.

    Attributes:
        classes_: The labels, in column order.
        class_prior_: Estimated share of rows that carry each label; NaN for a label nobody observed.
        class_prior_interval_: Lower and upper end, (c, 2), as explained at `estimate_priors`; NaN where the
            method was given its priors.
        thresholds_: Probability above which `predict` sets a label, (c,).
        history_: What happened in each epoch.
        method_: The fitted method.
        n_features_in_: Number of features.
        feature_names_in_: Their names, if X had any.
        pictures_: Size and normalisation of pictures and the checksum of the weight file; None where X is a matrix.
        extractor_: The network for pictures that stands still; None after fine-tuning, and where X is a matrix.
        skipped_: Rows of X whose pictures were left out, with the reason.

    Example:
        >>> from onepos import SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes")
        >>> observed = draw_single_positive(scenes.Y[:500], random_state=0)
        >>> model = SinglePositiveClassifier("an", epochs=2, random_state=0).fit(scenes.X[:500], observed)
        >>> model.predict_proba(scenes.X[500:503]).shape
        (3, 10)
    """

    _offers: frozenset[str] = frozenset()
    pictures_: PictureInput | None
    extractor_: nn.Module | None
    skipped_: dict[int, str]

    def __init__(
        self,
        method: str | Method = "crisp-plus",
        *,
        network: str | nn.Module = "mlp",
        hidden: Sequence[int] = (256,),
        scale: str = "standard",
        bias_init: str = "frequency",
        epochs: int = 20,
        batch_size: int = 32,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        threshold: float | str = 0.5,
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
        self.method = method
        self.network = network
        self.hidden = hidden
        self.scale = scale
        self.bias_init = bias_init
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.threshold = threshold
        self.positives = positives
        self.device = device
        self.precision = precision
        self.random_state = random_state
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
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        on_epoch: Callable[[int, History], None] | None = None,
        on_pictures: OnPictures | None = None,
    ) -> SinglePositiveClassifier:
        """Learn from rows with one observed positive each.

        Args:
            X: (n, d) array, DataFrame or sparse matrix; or pictures, n paths or a uint8 array (n, height, width, 3).
            y: n labels, or an (n, c) indicator (array, sparse or DataFrame; its columns become `classes_`).
            validation: (X_val, Y_val) to choose the best epoch by average precision. An indicator with a row of
                two or more labels counts as fully labelled; a vector, or an indicator with at most one label per
                row, as single-positive, and the metric is then the mean reciprocal rank of the observed label.
            checkpoint: A file that lets a stopped fit go on where it was, see `onepos.training.loop.train`.
            on_epoch: Called after each epoch with its number and the history.
            on_pictures: Called with what is being done, how many pictures are done, and how many there are.
        """
        self._check_parameters()
        method: Method = make_method(self.method) if isinstance(self.method, str) else clone(self.method)
        plan = self._plan()
        if takes_pictures(self.network, X):
            job = self._prepare_pictures(X, y, validation, method, plan, on_pictures)
        else:
            job = self._prepare_rows(X, y, validation, method, plan)

        learner = Learner(job.backbone, method)
        self.history_ = train(
            learner,
            job.samples,
            job.observed,
            job.n_features,
            job.plan,
            validation=job.validation,
            checkpoint=checkpoint,
            on_epoch=on_epoch,
        )
        if isinstance(job.samples, ImageFiles):  # a file that was lost since the pictures were checked
            judge_unreadable(job.samples, job.samples.skipped, self.on_error)
        device = next(learner.parameters()).device
        logits = predict_logits(learner, job.samples.to(device)).cpu()
        self.method_ = method.cpu()
        advisers = None if learner.advisers is None else copy.deepcopy(learner.advisers).cpu()  # others may share them
        self.network_ = Network(job.backbone.cpu(), method.head, advisers)
        self.class_prior_, self.class_prior_interval_ = self.method_.final_prior(logits, job.observed)
        probability = torch.sigmoid(logits.double()).numpy()
        self.thresholds_ = make_thresholds(self.threshold, probability, self.class_prior_)
        return self

    def decision_function(self, X: Any, *, on_pictures: OnPictures | None = None) -> FloatArray:
        """Logits, (n, c); NaN for pictures that can not be read where `on_error` is "skip"."""
        check_is_fitted(self)
        if self.pictures_ is not None and self.extractor_ is None:
            pictures, device = self._open_pictures(X, on_pictures), choose_device(str(self.device))
            outputs = run_network(copy.deepcopy(self.network_), pictures, device, "predicting, picture", on_pictures)
            judge_unreadable(pictures, pictures.skipped, self.on_error)
            return outputs.astype(np.float64)
        X = self._read_rows(X, reset=False) if self.pictures_ is None else self._extract(X, on_pictures)[0]
        # In double precision the logits of a row do not depend on which rows stand beside it in the batch.
        network = copy.deepcopy(self.network_).double().eval()
        samples = as_samples(X, self.scaling_, torch.float64)
        logits: FloatArray = run_in_steps(network, samples, torch.device("cpu")).numpy()
        return logits

    def predict_proba(self, X: Any, *, on_pictures: OnPictures | None = None) -> FloatArray:
        """Marginal probability of each label, (n, c), strictly inside (0, 1); NaN as in `decision_function`."""
        probability = torch.sigmoid(torch.as_tensor(self.decision_function(X, on_pictures=on_pictures))).numpy()
        tiny = np.finfo(np.float64)
        clipped: FloatArray = np.clip(probability, tiny.tiny, 1 - tiny.epsneg)
        return clipped

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Indicator of the labels whose probability exceeds `thresholds_`, (n, c)."""
        return (self.predict_proba(X) > self.thresholds_).astype(np.int64)

    def score(self, X: Any, y: Any) -> float:
        """Label-ranking average precision against full labels (indicator), or against single ones (vector)."""
        logits = self.decision_function(X)
        Y, read = read_full_labels(y, len(logits), self.classes_), ~np.isnan(logits).any(1)
        return average_precision(Y[read], logits[read])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted model to a folder: `model.safetensors` and `model.json`, no pickle."""
        from onepos.model_folder import save_model

        check_is_fitted(self)
        save_model(self, folder)

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], *, network: nn.Module | None = None, method: Method | None = None
    ) -> SinglePositiveClassifier:
        """Read a model folder. A network or method of your own is not stored as code: pass it again."""
        from onepos.model_folder import load_model

        return load_model(cls, folder, network, method)

    def set_params(self, **params: Any) -> SinglePositiveClassifier:
        """Set parameters; `method__x` also where the method is given by name."""
        nested = any(key.startswith("method__") for key in params)
        chosen = params.get("method", self.method)
        if nested and isinstance(chosen, str):
            params["method"] = make_method(chosen)
        super().set_params(**params)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    def _check_parameters(self) -> None:
        choices = {
            "scale": ("standard", "none"),
            "positives": ("single", "any"),
            "bias_init": ("frequency", "zero"),
            "on_error": ("raise", "skip"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                listed = " or ".join(repr(value) for value in allowed)
                raise ValueError(f"{name} must be {listed}; got {getattr(self, name)!r}.")
        for name, least in {"epochs": 1, "batch_size": 1, "frozen_epochs": 0, "workers": 0}.items():
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}.")
        is_number = isinstance(self.threshold, int | float | np.number)
        if not (0 <= self.threshold <= 1 if is_number else self.threshold == "prior"):  # type: ignore[operator]
            raise ValueError(f"threshold must be a number from 0 to 1 or 'prior'; got {self.threshold!r}.")
        for name in ("lr", "weight_decay", *(() if self.backbone_lr is None else ("backbone_lr",))):
            value = getattr(self, name)
            if not (isinstance(value, int | float | np.number) and value >= 0):
                raise ValueError(f"{name} must be a number and not negative; got {value!r}.")
        self._check_network()

    def _check_network(self) -> None:
        widths = self.hidden if isinstance(self.hidden, Sequence) and not isinstance(self.hidden, str) else (None,)
        if not all(isinstance(width, int | np.integer) and width >= 1 for width in widths):
            raise ValueError(f"hidden must be whole widths of at least 1, such as (256, 128); got {self.hidden!r}.")
        if not isinstance(self.method, str | Method):
            raise ValueError(f"method must be a name or a Method object, such as CRISP(); got {self.method!r}.")
        size = self.image_size
        if size is not None and not (isinstance(size, int | np.integer) and SMALLEST <= size <= LARGEST):
            raise ValueError(
                f"image_size must be None or a whole number of pixels from {SMALLEST} to {LARGEST}; got {size!r}."
            )

    def _plan(self) -> Plan:
        state = self.random_state
        is_seed = isinstance(state, int | np.integer)
        return Plan(
            epochs=int(self.epochs),
            batch_size=int(self.batch_size),
            lr=float(self.lr),
            weight_decay=float(self.weight_decay),
            bias_init=self.bias_init,
            device=str(self.device),
            precision=str(self.precision),
            seed=int(state) if is_seed else int(check_random_state(state).randint(2**31 - 1)),  # type: ignore[arg-type]
        )

    def _prepare_rows(self, X: Any, y: Any, validation: tuple[Any, Any] | None, method: Method, plan: Plan) -> _Job:
        X = self._read_rows(X, reset=True)
        observed, self.classes_ = read_labels(y, X.shape[0], self.positives)
        _warn_unobserved(observed, self.classes_)
        self.pictures_, self.extractor_, self.skipped_ = None, None, {}
        self.scaling_ = fit_scaling(X) if self.scale == "standard" else None
        held_out = None
        if validation is not None:
            X_val, y_val = _as_pair(validation)
            X_val = self._read_rows(X_val, reset=False)
            Y_val = read_full_labels(y_val, X_val.shape[0], self.classes_)
            held_out = Validation(as_samples(X_val, self.scaling_), Y_val, _is_full(Y_val))
        _check_offers(method, self._offered(held_out is not None and held_out.full), still=False)
        with seeded(plan.seed, NETWORK_STREAM, torch.device("cpu")):
            backbone = make_backbone(self.network, X.shape[1], len(self.classes_), self.hidden)
        n_features = n_outputs(backbone, X.shape[1])
        return _Job(as_samples(X, self.scaling_), observed, backbone, n_features, held_out, plan)

    def _prepare_pictures(
        self,
        X: Any,
        y: Any,
        validation: tuple[Any, Any] | None,
        method: Method,
        plan: Plan,
        on_pictures: OnPictures | None,
    ) -> _Job:
        """Everything that can be wrong is looked for before the first picture is opened, then in the pictures."""
        for name in ("n_features_in_", "feature_names_in_"):  # of an earlier fit to rows
            self.__dict__.pop(name, None)
        observed, self.classes_ = read_labels(y, len(X), self.positives)
        X_val, Y_val = None, None
        if validation is not None:
            X_val, y_val = _as_pair(validation)
            Y_val = read_full_labels(y_val, len(X_val), self.classes_)
        offered = self._offered(Y_val is not None and _is_full(Y_val))
        _check_offers(method, offered | {"maps", "views"} if self.fine_tune else offered, still=not self.fine_tune)
        with seeded(plan.seed, NETWORK_STREAM, torch.device("cpu")):
            network, normalisation, sha256 = make_picture_network(
                self.network, self.weights, maps=method.maps, fine_tune=self.fine_tune
            )
        size = choose_size(self.image_size, self.network, X)
        n_features = n_image_features(network, size, method.maps)
        self.pictures_, self.scaling_ = PictureInput(size, normalisation, sha256), None
        self.extractor_ = None if self.fine_tune else network

        samples, kept = self._read_training_pictures(X, on_pictures, is_validation=False)
        held_out = None
        if Y_val is not None:
            val_samples, val_kept = self._read_training_pictures(X_val, on_pictures, is_validation=True)
            held_out = Validation(val_samples, Y_val[val_kept], _is_full(Y_val))
        _warn_unobserved(observed[kept], self.classes_)
        if not self.fine_tune:
            return _Job(samples, observed[kept], nn.Identity(), n_features, held_out, plan)
        gentle = 1.0 if sha256 is None else 0.1
        plan = replace(
            plan,
            frozen_epochs=int(self.frozen_epochs),
            backbone_lr=gentle if self.backbone_lr is None else float(self.backbone_lr),
        )
        return _Job(samples, observed[kept], network, n_features, held_out, plan)

    def _read_training_pictures(
        self, X: Any, on_pictures: OnPictures | None, *, is_validation: bool
    ) -> tuple[Samples, npt.NDArray[np.intp]]:
        """The samples to train on, and the rows of X they are; the first call notes scaling and skipped rows."""
        if self.fine_tune:
            pictures = self._open_pictures(X, on_pictures)
            unreadable = find_unreadable(pictures, on_pictures)
            judge_unreadable(pictures, unreadable, self.on_error)
            kept = np.setdiff1d(np.arange(len(pictures)), list(unreadable))
            samples: Samples = take_pictures(pictures, kept, self.on_error, self.cache, on_pictures)
        else:
            features, unreadable = self._extract(X, on_pictures)
            kept = np.setdiff1d(np.arange(len(features)), list(unreadable))
            features = features[kept] if unreadable else features
            if not is_validation and self.scale == "standard":
                self.scaling_ = fit_feature_scaling(features)
            samples = as_samples(features, self.scaling_)
        if not is_validation:
            self.skipped_ = dict(unreadable)
        return samples, kept

    def _extract(self, X: Any, on_pictures: OnPictures | None) -> tuple[npt.NDArray[np.float32], dict[int, str]]:
        """Features of pictures by the network that stands still, and which could not be read."""
        pictures = self._open_pictures(X, on_pictures)
        assert self.pictures_ is not None
        assert self.extractor_ is not None
        features = compute_features(
            self.extractor_,
            pictures,
            choose_device(str(self.device)),
            cache=self.cache,
            weights_sha256=self.pictures_.weights_sha256,
            on_pictures=on_pictures,
        )
        self.extractor_.cpu()
        judge_unreadable(pictures, pictures.skipped, self.on_error)
        return features, pictures.skipped

    def _open_pictures(self, X: Any, on_pictures: OnPictures | None) -> ImageFiles | ImageTensors:
        assert self.pictures_ is not None
        if not holds_pictures(X):
            raise ValueError(
                "this model was fitted to pictures: X must be paths or a uint8 array (n, height, width, 3); it is a "
                f"{type(X).__name__}."
            )
        pictures = read_pictures(X, self.pictures_, int(self.workers))
        if self.on_error == "raise" and some_are_missing(pictures):  # quick to see, so no pass is begun in vain
            judge_unreadable(pictures, find_unreadable(pictures, on_pictures), self.on_error)
        return pictures

    def _offered(self, has_full_validation: bool) -> frozenset[str]:
        return self._offers | ({"validation labels"} if has_full_validation else set())

    def _read_rows(self, X: Any, *, reset: bool) -> Any:
        if not reset and holds_pictures(X):
            raise ValueError("this model was fitted to rows of numbers; X holds pictures. Pass a matrix.")
        X = validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False
        )
        check_finite(X, "X")
        return X


def _as_pair(validation: tuple[Any, Any]) -> tuple[Any, Any]:
    if not isinstance(validation, tuple) or len(validation) != 2:
        raise ValueError("validation must be a pair (X_val, Y_val); got something else. Pass both in a tuple.")
    return validation


def _is_full(Y: Indicator) -> bool:
    """Whether these are all labels of their rows, as far as can be seen."""
    return bool((Y.sum(1) > 1).any())


def _warn_unobserved(observed: npt.NDArray[np.uint8], classes: npt.NDArray[Any]) -> None:
    missing = classes[observed.sum(0) == 0]
    if len(missing):
        named = ", ".join(repr(str(label)) for label in missing[:5]) + (", …" if len(missing) > 5 else "")
        warnings.warn(
            f"{len(missing)} of {len(classes)} labels are never observed ({named}): their class prior is unknown and "
            "their scores mean little.",
            UserWarning,
            stacklevel=3,
        )


def _check_offers(method: Method, offered: frozenset[str], *, still: bool) -> None:
    """Whether the method finds what it needs; `still`: pictures, by a network that does not learn."""
    needs = method.requires.union({"views"} if method.views > 1 else (), {"maps"} if method.maps else ())
    for need in sorted(needs - offered):
        if still and need in ("maps", "views"):
            raise ValueError(
                f"{type(method).__name__} needs {need}; a network that stands still gives each picture one row of "
                "features. Pass fine_tune=True, on the command line --fine-tune."
            )
        remedy = {
            "validation labels": "Pass fit(X, y, validation=(X_val, Y_val)) with all labels of some rows.",
        }.get(need, "Choose another method: see `onepos list methods`.")
        raise ValueError(f"{type(method).__name__} needs {need}; this data offers none. {remedy}")
