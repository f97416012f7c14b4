"""SinglePositiveClassifier: the scikit-learn face of the library."""

from __future__ import annotations

import copy
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from onepos.labels import Labels, list_labels
from onepos.methods import make_method
from onepos.methods.base import Method, Watch
from onepos.methods.reduction import WIDE, Directions, find_directions
from onepos.metrics import average_precision
from onepos.priors import check_top_k, decide, decide_top, read_rule
from onepos.tables.choice import check_tables, make_encoder
from onepos.tables.encoder import TableEncoder
from onepos.training.backbones import make_backbone, n_outputs
from onepos.training.loop import Diverged, History, Trained, find_length, finish, run_in_steps, train
from onepos.training.outcome import read_curve, training_logits
from onepos.training.plan import USUAL_EPOCHS, Plan
from onepos.training.runtime import choose_device, count_weights, fitting_threads, place, widen
from onepos.training.samples import SCALES, DenseRows, ReducedRows, Samples, SparseRows, as_samples, make_scaling
from onepos.training.task import Task, TrainingData, Validation, make_task, usual_epochs
from onepos.validation import Indicator, check_choice, check_finite, check_whole, read_groups

if TYPE_CHECKING:
    import pandas as pd

FloatArray = npt.NDArray[np.float64]
OnProgress = Callable[[str, int, int], None]
"""Takes what is being done, how much of it is done, and how much there is."""

# Of a prediction at a time: rows, and numbers in the wider of its inputs and its logits (128 MB).
_STEP_ROWS, _STEP_NUMBERS = 4096, 1 << 24


