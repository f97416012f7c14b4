"""What the page of a fit shows: plain facts from a model, its rows, and a judgement of them.

facts = describe_model(model) | describe_labels(labels) | describe_probabilities(probability)
facts |= describe_completion(completion, items)
render_fit(facts)
"""

from __future__ import annotations

import base64
import io
import platform
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from onepos import __version__
from onepos.criteria import CRITERIA
from onepos.report.calibration import bin_entries
from onepos.report.items import Items
from onepos.report.judgement import Judgement
from onepos.validation import without_nan

if TYPE_CHECKING:
    from onepos.completion import Completion
    from onepos.estimator import SinglePositiveClassifier
    from onepos.labels import Labels

Facts = dict[str, Any]
Floats = npt.NDArray[np.float64]

_CRITERIA = ("average_precision", "recall_at_1", "recall_at_3", "ranking_loss", "micro_auc")
# Labels whose pairs are counted, of those the matrix shows, and pairs that are listed.
_MOST_PAIRED, _MOST_TOGETHER, _MOST_PAIRS = 200, 12, 8
# Rows in which two labels must be expected together, or by chance, before they are listed.
_LEAST_TOGETHER = 5.0
# Rows that are listed as doubtful; pixels per side, characters and fields shown of each; labels known to be absent.
_MOST_DOUBTS, _MOST_PIXELS, _MOST_CHARACTERS, _MOST_FIELDS, _MOST_ABSENT = 12, 320, 600, 8, 6
# Bytes of a shown image that is not compressed further.
_MOST_BYTES = 20_000
# Parts of the reviewed rows, each of which is judged without its answers.
_PARTS = 5


def describe_model(model: SinglePositiveClassifier, method: str = "") -> Facts:
    """What a model knows by itself, as `onepos.report.render_fit` takes it; epochs count from 1.

    Args:
        model: A fitted model.
        method: The name of its method, where it is known.
    """
    interval, history = model.class_prior_interval_, model.history_
    encoder = getattr(model, "encoder_", None)
    return {
        "labels": [str(name) for name in model.classes_],
        "class_prior": without_nan(model.class_prior_.tolist()),
        "class_prior_lower": without_nan(interval[:, 0].tolist()),
        "class_prior_upper": without_nan(interval[:, 1].tolist()),
        "reliable": _is_narrow(model.class_prior_, interval),
        "thresholds": model.thresholds_.tolist(),
        "history": {
            "epoch": list(range(1, len(history.loss) + 1)),
            "loss": without_nan(history.loss),
            "validation": without_nan(history.validation) or None,
            "search": without_nan(history.search) or None,
            "prior": without_nan(history.prior) or None,
        },
        "best_epoch": history.best_epoch + 1,
        "method": method or _name_of(model.method_),
        "parameters": model.method_.get_params(),
        "n_rows": None if encoder is None else encoder.n_rows_,
        "columns": None if encoder is None else [vars(column) for column in encoder.describe()],
        "versions": {"onepos": __version__, "python": platform.python_version()}
        | {package: version(package) for package in ("torch", "numpy", "scikit-learn")},
    }


def describe_labels(labels: Labels, groups: Any = None) -> Facts:
    """What is known of the labels of the rows; `groups` holds one value per row."""
    return {
        "observed": np.asarray(labels.positive.sum(0)).ravel().tolist(),
        "n_rows": len(labels),
        "known": count_known(labels),
        "n_groups": None if groups is None else len(set(np.asarray(groups).tolist())),
    }


def count_known(labels: Labels) -> dict[str, int]:
    """How many labels are known to be there, known to be absent and unknown; and how many rows are fully reviewed."""
    n_yes, n_no = int(labels.positive.nnz), int(labels.negative.nnz)
    return {
        "yes": n_yes,
        "no": n_no,
        "unknown": len(labels) * len(labels.classes) - n_yes - n_no,
        "rows": len(labels),
        "rows_reviewed": int(labels.is_complete.sum()),
    }


def describe_probabilities(probability: Floats) -> Facts:
    """What the probabilities of the model for all rows show: their means, and labels that go together."""
    return {"predicted_share": probability.mean(0).tolist(), "together": count_together(probability)}


