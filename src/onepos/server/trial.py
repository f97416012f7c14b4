"""One row, text or image through the model: what it predicts."""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from onepos.report.items import open_image

if TYPE_CHECKING:
    import pandas as pd

    from onepos.estimator import SinglePositiveClassifier

# A form has a field per feature where they are at most so many; otherwise the row is given as JSON.
_MOST_FIELDS = 40


class Trial:
    """Predicts the labels of one thing at a time.

    Args:
        model: A fitted model.
        example: The rows of the data, as the model takes them, from which a form is filled.
        image_shape: Of rows that are grey images.
    """

    def __init__(
        self, model: SinglePositiveClassifier, example: Any = None, image_shape: tuple[int, ...] | None = None
    ) -> None:
        self._model, self._example, self._image_shape = model, example, image_shape
        self._lock = threading.Lock()  # the thread settings of torch belong to the process

    @property
    def takes_images(self) -> bool:
        """Whether an image can be given."""
        return self._model.kind == "images" or self._image_shape is not None

    def describe(self) -> dict[str, Any]:
        """What the form needs: its fields, and whether it takes an image."""
        fields = []
        if self._model.kind == "rows" and self._image_shape is None and len(self._names()) <= _MOST_FIELDS:
            fields = [{"name": name, "kind": kind} for name, kind in self._kinds().items()]
        return {
            "image": self.takes_images,
            "fields": fields,
            "features": 0 if self._model.kind == "images" else len(self._names()),
        }

    def example(self, row: int) -> dict[str, Any]:
        """A row of the data as the form takes it."""
        if self._example is None or self._model.kind == "images":
            raise ValueError("this model takes images, so no row can be filled in. Choose an image file.")
        values = self._example.iloc[row] if hasattr(self._example, "iloc") else _dense(self._example[[row]])[0]
        return {name: _plain(value) for name, value in zip(self._names(), values, strict=True)}

    def predict_row(self, row: dict[str, Any] | list[Any]) -> dict[str, Any]:
        """Predict from a row: name → value, or the values in the order of the features."""
        if self._model.kind == "images":
            raise ValueError("this model takes images, not rows. Send an image to /api/try/image.")
        names = self._names()
        if isinstance(row, list):
            if len(row) != len(names):
                raise ValueError(f"a row must hold {len(names)} values, one per feature; it holds {len(row)}.")
            row = dict(zip(names, row, strict=True))
        known = set(names)
        other = next((name for name in row if name not in known), None)
        if other is not None:
            raise ValueError(f"a row must name features of the model; {str(other)[:80]!r} is none of them.")
        return self._predict(self._as_table(row) if self._is_table else self._frame(_as_numbers(row, names)))

    def predict_image(self, content: bytes) -> dict[str, Any]:
        """Predict from the bytes of an image file."""
        if not self.takes_images:
            raise ValueError("this model takes rows, not images. Send a row to /api/try.")
        try:
            image = open_image(io.BytesIO(content))
            if self._image_shape is None:
                return self._predict(np.asarray(image.convert("RGB"))[None])
            height, width = self._image_shape[:2]
            grey = np.asarray(image.convert("L").resize((width, height)), np.float64) / 255
        except OSError as error:
            raise ValueError(f"the image must be whole; it is not ({' '.join(str(error).split())[:120]}).") from None
        return self._predict(self._frame(grey.reshape(1, -1)))

    def _predict(self, X: Any) -> dict[str, Any]:
        with self._lock:
            probability = self._model.predict_proba(X)
            decisions = self._model.decide(probability)[0]
        order = np.argsort(-probability[0], kind="stable")
        return {
            "labels": [
                {
                    "label": str(self._model.classes_[column]),
                    "probability": round(float(probability[0, column]), 4),
                    "predicted": bool(decisions[column]),
                    "threshold": round(float(self._model.thresholds_[column]), 4),
                }
                for column in order.tolist()
            ]
        }

    @property
    def _is_table(self) -> bool:
        return getattr(self._model, "encoder_", None) is not None

    def _names(self) -> list[str]:
        names = getattr(self._model, "feature_names_in_", None)
        return [str(k) for k in range(self._model.n_features_in_)] if names is None else [str(name) for name in names]

    def _kinds(self) -> dict[str, str]:
        """Feature → "number" or "text", for the form; "long" for texts."""
        if not self._is_table:
            return dict.fromkeys(self._names(), "number")
        encoder: Any = self._model.encoder_
        kinds = {column.name: column.kind for column in encoder.describe()}
        return {name: "long" if kinds.get(name) == "text" else "text" for name in self._names()}

    def _as_table(self, row: dict[str, Any]) -> pd.DataFrame:
        """A table of one row, whose cells have the types of the data."""
        import pandas as pd

        cells = {name: row.get(name) for name in self._names()}
        for name, value in cells.items():
            if not (value is None or isinstance(value, str | int | float)):
                raise ValueError(f"a cell must be text or a number; {name!r} holds a {type(value).__name__}.")
        frame = pd.DataFrame({name: pd.Series([None if value == "" else value]) for name, value in cells.items()})
        if self._example is not None and hasattr(self._example, "dtypes"):
            for name in frame.columns:
                if self._example[name].dtype.kind in "iufb":
                    frame[name] = _to_number(frame[name])
        return frame

    def _frame(self, values: Any) -> Any:
        """Numbers with the names of the features, where the model has names."""
        import pandas as pd

        has_names = getattr(self._model, "feature_names_in_", None) is not None
        return pd.DataFrame(values, columns=self._names()) if has_names else values


def _to_number(cells: pd.Series[Any]) -> pd.Series[Any]:
    import pandas as pd

    try:
        return pd.to_numeric(cells, errors="coerce").astype(float)
    except OverflowError:
        raise ValueError(f"a number must be finite in double precision; {cells.name!r} holds a larger one.") from None


def _as_numbers(row: dict[str, Any], names: list[str]) -> Any:
    missing = next((name for name in names if row.get(name) in (None, "")), None)
    if missing is not None:
        raise ValueError(f"a row must hold a number per feature; {missing!r} is missing. Fill it in.")
    try:
        values = np.array([[float(row[name]) for name in names]])
    except (TypeError, ValueError):
        wrong = next(name for name in names if not _is_number(row[name]))
        raise ValueError(f"a feature must be a number; {wrong!r} holds {str(row[wrong])[:40]!r}.") from None
    except OverflowError:
        raise ValueError("a feature must be a finite number; one is too large.") from None
    if not np.isfinite(values).all() or np.abs(values).max() > 1e30:
        raise ValueError("a feature must be a finite number; one is infinite or NaN.")
    return values


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _dense(values: Any) -> Any:
    return np.asarray(values.toarray() if hasattr(values, "toarray") else values)


def _plain(value: Any) -> Any:
    if value is None or value != value:
        return ""
    if isinstance(value, np.generic):
        value = value.item()
    return float(f"{value:.6g}") if isinstance(value, float) else value if isinstance(value, int | str) else str(value)
