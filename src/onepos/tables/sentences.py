"""Sentence embeddings: a vector per text, from weights that pip installs; nothing is fetched, and no code of theirs runs.

wordllama holds a vector per token of a language model; the embedding of a text is the mean of those of its tokens. Its own
loader looks at a hub for files that the package already holds, so the two files are read here.
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

MODELS = ("wordllama",)
WIDTHS = {"wordllama": 256}
"""How many numbers a text becomes."""

_TOKENIZER, _WEIGHTS = "tokenizers/l2_supercat_tokenizer_config.json", "weights/l2_supercat_256.safetensors"


def embed(texts: Sequence[str], model: str) -> npt.NDArray[np.float32]:
    """The embeddings of texts, each of length 1; 0 for a text without a token."""
    tokenizer, vectors = _load(model)
    made = np.zeros((len(texts), WIDTHS[model]), np.float32)
    for row, found in enumerate(tokenizer.encode_batch(list(texts), add_special_tokens=False)):
        if found.ids:
            made[row] = vectors[found.ids].mean(0, dtype=np.float32)
    return np.asarray(normalize(made) if len(made) else made, np.float32)


@lru_cache(maxsize=1)
def _load(model: str) -> tuple[Any, npt.NDArray[Any]]:
    """The tokenizer, and the vector of each token."""
    package = find_spec(model)
    try:
        from tokenizers import Tokenizer
    except ImportError:
        package = None
    if package is None or not package.submodule_search_locations:
        raise ImportError(
            f"text_model='{model}' needs the package {model}, which is not installed. Run: pip install 'onepos[text]'"
        )
    from safetensors.numpy import load_file

    folder = Path(package.submodule_search_locations[0])
    try:
        tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
        (vectors,) = load_file(folder / _WEIGHTS).values()
    except Exception as error:  # tokenizers raises nothing more special
        raise ImportError(
            f"text_model='{model}' needs {_TOKENIZER} and {_WEIGHTS} of the package {model}; they can not be read "
            f"({error}). Run: pip install --force-reinstall 'onepos[text]'"
        ) from error
    tokenizer.no_padding()
    return tokenizer, vectors