class SinglePositiveClassifier(BaseEstimator):  # type: ignore[misc]  # BaseEstimator is untyped
    """A multi-label classifier learnt from one observed positive label per row.

    `fit` takes a vector of labels (ints or strings) or an (n, c) indicator with one 1 per row; `predict` always
    gives an (n, c) indicator and `predict_proba` (n, c) marginals strictly inside (0, 1), one column per entry of
    `classes_`. It is not a scikit-learn classifier by tag: what goes in (one label) and what comes out (a set of
    labels) differ in shape, which is not what scikit-learn means by the word.

    X is a matrix of rows, or a table of numbers, categories, dates and text. For images use
    `SinglePositiveImageClassifier`.

    Args:
        method: A name in METHODS or a Method object; its parameters are reached as `method__alpha`.
        network: "mlp", "linear", "wide" (the rows beside the hidden layers of "mlp"), "bottleneck" (hidden width =
            number of labels), or a torch module from rows to features.
        hidden: Widths of the hidden layers of "mlp" and "wide".
        scale: "clipped" (zero mean and unit variance on the training rows, cut at ±5), "standard" (without the cut)
            or "none". A raw table is scaled by its encoder, whatever this says.
        bias_init: "frequency" or "zero", see `Plan`.
        epochs: Passes over the training rows, at most. "auto" is 20; for CRISP+ on fewer than 8 000 dense rows it is
            more, up to 40.
        early_stopping: Whether `fit` looks for the best number of epochs where no `validation` is given: it trains on
            four fifths of the rows, finds the best epoch by the others, and then trains on all rows for as long.
            Methods that do not overfit skip this.
        batch_size: Rows per step.
        lr: Learning rate of Adam.
        weight_decay: L2 weight of Adam.
        threshold: How `predict` turns probabilities into labels (docs/decisions.md). "prior": each label is predicted
            as often as `class_prior_` states. "f1": the threshold of each label makes its expected F1 largest.
            "hamming": 0.5. "precision=0.9": where a label is predicted, its probability is 0.9 on average. Or a
            probability to exceed, for all labels. `predict` and `decide` take another rule without another fit.
        min_labels: Labels that each row gets at least, the most probable ones, by "prior", "f1" and "hamming"; other
            rules do not add labels. "auto" is 1 where each training row has an observed label, and otherwise 0.
        tables: What happens to a raw table (docs/tables.md): a data frame with cells that are missing or no numbers.
            "auto": a `TableEncoder` turns it into numbers, in `fit` and in `predict`. "never": it is refused. Or an
            encoder with options of your own, which is used for tables of numbers too.
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
        min_labels_: Labels that `predict` gives each row at least.
        decision_curve_: What the rules need of the training rows: some points of the sorted probabilities of each
            label. They are those of `predict_proba`, or of models that did not see the row where the method has such.
        history_: What happened in each epoch.
        n_epochs_: Epochs that the fit was allowed, `epochs` with "auto" as a number; `history_` tells which was kept.
        method_: The fitted method.
        network_: The torch module that predicts, from scaled rows to logits.
        scaling_: How rows are scaled before the network.
        n_features_in_: Number of features; of a raw table, its columns.
        feature_names_in_: Their names, if X had any.
        encoder_: The fitted `TableEncoder`; None where X was numbers.
        directions_: What rows of many sparse numbers, such as TF-IDF weights, are reduced by before the network; None
            where they are taken as they are, up to 2048 numbers or with a scale other than "none".

    Example:
        >>> from onepos import SinglePositiveClassifier, draw_single_positive, load_dataset
        >>> scenes = load_dataset("digit-scenes")
        >>> observed = draw_single_positive(scenes.Y[:500], random_state=0)
        >>> model = SinglePositiveClassifier("an", epochs=2, random_state=0).fit(scenes.X[:500], observed)
        >>> model.predict_proba(scenes.X[500:503]).shape
        (3, 10)
    """

    kind: ClassVar[str] = "rows"
    """What X holds; a model folder names it."""

    directions_: Directions | None = None

    _offers: frozenset[str] = frozenset()

    def __init__(
        self,
        method: str | Method = "crisp-plus",
        *,
        network: str | nn.Module = "mlp",
        hidden: Sequence[int] = (512,),
        scale: str = "clipped",
        bias_init: str = "frequency",
        epochs: int | str = "auto",
        early_stopping: bool = True,
        batch_size: int = 32,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        threshold: float | str = "prior",
        min_labels: int | str = "auto",
        tables: str | TableEncoder = "auto",
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
        self.early_stopping = early_stopping
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.threshold = threshold
        self.min_labels = min_labels
        self.tables = tables
        self.positives = positives
        self.device = device
        self.precision = precision
        self.random_state = random_state

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
    ) -> Self:
        """Learn from rows with one observed positive each.

        Args:
            X: (n, d) array, DataFrame or sparse matrix. A table may hold text, categories, dates and missing cells; it
                may be of pandas, polars, Arrow or Hugging Face `datasets`.
            y: n labels; n lists of labels; an (n, c) indicator (array, sparse or DataFrame; its columns become
                `classes_`) in which 0 means unknown; the same with NaN, None or <NA> for unknown, where 0 means no; or
                `Labels`. A row with a known no may have any number of positives.
            validation: (X_val, Y_val) to choose the best epoch by average precision. An indicator with a row of
                two or more labels counts as fully labelled; a vector, or an indicator with at most one label per
                row, as single-positive, and the metric is then the mean reciprocal rank of the observed label.
            groups: One value per row, such as the recording or patient it is from: rows with equal values are never
                split over the folds of a cross-fit or held apart to choose the number of epochs. A row with None or NaN
                is a group by itself.
            checkpoint: A file, written after each epoch, that lets a stopped fit go on where it was; what is prepared
                before the training is written to files beside it. They stay when the fit is over, so that nothing is
                lost until the model is saved; delete them then.
            time_limit: Seconds after which the fit ends with what it has by then; None for no limit.
            on_epoch: Called after each epoch with its number and the history.
            on_progress: Called while the training is prepared, with what is being done, how much of it is done, and how
                much there is.
        """
        return self._fit(X, y, validation, checkpoint, on_epoch, (time_limit, on_progress), groups=groups)

    def _fit(
        self,
        X: Any,
        y: Any,
        validation: tuple[Any, Any] | None,
        checkpoint: str | os.PathLike[str] | None,
        on_epoch: Callable[[int, History], None] | None,
        pace: tuple[float | None, OnProgress | None],
        **options: Any,
    ) -> Self:
        """Fit to any kind of data; `options` are for `_make_task`."""
        self._check_parameters()
        watch = make_watch(*pace)
        method: Method = make_method(self.method) if isinstance(self.method, str) else clone(self.method)
        task = self._make_task(X, y, validation, method, self._plan(), **options)
        if self.epochs == "auto":
            task = replace(task, plan=replace(task.plan, epochs=usual_epochs(task)))
        self.n_epochs_ = task.plan.epochs
        warn_unused(task)
        trained = self._train(task, checkpoint, on_epoch, watch)
        self._check_trained(task.samples)
        logits = training_logits(task, trained)
        self.class_prior_, self.class_prior_interval_ = method.final_prior(logits, task.observed)
        self.decision_curve_ = read_curve(task, logits, self.class_prior_, self.min_labels)
        self.thresholds_, self.min_labels_ = self.decision_curve_.choose(self.threshold)
        method.forget_training()
        self.history_, self.method_, self.network_ = trained.history, method.cpu(), self._settle(trained.network)
        return self

    def _train(
        self,
        task: Task,
        checkpoint: str | os.PathLike[str] | None,
        on_epoch: Callable[[int, History], None] | None,
        watch: Watch,
    ) -> Trained:
        """Train the task's learner, for as many epochs as a search finds best where one is made."""
        found = None
        if task.validation is None and self.early_stopping and task.learner.method.stops_early:
            found = _search(task, checkpoint, watch.part(0.4))
        length = None if found is None else found.best_epoch + 1
        try:
            trained = train(task, checkpoint=checkpoint, on_epoch=on_epoch, watch=watch, stop_after=length)
        except Diverged as error:
            trained = _keep_best(task, error)
        if found is not None:
            trained.history.search = found.validation
        return trained

    def decision_function(self, X: Any) -> FloatArray:
        """Logits, (n, c).

        Args:
            X: Rows, (n, features), as `fit` took them: an array, a sparse matrix or a data frame.
        """
        check_is_fitted(self)
        return self._logits(self._read_rows(X, reset=False))

    def predict_proba(self, X: Any) -> FloatArray:
        """Marginal probability of each label, (n, c), strictly inside (0, 1).

        Args:
            X: Rows, (n, features), as `fit` took them: an array, a sparse matrix or a data frame.
        """
        return as_probability(self.decision_function(X))

    def predict(
        self, X: Any, *, threshold: float | str | None = None, top_k: int | None = None
    ) -> npt.NDArray[np.int64]:
        """Predicted labels, (n, c) of 0 and 1; see `decide`.

        Args:
            X: Rows, (n, features), as `fit` took them: an array, a sparse matrix or a data frame.
            threshold: A rule as for the constructor; None is the rule of the fit.
            top_k: Give each row its `top_k` most probable labels, whatever the thresholds.
        """
        self._check_decision(threshold, top_k)
        return self.decide(self.predict_proba(X), threshold=threshold, top_k=top_k)

    def decide(
        self, probability: npt.ArrayLike, *, threshold: float | str | None = None, top_k: int | None = None
    ) -> npt.NDArray[np.int64]:
        """Turn probabilities into labels, (n, c) of 0 and 1.

        Args:
            probability: What `predict_proba` gave, (n, c). A row of NaN, such as a skipped image, gets no labels.
            threshold: A rule as for the constructor; None is the rule of the fit.
            top_k: Give each row its `top_k` most probable labels, whatever the thresholds.
        """
        self._check_decision(threshold, top_k)
        values = np.asarray(probability, np.float64)
        c = len(self.classes_)
        if values.ndim != 2 or values.shape[1] != c:
            raise ValueError(
                f"probability must have one column per label, {c} in all; its shape is {values.shape}. Pass what "
                "predict_proba gave."
            )
        if top_k is not None:
            return decide_top(values, top_k)
        if threshold is None:
            return decide(values, self.thresholds_, self.min_labels_)
        return decide(values, *self.decision_curve_.choose(threshold))

    def _check_decision(self, threshold: float | str | None, top_k: int | None) -> None:
        """Before any work is done."""
        check_is_fitted(self)
        if threshold is not None and top_k is not None:
            raise ValueError(f"threshold and top_k exclude each other; got {threshold!r} and {top_k!r}. Pass one.")
        if threshold is not None:
            read_rule(threshold)
        if top_k is not None:
            check_top_k(top_k, len(self.classes_))

    def predict_labels(
        self, X: Any, *, threshold: float | str | None = None, top_k: int | None = None
    ) -> list[list[Any]]:
        """The predicted labels of each row by name, the most probable first; a row may have none.

        Args:
            X: Rows, (n, features), as `fit` took them: an array, a sparse matrix or a data frame.
            threshold: A rule as for the constructor; None is the rule of the fit.
            top_k: Give each row its `top_k` most probable labels, whatever the thresholds.
        """
        probability = self.predict_proba(X)
        decisions = self.decide(probability, threshold=threshold, top_k=top_k)
        return list_labels(self.classes_.tolist(), probability, decisions)

    def to_frame(self, values: npt.ArrayLike, X: Any = None) -> pd.DataFrame:
        """What `predict_proba`, `predict` or `decision_function` gave, as a data frame with a column per label.

        Args:
            values: (n, c).
            X: Rows whose index the data frame takes, if they are a data frame.

        Example:
            >>> import pandas as pd
            >>> from onepos import SinglePositiveClassifier
            >>> X = pd.DataFrame({"width": [1.0, 2.0, 3.0]}, index=["r1", "r2", "r3"])
            >>> model = SinglePositiveClassifier("an", epochs=1, random_state=0).fit(X, ["dog", "cat", "dog"])
            >>> model.to_frame(model.predict_proba(X), X).round().columns.tolist()
            ['cat', 'dog']
        """
        import pandas as pd

        check_is_fitted(self)
        array = np.asarray(values)
        if array.ndim != 2 or array.shape[1] != len(self.classes_):
            raise ValueError(
                f"values must have one column per label, {len(self.classes_)} in all; the shape is {array.shape}. "
                "Pass what predict_proba, predict or decision_function gave."
            )
        return pd.DataFrame(array, columns=self.classes_, index=getattr(X, "index", None))

    def score(self, X: Any, y: Any) -> float:
        """Label-ranking average precision against full labels (indicator), or against single ones (vector).

        Rows of a vector whose label the model was not fitted with are left out, with a warning.

        Args:
            X: Rows, (n, features), as `fit` took them: an array, a sparse matrix or a data frame.
            y: All labels of each row, (n, c) of 0 and 1, or one label per row, (n,).
        """
        logits = self.decision_function(X)
        Y = Labels.read(y, len(logits), classes=self.classes_, unknown="warn").to_array()
        read = ~np.isnan(logits).any(1)
        return average_precision(Y[read], logits[read])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted model to a folder: `model.safetensors` and `model.json`, no pickle.

        Args:
            folder: Where to write; made if there is none. A model that is there already is replaced.
        """
        from onepos.model_folder import save_model

        check_is_fitted(self)
        save_model(self, folder)

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], *, network: nn.Module | None = None, method: Method | None = None
    ) -> SinglePositiveClassifier:
        """Read a model folder. A network or method of your own is not stored as code: pass it again.

        Args:
            folder: What `save` wrote.
            network: The network of your own that the model was fitted with.
            method: The same for a method of your own.
        """
        from onepos.model_folder import load_model

        return load_model(cls, folder, network, method)

    def set_params(self, **params: Any) -> SinglePositiveClassifier:
        """Set parameters; `method__x` also where the method is given by name.

        Args:
            **params: Parameters of the constructor, or of the method, by name.
        """
        chosen = params.get("method", self.method)
        if isinstance(chosen, str) and any(key.startswith("method__") for key in params):
            params["method"] = make_method(chosen)
        super().set_params(**params)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    def _check_parameters(self) -> None:
        check_tables(getattr(self, "tables", "auto"))
        choices = {"scale": SCALES, "positives": ("single", "any"), "bias_init": ("frequency", "zero")}
        for name, allowed in choices.items():
            check_choice(name, getattr(self, name), allowed)
        if self.epochs != "auto":
            check_whole("epochs", self.epochs, 1)
        check_whole("batch_size", self.batch_size, 1)
        read_rule(self.threshold)
        if self.min_labels != "auto":
            check_whole("min_labels", self.min_labels, 0)
        self._check_not_negative("lr")
        self._check_not_negative("weight_decay")
        widths = self.hidden if isinstance(self.hidden, Sequence) and not isinstance(self.hidden, str) else (None,)
        if not all(isinstance(width, int | np.integer) and width >= 1 for width in widths):
            raise ValueError(f"hidden must be whole widths of at least 1, such as (256, 128); got {self.hidden!r}.")
        if not isinstance(self.method, str | Method):
            raise ValueError(f"method must be a name or a Method object, such as CRISP(); got {self.method!r}.")

    def _check_not_negative(self, name: str) -> None:
        value = getattr(self, name)
        if not (isinstance(value, int | float | np.number) and value >= 0):
            raise ValueError(f"{name} must be a number and not negative; got {value!r}.")

    def _plan(self) -> Plan:
        state = self.random_state
        is_seed = isinstance(state, int | np.integer)
        return Plan(
            epochs=USUAL_EPOCHS if self.epochs == "auto" else int(self.epochs),
            batch_size=int(self.batch_size),
            lr=float(self.lr),
            weight_decay=float(self.weight_decay),
            bias_init=self.bias_init,
            device=str(self.device),
            precision=str(self.precision),
            seed=int(state) if is_seed else int(check_random_state(state).randint(2**31 - 1)),  # type: ignore[arg-type]
        )

    def _make_task(
        self, X: Any, y: Any, validation: tuple[Any, Any] | None, method: Method, plan: Plan, **options: Any
    ) -> Task:
        """Read what `fit` was given; set `classes_` and `scaling_`."""
        X = self._read_rows(X, reset=True)
        labels = Labels.read(y, X.shape[0], positives=self.positives)
        observed, self.classes_ = labels.observed, labels.classes
        groups = None if options.get("groups") is None else read_groups(options["groups"], X.shape[0])
        warn_unobserved(observed, self.classes_)
        self.scaling_ = make_scaling(X, self.scale if self.encoder_ is None else "none")
        is_wide = self.scaling_ is None and hasattr(X, "tocsr") and X.shape[1] > WIDE
        self.directions_ = find_directions(X.tocsr(), plan.seed) if is_wide else None
        held_out = None
        if validation is not None:
            X_val, y_val = as_pair(validation)
            X_val = self._read_rows(X_val, reset=False)
            Y_val = Labels.read(y_val, X_val.shape[0], classes=self.classes_).to_array()
            held_out = Validation(self._as_samples(X_val), Y_val, is_full(Y_val))
        samples, negative = self._as_samples(X), labels.known_negative
        if isinstance(samples, DenseRows) and is_wide:
            samples = ReducedRows(samples.data, f"{as_samples(X).fingerprint()} reduced, seed {plan.seed}")
        data = TrainingData(samples, held_out, self._offers, groups=groups, at_random=labels.at_random)
        return make_task(
            data, observed, method, plan, network=self.network, hidden=self.hidden, known_negative=negative
        )

    def _as_samples(self, rows: Any, dtype: torch.dtype = torch.float32) -> DenseRows | SparseRows:
        """Rows as the network takes them: scaled, or wide sparse ones reduced to the directions of the fit."""
        return as_samples(rows if self.directions_ is None else self.directions_.apply(rows), self.scaling_, dtype)

    def _check_trained(self, samples: Samples) -> None:
        """Judge what happened to the samples during the training."""

    def _logits(self, rows: Any) -> FloatArray:
        """Logits of rows as the network takes them, but for the scaling; some rows at a time."""
        device = choose_device(str(self.device))
        dtype = place(self.network_, device)
        logits = np.empty((rows.shape[0], len(self.classes_)))
        width = rows.shape[1] if self.directions_ is None else self.directions_.width
        step = max(1, min(_STEP_ROWS, _STEP_NUMBERS // max(width, logits.shape[1])))
        with fitting_threads(min(step, len(logits)) * count_weights(self.network_), device):
            for start in range(0, len(logits), step):
                part = self._as_samples(rows[start : start + step], dtype).to(device)
                logits[start : start + step] = run_in_steps(self.network_, part, device).cpu()
        _check_logits(logits, rows)
        return logits

    def _settle(self, network: nn.Module) -> nn.Module:
        """The network as a fitted model keeps it, on the CPU; a model folder gives the same again."""
        return widen(network)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copies: on the CPU, so that a machine without an accelerator can read it."""
        state: dict[str, Any] = super().__getstate__()
        if any(tensor.device.type != "cpu" for tensor in getattr(self, "network_", nn.Module()).parameters()):
            network, method = copy.deepcopy((self.network_, self.method_))  # at once: they share the head
            state = state | {"network_": self._settle(network), "method_": method.cpu()}
        return state

    def _facts(self) -> dict[str, Any]:
        """What a model folder keeps of this kind of model alone."""
        names = self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None
        return {"n_features": int(self.n_features_in_), "feature_names": names}

    def _restore(self, facts: dict[str, Any], method: Method) -> tuple[nn.Module, int]:
        """Take what `_facts` gave; return the backbone without its weights, and the width of its features."""
        self.n_features_in_ = int(facts["n_features"])
        if facts["feature_names"] is not None:
            self.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
            if len(self.feature_names_in_) != self.n_features_in_:
                raise KeyError("feature_names has the wrong size")
        backbone = make_backbone(self.network, self._n_inputs, len(self.classes_), self.hidden)
        return backbone, n_outputs(backbone, torch.zeros(2, self._n_inputs))

    @property
    def _n_inputs(self) -> int:
        """Numbers per row that the network takes."""
        if self.directions_ is not None:
            return self.directions_.width
        encoder = getattr(self, "encoder_", None)
        return self.n_features_in_ if encoder is None else encoder.n_outputs_

    def _parts(self) -> dict[str, nn.Module]:
        """The modules whose weights a model folder keeps, by name."""
        return {"network": self.network_}

    def _read_rows(self, X: Any, *, reset: bool) -> Any:
        """Rows as numbers, an array or a CSR matrix; a raw table by the encoder, which is fitted with `reset`."""
        if reset:
            self.encoder_ = make_encoder(self.tables, X)
            if self.encoder_ is not None:
                self.encoder_.fit(X)
                names = self.encoder_.feature_names_in_
                self.feature_names_in_, self.n_features_in_ = names, len(names)
        encoder = getattr(self, "encoder_", None)
        if encoder is not None:
            return encoder.transform(X)
        try:
            rows = validate_data(
                self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False
            )
        except (TypeError, ValueError):
            from onepos.images.features import holds_images  # here, since rows need no image library

            if holds_images(X):
                raise ValueError(
                    "X must be a matrix of numbers; it holds images, or text. For paths and arrays of images use "
                    "SinglePositiveImageClassifier."
                ) from None
            raise
        check_finite(rows, "X")
        return rows


