"""SinglePositiveClassifier: the scikit-learn face of the library."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from onepos.backbones import make_backbone, n_outputs
from onepos.labels import read_full_labels, read_labels
from onepos.method import Method
from onepos.methods import make_method
from onepos.metrics import average_precision
from onepos.priors import make_thresholds
from onepos.runtime import seeded
from onepos.samples import as_samples, fit_scaling
from onepos.training import NETWORK_STREAM, History, Learner, Plan, Validation, predict_logits, run_in_steps, train

FloatArray = npt.NDArray[np.float64]


class SinglePositiveClassifier(BaseEstimator):  # type: ignore[misc]  # BaseEstimator is untyped
    """A multi-label classifier learnt from one observed positive label per row.

    `fit` takes a vector of labels (ints or strings) or an (n, c) indicator with one 1 per row; `predict` always
    gives an (n, c) indicator and `predict_proba` (n, c) marginals strictly inside (0, 1), one column per entry of
    `classes_`. It is not a scikit-learn classifier by tag: what goes in (one label) and what comes out (a set of
    labels) differ in shape, which is not what scikit-learn means by the word.

    Args:
        method: A name in METHODS or a Method object; its parameters are reached as `method__delta`.
        network: "mlp", "linear", "bottleneck" (hidden width = number of labels), or a torch module from rows to
            features.
        hidden: Widths of the hidden layers of "mlp".
        scale: "standard" (zero mean, unit variance on the training rows) or "none".
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

    Example:
        >>> from onepos import SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes")
        >>> observed = draw_single_positive(scenes.Y[:500], random_state=0)
        >>> model = SinglePositiveClassifier("an", epochs=2, random_state=0).fit(scenes.X[:500], observed)
        >>> model.predict_proba(scenes.X[500:503]).shape
        (3, 10)
    """

    _offers: frozenset[str] = frozenset()

    def __init__(
        self,
        method: str | Method = "crisp",
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

    def fit(
        self,
        X: Any,
        y: Any,
        validation: tuple[Any, Any] | None = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        on_epoch: Callable[[int, History], None] | None = None,
    ) -> SinglePositiveClassifier:
        """Learn from rows with one observed positive each.

        Args:
            X: (n, d) array, DataFrame or sparse matrix.
            y: n labels, or an (n, c) indicator (array, sparse or DataFrame; its columns become `classes_`).
            validation: (X_val, Y_val) to choose the best epoch by average precision. An indicator with a row of
                two or more labels counts as fully labelled; a vector, or an indicator with at most one label per
                row, as single-positive, and the metric is then the mean reciprocal rank of the observed label.
            checkpoint: A file that lets a stopped fit go on where it was, see `onepos.training.train`.
            on_epoch: Called after each epoch with its number and the history.
        """
        self._check_parameters()
        X = self._read_rows(X, reset=True)
        observed, self.classes_ = read_labels(y, X.shape[0], self.positives)
        _warn_unobserved(observed, self.classes_)
        method: Method = make_method(self.method) if isinstance(self.method, str) else clone(self.method)
        self.scaling_ = fit_scaling(X) if self.scale == "standard" else None
        held_out = self._read_validation(validation)
        _check_offers(method, held_out, self._offers)

        plan = self._plan()
        with seeded(plan.seed, NETWORK_STREAM, torch.device("cpu")):
            backbone = make_backbone(self.network, X.shape[1], len(self.classes_), self.hidden)
        learner = Learner(backbone, method)
        samples = as_samples(X, self.scaling_)
        self.history_ = train(
            learner,
            samples,
            observed,
            n_outputs(backbone, X.shape[1]),
            plan,
            validation=held_out,
            checkpoint=checkpoint,
            on_epoch=on_epoch,
        )
        self.method_ = method.cpu()
        self.network_ = nn.Sequential(backbone.cpu(), method.head)
        logits = predict_logits(learner, samples)
        self.class_prior_, self.class_prior_interval_ = self.method_.final_prior(logits, observed)
        probability = torch.sigmoid(logits.double()).numpy()
        self.thresholds_ = make_thresholds(self.threshold, probability, self.class_prior_)
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Logits, (n, c)."""
        check_is_fitted(self)
        X = self._read_rows(X, reset=False)
        # In double precision the logits of a row do not depend on which rows stand beside it in the batch.
        network = copy.deepcopy(self.network_).double().eval()
        samples = as_samples(X, self.scaling_, torch.float64)
        logits: FloatArray = run_in_steps(network, samples, torch.device("cpu")).numpy()
        return logits

    def predict_proba(self, X: Any) -> FloatArray:
        """Marginal probability of each label, (n, c), strictly inside (0, 1)."""
        probability = torch.sigmoid(torch.as_tensor(self.decision_function(X))).numpy()
        tiny = np.finfo(np.float64)
        clipped: FloatArray = np.clip(probability, tiny.tiny, 1 - tiny.epsneg)
        return clipped

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Indicator of the labels whose probability exceeds `thresholds_`, (n, c)."""
        return (self.predict_proba(X) > self.thresholds_).astype(np.int64)

    def score(self, X: Any, y: Any) -> float:
        """Label-ranking average precision against full labels (indicator), or against single ones (vector)."""
        logits = self.decision_function(X)
        return average_precision(read_full_labels(y, len(logits), self.classes_), logits)

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
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                listed = " or ".join(repr(value) for value in allowed)
                raise ValueError(f"{name} must be {listed}; got {getattr(self, name)!r}.")
        for name, least in {"epochs": 1, "batch_size": 1}.items():
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}.")
        is_number = isinstance(self.threshold, int | float | np.number)
        if not (0 <= self.threshold <= 1 if is_number else self.threshold == "prior"):  # type: ignore[operator]
            raise ValueError(f"threshold must be a number from 0 to 1 or 'prior'; got {self.threshold!r}.")
        for name in ("lr", "weight_decay"):
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

    def _read_rows(self, X: Any, *, reset: bool) -> Any:
        X = validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False
        )
        _check_finite(X)
        return X

    def _read_validation(self, validation: tuple[Any, Any] | None) -> Validation | None:
        if validation is None:
            return None
        if not isinstance(validation, tuple) or len(validation) != 2:
            raise ValueError("validation must be a pair (X_val, Y_val); got something else. Pass both in a tuple.")
        X = self._read_rows(validation[0], reset=False)
        Y = read_full_labels(validation[1], X.shape[0], self.classes_)
        return Validation(as_samples(X, self.scaling_), Y, full=bool((Y.sum(1) > 1).any()))


def _check_finite(X: Any) -> None:
    values = X.data if hasattr(X, "indptr") else X
    if np.isfinite(values.sum()):  # fast, and finite unless something is not (or the sum overflows)
        return
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad) == 0:
        return
    if hasattr(X, "indptr"):
        row, column = int(np.searchsorted(X.indptr, bad[0], side="right") - 1), int(X.indices[bad[0]])
    else:
        row, column = (int(k) for k in np.unravel_index(bad[0], X.shape))
    found = "NaN" if np.isnan(values.ravel()[bad[0]]) else "inf"
    raise ValueError(f"X must be finite; row {row}, column {column} holds {found}. Fill in or drop such values first.")


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


def _check_offers(method: Method, validation: Validation | None, more: frozenset[str]) -> None:
    offered = more | ({"validation labels"} if validation is not None and validation.full else set())
    for need in sorted(method.requires.union({"views"} if method.views > 1 else ()) - offered):
        remedy = {
            "validation labels": "Pass fit(X, y, validation=(X_val, Y_val)) with all labels of some rows.",
        }.get(need, "Choose another method: see `onepos list methods`.")
        raise ValueError(f"{type(method).__name__} needs {need}; this data offers none. {remedy}")