def describe_completion(completion: Completion, items: Items, unseen: Floats | None = None) -> Facts:
    """What models that did not see a row make of it.

    Args:
        completion: Of all rows.
        items: The rows as a person sees them.
        unseen: The probabilities of the model for the same rows, (n, c), if it did not learn from any of them; then its
            own quality and calibration are measured too. On rows it learned from both would look too good.
    """
    judgement, labels = Judgement.of(completion), completion.labels
    own = {} if unseen is None else {"model": _logit(unseen)}
    return {
        "quality": measure_quality(labels, **own, held_out=np.log(completion.held_out + 1e-12)),
        "calibration": _calibrate(completion, unseen),
        "additions": {
            "labels": judgement.summary,
            "n_added": judgement.n_added,
            "n_rows": int(judgement.added.any(1).sum()),
            "min_precision": judgement.min_precision,
            "expected_precision": judgement.expected_precision,
            "calibrated_on": judgement.calibrated_on,
            "labels_per_row": [float(np.nansum(each)) for each in (judgement.prior, *judgement.prior_interval.T)],
            "warning": judgement.warning,
        },
        "doubts": list_doubts(judgement, labels, items),
    }


def measure_quality(labels: Labels, **logits: Floats) -> list[Facts]:
    """Criteria that need one label per row: of each kind of logits, and of one order of the labels for all rows.

    That order is by how often a label is observed; it knows nothing of a row.
    """
    observed = labels.observed
    share = np.log(observed.mean(0) + 1e-12)
    by = logits | {"frequency": np.broadcast_to(share, observed.shape)}
    chosen = [name for name in _CRITERIA if name != "recall_at_3" or observed.shape[1] > 3]
    return [
        {
            "name": name,
            "title": CRITERIA[name].description,
            "greater_is_better": CRITERIA[name].greater_is_better,
            "scores": without_nan({kind: CRITERIA[name].function(observed, each, None) for kind, each in by.items()}),
        }
        for name in chosen
    ]


def count_together(probability: Floats) -> Facts | None:
    """Of the rows with one label, the share that is expected to have another; None for a single label.

    Labels of one row count as independent given its probabilities.
    """
    mean = probability.mean(0)
    names = np.argsort(-mean, kind="stable")[:_MOST_PAIRED]
    if len(names) < 2:
        return None
    joint = probability[:, names].T @ probability[:, names] / len(probability)
    alone = mean[names]
    chance = np.outer(alone, alone)
    first, second = np.triu_indices(len(names), 1)
    together, by_chance = joint[first, second], chance[first, second]
    # How much a pair tells: rows, times the logarithm of how many times as often as by chance.
    weight = together * np.log(together / by_chance)
    n = len(probability)
    is_listed = np.maximum(together, by_chance) * n >= _LEAST_TOGETHER
    order = np.flatnonzero(is_listed)[np.argsort(-np.abs(weight[is_listed]), kind="stable")][:_MOST_PAIRS]
    shown = names[:_MOST_TOGETHER]
    k = len(shown)
    share = joint[:k, :k] / alone[:k, None]
    np.fill_diagonal(share, 1.0)
    return {
        "labels": shown.tolist(),
        "share": share.tolist(),
        "pairs": [
            {
                "labels": [int(names[first[i]]), int(names[second[i]])],
                "share": float(together[i]),
                "times": float(together[i] / by_chance[i]),
            }
            for i in order
        ],
    }


def list_doubts(judgement: Judgement, labels: Labels, items: Items) -> list[Facts]:
    """The rows with most expected errors, as a person sees them, with the labels in doubt."""
    names = [str(name) for name in labels.classes]
    rows = np.argsort(-judgement.worth, kind="stable")[:_MOST_DOUBTS]
    return [_describe_doubt(int(row), judgement, labels, items, names) for row in rows if judgement.worth[row] > 0]


def _describe_doubt(row: int, judgement: Judgement, labels: Labels, items: Items, names: list[str]) -> Facts:
    shown = items.show(row)
    doubtful, _ = judgement.rank_labels(row, is_random=False)
    image, note = _read_image(items, row) if shown["image"] else ("", "")
    absent = labels.negative[[row]].indices.tolist()
    return {
        "item": str(items.ids[row]),
        "texts": [[name, _shorten(text)] for name, text in shown["texts"] if text],
        "fields": [[name, _shorten(text)] for name, text in shown["fields"]][:_MOST_FIELDS],
        "image": image,
        "note": note,
        "present": [names[j] for j in labels.positive[[row]].indices.tolist()],
        "absent": [names[j] for j in absent[:_MOST_ABSENT]],
        "n_absent": len(absent),
        "doubtful": [[names[j], float(judgement.probability[row, j]), bool(judgement.added[row, j])] for j in doubtful],
        "expected_errors": float(judgement.worth[row]),
    }