def _check_logits(logits: FloatArray, rows: Any) -> None:
    """Refuse rows so large that a logit is the difference of infinite numbers; a row of NaN was skipped."""
    lost = np.flatnonzero(np.isnan(logits).any(1))
    if len(lost):
        values = rows[lost].data if hasattr(rows, "tocsr") else np.asarray(rows[lost])
        if np.isfinite(values).all():
            raise ValueError(
                f"X must be of the size of the training rows; row {lost[0]} holds numbers so large that its logits are "
                "not finite. Check their units."
            )


def _search(task: Task, checkpoint: str | os.PathLike[str] | None, watch: Watch) -> History | None:
    """How the search for the number of epochs went, which may end where the loss is lost."""
    try:
        return find_length(task, checkpoint=checkpoint, watch=watch)
    except Diverged as error:
        if error.history.best_epoch < 0:
            raise
        return error.history


def _keep_best(task: Task, error: Diverged) -> Trained:
    """What a training that diverged had learned before, with a warning; the error where that is nothing."""
    if error.history.best_epoch < 0:
        raise error
    error.history.loss.pop()
    warnings.warn(
        f"{error} The model is that of epoch {error.history.best_epoch + 1}, before this happened.",
        UserWarning,
        stacklevel=5,
    )
    return finish(task, error.history)


