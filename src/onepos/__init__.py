"""onepos: multi-label classifiers from one positive label per example.

The public names are imported when first used, so that `import onepos` stays fast: torch comes with the first
name that needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from onepos.completion import Completion as Completion
    from onepos.completion import complete_labels as complete_labels
    from onepos.datasets import DATASETS as DATASETS
    from onepos.datasets import Dataset as Dataset
    from onepos.datasets import load_dataset as load_dataset
    from onepos.estimator import SinglePositiveClassifier as SinglePositiveClassifier
    from onepos.export import export_onnx as export_onnx
    from onepos.images.classifier import SinglePositiveImageClassifier as SinglePositiveImageClassifier
    from onepos.images.features import ImageFeatures as ImageFeatures
    from onepos.labels import Labels as Labels
    from onepos.methods import AN as AN
    from onepos.methods import ANLS as ANLS
    from onepos.methods import CRISP as CRISP
    from onepos.methods import EM as EM
    from onepos.methods import EMAPL as EMAPL
    from onepos.methods import EPR as EPR
    from onepos.methods import GR as GR
    from onepos.methods import METHODS as METHODS
    from onepos.methods import MIME as MIME
    from onepos.methods import PLC as PLC
    from onepos.methods import ROLE as ROLE
    from onepos.methods import SMILE as SMILE
    from onepos.methods import WAN as WAN
    from onepos.methods import BoostLU as BoostLU
    from onepos.methods import CRISPPlus as CRISPPlus
    from onepos.methods import LargeLoss as LargeLoss
    from onepos.methods.base import Batch as Batch
    from onepos.methods.base import Method as Method
    from onepos.methods.base import TrainView as TrainView
    from onepos.methods.crossfit import held_out_probabilities as held_out_probabilities
    from onepos.metrics import METRICS as METRICS
    from onepos.metrics import evaluate as evaluate
    from onepos.priors import PriorEstimate as PriorEstimate
    from onepos.priors import estimate_priors as estimate_priors
    from onepos.protocol import draw_single_positive as draw_single_positive
    from onepos.protocol import train_val_test_split as train_val_test_split
    from onepos.scoring import SCORERS as SCORERS
    from onepos.tables import TableEncoder as TableEncoder

_MODULES = {
    "onepos.methods.crossfit": ("held_out_probabilities",),
    "onepos.completion": ("Completion", "complete_labels"),
    "onepos.datasets": ("DATASETS", "Dataset", "load_dataset"),
    "onepos.estimator": ("SinglePositiveClassifier",),
    "onepos.export": ("export_onnx",),
    "onepos.images.classifier": ("SinglePositiveImageClassifier",),
    "onepos.images.features": ("ImageFeatures",),
    "onepos.labels": ("Labels",),
    "onepos.methods.base": ("Batch", "Method", "TrainView"),
    "onepos.methods": (
        "AN",
        "ANLS",
        "CRISP",
        "EM",
        "EMAPL",
        "EPR",
        "GR",
        "METHODS",
        "MIME",
        "PLC",
        "ROLE",
        "SMILE",
        "WAN",
        "BoostLU",
        "CRISPPlus",
        "LargeLoss",
    ),
    "onepos.metrics": ("METRICS", "evaluate"),
    "onepos.priors": ("PriorEstimate", "estimate_priors"),
    "onepos.protocol": ("draw_single_positive", "train_val_test_split"),
    "onepos.scoring": ("SCORERS",),
    "onepos.tables": ("TableEncoder",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'onepos' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