def _read_image(items: Items, row: int) -> tuple[str, str]:
    """The image as a small data URI; or "" and why it is not shown."""
    try:
        found = items.image(row)
    except (OSError, ValueError) as error:
        return "", " ".join(str(error).split())
    return ("", "") if found is None else (shrink(*found), "")


def shrink(content: bytes, kind: str) -> str:
    """An image as a data URI, at most some hundred pixels wide and high and some ten thousand bytes."""
    from PIL import Image

    image = Image.open(io.BytesIO(content))
    if max(image.size) > _MOST_PIXELS or len(content) > _MOST_BYTES:
        small = image.convert("RGB")
        small.thumbnail((_MOST_PIXELS, _MOST_PIXELS))
        file = io.BytesIO()
        small.save(file, "JPEG", quality=82)
        content, kind = file.getvalue(), "image/jpeg"
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _calibrate(completion: Completion, unseen: Floats | None) -> Facts | None:
    """Stated probabilities beside the answers about the reviewed rows; None without such rows."""
    labels = completion.labels
    rows = np.flatnonzero(labels.is_sample)
    if not len(rows):
        return None
    present = labels.observed[rows].astype(bool)
    found, is_open = _judge_again(completion, rows)
    return {
        "rows": len(rows),
        "model": [] if unseen is None else bin_entries(unseen[rows].ravel(), present.ravel()),
        "held_out": bin_entries(found[is_open], present[is_open]) if is_open.any() else [],
    }


def _judge_again(completion: Completion, rows: npt.NDArray[np.intp]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Probabilities of reviewed rows, made without their answers but for one label; and where they count.

    A fifth of the rows at a time is judged by what is known of the others. One label of each, drawn at random, stays
    known, as if it were the only one observed.
    """
    from onepos.completion import complete_labels

    labels, rng = completion.labels, np.random.default_rng(completion.seed)
    order = rng.permutation(len(rows))
    found, is_open = np.zeros((len(rows), len(labels.classes))), np.ones((len(rows), len(labels.classes)), bool)
    for part in range(min(_PARTS, len(rows))):
        mine = order[part::_PARTS]
        kept = [(rows[k], rng.choice(each)) for k in mine if len(each := labels.positive[[rows[k]]].indices)]
        hidden = _hide(labels, rows[mine], kept)
        at_random = labels.is_sample.copy()
        at_random[rows[mine]] = False
        with _without_warnings():
            again = complete_labels(
                None,
                hidden,
                held_out=completion.held_out,
                min_precision=completion.min_precision,
                random_rows=at_random,
                random_state=completion.seed,
            )
        found[mine] = again.probability[rows[mine]]
        is_open[mine] = ~np.asarray(hidden.positive[rows[mine]].toarray(), bool)
    return found, is_open


def _hide(labels: Labels, rows: npt.NDArray[np.intp], kept: list[tuple[int, int]]) -> Labels:
    """The labels without all that is known of some rows, but for the entries that are kept."""
    stays = np.ones(len(labels), bool)
    stays[rows] = False
    places = np.array(kept, np.intp).reshape(-1, 2)
    one = sp.coo_array((np.ones(len(places), bool), (places[:, 0], places[:, 1])), labels.positive.shape)
    positive, negative = (sp.csr_array(each.multiply(stays[:, None])) for each in (labels.positive, labels.negative))
    return replace(labels, positive=sp.csr_array(positive + one.tocsr()), negative=negative)


def _without_warnings() -> Any:
    import warnings

    return warnings.catch_warnings(action="ignore")


def _is_narrow(prior: Floats, interval: Floats) -> list[bool]:
    """Whether an interval stays between half and double the estimate."""
    lower, upper = interval.T
    found: list[bool] = ((lower >= prior / 2) & (upper <= 2 * prior)).tolist()
    return found


def _name_of(method: Any) -> str:
    """The name of a method in METHODS: with these parameters, or else of its class; or the name of its class."""
    from onepos.methods import METHODS

    made: Mapping[str, Any] = {name: make() for name, make in METHODS.items()}
    same = [name for name, each in made.items() if type(each) is type(method)]
    exact = [name for name in same if str(made[name].get_params()) == str(method.get_params())]
    return next(iter([*exact, *same]), type(method).__name__)


def _logit(probability: Floats) -> Floats:
    return np.asarray(np.log(probability) - np.log1p(-probability), np.float64)


def _shorten(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _MOST_CHARACTERS else words[: _MOST_CHARACTERS - 1] + "…"