def as_probability(logits: FloatArray) -> FloatArray:
    """The sigmoid, strictly inside (0, 1); NaN stays NaN."""
    return np.asarray(to_probability(torch.as_tensor(logits)))


def to_probability(logits: torch.Tensor) -> torch.Tensor:
    """The same of a tensor in double precision."""
    limits = np.finfo(np.float64)  # as tensors: exported numbers would be of single precision, which is 0 and 1
    least, most = logits.new_tensor(limits.tiny), logits.new_tensor(1 - limits.epsneg)
    return logits.sigmoid().clamp(least, most)


def make_watch(time_limit: float | None, on_progress: OnProgress | None) -> Watch:
    """The watch of a fit that may take so many seconds from now on."""
    if time_limit is not None and not (isinstance(time_limit, int | float | np.number) and time_limit > 0):
        raise ValueError(f"time_limit must be a number of seconds above 0; got {time_limit!r}. Leave it out for none.")
    watch = Watch() if time_limit is None else Watch(deadline=time.perf_counter() + float(time_limit))
    return watch if on_progress is None else replace(watch, tell=on_progress)


def as_pair(validation: tuple[Any, Any]) -> tuple[Any, Any]:
    """Check that the validation data are a pair."""
    if not isinstance(validation, tuple) or len(validation) != 2:
        raise ValueError("validation must be a pair (X_val, Y_val); got something else. Pass both in a tuple.")
    return validation


def is_full(Y: npt.NDArray[Any]) -> bool:
    """Whether these are all labels of their rows, as far as can be seen; beside NaN, a 0 is a known no."""
    return bool(np.isnan(Y).any() or (Y.sum(1) > 1).any())


def warn_unused(task: Task) -> None:
    """Warn of known negatives that the method makes nothing of."""
    method = task.learner.method
    if task.known_negative is not None and not method.uses_negatives:
        warnings.warn(
            f"{int(task.known_negative.sum())} labels are known to be absent, and {type(method).__name__} does not use "
            "that: they count as unknown. `onepos list methods` names the methods that do.",
            UserWarning,
            stacklevel=4,
        )


def warn_unobserved(observed: Indicator, classes: npt.NDArray[Any]) -> None:
    """Warn of labels without an observed positive."""
    missing = classes[observed.sum(0) == 0]
    if len(missing):
        named = ", ".join(repr(str(label)) for label in missing[:5]) + (", …" if len(missing) > 5 else "")
        warnings.warn(
            f"{len(missing)} of {len(classes)} labels are never observed ({named}): their class prior is unknown and "
            "their scores mean little.",
            UserWarning,
            stacklevel=5,
        )
